package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"hansard"
	"hansard/engine"
)

var listCases = []Case{
	{Name: "list/newest first", run: listNewestFirst,
		Defends: "sessions are listed by their last event, newest first, and an append brings one to the front", Answers: "37"},
	{Name: "list/filters", run: listFilters,
		Defends: "labels, text and since filter correctly, alone and together, and see patches at once"},
	{Name: "list/created", run: listCreated,
		Defends: "sessions may be listed by when they were created, newest first; appends change nothing about that order"},
	{Name: "list/prefix", run: listPrefix,
		Defends: "a prefix keeps the sessions whose ids begin with it, byte for byte, whatever else is asked"},
	{Name: "list/ids", run: listIDs,
		Defends: "a list of some ids has those of them that exist, and no others"},
	{Name: "list/ranges", run: listRanges,
		Defends: "ranges of the times of creation and update keep what is in them, the beginning included and the end not"},
	{Name: "list/held", run: listHeld,
		Defends: "held sessions can be listed alone, from the grant to the release; damaged ones too, and a sound store has none"},
	{Name: "list/archived", run: listArchived,
		Defends: "an archived session is one with that label, whatever its value; lists have them, leave them out or have no others, as they are asked"},
	{Name: "list/count", run: listCount,
		Defends: "a count is the length of the list without limit and cursor"},
	{Name: "list/pages", run: listPages,
		Defends: "the pages of a list have each session, in the order of the whole list; by update recent ones may come once more at the end", Answers: "45"},
	{Name: "list/pages while written", run: listPagesWhileWritten,
		Defends: "over pages no session is skipped although sessions are updated, created and deleted between any two of them; none comes more than twice, and the pages end", Answers: "45"},
	{Name: "list/invalid", run: listInvalid,
		Defends: "a cursor that no list of this order returned, a negative limit, a prefix or an id that can't be one are refused, also by an empty store"},
	{Name: "list/registrations", run: listRegistrations,
		Defends: "N concurrent registrations, by Create or by Append, give N entries", Answers: "F4 40 41 42"},
	{Name: "list/complete", run: listComplete,
		Defends: "a session is in every list from the moment it is created, while others are created and written to", Answers: "F4 43"},
	{Name: "list/break", run: listBreak,
		Defends: "a list may be abandoned at any entry, and calls may be made while it runs"},
	{Name: "list/reopened", run: listReopened,
		Defends: "the list is the same after opening again: nothing vanishes, nothing comes back", Answers: "42 43 44", needs: needsReopen},
}

// touch appends to a session until it is the newest: clocks have limited resolution.
func (x *env) touch(id hansard.SessionID, newerThan hansard.Info) hansard.Info {
	x.Helper()
	for {
		x.append(id, texts("touched"))
		if info := x.stat(id); info.Updated.After(newerThan.Updated) {
			return info
		}
	}
}

func listNewestFirst(x *env) {
	var newest hansard.Info
	want := []hansard.SessionID{}
	for _, id := range []hansard.SessionID{"m", "b", "z", "a", "k"} {
		x.create(id)
		newest = x.touch(id, newest)
		want = slices.Insert(want, 0, id)
	}
	check := func() {
		x.Helper()
		if got := ids(x.list(hansard.Query{})); !slices.Equal(got, want) {
			x.Errorf("the list is %q, want %q", got, want)
		}
	}
	check()
	for _, id := range []hansard.SessionID{"z", "m", "m", "k"} {
		newest = x.touch(id, newest)
		want = slices.DeleteFunc(want, func(i hansard.SessionID) bool { return i == id })
		want = slices.Insert(want, 0, id)
		check()
	}
	x.create("empty")
	list := x.list(hansard.Query{})
	if !slices.IsSortedFunc(list, byNewer) {
		x.Errorf("with an empty session the list is %q, not by time", ids(list))
	}
	x.reopen()
	list = slices.DeleteFunc(x.list(hansard.Query{}), func(i hansard.Info) bool { return i.ID == "empty" })
	if !slices.Equal(ids(list), want) {
		x.Errorf("after opening again the list is %q, want %q", ids(list), want)
	}
}

func byNewer(a, b hansard.Info) int { return inOrder(hansard.OrderUpdated)(a, b) }

// inOrder compares sessions by their place in a list of an order.
func inOrder(o hansard.Order) func(a, b hansard.Info) int {
	return func(a, b hansard.Info) int {
		switch {
		case engine.NewerBy(o, &a, &b):
			return -1
		case engine.NewerBy(o, &b, &a):
			return 1
		}
		return 0
	}
}

