package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"strconv"

	"hansard"
)

// A worker is a piece of work that is the same in a goroutine, through another
// handle and in another process. It reports as it goes: whatever it reports was
// acknowledged, no matter what happens to the worker afterwards.
type worker interface {
	run(ctx context.Context, s hansard.Store, report func(report)) error
}

// report is one thing that a worker has done or seen.
type report struct {
	Ack   *Ack `json:"ack,omitempty"`
	Reads int  `json:"reads,omitempty"`
	// Created is a session the worker made, Exists one that already existed.
	Created hansard.SessionID `json:"created,omitempty"`
	Exists  hansard.SessionID `json:"exists,omitempty"`
	// Deleted says that the worker's session was deleted while it worked.
	Deleted bool `json:"deleted,omitempty"`
	// Stint is a turn that the worker held.
	Stint *stint `json:"stint,omitempty"`
	// Delivered is how many of its records a mirror knows to be stored.
	Delivered int `json:"delivered,omitempty"`
}

// writer appends marked batches, going round its sessions.
type writer struct {
	Name     string
	Sessions []hansard.SessionID
	From     int // the first batch
	Batches  int // 0: until the session or the context ends
	Largest  int // events in a batch, at most
	PadBytes int
	Keys     bool // each batch has a key, the same for every writer of this name
	Create   bool
}

// batch always returns the same batch, so that it can be retried.
func (w *writer) batch(i int) (hansard.SessionID, hansard.Batch) {
	h := fnv.New32a()
	fmt.Fprint(h, w.Name, i)
	events := 1 + int(h.Sum32())%max(1, w.Largest)
	b := hansard.Batch{Events: Marked(w.Name, i, events, w.PadBytes), Create: w.Create}
	if w.Keys {
		b.Key = w.Name + "/" + strconv.Itoa(i)
	}
	return w.Sessions[i%len(w.Sessions)], b
}

func (w *writer) run(ctx context.Context, s hansard.Store, to func(report)) error {
	for i := w.From; w.Batches == 0 || i < w.From+w.Batches; i++ {
		id, b := w.batch(i)
		r, err := s.Append(ctx, id, b)
		if errors.Is(err, hansard.ErrDeleted) && w.Batches == 0 {
			to(report{Deleted: true})
			return nil
		}
		if err != nil {
			return fmt.Errorf("batch %d of %s to session %s: %w", i, w.Name, id, err)
		}
		if r.Session != id {
			return fmt.Errorf("an append to session %s was answered for %s", id, r.Session)
		}
		to(report{Ack: &Ack{w.Name, i, r}})
	}
	return nil
}

// reader reads marked sessions again and again until its context ends: each
// read must be whole batches, and never less than the one before.
type reader struct {
	Sessions []hansard.SessionID
	// Born says that the sessions are created by their first batch, so none may
	// be seen without it.
	Born bool
	// first, if not nil, is called after the first look.
	first func()
}

func (r *reader) run(ctx context.Context, s hansard.Store, to func(report)) error {
	seen := make(map[hansard.SessionID]hansard.Seq)
	reads := 0
	defer func() { to(report{Reads: reads}) }()
	for i := 0; ; i++ {
		id := r.Sessions[i%len(r.Sessions)]
		err := r.look(ctx, s, id, i/len(r.Sessions), seen)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("session %s: %w", id, err)
		}
		if reads++; reads == 1 && r.first != nil {
			r.first()
		}
	}
}

// look reads in one of several ways.
func (r *reader) look(ctx context.Context, s hansard.Store, id hansard.SessionID, way int, seen map[hansard.SessionID]hansard.Seq) error {
	if way%4 == 3 {
		info, err := s.Stat(ctx, id)
		return r.note(id, info.LastSeq, err, seen)
	}
	part := []hansard.Range{{}, {After: seen[id] / 2}, {Last: 7}}[way%4]
	events, err := readRange(ctx, s, id, part)
	if err == nil {
		err = CheckWhole(events)
	}
	last := part.After // with no event past it, it is the end
	if len(events) > 0 {
		last = events[len(events)-1].Seq
	}
	return r.note(id, last, err, seen)
}

// note compares what was seen now with what was seen before: a session that existed
// neither vanishes nor shrinks.
func (r *reader) note(id hansard.SessionID, last hansard.Seq, err error, seen map[hansard.SessionID]hansard.Seq) error {
	before, known := seen[id]
	if errors.Is(err, hansard.ErrNotFound) && !known {
		return nil // not made yet
	}
	if err != nil {
		return err
	}
	if r.Born && last == 0 {
		return errors.New("is there without the batch that made it")
	}
	if last < before {
		return fmt.Errorf("was seen up to seq %d and then up to %d", before, last)
	}
	seen[id] = last
	return nil
}

// follower follows a marked session up to a seq.
type follower struct {
	Session     hansard.SessionID
	After, Upto hansard.Seq

	began chan<- struct{} // if set, closed at the first event
}

func (f *follower) run(ctx context.Context, s hansard.Store, to func(report)) error {
	want := f.After + 1
	var events []hansard.Event
	for e, err := range hansard.Follow(ctx, s, f.Session, f.After) {
		if err != nil {
			return fmt.Errorf("following at seq %d: %w", want, err)
		}
		if e.Seq != want {
			return fmt.Errorf("following: got seq %d, want %d", e.Seq, want)
		}
		if events = append(events, e); len(events) == 1 && f.began != nil {
			close(f.began)
		}
		if want++; e.Seq == f.Upto {
			break
		}
	}
	if err := CheckWhole(events); err != nil {
		return fmt.Errorf("following: %w", err)
	}
	to(report{Reads: len(events)})
	return nil
}

// creator creates sessions that others may create as well.
type creator struct {
	Sessions []hansard.SessionID
}

func (c *creator) run(ctx context.Context, s hansard.Store, to func(report)) error {
	for _, id := range c.Sessions {
		_, err := s.Create(ctx, id, hansard.Meta{Title: "made by " + string(c.Sessions[0])})
		switch {
		case err == nil:
			to(report{Created: id})
		case errors.Is(err, hansard.ErrExists):
			to(report{Exists: id})
		default:
			return fmt.Errorf("create %s: %w", id, err)
		}
	}
	return nil
}

// counter adds to a number in the state of a session, by compare-and-swap.
type counter struct {
	Session hansard.SessionID
	Times   int
	Test    bool // compare the number itself, not the last seq
}

func (c *counter) run(ctx context.Context, s hansard.Store, to func(report)) error {
	for range c.Times {
		if err := c.add(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (c *counter) add(ctx context.Context, s hansard.Store) error {
	for {
		info, err := s.Stat(ctx, c.Session)
		if err != nil {
			return err
		}
		n, err := countIn(info)
		if err != nil {
			return err
		}
		runtime.Gosched() // let others in between reading and writing
		b := hansard.Batch{
			Patch:  &hansard.Patch{State: fmt.Appendf(nil, `{"count":%d}`, n+1)},
			Expect: hansard.At(info.LastSeq),
		}
		if c.Test {
			b = changing(test("/count", fmt.Sprint(n)), replace("/count", fmt.Sprint(n+1)))
		}
		_, err = s.Append(ctx, c.Session, b)
		if !errors.Is(err, hansard.ErrConflict) {
			return err
		}
	}
}

func countIn(info hansard.Info) (int, error) {
	var state struct{ Count int }
	if err := json.Unmarshal(info.State, &state); err != nil {
		return 0, fmt.Errorf("state %s: %w", info.State, err)
	}
	return state.Count, nil
}
