package filestore

import (
	"fmt"
	"maps"
	"sync"

	"hansard"
	"hansard/filestore/internal/peers"
)

// suspects are the logs whose sync and copy both failed, keyed by the slot of their mark:
// no later sync of them may be believed, by this process or by those that find its mark
// after its end, only a copy (rule OwnMarkCounts). Checkpoints add to them without
// write.lock and recovery under it, so they have a mutex of their own, the last in the
// order of lock.go.
type suspects struct {
	mu sync.Mutex
	m  map[int]string // names of logs
}

// add remembers a log that must be copied before any sync of it is believed. Its mark is
// in this slot, and stays there.
func (s *suspects) add(slot int, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[int]string{}
	}
	s.m[slot] = name
}

// acquit forgets a suspect that was copied.
func (s *suspects) acquit(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, slot)
}

// all is a copy: acquit changes the map while the caller goes over it.
func (s *suspects) all() map[int]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.m)
}

// any tells whether there are suspects. Then this process's marks must outlive it (leave
// keeps its instance file): the kernel reports the failure to no later descriptor
// (TestSuspectOutlives).
func (s *suspects) any() bool { return len(s.all()) > 0 }

// has tells whether the mark in a slot belongs to a log that must be copied.
func (s *suspects) has(slot int) bool { return s.all()[slot] != "" }

// slotFor is the slot for the mark of a log that is about to be synced or copied: its own,
// if it is a suspect already, else one that no suspect occupies.
func (s *suspects) slotFor(name string) (slot int, suspect bool, err error) {
	for slot, other := range s.all() {
		if other == name {
			return slot, true, nil
		}
	}
	free, err := s.free()
	if err != nil {
		return 0, false, err
	}
	return free[0], false, nil
}

// free returns the slots of marks that no suspect log occupies; an error if there are none.
func (s *suspects) free() (free []int, err error) {
	taken := s.all()
	for slot := range peers.MarkSlots {
		if taken[slot] == "" {
			free = append(free, slot)
		}
	}
	if len(free) == 0 {
		return nil, fmt.Errorf("%w: %d logs can neither be synced nor copied", hansard.ErrFailed, peers.MarkSlots)
	}
	return free, nil
}
