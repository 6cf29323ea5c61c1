package storetest

import (
	"errors"
	"fmt"
	"strings"

	"hansard"
)

var stateOpsCases = []Case{
	{Name: "state ops/change", run: stateOpsChange,
		Defends: "operations change the state as RFC 6902 says, one after the other; numbers keep their digits"},
	{Name: "state ops/spelling", run: stateOpsSpelling,
		Defends: "the state is spelt the same by every engine, however it came about"},
	{Name: "state ops/test", run: stateOpsTest,
		Defends: "a test that fails is a conflict that names the operation; one that passes changes nothing"},
	{Name: "state ops/refused", run: stateOpsRefused,
		Defends: "an operation that can't be applied is refused by its index, and nothing of its batch is stored"},
	{Name: "state ops/limits", run: stateOpsLimits,
		Defends: "operations and what they lead to are within the limits, or refused"},
	{Name: "state ops/replay", run: stateOpsReplay,
		Defends: "a retry under a key, or of known ids, applies no operation again and asks no test again"},
	{Name: "state ops/race", run: stateOpsRace,
		Defends: "no change is lost when many change the state at once by test and replace", Answers: "F4 41"},
	{Name: "state ops/a thousand", run: stateOpsThousand,
		Defends: "after a thousand patches of operations, and after opening again, state and log still say the same", Answers: "34"},
}

func stateOp(name, path, value string) hansard.StateOp {
	return hansard.StateOp{Op: name, Path: path, Value: []byte(value)}
}

func add(path, value string) hansard.StateOp     { return stateOp(hansard.OpAdd, path, value) }
func replace(path, value string) hansard.StateOp { return stateOp(hansard.OpReplace, path, value) }
func test(path, value string) hansard.StateOp    { return stateOp(hansard.OpTest, path, value) }
func remove(path string) hansard.StateOp         { return hansard.StateOp{Op: hansard.OpRemove, Path: path} }

type ops = []hansard.StateOp

func changing(list ...hansard.StateOp) hansard.Batch {
	return hansard.Batch{Patch: &hansard.Patch{StateOps: list}}
}

func stateOpsChange(x *env) {
	for i, c := range []struct {
		state string
		ops   ops
		want  string
	}{
		{`{"a":1}`, ops{add("/b", `2`)}, `{"a":1,"b":2}`},
		{`{"a":1}`, ops{add("/a", `null`)}, `{"a":null}`},
		{`{"a":1}`, ops{replace("/a", `null`)}, `{"a":null}`},
		{`{"a":{"b":1,"c":2}}`, ops{replace("/a", `{"d":3}`)}, `{"a":{"d":3}}`},
		{`{"a":{"b":1,"c":2}}`, ops{add("/a", `{"d":null}`)}, `{"a":{"d":null}}`},
		{`{"a":{"b":1,"c":2}}`, ops{remove("/a/b")}, `{"a":{"c":2}}`},
		{`{"a":null}`, ops{remove("/a")}, `{}`},
		// arrays
		{`{"a":[1,3]}`, ops{add("/a/1", `2`)}, `{"a":[1,2,3]}`},
		{`{"a":[2]}`, ops{add("/a/0", `1`), add("/a/2", `3`), add("/a/-", `[4]`)}, `{"a":[1,2,3,[4]]}`},
		{`{"a":[]}`, ops{add("/a/-", `null`)}, `{"a":[null]}`},
		{`[1,2,3]`, ops{remove("/1"), replace("/1", `4`)}, `[1,4]`},
		{`[[1],{"b":[2]}]`, ops{add("/0/-", `5`), add("/1/b/0", `6`)}, `[[1,5],{"b":[6,2]}]`},
		// in order, each on what the one before left
		{`{}`, ops{add("/a", `{}`), add("/a/b", `[]`), add("/a/b/-", `1`), replace("/a/b/0", `2`)}, `{"a":{"b":[2]}}`},
		{`{"a":1}`, ops{remove("/a"), add("/a", `2`), test("/a", `2`), replace("/a", `3`)}, `{"a":3}`},
		// names
		{`{"a/b":1,"m~n":2,"":3,"~1":4}`, ops{replace("/a~1b", `5`), replace("/m~0n", `6`), replace("/", `7`), remove("/~01")}, `{"a/b":5,"m~n":6,"":7}`},
		{`{"0":1,"-":2,"01":3}`, ops{replace("/0", `4`), remove("/-"), remove("/01")}, `{"0":4}`},
		{`{"é\u2028<":1}`, ops{replace("/é\u2028<", `"\u0000\u2028<"`)}, `{"é\u2028<":"\u0000\u2028<"}`},
		// the whole
		{`{"a":1}`, ops{replace("", `[7]`)}, `[7]`},
		{`{"a":1}`, ops{add("", `null`)}, `null`},
		{`{"a":1}`, ops{remove("")}, `null`},
		{``, ops{test("", `null`), add("", `{}`), add("/a", `1`)}, `{"a":1}`},
		{`7`, ops{replace("", `"text"`)}, `"text"`},
		// digits
		{`{"n":12345678901234567890.50,"e":1E400}`, ops{add("/m", `1.50`), replace("/e", `-0.0e+7`)}, `{"n":12345678901234567890.50,"m":1.50,"e":-0.0e+7}`},
	} {
		id := hansard.SessionID(fmt.Sprint("s", i))
		x.createWith(id, hansard.Meta{State: []byte(c.state)})
		x.append(id, changing(c.ops...))
		if got := x.stat(id).State; !sameJSON(got, []byte(c.want)) {
			x.Errorf("%s changed by %s is %s, want %s", c.state, show(c.ops), got, c.want)
		}
		if e := x.event(id, 1); e.Kind != hansard.KindMeta || !samePatch(e.Patch, &hansard.Patch{StateOps: c.ops}) {
			x.Errorf("%s came back as %s", show(c.ops), show(e))
		}
	}
}

