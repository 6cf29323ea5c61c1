package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
)

var redactCases = []Case{
	{Name: "redact/takes away", run: redactTakesAway,
		Defends: "redacted events have no data and no attachments, for every handle, in every order of reading and after opening again; all else about them and all other events are as they were"},
	{Name: "redact/recorded", run: redactRecorded,
		Defends: "a redaction is an event that says which events, why and by whom, and its receipt says where it is"},
	{Name: "redact/attachments", run: redactAttachments,
		Defends: "what only redacted events named is no longer attached, and what another event names is"},
	{Name: "redact/names", run: redactNames,
		Defends: "the id of a redacted event and the key of its batch are known whatever comes with them; all other names are compared as before"},
	{Name: "redact/patch", run: redactPatch,
		Defends: "a patch is not content: what an event did to the metadata and the state stays when it is redacted"},
	{Name: "redact/again", run: redactAgain,
		Defends: "redacting again stores nothing, whoever holds the turn; of seqs that are partly redacted the rest is"},
	{Name: "redact/refused", run: redactRefused,
		Defends: "what is not there, the store's own events and bad input are refused, and then nothing is redacted"},
	{Name: "redact/turn", run: redactTurn,
		Defends: "a redaction is fenced by the turn like an append"},
	{Name: "redact/beside writers", run: redactBesideWriters,
		Defends: "redactions beside appends, reads and each other lose nothing and redact each event once"},
	{Name: "redact/followed", run: redactFollowed,
		Defends: "whoever follows a session gets every event once while others are redacted"},
	{Name: "redact/forks", run: redactForks,
		Defends: "a fork has of its parent what was left when it was made: what was redacted is redacted in it too, and redacting the one leaves the other"},
	{Name: "redact/forked meanwhile", run: redactForkedMeanwhile,
		Defends: "no fork that begins after a redaction was acknowledged has the content, however many are made meanwhile"},
}

func (x *env) redact(id hansard.SessionID, r hansard.Redaction) hansard.Receipt {
	x.Helper()
	got, err := x.store.Redact(x.ctx, id, r)
	if err != nil {
		x.Fatalf("Redact(%q, %v): %v", id, r.Seqs, err)
	}
	return got
}

// redacted is what a redaction leaves of an event.
func redacted(e hansard.Event) hansard.Event {
	e.TakeAway()
	return e
}

// withoutTail is a log without its last n events.
func withoutTail(log []hansard.Event, n int) []hansard.Event { return log[:max(0, len(log)-n)] }

func redactTakesAway(x *env) {
	x.create("s")
	a := x.attach("s", "a picture")
	long := strings.Repeat("long text of many words \u2028 ", 20_000)
	rich := hansard.Event{Kind: "tool_result", Role: "tool", Author: "ann", ID: "e-3", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Inbox: true,
		Attachments: []hansard.Attachment{a}, Data: []byte(`{"secret" : "it \u2028 is"}`)}
	x.append("s", hansard.Batch{Events: []hansard.Event{text("first"), text(long), rich}, Key: "k1"})
	// The shortest possible data, which leaves the least room to record that it is gone.
	x.append("s", hansard.Batch{Events: []hansard.Event{{Kind: "m", Data: []byte("1")}, {Kind: "m", Data: []byte(" 1\n")}, {Kind: "m", Data: []byte("2")}}})
	for i := range 50 {
		x.append("s", texts(fmt.Sprint("behind ", i)))
	}
	before := x.all("s")
	// In two steps, so that the second finds a log that has been redacted.
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{3, 2, 4, 3}, Reason: "private"})
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{5, 56}, Reason: "private too"})
	want := slices.Clone(before)
	for _, seq := range []hansard.Seq{2, 3, 4, 5, 56} {
		want[seq-1] = redacted(want[seq-1])
	}
	check := func(where string, s hansard.Store) {
		x.Helper()
		got, err := readRange(x.ctx, s, "s", hansard.Range{})
		if err != nil {
			x.Fatalf("%s: %v", where, err)
		}
		if diff := diffEvents(withoutTail(got, 2), want); diff != "" {
			x.Errorf("%s: %s", where, diff)
		}
		back, err := readRange(x.ctx, s, "s", hansard.Range{Reverse: true, Before: 57})
		slices.Reverse(back)
		if diff := diffEvents(back, want); err != nil || diff != "" {
			x.Errorf("%s, in reverse: %v, %s", where, err, diff)
		}
		byID, err := readRange(x.ctx, s, "s", hansard.Range{ID: "e-3"})
		if err != nil || len(byID) != 1 || diffEvent(byID[0], want[2]) != "" {
			x.Errorf("%s, by its id: %s, %v", where, show(byID), err)
		}
	}
	for i, s := range x.handles(3) {
		check(fmt.Sprintf("through handle %d", i+1), s)
	}
	x.reopen()
	check("after opening again", x.store)
	x.append("s", texts("goes on"))
	if got := x.all("s"); len(got) != 59 || string(got[58].Data) != `"goes on"` {
		x.Errorf("after that it has %d events", len(got))
	}
}

