package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"hansard"
)

var keyCases = []Case{
	{Name: "key/replay", run: keyReplay,
		Defends: "a retry with the same key and content gets the first receipt again, marked as replayed, and stores nothing", Answers: "36"},
	{Name: "key/reused", run: keyReused,
		Defends: "a known key with different content is refused, the error says where the key was used, and the key keeps its meaning", Answers: "36"},
	{Name: "key/same content", run: keySameContent,
		Defends: "content is what is stored: conditions and defaults do not make a retry a different batch"},
	{Name: "key/outlives conditions", run: keyOutlives,
		Defends: "a retry is answered even if its expected seq or its turn no longer holds", Answers: "36"},
	{Name: "key/per session", run: keyPerSession,
		Defends: "a key belongs to its session, and keys are compared byte by byte"},
	{Name: "key/failed", run: keyFailed,
		Defends: "an append that was refused leaves its key free"},
	{Name: "key/patch once", run: keyPatchOnce,
		Defends: "a replayed patch is not applied again over later changes", Answers: "36"},
	{Name: "key/lives long", run: keyLivesLong,
		Defends: "a key is known for the life of the session, however much was appended since and however often it was opened", Answers: "36"},
	{Name: "key/race", run: keyRace,
		Defends: "if many retry one key at once, exactly one stores it and all get the same receipt", Answers: "36"},
}

func keyed(key string, list ...string) hansard.Batch {
	b := texts(list...)
	b.Key = key
	return b
}

func keyReplay(x *env) {
	x.create("s")
	x.append("s", texts("before"))
	first := x.append("s", keyed("k", "one", "two", "three"))
	if want := (hansard.Receipt{Session: "s", First: 2, Last: 4}); !sameReceipt(first, want) {
		x.Errorf("receipt %+v, want %+v", first, want)
	}
	x.append("s", texts("after"))
	info := x.stat("s")
	want := first
	want.Replayed = true
	for range 3 {
		if r := x.append("s", keyed("k", "one", "two", "three")); !sameReceipt(r, want) {
			x.Errorf("retry: %+v, want %+v", r, want)
		}
	}
	x.wantTexts("s", "before", "one", "two", "three", "after")
	if diff := diffInfo(x.stat("s"), info); diff != "" {
		x.Errorf("after the retries: %s", diff)
	}
}

func keyReused(x *env) {
	x.create("s")
	original := keyed("k", "one", "two")
	original.Patch = &hansard.Patch{Title: ptr("t"), Labels: map[string]*string{"a": ptr("1"), "b": nil}, State: []byte(`{"a":1}`)}
	x.append("s", original)
	for what, change := range map[string]func(b *hansard.Batch){
		"other data":         func(b *hansard.Batch) { b.Events[1].Data = []byte(`"TWO"`) },
		"data spelt apart":   func(b *hansard.Batch) { b.Events[1].Data = []byte(`"two" `) },
		"another kind":       func(b *hansard.Batch) { b.Events[0].Kind = "tool_call" },
		"another role":       func(b *hansard.Batch) { b.Events[0].Role = "assistant" },
		"another author":     func(b *hansard.Batch) { b.Events[0].Author = "" },
		"role and author":    func(b *hansard.Batch) { b.Events[0].Role, b.Events[0].Author = "usera", "nn" },
		"the inbox":          func(b *hansard.Batch) { b.Events[0].Inbox = true },
		"another order":      func(b *hansard.Batch) { slices.Reverse(b.Events) },
		"an event less":      func(b *hansard.Batch) { b.Events = b.Events[:1] },
		"an event more":      func(b *hansard.Batch) { b.Events = append(b.Events, text("three")) },
		"no events":          func(b *hansard.Batch) { b.Events = nil },
		"no patch":           func(b *hansard.Batch) { b.Patch = nil },
		"another title":      func(b *hansard.Batch) { b.Patch.Title = ptr("T") },
		"no title":           func(b *hansard.Batch) { b.Patch.Title = nil },
		"another label":      func(b *hansard.Batch) { b.Patch.Labels["a"] = ptr("2") },
		"a label removed":    func(b *hansard.Batch) { b.Patch.Labels["a"] = nil },
		"a label emptied":    func(b *hansard.Batch) { b.Patch.Labels["b"] = ptr("") },
		"another state":      func(b *hansard.Batch) { b.Patch.State = []byte(`{"a":2}`) },
		"a state with digit": func(b *hansard.Batch) { b.Patch.State = []byte(`{"a":1.0}`) },
		"no state":           func(b *hansard.Batch) { b.Patch.State = nil },
	} {
		b := original
		b.Events = slices.Clone(original.Events)
		b.Patch = &hansard.Patch{Title: ptr("t"), Labels: map[string]*string{"a": ptr("1"), "b": nil}, State: []byte(`{"a":1}`)}
		change(&b)
		_, err := x.store.Append(x.ctx, "s", b)
		var reused *hansard.KeyReusedError
		if !errors.Is(err, hansard.ErrKeyReused) || !errors.As(err, &reused) ||
			*reused != (hansard.KeyReusedError{Session: "s", Key: "k", First: 1, Last: 2}) {
			x.Errorf("%s: %v, want that the key was used at 1 to 2", what, err)
		}
	}
	x.wantTexts("s", "one", "two")
	if r := x.append("s", original); !r.Replayed || r.First != 1 || r.Last != 2 {
		x.Errorf("the original batch afterwards: %+v", r)
	}
}

