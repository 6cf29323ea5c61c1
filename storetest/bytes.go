package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"hansard"
)

var bytesCases = []Case{
	{Name: "data/byte for byte", run: dataByteForByte,
		Defends: "data comes back with the bytes it was given, for everything that JSON allows", Answers: "28"},
	{Name: "data/one batch", run: dataOneBatch,
		Defends: "data comes back byte for byte from a batch of many, and from any part of the log", Answers: "28"},
	{Name: "data/random", run: dataRandom,
		Defends: "random JSON comes back byte for byte", Answers: "28"},
	{Name: "data/invalid", run: dataInvalid,
		Defends: "data that is not JSON in UTF-8 is refused before it is stored, and the error says where", Answers: "28"},
	{Name: "data/largest batch", run: dataLargestBatch,
		Defends: "a batch of exactly the maximum size is stored whole; with one more byte it is refused as too large", Answers: "21"},
	{Name: "data/most events", run: dataMostEvents,
		Defends: "a batch of the maximum number of events is stored whole; with one more it is refused as too large"},
	{Name: "data/limits", run: dataLimits,
		Defends: "every limit of a batch is exact: at the limit the batch is stored, past it the batch is refused and nothing is stored"},
}

// validData is JSON that a store might change or fail on.
func validData() map[string][]byte {
	nested := func(open, inner, shut string, depth int) []byte {
		return []byte(strings.Repeat(open, depth) + inner + strings.Repeat(shut, depth))
	}
	out := map[string][]byte{
		"null":                   []byte(`null`),
		"a short one":            []byte(`0`),
		"empty string":           []byte(`""`),
		"whitespace around":      []byte(" \t\r\n {\"a\":1} \r\n\t "),
		"pretty printed":         []byte("{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}\n"),
		"pretty, CRLF":           []byte("{\r\n\t\"a\" : [ 1 , 2 ]\r\n}\r\n"),
		"lone CR":                []byte("[1,\r2]"),
		"only newlines around":   []byte("\n\n\n1\n\n\n"),
		"line separators":        []byte("\"a\u2028b\u2029c\""),
		"next line":              []byte("\"a\u0085b\""),
		"escaped line ends":      []byte(`"a\nb\r\nc\u000a\u2028\u0085"`),
		"escaped NUL":            []byte(`"a\u0000b"`),
		"escaped NUL in a name":  []byte(`{"a\u0000b":1}`),
		"a large number":         []byte(`1e400`),
		"a small number":         []byte(`-1E-4000`),
		"long digits":            []byte(`[123456789012345678901234567890.12345678901234567890123456789, -0, -0.0, 1.0, 1.00, 1E+2]`),
		"more digits":            []byte(strings.Repeat("9", 5000)),
		"members doubled":        []byte(`{"a":1,"a":2,"b":3,"a":4}`),
		"members in no order":    []byte(`{"z":1,"a":2,"m":3,"":4}`),
		"names with case":        []byte(`{"Data":1,"data":2,"DATA":3,"seq":99,"Seq":98,"kind":"x"}`),
		"emoji":                  []byte(`"🦀👩‍👩‍👧‍👦 e\u0301 é"`),
		"escaped emoji":          []byte(`"\ud83e\udd80\uD83E\uDD80"`),
		"lone surrogates":        []byte(`"\ud800 \udfff \udc00\ud800"`),
		"lone surrogate name":    []byte(`{"\ud800":1,"\ud801":2}`),
		"unneeded escapes":       []byte(`"\u0041\/\u003c\b\f"`),
		"no escapes":             []byte(`"</script>&<>'/"`),
		"DEL and noncharacters":  []byte("\"\u007f\ufffe\uffff\U0010ffff\ufffd\""),
		"BOM inside":             []byte("\"\ufeffa\""),
		"like a log line":        []byte(`{"seq":1,"time":"2020-01-01T00:00:00Z","kind":"x","data":{"crc":"0"},"b":0,"prev":"","crc":"00000000"}`),
		"closing in a string":    []byte(`"}\n{\"seq\":1}\n"`),
		"nested arrays":          nested("[", "", "]", 500),
		"nested objects":         nested(`{"a":`, "1", "}", 500),
		"nested to the limit":    nested("[", "1", "]", 10_000), // the most that encoding/json accepts
		"a string of 1 MiB":      []byte(`"` + strings.Repeat("0123456789abcdef", 1<<16) + `"`),
		"1 MiB of escapes":       []byte(`"` + strings.Repeat(`\u0000`, 1<<20/6) + `"`),
		"1 MiB of line ends":     []byte("[" + strings.Repeat("\n", 1<<20) + "]"),
		"100,000 small members":  []byte("[" + strings.Repeat(`{"a":"b"},`, 100_000) + "0]"),
		"long run of backslashs": []byte(`"` + strings.Repeat(`\\`, 4096) + `"`),
	}
	// Sizes around those of pages, buffers and sectors.
	for _, n := range []int{511, 512, 513, 4095, 4096, 4097, 65535, 65536, 65537} {
		out[fmt.Sprint(n, " bytes")] = []byte(`"` + strings.Repeat("p", n-2) + `"`)
	}
	return out
}

