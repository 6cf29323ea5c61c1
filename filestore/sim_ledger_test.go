package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"hansard"
	"hansard/engine"
)

// ledger records what callers were told, outside of the store.
type ledger struct {
	acked   map[hansard.SessionID]map[hansard.Seq]string
	open    map[string]hansard.SessionID // tags whose outcome is unknown
	refused map[string]hansard.SessionID // tags of batches that were refused
	keys    map[string]hansard.Seq       // where the batches of shared keys are
	created map[hansard.SessionID]bool
	deleted map[hansard.SessionID]bool // for certain
	maybe   map[hansard.SessionID]bool // perhaps deleted
	seen    map[hansard.SessionID][]string
	size    map[string]int                    // tag of the first event → events of the batch
	told    map[hansard.SessionID]hansard.Seq // refusals said that there are this many events
	acks    int
	// redacting are the events that somebody tried to redact; redacted are those that certainly
	// are.
	redacting, redacted map[hansard.SessionID]map[hansard.Seq]bool
}

func newLedger() *ledger {
	return &ledger{acked: map[hansard.SessionID]map[hansard.Seq]string{}, open: map[string]hansard.SessionID{},
		refused: map[string]hansard.SessionID{}, keys: map[string]hansard.Seq{}, created: map[hansard.SessionID]bool{},
		deleted: map[hansard.SessionID]bool{}, maybe: map[hansard.SessionID]bool{},
		seen: map[hansard.SessionID][]string{}, size: map[string]int{}, told: map[hansard.SessionID]hansard.Seq{},
		redacting: map[hansard.SessionID]map[hansard.Seq]bool{}, redacted: map[hansard.SessionID]map[hansard.Seq]bool{}}
}

// ack records an acknowledged event.
func (l *ledger) ack(id hansard.SessionID, seq hansard.Seq, tag string) {
	if l.acked[id] == nil {
		l.acked[id] = map[hansard.Seq]string{}
	}
	l.acked[id][seq] = tag
	l.acks++
}

// tag is the tag of an event, even of a redacted one.
func (l *ledger) tag(id hansard.SessionID, e *hansard.Event) string {
	if e.Redacted && l.redacting[id][e.Seq] {
		return l.acked[id][e.Seq]
	}
	return tagOf(e)
}

// compareRedacted: an event is redacted if somebody was told so, and only if somebody asked for
// it. Its content may still be there until the redaction is completed.
func (l *ledger) compareRedacted(id hansard.SessionID, e *hansard.Event) error {
	switch {
	case e.Redacted && !l.redacting[id][e.Seq]:
		return fmt.Errorf("seq %d is redacted, and nobody did", e.Seq)
	case !e.Redacted && l.redacted[id][e.Seq]:
		return fmt.Errorf("seq %d was redacted, and is there", e.Seq)
	}
	return nil
}

func tagOf(e *hansard.Event) string {
	if len(e.Redacts) > 0 {
		return fmt.Sprintf("redaction at %d", e.Seq)
	}
	if e.Kind == hansard.KindTurn {
		return turnTag(e.Turn, e.Seq)
	}
	tag, _, _ := strings.Cut(strings.Trim(string(e.Data), `"`), " ")
	return tag
}

func turnTag(g hansard.Grant, seq hansard.Seq) string { return fmt.Sprintf("turn %s at %d", g, seq) }

// compare checks the invariants that can be seen from outside.
func (l *ledger) compare(s *Store, verify bool) error {
	ctx := context.Background()
	for f, err := range s.Verify(ctx, "") {
		if !verify {
			break // reading finds as much, except for the journal and the names
		}
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		if f.Level != hansard.LevelOK && !strings.Contains(f.Message, "is not finished") {
			return fmt.Errorf("verify: %+v", f)
		}
	}
	for _, id := range simSessions {
		if err := l.compareSession(ctx, s, id); err != nil {
			return fmt.Errorf("session %s: %w", id, err)
		}
	}
	return nil
}

