package filestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"syscall"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// What the ring says was written to the logs since its start. A log that no longer has it
// was modified from outside, and the ring has the only copy of the missing lines: they
// are set aside before a checkpoint frees their space, and reported to readers before
// that. Otherwise reported damage would be forgotten together with the lines.
//
// This covers logs that were truncated, replaced or removed while the store is in use.
// Lines that a log never got are up to apply; damage inside a log is found by check.go.

// dirtyLog is a log that received entries since the ring's start. It is a cache of the
// ring: dropCaches drops it, and reload and catchup rebuild it.
type dirtyLog struct {
	first  uint64 // position of its first entry in the ring, or before that
	end    uint64 // of its last entry in the ring: forgotten once start is past it
	logEnd int64  // least length of the log: entries up to there were applied; 0: not known
	crc    uint32 // of the line that ends there
	kept   bool   // the lines that the log has lost were set aside
	// takes are the positions of those entries since the ring's start that are tombstones or
	// redactions.
	takes []uint64
}

// dirtyLogs are the dirty logs, by name. They change under write.lock only; the mutex is
// for readers, which look up single logs without it.
type dirtyLogs struct {
	mu sync.Mutex
	m  map[string]*dirtyLog
}

// takenBefore tells whether the ring has a tombstone or a redaction of the log, from start on
// and before pos. Its first entry says nothing about that: a log that is written to all the
// time has been in the ring for long (TestScrubBesideRedactions).
func (d *dirtyLog) takenBefore(start, pos uint64) bool {
	return slices.ContainsFunc(d.takes, func(at uint64) bool { return at >= start && at < pos })
}

// get is the zero dirtyLog for a log that is not dirty.
func (l *dirtyLogs) get(name string) dirtyLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.m[name]; d != nil {
		return *d
	}
	return dirtyLog{}
}

// had are the logs that had lines according to the ring, and that hasLog does not find, in
// order. Some may have been freed since, or never had a log again: describe finds out.
func (l *dirtyLogs) had(hasLog func(name string) bool) (lost []string) {
	l.mu.Lock()
	for name, d := range l.m {
		if d.logEnd > 0 {
			lost = append(lost, name)
		}
	}
	l.mu.Unlock() // hasLog may wait for a disk
	return sorted(slices.DeleteFunc(lost, hasLog))
}

// change updates the record of a log, or creates it. The caller holds write.lock.
func (l *dirtyLogs) change(name string, fn func(*dirtyLog)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string]*dirtyLog{}
	}
	d := l.m[name]
	if d == nil {
		d = &dirtyLog{}
		l.m[name] = d
	}
	fn(d)
}

// reset forgets all: the ring is another one, or empty.
func (l *dirtyLogs) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.m = nil
}

// since are the logs with entries after start; the others are forgotten, which bounds the
// map by what a ring can hold. The caller holds write.lock.
func (l *dirtyLogs) since(start uint64) map[string]dirtyLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make(map[string]dirtyLog, len(l.m))
	for name, d := range l.m {
		if d.end > start {
			for len(d.takes) > 0 && d.takes[0] < start {
				d.takes = d.takes[1:] // copies of d share them
			}
			found[name] = *d
		} else {
			delete(l.m, name)
		}
	}
	return found
}

// note records an entry that is in the ring: written by us, found by catchup, or read on
// joining. The caller holds write.lock, and notes entries in ring order. from is the
// memory that holds the entry; nil: memory that is not reused.
func (l *locked) note(e *journal.Entry, from *memory) {
	// A new entry: what was set aside so far is no longer all that the log could lose.
	l.logs.dirty.change(e.Name, func(d *dirtyLog) {
		if d.end <= l.w.Start {
			// What was known is freed, and the log may have been replaced since, by a
			// repair or a redaction (found by TestSimRedact).
			*d = dirtyLog{first: e.Pos}
		}
		d.end, d.kept = e.End(), false
		if e.Deletes || e.Redacts {
			d.takes = append(d.takes, e.Pos)
		}
	})
	if e.Redacts {
		l.logs.beRedacted(e.Name)
	}
	// Applied is trusted: the process that published it wrote the log before (J1).
	if e.End() > l.w.Applied {
		l.logs.pending.add(e, from)
	} else {
		l.logs.noteApplied(e)
	}
}

