package storetest

import (
	"errors"
	"fmt"
	"time"

	"hansard"
)

var inboxCases = []Case{
	{Name: "exclusive/refuses", run: exclusiveRefuses,
		Defends: "while a turn is exclusive, appends, changes of metadata and deletions without its grant are refused with the holder's name, and nothing is stored",
		Answers: "13"},
	{Name: "exclusive/inbox", run: exclusiveInbox,
		Defends: "events for the inbox are accepted whatever turn is held, in order, and are marked for the holder to take up", Answers: "10"},
	{Name: "exclusive/inbox crowd", run: exclusiveInboxCrowd,
		Defends: "many writers to the inbox of an exclusive turn, while its holder writes too, lose nothing and wait for nobody", Answers: "10 12"},
	{Name: "exclusive/holder", run: exclusiveHolder,
		Defends: "the holder of an exclusive turn writes, patches and deletes as usual"},
	{Name: "exclusive/ends", run: exclusiveEnds,
		Defends: "when an exclusive turn is over, everybody can write again"},
	{Name: "exclusive/silent holder", run: exclusiveSilent,
		Defends: "an exclusive turn refuses nobody once its holder was silent for its TTL: the first write ends it, which is recorded, and its holder is fenced from then on", Answers: "10 20"},
}

func exclusive(label string) hansard.Claim {
	c := hold(label)
	c.Exclusive = true
	return c
}

// inboxed marks the events of a batch for the inbox.
func inboxed(b hansard.Batch) hansard.Batch {
	for i := range b.Events {
		b.Events[i].Inbox = true
	}
	return b
}

func exclusiveRefuses(x *env) {
	handles := x.handles(2)
	x.create("s")
	stored := x.append("s", keyed("stored", "before"))
	turn := x.acquire(x.store, "s", exclusive("alone"))
	before := x.stat("s")

	title := "not yours"
	mixed := texts("one", "two")
	mixed.Events[0].Inbox = true
	patched := inboxed(texts("one"))
	patched.Patch = &hansard.Patch{Title: &title}
	creating := texts("x")
	creating.Create = true
	expecting := texts("x")
	expecting.Expect = hansard.At(before.LastSeq)
	wrong := texts("x")
	wrong.Expect = hansard.At(99)
	for i, s := range handles {
		for what, b := range map[string]hansard.Batch{
			"an append":                        texts("x"),
			"an append with a key":             keyed("k", "x"),
			"a patch":                          {Patch: &hansard.Patch{Title: &title}},
			"an empty patch":                   {Patch: &hansard.Patch{}},
			"a batch of which half is inbox":   mixed,
			"inbox with a patch":               patched,
			"an append that would create":      creating,
			"an append that expects the truth": expecting,
			"an append that expects otherwise": wrong,
		} {
			_, err := s.Append(x.ctx, "s", b)
			x.wantHeld(fmt.Sprintf("handle %d: %s", i, what), err, turn)
		}
		x.wantHeld(fmt.Sprintf("handle %d: Delete", i), s.Delete(x.ctx, "s", ""), turn)
	}
	if diff := diffInfo(x.stat("s"), before); diff != "" {
		x.Errorf("what was refused changed the session: %s", diff)
	}
	stored.Replayed = true
	if r := x.append("s", keyed("stored", "before")); !sameReceipt(r, stored) {
		x.Errorf("a retry of what was stored before: %+v, want %+v", r, stored)
	}
	x.release(x.store, "s", turn.Grant)
	if r := x.append("s", keyed("k", "other content")); r.Replayed {
		x.Errorf("the key of an append that was refused was remembered: %+v", r)
	}
}

func exclusiveInbox(x *env) {
	handles := x.handles(2)
	x.create("s")
	last := hansard.Seq(0)
	for i, c := range []hansard.Claim{{}, hold("open"), exclusive("alone")} {
		var turn hansard.Turn
		if i > 0 {
			turn = x.acquire(x.store, "s", c)
			last = turn.Seq
		}
		for n, s := range handles {
			b := inboxed(texts("one", "two"))
			b.Key, b.Expect = fmt.Sprint("inbox ", i, n), hansard.At(last)
			r, err := s.Append(x.ctx, "s", b)
			if err != nil || r.First != last+1 || r.Last != last+2 {
				x.Fatalf("claim %d: an append to the inbox: %+v, %v; want it at %d", i, r, err, last+1)
			}
			if r, err := s.Append(x.ctx, "s", b); err != nil || !r.Replayed {
				x.Errorf("claim %d: its retry: %+v, %v", i, r, err)
			}
			last = r.Last
			if i > 0 { // the holder writes in between
				last = x.append("s", under(turn.Grant, "seen")).Last
			}
		}
		for _, e := range x.read("s", hansard.Range{After: turn.Seq, Kinds: []string{hansard.KindMessage}}) {
			mine, grant := string(e.Data) == `"seen"`, hansard.Grant("")
			if mine {
				grant = turn.Grant
			}
			if e.Inbox == mine || e.Turn != grant {
				x.Errorf("claim %d: event %d is %s, inbox %v, under %q", i, e.Seq, e.Data, e.Inbox, e.Turn)
			}
		}
		if i > 0 {
			x.release(x.store, "s", turn.Grant)
		}
	}
}

