package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"hansard"
)

var appendCases = []Case{
	{Name: "append/one", run: appendOne,
		Defends: "an append returns where the event is, and the event reads back as it was given"},
	{Name: "append/batch", run: appendBatch,
		Defends: "the events of a batch get consecutive seqs in their order, from one past the last"},
	{Name: "append/fields", run: appendFields,
		Defends: "kind, role, author and the inbox mark are kept, whatever characters they contain", Answers: "28"},
	{Name: "append/all or nothing", run: appendAllOrNothing,
		Defends: "a batch with one event that is refused stores nothing at all", Answers: "35"},
	{Name: "append/store sets", run: appendStoreSets,
		Defends: "only the store sets the seq, time, turn and patch of an event"},
	{Name: "append/unknown session", run: appendUnknown,
		Defends: "an append never creates a session by accident"},
	{Name: "append/create", run: appendCreate,
		Defends: "an append that asks for it creates the session, and only the first does"},
	{Name: "append/failed create", run: appendFailedCreate,
		Defends: "an append that is refused creates nothing", Answers: "32"},
	{Name: "append/fenced", run: appendFenced,
		Defends: "a write under a grant that is not the current one is refused", Answers: "20"},
	{Name: "append/order of checks", run: appendOrderOfChecks,
		Defends: "a call that is wrong in several ways gets the same answer on every engine"},
	{Name: "append/cancelled", run: appendCancelled,
		Defends: "an append whose context ended before it began stores nothing and burns no key"},
	{Name: "append/memory", run: appendMemory,
		Defends: "what a caller does to its own memory after an append, or to what it has read, does not affect the store"},
	{Name: "append/times", run: appendTimes,
		Defends: "an event has one time, in whole microseconds, the same on every read", Answers: "37"},
}

func appendOne(x *env) {
	x.create("s")
	given := hansard.Event{Kind: "tool_call", Role: "assistant", Author: "bot", Data: []byte(`{"a": 1}`)}
	r := x.append("s", hansard.Batch{Events: []hansard.Event{given}})
	if want := (hansard.Receipt{Session: "s", First: 1, Last: 1}); !sameReceipt(r, want) {
		x.Errorf("receipt %+v, want %+v", r, want)
	}
	got := x.all("s")
	if len(got) != 1 {
		x.Fatalf("%d events, want 1", len(got))
	}
	given.Seq, given.By = 1, x.by("")
	if diff := diffEvent(got[0], given); diff != "" {
		x.Error(diff)
	}
	if info := x.stat("s"); info.LastSeq != 1 || !info.Updated.Equal(got[0].Time) {
		x.Errorf("Stat says last seq %d, updated %v; the event has time %v", info.LastSeq, info.Updated, got[0].Time)
	}
}

func appendBatch(x *env) {
	x.create("s")
	want := hansard.Seq(1)
	var all []string
	for _, size := range []int{1, 3, 1, 2, 50, 1, 1000} {
		var list []string
		for i := range size {
			list = append(list, fmt.Sprint(int(want)+i))
		}
		r := x.append("s", texts(list...))
		if last := want + hansard.Seq(size) - 1; r.First != want || r.Last != last || r.Replayed {
			x.Errorf("a batch of %d is at %d to %d, want %d to %d", size, r.First, r.Last, want, last)
		}
		want += hansard.Seq(size)
		all = append(all, list...)
	}
	x.wantTexts("s", all...)
	for _, e := range x.read("s", hansard.Range{Limit: 3}) {
		if e.Kind != hansard.KindMessage {
			x.Errorf("event %d without a kind became %q, want %q", e.Seq, e.Kind, hansard.KindMessage)
		}
	}
}

// hardTexts are texts that line-based and quoted formats get wrong.
var hardTexts = []string{
	"", " ", "plain", "a\nb", "a\r\nb", "\n", "\r", "\t\b\f", `"`, `\`, `\n`, `\"`, `","x":"`, "}", "]", "null", "\u2028\u2029", "\u0085",
	"\x01\x1f\x7f", "<script>&amp;</script>", "日本語", "🦀👩\u200d👩\u200d👧", "e\u0301", "\ufeff", "\ufffd", "\u202e", "%00", "..", strings.Repeat("ä", hansard.MaxNameBytes/2),
}