// noteApplied records the least length of a log, now that an entry is in it. It never
// becomes less: catchup notes what another process has applied since before it comes to
// what was pending here (TestLostBehindPending).
func (ol *logs) noteApplied(e *journal.Entry) {
	ol.dirty.change(e.Name, func(d *dirtyLog) {
		if end := e.Offset + int64(len(e.Lines)); end > d.logEnd {
			d.logEnd, d.crc = end, e.LineCRC
		}
	})
}

// isIn tells whether a log still has what was written to it, by the checksum of the last
// of those lines. Edits before it that do not change the length are left to check.go.
func (d *dirtyLog) isIn(f vfs.File) (bool, error) {
	if d.logEnd == 0 {
		return true, nil
	}
	size, err := f.Size()
	if err != nil || size < d.logEnd {
		return false, err
	}
	crc, err := sessionlog.CRCBefore(f, d.logEnd)
	return err == nil && crc == d.crc, err
}

// harmed is the damage of a log that has lost lines which this process knows were written
// to it; f is nil if the log is missing. nil means that no loss is known. It takes no
// lock, so everything it sees may change in the meantime: it reports damage only if the
// name still leads to this file, and the ring still has entries for the log. Without
// entries in the ring, a repair may legitimately have replaced the log.
func (rd *reader) harmed(f vfs.File, name string, id hansard.SessionID) *hansard.DamagedError {
	d := rd.dirty.get(name)
	if d.logEnd == 0 {
		return nil
	}
	if f != nil {
		// Checked before the name: if the name then leads to this file, that file lacks
		// the lines.
		if ok, err := d.isIn(f); ok || err != nil {
			return nil // reading on hits the error again, and reports it
		}
	}
	inode, size, err := rd.fs.Inode(sessionlog.Path(name))
	switch {
	case f == nil && errors.Is(err, fs.ErrNotExist):
	case f == nil || err != nil:
		return nil // it appeared in the meantime, or can't be examined
	default:
		if own, err := f.Inode(); err != nil || own != inode {
			return nil // the log was replaced just now
		}
	}
	// Last: there may have been a checkpoint or a repair while we looked.
	if w, ok := peers.LookAtControl(rd.fs); !ok || d.end <= w.Start {
		return nil
	}
	return lostLines(id, f == nil, size, d.logEnd)
}

// lostLines is the damage of a log that lacks what was written to it: missing, shorter,
// or a different one.
func lostLines(id hansard.SessionID, missing bool, size, was int64) *hansard.DamagedError {
	switch {
	case missing:
		return sessionlog.DamagedAt(id, 0, "the log is missing")
	case size < was:
		return sessionlog.DamagedAt(id, size, "the log is shorter than what was written to it: it had %d bytes", was)
	}
	return sessionlog.DamagedAt(id, 0, "the log is another than what was written to it")
}

// appliedEntries are the entries of the ring that were applied, from the durable start
// on, under write.lock. Copies and repairs use them.
func (l *locked) appliedEntries() ([]*journal.Entry, error) {
	// From the durable slot on, not from this process's cursor: entries that were applied
	// long ago are in no cache.
	slots, _, best, err := journal.ReadSlots(l.ring.File)
	if err != nil || best < 0 {
		return nil, errors.Join(err, errors.New("the journal has no valid slot"))
	}
	// The slot of the published start, so that no entry is missed that is not freed yet.
	sl := slots[journal.DurableSlot(slots, best, l.w.Start, l.w.Epoch)]
	entries, _, _, err := l.ring.Scan(sl.Start, sl.StartChain, l.w.Applied)
	if err != nil {
		return nil, err
	}
	n := 0
	for n < len(entries) && entries[n].End() <= l.w.Applied {
		n++
	}
	return entries[:n], nil
}

