package pgstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
)

// rows are events to be inserted.
type rows struct {
	list  []row
	times []time.Time // of each; nil where the database's clock sets them
	bytes int64
}

// row is an event as it is stored, except for its place and its time.
type row struct {
	kind, role, author, turn, data, by string
	inbox                              bool
	patch, key, hash                   *string
	id, content                        *string // content: the hash of an event that has an id
	at                                 *time.Time
	attached                           []hansard.Attachment
	fork                               *string // the parent, if the event begins a fork
	size                               *int32
}

func (r *rows) len() int { return len(r.list) }

// batch is what is stored with the events of a batch.
type batch struct {
	turn      hansard.Grant
	key, hash string
	apart     bool // each event is a batch of its own
}

// add appends the events of one batch. Their data is copied: the caller may reuse its
// memory even if it does not wait for the write to end.
func (r *rows) add(events []hansard.Event, b batch) error {
	r.list = slices.Grow(r.list, len(events))
	for i := range events {
		e := &events[i]
		n := row{kind: e.Kind, role: e.Role, author: e.Author, turn: string(b.turn), data: string(e.Data), by: e.By, inbox: e.Inbox,
			attached: slices.Clone(e.Attachments), fork: forkRow(e.Fork)}
		if e.Patch != nil {
			text, err := json.Marshal(e.Patch)
			if err != nil {
				return err
			}
			n.patch = ptr(string(text))
		}
		if i == 0 && b.key != "" {
			n.key, n.hash = ptr(b.key), ptr(b.hash)
		}
		if i == 0 && (b.key != "" || len(events) > 1 && !b.apart) {
			n.size = ptr(int32(len(events)))
		}
		if e.ID != "" {
			n.id, n.content = ptr(e.ID), ptr("")
			if !e.Redacted {
				*n.content = engine.EventHash(e)
			}
		}
		if !e.At.IsZero() {
			n.at = ptr(e.At)
		}
		r.list = append(r.list, n)
		r.bytes += int64(len(e.Data))
	}
	return nil
}

// join appends other rows.
func (r *rows) join(o *rows) {
	r.list = append(r.list, o.list...)
	r.times = append(r.times, o.times...)
	r.bytes += o.bytes
}

// pick returns the rows of a batch that are new to the session, as one batch.
func (r *rows) pick(s *engine.Sifted, b batch) *rows {
	picked := &rows{}
	for _, i := range s.Fresh {
		n := r.list[i]
		n.patch, n.key, n.hash, n.size = nil, nil, nil, nil
		picked.list = append(picked.list, n)
		picked.bytes += int64(len(n.data))
	}
	if len(s.Fresh) == 0 {
		_ = picked.add([]hansard.Event{engine.MetaEvent(r.list[0].by)}, batch{turn: b.turn}) // without a patch it can't fail
	}
	if s.Patch {
		picked.list[picked.len()-1].patch = r.list[r.len()-1].patch
	}
	first := &picked.list[0]
	if b.key != "" {
		first.key, first.hash = ptr(b.key), ptr(b.hash)
	}
	if b.key != "" || picked.len() > 1 && !b.apart {
		first.size = ptr(int32(picked.len()))
	}
	return picked
}

func ptr[T any](v T) *T { return &v }

// named are the attachments that the events name.
func (r *rows) named() []hansard.Attachment {
	var naming []hansard.Event
	for i := range r.list {
		if list := r.list[i].attached; len(list) > 0 {
			naming = append(naming, hansard.Event{Attachments: list})
		}
	}
	return engine.NamedBy(naming)
}

// sending estimates how many bytes the rows take on the wire.
func (r *rows) sending() int64 {
	n := r.bytes
	for i := range r.list {
		for _, a := range r.list[i].attached {
			n += int64(len(a.Digest)+len(a.MediaType)+len(a.Name)) + 64
		}
	}
	return n
}

// attachments are the event's attachments as they are stored.
func (r *row) attachments() *string {
	if len(r.attached) == 0 {
		return nil
	}
	text, _ := json.Marshal(r.attached) // strings and numbers: can't fail
	return ptr(string(text))
}

// column is one parameter with a value for each row of a list, so that a statement takes
// any number of rows.
func column[E, T any](list []E, of func(*E) T) []T {
	all := make([]T, len(list))
	for i := range list {
		all[i] = of(&list[i])
	}
	return all
}

func kindOf(r *row) string         { return r.kind }
func roleOf(r *row) string         { return r.role }
func authorOf(r *row) string       { return r.author }
func turnOf(r *row) string         { return r.turn }
func dataOf(r *row) string         { return r.data }
func byOf(r *row) string           { return r.by }
func inboxOf(r *row) bool          { return r.inbox }
func sizeOf(r *row) *int32         { return r.size }
func atOf(r *row) *time.Time       { return r.at }
func patchOf(r *row) *string       { return r.patch }
func keyOf(r *row) *string         { return r.key }
func hashOf(r *row) *string        { return r.hash }
func idOf(r *row) *string          { return r.id }
func contentHashOf(r *row) *string { return r.content }
func forkOf(r *row) *string        { return r.fork }

