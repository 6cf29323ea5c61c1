//go:build unix

package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
)

// workerEnv names the worker that this test binary should be.
const workerEnv = "HANSARD_TEST_WORKER"

// workers are the small programs this test binary can be. All end when their standard input does,
// so that none outlives the test.
var workers = map[string]func(args []string) error{
	"serve":   serveWorker,
	"load":    loadWorker,
	"naive":   naiveWorker,
	"hold":    holdWorker,
	"agent":   agentWorker,
	"contend": contendWorker,
	"witness": witnessWorker,
	"restart": restartWorker,
	"chaos":   chaosWorker,
}

func runWorker(name string, args []string) int {
	if err := workers[name](args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// worker is the command line of a worker.
func worker(t *testing.T, name string, args ...any) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	for _, arg := range args {
		cmd.Args = append(cmd.Args, fmt.Sprint(arg))
	}
	cmd.Env = append(os.Environ(), workerEnv+"="+name)
	return cmd
}

// serve starts a worker that has the store open and does what it is asked to.
func serve(t *testing.T, store string, lockWait time.Duration) *process {
	t.Helper()
	p := start(t, worker(t, "serve", store, lockWait), nil)
	if got := p.line(); got != "ready" {
		t.Fatalf("worker: %s", got)
	}
	return p
}

// serveWorker: STORE LOCKWAIT. It answers the lines of its input:
//
//	append SESSION BATCH N BYTES   ack … or err …, as a ledger takes it
//	limit BYTES                    sets the largest size of files, 0 for none
//	reopen                         opens the store again: ready or err …
func serveWorker(args []string) error {
	wait, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	s, err := filestore.Open(args[0], &filestore.Options{LockWait: wait})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f := strings.Fields(in.Text())
		switch f[0] {
		case "append":
			var n, bytes int
			if _, err := fmt.Sscan(f[3]+" "+f[4], &n, &bytes); err != nil {
				return err
			}
			fmt.Println(appendMarks(s, f[1], f[2], n, bytes))
		case "limit":
			if err := limitFiles(f[1]); err != nil {
				return err
			}
			fmt.Println("ok")
		case "reopen":
			_ = s.Close()
			if s, err = filestore.Open(args[0], &filestore.Options{LockWait: wait}); err != nil {
				return err
			}
			fmt.Println("ready")
		}
	}
	return s.Close()
}

func limitFiles(size string) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
		return err
	}
	if _, err := fmt.Sscan(size, &l.Cur); err != nil {
		return err
	}
	if l.Cur == 0 {
		l.Cur = l.Max
	}
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l)
}

// appendMarks appends a batch and describes the outcome in words.
func appendMarks(s hansard.Store, session, batch string, n, bytes int) string {
	b := hansard.Batch{Create: true}
	for i := range n {
		b.Events = append(b.Events, hansard.Event{Data: newMark(batch, i, n, bytes).encode()})
	}
	r, err := s.Append(context.Background(), hansard.SessionID(session), b)
	if err != nil {
		return fmt.Sprintf("err %s %s %s", batch, codeOf(err), strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return fmt.Sprintf("ack %s %s %d %d", batch, session, r.First, r.Last)
}

// codeOf is the command's code word for an error, as far as the tests need it.
func codeOf(err error) string {
	for _, c := range []struct {
		err  error
		code string
	}{
		{hansard.ErrUnknown, "unknown"}, {hansard.ErrDamaged, "damaged"}, {hansard.ErrBusy, "busy"},
		{hansard.ErrNoSpace, "no_space"}, {hansard.ErrFailed, "failed"}, {hansard.ErrNotFound, "not_found"},
	} {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return "error"
}

// loadWorker: STORE SEED PREFIX COUNT MAXBYTES SESSIONS. It appends COUNT batches (0: until it is
// killed) of one to four events and up to MAXBYTES, most of them small, to sessions of a
// comma-separated list, and prints the outcome of each.
func loadWorker(args []string) error {
	go endWithInput()
	var seed uint64
	var count, maxBytes int
	if _, err := fmt.Sscan(strings.Join([]string{args[1], args[3], args[4]}, " "), &seed, &count, &maxBytes); err != nil {
		return err
	}
	sessions := strings.Split(args[5], ",")
	s, err := filestore.Open(args[0], nil)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	failed := 0 // in a row
	for i := 0; (count == 0 || i < count) && failed < 50; i++ {
		bytes, n := 1+rng.IntN(300), 1+rng.IntN(4)
		if rng.IntN(25) == 0 {
			bytes = 1 + rng.IntN(maxBytes)/n
		}
		line := appendMarks(s, sessions[rng.IntN(len(sessions))], fmt.Sprintf("%s-%d", args[2], i), n, bytes)
		fmt.Println(line)
		if failed++; strings.HasPrefix(line, "ack ") {
			failed = 0
		}
	}
	return s.Close()
}

// endWithInput ends the process when the other end of its input is closed.
func endWithInput() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(3)
}

// holdWorker: FILE. It holds a kernel lock on a file until it is killed.
func holdWorker(args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	fmt.Println("holding")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// naiveWorker: FILE. It appends lines without a sync and acknowledges each: a power cut must make
// this writer lose data, or the cuts prove nothing.
func naiveWorker(args []string) error {
	go endWithInput()
	f, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for i := 1; ; i++ {
		if _, err := fmt.Fprintf(f, "line %d\n", i); err != nil {
			return err
		}
		fmt.Println("ack", i)
	}
}