func redactRecorded(x *env) {
	x.create("s")
	x.append("s", texts("a", "b", "c"))
	// Users may use this kind; their event is not mistaken for a record, and can be redacted.
	users := hansard.Event{Kind: hansard.KindRedaction, Data: []byte(`{"seqs":[1],"reason":"mine"}`)}
	x.append("s", hansard.Batch{Events: []hansard.Event{users}})
	const reason = "GDPR \u2028 \"request\" <7>"
	by := "bob"
	if x.engine.By != "" {
		by = x.engine.By
	}
	r := x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{4, 2}, Reason: reason, By: "bob"})
	if want := (hansard.Receipt{Session: "s", First: 5, Last: 5}); !sameReceipt(r, want) {
		x.Errorf("the receipt is %+v, want %+v", r, want)
	}
	log := x.all("s")
	if len(log) != 5 {
		x.Fatalf("%d events", len(log))
	}
	e := log[4]
	var record hansard.RedactionRecord
	if err := json.Unmarshal(e.Data, &record); err != nil {
		x.Errorf("its data is %s: %v", e.Data, err)
	}
	if want := (hansard.RedactionRecord{Seqs: []hansard.Seq{2, 4}, Reason: reason}); !reflect.DeepEqual(record, want) {
		x.Errorf("it records %+v, want %+v", record, want)
	}
	if e.Kind != hansard.KindRedaction || !slices.Equal(e.Redacts, []hansard.Seq{2, 4}) || e.By != by || e.Redacted || e.Time.IsZero() || e.Turn != "" {
		x.Errorf("the event is %s", show(e))
	}
	if log[0].Redacted || !log[1].Redacted || log[2].Redacted || !log[3].Redacted || len(log[3].Redacts) > 0 {
		x.Errorf("the log is %s", show(log))
	}
	if info := x.stat("s"); info.LastSeq != 5 || !info.Updated.Equal(e.Time) {
		x.Errorf("described as %+v", info)
	}
}

func redactAttachments(x *env) {
	x.create("s")
	mine, shared, unnamed := x.attach("s", "mine"), x.attach("s", "shared"), x.attach("s", "unnamed")
	twice := mine
	twice.Name = "another name"
	x.append("s", hansard.Batch{Events: []hansard.Event{with("a", mine, shared), with("b", shared), with("c", twice)}})
	has := func(want ...hansard.Attachment) {
		x.Helper()
		var digests, wanted []string
		for _, a := range x.attachments("s") {
			digests = append(digests, a.Digest)
		}
		for _, a := range want {
			wanted = append(wanted, a.Digest)
		}
		slices.Sort(wanted)
		if !slices.Equal(digests, wanted) {
			x.Errorf("attached are %q, want %q", digests, wanted)
		}
	}
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{1}})
	has(mine, shared, unnamed)
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{3}})
	has(shared, unnamed)
	if _, err := x.store.OpenAttachment(x.ctx, "s", mine.Digest); !errors.Is(err, hansard.ErrNoAttachment) {
		x.Errorf("what only redacted events named: %v", err)
	}
	x.wantAttached("what another event names", x.store, "s", []byte("shared"))
	x.refused(hansard.ErrNoAttachment, "s", hansard.Batch{Events: []hansard.Event{with("d", mine)}})
	// It may be attached again.
	again := x.attach("s", "mine")
	x.append("s", hansard.Batch{Events: []hansard.Event{with("d", again)}})
	x.wantAttached("attached again", x.store, "s", []byte("mine"))
	x.reopen()
	has(mine, shared, unnamed)
}

