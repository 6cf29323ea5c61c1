package engine

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"hansard"
)

func TestCheckBatch(t *testing.T) {
	event := func(change func(e *hansard.Event)) hansard.Batch {
		e := hansard.Event{Data: []byte("1")}
		change(&e)
		return hansard.Batch{Events: []hansard.Event{{Data: []byte("0")}, e}}
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	title := long(hansard.MaxTitleBytes + 1)
	many := make(map[string]*string)
	for i := range hansard.MaxLabels + 1 {
		many[fmt.Sprint(i)] = nil
	}
	for _, c := range []struct {
		what, field string
		batch       hansard.Batch
		large       bool
	}{
		{"nothing", "batch", hansard.Batch{}, false},
		{"too many events", "batch", hansard.Batch{Events: make([]hansard.Event, hansard.MaxBatchEvents+1)}, true},
		{"a long key", "key", hansard.Batch{Patch: &hansard.Patch{}, Key: long(hansard.MaxKeyBytes + 1)}, true},
		{"a key with NUL", "key", hansard.Batch{Patch: &hansard.Patch{}, Key: "a\x00"}, false},
		{"a seq", "events[1].seq", event(func(e *hansard.Event) { e.Seq = 1 }), false},
		{"a time", "events[1].time", event(func(e *hansard.Event) { e.Time = time.Now() }), false},
		{"a turn", "events[1].turn", event(func(e *hansard.Event) { e.Turn = "1-0" }), false},
		{"a patch", "events[1].patch", event(func(e *hansard.Event) { e.Patch = &hansard.Patch{} }), false},
		{"a long kind", "events[1].kind", event(func(e *hansard.Event) { e.Kind = long(hansard.MaxNameBytes + 1) }), true},
		{"a role not UTF-8", "events[1].role", event(func(e *hansard.Event) { e.Role = "\xff" }), false},
		{"no data", "events[1].data", event(func(e *hansard.Event) { e.Data = nil }), false},
		{"a byte order mark", "events[1].data", event(func(e *hansard.Event) { e.Data = []byte("\ufeff1") }), false},
		{"data not UTF-8", "events[1].data", event(func(e *hansard.Event) { e.Data = []byte("\"\xff\"") }), false},
		{"data not JSON", "events[1].data", event(func(e *hansard.Event) { e.Data = []byte("{") }), false},
		{"large data", "events[1].data", event(func(e *hansard.Event) { e.Data = []byte(long(hansard.MaxBatchBytes + 1)) }), true},
		{"a large batch", "batch", event(func(e *hansard.Event) { e.Data = []byte(`"` + long(hansard.MaxBatchBytes-2) + `"`) }), true},
		{"a long title", "title", hansard.Batch{Patch: &hansard.Patch{Title: &title}}, true},
		{"many labels", "labels", hansard.Batch{Patch: &hansard.Patch{Labels: many}}, true},
		{"a label name with =", "labels", hansard.Batch{Patch: &hansard.Patch{Labels: map[string]*string{"a=b": nil}}}, false},
		{"a label without a name", "labels", hansard.Batch{Patch: &hansard.Patch{Labels: map[string]*string{"": nil}}}, false},
		{"a long label", "labels[l]", hansard.Batch{Patch: &hansard.Patch{Labels: map[string]*string{"l": &title}}}, true},
		{"a state not JSON", "state", hansard.Batch{Patch: &hansard.Patch{State: []byte("{")}}, false},
		{"a large state", "state", hansard.Batch{Patch: &hansard.Patch{State: []byte(`"` + long(hansard.MaxStateBytes) + `"`)}}, true},
	} {
		err := CheckBatch(&c.batch)
		var bad *hansard.InvalidError
		if !errors.As(err, &bad) || bad.Field != c.field || !errors.Is(err, hansard.ErrInvalid) || errors.Is(err, hansard.ErrTooLarge) != c.large {
			t.Errorf("%s: %v, want field %s, too large %v", c.what, err, c.field, c.large)
		}
	}
	for what, b := range map[string]hansard.Batch{
		"an event":       {Events: []hansard.Event{{Data: []byte("null")}}},
		"an empty patch": {Patch: &hansard.Patch{}},
		"the largest":    {Events: []hansard.Event{{Kind: "k", Data: []byte(`"` + long(hansard.MaxBatchBytes-3) + `"`)}}},
	} {
		if err := CheckBatch(&b); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestInvalidTellsWhere(t *testing.T) {
	for data, want := range map[string]string{
		"[1,\n2,\n]":   "byte 8",
		"\"ab\xff\"":   "byte 3",
		"\ufeff{}":     "byte order mark",
		"":             "null",
		`{"a":1}{}`:    "byte 8",
		"\"a\x00b\"":   "byte 3",
		"{\"a\": tru}": "byte 10",
	} {
		err := checkJSON("data", []byte(data))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want it to say %q", data, err, want)
		}
	}
}

func TestNormalize(t *testing.T) {
	p := &hansard.Patch{}
	given := hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}, {Kind: "own", Data: []byte("2")}}, Patch: p}
	got := Normalize(&given)
	want := []hansard.Event{{Kind: hansard.KindMessage, Data: []byte("1")}, {Kind: "own", Data: []byte("2"), Patch: p}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if given.Events[0].Kind != "" || given.Events[1].Patch != nil {
		t.Errorf("the batch was changed: %+v", given)
	}
	got = Normalize(&hansard.Batch{Patch: p})
	want = []hansard.Event{{Kind: hansard.KindMeta, Data: []byte("null"), Patch: p}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("a patch alone: %+v, want %+v", got, want)
	}
}

