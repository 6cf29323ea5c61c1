package filestore

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"hansard"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
)

// A wait is a look at the log, repeated when something may have happened:
//
//	wake      this process applied an entry, or mended or repaired the log
//	inotify   another process wrote to the file
//	poll      20 ms … 1 s have passed
//
// Only the look counts. The others are hints, and any of them can get lost: inotify goes
// silent when a file is replaced, has a limit on watches, and is not available on every
// system. The poll guarantees that a follower never hangs.
//
// A wake-up carries no event, so a follower that is slow, or was not waiting at that
// moment, misses nothing: it reads from the log what is past the seq it has (failures 47
// to 49).

// How long a wait sleeps without a hint: doubled from the first to the second.
const (
	pollMin = 20 * time.Millisecond
	pollMax = time.Second
)

// How long the kernel's watch outlives the last follower of a log, and for how many logs:
// a follower comes back when it has read, and is woken already if there is more.
const (
	lingerFor = time.Second
	lingerMax = 64
)

// waiters wakes the waits of this process, by file name. Wait and Acquire (courtesy.go)
// use it.
type waiters struct {
	process *process
	rung    func() // another process wrote to this one's bell (calling.go)

	mu        sync.Mutex            // guards all below; taken last, also under write.lock
	m         map[string]*waitPoint // the names that have a wait, or had one a moment ago
	lingering int                   // how many of them have a timer
	watch     *fsnotify.Watcher     // nil: not started, or not available
	tried     bool                  // to start it
}

// waitPoint is shared by all waits for one log. It is guarded by waiters.mu.
type waitPoint struct {
	woken   chan struct{} // closed, and replaced, by each wake
	refs    int           // how many wait
	watched bool          // by the kernel
	left    time.Time     // when the last follower left
	linger  *time.Timer   // drops it some time after that; nil: none is running
}

// join begins a wait. The caller has to look at the log after it and before it sleeps:
// what happened before join wakes nobody. leave ends the wait.
func (w *waiters) join(name string) *waitPoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		w.m = map[string]*waitPoint{}
	}
	p := w.m[name]
	if p == nil {
		p = &waitPoint{woken: make(chan struct{})}
		w.m[name] = p
		p.watched = w.watchFile(name)
	}
	p.refs++
	return p
}

// rejoin is join for a log that is watched already; nil: it is not.
func (w *waiters) rejoin(name string) *waitPoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.m[name]
	if p != nil {
		p.refs++
	}
	return p
}

// leave ends a wait that join began. Some time after the last follower has left the
// kernel's watch is removed: watches are few, and sessions are many. For a claimant the
// watch does not linger: if it comes back it is the youngest, and is woken by a call;
// until then writes of others would wake it for nothing.
func (w *waiters) leave(name string, p *waitPoint, follower bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if follower {
		p.left = time.Now()
	}
	if p.refs--; p.refs > 0 {
		return
	}
	switch {
	case p.linger != nil: // expire looks at left
	case follower && p.watched && w.lingering < lingerMax:
		w.lingering++
		p.linger = time.AfterFunc(lingerFor, func() { w.expire(name, p) })
	default:
		w.drop(name)
	}
}

// expire drops a log that has had no wait for a while.
func (w *waiters) expire(name string, p *waitPoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rest := lingerFor - time.Since(p.left); p.refs == 0 && rest > 0 {
		p.linger.Reset(rest)
		return
	}
	w.lingering--
	p.linger = nil
	if p.refs == 0 {
		w.drop(name)
	}
}

// drop forgets a log. The caller holds w.mu.
func (w *waiters) drop(name string) {
	delete(w.m, name)
	if w.watch != nil {
		_ = w.watch.Remove(w.process.hostPath(name)) // the file may be gone already
	}
}

// channel is closed by the next wake. Get it before the look at the log: a wake between
// the look and the sleep then still ends the sleep.
func (w *waiters) channel(p *waitPoint) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.woken
}

// wake ends the sleep of all waits for a log. It never blocks, so that it may be called
// under write.lock: no follower holds up a writer (failure 49).
func (w *waiters) wake(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.m[name]; p != nil {
		close(p.woken)
		p.woken = make(chan struct{})
	}
}

// wakeAll ends every sleep, for Close.
func (w *waiters) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.m {
		close(p.woken)
		p.woken = make(chan struct{})
	}
}

