package filestore

import (
	"context"
	"errors"
	"fmt"

	"hansard"
)

// Probe tells whether the store takes writes, by writing: an entry that is for no
// session goes through the queue, write.lock, the ring, its sync and the look at
// the logs behind it, as an append does, and so fails where one would. It shows
// nowhere, wakes nobody, and its space is used again.
func (s *Store) Probe(ctx context.Context) error {
	if s.closed.Load() {
		return hansard.ErrClosed
	}
	if s.opt.ReadOnly {
		return hansard.ErrReadOnly
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := s.submit(ctx, &request{op: opProbe, size: entryHeader})
	if errors.Is(err, hansard.ErrUnknown) && ctx.Err() == nil {
		// Nothing is in doubt: there was nothing to store, and the store failed.
		switch {
		case isNoSpace(err):
			return fmt.Errorf("%w: %v", hansard.ErrNoSpace, err)
		default:
			return fmt.Errorf("%w: %v", hansard.ErrFailed, err)
		}
	}
	return err
}

// writeProbe writes what a group of nothing but probes writes: padding without a
// filling. Groups that write something for a session need none: probes rest on that.
func (s *Store) writeProbe() error {
	e := &entry{kind: kindPad, pos: s.ring.place(s.w.written), prev: s.w.tailChain, epoch: s.ring.epoch, dhint: s.lim}
	if _, err := s.ring.f.WriteAt(e.appendTo(nil, s.ring.salt), s.ring.at(e.pos)); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	s.w.written, s.w.tailChain = e.end(), e.chain()
	s.cursor, s.cursorChain = e.end(), e.chain()
	return nil
}
