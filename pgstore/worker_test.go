package pgstore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/pgstore"
	"hansard/storetest"
)

// A worker is this test binary, started again: a process that appends from many goroutines, as a
// server does for its clients, and prints the answers it got. It stops when its input ends.

const workerVariable = "HANSARD_PGSTORE_WORKER"

// work is what a worker is to do.
type work struct {
	Name     string
	URL      string
	Clients  int
	Sessions int
	Turns    bool // and contend for a turn, sometimes holding it past its TTL
	Hold     bool // take the turn, keep it, and write under it until that fails
	Upload   int  // upload this many bytes, and never finish
	Delete   bool // delete the first session
}

// told is a line of a worker: an acknowledgement, or an answer that must not occur.
type told struct {
	Open    bool              `json:",omitempty"` // it has the store open: the first line
	Session hansard.SessionID `json:",omitempty"`
	Ack     *storetest.Ack    `json:",omitempty"`
	Grant   hansard.Grant     `json:",omitempty"`
	Fenced  bool              `json:",omitempty"`
	Wrong   string            `json:",omitempty"`
}

func session(i int) hansard.SessionID { return hansard.SessionID(fmt.Sprint("s", i)) }

// runWorker runs a worker.
func runWorker(text string) error {
	var w work
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	s, err := pgstore.Open(ctx, w.URL, nil)
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards out
	out := json.NewEncoder(os.Stdout)
	say := func(t told) {
		mu.Lock()
		defer mu.Unlock()
		out.Encode(t)
	}
	say(told{Open: true})
	var clients sync.WaitGroup
	for i := range w.Clients {
		clients.Go(func() { w.client(ctx, s, i, say) })
	}
	if w.Turns {
		clients.Go(func() { w.contend(ctx, s, say) })
	}
	if w.Hold {
		clients.Go(func() { w.hold(ctx, s, say) })
	}
	if w.Upload > 0 {
		clients.Go(func() { w.uploadForever(ctx, s, say) })
	}
	if w.Delete {
		clients.Go(func() {
			if err := s.Delete(ctx, session(0), ""); err != nil {
				say(told{Wrong: err.Error()})
			}
		})
	}
	clients.Wait()
	return s.Close()
}

// client appends until it is stopped. Every other client uses keys, and settles unknown outcomes
// with them; those without go on with the next batch.
func (w *work) client(ctx context.Context, s hansard.Store, i int, say func(told)) {
	name := fmt.Sprint(w.Name, ".", i)
	for n := 0; ctx.Err() == nil; n++ {
		id := session((i*7 + n) % w.Sessions)
		b := hansard.Batch{Events: storetest.Marked(name, n, 1+n%3, 100), Create: true}
		if i%2 == 0 {
			b.Key = name + "/" + strconv.Itoa(n)
		}
		for {
			r, err := s.Append(ctx, id, b)
			if err == nil {
				say(told{Session: id, Ack: &storetest.Ack{Writer: name, Batch: n, Receipt: r}})
				break
			}
			if ctx.Err() != nil {
				return
			}
			if !errors.Is(err, hansard.ErrUnknown) && !errors.Is(err, hansard.ErrBusy) {
				say(told{Session: id, Wrong: fmt.Sprintf("append by %s: %v", name, err)})
				return
			}
			if b.Key == "" {
				break
			}
		}
	}
}

// contend takes the turn of one session repeatedly, writes under it, and now and then sleeps past
// its TTL before it writes: then another may have taken it.
func (w *work) contend(ctx context.Context, s hansard.Store, say func(told)) {
	const id = "turns"
	for n := 0; ctx.Err() == nil; n++ {
		turn, err := s.Acquire(ctx, id, hansard.Claim{Wait: 5 * time.Second, TTL: 100 * time.Millisecond, Label: w.Name})
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, hansard.ErrHeld) && !errors.Is(err, hansard.ErrUnknown) && !errors.Is(err, hansard.ErrBusy) {
				say(told{Wrong: fmt.Sprintf("acquire: %v", err)})
			}
			continue
		}
		say(told{Grant: turn.Grant})
		if n%3 == 0 {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond) // the agent is slow
		}
		_, err = s.Append(ctx, id, hansard.Batch{Turn: turn.Grant, Events: storetest.Marked(w.Name, n, 1, 0)})
		if errors.Is(err, hansard.ErrFenced) {
			say(told{Fenced: true})
		}
		s.Release(ctx, id, turn.Grant) // fenced, often
	}
}

