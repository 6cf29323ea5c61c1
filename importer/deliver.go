package importer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"hansard"
)

// How much is delivered at once, at most: an event may be larger.
const (
	batchEvents = 1000
	batchBytes  = 4 << 20
)

// attempts is how often an append is tried whose outcome is unknown. The ids make that
// harmless.
const attempts = 4

// delivery brings the records of one session to a store, in order.
//
// A record that changes the title or the labels ends its batch, because a patch is told
// by the last event of the batch it came with: so a patch is known again however the
// records are divided into batches.
type delivery struct {
	store    hansard.Store // nil stores nothing
	id       hansard.SessionID
	meta     hansard.Meta // for creating it
	noCreate bool

	events  []hansard.Event
	mutable map[string]bool // ids of those that may be revisions
	ids     map[string]bool // of events
	bytes   int
	added   int // events stored, since somebody asked
	// last is the seq of the last record that was delivered.
	last hansard.Seq
	// sent is the batch that is on its way while the next one is read; nil if none
	// is. One at a time: they arrive in order.
	sent chan sent
}

// sent is what became of a batch.
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
	if d.ids == nil {
		d.ids, d.mutable = map[string]bool{}, map[string]bool{}
	}
	d.events, d.bytes, d.ids[e.ID] = append(d.events, e), d.bytes+len(e.Data), true
	if rec.Mutable {
		d.mutable[e.ID] = true
	}
	if patch != nil {
		return d.flush(ctx, patch)
	}
	return nil
}

// unfit tells data that no store takes as an event's.
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

// flush sends what has been collected, once the batch before has arrived. The patch comes
// with the last event.
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
	b := hansard.Batch{Events: events, Patch: patch, Create: !d.noCreate, Meta: d.meta}
	arrives := make(chan sent, 1)
	d.sent = arrives
	go func() {
		receipt, err := d.append(ctx, b, mutable)
		arrives <- sent{receipt, err}
	}()
	return nil
}

// settle waits for the batch that is on its way.
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
	// Also after an error: what is on its way has to arrive.
	return errors.Join(d.flush(ctx, nil), d.settle())
}

func (d *delivery) append(ctx context.Context, b hansard.Batch, mutable map[string]bool) (hansard.Receipt, error) {
	for try := 1; ; try++ {
		receipt, err := d.store.Append(ctx, d.id, b)
		var reused *hansard.IDReusedError
		switch {
		case errors.As(err, &reused) && try < attempts:
			b.Events = rename(b.Events, reused.IDs, mutable)
		case errors.Is(err, hansard.ErrUnknown) && try < attempts && ctx.Err() == nil:
		default:
			return receipt, err
		}
	}
}

// rename gives events whose ids the session has with other content ids of their own: the
// tool changed its record, or wrote another one under the same id. The new id is made of
// the content, so that it is known again.
func rename(events []hansard.Event, reused []string, mutable map[string]bool) []hansard.Event {
	events = slices.Clone(events)
	for i := range events {
		e := &events[i]
		if !slices.Contains(reused, e.ID) {
			continue
		}
		if mutable[e.ID] {
			e.Kind = KindRevision
		}
		e.ID += "~" + shortHash(fmt.Appendf(nil, "%q %q %q %d %s", e.Kind, e.Role, e.Author, e.At.UnixMicro(), e.Data), 16)
	}
	return events
}

// attach keeps a record beside the log, and makes the event say so.
func (d *delivery) attach(ctx context.Context, e *hansard.Event, long *Long) error {
	e.Data = marshal(map[string]any{"attached": map[string]any{"bytes": long.Size, "reason": long.Reason}})
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
	a.MediaType, a.Name = "application/json", "record.json"
	e.Attachments = []hansard.Attachment{a}
	return nil
}

// forkPoint is where a fork's own records begin.
type forkPoint struct {
	parent hansard.SessionID
	at     hansard.Seq
	// record names the last record that is the parent's.
	record string
	own    bool // that one has passed
	// title and labels are what the records up to there said about the session.
	title  string
	labels map[string]string
}

// copied reports whether a record is the parent's, repeated.
func (f *forkPoint) copied(rec *Record) bool {
	if f == nil || f.own || rec.Same == "" {
		return false
	}
	f.own = rec.Same == f.record
	return true
}

