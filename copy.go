package hansard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
)

// Copied says what [Copy] did with one session.
type Copied struct {
	Session SessionID `json:"session"`
	Deleted bool      `json:"deleted,omitempty"` // a tombstone
	Events  Seq       `json:"events"`            // that the destination has now
	Added   Seq       `json:"added"`             // how many of them this copy added
	// Err is why the session is not the same at both ends.
	Err error `json:"-"`
}

// Copy copies the sessions of one store to another: events, seqs, times, grants,
// keys, metadata and tombstones as they are. Then it compares both ends. It may be
// interrupted and started again: what is already there is compared instead of
// copied. Sessions that exist only at the destination are left alone.
//
// It yields one report per session. A session that can't be copied does not stop the
// others. An error ends the sequence; if the destination would refuse every session
// ([ImportChecker]), the error comes before the first.
func Copy(ctx context.Context, src Exporter, dst Importer) iter.Seq2[Copied, error] {
	return func(yield func(Copied, error) bool) {
		if dst, ok := dst.(ImportChecker); ok {
			if err := dst.CheckImport(ctx); err != nil {
				yield(Copied{}, fmt.Errorf("destination: %w", err))
				return
			}
		}
		for o, err := range src.Origins(ctx, "") {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(Copied{}, err)
				return
			}
			c := &copying{src: src, dst: dst, origin: o, report: Copied{Session: o.ID, Deleted: o.Deleted}}
			c.report.Err = c.run(ctx)
			if !yield(c.report, nil) {
				return
			}
		}
	}
}

// A part that has reached one of these is sent. It may be larger: a batch with a key is
// not split.
const (
	copyEvents = 1000
	copyBytes  = 4 << 20
)

// copying is the copy of one session.
type copying struct {
	src    Exporter
	dst    Importer
	origin Origin
	report Copied
	// attached are the digests that the destination has; made says that it has the session.
	attached map[string]bool
	made     bool
}

func (c *copying) run(ctx context.Context) error {
	here, err := c.dst.Stat(ctx, c.origin.ID)
	switch {
	case c.origin.Deleted && errors.Is(err, ErrDeleted):
		return nil
	case c.origin.Deleted && (err == nil || errors.Is(err, ErrNotFound)):
		return c.dst.Import(ctx, Part{Origin: c.origin})
	case err != nil && !errors.Is(err, ErrNotFound):
		return fmt.Errorf("destination: %w", err)
	}
	there, statErr := c.src.Stat(ctx, c.origin.ID)
	if statErr != nil {
		return fmt.Errorf("source: %w", statErr)
	}
	if c.origin.Created.IsZero() && there.Damage != nil {
		return fmt.Errorf("source: %w", there.Damage) // nothing of it can be read
	}
	if err == nil && here.LastSeq > there.LastSeq {
		return &ConflictError{Session: c.origin.ID, Expected: there.LastSeq, Actual: here.LastSeq}
	}
	if errors.Is(err, ErrNotFound) && there.LastSeq == 0 {
		return c.compareAfter(ctx, c.dst.Import(ctx, Part{Origin: c.origin}), 0)
	}
	return c.compareAfter(ctx, c.carry(ctx, here.LastSeq, there.LastSeq), there.LastSeq)
}

// carry copies the events past after, up to the one that was last when the copy
// began.
func (c *copying) carry(ctx context.Context, after, upto Seq) error {
	for part, err := range Parts(ctx, c.src, c.origin, after, upto) {
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		if err := c.attach(ctx, part.Events); err != nil {
			return err
		}
		if err := c.dst.Import(ctx, part); err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		c.report.Added += Seq(len(part.Events))
	}
	return nil
}

