//go:build unix

package search_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/search"
)

var benchEvents = flag.Int("search.events", 100_000, "events that BenchmarkSearch searches")

// BenchmarkSearch indexes a store of conversations, asks for rare, usual and common words,
// and beside that has grep -r read the same files, in one run.
func BenchmarkSearch(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	vocabulary := make([]string, 50_000)
	for i := range vocabulary {
		vocabulary[i] = word(rng)
	}
	dir := b.TempDir()
	total := fillStore(b, rng, vocabulary, dir)
	began, cpu := time.Now(), cpuTime(b)
	s, err := filestore.Open(dir, &filestore.Options{Search: search.New(cacheOf(dir), nil)})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	find(b, s, "nothing")
	indexed := float64(total) / 1e6 / time.Since(began).Seconds()
	cpu = cpuTime(b) - cpu
	file, err := os.Stat(filepath.Join(cacheOf(dir), search.FileName))
	if err != nil {
		b.Fatal(err)
	}
	var took, grep []time.Duration
	hits := 0
	for b.Loop() {
		// Of each hundred words one is among the commonest, most are rare, as people ask.
		text := vocabulary[int(float64(len(vocabulary))*rng.Float64()*rng.Float64())]
		if rng.IntN(3) == 0 {
			text += " " + vocabulary[rng.IntN(2000)]
		}
		began := time.Now()
		for _, err := range s.Search(b.Context(), hansard.SearchQuery{Text: text, Limit: 20}) {
			if err != nil {
				b.Fatal(err)
			}
			hits++
		}
		took = append(took, time.Since(began))
		if len(grep) < 3 {
			began = time.Now()
			_ = exec.Command("grep", "-rilw", strings.Fields(text)[0], filepath.Join(dir, "sessions")).Run()
			grep = append(grep, time.Since(began))
		}
	}
	slices.Sort(took)
	slices.Sort(grep)
	b.ReportMetric(indexed, "MB/s-indexed")
	b.ReportMetric(float64(cpu.Microseconds())/1e3/(float64(total)/1e6), "cpu-ms/MB")
	b.ReportMetric(float64(file.Size())/float64(total), "index/data")
	b.ReportMetric(float64(hits)/float64(len(took)), "hits")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-median")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "ms-p95")
	b.ReportMetric(float64(grep[len(grep)/2].Microseconds())/1000, "ms-grep")
	began = time.Now()
	for _, err := range s.Search(b.Context(), hansard.SearchQuery{Text: vocabulary[0], Limit: 20}) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(began).Microseconds())/1000, "ms-commonest")
}

// cpuTime is what this process has used: another one's load does not count.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// fillStore writes conversations of a thousand events and gives the bytes of their data.
func fillStore(b *testing.B, rng *rand.Rand, vocabulary []string, dir string) (total int) {
	b.Helper()
	s, err := filestore.Open(dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; n < *benchEvents; {
		batch := hansard.Batch{Create: true}
		for range min(500, *benchEvents-n) {
			var text strings.Builder
			for length := 100 + rng.IntN(1500); text.Len() < length; {
				text.WriteString(vocabulary[int(float64(len(vocabulary))*rng.Float64()*rng.Float64()*rng.Float64()*rng.Float64())])
				text.WriteByte(' ')
			}
			e := hansard.Event{Kind: "message", Role: "user", Data: hansard.Text(text.String())}
			total += len(e.Data)
			batch.Events = append(batch.Events, e)
			n++
		}
		if _, err := s.Append(b.Context(), hansard.SessionID(fmt.Sprint("s", n/1000)), batch); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return total
}