func redactNames(x *env) {
	x.create("s")
	x.append("s", hansard.Batch{Events: []hansard.Event{named("a", "one"), named("b", "two")}, Key: "k1"})
	x.append("s", hansard.Batch{Events: []hansard.Event{named("c", "three"), text("four")}, Key: "k2"})
	x.append("s", keyed("k3", "five"))
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{2, 4}})
	check := func(when string) {
		x.Helper()
		for what, b := range map[string]hansard.Batch{
			"k1 as it was":             {Events: []hansard.Event{named("a", "one"), named("b", "two")}, Key: "k1"},
			"k1 with something else":   {Events: []hansard.Event{text("else")}, Key: "k1"},
			"k2 as it was":             {Events: []hansard.Event{named("c", "three"), text("four")}, Key: "k2"},
			"k2 with something else":   {Events: []hansard.Event{text("else")}, Key: "k2"},
			"k3 as it was":             keyed("k3", "five"),
			"a redacted event":         {Events: []hansard.Event{named("b", "two")}},
			"its id with other things": {Events: []hansard.Event{{ID: "b", Kind: "other", Data: []byte("[]")}}},
			"both":                     {Events: []hansard.Event{named("a", "one"), named("b", "changed")}},
		} {
			if r, err := x.store.Append(x.ctx, "s", b); err != nil || !r.Replayed {
				x.Errorf("%s, %s: %+v, %v; want a replay", when, what, r, err)
			}
		}
		r, err := x.store.Append(x.ctx, "s", hansard.Batch{Events: []hansard.Event{text("else")}, Key: "k1"})
		if err != nil || r.First != 1 || r.Last != 2 {
			x.Errorf("%s, a replay tells of %d to %d, %v", when, r.First, r.Last, err)
		}
		x.refused(hansard.ErrKeyReused, "s", keyed("k3", "other"))
		err = x.refused(hansard.ErrIDReused, "s", hansard.Batch{Events: []hansard.Event{named("a", "changed"), named("b", "changed"), named("c", "changed")}})
		var reused *hansard.IDReusedError
		if !errors.As(err, &reused) || !slices.Equal(reused.IDs, []string{"a", "c"}) {
			x.Errorf("%s, reused ids: %v", when, err)
		}
	}
	check("at once")
	for _, s := range x.handles(2) {
		if r, err := s.Append(x.ctx, "s", hansard.Batch{Events: []hansard.Event{named("b", "whatever")}}); err != nil || !r.Replayed || !slices.Equal(r.Seqs, []hansard.Seq{2}) {
			x.Errorf("through another handle: %+v, %v", r, err)
		}
	}
	x.reopen()
	check("after opening again")
	if n := len(x.all("s")); n != 6 {
		x.Errorf("the session has %d events, want 6", n)
	}
}

func redactPatch(x *env) {
	x.createWith("s", hansard.Meta{Title: "born", State: []byte(`{"a":1}`)})
	x.append("s", hansard.Batch{Events: []hansard.Event{named("p", "with a patch")}, Patch: &hansard.Patch{Title: ptr("patched"), State: []byte(`{"b":2}`)}})
	x.append("s", hansard.Batch{Patch: &hansard.Patch{Labels: map[string]*string{"l": ptr("v")}}})
	x.append("s", texts("behind"))
	before, patch := x.stat("s"), x.all("s")[0].Patch
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{1, 2}})
	check := func() {
		x.Helper()
		log := x.all("s")
		if !log[0].Redacted || !log[1].Redacted || !samePatch(log[0].Patch, patch) || log[1].Patch == nil {
			x.Errorf("the log is %s", show(log))
		}
		if info := x.stat("s"); info.Title != before.Title || !sameJSON(info.State, before.State) || info.Labels["l"] != "v" {
			x.Errorf("described as %+v", info)
		}
	}
	check()
	x.reopen()
	check()
	// Known with its patch, whatever else the batch has; another patch is new.
	if r := x.append("s", hansard.Batch{Events: []hansard.Event{named("p", "other")}, Patch: patch}); !r.Replayed {
		x.Errorf("a redacted event with its patch: %+v", r)
	}
	if r := x.append("s", hansard.Batch{Events: []hansard.Event{named("p", "other")}, Patch: &hansard.Patch{Title: ptr("new")}}); r.Replayed || x.stat("s").Title != "new" {
		x.Errorf("a redacted event with another patch: %+v", r)
	}
}

