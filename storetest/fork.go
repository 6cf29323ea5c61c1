package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"hansard"
)

var forkCases = []Case{
	{Name: "fork/history", run: forkHistory,
		Defends: "a fork has the events of its parent up to where it was made as they are, and then one of the store's that says so; by every handle and after opening again"},
	{Name: "fork/apart", run: forkApart,
		Defends: "events that are stored apart are batches of their own: a session can be forked behind each of them"},
	{Name: "fork/half a batch", run: forkHalfBatch,
		Defends: "nobody ever sees half of a batch: a fork inside of one is refused, and the refusal says where one can be made", Answers: "39"},
	{Name: "fork/refused", run: forkRefused,
		Defends: "a fork that can't be made leaves nothing behind"},
	{Name: "fork/shares nothing", run: forkSharesNothing,
		Defends: "whatever becomes of a session or of its fork, the other does not notice", Answers: "39"},
	{Name: "fork/keys and ids", run: forkNames,
		Defends: "a retry against a fork is a replay if the fork has what it stored, and is stored if it has not"},
	{Name: "fork/turn", run: forkTurn,
		Defends: "a fork begins with a free turn, and no grant of its parent is one of the fork"},
	{Name: "fork/metadata", run: forkMetadata,
		Defends: "a fork has the title, labels and state that its parent had there, with what it is given in their place"},
	{Name: "fork/attachments", run: forkAttachments,
		Defends: "a fork has the attachments that its events name, as long as it is there, and no others"},
	{Name: "fork/children", run: forkChildren,
		Defends: "the forks of a session are found, and those of a fork are not among them"},
	{Name: "fork/being written", run: forkBeingWritten,
		Defends: "a session can be forked while it is written: every fork has whole batches, all that was acknowledged before it among them", Answers: "39"},
	{Name: "fork/name race", run: forkNameRace,
		Defends: "of all that want one id at once, by forks and otherwise, one gets it"},
	{Name: "fork/verified", run: forkVerified,
		Defends: "a fork whose history is not its parent's is found when it is examined; one whose parent was redacted, deleted or replaced is sound"},
}

// fork makes a fork that must succeed.
func (x *env) fork(id hansard.SessionID, f hansard.Fork) hansard.Info {
	x.Helper()
	info, err := x.store.Fork(x.ctx, id, f)
	if err != nil {
		x.Fatalf("Fork(%q, %+v): %v", id, f, err)
	}
	return info
}

// wantFork checks that a session is a fork of another one, event for event.
func (x *env) wantFork(where string, s hansard.Store, parent []hansard.Event, id hansard.SessionID, of hansard.Parent, own int) {
	x.Helper()
	events, err := readRange(x.ctx, s, id, hansard.Range{})
	if err != nil || len(events) != int(of.At)+1+own {
		x.Fatalf("%s: fork %q has %d events, %v; want %d", where, id, len(events), err, int(of.At)+1+own)
	}
	if diff := diffEvents(events[:of.At], parent[:of.At]); diff != "" {
		x.Errorf("%s: the history of %q: %s", where, id, diff)
	}
	e := events[of.At]
	if e.Kind != hansard.KindFork || e.Fork == nil || *e.Fork != of || e.Seq != of.At+1 || e.Role+e.Author+e.ID != "" || e.Inbox || string(e.Data) != "null" {
		x.Errorf("%s: the first event of its own that %q has is %s", where, id, show(e))
	}
	info, err := s.Stat(x.ctx, id)
	if err != nil || info.Parent == nil || *info.Parent != of || info.LastSeq != of.At+1+hansard.Seq(own) || info.Created.After(e.Time) {
		x.Errorf("%s: Stat of the fork: %s, %v", where, show(info), err)
	}
}

