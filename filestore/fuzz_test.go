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
	"hansard/filestore/internal/crc32c"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
)

// Every go test runs the fuzz targets on their seeds; go test -fuzz goes further.

// noPanic turns a panic into a failure of one input instead of the end of all tests.
func noPanic(t *testing.T) {
	if r := recover(); r != nil {
		t.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// FuzzLog: a log of any bytes is read without a panic or a hang; it yields a sequence without
// gaps; it harms no other session; and if it is not damaged it takes an append.
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
		for _, r := range []hansard.Range{{Last: 2}, {After: 1, Limit: 1}, {FromSummary: true}, {Last: 1, Kinds: []string{"tool_call"}},
			{Reverse: true}, {Reverse: true, Before: 3, Limit: 1}, {Before: 3, FromKind: "message"}} {
			for range s.Read(ctx, w.id, r) {
			}
		}
		_, _ = s.reader.lastSeq(ctx, w.id, new(uint64)) // the part that Wait reads
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

// rechained gives every line correct checksums, so that the checks after them are reached too.
func rechained(log []byte) []byte {
	var out []byte
	prev := uint32(0)
	for _, l := range linesOf(append(bytes.Clone(log), '\n')) {
		l = bytes.TrimSuffix(l, []byte("\n"))
		if len(l) <= sessionlog.SuffixWidth {
			out = append(append(out, l...), '\n')
			continue
		}
		b := sessionlog.AppendSuffix(bytes.Clone(l[:len(l)-sessionlog.SuffixWidth]), 0, prev)
		prev = sessionlog.LineCRC(b)
		out = append(out, b...)
	}
	return out
}

// FuzzJournal: whatever the journal contains, opening returns, with or without an error, and the
// content of the logs is not changed.
func FuzzJournal(f *testing.F) {
	j := killed(f, 9, 6)
	ring, _ := j.disk.CacheBytes(journal.Name)
	f.Add(ring[:int(j.end)], false)
	f.Add(ring[:int(j.end)], true)
	f.Add(ring[:100], true)
	f.Add([]byte{}, false)
	f.Add(bytes.Repeat([]byte{0xc7, 'H', 'J', 'E'}, 3000), true)
	huge := bytes.Clone(ring[:int(j.end)])
	binary.LittleEndian.PutUint64(huge[journal.RingAt+8+8*9:], ^uint64(0)-50) // an entry of almost 2^64 bytes
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
			if strings.HasPrefix(name, sessionlog.Dir+"/") {
				logs[name], _ = d.CacheBytes(name)
			}
		}
		putFile(t, d, journal.Name, file)
		s, err := openOn(d.Process("next"), 1, simRing)
		if err == nil {
			_, err = s.Append(context.Background(), "s0", hansard.Batch{Events: []hansard.Event{text("x")}})
		}
		_ = err // any error will do: only the bytes matter
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

// resum gives slots and entries correct checksums.
func resum(file []byte) {
	le := binary.LittleEndian
	for _, at := range []int{0, journal.SlotBytes} {
		if s := file[at:]; bytes.HasPrefix(s, journal.SlotMagic[:]) {
			le.PutUint32(s[journal.SlotUsed-4:], crc32c.Sum(s[:journal.SlotUsed-4]))
		}
	}
	for at := journal.RingAt; at+journal.EntryHeader <= len(file); at += journal.EntryAlign {
		h := file[at:]
		if !bytes.HasPrefix(h, journal.EntryMagic[:]) {
			continue
		}
		if n := le.Uint64(h[8+8*10:]); n < uint64(len(h)-journal.EntryHeader) && h[106] == journal.KindData {
			le.PutUint32(h[112:], crc32c.Sum(h[journal.EntryHeader:journal.EntryHeader+n]))
		}
		le.PutUint32(h[4:], crc32c.Sum(h[8:journal.EntryHeader]))
	}
}
