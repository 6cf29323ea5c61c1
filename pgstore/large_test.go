package pgstore_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
)

// peak is the largest heap while f ran.
func peak(f func(sample func())) uint64 {
	var most uint64
	sample := func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
	}
	runtime.GC()
	f(sample)
	return most
}

// TestReadInPages: a session is read a page at a time, however long it is and however large its
// events are.
func TestReadInPages(t *testing.T) {
	s := open(t, pgtest.Shared(t).Schema(t))
	defer s.Close()
	ctx := t.Context()
	// Imported: a million appends would test something else.
	total := scale(30_000)
	made := time.Now().UTC().Truncate(time.Microsecond)
	origin := hansard.Origin{ID: "long", Created: made}
	data := fmt.Appendf(nil, `{"text":"%s"}`, bytes.Repeat([]byte("x"), 1000))
	for done := 0; done < total; {
		p := hansard.Part{Origin: origin}
		for range 5000 {
			done++
			p.Events = append(p.Events, hansard.Event{Seq: hansard.Seq(done), Time: made, Kind: "message", Data: data})
		}
		if err := s.Import(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	most := peak(func(sample func()) {
		for e, err := range s.Read(ctx, "long", hansard.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			if seen++; e.Seq != hansard.Seq(seen) {
				t.Fatalf("seq %d at place %d", e.Seq, seen)
			}
			if seen%1000 == 0 {
				runtime.GC() // only live memory counts
				sample()
			}
		}
	})
	if seen != total {
		t.Errorf("%d events, want %d", seen, total)
	}
	t.Logf("%d events of %d MB were read with at most %d MB of memory", seen, total*len(data)>>20, most>>20)
	if limit := uint64(32 << 20); most > limit {
		t.Errorf("reading %d MB took %d MB of memory", total*len(data)>>20, most>>20)
	}
}

// TestLarge: events of 8 MB, and batches of 1,000, are stored and read unchanged, and memory use
// does not grow with their number.
func TestLarge(t *testing.T) {
	s := open(t, pgtest.Shared(t).Schema(t))
	defer s.Close()
	ctx := t.Context()
	var b hansard.Batch
	for i := range 1000 {
		b.Events = append(b.Events, hansard.Event{Data: fmt.Appendf(nil, `{"i":%d}`, i)})
	}
	b.Create = true
	if r, err := s.Append(ctx, "s", b); err != nil || r.Last != 1000 {
		t.Fatalf("%+v, %v", r, err)
	}
	// Incompressible, and with everything that JSON allows in a string.
	large := []byte(`"`)
	for i := 0; len(large) < 8<<20; i++ {
		large = fmt.Appendf(large, `%x é\u0000\n`, i*2654435761)
	}
	large = append(large, '"')
	const many = 12
	most := peak(func(sample func()) {
		for i := range many {
			if r, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: large}}}); err != nil || r.Last != hansard.Seq(1001+i) {
				t.Fatalf("%+v, %v", r, err)
			}
			runtime.GC() // only live memory counts
			sample()
		}
		n := 0
		for e, err := range s.Read(ctx, "s", hansard.Range{After: 999}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n > 1 && !bytes.Equal(e.Data, large) {
				t.Errorf("seq %d is not what was stored", e.Seq)
			}
			runtime.GC()
			sample()
		}
		if n != many+1 {
			t.Errorf("%d events, want %d", n, many+1)
		}
	})
	t.Logf("%d events of 8 MB with at most %d MB of memory", many, most>>20)
	if limit := uint64(56 << 20); most > limit {
		t.Errorf("%d MB were in use for %d events of 8 MB", most>>20, many)
	}
}
