package sessionlog

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
)

// encodeOne is an event as a line of a log, without its newline.
func encodeOne(e hansard.Event, key string, st Stamp) []byte {
	b := hansard.Batch{Events: []hansard.Event{e}, Patch: e.Patch, Key: key}
	b.Events[0].Patch = nil
	events := engine.Normalize(&b)
	hash := ""
	if key != "" {
		hash = engine.ContentHash(events)
	}
	return bytes.TrimSuffix(AppendEvent(nil, &st, EncodeBody(nil, &events[0], key, hash)), []byte("\n"))
}

var someStamp = Stamp{Seq: 7, Time: "2026-01-02T03:04:05.678901Z", Left: 2, MetaAt: 99, Prev: 0x5c1f00aa}

// oddValues are values whose bytes are easily lost or mistaken for something else.
var oddValues = []string{
	"{\n  \"pretty\": [1,\r\n 2]\n}", `"caf\u00e9 ` + "\u2028 \u2029 \u0085 日本語 🙂" + `"`, `"\n{\"seq\":1,\"b\":0}\n"`,
	` {"a": 1.0e+5} `, `"tab\tquote\"back\\slash"`, `{"key":"k","seq":9,"deleted":true,"crc":"00000000"}`, `null`, "\t[]\n",
}

// TestLinesKeepData: whatever JSON allows comes back byte for byte, and is stored on one
// line for every line reader.
func TestLinesKeepData(t *testing.T) {
	deep := strings.Repeat(`[`, 9999) + strings.Repeat(`]`, 9999)
	for _, data := range append([]string{"\u0085", deep, `"` + strings.Repeat("x", 1<<20) + `"`, "[\n\n\n]", `"\u0000\ud800"`, `0`, `-0.0e-00`, `""`, "\r\n1\r\n",
		`{"a":1,"a":2}`, "\"\u2028\"", `{"prev":"00000000","crc":"00000000"}`, `"}"`, "\x20{}\x20", `"\/"`}, oddValues...) {
		if !json.Valid([]byte(data)) {
			continue
		}
		line := encodeOne(hansard.Event{Data: json.RawMessage(data)}, "", someStamp)
		if bytes.ContainsAny(line, "\n\r\u0085\u2028\u2029\x00") || !json.Valid(line) {
			t.Errorf("data %.40q makes the line %.200q", data, line)
		}
		l, err := Decode(line)
		if err != nil {
			t.Errorf("data %.40q: %v", data, err)
			continue
		}
		if got := l.Event().Data; string(got) != data {
			t.Errorf("data %.40q comes back as %.40q", data, got)
		}
	}
}

// TestLinesKeepEverything: all members, with random content, come back; and plain JSON
// readers see them under the names in FORMAT.md.
func TestLinesKeepEverything(t *testing.T) {
	const seed = 81
	rng := rand.New(rand.NewPCG(seed, 0))
	str := func() string {
		parts := []string{"", "plain", "q\"uote", "back\\", "line\nfeed", "\r", "\t", "\u2028", "\u2029", "\u0085", "é", "🙂", "<&>", "\x01", "\x7f", `,"key":"`, `,"deleted":true`}
		return parts[rng.IntN(len(parts))] + parts[rng.IntN(len(parts))]
	}
	for range 5000 {
		e := hansard.Event{Kind: "k" + str(), Role: str(), Author: str(), Inbox: rng.IntN(2) == 0, Data: json.RawMessage(oddValues[rng.IntN(len(oddValues))])}
		if rng.IntN(2) == 0 {
			title, value := str(), str()
			e.Patch = &hansard.Patch{Title: &title, Labels: map[string]*string{"l" + str(): &value, "gone": nil}, State: json.RawMessage(`{"a":[1,"` + "\u2028" + `"]}`)}
		}
		key := str()
		line := encodeOne(e, key, someStamp)
		l, err := Decode(line)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, line)
		}
		want := e
		want.Seq, want.Time = 7, time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
		got := l.Event()
		if want.Patch != nil { // the state keeps its value; its separators may be escaped
			if string(got.Patch.State) != `{"a":[1,"\u2028"]}` {
				t.Fatalf("seed %d: state %s", seed, got.Patch.State)
			}
			got.Patch.State = want.Patch.State
		}
		if !reflect.DeepEqual(got, want) || l.Key != key || l.Left != 2 || l.MetaAt != 99 || l.Prev != 0x5c1f00aa {
			t.Fatalf("seed %d: %+v comes back as %+v\n%s", seed, want, got, line)
		}
		head, err := new(Decoder).Head(line)
		if err != nil || head.Seq != l.Seq || head.Left != l.Left || head.Prev != l.Prev || head.CRC != l.CRC || head.Key != l.Key || head.Deleted != l.Deleted {
			t.Fatalf("seed %d: Head gives %+v, %v\n%s", seed, head, err, line)
		}
		var plain struct {
			Seq  int
			Time string
			B    int
			Kind string
			Prev string
			Crc  string
		}
		if err := json.Unmarshal(line, &plain); err != nil || plain.Seq != 7 || plain.B != 2 || plain.Kind != e.Kind || plain.Prev != "5c1f00aa" || len(plain.Crc) != 8 {
			t.Fatalf("seed %d: a plain reader sees %+v, %v", seed, plain, err)
		}
	}
}

