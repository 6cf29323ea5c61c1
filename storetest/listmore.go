package storetest

import (
	"fmt"
	"slices"
	"time"

	"hansard"
)

// wantList compares the list of a query, and its count, with ids in any order.
func (x *env) wantList(q hansard.Query, want ...hansard.SessionID) {
	x.Helper()
	list := x.list(q)
	if !slices.IsSortedFunc(list, inOrder(q.Order)) {
		x.Errorf("%+v is out of order: %q", q, ids(list))
	}
	got := ids(list)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		x.Errorf("%+v gives %q, want %q", q, got, want)
	}
	if n, err := hansard.Count(x.ctx, x.store, q); err != nil || n != len(want) {
		x.Errorf("%+v counts %d (%v), want %d", q, n, err, len(want))
	}
}

func listRanges(x *env) {
	var all []hansard.Info
	var newest hansard.Info
	for i := range 5 {
		id := hansard.SessionID(fmt.Sprint("s", i))
		x.create(id)
		newest = x.touch(id, newest) // later than the one before, and so is the creation of the next
		all = append(all, newest)
	}
	// Updated in a different order than created.
	for _, i := range []int{3, 0} {
		newest = x.touch(all[i].ID, newest)
		all[i] = newest
	}
	for _, order := range []hansard.Order{hansard.OrderUpdated, hansard.OrderCreated} {
		check := func(q hansard.Query, in func(i hansard.Info) bool) {
			x.Helper()
			q.Order = order
			var want []hansard.SessionID
			for _, i := range all {
				if in(i) {
					want = append(want, i.ID)
				}
			}
			x.wantList(q, want...)
			if got := ids(once(x.paged(q, 2))); len(got) != len(want) {
				x.Errorf("%+v gives %q in pages, want %q", q, got, want)
			}
		}
		for _, a := range all {
			check(hansard.Query{Before: a.Updated}, func(i hansard.Info) bool { return i.Updated.Before(a.Updated) })
			check(hansard.Query{Before: a.Updated.Add(time.Microsecond)}, func(i hansard.Info) bool { return !i.Updated.After(a.Updated) })
			check(hansard.Query{CreatedSince: a.Created}, func(i hansard.Info) bool { return !i.Created.Before(a.Created) })
			check(hansard.Query{CreatedSince: a.Created.Add(time.Microsecond)}, func(i hansard.Info) bool { return i.Created.After(a.Created) })
			check(hansard.Query{CreatedBefore: a.Created}, func(i hansard.Info) bool { return i.Created.Before(a.Created) })
			check(hansard.Query{CreatedBefore: a.Created.Add(time.Microsecond)}, func(i hansard.Info) bool { return !i.Created.After(a.Created) })
			for _, b := range all {
				check(hansard.Query{Since: a.Updated, Before: b.Updated, CreatedSince: b.Created},
					func(i hansard.Info) bool {
						return !i.Updated.Before(a.Updated) && i.Updated.Before(b.Updated) && !i.Created.Before(b.Created)
					})
			}
		}
	}
}

func listHeld(x *env) {
	for _, id := range []hansard.SessionID{"free", "held", "released"} {
		x.createWith(id, hansard.Meta{Labels: map[string]string{"team": "red"}})
	}
	held := hansard.Query{Held: true}
	x.wantList(held)
	turns := map[hansard.SessionID]hansard.Turn{}
	for _, id := range []hansard.SessionID{"held", "released"} {
		turn, err := x.store.Acquire(x.ctx, id, hansard.Claim{})
		if err != nil {
			x.Fatal(err)
		}
		turns[id] = turn
	}
	x.wantList(held, "held", "released")
	if err := x.store.Release(x.ctx, "released", turns["released"].Grant); err != nil {
		x.Fatal(err)
	}
	x.wantList(held, "held")
	x.wantList(hansard.Query{Held: true, Order: hansard.OrderCreated}, "held")
	x.wantList(hansard.Query{Held: true, Labels: map[string]string{"team": "red"}, Text: "HEL"}, "held")
	x.wantList(hansard.Query{Held: true, IDs: []hansard.SessionID{"held", "free"}}, "held")
	x.wantList(hansard.Query{Held: true, Labels: map[string]string{"team": "blue"}})
	x.wantList(hansard.Query{Damaged: true})
	x.wantList(hansard.Query{Damaged: true, Held: true, Order: hansard.OrderCreated})
	if err := x.store.Release(x.ctx, "held", turns["held"].Grant); err != nil {
		x.Fatal(err)
	}
}

