package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
	"golang.org/x/sys/unix"

	"hansard"
	"hansard/filestore"
)

// onTerminal runs the command on a pseudo terminal 60 columns wide and returns what the terminal
// showed. When it shows prompt, the answer is typed.
func onTerminal(t *testing.T, store, prompt, answer string, env []string, args ...string) (string, int) {
	t.Helper()
	var talk []exchange
	if prompt != "" {
		talk = []exchange{{prompt, answer}}
	}
	return converse(t, store, talk, env, append([]string{"hansard"}, args...)...)
}

// exchange is what is typed when the terminal shows something.
type exchange struct{ shown, typed string }

// converse runs a program on a pseudo terminal, which is its controlling terminal, and types what
// the exchanges say, one after another.
func converse(t *testing.T, store string, talk []exchange, env []string, args ...string) (string, int) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIPPED, no pseudo terminals here: %v", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 60}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(append(cmd.Environ(), "HANSARD_STORE="+store, "TERM=xterm", "NO_COLOR="), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // Ctrl-C is a signal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	shown := make(chan string)
	go func() {
		defer close(shown)
		for buf := make([]byte, 4096); ; {
			n, err := master.Read(buf)
			shown <- string(buf[:n])
			if err != nil { // EIO: the other side is closed
				return
			}
		}
	}()
	var screen strings.Builder
	seen := 0 // how much of the screen has been examined
	deadline := time.After(waitMax)
	for open := true; open; {
		var text string
		select {
		case text, open = <-shown:
		case <-deadline:
			cmd.Process.Kill()
			t.Fatalf("it did not end; the terminal shows %q", screen.String())
		}
		screen.WriteString(text)
		for len(talk) > 0 {
			at := strings.Index(screen.String()[seen:], talk[0].shown)
			if at < 0 {
				break
			}
			seen += at + len(talk[0].shown)
			io.WriteString(master, talk[0].typed)
			talk = talk[1:]
		}
	}
	cmd.Wait()
	master.Close()
	if len(talk) > 0 {
		t.Errorf("the terminal never showed %q", talk[0].shown)
	}
	return strings.ReplaceAll(screen.String(), "\r\n", "\n"), cmd.ProcessState.ExitCode()
}

// TestTerminalRm: on a terminal rm asks, and only yes means yes.
func TestTerminalRm(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "demo", "--title", "evil \x1b[2J")
	for _, answer := range []string{"n\n", "\n", "demo\n", "\x04"} {
		screen, code := onTerminal(t, store, "[y/N]", answer, nil, "rm", "demo")
		if code != 1 || !strings.Contains(screen, "nothing was deleted") || strings.Contains(screen, "\x1b[2J") {
			t.Errorf("answer %q: exit code %d, screen %q", answer, code, screen)
		}
	}
	if screen, code := onTerminal(t, store, "[y/N]", "\x03", nil, "rm", "demo"); code != 130 {
		t.Errorf("after Ctrl-C: exit code %d, screen %q", code, screen)
	}
	hansardOK(t, store, "stat", "demo")
	if screen, code := onTerminal(t, store, "[y/N]", "y\n", nil, "rm", "demo"); code != 0 || !strings.Contains(screen, "demo  deleted") {
		t.Errorf("answer y: exit code %d, screen %q", code, screen)
	}
	hansardOK(t, store, "new", "other")
	if screen, code := onTerminal(t, store, "", "", nil, "rm", "other", "--yes"); code != 0 || strings.Contains(screen, "[y/N]") {
		t.Errorf("--yes: exit code %d, screen %q", code, screen)
	}

	// Whose turn it is is a part of the question.
	hansardOK(t, store, "new", "busy")
	s, err := filestore.Open(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Acquire(t.Context(), "busy", hansard.Claim{Label: "planner"}); err != nil {
		t.Fatal(err)
	}
	if screen, code := onTerminal(t, store, "[y/N]", "n\n", nil, "rm", "busy"); code != 1 || !strings.Contains(screen, "session busy (1 event; its turn is held by planner ") {
		t.Errorf("a held one: exit code %d, screen %q", code, screen)
	}
	if screen, code := onTerminal(t, store, "[y/N]", "y\n", nil, "rm", "busy"); code != 0 || !strings.Contains(screen, "busy  deleted") {
		t.Errorf("a held one, y: exit code %d, screen %q", code, screen)
	}

	// One question for all that exist, and only those are deleted.
	hansardOK(t, store, "append", "one", "x", "--create")
	hansardOK(t, store, "new", "two", "--title", "The second")
	screen, code := onTerminal(t, store, "[y/N]", "n\n", nil, "rm", "one", "two")
	if code != 1 || strings.Count(screen, "[y/N]") != 1 || !strings.Contains(screen, "  one (1 event)\n  two (\"The second\", 0 events)\nDelete these 2 sessions") {
		t.Errorf("two, n: exit code %d, screen %q", code, screen)
	}
	screen, code = onTerminal(t, store, "[y/N]", "y\n", nil, "rm", "one", "nope", "two")
	if code != 3 || !strings.Contains(screen, "session nope: no such session") || !strings.Contains(screen, "one  deleted\ntwo  deleted\n") {
		t.Errorf("two and one that is not there: exit code %d, screen %q", code, screen)
	}
	if screen, code := onTerminal(t, store, "", "", nil, "rm", "one", "nope"); code != 3 || strings.Contains(screen, "[y/N]") {
		t.Errorf("none is there: exit code %d, screen %q", code, screen)
	}
}

