package vfs

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// count adds one to a number in a file, n times, under a lock or without.
func count(t *testing.T, p *Proc, n int, locked bool) {
	f, err := p.Open("n", Create)
	if err != nil {
		t.Error(err)
		return
	}
	for range n {
		if locked {
			if err := f.Lock(LockExclusive); err != nil {
				t.Error(err)
				return
			}
		}
		b := make([]byte, 1)
		_, _ = f.ReadAt(b, 0)
		b[0]++
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Error(err)
			return
		}
		if locked {
			if err := f.Unlock(); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

func counted(t *testing.T, seed uint64, locked bool) (byte, []string) {
	t.Helper()
	d := NewDisk(seed)
	for _, name := range []string{"a", "b", "c"} {
		p := d.Process(name)
		d.Go(p, func() { count(t, p, 5, locked) })
	}
	must(t, d.Run())
	b, _ := d.CacheBytes("n")
	return b[0], d.Trace()
}

func TestRunInterleaves(t *testing.T) {
	lost := 0
	for seed := range uint64(20) {
		if n, _ := counted(t, seed, false); n < 15 {
			lost++
		}
		if n, _ := counted(t, seed, true); n != 15 {
			t.Fatalf("seed %d: counted to %d under a lock, want 15", seed, n)
		}
	}
	if lost < 15 {
		t.Errorf("only %d of 20 schedules lose an update without a lock", lost)
	}
}

func TestRunIsDeterministic(t *testing.T) {
	_, first := counted(t, 7, true)
	for range 5 {
		if _, again := counted(t, 7, true); !slices.Equal(again, first) {
			t.Fatal("the same seed gave another trace")
		}
	}
	if _, other := counted(t, 8, true); slices.Equal(other, first) {
		t.Error("another seed gave the same trace")
	}
}

// takeTwo takes two locks in the given order.
func takeTwo(p *Proc, first, second string) error {
	for _, name := range []string{first, second} {
		f, err := p.Open(name, Create)
		if err != nil {
			return err
		}
		if err := f.Lock(LockExclusive); err != nil {
			return err
		}
	}
	p.Kill()
	return nil
}

func TestRunFindsDeadlock(t *testing.T) {
	runs, deadlocks := 0, 0
	for c, more := new(Chooser), true; more; more = c.Next() {
		d := NewDisk(1)
		d.Schedule(c)
		a, b := d.Process("a"), d.Process("b")
		d.Go(a, func() { _ = takeTwo(a, "x", "y") })
		d.Go(b, func() { _ = takeTwo(b, "y", "x") })
		runs++
		err := d.Run()
		var de *DeadlockError
		if errors.As(err, &de) {
			deadlocks++
			want := "vfs: deadlock: a waits for the exclusive lock on y, held by b; b waits for the exclusive lock on x, held by a"
			if err.Error() != want {
				t.Fatalf("%v\nwant %s", err, want)
			}
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if deadlocks == 0 || deadlocks == runs {
		t.Errorf("%d of %d schedules deadlock, want some", deadlocks, runs)
	}
	// Two processes with 4 operations each, a switch possible at each of them,
	// would be 70 orders; waiting rules some out.
	if runs < 20 {
		t.Errorf("only %d schedules", runs)
	}
}

func TestChooserLimit(t *testing.T) {
	all, few := 0, 0
	for _, limit := range []int{0, 1} {
		for c, more := (&Chooser{Limit: limit}), true; more; more = c.Next() {
			others := 0
			for range 4 {
				if c.Choose(3) > 0 {
					others++
				}
			}
			if limit == 0 {
				all++
				continue
			}
			few++
			if others > limit {
				t.Fatalf("%v has %d other choices, want at most %d", c.Taken(), others, limit)
			}
		}
	}
	if all != 81 || few != 1+4*2 {
		t.Errorf("%d and %d combinations, want 81 and 9", all, few)
	}
	c := &Chooser{}
	c.Replay([]int{2, 0, 1})
	if got := []int{c.Choose(3), c.Choose(3), c.Choose(3), c.Choose(3)}; !slices.Equal(got, []int{2, 0, 1, 0}) {
		t.Errorf("replayed %v", got)
	}
}

func takeOne(p *Proc) error {
	f, err := p.Open("l", Create)
	if err != nil {
		return err
	}
	if err := f.Lock(LockExclusive); err != nil {
		return err
	}
	return f.Unlock()
}

func TestRunReadersSeePartOfAWrite(t *testing.T) {
	parts := map[int]bool{}
	for seed := range uint64(200) {
		d := NewDisk(seed)
		w, r := d.Process("w"), d.Process("r")
		d.Go(w, func() {
			f, err := w.Open("f", Create)
			if err == nil {
				_, err = f.WriteAt([]byte("hello"), 0)
			}
			if err != nil {
				t.Error(err)
			}
		})
		d.Go(r, func() {
			for range 5 {
				if f, err := r.Open("f", 0); err == nil {
					n, _ := f.ReadAt(make([]byte, 5), 0)
					parts[n] = true
				}
			}
		})
		must(t, d.Run())
	}
	for n := range 6 {
		if !parts[n] {
			t.Errorf("nobody ever saw %d bytes of the write", n)
		}
	}
}

func TestRunThreadsOfOneProcess(t *testing.T) {
	d := NewDisk(1)
	p := d.Process("a")
	ready := false
	var order []string
	d.Go(p, func() {
		if err := p.Await("the other thread", func() bool { return ready }); err != nil {
			t.Error(err)
		}
		order = append(order, "waiter")
	})
	d.Go(p, func() {
		for range 3 {
			if err := p.Yield(); err != nil {
				t.Error(err)
			}
		}
		ready = true
		order = append(order, "setter")
	})
	must(t, d.Run())
	if !slices.Equal(order, []string{"setter", "waiter"}) {
		t.Errorf("order %q", order)
	}
	d.Go(p, func() { _ = p.Await("nothing that comes", func() bool { return false }) })
	if err := d.Run(); err == nil || !strings.Contains(err.Error(), "a waits for nothing that comes") {
		t.Errorf("run: %v", err)
	}
}

func TestRunReportsWhatGoesWrong(t *testing.T) {
	d := NewDisk(1)
	a, b := d.Process("a"), d.Process("b")
	d.Go(a, func() { panic("oops") })
	d.Go(b, func() { count(t, b, 3, true) })
	if err := d.Run(); err == nil || !strings.Contains(err.Error(), "process a: panic: oops") {
		t.Errorf("panic: %v", err)
	}
	if n, _ := d.CacheBytes("n"); n[0] != 3 {
		t.Errorf("the other process did not end: %d", n[0])
	}

	d = NewDisk(1)
	d.MaxOps = 1000
	a = d.Process("a")
	d.Go(a, func() {
		for {
			if _, err := a.Free(); err != nil {
				return
			}
		}
	})
	if err := d.Run(); err == nil || !strings.Contains(err.Error(), "no end after 1000 operations") {
		t.Errorf("endless: %v", err)
	}

	d = NewDisk(1)
	a = d.Process("a")
	d.KillAt(Match{N: 3}, 0)
	d.Go(a, func() {
		for {
			_, _ = a.Free()
		}
	})
	if err := d.Run(); err == nil || !strings.Contains(err.Error(), "does not end after its death") {
		t.Errorf("undead: %v", err)
	}
}

func TestRunStartsProcessesOnTheWay(t *testing.T) {
	d := NewDisk(1)
	a := d.Process("a")
	d.KillAt(Match{Proc: "a", Kind: OpWrite}, 0)
	restarted := false
	d.OnOp(func(o Op) {
		if o.Err == ErrCrashed && !restarted {
			restarted = true
			b := d.Process("a")
			d.Go(b, func() { count(t, b, 1, true) })
		}
	})
	d.Go(a, func() {
		f, err := a.Open("n", Create)
		if err == nil {
			_, err = f.WriteAt([]byte{9}, 0)
		}
		if err != ErrCrashed {
			t.Error(err)
		}
	})
	must(t, d.Run())
	if n, _ := d.CacheBytes("n"); len(n) != 1 || n[0] != 1 {
		t.Errorf("content %v", n)
	}
}

// Simulated code that calls from a goroutine of its own, or a hook that calls as
// a process, would break the order of things: it is told at once.
func TestRunRefusesStrangers(t *testing.T) {
	d := NewDisk(1)
	a, b := d.Process("a"), d.Process("b")
	d.Go(a, func() { _, _ = b.Free() })
	if err := d.Run(); err == nil || !strings.Contains(err.Error(), "a call of process b while a runs") {
		t.Errorf("run: %v", err)
	}
}