var invalidData = []struct {
	what string
	data []byte
}{
	{"nothing", nil},
	{"an empty text", []byte{}},
	{"only space", []byte(" \n")},
	{"a byte order mark", []byte("\xef\xbb\xbf{}")},
	{"a lone byte order mark", []byte("\xef\xbb\xbf")},
	{"UTF-16", []byte("\xff\xfe{\x00}\x00")},
	{"an invalid byte", []byte("\"a\xffb\"")},
	{"a cut rune", []byte("\"\xe2\x82\"")},
	{"an overlong slash", []byte("\"\xc0\xaf\"")},
	{"an encoded surrogate", []byte("\"\xed\xa0\x80\"")},
	{"past the last rune", []byte("\"\xf4\x90\x80\x80\"")},
	{"a word", []byte("hello")},
	{"an open object", []byte(`{"a":1`)},
	{"a comma too many", []byte(`[1,]`)},
	{"two values", []byte(`1 2`)},
	{"two lines", []byte("{}\n{}")},
	{"a value and NUL", []byte("1\x00")},
	{"NULs", []byte("\x00\x00\x00\x00")},
	{"a raw newline in a string", []byte("\"a\nb\"")},
	{"a raw NUL in a string", []byte("\"a\x00b\"")},
	{"a tab in a string", []byte("\"a\tb\"")},
	{"NaN", []byte("NaN")},
	{"Infinity", []byte("-Infinity")},
	{"a hexadecimal number", []byte("0x10")},
	{"a leading zero", []byte("01")},
	{"single quotes", []byte("'a'")},
	{"a comment", []byte("1 // one")},
	{"half an escape", []byte(`"\u12"`)},
	{"an unknown escape", []byte(`"\x41"`)},
	{"True", []byte("True")},
	{"nesting past the limit", []byte(strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001))},
}

func dataByteForByte(x *env) {
	x.create("s")
	var given [][]byte
	for what, data := range validData() {
		if _, err := x.store.Append(x.ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: data}}}); err != nil {
			x.Errorf("%s: %v", what, err)
			continue
		}
		given = append(given, data)
	}
	x.reopen()
	x.wantData("s", given)
}

func (x *env) wantData(id hansard.SessionID, want [][]byte) {
	x.Helper()
	got := x.all(id)
	if len(got) != len(want) {
		x.Fatalf("%d events, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i].Data, want[i]) {
			x.Errorf("event %d: data %.100q (%d bytes), want %.100q (%d bytes)", i+1, got[i].Data, len(got[i].Data), want[i], len(want[i]))
		}
	}
}

func dataOneBatch(x *env) {
	x.create("s")
	var given [][]byte
	b := hansard.Batch{Key: "k"}
	for _, data := range validData() {
		given = append(given, data)
		b.Events = append(b.Events, hansard.Event{Data: data})
	}
	x.append("s", b)
	if r := x.append("s", b); !r.Replayed {
		x.Errorf("a retry of the same bytes got %+v", r)
	}
	x.wantData("s", given)
	for n := 0; n < len(given); n += 3 {
		last := x.read("s", hansard.Range{Last: n + 1, Limit: 1})
		after := x.read("s", hansard.Range{After: hansard.Seq(len(given) - n - 1), Limit: 1})
		want := given[len(given)-n-1]
		if len(last) != 1 || len(after) != 1 || !bytes.Equal(last[0].Data, want) || !bytes.Equal(after[0].Data, want) {
			x.Errorf("event %d read from its own place is not %.100q", len(given)-n, want)
		}
	}
}

