package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Opening a log for reading: everything that reads a session begins here (read.go,
// list.go, wait.go, turn.go, import.go). No lock is taken, so a writer that is stopped
// anywhere blocks no reader (invariant 19), and the log may change at every step:
//
//	backlog.go    the log, with what the journal holds for it until recovery is over
//	header        whose log it is, and in which format
//	tail          the last line that ends its batch: the limit for readers (R1)
//	aside, dirty  should there be more in the log?
//
// "not found", "damaged" and "fine" are three answers, and the first is given only if no
// trace of a session is left (failures F1 and 24). Lines that are in no log yet because
// their batch is being written are not damage; lines that the log had and lost are.

// reader reads sessions. It takes no lock of the store; its methods may run concurrently.
type reader struct {
	*process
	asides *asides
	checks *checks
	dirty  *dirtyLogs
	// keyring finds events by their ids.
	keyring *keyring

	// backlog is what the journal holds while the logs are not known to be complete. The
	// mutex also keeps readers from scanning the ring all at once.
	backlogMu sync.Mutex // guards backlog
	backlog   *backlog
}

// openedLog is a log opened for reading, as it was at one moment. Readers stop at tail:
// anything appended in the meantime comes after it.
type openedLog struct {
	f      vfs.File
	header *sessionlog.Header    // nil: damaged, see damage
	tail   *sessionlog.Tail      // nil: no sound end was found
	damage *hansard.DamagedError // nil: no damage was seen; else SafeSeq is how far it is sound
	aside  bool                  // lines were set aside when it was opened
}

// openLogForRead opens a session's log. ErrNotFound, ErrDeleted, ErrVersion and
// ErrUnreadable are errors, with nothing to close. Damage is part of the result, because
// what is before it can be read (R3); then header or tail may be nil. A session that has
// only set-aside lines left, or whose log this process knows is missing, is a damage
// error. The caller closes l.f.
//
// behind is why the log may show less than was acknowledged: the journal is damaged, or
// does not follow the log. Then even "not found" may be wrong.
//
// The order of the steps matters. aside/ is listed before the tail is read: lines that
// are moved to the log between the two are then seen twice at worst, which openTail
// notices; the other way round they could be missed in both places.
func (rd *reader) openLogForRead(ctx context.Context, id hansard.SessionID) (l *openedLog, err error) {
	if err := rd.readable(ctx, id); err != nil {
		return nil, err
	}
	name := sessionlog.EncodeName(id)
	f, behind, err := rd.openToRead(name)
	defer func() {
		if behind != nil && errors.Is(err, hansard.ErrNotFound) {
			err = fmt.Errorf("session %s is in no log, but may have been in the journal: %w", id, behind)
		}
	}()
	switch {
	case errors.Is(err, fs.ErrNotExist) && rd.sessionsGone():
		return nil, errSessionsGone
	case errors.Is(err, fs.ErrNotExist):
		if d, err := rd.asides.asideDamage(name, id); err != nil {
			return nil, err
		} else if d != nil {
			return nil, &setAsideError{d}
		}
		if d := rd.harmed(nil, name, id); d != nil {
			return nil, d
		}
		return nil, fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
	case errors.Is(err, vfs.ErrNotRegular):
		return nil, sessionlog.DamagedAt(id, 0, "the log can't be opened: %v", err)
	case err != nil:
		return nil, rd.unreadableLog(id, err)
	}
	f = bounded(ctx, f)
	l = &openedLog{f: f}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	aside, err := rd.asides.asides(name)
	if err != nil {
		return nil, rd.explain(err)
	}
	l.aside = len(aside) > 0
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	l.header, err = rd.readHeader(f, name, id)
	if err == io.EOF {
		return nil, rd.notYet(f, name, id)
	}
	if err != nil && l.header != nil && errors.As(err, &l.damage) {
		return l, nil // a fork without its own first line: what is before that can be read
	}
	var damaged *hansard.DamagedError
	if errors.As(err, &damaged) {
		if d, err := rd.asides.asideDamage(name, id); err == nil && d != nil {
			damaged = d // the cause: it says what happened to the log
		}
		l.header, l.damage = nil, damaged
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	for range 5 {
		if err := rd.openTail(l, name, id, size); err != nil {
			return nil, err
		}
		if l.tail != nil || l.damage != nil {
			l.mayLack(id, behind)
			return l, nil
		}
		// The log grew between two reads of it: neither is wrong, try again.
		if size, err = f.Size(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("session %s: the log changes as it is read", id)
}

// readHeader is ReadHeader for a log that may be under construction: io.EOF if it is.
func (rd *reader) readHeader(f vfs.File, name string, id hansard.SessionID) (*sessionlog.Header, error) {
	h, err := sessionlog.ReadHeader(f, id)
	if err == sessionlog.ErrEmptyLog {
		err = rd.emptied(f, id)
	}
	if err == io.EOF && h != nil {
		err = rd.forkUnfinished(f, name, id, h)
	}
	return h, err
}

// mayLack turns the chance that acknowledged events are missing after the end of a log
// into damage: showing the log as if it were complete would be silent loss (failure 56).
// Damage found in the log itself takes precedence.
func (l *openedLog) mayLack(id hansard.SessionID, behind error) {
	if behind == nil || l.damage != nil {
		return
	}
	l.damage = sessionlog.DamagedAt(id, 0, "%v", behind)
	var damagedJournal *journal.DamagedError
	l.damage.Journal = errors.As(behind, &damagedJournal)
	if l.tail != nil {
		l.damage.Offset, l.damage.SafeSeq = l.tail.End, l.tail.Last.Seq
	}
}

// notYet is the error for a log whose first batch is not whole: the session is being
// created and does not exist yet, or its first lines could not be written and were set
// aside, or the log was truncated from outside.
func (rd *reader) notYet(f vfs.File, name string, id hansard.SessionID) error {
	if d, err := rd.asides.asideDamage(name, id); err != nil {
		return err
	} else if d != nil {
		return &setAsideError{d}
	}
	if d := rd.harmed(f, name, id); d != nil {
		return d
	}
	return fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
}

// emptied distinguishes an empty log that is being created, io.EOF, from one that was
// emptied from outside, which is damage. apply creates a log and then writes to it; in
// between it is empty, and the ring has an entry that is not applied. If everything is
// applied and the log is still empty, no lines are on their way. When in doubt it is
// being created: that is the smaller mistake.
func (rd *reader) emptied(f vfs.File, id hansard.SessionID) error {
	w, ok := peers.LookAtControl(rd.fs)
	// The size is read after control: an entry applied in between would have filled it.
	size, err := f.Size()
	if err != nil || !ok || w.Applied < w.Written || size > 0 {
		return io.EOF
	}
	return sessionlog.DamagedAt(id, 0, "the log is empty")
}

// openTail reads the end of the first size bytes of an opened log and sets l.tail or
// l.damage; neither means that the log changed while it was read, and the caller tries
// again. When this process first touches a short log, checkOnce reads all of it; of a
// long one only the end is read, so that the cost does not grow with the session (failure
// 55). ErrDeleted, ErrNotFound and read errors are returned as errors.
func (rd *reader) openTail(l *openedLog, name string, id hansard.SessionID, size int64) error {
	tail, err := sessionlog.ReadTail(l.f, size)
	var damaged *hansard.DamagedError
	switch {
	case errors.As(err, &damaged) && damaged.Offset == 0:
		// Going back from the end no batch was whole: either the first one is being
		// written, or the header is damaged.
		var whole bool
		if whole, err = sessionlog.WholeBatch(l.f); err == nil && !whole {
			return rd.notYet(l.f, name, id)
		}
		if err == nil {
			_, l.damage, err = sessionlog.Check(l.f, id, new(sessionlog.Decoder).Decode)
		}
	case errors.As(err, &damaged):
		// The end is damaged: only a check of the whole log tells how far it is safe. If
		// Check finds nothing, the line was being written when the tail was read.
		_, l.damage, err = sessionlog.Check(l.f, id, new(sessionlog.Decoder).Decode)
	case err != nil:
		return err
	case tail.Last.Deleted:
		return fmt.Errorf("session %s: %w", id, hansard.ErrDeleted)
	default:
		if l.damage, err = rd.checks.checkOnce(l.f, name, id, tail.End); err == nil && l.damage == nil && tail.End < size {
			l.damage, err = sessionlog.DamagedEnd(l.f, id, tail, size)
		}
	}
	if err != nil {
		return err
	}
	l.tail = tail
	if l.damage != nil || tail == nil {
		return nil
	}
	// The lines are sound. Should there be more after them?
	if l.aside {
		if l.damage, err = rd.asides.asideDamage(name, id); err != nil {
			return rd.explain(err)
		}
		if l.damage == nil {
			// The lines were added to the log in the meantime, after the tail we read:
			// try again.
			l.tail, l.aside = nil, false
			return nil
		}
	} else {
		// A log that was cut at the end of a batch is sound by itself. Only the ring
		// knows that it was longer.
		l.damage = rd.harmed(l.f, name, id)
	}
	if l.damage != nil {
		l.damage.Offset, l.damage.SafeSeq = tail.End, tail.Last.Seq
	}
	return nil
}