// watchFile asks the kernel to report writes by other processes, and tells whether it
// does; if not (out of watches), the polls continue. The caller holds w.mu. The watch is
// on the file, not on sessions/, where every write to every session would wake this
// process.
func (w *waiters) watchFile(name string) bool {
	// A simulated disk; or closed: Close has woken everybody, under our mutex, and waits
	// for the workers. One that starts now would be added during that wait.
	if w.process.dir == nil || w.process.closed.Load() {
		return false
	}
	return w.watching() && w.watch.Add(w.process.hostPath(name)) == nil
}

// watchAnew watches the file that the name of a log leads to now, if there is a wait for
// it: the watched file may have been replaced, and nobody writes to that any more.
func (w *waiters) watchAnew(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.m[name]; p != nil {
		p.watched = w.watchFile(name)
	}
}

// watching starts the watcher, once, and tells whether there is one. The caller holds
// w.mu, and the store is not closed.
func (w *waiters) watching() bool {
	if !w.tried {
		w.tried = true
		if watch, err := fsnotify.NewWatcher(); err == nil {
			// The goroutine lives until Close, which waits for it.
			w.watch = watch
			w.process.workers.Add(1)
			go w.forwardWrites(watch)
		}
	}
	return w.watch != nil
}

// watchBell asks the kernel to report writes to this process's bell (calling.go), and tells
// whether it does.
func (w *waiters) watchBell(path string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.process.closed.Load() && w.watching() && w.watch.Add(path) == nil
}

// forwardWrites turns the kernel's events into wakes until the store is closed. Any kind
// of event wakes: a superfluous wake costs one look, a missing one a poll interval.
func (w *waiters) forwardWrites(watch *fsnotify.Watcher) {
	defer w.process.workers.Done()
	defer watch.Close()
	for {
		select {
		case <-w.process.closing:
			return
		case e, ok := <-watch.Events:
			if !ok {
				return
			}
			base := filepath.Base(e.Name)
			if filepath.Base(filepath.Dir(e.Name)) == peers.BellsDir {
				w.rung()
				continue
			}
			name := base[:max(0, len(base)-len(sessionlog.Suffix))]
			if !e.Has(fsnotify.Write) {
				w.watchAnew(name) // before the look: any write after it wakes
			}
			w.wake(name)
		case <-watch.Errors: // lost events: polls
		}
	}
}

// hostPath is the path of a log for the operating system, as inotify wants it.
func (p *process) hostPath(name string) string {
	return filepath.Join(p.path, filepath.FromSlash(sessionlog.Path(name)))
}

// Wait returns nil when the session has an event past after that Read yields. Otherwise
// it returns when ctx ends, the store is closed, or the session is deleted, damaged or
// missing. It takes no lock, and never sees half a batch.
func (s *Store) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	if err := s.readable(ctx, id); err != nil {
		return err
	}
	name := sessionlog.EncodeName(id)
	poll := pollMin
	timer := time.NewTimer(poll)
	defer timer.Stop()
	p := s.waiters.rejoin(name)
	defer func() {
		if p != nil {
			s.waiters.leave(name, p, true)
		}
	}()
	var uid uint64
	for {
		var woken <-chan struct{}
		if p != nil {
			woken = s.waiters.channel(p) // before the look, or a wake between is lost
		}
		last, err := s.reader.lastSeq(ctx, id, &uid)
		if err != nil || last > after {
			return err
		}
		if p == nil {
			// Nothing on the first look, which is usually enough. Join, and look again:
			// what was written before we joined wakes nobody.
			p = s.waiters.join(name)
			continue
		}
		timer.Reset(poll)
		select {
		case <-ctx.Done(): // the next look returns the error
		case <-s.closing:
		case <-woken:
		case <-timer.C:
			// This way long silence costs little; hints make up for the delay.
			poll = min(2*poll, pollMax)
		}
	}
}

// lastSeq is the seq up to which Read yields events; damage is an error, because a
// damaged session gets no more of them. It costs the same for every length of the log.
//
// uid is that of the log seen last, or 0: if that session was deleted and another one has
// its id now, the result is ErrDeleted.
func (rd *reader) lastSeq(ctx context.Context, id hansard.SessionID, uid *uint64) (hansard.Seq, error) {
	l, err := rd.openLogForRead(ctx, id)
	if err != nil {
		return 0, err
	}
	defer l.f.Close()
	if l.damage != nil {
		return 0, l.damage
	}
	if *uid != 0 && *uid != l.header.LogUID && sessionlog.FollowsDeleted(l.f, id, *uid) {
		return 0, fmt.Errorf("session %s: %w", id, hansard.ErrDeleted)
	}
	*uid = l.header.LogUID
	return l.tail.Last.Seq, nil
}
