package pgstore

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
)

// Redactions: recording the redaction and removing the content are one transaction.
// PostgreSQL keeps the old rows in its tables until they are vacuumed, and in its write-ahead
// log; those are not scrubbed (docs/erasing.md).

// asked selects columns of the events $2 of the session $1. Each is looked up by itself, see
// knownKeys.
func asked(columns string) string {
	return `unnest($2::bigint[]) AS asked(seq) CROSS JOIN LATERAL (SELECT ` + columns + ` FROM hansard_events WHERE id = $1 AND seq = asked.seq LIMIT 1) AS e`
}

// redactable selects those of them that have content to remove. The store's own records are
// left alone, whatever an import says.
var redactable = `SELECT e.* FROM ` + asked("seq, kind, data, attachments, redacted, redacts, fork") +
	` WHERE NOT e.redacted AND e.redacts IS NULL AND e.fork IS NULL AND e.kind <> 'turn' AND NOT (e.kind = 'lost' AND e.data = 'null')`

var (
	// findSeqs reads the events that a redaction names, without their data: only events of
	// kind lost, which a repair may have written, are read with it.
	findSeqs = `SELECT e.seq, e.kind, e.role, e.author, e.turn, e.inbox, e.patched, e.redacted, e.records, e.forks, e.data FROM ` +
		asked(`seq, kind, role, author, turn, inbox, patch IS NOT NULL AS patched, redacted, redacts IS NOT NULL AS records, fork IS NOT NULL AS forks, CASE WHEN kind = 'lost' THEN data ELSE '' END AS data`)
	markRedacted = `UPDATE hansard_events r SET redacted = true FROM (SELECT e.seq FROM ` + asked("seq") + `) n WHERE r.id = $1 AND r.seq = n.seq`

	redactBytes = `UPDATE hansard_heads SET bytes = bytes - (SELECT coalesce(sum(octet_length(r.data) - 4), 0) FROM (` + redactable + `) r) WHERE id = $1`
	// redactAttached removes the attachments that only these events name, with their bytes.
	redactAttached = `WITH named AS MATERIALIZED (
		SELECT DISTINCT a->>'digest' AS digest FROM (` + redactable + `) r, jsonb_array_elements(r.attachments::jsonb) a WHERE r.attachments IS NOT NULL
	), others AS MATERIALIZED (
		SELECT DISTINCT a->>'digest' AS digest FROM hansard_events o, jsonb_array_elements(o.attachments::jsonb) a
		WHERE o.id = $1 AND o.attachments IS NOT NULL AND o.seq <> ALL($2::bigint[]) AND EXISTS (SELECT 1 FROM named)
	), gone AS (
		DELETE FROM hansard_attachments t USING (SELECT digest FROM named EXCEPT SELECT digest FROM others) n WHERE t.id = $1 AND t.digest = n.digest RETURNING t.upload
	)
	DELETE FROM hansard_attachment_parts p USING gone WHERE p.id = $1 AND p.upload = gone.upload`
	redactEvents = `UPDATE hansard_events c SET data = 'null', attachments = NULL, redacted = true, content = CASE WHEN c.event_id IS NOT NULL THEN '' END
		FROM (` + redactable + `) r WHERE c.id = $1 AND c.seq = r.seq`
)

const (
	recordRedaction = `UPDATE hansard_events SET redacts = $3 WHERE id = $1 AND seq = $2`
	// redactHashes removes the hashes of the batches that contain these events: for each
	// event, of the nearest preceding batch with a key, if it reaches as far as the event. It
	// goes along the log, see keysAfter; no batch has more than 10,000 events.
	redactHashes = `UPDATE hansard_events e SET hash = '' FROM (
		SELECT DISTINCT k.seq FROM unnest($2::bigint[]) s CROSS JOIN LATERAL (
			SELECT seq, size FROM hansard_events WHERE id = $1 AND seq <= s AND seq > s - 10000 AND hash IS NOT NULL ORDER BY seq DESC LIMIT 1
		) k WHERE k.seq + k.size > s
	) b WHERE e.id = $1 AND e.seq = b.seq`
)

// Redact implements [hansard.Store].
func (s *Store) Redact(ctx context.Context, id hansard.SessionID, r hansard.Redaction) (hansard.Receipt, error) {
	if err := s.begin(ctx, id, engine.CheckRedaction(&r), s.writable()); err != nil {
		return hansard.Receipt{}, err
	}
	defer s.work.Done()
	var receipt hansard.Receipt
	j := &job{id: id, seqs: bigints(r.Seqs)}
	j.decide = func(l *locked) (c *change, err error) {
		receipt = hansard.Receipt{Session: id}
		c, err = l.redact(&r)
		if err == nil && c == nil {
			receipt.Replayed = true
		} else if err == nil {
			receipt.First, receipt.Last = c.head.last, c.head.last
		}
		return c, err
	}
	err := s.write(ctx, j, func() {
		if !receipt.Replayed {
			s.hub.changed(id, receipt.Last)
		}
	})
	if err != nil {
		return hansard.Receipt{}, err
	}
	return receipt, nil
}

