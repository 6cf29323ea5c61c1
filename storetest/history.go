package storetest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"hansard"
)

var historyCases = []Case{
	{Name: "history/linearizable", run: historyLinearizable,
		Defends: "appends, reads and refusals of a session take effect one after the other, each between its call and its return", Answers: "F1 F5 41"},
}

// op is one operation on a session as its caller saw it. The log itself gives the
// order: an operation is either in it, or saw it up to a seq.
type op struct {
	begin, end time.Duration // on one monotonic clock
	// first and last are the seqs of what was stored; for an operation that only read,
	// last is how far it saw and first is 0.
	first, last hansard.Seq
	sum         uint64 // of the events that were seen, 0 when they were not read
	what        string
	// grant is the turn that the operation saw held, or released: its place in the
	// order is then found in the log.
	grant    hansard.Grant
	released bool
	heldAt   hansard.Seq // the event that recorded the turn it saw held; 0: none
	// latest is the last seq that may have existed before it, if that is not known
	// exactly; otherwise 0.
	latest hansard.Seq
}

// before is the last seq that may have existed before the operation.
func (o op) before() hansard.Seq {
	if o.first > 0 {
		return o.first - 1
	}
	return max(o.last, o.latest)
}

// placeTurns finds the places of operations on the turn. A release is where the
// log has it. A refused claim saw the turn held: at the time of its grant, or any time
// before its end.
func placeTurns(log []hansard.Event, ops []op) error {
	ended := make(map[hansard.Grant]hansard.Seq) // where, by release or by the next grant
	var held hansard.Grant
	for _, e := range log {
		r, err := recordOf(e)
		switch {
		case err != nil:
			continue
		case r.Grants() && held != "":
			ended[held] = e.Seq
			held = e.Turn
		case r.Grants():
			held = e.Turn
		case r.Ends():
			ended[held] = e.Seq
			held = ""
		}
	}
	for i := range ops {
		o := &ops[i]
		if o.heldAt > 0 && o.heldAt <= hansard.Seq(len(log)) {
			o.grant = log[o.heldAt-1].Turn
		}
		end, over := ended[o.grant]
		switch {
		case o.grant == "":
		case o.released && !over:
			return fmt.Errorf("%s gave up %s, and the log does not say so", o.what, o.grant)
		case o.released:
			o.first, o.last = end, end
		case over:
			o.latest = end - 1
		default:
			o.latest = hansard.Seq(len(log))
		}
	}
	return nil
}

// checkHistory checks a history against the final log: an operation that ended before
// another began must come before it. That is enough: the log already is one order of
// everything that was stored, and a read comes after the last event it saw.
func checkHistory(log []hansard.Event, ops []op) error {
	sums := prefixSums(log)
	taken := make([]string, len(log)+1)
	for _, o := range ops {
		if o.last > hansard.Seq(len(log)) {
			return fmt.Errorf("%s saw seq %d, the log ends at %d", o.what, o.last, len(log))
		}
		if o.sum != 0 && o.sum != sums[o.last] {
			return fmt.Errorf("%s saw other events up to seq %d than the log has", o.what, o.last)
		}
		for seq := o.first; o.first > 0 && seq <= o.last; seq++ {
			if taken[seq] != "" {
				return fmt.Errorf("seq %d was given to %s and to %s", seq, taken[seq], o.what)
			}
			taken[seq] = o.what
		}
	}
	byBegin, byEnd := slices.Clone(ops), slices.Clone(ops)
	slices.SortFunc(byBegin, func(a, b op) int { return cmp.Compare(a.begin, b.begin) })
	slices.SortFunc(byEnd, func(a, b op) int { return cmp.Compare(a.end, b.end) })
	var ended op // of those that have ended, the one that reached furthest
	for _, o := range byBegin {
		for len(byEnd) > 0 && byEnd[0].end < o.begin {
			if byEnd[0].last >= ended.last {
				ended = byEnd[0]
			}
			byEnd = byEnd[1:]
		}
		if ended.last > o.before() {
			return fmt.Errorf("%s (%v to %v) reached seq %d, and then %s (%v to %v) began and came before that: seq %d",
				ended.what, ended.begin, ended.end, ended.last, o.what, o.begin, o.end, o.before()+1)
		}
	}
	return nil
}

// prefixSums identifies what a read up to each seq must have seen.
func prefixSums(log []hansard.Event) []uint64 {
	h := fnv.New64a()
	sums := []uint64{h.Sum64()}
	for _, e := range log {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(e.Seq)))
		h.Write(e.Data)
		sums = append(sums, h.Sum64())
	}
	return sums
}