func forkHistory(x *env) {
	x.createWith("s", richMeta)
	for i := range 6 {
		b := texts(fmt.Sprint("a ", i), "b\u2028\n")
		b.Events[0].At = time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC)
		if i%2 == 0 {
			b.Key, b.Events[1].ID = fmt.Sprint("k", i), fmt.Sprint("e", i)
		}
		b.Events[0].Kind = hansard.KindFork // users may use this kind
		x.append("s", b)
	}
	parent := x.all("s")
	was := x.stat("s")
	begin := time.Now()
	forks := map[hansard.SessionID]hansard.Parent{}
	for _, at := range []hansard.Seq{0, 2, 8, 12} {
		id := hansard.SessionID(fmt.Sprint("fork-", at))
		info := x.fork("s", hansard.Fork{At: at, As: id})
		if at == 0 {
			at = 12
		}
		forks[id] = hansard.Parent{ID: "s", At: at}
		if info.ID != id || info.LastSeq != at+1 || info.Parent == nil || *info.Parent != forks[id] || info.Turn != nil {
			x.Errorf("Fork answers %s", show(info))
		}
		if info.Created.Before(begin.Add(-time.Minute)) || !info.Created.After(was.Created) {
			x.Errorf("the fork was created %v, its parent %v", info.Created, was.Created)
		}
	}
	fresh := x.fork("s", hansard.Fork{At: 4}).ID
	other := x.fork("s", hansard.Fork{At: 4}).ID
	if fresh == other || hansard.CheckID(fresh) != nil {
		x.Errorf("forks without a name are called %q and %q", fresh, other)
	}
	forks[fresh] = hansard.Parent{ID: "s", At: 4}
	empty := hansard.SessionID("empty")
	x.create(empty)
	x.fork(empty, hansard.Fork{As: "nothing"})
	x.wantFork("of an empty session", x.store, nil, "nothing", hansard.Parent{ID: empty}, 0)
	x.fork("fork-8", hansard.Fork{As: "grandchild"})
	check := func(where string, s hansard.Store) {
		for id, of := range forks {
			x.wantFork(where, s, parent, id, of, 0)
		}
		x.wantFork(where, s, append(slices.Clone(parent[:8]), x.all("fork-8")[8]), "grandchild", hansard.Parent{ID: "fork-8", At: 9}, 0)
	}
	for i, s := range x.handles(2) {
		check(fmt.Sprintf("through handle %d", i+1), s)
	}
	if diff := diffInfo(x.stat("s"), was); diff != "" {
		x.Errorf("forking has changed the parent: %s", diff)
	}
	x.reopen()
	check("after opening again", x.store)
	x.append("fork-2", texts("own"))
	x.append("grandchild", texts("own", "own"))
	x.wantFork("with an event of its own", x.store, parent, "fork-2", forks["fork-2"], 1)
}

func forkHalfBatch(x *env) {
	x.append("s", hansard.Batch{Events: texts("1", "2").Events, Create: true})
	x.append("s", texts("3"))
	x.append("s", hansard.Batch{Events: texts("4", "5", "6").Events, Key: "k"})
	x.append("s", texts("7", "8"))
	for at, places := range map[hansard.Seq][]string{1: {" 2"}, 4: {" 3 ", " 6"}, 5: {" 3 ", " 6"}, 7: {" 6 ", " 8"}} {
		info, err := x.store.Fork(x.ctx, "s", hansard.Fork{At: at, As: "f"})
		if !errors.Is(err, hansard.ErrInvalid) || errors.Is(err, hansard.ErrTooLarge) {
			x.Fatalf("a fork at %d, inside a batch: %+v, %v", at, info, err)
		}
		for _, place := range places {
			if !strings.Contains(err.Error(), place) {
				x.Errorf("the refusal at %d does not say%s: %v", at, place, err)
			}
		}
	}
	x.wantNone("f")
	for _, at := range []hansard.Seq{2, 3, 6, 8} {
		x.fork("s", hansard.Fork{At: at, As: hansard.SessionID(fmt.Sprint("f", at))})
	}
	// The batches of a fork are those of its parent.
	if _, err := x.store.Fork(x.ctx, "f8", hansard.Fork{At: 5}); !errors.Is(err, hansard.ErrInvalid) {
		x.Errorf("a fork of a fork inside a batch: %v", err)
	}
	x.reopen()
	if _, err := x.store.Fork(x.ctx, "s", hansard.Fork{At: 7}); !errors.Is(err, hansard.ErrInvalid) {
		x.Errorf("a fork inside a batch, after opening again: %v", err)
	}
}

// wantNone checks that there is no trace of a session.
func (x *env) wantNone(id hansard.SessionID) {
	x.Helper()
	if info, err := x.store.Stat(x.ctx, id); !errors.Is(err, hansard.ErrNotFound) {
		x.Errorf("session %q is there: %+v, %v", id, info, err)
	}
	if list := x.list(hansard.Query{IDs: []hansard.SessionID{id}}); len(list) > 0 {
		x.Errorf("session %q is listed: %+v", id, list)
	}
}