func listArchived(x *env) {
	x.create("plain")
	x.createWith("away", hansard.Meta{Labels: map[string]string{hansard.LabelArchived: "true", "team": "red"}})
	x.createWith("empty", hansard.Meta{Labels: map[string]string{hansard.LabelArchived: ""}})
	x.createWith("near", hansard.Meta{Title: "archived", Labels: map[string]string{"Archived": "true", "archive": "d=", "archived-by": "me", "archived\x01": "x", "team": "red"}})
	for _, order := range []hansard.Order{hansard.OrderUpdated, hansard.OrderCreated} {
		x.wantList(hansard.Query{Order: order}, "plain", "away", "empty", "near")
		x.wantList(hansard.Query{Order: order, Archived: hansard.ArchivedNo}, "plain", "near")
		x.wantList(hansard.Query{Order: order, Archived: hansard.ArchivedOnly}, "away", "empty")
		x.wantList(hansard.Query{Order: order, Archived: hansard.ArchivedOnly, Labels: map[string]string{"team": "red"}}, "away")
		x.wantList(hansard.Query{Order: order, Archived: hansard.ArchivedNo, Text: "a"}, "plain", "near")
	}
	x.append("plain", hansard.Batch{Patch: &hansard.Patch{Labels: map[string]*string{hansard.LabelArchived: ptr("now")}}})
	x.append("away", hansard.Batch{Patch: &hansard.Patch{Labels: map[string]*string{hansard.LabelArchived: nil}}})
	x.wantList(hansard.Query{Archived: hansard.ArchivedNo}, "away", "near")
	x.wantList(hansard.Query{Archived: hansard.ArchivedOnly}, "plain", "empty")
	if info := x.stat("plain"); !info.Archived() || x.stat("away").Archived() {
		x.Errorf("Archived is wrong: %+v", info)
	}
}

func listCount(x *env) {
	x.wantList(hansard.Query{})
	for i := range 12 {
		x.createWith(hansard.SessionID(fmt.Sprint("s", i)), hansard.Meta{Labels: map[string]string{"third": fmt.Sprint(i%3 == 0), "odd": fmt.Sprint(i%2 == 1)}})
	}
	x.delete("s3")
	cursor := x.list(hansard.Query{Limit: 4})[3].Cursor
	for q, want := range map[*hansard.Query]int{
		{}: 11, {Limit: 2}: 11, {Cursor: cursor}: 11, {Order: hansard.OrderCreated}: 11,
		{Labels: map[string]string{"third": "true"}}: 3, {Labels: map[string]string{"third": "true", "odd": "true"}}: 1,
		{Labels: map[string]string{"third": "none"}}: 0, {Text: "S1"}: 3, {Prefix: "s1"}: 3, {IDs: []hansard.SessionID{"s3", "s4", "s4"}}: 1,
	} {
		if n, err := hansard.Count(x.ctx, x.store, *q); err != nil || n != want {
			x.Errorf("%+v counts %d (%v), want %d", *q, n, err, want)
		}
	}
}

// listPagesWhileWritten writes between any two pages: to sessions that were already
// listed, to others, and each time to one particular session, so that it always
// moves.
func listPagesWhileWritten(x *env) {
	const sessions = 12
	for _, order := range []hansard.Order{hansard.OrderUpdated, hansard.OrderCreated} {
		for limit := 1; limit <= 5; limit += 2 {
			var all []hansard.SessionID
			for i := range sessions {
				id := hansard.SessionID(fmt.Sprintf("o%d-%d-%d", order, limit, i))
				x.create(id)
				all = append(all, id)
			}
			q := hansard.Query{Order: order, Limit: limit, Prefix: fmt.Sprintf("o%d-%d-", order, limit)}
			times := map[hansard.SessionID]int{}
			for page := 0; ; page++ {
				list := x.list(q)
				for _, i := range list {
					times[i.ID]++
				}
				if len(list) < limit {
					break
				}
				if page > 4*sessions {
					x.Fatalf("the pages do not end: %v", times)
				}
				q.Cursor = list[len(list)-1].Cursor
				// The one that always moves, some that are yet to be listed, and any.
				x.append(all[0], texts("x"))
				for _, id := range all {
					if times[id] == 0 && x.rng.IntN(2) == 0 {
						x.append(id, texts("x"))
					}
				}
				x.append(all[x.rng.IntN(len(all))], texts("x"))
				if page%3 == 0 {
					x.create(hansard.SessionID(fmt.Sprintf("o%d-%d-new%d", order, limit, page)))
				}
			}
			for _, id := range all {
				if n := times[id]; n < 1 || n > 2 || n > 1 && order == hansard.OrderCreated {
					x.Errorf("in pages of %d, order %d, session %s came %d times", limit, order, id, n)
				}
			}
		}
	}
}