func redactAgain(x *env) {
	x.create("s")
	x.append("s", texts("a", "b", "c", "d"))
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{1, 2}, Reason: "first"})
	held := x.acquire(x.store, "s", hansard.Claim{Exclusive: true, TTL: time.Hour})
	before := x.all("s")
	for _, r := range []hansard.Redaction{{Seqs: []hansard.Seq{2}}, {Seqs: []hansard.Seq{1, 2}, Reason: "other"}, {Seqs: []hansard.Seq{1}, Turn: "9-0123456789abcdef"}} {
		if got := x.redact("s", r); !sameReceipt(got, hansard.Receipt{Session: "s", Replayed: true}) {
			x.Errorf("again: %+v", got)
		}
	}
	if diff := diffEvents(x.all("s"), before); diff != "" {
		x.Errorf("redacting again: %s", diff)
	}
	x.release(x.store, "s", held.Grant)
	r := x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{1, 2, 3}, Reason: "second"})
	log := x.all("s")
	if e := log[len(log)-1]; r.Replayed || r.First != e.Seq || !slices.Equal(e.Redacts, []hansard.Seq{3}) || !log[2].Redacted || log[3].Redacted {
		x.Errorf("partly again: %+v, %s", r, show(log))
	}
}

func redactRefused(x *env) {
	x.create("s")
	x.append("s", texts("a", "b", "c"))
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{2}})
	held := x.acquire(x.store, "s", hansard.Claim{})
	x.release(x.store, "s", held.Grant)
	x.create("gone")
	x.append("gone", texts("a"))
	x.delete("gone")
	before := x.all("s") // 4 is a redaction, 5 and 6 are about the turn
	check := func(what string, id hansard.SessionID, r hansard.Redaction, want error) {
		x.Helper()
		got, err := x.store.Redact(x.ctx, id, r)
		if !errors.Is(err, want) {
			x.Errorf("%s: %+v, %v; want %v", what, got, err, want)
		}
	}
	seqs := func(list ...hansard.Seq) hansard.Redaction { return hansard.Redaction{Seqs: list} }
	check("a seq past the end", "s", seqs(1, 7), hansard.ErrNoEvent)
	check("a record of the turn", "s", seqs(1, 5), hansard.ErrInvalid)
	check("a record of a redaction", "s", seqs(1, 4), hansard.ErrInvalid)
	check("one that is redacted and a record", "s", seqs(2, 4), hansard.ErrInvalid)
	check("no seqs", "s", hansard.Redaction{}, hansard.ErrInvalid)
	check("seq 0", "s", seqs(0, 1), hansard.ErrInvalid)
	check("too many seqs", "s", seqs(make([]hansard.Seq, hansard.MaxRedactions+1)...), hansard.ErrTooLarge)
	check("a reason that is too long", "s", hansard.Redaction{Seqs: []hansard.Seq{1}, Reason: strings.Repeat("x", hansard.MaxTitleBytes+1)}, hansard.ErrTooLarge)
	check("a reason that is no text", "s", hansard.Redaction{Seqs: []hansard.Seq{1}, Reason: "\xff"}, hansard.ErrInvalid)
	check("no such session", "none", seqs(1), hansard.ErrNotFound)
	check("a deleted session", "gone", seqs(1), hansard.ErrDeleted)
	check("a bad id", "bad id", seqs(1), hansard.ErrInvalid)
	check("a stale grant", "s", hansard.Redaction{Seqs: []hansard.Seq{1}, Turn: held.Grant}, hansard.ErrFenced)
	check("a stale grant and a seq past the end", "s", hansard.Redaction{Seqs: []hansard.Seq{99}, Turn: held.Grant}, hansard.ErrNoEvent)
	x.refused(hansard.ErrInvalid, "s", hansard.Batch{Events: []hansard.Event{{Redacted: true, Data: []byte("null")}}})
	x.refused(hansard.ErrInvalid, "s", hansard.Batch{Events: []hansard.Event{{Kind: hansard.KindRedaction, Redacts: []hansard.Seq{1}, Data: []byte("null")}}})
	if diff := diffEvents(x.all("s"), before); diff != "" {
		x.Errorf("what was refused changed the log: %s", diff)
	}
}

