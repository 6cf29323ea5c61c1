package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"

	"hansard"
)

// A source that repeats the history of another one is stored as a fork of it
// ([hansard.Store.Fork]), if that gives exactly the content of its file: it repeats the
// beginning of the parent's file, record for record, and the parent's session has these
// records and no others. Otherwise only the fork's own records are stored, and labels and
// the state say where they continue from.

// forkPoint is where a fork's own records begin.
type forkPoint struct {
	parent hansard.SessionID
	at     hansard.Seq
	// record identifies the last record that is the parent's.
	record string
	own    bool // that record was seen
	// stored says that it is a fork in the store: the session has the parent's records.
	stored bool
	// title and labels are what the records up to there say about the session.
	title  string
	labels map[string]string
}

// copied reports whether a record repeats one of the parent's.
func (f *forkPoint) copied(rec *Record) bool {
	if f == nil || f.own || rec.Same == "" || rec.Own {
		return false
	}
	f.own = rec.Same == f.record || mark(rec.Same) == f.record
	return true
}

// mark is Same as it appears in a label.
func mark(same string) string { return name(eventID(same)) }

// describe writes the fork's origin into the metadata that the session is created with.
func (f *forkPoint) describe(m *hansard.Meta) {
	m.Title = f.title
	m.Labels = maps.Clone(m.Labels)
	maps.Copy(m.Labels, f.labels)
	m.Labels[LabelParent], m.Labels[LabelForkedAt] = string(f.parent), fmt.Sprint(f.at)
	m.State = marshal(map[string]any{"import": forkState{Fork: &forkRecord{f.parent, f.at, f.record}}})
}

// forkState is the member "import" of a session's state.
type forkState struct {
	Fork *forkRecord `json:"fork"`
}

type forkRecord struct {
	ID     hansard.SessionID `json:"id"`
	At     hansard.Seq       `json:"at"`
	Record string            `json:"record"`
}

// knownFork is where a session says its own records begin; nil if all are its own.
func knownFork(info *hansard.Info) *forkPoint {
	if record := info.Labels[LabelForkedRecord]; record != "" && info.Parent != nil {
		return &forkPoint{parent: info.Parent.ID, at: info.Parent.At, record: record, stored: true}
	}
	var state struct {
		Import forkState `json:"import"`
	}
	_ = json.Unmarshal(info.State, &state) // any other state has no fork in it
	if f := state.Import.Fork; f != nil {
		return &forkPoint{parent: f.ID, at: f.At, record: f.Record}
	}
	return nil
}

// findFork finds where the source's own records begin; nil if all are its own. Once a
// session exists, what it says about itself counts: more files may be known now, or fewer.
// A fork that does not exist yet is made in the store, if possible.
func (j *job) findFork(ctx context.Context, in *Input) (*forkPoint, error) {
	if j.Store != nil {
		info, err := j.Store.Stat(ctx, in.id())
		switch {
		case err == nil:
			return knownFork(&info), nil
		case !errors.Is(err, hansard.ErrNotFound):
			return nil, err
		}
	}
	if in.parent == nil && in.forkOf != "" {
		j.remark(in, "it was forked from %s, which is not in this source: it is stored with its whole history", SessionID(in.Format, in.forkOf))
	}
	for parent := in.parent; parent != nil; parent = parent.parent {
		f, shares, err := j.forkOf(ctx, in, parent)
		// In a database a copy has everything that its original has, copied or not.
		if f != nil || err != nil || !shares && in.read != nil {
			return f, err
		}
	}
	return nil, nil
}

// repeat is what a source repeats from another.
type repeat struct {
	forkPoint
	last int // the place of the last of these records
	// whole says that it is the beginning of the other, without a gap.
	whole bool
}

// repeats compares a source with the one it is a fork of.
func repeats(ctx context.Context, in *Input, history history) (*repeat, error) {
	r := &repeat{forkPoint: forkPoint{labels: map[string]string{}}, last: -1, whole: true}
	next, long := 0, false
	ended := errors.New("ended")
	err := in.quiet().each(ctx, func(rec Record) error {
		long = long || rec.Long != nil
		if rec.Same == "" || rec.Own || rec.Link {
			return nil
		}
		at, ok := history[rec.key(in.Format)]
		if !ok {
			return ended
		}
		switch {
		case at.order == next:
			next++
		case at.order > next: // some of the parent's records are missing
			r.whole = false
		}
		// Records that are too long to be compared may be the parent's, or not.
		r.whole = r.whole && !long
		r.record, r.last = rec.Same, max(r.last, at.place)
		r.title = first(rec.Title, r.title)
		maps.Copy(r.labels, rec.Labels)
		return nil
	})
	if err != nil && !errors.Is(err, ended) {
		return nil, err
	}
	return r, nil
}