func listCreated(x *env) {
	var newest hansard.Info
	want := []hansard.SessionID{}
	for _, id := range []hansard.SessionID{"m", "b", "z", "a", "k"} {
		x.createWith(id, hansard.Meta{Labels: map[string]string{"team": "red"}})
		for !x.stat(id).Created.After(newest.Created) { // clocks have limited resolution
			x.delete(id)
			id += "x"
			x.createWith(id, hansard.Meta{Labels: map[string]string{"team": "red"}})
		}
		newest = x.stat(id)
		want = slices.Insert(want, 0, id)
	}
	check := func() {
		x.Helper()
		for _, q := range []hansard.Query{{}, {Labels: map[string]string{"team": "red"}}, {Limit: 3}, {Since: x.stat(want[2]).Created}, {IDs: want[1:4]}} {
			q.Order = hansard.OrderCreated
			wanted := want
			if q.Limit > 0 {
				wanted = want[:q.Limit]
			}
			if len(q.IDs) > 0 {
				wanted = q.IDs
			}
			if !q.Since.IsZero() { // only those updated since
				wanted = slices.DeleteFunc(slices.Clone(want), func(id hansard.SessionID) bool { return x.stat(id).Updated.Before(q.Since) })
			}
			if got := ids(x.list(q)); !slices.Equal(got, wanted) {
				x.Errorf("%+v gives %q, want %q", q, got, wanted)
			}
		}
	}
	check()
	last := newest
	for _, id := range []hansard.SessionID{want[4], want[2], want[4]} {
		last = x.touch(id, last)
		check()
	}
	if got := x.list(hansard.Query{})[0].ID; got != want[4] {
		x.Errorf("by update %s is the first, want %s", got, want[4])
	}
	x.reopen()
	check()
}

func listPrefix(x *env) {
	all := []hansard.SessionID{"team", "team:", "team:a", "team:b.1", "team:b~", "team:B", "teams", "tea", "Team:a", "u"}
	for i, id := range all {
		x.createWith(id, hansard.Meta{Title: "team:", Labels: map[string]string{"odd": fmt.Sprint(i%2 == 1)}})
	}
	for i, q := range []hansard.Query{
		{Prefix: "team:"}, {Prefix: "team:b"}, {Prefix: "t"}, {Prefix: "team:b~"}, {Prefix: "team:c"}, {Prefix: "T"},
		{Prefix: "team", Text: "B"}, {Prefix: "team", Labels: map[string]string{"odd": "true"}}, {Prefix: "team:", IDs: []hansard.SessionID{"team:a", "u"}},
		{Prefix: "team", Order: hansard.OrderCreated}, {Prefix: "team", Order: hansard.OrderCreated, Labels: map[string]string{"odd": "true"}},
	} {
		want := slices.DeleteFunc(x.list(hansard.Query{Order: q.Order, Text: q.Text}), func(i hansard.Info) bool {
			odd, asked := q.Labels["odd"]
			return !strings.HasPrefix(string(i.ID), q.Prefix) || asked && i.Labels["odd"] != odd || len(q.IDs) > 0 && !slices.Contains(q.IDs, i.ID)
		})
		if i < 4 && len(want) == 0 {
			x.Fatalf("%+v is to give nothing", q)
		}
		if got := ids(x.list(q)); !slices.Equal(got, ids(want)) {
			x.Errorf("%+v gives %q, want %q", q, got, ids(want))
		}
		if got := ids(once(x.paged(q, 2))); !slices.Equal(got, ids(want)) {
			x.Errorf("%+v gives %q in pages, want %q", q, got, ids(want))
		}
	}
}

