package filestore

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/sessionlog"
)

// mixedLog is a store with a log of n events: those of 1 KiB each come after some short ones
// of another kind, with the given number of bytes in their data. Three events in four are
// batches of their own.
func mixedLog(t *testing.T, n, short, shortBytes int) *Store {
	t.Helper()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	log := sessionlog.AppendHeader(nil, "s", 5, now, 0, hansard.Meta{})
	for i := range n {
		kind, length := "note", shortBytes
		if i%(short+1) == short {
			kind, length = hansard.KindMessage, 1<<10
		}
		e := hansard.Event{Kind: kind, Data: fmt.Appendf(nil, "%q", bytes.Repeat([]byte{'a' + byte(i%26)}, length))}
		st := sessionlog.Stamp{Seq: hansard.Seq(i + 1), Time: now.Format(sessionlog.TimeLayout), Prev: sessionlog.LineCRC(log)}
		if i%8 == 5 && i+1 < n {
			st.Left = 1
		}
		log = sessionlog.AppendEvent(log, &st, sessionlog.EncodeBody(nil, &e, "", ""))
	}
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(sessionlog.Path("s"))), log, 0o600); err != nil {
		t.Fatal(err)
	}
	// Read-only: without work in the background, which takes memory too.
	s, err = Open(dir, &Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // it was only read
	return s
}

// held is how many bytes the heap has.
func held() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools are emptied by the second one
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestKeptMemory: who keeps some of the events that were read does not keep much more memory
// than they take; and what is kept stays as it is, whatever is read later.
func TestKeptMemory(t *testing.T) {
	const kib = 1 << 10
	for _, c := range []struct {
		what          string
		short, length int // see mixedLog
		r             hansard.Range
		every         int // which events are kept
		most          int64
	}{
		{"all events", 0, 0, hansard.Range{}, 1, 5000 * 1300},
		{"one of 500", 0, 0, hansard.Range{}, 500, 10 * 17 * kib},
		{"all short ones", 5000, 10, hansard.Range{}, 1, 5000 * 50},
		{"the long ones, asked for by kind", 99, 300, hansard.Range{Kinds: []string{hansard.KindMessage}}, 1, 50 * 2 * kib},
		{"a few, as asked for", 0, 0, hansard.Range{Limit: 3}, 1, 5 * kib},
		{"newest first", 0, 0, hansard.Range{Reverse: true}, 1, 5000 * 1300},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := mixedLog(t, 5000, c.short, c.length)
			read := func(keep func([]byte)) {
				i := 0
				for e, err := range s.Read(t.Context(), "s", c.r) {
					if err != nil {
						t.Fatal(err)
					}
					if i++; i%c.every == 0 {
						keep(e.Data)
					}
				}
			}
			var want []string
			read(func(data []byte) { want = append(want, string(data)) })
			kept := make([][]byte, 0, len(want))
			before := held()
			read(func(data []byte) { kept = append(kept, data) })
			if took := held() - before; took > c.most+64*kib {
				t.Errorf("%d events keep %d bytes, want %d at most", len(kept), took, c.most)
			}
			read(func([]byte) {})
			for i, data := range kept {
				if string(data) != want[i] {
					t.Fatalf("event %d of those kept is %.40q, want %.40q", i, data, want[i])
				}
			}
		})
	}
}

// TestReadDataIsOwn: data that was read can be changed, and appended to, while reading goes
// on, without any effect on what is read next.
func TestReadDataIsOwn(t *testing.T) {
	log, _ := batchLog("s", 700, 1, 40, 1, 1, 500, 3)
	s, _ := opened(t, withLogs(t, 1, map[hansard.SessionID][]byte{"s": log}), 2)
	defer s.Close()
	var want []string
	for e, err := range s.Read(t.Context(), "s", hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(e.Data))
	}
	for _, r := range []hansard.Range{{}, {Limit: 400}, {Kinds: []string{hansard.KindMessage}}, {After: 7}} {
		n := int(r.After)
		var last []byte
		for e, err := range s.Read(t.Context(), "s", r) {
			if err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			_ = append(last, bytes.Repeat([]byte{'#'}, 2000)...)
			if string(e.Data) != want[n] {
				t.Fatalf("%+v: event %d is %.40q", r, n, e.Data)
			}
			n++
			clear(e.Data)
			last = e.Data
		}
		if n < min(len(want), 400) {
			t.Errorf("%+v: %d events", r, n)
		}
	}
}
