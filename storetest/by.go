package storetest

import (
	"cmp"
	"strings"

	"hansard"
)

var byCases = []Case{
	{Name: "by/appends", run: byAppends,
		Defends: "an event says who wrote it as the server knows it, and nothing where there is none"},
	{Name: "by/turns", run: byTurns,
		Defends: "a turn, and every record of it, says who it was granted to as the server knows it"},
}

// by is the writer's name as the store records it, for a call in which the
// suite gave name.
func (x *env) by(name string) string { return cmp.Or(x.engine.By, name) }

func byAppends(x *env) {
	x.create("s")
	title := "t"
	var want []string
	say := func(name string, n int, b hansard.Batch) hansard.Receipt {
		x.Helper()
		b.By = name
		r := x.append("s", b)
		for range n {
			want = append(want, x.by(name))
		}
		return r
	}
	say("ann", 2, texts("1", "2"))
	say("", 1, texts("3"))
	say("bob", 1, hansard.Batch{Patch: &hansard.Patch{Title: &title}})
	for _, name := range hardTexts {
		if name != "" {
			say(name, 1, texts("x"))
		}
	}
	// By is not content: a retry under another name is still a retry.
	keyed := texts("keyed")
	keyed.Key = "k"
	first := say("ann", 1, keyed)
	if again := say("bob", 0, keyed); !again.Replayed || again.First != first.First {
		x.Errorf("a retry by another is answered %+v, want %+v", again, first)
	}
	made := texts("made")
	made.Create, made.By = true, "cat"
	x.append("new", made)
	long := texts("x")
	if long.By = strings.Repeat("b", hansard.MaxNameBytes); x.engine.By == "" {
		say(long.By, 1, long)
		long.By += "b"
		x.refused(hansard.ErrTooLarge, "s", long)
		long.By = "a\x00"
		x.refused(hansard.ErrInvalid, "s", long)
	}
	for _, when := range []string{"when it was written", "when it was opened again"} {
		for i, e := range x.all("s") {
			if i < len(want) && e.By != want[i] {
				x.Errorf("%s event %d is by %q, want %q", when, e.Seq, e.By, want[i])
			}
		}
		if n := len(x.all("s")); n != len(want) {
			x.Errorf("%d events, want %d", n, len(want))
		}
		if e := x.all("new"); len(e) != 1 || e[0].By != x.by("cat") {
			x.Errorf("%s the event that made a session is %+v", when, e)
		}
		x.reopen()
	}
}

func byTurns(x *env) {
	x.create("s")
	claim := hold("planner")
	claim.By = "ann"
	turn := x.acquire(x.store, "s", claim)
	if turn.By != x.by("ann") {
		x.Errorf("the turn was granted to %q, want %q", turn.By, x.by("ann"))
	}
	other := x.handles(2)[1]
	x.wantTurn("granted", other, "s", &turn)
	if info := x.stat("s"); info.Turn == nil || info.Turn.By != turn.By {
		x.Errorf("Stat says that the turn is %+v", info.Turn)
	}
	_, err := other.Acquire(x.ctx, "s", hold("second"))
	x.wantHeld("a second claim", err, turn)
	// Kept alive through another handle, the turn still belongs to the same
	// holder.
	if err := other.Renew(x.ctx, "s", turn.Grant); err != nil {
		x.Fatal(err)
	}
	x.wantTurn("renewed elsewhere", x.store, "s", &turn)
	x.release(other, "s", turn.Grant)
	// The next writer ends an exclusive turn whose holder is gone.
	gone := brief("gone")
	gone.By, gone.Exclusive = "bob", true
	x.acquire(x.store, "s", gone)
	b := texts("x")
	b.By = "cat"
	x.start("Append after a silent holder", func() error {
		for {
			_, err := x.store.Append(x.ctx, "s", b)
			if err == nil {
				return nil
			}
			if err := unless(err, hansard.ErrHeld); err != nil {
				return err
			}
			if err := pause(x.ctx); err != nil {
				return err
			}
		}
	}).finish()
	for _, e := range x.all("s") {
		want := x.by("cat")
		if r, err := recordOf(e); err == nil {
			switch r.Change {
			case hansard.TurnReleased, hansard.TurnMoved:
				want = x.by("ann")
			case hansard.TurnGranted:
				want = map[string]string{"planner": x.by("ann"), "gone": x.by("bob")}[r.Holder.Label]
			}
		}
		if e.By != want {
			x.Errorf("event %d, a %s %s, is by %q, want %q", e.Seq, e.Kind, e.Data, e.By, want)
		}
	}
}
