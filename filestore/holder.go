package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// What became of the holder of a turn, as found by who wants it. It goes on
// record as the reason of a take-over.
const (
	holderLives   = ""
	holderDead    = "dead"    // the kernel says so, or it has given the grant up
	holderSilent  = "silent"  // it did not renew for its TTL, on the clock of who watched
	holderOverdue = "overdue" // it says itself that it held the turn for its whole MaxHold
)

// sighting is what a look at the holder of a turn showed.
type sighting struct {
	state   string
	renewed time.Time     // for people
	held    time.Duration // when it was last renewed, on its own clock
}

// watched is a lease of another process, and since when its count stood still.
type watched struct {
	grant    hansard.Grant
	instance string
	count    uint64
	since    time.Duration // of our own clock
	looked   time.Duration // and when it was last looked at
	ttl      time.Duration
}

// look tells what became of the holder of a turn. No clock but this process's own
// counts. That the holder's state can't be read is an error: it never means that
// there is none.
func (s *Store) look(name string, t *turnState) (sighting, error) {
	if seen, own := s.lookOwn(name, t); own {
		return seen, nil
	}
	began := s.cfg.mono() // before the look: a pause behind it is not silence
	r, life, err := s.lookForeign(t)
	if err != nil && s.planted(plantErrorIsDead) {
		return sighting{state: holderDead}, nil
	}
	if err != nil {
		return sighting{}, fmt.Errorf("look for the holder of the turn: %w", err)
	}
	seen := sighting{renewed: r.wall, held: r.held}
	switch {
	case life == givenUp, life == processGone && (!t.held.Remote || s.planted(plantRemoteDead)):
		seen.state = holderDead
	case r.flags&flagOverdue != 0:
		seen.state = holderOverdue
	case s.stoodStill(name, t, r.value, began):
		seen.state = holderSilent
	}
	return seen, nil
}

// lookOwn is look where this process keeps the grant alive itself.
func (s *Store) lookOwn(name string, t *turnState) (seen sighting, own bool) {
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inst == nil || l.inst.base() != t.instance {
		return seen, false
	}
	h := l.held[grantOf{name, t.held.Grant}]
	if h == nil {
		return sighting{state: holderDead}, true
	}
	seen = sighting{renewed: h.record.wall, held: s.cfg.mono() - h.began}
	switch {
	case s.overdue(h):
		seen.state = holderOverdue
	case s.cfg.mono()-h.renewed >= h.ttl:
		seen.state = holderSilent
	}
	return seen, true
}

// What became of the process that keeps a grant alive.
type keeping int

const (
	kept        keeping = iota
	givenUp             // it lives, and keeps the grant no more
	processGone         // the kernel says so
)

// uncounted stands for the count of a lease whose process is gone: it may have been
// renewed right before, so that who watches it begins anew.
const uncounted = ^uint64(0)

// lookForeign reads the record of a grant that another process keeps alive.
func (s *Store) lookForeign(t *turnState) (r tableRecord, life keeping, err error) {
	r.value = uncounted
	if !isInstance(t.instance) {
		return r, givenUp, nil // the record of another kind of store: nobody here
	}
	f, err := s.fs.Open(instancesDir+"/"+t.instance, vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return r, processGone, nil
	}
	if err != nil {
		return r, 0, err
	}
	defer f.Close() // and so gives back the lock
	if gone, err := isDead(f); err != nil || gone {
		return r, processGone, err
	}
	lease, found, err := findLease(f, nonceOf(t.held.Grant))
	switch {
	case err != nil:
		return r, 0, err
	case !found:
		return r, givenUp, nil
	}
	return lease, kept, nil
}

func isInstance(name string) bool {
	return len(name) == 32 && strings.Trim(name, "0123456789abcdef") == ""
}

// stoodStill tells whether the count of a lease has not changed for its TTL,
// from when this process first saw it to a moment before this look began. What
// was seen is kept, so that who tries now and then gets there as well.
func (s *Store) stoodStill(name string, t *turnState, count uint64, began time.Duration) bool {
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watched[name]
	if w != nil && w.grant == t.held.Grant && w.instance == t.instance && w.count == count {
		w.looked = began
		return began-w.since >= t.held.TTL || s.planted(plantSilentEarly) && began-w.since >= t.held.TTL/2
	}
	// Behind the look: a pause before it is not silence either.
	now := s.cfg.mono()
	l.dropWatches(now)
	l.watched[name] = &watched{grant: t.held.Grant, instance: t.instance, count: count, since: now, looked: now, ttl: t.held.TTL}
	return false
}

// dropWatches forgets what nobody has looked at for long, when there is much of it.
// What is looked at stays, however much: else, with many who wait, nobody would ever
// have watched for long enough. The caller holds l.mu.
func (l *leases) dropWatches(now time.Duration) {
	if l.watched == nil {
		l.watched, l.watches = map[string]*watched{}, maxSessions
	}
	if len(l.watched) < l.watches {
		return
	}
	for name, w := range l.watched {
		if now-w.looked > 4*w.ttl {
			delete(l.watched, name)
		}
	}
	l.watches = max(maxSessions, 2*len(l.watched))
}