func listIDs(x *env) {
	for i := range 6 {
		x.createWith(hansard.SessionID(fmt.Sprint("s", i)), hansard.Meta{Labels: map[string]string{"odd": fmt.Sprint(i%2 == 1)}})
	}
	x.delete("s4")
	check := func(q hansard.Query, want ...hansard.SessionID) {
		x.Helper()
		list := x.list(q)
		if !slices.IsSortedFunc(list, inOrder(q.Order)) {
			x.Errorf("%+v is out of order: %q", q, ids(list))
		}
		got := ids(list)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			x.Errorf("%+v gives %q, want %q", q, got, want)
		}
	}
	some := []hansard.SessionID{"s5", "s1", "s4", "s0", "nowhere", "s1"}
	check(hansard.Query{IDs: some}, "s0", "s1", "s5")
	check(hansard.Query{IDs: some, Order: hansard.OrderCreated}, "s0", "s1", "s5")
	check(hansard.Query{IDs: some, Labels: map[string]string{"odd": "true"}}, "s1", "s5")
	check(hansard.Query{IDs: some, Text: "5"}, "s5")
	check(hansard.Query{IDs: []hansard.SessionID{"nowhere", "s4"}})
	check(hansard.Query{IDs: []hansard.SessionID{}}, "s0", "s1", "s2", "s3", "s5")
	for _, order := range []hansard.Order{hansard.OrderUpdated, hansard.OrderCreated} {
		q := hansard.Query{IDs: some, Order: order}
		if got, want := ids(once(x.paged(q, 1))), ids(x.list(q)); !slices.Equal(got, want) {
			x.Errorf("in pages %q, want %q", got, want)
		}
	}
	long := make([]hansard.SessionID, hansard.MaxQueryIDs)
	for i := range long {
		long[i] = hansard.SessionID(strings.Repeat("a:@+~", 26)[:hansard.MaxIDBytes-4] + fmt.Sprintf("%04d", i))
	}
	x.create(long[7])
	check(hansard.Query{IDs: long}, long[7])
}

func listFilters(x *env) {
	x.createWith("alpha", hansard.Meta{Title: "Über das Haus", Labels: map[string]string{"team": "red", "env": "prod"}})
	x.createWith("Beta-2", hansard.Meta{Title: "house rules 100%", Labels: map[string]string{"team": "blue", "env": "prod"}})
	x.createWith("gamma", hansard.Meta{Labels: map[string]string{"team": "", "odd name\n": "odd\nvalue"}})
	b := texts("the word house is in the log, not in the title")
	b.Create = true
	x.append("delta", b)
	check := func(q hansard.Query, want ...hansard.SessionID) {
		x.Helper()
		got := ids(x.list(q))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			x.Errorf("%+v gives %q, want %q", q, got, want)
		}
	}
	label := func(list ...string) map[string]string {
		out := make(map[string]string)
		for i := 0; i < len(list); i += 2 {
			out[list[i]] = list[i+1]
		}
		return out
	}
	check(hansard.Query{}, "alpha", "Beta-2", "gamma", "delta")
	check(hansard.Query{Labels: label("team", "red")}, "alpha")
	check(hansard.Query{Labels: label("env", "prod")}, "alpha", "Beta-2")
	check(hansard.Query{Labels: label("env", "prod", "team", "blue")}, "Beta-2")
	check(hansard.Query{Labels: label("env", "prod", "team", "green")})
	check(hansard.Query{Labels: label("team", "")}, "gamma")
	check(hansard.Query{Labels: label("nobody", "")})
	check(hansard.Query{Labels: label("Team", "red")})
	check(hansard.Query{Labels: label("odd name\n", "odd\nvalue")}, "gamma")
	check(hansard.Query{Text: "BETA"}, "Beta-2")
	check(hansard.Query{Text: "hAuS"}, "alpha")
	check(hansard.Query{Text: "über"}, "alpha")
	check(hansard.Query{Text: "ta"}, "Beta-2", "delta")
	check(hansard.Query{Text: "%"}, "Beta-2")
	check(hansard.Query{Text: "_"})
	check(hansard.Query{Text: "house"}, "Beta-2")
	check(hansard.Query{Text: "house", Labels: label("team", "red")})
	check(hansard.Query{Text: "a", Labels: label("env", "prod")}, "alpha", "Beta-2")

	x.append("alpha", hansard.Batch{Patch: &hansard.Patch{Title: ptr("Garten"), Labels: map[string]*string{"team": ptr("blue"), "env": nil}}})
	check(hansard.Query{Labels: label("team", "blue")}, "alpha", "Beta-2")
	check(hansard.Query{Labels: label("env", "prod")}, "Beta-2")
	check(hansard.Query{Labels: label("env", "")})
	check(hansard.Query{Text: "haus"})
	check(hansard.Query{Text: "GARTEN"}, "alpha")

	newest := x.list(hansard.Query{Limit: 1})[0]
	now := x.touch("gamma", newest)
	check(hansard.Query{Since: now.Updated}, "gamma")
	check(hansard.Query{Since: now.Updated.Add(1)})
	check(hansard.Query{Since: newest.Updated.Add(1)}, "gamma")
	check(hansard.Query{Since: now.Updated, Labels: label("team", "blue")})
	check(hansard.Query{Since: x.stat("delta").Created.Add(-1 << 40)}, "alpha", "Beta-2", "gamma", "delta")
}