func redactTurn(x *env) {
	x.create("s")
	x.append("s", texts("a", "b", "c"))
	held := x.acquire(x.store, "s", hansard.Claim{Exclusive: true, TTL: time.Hour})
	for _, s := range x.handles(2) {
		if _, err := s.Redact(x.ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{1}}); !errors.Is(err, hansard.ErrHeld) {
			x.Errorf("under somebody's exclusive turn: %v", err)
		}
	}
	if log := x.all("s"); log[0].Redacted {
		x.Error("a redaction that was refused was made")
	}
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{1}, Turn: held.Grant})
	log := x.all("s")
	if e := log[len(log)-1]; !log[0].Redacted || e.Turn != held.Grant || e.Kind != hansard.KindRedaction {
		x.Errorf("under the grant: %s", show(log))
	}
	x.release(x.store, "s", held.Grant)
	if _, err := x.store.Redact(x.ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{2}, Turn: held.Grant}); !errors.Is(err, hansard.ErrFenced) {
		x.Errorf("under a grant that was released: %v", err)
	}
	// A turn that is not exclusive does not block a redaction.
	held = x.acquire(x.store, "s", hansard.Claim{TTL: time.Hour})
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{2}})
	x.release(x.store, "s", held.Grant)
	if log := x.all("s"); !log[1].Redacted || log[2].Redacted {
		x.Errorf("the log is %s", show(log))
	}
}

func redactBesideWriters(x *env) {
	const writers, batches = 3, 20
	handles := x.handles(writers + 2)
	x.create("s")
	for i := range 10 {
		x.append("s", texts(fmt.Sprint("before ", i)))
	}
	x.each(writers+2, "worker", func(i int) error {
		s := handles[i]
		if i < writers {
			for n := range batches {
				b := hansard.Batch{Events: []hansard.Event{named(fmt.Sprintf("%d-%d", i, n), fmt.Sprintf("%d by %d", n, i)), text("and more")}, Key: fmt.Sprintf("key %d-%d", i, n)}
				if _, err := s.Append(x.ctx, "s", b); err != nil {
					return err
				}
			}
			return nil
		}
		// Several workers redact the same events.
		for seq := hansard.Seq(1); seq <= 10; seq += 2 {
			if _, err := s.Redact(x.ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{seq, seq + 1}}); err != nil {
				return err
			}
			if log, err := readRange(x.ctx, s, "s", hansard.Range{Before: seq + 2}); err != nil || !log[seq-1].Redacted || !log[seq].Redacted {
				return fmt.Errorf("after redacting %d and %d: %s, %w", seq, seq+1, show(log), err)
			}
		}
		return nil
	})
	log := x.all("s")
	records := map[hansard.Seq]int{}
	found := map[string]int{}
	for _, e := range log {
		for _, seq := range e.Redacts {
			records[seq]++
		}
		found[e.ID]++
	}
	for seq := hansard.Seq(1); seq <= 10; seq++ {
		if records[seq] != 1 || !log[seq-1].Redacted {
			x.Errorf("seq %d is recorded %d times: %s", seq, records[seq], show(log[seq-1]))
		}
	}
	for i := range writers {
		for n := range batches {
			if id := fmt.Sprintf("%d-%d", i, n); found[id] != 1 {
				x.Errorf("event %s is there %d times", id, found[id])
			}
		}
	}
	if want := 10 + 2*writers*batches; len(log) < want+1 || len(log) > want+10 {
		x.Errorf("%d events", len(log))
	}
}