func stateOpsSpelling(x *env) {
	x.createWith("s", hansard.Meta{State: []byte(`{ "z" : 1.50 , "b" : "<" }`)})
	x.append("s", changing(add("/a", ` { "y" : [ 1 , "&" ] , "x" : null } `)))
	x.reopen()
	if got, want := string(x.stat("s").State), `{"a":{"x":null,"y":[1,"&"]},"b":"<","z":1.50}`; got != want {
		x.Errorf("the state is %s, want %s", got, want)
	}
}

func stateOpsTest(x *env) {
	const state = `{"n":1.50,"big":9007199254740993,"o":{"a":[1,null],"b":"é"},"z":null}`
	x.createWith("s", hansard.Meta{State: []byte(state)})
	x.append("s", texts("one"))
	for _, o := range (ops{
		test("/n", `1.5`), test("/n", `15e-1`), test("/n", `0.0015E+3`), test("/big", `9007199254740993.0`), test("/o", `{"b":"\u00e9","a":[1,null]}`),
		test("/o/a/0", `1`), test("/z", `null`), test("", state),
	}) {
		x.append("s", changing(o))
		if got := x.stat("s").State; !sameJSON(got, []byte(state)) {
			x.Errorf("after %s the state is %s", show(o), got)
		}
	}
	before := x.stat("s")
	for _, o := range (ops{
		test("/n", `1.51`), test("/n", `"1.5"`), test("/n", `-1.5`), test("/big", `9007199254740992`), test("/o", `{"a":[1,null]}`), test("/o", `{"a":[1,null],"b":"é","c":null}`),
		test("/o/a", `[null,1]`), test("/o/a/2", `null`), test("/nobody", `null`), test("/n/deeper", `1`), test("/z", `false`), test("", `null`),
	}) {
		b := texts("two")
		b.Patch = &hansard.Patch{Title: ptr("changed"), StateOps: ops{add("/first", `1`), o, remove("/nobody")}}
		err := x.refused(hansard.ErrConflict, "s", b)
		var failed *hansard.StateTestError
		if want := (hansard.StateTestError{Session: "s", Index: 1, Path: o.Path}); !errors.As(err, &failed) || *failed != want {
			x.Errorf("%s: the error is %#v, want %#v", show(o), err, want)
		}
		if diff := diffInfo(x.stat("s"), before); diff != "" {
			x.Errorf("after %s failed: %s", show(o), diff)
		}
	}
	// It does not create a session either.
	b := texts("two")
	b.Create, b.Patch = true, &hansard.Patch{StateOps: ops{test("/n", `1`)}}
	x.refused(hansard.ErrConflict, "new", b)
	_, err := x.store.Stat(x.ctx, "new")
	x.wantErr("Stat", err, hansard.ErrNotFound)
	// The test applies to the state that the session is created with.
	b.Meta.State = []byte(`{"n":1.0}`)
	x.append("new", b)
	// The expectation comes first.
	b = changing(test("/n", `7`))
	b.Expect = hansard.At(0)
	var conflict *hansard.ConflictError
	if err := x.refused(hansard.ErrConflict, "s", b); !errors.As(err, &conflict) {
		x.Errorf("with an expectation that is wrong: %v", err)
	}
}

