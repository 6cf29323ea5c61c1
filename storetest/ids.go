package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"hansard"
)

var idCases = []Case{
	{Name: "id/resent", run: idResent,
		Defends: "ten events sent again as two batches stay ten, and the receipts say where each is", Answers: "36 64"},
	{Name: "id/partly known", run: idPartlyKnown,
		Defends: "of a batch whose ids are partly known the rest is stored, in order, at consecutive seqs"},
	{Name: "id/reused", run: idReused,
		Defends: "a known id with different content refuses the batch, names all such ids, and stores nothing"},
	{Name: "id/twice in a batch", run: idTwice,
		Defends: "an id that comes twice in one batch is stored once, and refused if the contents differ"},
	{Name: "id/patch", run: idPatch,
		Defends: "a patch is skipped only if the last event is known with this very patch: it is never dropped"},
	{Name: "id/conditions", run: idConditions,
		Defends: "a batch of which nothing is new is a replay, whatever its conditions say; one with anything new is held to all of them"},
	{Name: "id/with a key", run: idWithKey,
		Defends: "the key is looked at before the ids, and a batch that stores nothing leaves its key free", Answers: "36"},
	{Name: "id/names", run: idNames,
		Defends: "an id is up to 256 bytes of UTF-8 without control characters, compared byte by byte, and belongs to its session"},
	{Name: "id/at", run: idAt,
		Defends: "the time an event happened at is kept to the microsecond, in any zone, and changes neither order nor Updated; one that can't be read again is refused", Answers: "74"},
	{Name: "id/read", run: idRead,
		Defends: "an event is read by its id, and an id that the session does not have is told apart from a session that is not there"},
	{Name: "id/lives long", run: idLivesLong,
		Defends: "an id is known for the life of the session, however much was appended since and however often it was opened"},
	{Name: "id/mirrors", run: idMirrors,
		Defends: "if many deliver the same records at once in different batches, each is stored once, in an order that keeps everybody's", Answers: "64"},
	{Name: "id/created", run: idCreated,
		Defends: "the append that creates a session says so, and its metadata counts then and only then"},
}

// named is an event with an id.
func named(id, content string) hansard.Event {
	e := text(content)
	e.ID = id
	return e
}

// records are events 0 to n with ids, as a mirror delivers them.
func records(from, to int) (list []hansard.Event) {
	for i := from; i < to; i++ {
		list = append(list, named(fmt.Sprintf("record %d", i), fmt.Sprint("content ", i)))
	}
	return list
}

func span(from, to hansard.Seq) (list []hansard.Seq) {
	for ; from <= to; from++ {
		list = append(list, from)
	}
	return list
}