func redactFollowed(x *env) {
	x.create("s")
	for i := range 20 {
		x.append("s", texts(fmt.Sprint("before ", i)))
	}
	handles := x.handles(3)
	const more = 30
	var got []hansard.Event
	followed := x.start("follower", func() error {
		for e, err := range hansard.Follow(x.ctx, handles[1], "s", 0) {
			if err != nil {
				return err
			}
			got = append(got, e)
			if string(e.Data) == `"the end"` {
				return nil
			}
		}
		return errors.New("it ended")
	})
	redactor := x.start("redactor", func() error {
		for seq := hansard.Seq(1); seq <= 20; seq++ {
			if _, err := handles[2].Redact(x.ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{seq}}); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range more {
		x.append("s", texts(fmt.Sprint("meanwhile ", i)))
	}
	redactor.finish()
	x.append("s", texts("the end"))
	followed.finish()
	for i, e := range got {
		if e.Seq != hansard.Seq(i+1) {
			x.Fatalf("event %d has seq %d", i+1, e.Seq)
		}
	}
	if len(got) != 20+20+more+1 {
		x.Errorf("%d events followed", len(got))
	}
}

// checkRedactions proves from a log alone that nothing was removed without a record, and that
// everything recorded is gone.
func checkRedactions(events []hansard.Event) error {
	var proof engine.Redactions
	for i := range events {
		if err := proof.Next(&events[i]); err != nil {
			return err
		}
	}
	if left := proof.Unfinished(); len(left) > 0 {
		return fmt.Errorf("the content of %v is there, though an event records that it was taken away", left)
	}
	return proof.End()
}

// copyRedacted checks that a copy removes content when it meets the record of a redaction: of
// events in the same part, in earlier parts, or already redacted.
func copyRedacted(t *testing.T, from, to hansard.Store) {
	src, dst := from.(hansard.Exporter), to.(hansard.Importer)
	defer func() {
		if err := errors.Join(src.Close(), dst.Close()); err != nil {
			t.Error(err)
		}
	}()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := src.Create(ctx, "s", hansard.Meta{})
	must(err)
	a, err := src.Attach(ctx, "s", strings.NewReader("a picture"))
	must(err)
	_, err = src.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{named("a", "one"), with("two", a)}, Key: "k1"})
	must(err)
	_, err = src.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{named("c", "three")}, Key: "k2"})
	must(err)
	_, err = src.Redact(ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{1}, Reason: "before the first copy"})
	must(err)
	if !copyAll(t, src, dst) {
		t.Fatal("the copy is not whole")
	}
	same := func() {
		t.Helper()
		want, got := ReadAll(t, src, "s"), ReadAll(t, dst, "s")
		if diff := diffEvents(got, want); diff != "" {
			t.Error(diff)
		}
		sameSequence(t, "keys", src.Keys(ctx, "s", 0), dst.Keys(ctx, "s", 0))
		if err := checkRedactions(got); err != nil {
			t.Error(err)
		}
		wantSound(ctx, t, dst)
	}
	same()
	_, err = src.Redact(ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{2, 3}, Reason: "after it"})
	must(err)
	_, err = src.Append(ctx, "s", texts("behind"))
	must(err)
	if !copyAll(t, src, dst) {
		t.Fatal("the copy is not whole")
	}
	same()
	if _, err := dst.OpenAttachment(ctx, "s", a.Digest); !errors.Is(err, hansard.ErrNoAttachment) {
		t.Errorf("what only a redacted event named: %v", err)
	}
	for what, b := range map[string]hansard.Batch{"a key": {Events: []hansard.Event{text("else")}, Key: "k2"}, "an id": {Events: []hansard.Event{named("c", "else")}}} {
		if r, err := dst.Append(ctx, "s", b); err != nil || !r.Replayed {
			t.Errorf("%s of a redacted event: %+v, %v", what, r, err)
		}
	}
}

