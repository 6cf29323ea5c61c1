package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"hansard"
	"hansard/internal/vfs"
)

// damagedAt is the error for a log that is wrong at an offset.
func damagedAt(id hansard.SessionID, off int64, format string, args ...any) *hansard.DamagedError {
	return &hansard.DamagedError{Session: id, Offset: off, Reason: fmt.Sprintf(format, args...)}
}

// openedLog is a log opened for reading.
type openedLog struct {
	f      vfs.File
	header *header
	tail   *logTail
	damage *hansard.DamagedError // nil: nothing wrong was seen
}

// openLogForRead opens a session's log. It answers ErrNotFound, ErrDeleted and
// ErrVersion; damage is in the result. The caller closes it.
func (s *Store) openLogForRead(ctx context.Context, id hansard.SessionID) (l *openedLog, err error) {
	if err := s.readable(ctx, id); err != nil {
		return nil, err
	}
	name := encodeName(id)
	f, err := s.fs.Open(logPath(name), vfs.ReadOnly)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if d := s.asideDamage(name, id); d != nil {
			d.Reason = "the log is missing; what was to be written to it is in " + asideDir
			return nil, d
		}
		return nil, fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
	case err != nil && isForeign(err):
		return nil, damagedAt(id, 0, "the log can't be opened: %v", err)
	case err != nil:
		return nil, fmt.Errorf("session %s: %w", id, err)
	}
	l = &openedLog{f: f}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	l.header, err = readHeader(f, id)
	if err == errEmptyLog {
		err = s.emptied(f, id)
	}
	if err == io.EOF {
		// It is being made: its first batch is not there yet.
		return nil, fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
	}
	var damaged *hansard.DamagedError
	if errors.As(err, &damaged) {
		l.header, l.damage = nil, damaged
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	for range 5 {
		if err := s.openTail(l, name, id, size); err != nil {
			return nil, err
		}
		if l.tail != nil || l.damage != nil {
			return l, nil
		}
		// What was not whole when we looked is whole now: look again.
		if size, err = f.Size(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("session %s: the log changes as it is read", id)
}

// emptied tells whether an empty log is one that is being made, io.EOF, or was
// emptied: nothing of the ring is on its way to the logs, and it is still empty.
func (s *Store) emptied(f vfs.File, id hansard.SessionID) error {
	c, err := s.fs.Open(controlName, vfs.ReadOnly)
	if err != nil {
		return io.EOF
	}
	defer c.Close()
	w, _, ok := (&control{f: c}).read()
	size, err := f.Size()
	if err != nil || !ok || w.applied < w.written || size > 0 {
		return io.EOF
	}
	return damagedAt(id, 0, "the log is empty")
}

// openTail reads the end of an opened log, and all of it where it is short.
func (s *Store) openTail(l *openedLog, name string, id hansard.SessionID, size int64) error {
	tail, err := readTail(l.f, size)
	if s.planted(plantHalfBatch) {
		tail, err = readLast(l.f, size)
	}
	var damaged *hansard.DamagedError
	switch {
	case errors.As(err, &damaged) && damaged.Offset == 0:
		if !wholeBatch(l.f) {
			return fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
		}
		_, l.damage, err = checkLog(l.f, id, decodeLine)
	case errors.As(err, &damaged):
		_, l.damage, err = checkLog(l.f, id, decodeLine)
	case err != nil:
		return err
	case tail.last.Deleted:
		return fmt.Errorf("session %s: %w", id, hansard.ErrDeleted)
	default:
		if l.damage, err = s.checkOnce(l.f, name, id, tail.end); err == nil && l.damage == nil && tail.end < size {
			l.damage, err = damagedEnd(l.f, id, tail, size)
		}
	}
	if err != nil {
		return err
	}
	l.tail = tail
	if l.damage == nil {
		l.damage = s.asideDamage(name, id)
		if l.damage != nil && tail != nil {
			l.damage.Offset, l.damage.SafeSeq = tail.end, tail.last.Seq
		}
	}
	return nil
}

// damagedEnd looks at what is behind the last whole batch.
func damagedEnd(f vfs.File, id hansard.SessionID, tail *logTail, size int64) (*hansard.DamagedError, error) {
	rest := make([]byte, min(size-tail.end, maxLineBytes))
	n, err := f.ReadAt(rest, tail.end)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if looksUnfinished(rest[:n]) {
		return nil, nil
	}
	d := damagedAt(id, tail.end, "what is behind the last batch is no line of a log")
	d.SafeSeq = tail.last.Seq
	return d, nil
}

// wholeBatch tells whether a log has one whole batch, however damaged the rest:
// one that has none is a session whose first batch is being written.
func wholeBatch(f vfs.File) bool {
	sc := newScanner(f, 0)
	for {
		b, _, err := sc.next()
		if err != nil {
			return false
		}
		l, err := decodeLine(b)
		if err != nil || l.Left == 0 {
			return true
		}
	}
}
