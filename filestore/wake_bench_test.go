package filestore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
)

// How soon one process learns of what another did: these benchmarks start processes, this binary
// with wakeEnv set, and compare the times they note. The machine has one clock. Tests of
// processes that are stopped or killed (calling_unix_test.go) use the same workers.

const wakeEnv = "HANSARD_WAKE_WORKER"

// wakeWorker does the work of a process of these benchmarks and tests, and reports whether this
// is one.
func wakeWorker() bool {
	what, rest, _ := strings.Cut(os.Getenv(wakeEnv), " ")
	if what == "" {
		return false
	}
	dir, n, _ := strings.Cut(rest, " ")
	s, err := filestore.Open(dir, nil)
	if err == nil {
		switch what {
		case "follow":
			err = followWorker(s, n)
		case "turns":
			err = turnsWorker(s, n)
		case "claim":
			err = claimWorker(s, n)
		}
		_ = s.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, what, err)
		os.Exit(1)
	}
	return true
}

// followWorker prints when it received each event, up to the n-th.
func followWorker(s hansard.Store, n string) error {
	last, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintln(out, "ready")
	if err := out.Flush(); err != nil {
		return err
	}
	for e, err := range hansard.Follow(context.Background(), s, "s", 1) {
		if err != nil {
			return err
		}
		fmt.Fprintln(out, e.Seq, time.Now().UnixNano())
		if e.Seq >= hansard.Seq(last) {
			break
		}
	}
	return nil
}

// turnsWorker takes and releases a turn for this long, and prints how long it waited each time.
func turnsWorker(s hansard.Store, length string) error {
	long, err := time.ParseDuration(length)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := s.Stat(ctx, "s"); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var waits []time.Duration
	for end := time.Now().Add(long); time.Now().Before(end); {
		began := time.Now()
		turn, err := s.Acquire(ctx, "s", hansard.Claim{Wait: time.Minute})
		if err != nil {
			return err
		}
		waits = append(waits, time.Since(began))
		if err := s.Release(ctx, "s", turn.Grant); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(waits)
}

// claimWorker takes the turn once, says so, and releases it when told to.
func claimWorker(s hansard.Store, label string) error {
	ctx := context.Background()
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	turn, err := s.Acquire(ctx, "s", hansard.Claim{Wait: time.Hour, TTL: time.Hour, Label: label})
	if err != nil {
		return err
	}
	fmt.Println("got it")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if err := s.Release(ctx, "s", turn.Grant); err != nil {
		return err
	}
	fmt.Println("released")
	_, err = in.ReadString('\n') // it stays alive
	return err
}

// wakeProcess is a running worker.
type wakeProcess struct {
	*exec.Cmd
	out   *bufio.Reader
	begin func() // lets it begin
}

func startWorker(b testing.TB, what, dir, arg string) *wakeProcess {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", wakeEnv, what, dir, arg))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	p := &wakeProcess{cmd, bufio.NewReader(out), func() { _, _ = in.Write([]byte("\n")) }}
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		b.Fatalf("%s: %q, %v", what, line, err)
	}
	return p
}

func (p *wakeProcess) cpu() time.Duration {
	return p.ProcessState.UserTime() + p.ProcessState.SystemTime()
}

// reportSpread reports the median and the 95th percentile in microseconds.
func reportSpread(b *testing.B, of []time.Duration) {
	if len(of) == 0 {
		b.Fatal("nothing was measured")
	}
	slices.Sort(of)
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	b.ReportMetric(us(of[len(of)/2]), "p50-µs")
	b.ReportMetric(us(of[len(of)*95/100]), "p95-µs")
	b.ReportMetric(us(of[len(of)*99/100]), "p99-µs")
}

// BenchmarkFollow: how long after the answer to an append another process, and a follower in the
// same one, receives the event. Below 0: before the answer.
func BenchmarkFollow(b *testing.B) {
	for _, c := range []string{"another process", "same process"} {
		b.Run(c, func(b *testing.B) {
			ctx := context.Background()
			dir := b.TempDir()
			s, err := filestore.Open(dir, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Append(ctx, "s", hansard.Batch{Create: true, Events: []hansard.Event{{Data: json.RawMessage(`0`)}}}); err != nil {
				b.Fatal(err)
			}
			const n = 500
			given := map[int]int64{}
			var p *wakeProcess
			var own sync.WaitGroup
			if c == "same process" {
				own.Go(func() {
					for e, err := range hansard.Follow(ctx, s, "s", 1) {
						if err != nil {
							b.Error(err)
							return
						}
						given[int(e.Seq)] = time.Now().UnixNano()
						if e.Seq == n+1 {
							return
						}
					}
				})
			} else {
				p = startWorker(b, "follow", dir, fmt.Sprint(n+1))
			}
			acked := map[int]int64{}
			for range n {
				time.Sleep(3 * time.Millisecond)
				r, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: json.RawMessage(`"` + strings.Repeat("x", 800) + `"`)}}})
				if err != nil {
					b.Fatal(err)
				}
				acked[int(r.Last)] = time.Now().UnixNano()
			}
			if p != nil {
				for {
					var seq int
					var at int64
					if _, err := fmt.Fscan(p.out, &seq, &at); err != nil {
						break
					}
					given[seq] = at
				}
				if err := p.Wait(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(p.cpu().Microseconds())/n, "cpu-µs/event")
			}
			own.Wait()
			var late []time.Duration
			for seq, at := range acked {
				if given[seq] == 0 {
					b.Fatalf("event %d was not given", seq)
				}
				late = append(late, time.Duration(given[seq]-at))
			}
			reportSpread(b, late)
		})
	}
}

// BenchmarkTurnsContended: processes that take and release one turn as fast as they can.
func BenchmarkTurnsContended(b *testing.B) {
	for _, procs := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("%d processes", procs), func(b *testing.B) {
			const long = 3 * time.Second
			dir := b.TempDir()
			s, err := filestore.Open(dir, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Create(context.Background(), "s", hansard.Meta{}); err != nil {
				b.Fatal(err)
			}
			var all []*wakeProcess
			for range procs {
				all = append(all, startWorker(b, "turns", dir, long.String()))
			}
			for _, p := range all {
				p.begin()
			}
			var waits []time.Duration
			var cpu time.Duration
			least, most := 1<<62, 0
			for _, p := range all {
				var w []time.Duration
				if err := json.NewDecoder(p.out).Decode(&w); err != nil {
					b.Fatal(err)
				}
				if err := p.Wait(); err != nil {
					b.Fatal(err)
				}
				waits = append(waits, w...)
				least, most = min(least, len(w)), max(most, len(w))
				cpu += p.cpu()
			}
			b.ReportMetric(float64(len(waits))/long.Seconds(), "grants/s")
			b.ReportMetric(float64(cpu.Microseconds())/float64(len(waits)), "cpu-µs/grant")
			b.ReportMetric(float64(least)/float64(most), "least/most")
			reportSpread(b, waits)
		})
	}
}
