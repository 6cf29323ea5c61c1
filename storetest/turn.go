package storetest

import (
	"fmt"
	"strings"
	"time"

	"hansard"
)

var turnCases = []Case{
	{Name: "turn/granted", run: turnGranted,
		Defends: "a free turn is granted at once, is recorded before the answer, and is free again when it is released", Answers: "3"},
	{Name: "turn/held", run: turnHeld,
		Defends: "a held turn is refused with the name of the holder, to everybody including the holder: there is no re-entrancy",
		Answers: "F3 11 13"},
	{Name: "turn/numbers", run: turnNumbers,
		Defends: "grants of a session are numbered 1, 2, 3, …, across handles and opening again, and no grant is ever issued twice", Answers: "F3 5 9"},
	{Name: "turn/record", run: turnRecord,
		Defends: "only the store writes the record of the turn, and everybody reads, follows and counts it like other events"},
	{Name: "turn/on events", run: turnOnEvents,
		Defends: "every event carries the grant it was written under, or none if it was written without one", Answers: "20"},
	{Name: "turn/claims", run: turnClaims,
		Defends: "a claim that no store accepts is refused and leaves nothing behind"},
	{Name: "turn/shown", run: turnShown,
		Defends: "Stat, List and Turn show a held turn and its holder, through every handle, and a free one as free", Answers: "50"},
	{Name: "turn/sessions apart", run: turnSessionsApart,
		Defends: "the turns of two sessions are independent"},
	{Name: "turn/remote", run: turnRemote,
		Defends: "the turn of a remote holder does not end with the store it was acquired through: the holder continues through another", Answers: "4 7"},
	{Name: "turn/deleted", run: turnDeleted,
		Defends: "the holder may delete its session under its grant; the turn ends with it", Answers: "32"},
}

func turnGranted(x *env) {
	x.create("s")
	x.append("s", texts("before"))
	x.wantTurn("at first", x.store, "s", nil)
	for i, c := range []hansard.Claim{
		{},
		{TTL: time.Minute, MaxHold: time.Hour, Exclusive: true, Label: "ann's \u2028 agent"},
		{Wait: time.Hour, TTL: 1500 * time.Millisecond, Label: "waits"},
		{Steal: "from nobody", Label: "would steal"},
	} {
		last := x.stat("s").LastSeq
		turn := x.acquire(x.store, "s", c)
		e, r := x.record("s", last+1)
		ttl := c.TTL
		if ttl == 0 {
			ttl = hansard.DefaultTTL
		}
		want := hansard.Turn{Grant: e.Turn, Holder: turn.Holder, Seq: e.Seq, Since: e.Time, TTL: ttl, MaxHold: c.MaxHold, Exclusive: c.Exclusive,
			Remote: turn.Remote, By: x.by("")} // as for every turn acquired through a server
		if diff := diffTurn(turn, want); diff != "" {
			x.Errorf("claim %d: %s", i, diff)
		}
		if turn.Grant.Number() != uint64(i+1) || turn.Holder.Label != c.Label {
			x.Errorf("claim %d of %q is grant %s of %q", i, c.Label, turn.Grant, turn.Holder.Label)
		}
		r.Instance = ""
		if want := (hansard.TurnRecord{Change: hansard.TurnGranted, Holder: turn.Holder, TTL: ttl.Milliseconds(), MaxHold: c.MaxHold.Milliseconds(),
			Exclusive: c.Exclusive, Remote: turn.Remote, By: x.by("")}); r != want {
			x.Errorf("claim %d: the record is %+v, want %+v", i, r, want)
		}
		x.wantTurn("when it is held", x.store, "s", &turn)
		x.release(x.store, "s", turn.Grant)
		if e, r := x.record("s", last+2); e.Turn != turn.Grant || r.Change != hansard.TurnReleased {
			x.Errorf("claim %d: the record of the release is %+v under %s", i, r, e.Turn)
		}
		x.wantTurn("when it is released", x.store, "s", nil)
		if n := x.stat("s").LastSeq; n != last+2 {
			x.Errorf("claim %d: a grant and a release made %d events, want 2", i, n-last)
		}
	}
}

