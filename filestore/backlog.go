package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// After a power cut acknowledged events may be in the journal only, until the first
// process to open the store has copied them to the logs. A reader can't wait for that:
// recovery takes as long as the disk does, its process may be stopped, and on a read-only
// mount nobody recovers. So a reader that does not know the logs to be complete reads
// each log together with what the journal holds for it (J7). It takes no lock and writes
// nothing. Without this, acknowledged events would be missing, with exit 0 (failure 56,
// planted bug "logs read before recovery").
//
// Completeness is permanent: once the logs have been complete during the life of this
// process there was no power cut since, and an event is acknowledged only after it is in
// its log.

// backlog is what the journal holds for the logs, which may have it already. It is
// immutable once read.
type backlog struct {
	inode, hseq uint64                      // of the journal and of its newest slot, when read: if both are the same, so is the backlog
	entries     map[string][]*journal.Entry // by the name of the log, in ring order
	damage      error                       // damage of the journal: more may have been acknowledged than is here
}

// backlogTries is how often a journal that changes while it is read is read again. It
// changes when a process has recovered it; then the logs are complete, and the next try
// finds that.
const backlogTries = 5

// errCantTell refuses a reader that can't read the journal: showing the logs alone might
// show less than was acknowledged (failure 17).
var errCantTell = errors.New("can't tell whether the logs are complete")

// unapplied is the backlog that readers have to add to the logs; nil once the logs are
// known to be complete, which from then on costs one atomic load.
func (rd *reader) unapplied() (*backlog, error) {
	// The common case. It never becomes false again: see above.
	if rd.logsKnown.Load() {
		return nil, nil
	}
	rd.backlogMu.Lock()
	defer rd.backlogMu.Unlock()
	for range backlogTries {
		// Checked on every try: recovery may finish at any moment, and then there is
		// nothing to add.
		done, err := rd.logsComplete()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errCantTell, err)
		}
		if done {
			rd.logsKnown.Store(true)
			rd.backlog = nil
			return nil, nil
		}
		if err := rd.readBacklog(); err != nil {
			return nil, fmt.Errorf("%w: %w", errCantTell, err)
		}
		if rd.backlog != nil {
			return rd.backlog, nil
		}
	}
	return nil, errors.New("the journal changes as it is read")
}

// logsComplete tells whether the logs are known to have everything that was acknowledged
// (J7): there is no journal, the last process to leave emptied it, or a living process
// has joined, which none does before recovery is over. An instance file that is locked
// but not joined proves nothing: its process may be the one recovering. An error means
// that nothing is known.
func (rd *reader) logsComplete() (bool, error) {
	f, err := rd.fs.Open(journal.Name, vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // nothing to recover from: a new store, or logs that were copied here
	}
	if err == nil {
		var slots [2]journal.Slot
		var best int
		slots, _, best, err = journal.ReadSlots(f)
		_ = f.Close()
		if err == nil && best >= 0 && journal.LeftClean(slots, best) {
			return true, nil
		}
	}
	// Also if we can't read the journal: one living process that has joined is enough.
	if rd.someoneJoined() {
		return true, nil
	}
	return false, err
}

// someoneJoined tells whether a living process has joined the store. Errors count as no:
// then the journal is read, which takes longer and is correct too.
func (rd *reader) someoneJoined() bool {
	entries, err := rd.fs.ReadDir(peers.InstancesDir)
	if err != nil {
		return false // then the journal is read
	}
	for _, e := range entries {
		if !e.Regular {
			continue
		}
		f, err := rd.fs.Open(peers.InstancesDir+"/"+e.Name, vfs.ReadOnly)
		if err != nil {
			continue // its process left, or we may not read it
		}
		// The order matters: a process that had joined, and was alive after we read that,
		// has finished recovery. IsDead tries a shared lock, so that two processes that
		// look at the same time do not take each other for the owner.
		joined := peers.HasJoined(f)
		gone, err := peers.IsDead(f)
		_ = f.Close()
		if joined && err == nil && !gone {
			return true
		}
	}
	return false
}