// Parts yields the events of a session past one seq and up to another as parts that
// [Importer.Import] takes one after the other. Both seqs have to end a batch, as the
// last seq of a session always does. What can be read of a damaged session comes
// before the error.
func Parts(ctx context.Context, src Exporter, o Origin, after, upto Seq) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		keys, stop := iter.Pull2(src.Keys(ctx, o.ID, after))
		defer stop()
		key, err, more := keys()
		part, size, unproven := Part{Origin: o}, 0, false
		flush := func() bool {
			if len(part.Events) == 0 {
				return true
			}
			full := part
			part, size = Part{Origin: o}, 0
			return yield(full, nil)
		}
		for e, readErr := range src.Read(ctx, o.ID, Range{After: after}) {
			if readErr != nil || err != nil {
				// The safe events of a damaged session are worth having.
				if flush() {
					yield(Part{}, errors.Join(readErr, err))
				}
				return
			}
			if e.Seq > upto {
				break
			}
			part.Events = append(part.Events, e)
			size += len(e.Data) + patchSize(e.Patch)
			inside := more && key.First <= e.Seq // of a batch with a key
			if inside && key.Last == e.Seq {
				part.Keys = append(part.Keys, key)
				key, err, more = keys()
				inside = false
			}
			// After lost events the importer knows a grant only from the part it is in,
			// until the next turn record: these events have to be in one part.
			unproven = e.IsLost() || unproven && e.Kind != KindTurn
			if unproven && len(part.Events) < MaxBatchEvents && size < MaxBatchBytes {
				continue
			}
			if !inside && (len(part.Events) >= copyEvents || size >= copyBytes) && !flush() {
				return
			}
		}
		flush()
	}
}

// patchSize is how many bytes of a part's memory a patch takes, roughly.
func patchSize(p *Patch) (size int) {
	if p == nil {
		return 0
	}
	size = len(p.State)
	for i := range p.StateOps {
		size += len(p.StateOps[i].Path) + len(p.StateOps[i].Value)
	}
	return size
}

// attach copies the attachments that events name, before the events. For that the session
// has to exist, so attach creates it if necessary.
func (c *copying) attach(ctx context.Context, events []Event) error {
	for i := range events {
		for _, a := range events[i].Attachments {
			if c.attached[a.Digest] {
				continue
			}
			if !c.made {
				if _, err := c.dst.Stat(ctx, c.origin.ID); errors.Is(err, ErrNotFound) {
					err = c.dst.Import(ctx, Part{Origin: c.origin})
					if err != nil {
						return fmt.Errorf("destination: %w", err)
					}
				}
				c.made = true
			}
			if err := c.attachOne(ctx, a); err != nil {
				return err
			}
			if c.attached == nil {
				c.attached = map[string]bool{}
			}
			c.attached[a.Digest] = true
		}
	}
	return nil
}

func (c *copying) attachOne(ctx context.Context, a Attachment) error {
	there, err := c.dst.OpenAttachment(ctx, c.origin.ID, a.Digest)
	if err == nil {
		return there.Close()
	}
	if !errors.Is(err, ErrNoAttachment) {
		return fmt.Errorf("destination: %w", err)
	}
	r, err := c.src.OpenAttachment(ctx, c.origin.ID, a.Digest)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	defer r.Close()
	copied, err := c.dst.Attach(ctx, c.origin.ID, r)
	if err != nil {
		return fmt.Errorf("attachment %s: %w", a.Digest, err)
	}
	if copied.Digest != a.Digest {
		return fmt.Errorf("attachment %s arrived as %s", a.Digest, copied.Digest)
	}
	return nil
}

// compareAfter compares both ends, unless copying failed.
func (c *copying) compareAfter(ctx context.Context, err error, upto Seq) error {
	if err != nil {
		return err
	}
	here, err := c.dst.Stat(ctx, c.origin.ID)
	if err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	c.report.Events = here.LastSeq
	if err := c.compareLogs(ctx, upto); err != nil {
		return err
	}
	if err := c.compareKeys(ctx, upto); err != nil {
		return err
	}
	there, err := c.src.Stat(ctx, c.origin.ID)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if there.LastSeq != upto {
		return nil // it has grown since: the copy is a prefix of it
	}
	return differ(&there, &here)
}

