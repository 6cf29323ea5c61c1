package filestore

import (
	"context"
	"errors"
	"fmt"

	"hansard"
	"hansard/filestore/internal/journal"
)

// Probe tells whether the store takes writes, by writing: an entry for no session goes
// through the queue, write.lock, the ring, its sync and the look at the logs behind it,
// as an append does, and so fails where one would. (A sync of some other file says
// nothing about the journal: that was the first version.) It shows in no log and wakes
// nobody, and the next checkpoint frees its space.
func (s *Store) Probe(ctx context.Context) error {
	if s.closed.Load() {
		return hansard.ErrClosed
	}
	if err := s.writable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// Not carryOut: there is no log to prepare.
	_, err := s.committer.submit(ctx, &request{op: opProbe, size: journal.EntryHeader})
	if errors.Is(err, hansard.ErrUnknown) && ctx.Err() == nil {
		// The outcome of an append would be unknown; of a probe there is nothing to be
		// unknown about. The store failed, and says so.
		switch {
		case isNoSpace(err):
			return fmt.Errorf("%w: %v", hansard.ErrNoSpace, err)
		default:
			return fmt.Errorf("%w: %v", hansard.ErrFailed, err)
		}
	}
	return err
}

// writeProbe writes what a group of nothing but probes consists of: padding of length 0
// (E2). Groups that write something for a session need none; their probes rest on that.
// The caller holds write.lock and has made sure of the room; on error it drops the
// caches.
//
// It is written at Ring.Place, where a scan will look for it, and never where less than a
// header is left before the end (TestProbeAtTheEndOfTheRing).
func (l *locked) writeProbe() error {
	e := &journal.Entry{Kind: journal.KindPad, Pos: l.ring.Place(l.w.Written), Prev: l.w.TailChain, Epoch: l.ring.Epoch, DurableHint: l.lim}
	if _, err := l.ring.File.WriteAt(e.AppendTo(nil, l.ring.Salt), l.ring.At(e.Pos)); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	// Not pending: it goes to no log. apply moves the applied position over it once it is
	// durable, and not before (TestProbeNotDurable).
	l.w.Written, l.w.TailChain = e.End(), e.Chain()
	l.cursor, l.cursorChain = e.End(), e.Chain()
	return nil
}
