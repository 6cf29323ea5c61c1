// Package demo fills a store with agents talking, so that there is something to
// see: people ask, agents take turns, call tools, get results, summarise, and are
// interrupted. The content is made up; the sessions are real, and show the shapes
// that agents keep in them.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"hansard"
)

// Options say how much is to happen.
type Options struct {
	// Sessions is how many sessions are played; 0 continues until ctx ends.
	Sessions int
	// AtOnce is how many of them are played at the same time.
	AtOnce int
	// Pause is how long somebody takes to say something, on average.
	Pause time.Duration
	// Seed makes the same things happen again.
	Seed uint64
	// Began is called for every session, from several goroutines.
	Began func(hansard.Info)
}

// Played is what happened.
type Played struct{ Sessions, Events atomic.Int64 }

// Run plays until all sessions are done, ctx ends, or something fails. The end of
// ctx is not an error.
func Run(ctx context.Context, s hansard.Store, o Options) (*Played, error) {
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	played := &Played{}
	var next atomic.Int64
	var crew sync.WaitGroup
	for range o.AtOnce {
		crew.Go(func() {
			for inner.Err() == nil {
				n := next.Add(1)
				if o.Sessions > 0 && n > int64(o.Sessions) {
					return
				}
				if err := perform(inner, s, &o, uint64(n), played); err != nil {
					stop(err)
					return
				}
			}
		})
	}
	crew.Wait()
	if err := context.Cause(inner); err != nil && ctx.Err() == nil {
		return played, err
	}
	return played, nil
}

// perform plays one session.
func perform(ctx context.Context, s hansard.Store, o *Options, n uint64, played *Played) error {
	rng := rand.New(rand.NewPCG(o.Seed, n))
	story := stories[(n-1)%uint64(len(stories))](rng)
	id := hansard.SessionID(fmt.Sprintf("demo-%s-%08x", story.name, uint32(o.Seed)+uint32(n)))
	meta := hansard.Meta{Title: story.title, Labels: map[string]string{"source": "demo", "topic": story.name}}
	for k, v := range story.labels {
		meta.Labels[k] = v
	}
	info, err := s.Create(ctx, id, meta)
	if err != nil {
		return ended(ctx, err)
	}
	played.Sessions.Add(1)
	if o.Began != nil {
		o.Began(info)
	}
	p := &player{store: s, id: id, rng: rng, pause: o.Pause, played: played}
	defer p.leave()
	for i, b := range story.beats {
		if err := p.play(ctx, i, b); err != nil {
			return ended(ctx, err)
		}
	}
	return nil
}

// ended returns an error unless it is only due to the end of ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, hansard.ErrUnknown) {
		return nil
	}
	return err
}

// player plays the beats of one session.
type player struct {
	store  hansard.Store
	id     hansard.SessionID
	rng    *rand.Rand
	pause  time.Duration
	played *Played
	turn   *hansard.Lease // nil while nobody holds the turn, or the store has none
}

func (p *player) play(ctx context.Context, i int, b beat) error {
	if err := p.wait(ctx, b.long); err != nil {
		return err
	}
	switch {
	case b.take != nil:
		return p.take(ctx, *b.take)
	case b.release:
		return p.release()
	}
	batch := hansard.Batch{Events: b.events, Patch: b.patch, Key: fmt.Sprintf("demo-%d", i)}
	if b.under && p.turn != nil {
		batch.Turn = p.turn.Grant()
	}
	// A step that was begun is finished, even after Ctrl-C.
	calm, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	receipt, err := p.store.Append(calm, p.id, batch)
	if err != nil {
		return err
	}

	p.played.Events.Add(int64(receipt.Last - receipt.First + 1))
	return nil
}

// take takes the turn. An engine without turns plays without.
func (p *player) take(ctx context.Context, c hansard.Claim) error {
	lease, err := hansard.Take(ctx, p.store, p.id, c)
	if errors.Is(err, hansard.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	if p.turn != nil {
		_ = p.turn.Release() // it was taken away: the release is refused, and ends the lease
	}
	p.turn = lease
	return nil
}

func (p *player) release() error {
	if p.turn == nil {
		return nil
	}
	lease := p.turn
	p.turn = nil
	return lease.Release()
}

// leave releases the turn, however the session ended.
func (p *player) leave() { _ = p.release() }

// wait is the time somebody takes: between half and twice the pause.
func (p *player) wait(ctx context.Context, long bool) error {
	d := time.Duration(float64(p.pause) * (0.5 + 1.5*p.rng.Float64()))
	if long {
		d *= 3
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// story is what is said in one session.
type story struct {
	name, title string
	labels      map[string]string
	beats       []beat
}

// beat is one step of a story: events that are one batch, or a change of the turn.
type beat struct {
	events  []hansard.Event
	patch   *hansard.Patch
	under   bool // written under the turn
	long    bool // takes longer than usual
	take    *hansard.Claim
	release bool
}

// raw is a value as the data of an event.
func raw(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // values of this package
	}
	return data
}

type object = map[string]any

// says is a message, with data in any shape.
func says(role, author string, data any) beat {
	return beat{events: []hansard.Event{{Kind: hansard.KindMessage, Role: role, Author: author, Data: raw(data)}}}
}

// user is a message of a person; inbox is one for the holder of an exclusive turn.
func user(author string, data any) beat { return says("user", author, data) }

func inbox(author string, data any) beat {
	b := user(author, data)
	b.events[0].Inbox = true
	return b
}

// agent is a message of an agent, under its turn.
func agent(author string, data any) beat {
	b := says("assistant", author, data)
	b.under, b.long = true, true
	return b
}

// calls is the call of a tool, and returns its result.
func calls(author, id, tool string, args any) beat {
	return beat{under: true, events: []hansard.Event{{Kind: hansard.KindToolCall, Role: "assistant", Author: author,
		Data: raw(object{"type": "function_call", "call_id": id, "name": tool, "arguments": string(raw(args))})}}}
}

func returns(author, id string, output any) beat {
	return beat{under: true, events: []hansard.Event{{Kind: hansard.KindToolResult, Role: "tool", Author: author,
		Data: raw(object{"type": "function_call_output", "call_id": id, "output": output})}}}
}

func fails(author, id, why string) beat {
	return beat{under: true, events: []hansard.Event{{Kind: hansard.KindToolResult, Role: "tool", Author: author,
		Data: raw(object{"tool_use_id": id, "is_error": true, "content": why})}}}
}

func summary(author string, from, to int, text string) beat {
	return beat{under: true, long: true, events: []hansard.Event{{Kind: hansard.KindSummary, Role: "assistant", Author: author,
		Data: raw(object{"from": from, "to": to, "text": text})}}}
}

func changes(p hansard.Patch) beat { return beat{patch: &p, under: true} }

func takes(label string) beat { return beat{take: &hansard.Claim{Label: label, Wait: time.Minute}} }

func takesAlone(label string) beat {
	return beat{take: &hansard.Claim{Label: label, Wait: time.Minute, Exclusive: true}}
}

func steals(label, reason string) beat {
	return beat{take: &hansard.Claim{Label: label, Steal: reason}}
}

func releases() beat { return beat{release: true} }
