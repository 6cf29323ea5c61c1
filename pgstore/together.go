package pgstore

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"hansard"
)

// Group commit: appends to many sessions in one statement and one commit. Each session is a
// part with conditions of its own, and is stored or left out by itself. A statement that holds
// the rows of many sessions must not wait for one: what somebody else has locked is left out
// too, and sent again alone. So groups of several processes can't deadlock, in whatever order
// they lock, and a locked session delays nobody else.

// appendTogether answers with a row for each session that it could lock: the last seq of
// what it has stored there, or NULL where the conditions are not met. Sessions are counted
// from 1, as $1 has them; e.head tells which one an event is for.
//
// Only the newest version of a row can be locked, and the conditions are checked on that one:
// PostgreSQL goes on to it where another transaction has changed the row since this statement
// began. LIMIT keeps each row looked up by itself, see knownKeys; where rows are changed, and
// there can be none, ANY keeps a plan that was made while the table was empty from reading all of it.
var appendTogether = `WITH known AS (
	SELECT k.head FROM unnest($27::integer[], $28::text[]) AS k(head, key)
		CROSS JOIN LATERAL (SELECT 1 FROM hansard_events x WHERE x.id = ($1::text[])[k.head] AND x.key = k.key LIMIT 1) AS found
	UNION ALL
	SELECT i.head FROM unnest($29::integer[], $30::text[]) AS i(head, event_id)
		CROSS JOIN LATERAL (SELECT 1 FROM hansard_events x WHERE x.id = ($1::text[])[i.head] AND x.event_id = i.event_id LIMIT 1) AS found
), locked AS (
	SELECT a.id, a.n, a.bytes, a.shelved, a.head, NOT h.deleted AND (a.turn = '' OR h.current = a.turn) AND NOT (a.free AND h.exclusive) AND (a.expect IS NULL OR h.last = a.expect)
		AND (NOT a.shelved OR clock_timestamp() >= h.listed AND clock_timestamp() < h.listed + ` + spanSQL + `) AND a.head NOT IN (SELECT head FROM known) AS met
	FROM unnest($1::text[], $19::integer[], $20::bigint[], $21::text[], $22::boolean[], $23::bigint[], $24::boolean[]) WITH ORDINALITY AS a(id, n, bytes, turn, free, expect, shelved, head)
	CROSS JOIN LATERAL (SELECT deleted, current, exclusive, last, listed FROM hansard_heads WHERE id = a.id LIMIT 1 FOR UPDATE SKIP LOCKED) AS h
), head AS (
	UPDATE hansard_heads h SET last = h.last + l.n, bytes = h.bytes + l.bytes,
		updated = CASE WHEN l.shelved THEN least(greatest(clock_timestamp(), h.listed), h.listed + ` + spanSQL + ` - interval '1 microsecond') ELSE clock_timestamp() END
	FROM locked l WHERE l.met AND h.id = l.id AND h.id = ANY((SELECT array_agg(id) FROM locked WHERE met)::text[])
	RETURNING h.id, h.last, h.last - l.n AS before, h.updated, ` + strings.NewReplacer("updated", "h.updated", "listed", "h.listed").Replace(shelfLeft) + ` AS shelf, l.head
), added AS (
	` + insertColumns + ` SELECT head.id, head.before + e.n, head.updated, ` + insertValues + `
	FROM head JOIN unnest(` + insertArrays + `, $25::integer[], $26::integer[]) AS e(` + insertNames + `, head, n) ON e.head = head.head
)
SELECT head, last, shelf, ` + durably("$31") + ` FROM head UNION ALL SELECT head, NULL, 0, NULL FROM locked WHERE NOT met`

// shelveTogether is shelve for sessions, each with the mark of what was stored there.
var shelveTogether = `WITH due AS (
	UPDATE hansard_heads h SET listed = h.updated FROM unnest($1::text[], $2::text[]) AS a(id, mark)
	WHERE h.id = a.id AND h.id = ANY($1) AND ` + shelfDue + ` AND EXISTS (SELECT 1 FROM hansard_events e WHERE e.id = a.id AND e.mark = a.mark)
	RETURNING h.id, h.updated
)
UPDATE hansard_listing l SET listed = due.updated FROM due WHERE l.id = due.id AND l.id = ANY((SELECT array_agg(id) FROM due)::text[])`

// together are combined groups of several sessions in one statement.
type together struct {
	plains         []*plain
	rows           rows
	ids, turns     []string
	sizes          []int32 // events of each session
	bytes          []int64
	free, shelved  []bool
	expect         []*int64
	head, n        []int32 // of each event: its session, and its place there
	keyed, named   []int32 // the sessions of
	keys, eventIDs []string
	due, marks     []string // sessions whose place in the list is looked at
}

