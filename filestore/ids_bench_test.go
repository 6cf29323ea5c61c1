package filestore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hansard"
)

// BenchmarkIDs appends with ids and without, taking turns on the same store, and reports
// how much longer the first takes: the median of the ratios.
func BenchmarkIDs(b *testing.B) {
	for name, batch := range map[string]int{"one event": 1, "ten events": 10} {
		b.Run(name, func(b *testing.B) {
			s, err := Open(b.TempDir(), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			body := []byte(`"` + strings.Repeat("x", 1000) + `"`)
			n := 0
			round := func(ids bool) time.Duration {
				n++
				began := time.Now()
				var work sync.WaitGroup
				for g := range 16 {
					work.Go(func() {
						id := hansard.SessionID(fmt.Sprintf("s%v-%d", ids, g))
						for i := range 100 {
							events := make([]hansard.Event, batch)
							for j := range events {
								events[j].Data = body
								if ids {
									events[j].ID = fmt.Sprintf("%d/%d/%d", n, i, j)
								}
							}
							if _, err := s.Append(b.Context(), id, hansard.Batch{Events: events, Create: true}); err != nil {
								b.Error(err)
							}
						}
					})
				}
				work.Wait()
				return time.Since(began)
			}
			round(true)
			round(false)
			var ratios []float64
			for b.Loop() {
				with := round(true)
				ratios = append(ratios, float64(with)/float64(round(false)))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "with/without")
		})
	}
}
