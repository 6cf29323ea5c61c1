package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
)

// A fork is one transaction that copies rows: events, attachments, and their parts. What to
// copy is read before, in a snapshot, without a lock: stored events do not change. The
// transaction has the row of the new session to itself, because nobody else can see it yet,
// and checks at the end that the parent still exists. So others may write to the parent while
// its rows are copied, and a session that was deleted before the commit is never forked.

const (
	copyEvents = `INSERT INTO hansard_events (id, seq, "time", inbox, kind, role, author, turn, patch, data, key, hash, size, "by", event_id, content, "at", attachments, fork, redacted, redacts)
	SELECT $1, seq, "time", inbox, kind, role, author, turn, patch, data, key, hash, size, "by", event_id, content, "at", attachments, fork, redacted, redacts
	FROM hansard_events WHERE id = $2 AND seq <= $3`
	copyAttachments = `INSERT INTO hansard_attachments (id, upload, digest, size, made, named)
	SELECT $1, a.upload, a.digest, a.size, $3, true FROM (
		SELECT DISTINCT named->>'digest' AS digest FROM hansard_events e, jsonb_array_elements(e.attachments::jsonb) AS named WHERE e.id = $1 AND e.attachments IS NOT NULL
	) n JOIN hansard_attachments a ON a.id = $2 AND a.digest = n.digest`
	copyParts = `INSERT INTO hansard_attachment_parts (id, upload, n, bytes)
	SELECT $1, p.upload, p.n, p.bytes FROM hansard_attachments a JOIN hansard_attachment_parts p ON p.id = $2 AND p.upload = a.upload WHERE a.id = $1`
	addUp = `UPDATE hansard_heads SET bytes = (SELECT coalesce(sum(octet_length(data)), 0) FROM hansard_events WHERE id = $1) WHERE id = $1`
	// parentThere fails, and with it the transaction, if the parent was deleted; otherwise it
	// locks the parent's row until the commit, which follows.
	parentThere = `SELECT 1 / (CASE WHEN deleted THEN 0 ELSE 1 END) FROM hansard_heads WHERE id = $1 FOR SHARE`
	// sameContent fails if an event of the parent was redacted after it was copied.
	sameContent = `SELECT 1 / (CASE WHEN EXISTS (SELECT 1 FROM hansard_events p JOIN hansard_events c ON c.id = $1 AND c.seq = p.seq
		WHERE p.id = $2 AND p.seq <= $3 AND p.redacted AND NOT c.redacted) THEN 0 ELSE 1 END)`

	batchAround = `SELECT seq, size FROM hansard_events WHERE id = $1 AND seq <= $2 AND seq > $2 - $3 AND size IS NOT NULL ORDER BY seq DESC LIMIT 1`
	turnBefore  = `SELECT ` + eventColumns + ` FROM hansard_events WHERE id = $1 AND seq <= $2 AND (kind = '` + hansard.KindTurn + `' OR fork IS NOT NULL AND turn <> '') ORDER BY seq DESC LIMIT 1`
	patchesUpTo = `SELECT patch FROM hansard_events WHERE id = $1 AND seq <= $2 AND patch IS NOT NULL ORDER BY seq`
	bornWith    = `SELECT born, title, labels, state FROM hansard_sessions WHERE id = $1`
	attachedUp  = `SELECT coalesce(sum(size), 0)::bigint FROM hansard_attachments WHERE id = $1`
)

// forkTries is how often the rows are copied before giving up: a redaction meanwhile makes
// the copy fail.
const forkTries = 5

// Fork implements [hansard.Store].
func (s *Store) Fork(ctx context.Context, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
	if err := s.begin(ctx, id, engine.CheckFork(&f), s.writable()); err != nil {
		return hansard.Info{}, err
	}
	defer s.work.Done()
	p, err := s.readParent(ctx, id, f)
	if err != nil {
		return hansard.Info{}, err
	}
	for range forkTries {
		err = s.write(ctx, &job{id: p.fork.As, patience: p.patience(), decide: p.decide}, func() { s.hub.changed(p.fork.As, p.fork.At+1) })
		if code(err) != divisionByZero {
			break
		}
		if _, gone := s.Stat(ctx, id); gone != nil {
			return hansard.Info{}, gone
		}
	}
	if err != nil {
		return hansard.Info{}, err
	}
	// It is stored: a context that ends now must not turn that into an error.
	return engine.Forked(s.Stat(context.WithoutCancel(ctx), p.fork.As))
}

// parent is what a fork is made from: a session as it was after some event.
type parent struct {
	id       hansard.SessionID
	fork     hansard.Fork // its At is an event of the parent
	head     head
	born     hansard.Meta
	meta     hansard.Meta  // at that event
	held     hansard.Grant // the turn that was held there
	newest   hansard.Grant
	attached int64 // bytes of all attachments
}

// patience is how long the transaction may take: copying a large session takes longer than
// any other statement.
func (p *parent) patience() time.Duration {
	return statementPatience + time.Duration((p.head.bytes+p.attached)>>20)*time.Second
}

// readParent reads what a fork is made from, in one snapshot, and refuses an impossible fork.
func (s *Store) readParent(ctx context.Context, id hansard.SessionID, f hansard.Fork) (p *parent, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = s.look(ctx, func(ctx context.Context) error {
		p = &parent{id: id, fork: f}
		return pgx.BeginTxFunc(ctx, s.pool, snapshot, func(tx pgx.Tx) error { return p.read(ctx, tx) })
	})
	return p, err
}

