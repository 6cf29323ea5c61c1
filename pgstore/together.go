package pgstore

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"hansard"
)

// Group commit: appends to many sessions in one statement and one commit. Each session is a
// part with conditions of its own, and is stored or left out by itself. A statement that
// holds the rows of many sessions must not wait for one: what another transaction has
// locked is left out too, and sent again. So groups of several processes can't deadlock, in
// whatever order they lock, and a locked session delays nobody else.

// appendTogether answers with a row for each session that it could lock: the last seq of
// what it has stored there, or NULL where the conditions are not met. Sessions are counted
// from 1, in the order of $1; e.head tells which one an event is for.
//
// Only the newest version of a row can be locked, and the conditions are checked on that one:
// PostgreSQL goes on to it where another transaction has changed the row since this statement
// began. LIMIT keeps each row looked up by itself, see knownKeys; where rows are changed, and
// there can be none, ANY keeps a plan that was made while the table was empty from reading all of it.
//
// namedTogether is for groups in which an event has a key or an id. Most have none, and leaving
// out the nodes and the parameters for them makes the statement a fifth cheaper.
var (
	appendTogether = statementTogether("", "", "", "")
	namedTogether  = statementTogether(`known AS (
	SELECT k.head FROM unnest($21::integer[], $22::text[]) AS k(head, key)
		CROSS JOIN LATERAL (SELECT 1 FROM hansard_events x WHERE x.id = ($1::text[])[k.head] AND x.key = k.key LIMIT 1) AS found
	UNION ALL
	SELECT i.head FROM unnest($23::integer[], $24::text[]) AS i(head, event_id)
		CROSS JOIN LATERAL (SELECT 1 FROM hansard_events x WHERE x.id = ($1::text[])[i.head] AND x.event_id = i.event_id LIMIT 1) AS found
), `, " AND a.head NOT IN (SELECT head FROM known)", ", key, hash, event_id, content", ", $25::text[], $26::text[], $27::text[], $28::text[]")
)

// statementTogether is a statement that appends to several sessions. known selects those
// that must not be appended to, and unknown is the condition that a session is not one of
// them; more are the columns that events have only in that case, and arrays their
// parameters. There are no columns for what newPlain refuses.
func statementTogether(known, unknown, more, arrays string) string {
	values := "e." + strings.Join(strings.Split(togetherColumns+more, ", "), ", e.")
	return `WITH ` + known + `locked AS (
	SELECT a.id, a.n, a.bytes, a.shelved, a.head, NOT h.deleted AND (a.turn = '' OR h.current = a.turn) AND NOT (a.free AND h.exclusive) AND (a.expect IS NULL OR h.last = a.expect)
		AND (NOT a.shelved OR clock_timestamp() >= h.listed AND clock_timestamp() < h.listed + ` + spanSQL + `)` + unknown + ` AS met
	FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::text[], $5::boolean[], $6::bigint[], $7::boolean[]) WITH ORDINALITY AS a(id, n, bytes, turn, free, expect, shelved, head)
	CROSS JOIN LATERAL (SELECT deleted, current, exclusive, last, listed FROM hansard_heads WHERE id = a.id LIMIT 1 FOR UPDATE SKIP LOCKED) AS h
), head AS (
	UPDATE hansard_heads h SET last = h.last + l.n, bytes = h.bytes + l.bytes,
		updated = CASE WHEN l.shelved THEN least(greatest(clock_timestamp(), h.listed), h.listed + ` + spanSQL + ` - interval '1 microsecond') ELSE clock_timestamp() END
	FROM locked l WHERE l.met AND h.id = l.id AND h.id = ANY((SELECT array_agg(id) FROM locked WHERE met)::text[])
	RETURNING h.id, h.last, h.last - l.n AS before, h.updated, ` + strings.NewReplacer("updated", "h.updated", "listed", "h.listed").Replace(shelfLeft) + ` AS shelf, l.head
), added AS (
	INSERT INTO hansard_events (id, seq, "time", ` + togetherColumns + more + `) SELECT head.id, head.before + e.n, head.updated, ` + values + `
	FROM head JOIN unnest($9::integer[], $10::integer[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::boolean[], $17::integer[], $18::text[], $19::text[], $20::timestamptz[]` + arrays + `)
		AS e(head, n, ` + togetherColumns + more + `) ON e.head = head.head
)
SELECT head, last, shelf, ` + durably("$8") + ` FROM head UNION ALL SELECT head, NULL, 0, NULL FROM locked WHERE NOT met`
}

// togetherColumns are the columns of every event that is appended this way, except for its
// place and its time.
const togetherColumns = `kind, role, author, turn, data, inbox, size, mark, "by", "at"`