// redact decides about a redaction on a locked session. A nil change means that nothing is
// left to do.
func (l *locked) redact(r *hansard.Redaction) (*change, error) {
	if err := l.head.find(l.id); err != nil {
		return nil, err
	}
	fresh, err := engine.Redact(l.id, r, l.head.last, func(seq hansard.Seq) (hansard.Event, bool, error) {
		e, ok := l.events[seq]
		if !ok {
			return e, false, engine.NoSeq(l.id, seq, l.head.last)
		}
		return e, e.Redacted, nil
	})
	if err != nil || len(fresh) == 0 {
		return nil, err
	}
	gone, err := l.fence(l.head, r.Turn, false)
	if err != nil {
		return nil, err
	}
	c := &change{head: *l.head}
	if gone != "" {
		if err := c.endTurn(gone, r.By); err != nil {
			return nil, err
		}
	}
	e := r.Event(fresh)
	if err := c.rows.add([]hansard.Event{e}, batch{turn: r.Turn}); err != nil {
		return nil, err
	}
	c.head.last++
	c.head.bytes += int64(len(e.Data))
	c.head.updated = l.now
	e.Seq = c.head.last
	c.more = func(b *pgx.Batch) {
		queueRecord(b, l.id, &e)
		queueTakeAway(b, l.id, fresh)
	}
	return c, nil
}

// queueRecord sets, on a row being inserted, which events it redacts.
func queueRecord(b *pgx.Batch, id hansard.SessionID, e *hansard.Event) {
	text, _ := json.Marshal(e.Redacts) // numbers: can't fail
	b.Queue(recordRedaction, string(id), int64(e.Seq), string(text))
}

// queueTakeAway removes the content of events.
func queueTakeAway(b *pgx.Batch, id hansard.SessionID, seqs []hansard.Seq) {
	for _, statement := range []string{redactBytes, redactAttached, redactHashes, redactEvents} {
		b.Queue(statement, string(id), bigints(seqs))
	}
	// Last, because it waits for whoever is adding words of the session.
	b.Queue(holdWords, string(id))
	b.Queue(redactWords, string(id), bigints(seqs))
}

// queueRedactions queues the redactions of an import: its rows are marked as redacted as in
// the source store, and events that are here already lose their content.
func queueRedactions(b *pgx.Batch, p *hansard.Part) {
	var gone []hansard.Seq
	for i := range p.Events {
		e := &p.Events[i]
		if e.Redacted {
			gone = append(gone, e.Seq)
		}
		if len(e.Redacts) > 0 {
			queueRecord(b, p.ID, e)
		}
	}
	if len(gone) > 0 {
		b.Queue(markRedacted, string(p.ID), bigints(gone))
	}
	if len(p.Events) == 0 {
		return
	}
	if before := engine.RedactedBy(p.Events, p.Events[0].Seq); len(before) > 0 {
		queueTakeAway(b, p.ID, before)
	}
}

func bigints(seqs []hansard.Seq) []int64 {
	out := make([]int64, len(seqs))
	for i, seq := range seqs {
		out[i] = int64(min(seq, maxSeq))
	}
	return out
}

// readSeqs reads the events that a redaction names.
func (l *locked) readSeqs(res pgx.BatchResults) error {
	found, err := res.Query()
	if err != nil {
		return err
	}
	defer found.Close()
	l.events = make(map[hansard.Seq]hansard.Event)
	for found.Next() {
		var e hansard.Event
		var seq int64
		var patched, records, forks bool
		if err := found.Scan(&seq, &e.Kind, &e.Role, &e.Author, (*string)(&e.Turn), &e.Inbox, &patched, &e.Redacted, &records, &forks, (*[]byte)(&e.Data)); err != nil {
			return err
		}
		if e.Seq = hansard.Seq(seq); patched {
			e.Patch = &hansard.Patch{}
		}
		if forks {
			e.Fork = &hansard.Parent{}
		}
		if records {
			e.Redacts = []hansard.Seq{0} // some
		}
		l.events[e.Seq] = e
	}
	return found.Err()
}

// redactionsAfter selects the redaction records after a seq: when a log is examined page by
// page, events may lose their content before they are read.
const redactionsAfter = `SELECT redacts FROM hansard_events WHERE id = $1 AND seq > $2 AND redacts IS NOT NULL`

// laterRedactions takes into account what was redacted while the log was read.
func (e *examination) laterRedactions(ctx context.Context, s *Store) error {
	return s.look(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, redactionsAfter, string(e.id), int64(e.end))
		if err != nil {
			return err
		}
		records, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, text := range records {
			var seqs []hansard.Seq
			if json.Unmarshal([]byte(text), &seqs) == nil { // else it is found when it is examined
				e.redacted.Later(seqs)
				e.shrunk = true
			}
		}
		return err
	})
}
