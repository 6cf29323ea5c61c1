package filestore

import (
	"context"
	"errors"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Deleting. Normally a delete is a line, the last one, decided like an append
// (plan.delete); the file stays, so that neither the journal nor the next Create can
// resurrect the session (rules DeleteIsEntry, TombstoneLast). The next checkpoint erases
// its content (erase.go). The code here is for logs that can't be appended to because
// they are damaged: those are replaced (W5), with the methods of repair.go.

// Delete ends a session for good. After nil it is durable; a second Delete is ErrDeleted.
// The next checkpoint, within half a minute or at Close, erases its content. With
// ErrUnknown it may or may not have happened, and a retry settles it.
func (s *Store) Delete(ctx context.Context, id hansard.SessionID, turn hansard.Grant) error {
	if err := s.usable(ctx, id); err != nil {
		return err
	}
	for try := 0; ; try++ {
		_, err := s.committer.carryOut(ctx, newDelete(id, turn))
		// Damaged: replace the log. Not after an unknown outcome: the tombstone may be in
		// the ring, and would not fit the new log.
		if !errors.Is(err, hansard.ErrDamaged) || errors.Is(err, hansard.ErrUnknown) || try == 3 {
			return err
		}
		done, err := s.rebuild(ctx, id, asDeleted, func(r *rebuild, f vfs.File) error { return r.tombstone(f, turn) })
		if err != nil || done.Changed {
			return err
		}
		// It was repaired in the meantime: an ordinary delete will do.
	}
}

func newDelete(id hansard.SessionID, turn hansard.Grant) *request {
	r := &request{op: opDelete, id: id, name: sessionlog.EncodeName(id), turn: turn}
	r.size = journal.EntryHeader + 2*len(r.name) + 2*sessionlog.StampWidth + endedWidth
	return r
}

// tombstone writes the log that replaces a damaged one: a header without metadata and a
// tombstone. The old bytes are not kept. rebuild syncs and installs the file; interrupted
// anywhere, the session is either damaged or deleted, nothing in between
// (TestSimDeleteInterrupted).
func (r *rebuild) tombstone(f vfs.File, turn hansard.Grant) error {
	if err := r.fence(turn); err != nil {
		return err
	}
	now := r.s.cfg.now()
	// It keeps the identity of the old log, if that header can be read.
	uid, created := r.s.cfg.random(), now
	if r.old != nil {
		if h, err := sessionlog.ReadHeader(r.old, r.id); err == nil {
			uid, created = h.LogUID, h.Created
		}
	}
	return writeLog(f, sessionlog.AppendErased(nil, r.id, uid, created, now), 0)
}

// fence refuses the delete if another holder has the turn, as far as the undamaged part
// of the log says. If the damage leaves nothing to go by, the delete is allowed: a
// damaged session that can't be deleted would be worse.
func (r *rebuild) fence(turn hansard.Grant) error {
	if r.old == nil {
		return nil
	}
	_, d, err := sessionlog.CheckUpTo(r.old, r.id, new(sessionlog.Decoder).Decode, r.size)
	if err != nil {
		return err
	}
	// Up to the first damaged line; nothing after it can be trusted.
	end := r.size
	if d != nil {
		end = d.Offset
	}
	tail, err := sessionlog.ReadTail(r.old, end)
	if err != nil || tail.Last.Deleted {
		return nil // no turn is known
	}
	t, err := turnIn(&openedLog{f: r.old}, tail)
	if err != nil {
		return nil
	}
	err = engine.Fence(r.id, t.Held, turn, false)
	var held *hansard.HeldError
	if !errors.As(err, &held) {
		return err
	}
	// An exclusive turn of a dead, silent or overdue holder does not count, as in
	// plan.fence. If the holder can't be checked that is an error, not a sign of death
	// (failure 14).
	seen, err := r.s.leases.Look(r.name, t.Held, t.Instance)
	if err != nil || seen.State != peers.HolderLives {
		return err
	}
	held.Turn.Renewed = seen.Renewed
	return held
}