func appendFields(x *env) {
	x.create("s")
	var given []hansard.Event
	for i, t := range hardTexts {
		e := hansard.Event{Kind: t, Role: hardTexts[(i+1)%len(hardTexts)], Author: hardTexts[(i+2)%len(hardTexts)], Inbox: i%2 == 0, Data: []byte("0")}
		x.append("s", hansard.Batch{Events: []hansard.Event{e}, Key: t})
		e.Seq = hansard.Seq(i + 1)
		if e.Kind == "" {
			e.Kind = hansard.KindMessage
		}
		given = append(given, e)
	}
	x.reopen()
	got := x.all("s")
	if len(got) != len(given) {
		x.Fatalf("%d events, want %d", len(got), len(given))
	}
	for i := range got {
		given[i].By = x.by("")
		if diff := diffEvent(got[i], given[i]); diff != "" {
			x.Error(diff)
		}
		kind := x.read("s", hansard.Range{Kinds: []string{given[i].Kind}})
		if !slices.ContainsFunc(kind, func(e hansard.Event) bool { return e.Seq == given[i].Seq }) {
			x.Errorf("reading the kind %q does not give event %d", given[i].Kind, given[i].Seq)
		}
	}
}

func appendAllOrNothing(x *env) {
	x.create("s")
	x.append("s", texts("before"))
	for _, c := range invalidData {
		b := texts("first", "second", "third")
		b.Events[1].Data = c.data
		x.wantErr(c.what, x.refused(hansard.ErrInvalid, "s", b), hansard.ErrInvalid)
	}
	for _, bad := range []hansard.Event{
		{Kind: "\xff", Data: []byte("1")},
		{Role: "a\x00", Data: []byte("1")},
		{Author: strings.Repeat("a", hansard.MaxNameBytes+1), Data: []byte("1")},
	} {
		b := texts("first", "second", "third")
		b.Events[2] = bad
		x.refused(hansard.ErrInvalid, "s", b)
	}
	x.refused(hansard.ErrInvalid, "s", hansard.Batch{})
	x.refused(hansard.ErrInvalid, "s", hansard.Batch{Key: "k", Expect: hansard.At(1)})
	x.wantTexts("s", "before")
	x.append("s", texts("after"))
	x.wantTexts("s", "before", "after")
}

func appendStoreSets(x *env) {
	x.create("s")
	title := "t"
	for what, e := range map[string]hansard.Event{
		"a seq":   {Seq: 1},
		"a time":  {Time: time.Now()},
		"a turn":  {Turn: "1-00"},
		"a by":    {By: "ann"},
		"a patch": {Patch: &hansard.Patch{Title: &title}},
	} {
		e.Data = []byte("1")
		_, err := x.store.Append(x.ctx, "s", hansard.Batch{Events: []hansard.Event{e}})
		x.wantErr("an event with "+what, err, hansard.ErrInvalid)
	}
	x.wantTexts("s")
}

func appendUnknown(x *env) {
	x.refused(hansard.ErrNotFound, "s", texts("x"))
	b := texts("x")
	b.Expect = hansard.At(0)
	x.refused(hansard.ErrNotFound, "s", b)
	for _, call := range calls(x.ctx, x.store, "s") {
		if !strings.Contains(call.name, "Create") && call.name != "Append of a patch" {
			x.wantErr(call.name, call.do(), hansard.ErrNotFound)
		}
	}
	_, err := x.store.Stat(x.ctx, "s")
	x.wantErr("Stat after a Delete of nothing", err, hansard.ErrNotFound)
	if list := x.list(hansard.Query{}); len(list) != 0 {
		x.Errorf("the list is %q, want nothing", ids(list))
	}
	x.create("s") // none of the refused calls is in the way
}