// describe writes where the fork is from into what the session is created with.
func (f *forkPoint) describe(m *hansard.Meta) {
	m.Title = f.title
	m.Labels = maps.Clone(m.Labels)
	maps.Copy(m.Labels, f.labels)
	m.Labels[LabelParent], m.Labels[LabelForkedAt] = string(f.parent), fmt.Sprint(f.at)
	m.State = marshal(map[string]any{"import": forkState{Fork: &forkRecord{f.parent, f.at, f.record}}})
}

// forkState is the member "import" of a session's state.
type forkState struct {
	Fork *forkRecord `json:"fork"`
}

type forkRecord struct {
	ID     hansard.SessionID `json:"id"`
	At     hansard.Seq       `json:"at"`
	Record string            `json:"record"`
}

// findFork finds where the source's own records begin; nil if all are its own. Once a
// session has been made, what it says about itself counts: more files may be known now,
// or fewer.
func (j *job) findFork(ctx context.Context, in *Input) (*forkPoint, error) {
	if j.Store != nil {
		info, err := j.Store.Stat(ctx, j.report.Session)
		switch {
		case err == nil:
			var state struct {
				Import forkState `json:"import"`
			}
			_ = json.Unmarshal(info.State, &state) // what is no such state has no fork in it
			if f := state.Import.Fork; f != nil {
				return &forkPoint{parent: f.ID, at: f.At, record: f.Record}, nil
			}
			return nil, nil
		case !errors.Is(err, hansard.ErrNotFound):
			return nil, err
		}
	}
	if in.parent == nil {
		return nil, nil
	}
	history, err := readHistory(ctx, in.parent)
	if err != nil {
		return nil, err
	}
	f, last := &forkPoint{labels: map[string]string{}}, -1
	ended := errors.New("ended")
	quiet := &Input{Source: in.Source, damage: func(Damage) {}}
	err = in.Format.Read(ctx, quiet, func(rec Record) error {
		if rec.Same == "" || rec.Link {
			return nil
		}
		at, ok := history[key(rec.Same)]
		if !ok {
			return ended
		}
		f.record, last = rec.Same, max(last, at)
		f.title = first(rec.Title, f.title)
		maps.Copy(f.labels, rec.Labels)
		return nil
	})
	if err != nil && !errors.Is(err, ended) {
		return nil, err
	}
	if f.record == "" {
		return nil, nil
	}
	f.parent, f.at, err = j.locate(ctx, in.parent, last)
	return f, err
}

// history is the records of a session that a fork may repeat, each with its place.
type history map[[16]byte]int

func key(s string) [16]byte {
	sum := sha256.Sum256([]byte(s))
	return [16]byte(sum[:16])
}

func readHistory(ctx context.Context, s *Source) (history, error) {
	h := history{}
	n := 0
	err := s.Format.Read(ctx, &Input{Source: s, damage: func(Damage) {}}, func(rec Record) error {
		if rec.Same != "" && !rec.Link {
			if _, again := h[key(rec.Same)]; !again {
				h[key(rec.Same)] = n
			}
		}
		n++
		return nil
	})
	return h, err
}

// locate is where the n-th record of a source is in the store: in its session, or in one
// that this was forked from.
func (j *job) locate(ctx context.Context, s *Source, n int) (hansard.SessionID, hansard.Seq, error) {
	id, i := "", 0
	found := errors.New("found")
	err := s.Format.Read(ctx, &Input{Source: s, damage: func(Damage) {}}, func(rec Record) error {
		if i == n {
			id = eventID(rec.Event.ID)
			return found
		}
		i++
		return nil
	})
	if err != nil && !errors.Is(err, found) {
		return "", 0, err
	}
	for p := s; p != nil && j.Store != nil; p = p.parent {
		session := SessionID(p.Format, p.Session)
		for e, err := range j.Store.Read(ctx, session, hansard.Range{ID: id}) {
			if err == nil {
				return session, e.Seq, nil
			}
			if !errors.Is(err, hansard.ErrNoEvent) && !errors.Is(err, hansard.ErrNotFound) {
				return "", 0, fmt.Errorf("parent %s: %w", session, err)
			}
		}
	}
	if j.Store == nil {
		return SessionID(s.Format, s.Session), 0, nil
	}
	return "", 0, fmt.Errorf("%w: it repeats records of %s, which was not imported", errSource, SessionID(s.Format, s.Session))
}

// JSON is JSON of what can always be written.
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
