package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
)

// RunCopy checks that an engine exports and imports as [hansard.Copy] requires. The other
// store, of any engine, is known to do so, and is empty.
func RunCopy(t *testing.T, e Engine, other func(t testing.TB) hansard.Store) {
	t.Run("out", func(t *testing.T) { copyBetween(t, e.Open(t), other(t)) })
	t.Run("in", func(t *testing.T) { copyBetween(t, other(t), e.Open(t)) })
	t.Run("redacted out", func(t *testing.T) { copyRedacted(t, e.Open(t), other(t)) })
	t.Run("redacted in", func(t *testing.T) { copyRedacted(t, other(t), e.Open(t)) })
	t.Run("refused", func(t *testing.T) { copyRefused(t, e.Open(t)) })
}

// FillForCopy fills a store with sessions of all kinds; [CheckCopy] checks a copy of
// it.
func FillForCopy(t testing.TB, s hansard.Store) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Create(ctx, "rich", richMeta)
	must(err)
	_, err = s.Create(ctx, "empty", hansard.Meta{Title: "nothing yet", State: []byte(`{ "spaced" : 1.50 }`)})
	must(err)
	_, err = s.Create(ctx, "gone", hansard.Meta{})
	must(err)
	for i := range 30 {
		b := texts(fmt.Sprint("a ", i), "b\u2028\n")
		if i%5 == 0 {
			b.Events[1].ID = fmt.Sprint("event ", i)
		}
		if i%3 == 0 {
			b.Key = fmt.Sprint("key ", i)
		}
		if i%4 == 0 {
			b.Patch = &hansard.Patch{Title: ptr(fmt.Sprint("title ", i)), Labels: map[string]*string{"n": ptr(fmt.Sprint(i)), "odd": nil}, State: fmt.Appendf(nil, `{"n":%d}`, i)}
		}
		b.Create = true
		if i%2 == 0 {
			b.By = "ann"
		}
		_, err := s.Append(ctx, "rich", b)
		must(err)
		_, err = s.Append(ctx, "Made-By:append", hansard.Batch{Events: b.Events, Key: b.Key, Create: true})
		must(err)
		if i < 3 {
			_, err = s.Append(ctx, "gone", b)
			must(err)
		}
	}
	must(s.Delete(ctx, "gone", ""))
	large := hansard.Batch{Key: "large", Create: true}
	for i := range 2500 {
		large.Events = append(large.Events, text(fmt.Sprint("large ", i)))
	}
	for range 2 {
		_, err = s.Append(ctx, "large", large)
		must(err)
		large.Key = ""
	}
	// An event with every field set, including the turn's.
	_, err = s.Create(ctx, "full", hansard.Meta{})
	must(err)
	held, err := s.Acquire(ctx, "full", hansard.Claim{})
	must(err)
	var e hansard.Event
	Full(&e, 1)
	AttachFull(t, s, "full", 1)
	_, err = s.Append(ctx, "full", hansard.Batch{Events: []hansard.Event{Given(e)}, Patch: PatchWith(*e.Patch, "State"), Turn: held.Grant, Key: "full"})
	must(err)
	b := hansard.Batch{Events: []hansard.Event{named("with operations", "A")}, Patch: PatchWith(*e.Patch, "StateOps"), Turn: held.Grant, Key: "operations"}
	b.Patch.StateOps = append(b.Patch.StateOps, add("/n", "1.50"), test("/n", "1.5"), replace("/n", "[\"<\u0085\u2028\"]"), remove("/n/0"))
	_, err = s.Append(ctx, "full", b)
	must(err)
	must(s.Release(ctx, "full", held.Grant))
	// A turn that was released, one that was stolen, one that is held.
	first, err := s.Acquire(ctx, "rich", hansard.Claim{Label: "first"})
	must(err)
	_, err = s.Append(ctx, "rich", hansard.Batch{Events: texts("under the first").Events, Turn: first.Grant})
	must(err)
	must(s.Release(ctx, "rich", first.Grant))
	_, err = s.Acquire(ctx, "rich", hansard.Claim{Label: "second"})
	must(err)
	third, err := s.Acquire(ctx, "rich", hansard.Claim{Label: "third", Steal: "it hangs", Exclusive: true, TTL: time.Hour})
	must(err)
	_, err = s.Append(ctx, "rich", hansard.Batch{Events: texts("under the third").Events, Turn: third.Grant, Key: "third"})
	must(err)
	fillForks(t, s)
}

