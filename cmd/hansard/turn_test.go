//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/internal/syncbuf"
	"hansard/memstore"
	"hansard/transcript"
)

// keptOpen is a store that outlives the commands that use it.
type keptOpen struct{ hansard.Store }

func (keptOpen) Close() error { return nil }

func (k keptOpen) Identity(ctx context.Context) (string, error) {
	return k.Store.(hansard.Identified).Identity(ctx)
}

// turnTest runs commands on a store in memory with one session.
type turnTest struct {
	*testing.T
	store hansard.Store
}

func newTurnTest(t *testing.T) *turnTest {
	t.Setenv(envStore, "/somewhere")
	t.Setenv(envSession, "")
	t.Setenv(envTurn, "")
	s := memstore.New()
	t.Cleanup(func() { s.Close() })
	if _, err := s.Create(t.Context(), "demo", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	return &turnTest{t, s}
}

func (t *turnTest) run(args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs syncbuf.Buffer // the program writes to them too
	a := &app{stdin: strings.NewReader(""), stdout: &out, out: newOutput(&out), stderr: &errs, now: time.Now,
		opener: func(string, *filestore.Options) (hansard.Store, error) { return keptOpen{t.store}, nil }}
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	code = a.run(ctx, args)
	return code, out.String(), errs.String()
}

// expect runs a command and compares its exit code and parts of its output.
func (t *turnTest) expect(code int, stdout, stderr string, args ...string) {
	t.Helper()
	gotCode, out, errs := t.run(args...)
	if gotCode != code || !strings.Contains(out, stdout) || !strings.Contains(errs, stderr) {
		t.Errorf("hansard %s: exit code %d, want %d\nstdout %q, want %q\nstderr %q, want %q",
			strings.Join(args, " "), gotCode, code, out, stdout, errs, stderr)
	}
}

func (t *turnTest) acquire(c hansard.Claim) hansard.Turn {
	t.Helper()
	turn, err := t.store.Acquire(t.Context(), "demo", c)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

func (t *turnTest) held() *hansard.Turn {
	t.Helper()
	turn, err := t.store.Turn(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// TestTurnRuns: the program finds the turn in its environment; the turn is released after it
// ends, and the exit code is the program's.
func TestTurnRuns(t *testing.T) {
	tt := newTurnTest(t)
	tt.expect(0, "/somewhere demo 1-", "", "turn", "demo", "--", "sh", "-c", "echo $HANSARD_STORE $HANSARD_SESSION $HANSARD_TURN")
	tt.expect(7, "", "", "turn", "demo", "--", "sh", "-c", "exit 7")
	tt.expect(128+9, "", "", "turn", "demo", "--", "sh", "-c", "kill -9 $$")
	if held := tt.held(); held != nil {
		t.Errorf("it is still held: %+v", held)
	}
	code, out, errs := tt.run("show", "demo")
	if code != 0 || !strings.Contains(out, "── turn 1 taken by sh (pid ") || !strings.Contains(out, "── turn 3 released ──") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

// TestTurnSignalDefaults: the command ignores SIGPIPE, but the program does not inherit that, or
// it would never end.
func TestTurnSignalDefaults(t *testing.T) {
	tt := newTurnTest(t)
	code, out, errs := tt.run("turn", "demo", "--", "sh", "-c", "sed -n 's/^SigIgn:[[:space:]]*/0x/p' /proc/self/status")
	ignored, err := strconv.ParseUint(strings.TrimSpace(out), 0, 64)
	if code != 0 || err != nil {
		t.Skipf("SKIPPED, no /proc here: exit code %d, %v, %s", code, err, errs)
	}
	if ignored&(1<<(syscall.SIGPIPE-1)) != 0 {
		t.Errorf("the program ignores SIGPIPE: %s", out)
	}
}

// TestTurnCannotRun: if the program can't be run, the turn is not taken.
func TestTurnCannotRun(t *testing.T) {
	tt := newTurnTest(t)
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	tt.expect(127, "", "not found", "turn", "demo", "--", "no-such-program-here")
	tt.expect(127, "", "no such file", "turn", "demo", "--", "./no/such/program")
	tt.expect(126, "", "permission denied", "turn", "demo", "--", file)
	info, err := tt.store.Stat(t.Context(), "demo")
	if err != nil || info.LastSeq != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	// Found, but not a program after all: the turn was taken, and is free again.
	if err := os.Chmod(file, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("\x00\x01"), 0); err != nil {
		t.Fatal(err)
	}
	tt.expect(126, "", "exec format error", "turn", "demo", "--", file)
	if held := tt.held(); held != nil {
		t.Errorf("it is still held: %+v", held)
	}
}

// TestTurnHeld: a refused claim says who has the turn, in words and in JSON.
func TestTurnHeld(t *testing.T) {
	tt := newTurnTest(t)
	first := tt.acquire(hansard.Claim{Label: "planner", TTL: time.Hour})
	tt.expect(5, "", "turn of session demo is held by planner pid ", "turn", "demo", "--", "true")
	code, _, errs := tt.run("turn", "demo", "--json", "--wait", "20ms", "--", "true")
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	var e struct {
		Code string
		Exit int
		Turn *hansard.Turn
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); err != nil || code != 5 || e.Code != "held" || e.Exit != 5 ||
		e.Turn == nil || e.Turn.Grant != first.Grant || e.Turn.Holder.Label != "planner" {
		t.Errorf("exit code %d, %v, %s", code, err, errs)
	}
	// If it is not exclusive, others can write.
	tt.expect(0, "seq 2", "", "append", "demo", "hello")
}

// TestTurnExclusive: an exclusive turn keeps out everything but the inbox.
func TestTurnExclusive(t *testing.T) {
	tt := newTurnTest(t)
	turn := tt.acquire(hansard.Claim{Label: "planner", TTL: time.Hour, Exclusive: true})
	tt.expect(5, "", "held exclusively by planner pid ", "append", "demo", "hello")
	tt.expect(5, "", "append --inbox is always accepted", "append", "demo", "hello")
	tt.expect(5, "", "planner", "set", "demo", "--title", "x")
	tt.expect(5, "", "planner", "rm", "demo", "--yes")
	tt.expect(0, "seq 2", "", "append", "demo", "hello", "--inbox")
	tt.expect(0, "message  inbox\n      hello", "", "show", "demo")
	tt.expect(0, "seq 3", "", "append", "demo", "mine", "--turn", string(turn.Grant))
	tt.expect(0, "seq 4", "", "set", "demo", "--title", "x", "--turn", string(turn.Grant))
	tt.expect(5, "", "fenced", "append", "demo", "mine", "--turn", "7-9f86d081884c7d65")
	tt.expect(2, "", `"seven" is not a grant`, "append", "demo", "mine", "--turn", "seven")
	tt.expect(0, "may append to the inbox only", "", "turn", "demo", "--show")
	tt.expect(0, "deleted", "", "rm", "demo", "--yes", "--turn", string(turn.Grant))
}

// TestTurnEnvironment: inside a turn append, set and rm write under it, but only to its session,
// in its store; and a turn inside itself does not wait for ever.
func TestTurnEnvironment(t *testing.T) {
	tt := newTurnTest(t)
	turn := tt.acquire(hansard.Claim{TTL: time.Hour})
	t.Setenv(envSession, "demo")
	t.Setenv(envTurn, string(turn.Grant))
	last := func() hansard.Grant {
		t.Helper()
		for e, err := range tt.store.Read(t.Context(), "demo", hansard.Range{Last: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			return e.Turn
		}
		return "?"
	}
	for _, c := range []struct {
		want hansard.Grant
		args []string
	}{
		{turn.Grant, []string{"append", "demo", "x"}},
		{turn.Grant, []string{"set", "demo", "--title", "x"}},
		{turn.Grant, []string{"append", "demo", "x", "--store", "/nowhere/../somewhere"}},
		{turn.Grant, []string{"append", "demo", "x", "--store", "file:/somewhere"}},
		{"", []string{"append", "demo", "x", "--turn", ""}},
		{turn.Grant, []string{"append", "demo", "x", "--store", "/elsewhere"}}, // the same store
	} {
		if tt.expect(0, "", "", c.args...); last() != c.want {
			t.Errorf("%s: written under %q, want %q", c.args, last(), c.want)
		}
	}
	t.Setenv(envStoreID, "another store's")
	if tt.expect(0, "", "", "append", "demo", "x", "--store", "/elsewhere"); last() != "" {
		t.Errorf("in another store: written under %q", last())
	}
	t.Setenv(envStoreID, "")
	tt.expect(0, "", "", "append", "other", "x", "--create")
	tt.expect(5, "", "runs in that turn already", "turn", "demo", "--wait", "forever", "--", "true")
	tt.expect(5, "", "runs in that turn already", "turn", "demo", "--steal", "--reason", "r", "--", "true")
	// The turn is stolen: whatever is still written here is refused.
	thief := tt.acquire(hansard.Claim{Steal: "because", Label: "thief", TTL: time.Hour})
	tt.expect(5, "", "it is held by thief", "append", "demo", "x")
	tt.expect(5, "", "fenced", "set", "demo", "--title", "y")
	tt.expect(5, "", "fenced", "rm", "demo", "--yes")
	if err := tt.store.Release(t.Context(), "demo", thief.Grant); err != nil {
		t.Fatal(err)
	}
	tt.expect(5, "", "nobody holds it now", "append", "demo", "x")
	t.Setenv(envTurn, "garbage")
	tt.expect(2, "", `HANSARD_TURN: "garbage" is not a grant`, "append", "demo", "x")
}

// TestTurnLost: when the turn is lost the program is asked to end, and killed if it does not; the
// exit code is 5 either way.
func TestTurnLost(t *testing.T) {
	for name, script := range map[string]string{
		"listens":   `trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.02; done`,
		"is deaf":   `trap '' TERM; echo up; while :; do sleep 0.02; done`,
		"is asleep": `echo up; kill -STOP $$; echo awake`,
	} {
		t.Run(name, func(t *testing.T) {
			tt := newTurnTest(t)
			up := filepath.Join(t.TempDir(), "up")
			done := make(chan struct{})
			go func() {
				defer close(done)
				for deadline := time.Now().Add(waitMax); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
					if b, _ := os.ReadFile(up); len(b) > 0 {
						break
					}
				}
				_, err := tt.store.Acquire(t.Context(), "demo", hansard.Claim{Steal: "it hangs", Label: "thief", TTL: time.Hour})
				if err != nil {
					t.Error(err)
				}
			}()
			code, _, errs := tt.run("turn", "demo", "--grace", "300ms", "--", "sh", "-c", "exec >"+up+"; "+script)
			<-done
			if code != 5 || !strings.Contains(errs, "the turn was lost and the program ended") || !strings.Contains(errs, "held by thief") {
				t.Errorf("exit code %d, stderr %s", code, errs)
			}
			if b, _ := os.ReadFile(up); name == "listens" && string(b) != "up\ntold\n" {
				t.Errorf("the program said %q", b)
			}
			if held := tt.held(); held == nil || held.Holder.Label != "thief" {
				t.Errorf("the thief's turn: %+v", held)
			}
		})
	}
}

// TestTurnMaxHold: a program that runs too long loses its turn.
func TestTurnMaxHold(t *testing.T) {
	tt := newTurnTest(t)
	tt.expect(5, "", "held for its whole 100ms", "turn", "demo", "--max-hold", "100ms", "--", "sleep", "60")
}

// TestTurnShow: who, since when, until when, and who wrote last.
func TestTurnShow(t *testing.T) {
	tt := newTurnTest(t)
	tt.expect(0, "turn     free", "", "turn", "demo", "--show")
	turn := tt.acquire(hansard.Claim{Label: "evil \x1b[2J", TTL: time.Minute, MaxHold: time.Hour})
	tt.expect(0, "", "", "append", "demo", "hello", "--role", "user", "--author", "ada")
	code, out, errs := tt.run("turn", "demo", "--show")
	for _, want := range []string{"turn     " + string(turn.Grant), `holder   evil \x1b[2J pid `, "since    20", "alive    20", "(in ",
		"or 1m0s without a sign of life", "others   may append\n", "written  seq 2, user (ada), without the turn, just now"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q in\n%s%s", code, want, out, errs)
		}
	}
	code, out, errs = tt.run("turn", "demo", "--show", "--json")
	var r turnReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Turn == nil || r.Turn.Grant != turn.Grant ||
		r.Until == nil || !r.Until.Equal(turn.Since.Add(time.Hour)) || r.Last == nil || r.Last.Author != "ada" || r.Last.Seq != 2 {
		t.Errorf("exit code %d, %v\n%s%s", code, err, out, errs)
	}
	tt.expect(0, "held by evil", "", "ls")
	tt.expect(0, "held by evil", "", "stat", "demo")
	tt.expect(0, `"label":"evil \u001b[2J"`, "", "ls", "--json")
	tt.expect(3, "", "other", "turn", "other", "--show")
}

// TestTurnSteal: with a program it is run; without one the holder has lost the turn and nobody
// has it. The reason is on record.
func TestTurnSteal(t *testing.T) {
	tt := newTurnTest(t)
	tt.expect(0, "nobody held the turn", "", "turn", "demo", "--steal", "--reason", "in vain")
	first := tt.acquire(hansard.Claim{Label: "first", TTL: time.Hour})
	tt.expect(0, "2-", "", "turn", "demo", "--steal", "--reason", "it hangs", "--", "sh", "-c", "echo $HANSARD_TURN")
	if err := tt.store.Renew(t.Context(), "demo", first.Grant); !errors.Is(err, hansard.ErrFenced) {
		t.Errorf("the first one renews: %v", err)
	}
	second := tt.acquire(hansard.Claim{Label: "second", TTL: time.Hour})
	tt.expect(0, "turn "+string(second.Grant)+" was taken from second pid ", "", "turn", "demo", "--steal", "--reason", "again")
	if held := tt.held(); held != nil {
		t.Errorf("it is held: %+v", held)
	}
	third := tt.acquire(hansard.Claim{Label: "third", TTL: time.Hour})
	tt.expect(0, `"from":{"grant":"`+string(third.Grant)+`"`, "", "turn", "demo", "--steal", "--reason", "json", "--json")
	_, out, _ := tt.run("show", "demo")
	for _, want := range []string{"── turn 2 stolen from turn 1 by sh (pid ", "): it hangs ──", ": again ──"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestTurnRecords: every record of a turn is described in words, and unknown ones are shown as
// they are.
func TestTurnRecords(t *testing.T) {
	who := hansard.Holder{Label: "planner", Host: "host", PID: 12}
	for want, r := range map[string]hansard.TurnRecord{
		"turn 7 taken by planner (pid 12 on host)":                                                 {Change: hansard.TurnGranted, Holder: who},
		"turn 7 taken by planner (pid 12 on host), exclusive":                                      {Change: hansard.TurnGranted, Holder: who, Exclusive: true},
		"turn 7 taken by somebody unnamed":                                                         {Change: hansard.TurnGranted},
		"turn 7 taken by somebody on host":                                                         {Change: hansard.TurnGranted, Holder: hansard.Holder{Host: "host"}},
		"turn 7 taken by planner (on host)":                                                        {Change: hansard.TurnGranted, Holder: hansard.Holder{Label: "planner", Host: "host"}},
		"turn 7 taken by planner":                                                                  {Change: hansard.TurnGranted, Holder: hansard.Holder{Label: "planner"}},
		"turn 7 taken over by planner (pid 12 on host): the holder of turn 6 is dead":              {Change: hansard.TurnTaken, Holder: who, From: "6-9f86d081884c7d65", Why: "dead"},
		"turn 7 taken over by planner (pid 12 on host): the holder of turn 6 gave no sign of life": {Change: hansard.TurnTaken, Holder: who, From: "6-9f86d081884c7d65", Why: "silent"},
		"turn 7 taken over by planner (pid 12 on host): the holder of turn 6 had it for too long":  {Change: hansard.TurnTaken, Holder: who, From: "6-9f86d081884c7d65", Why: "overdue"},
		`turn 7 stolen from turn 6 by planner (pid 12 on host): it\nhangs`:                         {Change: hansard.TurnStolen, Holder: who, From: "6-9f86d081884c7d65", Reason: "it\nhangs"},
		"turn 7 released":                               {Change: hansard.TurnReleased},
		"turn 7 ended: its holder is dead":              {Change: hansard.TurnEnded, Why: "dead"},
		"turn 7 ended: its holder gave no sign of life": {Change: hansard.TurnEnded, Why: "silent"},
		"turn 7 ended: repaired":                        {Change: hansard.TurnEnded, Why: "repaired"},
		"turn 7 continues in another process":           {Change: hansard.TurnMoved},
		"":                                              {Change: "painted"},
	} {
		e := r.Event()
		e.Turn = "7-9f86d081884c7d65"
		if got, known := noteText(transcript.Of(e)); got != want || known != (want != "") {
			t.Errorf("%+v is %q, want %q", r, got, want)
		}
	}
}
