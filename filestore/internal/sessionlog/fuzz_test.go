package sessionlog

import (
	"bytes"
	"runtime/debug"
	"strings"
	"testing"

	"hansard"
	"hansard/engine"
)

// The fuzz targets run on their seeds in every go test; go test -fuzz tries more.

// FuzzLine: the two decoders agree on every line, and decoding and encoding a line again
// does not change it.
func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"seq":1,"time":"2026-01-02T03:04:05.678901Z","b":0,"kind":"message","data":1`), uint32(0))
	f.Add([]byte(`{"seq":18446744073709551615,"time":"2026-01-02T03:04:05.678901Z","b":9999,"key":"k","hash":"h","data":{}`), uint32(7))
	f.Add([]byte(`{"hansard":2,"uid":"0123456789abcdef","id":"a","created":"2026-01-02T03:04:05.678901Z","b":0`), uint32(0))
	f.Add([]byte(`{"seq":2,"time":"2026-01-02T03:04:05.678901Z","b":0`+Tombstone), uint32(9))
	f.Add([]byte(`{"seq":3,"time":"2026-01-02T03:04:05.678901Z","b":1,"kind":"x","data":",\"key\":\" ,\"deleted\":true"`), uint32(9))
	f.Add([]byte(`{"seq":03,"b":1,"b":2,"B":3`), uint32(1))
	f.Add([]byte(`{"seq":1,"time":"2026-01-02T03:04:05.678901Z","b":0,"Deleted":true`), uint32(1))
	for _, w := range []string{"", "{", "\x00\xff", `{"seq":`} {
		f.Add([]byte(w), uint32(0))
	}
	f.Fuzz(func(t *testing.T, body []byte, prev uint32) {
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		_, _ = Decode(body) // unframed: it only must not panic
		_, _ = new(Decoder).Head(body)
		if bytes.IndexByte(body, '\n') >= 0 {
			return
		}
		b := AppendSuffix(bytes.Clone(body), 0, prev)
		line := b[:len(b)-1]
		full, err := Decode(line)
		head, headErr := new(Decoder).Head(line)
		if err != nil {
			return // Head does not look at the data if the checksum is right
		}
		if headErr != nil {
			t.Fatalf("%q: Decode takes it, Head says %v", line, headErr)
		}
		if head.Seq != full.Seq || head.Left != full.Left || head.Prev != full.Prev || head.CRC != full.CRC {
			t.Fatalf("%q: Decode %+v, Head %+v", line, full, head)
		}
		if full.Prev != prev || full.CRC != LineCRC(b) {
			t.Fatalf("%q: checksums %x %x", line, full.Prev, full.CRC)
		}
		again(t, full)
	})
}

// again encodes a decoded event again, if a store would accept it.
func again(t *testing.T, l *Line) {
	e := l.Event()
	b := hansard.Batch{Events: []hansard.Event{{Kind: e.Kind, Role: e.Role, Author: e.Author, Inbox: e.Inbox, Data: e.Data}}, Patch: e.Patch, Key: l.Key}
	if engine.CheckBatch(&b) != nil {
		return
	}
	events := engine.Normalize(&b)
	line := AppendEvent(nil, &Stamp{Seq: l.Seq, Time: "2026-01-02T03:04:05.678901Z", Left: l.Left}, EncodeBody(nil, &events[0], l.Key, l.Hash))
	if bytes.IndexByte(line, '\n') != len(line)-1 {
		t.Fatalf("%q is more than one line", line)
	}
	second, err := Decode(line[:len(line)-1])
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	g := second.Event()
	if g.Kind != events[0].Kind || g.Role != e.Role || g.Author != e.Author || g.Inbox != e.Inbox || !bytes.Equal(g.Data, e.Data) || second.Key != l.Key {
		t.Fatalf("%+v became %+v", e, g)
	}
}

// FuzzName: ids and file names map to each other, one to one.
func FuzzName(f *testing.F) {
	for _, s := range []string{"a", "Demo", "con", "a:b", "=con", "demo=g0", "../x", "A\x00", "com1.txt", strings.Repeat("Z", 128), "a=", ".", "x~+@:-_."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if hansard.CheckID(hansard.SessionID(s)) == nil {
			checkName(t, hansard.SessionID(s))
		}
		if id, ok := DecodeName(s); ok && EncodeName(id) != s {
			t.Fatalf("name %q stands for %q, whose name is %q", s, id, EncodeName(id))
		}
	})
}
