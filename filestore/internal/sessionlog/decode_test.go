package sessionlog

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"hansard"
)

// members are the building blocks of test lines: as the engine writes them, nearly so, and
// invalid ones.
var members = []string{`"seq":7`, `"seq":0`, `"seq":07`, `"seq":-7`, `"seq":7.0`, `"seq":1e3`, `"seq":"7"`, `"seq":18446744073709551615`, `"seq":9999999999999999`, `"seq": 7`, `"Seq":8`, `"seq":null`,
	`"time":"2026-01-02T03:04:06.000000Z"`, `"time":"2026-02-29T03:04:06.000000Z"`, `"time":"2024-02-29T23:59:59.999999Z"`, `"time":"2026-13-02T03:04:06.000000Z"`, `"time":"2026-01-02T24:04:06.000000Z"`,
	`"time":"2026-01-02T03:04:60.000000Z"`, `"time":"2026-01-02T03:04:06.000000+"`, `"time":"2026-01-02t03:04:06.000000Z"`, `"time":"2026-01-02T03:04:06Z"`, `"time":"0000-00-00T00:00:00.000000Z"`, `"time":null`,
	`"b":0`, `"b":3`, `"b":-1`, `"b":99999999`, `"b":9999999999999999`, `"turn":"7-9f86d081884c7d65"`, `"turn":""`, `"meta":812`, `"meta":-1`, `"turned":455`, `"kind":"message"`, `"kind":"other"`, `"kind":"k\u0041"`, `"kind":"日本"`,
	"\"kind\":\"\xff\xfe\"", `"kind":7`, `"KIND":"upper"`, `"k\u0069nd":"escaped"`, `"role":"user"`, `"role":"user","role":"tool"`, `"author":"a\"b"`, `"author":"Ada"`, `"by":"ci"`, `"id":"m-1"`, `"id":""`,
	`"at":"2026-01-02T03:04:06.123456Z"`, `"at":"2026-01-02T03:04:06.1Z"`, `"inbox":true`, `"inbox":false`, `"key":"k1","hash":"h"`, `"deleted":true`, `"patch":{"title":"x"}`, `"snap":{"title":"y"}`, `"unknown":[1,{"data":2}]`,
	`"attachments":[{"digest":"sha256:x","size":3}]`, `"raw":"\"x\""`, `"uid":"00000000000000aa"`, `"uid":"a\u0041"`, `"hansard":2`, `"hansard":0`, `"hansard":-2`,
	`"created":"2026-01-02T03:04:06.000000Z"`, `"created":"2026-01-02"`, `"own":812`, `"own":1.5`, `"was":"00000000000000bb"`, `"fill":"000"`, `"fill":7`, `"fill":"\q"`, `"parent":{"session":"s"}`, ` "kind":"space"`, ``}

var datas = []string{`"hi"`, `null`, `{"text":"a, \"data\":1"}`, `[1,2]`, ` "space"`, `"space" `, `{`, `1 2`, `"x","kind":"later"`, `1e5`, `true`, "\"\xff\"", ``, `{"deep":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`}

// slowly is Decode by encoding/json alone.
func slowly(b []byte) (*Line, error) {
	l := &Line{}
	err := json.Unmarshal(b, l)
	return l, err
}

// sameAsSlow reports whether d parsed a line by hand, and fails if the result differs from
// encoding/json's.
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

// sameHead fails if d and DecodeHead read different heads from a line.
func sameHead(t *testing.T, d *Decoder, b []byte) {
	t.Helper()
	want, wantErr := DecodeHead(b)
	got, err := d.Head(b)
	if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("the head of %q is read as\n%+v, %v\nwant\n%+v, %v", b, got, err, want, wantErr)
	}
}

// TestHeadLeavesData: a head is read without looking at the data, which is not JSON here,
// but the checksum is still verified.
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

