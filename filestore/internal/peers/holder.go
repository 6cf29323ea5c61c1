package peers

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// Whether the holder of a turn still has it. Three questions, in this order:
//
//	is its process alive?       the kernel says: is the instance file still locked
//	does it keep the grant?     the grant's nonce is in the table of that file
//	does it renew?              the count in its record changes within the TTL
//
// No clock is compared between processes: time namespaces, suspended laptops and jumping
// clocks would take the turn from everybody at once. A claimant watches the count stand
// still for the TTL on its own monotonic clock.
//
// Looking takes no lock and decides nothing: a take-over is decided by looking again under
// write.lock, when the commit is planned (turnplan.go).

// The state of the holder of a turn, as a claimant found it. It is recorded as the reason
// for a take-over (why in FORMAT.md, Turns).
const (
	HolderLives   = ""
	HolderDead    = "dead"    // the kernel says so, or it gave the grant up
	HolderSilent  = "silent"  // it did not renew for its TTL, on the watcher's clock
	HolderOverdue = "overdue" // by its own account it held the turn for its whole MaxHold
)

// Sighting is the result of a look at the holder of a turn.
type Sighting struct {
	State   string
	Renewed time.Time     // when it was last renewed, by its wall clock; for people
	Held    time.Duration // how long it had the turn by then, on its own clock
}

// watchesMax is how many leases are watched before those nobody looks at are dropped.
const watchesMax = 1024

// watched is a lease of another process, and since when its count has stood still. Any
// change (another grant, another process that keeps it, another count) restarts the watch.
type watched struct {
	grant    hansard.Grant
	instance string
	count    uint64
	since    time.Duration // on our own clock, after the look that saw it first
	looked   time.Duration // and when it was last looked at
	ttl      time.Duration
}

// Look tells the state of the holder of a turn that an instance keeps alive. Only this
// process's own clock counts. If the holder's state can't be read (EMFILE, EIO, a record
// that is torn), that is an error and never a sign of death: the holder may be alive
// (failures 14 and 17, planted bug "error taken for death").
//
// A dead process does not mean a dead holder if the turn is remote: a server kept it for a
// client, which may go on through another server. That turn counts as silent after its TTL
// (planted bug "client dead with its server").
func (l *Leases) Look(name string, t *hansard.Turn, instance string) (Sighting, error) {
	if seen, own := l.lookOwn(name, t, instance); own {
		return seen, nil
	}
	began := l.mono() // before the look: our own pause after it is not their silence
	r, life, err := l.lookForeign(t, instance)
	if err != nil {
		return Sighting{}, fmt.Errorf("look for the holder of the turn: %w", err)
	}
	seen := Sighting{Renewed: r.wall, Held: r.held}
	switch {
	case life == givenUp, life == processGone && !t.Remote:
		seen.State = HolderDead
	// Its own statement, by its own clock: it counts even if the holder keeps renewing.
	case r.flags&flagOverdue != 0:
		seen.State = HolderOverdue
	case l.StoodStill(name, t, instance, r.value, began):
		seen.State = HolderSilent
	}
	return seen, nil
}

// lookOwn is Look for a grant that this process keeps alive itself: its memory is newer
// than its file, where a write may have failed. own is false if another process keeps the
// grant.
func (l *Leases) lookOwn(name string, t *hansard.Turn, instance string) (seen Sighting, own bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inst == nil || l.inst.Base() != instance {
		return seen, false
	}
	h := l.held[grantOf{name, t.Grant}]
	if h == nil {
		// Given up, or dropped after a long silence: nobody but this process would know it.
		return Sighting{State: HolderDead}, true
	}
	seen = Sighting{Renewed: h.record.wall, Held: l.mono() - h.began}
	switch {
	case l.overdue(h):
		seen.State = HolderOverdue
	case l.mono()-h.renewed >= h.ttl:
		seen.State = HolderSilent
	}
	return seen, true
}

// keeping is the state of the process that keeps a grant alive.
type keeping int

const (
	kept        keeping = iota
	givenUp             // it is alive, but its table does not have the grant
	processGone         // the kernel says so, or its file is gone
)

// Uncounted stands for the count of a lease whose process is gone. It may have been renewed
// just before, so the watch restarts at the death instead of continuing from the last count
// seen. No real count is that high.
const Uncounted = ^uint64(0)

// lookForeign reads the record of a grant that another process keeps alive. An error says
// nothing about the holder.
func (l *Leases) lookForeign(t *hansard.Turn, instance string) (r tableRecord, life keeping, err error) {
	r.value = Uncounted
	if !isInstance(instance) {
		return r, givenUp, nil // written by another kind of store: no process here keeps it
	}
	f, err := l.fs.Open(InstancesDir+"/"+instance, vfs.ReadOnly)
	// Instance files are removed only under write.lock, by their process when it leaves or
	// by others once it is dead. If a live process's file was removed by hand, the process
	// makes it again at its next claim, renewal or checkpoint (TestTurnInstanceRemoved).
	if errors.Is(err, fs.ErrNotExist) {
		return r, processGone, nil
	}
	if err != nil {
		return r, 0, err
	}
	defer f.Close() // this also releases the shared lock
	if gone, err := IsDead(f); err != nil || gone {
		return r, processGone, err
	}
	// Alive. A nonce that is not in the table was given up: KeepAlive writes it there
	// before the grant can be seen in the ring (planted bug "lease after its grant").
	lease, found, err := findLease(f, NonceOf(t.Grant))
	switch {
	case err != nil:
		return r, 0, err
	case !found:
		return r, givenUp, nil
	}
	return lease, kept, nil
}

// isInstance tells whether a name from a log may be a file name in instances/: 32 hex
// digits. A log may come from anywhere; a name in it must not lead out of the directory.
func isInstance(name string) bool {
	return len(name) == 32 && strings.Trim(name, "0123456789abcdef") == ""
}

// StoodStill tells whether the count of a lease has not changed for its TTL: from after the
// look that first saw it to before the look that saw it last, which began at began. Both
// ends err on the safe side: a pause of this process between looking and recording, however
// long, never counts as silence of the holder (failure 20, planted bug "silent too early").
//
// What was seen is kept between calls, so a claimant that only tries now and then also gets
// the turn.
func (l *Leases) StoodStill(name string, t *hansard.Turn, instance string, count uint64, began time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watched[name]
	if w != nil && w.grant == t.Grant && w.instance == instance && w.count == count {
		w.looked = began
		return began-w.since >= t.TTL
	}
	// Not began: a pause before the look is not silence either.
	now := l.mono()
	l.dropWatches(now)
	l.watched[name] = &watched{grant: t.Grant, instance: instance, count: count, since: now, looked: now, ttl: t.TTL}
	return false
}

// dropWatches forgets watches that have not been used for a long time, once there are many.
// Watches in use stay, however many: otherwise, with more than watchesMax turns waited for,
// each look would evict another's watch and nobody would ever have watched for long enough
// (TestTurnManyWatched). The caller holds l.mu.
func (l *Leases) dropWatches(now time.Duration) {
	if l.watched == nil {
		l.watched, l.watches = map[string]*watched{}, watchesMax
	}
	if len(l.watched) < l.watches {
		return
	}
	for name, w := range l.watched {
		if now-w.looked > 4*w.ttl {
			delete(l.watched, name)
		}
	}
	// Not again until the number has doubled: each sweep goes through all of them.
	l.watches = max(watchesMax, 2*len(l.watched))
}
