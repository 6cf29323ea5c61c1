//go:build unix

package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
)

// chaosWorker: STORE NAME. It takes the turn repeatedly and reports the outcome of each event
// that it wrote under it:
//
//	ack NAME-N SEQ GRANT   stored
//	no NAME-N GRANT        refused: the turn was lost
//	open NAME-N            not known
func chaosWorker(args []string) error {
	go endWithInput()
	s, err := filestore.Open(args[0], nil)
	if err != nil {
		return err
	}
	ctx := context.Background()
	for n := 0; ; {
		lease, err := hansard.Take(ctx, s, demo, hansard.Claim{Wait: hansard.Forever, TTL: 200 * time.Millisecond, Label: args[1]})
		if errors.Is(err, hansard.ErrBusy) {
			continue // another process was stopped inside the write lock
		}
		if err != nil {
			return err
		}
		for range 1 + rand.IntN(4) {
			n++
			text := fmt.Sprintf("%s-%d", args[1], n)
			r, err := s.Append(ctx, demo, hansard.Batch{Turn: lease.Grant(), Events: []hansard.Event{{Data: fmt.Appendf(nil, "%q", text)}}})
			switch {
			case err == nil:
				fmt.Println("ack", text, r.First, lease.Grant())
			case errors.Is(err, hansard.ErrFenced):
				fmt.Println("no", text, lease.Grant())
			case errors.Is(err, hansard.ErrUnknown), errors.Is(err, hansard.ErrBusy):
				fmt.Println("open", text)
			default:
				return err
			}
			time.Sleep(time.Duration(rand.IntN(5_000)) * time.Microsecond) // the work
		}
		if err := lease.Release(); err != nil && !errors.Is(err, hansard.ErrFenced) && !errors.Is(err, hansard.ErrUnknown) && !errors.Is(err, hansard.ErrBusy) {
			return err
		}
	}
}

// promises are what the workers reported, kept outside of the store.
type promises struct {
	mu      sync.Mutex
	acked   map[string]hansard.Event
	refused map[string]bool
}

func (p *promises) note(t *testing.T, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var text string
	var e hansard.Event
	if n, _ := fmt.Sscanf(line, "ack %s %d %s", &text, &e.Seq, &e.Turn); n == 3 {
		p.acked[text] = e
	} else if n, _ := fmt.Sscanf(line, "no %s", &text); n == 1 {
		p.refused[text] = true
	} else if n, _ := fmt.Sscanf(line, "open %s", &text); n != 1 {
		t.Errorf("a worker said %q", line)
	}
}

func (p *promises) counts() (acked, refused int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.acked), len(p.refused)
}

// check compares the log with what was reported.
func (p *promises) check(t *testing.T, events []hansard.Event) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	found := map[string]hansard.Event{}
	for _, e := range events {
		var text string
		if n, _ := fmt.Sscanf(string(e.Data), "%q", &text); n == 1 && e.Kind == hansard.KindMessage {
			if _, twice := found[text]; twice {
				t.Errorf("%s is there twice", text)
			}
			found[text] = e
		}
	}
	for text, want := range p.acked {
		if got := found[text]; got.Seq != want.Seq || got.Turn != want.Turn {
			t.Errorf("%s was acknowledged at seq %d under %s, the log has seq %d under %s", text, want.Seq, want.Turn, got.Seq, got.Turn)
		}
	}
	for text := range p.refused {
		if got, there := found[text]; there {
			t.Errorf("%s was refused, the log has it at seq %d", text, got.Seq)
		}
	}
}

// TestTurnChaos: processes that want one turn are killed, stopped past their TTL and robbed at
// random. What they were told is true, and the log proves that nobody wrote under a lost turn.
func TestTurnChaos(t *testing.T) {
	const workers = 6
	rng, store := seeded(t), newStore(t)
	ok(t, store, "new", demo)
	p := &promises{acked: map[string]hansard.Event{}, refused: map[string]bool{}}
	started := 0
	begin := func() *process {
		started++
		return start(t, worker(t, "chaos", store, fmt.Sprint("w", started)), func(line string) { p.note(t, line) })
	}
	var running []*process
	for range workers {
		running = append(running, begin())
	}
	kills, stops, thefts := 0, 0, 0
	for range scale(40) {
		before, _ := p.counts()
		eventually(t, "somebody works", func() bool { acked, _ := p.counts(); return acked > before+rng.IntN(5) })
		i := rng.IntN(workers)
		switch rng.IntN(4) {
		case 0:
			running[i].kill()
			running[i] = begin()
			kills++
		case 1, 2:
			running[i].signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(100+rng.IntN(400)) * time.Millisecond) // past its TTL, or not
			running[i].signal(syscall.SIGCONT)
			stops++
		case 3:
			// It waits if a process is stopped in the write lock; none is now.
			ok(t, store, "turn", demo, "--steal", "--reason", "chaos")
			thefts++
		}
		for _, w := range running {
			if !w.running() {
				t.Fatalf("a worker ended: %s", w.stderr)
			}
		}
	}
	for _, w := range running {
		w.kill()
	}
	events, g := proveTurns(t, store)
	p.check(t, events)
	acked, refused := p.counts()
	if refused == 0 || acked < 100 {
		t.Errorf("%d acknowledged, %d refused: too little happened", acked, refused)
	}
	t.Logf("%d kills, %d stops, %d thefts; %d turns; %d events acknowledged, %d refused", kills, stops, thefts, g.Last.Number(), acked, refused)
	withoutRemains(t, store)
}
