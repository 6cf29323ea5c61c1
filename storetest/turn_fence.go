package storetest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"hansard"
	"hansard/engine"
)

var turnFenceCases = []Case{
	{Name: "turn/fenced", run: turnFenced,
		Defends: "a write, a change of metadata, a deletion, a renewal and a release under any grant but the current one are refused and change nothing",
		Answers: "F3 8 9 20"},
	{Name: "turn/key before fence", run: turnKeyBeforeFence,
		Defends: "a retry of what was stored under a turn is answered even if the turn is lost; what was not stored is fenced", Answers: "20 36"},
	{Name: "turn/release once", run: turnReleaseOnce,
		Defends: "a release gives up one grant, once; a second one, or one after loss, is an error and touches nobody else", Answers: "F2 9"},
	{Name: "turn/released in a race", run: turnReleaseRace,
		Defends: "if many release one grant at once, one succeeds, and whoever got the turn meanwhile keeps it", Answers: "F2 9"},
	{Name: "turn/stolen", run: turnStolen,
		Defends: "a turn is taken from a living holder only on purpose, with the reason recorded, and the holder is fenced", Answers: "7 8"},
}

// besides are grants that look like g but are not.
func besides(g hansard.Grant) []hansard.Grant {
	number, nonce, _ := strings.Cut(string(g), "-")
	other := engine.NextGrant(g, 0)
	return []hansard.Grant{
		hansard.Grant(number + "-0123456789abcdef"), other, other[:len(other)-16] + hansard.Grant(nonce), g + " ", " " + g, "0" + g, g[:len(g)-1], g + "0",
		hansard.Grant(strings.ToUpper(string(g)) + "F"), hansard.Grant(number), hansard.Grant(nonce), "nonsense", "*",
	}
}

// wantFencedOff checks that nothing can be done under a grant that is not the
// current one, which is now.
func (x *env) wantFencedOff(when string, id hansard.SessionID, g hansard.Grant, now *hansard.Turn) {
	x.Helper()
	before := x.stat(id)
	title := "a title by a stale holder"
	inbox := under(g, "inbox")
	inbox.Events[0].Inbox = true
	both := under(g, "one", "two")
	both.Patch = &hansard.Patch{Title: &title}
	for what, b := range map[string]hansard.Batch{
		"an append":          under(g, "stale"),
		"a batch":            under(g, "stale", "staler"),
		"a patch":            {Turn: g, Patch: &hansard.Patch{Title: &title}},
		"events and a patch": both,
		"an inbox event":     inbox,
	} {
		_, err := x.store.Append(x.ctx, id, b)
		x.wantFenced(fmt.Sprintf("%s: %s under %q", when, what, g), err, now)
	}
	x.wantFenced(fmt.Sprintf("%s: Delete under %q", when, g), x.store.Delete(x.ctx, id, g), now)
	x.wantFenced(fmt.Sprintf("%s: Renew of %q", when, g), x.store.Renew(x.ctx, id, g), now)
	x.wantFenced(fmt.Sprintf("%s: Release of %q", when, g), x.store.Release(x.ctx, id, g), now)
	if diff := diffInfo(x.stat(id), before); diff != "" {
		x.Errorf("%s: what was fenced changed the session: %s", when, diff)
	}
	x.wantTurn(when, x.store, id, now)
}

func turnFenced(x *env) {
	x.create("s")
	x.append("s", texts("one"))
	for _, g := range besides("1-9f86d081884c7d65") {
		x.wantFencedOff("before there was a turn", "s", g, nil)
	}
	first := x.acquire(x.store, "s", hold("first"))
	for _, g := range besides(first.Grant) {
		x.wantFencedOff("while another is held", "s", g, &first)
	}
	x.release(x.store, "s", first.Grant)
	x.wantFencedOff("after its release", "s", first.Grant, nil)
	second := x.acquire(x.store, "s", hold("second"))
	x.wantFencedOff("when another has it", "s", first.Grant, &second)
	third := hold("third")
	third.Steal, third.Exclusive = "to see", true
	last := x.acquire(x.store, "s", third)
	for _, old := range []hansard.Turn{first, second} {
		x.wantFencedOff("when it was stolen", "s", old.Grant, &last)
	}
	x.append("s", under(last.Grant, "two"))
	x.release(x.store, "s", last.Grant)
	for range 2 {
		for _, old := range []hansard.Turn{first, second, last} {
			x.wantFencedOff("at last", "s", old.Grant, nil)
		}
		x.reopen()
	}
}

