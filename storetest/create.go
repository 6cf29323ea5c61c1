package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"hansard"
)

var createCases = []Case{
	{Name: "create/describes", run: createDescribes,
		Defends: "Create returns what it was given, and Stat and List say the same"},
	{Name: "create/plain", run: createPlain,
		Defends: "a session without metadata has no labels, not nil, the state null, and an empty log that reads without error",
		Answers: "F1"},
	{Name: "create/exists", run: createExists,
		Defends: "creating a session that exists is refused and changes nothing", Answers: "24"},
	{Name: "create/invalid id", run: createInvalidID,
		Defends: "no method accepts an id outside the grammar, whatever a path, a URL or a file system would make of it",
		Answers: "51"},
	{Name: "create/valid id", run: createValidID,
		Defends: "every id inside the grammar works, including names that file systems reserve", Answers: "51"},
	{Name: "create/twins", run: createTwins,
		Defends: "ids that differ only in case or in one character are different sessions, on every file system", Answers: "15 51"},
	{Name: "create/invalid meta", run: createInvalidMeta,
		Defends: "metadata over a limit is refused as too large and nothing is created"},
	{Name: "create/race", run: createRace,
		Defends: "if many create one session at once, exactly one succeeds and the others learn that it exists",
		Answers: "F4"},
	{Name: "create/memory", run: createMemory,
		Defends: "what the caller does later to its own metadata, or to what was returned, does not affect the store"},
	{Name: "create/cancelled", run: createCancelled,
		Defends: "a call whose context ended before it began does nothing and says so"},
}

// richMeta has some of everything that is hard to preserve.
var richMeta = hansard.Meta{
	Title:  "line one\nline \"two\"\r\n\\ tab\t <b>&amp;</b> \u2028 \u0085 日本語 🦀",
	Labels: map[string]string{"team": "red", "empty": "", "новый label\n": "v=1\r\n", "quote\"": "\\"},
	State:  []byte(`{"n": 12345678901234567890.123456789, "list": [1, {"a": null}], "s": "<>\u2028 \u0000 \ud83e\udd80"}`),
}

func createDescribes(x *env) {
	info := x.createWith("s", richMeta)
	want := hansard.Info{ID: "s", Title: richMeta.Title, Labels: richMeta.Labels, State: richMeta.State}
	if diff := diffContent(info, want); diff != "" {
		x.Errorf("Create answered %s", diff)
	}
	if info.Created.IsZero() || !info.Updated.Equal(info.Created) {
		x.Errorf("created %v, updated %v; want the same time", info.Created, info.Updated)
	}
	if diff := diffInfo(x.stat("s"), info); diff != "" {
		x.Errorf("Stat says %s", diff)
	}
	list := x.list(hansard.Query{})
	if len(list) != 1 {
		x.Fatalf("List gives %d sessions, want 1", len(list))
	}
	if diff := diffInfo(list[0], info); diff != "" {
		x.Errorf("List says %s", diff)
	}
}

func createPlain(x *env) {
	x.create("s")
	info := x.stat("s")
	if info.Labels == nil || len(info.Labels) != 0 {
		x.Errorf("labels %#v, want empty and not nil", info.Labels)
	}
	if string(info.State) != "null" {
		x.Errorf("state %q, want null", info.State)
	}
	if info.Title != "" || info.LastSeq != 0 || info.Turn != nil || info.Damaged() {
		x.Errorf("a fresh session is %+v", info)
	}
	if got := x.all("s"); len(got) != 0 {
		x.Errorf("a fresh session has %d events", len(got))
	}
}

func createExists(x *env) {
	x.createWith("s", richMeta)
	x.append("s", texts("hello"))
	before := x.stat("s")
	_, err := x.store.Create(x.ctx, "s", hansard.Meta{Title: "another"})
	x.wantErr("Create again", err, hansard.ErrExists)
	b := texts("hello")
	b.Create = true
	x.append("t", b)
	_, err = x.store.Create(x.ctx, "t", hansard.Meta{})
	x.wantErr("Create after an append created it", err, hansard.ErrExists)
	if diff := diffInfo(x.stat("s"), before); diff != "" {
		x.Errorf("after the refused Create: %s", diff)
	}
	x.wantTexts("s", "hello")
}

