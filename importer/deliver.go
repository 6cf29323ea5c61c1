package importer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unicode/utf8"

	"hansard"
)

// How much is delivered at once, at most; a single event may be larger.
const (
	batchEvents = 1000
	batchBytes  = 4 << 20
)

// attempts is how often an append of unknown outcome is tried. The ids make retries
// harmless.
const attempts = 4

// delivery stores the records of one session, in order.
//
// A record that changes the title or the labels is a batch of its own, with a key made of
// both: so a patch is recognised however the records are divided into batches, and even
// if an earlier version of this program made a different one from the same record.
type delivery struct {
	store    hansard.Store // nil stores nothing
	id       hansard.SessionID
	meta     hansard.Meta // for creating it
	noCreate bool

	events  []hansard.Event
	mutable map[string]bool // ids of those that may be revisions
	ids     map[string]bool // of events
	bytes   int
	added   int // events stored since the last call of job.stored
	used    int // when it last got a record
	// last is the seq of the last record that was delivered.
	last hansard.Seq
	// lastID is the id of the last event; renamed says that an event got a different id
	// from its record's.
	lastID  string
	renamed atomic.Bool
	// sent is the batch in flight while the next one is read; nil if there is none. One
	// at a time, so that they arrive in order.
	sent chan sent
}

// sent is the outcome of a batch.
type sent struct {
	receipt hansard.Receipt
	err     error
}

// add takes one record.
func (d *delivery) add(ctx context.Context, rec *Record) error {
	e := rec.Event
	e.ID, e.Kind, e.Role, e.Author = eventID(e.ID), name(e.Kind), name(e.Role), name(e.Author)
	if e.Kind == "" || e.Kind == hansard.KindTurn {
		e.Kind = KindRaw
	}
	if rec.Long == nil {
		rec.Long = unfit(e.Data)
	}
	if rec.Long != nil || d.ids[e.ID] || d.bytes+len(e.Data) > batchBytes || len(d.events) >= batchEvents || rec.Covers {
		if err := d.flush(ctx, nil); err != nil {
			return err
		}
	}
	if rec.Long != nil || rec.Covers {
		if err := d.settle(); err != nil {
			return err
		}
	}
	if rec.Long != nil {
		if err := d.attach(ctx, &e, rec.Long); err != nil {
			return err
		}
	}
	patch := d.patch(rec, e.ID)
	if patch != nil {
		if err := d.flush(ctx, nil); err != nil {
			return err
		}
	}
	if d.ids == nil {
		d.ids, d.mutable = map[string]bool{}, map[string]bool{}
	}
	d.lastID = e.ID
	d.events, d.bytes, d.ids[e.ID] = append(d.events, e), d.bytes+len(e.Data), true
	if rec.Mutable {
		d.mutable[e.ID] = true
	}
	if patch != nil {
		return d.flush(ctx, patch)
	}
	return nil
}

// unfit recognises data that no store accepts as an event's.
func unfit(data []byte) *Long {
	switch {
	case len(data) > heldBytes:
		return heldLong(data, "too large for an event")
	case !utf8.Valid(data):
		return heldLong(data, "not valid UTF-8")
	}
	return nil
}

// patch is what a record changes in its session.
func (d *delivery) patch(rec *Record, id string) *hansard.Patch {
	var p hansard.Patch
	if rec.Title != "" {
		title := cut(rec.Title, hansard.MaxTitleBytes)
		p.Title = &title
	}
	for k, v := range rec.Labels {
		if p.Labels == nil {
			p.Labels = map[string]*string{}
		}
		v := v
		p.Labels[k] = &v
	}
	if rec.Covers && d.last > 0 {
		p.State = marshal(map[string]any{"summary": map[string]any{"record": id, "from": 1, "to": d.last}})
	}
	if p.Title == nil && p.Labels == nil && p.State == nil {
		return nil
	}
	return &p
}

// flush sends what has been collected, once the previous batch has arrived. The patch
// goes with the last event.
func (d *delivery) flush(ctx context.Context, patch *hansard.Patch) error {
	if len(d.events) == 0 {
		return nil
	}
	events, mutable := d.events, d.mutable
	d.events, d.ids, d.mutable, d.bytes = nil, nil, nil, 0
	if d.store == nil {
		d.last += hansard.Seq(len(events))
		return nil
	}
	if err := d.settle(); err != nil {
		return err
	}
	// Apart: a fork may begin after any record. A batch with a patch has one event.
	b := hansard.Batch{Events: events, Patch: patch, Apart: patch == nil, Create: !d.noCreate, Meta: d.meta}
	if patch != nil {
		b.Key = "import:" + shortHash(append(marshal(patch), events[0].ID...), 32)
	}
	arrives := make(chan sent, 1)
	d.sent = arrives
	go func() {
		receipt, err := d.append(ctx, b, mutable)
		arrives <- sent{receipt, err}
	}()
	return nil
}