// readBacklog reads the journal into rd.backlog, or leaves nil there if the journal
// changed while it was read. The caller holds backlogMu.
func (rd *reader) readBacklog() error {
	r, slots, best, err := rd.openRing(vfs.ReadOnly)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		rd.backlog = nil
		return nil
	case errors.Is(err, hansard.ErrDamaged):
		rd.backlog = &backlog{damage: err}
		return nil
	case err != nil:
		return err
	}
	defer r.File.Close()
	if b := rd.backlog; b != nil && b.inode == r.Inode && b.hseq == slots[best].HSeq {
		return nil // entries are added only by processes that joined, and joining writes a slot
	}
	rd.backlog = nil
	// Killed writers may have left entries that no sync has reached, and what a reader
	// returns must survive a power cut (invariant 5). A read-only mount has nothing to
	// sync.
	if err := r.File.Datasync(); err != nil && !isReadOnly(err) {
		return fmt.Errorf("sync journal: %w", err)
	}
	b := &backlog{inode: r.Inode, hseq: slots[best].HSeq, entries: map[string][]*journal.Entry{}}
	entries, end, _, err := r.Scan(slots[best].Start, slots[best].StartChain, 0)
	if err == nil {
		// E4: what looks like the end of the ring may be damage.
		err = r.LostBehind(end, slots[best].Start)
	}
	if errors.Is(err, hansard.ErrDamaged) {
		b.damage, err = err, nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		b.entries[e.Name] = append(b.entries[e.Name], e)
	}
	// A process that recovered the store in the meantime may have reused the space, so
	// that what we read is a mix. It wrote a slot first: compare the slots.
	now, _, _, err := journal.ReadSlots(r.File)
	if err != nil {
		return err
	}
	// Both slots, and the inode: a repair or a rotation installs another file.
	if now == slots && rd.sameFile(journal.Name, r.Inode) {
		rd.backlog = b
	}
	return nil
}

