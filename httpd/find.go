package httpd

import (
	"context"
	"net/http"
	"strings"

	"hansard"
	"hansard/transcript"
)

// A session is searched by reading what people read in its events, piece by piece, so
// that no request takes long and the client can stop.

const (
	// findEvents and findBytes are how much is read for one request.
	findEvents = 20_000
	findBytes  = 32 << 20
	// findMatches is the maximum number of matches in an answer.
	findMatches = 1000
	findText    = 1000 // bytes of the text to find
	// findSlots is how many searches run at a time, because they are expensive, and findEach how
	// many of one token: a search may take a minute, and those of others must not wait for it. A
	// token that has more of them than limits.each allows is refused.
	findSlots = 3
	findEach  = 2
	// around is how much is shown on either side of a match, in bytes.
	around = 60
)

// match is an event that has the text.
type match struct {
	Seq  hansard.Seq `json:"seq"`
	Line string      `json:"line"`
}

// findEventsWith looks for a text in what people read in a session's events.
func (s *Server) findEventsWith(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "q", "after", "limit")
	text := strings.ToLower(p.text("q"))
	after := hansard.Seq(p.number("after", 0))
	limit := p.limit(100, findMatches)
	switch {
	case strings.TrimSpace(text) == "":
		p.fail("q", "there is nothing to look for")
	case len(text) > findText:
		p.fail("q", "it is longer than 1000 bytes")
	}
	if p.err != nil {
		return p.err
	}
	info, err := s.store.Stat(r.Context(), sessionID(r))
	if err != nil {
		return err
	}
	done, err := s.beginSearch(r.Context())
	if err != nil {
		return err
	}
	defer done()
	answer := struct {
		Matches []match     `json:"matches"`
		Through hansard.Seq `json:"through"`
		Last    hansard.Seq `json:"last_seq"`
		More    bool        `json:"more"`
	}{Matches: []match{}, Through: after, Last: info.LastSeq}
	n, size := 0, 0
	for e, err := range s.store.Read(r.Context(), info.ID, hansard.Range{After: after}) {
		if err != nil {
			if n == 0 {
				return err
			}
			answer.More = true // the next request reports it
			break
		}
		if n == findEvents || size > findBytes || len(answer.Matches) == limit {
			answer.More = true
			break
		}
		n, size = n+1, size+len(e.Data)
		answer.Through = e.Seq
		if line, ok := matching(transcript.Of(e).PlainText(), text); ok {
			answer.Matches = append(answer.Matches, match{e.Seq, line})
		}
	}
	return writeJSON(w, http.StatusOK, answer)
}

// beginSearch waits until a search of the caller may run. The caller must call done.
func (s *Server) beginSearch(ctx context.Context) (done func(), err error) {
	account := callerOf(ctx).account
	if err := account.take(aSearch); err != nil {
		return nil, err
	}
	var taken []chan struct{}
	done = func() {
		for _, slots := range taken {
			<-slots
		}
		account.give(aSearch)
	}
	for _, slots := range []chan struct{}{account.searching, s.finding} {
		select {
		case slots <- struct{}{}:
			taken = append(taken, slots)
		case <-ctx.Done():
			done()
			return nil, ctx.Err()
		case <-s.closing.Done():
			done()
			return nil, hansard.ErrClosed
		}
	}
	return done, nil
}

// matching is the text around the first occurrence of a text, on one line.
func matching(in, text string) (string, bool) {
	lower := strings.ToLower(in)
	at := strings.Index(lower, text)
	if at < 0 {
		return "", false
	}
	if len(lower) != len(in) {
		// Some letters have a different length in lower case: the offset would be wrong.
		in = lower
	}
	begin, end := max(0, at-around), min(len(in), at+len(text)+around)
	p := transcript.Part{Type: transcript.Text, Text: strings.ToValidUTF8(in[begin:end], "")}
	line := p.Line(len(text) + 2*around)
	if begin > 0 {
		line = "…" + line
	}
	if end < len(in) && !strings.HasSuffix(line, "…") {
		line += "…"
	}
	return line, true
}