func exclusiveInboxCrowd(x *env) {
	handles := x.handles(4)
	x.create("s")
	turn := x.acquire(x.store, "s", exclusive("alone"))
	const writers, each = 8, 25
	acks := make([][]Ack, writers+1)
	x.each(writers+1, "writer", func(i int) error {
		for n := range each {
			name := fmt.Sprint("w", i)
			b := hansard.Batch{Events: Marked(name, n, 1+n%3, 10)}
			if i == writers {
				b.Turn = turn.Grant
			} else {
				b = inboxed(b)
			}
			r, err := handles[i%len(handles)].Append(x.ctx, "s", b)
			if err != nil {
				return err
			}
			acks[i] = append(acks[i], Ack{name, n, r})
		}
		return nil
	})
	x.release(x.store, "s", turn.Grant)
	var all []Ack
	for _, list := range acks {
		all = append(all, list...)
	}
	log := x.all("s")
	if err := CheckLog(log, all); err != nil {
		x.Error(err)
	}
	for _, e := range log {
		if e.Inbox == (e.Turn != "") {
			x.Errorf("event %d: inbox %v, under %q", e.Seq, e.Inbox, e.Turn)
		}
	}
}

func exclusiveHolder(x *env) {
	handles := x.handles(2)
	x.create("s")
	turn := x.acquire(x.store, "s", exclusive("alone"))
	for i, s := range handles {
		b := under(turn.Grant, "one", "two")
		b.Patch = &hansard.Patch{Title: ptr(fmt.Sprint("title ", i))}
		b.Expect = hansard.At(x.stat("s").LastSeq)
		if _, err := s.Append(x.ctx, "s", b); err != nil {
			x.Fatalf("handle %d: %v", i, err)
		}
		if title := x.stat("s").Title; title != fmt.Sprint("title ", i) {
			x.Errorf("the title is %q", title)
		}
	}
	if err := handles[1].Delete(x.ctx, "s", turn.Grant); err != nil {
		x.Errorf("Delete: %v", err)
	}
	x.wantGone("s")
}

func exclusiveEnds(x *env) {
	x.create("s")
	free := func(when string) {
		x.Helper()
		b := texts("free")
		b.Patch = &hansard.Patch{Title: ptr(when)}
		x.append("s", b)
	}
	first := x.acquire(x.store, "s", exclusive("first"))
	x.refused(hansard.ErrHeld, "s", texts("x"))
	x.release(x.store, "s", first.Grant)
	free("after the release")

	x.acquire(x.store, "s", exclusive("second"))
	c := hold("thief")
	c.Steal = "to open it"
	stolen := x.acquire(x.store, "s", c)
	free("after a theft that is not exclusive")
	x.release(x.store, "s", stolen.Grant)

	silent := brief("silent")
	silent.Exclusive = true
	x.acquire(x.store, "s", silent)
	var turn hansard.Turn
	x.start("Acquire after a silent holder", func() (err error) {
		turn, err = x.store.Acquire(x.ctx, "s", hansard.Claim{Wait: hansard.Forever, TTL: time.Hour})
		return err
	}).finish()
	free("after the holder was followed by one that is not exclusive")
	x.release(x.store, "s", turn.Grant)
}

func exclusiveSilent(x *env) {
	// past repeats a write until the turn no longer refuses it.
	past := func(what string, write func() error) {
		x.Helper()
		x.start(what, func() error {
			for {
				if err := write(); !errors.Is(err, hansard.ErrHeld) {
					return err
				}
				time.Sleep(time.Millisecond) // and ask again
			}
		}).finish()
	}
	claims := map[string]hansard.Claim{"silent": brief("silent"), "overdue": {TTL: time.Hour, MaxHold: 50 * time.Millisecond}}
	for why, c := range claims {
		id := hansard.SessionID(why)
		x.create(id)
		c.Exclusive = true
		turn := x.acquire(x.store, id, c)
		var r hansard.Receipt
		past("Append past a holder that is "+why, func() (err error) {
			r, err = x.store.Append(x.ctx, id, texts("past it"))
			return err
		})
		if r.First != turn.Seq+2 {
			x.Fatalf("%s: the write is at %d, the grant at %d", why, r.First, turn.Seq)
		}
		if e, record := x.record(id, turn.Seq+1); e.Turn != turn.Grant || record.Change != hansard.TurnEnded || record.Why != why {
			x.Errorf("%s: the end is recorded as %s under %q", why, e.Data, e.Turn)
		}
		x.wantFencedOff("after it was ended as "+why, id, turn.Grant, nil)
		if next := x.acquire(x.store, id, hold("next")); next.Grant.Number() != turn.Grant.Number()+1 {
			x.Errorf("%s: %s follows %s", why, next.Grant, turn.Grant)
		}
	}
	c := claims["silent"]
	c.Exclusive = true
	x.create("deleted")
	x.acquire(x.store, "deleted", c)
	past("Delete past a silent holder", func() error { return x.store.Delete(x.ctx, "deleted", "") })
	x.wantGone("deleted")
}