func forkRefused(x *env) {
	x.append("s", hansard.Batch{Events: texts("1", "2").Events, Create: true})
	a := x.attach("s", "attached")
	x.append("s", hansard.Batch{Events: []hansard.Event{with("3", a)}})
	x.create("taken")
	x.create("gone")
	x.delete("gone")
	long := hansard.SessionID(strings.Repeat("x", hansard.MaxIDBytes+1))
	for _, c := range []struct {
		what string
		id   hansard.SessionID
		f    hansard.Fork
		want error
	}{
		{"past the end", "s", hansard.Fork{At: 4, As: "f"}, hansard.ErrInvalid},
		{"far past the end", "s", hansard.Fork{At: 1 << 63, As: "f"}, hansard.ErrInvalid},
		{"of an unknown session", "unknown", hansard.Fork{As: "f"}, hansard.ErrNotFound},
		{"of an unknown session, at an event", "unknown", hansard.Fork{At: 1, As: "f"}, hansard.ErrNotFound},
		{"of a deleted session", "gone", hansard.Fork{As: "f"}, hansard.ErrDeleted},
		{"of no id", "", hansard.Fork{As: "f"}, hansard.ErrInvalid},
		{"as a session that exists", "s", hansard.Fork{As: "taken"}, hansard.ErrExists},
		{"as itself", "s", hansard.Fork{As: "s"}, hansard.ErrExists},
		{"as a deleted session", "s", hansard.Fork{As: "gone"}, hansard.ErrDeleted},
		{"as no id", "s", hansard.Fork{As: "-f"}, hansard.ErrInvalid},
		{"as a long id", "s", hansard.Fork{As: long}, hansard.ErrTooLarge},
		{"with a title that is no text", "s", hansard.Fork{As: "f", Meta: hansard.Meta{Title: "\xff"}}, hansard.ErrInvalid},
		{"with a state that is no JSON", "s", hansard.Fork{As: "f", Meta: hansard.Meta{State: []byte("{")}}, hansard.ErrInvalid},
	} {
		info, err := x.store.Fork(x.ctx, c.id, c.f)
		if !errors.Is(err, c.want) {
			x.Errorf("a fork %s: %+v, %v; want %v", c.what, info, err, c.want)
		}
	}
	x.wantNone("f")
	// A refused fork is not in the way of a later session.
	x.create("f")
	if list := x.attachments("f"); len(list) > 0 {
		x.Errorf("a new session has the attachments %+v", list)
	}
	if n := x.stat("taken").LastSeq; n != 0 {
		x.Errorf("the session that had the name has %d events now", n)
	}
}

func forkSharesNothing(x *env) {
	x.append("s", hansard.Batch{Events: texts("1", "2").Events, Create: true, Key: "k"})
	a := x.attach("s", "attached")
	x.append("s", hansard.Batch{Events: []hansard.Event{with("3", a)}, Patch: &hansard.Patch{State: []byte(`{"n":1}`)}})
	parent := x.all("s")
	for _, id := range []hansard.SessionID{"kept", "dropped"} {
		x.fork("s", hansard.Fork{As: id})
	}
	x.append("s", hansard.Batch{Events: texts("of the parent").Events, Patch: &hansard.Patch{State: []byte(`{"n":2}`)}, Expect: hansard.At(3)})
	x.append("kept", hansard.Batch{Events: texts("of the fork").Events, Patch: &hansard.Patch{State: []byte(`{"n":3}`)}, Expect: hansard.At(4)})
	x.wantFork("after appends to both", x.store, parent, "kept", hansard.Parent{ID: "s", At: 3}, 1)
	if diff := diffEvents(x.all("s")[:3], parent); diff != "" || len(x.all("s")) != 4 {
		x.Errorf("the parent after appends to both: %s, %d events", diff, len(x.all("s")))
	}
	for id, n := range map[hansard.SessionID]string{"s": `{"n":2}`, "kept": `{"n":3}`, "dropped": `{"n":1}`} {
		if got := x.stat(id).State; !sameJSON(got, []byte(n)) {
			x.Errorf("the state of %q is %s, want %s", id, got, n)
		}
	}
	x.delete("dropped")
	x.wantFork("when another fork was deleted", x.store, parent, "kept", hansard.Parent{ID: "s", At: 3}, 1)
	x.wantAttached("when a fork was deleted", x.store, "s", []byte("attached"))
	x.delete("s")
	prune(x)
	x.reopen()
	x.wantFork("when its parent was deleted", x.store, parent, "kept", hansard.Parent{ID: "s", At: 3}, 1)
	x.wantAttached("when its parent was deleted", x.store, "kept", []byte("attached"))
	x.append("kept", hansard.Batch{Events: []hansard.Event{with("again", a)}})
}

