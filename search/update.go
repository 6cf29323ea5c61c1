package search

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"hansard"
)

const (
	// stepBytes and stepTime bound one transaction: others wait for it, and its changes are
	// held in memory.
	stepBytes = 8 << 20
	stepTime  = time.Second
)

// update brings the index up to date with the sessions as they were listed.
func (ix *Index) update(ctx context.Context, s hansard.Store, about *subject) error {
	p := Progress{}
	waited, seen := time.Time{}, int64(0) // seen: the version of the file when the waiting began
	for tries := 0; ; {
		left, err := ix.step(ctx, s, about, &p)
		switch {
		case err == nil && left == 0:
			if ix.opt.Progress != nil && p.Total > 0 {
				ix.opt.Progress(p)
			}
			return nil
		case err == nil:
			waited, tries = time.Time{}, 0
			p.Waiting = false
		case ctx.Err() != nil:
			return ctx.Err()
		case isBusy(err):
			// Another process is indexing, for us too. Each of its transactions is short: one
			// that keeps the file for longer is stopped.
			p.Waiting = true
			if now := ix.fileVersion(); waited.IsZero() || now != seen {
				waited, seen = time.Now(), now
			}
			if time.Since(waited) > ix.opt.LockWait {
				if err := ix.doWithout(ctx, fmt.Errorf("another process keeps it locked: %w", err)); err != nil {
					return err
				}
			}
		default:
			if tries++; tries > 5 {
				return fmt.Errorf("search index: %w", err)
			}
			if err := ix.recover(ctx, err, tries); err != nil {
				return err
			}
		}
		if ix.opt.Progress != nil {
			ix.opt.Progress(p)
		}
	}
}

// fileVersion is the version of the file that was last seen.
func (ix *Index) fileVersion() int64 {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.db == nil {
		return 0
	}
	return ix.db.dataVersion
}

// doWithout continues with a temporary file.
func (ix *Index) doWithout(ctx context.Context, why error) error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.closed {
		return hansard.ErrClosed
	}
	if ix.db != nil && ix.db.temporary {
		return why
	}
	_ = ix.closeDB()
	ix.tell(why)
	_, err := ix.openTemporary(ctx)
	return err
}

// recover handles an error as well as it can: it rebuilds the file, opens it again, or does
// without it. Errors of the store are returned.
func (ix *Index) recover(ctx context.Context, err error, tries int) error {
	var ours *indexError
	if !errors.As(err, &ours) {
		return err
	}
	err = judged(ours.err)
	if tries > 2 {
		return ix.doWithout(ctx, err)
	}
	ix.mu.Lock()
	switch {
	case ix.closed:
		err = hansard.ErrClosed
	case errors.Is(err, errBehind):
		err = nil // it is brought up to date again
	case ix.db != nil && !ix.inPlace(ix.db), errors.Is(err, errElsewhere):
		err = ix.closeDB() // another file is there now, which may be usable
	case errors.Is(err, errStale) && ix.db != nil && !ix.db.temporary:
		err = ix.discard(err)
	}
	ix.mu.Unlock()
	if err != nil {
		if errors.Is(err, hansard.ErrClosed) {
			return err
		}
		return ix.doWithout(ctx, err)
	}
	return nil
}

// indexError is an error of the index, not of the store.
type indexError struct{ err error }

func (e *indexError) Error() string { return e.err.Error() }
func (e *indexError) Unwrap() error { return e.err }

func ofIndex(err error) error {
	if err == nil {
		return nil
	}
	return &indexError{err}
}

