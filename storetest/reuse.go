package storetest

import (
	"errors"
	"fmt"

	"hansard"
)

var reuseCases = []Case{
	{Name: "create/reuse", run: createReuse, Answers: "32",
		Defends: "a deleted id becomes a new session only if that is said, and nothing of the one before is in it"},
	{Name: "create/reuse refused", run: createReuseRefused, Answers: "32",
		Defends: "reuse takes over no session that is there, and only Create can do it"},
	{Name: "create/reuse at once", run: createReuseAtOnce,
		Defends: "of many who reuse an id at the same time one makes the session, and followers of the one before are told that it was deleted"},
}

// deletedRich creates a session with some of everything in it, and deletes it.
func (x *env) deletedRich(id hansard.SessionID) hansard.Info {
	x.Helper()
	x.createWith(id, hansard.Meta{Title: "old", Labels: map[string]string{"l": "old"}, State: []byte(`{"old":1}`)})
	a := x.attach(id, "old bytes")
	for i := range 20 {
		e := named(fmt.Sprint("id ", i), fmt.Sprint("old ", i))
		e.Attachments = []hansard.Attachment{a}
		x.append(id, hansard.Batch{Events: []hansard.Event{e}, Key: fmt.Sprint("key ", i)})
	}
	x.acquire(x.store, id, hansard.Claim{})
	info := x.stat(id)
	x.delete(id)
	return info
}

func createReuse(x *env) {
	handles := x.handles(3)
	old := x.deletedRich("s")
	for _, s := range handles { // each knows that it is deleted
		if _, err := s.Stat(x.ctx, "s"); !errors.Is(err, hansard.ErrDeleted) {
			x.Fatalf("deleted: %v", err)
		}
		if _, err := s.Append(x.ctx, "s", texts("no")); !errors.Is(err, hansard.ErrDeleted) {
			x.Fatalf("append to a deleted one: %v", err)
		}
		listAll(x.ctx, s, hansard.Query{})
	}
	if _, err := x.store.Create(x.ctx, "s", hansard.Meta{}); !errors.Is(err, hansard.ErrDeleted) {
		x.Fatalf("Create without reuse: %v", err)
	}
	info := x.createWith("s", hansard.Meta{Title: "new", Reuse: true})
	if info.LastSeq != 0 || info.Title != "new" || len(info.Labels) != 0 || string(info.State) != "null" || !info.Created.After(old.Created) || info.Turn != nil {
		x.Errorf("made was %+v", info)
	}
	check := func(where string, s hansard.Store, events int) {
		x.Helper()
		now, err := s.Stat(x.ctx, "s")
		if err != nil || now.Title != "new" || int(now.LastSeq) != events || !now.Created.Equal(info.Created) || now.Turn != nil {
			x.Errorf("%s: %+v, %v", where, now, err)
		}
		log, err := readRange(x.ctx, s, "s", hansard.Range{})
		if err != nil || len(log) != events {
			x.Errorf("%s: %d events, %v", where, len(log), err)
		}
		infos, err := listAll(x.ctx, s, hansard.Query{})
		if err != nil || len(infos) != 1 || infos[0].Title != "new" {
			x.Errorf("%s: listed are %+v, %v", where, infos, err)
		}
	}
	for i, s := range handles {
		check(fmt.Sprintf("through handle %d", i+1), s, 0)
	}
	if list := x.attachments("s"); len(list) > 0 {
		x.Errorf("attached are %v", list)
	}
	// Keys and ids of the previous session are free, through every handle.
	for i, s := range handles {
		r, err := s.Append(x.ctx, "s", hansard.Batch{Events: []hansard.Event{named(fmt.Sprint("id ", i), fmt.Sprint("old ", i))}, Key: fmt.Sprint("key ", i)})
		if err != nil || r.Replayed || int(r.First) != i+1 {
			x.Errorf("a name of the one before: %+v, %v", r, err)
		}
	}
	if t := x.acquire(x.store, "s", hansard.Claim{}); t.Grant.Number() != 1 {
		x.Errorf("the first grant is %s", t.Grant)
	} else {
		x.release(x.store, "s", t.Grant)
	}
	x.reopen()
	check("after opening again", x.store, 5)
	x.delete("s")
	if _, err := x.store.Stat(x.ctx, "s"); !errors.Is(err, hansard.ErrDeleted) {
		x.Errorf("deleted again: %v", err)
	}
	x.createWith("s", hansard.Meta{Title: "third", Reuse: true})
	x.append("s", texts("of the third"))
	x.wantTexts("s", "of the third")
}

func createReuseRefused(x *env) {
	x.createWith("fresh", hansard.Meta{Reuse: true}) // never existed: an ordinary creation
	x.append("fresh", texts("stays"))
	if _, err := x.store.Create(x.ctx, "fresh", hansard.Meta{Reuse: true}); !errors.Is(err, hansard.ErrExists) {
		x.Errorf("of one that is there: %v", err)
	}
	x.wantTexts("fresh", "stays")
	x.deletedRich("gone")
	x.refused(hansard.ErrDeleted, "gone", hansard.Batch{Events: texts("x").Events, Create: true})
	x.refused(hansard.ErrInvalid, "gone", hansard.Batch{Events: texts("x").Events, Create: true, Meta: hansard.Meta{Reuse: true}})
	x.refused(hansard.ErrInvalid, "other", hansard.Batch{Events: texts("x").Events, Create: true, Meta: hansard.Meta{Reuse: true}})
	if _, err := x.store.Stat(x.ctx, "gone"); !errors.Is(err, hansard.ErrDeleted) {
		x.Errorf("after that: %v", err)
	}
	if dst, ok := x.store.(hansard.Importer); ok {
		p := hansard.Part{Origin: hansard.Origin{ID: "gone", Created: x.stat("fresh").Created, Meta: hansard.Meta{Reuse: true}}}
		if err := dst.Import(x.ctx, p); !errors.Is(err, hansard.ErrInvalid) && !errors.Is(err, hansard.ErrUnsupported) {
			x.Errorf("an import: %v", err)
		}
	}
}

func createReuseAtOnce(x *env) {
	handles := x.handles(4)
	x.create("s")
	x.append("s", texts("a", "b", "c"))
	follower := x.start("follower", func() error { return handles[3].Wait(x.ctx, "s", 3) })
	letOthersRun()
	x.delete("s")
	// Before the id is reused: a follower whose request comes late would wait for the new session's
	// events.
	if err := follower.result(); !errors.Is(err, hansard.ErrDeleted) {
		x.Errorf("the follower of the deleted session is told %v", err)
	}
	made := make([]bool, 6)
	x.each(6, "who reuses it", func(i int) error {
		_, err := handles[i%3].Create(x.ctx, "s", hansard.Meta{Title: fmt.Sprint(i), Reuse: true})
		made[i] = err == nil
		return unless(err, hansard.ErrExists)
	})
	n := 0
	for i, m := range made {
		if m {
			n++
			if title := x.stat("s").Title; title != fmt.Sprint(i) {
				x.Errorf("%d made it, and it has the title %s", i, title)
			}
		}
	}
	if n != 1 {
		x.Errorf("%d of them made it", n)
	}
	x.append("s", texts("new"))
	x.wantTexts("s", "new")
}