func TestContentHash(t *testing.T) {
	title, empty := "t", ""
	seen := make(map[string]int)
	for i, events := range [][]hansard.Event{
		{{Kind: "a", Role: "b", Author: "c", Data: []byte("1")}},
		{{Kind: "a", Role: "b", Author: "c", Data: []byte("1 ")}},
		{{Kind: "ab", Role: "", Author: "c", Data: []byte("1")}},
		{{Kind: "a", Role: "bc", Author: "", Data: []byte("1")}},
		{{Kind: "a", Role: "b", Author: "c", Inbox: true, Data: []byte("1")}},
		{{Kind: "a", Data: []byte("1")}, {Kind: "a", Data: []byte("1")}},
		{{Kind: "a", Data: []byte("1")}},
		{{Kind: "a", Data: []byte("1"), Patch: &hansard.Patch{}}},
		{{Kind: "a", Data: []byte("1"), Patch: &hansard.Patch{Title: &title}}},
		{{Kind: "a", Data: []byte("1"), Patch: &hansard.Patch{Title: &empty}}},
		{{Kind: "a", Data: []byte("1"), Patch: &hansard.Patch{Labels: map[string]*string{"t": nil}}}},
		{{Kind: "a", Data: []byte("1"), Patch: &hansard.Patch{Labels: map[string]*string{"t": &empty}}}},
		{{Kind: "a", Data: []byte("1"), Patch: &hansard.Patch{State: []byte("null")}}},
		{{Kind: "a", Data: []byte("1"), Patch: &hansard.Patch{State: []byte("1.0")}}},
		{{Kind: "a", Data: []byte("1"), Patch: &hansard.Patch{State: []byte("1.00")}}},
	} {
		h := ContentHash(events)
		if j, ok := seen[h]; ok {
			t.Errorf("contents %d and %d have the same hash", j, i)
		}
		seen[h] = i
	}
	// What the store sets is not content.
	a := []hansard.Event{{Kind: "a", Data: []byte("1")}}
	b := []hansard.Event{{Kind: "a", Data: []byte("1"), Seq: 7, Time: Now(), Turn: "1-0"}}
	if ContentHash(a) != ContentHash(b) {
		t.Error("seq, time or turn change the hash")
	}
}

func TestApplyPatch(t *testing.T) {
	one, two := "1", "2"
	m := hansard.Meta{Title: "t", Labels: map[string]string{"a": "1", "b": "1"}, State: []byte(`{"x":1}`)}
	got, err := ApplyPatch("s", m, &hansard.Patch{Title: &two, Labels: map[string]*string{"a": nil, "c": &two, "d": nil}, State: []byte(`{"y":2}`)})
	want := hansard.Meta{Title: "2", Labels: map[string]string{"b": "1", "c": "2"}, State: []byte(`{"x":1,"y":2}`)}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if len(m.Labels) != 2 || string(m.State) != `{"x":1}` || m.Title != "t" {
		t.Errorf("the original was changed: %+v", m)
	}
	if got, err := ApplyPatch("s", m, nil); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("no patch: %+v, %v", got, err)
	}
	full := hansard.Meta{Labels: make(map[string]string)}
	for i := range hansard.MaxLabels {
		full.Labels[fmt.Sprint(i)] = ""
	}
	if _, err := ApplyPatch("s", full, &hansard.Patch{Labels: map[string]*string{"more": &one}}); !errors.Is(err, hansard.ErrTooLarge) {
		t.Errorf("one label more: %v", err)
	}
	if _, err := ApplyPatch("s", full, &hansard.Patch{Labels: map[string]*string{"more": &one, "0": nil}}); err != nil {
		t.Errorf("one label for another: %v", err)
	}
	big := []byte(`"` + strings.Repeat("x", hansard.MaxStateBytes*2/3) + `"`)
	half := hansard.Meta{State: fmt.Appendf(nil, `{"a":%s}`, big)}
	if _, err := ApplyPatch("s", half, &hansard.Patch{State: fmt.Appendf(nil, `{"b":%s}`, big)}); !errors.Is(err, hansard.ErrTooLarge) {
		t.Errorf("two halves of a large state: %v", err)
	}
}