func turnHeld(x *env) {
	handles := x.handles(2)
	x.create("s")
	claim := hold("the same agent")
	claim.MaxHold = 2 * time.Hour
	turn := x.acquire(x.store, "s", claim)
	for i, s := range handles {
		for _, c := range []hansard.Claim{claim, hold("another"), {}, {Wait: 5 * time.Millisecond, Exclusive: true}} {
			got, err := s.Acquire(x.ctx, "s", c)
			x.wantHeld(fmt.Sprintf("handle %d: Acquire(%+v) = %s", i, c, got.Grant), err, turn)
		}
	}
	if n := x.stat("s").LastSeq; n != turn.Seq {
		x.Errorf("claims that were refused made %d events", n-turn.Seq)
	}
	x.append("s", under(turn.Grant, "still mine"))
	x.release(x.store, "s", turn.Grant)
}

func turnNumbers(x *env) {
	handles := x.handles(2)
	sessions := []hansard.SessionID{"a", "b", "c"}
	given := make(map[hansard.Grant]hansard.SessionID)
	nonces := make(map[string]bool)
	for _, id := range sessions {
		x.create(id)
	}
	for n := range uint64(12) {
		if n%4 == 3 {
			x.reopen()
			handles[0] = x.store
		}
		for _, id := range sessions {
			s := handles[x.rng.IntN(len(handles))]
			// Every second one is not released: the engine decides whether the
			// holder counts as gone when its handle is closed.
			c := hold("next")
			c.Steal = "it is another's"
			turn := x.acquire(s, id, c)
			if turn.Grant.Number() != n+1 {
				x.Fatalf("session %s: grant %d is %q", id, n+1, turn.Grant)
			}
			if first, twice := given[turn.Grant]; twice {
				x.Fatalf("grant %s of session %s was given before, in %s", turn.Grant, id, first)
			}
			given[turn.Grant] = id
			_, nonce, _ := strings.Cut(string(turn.Grant), "-")
			nonces[nonce] = true
			if n%2 == 0 {
				x.release(s, id, turn.Grant)
			}
		}
	}
	if len(nonces) != len(given) {
		x.Errorf("%d grants have %d nonces", len(given), len(nonces))
	}
}

func turnRecord(x *env) {
	x.create("s")
	forged := (&hansard.TurnRecord{Change: hansard.TurnGranted, Holder: hansard.Holder{Label: "forged"}, TTL: 1000}).Event()
	x.refused(hansard.ErrInvalid, "s", hansard.Batch{Events: []hansard.Event{forged}})
	turn := x.acquire(x.store, "s", hold("real"))
	for _, g := range []hansard.Grant{"", turn.Grant} {
		x.refused(hansard.ErrInvalid, "s", hansard.Batch{Events: []hansard.Event{text("and"), forged}, Turn: g})
	}
	// A grant is an event: it counts for expected seqs, and wakes waiters.
	early := under(turn.Grant, "early")
	early.Expect = hansard.At(turn.Seq - 1)
	x.refused(hansard.ErrConflict, "s", early)
	early.Expect = hansard.At(turn.Seq)
	x.append("s", early)
	waiter := x.start("Wait for a release", func() error { return x.store.Wait(x.ctx, "s", turn.Seq+1) })
	letOthersRun()
	x.release(x.store, "s", turn.Grant)
	waiter.finish()
	waiter = x.start("Wait for a grant", func() error { return x.store.Wait(x.ctx, "s", turn.Seq+2) })
	letOthersRun()
	again := x.acquire(x.store, "s", hold("real"))
	waiter.finish()
	x.release(x.store, "s", again.Grant)
	if got := seqs(x.read("s", hansard.Range{Kinds: []string{hansard.KindTurn}})); fmt.Sprint(got) != "[1 3 4 5]" {
		x.Errorf("the records of the turn are at %d, want 1, 3, 4 and 5", got)
	}
	if got := seqs(x.all("s")); len(got) != 5 {
		x.Errorf("the log is %d", got)
	}
}