// TestDecodePlain: whatever a line is made of, parsing by hand gives the same as
// encoding/json, and the lines that the engine writes are parsed by hand.
func TestDecodePlain(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	quick := 0
	var d Decoder // one for all: nothing it remembers from one line may show up in the next
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
	for depth := 9_998; depth <= 10_001; depth++ { // the line itself is one level
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
	for _, h := range []Head{{ID: "s", UID: 7}, {ID: "a fork", UID: 1 << 63, Left: 3, Own: 455, Was: 9}} {
		h.Created = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		line := AppendHead(nil, &h)
		if !sameAsSlow(t, &d, line[:len(line)-1]) {
			t.Errorf("%s is not read by hand", line)
		}
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

// carefully is Decode by encoding/json alone, with all of its checks.
func carefully(b []byte) (*Line, error) {
	prev, crc, err := CheckFrame(b)
	if err != nil {
		return nil, err
	}
	d := Decoder{}
	if err := json.Unmarshal(b, &d.line); err != nil {
		return nil, err
	}
	return d.checked(prev, crc, len(b))
}

// sameAsCareful fails if d, whatever it has read before, decodes a line differently from
// encoding/json, or its head differently from DecodeHead.
func sameAsCareful(t *testing.T, d *Decoder, b []byte) {
	t.Helper()
	want, wantErr := carefully(b)
	got, err := d.Decode(b)
	if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("%q is read as\n%+v, %v\nwant\n%+v, %v", b, got, err, want, wantErr)
	}
	sameHead(t, d, b)
}

// TestDecodeAfterAnother: nothing a decoder keeps from one line shows up in the next. Lines
// are combined from a few beginnings, middles and data, so that many have the same middle as
// the line before: with other stamps, with none, with one of its members twice, and with
// invalid data.
func TestDecodeAfterAnother(t *testing.T) {
	stamps := []string{`"seq":7,"time":"2026-01-02T03:04:06.000000Z","b":0`, `"seq":8,"time":"2026-01-02T03:04:07.000001Z","b":3`, `"seq":8,"time":"2026-01-02T03:05:07.000001Z","b":0`,
		`"seq":0,"time":"2026-01-02T03:04:06.000000Z","b":0`, `"seq":07,"time":"2026-01-02T03:04:06.000000Z","b":0`, `"seq":9,"time":"2026-01-02T03:04:66.000000Z","b":0`, `"seq":9,"time":"2026-01-02T03:04:06.000000Z","b":-1`,
		`"seq":9,"time":"2026-01-02T03:04:06.000000Z"`, `"b":1,"seq":10,"time":"2026-01-02T03:04:06.000000Z"`, `"seq":11`, `"seq":12,"time":"2026-01-02T03:04:06.000000Z","b":99999999`}
	middles := []string{`"kind":"message"`, `"kind":"message","role":"user"`, `"kind":"message","role":"user","id":"m-1"`, `"kind":"message","role":"user","id":"m-2"`, `"kind":"message","role":"user","id":"m-2","key":"k"`, `"kind":"message","role":"user","id":""`,
		`"kind":"message","role":"user","id":"m-\u0032"`, "\"kind\":\"message\",\"role\":\"user\",\"id\":\"\xff\"", `"kind":"message","role":"user","id":7`, `"kind":"message","role":"user","id":"m-1","id":"m-2"`, `"id":"m-3","kind":"message","role":"user","id":"m-2"`,
		`"kind":"message","role":"user","seq":5`, `"kind":"message","b":2,"role":"user"`,
		`"time":"2020-01-02T03:04:06.000000Z","kind":"x"`, `"turn":"7-9f86d081884c7d65","meta":812,"turned":455,"kind":"tool_call","role":"assistant","author":"Ada","by":"ci","at":"2026-01-02T03:04:06.123456Z","key":"k","hash":"h"`,
		`"kind":"message","inbox":true`, `"kind":"message","patch":{"title":"x"}`, `"kind":"message","deleted":true`, `"kind":"k\u0041"`, `"kind":"message","meta":-1`, ``}
	datas := append([]string{`"yes"`, `"no"`, `{"a":[1,2]}`}, datas...)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var d Decoder
	again := 0
	stamp, middle, name := 0, 0, "data"
	for range 200_000 {
		if rng.IntN(2) == 0 {
			stamp = rng.IntN(len(stamps))
		}
		if rng.IntN(3) == 0 {
			middle, name = rng.IntN(len(middles)), []string{"data", "data", "data", "raw"}[rng.IntN(4)]
		}
		parts := []string{stamps[stamp], middles[middle], `"` + name + `":` + datas[rng.IntN(len(datas))]}
		if middles[middle] == "" {
			parts = []string{parts[0], parts[2]}
		}
		line := AppendSuffix([]byte("{"+strings.Join(parts, ",")), 0, rng.Uint32())
		before := string(d.middle)
		sameAsCareful(t, &d, line[:len(line)-1])
		if before != "" && string(d.middle) == before {
			again++
		}
	}
	if again < 10_000 {
		t.Errorf("%d lines of 200,000 had the middle of the one before", again)
	}
}

// TestDecodeDamaged: a decoder that has just read a line decodes a damaged copy of it as
// encoding/json does, whichever byte was changed, lost or doubled, if the checksum was fixed
// up; if it was not, it refuses the copy. Then it reads the original as before.
func TestDecodeDamaged(t *testing.T) {
	e := hansard.Event{Kind: "message", Role: "user", ID: "m-1", Data: []byte(`{"text":"a \"b\" ü","n":[1,2.5e3,null]}`)}
	line := AppendEvent(nil, &Stamp{Seq: 17, Time: "2026-01-02T03:04:06.000000Z", Left: 2, MetaAt: 70, Prev: 0xdeadbeef}, EncodeBody(nil, &e, "", ""))
	line = line[:len(line)-1]
	body := line[:len(line)-SuffixWidth]
	var d Decoder
	try := func(damaged []byte) {
		t.Helper()
		sameAsCareful(t, &d, line)
		whole := AppendSuffix(append([]byte(nil), damaged...), 0, 0xdeadbeef)
		sameAsCareful(t, &d, whole[:len(whole)-1])
		sameAsCareful(t, &d, line)
		if l, err := d.Decode(append(append([]byte(nil), damaged...), line[len(body):]...)); err == nil {
			t.Errorf("%q with the checksum of %q is read as %+v", damaged, body, l)
		}
	}
	for at := range body {
		for _, c := range []byte("\x00\x1f \"\\,:0179aZ{}[]\x7f\x80\xff") {
			if c != body[at] {
				try(append(append(append([]byte(nil), body[:at]...), c), body[at+1:]...))
			}
		}
		for bit := range 8 {
			try(append(append(append([]byte(nil), body[:at]...), body[at]^1<<bit), body[at+1:]...))
		}
		try(body[:at])                                                 // cut
		try(append(append([]byte(nil), body[:at]...), body[at+1:]...)) // lost
		try(append(append([]byte(nil), body[:at+1]...), body[at:]...)) // doubled
		if at > 0 {
			try(append(append([]byte(nil), body[:at]...), body...)) // beginning repeated
		}
	}
	for at := len(body); at < len(line); at++ { // the checksums themselves
		for bit := range 8 {
			damaged := append([]byte(nil), line...)
			damaged[at] ^= 1 << bit
			if l, err := d.Decode(damaged); err == nil {
				t.Errorf("%q is read as %+v", damaged, l)
			}
		}
	}
}

// TestParseHex: parsing eight digits at once gives the same as one by one, and anything
// else is refused.
func TestParseHex(t *testing.T) {
	check := func(b []byte) {
		t.Helper()
		v, err := strconv.ParseUint(string(b), 16, 32)
		want := err == nil && string(appendHex(nil, uint32(v))) == string(b)
		if got, ok := parseHex(b); ok != want || ok && got != uint32(v) {
			t.Errorf("%q is %08x, %v", b, got, ok)
		}
	}
	for at := range 8 {
		for c := range 256 {
			for _, others := range []string{"00000000", "ffffffff", "9a0f9a0f"} {
				b := []byte(others)
				b[at] = byte(c)
				check(b)
				b[(at+1)%8] = byte(c)
				check(b)
			}
		}
	}
	for range 100_000 {
		check(appendHex(nil, rand.Uint32()))
	}
	for _, short := range []string{"", "1234567", "123456789"} {
		if v, ok := parseHex([]byte(short)); ok {
			t.Errorf("%q is %08x", short, v)
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

// BenchmarkDecode compares the two decoders on a line of 1 KiB.
func BenchmarkDecode(b *testing.B) {
	e := hansard.Event{Kind: "message", Role: "assistant", ID: "m-1", Data: fmt.Appendf(nil, `{"type":"text","text":%q}`, strings.Repeat("The quick brown fox. ", 45))}
	line := AppendEvent(nil, &Stamp{Seq: 7, Time: "2026-01-02T03:04:06.000000Z", MetaAt: 70}, EncodeBody(nil, &e, "k1", "hash"))
	line = line[:len(line)-1]
	b.Run("as before", func(b *testing.B) {
		b.ReportAllocs()
		var d Decoder
		for b.Loop() {
			if !d.plain(line) {
				b.Fatal("not read")
			}
		}
	})
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		var d Decoder
		for b.Loop() {
			d.middle = d.middle[:0]
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