// TestTerminalColours: colours on a terminal, but not with NO_COLOR, and content never brings its
// own.
func TestTerminalColours(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "append", "demo", "content \x1b[31m", "--create", "--role", "user")
	screen, _ := onTerminal(t, store, "", "", nil, "show", "demo")
	if !strings.Contains(screen, "\x1b[1;36muser\x1b[0m") || !strings.Contains(screen, `content \x1b[31m`) {
		t.Errorf("screen %q", screen)
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if screen, _ := onTerminal(t, store, "", "", []string{env}, "show", "demo"); strings.Contains(screen, "\x1b") {
			t.Errorf("%s: screen %q", env, screen)
		}
	}
}

// TestTerminalWidth: the list fits the terminal: columns are cut, and left out before a row
// wraps, and ids stay whole.
func TestTerminalWidth(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "a-session-with-a-long-id", "--title", strings.Repeat("日本", 40), "--label", "k="+strings.Repeat("v", 50))
	hansardOK(t, store, "new", "other", "--label", "k=v")
	screen, _ := onTerminal(t, store, "", "", []string{"NO_COLOR=1"}, "ls")
	lines := strings.Split(strings.TrimSpace(screen), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[2], "a-session-with-a-long-id  日本") || !strings.Contains(lines[2], "…") {
		t.Errorf("screen %q", screen)
	}
	for _, line := range lines {
		if n := runewidth.StringWidth(line); n > 60 {
			t.Errorf("a line of %d columns on a terminal of 60: %q", n, line)
		}
	}
	if !strings.Contains(lines[0], "UPDATED") || strings.Contains(lines[0], "LABELS") {
		t.Errorf("columns %q", lines[0])
	}
}

// TestTerminalList: a list on a terminal is one screen long and says how many more there are; the
// command it names lists them, with the same filters.
func TestTerminalList(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	for i := range 30 {
		hansardOK(t, store, "new", fmt.Sprintf("s%02d", i), "--label", "even="+fmt.Sprint(i%2 == 0))
	}
	list := func(args ...string) (rows int, rest string) {
		t.Helper()
		screen, code := onTerminal(t, store, "", "", []string{"NO_COLOR=1"}, append([]string{"ls"}, args...)...)
		if code != 0 {
			t.Errorf("ls %q: exit code %d", args, code)
		}
		for _, line := range strings.Split(strings.TrimSpace(screen), "\n") {
			if strings.HasPrefix(line, "s") {
				rows++
			} else if !strings.HasPrefix(line, "ID") {
				rest = line
			}
		}
		return rows, rest
	}
	for _, tt := range []struct {
		args []string
		rows int
		rest string
	}{
		{nil, 21, "9 more; all of them: hansard ls --all"}, // of 24 lines
		{[]string{"--text", "s"}, 21, "9 more; all of them: hansard ls --text s --all"},
		{[]string{"--label", "even=true"}, 15, ""},
		{[]string{"--all"}, 30, ""},
		{[]string{"--limit", "0"}, 30, ""},
		{[]string{"--text", "nothing"}, 0, "no session matches"},
	} {
		if rows, rest := list(tt.args...); rows != tt.rows || rest != tt.rest {
			t.Errorf("ls %q: %d rows, %q; want %d, %q", tt.args, rows, rest, tt.rows, tt.rest)
		}
	}
	rows, rest := list("--limit", "4", "--label", "even=true")
	if rows != 4 || !strings.HasPrefix(rest, "11 more: hansard ls --label even=true --limit 4 --cursor ") {
		t.Errorf("--limit: %d rows, %q", rows, rest)
	}
	screen, _ := onTerminal(t, store, "", "", nil, "ls", "--json")
	if n := strings.Count(screen, `"id"`); n != 30 {
		t.Errorf("--json: %d of 30 sessions", n)
	}
}