func turnOnEvents(x *env) {
	handles := x.handles(2)
	x.create("s")
	x.append("s", texts("free"))
	want := []hansard.Grant{""}
	for i := range 3 {
		turn := x.acquire(x.store, "s", hold("writer"))
		want = append(want, turn.Grant)
		for _, s := range handles { // a grant is valid through every handle
			if _, err := s.Append(x.ctx, "s", under(turn.Grant, "one", "two")); err != nil {
				x.Fatal(err)
			}
			if _, err := s.Append(x.ctx, "s", hansard.Batch{Turn: turn.Grant, Patch: &hansard.Patch{Title: ptr("t")}}); err != nil {
				x.Fatal(err)
			}
			want = append(want, turn.Grant, turn.Grant, turn.Grant)
		}
		x.append("s", texts("from outside"))
		inbox := under(turn.Grant, "for myself")
		inbox.Events[0].Inbox = true
		inbox.Key = fmt.Sprint(i)
		x.append("s", inbox)
		x.release(x.store, "s", turn.Grant)
		x.append("s", texts("free"))
		want = append(want, "", turn.Grant, turn.Grant, "")
	}
	for range 2 {
		got := x.all("s")
		if len(got) != len(want) {
			x.Fatalf("%d events, want %d", len(got), len(want))
		}
		for i, e := range got {
			if e.Turn != want[i] {
				x.Errorf("event %d (%s) was written under %q, want %q", e.Seq, e.Kind, e.Turn, want[i])
			}
		}
		x.reopen()
	}
}

func turnClaims(x *env) {
	x.create("s")
	for what, c := range map[string]hansard.Claim{
		"a negative wait":      {Wait: -1},
		"a negative TTL":       {TTL: -time.Second},
		"a short TTL":          {TTL: hansard.MinTTL - 1},
		"a long TTL":           {TTL: hansard.MaxTTL + 1},
		"a negative MaxHold":   {MaxHold: -1},
		"a short MaxHold":      {MaxHold: 1},
		"a long label":         {Label: strings.Repeat("x", hansard.MaxNameBytes+1)},
		"a label with a NUL":   {Label: "a\x00"},
		"a label not in UTF-8": {Label: "\xff"},
		"a long reason":        {Steal: strings.Repeat("x", hansard.MaxTitleBytes+1)},
		"a reason with a NUL":  {Steal: "a\x00"},
	} {
		_, err := x.store.Acquire(x.ctx, "s", c)
		x.wantErr("a claim with "+what, err, hansard.ErrInvalid)
		if strings.Contains(what, "long label") || strings.Contains(what, "long reason") {
			x.wantErr("a claim with "+what, err, hansard.ErrTooLarge)
		}
	}
	for _, g := range []hansard.Grant{"", "\xff", "a\x00", hansard.Grant(strings.Repeat("7", hansard.MaxNameBytes+1))} {
		x.wantErr(fmt.Sprintf("Renew(%.20q)", g), x.store.Renew(x.ctx, "s", g), hansard.ErrInvalid)
		x.wantErr(fmt.Sprintf("Release(%.20q)", g), x.store.Release(x.ctx, "s", g), hansard.ErrInvalid)
	}
	x.wantTurn("after bad claims", x.store, "s", nil)
	x.wantTexts("s")
	for _, label := range hardTexts {
		c := hold(label)
		c.TTL, c.MaxHold = hansard.MaxTTL, 365*hansard.MaxTTL
		turn := x.acquire(x.store, "s", c)
		if turn.Holder.Label != label {
			x.Errorf("label %q became %q", label, turn.Holder.Label)
		}
		x.wantTurn("with a hard label", x.store, "s", &turn)
		x.release(x.store, "s", turn.Grant)
	}
	// As long as is allowed, and longer still when encoded.
	longest := hold(strings.Repeat("\x01", hansard.MaxNameBytes))
	longest.Steal = strings.Repeat("\x02", hansard.MaxTitleBytes)
	for range 3 {
		turn := x.acquire(x.store, "s", longest)
		x.wantTurn("with the longest label", x.store, "s", &turn)
		if err := x.store.Renew(x.ctx, "s", turn.Grant); err != nil {
			x.Errorf("Renew: %v", err)
		}
		longest.Exclusive = !longest.Exclusive
	}
}

