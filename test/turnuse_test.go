//go:build unix

package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
)

// TestTurnNobodyWaits: one process holds the turn from beginning to end, following the session,
// while 8 others append 1,000 messages: all are stored, and the holder's program sees each of
// them. (Failures 10 and 12.)
func TestTurnNobodyWaits(t *testing.T) {
	const writers, each = 8, 125
	store := newStore(t)
	ok(t, store, "new", demo)
	for _, mode := range []string{"", "--exclusive"} {
		t.Run("mode "+mode, func(t *testing.T) {
			flags, inbox := []string{"--ttl", longTTL, "--label", "reader"}, ""
			if mode != "" {
				flags, inbox = append(flags, mode), `,"inbox":true`
			}
			seen := make(chan hansard.Event, 2*writers*each)
			holder := start(t, turnOn(store, flags, program, "tail", "-f", demo, "-n", "1", "--json"), func(line string) {
				var e hansard.Event
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Error(err)
				}
				seen <- e
			})
			first := <-seen // the grant: it is up
			if mode != "" {
				refused(t, store)
			}
			var feeders []*process
			for w := range writers {
				p := start(t, command(store, "append", demo, "--jsonl", "-", "--each", "--json"), nil)
				go func() {
					for i := range each {
						fmt.Fprintf(p.stdin, `{"data":"%d.%d"%s}`+"\n", w, i, inbox)
					}
					p.stdin.Close()
				}()
				feeders = append(feeders, p)
			}
			for _, p := range feeders {
				if code := p.exit(); code != 0 {
					t.Errorf("a writer: exit code %d, stderr %s", code, p.stderr)
				}
			}
			got := map[string]bool{}
			for last := first.Seq; len(got) < writers*each; {
				select {
				case e := <-seen:
					if last++; e.Seq != last || e.Turn != "" || e.Inbox != (mode != "") || got[string(e.Data)] {
						t.Fatalf("the holder saw %+v, want a new one, seq %d", e, last)
					}
					got[string(e.Data)] = true
				case <-time.After(waitMax):
					t.Fatalf("the holder saw %d of %d", len(got), writers*each)
				}
			}
			if out := ok(t, store, "turn", demo, "--show", "--json"); !strings.Contains(out, string(first.Turn)) {
				t.Errorf("it was not held all the time: %s", out)
			}
			holder.signal(syscall.SIGINT)
			if code := holder.exit(); code != 130 {
				t.Errorf("the holder: exit code %d, stderr %s", code, holder.stderr)
			}
		})
	}
	withoutRemains(t, store)
}

// TestTurnBeside: the holder writes under its turn while others write without one; that the
// session changed meanwhile makes neither fail. (Failure 12.)
func TestTurnBeside(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	holder := startAgent(t, store, "--ttl", longTTL).up()
	other := start(t, command(store, "append", demo, "--jsonl", "-", "--each", "--json"), nil)
	for range 20 {
		other.send(`"beside"`) // and while that is stored:
		if code := holder.appends("mine"); code != 0 {
			t.Errorf("the holder beside others: exit code %d", code)
		}
		other.line()
	}
	other.finish()
	holder.finish()
	counts := map[string]int{}
	events, _ := proveTurns(t, store)
	for _, e := range events {
		if e.Kind != hansard.KindTurn {
			counts[fmt.Sprint(string(e.Data), " under turn ", e.Turn.Number())]++
		}
	}
	if counts[`"mine" under turn 1`] != 20 || counts[`"beside" under turn 0`] != 20 || len(counts) != 2 {
		t.Errorf("the session has %v", counts)
	}
	withoutRemains(t, store)
}

// TestTurnLastWords: after a signal the turn is not released before the program has written what
// it still has to write. (Failure 19.)
func TestTurnLastWords(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		script := `trap '"$0" append demo "last words"; exit $?' TERM INT; echo up; while :; do sleep 0.02; done`
		p := start(t, turnOn(store, []string{"--exclusive"}, "sh", "-c", script, program), nil)
		p.line()
		p.signal(sig)
		if code := p.exit(); code != 0 {
			t.Errorf("%v: exit code %d, stderr %s", sig, code, p.stderr)
		}
	}
	withoutRemains(t, store)
}

// TestTurnSweep: someone "cleans up" the files of live processes. Others may then take the holder
// for dead, but writes of two holders are never both accepted, and the old one is told.
// (Failures 16 and 18.)
func TestTurnSweep(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	old := startAgent(t, store, "--ttl", longTTL).up()
	files, err := filepath.Glob(filepath.Join(store, "instances", "*"))
	must(t, err)
	for _, f := range files {
		must(t, os.Remove(f))
	}
	if len(files) == 0 {
		t.Fatal("there was nothing to remove: this shows nothing")
	}
	next := startAgent(t, store, "--ttl", longTTL, "--wait", "forever").up()
	if code := next.appends("mine"); code != 0 {
		t.Errorf("the new holder: exit code %d", code)
	}
	if line := old.line(); line != "told" {
		t.Errorf("the old holder's program: %q", line)
	}
	if code := old.exit(); code != 5 {
		t.Errorf("the old holder: exit code %d, stderr %s", code, old.stderr)
	}
	next.finish()
	withoutRemains(t, store)
}