var invalidIDs = []hansard.SessionID{
	"", ".", "..", "...", "../s", "..\\s", "s/../t", "/s", "s/t", `s\t`, "./s", "s/", "%2e%2e", "s%2Ft", "s%00",
	"s\x00", "\x00", "s\n", "s\r\nt", "s t", " s", "s ", "-s", "_s", ".s", ":s", "@s", "+s", "~s", "~/s", "s*", "s?", "s|t", "s<t", `s"t`,
	"s'", "s$t", "s;t", "s&t", "s#t", "s=t", "s,t", "s(t)", "s[t]", "s{t}", "s!", "s^t", "s`t`", "\u00e4", "s\u00e4", "e\u0301", "\uff0e\uff0e",
	"s\u2215t", "s\u202et", "\ufeffs", "s\xff", "\xc0\xaf", "C:\\s", "file:///s", hansard.SessionID(strings.Repeat("s", hansard.MaxIDBytes+1)),
	hansard.SessionID(strings.Repeat("s", 100_000)),
}

func createInvalidID(x *env) {
	x.create("s") // so that something like it exists
	for _, id := range invalidIDs {
		for _, call := range calls(x.ctx, x.store, id) {
			x.wantErr(fmt.Sprintf("%s(%.40q)", call.name, id), call.do(), hansard.ErrInvalid)
		}
	}
	long := hansard.SessionID(strings.Repeat("s", hansard.MaxIDBytes+1))
	_, err := x.store.Stat(x.ctx, long)
	x.wantErr("Stat of an id that is too long", err, hansard.ErrTooLarge)
	if list := x.list(hansard.Query{}); len(list) != 1 || list[0].ID != "s" {
		x.Errorf("the list is %v, want s only", ids(list))
	}
}

// call is one use of a store with an id.
type call struct {
	name string
	do   func() error
}

// calls lists every method of the contract that takes an id, each used in a way
// that succeeds on an ordinary session with an event.
func calls(ctx context.Context, s hansard.Store, id hansard.SessionID) []call {
	appending := func(b hansard.Batch) func() error {
		return func() error { _, err := s.Append(ctx, id, b); return err }
	}
	created := texts("x")
	created.Create = true
	title := "x"
	return []call{
		{"Create", func() error { _, err := s.Create(ctx, id, hansard.Meta{}); return err }},
		{"Append", appending(texts("x"))},
		{"Append with Create", appending(created)},
		{"Append of a patch", appending(hansard.Batch{Patch: &hansard.Patch{Title: &title}, Create: true})},
		{"Read", func() error { _, err := readRange(ctx, s, id, hansard.Range{}); return err }},
		{"Read of the last", func() error { _, err := readRange(ctx, s, id, hansard.Range{Last: 1}); return err }},
		{"Wait", func() error { return s.Wait(ctx, id, 0) }},
		{"Stat", func() error { _, err := s.Stat(ctx, id); return err }},
		{"Follow", func() error {
			for _, err := range hansard.Follow(ctx, s, id, 0) {
				return err
			}
			return nil
		}},
		{"Acquire", func() error { _, err := s.Acquire(ctx, id, hansard.Claim{}); return err }},
		{"Acquire with a wait", func() error { _, err := s.Acquire(ctx, id, hansard.Claim{Wait: hansard.Forever}); return err }},
		{"Acquire by theft", func() error { _, err := s.Acquire(ctx, id, hansard.Claim{Steal: "x"}); return err }},
		{"Renew", func() error { return s.Renew(ctx, id, "1-0123456789abcdef") }},
		{"Release", func() error { return s.Release(ctx, id, "1-0123456789abcdef") }},
		{"Turn", func() error { _, err := s.Turn(ctx, id); return err }},
		{"Fork", func() error { _, err := s.Fork(ctx, id, hansard.Fork{}); return err }},
		{"Delete", func() error { return s.Delete(ctx, id, "") }},
	}
}

