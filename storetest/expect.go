package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"hansard"
)

var expectCases = []Case{
	{Name: "expect/holds", run: expectHolds,
		Defends: "an append that expects the actual last seq is stored"},
	{Name: "expect/conflict", run: expectConflict,
		Defends: "an append that expects a different last seq is refused with the actual one, and stores nothing", Answers: "31 41"},
	{Name: "expect/new session", run: expectNewSession,
		Defends: "a session that does not exist yet has the last seq 0"},
	{Name: "expect/race", run: expectRace,
		Defends: "if many appends expect the same last seq at once, exactly one is stored", Answers: "F5 41"},
}

func expectHolds(x *env) {
	x.create("s")
	for i := range 5 {
		b := texts(fmt.Sprint(2*i), fmt.Sprint(2*i+1))
		b.Expect = hansard.At(hansard.Seq(2 * i))
		if r := x.append("s", b); r.First != hansard.Seq(2*i+1) {
			x.Errorf("seq %d, want %d", r.First, 2*i+1)
		}
	}
	x.wantTexts("s", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
}

func expectConflict(x *env) {
	x.create("s")
	x.append("s", texts("one", "two", "three"))
	before := x.stat("s")
	for _, at := range []hansard.Seq{0, 1, 2, 4, 1 << 40, ^hansard.Seq(0)} {
		b := texts("four", "five")
		b.Expect = hansard.At(at)
		b.Patch = &hansard.Patch{Title: ptr("changed")}
		err := x.refused(hansard.ErrConflict, "s", b)
		var conflict *hansard.ConflictError
		if !errors.As(err, &conflict) || *conflict != (hansard.ConflictError{Session: "s", Expected: at, Actual: 3}) {
			x.Errorf("expecting %d: %#v, want the actual last seq 3", at, err)
		}
	}
	x.wantTexts("s", "one", "two", "three")
	if diff := diffInfo(x.stat("s"), before); diff != "" {
		x.Errorf("after conflicts: %s", diff)
	}
}

func expectNewSession(x *env) {
	b := texts("one")
	b.Expect = hansard.At(0)
	x.refused(hansard.ErrNotFound, "s", b)
	b.Create, b.Expect = true, hansard.At(3)
	var conflict *hansard.ConflictError
	if err := x.refused(hansard.ErrConflict, "s", b); !errors.As(err, &conflict) || conflict.Actual != 0 || conflict.Expected != 3 {
		x.Errorf("%#v, want an actual last seq of 0", err)
	}
	b.Expect = hansard.At(0)
	x.append("s", b)
	x.refused(hansard.ErrConflict, "s", b)
	x.wantTexts("s", "one")
}

func expectRace(x *env) {
	handles := x.handles(4)
	x.create("s")
	const rounds, writers = 25, 8
	var mu sync.Mutex // guards winners
	winners := make(map[hansard.Seq][]string)
	x.each(writers, "writer", func(i int) error {
		s := handles[i%len(handles)]
		for n := hansard.Seq(0); n < rounds; {
			me := fmt.Sprint(i)
			b := texts(me)
			b.Expect = hansard.At(n)
			r, err := s.Append(x.ctx, "s", b)
			var conflict *hansard.ConflictError
			switch {
			case errors.As(err, &conflict):
				if conflict.Actual <= n {
					return fmt.Errorf("expected %d, conflict with %d", n, conflict.Actual)
				}
				n = conflict.Actual // what it says must already be true
			case err != nil:
				return err
			case r.First != n+1:
				return fmt.Errorf("expected %d, stored at %d", n, r.First)
			default:
				mu.Lock()
				winners[r.First] = append(winners[r.First], me)
				mu.Unlock()
				n = r.Last
			}
		}
		return nil
	})
	log := x.all("s")
	for _, e := range log {
		if got := winners[e.Seq]; len(got) != 1 || string(e.Data) != `"`+got[0]+`"` {
			x.Errorf("seq %d is %s, acknowledged to %q", e.Seq, e.Data, got)
		}
	}
	if len(log) < rounds || len(log) != len(winners) {
		x.Errorf("%d events, %d acknowledged, want at least %d", len(log), len(winners), rounds)
	}
	if !slices.IsSortedFunc(log, func(a, b hansard.Event) int { return int(a.Seq) - int(b.Seq) }) {
		x.Error("the log is not in order")
	}
}
