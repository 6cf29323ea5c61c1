package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"hansard"
)

var closeCases = []Case{
	{Name: "close/twice", run: closeTwice,
		Defends: "closing twice, or from many goroutines at once, is harmless"},
	{Name: "close/refuses", run: closeRefuses,
		Defends: "a closed store answers every call with ErrClosed, before it checks anything else"},
	{Name: "close/releases", run: closeReleases,
		Defends: "closing releases everyone who waits or follows"},
	{Name: "close/during appends", run: closeDuringAppends,
		Defends: "an append that runs while the store is closed is either acknowledged and kept, or refused and not stored", Answers: "19 25"},
	{Name: "close/one handle", run: closeOneHandle, needs: needsAnother,
		Defends: "closing one handle leaves the others and the data as they are"},
	{Name: "close/keeps all", run: closeKeepsAll, needs: needsReopen,
		Defends: "everything that was acknowledged is there after opening again: logs, metadata, times, keys, deletions", Answers: "F1 23"},
}

func closeTwice(x *env) {
	x.create("s")
	x.each(4, "close", func(int) error { return x.store.Close() })
	if err := x.store.Close(); err != nil {
		x.Errorf("Close again: %v", err)
	}
}

func closeRefuses(x *env) {
	x.create("s")
	x.append("s", texts("one"))
	if err := x.store.Close(); err != nil {
		x.Fatalf("Close: %v", err)
	}
	for _, id := range []hansard.SessionID{"s", "never", "../invalid"} {
		for _, call := range calls(x.ctx, x.store, id) {
			x.wantErr(fmt.Sprintf("%s(%q)", call.name, id), call.do(), hansard.ErrClosed)
		}
	}
	_, err := listAll(x.ctx, x.store, hansard.Query{})
	x.wantErr("List", err, hansard.ErrClosed)
}

func closeReleases(x *env) {
	x.create("s")
	x.append("s", texts("one"))
	var waiting []*task
	for range 6 {
		waiting = append(waiting, x.start("Wait on a store that is closed", func() error { return x.store.Wait(x.ctx, "s", 1) }))
	}
	seen := make(chan struct{})
	following := x.start("Follow on a store that is closed", func() error {
		for _, err := range hansard.Follow(x.ctx, x.store, "s", 0) {
			if err != nil {
				return err
			}
			close(seen)
		}
		return errors.New("ended without an error")
	})
	following.reaches("the end", seen)
	letOthersRun()
	x.start("Close", x.store.Close).finish()
	for _, w := range append(waiting, following) {
		x.wantErr(w.what, w.result(), hansard.ErrClosed)
	}
}

func closeDuringAppends(x *env) {
	x.create("s")
	var mu sync.Mutex // guards acks
	var acks []Ack
	enough := make(chan struct{})
	var writers []*task
	for i := range 8 {
		w := writer{Name: fmt.Sprint("w", i), Sessions: []hansard.SessionID{"s"}, Largest: 4, PadBytes: 100}
		writers = append(writers, x.start("writer", func() error {
			return w.run(x.ctx, x.store, func(r report) {
				mu.Lock()
				defer mu.Unlock()
				if acks = append(acks, *r.Ack); len(acks) == 40 {
					close(enough)
				}
			})
		}))
	}
	x.within("some appends are acknowledged", enough)
	x.start("Close", x.store.Close).finish()
	for _, w := range writers {
		if err := w.result(); !errors.Is(err, hansard.ErrClosed) && !errors.Is(err, hansard.ErrUnknown) {
			x.Errorf("an append during Close: %v", err)
		}
	}
	if x.engine.Reopen == nil {
		return
	}
	x.reopen()
	if err := CheckLog(x.all("s"), acks); err != nil {
		x.Error(err)
	}
	x.append("s", hansard.Batch{Events: Marked("after", 0, 1, 0)})
}

func closeOneHandle(x *env) {
	x.create("s")
	x.append("s", texts("one"))
	other := x.handles(2)[1]
	waiting := x.start("Wait on the handle that stays", func() error { return x.store.Wait(x.ctx, "s", 3) })
	if _, err := other.Append(x.ctx, "s", keyed("k", "two")); err != nil {
		x.Fatal(err)
	}
	if err := other.Close(); err != nil {
		x.Fatalf("Close: %v", err)
	}
	_, err := other.Stat(x.ctx, "s")
	x.wantErr("Stat on the closed handle", err, hansard.ErrClosed)
	x.append("s", texts("three"))
	if r := x.append("s", keyed("k", "two")); !r.Replayed {
		x.Errorf("the key of the closed handle: %+v", r)
	}
	x.append("s", texts("four"))
	waiting.finish()
	x.wantTexts("s", "one", "two", "three", "four")
	third := x.handles(2)[1]
	if events, err := readRange(x.ctx, third, "s", hansard.Range{}); err != nil || len(events) != 4 {
		x.Errorf("a new handle reads %d events: %v", len(events), err)
	}
}

func closeKeepsAll(x *env) {
	x.createWith("rich", richMeta)
	x.create("empty")
	x.create("gone")
	x.append("gone", texts("one"))
	x.delete("gone")
	x.createKinds("log", kindsOf)
	b := keyed("k", "keyed")
	b.Patch = &hansard.Patch{Title: ptr("patched"), State: []byte(`{"a":[1.50]}`)}
	receipt := x.append("log", b)
	x.append("log", texts(strings.Repeat("long ", 50_000)))
	for range 3 {
		before, err := snapshot(x.ctx, x.store)
		if err != nil {
			x.Fatal(err)
		}
		x.reopen()
		after, err := snapshot(x.ctx, x.store)
		if err != nil {
			x.Fatal(err)
		}
		if len(after) != 3 {
			x.Errorf("%d sessions, want 3", len(after))
		}
		for id := range before {
			if diff := diffInfo(after[id].info, before[id].info); diff != "" {
				x.Errorf("session %s: %s", id, diff)
			}
			if diff := diffEvents(after[id].events, before[id].events); diff != "" {
				x.Errorf("session %s: %s", id, diff)
			}
		}
		x.wantGone("gone")
		receipt.Replayed = true
		if r := x.append("log", b); !sameReceipt(r, receipt) {
			x.Errorf("the key: %+v, want %+v", r, receipt)
		}
		x.append("log", texts("and on"))
	}
}