func keySameContent(x *env) {
	b := keyed("k", "one")
	b.Create, b.Expect = true, hansard.At(0)
	x.append("s", b)
	replayed := func(what string, b hansard.Batch) {
		x.Helper()
		r, err := x.store.Append(x.ctx, "s", b)
		if want := (hansard.Receipt{Session: "s", First: 1, Last: 1, Replayed: true}); err != nil || !sameReceipt(r, want) {
			x.Errorf("%s: %+v, %v; want %+v", what, r, err, want)
		}
	}
	replayed("without the conditions", keyed("k", "one"))
	named := keyed("k", "one")
	named.Events[0].Kind = hansard.KindMessage
	replayed("with the kind that is the default", named)
	again := b
	again.Expect = nil
	replayed("with Create", again)

	x.append("s", hansard.Batch{Patch: &hansard.Patch{State: []byte(`{"a": 1}`)}, Key: "p"})
	if r := x.append("s", hansard.Batch{Patch: &hansard.Patch{State: []byte(`{"a": 1}`)}, Key: "p"}); !r.Replayed || r.First != 2 {
		x.Errorf("a patch retried: %+v", r)
	}
}

func keyOutlives(x *env) {
	x.create("s")
	b := keyed("k", "one")
	b.Expect = hansard.At(0)
	first := x.append("s", b)
	x.append("s", texts("two"))
	first.Replayed = true
	if r := x.append("s", b); !sameReceipt(r, first) {
		x.Errorf("with the old expectation: %+v, want %+v", r, first)
	}
	b.Turn = "1-0123456789abcdef"
	if r := x.append("s", b); !sameReceipt(r, first) {
		x.Errorf("with a turn that is over: %+v, want %+v", r, first)
	}
	x.wantTexts("s", "one", "two")
}

func keyPerSession(x *env) {
	keys := []string{"k", "K", "k ", " k", "k\n", "k\u0301", "ḱ", "\u1e31", strings.Repeat("k", hansard.MaxKeyBytes), strings.Repeat("k", hansard.MaxKeyBytes-1)}
	keys = append(keys, hardTexts[1:]...)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	for _, id := range []hansard.SessionID{"s", "t"} {
		x.create(id)
		for i, key := range keys {
			if r := x.append(id, keyed(key, fmt.Sprint(id, i))); r.Replayed || r.First != hansard.Seq(i+1) {
				x.Errorf("session %s, key %q: %+v", id, key, r)
			}
		}
	}
	x.reopen()
	for _, id := range []hansard.SessionID{"s", "t"} {
		for i, key := range keys {
			if r := x.append(id, keyed(key, fmt.Sprint(id, i))); !r.Replayed || r.First != hansard.Seq(i+1) {
				x.Errorf("session %s, retry of key %q: %+v", id, key, r)
			}
		}
	}
	for range 2 { // without a key nothing is replayed, even if the same content comes twice
		if r := x.append("s", texts("the same")); r.Replayed {
			x.Errorf("an append without a key was replayed: %+v", r)
		}
	}
}

