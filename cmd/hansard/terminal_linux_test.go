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
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIPPED, no pseudo terminals here: %v", err)
	}
	defer master.Close()
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
	cmd := exec.Command("hansard", args...)
	cmd.Env = append(append(cmd.Environ(), "HANSARD_STORE="+store, "TERM=xterm", "NO_COLOR="), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // Ctrl-C is a signal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	timer := time.AfterFunc(waitMax, func() { cmd.Process.Kill() })
	defer timer.Stop()
	var screen strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := master.Read(buf)
		screen.Write(buf[:n])
		if prompt != "" && strings.Contains(screen.String(), prompt) {
			prompt = ""
			io.WriteString(master, answer)
		}
		if err != nil { // EIO: the other side is closed
			break
		}
	}
	cmd.Wait()
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
