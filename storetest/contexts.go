package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"hansard"
)

var contextCases = []Case{
	{Name: "context/list", run: contextList,
		Defends: "a list whose context ends on the way ends with the context's error: it calls nothing damaged and leaves nothing out in silence", Answers: "24 45"},
	{Name: "context/read", run: contextRead,
		Defends: "a call that reads, whose context ends on the way, gives the whole truth or the context's error", Answers: "24"},
	{Name: "context/verify", run: contextVerify,
		Defends: "an examination whose context ends on the way reports no damage that is not there, and says that it is not complete", Answers: "24"},
	{Name: "context/append", run: contextAppend,
		Defends: "an append whose context ends on the way is stored, is not, or says that this is open; never otherwise", Answers: "36"},
}

// endingContext ends when it is checked for the n-th time, wherever in a call that is:
// a sweep over n ends the call at each place that checks it.
type endingContext struct {
	context.Context
	mu   sync.Mutex // guards left
	left int
	done chan struct{}
}

func endsAtLook(parent context.Context, n int) *endingContext {
	return &endingContext{Context: parent, left: n, done: make(chan struct{})}
}

func (c *endingContext) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		close(c.done)
	}
}

// ended tells whether it has ended, without counting as a check.
func (c *endingContext) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left <= 0
}

func (c *endingContext) Done() <-chan struct{} {
	c.look()
	return c.done
}

func (c *endingContext) Err() error {
	c.look()
	if c.ended() {
		return context.Canceled
	}
	return c.Context.Err()
}

// looksMax bounds a sweep: enough for every check in the calls made here.
const looksMax = 500

// endAnywhere makes a call again and again, with its context ending later each time,
// until a call finishes before its context: one check later at first, in larger steps
// if there are many checks, as when a whole journal is read in pieces.
func (x *env) endAnywhere(what string, call func(ctx context.Context) error) {
	x.Helper()
	for n := 1; n <= looksMax; n += 1 + n/16 {
		ctx := endsAtLook(x.ctx, n)
		// In its own goroutine, with a deadline: a call that misses the end of its
		// context may wait for ever.
		err := x.start(what, func() error { return call(ctx) }).result()
		if err != nil {
			x.Errorf("%s, its context ended at look %d: %v", what, n, err)
			return
		}
		if !ctx.ended() {
			return
		}
	}
}

// orEnded allows the error of an ended context and returns any other.
func orEnded(err error) error {
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the error is not the context's: %w", err)
	}
	return nil
}

func contextList(x *env) {
	const sessions = 6
	at := hansard.Seq(0)
	for i := range sessions {
		x.create(hansard.SessionID(fmt.Sprint("s", i)))
	}
	x.endAnywhere("List", func(ctx context.Context) error {
		at++
		for i := range sessions { // otherwise there may be nothing to check again
			if _, err := x.store.Append(x.ctx, hansard.SessionID(fmt.Sprint("s", i)), texts("x")); err != nil {
				return err
			}
		}
		infos, err := listAll(ctx, x.store, hansard.Query{})
		for _, info := range infos {
			if info.Damaged() || info.LastSeq != at {
				return fmt.Errorf("it gives %+v, which has seq %d and is sound", info, at)
			}
		}
		if err == nil && len(infos) != sessions {
			return fmt.Errorf("%d of %d sessions, and no error", len(infos), sessions)
		}
		return orEnded(err)
	})
}

func contextRead(x *env) {
	x.createKinds("s", slices.Repeat(kindsOf, 30))
	last := hansard.Seq(30 * len(kindsOf))
	turn := x.acquire(x.store, "s", hansard.Claim{})
	last++ // the turn's own event
	for _, r := range []hansard.Range{{}, {After: last / 2}, {Last: 3}, {FromSummary: true}, {Kinds: []string{"note"}, Last: 40}} {
		whole := seqs(x.read("s", r))
		x.endAnywhere(fmt.Sprintf("Read(%+v)", r), func(ctx context.Context) error {
			events, err := readRange(ctx, x.store, "s", r)
			got := seqs(events)
			if len(got) > len(whole) || !slices.Equal(got, whole[:len(got)]) || err == nil && len(got) < len(whole) {
				return fmt.Errorf("%d of %d events, error %v", len(got), len(whole), err)
			}
			return orEnded(err)
		})
	}
	x.endAnywhere("Stat", func(ctx context.Context) error {
		info, err := x.store.Stat(ctx, "s")
		if err == nil && (info.LastSeq != last || info.Damaged()) {
			return fmt.Errorf("%+v", info)
		}
		return orEnded(err)
	})
	x.endAnywhere("Turn", func(ctx context.Context) error {
		t, err := x.store.Turn(ctx, "s")
		if err == nil && (t == nil || t.Grant != turn.Grant) {
			return fmt.Errorf("the turn is %+v", t)
		}
		return orEnded(err)
	})
	x.endAnywhere("Wait", func(ctx context.Context) error { return orEnded(x.store.Wait(ctx, "s", last-1)) })
}

func contextVerify(x *env) {
	c, ok := x.store.(hansard.Checker)
	if !ok {
		return // the store can't be examined
	}
	for i := range 3 {
		x.createKinds(hansard.SessionID(fmt.Sprint("s", i)), slices.Repeat(kindsOf, 10))
	}
	complete := 0
	for f, err := range c.Verify(x.ctx, "") {
		if errors.Is(err, hansard.ErrUnsupported) {
			return
		}
		if err != nil || f.Level == hansard.LevelDamage {
			x.Fatalf("Verify: %+v, %v", f, err)
		}
		complete++
	}
	for _, id := range []hansard.SessionID{"", "s1"} {
		x.endAnywhere(fmt.Sprintf("Verify(%q)", id), func(ctx context.Context) error {
			found := 0
			for f, err := range c.Verify(ctx, id) {
				if err != nil {
					return orEnded(err)
				}
				if f.Level == hansard.LevelDamage {
					return fmt.Errorf("it finds %+v", f)
				}
				found++
			}
			if id == "" && found < complete {
				return fmt.Errorf("%d findings instead of %d, and no error", found, complete)
			}
			return nil
		})
	}
}

func contextAppend(x *env) {
	x.create("s")
	var acks []Ack
	refused := map[string]bool{} // by writer: a batch of unknown outcome may be stored later than the next
	unknown := map[string]hansard.Batch{}
	n := 0
	x.endAnywhere("Append", func(ctx context.Context) error {
		n++
		writer := fmt.Sprint("w", n)
		b := hansard.Batch{Events: Marked(writer, 1, 2, 10), Key: writer, Patch: &hansard.Patch{Title: ptr(writer)}}
		r, err := x.store.Append(ctx, "s", b)
		switch {
		case err == nil:
			acks = append(acks, Ack{writer, 1, r})
		case errors.Is(err, hansard.ErrUnknown):
			unknown[writer] = b
		default:
			refused[writer] = true
		}
		return orEnded(err)
	})
	if len(acks) == 0 {
		x.Fatal("no append was over before its context")
	}
	// A retry with the key settles what is open. Without it such an append may be stored at
	// any time, also while the store is audited.
	for writer, b := range unknown {
		acks = append(acks, Ack{writer, 1, x.append("s", b)})
	}
	log := x.all("s")
	if err := CheckLog(log, acks); err != nil {
		x.Error(err)
	}
	for _, e := range log {
		if refused[e.Author] {
			x.Errorf("the append of %s was refused, and is stored at seq %d", e.Author, e.Seq)
		}
	}
}