func createValidID(x *env) {
	valid := []hansard.SessionID{
		"a", "Z", "0", "a.", "a..", "a..b", "a-", "a_", "a.b:c@d+e~f-g_h", "CON", "con", "nul", "NUL.txt", "aux", "com1", "LPT9.jsonl", "prn.",
		"a.jsonl", "a.jsonl.tmp", "a.lock", "journal", "control", "write.lock", "s:t", "s~1", "0x00", "1e400", "true", "null",
		"01234567-89ab-cdef-0123-456789abcdef", "user@example.org", hansard.SessionID(strings.Repeat("x", hansard.MaxIDBytes)),
		hansard.SessionID(strings.Repeat("X", hansard.MaxIDBytes)), hansard.SessionID("x" + strings.Repeat("~", hansard.MaxIDBytes-1)),
	}
	for _, id := range valid {
		x.create(id)
		x.append(id, texts(string(id)))
	}
	x.reopen()
	for _, id := range valid {
		x.wantTexts(id, string(id))
		if got := x.stat(id).ID; got != id {
			x.Errorf("Stat(%q) is about %q", id, got)
		}
	}
	if got, want := ids(x.list(hansard.Query{})), slices.Sorted(slices.Values(valid)); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		x.Errorf("the list is %q, want %q", got, want)
	}
}

func createTwins(x *env) {
	twins := []hansard.SessionID{"ab", "Ab", "aB", "AB", "a-b", "a_b", "a.b", "a:b", "a+b", "a@b", "a~b", "ab.", "ab.jsonl", "AB.JSONL", "a", "A"}
	for i, id := range twins {
		x.createWith(id, hansard.Meta{Title: string(id)})
		b := texts(string(id))
		b.Key = "the same key in each"
		if r := x.append(id, b); r.Replayed {
			x.Errorf("%q shares keys with another of %q", id, twins[:i])
		}
	}
	x.delete("Ab")
	_, err := x.store.Stat(x.ctx, "Ab")
	x.wantErr("Stat of the deleted one", err, hansard.ErrDeleted)
	for _, id := range twins {
		if id == "Ab" {
			continue
		}
		x.wantTexts(id, string(id))
		if got := x.stat(id); got.ID != id || got.Title != string(id) {
			x.Errorf("Stat(%q) is about %q, %q", id, got.ID, got.Title)
		}
	}
}

func createInvalidMeta(x *env) {
	long := func(n int) string { return strings.Repeat("l", n) }
	many := make(map[string]string)
	for i := range hansard.MaxLabels + 1 {
		many[fmt.Sprint("label", i)] = "v"
	}
	state := func(n int) []byte { return []byte(`"` + strings.Repeat("s", n-2) + `"`) }
	for _, c := range []struct {
		what string
		meta hansard.Meta
		want error
	}{
		{"a long title", hansard.Meta{Title: long(hansard.MaxTitleBytes + 1)}, hansard.ErrTooLarge},
		{"a title that is not UTF-8", hansard.Meta{Title: "\xff"}, hansard.ErrInvalid},
		{"a title with NUL", hansard.Meta{Title: "a\x00b"}, hansard.ErrInvalid},
		{"many labels", hansard.Meta{Labels: many}, hansard.ErrTooLarge},
		{"a long label name", hansard.Meta{Labels: map[string]string{long(hansard.MaxLabelBytes + 1): ""}}, hansard.ErrTooLarge},
		{"a long label value", hansard.Meta{Labels: map[string]string{"l": long(hansard.MaxLabelBytes + 1)}}, hansard.ErrTooLarge},
		{"a label without a name", hansard.Meta{Labels: map[string]string{"": "v"}}, hansard.ErrInvalid},
		{"a label name with =", hansard.Meta{Labels: map[string]string{"a=b": "v"}}, hansard.ErrInvalid},
		{"a large state", hansard.Meta{State: state(hansard.MaxStateBytes + 1)}, hansard.ErrTooLarge},
		{"a state that is not JSON", hansard.Meta{State: []byte(`{"a":`)}, hansard.ErrInvalid},
		{"a state with a byte order mark", hansard.Meta{State: []byte("\ufeff{}")}, hansard.ErrInvalid},
	} {
		_, err := x.store.Create(x.ctx, "s", c.meta)
		x.wantErr("Create with "+c.what, err, c.want)
		x.wantErr("Create with "+c.what, err, hansard.ErrInvalid)
	}
	_, err := x.store.Stat(x.ctx, "s")
	x.wantErr("Stat afterwards", err, hansard.ErrNotFound)

	delete(many, "label0")
	delete(many, "label1")
	many[long(hansard.MaxLabelBytes)] = long(hansard.MaxLabelBytes)
	most := hansard.Meta{Title: long(hansard.MaxTitleBytes), Labels: many, State: state(hansard.MaxStateBytes)}
	x.createWith("most", most)
	x.reopen()
	if diff := diffContent(x.stat("most"), hansard.Info{ID: "most", Title: most.Title, Labels: most.Labels, State: most.State}); diff != "" {
		x.Errorf("a session at all limits: %s", diff)
	}
}

