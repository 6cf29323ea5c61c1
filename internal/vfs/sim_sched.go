package vfs

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
)

// scheduler runs the tasks of simulated processes, one at a time. It has no
// goroutine of its own: the task that reaches an operation decides who is next
// and hands over.
type scheduler struct {
	d       *Disk
	tasks   []*task // in the order of Go; finished ones are removed
	running *task   // nil: no Run
	chooser *Chooser
	onIdle  func() bool
	done    chan struct{}
	errs    []error
	ops     int
}

// task is a thread of a process.
type task struct {
	p        *Proc
	wake     chan struct{}
	finished bool
	waiting  bool
	what     string      // what it waits for
	ready    func() bool // nil: it only waits to be continued
	op       Op          // the operation it is in, while waiting
}

// DeadlockError is what Run returns if no task can run.
type DeadlockError struct {
	Waits []string // who waits for what
}

func (e *DeadlockError) Error() string {
	return "vfs: deadlock: " + strings.Join(e.Waits, "; ")
}

// Go makes [Disk.Run] run fn as a thread of the process; more may be started
// while it runs. All waiting inside fn must go through the file system: locks,
// Yield, Await. After the death of its process every call returns ErrCrashed,
// and fn must return.
func (d *Disk) Go(p *Proc, fn func()) {
	if p.d != d || p.observer {
		panic("vfs: Go wants a process of this disk, and no observer")
	}
	s := &d.run
	s.d = d
	t := &task{p: p, wake: make(chan struct{})}
	s.tasks = append(s.tasks, t)
	go func() {
		<-t.wake
		defer s.finish(t)
		fn()
	}()
}

// Schedule makes a Chooser decide who runs next, instead of the seed. nil undoes
// it.
func (d *Disk) Schedule(c *Chooser) { d.run.chooser = c }

// OnIdle makes Run call fn when no task can run: all wait for locks or are
// stopped. It may continue or kill processes, or start new ones, and returns
// whether to go on; if still no task can run it is called again.
func (d *Disk) OnIdle(fn func() bool) { d.run.onIdle = fn }

// Run runs the functions given to Go until all have ended. Exactly one task runs
// at a time; at each operation another one may take over, by the seed or the
// Chooser. If no task can run, it kills all processes and returns a
// [DeadlockError]. It also returns the panics of tasks.
func (d *Disk) Run() error {
	s := &d.run
	if s.running != nil {
		panic("vfs: Run within Run")
	}
	s.errs, s.ops, s.done = nil, 0, make(chan struct{})
	if next := s.pick(nil, false); next != nil {
		s.running = next
		next.wake <- struct{}{}
		<-s.done
	}
	s.running, s.tasks = nil, nil
	return errors.Join(s.errs...)
}

// finish ends a task: it hands over without waiting.
func (s *scheduler) finish(t *task) {
	if r := recover(); r != nil {
		s.errs = append(s.errs, fmt.Errorf("vfs: process %s: panic: %v\n%s", t.p.name, r, debug.Stack()))
	}
	t.finished = true
	for k, u := range s.tasks {
		if u == t {
			s.tasks = append(s.tasks[:k:k], s.tasks[k+1:]...)
			break
		}
	}
	next := s.pick(nil, false)
	if next == nil {
		close(s.done)
		return
	}
	s.running = next
	next.wake <- struct{}{}
}

// reschedule is called by the running task, before an operation: another one
// may run first. last puts the caller at the end of the queue, not at its head.
func (s *scheduler) reschedule(p *Proc, last bool) {
	t := s.running
	if t.p != p {
		panic(fmt.Sprintf("vfs: a call of process %s while %s runs: simulated code may not use goroutines of its own; hooks use an Observer", p.name, t.p.name))
	}
	if s.ops++; s.ops == or(s.d.MaxOps, 1_000_000) {
		s.errs = append(s.errs, fmt.Errorf("vfs: no end after %d operations", s.ops))
		s.killAll()
	}
	s.handOver(t, s.pick(t, last))
}

func (s *scheduler) handOver(t, next *task) {
	if next == t {
		return
	}
	s.running = next
	next.wake <- struct{}{}
	<-t.wake
}

// await makes the running task wait until its process is not stopped and ready
// returns true.
func (p *Proc) await(o *Op, what string, ready func() bool) error {
	s := &p.d.run
	t := s.running
	if t == nil || p.observer {
		if ready() {
			return nil
		}
		return &DeadlockError{Waits: []string{p.name + " waits for " + what + ", and nobody runs besides"}}
	}
	if t.p != p {
		panic(fmt.Sprintf("vfs: a call of process %s while %s runs", p.name, t.p.name))
	}
	t.waiting, t.what, t.ready, t.op = true, what, ready, *o
	s.handOver(t, s.pick(t, false))
	t.waiting, t.what, t.ready, t.op = false, "", nil, Op{}
	if p.dead {
		return ErrCrashed
	}
	return nil
}

func (t *task) runnable() bool {
	if t.p.dead {
		return true // so that it learns that, and ends
	}
	return !t.p.stopped && (!t.waiting || t.ready == nil || t.ready())
}

// pick decides who runs next: the current task t, if there is one, or another.
// nil only at the end of the last one.
func (s *scheduler) pick(t *task, last bool) *task {
	if l := s.runnable(t, last); len(l) > 0 {
		return s.choose(t, l)
	}
	if len(s.tasks) == 0 {
		return nil
	}
	for s.onIdle != nil && s.onIdle() {
		if l := s.runnable(t, last); len(l) > 0 {
			return s.choose(t, l)
		}
	}
	s.errs = append(s.errs, s.deadlock())
	s.killAll()
	return s.choose(t, s.runnable(t, last))
}

// runnable lists the tasks that could run, the current task first or last.
func (s *scheduler) runnable(t *task, last bool) []*task {
	l := make([]*task, 0, len(s.tasks))
	if t != nil && !last && t.runnable() {
		l = append(l, t)
	}
	for _, u := range s.tasks {
		if u != t && u.runnable() {
			l = append(l, u)
		}
	}
	if t != nil && last && t.runnable() {
		l = append(l, t)
	}
	return l
}

func (s *scheduler) choose(t *task, l []*task) *task {
	switch {
	case len(l) == 1:
		return l[0]
	case s.chooser != nil:
		return l[s.chooser.Choose(len(l))]
	case l[0] == t:
		if !chance(s.d.sched, or(s.d.Switch, 50)) {
			return t
		}
		l = l[1:]
	}
	return l[s.d.sched.IntN(len(l))]
}

func (s *scheduler) killAll() {
	for _, t := range s.tasks {
		t.p.Kill()
	}
}

func (s *scheduler) deadlock() error {
	e := &DeadlockError{}
	for _, t := range s.tasks {
		var w string
		switch {
		case t.p.stopped && t.waiting:
			w = "is stopped in " + t.op.String()
		case t.p.stopped:
			w = "is stopped"
		default:
			w = "waits for " + t.what
		}
		e.Waits = append(e.Waits, t.p.name+" "+w)
	}
	return e
}