func redactForks(x *env) {
	x.create("s")
	a := x.attach("s", "a picture")
	x.append("s", hansard.Batch{Key: "k", Events: []hansard.Event{text("one")}})
	x.append("s", hansard.Batch{Key: "k2", Events: []hansard.Event{with("SECRET", a)}})
	x.append("s", texts("three"))
	x.fork("s", hansard.Fork{As: "before"})
	was := x.all("s")
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{2}, Reason: "private"})
	x.fork("s", hansard.Fork{As: "behind"})         // with the record
	x.fork("s", hansard.Fork{As: "between", At: 3}) // without it
	check := func(where string) {
		x.Helper()
		for _, id := range []hansard.SessionID{"s", "behind", "between"} {
			if log := x.all(id); !log[1].Redacted || string(log[1].Data) != "null" || len(log[1].Attachments) > 0 || log[0].Redacted || log[2].Redacted {
				x.Errorf("%s: %s has %s", where, id, show(log[:3]))
			}
			_, err := x.store.OpenAttachment(x.ctx, id, a.Digest)
			x.wantErr(fmt.Sprintf("%s: what %s had attached", where, id), err, hansard.ErrNoAttachment)
		}
		if diff := diffEvents(x.all("before")[:3], was); diff != "" {
			x.Errorf("%s: the fork from before: %s", where, diff)
		}
		x.wantAttached(where+": the fork from before", x.store, "before", []byte("a picture"))
	}
	check("at first")
	x.reopen()
	check("after opening again")
	for _, id := range []hansard.SessionID{"behind", "between"} { // the key is known, whatever the content
		if r := x.append(id, hansard.Batch{Key: "k2", Events: []hansard.Event{text("other")}}); !r.Replayed || r.First != 2 {
			x.Errorf("%s: the key of the redacted event: %+v", id, r)
		}
	}
	x.redact("before", hansard.Redaction{Seqs: []hansard.Seq{1}, Reason: "in the fork alone"})
	if log := x.all("s"); log[0].Redacted || string(log[0].Data) == "null" {
		x.Errorf("redacting in the fork reached its parent: %s", show(log[:1]))
	}
	// The record of a fork is the store's own.
	_, err := x.store.Redact(x.ctx, "before", hansard.Redaction{Seqs: []hansard.Seq{4}, Reason: "no"})
	x.wantErr("redacting the record of a fork", err, hansard.ErrInvalid)
}

func redactForkedMeanwhile(x *env) {
	const rounds = 6
	x.create("s")
	for i := range rounds {
		x.append("s", texts(fmt.Sprint("SECRET ", i), "public"))
	}
	handles := x.handles(3)
	var mu sync.Mutex
	acknowledged := 0 // how many of the secrets
	x.each(3, "worker", func(worker int) error {
		for i := range rounds {
			if worker == 0 {
				if _, err := handles[0].Redact(x.ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{hansard.Seq(2*i + 1)}, Reason: "private"}); err != nil {
					return err
				}
				mu.Lock()
				acknowledged++
				mu.Unlock()
				continue
			}
			mu.Lock()
			gone := acknowledged
			mu.Unlock()
			as := hansard.SessionID(fmt.Sprint("f", worker, "-", i))
			if _, err := handles[worker].Fork(x.ctx, "s", hansard.Fork{As: as, At: 2 * rounds}); err != nil {
				return err
			}
			log, err := readRange(x.ctx, handles[worker], as, hansard.Range{})
			if err != nil {
				return err
			}
			for n := range gone {
				if e := log[2*n]; !e.Redacted || strings.Contains(string(e.Data), "SECRET") {
					return fmt.Errorf("%s has seq %d, which was redacted before it was begun: %s", as, e.Seq, e.Data)
				}
			}
		}
		return nil
	})
	x.fork("s", hansard.Fork{As: "last", At: 2 * rounds})
	for _, e := range x.all("last")[:2*rounds] {
		if e.Redacted != (e.Seq%2 == 1) || strings.Contains(string(e.Data), "SECRET") {
			x.Errorf("the last fork has %s", show(e))
		}
	}
}