func stateOpsRefused(x *env) {
	x.createWith("s", hansard.Meta{State: []byte(`{"a":[1,2],"t":"text","o":{}}`)})
	x.append("s", texts("one"))
	before := x.stat("s")
	refuse := func(field string, p hansard.Patch) {
		x.Helper()
		b := keyed("k", "two")
		b.Patch = &p
		err := x.refused(hansard.ErrInvalid, "s", b)
		var bad *hansard.InvalidError
		if !errors.As(err, &bad) || bad.Field != field {
			x.Errorf("%s: the error is %v, want one about %s", show(p), err, field)
		}
		if diff := diffInfo(x.stat("s"), before); diff != "" {
			x.Errorf("after %s: %s", show(p), diff)
		}
	}
	first := add("/first", `1`)
	for _, o := range (ops{
		remove("/nobody"), replace("/nobody", `1`), add("/nobody/x", `1`), add("/t/x", `1`), remove("/o/x"), replace("/o/x/y", `1`),
		add("/a/3", `1`), replace("/a/2", `1`), remove("/a/2"), remove("/a/-"), replace("/a/-", `1`), add("/a/01", `1`), add("/a/-1", `1`), add("/a/+1", `1`),
		add("/a/x", `1`), add("/a/", `1`), add("/a/99999999999999999999", `1`), add("/a/1e0", `1`), add("/a/-/x", `1`),
	}) {
		refuse("state_ops[1].path", hansard.Patch{Title: ptr("changed"), StateOps: ops{first, o, first}})
	}
	for _, path := range []string{"a", "#/a", "a/b", "/~", "/a~2b", "/a/~", "/\xff", "/\x00"} {
		refuse("state_ops[0].path", hansard.Patch{StateOps: ops{add(path, `1`)}})
	}
	for _, name := range []string{"", "Add", "move", "copy", "set", "\xff"} {
		refuse("state_ops[1].op", hansard.Patch{StateOps: ops{first, stateOp(name, "/a", `1`)}})
	}
	for _, o := range (ops{{Op: "add", Path: "/x"}, {Op: "test", Path: "/x"}, {Op: "replace", Path: "/a"}, add("/x", `{`), add("/x", `1 2`), add("/x", "\"\xff\""), stateOp("remove", "/a", `1`)}) {
		refuse("state_ops[1].value", hansard.Patch{StateOps: ops{first, o}})
	}
	refuse("state_ops", hansard.Patch{State: []byte(`{}`), StateOps: ops{first}})
	x.append("s", keyed("k", "two")) // the key is still free
	x.wantTexts("s", "one", "two")
	// A missing document has no members.
	x.create("empty")
	x.refused(hansard.ErrInvalid, "empty", changing(add("/a", `1`)))
}

func stateOpsLimits(x *env) {
	x.createWith("s", hansard.Meta{State: []byte(`{"a":[]}`)})
	many := func(n int) (list ops) {
		for range n {
			list = append(list, add("/a/-", `1`))
		}
		return list
	}
	text := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	frame := len(show(ops{add("/t", text(2))})) - 2
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		what  string
		limit int
		make  func(n int) ops
	}{
		{"number of operations", hansard.MaxStateOps, many},
		{"path", hansard.MaxStatePath, func(n int) ops {
			return ops{add("/"+strings.Repeat("p", n-1), `1`), remove("/" + strings.Repeat("p", n-1))}
		}},
		{"size of all of them", hansard.MaxStateBytes, func(n int) ops { return ops{add("", text(n-frame+2))} }},
		{"depth of a value", hansard.MaxStateDepth, func(n int) ops { return ops{replace("", deep(n))} }},
		{"depth of the state", hansard.MaxStateDepth, func(n int) ops {
			return ops{replace("", deep(300)), add(strings.Repeat("/0", 299)+"/-", deep(n-300))}
		}},
	} {
		before := x.stat("s")
		x.refused(hansard.ErrTooLarge, "s", changing(c.make(c.limit+1)...))
		if diff := diffInfo(x.stat("s"), before); diff != "" {
			x.Errorf("a refused %s: %s", c.what, diff)
		}
		x.append("s", changing(c.make(c.limit)...))
	}
	half := text(hansard.MaxStateBytes / 2)
	x.append("s", changing(replace("", `{"a":`+half+`}`)))
	x.refused(hansard.ErrTooLarge, "s", changing(add("/b", half)))
	x.append("s", changing(remove("/a"), add("/b", half)))
}

