package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/peers"
)

// TestTurnWaits: waiters in one process are served in order, on the real clock.
func TestTurnWaits(t *testing.T) {
	ctx := context.Background()
	s := openReal(t, 1)[0]
	say(t, s, "s", nil, "hello")
	first := take(t, s, "s", hansard.Claim{})
	var wg sync.WaitGroup
	const n = 8
	for i := range n {
		wg.Go(func() {
			turn, err := s.Acquire(ctx, "s", hansard.Claim{Wait: time.Minute, Label: fmt.Sprint(i)})
			if err == nil {
				err = s.Release(ctx, "s", turn.Grant)
			}
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		s.turns.inLine.until(t, "s", i+1) // in line before the next one comes
	}
	want(t, "release", s.Release(ctx, "s", first.Grant), nil)
	wg.Wait()
	if got := labels(t, s); got != "01234567" {
		t.Errorf("served in the order %q", got)
	}
	files, _ := filepath.Glob(filepath.Join(s.path, peers.InstancesDir, "*"))
	if len(files) != 1 {
		t.Fatalf("instances: %v", files)
	}
	if b, err := os.ReadFile(files[0]); err != nil || strings.Trim(string(b[peers.TableAt:]), "\x00") != "" {
		t.Errorf("the instance file has something left: %q, %v", b, err)
	}
}

// labels returns the labels of the grants of session s, in order.
func labels(t *testing.T, s *Store) (order string) {
	t.Helper()
	for e, err := range s.Read(t.Context(), "s", hansard.Range{Kinds: []string{hansard.KindTurn}}) {
		var r hansard.TurnRecord
		if err == nil {
			err = json.Unmarshal(e.Data, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Grants() {
			order += r.Holder.Label
		}
	}
	return order
}

// TestTurnCourtesy: processes that contend for a turn get it equally often, although each asks
// again as soon as it has given it back.
func TestTurnCourtesy(t *testing.T) {
	ctx := context.Background()
	const procs, rounds = 6, 120
	stores := openReal(t, procs)
	say(t, stores[0], "s", nil, "hello")
	var wg sync.WaitGroup
	var total atomic.Int64
	var shares [procs]int64
	for i, s := range stores {
		wg.Go(func() {
			for total.Add(1) <= rounds {
				turn, err := s.Acquire(ctx, "s", hansard.Claim{Wait: time.Minute})
				if err == nil {
					shares[i]++
					_, err = s.Append(ctx, "s", hansard.Batch{Turn: turn.Grant, Events: []hansard.Event{text("%d", i)}})
				}
				if err = errors.Join(err, s.Release(ctx, "s", turn.Grant)); err != nil {
					t.Errorf("process %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("shares %v", shares)
	for i, n := range shares {
		if n < rounds/procs/4 {
			t.Errorf("process %d had the turn %d times of %d", i, n, rounds)
		}
	}
	changes(t, stores[0], "s")
}

// until waits until n claimants wait for a session's turn.
func (l *waitingLine) until(t testing.TB, name string, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		now := len(l.m[name])
		l.mu.Unlock()
		if now >= n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d wait for the turn of %s, want %d", now, name, n)
		}
	}
}

// TestAcquireGivenUpInTheCommit: a caller that stops waiting while the turn is being granted
// returns, and the grant blocks nobody.
func TestAcquireGivenUpInTheCommit(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	s.syncer.syncMu.Lock() // a disk that does not respond
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, "s", hansard.Claim{TTL: time.Hour})
		answered <- err
	}()
	// It is not enough that there is a leader: that may be the one of Create.
	for granted, deadline := 0, time.Now().Add(time.Minute); granted == 0; runtime.Gosched() {
		granted = s.leases.Counts().Held
		if time.Now().After(deadline) {
			t.Fatal("the turn is not being granted")
		}
	}
	cancel()
	if err := <-answered; !errors.Is(err, hansard.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("who stopped waiting is told %v", err)
	}
	s.syncer.syncMu.Unlock()
	next, err := s.Acquire(t.Context(), "s", hansard.Claim{Wait: time.Minute, TTL: time.Hour})
	if err != nil || next.Grant.Number() != 2 {
		t.Errorf("the next one gets %+v, %v", next, err)
	}
}