func TestMergePatch(t *testing.T) {
	for _, c := range []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{``, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"a":1}`, ` "whole" `, `"whole"`},
		{`{"a":1}`, `null`, `null`},
		{` {"n" : 10000000000000000000001.50} `, `{"m":1E400}`, `{"m":1E400,"n":10000000000000000000001.50}`},
		{`{"a":1,"a":2}`, `{"b":1,"b":2}`, `{"a":2,"b":2}`},
	} {
		got, err := mergePatch([]byte(c.target), []byte(c.patch))
		if err != nil || string(got) != c.want {
			t.Errorf("%s by %s is %s, %v; want %s", c.target, c.patch, got, err, c.want)
		}
	}
	deep := strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000)
	if err := CheckMeta(&hansard.Meta{State: []byte(deep)}); !errors.Is(err, hansard.ErrInvalid) {
		t.Errorf("a state 2000 deep: %v", err)
	}
}

// naiveMerge is the pseudo-code of RFC 7396 on decoded values.
func naiveMerge(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	members, ok := target.(map[string]any)
	if !ok {
		members = make(map[string]any)
	}
	for name, value := range changes {
		if value == nil {
			delete(members, name)
		} else {
			members[name] = naiveMerge(members[name], value)
		}
	}
	return members
}

func FuzzMergePatch(f *testing.F) {
	for _, s := range [][2]string{
		{`{"a":"b"}`, `{"a":null}`}, {`[1]`, `{"a":{"b":null}}`}, {``, `{}`}, {`{"a":{"b":1}}`, `{"a":{"c":2}}`}, {`1`, `2`}, {`{"<":"&"}`, `{"\u2028":"\ud800"}`},
	} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	decode := func(text []byte) (v any) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		d.Decode(&v)
		return v
	}
	f.Fuzz(func(t *testing.T, target, patch []byte) {
		if checkState(target) != nil || len(patch) == 0 || checkState(patch) != nil {
			t.Skip()
		}
		got, err := mergePatch(target, patch)
		if err != nil {
			if !errors.Is(err, hansard.ErrInvalid) {
				t.Errorf("%q by %q: %v", target, patch, err)
			}
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q by %q is %q, not JSON", target, patch, got)
		}
		if want := naiveMerge(decode(target), decode(patch)); !reflect.DeepEqual(decode(got), want) {
			t.Errorf("%q by %q is %q, want %v", target, patch, got, want)
		}
		again, err := mergePatch(got, patch)
		if err != nil || !reflect.DeepEqual(decode(again), decode(got)) {
			t.Errorf("%q by %q twice is %q, %v; once it is %q", target, patch, again, err, got)
		}
	})
}

func TestCursor(t *testing.T) {
	at := func(id hansard.SessionID, micros int64) hansard.Info {
		return hansard.Info{ID: id, Updated: time.UnixMicro(micros).UTC()}
	}
	list := []hansard.Info{at("z", 9), at("b", 5), at("a", 5), at("Z", 5), at("m", -1), at("a", -1)}
	for i := range list {
		q := hansard.Query{Cursor: hansard.Cursor(list[i])}
		for j := range list {
			got, err := q.Wants(&list[j])
			if err != nil || got != (j > i) {
				t.Errorf("%s behind %s: %v, %v", list[j].ID, list[i].ID, got, err)
			}
			if got := Newer(&list[i], &list[j]); got != (i < j) {
				t.Errorf("%s newer than %s: %v", list[i].ID, list[j].ID, got)
			}
		}
	}
	encode := base64.RawURLEncoding.EncodeToString
	for _, cursor := range []string{"x", "%", encode([]byte("12")), encode([]byte("12 ")), encode([]byte("a b")), encode([]byte("1 ../b")), encode([]byte("99999999999999999999 a"))} {
		q := hansard.Query{Cursor: cursor}
		if _, err := q.Wants(&hansard.Info{}); !errors.Is(err, hansard.ErrInvalid) {
			t.Errorf("cursor %q: %v, want ErrInvalid", cursor, err)
		}
	}
}

func TestQueryWants(t *testing.T) {
	now := Now()
	info := hansard.Info{ID: "Agent-7", Title: "Über Alles", Labels: map[string]string{"a": "1", "b": ""}, Updated: now}
	for _, c := range []struct {
		q    hansard.Query
		want bool
	}{
		{hansard.Query{}, true},
		{hansard.Query{Labels: map[string]string{"a": "1", "b": ""}}, true},
		{hansard.Query{Labels: map[string]string{"a": "2"}}, false},
		{hansard.Query{Labels: map[string]string{"c": ""}}, false},
		{hansard.Query{Text: "agent-"}, true},
		{hansard.Query{Text: "ÜBER"}, true},
		{hansard.Query{Text: "overall"}, false},
		{hansard.Query{Since: now}, true},
		{hansard.Query{Since: now.Add(1)}, false},
	} {
		if got, err := c.q.Wants(&info); err != nil || got != c.want {
			t.Errorf("%+v: %v, %v; want %v", c.q, got, err, c.want)
		}
	}
}

func TestNow(t *testing.T) {
	now := Now()
	text, err := json.Marshal(now)
	if err != nil {
		t.Fatal(err)
	}
	var back time.Time
	if err := json.Unmarshal(text, &back); err != nil || !back.Equal(now) || now.Location() != time.UTC {
		t.Errorf("%v came back from JSON as %v, %v", now, back, err)
	}
}
