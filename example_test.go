package hansard_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"hansard"
	"hansard/memstore"
)

// A session is created, appended to, read and followed. The code is the same on
// every engine.
func Example() {
	ctx := context.Background()
	store := memstore.New()
	defer store.Close()

	if _, err := store.Create(ctx, "trip", hansard.Meta{Title: "A trip to Rome"}); err != nil {
		log.Fatal(err)
	}

	// A batch is stored whole or not at all; nil means it is durable.
	receipt, err := store.Append(ctx, "trip", hansard.Batch{
		Events: []hansard.Event{
			hansard.Message("user", "Find me a train"),
			{Kind: hansard.KindToolCall, Role: "assistant", Author: "bot", Data: []byte(`{"tool":"trains"}`)}, // any JSON
		},
		Patch: &hansard.Patch{State: []byte(`{"step":"searching"}`)},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored", receipt.First, "to", receipt.Last)

	for e, err := range store.Read(ctx, "trip", hansard.Range{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Seq, e.Kind, e.Role, e.Text())
	}

	// Somebody else appends while we follow from where we stopped reading.
	go store.Append(ctx, "trip", hansard.Batch{
		Events: []hansard.Event{hansard.Message("assistant", "There is one at 9:05")},
	})
	for e, err := range hansard.Follow(ctx, store, "trip", receipt.Last) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Seq, e.Kind, e.Role, e.Text())
		break
	}

	// Output:
	// stored 1 to 2
	// 1 message user Find me a train
	// 2 tool_call assistant {"tool":"trains"}
	// 3 message assistant There is one at 9:05
}

// Expect makes an append a compare-and-swap: it is stored only if nothing came in between.
func ExampleBatch_expect() {
	ctx := context.Background()
	store := memstore.New()
	defer store.Close()
	note := func(text string) []hansard.Event {
		return []hansard.Event{hansard.Message("user", text)}
	}

	store.Append(ctx, "plan", hansard.Batch{Events: note("first"), Create: true})
	store.Append(ctx, "plan", hansard.Batch{Events: note("from elsewhere")})

	_, err := store.Append(ctx, "plan", hansard.Batch{Events: note("mine"), Expect: hansard.At(1)})
	var conflict *hansard.ConflictError
	if errors.As(err, &conflict) {
		fmt.Println(err)
		fmt.Println("hint:", hansard.Hint(err))
		receipt, _ := store.Append(ctx, "plan", hansard.Batch{Events: note("mine"), Expect: hansard.At(conflict.Actual)})
		fmt.Println("stored at", receipt.First)
	}

	// Output:
	// conflict in session plan: expected last seq 1, it is 2
	// hint: read what was appended meanwhile and try again with the new last seq
	// stored at 3
}

// Key makes a retry harmless: the batch is stored once, however often it is sent.
func ExampleBatch_key() {
	ctx := context.Background()
	store := memstore.New()
	defer store.Close()

	message := hansard.Batch{
		Events: []hansard.Event{hansard.Message("user", "Book it")},
		Key:    "message-4711",
		Create: true,
	}
	for range 2 {
		receipt, err := store.Append(ctx, "trip", message)
		fmt.Println(receipt.First, receipt.Replayed, err)
	}

	// Output:
	// 1 false <nil>
	// 1 true <nil>
}

// A first program: one message stored, and read again.
func ExampleMessage() {
	ctx := context.Background()
	store := memstore.New() // or filestore.Open, pgstore.Open, client.New
	defer store.Close()

	_, err := store.Append(ctx, "demo", hansard.Batch{
		Create: true,
		Events: []hansard.Event{hansard.Message("user", "What is the capital of Peru?")},
	})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range store.Read(ctx, "demo", hansard.Range{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Seq, e.Role, e.Text())
	}

	// Output:
	// 1 user What is the capital of Peru?
}

// Text is for events that Message does not make: those with an author, another kind, or left to
// the holder of the turn.
func ExampleText() {
	note := hansard.Event{Kind: "note", Author: "ada", Inbox: true, Data: hansard.Text("Lima is <1 h> by plane")}
	fmt.Println(string(note.Data))

	// Output:
	// "Lima is <1 h> by plane"
}
