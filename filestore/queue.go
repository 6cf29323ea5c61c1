package filestore

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/peers"
	"hansard/internal/fate"
	"hansard/internal/vfs"
)

// The queue between callers and the commit. One goroutine per process, the leader, takes
// what waits as one group through the commit (commit.go), so that one thread blocks in
// flock for all callers, and one sync serves them all. Callers wait on channels and can
// leave at any time by their context; a thread per caller would outlive it.
//
//	enqueue ─► waiting ─► take ─► commitGroup ─► answer ─► wait returns
//	              └─ withdrawn by its caller: "not stored", for certain
//
// Invariants:
//   - A request is in at most one group; its state moves once, by compare-and-swap, from
//     queued to taken or to withdrawn. That decides a race between a caller that leaves
//     and the leader: never "not stored" for a request that a group has (failure 36).
//   - leading is true while somebody is bound to look at waiting again: no request is
//     left behind without a leader (TestQueueLoneWriter).
//   - Every request that was queued and not withdrawn is answered exactly once.

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
	opFork
	opRedact
	opProbe // belongs to no session: see Probe
)

// request is one write on its way through the commit. The caller fills in what it asks
// for and leaves it alone until done is closed; between take and answer it belongs to the
// leader. Only state is used by both at once.
type request struct {
	op     op
	id     hansard.SessionID
	name   string
	meta   hansard.Meta // of the session that it creates, if it creates one
	expect *hansard.Seq
	turn   hansard.Grant
	key    string
	hash   string
	create bool
	patch  *hansard.Patch
	events []hansard.Event // of an append, as they are stored; named refers to them
	bodies [][]byte        // their lines, without what the commit adds
	// named are the ids of its events, nil if no event has one. With ids, the commit
	// decides which events are stored: first and last are what is added to the first and
	// the last of those, alone is the body of a line that has a patch and no event.
	named       []engine.Named
	spareNamed  []engine.Named // memory for them
	sought      []sought       // see names
	first, last []byte
	alone       []byte
	// attached are the attachments that its events name.
	attached []attachedTo
	apart    bool   // each of its events is a batch of its own
	inbox    bool   // accepted even during an exclusive turn
	by       string // the writer's name, as a server knows it
	claim    *hansard.Claim
	ifKept   bool          // of opRelease: only if this process keeps the turn
	part     *hansard.Part // of opImport
	fork     *drafted      // of opFork
	left     []int         // of opImport: for each line, how many lines of its batch follow
	// redaction is of opRedact. Its seqs are in order.
	redaction *hansard.Redaction
	// size is an upper bound of the bytes it adds to the ring, without snapshots of
	// metadata. Room is made for that many before the first byte is written: after it,
	// "not stored" is no longer a possible answer.
	size int

	prepared prepared // what was read for it before write.lock

	fate fate.Fate
	// done gets one value when receipt and err are set.
	done     chan struct{}
	answered bool        // wait has taken that value
	timer    *time.Timer // of wait, stopped; nil if not made yet
	buf      []byte      // the buffer that bodies point into

	// The outcome, and what it rests on: rest is the newest line of the session it was
	// decided from, dep the ring position where that line's entry ends; 0 if it rests on
	// the log alone. No answer, refusals and replays included, is given before dep is
	// durable and applied (ReplayWaits, RefusalWaits): a power cut could take back the
	// entry that a caller was just told about.
	receipt hansard.Receipt
	granted hansard.Turn // of opAcquire
	err     error
	dep     uint64
	rest    lineRef
	void    error // why that line was lost; nil if it was not
}

// lineRef names a line by where it ends in the log with this uid, and by its crc. A line's
// crc covers the crc of the line before: if it stands, all lines before it do. So one
// reference is enough to tell, after the ring was replaced, whether everything that an
// answer was decided from survived.
type lineRef struct {
	uid uint64
	end int64 // 0 if there is no line
	crc uint32
}

// queue holds the requests that wait for the next group. What queues up during one sync
// is the next group: group commit without a timer, so that a lone writer never waits for
// company.
type queue struct {
	mu      sync.Mutex // guards all below; held for work in memory only
	waiting []*request // FIFO
	leading bool       // a leader is running, and looks at waiting before it ends
	refused error      // the store is closing: the answer to every new request
}

// submit hands a request to the commit and waits for its outcome. A request that is
// refused because lines of its session were set aside after an I/O error is tried once
// more if those lines can be put in place now (mend.go; failure 58). Nothing of it was
// stored the first time: mended never agrees to an ErrUnknown.
func (cm *committer) submit(ctx context.Context, r *request) (hansard.Receipt, error) {
	receipt, err := cm.submitOnce(ctx, r)
	if err != nil && cm.checkpoints.mended(ctx, err, r.name) {
		r.fate.Requeue()
		return cm.submitOnce(ctx, r)
	}
	return receipt, err
}