func historyLinearizable(x *env) {
	handles := x.handles(4)
	x.create("s")
	var mu sync.Mutex // guards ops and stored
	var ops []op
	stored := 0
	start := time.Now()
	const agents, steps = 8, 60
	seeds := make([]uint64, agents)
	for i := range seeds {
		seeds[i] = x.rng.Uint64()
	}
	x.each(agents, "agent", func(i int) error {
		rng := rand.New(rand.NewPCG(seeds[i], 0))
		a := actor{rng: rng}
		for n := 0; n < steps || a.turn != ""; n++ { // nobody leaves with the turn
			o := op{begin: time.Since(start), what: fmt.Sprintf("step %d of agent %d", n, i)}
			err := a.act(x.ctx, handles[rng.IntN(len(handles))], fmt.Sprint(i, " ", n), &o)
			o.end = time.Since(start)
			if err != nil {
				return fmt.Errorf("%s: %w", o.what, err)
			}
			a.known = max(a.known, o.last)
			mu.Lock()
			ops = append(ops, o)
			if o.first > 0 || o.released {
				stored++
			}
			mu.Unlock()
			runtime.Gosched() // otherwise one agent would finish before the next begins
		}
		return nil
	})
	log := x.all("s")
	if err := placeTurns(log, ops); err != nil {
		x.Fatal(err)
	}
	if err := checkHistory(log, ops); err != nil {
		x.Error(err)
	}
	if stored < agents*steps/5 {
		x.Errorf("only %d of %d operations stored something: too little to judge by", stored, len(ops))
	}
	// Every event belongs to an acknowledged operation.
	told := 0
	for _, o := range ops {
		if o.first > 0 {
			told += int(o.last-o.first) + 1
		}
	}
	if told != len(log) {
		x.Errorf("the log has %d events, %d were acknowledged", len(log), told)
	}
}

// actor does random things, one after the other.
type actor struct {
	rng   *rand.Rand
	known hansard.Seq   // the last seq it knows of
	turn  hansard.Grant // that it holds
}

// act does one random thing and records what it did or saw.
func (a *actor) act(ctx context.Context, s hansard.Store, name string, o *op) error {
	switch a.rng.IntN(8) {
	case 0, 1: // append, under the turn if it holds it
		o.what += " (append)"
		list := []string{name + "a", name + "b", name + "c"}
		r, err := s.Append(ctx, "s", under(a.turn, list[:1+a.rng.IntN(3)]...))
		o.first, o.last = r.First, r.Last
		return err
	case 2: // compare and swap; a conflict counts as a read
		o.what += " (swap)"
		b := texts(name)
		b.Expect = hansard.At(a.known)
		r, err := s.Append(ctx, "s", b)
		o.first, o.last = r.First, r.Last
		var conflict *hansard.ConflictError
		if errors.As(err, &conflict) {
			o.first, o.last = 0, conflict.Actual
			return nil
		}
		return err
	case 3:
		o.what += " (stat)"
		info, err := s.Stat(ctx, "s")
		o.last = info.LastSeq
		return err
	case 4:
		o.what += " (last)"
		events, err := readRange(ctx, s, "s", hansard.Range{Last: 1})
		if len(events) > 0 {
			o.last = events[0].Seq
		}
		return err
	case 5, 6:
		if a.turn != "" {
			o.what += " (release)"
			o.grant, o.released = a.turn, true
			a.turn = ""
			return s.Release(ctx, "s", o.grant)
		}
		return a.acquire(ctx, s, name, o)
	default:
		o.what += " (read)"
		events, err := readRange(ctx, s, "s", hansard.Range{})
		sums := prefixSums(events)
		o.last, o.sum = hansard.Seq(len(events)), sums[len(events)]
		return err
	}
}

// acquire takes the turn; a refusal counts as reading who holds it.
func (a *actor) acquire(ctx context.Context, s hansard.Store, name string, o *op) error {
	o.what += " (acquire)"
	t, err := s.Acquire(ctx, "s", hold(name))
	var held *hansard.HeldError
	if errors.As(err, &held) {
		o.last, o.heldAt = held.Turn.Seq, held.Turn.Seq // the grant is read from the log: a server's refusal does not reveal it
		return nil
	}
	o.first, o.last, a.turn = t.Seq, t.Seq, t.Grant
	return err
}
