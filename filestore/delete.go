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

// Deleting. Normally it is a line, the last one, decided like an append (plan.delete);
// the file stays, so that neither the journal nor the next Create can bring the session
// back (rules DeleteIsEntry, TombstoneLast). Its content is taken away later, by the next
// checkpoint (erase.go). What is here is for logs to which nothing can be appended,
// because they are damaged: those are replaced (W5), by the ways of repair.go.

// Delete ends a session for ever. After nil it is durable; a second Delete is ErrDeleted.
// The next checkpoint, within half a minute or at Close, takes its content away.
// With ErrUnknown it may or may not have happened, and asking again settles it.
func (s *Store) Delete(ctx context.Context, id hansard.SessionID, turn hansard.Grant) error {
	if err := s.usable(ctx, id); err != nil {
		return err
	}
	for try := 0; ; try++ {
		r := &request{op: opDelete, id: id, name: sessionlog.EncodeName(id), turn: turn}
		r.size = journal.EntryHeader + 2*len(r.name) + 2*sessionlog.StampWidth + endedWidth
		_, err := s.committer.carryOut(ctx, r)
		// Damaged: its log is replaced. Not after an unknown outcome: the tombstone may
		// be in the ring, and would not fit the new log.
		if !errors.Is(err, hansard.ErrDamaged) || errors.Is(err, hansard.ErrUnknown) || try == 3 {
			return err
		}
		done, err := s.rebuild(ctx, id, asDeleted, func(r *rebuild, f vfs.File) error { return r.tombstone(f, turn) })
		if err != nil || done.Changed {
			return err
		}
		// Somebody repaired it meanwhile: an ordinary delete will do.
	}
}

// tombstone writes the log that takes the place of a damaged one: a header without
// metadata and a tombstone. The old bytes are not kept. rebuild syncs and installs the
// file; interrupted anywhere the session is damaged or deleted, nothing in between
// (TestSimDeleteInterrupted).
func (r *rebuild) tombstone(f vfs.File, turn hansard.Grant) error {
	if err := r.fence(turn); err != nil {
		return err
	}
	now := r.s.cfg.now()
	// It stays the same log, if its header can be read.
	uid, created := r.s.cfg.random(), now
	if r.old != nil {
		if h, err := sessionlog.ReadHeader(r.old, r.id); err == nil {
			uid, created = h.LogUID, h.Created
		}
	}
	return writeLog(f, sessionlog.AppendErased(nil, r.id, uid, created, now), 0)
}

// fence tells whether the turn keeps the caller from deleting the session, as far as what
// is safe of it tells. Where the damage leaves nothing to go by, nobody is kept out: a
// damaged session that can't be deleted would be worse.
func (r *rebuild) fence(turn hansard.Grant) error {
	if r.old == nil {
		return nil
	}
	_, d, err := sessionlog.CheckUpTo(r.old, r.id, sessionlog.Decode, r.size)
	if err != nil {
		return err
	}
	// Up to the first damaged line; what comes after it can't be believed.
	end := r.size
	if d != nil {
		end = d.Offset
	}
	tail, err := sessionlog.ReadTail(r.old, end)
	if err != nil || tail.Last.Deleted {
		return nil // nobody knows of a turn
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
	// plan.fence. An error of looking is an error, and no sign of death (failure 14).
	seen, err := r.s.leases.Look(r.name, t.Held, t.Instance)
	if err != nil || seen.State != peers.HolderLives {
		return err
	}
	held.Turn.Renewed = seen.Renewed
	return held
}
