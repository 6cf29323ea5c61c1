package search

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"hansard"
)

// Forget removes everything that the index has of some sessions, so that no byte of them is
// left in the file when it returns nil. The sessions are already deleted: a process that is
// indexing them sees that before it commits.
//
// If it can't, because another process keeps the file or something is wrong with it, the
// caller removes the file as a whole, with its journal.
func (ix *Index) Forget(ids []hansard.SessionID) error {
	return ix.takeOut(func(ctx context.Context, st *stepper) error {
		for _, id := range ids {
			if err := st.remove(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// ForgetEvents is Forget for single events, whose content the store does not have any more.
// A process that is indexing them has either committed before, so that its rows are
// removed, or reads the session afterwards.
func (ix *Index) ForgetEvents(id hansard.SessionID, seqs []hansard.Seq) error {
	return ix.takeOut(func(ctx context.Context, st *stepper) error { return st.removeEvents(ctx, st.db.sessions[id], seqs) })
}

// takeOut removes something from the file, in its own transaction.
func (ix *Index) takeOut(remove func(context.Context, *stepper) error) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.closed {
		return hansard.ErrClosed
	}
	if ix.db == nil {
		if _, err := os.Lstat(ix.path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := ix.openDB(ctx)
	if err != nil {
		return err
	}
	if err := takeOut(ctx, db, remove, ix.opt.LockWait); err != nil {
		_ = ix.closeDB()
		return err
	}
	if db.temporary {
		// The file of the store, if there is one, was not reached.
		return fmt.Errorf("search index: %w", errElsewhere)
	}
	return nil
}

func takeOut(ctx context.Context, db *database, remove func(context.Context, *stepper) error, wait time.Duration) (err error) {
	if err := db.begin(ctx, wait); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			db.rollback()
			db.dataVersion = -1
		}
	}()
	if err := db.load(ctx); err != nil {
		return err
	}
	st := &stepper{db: db}
	if err := remove(ctx, st); err != nil {
		return err
	}
	if err := st.finish(ctx); err != nil {
		return err
	}
	return db.commit(ctx)
}

// remove removes a session. Its terms leave the file when the shards that had them are
// rewritten, at the end of the transaction.
func (st *stepper) remove(ctx context.Context, id hansard.SessionID) error {
	in := st.db.sessions[id]
	if in == nil {
		return nil
	}
	from, to := in.n<<32, in.n<<32|0xffffffff
	if err := st.removeRows(ctx, in, from, to); err != nil {
		return err
	}
	_, err1 := st.db.conn.ExecContext(ctx, "DELETE FROM part WHERE session = ?", in.n)
	_, err2 := st.db.conn.ExecContext(ctx, "DELETE FROM session WHERE n = ?", in.n)
	delete(st.db.sessions, id)
	return errors.Join(err1, err2)
}

// removeEvents removes single events of a session, if it is in the file.
func (st *stepper) removeEvents(ctx context.Context, in *indexed, seqs []hansard.Seq) error {
	if in == nil {
		return nil
	}
	for _, seq := range seqs {
		if seq >= 1<<32 {
			continue // it is not in the file
		}
		row, there := in.n<<32|int64(seq), false
		if err := st.db.conn.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM event WHERE n = ?)", row).Scan(&there); err != nil {
			return err
		}
		if !there {
			continue // it had no words, or they were removed earlier
		}
		if err := st.removeRows(ctx, in, row, row); err != nil {
			return err
		}
	}
	return nil
}

// removeRows removes the events of a session whose rows are in a range.
func (st *stepper) removeRows(ctx context.Context, in *indexed, from, to int64) error {
	parts, err := st.db.partsOf(ctx, in)
	if err != nil {
		return err
	}
	for _, n := range parts {
		sh := shard{n: n}
		if _, err := st.db.conn.ExecContext(ctx, "DELETE FROM "+sh.table()+" WHERE rowid BETWEEN ? AND ?", from, to); err != nil {
			return err
		}
		if st.rewrite == nil {
			st.rewrite = map[int64]bool{}
		}
		st.rewrite[n] = true
	}
	_, err = st.db.conn.ExecContext(ctx, "DELETE FROM event WHERE n BETWEEN ? AND ?", from, to)
	return err
}

// rewriteShards merges what is left of the shards that something was removed from: FTS5
// only records a removal, and drops the terms when it merges. The freed space is
// overwritten (secure_delete).
func (st *stepper) rewriteShards(ctx context.Context) error {
	var kept []shard
	for _, sh := range st.db.shards {
		if !st.rewrite[sh.n] {
			kept = append(kept, sh)
			continue
		}
		var used bool
		if err := st.db.conn.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM part WHERE shard = ?)", sh.n).Scan(&used); err != nil {
			return err
		}
		statements := []string{"INSERT INTO " + sh.table() + "(" + sh.table() + ") VALUES ('optimize')"}
		if used {
			kept = append(kept, sh)
		} else {
			statements = []string{"DROP TABLE " + sh.table(), fmt.Sprintf("DELETE FROM shard WHERE n = %d", sh.n)}
		}
		for _, statement := range statements {
			if _, err := st.db.conn.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
	}
	st.db.shards = kept
	return nil
}