// forkOf is where the source leaves this parent; nil if it repeats none of the parent's
// own records. shares says whether it repeats anything of it.
func (j *job) forkOf(ctx context.Context, in *Input, parent *Source) (f *forkPoint, shares bool, err error) {
	past, err := j.past(ctx, parent)
	if err != nil {
		return nil, false, err
	}
	r, err := repeats(ctx, in, past.history)
	if err != nil || r.record == "" {
		return nil, false, err
	}
	id := parent.id()
	if j.Store == nil {
		r.parent = id
		return &r.forkPoint, true, nil
	}
	info, err := j.Store.Stat(ctx, id)
	switch {
	case errors.Is(err, hansard.ErrDeleted):
		// Nothing else has its history any more.
		j.remark(in, "it repeats records of %s, which was deleted here: they are stored with it", id)
		return nil, true, nil
	case errors.Is(err, hansard.ErrNotFound):
		return nil, true, fmt.Errorf("%w: it repeats records of %s, which was not imported", errSource, id)
	case err != nil:
		return nil, true, fmt.Errorf("parent %s: %w", id, err)
	}
	event, inherited := past.at(r.last, knownFork(&info))
	if inherited && info.Parent != nil {
		return nil, true, nil // the parent's parent has them
	}
	if r.parent, r.at, err = j.locate(ctx, parent, event); err != nil {
		return nil, true, err
	}
	why := "it does not repeat all that came before"
	if r.whole {
		why, err = j.makeFork(ctx, in, parent, &info, r)
	}
	if err == nil && why != "" {
		err = j.makeApart(ctx, in, &r.forkPoint)
	}
	if errors.Is(err, hansard.ErrExists) { // another process was faster
		f, err = j.findFork(ctx, in)
		return f, true, err
	}
	if err != nil {
		return nil, true, err
	}
	if r.stored = why == ""; !r.stored {
		j.remark(in, "only what it does not share with %s is stored with it, and not as a fork: %s", r.parent, why)
	}
	return &r.forkPoint, true, nil
}

// makeApart makes a session for a fork that has only its own records.
func (j *job) makeApart(ctx context.Context, in *Input, f *forkPoint) error {
	meta := hansard.Meta{Labels: in.labels()}
	f.describe(&meta)
	for try := 1; ; try++ {
		_, err := j.Store.Create(ctx, in.id(), meta)
		if !errors.Is(err, hansard.ErrUnknown) || try == attempts || ctx.Err() != nil {
			return err
		}
	}
}

// makeFork makes the session as a fork in the store. If it can't be one, why says so.
func (j *job) makeFork(ctx context.Context, in *Input, parent *Source, info *hansard.Info, r *repeat) (why string, err error) {
	if r.parent != info.ID {
		return "its parent has nothing of it either", nil
	}
	for label := range parent.Labels {
		if in.Labels[label] == "" { // a fork inherits its parent's labels, and can only change them
			return fmt.Sprintf("it would have the parent's label %q", label), nil
		}
	}
	if in.SubAgent && info.Labels[LabelForkedAt] != "" {
		return "the label that names who started it has another meaning in its parent", nil
	}
	if why, err = j.differs(ctx, j.pasts[parent], info, r); why != "" || err != nil {
		return why, err
	}
	meta := hansard.Meta{Title: r.title, Labels: in.labels()}
	if started := info.Labels[LabelParent] != "" && info.Labels[LabelForkedAt] == ""; !in.SubAgent && !started {
		// The fork itself names its parent. But a fork of a sub-agent's session inherits a
		// different label.
		delete(meta.Labels, LabelParent)
	}
	maps.Copy(meta.Labels, r.labels)
	meta.Labels[LabelForkedRecord] = mark(r.record)
	for try := 1; ; try++ {
		_, err = j.Store.Fork(ctx, r.parent, hansard.Fork{At: r.at, As: in.id(), Meta: meta})
		switch {
		case errors.Is(err, hansard.ErrUnknown) && try < attempts && ctx.Err() == nil:
			continue
		case errors.Is(err, hansard.ErrInvalid), errors.Is(err, hansard.ErrUnsupported), errors.Is(err, hansard.ErrDamaged):
			// For example, inside a batch of an older import.
			return err.Error(), nil
		}
		return "", err
	}
}

// differs compares the parent's session, up to where the fork leaves it, with the parent's
// source. why says how they differ, if they do.
func (j *job) differs(ctx context.Context, past *past, info *hansard.Info, r *repeat) (why string, err error) {
	inherited := hansard.Seq(0)
	if info.Parent != nil { // compared when the parent was forked
		inherited = info.Parent.At
	}
	next, stop := iter.Pull2(j.Store.Read(ctx, info.ID, hansard.Range{Before: r.at + 1}))
	defer stop()
	// stored is the next record in the session.
	stored := func() (hansard.Event, bool, error) {
		for {
			e, err, ok := next()
			if !ok || err != nil {
				return e, false, err
			}
			if e.Redacted {
				why = fmt.Sprintf("seq %d of %s was redacted", e.Seq, info.ID)
				return e, false, nil
			}
			if e.Seq > inherited && !e.StoresOwn() {
				return e, true, nil
			}
		}
	}
	other := fmt.Sprintf("%s has other events than its source", info.ID)
	own := knownFork(info)
	for i := range past.records[:r.last+1] {
		rec := &past.records[i]
		if rec.link || own.copied(&Record{Same: rec.same, Own: rec.own}) {
			continue
		}
		e, ok, err := stored()
		if err != nil || why != "" {
			return why, err
		}
		if !ok || e.ID != eventID(rec.id) || checkSum(e.Data) != rec.data {
			return other, nil
		}
	}
	_, more, err := stored()
	if err == nil && more {
		why = other
	}
	return why, err
}

// locate is where a record of a source is in the store: in its session, or in one that it
// was forked from.
func (j *job) locate(ctx context.Context, s *Source, id string) (hansard.SessionID, hansard.Seq, error) {
	for p := s; p != nil; p = p.parent {
		session := p.id()
		for e, err := range j.Store.Read(ctx, session, hansard.Range{ID: id}) {
			if err == nil {
				return session, e.Seq, nil
			}
			if !errors.Is(err, hansard.ErrNoEvent) && !errors.Is(err, hansard.ErrNotFound) {
				return "", 0, fmt.Errorf("parent %s: %w", session, err)
			}
		}
	}
	return "", 0, fmt.Errorf("%w: it repeats records of %s, which was not imported to there", errSource, s.id())
}
