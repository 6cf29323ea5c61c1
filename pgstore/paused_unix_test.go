//go:build unix

package pgstore_test

import (
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/storetest"
)

// TestPausedHolder: a process that is stopped past the TTL of its turn and then continued is
// fenced: another has the turn.
func TestPausedHolder(t *testing.T) {
	url := pgtest.Shared(t).Schema(t)
	s := open(t, url)
	defer s.Close()
	if _, err := s.Create(t.Context(), "turns", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	w := start(t, 1, work{URL: url, Hold: true})
	w.more(3)
	holder := w.commands[0].Process
	if err := holder.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	turn, err := s.Acquire(t.Context(), "turns", hansard.Claim{Wait: time.Minute, Label: "next"})
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Append(t.Context(), "turns", hansard.Batch{Turn: turn.Grant, Events: storetest.Marked("next", 0, 1, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.running.Wait() // it ends by itself, fenced
	w.stop()
	if w.fenced != 1 {
		t.Errorf("the holder was fenced %d times", w.fenced)
	}
	for e, err := range s.Read(t.Context(), "turns", hansard.Range{After: first.Last}) {
		t.Errorf("written after the turn was lost: %+v, %v", e, err)
	}
	for f, err := range s.Verify(t.Context(), "turns") {
		if err != nil || f.Level != hansard.LevelOK {
			t.Errorf("%+v, %v", f, err)
		}
	}
}