func dataRandom(x *env) {
	x.create("s")
	var given [][]byte
	for range 40 {
		var b hansard.Batch
		for range 1 + x.rng.IntN(8) {
			data := randomJSON(x.rng, 4)
			if !json.Valid(data) {
				x.Fatalf("the generator made %q", data)
			}
			given = append(given, data)
			b.Events = append(b.Events, hansard.Event{Data: data})
		}
		x.append("s", b)
	}
	x.reopen()
	x.wantData("s", given)
}

// randomJSON makes a value, written in any way that JSON allows.
func randomJSON(rng *rand.Rand, depth int) []byte {
	var out bytes.Buffer
	space := func() { out.WriteString([]string{"", "", "", " ", "\n", "\r\n", "\t "}[rng.IntN(7)]) }
	str := func() {
		out.WriteByte('"')
		for range rng.IntN(12) {
			out.WriteString([]string{"a", "é", "\u2028", "🦀", `\n`, `\"`, `\\`, `\u0000`, `\ud800`, "/", `\/`, "<", "\u007f", "}", " "}[rng.IntN(15)])
		}
		out.WriteByte('"')
	}
	list := func(open, shut byte, item func()) {
		out.WriteByte(open)
		for i := range rng.IntN(5) {
			if i > 0 {
				out.WriteByte(',')
			}
			space()
			item()
			space()
		}
		space()
		out.WriteByte(shut)
	}
	var value func(depth int)
	value = func(depth int) {
		switch n := rng.IntN(8); {
		case n < 2 && depth > 0:
			list('[', ']', func() { value(depth - 1) })
		case n < 4 && depth > 0:
			list('{', '}', func() { str(); space(); out.WriteByte(':'); space(); value(depth - 1) })
		case n < 6:
			str()
		default:
			out.WriteString([]string{"0", "-0", "1e400", "0.10", "12345678901234567890123", "true", "false", "null", "1E-7"}[rng.IntN(9)])
		}
	}
	space()
	value(depth)
	space()
	return out.Bytes()
}

func dataInvalid(x *env) {
	x.create("s")
	for _, c := range invalidData {
		_, err := x.store.Append(x.ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: c.data}}})
		x.wantErr("data that is "+c.what, err, hansard.ErrInvalid)
		if len(c.data) > 0 {
			_, err = x.store.Append(x.ctx, "s", hansard.Batch{Patch: &hansard.Patch{State: c.data}})
			x.wantErr("a state patch that is "+c.what, err, hansard.ErrInvalid)
		}
	}
	x.wantTexts("s")
}

// sized is data of exactly n bytes.
func sized(n int) json.RawMessage { return []byte(`"` + strings.Repeat("m", n-2) + `"`) }

func dataLargestBatch(x *env) {
	x.create("s")
	// Names do not count: they have their own limits.
	e := hansard.Event{Kind: "kind", Role: "role", Author: "author"}
	one := e
	one.Data = sized(hansard.MaxBatchBytes)
	x.append("s", hansard.Batch{Events: []hansard.Event{one}})

	var sixteen []hansard.Event
	for range 16 {
		e.Data = sized(hansard.MaxBatchBytes / 16)
		sixteen = append(sixteen, e)
	}
	x.append("s", hansard.Batch{Events: sixteen, Key: "k"})

	one.Data = sized(hansard.MaxBatchBytes + 1)
	x.refused(hansard.ErrTooLarge, "s", hansard.Batch{Events: []hansard.Event{one}})
	sixteen[3].Data = sized(hansard.MaxBatchBytes/16 + 1)
	x.refused(hansard.ErrTooLarge, "s", hansard.Batch{Events: sixteen, Key: "other"})

	x.append("s", texts("and on"))
	got := x.all("s")
	if len(got) != 18 {
		x.Fatalf("%d events, want 18", len(got))
	}
	for i, want := range []int{hansard.MaxBatchBytes, hansard.MaxBatchBytes / 16} {
		if !bytes.Equal(got[i].Data, sized(want)) {
			x.Errorf("event %d came back with %d bytes, other than it was given with %d", i+1, len(got[i].Data), want)
		}
	}
}