// fillForks adds forks of the existing sessions: with a held turn, with metadata, of a fork.
func fillForks(t testing.TB, s hansard.Store) {
	t.Helper()
	for _, f := range []struct {
		of   hansard.SessionID
		fork hansard.Fork
	}{
		{"rich", hansard.Fork{As: "rich.fork", Meta: hansard.Meta{Title: "forked", Labels: map[string]string{"n": "fork"}, State: []byte(`{"mine":1.50}`)}, By: "bob"}},
		{"rich", hansard.Fork{As: "rich.early", At: 20}},
		{"rich.early", hansard.Fork{As: "rich.again", At: 20}},
		{"rich.fork", hansard.Fork{As: "rich.second"}},
		{"full", hansard.Fork{As: "full.fork", At: 2}},
		{"empty", hansard.Fork{As: "empty.fork"}},
	} {
		if _, err := s.Fork(t.Context(), f.of, f.fork); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(t.Context(), f.fork.As, texts("of its own")); err != nil {
			t.Fatal(err)
		}
	}
}

func copyBetween(t *testing.T, from, to hansard.Store) {
	src, ok := from.(hansard.Exporter)
	if !ok {
		t.Fatalf("%T exports nothing", from)
	}
	dst, ok := to.(hansard.Importer)
	if !ok {
		t.Fatalf("%T imports nothing", to)
	}
	defer func() {
		if err := errors.Join(src.Close(), dst.Close()); err != nil {
			t.Error(err)
		}
	}()
	FillForCopy(t, src)
	// Interrupted in the middle of each session, and started again.
	interrupted := &lame{Importer: dst, parts: 1}
	for range 20 {
		if whole := copyAll(t, src, interrupted); whole {
			break
		}
		interrupted.parts = 1
	}
	if !copyAll(t, src, dst) {
		t.Fatal("the copy is not whole")
	}
	for c, err := range hansard.Copy(t.Context(), src, dst) {
		if err != nil || c.Err != nil || c.Added != 0 {
			t.Errorf("once more: %+v, %v", c, err)
		}
	}
	CheckCopy(t, src, dst)
}

// lame is a store that fails after a number of parts.
type lame struct {
	hansard.Importer
	parts int
}

var errLame = errors.New("interrupted")

func (l *lame) Import(ctx context.Context, p hansard.Part) error {
	if l.parts--; l.parts < 0 {
		return errLame
	}
	return l.Importer.Import(ctx, p)
}

func copyAll(t *testing.T, src hansard.Exporter, dst hansard.Importer) (whole bool) {
	t.Helper()
	whole = true
	for c, err := range hansard.Copy(t.Context(), src, dst) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Err != nil && !errors.Is(c.Err, errLame) {
			t.Fatalf("session %s: %v", c.Session, c.Err)
		}
		whole = whole && c.Err == nil
	}
	return whole
}

// CheckCopy compares a store that [FillForCopy] filled with its copy, and then uses
// the copy as a store.
func CheckCopy(t *testing.T, src hansard.Exporter, dst hansard.Importer) {
	t.Helper()
	same(t, src, dst)
	liveOn(t, dst)
}

// same compares two stores.
func same(t *testing.T, src, dst hansard.Exporter) {
	t.Helper()
	ctx := t.Context()
	want, err := snapshot(ctx, src)
	if err != nil {
		t.Fatal(err)
	}
	got, err := snapshot(ctx, dst)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Errorf("%d sessions, want %d", len(got), len(want))
	}
	for id := range want {
		if diff := diffInfo(got[id].info, want[id].info); diff != "" {
			t.Errorf("session %s: %s", id, diff)
		}
		if diff := diffEvents(got[id].events, want[id].events); diff != "" {
			t.Errorf("session %s: %s", id, diff)
		}
		sameSequence(t, "keys of "+string(id), src.Keys(ctx, id, 0), dst.Keys(ctx, id, 0))
	}
	if _, err := dst.Stat(ctx, "gone"); !errors.Is(err, hansard.ErrDeleted) {
		t.Errorf("the deleted session: %v", err)
	}
	// Times and metadata are compared as text: their Go representation does not count.
	sameSequence(t, "how sessions began", asText(src.Origins(ctx, "")), asText(dst.Origins(ctx, "")))
}

func asText(origins iter.Seq2[hansard.Origin, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for o, err := range origins {
			text := fmt.Sprintf("%s at %s, deleted %v", o.ID, o.Created.Format(time.RFC3339Nano), o.Deleted)
			if !o.Deleted { // nothing more is compared for deleted ones
				text += fmt.Sprintf(", %q %v %s", o.Meta.Title, o.Meta.Labels, canonical(o.Meta.State))
			}
			if !yield(text, err) {
				return
			}
		}
	}
}

