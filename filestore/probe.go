package filestore

import (
	"context"
	"errors"
	"fmt"

	"hansard"
	"hansard/filestore/internal/journal"
)

// Probe tells whether the store takes writes, by writing: an entry for no session goes
// through the queue, write.lock, the ring, its sync and the check of the logs after it,
// as an append does, and so fails where one would. (The first version synced some other
// file, which says nothing about the journal.) It appears in no log and wakes nobody, and
// the next checkpoint frees its space.
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
		// For an append the outcome would be unknown. A probe has no outcome to be
		// unknown: the store has failed, and the error says so.
		switch {
		case isNoSpace(err):
			return fmt.Errorf("%w: %v", hansard.ErrNoSpace, err)
		default:
			return fmt.Errorf("%w: %v", hansard.ErrFailed, err)
		}
	}
	return err
}

// writeProbe writes the entry of a group that consists of probes only: padding of length
// 0 (E2). Groups that write something for a session need none; their probes rely on that.
// The caller holds write.lock and has made sure there is room; on error it drops the
// caches.
//
// It is written at Ring.Place, where a scan will look for it, and never where less than a
// header is left before the end (TestProbeAtTheEndOfTheRing).
func (l *locked) writeProbe() error {
	e := &journal.Entry{Kind: journal.KindPad, Pos: l.ring.Place(l.w.Written), Prev: l.w.TailChain, Epoch: l.ring.Epoch, DurableHint: l.lim}
	if _, err := l.ring.File.WriteAt(e.AppendTo(nil, l.ring.Salt), l.ring.At(e.Pos)); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	// Not pending: it goes to no log. apply moves the applied position past it once it is
	// durable, and not before (TestProbeNotDurable).
	l.w.Written, l.w.TailChain = e.End(), e.Chain()
	l.cursor, l.cursorChain = e.End(), e.Chain()
	return nil
}
