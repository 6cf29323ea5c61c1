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

// BenchmarkIDs appends with ids and without, in turns on the same store, and reports how much
// more time and CPU the ids take: the median of the rounds, and the total of all of them. They
// differ: the total has checkpoints and runs of names in it, which come every few rounds and
// which, but for the runs, appends without ids pay for as well.
//
// On two cores an event with an id in a batch of its own takes 1 to 9 % more time and 3 to 13 %
// more CPU; one in a batch of ten, which is cheaper to begin with, 8 to 12 % more time in all,
// 10 to 25 % in the median round, and 14 to 20 % more CPU. Of that CPU, a third writes runs, in
// the background, a quarter looks into filters and fills them, and the rest is in the commit.
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
			var all, walls [2]time.Duration
			var syncs [2]int64
			was := s.measures.syncs.Load()
			synced := func() (n int64) { now := s.measures.syncs.Load(); n, was = now-was, now; return n }
			// In turns, and each as often the first: what a round leaves to be done after it,
			// such as a checkpoint, is paid for by the next one.
			first := true
			for b.Loop() {
				var took, cpu [2]time.Duration
				for _, ids := range []bool{first, !first} {
					i := 1
					if ids {
						i = 0
					}
					took[i], cpu[i] = round(ids)
					syncs[i] += synced()
					all[i] += cpu[i]
					walls[i] += took[i]
				}
				first = !first
				ratios, used = append(ratios, float64(took[0])/float64(took[1])), append(used, float64(cpu[0])/float64(cpu[1]))
			}
			slices.Sort(ratios)
			slices.Sort(used)
			b.ReportMetric(ratios[len(ratios)/2], "with/without")
			b.ReportMetric(used[len(used)/2], "cpu-with/without")
			b.ReportMetric(float64(walls[0])/float64(walls[1]), "with/without-in-all")
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
