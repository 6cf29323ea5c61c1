//go:build unix

package filestore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hansard"
)

// BenchmarkIDs appends with ids and without, alternating on the same store, and reports how much
// more time and how much more CPU the ids take: for time the median of the rounds, for CPU the
// total of all rounds, because a run of names is written only every few rounds.
//
// On two cores an event with an id in a batch of its own takes about a tenth more CPU, one in a
// batch of ten about a fifth, because it is cheaper to begin with. Hashing, the filters, the runs
// and memory each account for about a sixth of that. The rest is because callers come back a
// little later, so that groups are smaller.
func BenchmarkIDs(b *testing.B) {
	defer func(f func([]byte)) { spoil = f }(spoil)
	spoil = nil // only meant for tests
	for name, batch := range map[string]int{"one event": 1, "ten events": 10} {
		b.Run(name, func(b *testing.B) {
			s, err := Open(b.TempDir(), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			body := []byte(`"` + strings.Repeat("x", 1000) + `"`)
			n := 0
			round := func(ids bool) (time.Duration, time.Duration) {
				n++
				names := make([][]string, 16) // made before the clock runs: they are the caller's cost
				for g := range names {
					for i := range 100 * batch {
						names[g] = append(names[g], fmt.Sprintf("%d/%d/%d", n, i/batch, i%batch))
					}
				}
				began, used := time.Now(), cpuTime(b)
				var work sync.WaitGroup
				for g := range 16 {
					work.Go(func() {
						id := hansard.SessionID(fmt.Sprintf("s%v-%d", ids, g))
						for i := range 100 {
							events := make([]hansard.Event, batch)
							for j := range events {
								events[j].Data = body
								if ids {
									events[j].ID = names[g][i*batch+j]
								}
							}
							if _, err := s.Append(b.Context(), id, hansard.Batch{Events: events, Create: true}); err != nil {
								b.Error(err)
							}
						}
					})
				}
				work.Wait()
				return time.Since(began), cpuTime(b) - used
			}
			round(true)
			round(false)
			var ratios, used []float64
			var all [2]time.Duration
			var syncs [2]int64
			was := s.measures.syncs.Load()
			synced := func() (n int64) { now := s.measures.syncs.Load(); n, was = now-was, now; return n }
			for b.Loop() {
				with, withUsed := round(true)
				syncs[0] += synced()
				without, withoutUsed := round(false)
				syncs[1] += synced()
				ratios, used = append(ratios, float64(with)/float64(without)), append(used, float64(withUsed)/float64(withoutUsed))
				all[0], all[1] = all[0]+withUsed, all[1]+withoutUsed
			}
			slices.Sort(ratios)
			slices.Sort(used)
			b.ReportMetric(ratios[len(ratios)/2], "with/without")
			b.ReportMetric(used[len(used)/2], "cpu-with/without")
			b.ReportMetric(float64(all[0])/float64(all[1]), "cpu-with/without-in-all")
			b.ReportMetric(float64(syncs[0])/float64(syncs[1]), "syncs-with/without")
			b.ReportMetric(float64(syncs[1])/float64(len(ratios)), "syncs-without")
		})
	}
}

// cpuTime is the CPU time this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
