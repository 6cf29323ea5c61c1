package storetest

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"hansard"
)

// env is what a case works with: a fresh store, a context that ends with the
// case, and calls that must succeed. Only the goroutine of the case may use it
// to fail; others return their errors to it through a task.
type env struct {
	testing.TB
	engine   Engine
	store    hansard.Store
	ctx      context.Context
	rng      *rand.Rand
	patience time.Duration

	others   []hansard.Store // opened in addition to store
	children []*child
}

// seed is drawn once per run, so that one number replays all of it.
var seed = sync.OnceValue(func() uint64 {
	if s, err := strconv.ParseUint(os.Getenv("STORETEST_SEED"), 10, 64); err == nil {
		return s
	}
	return rand.Uint64()
})

func newEnv(t testing.TB, e Engine, c Case) *env {
	t.Helper()
	name := fnv.New64a()
	name.Write([]byte(c.Name))
	x := &env{TB: t, engine: e, patience: cmp.Or(e.Patience, 30*time.Second)}
	x.rng = rand.New(rand.NewPCG(seed(), name.Sum64()))
	// The whole case gets more time than any wait in it, so that the failed wait is
	// what gets reported.
	ctx, cancel := context.WithTimeout(context.Background(), 4*x.patience)
	x.ctx = ctx
	x.store = e.Open(t)
	t.Cleanup(func() {
		cancel() // first: callers still waiting in the store return, processes end
		for _, c := range x.children {
			<-c.ended // killed by the context
		}
		for _, s := range append(x.others, x.store) {
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if t.Failed() {
			t.Logf("this case defends: %s (failures: %s)", c.Defends, cmp.Or(c.Answers, "none listed"))
			t.Logf("STORETEST_SEED=%d replays it", seed())
		}
	})
	return x
}

// handles returns n handles on the data: independent ones if the engine has them, or
// else the one store n times.
func (x *env) handles(n int) []hansard.Store {
	out := []hansard.Store{x.store}
	for len(out) < n {
		if x.engine.Another == nil {
			out = append(out, x.store)
			continue
		}
		s := x.engine.Another(x, x.store)
		x.others = append(x.others, s)
		out = append(out, s)
	}
	return out
}

// reopen closes the store and opens its data again, if the engine keeps any.
func (x *env) reopen() {
	x.Helper()
	if x.engine.Reopen != nil {
		x.store = x.engine.Reopen(x, x.store)
	}
}

// create makes a session without metadata.
func (x *env) create(id hansard.SessionID) {
	x.Helper()
	x.createWith(id, hansard.Meta{})
}

func (x *env) createWith(id hansard.SessionID, m hansard.Meta) hansard.Info {
	x.Helper()
	info, err := x.store.Create(x.ctx, id, m)
	if err != nil {
		x.Fatalf("Create(%q): %v", id, err)
	}
	return info
}

func (x *env) append(id hansard.SessionID, b hansard.Batch) hansard.Receipt {
	x.Helper()
	r, err := x.store.Append(x.ctx, id, b)
	if err != nil {
		x.Fatalf("Append(%q): %v", id, err)
	}
	return r
}

// refused appends a batch that must be refused with an error that is target.
func (x *env) refused(target error, id hansard.SessionID, b hansard.Batch) error {
	x.Helper()
	r, err := x.store.Append(x.ctx, id, b)
	if !errors.Is(err, target) {
		x.Fatalf("Append(%q) = %+v, %v; want the error %q", id, r, err, target)
	}
	return err
}

func (x *env) stat(id hansard.SessionID) hansard.Info {
	x.Helper()
	info, err := x.store.Stat(x.ctx, id)
	if err != nil {
		x.Fatalf("Stat(%q): %v", id, err)
	}
	return info
}

func (x *env) read(id hansard.SessionID, r hansard.Range) []hansard.Event {
	x.Helper()
	events, err := readRange(x.ctx, x.store, id, r)
	if err != nil {
		x.Fatalf("Read(%q, %+v): %v", id, r, err)
	}
	return events
}

func (x *env) all(id hansard.SessionID) []hansard.Event {
	x.Helper()
	return x.read(id, hansard.Range{})
}

func (x *env) list(q hansard.Query) []hansard.Info {
	x.Helper()
	infos, err := listAll(x.ctx, x.store, q)
	if err != nil {
		x.Fatalf("List(%+v): %v", q, err)
	}
	return infos
}

func (x *env) delete(id hansard.SessionID) {
	x.Helper()
	if err := x.store.Delete(x.ctx, id, ""); err != nil {
		x.Fatalf("Delete(%q): %v", id, err)
	}
}

// wantErr reports an error that is not the expected one.
func (x *env) wantErr(what string, got, want error) {
	x.Helper()
	if !errors.Is(got, want) {
		x.Errorf("%s: %v; want the error %q", what, got, want)
	}
}

// wantTexts checks that the events at seqs 1, 2, 3, … have these texts, which were
// made by text.
func (x *env) wantTexts(id hansard.SessionID, want ...string) {
	x.Helper()
	got := x.all(id)
	for i, e := range got {
		if e.Seq != hansard.Seq(i+1) {
			x.Errorf("session %q: event %d has seq %d", id, i+1, e.Seq)
		}
		if i < len(want) && string(e.Data) != strconv.Quote(want[i]) {
			x.Errorf("session %q: event %d is %s, want %q", id, i+1, e.Data, want[i])
		}
	}
	if len(got) != len(want) {
		x.Errorf("session %q has %d events, want %d: %q", id, len(got), len(want), want)
	}
}

// text is an event with a plain text.
func text(s string) hansard.Event {
	return hansard.Event{Role: "user", Author: "ann", Data: []byte(strconv.Quote(s))}
}

func texts(list ...string) hansard.Batch {
	var b hansard.Batch
	for _, s := range list {
		b.Events = append(b.Events, text(s))
	}
	return b
}

// task is work in its own goroutine.
type task struct {
	x    *env
	what string
	done chan struct{}
	err  error // of the work, once done is closed
}

func (x *env) start(what string, f func() error) *task {
	t := &task{x: x, what: what, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.err = f()
	}()
	return t
}

// result waits for the work and returns its error. Work that does not end in time
// fails the case: that is what a lost wake-up or a deadlock looks like.
func (t *task) result() error {
	t.x.Helper()
	t.x.within(t.what, t.done)
	return t.err
}

// finish waits for work that must succeed.
func (t *task) finish() {
	t.x.Helper()
	if err := t.result(); err != nil {
		t.x.Fatalf("%s: %v", t.what, err)
	}
}

// reaches waits until work has reached a point, which the channel signals. It fails
// with the error of work that ended before that.
func (t *task) reaches(what string, point <-chan struct{}) {
	t.x.Helper()
	either := make(chan struct{})
	go func() {
		defer close(either)
		select {
		case <-point:
		case <-t.done:
		}
	}()
	t.x.within(t.what+": "+what, either)
	select {
	case <-point:
	default:
		t.x.Fatalf("%s: %s: it ended before that: %v", t.what, what, t.err)
	}
}

// within waits, with a deadline, for a channel to be closed or to deliver something.
func (x *env) within(what string, done <-chan struct{}) {
	x.Helper()
	timer := time.NewTimer(x.patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		stacks := make([]byte, 64<<10)
		x.Fatalf("%s: not done after %v\n%s", what, x.patience, stacks[:runtime.Stack(stacks, true)])
	}
}

// each runs f n times concurrently, all started at the same moment, and waits.
func (x *env) each(n int, what string, f func(i int) error) {
	x.Helper()
	gate := make(chan struct{})
	tasks := make([]*task, n)
	for i := range tasks {
		tasks[i] = x.start(what+" "+strconv.Itoa(i), func() error { <-gate; return f(i) })
	}
	close(gate)
	for _, t := range tasks {
		if err := t.result(); err != nil {
			x.Errorf("%s: %v", t.what, err)
		}
	}
	if x.Failed() {
		x.FailNow()
	}
}

// letOthersRun makes it likely that goroutines started just now are waiting. Nothing
// may depend on it: the answer has to be the same in any order; the yields only make
// the interesting order likely.
func letOthersRun() {
	for range 200 {
		runtime.Gosched()
	}
}

// unless returns an error unless it is the permitted one.
func unless(err, allowed error) error {
	if errors.Is(err, allowed) {
		return nil
	}
	return err
}

// pause is the time between two checks of something that takes a while.
func pause(ctx context.Context) error {
	rest := time.NewTimer(2 * time.Millisecond)
	defer rest.Stop()
	select {
	case <-rest.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
