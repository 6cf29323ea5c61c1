package importer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"hansard"
	"hansard/memstore"
)

// forest is a source with several sessions, some of which are forks of others.
type forest struct {
	piFormat
	order []string
	from  map[string]string
	says  map[string][]string
	reads map[string]int // how many records of each were read
}

func (f *forest) session(id string, emit func(Record) error) error {
	for i, entry := range append([]string{""}, f.says[id]...) {
		f.reads[id]++
		rec := Record{Session: id, Mutable: true, Event: hansard.Event{ID: fmt.Sprint("line:", i, id), Kind: "meta", Data: []byte(`"` + id + `"`)}}
		if entry != "" {
			rec.Same, rec.Event.ID, rec.Event.Kind, rec.Event.Data = entry, entry, "message", []byte(`{"id":"`+entry+`"}`)
		}
		if err := emit(rec); err != nil {
			return err
		}
	}
	return nil
}

func (f *forest) Read(_ context.Context, in *Input, emit func(Record) error) error {
	parts := map[string]*Source{}
	for _, id := range f.order {
		parts[id] = in.Part(id, f.from[id], parts[f.from[id]], func(_ *Input, emit func(Record) error) error { return f.session(id, emit) })
		if f.from[id] != "" {
			if err := emit(Record{Begins: parts[id]}); err != nil {
				return err
			}
		}
		if err := f.session(id, emit); err != nil {
			return err
		}
	}
	return nil
}

func (f *forest) run(t *testing.T, store hansard.Store) (r Report) {
	t.Helper()
	f.reads = map[string]int{}
	s := &Source{Format: f, Session: "forest"}
	if err := (&Engine{Store: store}).Run(t.Context(), []*Source{s}, func(got Report) { r = got }); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	return r
}

// TestForkReads: however many forks a long session has, it is read once to be stored and once
// to be compared, and each fork the same. Later it is read once.
func TestForkReads(t *testing.T) {
	const long, forks = 10_000, 5
	f := &forest{piFormat: openclaw, from: map[string]string{}, says: map[string][]string{}}
	var ours []string
	for i := range long {
		ours = append(ours, fmt.Sprint("e", i))
	}
	add := func(id, from string, says []string) {
		f.order, f.from[id], f.says[id] = append(f.order, id), from, says
	}
	add("p", "", ours)
	for i := range forks {
		id := fmt.Sprint("f", i)
		add(id, "p", append(ours[:long:long], id+"-own"))
		add(id+"-f", id, append(ours[:long:long], id+"-own", id+"-more"))
	}
	store := memstore.New()
	defer store.Close()
	r := f.run(t, store)
	if r.Remark != "" || r.Added != 1+long+forks*(2+2) {
		t.Errorf("%d were added, %q", r.Added, r.Remark)
	}
	for id, n := range f.reads {
		times := 2 // stored, and compared with its parent
		if strings.Count(id, "f") == 1 {
			times = 3 // and its fork with it
		}
		if most := times * (len(f.says[id]) + 1); n > most {
			t.Errorf("%d records of %s were read, want %d", n, id, most)
		}
	}
	if r := f.run(t, store); r.Added != 0 || f.reads["p"] != long+1 || f.reads["f0"] != long+2 {
		t.Errorf("again: %d were added, %d and %d records read", r.Added, f.reads["p"], f.reads["f0"])
	}
}

// TestForkOfNothing: a session that shares nothing with the one that it is said to be a fork
// of is not compared with all that came before that one.
func TestForkOfNothing(t *testing.T) {
	f := &forest{piFormat: openclaw, from: map[string]string{}, says: map[string][]string{}}
	for i := range 30 {
		id := fmt.Sprint("f", i)
		f.order, f.says[id] = append(f.order, id), []string{id + "-own"}
		if i > 0 {
			f.from[id] = f.order[i-1]
		}
	}
	store := memstore.New()
	defer store.Close()
	if r := f.run(t, store); r.Added != 60 || r.Copied != 0 {
		t.Errorf("%d were added, %d copied", r.Added, r.Copied)
	}
	for id, n := range f.reads {
		if n > 3*2 { // stored, compared, and its fork with it
			t.Errorf("%d records of %s were read", n, id)
		}
	}
}

// TestManyRemarks: what is said about many sessions of one source does not grow with them.
func TestManyRemarks(t *testing.T) {
	f := &forest{piFormat: openclaw, from: map[string]string{}, says: map[string][]string{}}
	for i := range maxRemarks + 5 {
		id := fmt.Sprint("f", i)
		f.order, f.from[id], f.says[id] = append(f.order, id), "gone", []string{"e"}
	}
	store := memstore.New()
	defer store.Close()
	r := f.run(t, store)
	if n := strings.Count(r.Remark, "not in this source"); n != maxRemarks || !strings.HasSuffix(r.Remark, "; and 5 more") {
		t.Errorf("%d remarks: %s", n, r.Remark)
	}
	if r := f.run(t, store); r.Remark != "" {
		t.Errorf("again: %s", r.Remark)
	}
}

// TestForgottenPasts: what is kept of long sessions, to tell their forks, is bounded.
func TestForgottenPasts(t *testing.T) {
	j := &job{pasts: map[*Source]*past{}}
	var s *Source
	for range 5 {
		j.pasts[s] = &past{records: make([]pastRecord, heldRecords/2)}
		s = &Source{parent: s}
	}
	delete(j.pasts, nil)
	other := &Source{}
	j.pasts[other] = &past{}
	j.forget(s)
	if len(j.pasts) != 2 || j.pasts[s.parent] == nil || j.pasts[s.parent.parent] == nil {
		t.Errorf("%d are kept", len(j.pasts))
	}
	j.pasts[s.parent].records = make([]pastRecord, 2*heldRecords)
	j.forget(s)
	if len(j.pasts) != 1 || j.pasts[s.parent] == nil {
		t.Errorf("%d are kept", len(j.pasts))
	}
}