// sameSequence compares what two iterations yield.
func sameSequence[T comparable](t *testing.T, what string, want, got iter.Seq2[T, error]) {
	t.Helper()
	next, stop := iter.Pull2(got)
	defer stop()
	for w, err := range want {
		g, gotErr, _ := next()
		if err != nil || gotErr != nil || g != w {
			t.Errorf("%s: %v, %v; want %v, %v", what, g, gotErr, w, err)
			return
		}
	}
	if g, _, more := next(); more {
		t.Errorf("%s: and %v besides", what, g)
	}
}

// liveOn uses a copy as a store: keys, turns and seqs continue where they were.
func liveOn(t *testing.T, s hansard.Importer) {
	t.Helper()
	ctx := t.Context()
	if r, err := s.Append(ctx, "Made-By:append", keyed("key 3", "a 3", "b\u2028\n")); err != nil || !r.Replayed || r.First != 7 {
		t.Errorf("a key of the source: %+v, %v", r, err)
	}
	if _, err := s.Append(ctx, "Made-By:append", keyed("key 3", "other")); !errors.Is(err, hansard.ErrKeyReused) {
		t.Errorf("a key of the source with other content: %v", err)
	}
	if r, err := s.Append(ctx, "Made-By:append", texts("and on")); err != nil || r.First != 61 {
		t.Errorf("the next append: %+v, %v", r, err)
	}
	info, err := s.Stat(ctx, "rich")
	if err != nil || info.Turn == nil {
		t.Fatalf("the turn of the source: %+v, %v", info.Turn, err)
	}
	if _, err := s.Append(ctx, "rich", hansard.Batch{Events: texts("under it").Events, Turn: info.Turn.Grant}); err != nil {
		t.Errorf("an append under the grant of the source: %v", err)
	}
	// Its holder is not in this store: an engine that knows this need not wait for it.
	if _, err := s.Append(ctx, "rich", texts("kept out")); err != nil && !errors.Is(err, hansard.ErrHeld) {
		t.Errorf("an append against an exclusive turn of the source: %v", err)
	}
	next, err := s.Acquire(ctx, "rich", hansard.Claim{Steal: "the copy is mine"})
	if err != nil || next.Grant.Number() != info.Turn.Grant.Number()+1 {
		t.Errorf("the next grant: %+v, %v", next, err)
	}
	wantSound(ctx, t, s)
}

