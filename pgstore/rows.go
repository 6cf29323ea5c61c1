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

// rows are events to be inserted, one slice for each column, so that one statement
// inserts any number of them.
type rows struct {
	kinds, roles, authors, turns, data, by []string
	inbox                                  []bool
	patches, keys, hashes, marks           []*string
	ids, contents                          []*string // contents: the hash of an event that has an id
	at                                     []*time.Time
	attached                               [][]hansard.Attachment
	forks                                  []*string // what an event begins a fork of
	sizes                                  []*int32
	times                                  []time.Time // only where the database's clock does not set them
	bytes                                  int64
}

func (r *rows) len() int { return len(r.kinds) }

// batch is what the rows of a batch get besides its events.
type batch struct {
	turn      hansard.Grant
	key, hash string
	apart     bool // each event is a batch of its own
}

// add appends the events of one batch. Their data is copied: the caller may reuse its
// memory even if it does not wait for the write to end.
func (r *rows) add(events []hansard.Event, b batch) error {
	for i := range events {
		e := &events[i]
		r.kinds = append(r.kinds, e.Kind)
		r.roles = append(r.roles, e.Role)
		r.authors = append(r.authors, e.Author)
		r.turns = append(r.turns, string(b.turn))
		r.data = append(r.data, string(e.Data))
		r.by = append(r.by, e.By)
		r.inbox = append(r.inbox, e.Inbox)
		r.bytes += int64(len(e.Data))
		var patch, key, hash *string
		var size *int32
		if e.Patch != nil {
			text, err := json.Marshal(e.Patch)
			if err != nil {
				return err
			}
			patch = ptr(string(text))
		}
		if i == 0 && b.key != "" {
			key, hash = &b.key, &b.hash
		}
		if i == 0 && (b.key != "" || len(events) > 1 && !b.apart) {
			size = ptr(int32(len(events)))
		}
		var name, content *string
		if e.ID != "" {
			name, content = &e.ID, ptr("")
			if !e.Redacted {
				*content = engine.EventHash(e)
			}
		}
		var at *time.Time
		if !e.At.IsZero() {
			at = &e.At
		}
		r.ids = append(r.ids, name)
		r.contents = append(r.contents, content)
		r.at = append(r.at, at)
		r.attached = append(r.attached, slices.Clone(e.Attachments))
		r.forks = append(r.forks, forkRow(e.Fork))
		r.patches = append(r.patches, patch)
		r.keys = append(r.keys, key)
		r.hashes = append(r.hashes, hash)
		r.sizes = append(r.sizes, size)
		r.marks = append(r.marks, nil)
	}
	return nil
}

// join appends other rows.
func (r *rows) join(o *rows) {
	r.kinds = append(r.kinds, o.kinds...)
	r.roles = append(r.roles, o.roles...)
	r.authors = append(r.authors, o.authors...)
	r.turns = append(r.turns, o.turns...)
	r.data = append(r.data, o.data...)
	r.by = append(r.by, o.by...)
	r.inbox = append(r.inbox, o.inbox...)
	r.ids = append(r.ids, o.ids...)
	r.contents = append(r.contents, o.contents...)
	r.at = append(r.at, o.at...)
	r.attached = append(r.attached, o.attached...)
	r.forks = append(r.forks, o.forks...)
	r.patches = append(r.patches, o.patches...)
	r.keys = append(r.keys, o.keys...)
	r.hashes = append(r.hashes, o.hashes...)
	r.sizes = append(r.sizes, o.sizes...)
	r.marks = append(r.marks, o.marks...)
	r.times = append(r.times, o.times...)
	r.bytes += o.bytes
}

// pick returns the rows of a batch that are new to the session, as one batch.
func (r *rows) pick(s *engine.Sifted, b batch) *rows {
	n := r.len()
	picked := &rows{}
	for _, i := range s.Fresh {
		picked.join(&rows{kinds: r.kinds[i : i+1], roles: r.roles[i : i+1], authors: r.authors[i : i+1], turns: r.turns[i : i+1], data: r.data[i : i+1], by: r.by[i : i+1],
			inbox: r.inbox[i : i+1], patches: []*string{nil}, keys: []*string{nil}, hashes: []*string{nil}, marks: []*string{nil},
			ids: r.ids[i : i+1], contents: r.contents[i : i+1], at: r.at[i : i+1], attached: r.attached[i : i+1], forks: r.forks[i : i+1], sizes: []*int32{nil}, bytes: int64(len(r.data[i]))})
	}
	if len(s.Fresh) == 0 {
		_ = picked.add([]hansard.Event{engine.MetaEvent(r.by[0])}, batch{turn: b.turn}) // without a patch it can't fail
	}
	if s.Patch {
		picked.patches[picked.len()-1] = r.patches[n-1]
	}
	if b.key != "" {
		picked.keys[0], picked.hashes[0] = &b.key, &b.hash
	}
	if b.key != "" || picked.len() > 1 && !b.apart {
		picked.sizes[0] = ptr(int32(picked.len()))
	}
	return picked
}

func ptr[T any](v T) *T { return &v }

// named are the attachments that the events name.
func (r *rows) named() []hansard.Attachment {
	var naming []hansard.Event
	for _, list := range r.attached {
		if len(list) > 0 {
			naming = append(naming, hansard.Event{Attachments: list})
		}
	}
	return engine.NamedBy(naming)
}

// sending estimates how many bytes the rows take on the wire.
func (r *rows) sending() int64 {
	n := r.bytes
	for _, list := range r.attached {
		for _, a := range list {
			n += int64(len(a.Digest)+len(a.MediaType)+len(a.Name)) + 64
		}
	}
	return n
}

// attachmentRows are the attachments as they are stored.
func (r *rows) attachmentRows() []*string {
	texts := make([]*string, r.len())
	for i, list := range r.attached {
		if len(list) > 0 {
			text, _ := json.Marshal(list) // strings and numbers: can't fail
			texts[i] = ptr(string(text))
		}
	}
	return texts
}

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

// args are the parameters $1 to $18 for insertColumns, and more behind them.
func (r *rows) args(id hansard.SessionID, more ...any) []any {
	return append([]any{string(id), r.kinds, r.roles, r.authors, r.turns, r.data, r.inbox, r.patches, r.keys, r.hashes, r.sizes, r.marks, r.by, r.ids, r.contents, r.at, r.attachmentRows(), r.forks}, more...)
}

// insertAt inserts rows after a seq, all with one time; insertTimed with a time for each.
var (
	insertAt    = insertColumns + ` SELECT $1, $19::bigint + e.n, $20::timestamptz, ` + insertValues + ` FROM ` + insertFrom
	insertTimed = insertColumns + ` SELECT $1, $19::bigint + e.n, ($20::timestamptz[])[e.n], ` + insertValues + ` FROM ` + insertFrom
)

func (r *rows) insert(b *pgx.Batch, id hansard.SessionID, after hansard.Seq, now time.Time) {
	if r.times != nil {
		b.Queue(insertTimed, r.args(id, int64(after), r.times)...)
		return
	}
	b.Queue(insertAt, r.args(id, int64(after), now)...)
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
