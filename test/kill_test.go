//go:build unix

package test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// writers are processes that append until they are killed: the command, one event at a time, and
// workers that store batches of several.
type writers struct {
	t        *testing.T
	l        *ledger
	rng      *rand.Rand
	store    string
	sessions []string
	running  []*process
	started  int
}

// fill starts writers until n are running.
func (w *writers) fill(n int) {
	w.t.Helper()
	for len(w.running) < n {
		w.started++
		name := fmt.Sprint("w", w.started)
		if w.rng.IntN(3) == 0 {
			session := w.sessions[w.rng.IntN(len(w.sessions))]
			w.running = append(w.running, feed(w.t, w.l, w.store, session, name, 0, 1+w.rng.IntN(5000)).process)
			continue
		}
		cmd := worker(w.t, "load", w.store, w.rng.Uint64(), name, 0, 1<<20, strings.Join(w.sessions, ","))
		w.running = append(w.running, start(w.t, cmd, func(line string) {
			if !w.l.answer(line) {
				w.t.Errorf("an append that nobody disturbed failed: %s", line)
			}
		}))
	}
}

// kill kills n of them at random, at once, and returns how many died of it.
func (w *writers) kill(n int) (killed int) {
	w.t.Helper()
	w.rng.Shuffle(len(w.running), func(i, j int) { w.running[i], w.running[j] = w.running[j], w.running[i] })
	for _, p := range w.running[:n] {
		_ = p.cmd.Process.Kill() // all at once, then wait for each
	}
	for _, p := range w.running[:n] {
		p.kill()
		if p.exit() != -1 {
			w.t.Errorf("%s ended before it was killed: %s", p.cmd, p.stderr)
			continue
		}
		killed++
	}
	w.running = w.running[n:]
	return killed
}

// TestKill9: writers under load are killed at random moments, one, some or all, and restarted at
// once. Nothing acknowledged is missing, nothing is there twice or in part, and nobody has to
// clean up. (Failure 21.)
func TestKill9(t *testing.T) {
	for i := range scale(1) { // one store each, so that verifying on the way stays quick
		t.Run(fmt.Sprint(i), kill9)
	}
}

func kill9(t *testing.T) {
	rng := seeded(t)
	w := &writers{t: t, l: newLedger(), rng: rng, store: newStore(t), sessions: []string{"a", "b", "c"}}
	want, kills, all := 200, 0, 0
	for round := 0; kills < want; round++ {
		w.fill(4 + rng.IntN(5))
		before := w.l.acks()
		if rng.IntN(4) > 0 {
			// Some work gets done first; but sometimes they die while starting.
			eventually(t, "a writer is acknowledged", func() bool { return w.l.acks() > before+rng.IntN(20) })
		}
		time.Sleep(time.Duration(rng.IntN(20_000)) * time.Microsecond) // the random moment
		n := 1 + rng.IntN(3)
		if rng.IntN(4) == 0 {
			n = len(w.running)
			all++
		}
		kills += w.kill(n)
		if round%20 == 19 {
			ok(t, w.store, "verify") // also while others write
		}
	}
	w.kill(len(w.running))
	if line := serve(t, w.store, waitMax).ask("append a last 3 100"); !w.l.answer(line) {
		t.Error(line)
	}
	events := w.l.check(t, w.store)
	if w.l.acks() < want {
		t.Errorf("only %d appends were acknowledged: too little to break", w.l.acks())
	}
	t.Logf("%d kills, %d times all at once; %d batches acknowledged, %d events", kills, all, w.l.acks(), events)
}