func dataMostEvents(x *env) {
	x.create("s")
	b := hansard.Batch{Events: Marked("w", 1, hansard.MaxBatchEvents, 0)}
	if r := x.append("s", b); r.First != 1 || r.Last != hansard.MaxBatchEvents {
		x.Errorf("receipt %+v", r)
	}
	b.Events = append(b.Events, b.Events[0])
	x.refused(hansard.ErrTooLarge, "s", b)
	log := x.all("s")
	if err := CheckLog(log, nil); err != nil || len(log) != hansard.MaxBatchEvents {
		x.Errorf("%d events, want %d: %v", len(log), hansard.MaxBatchEvents, err)
	}
	if last := x.read("s", hansard.Range{Last: 2}); len(last) != 2 || last[1].Seq != hansard.MaxBatchEvents {
		x.Errorf("the last two are %d events", len(last))
	}
}

func dataLimits(x *env) {
	x.create("s")
	of := func(n int) string { return strings.Repeat("n", n) }
	labels := func(n int) map[string]*string {
		out := make(map[string]*string)
		for i := range n {
			out[fmt.Sprint("l", i)] = ptr("v")
		}
		return out
	}
	event := func(e hansard.Event) hansard.Batch {
		e.Data = []byte("1")
		return hansard.Batch{Events: []hansard.Event{e}}
	}
	patch := func(p hansard.Patch) hansard.Batch { return hansard.Batch{Patch: &p} }
	for _, c := range []struct {
		what  string
		limit int
		make  func(n int) hansard.Batch
	}{
		{"kind", hansard.MaxNameBytes, func(n int) hansard.Batch { return event(hansard.Event{Kind: of(n)}) }},
		{"role", hansard.MaxNameBytes, func(n int) hansard.Batch { return event(hansard.Event{Role: of(n)}) }},
		{"author", hansard.MaxNameBytes, func(n int) hansard.Batch { return event(hansard.Event{Author: of(n)}) }},
		{"key", hansard.MaxKeyBytes, func(n int) hansard.Batch { b := texts("k"); b.Key = of(n); return b }},
		{"title", hansard.MaxTitleBytes, func(n int) hansard.Batch { return patch(hansard.Patch{Title: ptr(of(n))}) }},
		{"label value", hansard.MaxLabelBytes, func(n int) hansard.Batch { return patch(hansard.Patch{Labels: map[string]*string{"l0": ptr(of(n))}}) }},
		{"label name", hansard.MaxLabelBytes, func(n int) hansard.Batch { return patch(hansard.Patch{Labels: map[string]*string{of(n): nil}}) }},
		{"labels", hansard.MaxLabels, func(n int) hansard.Batch { return patch(hansard.Patch{Labels: labels(n)}) }},
		{"state", hansard.MaxStateBytes, func(n int) hansard.Batch { return patch(hansard.Patch{State: sized(n)}) }},
	} {
		before := x.stat("s")
		_, err := x.store.Append(x.ctx, "s", c.make(c.limit+1))
		x.wantErr(fmt.Sprintf("a %s of %d", c.what, c.limit+1), err, hansard.ErrTooLarge)
		x.wantErr(fmt.Sprintf("a %s of %d", c.what, c.limit+1), err, hansard.ErrInvalid)
		if diff := diffInfo(x.stat("s"), before); diff != "" {
			x.Errorf("a refused %s: %s", c.what, diff)
		}
		if r := x.append("s", c.make(c.limit)); r.First != before.LastSeq+1 {
			x.Errorf("a %s of %d is at seq %d, want %d", c.what, c.limit, r.First, before.LastSeq+1)
		}
	}
}
