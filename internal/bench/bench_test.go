package bench

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"hansard"
)

// TestMain lets the test binary be the worker of w4.
func TestMain(m *testing.M) {
	if os.Getenv("HANSARD_BENCH_WORKER") != "" {
		if err := RunWorker(context.Background(), os.Stdin, os.Stdout, Plain, Hansard); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func testConfig(t *testing.T) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HANSARD_BENCH_WORKER", "1") // for the processes this one starts
	return Config{Dir: t.TempDir(), Worker: []string{self}}
}

var tinyPlan = plan{rounds: 2, run: 50 * time.Millisecond, rawRun: 10 * time.Millisecond, budget: time.Minute}

// tiny are the four workloads with fewer sessions.
func tiny() []Workload {
	small := append([]Workload{}, Workloads...)
	small[2].Sessions, small[3].Sessions, small[3].Processes = 50, 20, 3
	return small
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestMeasure: every candidate is measured on every workload, checked, and
// nothing is left behind.
func TestMeasure(t *testing.T) {
	cfg := testConfig(t)
	results, err := measure(t.Context(), cfg, tinyPlan, tiny())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		got = append(got, r.Workload+" "+r.Candidate)
		if r.OpsS <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.Rounds != 2 && r.Workload != "raw" {
			t.Errorf("%+v", r)
		}
		if (r.Ratio > 0) != (r.Candidate == "hansard") || (r.MinShare > 0) != (r.Workload == "w4") {
			t.Errorf("%+v", r)
		}
	}
	if got, want := strings.Join(got, ", "), "raw raw, w1 plain, w1 hansard, w2 plain, w2 hansard, w3 plain, w3 hansard, w4 plain, w4 hansard"; got != want {
		t.Errorf("measured %s, want %s", got, want)
	}
	empty(t, cfg.Dir)
}

// TestMeasureBudget: when the time is up every workload still gets one round.
func TestMeasureBudget(t *testing.T) {
	cfg := testConfig(t)
	p := tinyPlan
	p.budget = 0
	results, err := measure(t.Context(), cfg, p, tiny()[:2])
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results[1:] {
		if r.Rounds != 1 {
			t.Errorf("%+v, want 1 round", r)
		}
	}
}

// TestMeasureCancelled: a bench that is interrupted, also while its processes
// run, leaves nothing behind.
func TestMeasureCancelled(t *testing.T) {
	for i, w := range tiny() {
		cfg := testConfig(t)
		ctx, cancel := context.WithCancel(t.Context())
		cfg.Progress = func(string) { time.AfterFunc(time.Duration(i+1)*20*time.Millisecond, cancel) }
		p := tinyPlan
		p.run, p.rounds = time.Minute, 1
		if _, err := measure(ctx, cfg, p, []Workload{w}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want %v", w.Name, err, context.Canceled)
		}
		empty(t, cfg.Dir)
		cancel()
	}
}

// TestWorkerFails: a worker that can't do its part ends the run with its words.
func TestWorkerFails(t *testing.T) {
	cfg := testConfig(t)
	_, err := RunProcesses(t.Context(), cfg.Worker, Job{Candidate: "plain", Dir: "/nonexistent", Processes: 3, Goroutines: 1, Sessions: 1, Run: time.Minute}, Hooks{})
	if err == nil || !strings.Contains(err.Error(), "nonexistent") {
		t.Errorf("error %v", err)
	}
}

// TestCheck: a lost, duplicated, torn or misplaced event does not pass. acks are
// those of a good run, changed before they are compared.
func TestCheck(t *testing.T) {
	tests := []struct {
		name   string
		change func([]Ack) []Ack
		want   map[string]string // per candidate; "" is fine
	}{
		{"good", func(a []Ack) []Ack { return a }, map[string]string{"plain": "", "hansard": ""}},
		{"acknowledged but not there", func(a []Ack) []Ack { return append(a, Ack{0, uint64(len(a) + 1), 1 << 30}) },
			map[string]string{"plain": "lost", "hansard": "lost"}},
		{"there but not acknowledged", func(a []Ack) []Ack { return a[:len(a)-1] },
			map[string]string{"plain": "not acknowledged", "hansard": "was expected"}},
		{"seq given twice", func(a []Ack) []Ack { a[1].Seq = a[0].Seq; return a },
			map[string]string{"plain": "", "hansard": "duplicate"}},
		{"seq left out", func(a []Ack) []Ack { a[len(a)-1].Seq++; return a },
			map[string]string{"plain": "", "hansard": "gap"}},
		{"two swapped", func(a []Ack) []Ack { a[0].Seq, a[1].Seq = a[1].Seq, a[0].Seq; return a },
			map[string]string{"plain": "", "hansard": "not the one"}},
	}
	for _, c := range []Candidate{Plain, Hansard} {
		j := Job{Candidate: c.Name, Dir: t.TempDir(), Processes: 1, Goroutines: 1, Sessions: 1, Run: 30 * time.Millisecond}
		if err := c.Setup(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		samples, err := RunHere(t.Context(), c, j)
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range tests {
			acks := AcksBySession(j, samples)
			acks[0] = tt.change(acks[0])
			err := c.Check(t.Context(), j, acks)
			if want := tt.want[c.Name]; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: error %v, want %q", c.Name, tt.name, err, want)
			}
		}
		if c.Name == "plain" {
			if err := os.Truncate(PlainPath(j, 0), 1000); err != nil {
				t.Fatal(err)
			}
			if err := c.Check(t.Context(), j, AcksBySession(j, samples)); err == nil || !strings.Contains(err.Error(), "torn") {
				t.Errorf("plain, torn: error %v", err)
			}
		}
	}
}

// TestPlainIsJSON: the lines can be read by others, with the time they were written.
func TestPlainIsJSON(t *testing.T) {
	j := Job{Dir: t.TempDir(), Goroutines: 1, Sessions: 1, Run: 20 * time.Millisecond}
	if err := Plain.Setup(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if _, err := RunHere(t.Context(), Plain, j); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(PlainPath(j, 0))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var event struct {
			Time time.Time
			Kind string
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil || event.Time.IsZero() || event.Kind != "message" {
			t.Fatalf("%v: %.80s", err, line)
		}
	}
}

// TestOnce: every session gets one event, whether it was there or not.
func TestOnce(t *testing.T) {
	for _, create := range []bool{false, true} {
		j := Job{Dir: t.TempDir(), Processes: 1, Goroutines: 4, Sessions: 10, Once: true, Create: create}
		if err := Hansard.Setup(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		samples, err := RunHere(t.Context(), Hansard, j)
		if err != nil {
			t.Fatal(err)
		}
		acks := AcksBySession(j, samples)
		for i := range acks {
			if len(acks[i]) != 1 {
				t.Errorf("create %v: session %d got %d events, want 1", create, i, len(acks[i]))
			}
		}
		if err := Hansard.Check(t.Context(), j, acks); err != nil {
			t.Errorf("create %v: %v", create, err)
		}
	}
}

// TestHooks: they are called once each, when all workers are there and when all have done.
func TestHooks(t *testing.T) {
	cfg := testConfig(t)
	j := Job{Candidate: "plain", Dir: cfg.Dir, Processes: 3, Goroutines: 2, Sessions: 4, Run: 20 * time.Millisecond}
	if err := Plain.Setup(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	var calls []string
	samples, err := RunProcesses(t.Context(), cfg.Worker, j, Hooks{
		Ready: func(pids []int) error {
			calls = append(calls, "ready")
			if len(pids) != 3 || pids[0] == 0 || pids[1] == 0 || pids[2] == 0 {
				t.Errorf("pids %v, want three", pids)
			}
			return nil
		},
		Done: func() error { calls = append(calls, "done"); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(calls, " "); got != "ready done" {
		t.Errorf("calls %q", got)
	}
	for _, s := range samples {
		if s.Cost.Mallocs == 0 {
			t.Errorf("nothing was counted: %+v", s.Cost)
		}
	}
	failed := errors.New("can't count")
	if _, err := RunProcesses(t.Context(), cfg.Worker, j, Hooks{Ready: func([]int) error { return failed }}); !errors.Is(err, failed) {
		t.Errorf("error %v, want %v", err, failed)
	}
}

// TestEventSize: both candidates store about 1 KiB per event.
func TestEventSize(t *testing.T) {
	j := Job{Dir: t.TempDir(), Processes: 1, Goroutines: 1, Sessions: 1, Run: 50 * time.Millisecond}
	if err := setupHansard(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if _, err := RunHere(t.Context(), Hansard, j); err != nil {
		t.Fatal(err)
	}
	s, err := openFilestore(j)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info, err := s.Stat(t.Context(), SessionID(0))
	if err != nil {
		t.Fatal(err)
	}
	if size := info.Bytes / int64(max(info.LastSeq, hansard.Seq(1))); size < 1000 || size > 1100 {
		t.Errorf("an event takes %d bytes, want about %d", size, plainLine)
	}
}