// submitOnce takes a request through the queue once.
func (cm *committer) submitOnce(ctx context.Context, r *request) (hansard.Receipt, error) {
	if err := cm.enqueue(ctx, r); err != nil {
		return hansard.Receipt{}, err
	}
	return r.wait(ctx, cm.process)
}

// submitAll hands requests to the commit as one group, as far as they fit into one, and
// waits for them. Their outcomes are in the requests.
func (cm *committer) submitAll(ctx context.Context, all []*request) {
	if cm.enqueue(ctx, all...) != nil {
		return
	}
	for _, r := range all {
		_, _ = r.wait(ctx, cm.process)
	}
}

// enqueue puts requests into the queue and makes sure that there is a leader. An error
// means that the store is closed and nothing was queued.
func (cm *committer) enqueue(ctx context.Context, all ...*request) error {
	q := &cm.queue
	q.mu.Lock()
	if q.refused != nil {
		q.mu.Unlock()
		return q.refused
	}
	for _, r := range all {
		if r.done == nil {
			r.done = make(chan struct{}, 1)
		}
		r.answered = false
		q.waiting = append(q.waiting, r)
	}
	lead := !q.leading
	q.leading = true
	if lead {
		// Under the mutex: Close sets refused under it before it waits for the workers,
		// so a leader is either counted before Wait or never started.
		cm.workers.Add(1)
	}
	q.mu.Unlock()
	if lead {
		switch {
		case cm.cfg.inline:
			cm.lead()
		case ctx.Done() == nil && cm.lock.lockIsFree():
			// A lone writer that can't be cancelled leads itself, which saves two
			// goroutine switches; requests that arrive meanwhile get a leader of their
			// own. With a cancellable context it must not: nothing could call it back
			// from a slow disk.
			cm.commitGroup()
			if cm.queue.anyLeft() {
				go cm.lead()
			} else {
				cm.workers.Done()
			}
		default:
			go cm.lead()
		}
	}
	return nil
}

// lockIsFree takes write.lock if it is free, and tells whether it did. The next call of
// lock in this process then gets it without waiting. Testing without taking would not do:
// another process could take the lock in between, and the caller would block behind it.
// pause gives back a lock that was taken like this and not used yet.
func (wl *writeLock) lockIsFree() bool {
	if !wl.mu.TryLock() {
		return false
	}
	defer wl.mu.Unlock()
	if wl.files.write == nil {
		return false
	}
	got, err := wl.files.write.TryLock(vfs.LockExclusive)
	wl.ahead = err == nil && got
	return wl.ahead
}

// wait waits for the outcome of a queued request.
//
//	done                    the outcome
//	ctx ends, queued        withdrawn: certainly not stored
//	ctx ends, taken         ErrUnknown: it may be in the ring, and will be applied then
//	LockWait over, queued   ErrBusy, with the process that holds write.lock: not stored
//	LockWait over, taken    goes on waiting
func (r *request) wait(ctx context.Context, p *process) (hansard.Receipt, error) {
	select {
	case <-r.done: // a caller that led itself: no timer needed
		r.answered = true
		return r.receipt, r.err
	default:
	}
	if r.timer == nil {
		r.timer = time.NewTimer(p.opt.LockWait)
	} else {
		r.timer.Reset(p.opt.LockWait)
	}
	timer := r.timer
	defer timer.Stop()
	for {
		select {
		case <-r.done:
			r.answered = true
			return r.receipt, r.err
		case <-ctx.Done():
			if r.fate.Withdraw() {
				return hansard.Receipt{}, fmt.Errorf("not stored: %w", context.Cause(ctx))
			}
			return hansard.Receipt{}, fmt.Errorf("%w: %w", hansard.ErrUnknown, context.Cause(ctx))
		case <-timer.C:
			if r.fate.Withdraw() {
				return hansard.Receipt{}, p.busy()
			}
			// It is in the commit: the outcome comes, however slow the disk. Giving up
			// here would make every slow sync an ErrUnknown.
		}
	}
}

// busy is the error for a write that did not get write.lock in time. It names the process
// that holds it, so that people know what to continue or kill. If that is this process,
// it says what it is doing instead: advice to kill oneself does not help
// (TestBusyIsNotOneself).
func (p *process) busy() error {
	pid := peers.LockHolder(p.fs)
	if pid == os.Getpid() {
		return p.busyItself()
	}
	if pid > 0 {
		return &hansard.BusyError{Holder: fmt.Sprintf("process %d", pid)}
	}
	// The kernel does not tell (another PID namespace, not Linux): name the last holder
	// that the control file records. It is a hint, for people only.
	holder, itself := peers.LastHolder(p.fs, p.holder)
	if itself {
		return p.busyItself()
	}
	return &hansard.BusyError{Holder: holder}
}

// busyItself is the error of busy when this process itself holds the lock.
func (p *process) busyItself() error {
	if p.joining.Load() {
		return &hansard.BusyError{Own: "this process is still finishing what a crash left in the journal; the disk is slow"}
	}
	return &hansard.BusyError{Own: "a write of this process is still under way; the disk is slow"}
}

