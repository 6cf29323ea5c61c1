package search

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"hansard"
	"hansard/engine/terms"
)

// stretchBytes is about how much of a session is passed on at once.
const stretchBytes = 256 << 10

// reader reads what is new in sessions while what it has read is being indexed. It stops when
// the transaction has enough.
type reader struct {
	store hansard.Store
	from  []place
	until time.Time
	out   chan stretch // closed when it is done

	bytes, events int64
	buf           []byte
}

// place is how far a session is indexed.
type place struct {
	id   hansard.SessionID
	last hansard.Seq
	mark int64
}

// stretch is a part of a session: consecutive events.
type stretch struct {
	id     hansard.SessionID
	anew   bool // its log is not the one that was indexed: this is the new one's beginning
	events []prepared
	size   int
	mark   int64 // of the last event
	end    bool  // nothing follows it,
	err    error // or nothing readable
}

// prepared is an event as it is indexed.
type prepared struct {
	seq        hansard.Seq
	time       int64
	kind, role string
	redacts    []hansard.Seq
	words      string // its terms, each followed by a space
	bytes      int64  // of its text
}

func (r *reader) run(ctx context.Context) {
	defer close(r.out)
	for _, from := range r.from {
		whole, same := r.session(ctx, from, false)
		if !same {
			whole, _ = r.session(ctx, place{id: from.id}, true)
		}
		if !whole {
			return
		}
	}
}

// session reads a session from a place on. The event at the place is read again: if it
// differs or is missing, the log is a different one (same is false). If there is more to read
// than the transaction has room for, whole is false.
func (r *reader) session(ctx context.Context, from place, anew bool) (whole, same bool) {
	part := stretch{id: from.id, anew: anew}
	var newest hansard.Event
	there := from.last == 0
	for e, err := range r.store.Read(ctx, from.id, hansard.Range{After: max(from.last, 1) - 1}) {
		if err != nil {
			part.err = err // damage; what comes before it was read
			break
		}
		if e.Seq <= from.last {
			if there = e.Seq == from.last && marks(from.mark, &e); there {
				continue
			}
		}
		if !there {
			return false, false
		}
		full := r.bytes >= stepBytes || r.events%64 == 63 && time.Now().After(r.until)
		if full || part.size >= stretchBytes {
			part.mark = mark(&newest)
			if !r.hand(ctx, part) || full {
				return false, true
			}
			part = stretch{id: from.id}
		}
		part.events = append(part.events, r.prepare(&e))
		part.size += len(part.events[len(part.events)-1].words)
		newest = e
	}
	if !there && part.err == nil {
		return false, false
	}
	part.end, part.mark = true, mark(&newest)
	return r.hand(ctx, part), true
}

// hand passes a part on, unless it is no longer wanted.
func (r *reader) hand(ctx context.Context, part stretch) bool {
	select {
	case r.out <- part:
		return true
	case <-ctx.Done():
		return false
	}
}

// prepare splits an event into its terms.
func (r *reader) prepare(e *hansard.Event) prepared {
	d := terms.Of(*e)
	r.buf = r.buf[:0]
	terms.Scan(d.Text, func(term []byte, _, _, _ int) bool {
		r.buf = append(append(r.buf, term...), ' ')
		return true
	})
	p := prepared{seq: e.Seq, time: e.Time.UnixNano(), kind: e.Kind, role: d.Role, redacts: e.Redacts, words: string(r.buf), bytes: int64(len(d.Text)) + 64}
	r.bytes, r.events = r.bytes+p.bytes, r.events+1
	return p
}

// mark tells an event from another one at the same seq. The lower half covers its data, which
// a redaction removes.
func mark(e *hansard.Event) int64 {
	outer, inner := fnv.New32a(), fnv.New32a()
	fmt.Fprintf(outer, "%d %s", e.Time.UnixNano(), e.Kind)
	_, _ = inner.Write(e.Data)
	return int64(outer.Sum32())<<32 | int64(inner.Sum32())
}

// marks tells whether an event has a mark.
func marks(want int64, e *hansard.Event) bool {
	if e.Redacted {
		return mark(e)>>32 == want>>32
	}
	return mark(e) == want
}
