package httpd

import (
	"context"
	"sync"

	"hansard"
	"hansard/transcript"
)

// People recognise a session without a title by the first thing they said in it. That is
// near the beginning of the log, and does not change once the log is longer than the part
// that is read here.

const (
	// previewPageBytes is how much is read for all the previews of one page of a
	// list. Previews beyond that appear when the page is requested again.
	previewPageBytes = 16 << 20
	// previewsKept is how many are remembered, in each of two generations.
	previewsKept = 8192
)

// previews remembers first prompts.
type previews struct {
	mu       sync.Mutex // guards all below
	now, old map[previewKey]preview
}

// previewKey identifies a session, as opposed to an earlier one with the same id.
type previewKey struct {
	id      hansard.SessionID
	created int64
}

type preview struct {
	text    string
	seq     hansard.Seq // of the event it is from; 0 if there is none
	last    hansard.Seq // last seq of the session when it was read
	settled bool        // appends no longer change it
}

// of returns the first prompt of a session that has no title; empty if there is none, or
// if the session can't be read: that must not fail the list. It reads at most left
// bytes, and subtracts what it read.
func (p *previews) of(ctx context.Context, store hansard.Store, room *room, info *hansard.Info, left *int) string {
	if info.Title != "" || info.LastSeq == 0 {
		return ""
	}
	key := previewKey{info.ID, info.Created.UnixNano()}
	p.mu.Lock()
	known, ok := p.now[key]
	if !ok {
		known, ok = p.old[key]
	}
	p.mu.Unlock()
	if !ok || known.last != info.LastSeq { // else nothing is read
		if room.read(ctx) != nil {
			return known.text
		}
		defer room.rest()
	}
	if ok && known.settled && known.last != info.LastSeq && known.seq > 0 {
		ok = stillThere(ctx, store, info.ID, known.seq, left)
		known.last = info.LastSeq
	}
	if !ok || !known.settled && known.last != info.LastSeq {
		if *left <= 0 {
			return known.text
		}
		look, err := transcript.Look(ctx, store, info.ID)
		*left -= look.Bytes
		known = preview{text: look.Text, seq: look.Seq, last: info.LastSeq, settled: look.Settled}
		if err != nil {
			return known.text
		}
	}
	p.keep(key, known)
	return known.text
}

// stillThere reports whether an event was not redacted: nothing else changes the prompt of a
// session that is longer than the part that is read.
func stillThere(ctx context.Context, store hansard.Store, id hansard.SessionID, seq hansard.Seq, left *int) bool {
	for e, err := range store.Read(ctx, id, hansard.Range{After: seq - 1, Limit: 1}) {
		*left -= len(e.Data)
		return err == nil && !e.Redacted
	}
	return false
}

func (p *previews) keep(key previewKey, known preview) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil || len(p.now) >= previewsKept {
		p.old, p.now = p.now, make(map[previewKey]preview)
	}
	p.now[key] = known
}