func listPages(x *env) {
	for i := range 23 {
		x.createWith(hansard.SessionID(fmt.Sprint("s", i)), hansard.Meta{Labels: map[string]string{"odd": fmt.Sprint(i%2 == 1)}})
	}
	for range 10 {
		x.append(hansard.SessionID(fmt.Sprint("s", x.rng.IntN(23))), texts("x"))
	}
	for _, q := range []hansard.Query{{}, {Labels: map[string]string{"odd": "true"}}, {Text: "2"},
		{Order: hansard.OrderCreated}, {Order: hansard.OrderCreated, Labels: map[string]string{"odd": "true"}}, {Order: hansard.OrderCreated, Prefix: "s1"}} {
		whole := ids(x.list(q))
		if len(whole) < 5 {
			x.Fatalf("%+v gives only %q", q, whole)
		}
		for _, limit := range []int{1, 2, 5, len(whole), 100} {
			paged := x.paged(q, limit)
			if got := ids(once(paged)); !slices.Equal(got, whole) {
				x.Errorf("in pages of %d the list is %q, want %q", limit, got, whole)
			}
			if most := len(whole) * (2 - int(q.Order)); len(paged) > most {
				x.Errorf("in pages of %d there are %d sessions, want at most %d", limit, len(paged), most)
			}
		}
	}
	// A page continues after its cursor, even if that session is gone.
	list := x.list(hansard.Query{})
	x.delete(list[4].ID)
	rest := x.list(hansard.Query{Cursor: list[4].Cursor, Limit: 3})
	if want := ids(list[5:8]); !slices.Equal(ids(rest), want) {
		x.Errorf("behind a deleted session come %q, want %q", ids(rest), want)
	}
	if info := x.stat(list[0].ID); info.Cursor != "" {
		x.Errorf("Stat gives a cursor: %q", info.Cursor)
	}
}

// once drops sessions that occur again on a later page.
func once(infos []hansard.Info) (out []hansard.Info) {
	seen := make(map[hansard.SessionID]bool)
	for _, i := range infos {
		if !seen[i.ID] {
			out = append(out, i)
		}
		seen[i.ID] = true
	}
	return out
}

// paged lists page by page.
func (x *env) paged(q hansard.Query, limit int) []hansard.Info {
	x.Helper()
	var out []hansard.Info
	q.Limit = limit
	for {
		page := x.list(q)
		if len(page) > limit {
			x.Fatalf("a page of at most %d has %d sessions", limit, len(page))
		}
		out = append(out, page...)
		if len(page) < limit {
			return out
		}
		q.Cursor = page[len(page)-1].Cursor
		if len(out) > 10_000 {
			x.Fatal("the pages do not end")
		}
	}
}

func listInvalid(x *env) {
	check := func(when string) {
		x.Helper()
		for _, cursor := range []string{"nonsense", "AAAA", "%", "MTIz", " ", strings.Repeat("A", 10_000), "MTIzIC4uL3M"} {
			_, err := listAll(x.ctx, x.store, hansard.Query{Cursor: cursor})
			x.wantErr(fmt.Sprintf("%s: List with cursor %.20q", when, cursor), err, hansard.ErrInvalid)
		}
		cursor := func(c engine.Cursor, rest int) string {
			page := []hansard.Info{{ID: "s", Created: engine.Now(), Updated: engine.Now()}}
			c.Mark(page, rest, engine.Now())
			return page[0].Cursor
		}
		for _, q := range []hansard.Query{
			{Limit: -1}, {Order: -1}, {Order: 2}, {Prefix: "/"}, {Prefix: "a b"}, {Prefix: "a\x00"}, {Prefix: "\xff"}, {IDs: []hansard.SessionID{"ok", ""}}, {IDs: []hansard.SessionID{"../x"}},
			{Order: hansard.OrderCreated, Cursor: cursor(engine.Cursor{}, 1)}, {Order: hansard.OrderCreated, Cursor: cursor(engine.Cursor{}, 0)},
			{Cursor: cursor(engine.Cursor{Order: hansard.OrderCreated}, 1)}, {Archived: -1}, {Archived: 3},
		} {
			_, err := listAll(x.ctx, x.store, q)
			x.wantErr(fmt.Sprintf("%s: List(%+v)", when, q), err, hansard.ErrInvalid)
			_, err = hansard.Count(x.ctx, x.store, hansard.Query{Order: q.Order, Prefix: q.Prefix, Archived: q.Archived})
			if q.Order < 0 || q.Order > 1 || q.Prefix != "" || q.Archived != 0 {
				x.wantErr(fmt.Sprintf("%s: Count(%+v)", when, q), err, hansard.ErrInvalid)
			}
		}
		_, err := listAll(x.ctx, x.store, hansard.Query{IDs: slices.Repeat([]hansard.SessionID{"s"}, hansard.MaxQueryIDs+1)})
		x.wantErr(when+": List of too many ids", err, hansard.ErrTooLarge)
	}
	if list := x.list(hansard.Query{}); len(list) != 0 {
		x.Errorf("an empty store lists %q", ids(list))
	}
	check("empty")
	x.create("s")
	check("with a session")
}

