package filestore

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// op is what a request asks for.
type op int

const (
	opAppend op = iota
	opCreate
	opDelete
	opAcquire
	opRenew
	opRelease
	opImport
	opProbe // of no session: see Probe
)

// request is one write on its way through the commit.
type request struct {
	op     op
	id     hansard.SessionID
	name   string
	meta   hansard.Meta // of opCreate
	expect *hansard.Seq
	turn   hansard.Grant
	key    string
	hash   string
	create bool
	patch  *hansard.Patch
	bodies [][]byte // the events' lines, but for what the commit adds
	inbox  bool     // an exclusive turn lets it in
	claim  *hansard.Claim
	ifKept bool          // of opRelease: only if it is this process that keeps the turn
	part   *hansard.Part // of opImport
	left   []int         // and how many lines of their batches follow its lines
	size   int           // more than its lines take

	state atomic.Int32
	done  chan struct{} // closed when receipt and err are set

	// The outcome, and the ring position it rests on: nobody is told before
	// that is durable and in the logs.
	receipt hansard.Receipt
	granted hansard.Turn // of opAcquire
	err     error
	dep     uint64
}

// The states of a request. A caller whose context ends takes a queued request
// back; one that is taken may be stored.
const (
	queued int32 = iota
	taken
	withdrawn
)

// queue holds the requests that wait for the next group. What queues up during
// one sync is the next group: no timer makes a lone writer wait.
type queue struct {
	mu      sync.Mutex
	waiting []*request
	leading bool  // somebody runs the commit loop
	refused error // no more requests
}

// submit hands a request to the commit and waits for its outcome.
func (s *Store) submit(ctx context.Context, r *request) (hansard.Receipt, error) {
	if err := s.enqueue(ctx, r); err != nil {
		return hansard.Receipt{}, err
	}
	return r.wait(ctx, s)
}

// submitAll hands requests to the commit as one group, and waits for them.
func (s *Store) submitAll(ctx context.Context, all []*request) {
	if s.enqueue(ctx, all...) != nil {
		return
	}
	for _, r := range all {
		_, _ = r.wait(ctx, s)
	}
}

// enqueue puts requests into the queue and sees to it that somebody leads.
func (s *Store) enqueue(ctx context.Context, all ...*request) error {
	q := &s.queue
	q.mu.Lock()
	if q.refused != nil {
		q.mu.Unlock()
		return q.refused
	}
	for _, r := range all {
		r.done = make(chan struct{})
		q.waiting = append(q.waiting, r)
	}
	lead := !q.leading
	q.leading = true
	if lead {
		s.workers.Add(1) // before Close can wait for it
	}
	q.mu.Unlock()
	if lead {
		switch {
		case s.cfg.inline:
			s.lead()
		case ctx.Done() == nil && s.lockIsFree():
			// A lone writer that can't be called off saves two switches of
			// goroutines by leading himself; who comes meanwhile gets another.
			s.commitGroup()
			if s.queue.anyLeft() {
				go s.lead()
			} else {
				s.workers.Done()
			}
		default:
			go s.lead()
		}
	}
	return nil
}

// lockIsFree takes write.lock if nobody has it. lockW, on the same descriptor,
// then finds it taken by us.
func (s *Store) lockIsFree() bool {
	if !s.wmu.TryLock() {
		return false
	}
	defer s.wmu.Unlock()
	if s.files.write == nil {
		return false
	}
	got, err := s.files.write.TryLock(vfs.LockExclusive)
	return err == nil && got
}

func (r *request) wait(ctx context.Context, s *Store) (hansard.Receipt, error) {
	select {
	case <-r.done: // most often without a timer
		return r.receipt, r.err
	default:
	}
	timer := time.NewTimer(s.opt.LockWait)
	defer timer.Stop()
	for {
		select {
		case <-r.done:
			return r.receipt, r.err
		case <-ctx.Done():
			if r.state.CompareAndSwap(queued, withdrawn) {
				return hansard.Receipt{}, fmt.Errorf("not stored: %w", context.Cause(ctx))
			}
			return hansard.Receipt{}, fmt.Errorf("%w: %w", hansard.ErrUnknown, context.Cause(ctx))
		case <-timer.C:
			if r.state.CompareAndSwap(queued, withdrawn) {
				return hansard.Receipt{}, s.busy()
			}
			// It is in the commit: the outcome comes, however slow the disk.
		}
	}
}

// busy names the process that has the write lock.
func (s *Store) busy() error {
	if pid := lockHolder(s.fs); pid > 0 {
		return &hansard.BusyError{Holder: fmt.Sprintf("process %d", pid)}
	}
	f, err := s.fs.Open(controlName, readOnlyFlag)
	if err != nil {
		return &hansard.BusyError{}
	}
	defer f.Close()
	return &hansard.BusyError{Holder: (&control{f: f}).holder()}
}

// lead commits groups until nobody waits. One goroutine per process does it, so
// that one thread blocks in flock for everybody.
func (s *Store) lead() {
	defer s.workers.Done()
	for s.queue.anyLeft() {
		n := s.commitGroup()
		if !s.cfg.inline && n > 1 {
			s.queue.letJoin(n)
		}
	}
}

// letJoin gives those who were just answered the chance to be in the next group
// too: most of them come back with their next event. It waits as long as more
// come, a few microseconds each, and never for a lone writer.
func (q *queue) letJoin(n int) {
	const quiet = 20 * time.Microsecond
	last := time.Now()
	all := q.length() + n // some have come while the group was on its way
	for have := 0; have < all; {
		runtime.Gosched()
		now := q.length()
		if now > have {
			have, last = now, time.Now()
		} else if time.Since(last) > quiet {
			return
		}
	}
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// anyLeft tells the leader whether to go on; if not, the next to come leads.
func (q *queue) anyLeft() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leading = len(q.waiting) > 0
	return q.leading
}

// need is how many bytes of requests wait, at most the first and what fits into
// limit behind it.
func (q *queue) need(limit int) (bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, r := range q.waiting {
		if i > 0 && bytes+r.size > limit {
			break
		}
		bytes += r.size
	}
	return bytes
}

// take takes the next group off the queue, within the same limit as need.
func (q *queue) take(limit int) (group []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, bytes := 0, 0
	for _, r := range q.waiting {
		if n > 0 && bytes+r.size > limit {
			break
		}
		n++
		bytes += r.size
		if r.state.CompareAndSwap(queued, taken) {
			group = append(group, r)
		}
	}
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	return group
}

// refuse answers all that wait, and all that come, with an error.
func (q *queue) refuse(err error) {
	q.mu.Lock()
	q.refused = err
	q.mu.Unlock()
	q.fail(err)
}

// fail answers all that wait with an error: nothing of theirs was stored.
func (q *queue) fail(err error) {
	for _, r := range q.take(1 << 62) {
		r.answer(hansard.Receipt{}, err)
	}
}

func (r *request) answer(receipt hansard.Receipt, err error) {
	r.receipt, r.err = receipt, err
	close(r.done)
}
