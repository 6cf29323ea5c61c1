package storetest

import (
	"context"
	"errors"
	"fmt"

	"hansard"
)

var pruneCases = []Case{
	{Name: "prune/only what is deleted", run: pruneOnlyDeleted,
		Defends: "pruning takes nothing from a session that was not deleted: its events, metadata, keys, ids, turn and attachments stay, also those that no event names yet"},
	{Name: "prune/stays deleted", run: pruneStaysDeleted,
		Defends: "a session whose content was taken away is still deleted: its id is taken for ever, and a second prune finds nothing", Answers: "32"},
	{Name: "prune/while others write", run: pruneWhileWriting,
		Defends: "pruning at any time loses no acknowledged event and brings back no deleted session"},
	{Name: "prune/refused", run: pruneRefused,
		Defends: "a prune whose context ended or whose store is closed says so"},
}

// pruner is the store as a [hansard.Pruner]. The second result is false if it is not one,
// or is a server on a store that is not one: then there is nothing to prune.
func (x *env) pruner() (prune func(ctx context.Context) (hansard.Pruned, error), ok bool) {
	x.Helper()
	p, ok := x.store.(hansard.Pruner)
	if !ok {
		return nil, false
	}
	if _, err := p.Prune(x.ctx, false); errors.Is(err, hansard.ErrUnsupported) {
		return nil, false
	}
	return func(ctx context.Context) (all hansard.Pruned, err error) {
		all, err = p.Prune(ctx, false)
		if err != nil {
			return all, err
		}
		// Scrubbing removes more, if there is anything to scrub.
		more, err := p.Prune(ctx, true)
		if errors.Is(err, hansard.ErrUnsupported) {
			err = nil
		}
		all.Erased = append(all.Erased, more.Erased...)
		all.Attachments = append(all.Attachments, more.Attachments...)
		return all, err
	}, true
}

func (x *env) prune(prune func(ctx context.Context) (hansard.Pruned, error)) hansard.Pruned {
	x.Helper()
	done, err := prune(x.ctx)
	if err != nil {
		x.Fatalf("Prune: %v", err)
	}
	return done
}

func pruneOnlyDeleted(x *env) {
	prune, ok := x.pruner()
	if !ok {
		return
	}
	x.createWith("a.5", richMeta)
	named, unnamed := x.attach("a.5", "a picture"), x.attach("a.5", "not named yet")
	first := hansard.Batch{Key: "k", Events: []hansard.Event{with("one", named)}}
	first.Events[0].ID = "m1"
	x.append("a.5", first)
	turn, err := x.store.Acquire(x.ctx, "a.5", hansard.Claim{Label: "holder"})
	if err != nil {
		x.Fatal(err)
	}
	want := x.stat("a.5")
	for _, id := range []hansard.SessionID{"a", "a.", "b"} { // prefixes of other ids
		x.createWith(id, richMeta)
		x.attach(id, "a picture")
		x.append(id, texts("gone"))
		x.delete(id)
	}
	if done := x.prune(prune); len(done.Attachments) > 0 {
		x.Errorf("Prune removed attachments that are not a day old: %q", done.Attachments)
	}
	check := func(where string) {
		x.Helper()
		if got := x.stat("a.5"); got.LastSeq != want.LastSeq || got.Title != want.Title || string(got.State) != string(want.State) || got.Damaged() {
			x.Errorf("%s: %+v, want %+v", where, got, want)
		}
		x.wantAttached(where, x.store, "a.5", []byte("a picture"))
		x.wantAttached(where, x.store, "a.5", []byte("not named yet"))
		if r := x.append("a.5", first); !r.Replayed || r.First != 1 {
			x.Errorf("%s: the batch with a key again: %+v", where, r)
		}
		again := first
		again.Key = ""
		if r := x.append("a.5", again); !r.Replayed || len(r.Seqs) != 1 || r.Seqs[0] != 1 {
			x.Errorf("%s: the event with an id again: %+v", where, r)
		}
	}
	check("after pruning")
	if err := x.store.Renew(x.ctx, "a.5", turn.Grant); err != nil {
		x.Errorf("the turn after pruning: %v", err)
	}
	x.append("a.5", hansard.Batch{Turn: turn.Grant, Events: []hansard.Event{with("two", unnamed)}})
	if err := x.store.Release(x.ctx, "a.5", turn.Grant); err != nil {
		x.Errorf("Release: %v", err)
	}
	want = x.stat("a.5")
	x.reopen()
	check("opened again")
}

func pruneStaysDeleted(x *env) {
	prune, ok := x.pruner()
	if !ok {
		return
	}
	x.createWith("s", richMeta)
	x.append("s", texts("one", "two"))
	x.attach("s", "a picture")
	x.create("t")
	x.append("t", texts("stays"))
	x.delete("s")
	x.prune(prune)
	for range 2 {
		x.wantGone("s")
		x.wantTexts("t", "stays")
		if again := x.prune(prune); len(again.Erased) > 0 {
			x.Errorf("a prune after a prune erased %+v", again.Erased)
		}
		x.reopen()
		if prune, ok = x.pruner(); !ok {
			x.Fatal("the store can't be pruned once it is opened again")
		}
	}
}

func pruneWhileWriting(x *env) {
	prune, ok := x.pruner()
	if !ok {
		return
	}
	const rounds = 12
	x.create("live")
	x.each(3, "worker", func(worker int) error {
		for i := range rounds {
			if worker == 0 {
				if _, err := prune(x.ctx); err != nil {
					return fmt.Errorf("Prune: %w", err)
				}
				continue
			}
			b := texts(fmt.Sprint(worker, " ", i))
			b.Key = fmt.Sprint(worker, " ", i)
			if _, err := x.store.Append(x.ctx, "live", b); err != nil {
				return err
			}
			id := hansard.SessionID(fmt.Sprint("short", worker, ".", i))
			short := texts("gone")
			short.Create = true
			if _, err := x.store.Append(x.ctx, id, short); err != nil {
				return err
			}
			if err := x.store.Delete(x.ctx, id, ""); err != nil {
				return err
			}
		}
		return nil
	})
	if got := len(x.all("live")); got != 2*rounds {
		x.Errorf("%d events are left of %d", got, 2*rounds)
	}
	for worker := 1; worker < 3; worker++ {
		for i := range rounds {
			id := hansard.SessionID(fmt.Sprint("short", worker, ".", i))
			if _, err := x.store.Stat(x.ctx, id); !errors.Is(err, hansard.ErrDeleted) {
				x.Errorf("Stat of deleted %s: %v", id, err)
			}
		}
	}
}

func pruneRefused(x *env) {
	prune, ok := x.pruner()
	if !ok {
		return
	}
	ended, cancel := context.WithCancel(x.ctx)
	cancel()
	_, err := prune(ended)
	x.wantErr("Prune under a context that ended", err, context.Canceled)
	if err := x.store.Close(); err != nil {
		x.Fatal(err)
	}
	_, err = prune(x.ctx)
	x.wantErr("Prune of a closed store", err, hansard.ErrClosed)
}
