package storetest

import (
	"fmt"
	"slices"
	"strings"

	"hansard"
	"hansard/engine"
)

var patchCases = []Case{
	{Name: "patch/title and labels", run: patchTitleLabels,
		Defends: "a patch changes what it names and nothing else; a nil label is removed, an empty one stays"},
	{Name: "patch/state", run: patchState,
		Defends: "the state changes as RFC 7396 says"},
	{Name: "patch/alone", run: patchAlone,
		Defends: "a patch without events becomes one event of kind meta that carries it"},
	{Name: "patch/with events", run: patchWithEvents,
		Defends: "a patch in a batch is carried by its last event, and reads back as it was given"},
	{Name: "patch/atomic", run: patchAtomic,
		Defends: "an event and the state it caused are one commit: both or neither", Answers: "34 35"},
	{Name: "patch/over a limit", run: patchOverLimit,
		Defends: "a patch whose result exceeds a limit is refused, and nothing of its batch is stored"},
	{Name: "patch/race", run: patchRace,
		Defends: "no change of the state is lost when many change it at once by compare-and-swap", Answers: "F4 41"},
	{Name: "patch/a thousand", run: patchThousand,
		Defends: "after a thousand patches, and after opening again, state and log still say the same", Answers: "34"},
}

func patchTitleLabels(x *env) {
	x.createWith("s", hansard.Meta{Title: "t", Labels: map[string]string{"a": "1", "b": "2"}, State: []byte(`{"x":1}`)})
	check := func(what, title string, labels map[string]string) {
		x.Helper()
		want := hansard.Info{ID: "s", Title: title, Labels: labels, State: []byte(`{"x":1}`), LastSeq: x.stat("s").LastSeq}
		if diff := diffContent(x.stat("s"), want); diff != "" {
			x.Errorf("%s: %s", what, diff)
		}
	}
	patch := func(p hansard.Patch) { x.Helper(); x.append("s", hansard.Batch{Patch: &p}) }
	patch(hansard.Patch{Title: ptr(richMeta.Title)})
	check("a title", richMeta.Title, map[string]string{"a": "1", "b": "2"})
	patch(hansard.Patch{Title: ptr("")})
	check("an empty title", "", map[string]string{"a": "1", "b": "2"})
	patch(hansard.Patch{Labels: map[string]*string{"a": nil, "b": ptr(""), "c": ptr("3"), "nobody": nil}})
	check("labels", "", map[string]string{"b": "", "c": "3"})
	patch(hansard.Patch{})
	check("an empty patch", "", map[string]string{"b": "", "c": "3"})
	if n := x.stat("s").LastSeq; n != 4 {
		x.Errorf("four patches are %d events", n)
	}
}

