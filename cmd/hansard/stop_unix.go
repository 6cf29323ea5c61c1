//go:build unix

package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// stopper handles Ctrl-Z. A process that is stopped while it is inside a store's
// write lock blocks every writer on the machine, so the command first leaves the
// lock and then stops.
type stopper struct {
	mu    sync.Mutex   // guards pause and also; held while a store is opened or closed
	pause func(func()) // runs a function outside the write lock
	also  func()       // stops what has to stop with this process
	tstp  chan os.Signal
	done  chan struct{}
}

func catchStop() *stopper {
	s := &stopper{tstp: make(chan os.Signal, 1), done: make(chan struct{})}
	if signal.Ignored(syscall.SIGTSTP) {
		return s
	}
	signal.Notify(s.tstp, syscall.SIGTSTP)
	go func() {
		for {
			select {
			case <-s.tstp:
				s.suspend()
			case <-s.done:
				return
			}
		}
	}()
	return s
}

// hold delays stopping until letGo is called: opening and closing a store take
// its write lock, and there is no way yet, or no longer, to leave it. letGo says
// how to leave the lock from then on; nil if no store is open.
func (s *stopper) hold() (letGo func(pause func(func()))) {
	s.mu.Lock()
	return func(pause func(func())) {
		s.pause = pause
		s.mu.Unlock()
	}
}

// with runs fn, which returns what else has to stop before this process does; nil
// for nothing. Until it returns, stopping is delayed.
func (s *stopper) with(fn func() (also func())) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.also = fn()
}

func (s *stopper) suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.also != nil {
		s.also()
	}
	if s.pause == nil {
		stopSelf()
		return
	}
	s.pause(stopSelf)
}

// stopSelf stops the process and returns when it is continued. kill may return
// before the other threads have stopped, so SIGCONT ends the wait. The timer
// covers the case that SIGSTOP is ignored: process 1 of a container.
func stopSelf() {
	cont := make(chan os.Signal, 1)
	signal.Notify(cont, syscall.SIGCONT)
	defer signal.Stop(cont)
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGSTOP); err != nil {
		return
	}
	select {
	case <-cont:
	case <-time.After(250 * time.Millisecond):
	}
}

func (s *stopper) release() {
	signal.Stop(s.tstp)
	close(s.done)
}