// keepLost sets aside the lines that some logs have lost and the ring still has, under
// write.lock. After nil the ring is not needed for them any more, and its space may be
// freed. It waits for the disk under the lock, which only damage justifies; kept saves
// doing it again with every refused write.
func (l *locked) keepLost(names ...string) error {
	names = slices.DeleteFunc(names, func(name string) bool { return l.logs.dirty.get(name).kept })
	if len(names) == 0 {
		return nil
	}
	entries, err := l.appliedEntries()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.keepLostOf(name, entries); err != nil {
			return fmt.Errorf("set aside what the log of %s has lost: %w", name, err)
		}
		l.logs.dirty.change(name, func(d *dirtyLog) { d.kept = true })
	}
	return nil
}

// keepAllLost is keepLost for every log that lacks what the ring says was written to it.
func keepAllLost(l *locked) error {
	var lost []string
	dirty := l.logs.dirty.since(l.w.Start)
	for _, name := range slices.Sorted(maps.Keys(dirty)) {
		d, there := dirty[name], false
		// An error is judged by keepLostOf.
		if f, err := l.fs.Open(sessionlog.Path(name), vfs.ReadOnly); err == nil {
			there, err = d.isIn(f)
			there = there && err == nil
			_ = f.Close()
		}
		if !there {
			lost = append(lost, name)
		}
	}
	return l.keepLost(lost...)
}

// keepLostOf does that for one log. Each entry is compared separately: a log may have
// lost some and not others. If it can't be decided now (too many open files) that is an
// error, and the space is not freed.
func (l *locked) keepLostOf(name string, entries []*journal.Entry) error {
	// An error on opening is judged entry by entry below: a missing log has lost all of
	// them.
	f, err := l.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
	if err == nil {
		defer f.Close()
	}
	return setAsideLost(l, name, entries, f, err)
}

// errBack: a log could not be opened to be synced, and then it could.
var errBack = errors.New("the log was away for a moment")

// keepUnsynced sets aside what the ring has for logs that could not be opened to be made
// durable. If one can be opened by now, that is the error still, and the space is not
// freed: it may have all its lines, but not durably. The next checkpoint syncs it.
func keepUnsynced(l *locked, logs []unsyncedLog) error {
	if len(logs) == 0 {
		return nil
	}
	entries, err := l.appliedEntries()
	if err != nil {
		return err
	}
	for _, u := range logs {
		f, err := l.fs.Open(sessionlog.Path(u.name), vfs.ReadOnly)
		if err == nil {
			_ = f.Close()
			return fmt.Errorf("%w: sync the log of %s: %w", errBack, u.name, u.err)
		}
		if err := setAsideLost(l, u.name, entries, nil, err); err != nil {
			return fmt.Errorf("set aside what the log of %s has lost: %w", u.name, err)
		}
	}
	return nil
}

// setAsideLost sets aside those entries of a log that it does not have. opened is why it
// could not be opened; nil: f is the log.
func setAsideLost(l *locked, name string, entries []*journal.Entry, f vfs.File, opened error) error {
	for _, e := range entries {
		if e.Name != name {
			continue
		}
		there, err := false, opened
		if err == nil {
			there, err = has(f, e)
		}
		why := changedLog("it does not have what was written to it")
		switch {
		case there:
			continue
		case errors.Is(err, fs.ErrNotExist):
			why = changedLog("it is missing")
		case isForeign(err) || errors.Is(err, syscall.EIO):
			why = couldNot(err)
		case err != nil:
			return err // it may be temporary
		}
		if err := l.asides.setAside(e, why); err != nil {
			return err
		}
		l.w.Flags |= peers.FlagAside
		if sess := l.logs.sessions[name]; sess != nil && sess.draft == nil {
			// The next plan has to see the damage. Not with a draft: that was decided
			// under this same lock, and its lines are set aside if they turn out not to
			// fit.
			sess.known = false
		}
	}
	return nil
}

// has tells whether a log has an entry's bytes where they belong.
func has(f vfs.File, e *journal.Entry) (bool, error) {
	b := make([]byte, len(e.Lines))
	n, err := f.ReadAt(b, e.Offset)
	if err == io.EOF {
		err = nil
	}
	return err == nil && n == len(b) && string(b) == string(e.Lines), err
}
