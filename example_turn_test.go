package hansard_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"hansard"
	"hansard/memstore"
)

// say is one message.
func say(role, text string) []hansard.Event {
	return []hansard.Event{{Role: role, Data: fmt.Appendf(nil, "%q", text)}}
}

// newTrip is a store with a session in it. On files it would be filestore.Open.
func newTrip(ctx context.Context) hansard.Store {
	store := memstore.New()
	if _, err := store.Create(ctx, "trip", hansard.Meta{}); err != nil {
		log.Fatal(err)
	}
	return store
}

// think stands for a model call. It ends with its context.
func think(ctx context.Context, step int) (string, error) {
	return fmt.Sprint("thought ", step), ctx.Err()
}

// An agent loop takes the turn, works under its context, and writes under its grant. The turn
// renews itself; that writes nothing to the session.
func ExampleTake() {
	ctx := context.Background()
	store := newTrip(ctx)
	defer store.Close()

	turn, err := hansard.Take(ctx, store, "trip", hansard.Claim{Label: "planner"})
	if err != nil {
		log.Fatal(err) // hansard.ErrHeld: somebody else has it, and the error says who
	}
	defer turn.Release()
	for step := 1; step <= 2; step++ {
		answer, err := think(turn.Context(), step) // ends when the turn is lost
		if err != nil {
			log.Fatal(context.Cause(turn.Context()))
		}
		// Refused with hansard.ErrFenced if the turn was lost while it was thinking.
		if _, err := store.Append(ctx, "trip", hansard.Batch{Turn: turn.Grant(), Events: say("assistant", answer)}); err != nil {
			log.Fatal(err)
		}
	}
	turn.Release()

	for e, err := range store.Read(ctx, "trip", hansard.Range{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Seq, e.Kind, e.Turn.Number())
	}
	// Output:
	// 1 turn 1
	// 2 message 1
	// 3 message 1
	// 4 turn 1
}

// A second agent waits for its turn. It gets it when the first one releases it,
// dies, or is silent for its TTL.
func ExampleTake_wait() {
	ctx := context.Background()
	store := newTrip(ctx)
	defer store.Close()

	first, err := hansard.Take(ctx, store, "trip", hansard.Claim{Label: "planner"})
	if err != nil {
		log.Fatal(err)
	}

	// Without waiting, the error says who has it.
	_, err = hansard.Take(ctx, store, "trip", hansard.Claim{Label: "critic"})
	var held *hansard.HeldError
	fmt.Println(errors.As(err, &held), held.Turn.Holder.Label)

	done := make(chan struct{})
	go func() {
		defer close(done)
		second, err := hansard.Take(ctx, store, "trip", hansard.Claim{Label: "critic", Wait: time.Minute})
		if err != nil {
			log.Fatal(err)
		}
		defer second.Release()
		fmt.Println(second.Turn().Holder.Label, "has turn", second.Grant().Number())
	}()
	first.Release()
	<-done
	// Output:
	// true planner
	// critic has turn 2
}

// A chat message does not wait for the turn. The running agent follows its session, sees it
// arrive, and handles it when it likes.
func ExampleTake_chat() {
	ctx := context.Background()
	store := newTrip(ctx)
	defer store.Close()

	turn, err := hansard.Take(ctx, store, "trip", hansard.Claim{Label: "planner", Exclusive: true})
	if err != nil {
		log.Fatal(err)
	}
	defer turn.Release()

	// Somebody types while the agent is working. Without Inbox an exclusive turn would refuse it
	// with ErrHeld; a turn that is not exclusive accepts either.
	go func() {
		message := say("user", "rather by train")
		message[0].Inbox = true
		if _, err := store.Append(ctx, "trip", hansard.Batch{Events: message}); err != nil {
			log.Fatal(err)
		}
	}()

	for e, err := range hansard.Follow(turn.Context(), store, "trip", turn.Turn().Seq) {
		if err != nil {
			log.Fatal(err)
		}
		if e.Inbox {
			fmt.Println("taking up", string(e.Data))
			break
		}
	}
	if _, err := store.Append(ctx, "trip", hansard.Batch{Turn: turn.Grant(), Events: say("assistant", "by train, then")}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// taking up "rather by train"
}

// An agent that has crashed or hangs loses the turn to the next one that wants it, and anything
// it still tries to write under it is refused.
func ExampleTake_takeOver() {
	ctx := context.Background()
	store := newTrip(ctx)
	defer store.Close()

	// Acquire alone renews nothing: from here on this agent gives no sign of life.
	crashed, err := store.Acquire(ctx, "trip", hansard.Claim{Label: "planner", TTL: 20 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	next, err := hansard.Take(ctx, store, "trip", hansard.Claim{Label: "successor", Wait: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer next.Release()

	// It comes back, unaware of that.
	_, err = store.Append(ctx, "trip", hansard.Batch{Turn: crashed.Grant, Events: say("assistant", "where was I?")})
	var fenced *hansard.FencedError
	fmt.Println(errors.As(err, &fenced), fenced.Current.Holder.Label)
	fmt.Println(errors.Is(store.Release(ctx, "trip", crashed.Grant), hansard.ErrFenced))

	// From a live holder it is taken only on purpose, with a reason for the record.
	thief, err := hansard.Take(ctx, store, "trip", hansard.Claim{Label: "operator", Steal: "it goes round in circles"})
	if err != nil {
		log.Fatal(err)
	}
	defer thief.Release()
	<-next.Context().Done()
	fmt.Println(errors.Is(context.Cause(next.Context()), hansard.ErrFenced))
	// Output:
	// true successor
	// true
	// true
}