// lead commits groups until the queue is empty. At most one goroutine per process runs
// it, so that one thread blocks in flock for all callers.
func (cm *committer) lead() {
	defer cm.workers.Done()
	for cm.queue.anyLeft() {
		n := cm.commitGroup()
		if !cm.cfg.inline && n > 1 {
			cm.queue.letJoin(n, cm.company)
		}
	}
}

// letJoin gives the n callers that were just answered a chance to be in the next group:
// most of them come back with their next event at once, but a little later than the
// leader would lock again. It waits while requests keep arriving, at most 20 µs for each,
// and never for a lone writer. It polls: a timer is too coarse for that. With company
// (other processes writing) it soon yields the processor to them: they have work to do
// meanwhile.
func (q *queue) letJoin(n int, company bool) {
	const quiet = 20 * time.Microsecond
	last, idle := time.Now(), 0
	all := q.length() + n // some arrived while the group was being committed
	for have := 0; have < all; {
		if idle++; company && idle > 3 {
			yield()
		} else {
			runtime.Gosched()
		}
		now := q.length()
		if now > have {
			have, last, idle = now, time.Now(), 0
		} else if company && idle > 6 || time.Since(last) > quiet {
			return
		}
	}
}

// length is how many requests wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// anyLeft tells the leader whether to go on. If not, it resigns in the same critical
// section: a request queued right after finds leading false and starts a leader.
func (q *queue) anyLeft() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leading = len(q.waiting) > 0
	return q.leading
}

// need is an upper bound of what the waiting requests add to the ring: the first, however
// large, and those behind it that fit into limit. The first always counts, or a batch
// larger than limit would wait for ever; roomFor makes a larger ring for it.
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

// take takes the next group off the queue, within the same limit as need. Withdrawn
// requests are dropped; their callers already have an answer. From here on a request that
// is in the group may be stored. The caller holds write.lock, so that what is taken is
// written next and not left to wait for the lock.
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
		if r.fate.Take() {
			group = append(group, r)
		}
	}
	// Moved down rather than sliced off: the array is used again, and cleared, so that
	// it does not keep megabytes of answered requests alive.
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	return group
}

// beforeClose runs fn, which starts work that Close has to wait for, unless the store is
// already closing; it tells whether it did. A WaitGroup must not grow while somebody
// waits for it to become zero.
func (q *queue) beforeClose(fn func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refused == nil {
		fn()
	}
	return q.refused == nil
}

// refuse answers all waiting requests, and all later ones, with an error.
func (q *queue) refuse(err error) {
	q.mu.Lock()
	q.refused = err
	q.mu.Unlock()
	q.fail(err)
}

// fail answers all waiting requests with an error. None of them was in a group, so none
// was stored and the error may say so.
func (q *queue) fail(err error) {
	for _, r := range q.take(1 << 62) {
		r.answer(hansard.Receipt{}, err)
	}
}

// failAllBut is fail for all waiting requests except those of one kind.
func (q *queue) failAllBut(kept op, err error) {
	q.mu.Lock()
	var failed []*request
	all := q.waiting
	q.waiting = all[:0]
	for _, r := range all {
		if r.op == kept {
			q.waiting = append(q.waiting, r)
		} else if r.fate.Take() {
			failed = append(failed, r)
		}
	}
	clear(all[len(q.waiting):])
	q.mu.Unlock()
	for _, r := range failed {
		r.answer(hansard.Receipt{}, err)
	}
}

// answer sets the outcome and lets the caller go. The leader must not touch the request
// afterwards: the caller may use it for another try (carryOut).
func (r *request) answer(receipt hansard.Receipt, err error) {
	r.receipt, r.err = receipt, err
	r.done <- struct{}{} // never blocks: the channel has room, and nobody else answers
}

// spareRequests are answered requests, with the memory of their lines, for the next
// appends to reuse: otherwise they would be most of what an append allocates.
var spareRequests = sync.Pool{New: func() any { return new(request) }}

// spareBody is how many bytes for lines a spare request keeps at most, spareEvents for
// how many events it keeps memory.
const (
	spareBody   = 64 << 10
	spareEvents = 64
)

// recycle gives up an append that was answered: only its caller has it by then. A request
// that its caller abandoned, or that was withdrawn, must not be recycled: the leader may
// still use it.
func (r *request) recycle() {
	buf := r.buf[:0]
	if spoil != nil {
		spoil(buf[:cap(buf)])
	}
	if cap(buf) > spareBody {
		buf = nil
	}
	events, bodies, sought, named := r.events[:0], r.bodies[:0], r.sought[:0], r.spareNamed[:0]
	if cap(events) > spareEvents {
		events, bodies, sought, named = nil, nil, nil, nil
	}
	// Cleared, so that they keep nothing of the caller's alive.
	clear(r.events)
	clear(r.bodies)
	clear(r.sought)
	clear(r.spareNamed)
	*r = request{done: r.done, timer: r.timer, buf: buf, events: events, bodies: bodies, sought: sought, spareNamed: named}
	spareRequests.Put(r)
}