// prune removes the remains of deleted sessions, if the store can.
func prune(x *env) {
	x.Helper()
	if p, ok := x.store.(hansard.Pruner); ok {
		if _, err := p.Prune(x.ctx, false); unless(err, hansard.ErrUnsupported) != nil {
			x.Errorf("Prune: %v", err)
		}
	}
}

func forkNames(x *env) {
	x.create("s")
	first := hansard.Batch{Events: []hansard.Event{named("1", "one"), text("plain")}, Key: "first"}
	second := hansard.Batch{Events: []hansard.Event{named("2", "two")}, Key: "second"}
	receipt := x.append("s", first)
	x.append("s", second)
	x.fork("s", hansard.Fork{At: 2, As: "f"})
	x.fork("s", hansard.Fork{As: "all"})
	for _, id := range []hansard.SessionID{"f", "all"} {
		r := x.append(id, first)
		if !r.Replayed || r.First != receipt.First || r.Last != receipt.Last || r.Session != id {
			x.Errorf("the first batch again, to %q: %+v", id, r)
		}
		if _, err := x.store.Append(x.ctx, id, hansard.Batch{Events: texts("other").Events, Key: "first"}); !errors.Is(err, hansard.ErrKeyReused) {
			x.Errorf("another batch with its key, to %q: %v", id, err)
		}
		r = x.append(id, hansard.Batch{Events: []hansard.Event{named("1", "one")}})
		if !r.Replayed || len(r.Seqs) != 1 || r.Seqs[0] != 1 {
			x.Errorf("an event of the first batch again, to %q: %+v", id, r)
		}
		if _, err := x.store.Append(x.ctx, id, hansard.Batch{Events: []hansard.Event{named("1", "other")}}); !errors.Is(err, hansard.ErrIDReused) {
			x.Errorf("another event with its id, to %q: %v", id, err)
		}
		events := x.read(id, hansard.Range{ID: "1"})
		if len(events) != 1 || events[0].Seq != 1 {
			x.Errorf("the event with the id, of %q: %+v", id, events)
		}
	}
	if r := x.append("all", second); !r.Replayed || r.First != 3 {
		x.Errorf("the second batch again, to a fork that has it: %+v", r)
	}
	if r := x.append("f", second); r.Replayed || r.First != 4 {
		x.Errorf("the second batch, to a fork that has it not: %+v", r)
	}
	x.reopen()
	if r := x.append("f", second); !r.Replayed || r.First != 4 {
		x.Errorf("the second batch again, to that fork: %+v", r)
	}
}

func forkTurn(x *env) {
	x.append("s", hansard.Batch{Events: texts("1").Events, Create: true})
	held := x.acquire(x.store, "s", hansard.Claim{Exclusive: true, TTL: time.Hour})
	x.append("s", hansard.Batch{Events: texts("3").Events, Turn: held.Grant})
	for _, f := range []hansard.Fork{{As: "held"}, {As: "granted", At: 2}, {As: "before", At: 1}} {
		info := x.fork("s", f)
		if info.Turn != nil {
			x.Errorf("the turn of fork %q is held: %+v", f.As, info.Turn)
		}
		if turn, err := x.store.Turn(x.ctx, f.As); turn != nil || err != nil {
			x.Errorf("the turn of fork %q: %+v, %v", f.As, turn, err)
		}
		if _, err := x.store.Append(x.ctx, f.As, hansard.Batch{Events: texts("stale").Events, Turn: held.Grant}); !errors.Is(err, hansard.ErrFenced) {
			x.Errorf("a write to fork %q under its parent's grant: %v", f.As, err)
		}
		x.wantErr("renewing the parent's grant in the fork", x.store.Renew(x.ctx, f.As, held.Grant), hansard.ErrFenced)
		x.wantErr("releasing it there", x.store.Release(x.ctx, f.As, held.Grant), hansard.ErrFenced)
		x.append(f.As, texts("without a turn"))
	}
	x.reopen()
	for _, id := range []hansard.SessionID{"held", "granted", "before"} {
		events := x.all(id)
		at := x.stat(id).Parent.At
		want := hansard.Grant("")
		if at >= 2 {
			want = held.Grant
		}
		if got := events[at].Turn; got != want {
			x.Errorf("the first event of fork %q ends the grant %q, want %q", id, got, want)
		}
		next := x.acquire(x.store, id, hansard.Claim{})
		number := uint64(1)
		if at >= 2 {
			number = held.Grant.Number() + 1
		}
		if next.Grant.Number() != number {
			x.Errorf("the next grant of fork %q is %s, want number %d", id, next.Grant, number)
		}
		x.release(x.store, id, next.Grant)
	}
	if x.engine.Reopen == nil { // otherwise its handle is closed, and the turn with it
		x.append("s", hansard.Batch{Events: texts("still held").Events, Turn: held.Grant})
	}
}

