//go:build unix

package test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// feeder is the command appending one line after another; the n-th receipt it prints belongs to
// the n-th line.
type feeder struct {
	*process
	name     string
	receipts atomic.Int64
}

// feed starts append --each on a session and sends it count marks, or without end if count is 0.
func feed(t *testing.T, l *ledger, store, session, name string, count, bytes int) *feeder {
	t.Helper()
	f := &feeder{name: name}
	f.process = start(t, command(store, "append", session, "--create", "--jsonl", "-", "--each", "--json"), func(line string) {
		if err := l.receipt(f.batch(f.receipts.Add(1)), line); err != nil {
			t.Error(err)
		}
	})
	go func() {
		defer f.stdin.Close()
		for i := int64(1); count == 0 || i <= int64(count); i++ {
			if _, err := io.WriteString(f.stdin, batchInput(f.batch(i), 1, bytes)); err != nil {
				return // it was killed
			}
		}
	}()
	return f
}

func (f *feeder) batch(n int64) string { return fmt.Sprintf("%s-%d", f.name, n) }

// readers read a session repeatedly, in their own processes, until they are stopped: every read
// must be whole and never show less than the one before.
type readers struct {
	wg    sync.WaitGroup
	stop  chan struct{}
	looks atomic.Int64
}

func readAll(t *testing.T, n int, store string, sessions ...string) *readers {
	r := &readers{stop: make(chan struct{})}
	for i := range n {
		r.wg.Go(func() {
			seen := map[string]int{}
			for look := i; ; look++ {
				session := sessions[look%len(sessions)]
				if err := r.look(t, store, session, seen); err != nil {
					t.Errorf("reader %d, session %s: %v", i, session, err)
				}
				r.looks.Add(1)
				select {
				case <-r.stop:
					return
				default:
				}
			}
		})
	}
	return r
}

// look reads a session once. If it does not exist yet it counts as empty.
func (r *readers) look(t *testing.T, store, session string, seen map[string]int) error {
	res, err := execute(t.Context(), command(store, "show", session, "--json"))
	if err != nil {
		return err
	}
	code, _ := res.failure()
	if res.code != 0 && (code != "not_found" || seen[session] > 0) {
		return fmt.Errorf("exit code %d, stderr %s", res.code, res.stderr)
	}
	events, err := parseEvents(res.stdout)
	if err == nil {
		err = whole(events)
	}
	if err == nil && len(events) < seen[session] {
		err = fmt.Errorf("%d events, where there were %d a moment ago", len(events), seen[session])
	}
	seen[session] = len(events)
	return err
}

func (r *readers) finish() int64 {
	close(r.stop)
	r.wg.Wait()
	return r.looks.Load()
}

// follower is tail -f: it must see every event once and in order.
type follower struct {
	*process
	mu  sync.Mutex
	got []stored
}

func follow(t *testing.T, store, session string) *follower {
	f := &follower{}
	f.process = start(t, command(store, "tail", "-f", session, "--after", "0", "--json"), func(line string) {
		events, err := parseEvents(line)
		if err != nil {
			t.Errorf("follower: %v", err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.got = append(f.got, events...)
	})
	return f
}

// saw waits until the follower has seen n events, ends it and checks them.
func (f *follower) saw(n int) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("the follower saw %d events", n), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.got) >= n
	})
	f.signal(syscall.SIGINT)
	if code := f.exit(); code != 130 {
		f.t.Errorf("follower: exit code %d, stderr %s", code, f.stderr)
	}
	if err := whole(f.got); err != nil || len(f.got) != n {
		f.t.Errorf("follower saw %d events, want %d: %v", len(f.got), n, err)
	}
}

// TestManyWriters: 8 processes append 200 events each to one session while 4 processes read it
// and one follows: 1,600 events, each once, and nobody ever sees anything but a prefix.
func TestManyWriters(t *testing.T) {
	const writers, each = 8, 200
	store, l := newStore(t), newLedger()
	ok(t, store, "new", "demo")
	tail := follow(t, store, "demo")
	reading := readAll(t, 4, store, "demo")
	var feeders []*feeder
	for w := range writers {
		feeders = append(feeders, feed(t, l, store, "demo", fmt.Sprint("w", w), each, 20+50*w))
	}
	for _, f := range feeders {
		if code := f.exit(); code != 0 {
			t.Errorf("writer %s: exit code %d, stderr %s", f.name, code, f.stderr)
		}
	}
	looks := reading.finish()
	tail.saw(writers * each)
	if got := l.acks(); got != writers*each {
		t.Errorf("%d receipts, want %d", got, writers*each)
	}
	if got := l.check(t, store); got != writers*each {
		t.Errorf("%d events, want %d", got, writers*each)
	}
	t.Logf("%d events of %d processes, %d looks", writers*each, writers, looks)
}

// TestManySessions: the same over 50 sessions, in batches of several events: readers see only
// whole batches.
func TestManySessions(t *testing.T) {
	const writers, each = 8, 200
	store, l, rng := newStore(t), newLedger(), seeded(t)
	var sessions []string
	for i := range 50 {
		sessions = append(sessions, fmt.Sprint("session-", i))
	}
	first := serve(t, store, waitMax) // the first writer makes what is followed
	if line := first.ask("append session-0 first 1 10"); !l.answer(line) {
		t.Fatal(line)
	}
	first.finish()
	tail := follow(t, store, sessions[0])
	reading := readAll(t, 4, store, sessions...)
	var load []*process
	for w := range writers {
		load = append(load, start(t, worker(t, "load", store, rng.Uint64(), fmt.Sprint("w", w), each, 20_000, strings.Join(sessions, ",")),
			func(line string) {
				if !l.answer(line) {
					t.Error(line)
				}
			}))
	}
	for _, p := range load {
		if code := p.exit(); code != 0 {
			t.Errorf("exit code %d, stderr %s", code, p.stderr)
		}
	}
	looks := reading.finish()
	tail.saw(len(readSession(t, store, sessions[0])))
	if got := l.acks(); got != writers*each+1 {
		t.Errorf("%d receipts, want %d", got, writers*each+1)
	}
	t.Logf("%d events in %d batches of %d processes over 50 sessions, %d looks", l.check(t, store), l.acks(), writers, looks)
}

// TestManyNew: 64 processes make a session each, in a store that the first of them makes: all are
// listed. (Failures 40 to 42: there is no index to lose one from.)
func TestManyNew(t *testing.T) {
	const n = 64
	store := newStore(t)
	var made []*process
	for range n {
		made = append(made, start(t, command(store, "new"), nil))
	}
	want := map[string]bool{}
	for _, p := range made {
		if code := p.exit(); code != 0 {
			t.Errorf("new: exit code %d, stderr %s", code, p.stderr)
			continue
		}
		want[p.line()] = true
	}
	for _, id := range list(t, store) {
		if !want[id] {
			t.Errorf("%s is listed and nobody made it", id)
		}
		delete(want, id)
	}
	for id := range want {
		t.Errorf("%s was made and is not listed", id)
	}
	ok(t, store, "verify")
}
