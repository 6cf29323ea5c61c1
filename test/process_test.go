//go:build unix

package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hansard/internal/syncbuf"
)

// process is a program running beside the test, in its own process group.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    *queue // its lines of output
	stderr *syncbuf.Buffer
	ended  chan struct{} // closed once it was waited for
}

// queue holds lines until somebody takes them: a test that does not read must not block the
// program that writes.
type queue struct {
	mu    sync.Mutex
	lines []string
	ended bool
	more  chan struct{} // has room for one wake-up
	each  func(string)  // takes the lines instead, if set
}

func (q *queue) put(line string) {
	if q.each != nil {
		q.each(line)
		return
	}
	q.mu.Lock()
	q.lines = append(q.lines, line)
	q.mu.Unlock()
	q.wake()
}

func (q *queue) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.wake()
}

func (q *queue) wake() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// take waits for the next line; false is the end.
func (q *queue) take(t *testing.T) (string, bool) {
	t.Helper()
	deadline := time.NewTimer(waitMax)
	defer deadline.Stop()
	for {
		q.mu.Lock()
		if len(q.lines) > 0 {
			line := q.lines[0]
			q.lines = q.lines[1:]
			q.mu.Unlock()
			return line, true
		}
		ended := q.ended
		q.mu.Unlock()
		if ended {
			return "", false
		}
		select {
		case <-q.more:
		case <-deadline.C:
			t.Fatal("no line of output came")
		}
	}
}

// start starts a program. Each line of its output goes to each, or if that is nil to line. It is
// killed at the end of the test.
func start(t *testing.T, cmd *exec.Cmd, each func(string)) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, stderr: new(syncbuf.Buffer), ended: make(chan struct{})}
	p.out = &queue{more: make(chan struct{}, 1), each: each}
	cmd.Stderr = p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	go func() {
		defer close(p.ended)
		for lines := bufio.NewReader(stdout); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				break // half a line is not an acknowledgement
			}
			p.out.put(strings.TrimSuffix(line, "\n"))
		}
		p.out.end()
		_ = cmd.Wait() // ProcessState says it all
	}()
	return p
}

// line waits for the next line of output.
func (p *process) line() string {
	p.t.Helper()
	line, ok := p.out.take(p.t)
	if !ok {
		p.t.Fatalf("%s: the output ended; stderr: %s", p.cmd, p.stderr)
	}
	return line
}

func (p *process) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatalf("%s: %v; stderr: %s", p.cmd, err, p.stderr)
	}
}

// ask sends a line to a worker and returns its answer.
func (p *process) ask(line string) string {
	p.t.Helper()
	p.send(line)
	return p.line()
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("%s: %v: %v", p.cmd, sig, err)
	}
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill kills it and everything it started, and waits until it is gone.
func (p *process) kill() {
	if !p.running() {
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Process.Kill()
	select {
	case <-p.ended:
	case <-time.After(waitMax):
		p.t.Errorf("%s: it can't be killed", p.cmd)
	}
}

// exit waits for the end and returns the exit code, -1 after a signal.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(waitMax):
		p.kill()
		p.t.Fatalf("%s: it did not end; stderr: %s", p.cmd, p.stderr)
	}
	return p.cmd.ProcessState.ExitCode()
}

// finish closes the input and expects exit code 0.
func (p *process) finish() {
	p.t.Helper()
	p.stdin.Close()
	if code := p.exit(); code != 0 {
		p.t.Fatalf("%s: exit code %d, stderr %s", p.cmd, code, p.stderr)
	}
}

// result is the result of a program that ran to its end.
type result struct {
	stdout, stderr string
	code           int // -1 after a signal
	signal         syscall.Signal
}

// failure is the code word of the error that the command reported with --json.
func (r result) failure() (code, message string) {
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	var e struct{ Code, Error string }
	if json.Unmarshal([]byte(lines[len(lines)-1]), &e) != nil {
		return "", ""
	}
	return e.Code, e.Error
}

// run runs a program to its end.
func run(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	r, err := execute(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// execute is run for goroutines, which can't end a test. An error means that there is no result.
func execute(ctx context.Context, cmd *exec.Cmd) (result, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	ctx, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	_ = cmd.Wait() // ProcessState says it all
	if !stop() {
		return result{}, fmt.Errorf("%s: it did not end; stderr %s", cmd, stderr.String())
	}
	r := result{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.signal = ws.Signal()
	}
	return r, nil
}

// serverTokenFile is a file with the server's token, readable by its owner only.
func serverTokenFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(serverToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// command is the command on a store.
func command(store string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "HANSARD_STORE="+store)
	return cmd
}

// ok runs the command, which must succeed, and returns its output.
func ok(t *testing.T, store string, args ...string) string {
	t.Helper()
	r := run(t, command(store, args...))
	if r.code != 0 {
		t.Fatalf("hansard %s: exit code %d (%v)\n%s", strings.Join(args, " "), r.code, r.signal, r.stderr)
	}
	return r.stdout
}

// eventually polls a condition until it holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitMax); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came true: %s", what)
		}
	}
}