func (x *env) wantReceipt(what string, got, want hansard.Receipt) {
	x.Helper()
	if want.Session = "s"; !sameReceipt(got, want) {
		x.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// event is the event at a seq, which must exist.
func (x *env) event(id hansard.SessionID, at hansard.Seq) hansard.Event {
	x.Helper()
	events := x.read(id, hansard.Range{After: at - 1, Limit: 1})
	if len(events) != 1 || events[0].Seq != at {
		x.Fatalf("session %q has no event %d", id, at)
	}
	return events[0]
}

func idResent(x *env) {
	x.create("s")
	list := records(0, 10)
	x.wantReceipt("the first time", x.append("s", hansard.Batch{Events: list}), hansard.Receipt{First: 1, Last: 10, Seqs: span(1, 10)})
	info := x.stat("s")
	for range 2 {
		x.wantReceipt("the first four", x.append("s", hansard.Batch{Events: list[:4]}), hansard.Receipt{Replayed: true, Seqs: span(1, 4)})
		x.wantReceipt("the other six", x.append("s", hansard.Batch{Events: list[4:]}), hansard.Receipt{Replayed: true, Seqs: span(5, 10)})
		x.reopen()
	}
	if diff := diffInfo(x.stat("s"), info); diff != "" {
		x.Errorf("after they came again: %s", diff)
	}
	for i := range list {
		if e := x.event("s", hansard.Seq(i+1)); e.ID != list[i].ID {
			x.Errorf("event %d has the id %q, want %q", e.Seq, e.ID, list[i].ID)
		}
	}
	// Without ids the receipt has no Seqs.
	x.wantReceipt("without ids", x.append("s", texts("a", "b")), hansard.Receipt{First: 11, Last: 12})
}

func idPartlyKnown(x *env) {
	x.create("s")
	x.append("s", hansard.Batch{Events: []hansard.Event{named("b", "B"), text("between"), named("d", "D")}})
	got := x.append("s", hansard.Batch{Events: []hansard.Event{named("a", "A"), named("b", "B"), text("plain"), named("c", "C"), named("d", "D"), named("e", "E")}})
	x.wantReceipt("partly known", got, hansard.Receipt{First: 4, Last: 7, Seqs: []hansard.Seq{4, 1, 5, 6, 3, 7}})
	x.wantTexts("s", "B", "between", "D", "A", "plain", "C", "E")
	// An event without an id is new every time, and so is its batch.
	got = x.append("s", hansard.Batch{Events: []hansard.Event{named("a", "A"), text("plain")}})
	x.wantReceipt("with one that has no id", got, hansard.Receipt{First: 8, Last: 8, Seqs: []hansard.Seq{4, 8}})
}

func idReused(x *env) {
	x.create("s")
	original := hansard.Event{ID: "k", Kind: "tool_call", Role: "assistant", Author: "ann", Data: []byte(`{"a": 1}`), At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)}
	x.append("s", hansard.Batch{Events: []hansard.Event{original, named("l", "L")}})
	for what, change := range map[string]func(e *hansard.Event){
		"other data":       func(e *hansard.Event) { e.Data = []byte(`{"a": 2}`) },
		"data spelt apart": func(e *hansard.Event) { e.Data = []byte(`{"a":1}`) },
		"another kind":     func(e *hansard.Event) { e.Kind = "" },
		"another role":     func(e *hansard.Event) { e.Role = "user" },
		"another author":   func(e *hansard.Event) { e.Author = "" },
		"the inbox":        func(e *hansard.Event) { e.Inbox = true },
		"another time":     func(e *hansard.Event) { e.At = e.At.Add(time.Microsecond) },
		"no time":          func(e *hansard.Event) { e.At = time.Time{} },
	} {
		e := original
		change(&e)
		err := x.refused(hansard.ErrIDReused, "s", hansard.Batch{Events: []hansard.Event{named("new", "N"), e}})
		x.wantReused(what, err, "k")
	}
	// All of them are named, each once, in the order of the batch, and before the conditions
	// are checked.
	e := original
	e.Role = "user"
	err := x.refused(hansard.ErrIDReused, "s", hansard.Batch{Events: []hansard.Event{named("l", "other"), named("new", "N"), e, named("l", "another")}, Expect: hansard.At(99)})
	x.wantReused("two of them", err, "l", "k")
	x.wantReceipt("the original afterwards", x.append("s", hansard.Batch{Events: []hansard.Event{original}}), hansard.Receipt{Replayed: true, Seqs: span(1, 1)})
	if last := x.stat("s").LastSeq; last != 2 {
		x.Errorf("last seq %d after refusals, want 2", last)
	}
}

func (x *env) wantReused(what string, err error, ids ...string) {
	x.Helper()
	var reused *hansard.IDReusedError
	if !errors.As(err, &reused) || reused.Session != "s" || !slices.Equal(reused.IDs, ids) {
		x.Errorf("%s: %v, want that the ids %q were reused", what, err, ids)
	}
}

func idTwice(x *env) {
	x.create("s")
	got := x.append("s", hansard.Batch{Events: []hansard.Event{named("a", "A"), text("plain"), named("a", "A"), named("b", "B"), named("a", "A")}})
	x.wantReceipt("the same twice", got, hansard.Receipt{First: 1, Last: 3, Seqs: []hansard.Seq{1, 2, 1, 3, 1}})
	x.wantTexts("s", "A", "plain", "B")
	err := x.refused(hansard.ErrIDReused, "s", hansard.Batch{Events: []hansard.Event{named("c", "C"), named("d", "D"), named("c", "other")}})
	x.wantReused("twice with different contents", err, "c")
	x.wantTexts("s", "A", "plain", "B")
}

func idPatch(x *env) {
	x.create("s")
	titled := func(title string, events ...hansard.Event) hansard.Batch {
		return hansard.Batch{Events: events, Patch: &hansard.Patch{Title: ptr(title)}}
	}
	wantTitle := func(when, title string, last hansard.Seq) {
		x.Helper()
		if info := x.stat("s"); info.Title != title || info.LastSeq != last {
			x.Errorf("%s: title %q and last seq %d, want %q and %d", when, info.Title, info.LastSeq, title, last)
		}
	}
	first := titled("one", named("a", "A"), named("b", "B"))
	first.Patch.Labels = map[string]*string{"x": ptr("1"), "y": nil}
	first.Patch.State = []byte("{\"n\": 1.50, \"m\": \"<&>\u0085\u2028\"}")
	x.append("s", first)
	wantTitle("with the events", "one", 2)
	x.append("s", hansard.Batch{Patch: &hansard.Patch{Title: ptr("two")}})
	wantTitle("changed since", "two", 3)
	x.wantReceipt("known with this patch", x.append("s", first), hansard.Receipt{Replayed: true, Seqs: span(1, 2)})
	wantTitle("a replay", "two", 3)
	// The last event is known without this patch: the patch is stored as an event of its own.
	x.wantReceipt("another patch", x.append("s", titled("three", named("a", "A"), named("b", "B"))), hansard.Receipt{First: 4, Last: 4, Seqs: span(1, 2)})
	wantTitle("another patch", "three", 4)
	if e := x.event("s", 4); e.Kind != hansard.KindMeta || e.ID != "" || e.Patch == nil {
		x.Errorf("the patch is stored as %+v", e)
	}
	x.wantReceipt("a patch on an event that had none", x.append("s", titled("four", named("a", "A"))), hansard.Receipt{First: 5, Last: 5, Seqs: span(1, 1)})
	wantTitle("a patch on an event that had none", "four", 5)
	// Known without the patch, but another event is new: the patch goes with that one.
	x.wantReceipt("with something new", x.append("s", titled("five", named("c", "C"), named("d", "D"), named("a", "A"))), hansard.Receipt{First: 6, Last: 7, Seqs: []hansard.Seq{6, 7, 1}})
	wantTitle("with something new", "five", 7)
	if e := x.event("s", 7); e.ID != "d" || e.Patch == nil {
		x.Errorf("the patch is not on the last new event: %+v", e)
	}
	// The last event is new: the patch goes with it.
	x.append("s", titled("six", named("e", "E")))
	wantTitle("on the last", "six", 8)
}

func idConditions(x *env) {
	x.create("s")
	known := hansard.Batch{Events: records(0, 3)}
	x.append("s", known)
	x.append("s", texts("moved on"))
	replay := hansard.Receipt{Replayed: true, Seqs: span(1, 3)}
	late := known
	late.Expect = hansard.At(0)
	x.wantReceipt("with an old expectation", x.append("s", late), replay)
	late.Turn = "1-0123456789abcdef"
	x.wantReceipt("with a turn that is over", x.append("s", late), replay)
	held := x.acquire(x.store, "s", hansard.Claim{Exclusive: true})
	x.wantReceipt("while somebody holds an exclusive turn", x.append("s", known), replay)
	news := hansard.Batch{Events: records(0, 4)}
	x.refused(hansard.ErrHeld, "s", news)
	news.Turn = "1-0123456789abcdef"
	x.refused(hansard.ErrFenced, "s", news)
	news.Turn = held.Grant
	news.Expect = hansard.At(3)
	x.refused(hansard.ErrConflict, "s", news)
	news.Expect = nil
	x.append("s", news)
	x.release(x.store, "s", held.Grant)
	x.wantErr("a known event in a session that is not there", second(x.store.Append(x.ctx, "t", known)), hansard.ErrNotFound)
}

func idWithKey(x *env) {
	x.create("s")
	list := records(0, 6)
	x.append("s", hansard.Batch{Events: list[:2]})
	b := hansard.Batch{Events: []hansard.Event{list[1], text("plain"), list[2], list[0], list[3]}, Key: "k"}
	want := hansard.Receipt{First: 3, Last: 5, Seqs: []hansard.Seq{2, 3, 4, 1, 5}}
	x.wantReceipt("partly known", x.append("s", b), want)
	want.Replayed = true
	x.append("s", texts("after"))
	for range 2 {
		x.wantReceipt("again, by the key", x.append("s", b), want)
		x.reopen()
	}
	other := b
	other.Events = b.Events[:3]
	x.refused(hansard.ErrKeyReused, "s", other)
	renamed := b
	renamed.Events = slices.Clone(b.Events)
	renamed.Events[1].ID = "plain"
	x.refused(hansard.ErrKeyReused, "s", renamed)
	// Nothing new: the key is not used up.
	nothing := hansard.Batch{Events: list[:2], Key: "free"}
	x.wantReceipt("nothing new", x.append("s", nothing), hansard.Receipt{Replayed: true, Seqs: span(1, 2)})
	nothing.Events = list[4:6]
	x.wantReceipt("its key for something else", x.append("s", nothing), hansard.Receipt{First: 7, Last: 8, Seqs: span(7, 8)})
	// The first line stored has the key, whichever event it is.
	tail := hansard.Batch{Events: append(slices.Clone(list), named("last", "L")), Key: "tail"}
	x.append("s", tail)
	x.reopen()
	if r := x.append("s", tail); !r.Replayed || r.First != 9 || r.Last != 9 {
		x.Errorf("a retry of a batch whose last event alone was new: %+v", r)
	}
	if last := x.stat("s").LastSeq; last != 9 {
		x.Errorf("last seq %d, want 9", last)
	}
}

func idNames(x *env) {
	good := []string{"a", "A", " ", "ä", "k\u0301", "\u1e31", "\u2028", "日本語", `"quoted\"`, "/../..", "stream", strings.Repeat("i", hansard.MaxEventID), strings.Repeat("i", hansard.MaxEventID-1), strings.Repeat("ä", hansard.MaxEventID/2)}
	for _, id := range []hansard.SessionID{"s", "t"} {
		x.create(id)
		for i, name := range good {
			if r := x.append(id, hansard.Batch{Events: []hansard.Event{named(name, fmt.Sprint(id, i))}}); r.First != hansard.Seq(i+1) {
				x.Errorf("session %s, id %q: %+v", id, name, r)
			}
		}
	}
	x.reopen()
	for _, id := range []hansard.SessionID{"s", "t"} {
		for i, name := range good {
			if r := x.append(id, hansard.Batch{Events: []hansard.Event{named(name, fmt.Sprint(id, i))}}); !r.Replayed || !slices.Equal(r.Seqs, span(hansard.Seq(i+1), hansard.Seq(i+1))) {
				x.Errorf("session %s, id %q again: %+v", id, name, r)
			}
			events := x.read(id, hansard.Range{ID: name})
			if len(events) != 1 || events[0].Seq != hansard.Seq(i+1) || events[0].ID != name {
				x.Errorf("session %s, reading id %q: %+v", id, name, events)
			}
		}
	}
	for _, name := range []string{"\n", "a\x00", "\x7f", "\u0085", "\xff"} {
		x.refused(hansard.ErrInvalid, "s", hansard.Batch{Events: []hansard.Event{named(name, "x")}})
	}
	x.refused(hansard.ErrTooLarge, "s", hansard.Batch{Events: []hansard.Event{named(strings.Repeat("i", hansard.MaxEventID+1), "x")}})
}

func idAt(x *env) {
	x.create("s")
	at := time.Date(1999, 12, 31, 23, 59, 59, 123456789, time.FixedZone("somewhere", 5400))
	e := named("a", "A")
	e.At = at
	before := x.append("s", hansard.Batch{Events: []hansard.Event{e}})
	e.At = at.UTC()
	if r := x.append("s", hansard.Batch{Events: []hansard.Event{e}}); !r.Replayed {
		x.Errorf("the same moment in another zone: %+v, first %+v", r, before)
	}
	got := x.event("s", 1)
	if want := at.UTC().Truncate(time.Microsecond); !got.At.Equal(want) || got.At.Location() != time.UTC {
		x.Errorf("it happened at %v, want %v", got.At, want)
	}
	if info := x.stat("s"); !info.Updated.Equal(got.Time) || got.Time.Year() < 2000 {
		x.Errorf("updated at %v, event of %v", info.Updated, got.Time)
	}
	for _, year := range []int{0, -1, 10000} {
		e.ID, e.At = "other", time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		x.refused(hansard.ErrInvalid, "s", hansard.Batch{Events: []hansard.Event{e}})
	}
	// These have the year of their own zone, and are stored in UTC.
	for _, unwritable := range unwritableTimes() {
		e.At = unwritable
		x.refused(hansard.ErrInvalid, "s", hansard.Batch{Events: []hansard.Event{e}})
	}
	for _, year := range []int{1, 9999} {
		e.ID, e.At = fmt.Sprint(year), time.Date(year, 12, 31, 23, 59, 59, 999999000, time.UTC)
		x.append("s", hansard.Batch{Events: []hansard.Event{e}})
		if got := x.read("s", hansard.Range{ID: e.ID}); len(got) != 1 || !got[0].At.Equal(e.At) {
			x.Errorf("in the year %d: %+v", year, got)
		}
	}
}

// unwritableTimes are in the years 10000 and 0 of UTC, but not in those of their own zones.
func unwritableTimes() []time.Time {
	return []time.Time{
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("west", -3600)),
		time.Date(1, 1, 1, 0, 0, 0, 0, time.FixedZone("east", 3600)),
	}
}

