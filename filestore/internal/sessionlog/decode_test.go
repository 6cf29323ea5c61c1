package sessionlog

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"hansard"
)

// members are what lines are made of here: as the engine writes them, nearly so, and not
// at all.
var members = []string{`"seq":7`, `"seq":0`, `"seq":07`, `"seq":-7`, `"seq":7.0`, `"seq":1e3`, `"seq":"7"`, `"seq":18446744073709551615`, `"seq":9999999999999999`, `"seq": 7`, `"Seq":8`, `"seq":null`,
	`"time":"2026-01-02T03:04:06.000000Z"`, `"time":"2026-02-29T03:04:06.000000Z"`, `"time":"2024-02-29T23:59:59.999999Z"`, `"time":"2026-13-02T03:04:06.000000Z"`, `"time":"2026-01-02T24:04:06.000000Z"`,
	`"time":"2026-01-02T03:04:60.000000Z"`, `"time":"2026-01-02T03:04:06.000000+"`, `"time":"2026-01-02t03:04:06.000000Z"`, `"time":"2026-01-02T03:04:06Z"`, `"time":"0000-00-00T00:00:00.000000Z"`, `"time":null`,
	`"b":0`, `"b":3`, `"b":-1`, `"b":99999999`, `"b":9999999999999999`, `"turn":"7-9f86d081884c7d65"`, `"turn":""`, `"meta":812`, `"meta":-1`, `"turned":455`, `"kind":"message"`, `"kind":"other"`, `"kind":"k\u0041"`, `"kind":"日本"`,
	"\"kind\":\"\xff\xfe\"", `"kind":7`, `"KIND":"upper"`, `"k\u0069nd":"escaped"`, `"role":"user"`, `"role":"user","role":"tool"`, `"author":"a\"b"`, `"author":"Ada"`, `"by":"ci"`, `"id":"m-1"`, `"id":""`,
	`"at":"2026-01-02T03:04:06.123456Z"`, `"at":"2026-01-02T03:04:06.1Z"`, `"inbox":true`, `"inbox":false`, `"key":"k1","hash":"h"`, `"deleted":true`, `"patch":{"title":"x"}`, `"snap":{"title":"y"}`, `"unknown":[1,{"data":2}]`,
	`"attachments":[{"digest":"sha256:x","size":3}]`, `"raw":"\"x\""`, `"uid":"00000000000000aa"`, `"hansard":2`, ` "kind":"space"`, ``}

var datas = []string{`"hi"`, `null`, `{"text":"a, \"data\":1"}`, `[1,2]`, ` "space"`, `"space" `, `{`, `1 2`, `"x","kind":"later"`, `1e5`, `true`, "\"\xff\"", ``, `{"deep":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`}

// slowly is Decode by encoding/json alone.
func slowly(b []byte) (*Line, error) {
	l := &Line{}
	err := json.Unmarshal(b, l)
	return l, err
}

// sameAsSlow reports whether d read a line by hand, and fails if it is not what
// encoding/json makes of it.
func sameAsSlow(t *testing.T, d *Decoder, b []byte) (quick bool) {
	t.Helper()
	got := &d.line
	if !d.plain(b) {
		return false
	}
	want, err := slowly(b)
	if err != nil {
		t.Errorf("%q is read, but is not JSON of this format: %v", b, err)
		return true
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q is read as\n%+v\nwant\n%+v", b, got, want)
	}
	return true
}

// sameHead fails if the head that d reads of a line is not what DecodeHead reads.
func sameHead(t *testing.T, d *Decoder, b []byte) {
	t.Helper()
	want, wantErr := DecodeHead(b)
	got, err := d.Head(b)
	if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("the head of %q is read as\n%+v, %v\nwant\n%+v, %v", b, got, err, want, wantErr)
	}
}

