package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hansard/internal/bench"
)

// TestMain lets the test binary be the other processes.
func TestMain(m *testing.M) {
	if served, err := serveRole(context.Background()); served {
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// small runs the program with tiny counts.
func small(t *testing.T, args ...string) (stdout string, out string, err error) {
	t.Helper()
	out = t.TempDir()
	dir, err := os.MkdirTemp("", "bench-") // short, and others may enter: sockets, PostgreSQL
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var said, progress bytes.Buffer
	err = run(t.Context(), append([]string{"-small", "-rounds", "1", "-run", "30ms", "-dir", dir, "-out", out}, args...), &said, &progress)
	if err != nil {
		t.Logf("progress:\n%s", progress.String())
	}
	if left, readErr := os.ReadDir(dir); readErr != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, readErr)
	}
	return said.String(), out, err
}

// wellFormed says whether a file is XML.
func wellFormed(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(text))
	for n := 0; ; n++ {
		if _, err := d.Token(); errors.Is(err, io.EOF) && n > 10 {
			return
		} else if err != nil {
			t.Fatalf("%s: %v after %d tokens", path, err, n)
		}
	}
}

// TestSmoke measures everything that the table has, of all peers there are: every run
// is checked by the program itself.
func TestSmoke(t *testing.T) {
	said, out, err := small(t)
	if err != nil {
		t.Fatal(err)
	}
	r, err := readResults(filepath.Join(out, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range bench.Workloads {
		for _, p := range peers() {
			skipped := slices.ContainsFunc(r.Notes, func(note string) bool { return strings.HasPrefix(note, p.Name+" was not measured") })
			if skipped {
				t.Logf("SKIPPED: %s is not here", p.Name)
			}
			v, ok := r.median(w.Name, p.Name, rate)
			if want := !skipped && (p.shared || w.Processes == 1); ok != want || ok && v <= 0 {
				t.Errorf("%s %s: %v, %v, want %v", w.Name, p.Name, v, ok, want)
			}
		}
		if v, ok := r.median(w.Name, ours, cpu); !ok || v <= 0 {
			t.Errorf("%s: CPU %v, %v", w.Name, v, ok)
		}
	}
	for _, task := range []string{"read", "last", "list warm", "list fresh", "follow", "turns alone", "turns contended", "create 20", "touch 100", "fresh 100", "fresh keyed 10"} {
		if r.find(task, ours) == nil {
			t.Errorf("%s was not measured", task)
		}
	}
	for _, want := range []string{"| w3: 64 goroutines", "**w4: 8 processes", "follow: acknowledgement"} {
		if !strings.Contains(said, want) {
			t.Errorf("the table has no %q:\n%s", want, said)
		}
	}
	wellFormed(t, filepath.Join(out, "performance.svg"))
	// What was measured can be judged later.
	var judged bytes.Buffer
	if err := run(t.Context(), []string{"-small", "-from", filepath.Join(out, "results.json"), "-check", "-out", out}, &judged, io.Discard); err != nil && !strings.Contains(err.Error(), "marks were missed") {
		t.Error(err)
	}
	if strings.Count(judged.String(), "not measured") > strings.Count(strings.Join(r.Notes, ""), "not measured")+8 || !strings.Contains(judged.String(), "w1: × plain") {
		t.Errorf("marks:\n%s", judged.String())
	}
}

// TestSmokeGrowth makes every chart.
func TestSmokeGrowth(t *testing.T) {
	program := filepath.Join(t.TempDir(), "hansard")
	if said, err := exec.Command("go", "build", "-C", "..", "-o", program, "./cmd/hansard").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	said, out, err := small(t, "-growth", "-hansard", program)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"events", "sessions", "list", "keys", "processes", "processes-cpu", "followers", "followers-cpu", "memory"} {
		if !strings.Contains(said, "performance/"+name+".svg") {
			t.Errorf("there is no chart of %s", name)
		}
		wellFormed(t, filepath.Join(out, "performance", name+".svg"))
	}
	var again bytes.Buffer
	if err := run(t.Context(), []string{"-growth", "-from", filepath.Join(out, "growth.json"), "-out", t.TempDir()}, &again, io.Discard); err != nil || again.String() != said {
		t.Errorf("again: %v\n%s", err, again.String())
	}
}

// TestFlags: what can't be measured is said before anything is.
func TestFlags(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"-only w9", `no "w9"`}, {"-peers mysql", `no "mysql"`}, {"-rounds 0", "more than 0"}, {"extra", "unexpected"},
	} {
		if err := run(t.Context(), strings.Fields(tt.args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.args, err, tt.want)
		}
	}
}