func listRegistrations(x *env) {
	handles := x.handles(4)
	for _, s := range handles {
		if list, err := listAll(x.ctx, s, hansard.Query{}); err != nil || len(list) != 0 {
			x.Fatalf("at first the list is %q, %v", ids(list), err)
		}
	}
	const workers, each = 16, 12
	x.each(workers, "registering", func(i int) error {
		for n := range each {
			s := handles[(i+n)%len(handles)]
			id := hansard.SessionID(fmt.Sprintf("s%d-%d", i, n))
			b := texts("hello")
			b.Create = true
			var err error
			if n%2 == 0 {
				_, err = s.Create(x.ctx, id, hansard.Meta{})
			} else {
				_, err = s.Append(x.ctx, id, b)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, s := range handles {
		list, err := listAll(x.ctx, s, hansard.Query{})
		if err != nil {
			x.Fatal(err)
		}
		got := ids(list)
		slices.Sort(got)
		if n := len(slices.Compact(got)); len(list) != workers*each || n != len(list) {
			x.Errorf("%d registered, %d in the list, %d different", workers*each, len(list), n)
		}
	}
}

func listComplete(x *env) {
	handles := x.handles(3)
	const agents, each = 9, 8
	x.each(agents, "agent", func(i int) error {
		s := handles[i%len(handles)]
		var mine []hansard.SessionID
		for n := range each {
			id := hansard.SessionID(fmt.Sprintf("a%d-%d", i, n))
			if _, err := s.Create(x.ctx, id, hansard.Meta{}); err != nil {
				return err
			}
			mine = append(mine, id)
			if _, err := s.Append(x.ctx, mine[n/2], texts("x")); err != nil {
				return err
			}
			// Through any handle: a session created by this agent is there.
			list, err := listAll(x.ctx, handles[(i+n)%len(handles)], hansard.Query{})
			if err != nil {
				return err
			}
			got := ids(list)
			for _, id := range mine {
				if !slices.Contains(got, id) {
					return fmt.Errorf("session %s is not in a list of %d", id, len(got))
				}
			}
			slices.Sort(got)
			if len(slices.Compact(got)) != len(list) {
				return errors.New("a session is listed twice")
			}
		}
		return nil
	})
	// In the end all are there: a lost update may have been another agent's.
	if list := x.list(hansard.Query{}); len(list) != agents*each {
		x.Errorf("%d sessions are listed, want %d", len(list), agents*each)
	}
}

func listBreak(x *env) {
	for i := range 6 {
		x.create(hansard.SessionID(fmt.Sprint("s", i)))
	}
	inside := x.start("calls from inside a list", func() error {
		n := 0
		for info, err := range x.store.List(x.ctx, hansard.Query{}) {
			if err != nil {
				return err
			}
			if _, err := x.store.Append(x.ctx, info.ID, texts("x")); err != nil {
				return err
			}
			if err := x.store.Delete(x.ctx, info.ID, ""); err != nil {
				return err
			}
			if n++; n == 3 {
				break
			}
		}
		return nil
	})
	inside.finish()
	if list := x.list(hansard.Query{}); len(list) != 3 {
		x.Errorf("%d sessions are left, want 3", len(list))
	}
}

func listReopened(x *env) {
	for i := range 30 {
		id := hansard.SessionID(fmt.Sprint("s", i))
		x.createWith(id, hansard.Meta{Title: fmt.Sprint("title ", i), Labels: map[string]string{"n": fmt.Sprint(i % 3)}})
		if i%2 == 0 {
			x.append(id, texts("x"))
		}
		if i%5 == 0 {
			x.delete(id)
		}
	}
	before := x.list(hansard.Query{})
	for range 2 {
		x.reopen()
		after := x.list(hansard.Query{})
		if !slices.Equal(ids(after), ids(before)) {
			x.Fatalf("the list was %q and is %q", ids(before), ids(after))
		}
		for i := range before {
			if diff := diffInfo(after[i], before[i]); diff != "" {
				x.Errorf("session %s: %s", before[i].ID, diff)
			}
		}
	}
}