func createRace(x *env) {
	handles := x.handles(4)
	for round := range 10 {
		id := hansard.SessionID(fmt.Sprint("s", round))
		var made atomic.Int32
		x.each(16, "create", func(i int) error {
			_, err := handles[i%len(handles)].Create(x.ctx, id, hansard.Meta{Title: fmt.Sprint(i)})
			if err == nil {
				made.Add(1)
			} else if !errors.Is(err, hansard.ErrExists) {
				return err
			}
			// Whoever created it, it exists now.
			_, err = handles[(i+1)%len(handles)].Stat(x.ctx, id)
			return err
		})
		if made.Load() != 1 {
			x.Fatalf("%d of 16 made session %s", made.Load(), id)
		}
	}
}

func createMemory(x *env) {
	m := hansard.Meta{Labels: maps.Clone(richMeta.Labels), State: slices.Clone(richMeta.State)}
	want := hansard.Info{ID: "s", Labels: richMeta.Labels, State: richMeta.State}
	spoil := func(labels map[string]string, state []byte) {
		labels["team"] = "spoilt"
		copy(state, "spoilt")
	}
	info := x.createWith("s", m)
	spoil(m.Labels, m.State)
	spoil(info.Labels, info.State)
	info = x.stat("s")
	if diff := diffContent(info, want); diff != "" {
		x.Errorf("after changing what was given and answered: %s", diff)
	}
	spoil(info.Labels, info.State)
	info = x.list(hansard.Query{})[0]
	if diff := diffContent(info, want); diff != "" {
		x.Errorf("after changing what Stat answered: %s", diff)
	}
	spoil(info.Labels, info.State)
	if diff := diffContent(x.stat("s"), want); diff != "" {
		x.Errorf("after changing what List answered: %s", diff)
	}
}

func createCancelled(x *env) {
	x.create("s")
	x.append("s", texts("one"))
	ended, cancel := context.WithCancel(x.ctx)
	cancel()
	for _, call := range calls(ended, x.store, "s")[1:] { // all but Create, tested below
		x.wantErr(call.name, call.do(), context.Canceled)
	}
	_, err := x.store.Create(ended, "t", hansard.Meta{})
	x.wantErr("Create", err, context.Canceled)
	_, err = listAll(ended, x.store, hansard.Query{})
	x.wantErr("List", err, context.Canceled)
	x.wantTexts("s", "one")
	if got := x.list(hansard.Query{}); len(got) != 1 {
		x.Errorf("there are %d sessions, want 1", len(got))
	}
}

func ids(list []hansard.Info) []hansard.SessionID {
	out := make([]hansard.SessionID, len(list))
	for i, info := range list {
		out[i] = info.ID
	}
	return out
}