func forkMetadata(x *env) {
	x.createWith("s", hansard.Meta{Title: "born", Labels: map[string]string{"a": "1", "b": "1"}, State: []byte(`{"n":0,"deep":{"x":1}}`)})
	for i := range 3 {
		x.append("s", hansard.Batch{Events: texts(fmt.Sprint(i)).Events, Patch: &hansard.Patch{Title: ptr(fmt.Sprint("title ", i+1)),
			Labels: map[string]*string{"a": nil, "n": ptr(fmt.Sprint(i + 1))}, State: fmt.Appendf(nil, `{"n":%d}`, i+1)}})
	}
	over := hansard.Meta{Title: "over", Labels: map[string]string{"n": "over", "new": "1"}, State: []byte(`{"only":true}`)}
	for _, c := range []struct {
		f    hansard.Fork
		want hansard.Meta
	}{
		{hansard.Fork{As: "f1", At: 1}, hansard.Meta{Title: "title 1", Labels: map[string]string{"b": "1", "n": "1"}, State: []byte(`{"n":1,"deep":{"x":1}}`)}},
		{hansard.Fork{As: "f2", At: 2, Meta: hansard.Meta{Title: "mine"}}, hansard.Meta{Title: "mine", Labels: map[string]string{"b": "1", "n": "2"}, State: []byte(`{"n":2,"deep":{"x":1}}`)}},
		{hansard.Fork{As: "f3", Meta: over}, hansard.Meta{Title: "over", Labels: map[string]string{"b": "1", "n": "over", "new": "1"}, State: []byte(`{"only":true}`)}},
		{hansard.Fork{As: "f4", At: 2, Meta: hansard.Meta{State: []byte(`null`)}}, hansard.Meta{Title: "title 2", Labels: map[string]string{"b": "1", "n": "2"}, State: []byte(`null`)}},
	} {
		x.fork("s", c.f)
		want := hansard.Info{ID: c.f.As, Title: c.want.Title, Labels: c.want.Labels, State: c.want.State}
		check := func(when string) {
			x.Helper()
			got := x.stat(c.f.As)
			want.LastSeq, want.Parent = got.LastSeq, got.Parent
			if diff := diffContent(got, want); diff != "" {
				x.Errorf("fork %q, %s: %s", c.f.As, when, diff)
			}
		}
		check("when it was made")
		// Patches of its own build on it.
		x.append(c.f.As, hansard.Batch{Patch: &hansard.Patch{Labels: map[string]*string{"own": ptr("1")}}})
		want.Labels["own"] = "1"
		check("after a patch of its own")
		x.reopen()
		check("after opening again")
	}
	if got := x.list(hansard.Query{Labels: map[string]string{"new": "1"}}); len(got) != 1 || got[0].ID != "f3" {
		x.Errorf("the sessions with a label that a fork was given: %+v", got)
	}
	// All or nothing: metadata beyond a limit is refused, as in a patch.
	many := map[string]string{}
	for i := range hansard.MaxLabels {
		many[fmt.Sprint("l", i)] = "1"
	}
	_, err := x.store.Fork(x.ctx, "s", hansard.Fork{As: "many", Meta: hansard.Meta{Labels: many}})
	x.wantErr("a fork with too many labels together", err, hansard.ErrTooLarge)
	x.wantNone("many")
}