// TestLinesOfLaterVersions: unknown members are not damage, and a writer leaves their lines
// alone.
func TestLinesOfLaterVersions(t *testing.T) {
	line := encodeOne(hansard.Event{Data: json.RawMessage(`"x"`)}, "k", someStamp)
	later := AppendSuffix(append([]byte(nil), bytes.Replace(line[:len(line)-SuffixWidth], []byte(`,"kind"`), []byte(`,"new":{"deep":[1]},"kind"`), 1)...), 0, someStamp.Prev)
	l, err := Decode(bytes.TrimSuffix(later, []byte("\n")))
	if err != nil || string(l.Data) != `"x"` || l.Key != "k" {
		t.Errorf("a line with a member more: %+v, %v", l, err)
	}
	if head, err := new(Decoder).Head(bytes.TrimSuffix(later, []byte("\n"))); err != nil || head.Seq != 7 {
		t.Errorf("Head: %+v, %v", head, err)
	}
}

// TestLinesRefused: anything that is not a line of this format is refused.
func TestLinesRefused(t *testing.T) {
	frame := func(body string) string { return strings.TrimSuffix(string(AppendSuffix([]byte(body), 0, 1)), "\n") }
	for _, b := range []string{"", "{}", frame(""), frame("{"), frame(`{"seq":-1`), frame(`{"seq":1.5`), frame(`{"seq":"1"`), frame(`{"seq":1,"b":-1`),
		frame(`{"seq":1,"b":10001`), frame(`{"seq":1,"time":"yesterday"`), frame(`["seq"`), frame(`{"seq":1,"data":`), frame(`{"seq":99999999999999999999`),
		frame(`{"seq":1,"b":0,"patch":7`), strings.ToUpper(frame(`{"seq":1,"b":0`)), " " + frame(`{"seq":1,"b":0`), frame(`{"seq":1,"b":0`) + " "} {
		if l, err := Decode([]byte(b)); err == nil {
			t.Errorf("%q is taken for %+v", b, l)
		}
	}
	if _, err := Decode([]byte(frame(`{"seq":1,"b":0`))); err != nil {
		t.Errorf("the least line: %v", err)
	}
}

// TestLinesLeadSomewhere: a line with right checksums is refused if it names another line
// at an impossible offset.
func TestLinesLeadSomewhere(t *testing.T) {
	for _, member := range []string{`"meta":-1`, `"turned":-9223372036854775808`} {
		b := AppendSuffix([]byte(`{"seq":1,"time":"2026-01-02T03:04:05.678901Z","b":0,`+member+`,"kind":"x","data":1`), 0, 7)
		for name, decode := range map[string]func([]byte) (*Line, error){"Decode": Decode, "DecodeHead": DecodeHead} {
			if l, err := decode(b[:len(b)-1]); err == nil {
				t.Errorf("%s takes %s: %+v", name, member, l)
			}
		}
	}
}

// TestPatchBytes: a patch counts for about its size, however it changes the state;
// otherwise a walk over large operations would never get a snapshot.
func TestPatchBytes(t *testing.T) {
	large := []byte(`"` + strings.Repeat("x", 5000) + `"`)
	for what, p := range map[string]*hansard.Patch{
		"a merge patch": {State: large},
		"operations":    {StateOps: []hansard.StateOp{{Op: hansard.OpAdd, Path: "/a", Value: large[:2500]}, {Op: hansard.OpAdd, Path: "/b", Value: large[:2500]}}},
	} {
		if n := PatchBytes(p); n < 5000 || n > 5500 {
			t.Errorf("%s of 5000 bytes counts for %d", what, n)
		}
	}
}