// shelveTogether is shelve for sessions, each with the mark of what was stored there.
var shelveTogether = `WITH due AS (
	UPDATE hansard_heads h SET listed = h.updated FROM unnest($1::text[], $2::text[]) AS a(id, mark)
	WHERE h.id = a.id AND h.id = ANY($1) AND ` + shelfDue + ` AND EXISTS (SELECT 1 FROM hansard_events e WHERE e.id = a.id AND e.mark = a.mark)
	RETURNING h.id, h.updated
)
UPDATE hansard_listing l SET listed = due.updated FROM due WHERE l.id = due.id AND l.id = ANY((SELECT array_agg(id) FROM due)::text[])`

// together are combined groups of several sessions in one statement.
type together struct {
	members []joined
	rows    rows
}

// joined is a combined group among others. If it is shelved, the session's place in the list is
// not looked at.
type joined struct {
	*plain
	shelved bool
}

func (t *together) add(p *plain, shelved bool) {
	t.members = append(t.members, joined{p, shelved})
	t.rows.join(&p.rows)
}

func (t *together) queue(b *pgx.Batch, durable bool) {
	m, e := t.members, t.rows.list
	// For each event: its session, its place there, and for the first of a session the mark
	// that it is stored under.
	heads, places, begun := make([]int32, 0, len(e)), make([]int32, 0, len(e)), make([]*string, len(e))
	var keyed, named []int32 // the sessions of
	var keys, ids, due, marks []string
	for i := range m {
		begun[len(heads)] = &m[i].mark
		for place := range m[i].rows.len() {
			heads, places = append(heads, int32(i+1)), append(places, int32(place+1))
		}
		for _, key := range m[i].keys {
			keyed, keys = append(keyed, int32(i+1)), append(keys, key)
		}
		for _, id := range m[i].ids {
			named, ids = append(named, int32(i+1)), append(ids, id)
		}
		if !m[i].shelved {
			due, marks = append(due, string(m[i].id)), append(marks, m[i].mark)
		}
	}
	sql, args := appendTogether, []any{column(m, func(m *joined) string { return string(m.id) }), column(m, func(m *joined) int32 { return int32(m.rows.len()) }),
		column(m, func(m *joined) int64 { return m.rows.bytes }), column(m, func(m *joined) string { return string(m.turn) }), column(m, func(m *joined) bool { return m.free }),
		column(m, func(m *joined) *int64 { return m.expect }), column(m, func(m *joined) bool { return m.shelved }), durable,
		heads, places, column(e, kindOf), column(e, roleOf), column(e, authorOf), column(e, turnOf), column(e, dataOf), column(e, inboxOf), column(e, sizeOf), begun,
		column(e, byOf), column(e, atOf)}
	if len(keys)+len(ids) > 0 {
		sql, args = namedTogether, append(args, keyed, keys, named, ids, column(e, keyOf), column(e, hashOf), column(e, idOf), column(e, contentHashOf))
	}
	b.Queue(sql, args...)
	if len(due) > 0 {
		b.Queue(shelveTogether, due, marks)
	}
}

// fateOf is what became of one session's part of a statement.
type fateOf struct {
	locked bool        // it was looked at
	last   hansard.Seq // of what was stored, or 0
}

// sendTogether stores parts of several sessions in one commit. Parts that can't be decided
// by one condition are sent by themselves at once; those that the statement left out, as
// soon as that is known.
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
		combined := t.members[i].plain
		switch {
		case err == nil && outcomes[i].last > 0:
			combined.stored(s, outcomes[i].last)
			s.finish(p)
		case err == nil && outcomes[i].locked:
			s.apart(p, func() { s.settle(combined, nil) }) // refused: settle finds out why
		case err == nil && p.tries < lockedTries:
			s.tryAgain(p)
		case err == nil, isRace(err), neverSent(err), !isDown(err) && !errors.Is(err, context.DeadlineExceeded):
			// Nothing of it is stored: its row was locked, or an error in another part
			// undid all of them.
			s.apart(p, func() { s.sendAlone(combined) })
		default:
			s.apart(p, func() { s.settle(combined, err) })
		}
	}
}

// sendAll sends the statement. Without an error there is an outcome for each session.
func (s *Store) sendAll(t *together) ([]fateOf, error) {
	// Not the context of a caller, as in sendPlain.
	ctx, cancel := context.WithTimeout(context.Background(), statementPatience)
	defer cancel()
	select {
	case s.mayCommit <- struct{}{}:
		defer func() { <-s.mayCommit }()
	case <-ctx.Done():
		return nil, &unsent{ctx.Err()}
	}
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
	outcomes := make([]fateOf, len(t.members))
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
		h.learn(t.members[head-1].id, left)
	}
	return outcomes, found.Err()
}