func idRead(x *env) {
	x.create("s")
	x.append("s", hansard.Batch{Events: records(0, 5), Patch: &hansard.Patch{Title: ptr("t")}})
	got := x.read("s", hansard.Range{ID: "record 4"})
	if len(got) != 1 || diffEvent(got[0], x.event("s", 5)) != "" {
		x.Errorf("by its id: %+v", got)
	}
	read := func(id hansard.SessionID, r hansard.Range) error {
		_, err := readRange(x.ctx, x.store, id, r)
		return err
	}
	err := read("s", hansard.Range{ID: "record 5"})
	x.wantErr("an id that is not there", err, hansard.ErrNoEvent)
	if errors.Is(err, hansard.ErrNotFound) {
		x.Errorf("an id that is not there is told as a session that is not there: %v", err)
	}
	x.wantErr("in a session that is not there", read("t", hansard.Range{ID: "record 0"}), hansard.ErrNotFound)
	for i := range reflect.TypeFor[hansard.Range]().NumField() {
		var r hansard.Range
		Full(&r, 1)
		only := hansard.Range{ID: "record 0"}
		reflect.ValueOf(&only).Elem().Field(i).Set(reflect.ValueOf(r).Field(i))
		if name := reflect.TypeFor[hansard.Range]().Field(i).Name; name != "ID" {
			x.wantErr("an id with "+name, read("s", only), hansard.ErrInvalid)
		}
	}
	x.delete("s")
	x.wantErr("in a deleted session", read("s", hansard.Range{ID: "record 0"}), hansard.ErrDeleted)
}