// TestTerminalTurn: Ctrl-C and Ctrl-Z reach only the program, once; the shell gets its prompt
// back when it is stopped, and can put it into the foreground again; and at the end the terminal
// belongs to the shell.
func TestTerminalTurn(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "demo")
	t.Run("Ctrl-C", func(t *testing.T) {
		script := `hansard turn demo -- sh -c 'trap "echo told; exit 3" INT; echo up; while :; do sleep 0.05; done'; echo code=$?; read x; echo "shell has $x"`
		screen, _ := converse(t, store, []exchange{{"up", "\x03"}, {"code=3", "it\n"}}, nil, "sh", "-c", script)
		if strings.Count(screen, "told") != 1 || !strings.Contains(screen, "shell has it") {
			t.Errorf("screen %q", screen)
		}
	})
	t.Run("Ctrl-Z", func(t *testing.T) {
		script := `set -m; hansard turn demo --ttl 10m -- sh -c 'echo up; read x; echo "program has $x"'; echo stopped=$?; ` +
			`hansard turn demo --show; hansard append demo x; fg; echo code=$?; read x; echo "shell has $x"`
		screen, _ := converse(t, store, []exchange{{"up", "\x1a"}, {"stopped=14", ""}, {"seq ", ""}, {"turn demo", "this\n"}, {"code=0", "that\n"}}, []string{"NO_COLOR=1"}, "sh", "-c", script)
		if !strings.Contains(screen, "program has this") || !strings.Contains(screen, "shell has that") || !strings.Contains(screen, "holder   sh pid") {
			t.Errorf("screen %q", screen)
		}
	})
	t.Run("Ctrl-Z without a shell", func(t *testing.T) {
		// Nobody could continue it, so it is not stopped.
		screen, code := converse(t, store, []exchange{{"up", "\x1a"}, {"^Z", "this\n"}}, nil, "hansard", "turn", "demo", "--", "sh", "-c", `echo up; read x; echo "program has $x"`)
		if code != 0 || !strings.Contains(screen, "program has this") {
			t.Errorf("exit code %d, screen %q", code, screen)
		}
	})
	t.Run("in the background", func(t *testing.T) {
		// The shell keeps its terminal, and a background program that wants it waits for fg.
		script := `set -m; echo up; hansard turn demo -- sh -c 'read x; echo "program has $x"' & read x; echo "shell has $x"; ` +
			`until jobs >$HANSARD_STORE.jobs; grep -qiE 'stop|susp' $HANSARD_STORE.jobs; do sleep 0.05; done; echo waited; fg; echo code=$?`
		screen, _ := converse(t, store, []exchange{{"up", "that\n"}, {"waited", "this\n"}, {"code=0", ""}}, nil, "sh", "-c", script)
		if !strings.Contains(screen, "shell has that") || !strings.Contains(screen, "program has this") {
			t.Errorf("screen %q", screen)
		}
	})
}