// settle waits for the batch in flight.
func (d *delivery) settle() error {
	if d.sent == nil {
		return nil
	}
	got := <-d.sent
	d.sent = nil
	if got.err != nil {
		return got.err
	}
	if !got.receipt.Replayed {
		d.added += int(got.receipt.Last - got.receipt.First + 1)
	}
	d.last = got.receipt.Seqs[len(got.receipt.Seqs)-1]
	return nil
}

// finish sends what is left and waits for it.
func (d *delivery) finish(ctx context.Context) error {
	// Even after an error: the batch in flight has to arrive.
	return errors.Join(d.flush(ctx, nil), d.settle())
}

func (d *delivery) append(ctx context.Context, b hansard.Batch, mutable map[string]bool) (hansard.Receipt, error) {
	for try := 1; ; try++ {
		receipt, err := d.store.Append(ctx, d.id, b)
		var reused *hansard.IDReusedError
		switch {
		case errors.As(err, &reused) && try < attempts:
			if b.Events, err = d.reconcile(ctx, b.Events, reused.IDs, mutable); err != nil {
				return receipt, err
			}
		case errors.Is(err, hansard.ErrKeyReused) && try < attempts:
			if b.Events, err = d.reconcile(ctx, b.Events, []string{b.Events[0].ID}, mutable); err != nil {
				return receipt, err
			}
		case errors.Is(err, hansard.ErrUnknown) && try < attempts && ctx.Err() == nil:
		default:
			return receipt, err
		}
	}
}

// reconcile makes events deliverable whose ids the session already has with other
// content. If the record is the same, the stored event counts: an earlier version of this
// program gave it another kind or role. Otherwise the tool changed its record, or wrote
// another one under the same id, and the event gets a new id. That is derived from the
// content, so that it is recognised next time.
func (d *delivery) reconcile(ctx context.Context, events []hansard.Event, reused []string, mutable map[string]bool) ([]hansard.Event, error) {
	events = slices.Clone(events)
	for i := range events {
		e := &events[i]
		if !slices.Contains(reused, e.ID) {
			continue
		}
		for known, err := range d.store.Read(ctx, d.id, hansard.Range{ID: e.ID}) {
			if err != nil && !errors.Is(err, hansard.ErrNoEvent) {
				return nil, err
			}
			if err == nil && bytes.Equal(known.Data, e.Data) {
				e.Kind, e.Role, e.Author, e.At, e.Inbox, e.Attachments = known.Kind, known.Role, known.Author, known.At, known.Inbox, known.Attachments
				continue
			}
			if mutable[e.ID] {
				e.Kind = KindRevision
			}
			d.renamed.Store(true)
			e.ID += "~" + shortHash(e.Data, 16)
		}
	}
	return events, nil
}

// attach stores a record as an attachment, and makes the event refer to it.
func (d *delivery) attach(ctx context.Context, e *hansard.Event, long *Long) error {
	kind, name := "application/json", "record.json"
	if long.Name != "" {
		kind, name = long.MediaType, long.Name
	} else {
		e.Data = marshal(map[string]any{"attached": map[string]any{"bytes": long.Size, "reason": long.Reason}})
	}
	if d.store == nil {
		return nil
	}
	for known, err := range d.store.Read(ctx, d.id, hansard.Range{ID: e.ID}) {
		if err == nil && len(known.Attachments) > 0 { // no need to send it again
			e.Data, e.Attachments = known.Data, known.Attachments
			return nil
		}
	}
	if _, err := d.store.Create(ctx, d.id, d.meta); err != nil && !errors.Is(err, hansard.ErrExists) {
		return err
	}
	r, err := long.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	a, err := d.store.Attach(ctx, d.id, r)
	if err != nil {
		return err
	}
	a.MediaType, a.Name = kind, name
	e.Attachments = []hansard.Attachment{a}
	return nil
}

// JSON encodes a value that can always be encoded.
func JSON(v any) json.RawMessage { return marshal(v) }

func marshal(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("importer: %T can't be written: %v", v, err))
	}
	return data
}

func shortHash(data []byte, digits int) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:digits]
}
