package pgstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/internal/pgtest"
)

// BenchmarkHotSession: one hot session with 64 writers, with and without combining, side by side.
func BenchmarkHotSession(b *testing.B) {
	for _, alone := range []bool{false, true} {
		b.Run(fmt.Sprintf("alone=%v", alone), func(b *testing.B) {
			s, err := Open(b.Context(), pgtest.Shared(b).Schema(b), &Options{alone: alone})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Create(b.Context(), "hot", hansard.Meta{}); err != nil {
				b.Fatal(err)
			}
			data := fmt.Appendf(nil, `{"text":"%01000d"}`, 0)
			var writers sync.WaitGroup
			left := make(chan struct{}, b.N)
			for range b.N {
				left <- struct{}{}
			}
			close(left)
			b.ResetTimer()
			for range 64 {
				writers.Go(func() {
					for range left {
						if _, err := s.Append(context.Background(), "hot", hansard.Batch{Events: []hansard.Event{{Data: data}}}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			writers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}

// BenchmarkListMany: a page of 50 out of 100,000 sessions, with and without a label.
func BenchmarkListMany(b *testing.B) {
	s, err := Open(b.Context(), pgtest.Shared(b).Schema(b), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	fill(b, s, 100_000)
	for name, labels := range map[string]map[string]string{
		"all":          nil,
		"every second": {"half": "0"},
		"one in 1000":  {"rare": "7"},
		"two labels":   {"half": "0", "tenth": "4"},
		"one is rare":  {"half": "1", "rare": "7"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				n := 0
				for _, err := range s.List(b.Context(), hansard.Query{Limit: 50, Labels: labels}) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != 50 {
					b.Fatalf("%d sessions on the page", n)
				}
			}
		})
	}
}

// fill makes sessions that were last used within a few days, directly in the table.
func fill(b *testing.B, s *Store, n int) {
	b.Helper()
	now := time.Now()
	var heads, metas, listing [][]any
	for i := range n {
		id := fmt.Sprintf("session-%06d", i)
		at := now.Add(-time.Duration(i) * 5 * time.Second)
		labels := map[string]string{"half": fmt.Sprint(i % 2), "tenth": fmt.Sprint(i % 10), "rare": fmt.Sprint(i % 1000)}
		title, text, state := metaRow(hansard.Meta{Title: "A session like others", Labels: labels})
		heads = append(heads, []any{id, int64(0), int64(0), at, at, newMark()})
		metas = append(metas, []any{id, title, text, state, "{}"})
		for _, label := range listingLabels(labels) {
			listing = append(listing, []any{id, label, at})
		}
	}
	copyIn := func(table string, columns []string, rows [][]any) {
		if _, err := s.pool.CopyFrom(b.Context(), pgx.Identifier{table}, columns, pgx.CopyFromRows(rows)); err != nil {
			b.Fatal(err)
		}
	}
	copyIn("hansard_heads", []string{"id", "last", "bytes", "created", "updated", "mark"}, heads)
	copyIn("hansard_sessions", []string{"id", "title", "labels", "state", "born"}, metas)
	copyIn("hansard_listing", []string{"id", "label", "listed"}, listing)
	if _, err := s.pool.Exec(b.Context(), "ANALYZE hansard_heads, hansard_sessions, hansard_listing"); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkManyKeys: an append with a key, and one without, to a session that already has this
// many keyed batches.
func BenchmarkManyKeys(b *testing.B) {
	for _, keys := range []int{10, 100_000, 1_000_000} {
		s, err := Open(b.Context(), pgtest.Shared(b).Schema(b), nil)
		if err != nil {
			b.Fatal(err)
		}
		conn, err := s.pool.Acquire(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		grow(b, conn.Conn(), keys, 1000)
		if _, err := conn.Exec(b.Context(), "VACUUM ANALYZE"); err != nil {
			b.Fatal(err)
		}
		conn.Release()
		n := 0
		for _, keyed := range []bool{true, false} {
			b.Run(fmt.Sprintf("%d keys/keyed=%v", keys, keyed), func(b *testing.B) {
				for b.Loop() {
					n++
					batch := hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}
					if keyed {
						batch.Key = fmt.Sprint("another-", n)
					}
					if _, err := s.Append(b.Context(), "big", batch); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		s.Close()
	}
}

// BenchmarkReadAll reads all 10,000 events of a session, compared with the simplest statement
// that reads as many bytes.
func BenchmarkReadAll(b *testing.B) {
	const events = 10_000
	server := pgtest.Shared(b)
	s, err := Open(b.Context(), server.Schema(b), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	data := fmt.Appendf(nil, `{"text":"%01000d"}`, 0)
	for range events / 1000 {
		if _, err := s.Append(b.Context(), "s", hansard.Batch{Create: true, Events: slices.Repeat([]hansard.Event{{Data: data}}, 1000)}); err != nil {
			b.Fatal(err)
		}
	}
	measure := func(b *testing.B, read func() int) {
		before, err := server.CPU()
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if n := read(); n != events {
				b.Fatalf("%d events", n)
			}
		}
		after, _ := server.CPU()
		b.ReportMetric(float64((after-before).Microseconds())/1000/float64(b.N), "server-ms/op")
	}
	b.Run("store", func(b *testing.B) {
		measure(b, func() (n int) {
			for _, err := range s.Read(b.Context(), "s", hansard.Range{}) {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			return n
		})
	})
	b.Run("plain", func(b *testing.B) {
		measure(b, func() (n int) {
			rows, err := s.pool.Query(b.Context(), "SELECT seq, data FROM hansard_events WHERE id = 's' ORDER BY seq")
			if err != nil {
				b.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var seq int64
				var data []byte
				if err := rows.Scan(&seq, &data); err != nil {
					b.Fatal(err)
				}
				n++
			}
			return n
		})
	})
}