// hold takes a turn that renews itself and writes under it for as long as it can.
func (w *work) hold(ctx context.Context, s hansard.Store, say func(told)) {
	const id = "turns"
	turn, err := hansard.Take(ctx, s, id, hansard.Claim{TTL: 300 * time.Millisecond, Label: w.Name})
	if err != nil {
		say(told{Wrong: fmt.Sprintf("take: %v", err)})
		return
	}
	defer turn.Release()
	say(told{Grant: turn.Grant()})
	for n := 0; ctx.Err() == nil; n++ {
		r, err := s.Append(ctx, id, hansard.Batch{Turn: turn.Grant(), Events: storetest.Marked(w.Name, n, 1, 0)})
		switch {
		case errors.Is(err, hansard.ErrFenced):
			<-turn.Context().Done() // its program learns it, too
			say(told{Fenced: true})
			return
		case err != nil && ctx.Err() == nil:
			say(told{Wrong: fmt.Sprintf("append under %s: %v", turn.Grant(), err)})
			return
		case err == nil:
			say(told{Session: id, Ack: &storetest.Ack{Writer: w.Name, Batch: n, Receipt: r}})
		}
	}
}

// workers is a set of running processes.
type workers struct {
	t        testing.TB
	inputs   []io.Closer
	commands []*exec.Cmd
	running  sync.WaitGroup
	count    atomic.Int64 // acknowledgements so far
	mu       sync.Mutex   // guards below
	acks     map[hansard.SessionID][]storetest.Ack
	granted  map[hansard.Grant]string
	fenced   int
	problems []string
}

// start starts processes with this many clients each, and waits until they have the store open:
// if the database were killed before that, none would reconnect.
func start(t testing.TB, processes int, w work) *workers {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := &workers{t: t, acks: make(map[hansard.SessionID][]storetest.Ack), granted: make(map[hansard.Grant]string)}
	var opening sync.WaitGroup
	defer opening.Wait()
	for i := range processes {
		w := w
		w.Name = fmt.Sprint("p", i)
		text, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^$")
		cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all.inputs, all.commands = append(all.inputs, in), append(all.commands, cmd)
		opening.Add(1)
		all.running.Go(func() {
			all.listen(w.Name, out, sync.OnceFunc(opening.Done))
			if err := cmd.Wait(); err != nil {
				all.problem(fmt.Sprintf("process %s: %v", w.Name, err))
			}
		})
	}
	return all
}

func (w *workers) problem(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, text)
}

func (w *workers) listen(name string, out io.Reader, opened func()) {
	defer opened() // or never
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var t told
		if json.Unmarshal(line, &t) != nil {
			continue
		}
		if t.Open {
			opened()
		}
		w.note(name, t)
	}
}

func (w *workers) note(name string, t told) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case t.Ack != nil:
		w.acks[t.Session] = append(w.acks[t.Session], *t.Ack)
		w.count.Add(1)
	case t.Grant != "":
		if other, twice := w.granted[t.Grant]; twice {
			w.problems = append(w.problems, fmt.Sprintf("grant %s was given to %s and to %s", t.Grant, other, name))
		}
		w.granted[t.Grant] = name
	case t.Fenced:
		w.fenced++
	case t.Wrong != "":
		w.problems = append(w.problems, t.Wrong)
	}
}

// more waits for n more acknowledgements.
func (w *workers) more(n int64) {
	w.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for goal := w.count.Load() + n; w.count.Load() < goal; {
		if time.Now().After(deadline) {
			w.t.Fatalf("only %d of %d acknowledgements came: %q", w.count.Load(), goal, w.problems)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// stop ends the processes in an orderly way and reports errors.
func (w *workers) stop() {
	w.t.Helper()
	for _, in := range w.inputs {
		in.Close()
	}
	w.running.Wait()
	for _, p := range w.problems {
		w.t.Error(p)
	}
}

// check compares the logs with what was acknowledged, and returns the first discrepancy.
func (w *workers) check(s *pgstore.Store) error {
	for id, acks := range w.acks {
		var log []hansard.Event
		for e, err := range s.Read(w.t.Context(), id, hansard.Range{}) {
			if err != nil {
				return err
			}
			log = append(log, e)
		}
		if err := storetest.CheckLog(log, acks); err != nil {
			return fmt.Errorf("session %s: %w", id, err)
		}
	}
	for f, err := range s.Verify(w.t.Context(), "") {
		if err != nil {
			return err
		}
		if f.Level == hansard.LevelDamage {
			return fmt.Errorf("session %s: %s", f.Session, f.Message)
		}
	}
	return nil
}

// scale is how much a test does: HANSARD_TORTURE=10 means ten times as much.
func scale(n int) int {
	if f, err := strconv.Atoi(os.Getenv("HANSARD_TORTURE")); err == nil && f > 0 {
		return n * f
	}
	return n
}
