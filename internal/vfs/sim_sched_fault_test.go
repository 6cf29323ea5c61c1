package vfs

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestRunKill(t *testing.T) {
	// Whoever waits for the lock of a process that is killed gets it.
	for k := 1; k <= 4; k++ {
		d := NewDisk(uint64(k))
		a, b := d.Process("a"), d.Process("b")
		d.KillAt(Match{Proc: "a", N: k}, -1)
		var aErr error
		d.Go(a, func() {
			aErr = func() error {
				f, err := a.Open("l", Create)
				if err != nil {
					return err
				}
				if err := f.Lock(LockExclusive); err != nil {
					return err
				}
				if _, err := f.WriteAt([]byte("a"), 0); err != nil {
					return err
				}
				return f.Unlock()
			}()
		})
		d.Go(b, func() {
			f, err := b.Open("l", Create)
			if err != nil {
				t.Error(err)
				return
			}
			if err := f.Lock(LockExclusive); err != nil {
				t.Error(err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		must(t, d.Run())
		if aErr != ErrCrashed || !a.Dead() || b.Dead() {
			t.Errorf("k %d: a %v, dead %v; b dead %v", k, aErr, a.Dead(), b.Dead())
		}
	}
}

func TestRunPowerCut(t *testing.T) {
	for k := 1; k <= 10; k++ {
		d := NewDisk(uint64(k))
		d.CutAt(Match{N: k}, Cut{Keep: 50, Seed: uint64(k)})
		var errs []error
		for _, name := range []string{"a", "b"} {
			p := d.Process(name)
			d.Go(p, func() {
				for {
					f, err := p.Open("l", Create)
					if err == nil {
						err = f.Lock(LockExclusive)
					}
					if err == nil {
						err = f.Close()
					}
					if err != nil {
						errs = append(errs, err)
						return
					}
				}
			})
		}
		must(t, d.Run())
		if !slices.Equal(errs, []error{ErrCrashed, ErrCrashed}) {
			t.Errorf("k %d: ended with %v", k, errs)
		}
	}
}

func TestRunStop(t *testing.T) {
	d := NewDisk(3)
	a, b := d.Process("a"), d.Process("b")
	d.StopAt(Match{Proc: "a", Kind: OpUnlock})
	var order []string
	hold := func(p *Proc) {
		f, err := p.Open("l", Create)
		if err == nil {
			err = f.Lock(LockExclusive)
		}
		if err == nil {
			err = f.Unlock()
		}
		if err != nil {
			t.Error(err)
		}
		order = append(order, p.Name())
	}
	d.Go(a, func() { hold(a) })
	d.Go(b, func() { hold(b); hold(b) })
	idle := 0
	d.OnIdle(func() bool {
		idle++
		if !a.Stopped() {
			t.Error("idle, but nobody is stopped")
		}
		a.Continue()
		return true
	})
	must(t, d.Run())
	if idle != 1 || len(order) != 3 {
		t.Errorf("idle %d times, order %q", idle, order)
	}

	// Without anybody to continue it, it is a deadlock that says so.
	d = NewDisk(3)
	a, b = d.Process("a"), d.Process("b")
	d.StopAt(Match{Proc: "a", Kind: OpUnlock})
	ended := 0
	for _, p := range []*Proc{a, b} {
		d.Go(p, func() {
			defer func() { ended++ }()
			_ = takeOne(p)
		})
	}
	err := d.Run()
	if err == nil || !strings.Contains(err.Error(), "a is stopped in #") || !strings.Contains(err.Error(), "unlock l") {
		t.Errorf("run: %v", err)
	}
	if ended != 2 {
		t.Errorf("%d processes ended, want both", ended)
	}
}

func TestRunFaultInLock(t *testing.T) {
	d := NewDisk(1)
	a := d.Process("a")
	d.Inject(Match{Kind: OpLock}, Fault{Err: syscall.EINTR})
	d.Go(a, func() {
		f, err := a.Open("l", Create)
		if err != nil {
			t.Error(err)
			return
		}
		if err := f.Lock(LockShared); !errors.Is(err, syscall.EINTR) {
			t.Errorf("lock: %v; want EINTR", err)
		}
		if ok, err := f.TryLock(LockExclusive); !ok || err != nil {
			t.Errorf("try: %v, %v", ok, err)
		}
	})
	must(t, d.Run())
}