func appendCreate(x *env) {
	b := texts("one")
	b.Create = true
	if r := x.append("s", b); r.First != 1 {
		x.Errorf("the first event has seq %d", r.First)
	}
	x.append("s", hansard.Batch{Patch: &hansard.Patch{Labels: map[string]*string{"team": ptr("red")}}})
	b = texts("three")
	b.Create = true
	x.append("s", b)
	if info := x.stat("s"); info.LastSeq != 3 || info.Labels["team"] != "red" {
		x.Errorf("after a second append with Create the session is %+v", info)
	}
	title := "from the beginning"
	x.append("t", hansard.Batch{Patch: &hansard.Patch{Title: &title}, Create: true, Expect: hansard.At(0)})
	if info := x.stat("t"); info.Title != title || info.LastSeq != 1 {
		x.Errorf("a session created by a patch is %+v", info)
	}
}

func appendFailedCreate(x *env) {
	conflict := texts("x")
	conflict.Expect = hansard.At(1)
	fenced := texts("x")
	fenced.Turn = "1-0123456789abcdef"
	invalid := texts("x", "y")
	invalid.Events[1].Data = []byte("{")
	for _, c := range []struct {
		b    hansard.Batch
		want error
	}{{conflict, hansard.ErrConflict}, {fenced, hansard.ErrFenced}, {invalid, hansard.ErrInvalid}} {
		c.b.Create = true
		c.b.Key = "k"
		x.refused(c.want, "s", c.b)
		_, err := x.store.Stat(x.ctx, "s")
		x.wantErr("Stat after "+c.want.Error(), err, hansard.ErrNotFound)
	}
	x.reopen()
	if list := x.list(hansard.Query{}); len(list) != 0 {
		x.Errorf("the list is %q, want nothing", ids(list))
	}
	b := texts("good")
	b.Create, b.Key = true, "k"
	if r := x.append("s", b); r.Replayed {
		x.Error("the key of an append that was refused was remembered")
	}
}

func appendFenced(x *env) {
	x.create("s")
	x.append("s", texts("one"))
	for _, turn := range []hansard.Grant{"1-0123456789abcdef", "0-0", "7", "nonsense"} {
		b := texts("two")
		b.Turn = turn
		x.refused(hansard.ErrFenced, "s", b)
		x.wantErr("Delete", x.store.Delete(x.ctx, "s", turn), hansard.ErrFenced)
	}
	x.wantTexts("s", "one")
	if turn := x.all("s")[0].Turn; turn != "" {
		x.Errorf("an event written without a turn has the turn %q", turn)
	}
}

// appendOrderOfChecks: id, then batch, then whether the session is there, then
// the key, then the turn, then the expectation, then what the patch leads to.
func appendOrderOfChecks(x *env) {
	fill := func(b *hansard.Batch, large string) {
		b.Patch = &hansard.Patch{State: []byte(`{"` + large + `":"` + strings.Repeat("x", hansard.MaxStateBytes*3/5) + `"}`)}
	}
	x.create("s")
	stored := texts("stored")
	stored.Key = "k"
	x.append("s", stored)
	big := texts("big")
	fill(&big, "a")
	x.append("s", big)
	x.create("gone")
	x.delete("gone")

	const stale = hansard.Grant("1-0123456789abcdef")
	all := func(key string) hansard.Batch { // everything is wrong
		b := texts("other")
		b.Key, b.Turn, b.Expect = key, stale, hansard.At(99)
		fill(&b, "b")
		return b
	}
	invalid := all("k")
	invalid.Events[0].Data = []byte("{")
	missing, deleted, key, turn, expect, patch := all("k"), all("k"), all("k"), all(""), all(""), all("")
	deleted.Create = true
	expect.Turn = ""
	patch.Turn, patch.Expect = "", nil
	for _, c := range []struct {
		what string
		id   hansard.SessionID
		b    hansard.Batch
		want error
	}{
		{"the batch before the session", "nowhere", invalid, hansard.ErrInvalid},
		{"the batch before the tombstone", "gone", invalid, hansard.ErrInvalid},
		{"the session before the conditions", "nowhere", missing, hansard.ErrNotFound},
		{"the tombstone before the conditions", "gone", deleted, hansard.ErrDeleted},
		{"the key before the turn", "s", key, hansard.ErrKeyReused},
		{"the turn before the expectation", "s", turn, hansard.ErrFenced},
		{"the expectation before the patch", "s", expect, hansard.ErrConflict},
		{"the patch at last", "s", patch, hansard.ErrTooLarge},
	} {
		_, err := x.store.Append(x.ctx, c.id, c.b)
		x.wantErr(c.what, err, c.want)
	}
	retry := stored
	retry.Turn, retry.Expect = stale, hansard.At(99)
	if r := x.append("s", retry); !r.Replayed || r.First != 1 {
		x.Errorf("a retry under conditions that no longer hold got %+v", r)
	}
	x.wantTexts("s", "stored", "big")
}