func patchState(x *env) {
	for i, c := range []struct{ state, patch, want string }{
		// the table of RFC 7396, appendix A
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		// and more
		{``, `{"a":null}`, `{}`},
		{``, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{`7`, `{"a":1}`, `{"a":1}`},
		{`{"a":1}`, `{}`, `{"a":1}`},
		{`{"a":1}`, " {\n} ", `{"a":1}`},
		{`{"n":12345678901234567890.50}`, `{"a":1e400}`, `{"n":12345678901234567890.50,"a":1e400}`},
		{`{"a":{"b":[null,{"c":null}]}}`, `{"a":{"d":1}}`, `{"a":{"b":[null,{"c":null}],"d":1}}`},
		{`{"s":"<\u2028>"}`, `{"t":"\u0000"}`, `{"s":"<\u2028>","t":"\u0000"}`},
		{`{"":1,"A":2}`, `{"":null,"a":3}`, `{"A":2,"a":3}`},
	} {
		id := hansard.SessionID(fmt.Sprint("s", i))
		x.createWith(id, hansard.Meta{State: []byte(c.state)})
		x.append(id, hansard.Batch{Patch: &hansard.Patch{State: []byte(c.patch)}})
		if got := x.stat(id).State; !sameJSON(got, []byte(c.want)) {
			x.Errorf("%s patched by %s is %s, want %s", c.state, c.patch, got, c.want)
		}
	}
}

func patchAlone(x *env) {
	x.create("s")
	p := hansard.Patch{Title: ptr("t"), Labels: map[string]*string{"a": ptr("1"), "b": nil}, State: []byte(`{"x": [1, 2.50]}`)}
	if r := x.append("s", hansard.Batch{Patch: &p}); r.First != 1 || r.Last != 1 {
		x.Errorf("receipt %+v, want one event", r)
	}
	got := x.all("s")
	want := hansard.Event{Seq: 1, Kind: hansard.KindMeta, Data: []byte("null"), Patch: &p, By: x.by("")}
	if len(got) != 1 {
		x.Fatalf("%d events, want 1", len(got))
	}
	if diff := diffEvent(got[0], want); diff != "" {
		x.Error(diff)
	}
	if meta := x.read("s", hansard.Range{Kinds: []string{hansard.KindMeta}}); len(meta) != 1 {
		x.Errorf("%d events of kind meta, want 1", len(meta))
	}
}

func patchWithEvents(x *env) {
	x.create("s")
	b := texts("one", "two", "three")
	b.Patch = &hansard.Patch{Title: ptr(richMeta.Title), Labels: map[string]*string{}, State: richMeta.State}
	for name, value := range richMeta.Labels {
		b.Patch.Labels[name] = ptr(value)
	}
	x.append("s", b)
	x.append("s", texts("four"))
	x.reopen()
	x.wantTexts("s", "one", "two", "three", "four")
	for _, e := range x.all("s") {
		if want := e.Seq == 3; want != (e.Patch != nil) {
			x.Errorf("event %d has the patch %s", e.Seq, show(e.Patch))
		} else if want && !samePatch(e.Patch, b.Patch) {
			x.Errorf("the patch came back as %s, want %s", show(e.Patch), show(b.Patch))
		}
	}
	want := hansard.Info{ID: "s", Title: richMeta.Title, Labels: richMeta.Labels, State: richMeta.State, LastSeq: 4}
	if diff := diffContent(x.stat("s"), want); diff != "" {
		x.Error(diff)
	}
}

func patchAtomic(x *env) {
	x.createWith("s", hansard.Meta{State: []byte(`{"n":0}`)})
	x.append("s", texts("one"))
	before := x.stat("s")
	refuse := func(want error, change func(b *hansard.Batch)) {
		x.Helper()
		b := texts("two")
		b.Patch = &hansard.Patch{Title: ptr("changed"), Labels: map[string]*string{"l": ptr("v")}, State: []byte(`{"n":1}`)}
		change(&b)
		x.refused(want, "s", b)
		if diff := diffInfo(x.stat("s"), before); diff != "" {
			x.Errorf("after %v: %s", want, diff)
		}
		x.wantTexts("s", "one")
	}
	refuse(hansard.ErrConflict, func(b *hansard.Batch) { b.Expect = hansard.At(0) })
	refuse(hansard.ErrFenced, func(b *hansard.Batch) { b.Turn = "1-0123456789abcdef" })
	refuse(hansard.ErrInvalid, func(b *hansard.Batch) { b.Events[0].Data = []byte("{") })
	refuse(hansard.ErrInvalid, func(b *hansard.Batch) { b.Patch.State = []byte("{") })
	refuse(hansard.ErrInvalid, func(b *hansard.Batch) { b.Patch.Title = ptr("\xff") })
	refuse(hansard.ErrInvalid, func(b *hansard.Batch) { b.Patch.Labels[""] = ptr("v") })
}

func patchOverLimit(x *env) {
	labels := make(map[string]string)
	for i := range hansard.MaxLabels {
		labels[fmt.Sprint("l", i)] = "v"
	}
	big := `"` + strings.Repeat("s", hansard.MaxStateBytes*3/5) + `"`
	x.createWith("s", hansard.Meta{Labels: labels, State: []byte(`{"a":` + big + `}`)})
	x.append("s", texts("one"))
	before := x.stat("s")
	for _, p := range []hansard.Patch{
		{Labels: map[string]*string{"one more": ptr("v")}},
		{Labels: map[string]*string{"l0": nil, "x": ptr("v"), "y": ptr("v")}},
		{State: []byte(`{"b":` + big + `}`)},
		{Title: ptr("changed"), State: []byte(`{"b":` + big + `}`)},
	} {
		b := keyed("k", "two", "three")
		b.Patch = &p
		x.refused(hansard.ErrInvalid, "s", b)
		x.refused(hansard.ErrTooLarge, "s", b)
		if diff := diffInfo(x.stat("s"), before); diff != "" {
			x.Errorf("after the refusal: %s", diff)
		}
	}
	// Removing one and adding one stays within the limit, and the key is still
	// free.
	b := keyed("k", "two")
	b.Patch = &hansard.Patch{Labels: map[string]*string{"l0": nil, "x": ptr("v")}, State: []byte(`{"a":null,"b":` + big + `}`)}
	x.append("s", b)
	x.wantTexts("s", "one", "two")
	if info := x.stat("s"); len(info.Labels) != hansard.MaxLabels || info.Labels["x"] != "v" {
		x.Errorf("%d labels", len(info.Labels))
	}
}

func patchRace(x *env) {
	handles := x.handles(4)
	x.createWith("s", hansard.Meta{State: []byte(`{"count":0}`)})
	const workers, times = 8, 15
	x.each(workers, "counter", func(i int) error {
		c := counter{Session: "s", Times: times}
		return c.run(x.ctx, handles[i%len(handles)], nil)
	})
	info := x.stat("s")
	if n, err := countIn(info); n != workers*times || info.LastSeq != workers*times {
		x.Errorf("counted to %d in %d events, want %d (%v)", n, info.LastSeq, workers*times, err)
	}
}

// fold applies the patches in a log to the metadata that a session began with.
func fold(begin hansard.Meta, log []hansard.Event) (hansard.Meta, error) {
	for _, e := range log {
		next, err := engine.ReplayPatch(begin, e.Patch)
		if err != nil {
			return begin, fmt.Errorf("event %d: %w", e.Seq, err)
		}
		begin = next
	}
	return begin, nil
}

func patchThousand(x *env) {
	begin := hansard.Meta{Title: "begin", State: []byte(`{"fixed":1.50}`)}
	x.createWith("s", begin)
	var b hansard.Batch
	for i := range 1000 {
		b = hansard.Batch{Patch: &hansard.Patch{
			State:  fmt.Appendf(nil, `{"m%d":{"at":%d,"gone":null},"m%d":null}`, i%50, i, (i+25)%50),
			Labels: map[string]*string{fmt.Sprint("l", i%10): ptr(fmt.Sprint(i)), fmt.Sprint("l", (i+5)%10): nil},
		}}
		if i%3 == 0 {
			b.Events = texts(fmt.Sprint(i)).Events
		}
		x.append("s", b)
		if i%400 == 399 {
			x.reopen()
		}
	}
	x.reopen()
	meta, err := fold(begin, x.all("s"))
	if err != nil {
		x.Fatal(err)
	}
	want := hansard.Info{ID: "s", Title: meta.Title, Labels: meta.Labels, State: meta.State, LastSeq: 1000}
	if diff := diffContent(x.stat("s"), want); diff != "" {
		x.Errorf("Stat and the patches in the log differ: %s", diff)
	}
	if !strings.Contains(string(meta.State), `"at":999`) || !strings.Contains(string(meta.State), "1.50") {
		x.Errorf("the state is %s", meta.State)
	}
	if list := x.list(hansard.Query{Labels: map[string]string{"l9": "999"}}); !slices.Equal(ids(list), []hansard.SessionID{"s"}) {
		x.Errorf("the list by a patched label is %q", ids(list))
	}
}
