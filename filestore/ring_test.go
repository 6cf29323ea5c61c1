package filestore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/internal/vfs"
)

// TestGroupReachesRingEnd defends: when an entry ends exactly at the end of the ring, the
// following entries of the same group go to the beginning of the ring, where everybody looks for
// them. They once went past the end of the file: the next process did not find them and replaced
// the journal, and a power cut would have lost them.
func TestGroupReachesRingEnd(t *testing.T) {
	for others := 1; others <= 3; others++ {
		t.Run(fmt.Sprint(others), func(t *testing.T) { groupReachesRingEnd(t, others) })
	}
}

func groupReachesRingEnd(t *testing.T, others int) {
	d := vfs.NewDisk(1)
	open := func(name string, seed uint64) *Store {
		s, err := openOn(d.Process(name), seed, 64<<10) // several requests are a group
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s, other := open("writer", 1), open("other", 2)
	size := func() int64 {
		f, err := d.Process("looker").Open(journal.Name, vfs.ReadOnly)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		n, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	was := size()
	want := map[hansard.SessionID]int{}
	batch := func(id hansard.SessionID, n int) *request {
		want[id]++
		return newAppend(id, &hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte(`"` + strings.Repeat("x", n) + `"`)}}})
	}
	group := func(all ...*request) {
		t.Helper()
		s.committer.submitAll(t.Context(), all)
		for _, r := range all {
			if r.err != nil {
				t.Fatal(r.err)
			}
		}
	}
	for i := range others + 1 { // they exist now: from here on only lines are written
		group(batch(hansard.SessionID(fmt.Sprint("s", i)), 1))
	}
	hits := 0
	for round := 0; round < 1000 && hits < 3; round++ {
		before := s.lock.state.w.Written
		group(batch("s0", 8))
		length, left := s.lock.state.w.Written-before, s.lock.state.ring.Size-s.lock.state.w.Written%s.lock.state.ring.Size
		if left < length || left > 1000 {
			continue
		}
		// The first of these is to end exactly at the end of the ring.
		all := []*request{batch("s0", 8+int(left-length))}
		for i := range others {
			all = append(all, batch(hansard.SessionID(fmt.Sprint("s", i+1)), 8))
		}
		lap := s.lock.state.w.Written / s.lock.state.ring.Size
		group(all...)
		slots, _, best, err := journal.ReadSlots(s.lock.state.ring.File)
		if err != nil || best < 0 {
			t.Fatal(best, err)
		}
		sl := slots[journal.DurableSlot(slots, best, s.lock.state.w.Start, s.lock.state.w.Epoch)]
		entries, end, _, err := s.lock.state.ring.Scan(sl.Start, sl.StartChain, 0)
		if err != nil || end != s.lock.state.w.Written {
			t.Errorf("round %d: the ring is written to %d, and is valid to %d (%v)", round, s.lock.state.w.Written, end, err)
		}
		if slices.ContainsFunc(entries, func(e *journal.Entry) bool { return e.End() == (lap+1)*s.lock.state.ring.Size }) {
			hits++
		}
		want["s0"]++
		if _, err := other.Append(t.Context(), "s0", hansard.Batch{Events: []hansard.Event{text("%s", "other")}}); err != nil {
			t.Fatal(err)
		}
	}
	if hits < 3 {
		t.Errorf("an entry ended where the ring does %d times", hits)
	}
	if n := s.Measures()["journal_rotations_total"] + other.Measures()["journal_rotations_total"]; n != 0 {
		t.Errorf("the journal was replaced %v times", n)
	}
	if now := size(); now != was {
		t.Errorf("the journal had %d bytes and has %d", was, now)
	}
	for id, n := range want {
		if info, err := other.Stat(t.Context(), id); err != nil || int(info.LastSeq) != n {
			t.Errorf("%s: last seq %d (%v), want %d", id, info.LastSeq, err, n)
		}
	}
}

// TestManyLaps: two stores on real files, many goroutines in each, and a ring so small that it
// wraps around dozens of times with entries that often end at its end. No journal is replaced,
// and every event is there once.
func TestManyLaps(t *testing.T) {
	for i := range scale(1) {
		t.Run(fmt.Sprint(i), manyLaps)
	}
}

func manyLaps(t *testing.T) {
	const (
		goroutines, each = 16, 250
		// With one session per goroutine and texts of this width, all entries have the same
		// length and 211 of them make a lap. So whatever the size of a group, it rarely ends at
		// the end of the ring.
		width, length = 71, 320
		lap           = 211
	)
	dir := t.TempDir()
	stores := make([]*Store, 2)
	for i := range stores {
		cfg := defaultConfig()
		cfg.ringSize = lap * length
		fsys, err := vfs.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer fsys.Close()
		if stores[i], err = open(fsys, Options{LockWait: time.Hour}, cfg); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	told := map[hansard.SessionID]map[hansard.Seq]string{}
	for i, s := range stores {
		for g := range goroutines {
			wg.Go(func() {
				for n := range each {
					id := hansard.SessionID(fmt.Sprintf("s%02d", i*goroutines+g))
					tag := fmt.Sprintf("%d.%02d.%03d", i, g, n)
					r, err := s.Append(t.Context(), id, hansard.Batch{Create: true, Events: []hansard.Event{text("%s%*d", tag, width, 0)}})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if told[id] == nil {
						told[id] = map[hansard.Seq]string{}
					}
					told[id][r.First] = tag
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	laps := stores[0].lock.state.w.Written / stores[0].lock.state.ring.Size
	if laps < 10 {
		t.Errorf("the ring went around %d times", laps)
	}
	total := 0
	for id, events := range told {
		for e, err := range stores[0].Read(t.Context(), id, hansard.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			if tag := events[e.Seq]; !strings.HasPrefix(string(e.Data), `"`+tag+" ") || tag == "" {
				t.Errorf("%s: seq %d is %s, and was told %q", id, e.Seq, e.Data, tag)
			}
			total++
		}
	}
	if want := len(stores) * goroutines * each; total != want {
		t.Errorf("%d events, want %d", total, want)
	}
	for _, s := range stores {
		if n := s.Measures()["journal_rotations_total"]; n != 0 {
			t.Errorf("the journal was replaced %v times", n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