func idLivesLong(x *env) {
	x.create("s")
	const n = 3000 // more than engines keep in memory
	for from := 0; from < n; from += 500 {
		x.append("s", hansard.Batch{Events: records(from, from+500)})
	}
	filler := texts()
	for range 2000 {
		filler.Events = append(filler.Events, text("filler"))
	}
	x.append("s", filler)
	for range 2 {
		x.reopen()
		for _, from := range []int{0, 7, n / 2, n - 10} {
			x.wantReceipt("a few of them", x.append("s", hansard.Batch{Events: records(from, from+10)}),
				hansard.Receipt{Replayed: true, Seqs: span(hansard.Seq(from+1), hansard.Seq(from+10))})
		}
		x.wantReceipt("all of them", x.append("s", hansard.Batch{Events: records(0, n)}), hansard.Receipt{Replayed: true, Seqs: span(1, n)})
		x.refused(hansard.ErrIDReused, "s", hansard.Batch{Events: []hansard.Event{named("record 1", "other")}})
	}
	if info := x.stat("s"); info.LastSeq != n+2000 {
		x.Errorf("last seq %d, want %d", info.LastSeq, n+2000)
	}
}

// mirror delivers all records in its own batches, some of them repeatedly.
type mirror struct {
	Session hansard.SessionID
	Records int
	Seed    uint64
}