// refused checks that an exclusive turn keeps out everything but the inbox, and that the error
// names the holder. (Failure 13: it is not just any failure.)
func refused(t *testing.T, store string) {
	t.Helper()
	for _, args := range [][]string{{"append", demo, "x"}, {"set", demo, "--title", "x"}, {"rm", demo, "--yes"}, {"turn", demo, "--", "true"}} {
		r := run(t, command(store, append(append([]string{args[0], args[1]}, "--json"), args[2:]...)...))
		if code, message := r.failure(); r.code != 5 || code != "held" || !strings.Contains(message, "by reader pid ") {
			t.Errorf("%v beside an exclusive turn: exit code %d, %s", args, r.code, r.stderr)
		}
	}
}

// TestTurnSpellings: two names of one store are one store. (Failure 15.)
func TestTurnSpellings(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(store, link))
	holder := startAgent(t, store, "--ttl", longTTL).up()
	for _, other := range []string{link, store + "/../" + filepath.Base(store), "file:" + link} {
		if r := run(t, turnOn(other, nil, "true")); r.code != 5 {
			t.Errorf("%s: exit code %d, stderr %s", other, r.code, r.stderr)
		}
		// The program recognises its turn under any of them.
		if r := run(t, command(other, "append", demo, "x", "--turn", string(holder.grant))); r.code != 0 {
			t.Errorf("%s: exit code %d, stderr %s", other, r.code, r.stderr)
		}
	}
	holder.finish()
	withoutRemains(t, store)
}

// TestTurnHandles: mistakes of a program with its turn give an error and hurt nobody else:
// releasing twice, releasing after loss, using after release, acquiring twice in one process.
// (Failures 9 and 11.)
func TestTurnHandles(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	s, ctx := open(t, store), t.Context()
	write := func(g hansard.Grant) error {
		_, err := s.Append(ctx, demo, hansard.Batch{Turn: g, Events: []hansard.Event{{Data: []byte("1")}}})
		return err
	}
	fenced := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, hansard.ErrFenced) {
			t.Errorf("%s: %v, want fenced", what, err)
		}
	}
	first, err := hansard.Take(ctx, s, demo, hansard.Claim{TTL: 10 * time.Minute, Label: "first"})
	must(t, err)
	// Twice in one process: it is held, the error says by whom, and waiting does not deadlock.
	for _, wait := range []time.Duration{0, 100 * time.Millisecond} {
		var held *hansard.HeldError
		if _, err := hansard.Take(ctx, s, demo, hansard.Claim{Wait: wait}); !errors.As(err, &held) || held.Turn.Holder.Label != "first" {
			t.Errorf("a second turn in one process: %v", err)
		}
	}
	must(t, write(first.Grant()))
	must(t, first.Release())
	other := startAgent(t, store, "--ttl", longTTL).up()
	fenced("a second release", first.Release())
	fenced("a write after the release", write(first.Grant()))
	fenced("a renewal after the release", s.Renew(ctx, demo, first.Grant()))
	if code := other.appends("mine"); code != 0 {
		t.Errorf("the holder after all that: exit code %d", code)
	}
	other.finish()

	second, err := hansard.Take(ctx, s, demo, hansard.Claim{TTL: 10 * time.Minute})
	must(t, err)
	thief := startAgent(t, store, "--ttl", longTTL, "--steal", "--reason", "test").up()
	select {
	case <-second.Context().Done():
	case <-time.After(waitMax):
		t.Error("the context of a stolen turn goes on")
	}
	fenced("a release after the loss", second.Release())
	fenced("a write after the loss", write(second.Grant()))
	if code := thief.appends("mine"); code != 0 {
		t.Errorf("the thief after all that: exit code %d", code)
	}
	thief.finish()
	must(t, s.Close())
	withoutRemains(t, store)
}

// TestTurnNested: a turn inside itself is refused at once, however long it was told to wait.
// (Failure 11.)
func TestTurnNested(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	r := run(t, turnOn(store, nil, program, "turn", demo, "--wait", "forever", "--", "true"))
	if r.code != 5 || !strings.Contains(r.stderr, "runs in that turn already") {
		t.Errorf("exit code %d, stderr %s", r.code, r.stderr)
	}
	withoutRemains(t, store)
}
