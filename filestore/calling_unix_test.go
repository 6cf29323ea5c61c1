//go:build unix

package filestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
)

// TestTurnCalledAndStopped: processes wait for a turn, and the longest waiter is stopped or
// killed when it is called. The others still get the turn: the process that released it calls
// them after a moment, or they find out on their own if that one is dead too. A stopped process
// gets its turn when it is continued.
func TestTurnCalledAndStopped(t *testing.T) {
	for _, c := range []struct {
		name               string
		kill, releaserDies bool
	}{
		{"stopped", false, false},
		{"killed", true, false},
		{"stopped and the releaser killed", false, true},
		{"killed as is the releaser", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s, err := filestore.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			touch(t, s, "s")
			holder := startClaim(t, dir, "holder")
			holder.says(t, "got it")
			var bell string
			var waiters []*claimProcess
			for i := range 3 {
				touch(t, s, "other") // so that the next waiter has a later ticket
				waiters = append(waiters, startClaim(t, dir, fmt.Sprint("waiter ", i)))
				if all := bellsIn(t, dir, i+1); i == 0 { // it is announced
					bell = all[0]
				}
			}
			called := waiters[0]
			called.stop(t)
			was := readBell(t, bell)
			holder.begin()
			holder.says(t, "released")
			// It can't withdraw its announcement, so it is called, unless it was before it was
			// stopped.
			until(t, "the call", func() bool { return readBell(t, bell) != was })
			if c.releaserDies {
				holder.end(t)
			}
			if c.kill {
				called.end(t)
			}
			// Usually the older one. But on a busy machine a waiter that takes longer to wake up
			// than the others' patience is passed over.
			next, last := firstToSay(t, "got it", waiters[1], waiters[2])
			next.begin()
			next.says(t, "released")
			last.says(t, "got it")
			if c.kill {
				return
			}
			if err := called.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			last.begin()
			called.says(t, "got it")
		})
	}
}

// touch appends an event to a session.
func touch(t *testing.T, s hansard.Store, id hansard.SessionID) {
	t.Helper()
	if _, err := s.Append(context.Background(), id, hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte(`0`)}}}); err != nil {
		t.Fatal(err)
	}
}

// startClaim starts a process that claims the turn of session s.
func startClaim(t *testing.T, dir, label string) *claimProcess {
	t.Helper()
	p := &claimProcess{wakeProcess: startWorker(t, "claim", dir, label), said: make(chan string, 8)}
	go func() {
		for {
			text, err := p.out.ReadString('\n')
			if err != nil {
				p.said <- err.Error()
				return
			}
			p.said <- text
		}
	}()
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	return p
}

// claimProcess is a worker that claims a turn.
type claimProcess struct {
	*wakeProcess
	said chan string // its lines, and then why there are no more
}

// says waits for a line from the worker.
func (p *claimProcess) says(t *testing.T, want string) {
	t.Helper()
	firstToSay(t, want, p, nil)
}

// firstToSay waits until one of two workers prints a line, and returns that worker first.
func firstToSay(t *testing.T, want string, a, b *claimProcess) (first, second *claimProcess) {
	t.Helper()
	var other chan string
	if b != nil {
		other = b.said
	}
	var got string
	select {
	case got = <-a.said:
		first, second = a, b
	case got = <-other:
		first, second = b, a
	case <-time.After(time.Minute):
		t.Fatalf("nobody says %q", want)
	}
	if got != want+"\n" {
		t.Fatalf("it says %q, want %q", got, want)
	}
	return first, second
}

// stop stops the worker and waits until it has stopped.
func (p *claimProcess) stop(t *testing.T) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("it is not stopped: %v, %v", status, err)
		}
		return
	}
}

// end kills the worker and waits until it is gone.
func (p *claimProcess) end(t *testing.T) {
	t.Helper()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
}

// bellsIn waits until there are n bells: a process has one when it waits.
func bellsIn(t *testing.T, dir string, n int) (found []string) {
	t.Helper()
	until(t, "a bell", func() bool {
		var err error
		found, err = filepath.Glob(filepath.Join(dir, "bells", "*"))
		return err == nil && len(found) == n
	})
	return found
}

func readBell(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}
