//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard/internal/syncbuf"
)

// waitMax bounds every wait of these tests, so that they fail instead of hanging.
const waitMax = 30 * time.Second

// process is the command running as a separate process.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // of standard output; closed at its end
	stderr *syncbuf.Buffer
}

func start(t *testing.T, store string, args ...string) *process {
	t.Helper()
	return startAs(t, store, "hansard", args...)
}

// startAs is start with another program in front.
func startAs(t *testing.T, store, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(name, args...), lines: make(chan string, 1000), stderr: new(syncbuf.Buffer)}
	p.cmd.Env = append(p.cmd.Environ(), "HANSARD_STORE="+store)
	p.cmd.Stderr = p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	return p
}

// line waits for the next line of output.
func (p *process) line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("the output ended; stderr: %s", p.stderr)
		}
		return line
	case <-time.After(waitMax):
		p.t.Fatalf("no output; stderr: %s", p.stderr)
	}
	return ""
}

func (p *process) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, text); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the end and returns the exit code.
func (p *process) exit() int {
	p.t.Helper()
	timer := time.AfterFunc(waitMax, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	for range p.lines {
	}
	p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// hansardOK runs a command that must succeed and returns its output.
func hansardOK(t *testing.T, store string, args ...string) string {
	t.Helper()
	cmd := exec.Command("hansard", args...)
	cmd.Env = append(cmd.Environ(), "HANSARD_STORE="+store)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("hansard %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestAppendEachStopped: a signal ends a run between two appends; what was acknowledged is
// stored, and the message says how much that is.
func TestAppendEachStopped(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(sig.String(), func(t *testing.T) {
			store := filepath.Join(t.TempDir(), "store")
			p := start(t, store, "append", "demo", "--create", "--jsonl", "-", "--each", "--json")
			for i := 1; i <= 3; i++ {
				p.send(fmt.Sprintln(i))
				// The receipt comes while the input is still open.
				created := map[bool]string{true: `,"created":true`}[i == 1]
				if got, want := p.line(), fmt.Sprintf(`{"session":"demo","first":%d,"last":%d,"replayed":false%s}`, i, i, created); got != want {
					t.Fatalf("receipt %s, want %s", got, want)
				}
			}
			p.cmd.Process.Signal(sig)
			if got := p.exit(); got != code {
				t.Errorf("exit code %d, want %d", got, code)
			}
			if want := "hansard: interrupted; stored before that: 3 events, last seq 3\n"; !strings.HasPrefix(p.stderr.String(), want) {
				t.Errorf("stderr %q, want %q", p.stderr, want)
			}
			if got := hansardOK(t, store, "stat", "demo", "--json"); !strings.Contains(got, `"last_seq":3`) {
				t.Errorf("after the signal: %s", got)
			}
		})
	}
}

// TestBatchStopped: a batch whose input was not read to the end is not stored.
func TestBatchStopped(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "demo")
	p := start(t, store, "append", "demo", "--jsonl", "-")
	p.send("1\n2\n")
	p.cmd.Process.Signal(syscall.SIGINT)
	if code := p.exit(); code != 130 && code != -1 { // -1: the signal came before the handler
		t.Errorf("exit code %d, want 130", code)
	}
	if got := hansardOK(t, store, "stat", "demo", "--json"); !strings.Contains(got, `"last_seq":0`) {
		t.Errorf("after the signal: %s", got)
	}
}

// TestTailFollow: each event arrives the moment it is durable, whoever wrote it, once and in
// order, and Ctrl-C ends it without an error.
func TestTailFollow(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "append", "demo", "one", "--create")
	hansardOK(t, store, "append", "demo", "two")
	p := start(t, store, "tail", "-f", "demo", "-n", "1", "--json")
	if line := p.line(); !strings.HasPrefix(line, `{"seq":2,`) {
		t.Fatalf("first line %s, want seq 2", line)
	}
	for seq := 3; seq <= 6; seq++ {
		hansardOK(t, store, "append", "demo", fmt.Sprint("event ", seq))
		if line := p.line(); !strings.HasPrefix(line, fmt.Sprintf(`{"seq":%d,`, seq)) {
			t.Fatalf("line %s, want seq %d", line, seq)
		}
	}
	// A stopped follower blocks nobody, and is only late.
	p.cmd.Process.Signal(syscall.SIGTSTP)
	waitStopped(t, p.cmd.Process.Pid)
	hansardOK(t, store, "append", "demo", "while it is stopped")
	p.cmd.Process.Signal(syscall.SIGCONT)
	if line := p.line(); !strings.HasPrefix(line, `{"seq":7,`) {
		t.Fatalf("line %s, want seq 7", line)
	}
	p.cmd.Process.Signal(syscall.SIGINT)
	if code := p.exit(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	if got := p.stderr.String(); got != "" {
		t.Errorf("stderr %q, want nothing", got)
	}
}

// TestTailDeleted: a follower learns that its session was deleted.
func TestTailDeleted(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "append", "demo", "one", "--create")
	p := start(t, store, "tail", "-f", "demo")
	p.line()
	hansardOK(t, store, "rm", "demo", "--yes")
	if code := p.exit(); code != 3 || !strings.Contains(p.stderr.String(), "deleted") {
		t.Errorf("exit code %d, stderr %q, want 3 and deleted", code, p.stderr)
	}
}

// TestTailSeveral: several sessions are followed at once, each in order; that one ends, or never
// existed, is reported and does not end the others.
func TestTailSeveral(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "append", "a", "one", "--create")
	hansardOK(t, store, "append", "b", "one", "--create")
	p := start(t, store, "tail", "-f", "a", "nope", "b", "--json")
	for _, want := range []string{`{"session":"a","seq":1,`, `{"session":"b","seq":1,`} {
		if line := p.line(); !strings.HasPrefix(line, want) {
			t.Fatalf("line %s, want %s", line, want)
		}
	}
	for i, id := range []string{"b", "a", "a", "b"} {
		hansardOK(t, store, "append", id, "more")
		if line, want := p.line(), fmt.Sprintf(`{"session":%q,"seq":%d,`, id, 2+i/2); !strings.HasPrefix(line, want) {
			t.Fatalf("line %s, want %s", line, want)
		}
	}
	hansardOK(t, store, "rm", "a", "--yes")
	hansardOK(t, store, "append", "b", "goes on")
	if line := p.line(); !strings.HasPrefix(line, `{"session":"b","seq":4,`) {
		t.Fatalf("line %s, want seq 4 of b", line)
	}
	hansardOK(t, store, "rm", "b", "--yes")
	if code := p.exit(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	for _, want := range []string{"session nope: no such session", "session a: session was deleted", "session b: session was deleted"} {
		if strings.Count(p.stderr.String(), "hansard: "+want) != 1 {
			t.Errorf("stderr %s\nwant once: %s", p.stderr, want)
		}
	}
	// Ctrl-C ends them all.
	hansardOK(t, store, "append", "c", "one", "--create")
	hansardOK(t, store, "append", "d", "one", "--create")
	p = start(t, store, "tail", "-f", "c", "d")
	for p.line() != "==> d <==" {
	}
	p.cmd.Process.Signal(syscall.SIGINT)
	if code := p.exit(); code != 130 || p.stderr.String() != "" {
		t.Errorf("exit code %d, stderr %q", code, p.stderr)
	}
}

// TestStopped: a command stopped by Ctrl-Z is outside the store's lock, so that others can write,
// and it continues where it was.
func TestStopped(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	p := start(t, store, "append", "demo", "--create", "--jsonl", "-", "--each", "--json")
	p.send("1\n")
	p.line() // it is up: an earlier signal would have its default effect
	seq := 1
	for range 20 {
		// The signal comes during an append, or just before or after.
		p.send("1\n")
		p.cmd.Process.Signal(syscall.SIGTSTP)
		waitStopped(t, p.cmd.Process.Pid)
		out := hansardOK(t, store, "append", "demo", "meanwhile", "--create", "--json")
		if !strings.Contains(out, `"replayed":false`) {
			t.Fatalf("append beside a stopped one: %s", out)
		}
		p.cmd.Process.Signal(syscall.SIGCONT)
		p.line()
		seq += 2
	}
	p.stdin.Close()
	if code := p.exit(); code != 0 {
		t.Fatalf("exit code %d, stderr %s", code, p.stderr)
	}
	if got, want := hansardOK(t, store, "stat", "demo", "--json"), fmt.Sprintf(`"last_seq":%d,`, seq); !strings.Contains(got, want) {
		t.Errorf("stat %s, want %s", got, want)
	}
}

// waitStopped waits until the kernel reports that a child has stopped.
func waitStopped(t *testing.T, pid int) {
	t.Helper()
	stopped := make(chan error, 1)
	go func() {
		for {
			var status syscall.WaitStatus
			_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
			if err == syscall.EINTR {
				continue
			}
			if err == nil && !status.Stopped() {
				err = fmt.Errorf("it ended: %v", status)
			}
			stopped <- err
			return
		}
	}()
	select {
	case err := <-stopped:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(waitMax):
		t.Fatal("it did not stop")
	}
}

// TestBrokenPipe: when the reader of the output has gone away, the command ends silently.
func TestBrokenPipe(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "append", "demo", strings.Repeat("x", 100_000), "--create")
	for range 3 {
		hansardOK(t, store, "append", "demo", strings.Repeat("x", 100_000))
	}
	cmd := exec.Command("hansard", "show", "demo", "--json")
	cmd.Env = append(cmd.Environ(), "HANSARD_STORE="+store)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 141 || stderr.String() != "" {
		t.Errorf("exit code %d, stderr %q, want 141 and nothing", code, stderr.String())
	}
}

// TestServeIndexes: a server keeps the search index of its store up to date, so that the first
// search does not have to read all sessions.
func TestServeIndexes(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "append", "a", "hello", "--create")
	p := start(t, store, "serve", "--listen", "127.0.0.1:0")
	for !strings.HasPrefix(p.line(), "serving ") {
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	enough := time.After(waitMax)
	for {
		if info, err := os.Stat(filepath.Join(store, "cache", "search.db")); err == nil && info.Size() > 0 {
			return
		}
		select {
		case <-look.C:
		case <-enough:
			t.Fatalf("nobody has searched, and there is no index; stderr: %s", p.stderr)
		}
	}
}