func (m *mirror) run(ctx context.Context, s hansard.Store, tell func(report)) error {
	rng := rand.New(rand.NewPCG(m.Seed, 0))
	for from := 0; ; {
		to := min(m.Records, from+1+rng.IntN(40))
		r, err := s.Append(ctx, m.Session, hansard.Batch{Events: records(from, to)})
		if err != nil {
			return err
		}
		for i, seq := range r.Seqs {
			if seq != hansard.Seq(from+i+1) {
				return fmt.Errorf("record %d is said to be at seq %d", from+i, seq)
			}
		}
		if tell(report{Delivered: to}); to == m.Records {
			return nil
		}
		from = max(from, to-rng.IntN(10))
	}
}

// checkMirrored reports an error unless a log has n records, each once, in order.
func checkMirrored(log []hansard.Event, n int) error {
	if len(log) != n {
		return fmt.Errorf("%d events, want %d", len(log), n)
	}
	for i, e := range log {
		if want := records(i, i+1)[0]; e.ID != want.ID || string(e.Data) != string(want.Data) {
			return fmt.Errorf("event %d is %q, want %q", e.Seq, e.ID, want.ID)
		}
	}
	return nil
}

func idMirrors(x *env) {
	handles := x.handles(4)
	x.create("s")
	seed := x.rng.Uint64()
	x.each(8, "mirror", func(i int) error {
		m := mirror{Session: "s", Records: 1000, Seed: seed + uint64(i)}
		return m.run(x.ctx, handles[i%len(handles)], func(report) {})
	})
	if err := checkMirrored(x.all("s"), 1000); err != nil {
		x.Error(err)
	}
}