// step indexes some of what is new, in one transaction, and returns how many sessions are left.
// A busy file is an SQLite error.
func (ix *Index) step(ctx context.Context, s hansard.Store, about *subject, p *Progress) (left int, err error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	db, err := ix.openDB(ctx)
	if err != nil {
		return 0, err
	}
	// Usually nothing is new, which a read transaction can tell.
	if err := ix.beginRead(ctx, db); err != nil {
		return 0, ofIndex(err)
	}
	db.rollback()
	if err := db.relist(ctx, s, about); err != nil {
		return 0, err
	}
	if changed, gone := db.behind(about); len(changed)+len(gone) == 0 {
		return 0, nil
	}
	if _, err := db.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return 0, ofIndex(err)
	}
	defer func() {
		if err != nil {
			db.rollback()
			db.dataVersion = -1 // what was recorded about it does not hold
		}
	}()
	// Another process may have done it in the meantime.
	if err := db.load(ctx); err != nil {
		return 0, ofIndex(err)
	}
	changed, gone := db.behind(about)
	p.Total = max(p.Total, p.Done+len(changed))
	st := &stepper{db: db, store: s, about: about, touched: map[hansard.SessionID]listed{}, written: map[hansard.SessionID]bool{}}
	defer st.closeStatements()
	if err := st.removeGone(ctx, gone); err != nil {
		return 0, err
	}
	done, err := st.index(ctx, changed)
	if err != nil {
		return 0, err
	}
	if err := st.lookAgain(ctx); err != nil {
		return 0, err
	}
	if err := st.finish(ctx); err != nil {
		return 0, ofIndex(err)
	}
	if !ix.inPlace(db) {
		return 0, ofIndex(errElsewhere) // the commit would be lost
	}
	atCommit()
	if err := db.commit(ctx); err != nil {
		return 0, ofIndex(err)
	}
	p.Events, p.Bytes, p.Done = p.Events+st.events, p.Bytes+st.bytes, p.Done+done
	return len(changed) - done, nil
}

// relist checks sessions again that were listed with less than is indexed: another process has
// listed them later, unless the log was replaced by an older copy.
func (db *database) relist(ctx context.Context, s hansard.Store, about *subject) error {
	for id, l := range about.sessions {
		in := db.sessions[id]
		if in == nil || in.listed <= l.last || in.created != l.created.UnixNano() {
			continue
		}
		info, err := s.Stat(ctx, id)
		switch {
		case err == nil && info.LastSeq >= in.listed && info.Created.Equal(l.created):
			about.sessions[id] = listed{info.Title, l.created, time.Unix(0, in.updated), in.listed} // nothing to do
		case err == nil:
			about.sessions[id] = listed{info.Title, info.Created, info.Updated, info.LastSeq}
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			delete(about.sessions, id) // deleted since
		}
	}
	return nil
}

// behind are the sessions that have something new, in the order of their ids, and those in the
// index that no longer exist.
func (db *database) behind(about *subject) (changed, gone []hansard.SessionID) {
	for id, l := range about.sessions {
		in := db.sessions[id]
		if in == nil && l.last == 0 {
			continue // nothing to index
		}
		if in == nil || in.created != l.created.UnixNano() || in.listed != l.last || in.updated != l.updated.UnixNano() {
			changed = append(changed, id)
		}
	}
	if !about.some {
		for id := range db.sessions {
			if _, there := about.sessions[id]; !there {
				gone = append(gone, id)
			}
		}
	}
	slices.Sort(changed)
	slices.Sort(gone)
	return changed, gone
}

// lacks tells whether the file holds less of a session than was listed. After an update it does
// not, unless something was removed since: another process is reindexing a session, or another
// goroutine has opened a new file.
func (db *database) lacks(about *subject) bool {
	for id, l := range about.sessions {
		in := db.sessions[id]
		if in == nil && l.last == 0 {
			continue
		}
		if in == nil || in.created != l.created.UnixNano() || max(in.listed, in.last) < l.last {
			return true
		}
	}
	return false
}

// stepper is one transaction.
type stepper struct {
	db      *database
	store   hansard.Store
	about   *subject
	events  int64
	bytes   int64
	touched map[hansard.SessionID]listed // as they were listed
	written map[hansard.SessionID]bool   // whose rows are to be written at the end
	in      map[[2]int64]bool            // sessions that are known to be in a shard
	insert  map[string]*sql.Stmt         // by their text, for this transaction
	rewrite map[int64]bool               // shards that something was removed from
}