func forkAttachments(x *env) {
	x.create("s")
	early, late := x.attach("s", "early"), x.attach("s", "late")
	x.attach("s", "named by nobody")
	x.append("s", hansard.Batch{Events: []hansard.Event{with("1", early), text("2"), with("3", early)}})
	x.append("s", hansard.Batch{Events: []hansard.Event{with("4", late)}})
	x.fork("s", hansard.Fork{At: 3, As: "f"})
	x.fork("s", hansard.Fork{As: "all"})
	check := func(when string) {
		x.Helper()
		if list := x.attachments("f"); len(list) != 1 || list[0].Digest != early.Digest || list[0].Size != early.Size {
			x.Errorf("%s the fork has the attachments %+v", when, list)
		}
		x.wantAttached(when, x.store, "f", []byte("early"))
		x.wantAttached(when, x.store, "all", []byte("late"))
		if _, err := x.store.OpenAttachment(x.ctx, "f", late.Digest); !errors.Is(err, hansard.ErrNoAttachment) {
			x.Errorf("%s an attachment that no event of the fork names: %v", when, err)
		}
	}
	check("at first")
	x.append("f", hansard.Batch{Events: []hansard.Event{with("own", early)}})
	x.refused(hansard.ErrNoAttachment, "f", hansard.Batch{Events: []hansard.Event{with("not its own", late)}})
	x.delete("s")
	prune(x)
	check("when the parent is deleted")
	x.reopen()
	check("after opening again")
}

func forkChildren(x *env) {
	for _, id := range []hansard.SessionID{"s", "t", "alone"} {
		x.append(id, hansard.Batch{Events: texts("1", "2").Events, Create: true})
	}
	x.fork("s", hansard.Fork{As: "a"})
	x.fork("t", hansard.Fork{As: "b"})
	x.fork("s", hansard.Fork{As: "c"})
	x.fork("a", hansard.Fork{As: "d", Meta: hansard.Meta{Labels: map[string]string{"l": "1"}}})
	x.fork("a", hansard.Fork{As: "gone"})
	x.delete("gone")
	check := func(where string) {
		x.Helper()
		for _, c := range []struct {
			q    hansard.Query
			want string
		}{
			{hansard.Query{Parent: "s"}, "c a"}, {hansard.Query{Parent: "t"}, "b"}, {hansard.Query{Parent: "a"}, "d"}, {hansard.Query{Parent: "alone"}, ""}, {hansard.Query{Parent: "unknown"}, ""},
			{hansard.Query{Parent: "s", Limit: 1}, "c"}, {hansard.Query{Parent: "s", Order: hansard.OrderCreated}, "c a"}, {hansard.Query{Parent: "s", IDs: []hansard.SessionID{"a", "b"}}, "a"},
			{hansard.Query{Parent: "s", Prefix: "a"}, "a"}, {hansard.Query{Parent: "a", Labels: map[string]string{"l": "1"}}, "d"}, {hansard.Query{Parent: "s", Labels: map[string]string{"l": "1"}}, ""},
			{hansard.Query{Parent: "s", Text: "C"}, "c"},
		} {
			var got []string
			for _, info := range x.list(c.q) {
				got = append(got, string(info.ID))
				if info.Parent == nil || info.Parent.ID != c.q.Parent || info.Parent.At == 0 {
					x.Errorf("%s: %q is listed with the parent %+v", where, info.ID, info.Parent)
				}
			}
			if strings.Join(got, " ") != c.want {
				x.Errorf("%s: the list of %+v is %q, want %q", where, c.q, got, c.want)
			}
		}
		list := x.list(hansard.Query{Parent: "s", Order: hansard.OrderCreated, Limit: 1})
		if rest := x.list(hansard.Query{Parent: "s", Order: hansard.OrderCreated, Cursor: list[0].Cursor}); len(rest) != 1 || rest[0].ID != "a" {
			x.Errorf("%s: the second page is %+v", where, rest)
		}
	}
	check("at first")
	x.reopen()
	check("after opening again")
	_, err := listAll(x.ctx, x.store, hansard.Query{Parent: "-"})
	x.wantErr("the forks of what can't be a session", err, hansard.ErrInvalid)
	x.delete("s")
	if got := x.list(hansard.Query{Parent: "s"}); len(got) != 2 {
		x.Errorf("the forks of a deleted session: %+v", got)
	}
}

