package storetest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"hansard"
)

// Bench measures an engine: appends of 1 KiB from one writer and from 64, to one
// session and to a thousand, reads, and lists.
func Bench(b *testing.B, e Engine) {
	b.Run("append/1 writer", func(b *testing.B) { benchAppend(b, e, 1, 1) })
	b.Run("append/64 goroutines 1 session", func(b *testing.B) { benchAppend(b, e, 64, 1) })
	b.Run("append/64 goroutines 1000 sessions", func(b *testing.B) { benchAppend(b, e, 64, 1000) })
	b.Run("read/1000 events", func(b *testing.B) { benchRead(b, e, hansard.Range{}, 1000) })
	b.Run("read/last 50 of 1000", func(b *testing.B) { benchRead(b, e, hansard.Range{Last: 50}, 50) })
	b.Run("list/1000 sessions", func(b *testing.B) { benchList(b, e, hansard.Query{}, 1000) })
	b.Run("list/newest 20 of 1000", func(b *testing.B) { benchList(b, e, hansard.Query{Limit: 20}, 20) })
}

func kibibyte() hansard.Batch {
	return hansard.Batch{Events: []hansard.Event{{Role: "assistant", Author: "bench", Data: sized(1024)}}}
}

// openBench opens a store with this many empty sessions.
func openBench(b *testing.B, e Engine, sessions int) (hansard.Store, []hansard.SessionID) {
	b.Helper()
	s := e.Open(b)
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Errorf("Close: %v", err)
		}
	})
	var ids []hansard.SessionID
	for i := range sessions {
		id := hansard.SessionID(fmt.Sprint("s", i))
		if _, err := s.Create(b.Context(), id, hansard.Meta{Title: strings.Repeat("title ", 5)}); err != nil {
			b.Fatal(err)
		}
		ids = append(ids, id)
	}
	return s, ids
}

func benchAppend(b *testing.B, e Engine, goroutines, sessions int) {
	s, ids := openBench(b, e, sessions)
	batch := kibibyte()
	b.SetBytes(1024)
	b.ReportAllocs()
	if goroutines == 1 {
		for b.Loop() {
			if _, err := s.Append(b.Context(), ids[0], batch); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	var next atomic.Int64
	ctx := context.Background()
	b.SetParallelism(max(1, goroutines/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := ids[int(next.Add(1))%len(ids)]
			if _, err := s.Append(ctx, id, batch); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func benchRead(b *testing.B, e Engine, r hansard.Range, want int) {
	s, ids := openBench(b, e, 1)
	batch := kibibyte()
	for range 9 {
		batch.Events = append(batch.Events, batch.Events[0])
	}
	for range 100 {
		if _, err := s.Append(b.Context(), ids[0], batch); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(want) * 1024)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range s.Read(b.Context(), ids[0], r) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != want {
			b.Fatalf("%d events, want %d", n, want)
		}
	}
}

func benchList(b *testing.B, e Engine, q hansard.Query, want int) {
	s, _ := openBench(b, e, 1000)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range s.List(b.Context(), q) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != want {
			b.Fatalf("%d sessions, want %d", n, want)
		}
	}
}