// removeGone removes sessions that are gone, if the store confirms it: a session may have been
// created after the list was made, and one that can't be read just now is not gone.
func (st *stepper) removeGone(ctx context.Context, ids []hansard.SessionID) error {
	for _, id := range ids {
		_, err := st.store.Stat(ctx, id)
		if errors.Is(err, hansard.ErrDeleted) || errors.Is(err, hansard.ErrNotFound) {
			err = ofIndex(st.remove(ctx, id))
		} else if err != nil && ctx.Err() == nil {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// index adds what is new in sessions, or as much as the step has room for, and returns how many
// of them are done. Another goroutine reads them and splits them into terms at the same time:
// each half takes about half of the time.
func (st *stepper) index(ctx context.Context, ids []hansard.SessionID) (done int, err error) {
	r := reader{store: st.store, until: time.Now().Add(stepTime), out: make(chan stretch, 4)}
	for _, id := range ids {
		from := place{id: id}
		if in := st.db.sessions[id]; in != nil && in.created == st.about.sessions[id].created.UnixNano() {
			from.last, from.mark = in.last, in.mark
		}
		r.from = append(r.from, from)
	}
	reading, stop := context.WithCancel(ctx)
	go r.run(reading)
	// When this returns, nothing reads the store any more.
	defer func() {
		for stop(); ; {
			if _, more := <-r.out; !more {
				return
			}
		}
	}()
	for part := range r.out {
		if err := st.take(ctx, &part); err != nil {
			return 0, err
		}
		if part.end {
			done++
		}
	}
	return done, ctx.Err()
}

// take adds a part of a session.
func (st *stepper) take(ctx context.Context, part *stretch) error {
	id, l := part.id, st.about.sessions[part.id]
	in := st.db.sessions[id]
	if in != nil && (part.anew || in.created != l.created.UnixNano()) {
		// A different log from the one that was indexed, or another session: the id was reused.
		if err := st.remove(ctx, id); err != nil {
			return ofIndex(err)
		}
		in = nil
	}
	st.touched[id] = l
	if in == nil {
		in = &indexed{n: st.db.next, created: l.created.UnixNano()}
		st.db.next++
		st.db.sessions[id] = in
	}
	st.written[id] = true
	for i := range part.events {
		if err := st.add(ctx, in, &part.events[i]); err != nil {
			return ofIndex(err)
		}
	}
	if n := len(part.events); n > 0 {
		if in.last, in.mark = part.events[n-1].seq, part.mark; in.last > l.last {
			in.listed, in.updated = in.last, part.events[n-1].time
		}
	}
	if !part.end {
		return nil
	}
	if err := st.about.unreadable(id, part.err); err != nil {
		return err
	}
	if part.err != nil && in.last < l.last {
		// The rest may be readable next time: it is not recorded as indexed.
		l.last = in.last
		st.about.sessions[id] = l
	}
	if in.last <= l.last { // otherwise later events were already recorded
		in.listed, in.updated = l.last, l.updated.UnixNano()
	}
	return nil
}

// add puts the terms of an event into the index, and removes those of the events that it
// records as redacted. The store may still have their content, and a store that does not call
// ForgetEvents may have had it when they were indexed.
func (st *stepper) add(ctx context.Context, in *indexed, e *prepared) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	st.events++
	st.bytes += e.bytes
	if err := st.removeEvents(ctx, in, e.redacts); err != nil {
		return err
	}
	if e.words == "" || e.seq >= 1<<32 {
		return nil
	}
	sh, err := st.shard(ctx, in)
	if err != nil {
		return err
	}
	row := in.n<<32 | int64(e.seq)
	if err := st.exec("INSERT INTO event VALUES (?, ?, ?, ?)", row, e.time, e.kind, e.role); err != nil {
		return err
	}
	if err := st.exec(sh.insert, row, e.words); err != nil {
		return err
	}
	sh.bytes, sh.changed = sh.bytes+int64(len(e.words)), true
	return nil
}

// shard is where the next event's terms go.
func (st *stepper) shard(ctx context.Context, in *indexed) (*shard, error) {
	db := st.db
	if n := len(db.shards); n == 0 || db.shards[n-1].bytes >= shardBytes {
		sh := newShard(0, 0)
		if n > 0 {
			sh = newShard(db.shards[n-1].n+1, 0)
		}
		set := "INSERT INTO " + sh.table() + "(" + sh.table() + ", rank) VALUES "
		for _, statement := range []string{
			wordsTable(sh.table()),
			// A transaction writes what it has gathered once, and eight of these are merged:
			// building an index hardly ever merges, and small appends are no slower.
			set + "('hashsize', 8388608)",
			set + "('automerge', 8)",
			fmt.Sprintf("INSERT INTO shard VALUES (%d, 0)", sh.n),
		} {
			if _, err := db.conn.ExecContext(ctx, statement); err != nil {
				return nil, err
			}
		}
		db.shards = append(db.shards, sh)
	}
	sh := &db.shards[len(db.shards)-1]
	if part := [2]int64{in.n, sh.n}; !st.in[part] {
		if _, err := db.conn.ExecContext(ctx, "INSERT OR IGNORE INTO part VALUES (?, ?)", in.n, sh.n); err != nil {
			return nil, err
		}
		if st.in == nil {
			st.in = map[[2]int64]bool{}
		}
		st.in[part] = true
	}
	return sh, nil
}

// exec runs a statement that is used for every event. It is short, and a context that can end
// would cost a goroutine each time.
func (st *stepper) exec(statement string, args ...any) error {
	ctx := context.Background()
	prepared := st.insert[statement]
	if prepared == nil {
		var err error
		if prepared, err = st.db.conn.PrepareContext(ctx, statement); err != nil {
			return err
		}
		if st.insert == nil {
			st.insert = map[string]*sql.Stmt{}
		}
		st.insert[statement] = prepared
	}
	_, err := prepared.ExecContext(ctx, args...)
	return err
}

func (st *stepper) closeStatements() {
	for _, prepared := range st.insert {
		_ = prepared.Close()
	}
	st.insert = nil
}

// lookAgain makes sure, before the commit, that nothing was deleted while it was being indexed.
// Erasing a session deletes it first, and removes its rows in a transaction after this one: it
// finds them, or they are not committed. Redacted events need no check here: see ForgetEvents.
func (st *stepper) lookAgain(ctx context.Context) error {
	beforeLookAgain()
	for id, l := range st.touched {
		info, err := st.store.Stat(ctx, id)
		switch {
		case errors.Is(err, hansard.ErrDeleted) || errors.Is(err, hansard.ErrNotFound) || err == nil && !info.Created.Equal(l.created):
			if err := st.remove(ctx, id); err != nil {
				return ofIndex(err)
			}
			if delete(st.about.sessions, id); st.about.in == id {
				return fmt.Errorf("%w: %s", hansard.ErrDeleted, id)
			}
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
	return nil
}

// For tests: called before the last check, between it and the commit, and between the update of
// the index and the query.
var beforeLookAgain, atCommit, beforeAsk = func() {}, func() {}, func() {}

// finish writes what the transaction defers to its end.
func (st *stepper) finish(ctx context.Context) error {
	st.closeStatements()
	// Not earlier: replacing a row makes FTS5 write out what it has gathered.
	for id := range st.written {
		if in := st.db.sessions[id]; in != nil {
			if _, err := st.db.conn.ExecContext(ctx, "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, ?)", in.n, string(id), in.created, in.updated, in.listed, in.last, in.mark); err != nil {
				return err
			}
		}
	}
	if err := st.rewriteShards(ctx); err != nil {
		return err
	}
	for i := range st.db.shards {
		sh := &st.db.shards[i]
		if !sh.changed {
			continue
		}
		sh.changed = false
		if _, err := st.db.conn.ExecContext(ctx, "UPDATE shard SET bytes = ? WHERE n = ?", sh.bytes, sh.n); err != nil {
			return err
		}
	}
	return nil
}