func (t *together) add(p *plain, shelved bool) {
	t.plains = append(t.plains, p)
	at := int32(len(t.plains))
	t.rows.join(&p.rows)
	t.ids, t.turns = append(t.ids, string(p.id)), append(t.turns, string(p.turn))
	t.sizes, t.bytes = append(t.sizes, int32(p.rows.len())), append(t.bytes, p.rows.bytes)
	t.free, t.shelved, t.expect = append(t.free, p.free), append(t.shelved, shelved), append(t.expect, p.expect)
	for i := range p.rows.len() {
		t.head, t.n = append(t.head, at), append(t.n, int32(i+1))
	}
	t.keyed, t.keys = append(t.keyed, slices.Repeat([]int32{at}, len(p.keys))...), append(t.keys, p.keys...)
	t.named, t.eventIDs = append(t.named, slices.Repeat([]int32{at}, len(p.ids))...), append(t.eventIDs, p.ids...)
	if !shelved {
		t.due, t.marks = append(t.due, string(p.id)), append(t.marks, p.mark)
	}
}

func (t *together) queue(b *pgx.Batch, durable bool) {
	args := t.rows.args("", t.sizes, t.bytes, t.turns, t.free, t.expect, t.shelved, t.head, t.n, t.keyed, t.keys, t.named, t.eventIDs, durable)
	args[0] = t.ids
	b.Queue(appendTogether, args...)
	if len(t.due) > 0 {
		b.Queue(shelveTogether, t.due, t.marks)
	}
}

// fateOf is what became of one session's part of a statement.
type fateOf struct {
	locked bool        // it was looked at
	last   hansard.Seq // of what was stored, or 0
}

// sendTogether stores parts of several sessions in one commit. Those for which it can't be
// said by one condition what is to be done go their own way at once; those that the statement
// has left out, when it is known.
func (s *Store) sendTogether(parts []part) {
	t := &together{}
	var plain []part
	for _, p := range parts {
		if combined, ok := newPlain(p.id, p.group); ok {
			t.add(combined, s.shelves.fresh(p.id))
			plain = append(plain, p)
		} else {
			s.apart(p, func() { s.decideGroup(&job{id: p.id}, p.group, nil) })
		}
	}
	if len(plain) == 0 {
		return
	}
	outcomes, err := s.sendAll(t)
	for i, p := range plain {
		combined := t.plains[i]
		switch {
		case err == nil && outcomes[i].last > 0:
			combined.stored(s, outcomes[i].last)
			s.finish(p)
		case err == nil && outcomes[i].locked:
			s.apart(p, func() { s.settle(combined, nil) }) // refused: it is told why
		case err == nil && p.tries < lockedTries:
			s.tryAgain(p)
		case err == nil, isRace(err), neverSent(err), !isDown(err) && !errors.Is(err, context.DeadlineExceeded):
			// Nothing of it is stored: its row was locked, or another one's fault undid
			// all of them.
			s.apart(p, func() { s.sendAlone(combined) })
		default:
			s.apart(p, func() { s.settle(combined, err) })
		}
	}
}

// sendAll sends the statement. Without an error there is an outcome for each session.
func (s *Store) sendAll(t *together) ([]fateOf, error) {
	// Nobody's context, as in sendPlain.
	ctx, cancel := context.WithTimeout(context.Background(), statementPatience)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, &unsent{err}
	}
	defer conn.Release()
	b := &pgx.Batch{}
	t.queue(b, !s.asked("synchronous_commit"))
	res := conn.SendBatch(ctx, b)
	outcomes, err := t.read(res, &s.shelves)
	if closeErr := res.Close(); err == nil {
		err = closeErr
	}
	leaveStandby(conn.Conn(), err)
	if err == nil {
		err = doubt(conn.Conn().PgConn())
	}
	return outcomes, err
}

func (t *together) read(res pgx.BatchResults, h *shelves) ([]fateOf, error) {
	found, err := res.Query()
	if err != nil {
		return nil, err
	}
	defer found.Close()
	outcomes := make([]fateOf, len(t.plains))
	for found.Next() {
		var head int
		var last *int64
		var left float64
		if err := found.Scan(&head, &last, &left, nil); err != nil {
			return nil, err
		}
		o := &outcomes[head-1]
		if o.locked = true; last != nil {
			o.last = hansard.Seq(*last)
		}
		h.learn(t.plains[head-1].id, left)
	}
	return outcomes, found.Err()
}