func (l *ledger) compareSession(ctx context.Context, s *Store, id hansard.SessionID) error {
	var tags []string
	var grants engine.Grants // at most one at a time, and no line of a grant after the next one
	var redactions engine.Redactions
	for e, err := range s.Read(ctx, id, hansard.Range{}) {
		switch {
		case errors.Is(err, hansard.ErrDeleted):
			if !l.deleted[id] && !l.maybe[id] {
				return errors.New("is deleted, and nobody did")
			}
			return nil
		case errors.Is(err, hansard.ErrNotFound):
			if l.created[id] || len(l.acked[id]) > 0 || l.deleted[id] {
				return errors.New("acknowledged and not found")
			}
			return nil
		case err != nil:
			return err
		}
		if int(e.Seq) != len(tags)+1 {
			return fmt.Errorf("seq %d after %d events", e.Seq, len(tags))
		}
		if err := grants.Next(&e); err != nil {
			return err
		}
		tags = append(tags, l.tag(id, &e))
		if err := errors.Join(redactions.Next(&e), l.compareRedacted(id, &e)); err != nil {
			return err
		}
		for _, a := range e.Attachments {
			if l.redacting[id][e.Seq] {
				break // it is removed before the line is
			}
			if err := attachedWell(ctx, s, id, a); err != nil {
				return fmt.Errorf("seq %d: %w", e.Seq, err)
			}
		}
	}
	if l.deleted[id] {
		return errors.New("was deleted, and is there")
	}
	if err := errors.Join(redactions.End(), l.compareReverse(ctx, s, id, tags)); err != nil {
		return err
	}
	return l.compareTags(id, tags)
}

// compareReverse: read from its end, a session has the same events, and at least these.
func (l *ledger) compareReverse(ctx context.Context, s *Store, id hansard.SessionID, tags []string) error {
	n, next := 0, hansard.Seq(0)
	for e, err := range s.Read(ctx, id, hansard.Range{Reverse: true}) {
		switch {
		case err != nil:
			return fmt.Errorf("in reverse: %w", err)
		case n > 0 && e.Seq != next:
			return fmt.Errorf("in reverse: seq %d, want %d", e.Seq, next)
		case int(e.Seq) <= len(tags) && l.tag(id, &e) != tags[e.Seq-1]:
			return fmt.Errorf("in reverse: event %s at seq %d, forward it was %s", tagOf(&e), e.Seq, tags[e.Seq-1])
		}
		n, next = n+1, e.Seq-1
	}
	if n < len(tags) || next != 0 {
		return fmt.Errorf("in reverse: %d events down to seq %d, forward %d", n, next+1, len(tags))
	}
	return nil
}

// attachedWell: the attachment that an event names is there, to the byte.
func attachedWell(ctx context.Context, s *Store, id hansard.SessionID, a hansard.Attachment) error {
	r, err := s.OpenAttachment(ctx, id, a.Digest)
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(io.Discard, r)
	if err == nil && n != a.Size {
		err = fmt.Errorf("%d bytes, want %d", n, a.Size)
	}
	return err
}

// compareTags: every acknowledged event is there once, at its seq; no refused one is; those with
// unknown outcome are there as whole batches; and nothing a reader saw is gone.
func (l *ledger) compareTags(id hansard.SessionID, tags []string) error {
	at := map[string]int{}
	for i, tag := range tags {
		if j, double := at[tag]; double {
			return fmt.Errorf("event %s is there twice, at seq %d and %d", tag, j+1, i+1)
		}
		at[tag] = i
		if _, ok := l.refused[tag]; ok {
			return fmt.Errorf("event %s was refused and is at seq %d", tag, i+1)
		}
	}
	for seq, tag := range l.acked[id] {
		if int(seq) > len(tags) || tags[seq-1] != tag {
			return fmt.Errorf("event %s was acknowledged at seq %d and is not there (%d events)", tag, seq, len(tags))
		}
	}
	if int(l.told[id]) > len(tags) {
		return fmt.Errorf("a refusal named seq %d, and there are %d events", l.told[id], len(tags))
	}
	for i, tag := range l.seen[id] {
		if i >= len(tags) || tags[i] != tag {
			return fmt.Errorf("a reader saw event %s at seq %d and it is gone", tag, i+1)
		}
	}
	return l.whole(tags)
}

// whole checks that no batch is there only in part.
func (l *ledger) whole(tags []string) error {
	for i, tag := range tags {
		for j := 1; j < l.size[tag]; j++ {
			if i+j >= len(tags) || tags[i+j] != nextTag(tag, j) {
				return fmt.Errorf("of the batch of %s only a part is there", tag)
			}
		}
	}
	return nil
}

func nextTag(tag string, j int) string {
	i := strings.LastIndexByte(tag, '.')
	var n int
	_, _ = fmt.Sscan(tag[i+1:], &n)
	return fmt.Sprintf("%s.%d", tag[:i], n+j)
}