func forkBeingWritten(x *env) {
	const writers, forks = 8, 12
	x.create("s")
	handles := x.handles(4)
	var acked atomic.Uint64
	stop := make(chan struct{})
	var tasks []*task
	for i := range writers {
		tasks = append(tasks, x.start(fmt.Sprint("writer ", i), func() error {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return nil
				default:
				}
				b := texts(fmt.Sprint(i, "/", n), "second", "third")
				b.Key = fmt.Sprint("k", i, "/", n)
				r, err := handles[i%len(handles)].Append(x.ctx, "s", b)
				if err != nil {
					return err
				}
				for was := acked.Load(); uint64(r.Last) > was && !acked.CompareAndSwap(was, uint64(r.Last)); was = acked.Load() {
				}
			}
		}))
	}
	at := map[hansard.SessionID]hansard.Seq{}
	newest := hansard.Seq(0)
	for i := range forks {
		if err := x.store.Wait(x.ctx, "s", newest+5); err != nil { // new events since the last fork
			close(stop)
			x.Fatalf("waiting for the writers: %v", err)
		}
		before := hansard.Seq(acked.Load())
		id := hansard.SessionID(fmt.Sprint("f", i))
		info, err := handles[i%len(handles)].Fork(x.ctx, "s", hansard.Fork{As: id})
		if err != nil {
			close(stop)
			x.Fatalf("fork %d: %v", i, err)
		}
		at[id], newest = info.Parent.At, info.Parent.At
		if info.Parent.At < before || info.Parent.At%3 != 0 || info.LastSeq != info.Parent.At+1 {
			x.Errorf("fork %d has the history up to %d, %d events; %d were acknowledged", i, info.Parent.At, info.LastSeq, before)
		}
	}
	close(stop)
	for _, t := range tasks {
		t.finish()
	}
	parent := x.all("s")
	for id, n := range at {
		x.wantFork("of a session being written", x.store, parent, id, hansard.Parent{ID: "s", At: n}, 0)
		if n > 0 { // its keys came along
			if r := x.append(id, hansard.Batch{Events: texts("new").Events, Key: "new"}); r.First != n+2 {
				x.Errorf("an append to fork %q: %+v", id, r)
			}
		}
	}
}

func forkNameRace(x *env) {
	x.append("s", hansard.Batch{Events: texts("1", "2").Events, Create: true})
	handles := x.handles(4)
	for round := range 3 {
		id := hansard.SessionID(fmt.Sprint("r", round))
		var won atomic.Int32
		var how atomic.Value
		x.each(6, "claimant", func(i int) (err error) {
			s, what := handles[i%len(handles)], "create"
			switch i % 3 {
			case 0:
				_, err = s.Create(x.ctx, id, hansard.Meta{})
			default:
				what = "fork"
				_, err = s.Fork(x.ctx, "s", hansard.Fork{As: id})
			}
			if err == nil {
				won.Add(1)
				how.Store(what)
			}
			return unless(err, hansard.ErrExists)
		})
		if won.Load() != 1 {
			x.Errorf("%d of those who wanted %q got it", won.Load(), id)
		}
		if n := x.stat(id).LastSeq; (how.Load() == "fork") != (n == 3) {
			x.Errorf("a %s has won %q, which has %d events", how.Load(), id, n)
		}
		x.append(id, texts("own"))
	}
}

func forkApart(x *env) {
	apart := func(ids ...string) hansard.Batch {
		b := hansard.Batch{Apart: true}
		for _, id := range ids {
			b.Events = append(b.Events, hansard.Event{ID: id, Data: []byte(`"` + id + `"`)})
		}
		return b
	}
	made := apart("1", "2", "3")
	made.Create, made.Meta.Title = true, "made"
	if r := x.append("s", made); r.First != 1 || r.Last != 3 || !r.Created {
		x.Errorf("stored apart: %+v", r)
	}
	title := "changed"
	more := apart("2", "4", "5", "6")
	more.Patch = &hansard.Patch{Title: &title}
	if r := x.append("s", more); r.First != 4 || r.Last != 6 || !slices.Equal(r.Seqs, []hansard.Seq{2, 4, 5, 6}) {
		x.Errorf("stored apart, one of them known: %+v", r)
	}
	x.append("s", texts("7", "8"))
	if r := x.append("s", more); !r.Replayed || r.Last != 0 {
		x.Errorf("sent again: %+v", r)
	}
	parent := x.all("s")
	check := func(when string) {
		for at := hansard.Seq(1); at <= 6; at++ {
			id := hansard.SessionID(fmt.Sprint(when, at))
			x.fork("s", hansard.Fork{At: at, As: id})
			x.wantFork(when, x.store, parent, id, hansard.Parent{ID: "s", At: at}, 0)
			if title, want := x.stat(id).Title, map[bool]string{true: "changed", false: "made"}[at == 6]; title != want {
				x.Errorf("%s, at %d: the title is %q, want %q", when, at, title, want)
			}
		}
		if _, err := x.store.Fork(x.ctx, "s", hansard.Fork{At: 7}); !errors.Is(err, hansard.ErrInvalid) {
			x.Errorf("%s: a fork inside of the batch behind them: %v", when, err)
		}
	}
	check("f")
	x.reopen()
	check("again")
	keyed := apart("9")
	keyed.Key = "k"
	unnamed := apart("9", "10")
	unnamed.Events[1].ID = ""
	for _, b := range []hansard.Batch{keyed, unnamed} {
		x.refused(hansard.ErrInvalid, "s", b)
	}
}