// insertColumns and insertValues are the parts of a statement that inserts rows
// from the parameters $1 to $18; e.n counts them from 1.
const (
	insertColumns = `INSERT INTO hansard_events (id, seq, "time", kind, role, author, turn, data, inbox, patch, key, hash, size, mark, "by", event_id, content, "at", attachments, fork)`
	insertValues  = `e.kind, e.role, e.author, e.turn, e.data, e.inbox, e.patch, e.key, e.hash, e.size, e.mark, e.by, e.event_id, e.content, e.at, e.attachments, e.fork`
	insertArrays  = `$2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::boolean[], $8::text[], $9::text[], $10::text[], $11::integer[], $12::text[], $13::text[], $14::text[], $15::text[], $16::timestamptz[], $17::text[], $18::text[]`
	insertNames   = `kind, role, author, turn, data, inbox, patch, key, hash, size, mark, by, event_id, content, at, attachments, fork`
	insertFrom    = `unnest(` + insertArrays + `)
		WITH ORDINALITY AS e(` + insertNames + `, n)`
)

// args are the parameters $1 to $18 for insertColumns, and more behind them. The first event is
// stored under the mark.
func (r *rows) args(id hansard.SessionID, mark string, more ...any) []any {
	marks := make([]*string, r.len())
	marks[0] = &mark
	return append([]any{string(id), column(r.list, kindOf), column(r.list, roleOf), column(r.list, authorOf), column(r.list, turnOf), column(r.list, dataOf), column(r.list, inboxOf),
		column(r.list, patchOf), column(r.list, keyOf), column(r.list, hashOf), column(r.list, sizeOf), marks, column(r.list, byOf), column(r.list, idOf), column(r.list, contentHashOf), column(r.list, atOf),
		column(r.list, (*row).attachments), column(r.list, forkOf)}, more...)
}

// insertAt inserts rows after a seq, all with one time; insertTimed with a time for each.
var (
	insertAt    = insertColumns + ` SELECT $1, $19::bigint + e.n, $20::timestamptz, ` + insertValues + ` FROM ` + insertFrom
	insertTimed = insertColumns + ` SELECT $1, $19::bigint + e.n, ($20::timestamptz[])[e.n], ` + insertValues + ` FROM ` + insertFrom
)

func (r *rows) insert(b *pgx.Batch, id hansard.SessionID, mark string, after hansard.Seq, now time.Time) {
	if r.times != nil {
		b.Queue(insertTimed, r.args(id, mark, int64(after), r.times)...)
		return
	}
	b.Queue(insertAt, r.args(id, mark, int64(after), now)...)
}

// eventColumns are what scanEvent reads.
const eventColumns = `seq, "time", kind, role, author, turn, "by", event_id, "at", inbox, patch, attachments, fork, redacted, redacts, data`

func scanEvent(row pgx.Row, e *hansard.Event) error {
	var patch, id, attachments, fork, redacts *string
	var at *time.Time
	var seq int64
	if err := row.Scan(&seq, &e.Time, &e.Kind, &e.Role, &e.Author, (*string)(&e.Turn), &e.By, &id, &at, &e.Inbox, &patch, &attachments, &fork, &e.Redacted, &redacts, (*[]byte)(&e.Data)); err != nil {
		return err
	}
	e.Seq, e.Time = hansard.Seq(seq), e.Time.UTC()
	if id != nil {
		e.ID = *id
	}
	if at != nil {
		e.At = at.UTC()
	}
	if patch != nil {
		e.Patch = new(hansard.Patch)
		if err := json.Unmarshal([]byte(*patch), e.Patch); err != nil {
			return &unreadable{fmt.Sprintf("the patch of seq %d", e.Seq), err}
		}
	}
	if fork != nil {
		e.Fork = new(hansard.Parent)
		if err := json.Unmarshal([]byte(*fork), e.Fork); err != nil {
			return &unreadable{fmt.Sprintf("the fork at seq %d", e.Seq), err}
		}
	}
	if attachments != nil {
		if err := json.Unmarshal([]byte(*attachments), &e.Attachments); err != nil {
			return &unreadable{fmt.Sprintf("the attachments of seq %d", e.Seq), err}
		}
	}
	if redacts != nil {
		if err := json.Unmarshal([]byte(*redacts), &e.Redacts); err != nil {
			return &unreadable{fmt.Sprintf("what seq %d redacts", e.Seq), err}
		}
	}
	return nil
}