// TestTerminalShow: on a terminal a transcript longer than the screen goes to the pager, whole
// and in colours; a short one does not, nor does anything with --no-pager, --json or PAGER=cat;
// and leaving the pager early is not an error.
func TestTerminalShow(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	hansardOK(t, store, "new", "short")
	hansardOK(t, store, "append", "short", "one line", "--role", "user")
	hansardOK(t, store, "new", "long")
	var lines strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&lines, "{\"role\":\"user\",\"content\":\"message %d\"}\n", i+1)
	}
	file := filepath.Join(dir, "lines.jsonl")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	hansardOK(t, store, "append", "long", "--jsonl", file)
	seen := filepath.Join(dir, "seen")
	pager := []string{"PAGER=tee " + seen + " | tail -1; echo LESS=$LESS"}
	show := func(env []string, args ...string) (screen, paged string) {
		t.Helper()
		_ = os.Remove(seen)
		screen, code := onTerminal(t, store, "", "", env, append([]string{"show"}, args...)...)
		if code != 0 {
			t.Errorf("%v: exit code %d: %q", args, code, screen)
		}
		text, err := os.ReadFile(seen)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return screen, string(text)
	}
	if screen, paged := show(pager, "short"); paged != "" || !strings.Contains(screen, "one line") || strings.Contains(screen, "LESS") {
		t.Errorf("a short one: paged %q, screen %q", paged, screen)
	}
	screen, paged := show(pager, "long")
	if strings.Count(paged, "      message ") != 3000 || !strings.Contains(screen, "message 3000") || strings.Contains(screen, "message 7\n") || !strings.Contains(screen, "LESS=FRX") {
		t.Errorf("a long one: %d messages paged, screen %q", strings.Count(paged, "      message "), screen)
	}
	if _, paged := show(append(pager, "NO_COLOR=", "TERM=xterm"), "long"); !strings.Contains(paged, "\x1b[1;36muser\x1b[0m") {
		t.Error("the pager gets no colours")
	}
	for _, c := range []struct {
		env  []string
		args []string
	}{{pager, []string{"long", "--no-pager"}}, {pager, []string{"long", "--json"}}, {[]string{"PAGER=cat"}, []string{"long"}}, {[]string{"PAGER="}, []string{"long"}}, {[]string{"PAGER=/no/such/pager"}, []string{"short"}}} {
		if screen, paged := show(c.env, c.args...); paged != "" || strings.Contains(screen, "LESS=") || c.args[0] == "long" && !strings.Contains(screen, "message 7") {
			t.Errorf("%v %v: %d bytes paged", c.env, c.args, len(paged))
		}
	}
	// Left after one line: that is not an error, and the rest is not waited for.
	if screen, code := onTerminal(t, store, "", "", []string{"PAGER=head -1"}, "show", "long"); code != 0 || strings.Contains(screen, "hansard:") {
		t.Errorf("left early: exit code %d, screen %q", code, screen)
	}
}

// TestTerminalAppend: append ID - says how to end the typed text, and Ctrl-C stores nothing.
func TestTerminalAppend(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "demo")
	// When Ctrl-C is typed the terminal discards output in flight, sometimes including the
	// message.
	if screen, code := onTerminal(t, store, "Ctrl-D", "half a \x03", nil, "append", "demo", "-"); code != 130 {
		t.Errorf("after Ctrl-C: exit code %d, screen %q", code, screen)
	}
	if screen, code := onTerminal(t, store, "Ctrl-D", "hello\n\x04", nil, "append", "demo", "-"); code != 0 || !strings.Contains(screen, "demo  seq 1") {
		t.Errorf("exit code %d, screen %q", code, screen)
	}
	if got := hansardOK(t, store, "show", "demo", "--json"); !strings.Contains(got, `"data":"hello"`) {
		t.Errorf("stored %s", got)
	}
}

// TestAttachStopped: a signal ends the wait for standard input, which may have nothing for ever.
func TestAttachStopped(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "demo")
	p := start(t, store, "attach", "demo", "-")
	p.send(strings.Repeat("x", 256<<10))                                      // more than a pipe holds: it is reading now
	for deadline := time.Now().Add(waitMax); ; time.Sleep(time.Millisecond) { // between two looks
		left, err := unix.IoctlGetInt(int(p.stdin.(interface{ Fd() uintptr }).Fd()), unix.TIOCINQ)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%d bytes are unread, %v", left, err)
		}
		if left == 0 {
			break
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(); code != 143 || !strings.Contains(p.stderr.String(), "was not attached") {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
	if got := hansardOK(t, store, "get", "demo"); !strings.Contains(got, "no attachments") {
		t.Errorf("it has %s", got)
	}
}

// TestContentOnTerminal: what others wrote can't drive the terminal, where it is shown as it is
// elsewhere, either.
func TestContentOnTerminal(t *testing.T) {
	const evil = "sées \x1b]0;owned\a \u009b31m \u202edlrow\n"
	dir := t.TempDir()
	store, file := filepath.Join(dir, "store"), filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte(evil), 0o600); err != nil {
		t.Fatal(err)
	}
	hansardOK(t, store, "append", "demo", "--create", evil)
	digest, _, _ := strings.Cut(hansardOK(t, store, "attach", "demo", file), " ")
	if got := hansardOK(t, store, "get", "demo", digest); got != evil {
		t.Errorf("get, without a terminal: %q", got)
	}
	for _, args := range [][]string{{"get", "demo", digest}, {"export", "demo"}, {"export", "demo", "--format", "md"}, {"export", "demo", "--format", "html"}, {"export", "demo", "--format", "openai"}} {
		screen, code := onTerminal(t, store, "", "", nil, args...)
		if code != 0 || !strings.Contains(screen, "sées") || strings.ContainsAny(screen, "\x1b\a\u009b\u202e") {
			t.Errorf("%q: exit %d, the terminal gets %q", args, code, screen)
		}
	}
}