// onlyInJournal are the names of the sessions that have entries in the backlog and no
// log, sorted. A list without them would omit sessions whose creation was acknowledged.
func (b *backlog) onlyInJournal(hasLog func(name string) bool) (names []string) {
	if b == nil {
		return nil
	}
	for name := range b.entries {
		if !hasLog(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// openToRead opens a log as it will be when recovery is over. behind is why it may show
// less than was acknowledged; nil: it does not. The caller closes the file, and reports
// behind as damage after the events it could read.
func (rd *reader) openToRead(name string) (f vfs.File, behind error, err error) {
	for try := 0; ; try++ {
		// Before the log is opened: a log opened after completeness was seen is complete.
		// The other way round, lines applied in between would be missed.
		b, err := rd.unapplied()
		if err != nil {
			return nil, nil, err
		}
		f, err := rd.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
		if b == nil {
			return f, nil, err
		}
		missing := errors.Is(err, fs.ErrNotExist)
		if err != nil && !missing {
			return nil, nil, err
		}
		entries := b.entries[name]
		// No such session, unless it was in the damaged part of the journal: the caller
		// reports that.
		if missing && len(entries) == 0 {
			return nil, b.damage, err
		}
		if missing {
			f = noLog{}
		}
		if id, _ := sessionlog.DecodeName(name); len(entries) > 0 {
			// The session was deleted, and the journal is older than that: see
			// unlessErased.
			if uid, erased, err := sessionlog.ReadErased(f, id); err == nil && erased && uid == entries[0].UID || sessionlog.FollowsDeleted(f, id, entries[0].UID) {
				return f, b.damage, nil
			}
		}
		whole, err := overlay(f, entries)
		if err == nil {
			return whole, b.damage, nil
		}
		if !errors.Is(err, errDoesNotFollow) {
			_ = f.Close()
			return nil, nil, err
		}
		if try == 0 {
			// The log may have been replaced or recovered between the two reads. Try once
			// more; what still does not fit then was modified from outside.
			_ = f.Close()
			continue
		}
		if missing {
			return nil, err, fs.ErrNotExist
		}
		return f, err, nil
	}
}

// errDoesNotFollow is why a log can't be read together with the journal: recovery will
// set the journal's lines aside (J3).
var errDoesNotFollow = errors.New("the log was modified from outside: what the journal has does not follow it")

// overlaid is a log with the lines that the journal holds for it. Where both have bytes,
// the journal's win: the log's may be the remains after a power cut. Only reading methods
// are overlaid; nobody writes through it.
type overlaid struct {
	vfs.File
	entries []*journal.Entry
	end     int64 // of the last entry
}

// overlay puts entries over a log by the same rules as apply (J3): the same log, the same
// line before, equal bytes or NULs. So a reader sees exactly what recovery will make of
// the log, or errDoesNotFollow if recovery will set lines aside.
func overlay(f vfs.File, entries []*journal.Entry) (vfs.File, error) {
	if len(entries) == 0 {
		return f, nil
	}
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > 0 && entries[0].Offset > 0 {
		uid, err := sessionlog.ReadUID(f)
		if err != nil {
			return nil, err
		}
		if uid != entries[0].UID {
			return nil, errDoesNotFollow
		}
	}
	o := &overlaid{File: f}
	for i, e := range entries {
		// Entries of one log are contiguous; only the first may begin inside it.
		if i == 0 && size < e.Offset || i > 0 && e.Offset != o.end {
			return nil, errDoesNotFollow
		}
		// The journal is older than the log, which was redacted since: see unlessErased.
		if redacted, err := hasRedacted(f, e); err != nil {
			return nil, err
		} else if there, err := has(f, e); redacted && err == nil && !there {
			o.end = e.Offset + int64(len(e.Lines))
			continue
		}
		if e.Offset > 0 {
			// Read through the overlay: the line before may be in the journal only.
			crc, err := sessionlog.CRCBefore(o, e.Offset)
			if err != nil && err != io.EOF {
				return nil, err
			}
			if err != nil || crc != e.LinePrev {
				return nil, errDoesNotFollow
			}
		}
		there := make([]byte, max(0, min(size-e.Offset, int64(len(e.Lines)))))
		if _, err := f.ReadAt(there, e.Offset); err != nil && err != io.EOF {
			return nil, err
		}
		if !bytes.Equal(there, e.Lines[:len(there)]) && !onlyNULsDiffer(there, e.Lines) {
			return nil, errDoesNotFollow
		}
		o.entries, o.end = append(o.entries, e), e.Offset+int64(len(e.Lines))
	}
	return o, nil
}

// Size is the size of the log after its entries are applied. It may be larger: a process
// that recovered the log in the meantime appends.
func (o *overlaid) Size() (int64, error) {
	size, err := o.File.Size()
	return max(size, o.end), err
}

// ReadAt reads the log and puts the entries' bytes over it. A log that ends before the
// entries gives io.EOF, which counts only if the entries end there too.
func (o *overlaid) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.File.ReadAt(p, off)
	if err != nil && err != io.EOF {
		return n, err
	}
	for _, e := range o.entries {
		if from, to := max(off, e.Offset), min(off+int64(len(p)), e.Offset+int64(len(e.Lines))); from < to {
			copy(p[from-off:to-off], e.Lines[from-e.Offset:])
			n = max(n, int(to-off))
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// noLog is the log of a session that is only in the journal so far: empty, never written.
type noLog struct{}

func (noLog) ReadAt([]byte, int64) (int, error)        { return 0, io.EOF }
func (noLog) Size() (int64, error)                     { return 0, nil }
func (noLog) Inode() (uint64, error)                   { return 0, nil }
func (noLog) Close() error                             { return nil }
func (noLog) WriteAt([]byte, int64) (int, error)       { return 0, syscall.EBADF }
func (noLog) CloneFrom(vfs.File, int64) (int64, error) { return 0, nil }
func (noLog) Truncate(int64) error                     { return syscall.EBADF }
func (noLog) Datasync() error                          { return syscall.EBADF }
func (noLog) Lock(vfs.LockMode) error                  { return syscall.EBADF }
func (noLog) TryLock(vfs.LockMode) (bool, error)       { return false, syscall.EBADF }
func (noLog) Unlock() error                            { return syscall.EBADF }