func appendCancelled(x *env) {
	x.create("s")
	ended, cancel := context.WithCancel(x.ctx)
	cancel()
	b := texts("x")
	b.Key, b.Create = "k", true
	for _, id := range []hansard.SessionID{"s", "t"} {
		_, err := x.store.Append(ended, id, b)
		x.wantErr("Append", err, context.Canceled)
	}
	x.wantTexts("s")
	_, err := x.store.Stat(x.ctx, "t")
	x.wantErr("Stat", err, hansard.ErrNotFound)
	if r := x.append("s", b); r.Replayed || r.First != 1 {
		x.Errorf("the retry got %+v", r)
	}
}

func appendMemory(x *env) {
	x.create("s")
	title, red := "title", "red"
	b := hansard.Batch{
		Events: []hansard.Event{{Role: "user", Data: []byte(`"one"`)}, {Role: "user", Data: []byte(`"two"`)}},
		Patch:  &hansard.Patch{Title: &title, Labels: map[string]*string{"team": &red}, State: []byte(`{"a":1}`)},
	}
	x.append("s", b)
	title, red = "spoilt", "spoilt"
	b.Patch.Labels["more"] = &red
	copy(b.Patch.State, "spoilt!")
	copy(b.Events[0].Data, "spoil")
	b.Events[1].Role = "spoilt"
	operations := changing(add("", `"whole"`))
	x.append("s", operations)
	operations.Patch.StateOps[0].Path = "/spoilt"
	copy(operations.Patch.StateOps[0].Value, "spoilt!")

	want := x.all("s")
	if len(want) != 3 || want[1].Patch == nil || want[1].Patch.Title == nil || want[2].Patch == nil {
		x.Fatalf("the log is %s", show(want))
	}
	if string(want[0].Data) != `"one"` || want[1].Role != "user" || *want[1].Patch.Title != "title" || !samePatch(want[2].Patch, changing(add("", `"whole"`)).Patch) {
		x.Errorf("the log changed with the caller's memory: %s, %s", want[0].Data, want[1].Role)
	}
	spoilt := x.all("s")
	copy(spoilt[0].Data, "spoil")
	*spoilt[1].Patch.Title = "spoilt"
	*spoilt[1].Patch.Labels["team"] = "spoilt"
	copy(spoilt[1].Patch.State, "spoilt!")
	copy(spoilt[2].Patch.StateOps[0].Value, "spoilt!")
	spoilt[2].Patch.StateOps[0].Path = "/spoilt"
	if diff := diffEvents(x.all("s"), want); diff != "" {
		x.Errorf("after changing what was read: %s", diff)
	}
	info := x.stat("s")
	if info.Title != "title" || info.Labels["team"] != "red" || len(info.Labels) != 1 || string(info.State) != `"whole"` {
		x.Errorf("the session is %+v, state %s", info, info.State)
	}
}

func appendTimes(x *env) {
	x.create("s")
	for i := range 20 {
		x.append("s", texts(fmt.Sprint(i), "and"))
	}
	first := x.all("s")
	for _, e := range first {
		if e.Time.IsZero() || !e.Time.Equal(e.Time.Truncate(time.Microsecond)) {
			x.Errorf("event %d has time %v", e.Seq, e.Time)
		}
	}
	again := x.read("s", hansard.Range{Last: len(first)})
	if diff := diffEvents(again, first); diff != "" {
		x.Errorf("in another reading: %s", diff)
	}
	x.reopen()
	if diff := diffEvents(x.all("s"), first); diff != "" {
		x.Errorf("after opening again: %s", diff)
	}
}

func ptr[T any](v T) *T { return &v }