func turnKeyBeforeFence(x *env) {
	x.create("s")
	turn := x.acquire(x.store, "s", hold("first"))
	b := keyed("k", "one", "two")
	b.Turn = turn.Grant
	first := x.append("s", b)
	first.Replayed = true
	check := func(when string, now *hansard.Turn) {
		x.Helper()
		if r := x.append("s", b); !sameReceipt(r, first) {
			x.Errorf("%s: the retry got %+v, want %+v", when, r, first)
		}
		fresh := keyed("new", "three")
		fresh.Turn = turn.Grant
		_, err := x.store.Append(x.ctx, "s", fresh)
		x.wantFenced(when, err, now)
		other := keyed("k", "other")
		other.Turn = turn.Grant
		x.refused(hansard.ErrKeyReused, "s", other)
	}
	if r := x.append("s", b); !sameReceipt(r, first) {
		x.Errorf("while it is held: the retry got %+v, want %+v", r, first)
	}
	x.release(x.store, "s", turn.Grant)
	check("after the release", nil)
	c := hold("second")
	c.Exclusive = true
	second := x.acquire(x.store, "s", c)
	check("when another holds it", &second)
	plain := b
	plain.Turn = ""
	if r := x.append("s", plain); !sameReceipt(r, first) {
		x.Errorf("a retry without the grant, past an exclusive turn: %+v, want %+v", r, first)
	}
	x.release(x.store, "s", second.Grant)
	// A fenced batch does not use up its key.
	if r := x.append("s", keyed("new", "other content")); r.Replayed {
		x.Errorf("a key of a batch that was fenced: %+v", r)
	}
}

func turnReleaseOnce(x *env) {
	handles := x.handles(2)
	x.create("s")
	first := x.acquire(handles[1], "s", hold("first"))
	x.release(x.store, "s", first.Grant) // anyone with the grant may
	for range 2 {
		x.wantFenced("a second release", x.store.Release(x.ctx, "s", first.Grant), nil)
	}
	second := x.acquire(x.store, "s", hold("second"))
	for _, s := range handles {
		x.wantFenced("a release when another has the turn", s.Release(x.ctx, "s", first.Grant), &second)
	}
	x.wantTurn("after stale releases", x.store, "s", &second)
	x.append("s", under(second.Grant, "mine"))
	x.release(x.store, "s", second.Grant)
	if n := x.stat("s").LastSeq; n != 5 {
		x.Errorf("two grants, two releases and a message are %d events", n)
	}
}

func turnReleaseRace(x *env) {
	handles := x.handles(3)
	x.create("s")
	for round := range 15 {
		turn := x.acquire(x.store, "s", hold("holder"))
		next := x.start("the next", func() error {
			got, err := x.store.Acquire(x.ctx, "s", waiting(hold("next")))
			if err != nil {
				return err
			}
			for range 5 {
				if _, err := x.store.Append(x.ctx, "s", under(got.Grant, "mine")); err != nil {
					return fmt.Errorf("under the next grant: %w", err)
				}
			}
			return x.store.Release(x.ctx, "s", got.Grant)
		})
		letOthersRun()
		var released atomic.Int32
		x.each(6, "release", func(i int) error {
			for done := false; !done; { // again and again while the next claim is under way
				select {
				case <-next.done:
					done = true
				default:
				}
				err := handles[i%len(handles)].Release(x.ctx, "s", turn.Grant)
				if err == nil {
					released.Add(1)
				} else if err := unless(err, hansard.ErrFenced); err != nil {
					return err
				}
			}
			return nil
		})
		if n := released.Load(); n != 1 {
			x.Fatalf("round %d: %d released the one grant", round, n)
		}
		next.finish()
	}
}

func turnStolen(x *env) {
	handles := x.handles(2)
	x.create("s")
	claim := hold("victim")
	claim.Exclusive = true
	before := x.acquire(x.store, "s", claim)
	reason := "it is stuck \u2028 \"quoted\"\n"
	for i := range 3 {
		c := hold(fmt.Sprint("thief ", i))
		c.Exclusive, c.Steal, c.Wait = i%2 == 0, reason, time.Duration(i)*time.Hour
		turn := x.acquire(handles[i%2], "s", c)
		if turn.Reason != reason || turn.Grant.Number() != before.Grant.Number()+1 || turn.Exclusive != c.Exclusive {
			x.Errorf("the stolen turn is %+v after %s", turn, before.Grant)
		}
		e, r := x.record("s", turn.Seq)
		if e.Turn != turn.Grant || r.Change != hansard.TurnStolen || r.From != before.Grant || r.Why != hansard.TurnStolen || r.Reason != reason {
			x.Errorf("the record of the theft is %+v under %s", r, e.Turn)
		}
		x.wantFencedOff("after the theft", "s", before.Grant, &turn)
		x.append("s", under(turn.Grant, "the thief's"))
		before = turn
	}
	x.reopen()
	if _, r := x.record("s", before.Seq); r.Reason != reason {
		x.Errorf("after opening again the reason on record is %q", r.Reason)
	}
}
