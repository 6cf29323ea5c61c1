package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"hansard"
)

var deleteCases = []Case{
	{Name: "delete/stays deleted", run: deleteStays,
		Defends: "every call on a deleted session says that it was deleted, for ever; nothing brings it back", Answers: "32 53"},
	{Name: "delete/not listed", run: deleteNotListed,
		Defends: "a deleted session is in no list, and its deletion affects no other session", Answers: "46"},
	{Name: "delete/key", run: deleteKey,
		Defends: "a retry of a batch that was stored in a session deleted since learns that it was deleted", Answers: "32 36"},
	{Name: "delete/once", run: deleteOnce,
		Defends: "if many delete a session at once, one does, and the others learn that it was deleted", Answers: "32"},
	{Name: "delete/racing appends", run: deleteRacingAppends,
		Defends: "every acknowledged append came before the deletion, and none that began after it is stored", Answers: "32"},
	{Name: "delete/empty", run: deleteEmpty,
		Defends: "a session without events is deleted like any other"},
}

func (x *env) wantGone(id hansard.SessionID) {
	x.Helper()
	for _, call := range calls(x.ctx, x.store, id) {
		x.wantErr(fmt.Sprintf("%s of deleted %s", call.name, id), call.do(), hansard.ErrDeleted)
	}
}

func deleteStays(x *env) {
	x.createWith("s", richMeta)
	x.append("s", texts("one", "two"))
	x.delete("s")
	x.wantGone("s")
	expecting := texts("x")
	expecting.Create, expecting.Expect = true, hansard.At(0)
	x.refused(hansard.ErrDeleted, "s", expecting)
	for range 2 {
		x.reopen()
		x.wantGone("s")
	}
}

func deleteNotListed(x *env) {
	family := []hansard.SessionID{"a", "ab", "abc", "a.b", "a-b", "b", "A", "a~"}
	for _, id := range family {
		x.createWith(id, hansard.Meta{Title: "the same", Labels: map[string]string{"l": "v"}})
		x.append(id, texts(string(id)))
	}
	x.delete("a")
	x.delete("ab")
	check := func() {
		x.Helper()
		for _, q := range []hansard.Query{{}, {Labels: map[string]string{"l": "v"}}, {Text: "same"}} {
			got := ids(x.list(q))
			slices.Sort(got)
			if want := []hansard.SessionID{"A", "a-b", "a.b", "abc", "a~", "b"}; !slices.Equal(got, want) {
				x.Errorf("%+v gives %q, want %q", q, got, want)
			}
		}
		for _, id := range family[2:] {
			x.wantTexts(id, string(id))
		}
	}
	check()
	x.reopen()
	check()
}

func deleteKey(x *env) {
	x.create("s")
	x.append("s", keyed("k", "one"))
	x.delete("s")
	b := keyed("k", "one")
	x.refused(hansard.ErrDeleted, "s", b)
	b.Create = true
	x.refused(hansard.ErrDeleted, "s", b)
	x.refused(hansard.ErrDeleted, "s", keyed("k", "other"))
}

func deleteOnce(x *env) {
	handles := x.handles(3)
	for round := range 8 {
		id := hansard.SessionID(fmt.Sprint("s", round))
		x.create(id)
		var deleted atomic.Int32
		x.each(9, "delete", func(i int) error {
			err := handles[i%len(handles)].Delete(x.ctx, id, "")
			if err == nil {
				deleted.Add(1)
				return nil
			}
			if !errors.Is(err, hansard.ErrDeleted) {
				return err
			}
			return nil
		})
		if deleted.Load() != 1 {
			x.Errorf("%d deleted session %s, want 1", deleted.Load(), id)
		}
		x.wantGone(id)
	}
}

func deleteRacingAppends(x *env) {
	handles := x.handles(3)
	for round := range 6 {
		id := hansard.SessionID(fmt.Sprint("s", round))
		var gone atomic.Bool // the deletion was acknowledged
		var mu sync.Mutex    // guards acked
		var acked []hansard.Receipt
		started := make(chan struct{})
		begin := sync.OnceFunc(func() { close(started) })
		deleting := x.start("delete", func() error {
			select {
			case <-started:
			case <-x.ctx.Done():
				return x.ctx.Err()
			}
			letOthersRun()
			err := handles[round%len(handles)].Delete(x.ctx, id, "")
			gone.Store(true)
			return err
		})
		x.each(6, "append", func(i int) error {
			for n := 0; ; n++ {
				was := gone.Load()
				b := texts(fmt.Sprint(i, " ", n), "and")
				b.Create = true // the call most likely to revive it
				r, err := handles[i%len(handles)].Append(x.ctx, id, b)
				switch {
				case errors.Is(err, hansard.ErrDeleted):
					return nil
				case err != nil:
					return err
				case was:
					return fmt.Errorf("stored at %d after the deletion was acknowledged", r.First)
				}
				mu.Lock()
				acked = append(acked, r)
				mu.Unlock()
				begin()
			}
		})
		deleting.finish()
		slices.SortFunc(acked, func(a, b hansard.Receipt) int { return int(a.First) - int(b.First) })
		for i, r := range acked {
			if want := hansard.Seq(2*i + 1); r.First != want || r.Last != want+1 {
				x.Fatalf("acknowledged batch %d is at %d to %d, want %d", i, r.First, r.Last, want)
			}
		}
		x.wantGone(id)
	}
}

func deleteEmpty(x *env) {
	x.create("s")
	x.delete("s")
	x.wantGone("s")
	x.reopen()
	x.wantGone("s")
}