// TestChecks: no peer's check lets a lost, additional or misplaced event pass.
func TestChecks(t *testing.T) {
	changes := []struct {
		name   string
		change func([]bench.Ack) []bench.Ack
		passes func(p peer) bool
	}{
		{"good", func(a []bench.Ack) []bench.Ack { return a }, func(peer) bool { return true }},
		{"lost", func(a []bench.Ack) []bench.Ack {
			return append(a, bench.Ack{Seq: uint64(len(a) + 1), Tag: 1 << 40})
		}, func(peer) bool { return false }},
		{"not acknowledged", func(a []bench.Ack) []bench.Ack { return a[:len(a)-1] }, func(peer) bool { return false }},
		{"swapped", func(a []bench.Ack) []bench.Ack { a[0].Seq, a[1].Seq = a[1].Seq, a[0].Seq; return a },
			func(p peer) bool { return p.Name == "plain" || p.Name == "pg-insert" }}, // they give no seqs
	}
	l := &lab{progress: io.Discard}
	if err := l.open(os.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for _, p := range peers() {
		if p.run != nil {
			continue // it counts rows itself
		}
		s, err := l.stage(t.Context(), p, "check")
		if err != nil {
			t.Logf("SKIPPED: %s: %v", p.Name, err)
			continue
		}
		j := s.job(p, bench.Job{Processes: 1, Goroutines: 2, Sessions: 3, Run: 1})
		if err := p.Setup(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		// The warm-up gives each session one event; two more make an order.
		target, err := p.Open(j)
		if err != nil {
			t.Fatal(err)
		}
		acks := make([][]bench.Ack, j.Sessions)
		for i := range 6 {
			tag := uint64(i + 1)
			seq, err := target.Append(t.Context(), 0, i%3, tag)
			if err != nil {
				t.Fatal(err)
			}
			acks[i%3] = append(acks[i%3], bench.Ack{Session: int32(i % 3), Seq: seq, Tag: tag})
		}
		if err := target.Close(); err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			changed := slices.Clone(acks)
			changed[0] = c.change(slices.Clone(acks[0]))
			if err := p.Check(t.Context(), j, changed); (err == nil) != c.passes(p) {
				t.Errorf("%s, %s: error %v", p.Name, c.name, err)
			}
		}
		if err := s.strike(); err != nil {
			t.Error(err)
		}
	}
}

// TestTracers: what they print is read as it is meant.
func TestTracers(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name, text string
		read       func(string) (counts, error)
		want       counts
		fails      bool
	}{
		{"perf", "# started on\n\n120,,raw_syscalls:sys_enter,100,100.00,,\n3,,syscalls:sys_enter_fsync,100,100.00,,\n4,,syscalls:sys_enter_fdatasync,1,100.00,,\n", readPerf, counts{120, 7}, false},
		{"perf of a sleeper", "<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n", readPerf, counts{}, false},
		{"perf without rights", "<not supported>,,raw_syscalls:sys_enter,0,100.00,,\n", readPerf, counts{}, true},
		{"strace", "    calls syscall\n--------- ----------------\n       10 futex\n        4 fdatasync\n        1 sync_file_range\n--------- ----------------\n       15 total\n", readStrace, counts{15, 4}, false},
	} {
		file := filepath.Join(dir, "out")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := tt.read(file); got != tt.want || (err != nil) != tt.fails {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
}

// TestMarks: a value on the right side of its limit is ok, one on the other is not, and
// a mark that is only aimed at fails nobody.
func TestMarks(t *testing.T) {
	r := &results{}
	value := func(v float64) func(*results) (float64, bool) {
		return func(*results) (float64, bool) { return v, true }
	}
	for _, tt := range []struct {
		m    mark
		want string
	}{
		{mark{limit: 2, value: value(3)}, "ok"}, {mark{limit: 2, value: value(2)}, "ok"}, {mark{limit: 2, value: value(1)}, "FAILED"},
		{mark{limit: 2, most: true, value: value(1)}, "ok"}, {mark{limit: 2, most: true, value: value(2)}, "ok"}, {mark{limit: 2, most: true, value: value(3)}, "FAILED"},
		{mark{limit: 2, aim: true, value: value(1)}, "not yet"},
		{mark{limit: 2, value: times("w1", "a", "b")}, "not measured"},
	} {
		if _, said, failed := tt.m.verdict(r); said != tt.want || failed != (tt.want == "FAILED") {
			t.Errorf("%+v: %s, want %s", tt.m, said, tt.want)
		}
	}
	// The ratio is of each round, not of the medians.
	for _, v := range [][2]float64{{10, 1}, {20, 10}, {30, 10}} {
		r.add("w1", "a", map[string]float64{rate: v[0]})
		r.add("w1", "b", map[string]float64{rate: v[1]})
	}
	if ratio, ok := r.ratio("w1", "a", "b", rate); !ok || ratio != 3 {
		t.Errorf("ratio %v, %v, want 3", ratio, ok)
	}
}

// TestReplacePart: a page gets its tables between the comments, as often as one likes.
func TestReplacePart(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page")
	if err := os.WriteFile(page, []byte("before\n<!-- table: made by make bench -->\nold\n<!-- end of table -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := replacePart(page, "table", "new\n"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if want := "before\n<!-- table: made by make bench -->\n\nnew\n\n<!-- end of table -->\nafter\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if err := replacePart(page, "growth", "new"); err == nil {
		t.Error("a page without the place was not refused")
	}
}

// TestAttach: a process that ends before it can be traced does not end the benchmark.
func TestAttach(t *testing.T) {
	for fails, want := range []bool{true, true, true, true, true, false} {
		listed := 0
		tr := tracer{"one that fails", func(pids []int, _ string) (func() (counts, error), error) {
			if pids[0] <= fails {
				return nil, errors.New("no such process")
			}
			return func() (counts, error) { return counts{}, nil }, nil
		}}
		stop, err := tr.attach(func() []int { listed++; return []int{listed} }, "")
		if got := err == nil && stop != nil; got != want {
			t.Errorf("after %d that failed: %v", fails, err)
		}
	}
}
