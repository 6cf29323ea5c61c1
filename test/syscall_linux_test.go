package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// scene is a situation in which an append is interfered with.
type scene struct {
	name string
	sweep
	fresh  bool // a new store each time
	beside bool // another process has the store open
	torn   bool // the log ends in half a line each time, as a truncated copy may
	single bool // its events are appended one by one, not as a batch
	events int
	bytes  int // of each event
	errnos int // how many errors to try for each call, 0 for none
}

var scenes = []scene{
	{name: "alone", sweep: storeCalls, single: true, events: 2, bytes: 200, errnos: 1},
	{name: "beside another", sweep: storeCalls, beside: true, events: 3, bytes: 200, errnos: 2},
	{name: "first of a store", sweep: storeCalls.thinned(5), fresh: true, events: 3, bytes: 200, errnos: 1},
	{name: "behind half a line", sweep: only("ftruncate", "mkdirat", "fdatasync", "fsync", "pwrite64", "openat"), torn: true, events: 3, bytes: 200, errnos: 1},
}

// scenePlay is a running scene.
type scenePlay struct {
	*scene
	t     *testing.T
	l     *ledger
	dir   string
	store string
	runs  int
}

func (s *scene) play(t *testing.T) *scenePlay {
	p := &scenePlay{scene: s, t: t, l: newLedger(), dir: memDir(t)}
	p.store = filepath.Join(p.dir, "store")
	if !s.fresh {
		p.other()
	}
	if s.beside {
		serve(t, p.store, waitMax)
	}
	return p
}

// victim runs an append under an injection. What it acknowledged is in the ledger; open is the
// batch it was working on when it ended, if it did not finish.
func (p *scenePlay) victim(in injection) (r result, open, trace string) {
	p.t.Helper()
	p.runs++
	if p.fresh {
		p.store = filepath.Join(p.dir, fmt.Sprint("store", p.runs))
		p.l = newLedger()
	}
	if p.torn {
		p.tear()
	}
	args := []string{"append", "demo", "--create", "--jsonl", "-", "--json"}
	batches := []string{fmt.Sprint("v", p.runs)}
	input := batchInput(batches[0], p.events, p.bytes)
	if p.single {
		args, batches, input = append(args, "--each"), nil, ""
		for i := range p.events {
			batches = append(batches, fmt.Sprintf("v%d.%d", p.runs, i))
			input += batchInput(batches[i], 1, p.bytes)
		}
	}
	cmd := command(p.store, args...)
	cmd.Stdin = strings.NewReader(input)
	traced, trace := in.traced(p.t, cmd)
	r = run(p.t, traced)
	for line := range strings.Lines(r.stdout) {
		if err := p.l.receipt(batches[0], line); err != nil {
			p.t.Fatalf("%s: %v", in, err)
		}
		batches = batches[1:]
	}
	if len(batches) > 0 {
		open = batches[0]
	}
	return r, open, trace
}