func (p *parent) read(ctx context.Context, tx pgx.Tx) error {
	switch err := scanHead(tx.QueryRow(ctx, findTurn, string(p.id)), &p.head); {
	case errors.Is(err, pgx.ErrNoRows):
		return answer((*head)(nil).find(p.id))
	case err != nil:
		return err
	}
	if err := p.head.find(p.id); err != nil {
		return answer(err)
	}
	if p.fork.At == 0 {
		p.fork.At = p.head.last
	}
	if p.fork.At > p.head.last {
		return answer(engine.ForkPastEnd(p.fork.At, p.head.last))
	}
	var first, size int64
	err := tx.QueryRow(ctx, batchAround, string(p.id), int64(p.fork.At), int64(hansard.MaxBatchEvents)).Scan(&first, &size)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if last := hansard.Seq(first + size - 1); err == nil && last > p.fork.At {
		return answer(engine.ForkInBatch(p.fork.At, hansard.Seq(first), last))
	}
	if err := tx.QueryRow(ctx, attachedUp, string(p.id)).Scan(&p.attached); err != nil {
		return err
	}
	if err := p.readTurn(ctx, tx); err != nil {
		return err
	}
	return p.readMeta(ctx, tx)
}

// readTurn finds who held the turn at the fork point.
func (p *parent) readTurn(ctx context.Context, tx pgx.Tx) error {
	if p.fork.At == p.head.last {
		p.newest = p.head.newest
		if p.head.turn != nil {
			p.held = p.head.turn.Grant
		}
		return nil
	}
	var e hansard.Event
	switch err := scanEvent(tx.QueryRow(ctx, turnBefore, string(p.id), int64(p.fork.At)), &e); {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	p.newest = e.Turn
	var record hansard.TurnRecord
	if e.Fork != nil {
		return nil
	}
	if err := json.Unmarshal(e.Data, &record); err != nil {
		return &unreadable{fmt.Sprintf("the record of the turn at seq %d", e.Seq), err}
	}
	if !record.Ends() {
		p.held = e.Turn
	}
	return nil
}

// readMeta finds the metadata at the fork point: at the end of the log it is stored, before
// that the patches are replayed.
func (p *parent) readMeta(ctx context.Context, tx pgx.Tx) error {
	var born, title, labels, state string
	if err := tx.QueryRow(ctx, bornWith, string(p.id)).Scan(&born, &title, &labels, &state); err != nil {
		return err
	}
	var err error
	if p.born, err = scanBorn(born); err != nil {
		return err
	}
	if p.fork.At == p.head.last {
		p.meta, err = scanMeta(title, labels, state)
		return err
	}
	p.meta = engine.CloneMeta(p.born)
	rows, err := tx.Query(ctx, patchesUpTo, string(p.id), int64(p.fork.At))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		var patch hansard.Patch
		if err := rows.Scan(&text); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), &patch); err != nil {
			return &unreadable{"a patch", err}
		}
		if p.meta, err = engine.ReplayPatch(p.meta, &patch); err != nil {
			return err
		}
	}
	return rows.Err()
}

// decide makes the fork, if its id is free.
func (p *parent) decide(l *locked) (*change, error) {
	switch err := l.head.find(l.id); {
	case err == nil:
		return nil, fmt.Errorf("%w: %s", hansard.ErrExists, l.id)
	case l.head != nil:
		return nil, err
	}
	e := engine.ForkEvent(p.id, &p.fork)
	meta, err := engine.ApplyPatch(l.id, p.meta, e.Patch)
	if err != nil {
		return nil, err
	}
	born := engine.CloneMeta(p.born)
	c := &change{create: &born, meta: &meta, turn: true, head: head{created: l.now, updated: l.now, last: p.fork.At + 1, newest: p.newest, parent: e.Fork}}
	if err := c.rows.add([]hansard.Event{e}, batch{turn: p.held}); err != nil {
		return nil, err
	}
	c.more = func(b *pgx.Batch) {
		id, from := string(l.id), string(p.id)
		b.Queue(copyEvents, id, from, int64(p.fork.At))
		b.Queue(copyAttachments, id, from, l.now)
		b.Queue(copyParts, id, from)
		b.Queue(addUp, id)
		b.Queue(parentThere, from)
		b.Queue(sameContent, id, from, int64(p.fork.At))
	}
	return c, nil
}

// forkRow is the parent named by a fork's first own event, as it is stored.
func forkRow(p *hansard.Parent) *string {
	if p == nil {
		return nil
	}
	text, _ := json.Marshal(p) // strings and numbers: can't fail
	return ptr(string(text))
}

const childrenOf = `SELECT id FROM hansard_heads WHERE parent = $1 ORDER BY id`

// children are the forks of a session.
func children(ctx context.Context, q querier, parent hansard.SessionID) ([]string, error) {
	rows, err := q.Query(ctx, childrenOf, string(parent))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// parentRow is a parent as it is stored.
func parentRow(p *hansard.Parent) (id *string, at *int64) {
	if p == nil {
		return nil, nil
	}
	return ptr(string(p.ID)), ptr(int64(p.At))
}