func processesMirrors(x *env) {
	x.create("s")
	const n = 1000
	var children []*child
	var said []<-chan struct{}
	for i := range 8 {
		c := x.spawn(fmt.Sprint("mirror ", i), order{Mirror: &mirror{Session: "s", Records: n, Seed: x.rng.Uint64()}})
		children, said = append(children, c), append(said, c.said(3+2*i))
	}
	x.begin(children...)
	delivered := 0
	for i, c := range children {
		if i < 3 { // in the middle of its work, while the others continue
			x.within(c.what+" has delivered some", said[i])
			c.kill()
		} else {
			c.finish()
		}
		for _, r := range c.reports {
			delivered = max(delivered, r.Delivered)
		}
	}
	if err := checkMirrored(x.all("s"), n); err != nil || delivered != n {
		x.Errorf("%d records are said to be delivered: %v", delivered, err)
	}
}

func idCreated(x *env) {
	meta := hansard.Meta{Title: "made", Labels: map[string]string{"a": "1"}, State: []byte(`{"n":1}`)}
	b := hansard.Batch{Events: []hansard.Event{named("a", "A")}, Create: true, Meta: meta, Patch: &hansard.Patch{State: []byte(`{"m":2}`)}}
	x.wantReceipt("the first", x.append("s", b), hansard.Receipt{First: 1, Last: 1, Seqs: span(1, 1), Created: true})
	check := func(when string) {
		x.Helper()
		if info := x.stat("s"); info.Title != "made" || info.Labels["a"] != "1" || !sameJSON(info.State, []byte(`{"n":1,"m":2}`)) {
			x.Errorf("%s: %+v", when, info)
		}
	}
	check("as created")
	x.wantReceipt("the same again", x.append("s", b), hansard.Receipt{Replayed: true, Seqs: span(1, 1)})
	again := texts("later")
	again.Create, again.Meta = true, hansard.Meta{Title: "other", Labels: map[string]string{"b": "2"}}
	x.wantReceipt("to a session that is there", x.append("s", again), hansard.Receipt{First: 2, Last: 2})
	check("after an append with other metadata")
	x.reopen()
	check("after opening again")
	bad := texts("x")
	bad.Meta.Labels = map[string]string{"": ""}
	x.refused(hansard.ErrInvalid, "s", bad)
	keyed := keyed("k", "one")
	keyed.Create = true
	if r, err := x.store.Append(x.ctx, "k", keyed); err != nil || !r.Created {
		x.Errorf("with a key: %+v, %v", r, err)
	}
	if r, err := x.store.Append(x.ctx, "k", keyed); err != nil || r.Created || !r.Replayed {
		x.Errorf("with a key, again: %+v, %v", r, err)
	}
}

// second is the error of two results.
func second[T any](_ T, err error) error { return err }