func turnShown(x *env) {
	handles := x.handles(3)
	for _, id := range []hansard.SessionID{"held", "free", "kept"} {
		x.create(id)
	}
	check := func(when string, want map[hansard.SessionID]*hansard.Turn) {
		x.Helper()
		for i, s := range handles {
			infos, err := listAll(x.ctx, s, hansard.Query{})
			if err != nil {
				x.Fatal(err)
			}
			for _, info := range infos {
				stat, err := s.Stat(x.ctx, info.ID)
				if err != nil {
					x.Fatal(err)
				}
				turn := want[info.ID]
				for how, got := range map[string]*hansard.Turn{"List": info.Turn, "Stat": stat.Turn} {
					if (got == nil) != (turn == nil) || got != nil && diffTurn(*got, *turn) != "" {
						x.Errorf("%s, handle %d: %s shows the turn of %q as %+v, want %+v", when, i, how, info.ID, got, turn)
					}
				}
				x.wantTurn(when, s, info.ID, turn)
			}
		}
	}
	check("at first", nil)
	c := hold("ann")
	c.Exclusive, c.MaxHold = true, time.Hour
	held, kept := x.acquire(x.store, "held", c), x.acquire(handles[1], "kept", hold("bob"))
	check("when they are held", map[hansard.SessionID]*hansard.Turn{"held": &held, "kept": &kept})
	x.append("held", under(held.Grant, "one"))
	x.append("kept", texts("two"))
	for range 3 {
		if err := handles[2].Renew(x.ctx, "held", held.Grant); err != nil {
			x.Errorf("Renew: %v", err)
		}
	}
	check("after some use", map[hansard.SessionID]*hansard.Turn{"held": &held, "kept": &kept})
	c.Steal, c.Label = "why not", "cid"
	stolen := x.acquire(handles[2], "held", c)
	check("when one was stolen", map[hansard.SessionID]*hansard.Turn{"held": &stolen, "kept": &kept})
	if stolen.Reason != c.Steal || stolen.Holder.Label != "cid" {
		x.Errorf("the stolen turn is %+v", stolen)
	}
	x.release(handles[1], "held", stolen.Grant)
	check("when one is released", map[hansard.SessionID]*hansard.Turn{"kept": &kept})
	x.release(x.store, "kept", kept.Grant)
	check("at last", nil)
}

func turnSessionsApart(x *env) {
	x.create("a")
	x.create("b")
	a, b := x.acquire(x.store, "a", hold("a")), x.acquire(x.store, "b", hold("b"))
	x.refused(hansard.ErrFenced, "b", under(a.Grant, "astray"))
	x.wantFenced("Renew of another session's grant", x.store.Renew(x.ctx, "b", a.Grant), &b)
	x.wantFenced("Release of another session's grant", x.store.Release(x.ctx, "b", a.Grant), &b)
	x.wantFenced("Delete under another session's grant", x.store.Delete(x.ctx, "b", a.Grant), &b)
	x.release(x.store, "a", a.Grant)
	x.wantTurn("after the other's release", x.store, "b", &b)
	x.append("b", under(b.Grant, "mine"))
	x.release(x.store, "b", b.Grant)
}

func turnDeleted(x *env) {
	for i, exclusive := range []bool{false, true} {
		id := hansard.SessionID(fmt.Sprint("s", i))
		x.create(id)
		c := hold("holder")
		c.Exclusive = exclusive
		turn := x.acquire(x.store, id, c)
		if err := x.store.Delete(x.ctx, id, turn.Grant); err != nil {
			x.Fatalf("Delete under the grant: %v", err)
		}
		x.wantErr("Renew", x.store.Renew(x.ctx, id, turn.Grant), hansard.ErrDeleted)
		x.wantErr("Release", x.store.Release(x.ctx, id, turn.Grant), hansard.ErrDeleted)
		x.refused(hansard.ErrDeleted, id, under(turn.Grant, "late"))
		x.wantGone(id)
		x.reopen()
		x.wantGone(id)
	}
	// Without a grant anybody may delete a session whose turn is not exclusive.
	x.create("open")
	x.acquire(x.store, "open", hold("holder"))
	x.delete("open")
	x.wantGone("open")
}

func turnRemote(x *env) {
	x.create("s")
	c := hold("far away")
	c.Remote = true
	turn := x.acquire(x.store, "s", c)
	if !turn.Remote {
		x.Errorf("a remote holder was granted %+v", turn)
	}
	for range 3 {
		x.reopen()
		x.wantTurn("after the store was closed", x.store, "s", &turn)
		_, err := x.store.Acquire(x.ctx, "s", hold("another"))
		x.wantHeld("Acquire after the store was closed", err, turn)
		if err := x.store.Renew(x.ctx, "s", turn.Grant); err != nil {
			x.Errorf("Renew through another store: %v", err)
		}
		x.append("s", under(turn.Grant, "I go on"))
	}
	x.release(x.store, "s", turn.Grant)
	x.wantTurn("after the release", x.store, "s", nil)
}