func keyFailed(x *env) {
	x.create("s")
	b := keyed("k", "one")
	b.Expect = hansard.At(7)
	x.refused(hansard.ErrConflict, "s", b)
	b.Turn = "1-0123456789abcdef"
	x.refused(hansard.ErrFenced, "s", b)
	x.reopen()
	other := keyed("k", "other content")
	if r := x.append("s", other); r.Replayed || r.First != 1 {
		x.Errorf("after refusals: %+v", r)
	}
	x.wantTexts("s", "other content")
}

func keyPatchOnce(x *env) {
	x.create("s")
	b := keyed("k", "one")
	b.Patch = &hansard.Patch{Title: ptr("first"), Labels: map[string]*string{"l": ptr("first")}, State: []byte(`{"v":"first"}`)}
	x.append("s", b)
	x.append("s", hansard.Batch{Patch: &hansard.Patch{Title: ptr("second"), Labels: map[string]*string{"l": nil}, State: []byte(`{"v":"second"}`)}})
	x.append("s", b)
	check := func(when string) {
		x.Helper()
		if info := x.stat("s"); info.Title != "second" || len(info.Labels) != 0 || !sameJSON(info.State, []byte(`{"v":"second"}`)) {
			x.Errorf("%s: title %q, labels %q, state %s", when, info.Title, info.Labels, info.State)
		}
	}
	check("after the retry")
	x.reopen()
	check("after opening again")
}

func keyLivesLong(x *env) {
	x.create("s")
	first := x.append("s", keyed("the first", "a", "b"))
	const n = 300
	for i := range n {
		x.append("s", keyed(fmt.Sprint("key ", i), fmt.Sprint(i)))
	}
	filler := texts()
	for range 2000 {
		filler.Events = append(filler.Events, text("filler"))
	}
	x.append("s", filler)
	for range 2 {
		x.reopen()
		first.Replayed = true
		if r := x.append("s", keyed("the first", "a", "b")); !sameReceipt(r, first) {
			x.Errorf("the first key: %+v, want %+v", r, first)
		}
		x.refused(hansard.ErrKeyReused, "s", keyed("the first", "a"))
		for i := range n {
			if r := x.append("s", keyed(fmt.Sprint("key ", i), fmt.Sprint(i))); !r.Replayed || r.First != hansard.Seq(i+3) {
				x.Fatalf("key %d: %+v", i, r)
			}
		}
	}
	if info := x.stat("s"); info.LastSeq != 2+n+2000 {
		x.Errorf("last seq %d, want %d", info.LastSeq, 2+n+2000)
	}
}

func keyRace(x *env) {
	handles := x.handles(4)
	x.create("s")
	var mu sync.Mutex // guards acks
	var acks []Ack
	// The same writer many times over: all append the same batches under the
	// same keys.
	x.each(12, "retrier", func(i int) error {
		w := writer{Name: "w", Sessions: []hansard.SessionID{"s"}, Batches: 25, Largest: 3, Keys: true}
		return w.run(x.ctx, handles[i%len(handles)], func(r report) {
			mu.Lock()
			defer mu.Unlock()
			acks = append(acks, *r.Ack)
		})
	})
	if err := checkOnce(x.all("s"), acks, 25); err != nil {
		x.Error(err)
	}
}

// checkOnce reports an error unless each of n batches was stored by exactly one of
// the writers.
func checkOnce(log []hansard.Event, acks []Ack, batches int) error {
	if err := CheckLog(log, acks); err != nil {
		return err
	}
	stored := make(map[batchName]bool)
	for _, a := range acks {
		if !a.Replayed {
			stored[batchName{a.Writer, a.Batch}] = true
		}
	}
	inLog := 0
	for _, e := range log {
		if m, _ := markOf(e); m.Part == 1 {
			inLog++
		}
	}
	if len(stored) != batches || inLog != batches {
		return fmt.Errorf("%d batches acknowledged as new, %d in the log, want %d", len(stored), inLog, batches)
	}
	return nil
}