func forkVerified(x *env) {
	c, ok := x.store.(hansard.Checker)
	im, can := x.store.(hansard.Importer)
	if !ok || !can {
		return // the store can't be examined, or holds only what it makes itself
	}
	x.create("s")
	for i := range 5 {
		x.append("s", texts(fmt.Sprint("event ", i)))
	}
	parent := x.all("s")
	x.fork("s", hansard.Fork{At: 4, As: "sound"})
	x.fork("sound", hansard.Fork{At: 3, As: "grandchild"})
	own := x.all("sound")[4]
	// wants imports a session that claims to be the same fork, and examines it.
	n := 0
	wants := func(level hansard.Level, word string, change func([]hansard.Event)) {
		x.Helper()
		n++
		id := hansard.SessionID(fmt.Sprint("f", n))
		events := append(slices.Clone(parent[:4]), own)
		change(events)
		of := *events[4].Fork
		err := im.Import(x.ctx, hansard.Part{Origin: hansard.Origin{ID: id, Created: own.Time, Parent: &of}, Events: events})
		if errors.Is(err, hansard.ErrUnsupported) {
			return
		}
		if err != nil {
			x.Fatalf("Import: %v", err)
		}
		x.wantFinding(c, id, level, word)
		if err := x.store.Delete(x.ctx, id, ""); err != nil {
			x.Fatalf("Delete: %v", err)
		}
	}
	wants(hansard.LevelOK, "", func([]hansard.Event) {})
	wants(hansard.LevelDamage, "event 3", func(e []hansard.Event) { e[2].Data = hansard.Text("another") })
	wants(hansard.LevelDamage, "event 4", func(e []hansard.Event) { e[3].Time = e[3].Time.Add(time.Microsecond) })
	wants(hansard.LevelNote, "another", func(e []hansard.Event) { e[0].Time = e[0].Time.Add(-time.Hour) })
	// A parent that was restored from an older copy, and one that was continued since.
	short := hansard.Part{Origin: hansard.Origin{ID: "short", Created: x.stat("s").Created}, Events: slices.Clone(parent[:2])}
	if err := im.Import(x.ctx, short); err == nil {
		wants(hansard.LevelNote, "older state", func(e []hansard.Event) { e[4].Fork = &hansard.Parent{ID: "short", At: 4} })
		x.append("short", texts("otherwise"))
		wants(hansard.LevelNote, "older state", func(e []hansard.Event) { e[4].Fork = &hansard.Parent{ID: "short", At: 4} })
	}
	sound := func(when string) {
		x.Helper()
		for _, id := range []hansard.SessionID{"sound", "grandchild"} {
			x.wantFinding(c, id, hansard.LevelOK, "")
		}
		if x.Failed() {
			x.Fatalf("that was %s", when)
		}
	}
	sound("at first")
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{2}, Reason: "secret"})
	sound("when the parent was redacted")
	x.redact("sound", hansard.Redaction{Seqs: []hansard.Seq{3}, Reason: "secret"})
	sound("when the fork was redacted")
	x.delete("s")
	sound("when the parent was deleted")
	x.createWith("s", hansard.Meta{Reuse: true})
	x.append("s", texts("1", "2", "3", "4"))
	sound("when the parent's id was used again")
}

// wantFinding examines a session: it is sound, or there is a finding of a level that has a word.
func (x *env) wantFinding(c hansard.Checker, id hansard.SessionID, level hansard.Level, word string) {
	x.Helper()
	worst := hansard.Finding{Level: hansard.LevelOK}
	for f, err := range c.Verify(x.ctx, id) {
		if errors.Is(err, hansard.ErrUnsupported) {
			return // the store is remote, and can't be examined there
		}
		if err != nil {
			x.Fatalf("Verify(%q): %v", id, err)
		}
		if f.Level != hansard.LevelOK {
			worst = f
		}
	}
	if worst.Level != level || !strings.Contains(worst.Message, word) {
		x.Errorf("Verify(%q) says %+v; want %s with %q", id, worst, level, word)
	}
}