// TestHeadLeavesData: a head is read without looking at the data, which is not JSON here,
// and the checksum is looked at all the same.
func TestHeadLeavesData(t *testing.T) {
	line := AppendSuffix([]byte(`{"seq":7,"time":"2026-01-02T03:04:06.000000Z","b":0,"kind":"summary","data":{"no`), 0, 7)
	line = line[:len(line)-1]
	var d Decoder
	if l, err := d.Head(line); err != nil || l.Kind != "summary" || l.Seq != 7 || l.Data != nil {
		t.Errorf("the head is %+v, %v", l, err)
	}
	if l, err := d.Decode(line); err == nil {
		t.Errorf("the line is read as %+v", l)
	}
	line[60]++
	if l, err := d.Head(line); err == nil {
		t.Errorf("with another checksum the head is %+v", l)
	}
}

// TestDecodePlain: whatever a line is made of, what is read by hand is what encoding/json
// reads, and the lines that the engine writes are read by hand.
func TestDecodePlain(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	quick := 0
	var d Decoder // one for all: what it remembers of a line must not be in the next
	for range 200_000 {
		var parts []string
		for range rng.IntN(6) {
			parts = append(parts, members[rng.IntN(len(members))])
		}
		if rng.IntN(8) > 0 {
			parts = append(parts, `"data":`+datas[rng.IntN(len(datas))])
		}
		line := AppendSuffix([]byte("{"+strings.Join(parts, ",")), 0, 7)
		if sameAsSlow(t, &d, line[:len(line)-1]) {
			quick++
		}
		sameHead(t, &d, line[:len(line)-1])
	}
	if quick < 1000 {
		t.Errorf("%d lines of 200,000 were read by hand", quick)
	}
	for depth := 9_998; depth <= 10_001; depth++ { // the line itself is a level, too
		data := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		line := AppendSuffix([]byte(`{"seq":1,"kind":"message","data":`+data), 0, 7)
		if quick := sameAsSlow(t, &d, line[:len(line)-1]); quick != (depth < 10_000) {
			t.Errorf("a line of depth %d is read by hand: %v", depth+1, quick)
		}
	}
	nothing := AppendSuffix([]byte(`{"seq":1,"time":"`+strings.Repeat("\x00", 17)+`06.000000Z","data":1`), 0, 7)
	if sameAsSlow(t, &Decoder{}, nothing[:len(nothing)-1]) {
		t.Error("a time of NULs is read by hand")
	}
	events := []hansard.Event{
		{Kind: "message", Role: "user", Data: []byte(`"hi"`)},
		{Kind: "tool_call", Role: "assistant", Author: "Ada", By: "ci", ID: "m-1", At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Data: []byte(`{"name":"x"}`)},
	}
	for i, e := range events {
		st := Stamp{Seq: hansard.Seq(i + 1), Time: "2026-01-02T03:04:06.000000Z", Left: i, Turn: "1-00000000000000aa", MetaAt: 70, TurnAt: 90, Prev: 5}
		line := AppendEvent(nil, &st, EncodeBody(nil, &e, "k1", "hash"))
		if !sameAsSlow(t, &d, line[:len(line)-1]) {
			t.Errorf("%s is not read by hand", line)
		}
	}
}

func FuzzDecodePlain(f *testing.F) {
	for i := range members {
		f.Add(fmt.Sprintf(`{%s,"kind":"message","data":%s`, members[i], datas[i%len(datas)]))
	}
	var d Decoder
	f.Fuzz(func(t *testing.T, begin string) {
		line := AppendSuffix([]byte(begin), 0, 7)
		sameAsSlow(t, &d, line[:len(line)-1])
	})
}

// BenchmarkDecode compares the two on a line of 1 KiB.
func BenchmarkDecode(b *testing.B) {
	e := hansard.Event{Kind: "message", Role: "assistant", ID: "m-1", Data: fmt.Appendf(nil, `{"type":"text","text":%q}`, strings.Repeat("The quick brown fox. ", 45))}
	line := AppendEvent(nil, &Stamp{Seq: 7, Time: "2026-01-02T03:04:06.000000Z", MetaAt: 70}, EncodeBody(nil, &e, "k1", "hash"))
	line = line[:len(line)-1]
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		var d Decoder
		for b.Loop() {
			if !d.plain(line) {
				b.Fatal("not read")
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := slowly(line); err != nil {
				b.Fatal(err)
			}
		}
	})
}
