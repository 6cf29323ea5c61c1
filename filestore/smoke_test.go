package filestore

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hansard"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(ctx, "a", hansard.Meta{Title: "x"}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				_, err := s.Append(ctx, "a", hansard.Batch{Events: []hansard.Event{{Data: json.RawMessage(fmt.Sprintf(`"%d-%d"`, g, i))}}})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	n := 0
	for e, err := range s.Read(ctx, "a", hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if int(e.Seq) != n {
			t.Fatal(e)
		}
	}
	if n != 400 {
		t.Fatal(n)
	}
	info, err := s.Stat(ctx, "a")
	t.Log(info, err)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(dir + "/sessions/a.jsonl")
	t.Log(string(b[:500]))
}

func BenchmarkW(b *testing.B) {
	ctx := context.Background()
	data := json.RawMessage(`"` + strings.Repeat("x", 850) + `"`)
	for _, c := range []struct{ g, n int }{{1, 1}, {64, 1}, {64, 1000}} {
		b.Run(fmt.Sprintf("g%d-s%d", c.g, c.n), func(b *testing.B) {
			s, err := Open(b.TempDir(), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			for i := range c.n {
				if _, err := s.Create(ctx, hansard.SessionID(fmt.Sprintf("s%d", i)), hansard.Meta{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			start := time.Now()
			var u0, u1 syscall.Rusage
			_ = syscall.Getrusage(0, &u0)
			var wg sync.WaitGroup
			for g := range c.g {
				wg.Go(func() {
					for i := g; i < b.N; i += c.g {
						id := hansard.SessionID(fmt.Sprintf("s%d", i%c.n))
						if _, err := s.Append(ctx, id, hansard.Batch{Events: []hansard.Event{{Data: data}}}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "ops/s")
			_ = syscall.Getrusage(0, &u1)
			b.ReportMetric(float64(u1.Utime.Nano()-u0.Utime.Nano())/1e3/float64(b.N), "user-µs/op")
			b.ReportMetric(float64(u1.Stime.Nano()-u0.Stime.Nano())/1e3/float64(b.N), "sys-µs/op")
		})
	}
}
