package filestore

import (
	"context"
	"errors"
	"fmt"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// A deleted id used again (W9): said explicitly, never by an append. The deleted session is
// erased first, all of it, so that nothing of it can be taken for the new one's; then its
// log is replaced by that of the new session, a header with another uid. That is a rename
// under write.lock when the ring has nothing for the log (W6), durable before the lock is
// given back: the next line follows the new header.

// reuseTries is how often that is tried while others use the id at the same time.
const reuseTries = 10

// reuse makes a session of an id that was deleted. create is the usual way, for when it is
// not deleted any more.
func (s *Store) reuse(ctx context.Context, id hansard.SessionID, m hansard.Meta, create func() error) error {
	name := sessionlog.EncodeName(id)
	for try := 0; ; try++ {
		// Urgent: it must not be left to a process that may be stopped.
		err := s.checkpoints.freeRing(true)
		if err == nil {
			err = s.checkpoints.eraser.reuse(name, id, m)
		}
		if err == nil || try == reuseTries || !errors.Is(err, errInJournal) && !errors.Is(err, errChanged) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		// Somebody else was faster, perhaps: then it exists.
		if err := create(); !errors.Is(err, hansard.ErrDeleted) || errors.Is(err, hansard.ErrUnknown) {
			return err
		}
	}
}

// reuse erases what is left of a deleted session and puts a new log in the place of its
// tombstone. errChanged: it is not deleted any more, or something of it is left.
func (er *eraser) reuse(name string, id hansard.SessionID, m hansard.Meta) error {
	er.mu.Lock()
	defer er.mu.Unlock()
	if _, err := er.erase([]string{name}, nil); err != nil {
		return err
	}
	old, err := er.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
	if err != nil {
		return errors.Join(errChanged, err)
	}
	defer old.Close()
	was, erased, err := sessionlog.ReadErased(old, id)
	if err != nil || !erased {
		return errors.Join(errChanged, err)
	}
	inode, err := old.Inode()
	if err != nil {
		return err
	}
	size, err := old.Size()
	if err != nil {
		return err
	}
	header, err := sessionlog.ReadHeader(old, id)
	if err != nil {
		return err
	}
	created := er.cfg.now()
	if !created.After(header.Created) {
		created = header.Created.Add(1000) // a microsecond: it tells the two apart
	}
	tmp := fmt.Sprintf("log.%016x.tmp", er.cfg.random())
	if err := er.writeTemporary(tmp, sessionlog.AppendReused(nil, id, er.cfg.random(), was, created, m)); err != nil {
		return err
	}
	err = er.outOfRing(name, func(l *locked) error {
		if aside, err := er.asides.asides(name); err != nil || len(aside) > 0 {
			return errors.Join(err, errAside)
		}
		if err := l.putErased(name, inode, size, tmp); err != nil {
			return err
		}
		if err := er.fs.SyncDir(sessionlog.Dir); err != nil {
			return fmt.Errorf("%w: %w", hansard.ErrUnknown, err) // a power cut may undo it
		}
		return nil
	})
	if err != nil {
		_ = er.fs.Remove(tmp)
	}
	return err
}