func stateOpsReplay(x *env) {
	x.createWith("s", hansard.Meta{State: []byte(`{"n":1,"list":[]}`)})
	first := keyed("k", "one")
	first.Patch = &hansard.Patch{StateOps: ops{test("/n", `1`), replace("/n", `2`), add("/list/-", `"<&\u2028>"`)}}
	x.append("s", first)
	x.append("s", changing(replace("/n", `7`)))
	want := x.stat("s")
	for range 2 {
		if r := x.append("s", first); !r.Replayed || r.First != 1 || r.Last != 1 {
			x.Errorf("the retry got %+v", r)
		}
		if diff := diffInfo(x.stat("s"), want); diff != "" {
			x.Errorf("after the retry: %s", diff)
		}
		x.reopen()
	}
	other := first
	other.Patch = &hansard.Patch{StateOps: ops{test("/n", `1`), replace("/n", `2`), add("/list/-", `"other"`)}}
	x.refused(hansard.ErrKeyReused, "s", other)

	// By ids: either the event is known with this exact patch, or the patch is new
	// and its test counts.
	byID := hansard.Batch{Events: []hansard.Event{named("a", "A")}, Patch: &hansard.Patch{StateOps: ops{test("/n", `7`), replace("/n", `8`), add("/list/-", "\"\u0085\"")}}}
	x.append("s", byID)
	want = x.stat("s")
	x.wantReceipt("known with these operations", x.append("s", byID), hansard.Receipt{Replayed: true, Seqs: span(3, 3)})
	byID.Patch = &hansard.Patch{StateOps: ops{test("/n", `7`), replace("/n", `9`)}}
	x.refused(hansard.ErrConflict, "s", byID)
	if diff := diffInfo(x.stat("s"), want); diff != "" {
		x.Errorf("after both: %s", diff)
	}
	byID.Patch = &hansard.Patch{StateOps: ops{test("/n", `8`), replace("/n", `9`)}}
	x.wantReceipt("with other operations", x.append("s", byID), hansard.Receipt{First: 4, Last: 4, Seqs: span(3, 3)})
}

func stateOpsRace(x *env) {
	handles := x.handles(4)
	x.createWith("s", hansard.Meta{State: []byte(`{"count":0}`)})
	const workers, times = 8, 15
	x.each(workers, "counter", func(i int) error {
		c := counter{Session: "s", Times: times, Test: true}
		return c.run(x.ctx, handles[i%len(handles)], nil)
	})
	info := x.stat("s")
	if n, err := countIn(info); n != workers*times || info.LastSeq != workers*times {
		x.Errorf("counted to %d in %d events, want %d (%v)", n, info.LastSeq, workers*times, err)
	}
}

func stateOpsThousand(x *env) {
	begin := hansard.Meta{State: []byte(`{"fixed":1.50,"list":[],"at":0}`)}
	x.createWith("s", begin)
	for i := range 1000 {
		list := ops{test("/at", fmt.Sprint(i)), replace("/at", fmt.Sprint(i+1)), add(fmt.Sprintf("/m%d", i%50), fmt.Sprintf(`{"at":%d,"none":null}`, i)), add("/list/0", fmt.Sprint(i))}
		if i >= 20 {
			list = append(list, remove("/list/20"))
		}
		x.append("s", changing(list...))
		if i%400 == 399 {
			x.reopen()
		}
	}
	x.reopen()
	meta, err := fold(begin, x.all("s"))
	if err != nil {
		x.Fatal(err)
	}
	if got := x.stat("s").State; string(got) != string(meta.State) {
		x.Errorf("the state is %s, the log leads to %s", got, meta.State)
	}
	if !strings.Contains(string(meta.State), `"at":1000`) || !strings.Contains(string(meta.State), `"list":[999,998,`) || !strings.Contains(string(meta.State), "1.50") {
		x.Errorf("the state is %s", meta.State)
	}
}
