package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime/debug"
	"strings"
	"testing"

	"hansard"
)

// The fuzz targets run on their seeds in every go test; go test -fuzz goes on.

// noPanic makes a panic a failure of one input instead of the end of all tests.
func noPanic(t *testing.T) {
	if r := recover(); r != nil {
		t.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// FuzzLine: the two decoders agree on every line, and what is decoded and
// encoded again is the same.
func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"seq":1,"time":"2026-01-02T03:04:05.678901Z","b":0,"kind":"message","data":1`), uint32(0))
	f.Add([]byte(`{"seq":18446744073709551615,"time":"2026-01-02T03:04:05.678901Z","b":9999,"key":"k","hash":"h","data":{}`), uint32(7))
	f.Add([]byte(`{"hansard":1,"uid":"0123456789abcdef","id":"a","created":"2026-01-02T03:04:05.678901Z","b":0`), uint32(0))
	f.Add([]byte(`{"seq":2,"time":"2026-01-02T03:04:05.678901Z","b":0`+tombstone), uint32(9))
	f.Add([]byte(`{"seq":3,"time":"2026-01-02T03:04:05.678901Z","b":1,"kind":"x","data":",\"key\":\" ,\"deleted\":true"`), uint32(9))
	f.Add([]byte(`{"seq":03,"b":1,"b":2,"B":3`), uint32(1))
	f.Add([]byte(`{"seq":1,"time":"2026-01-02T03:04:05.678901Z","b":0,"Deleted":true`), uint32(1))
	for _, w := range []string{"", "{", "\x00\xff", `{"seq":`} {
		f.Add([]byte(w), uint32(0))
	}
	f.Fuzz(func(t *testing.T, body []byte, prev uint32) {
		defer noPanic(t)
		_, _ = decodeLine(body) // as it is: nothing but no panic
		_, _ = quickLine(body)
		if bytes.IndexByte(body, '\n') >= 0 {
			return
		}
		b := appendSuffix(bytes.Clone(body), 0, prev)
		line := b[:len(b)-1]
		full, err := decodeLine(line)
		quick, quickErr := quickLine(line)
		if err != nil {
			return // quickLine does not look at all of a line whose checksum is right
		}
		if quickErr != nil {
			t.Fatalf("%q: decodeLine takes it, quickLine says %v", line, quickErr)
		}
		if quick.Seq != full.Seq || quick.Left != full.Left || quick.prev != full.prev || quick.crc != full.crc {
			t.Fatalf("%q: decodeLine %+v, quickLine %+v", line, full, quick)
		}
		if full.prev != prev || full.crc != lineCRC(b) {
			t.Fatalf("%q: checksums %x %x", line, full.prev, full.crc)
		}
		again(t, full)
	})
}

// again encodes a decoded event once more, if it is one a store accepts.
func again(t *testing.T, l *line) {
	e := l.event()
	b := hansard.Batch{Events: []hansard.Event{{Kind: e.Kind, Role: e.Role, Author: e.Author, Inbox: e.Inbox, Data: e.Data}}, Patch: e.Patch, Key: l.Key}
	if hansard.CheckBatch(&b) != nil {
		return
	}
	events := hansard.Normalize(&b)
	line := appendEvent(nil, &stamp{seq: l.Seq, time: "2026-01-02T03:04:05.678901Z", left: l.Left}, encodeBody(nil, &events[0], l.Key, l.Hash))
	if bytes.IndexByte(line, '\n') != len(line)-1 {
		t.Fatalf("%q is more than one line", line)
	}
	second, err := decodeLine(line[:len(line)-1])
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	g := second.event()
	if g.Kind != events[0].Kind || g.Role != e.Role || g.Author != e.Author || g.Inbox != e.Inbox || !bytes.Equal(g.Data, e.Data) || second.Key != l.Key {
		t.Fatalf("%+v became %+v", e, g)
	}
}

// FuzzLog: a log of any bytes is read without panic or hang; what it gives is a
// sequence without gaps; nothing about it hurts another session; and a log that
// is not damaged takes an append.
func FuzzLog(f *testing.F) {
	sm := makeSample(f, 5)
	w := sm.logs["small"]
	for _, log := range [][]byte{nil, w.log, w.log[:len(w.log)-7], append(bytes.Clone(w.log), 0, 0, 0), sm.logs["other"].log, []byte("{}\n"), []byte("\n\n\n"),
		[]byte(strings.Repeat("{", 20_000)), bytes.Replace(w.log, []byte(`"b":1`), []byte(`"b":2`), 1)} {
		f.Add(log, false)
		f.Add(log, true)
	}
	f.Fuzz(func(t *testing.T, log []byte, fix bool) {
		defer noPanic(t)
		if fix {
			log = rechained(log)
		}
		d := sm.disk.Clone()
		if err := putLog(d, w.id, log); err != nil {
			t.Fatal(err)
		}
		s := openSim(t, d.Process("reader"), 1)
		ctx := context.Background()
		n := hansard.Seq(0)
		var end error
		for e, err := range s.Read(ctx, w.id, hansard.Range{}) {
			if end = err; err != nil {
				break
			}
			if n++; e.Seq != n {
				t.Fatalf("seq %d after %d", e.Seq, n-1)
			}
		}
		for _, r := range []hansard.Range{{Last: 2}, {After: 1, Limit: 1}, {FromSummary: true}, {Last: 1, Kinds: []string{"tool_call"}}} {
			for range s.Read(ctx, w.id, r) {
			}
		}
		_, _ = s.lastSeq(ctx, w.id) // what Wait looks at
		info, err := s.Stat(ctx, w.id)
		if err == nil && end == nil && info.LastSeq != n && info.Damage == nil {
			t.Fatalf("read gives %d events, stat says %d", n, info.LastSeq)
		}
		if _, err := listed(s, hansard.Query{}); err != nil {
			t.Fatal(err)
		}
		if _, err := findings(s, ""); err != nil {
			t.Fatal(err)
		}
		_, err = s.Append(ctx, w.id, hansard.Batch{Events: []hansard.Event{text("x")}, Key: "k"})
		if end == nil && err != nil && info.Damage == nil {
			t.Fatalf("read and stat find nothing wrong, append says %v", err)
		}
		if errors.Is(end, hansard.ErrDamaged) {
			if err == nil {
				t.Fatalf("a damaged log (%v) was written to", end)
			}
			if _, err := s.Repair(ctx, w.id); err != nil {
				t.Fatalf("repair: %v", err)
			}
			if err := wantSound(s, w.id); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Append(ctx, "other", hansard.Batch{Events: []hansard.Event{text("x")}}); err != nil {
			t.Fatalf("another session: %v", err)
		}
	})
}

// rechained gives every line the checksums it should have, so that what comes
// after them is reached too.
func rechained(log []byte) []byte {
	var out []byte
	prev := uint32(0)
	for _, l := range linesOf(append(bytes.Clone(log), '\n')) {
		l = bytes.TrimSuffix(l, []byte("\n"))
		if len(l) <= suffixWidth {
			out = append(append(out, l...), '\n')
			continue
		}
		b := appendSuffix(bytes.Clone(l[:len(l)-suffixWidth]), 0, prev)
		prev = lineCRC(b)
		out = append(out, b...)
	}
	return out
}

// FuzzJournal: whatever is in the journal, opening ends, with an error or
// without, and what the logs had is not changed.
func FuzzJournal(f *testing.F) {
	j := killed(f, 9, 6)
	ring, _ := j.disk.CacheBytes(journalName)
	f.Add(ring[:int(j.end)], false)
	f.Add(ring[:int(j.end)], true)
	f.Add(ring[:100], true)
	f.Add([]byte{}, false)
	f.Add(bytes.Repeat([]byte{0xc7, 'H', 'J', 'E'}, 3000), true)
	huge := bytes.Clone(ring[:int(j.end)])
	binary.LittleEndian.PutUint64(huge[ringAt+8+8*9:], ^uint64(0)-50) // an entry of almost 2^64 bytes
	f.Add(huge, true)
	f.Fuzz(func(t *testing.T, b []byte, fix bool) {
		defer noPanic(t)
		file := make([]byte, len(ring))
		copy(file, b)
		if fix {
			resum(file)
		}
		d := j.disk.Clone()
		logs := map[string][]byte{}
		for _, name := range d.Names() {
			if strings.HasPrefix(name, sessionsDir+"/") {
				logs[name], _ = d.CacheBytes(name)
			}
		}
		putFile(t, d, journalName, file)
		s, err := openOn(d.Process("next"), 1, simRing)
		if err == nil {
			_, err = s.Append(context.Background(), "s0", hansard.Batch{Events: []hansard.Event{text("x")}})
		}
		_ = err // any: the bytes are
		for name, log := range logs {
			if now, _ := d.CacheBytes(name); !bytes.HasPrefix(now, log) {
				t.Fatalf("%s was changed", name)
			}
		}
		if s != nil && err == nil {
			if err := j.lost(s, j.all()); err != nil && !errors.Is(err, hansard.ErrDamaged) && !strings.Contains(err.Error(), "event") {
				t.Fatal(err)
			}
		}
	})
}

// resum gives slots and entries the checksums they should have.
func resum(file []byte) {
	le := binary.LittleEndian
	for _, at := range []int{0, slotBytes} {
		if s := file[at:]; bytes.HasPrefix(s, slotMagic[:]) {
			le.PutUint32(s[slotUsed-4:], checksum(s[:slotUsed-4]))
		}
	}
	for at := ringAt; at+entryHeader <= len(file); at += entryAlign {
		h := file[at:]
		if !bytes.HasPrefix(h, entryMagic[:]) {
			continue
		}
		if n := le.Uint64(h[8+8*10:]); n < uint64(len(h)-entryHeader) && h[106] == kindData {
			le.PutUint32(h[112:], checksum(h[entryHeader:entryHeader+n]))
		}
		le.PutUint32(h[4:], checksum(h[8:entryHeader]))
	}
}

// FuzzName: ids and file names lead to each other and nowhere else.
func FuzzName(f *testing.F) {
	for _, s := range []string{"a", "Demo", "con", "a:b", "=con", "demo=g0", "../x", "A\x00", "com1.txt", strings.Repeat("Z", 128), "a=", ".", "x~+@:-_."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if hansard.CheckID(hansard.SessionID(s)) == nil {
			checkName(t, hansard.SessionID(s))
		}
		if id, ok := decodeName(s); ok && encodeName(id) != s {
			t.Fatalf("name %q stands for %q, whose name is %q", s, id, encodeName(id))
		}
	})
}
