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
	// previewPageBytes is how much is read for all the previews of one page of a
	// list. Those beyond it are there when the page is asked for again.
	previewPageBytes = 16 << 20
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
	if !ok || !known.settled && known.last != info.LastSeq {
		if *left <= 0 {
			return known.text
		}
		look, err := transcript.Look(ctx, store, info.ID)
		*left -= look.Bytes
		known = preview{text: look.Text, last: info.LastSeq, settled: look.Settled}
		if err != nil {
			return known.text
		}
	}
	p.keep(key, known)
	return known.text
}

func (p *previews) keep(key previewKey, known preview) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil || len(p.now) >= previewsKept {
		p.old, p.now = p.now, make(map[previewKey]preview)
	}
	p.now[key] = known
}
