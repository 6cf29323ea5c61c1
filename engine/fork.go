package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"time"

	"hansard"
)

// CheckFork checks that a store may be asked for a fork, whatever the session contains, and
// gives the new session an id if it has none.
func CheckFork(f *hansard.Fork) error {
	if f.As == "" {
		f.As = NewID()
	}
	if err := hansard.CheckID(f.As); err != nil {
		return renamed("as", err)
	}
	if err := checkText("by", f.By, hansard.MaxNameBytes); err != nil {
		return err
	}
	if err := checkNoReuse(&f.Meta); err != nil {
		return err
	}
	return CheckMeta(&f.Meta)
}

// NewID returns an id that no other session has: a UUID of version 7, which sorts by the
// time it was made.
func NewID() hansard.SessionID {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // never fails
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return hansard.SessionID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

// ForkEvent is the first own event of a fork. Its patch turns the metadata that the parent
// had at that point into the fork's. Engines set its seq and time, and as its turn the grant
// that was held at At, which it ends. The fork has been checked.
func ForkEvent(parent hansard.SessionID, f *hansard.Fork) hansard.Event {
	e := hansard.Event{Kind: hansard.KindFork, By: f.By, Fork: &hansard.Parent{ID: parent, At: f.At}, Data: []byte("null")}
	if f.Meta.IsZero() {
		return e
	}
	e.Patch = &hansard.Patch{}
	if f.Meta.Title != "" {
		e.Patch.Title = &f.Meta.Title
	}
	if len(f.Meta.Labels) > 0 {
		e.Patch.Labels = make(map[string]*string, len(f.Meta.Labels))
		for name, value := range f.Meta.Labels {
			e.Patch.Labels[name] = &value
		}
	}
	if len(f.Meta.State) > 0 {
		// Not a merge patch, which would leave what it does not name.
		e.Patch.StateOps = []hansard.StateOp{{Op: hansard.OpAdd, Path: "", Value: f.Meta.State}}
	}
	e.Patch = ClonePatch(e.Patch) // so that the caller may change its own
	return e
}

// Forked is the answer to a fork that was made, given the result of describing it. If that
// failed the caller gets an error, but never one that means that the fork was not made.
func Forked(info hansard.Info, err error) (hansard.Info, error) {
	if err != nil {
		return info, fmt.Errorf("%w: it was made, and can't be described: %w", hansard.ErrUnknown, err)
	}
	return info, nil
}

// ForkPastEnd refuses a fork at a seq that the parent does not have.
func ForkPastEnd(at, last hansard.Seq) error {
	return invalid("at", "the session has no event %d; its last is %d", at, last)
}

// ForkInBatch refuses a fork that would have only the first events of a batch, whose seqs are
// first to last. It says at which seqs a fork is possible.
func ForkInBatch(at, first, last hansard.Seq) error {
	if first == 1 {
		return invalid("at", "event %d is inside a batch, of events %d to %d; fork at %d", at, first, last, last)
	}
	return invalid("at", "event %d is inside a batch, of events %d to %d; fork at %d or %d", at, first, last, first-1, last)
}

// Lineage follows the events of a session and tells, from its log alone, which session it
// is a fork of. It checks that the events that begin a fork are as a store writes them. The
// zero value is the beginning of a session.
type Lineage struct {
	// Parent is that of the last event that begins a fork, nil if there is none. Earlier
	// ones were inherited: they began the parent, its parent, and so on.
	Parent *hansard.Parent
}

// Next takes the next event.
func (l *Lineage) Next(e *hansard.Event) error {
	if e.Fork == nil {
		return nil
	}
	switch {
	case e.Kind != hansard.KindFork:
		return fmt.Errorf("seq %d begins a fork and is of kind %q", e.Seq, e.Kind)
	case e.Fork.At+1 != e.Seq:
		return fmt.Errorf("seq %d begins a fork at %d of %s", e.Seq, e.Fork.At, e.Fork.ID)
	case hansard.CheckID(e.Fork.ID) != nil:
		return fmt.Errorf("seq %d begins a fork of %q, which is no session", e.Seq, e.Fork.ID)
	}
	l.Parent = e.Fork
	return nil
}

// End returns an error if a description does not fit the log that was followed to its end.
func (l *Lineage) End(described *hansard.Parent) error {
	if (described == nil) != (l.Parent == nil) || described != nil && *described != *l.Parent {
		return fmt.Errorf("it is described as a fork of %s, and its log says %s", parentName(described), parentName(l.Parent))
	}
	return nil
}

func parentName(p *hansard.Parent) string {
	if p == nil {
		return "no session"
	}
	return fmt.Sprintf("%s at %d", p.ID, p.At)
}

// checkLineage checks an event of a part against what the part says its session is a fork of.
func checkLineage(parent *hansard.Parent, e *hansard.Event) error {
	own := parent != nil && e.Seq == parent.At+1
	switch {
	case e.Fork == nil && !own:
		return nil
	case e.Fork == nil:
		if e.IsLost() {
			return nil
		}
		return fmt.Errorf("seq %d does not say that a fork of %s begins with it", e.Seq, parent.ID)
	case parent == nil:
		return fmt.Errorf("seq %d begins a fork of %s, and the session is none", e.Seq, e.Fork.ID)
	case e.Seq > parent.At+1 || own && *e.Fork != *parent:
		return fmt.Errorf("seq %d begins a fork of %s, and the session is one of %s", e.Seq, parentName(e.Fork), parentName(parent))
	}
	return (&Lineage{}).Next(e)
}

// Divergence is how the history of a fork differs from that of its parent; it does not if
// Message is empty. It is damage unless the parent was restored to an older state, or is
// another session with the same id: then the fork itself is unchanged.
type Divergence struct {
	Message string
	Damage  bool
}

// CompareParent compares a fork with its parent, event by event up to where it was made.
// Nothing is reported if the parent does not exist, was created after the fork, or can't be
// read. Events that were redacted or lost in one of them are not compared.
func CompareParent(ctx context.Context, s hansard.Store, id hansard.SessionID, p hansard.Parent) (d Divergence, err error) {
	var made time.Time // when the fork was made
	for e, err := range s.Read(ctx, id, hansard.Range{After: p.At, Before: p.At + 2}) {
		if err != nil {
			return d, aboutSession(err)
		}
		made = e.Time
	}
	info, err := s.Stat(ctx, p.ID)
	if err != nil || info.Created.After(made) { // the id was reused
		return d, aboutSession(err)
	}
	next, stop := iter.Pull2(s.Read(ctx, p.ID, hansard.Range{Before: p.At + 1}))
	defer stop()
	for e, err := range s.Read(ctx, id, hansard.Range{Before: p.At + 1}) {
		if err != nil {
			return d, aboutSession(err)
		}
		was, err, more := next()
		switch {
		case err != nil:
			return d, aboutSession(err)
		case !more:
			d.Message = fmt.Sprintf("it is a fork of %s at %d, which has no event %d any more: that was set back to an older state", p.ID, p.At, e.Seq)
			return d, nil
		case e.Redacted || was.Redacted || e.IsLost() || was.IsLost() || hansard.SameEvent(&e, &was):
			continue
		case e.Seq == 1 && !e.Time.Equal(was.Time):
			d.Message = fmt.Sprintf("it is a fork of a session %s, and the one of this name here is another", p.ID)
		case was.Time.After(made):
			d.Message = fmt.Sprintf("it is a fork of %s at %d, whose event %d was written later: that was set back to an older state", p.ID, p.At, e.Seq)
		default:
			d = Divergence{fmt.Sprintf("event %d is not that of %s, of which it is a fork at %d", e.Seq, p.ID, p.At), true}
		}
		return d, nil
	}
	return d, nil
}

// aboutSession drops an error that says that a session is missing, damaged or unreadable.
func aboutSession(err error) error {
	for _, known := range []error{hansard.ErrNotFound, hansard.ErrDeleted, hansard.ErrDamaged, hansard.ErrUnreadable} {
		if errors.Is(err, known) {
			return nil
		}
	}
	return err
}
