package filestore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
)

// BenchmarkAppend appends lines of 1 KiB, durable before they are acknowledged. The command's
// bench compares it with plain files.
func BenchmarkAppend(b *testing.B) {
	ctx := context.Background()
	data := json.RawMessage(`"` + strings.Repeat("x", 850) + `"`)
	for _, c := range []struct{ writers, sessions int }{{1, 1}, {64, 1}, {64, 1000}} {
		b.Run(fmt.Sprintf("%d writers %d sessions", c.writers, c.sessions), func(b *testing.B) {
			s, err := filestore.Open(b.TempDir(), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			id := func(i int) hansard.SessionID { return hansard.SessionID(fmt.Sprintf("s%d", i%c.sessions)) }
			for i := range c.sessions {
				if _, err := s.Create(ctx, id(i), hansard.Meta{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			begin := time.Now()
			var wg sync.WaitGroup
			for w := range c.writers {
				wg.Go(func() {
					for i := w; i < b.N; i += c.writers {
						if _, err := s.Append(ctx, id(i), hansard.Batch{Events: []hansard.Event{{Data: data}}}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "appends/s")
		})
	}
}
