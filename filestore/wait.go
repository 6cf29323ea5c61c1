package filestore

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"hansard"
)

// A wait is a look at the log, repeated when something may have happened: this
// process applied an entry, the kernel tells of a write to the file, or a while
// has passed. Only the look counts; the rest are hints, any of which may be lost.

const (
	pollMin = 20 * time.Millisecond
	pollMax = time.Second
)

// waiters wake the waits of this process, by file name.
type waiters struct {
	mu    sync.Mutex
	m     map[string]*waitPoint
	watch *fsnotify.Watcher // nil: not started, or not to be had
	tried bool
}

type waitPoint struct {
	woken chan struct{} // closed by the next wake
	refs  int
}

// join begins a wait; the point's channel is renewed by each wake.
func (w *waiters) join(s *Store, name string) *waitPoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil {
		w.m = map[string]*waitPoint{}
	}
	p := w.m[name]
	if p == nil {
		p = &waitPoint{woken: make(chan struct{})}
		w.m[name] = p
		w.watchFile(s, name)
	}
	p.refs++
	return p
}

func (w *waiters) leave(s *Store, name string, p *waitPoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.refs--; p.refs > 0 {
		return
	}
	delete(w.m, name)
	if w.watch != nil {
		_ = w.watch.Remove(s.hostPath(name)) // it may be gone already
	}
}

// channel is closed by the first wake from now on.
func (w *waiters) channel(p *waitPoint) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.woken
}

func (w *waiters) wake(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.m[name]; p != nil {
		close(p.woken)
		p.woken = make(chan struct{})
	}
}

func (w *waiters) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.m {
		close(p.woken)
		p.woken = make(chan struct{})
	}
}

// watchFile asks the kernel to tell of writes by other processes. A watch goes
// silent when the file is replaced; the polls go on.
func (w *waiters) watchFile(s *Store, name string) {
	if s.dir == nil {
		return
	}
	if !w.tried {
		w.tried = true
		if watch, err := fsnotify.NewWatcher(); err == nil {
			w.watch = watch
			s.workers.Add(1)
			go s.forwardWrites(watch)
		}
	}
	if w.watch != nil {
		_ = w.watch.Add(s.hostPath(name)) // out of watches: polls
	}
}

func (s *Store) forwardWrites(watch *fsnotify.Watcher) {
	defer s.workers.Done()
	defer watch.Close()
	for {
		select {
		case <-s.closing:
			return
		case e, ok := <-watch.Events:
			if !ok {
				return
			}
			base := filepath.Base(e.Name)
			s.waiters.wake(base[:max(0, len(base)-len(logSuffix))])
		case <-watch.Errors: // lost events: polls
		}
	}
}

func (s *Store) hostPath(name string) string {
	return filepath.Join(s.path, filepath.FromSlash(logPath(name)))
}

// Wait returns nil when the session has an event past after.
func (s *Store) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	if err := s.readable(ctx, id); err != nil {
		return err
	}
	name := encodeName(id)
	poll := pollMin
	timer := time.NewTimer(poll)
	defer timer.Stop()
	var p *waitPoint
	for {
		var woken <-chan struct{}
		if p != nil {
			woken = s.waiters.channel(p) // before the look, or a wake between is lost
		}
		last, err := s.lastSeq(ctx, id)
		if err != nil || last > after {
			return err
		}
		if p == nil {
			// The first look found nothing; from now on somebody wakes us.
			p = s.waiters.join(s, name)
			defer s.waiters.leave(s, name, p)
			continue
		}
		timer.Reset(poll)
		select {
		case <-ctx.Done():
		case <-s.closing:
		case <-woken:
		case <-timer.C:
			poll = min(2*poll, pollMax)
		}
	}
}

// lastSeq is the seq up to which Read gives events.
func (s *Store) lastSeq(ctx context.Context, id hansard.SessionID) (hansard.Seq, error) {
	l, err := s.openLogForRead(ctx, id)
	if err != nil {
		return 0, err
	}
	defer l.f.Close()
	if l.damage != nil {
		return 0, l.damage
	}
	return l.tail.last.Seq, nil
}