// tear leaves half a line at the end of the log.
func (p *scenePlay) tear() {
	f, err := os.OpenFile(filepath.Join(p.store, "sessions", "demo.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(`{"seq":`)
		f.Close()
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// other is another process that appends, and must succeed.
func (p *scenePlay) other() {
	p.t.Helper()
	batch := fmt.Sprint("o", p.runs)
	cmd := command(p.store, "append", "demo", "--create", "--jsonl", "-", "--json")
	cmd.Stdin = strings.NewReader(batchInput(batch, 1, 50))
	r := run(p.t, cmd)
	if r.code != 0 {
		p.t.Fatalf("the next append: exit code %d, stderr %s", r.code, r.stderr)
	}
	if err := p.l.receipt(batch, r.stdout); err != nil {
		p.t.Fatal(err)
	}
}

// judge checks what is left after an injection.
func (p *scenePlay) judge(in injection) {
	p.t.Helper()
	failed := p.t.Failed()
	p.other()
	p.l.look(p.t, p.store)
	if !failed && p.t.Failed() {
		p.t.Fatalf("after %s (run %d)", in, p.runs)
	}
	if p.fresh {
		os.RemoveAll(p.store)
	}
}

// end checks the scene's store with the command.
func (p *scenePlay) end() {
	p.t.Helper()
	if !p.fresh {
		p.l.check(p.t, p.store)
	}
}

// eachScene plays the scenes, as many at once as there are processors, and waits.
func eachScene(t *testing.T, play func(t *testing.T, s scene)) {
	t.Helper()
	t.Run("scene", func(t *testing.T) {
		for _, s := range scenes {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				play(t, s)
			})
		}
	})
}

// TestKillAtSystemCall: an append is killed just before each of its system calls. The next
// process appends without any message, and everything acknowledged is there.
func TestKillAtSystemCall(t *testing.T) {
	needsStrace(t)
	var total atomic.Int64
	eachScene(t, func(t *testing.T, s scene) {
		p := s.play(t)
		acked := 0
		kills := s.each(func(int) string { return "signal=SIGKILL" }, func(in injection) bool {
			r, open, _ := p.victim(in)
			killed := r.signal == syscall.SIGKILL
			if !killed && (r.code != 0 || open != "") {
				t.Fatalf("%s: exit code %d, stderr %s", in, r.code, r.stderr)
			}
			if r.stdout != "" && killed {
				acked++
			}
			p.judge(in)
			return killed
		})
		p.end()
		total.Add(int64(kills))
		t.Logf("%d kills, %d of them after an answer", kills, acked)
	})
	// About 300 with the system calls an append makes today, give or take how the processes
	// interleave: far fewer would mean that the sweep missed its calls.
	if !t.Failed() && total.Load() < 200 {
		t.Errorf("%d kills, want at least 200", total.Load())
	}
	t.Logf("%d kills", total.Load())
}

var errnos = []string{"EIO", "ENOSPC", "EMFILE", "EINTR"}

// TestErrorAtSystemCall: one system call of an append fails. The command succeeds or says what is
// wrong, nothing acknowledged is lost, nothing refused is stored, and the next append works.
// (Failures 14, 22, 25.)
func TestErrorAtSystemCall(t *testing.T) {
	needsStrace(t)
	var total, refused atomic.Int64
	eachScene(t, func(t *testing.T, s scene) {
		p := s.play(t)
		// Not write: it would hit the error message, or the runtime's own pipe.
		s.calls = slices.DeleteFunc(slices.Clone(s.calls), func(call string) bool { return call == "write" })
		for round := range min(scale(s.errnos), len(errnos)) {
			total.Add(int64(s.each(func(n int) string { return "error=" + errnos[(n+round)%len(errnos)] }, func(in injection) bool {
				r, open, trace := p.victim(in)
				if r.code != 0 {
					refused.Add(1)
				}
				p.errorSaid(in, r, open)
				p.judge(in)
				return saw(trace, "(INJECTED)")
			})))
		}
		p.end()
	})
	if !t.Failed() && total.Load() < 200 {
		t.Errorf("%d errors, want at least 200", total.Load())
	}
	t.Logf("%d errors, of which %d reached the caller", total.Load(), refused.Load())
}

// TestErrorAtEverySync: every thread's first sync fails, so that sometimes the journal can't be
// replaced either, and the next process has to do it, with the entries that the first one left in
// it.
func TestErrorAtEverySync(t *testing.T) {
	needsStrace(t)
	s := scene{name: "beside another", beside: true, events: 3, bytes: 200}
	p := s.play(t)
	failed := 0
	for range scale(40) {
		in := injection{"fdatasync", "error=EIO", 1}
		r, open, _ := p.victim(in)
		if r.code != 0 {
			failed++
		}
		p.errorSaid(in, r, open)
		p.judge(in)
	}
	p.end()
	t.Logf("%d appends of %d failed", failed, scale(40))
}

// errorSaid checks the answer of an append that hit an error.
func (p *scenePlay) errorSaid(in injection, r result, open string) {
	p.t.Helper()
	if r.code == 0 {
		if open != "" {
			p.t.Fatalf("%s: success without a receipt; stderr %s", in, r.stderr)
		}
		return
	}
	code, message := r.failure()
	if r.signal != 0 || code == "" || message == "" || !strings.HasPrefix(r.stderr, "hansard: ") || strings.Contains(r.stderr, "goroutine ") {
		p.t.Errorf("%s: exit code %d (%v), stderr %s", in, r.code, r.signal, r.stderr)
		return
	}
	if open != "" {
		p.l.refuse(open, code, fmt.Sprintf("%s: %s", in, message))
	}
}