func copyRefused(t *testing.T, s hansard.Store) {
	dst := s.(hansard.Importer)
	defer dst.Close()
	ctx := t.Context()
	made := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	event := func(seq hansard.Seq) hansard.Event {
		e := text("x")
		e.Kind, e.Seq, e.Time = hansard.KindMessage, seq, made.Add(time.Duration(seq)*time.Second)
		return e
	}
	part := func(id hansard.SessionID, events ...hansard.Event) hansard.Part {
		return hansard.Part{Origin: hansard.Origin{ID: id, Created: made}, Events: events}
	}
	check := func(what string, p hansard.Part, want error) {
		t.Helper()
		if err := dst.Import(ctx, p); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	check("a part", part("s", event(1), event(2)), nil)
	check("the same part again", part("s", event(1), event(2)), hansard.ErrConflict)
	check("a gap", part("s", event(4)), hansard.ErrConflict)
	check("a gap inside", part("s", event(3), event(5)), hansard.ErrInvalid)
	check("not at the beginning", part("new", event(2)), hansard.ErrConflict)
	check("no id", part(""), hansard.ErrInvalid)
	check("no time of creation", hansard.Part{Origin: hansard.Origin{ID: "new"}}, hansard.ErrInvalid)
	other := part("s", event(3))
	other.Created = made.Add(time.Hour)
	check("another session of the id", other, hansard.ErrExists)
	stale := event(3)
	stale.Turn = "1-0123456789abcdef"
	check("a write under a grant that was never given", part("s", stale), hansard.ErrInvalid)
	named := func(seq hansard.Seq, id string) hansard.Event {
		e := event(seq)
		e.ID = id
		return e
	}
	check("an id twice", part("s", named(3, "a"), named(4, "a")), hansard.ErrInvalid)
	check("an id", part("ids", named(1, "a")), nil)
	check("an id that the session has", part("ids", event(2), named(3, "a")), hansard.ErrInvalid)
	naming := func(seq hansard.Seq, a hansard.Attachment) hansard.Event {
		e := event(seq)
		e.Attachments = []hansard.Attachment{a}
		return e
	}
	attached, err := dst.Attach(ctx, "s", strings.NewReader("attached"))
	if err != nil {
		t.Fatal(err)
	}
	check("an attachment of another session", part("ids", naming(2, attached)), hansard.ErrNoAttachment)
	check("an attachment of no session", part("new", naming(1, attached)), hansard.ErrNoAttachment)
	attached.Size++
	check("an attachment of another size", part("s", naming(3, attached)), hansard.ErrInvalid)
	fine := event(3)
	fine.At = made.Add(time.Nanosecond)
	check("a time finer than microseconds", part("s", fine), hansard.ErrInvalid)
	for _, unwritable := range unwritableTimes() {
		odd := event(3)
		odd.Time = unwritable
		check("an event in a year that can't be written", part("s", odd), hansard.ErrInvalid)
		odd = event(3)
		odd.At = unwritable
		check("something that happened in such a year", part("s", odd), hansard.ErrInvalid)
		old := part("new", event(1))
		old.Created = unwritable
		check("a session created in such a year", old, hansard.ErrInvalid)
	}
	badKey := part("s", event(3))
	badKey.Keys = []hansard.KeyUse{{Key: "k", Hash: "h", First: 3, Last: 4}}
	check("a key past the end", badKey, hansard.ErrInvalid)
	for what, hash := range map[string]string{"made up": "h", "none": "", "of one event of two": engine.ContentHash([]hansard.Event{event(3)})} {
		lying := part("s", event(3), event(4))
		lying.Keys = []hansard.KeyUse{{Key: "k", Hash: hash, First: 3, Last: 4}}
		check("a hash that is "+what, lying, hansard.ErrInvalid)
	}
	empty := event(3)
	empty.TakeAway()
	kept := event(3)
	kept.Redacted = true
	check("a redacted event that has content", part("s", kept), hansard.ErrInvalid)
	for what, seqs := range map[string][]hansard.Seq{"of itself": {4}, "of what is to come": {5}, "of seq 0": {0}, "out of order": {2, 1}} {
		record := event(4)
		record.Kind, record.Redacts = hansard.KindRedaction, seqs
		check("a redaction "+what, part("s", event(3), record), hansard.ErrInvalid)
	}
	odd := event(3)
	odd.Redacts = []hansard.Seq{1}
	check("a redaction of another kind", part("s", odd), hansard.ErrInvalid)
	hashed := part("s", empty)
	hashed.Keys = []hansard.KeyUse{{Key: "k", Hash: engine.ContentHash([]hansard.Event{event(3)}), First: 3, Last: 3}}
	check("the hash of content that is gone", hashed, hansard.ErrInvalid)
	wrong := event(3)
	wrong.Patch = &hansard.Patch{StateOps: ops{stateOp("move", "/a", `1`)}}
	check("an operation that there is not", part("s", wrong), hansard.ErrInvalid)
	// Stored events are not checked again: the patch that these build on may be lost in the
	// source.
	behind := event(1)
	behind.Patch = &hansard.Patch{StateOps: ops{test("/n", `7`), remove("/n"), add("", `{}`), add("/a", `1.50`), add("/list/-", `1`)}}
	check("operations behind a patch that was lost", part("behind", behind), nil)
	if info, err := dst.Stat(ctx, "behind"); err != nil || string(info.State) != `{"a":1.50}` {
		t.Errorf("operations behind a patch that was lost lead to %s, %v", info.State, err)
	}
	wantSound(ctx, t, dst)
	bad := event(3)
	bad.Data = []byte("{")
	check("data that is no JSON", part("s", bad), hansard.ErrInvalid)
	unknown := event(3)
	unknown.Time = time.Time{}
	check("no time", part("s", unknown), hansard.ErrInvalid)
	if _, err := dst.Stat(ctx, "new"); !errors.Is(err, hansard.ErrNotFound) {
		t.Errorf("a refused part made the session: %v", err)
	}
	if log := ReadAll(t, dst, "s"); len(log) != 2 || !log[1].Time.Equal(made.Add(2*time.Second)) {
		t.Errorf("the log is %s", show(log))
	}
	gone := part("s")
	gone.Deleted = true
	check("a tombstone", gone, nil)
	check("behind a tombstone", part("s", event(3)), hansard.ErrDeleted)
	never := part("never")
	never.Deleted = true
	check("a tombstone of a session that was not here", never, nil)
	if _, err := dst.Create(ctx, "never", hansard.Meta{}); !errors.Is(err, hansard.ErrDeleted) {
		t.Errorf("Create behind a tombstone: %v", err)
	}
	// A new session with the same id is not the one that was deleted in the source.
	if _, err := dst.Create(ctx, "never", hansard.Meta{Title: "another", Reuse: true}); err != nil {
		t.Errorf("Create with reuse behind a tombstone: %v", err)
	}
	check("the tombstone of the one before", never, hansard.ErrExists)
	check("events of the one before", part("never", event(1)), hansard.ErrExists)
	if info, err := dst.Stat(ctx, "never"); err != nil || info.Title != "another" {
		t.Errorf("the other session: %+v, %v", info, err)
	}
}
