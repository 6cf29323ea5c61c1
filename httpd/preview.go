package httpd

import (
	"context"
	"sync"

	"hansard"
	"hansard/transcript"
)

// People know a session that nobody gave a title by the first thing they said in
// it. It is near the beginning of the log, and does not change once the log is
// longer than what is looked at here.

const (
	// previewEvents and previewBytes are how far into a session the first
	// prompt is looked for.
	previewEvents = 64
	previewBytes  = 1 << 20
	// previewPageBytes is how much is read for all the previews of one page of a
	// list. Those beyond it are there when the page is asked for again.
	previewPageBytes = 16 << 20
	// previewMax is how long it is, in characters.
	previewMax = 160
	// previewsKept is how many are remembered, in each of two generations.
	previewsKept = 8192
)

// previews remembers first prompts.
type previews struct {
	mu       sync.Mutex // guards all below
	now, old map[previewKey]preview
}

// previewKey is a session, and not another one that had its id before.
type previewKey struct {
	id      hansard.SessionID
	created int64
}

type preview struct {
	text    string
	seq     hansard.Seq // of the event it is from; 0: there is none
	last    hansard.Seq // of the session when it was looked at
	settled bool        // nothing that is appended changes it
}

// of is the first prompt of a session that has no title; empty if there is none, or
// if the session can't be read: a list has to be given all the same. It reads no more
// than is left, and takes from that what it read.
func (p *previews) of(ctx context.Context, store hansard.Store, info *hansard.Info, left *int) string {
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
	if ok && known.settled && known.last != info.LastSeq && known.seq > 0 {
		ok = stillThere(ctx, store, info.ID, known.seq, left)
		known.last = info.LastSeq
	}
	if !ok || !known.settled && known.last != info.LastSeq {
		if *left <= 0 {
			return known.text
		}
		var err error
		if known, err = firstPrompt(ctx, store, info, left); err != nil {
			return known.text
		}
	}
	p.keep(key, known)
	return known.text
}

// stillThere tells whether an event was not redacted: that is all that changes the prompt
// of a session which is longer than what is looked at.
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

// firstPrompt looks for it. One that was deleted through the OpenAI routes is none.
func firstPrompt(ctx context.Context, store hansard.Store, info *hansard.Info, left *int) (preview, error) {
	out := preview{last: info.LastSeq}
	var found []struct {
		seq  hansard.Seq
		text string
	}
	deleted := map[hansard.Seq]bool{}
	n, size := 0, 0
	for e, err := range store.Read(ctx, info.ID, hansard.Range{Limit: previewEvents}) {
		if err != nil {
			return out, err
		}
		read := transcript.Of(e)
		if text := read.Preview(previewMax); text != "" {
			found = append(found, struct {
				seq  hansard.Seq
				text string
			}{e.Seq, text})
		}
		for _, part := range read.Parts {
			if part.Type == transcript.Deletion {
				deleted[part.Seq] = true
			}
		}
		n++
		*left -= len(e.Data)
		if size += len(e.Data); size > previewBytes {
			break
		}
	}
	out.settled = n == previewEvents || size > previewBytes
	for _, f := range found {
		if !deleted[f.seq] {
			out.text, out.seq = f.text, f.seq
			break
		}
	}
	return out, nil
}
