package filestore

import (
	"context"
	"errors"
	"fmt"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Reusing a deleted id (W9): only on explicit request, never by an append. The deleted
// session is erased first, all of it, so that nothing of it can be taken for the new
// one's; then its log is replaced by that of the new session, a header with another uid.
// That is a rename under write.lock when the ring has no entries for the log (W6),
// durable before anything is written to the ring: the next line follows the new header.

// reuseTries is how often that is tried while others use the same id.
const reuseTries = 10

// reuse creates a session with an id that was deleted. create is the normal way, for an
// id that is not deleted any more.
func (s *Store) reuse(ctx context.Context, id hansard.SessionID, m hansard.Meta, create func() error) error {
	name := sessionlog.EncodeName(id)
	for try := 0; ; try++ {
		// Urgent: it must not be left to another process, which may be stopped.
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
		// Perhaps another process was faster: then the session exists.
		if err := create(); !errors.Is(err, hansard.ErrDeleted) || errors.Is(err, hansard.ErrUnknown) {
			return err
		}
	}
}

// reuse erases what is left of a deleted session and replaces its tombstone with a new
// log. errChanged: the session is not deleted any more, or is not erased yet.
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
		created = header.Created.Add(1000) // one microsecond: distinguishes the two
	}
	tmp := fmt.Sprintf("log.%016x.tmp", er.cfg.random())
	if err := er.writeTemporary(tmp, sessionlog.AppendReused(nil, id, er.cfg.random(), was, created, m)); err != nil {
		return err
	}
	err = er.outOfRing(name, func(l *locked) error {
		if aside, err := er.asides.asides(name); err != nil || len(aside) > 0 {
			return errors.Join(err, errAside)
		}
		placed := false
		err := replaceDurably(l, func() error {
			err := l.putErased(name, inode, size, tmp)
			placed = err == nil
			return err
		})
		if placed && err != nil {
			return fmt.Errorf("%w: %w", hansard.ErrUnknown, err) // a power cut may undo it
		}
		return err
	})
	if err != nil {
		_ = er.fs.Remove(tmp)
	}
	return err
}