// differ returns the first difference between two descriptions.
func differ(there, here *Info) error {
	switch {
	case here.LastSeq != there.LastSeq:
		return fmt.Errorf("the copy has %d events, the source %d", here.LastSeq, there.LastSeq)
	case !here.Created.Equal(there.Created):
		return fmt.Errorf("the copy was created at %v, the source at %v", here.Created, there.Created)
	case !here.Updated.Equal(there.Updated):
		return fmt.Errorf("the copy was updated at %v, the source at %v", here.Updated, there.Updated)
	case here.Title != there.Title || !maps.Equal(here.Labels, there.Labels) || !sameState(here.State, there.State):
		return errors.New("title, labels or state of the copy are not the source's")
	case !sameParent(here.Parent, there.Parent):
		return errors.New("the copy and the source are not forks of the same session")
	}
	return nil
}

// compareLogs compares the events of both ends, up to the one that was last when the copy
// began. Content that the source has redacted since is still at the destination, until a
// copy brings the redaction record there; once that record is copied, it must be gone.
func (c *copying) compareLogs(ctx context.Context, upto Seq) error {
	copied, stop := iter.Pull2(c.dst.Read(ctx, c.origin.ID, Range{}))
	defer stop()
	ahead := map[Seq]bool{} // redacted only in the source
	for e, err := range c.src.Read(ctx, c.origin.ID, Range{}) {
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		if e.Seq > upto {
			return nil
		}
		got, err, ok := copied()
		if err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		if !ok {
			return fmt.Errorf("the copy ends before seq %d", e.Seq)
		}
		if e.Redacted && !got.Redacted {
			ahead[e.Seq] = true
			got.TakeAway()
		}
		if !SameEvent(&e, &got) {
			return fmt.Errorf("seq %d of the copy is not the source's", e.Seq)
		}
		for _, seq := range e.Redacts {
			if ahead[seq] {
				return fmt.Errorf("seq %d of the copy is not redacted, as its seq %d says", seq, e.Seq)
			}
		}
	}
	return nil
}

// SameEvent reports whether two stores have the same event: data byte for byte, a
// patch by its meaning.
func SameEvent(a, b *Event) bool {
	return a.Seq == b.Seq && a.Time.Equal(b.Time) && a.Kind == b.Kind && a.Role == b.Role && a.Author == b.Author && a.Turn == b.Turn && a.By == b.By &&
		a.ID == b.ID && a.At.Equal(b.At) && a.Inbox == b.Inbox && slices.Equal(a.Attachments, b.Attachments) && sameParent(a.Fork, b.Fork) &&
		a.Redacted == b.Redacted && slices.Equal(a.Redacts, b.Redacts) && bytes.Equal(a.Data, b.Data) && samePatch(a.Patch, b.Patch)
}

func sameParent(a, b *Parent) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func samePatch(a, b *Patch) bool {
	if a == nil || b == nil {
		return a == b
	}
	return reflect.DeepEqual(a.Title, b.Title) && (len(a.Labels) == 0 && len(b.Labels) == 0 || reflect.DeepEqual(a.Labels, b.Labels)) && sameState(a.State, b.State) &&
		slices.EqualFunc(a.StateOps, b.StateOps, func(a, b StateOp) bool {
			return a.Op == b.Op && a.Path == b.Path && sameState(a.Value, b.Value)
		})
}

// sameState compares two documents by their meaning: engines may format them differently.
func sameState(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	was, err := meaningOf(a)
	is, otherErr := meaningOf(b)
	return err == nil && otherErr == nil && reflect.DeepEqual(was, is)
}

// meaningOf decodes a document and keeps numbers as they are written.
func meaningOf(state json.RawMessage) (v any, err error) {
	if len(state) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(state))
	dec.UseNumber()
	return v, dec.Decode(&v)
}

func (c *copying) compareKeys(ctx context.Context, upto Seq) error {
	copied, stop := iter.Pull2(c.dst.Keys(ctx, c.origin.ID, 0))
	defer stop()
	for k, err := range c.src.Keys(ctx, c.origin.ID, 0) {
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		if k.First > upto {
			return nil
		}
		got, err, _ := copied()
		if err != nil {
			return fmt.Errorf("destination: %w", err)
		}
		if k.Hash == "" {
			got.Hash = "" // redacted in the source; compareLogs checks whether it must be redacted here
		}
		if got != k {
			return fmt.Errorf("the copy does not know the key of the batch at seq %d", k.First)
		}
	}
	return nil
}
