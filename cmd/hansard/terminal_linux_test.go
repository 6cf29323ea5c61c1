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

	"golang.org/x/sys/unix"
)

// onTerminal runs the command on a pseudo terminal 60 columns wide and gives what
// the terminal showed. When it shows prompt, the answer is typed.
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

// converse runs a program on a pseudo terminal, which is its own to control, and
// types what the exchanges say, one after the other.
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
	seen := 0 // how far the screen was looked at
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

// TestTerminalRm: on a terminal rm asks, and only yes is yes.
func TestTerminalRm(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "demo", "--title", "evil \x1b[2J")
	for _, answer := range []string{"n\n", "\n", "demo\n", "\x04"} {
		screen, code := onTerminal(t, store, "[y/N]", answer, nil, "rm", "demo")
		if code != 1 || !strings.Contains(screen, "nothing was deleted") || strings.Contains(screen, "\x1b[2J") {
			t.Errorf("answer %q: exit code %d, screen %q", answer, code, screen)
		}
	}
	if screen, code := onTerminal(t, store, "[y/N]", "\x03", nil, "rm", "demo"); code != 130 || !strings.Contains(screen, "nothing was deleted") {
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
}

// TestTerminalColours: colours on a terminal, not with NO_COLOR, and content
// never brings its own.
func TestTerminalColours(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "append", "demo", "content \x1b[31m", "--create", "--role", "user")
	screen, _ := onTerminal(t, store, "", "", nil, "show", "demo")
	if !strings.Contains(screen, "\x1b[1muser\x1b[0m") || !strings.Contains(screen, `content \x1b[31m`) {
		t.Errorf("screen %q", screen)
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if screen, _ := onTerminal(t, store, "", "", []string{env}, "show", "demo"); strings.Contains(screen, "\x1b") {
			t.Errorf("%s: screen %q", env, screen)
		}
	}
}

// TestTerminalWidth: the list fits the terminal, and ids stay whole.
func TestTerminalWidth(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "a-session-with-a-long-id", "--title", strings.Repeat("日本", 40), "--label", "k="+strings.Repeat("v", 50))
	screen, _ := onTerminal(t, store, "", "", []string{"NO_COLOR=1"}, "ls")
	lines := strings.Split(strings.TrimSpace(screen), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[1], "a-session-with-a-long-id  日本") || !strings.Contains(lines[1], "…") {
		t.Errorf("screen %q", screen)
	}
}

// TestTerminalTurn: Ctrl-C and Ctrl-Z reach the program alone, once; the shell gets
// its prompt back when it is stopped, and can put it into the foreground again; and
// at the end the terminal is the shell's.
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
		// Nobody could continue it: it goes on.
		screen, code := converse(t, store, []exchange{{"up", "\x1a"}, {"^Z", "this\n"}}, nil, "hansard", "turn", "demo", "--", "sh", "-c", `echo up; read x; echo "program has $x"`)
		if code != 0 || !strings.Contains(screen, "program has this") {
			t.Errorf("exit code %d, screen %q", code, screen)
		}
	})
	t.Run("in the background", func(t *testing.T) {
		// The shell's terminal stays the shell's, and what wants it waits for fg.
		script := `set -m; echo up; hansard turn demo -- sh -c 'read x; echo "program has $x"' & read x; echo "shell has $x"; ` +
			`until jobs >$HANSARD_STORE.jobs; grep -qiE 'stop|susp' $HANSARD_STORE.jobs; do sleep 0.05; done; echo waited; fg; echo code=$?`
		screen, _ := converse(t, store, []exchange{{"up", "that\n"}, {"waited", "this\n"}, {"code=0", ""}}, nil, "sh", "-c", script)
		if !strings.Contains(screen, "shell has that") || !strings.Contains(screen, "program has this") {
			t.Errorf("screen %q", screen)
		}
	})
}
