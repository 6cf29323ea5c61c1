package httpd

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"net/http"
	"strings"
	"time"

	"hansard"
	"hansard/engine/terms"
	"hansard/internal/wire"
)

const (
	// searchHits and maxSearchHits are how many hits a page has, by default and at most.
	searchHits    = 20
	maxSearchHits = 1000
	// searchTime is how long a search may take, including the indexing of new events.
	// The next search continues from what was indexed by then.
	searchTime = time.Minute
)

// searchEvents looks for words in all sessions that the token may read.
func (s *Server) searchEvents(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "q", "role", "kind", "label", "since", "before", "in", "prefix", "limit", "offset")
	q := hansard.SearchQuery{Text: p.text("q"), Role: p.text("role"), Kind: p.text("kind"), In: hansard.SessionID(p.text("in")), Prefix: p.text("prefix"),
		Labels: p.labels(), Since: p.time("since"), Before: p.time("before"), Offset: p.count("offset", 0, math.MaxInt32)}
	limit := p.limit(searchHits, maxSearchHits)
	if p.err != nil {
		return p.err
	}
	if _, err := terms.Check(&q); err != nil {
		var bad *hansard.InvalidError
		if errors.As(err, &bad) && bad.Field == "text" {
			bad.Field = "q"
		}
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), searchTime)
	defer cancel()
	done, err := s.beginSearch(ctx)
	if err != nil {
		return searchOver(r, err)
	}
	defer done()
	if wantsLines(r) {
		if q.Limit = p.count("limit", 0, math.MaxInt32); p.err != nil {
			return p.err
		}
		return s.searchLines(w, r, ctx, q)
	}
	q.Limit = limit + 1 // one more shows whether there are more
	return s.searchPage(w, r, ctx, q)
}

// searchOver turns the error of a search that took too long into one that can be acted on.
func searchOver(r *http.Request, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil {
		return &hansard.BusyError{Own: "the search took longer than a minute, or the events are still being indexed"}
	}
	return err
}

// searchPage answers with one page of hits.
func (s *Server) searchPage(w http.ResponseWriter, r *http.Request, ctx context.Context, q hansard.SearchQuery) error {
	room := s.memory.load(callerOf(r.Context()).Name)
	defer room.free()
	answer := struct {
		Hits []hansard.Hit `json:"hits"`
		More bool          `json:"more"`
	}{Hits: []hansard.Hit{}}
	for h, err := range s.door.Search(ctx, q) {
		if err != nil {
			return searchOver(r, err)
		}
		if answer.More = len(answer.Hits) == q.Limit-1; answer.More {
			break
		}
		fits, err := room.fit(ctx, len(answer.Hits) == 0, len(h.Snippet)+len(h.Title)+1024)
		if err != nil {
			return searchOver(r, err)
		}
		if answer.More = !fits; answer.More {
			break
		}
		answer.Hits = append(answer.Hits, h)
	}
	return writeJSON(w, http.StatusOK, answer)
}

// searchLines answers with all hits, one per line.
func (s *Server) searchLines(w http.ResponseWriter, r *http.Request, ctx context.Context, q hansard.SearchQuery) error {
	out := newLines(w)
	for h, err := range s.door.Search(ctx, q) {
		if err != nil {
			if err := s.endLines(out, r, searchOver(r, err)); err != nil {
				return err
			}
			break
		}
		if err := out.line(wire.Marshal(h)); err != nil {
			return err
		}
	}
	return out.flush()
}

// Search implements [hansard.Searcher] for the holder of a token: the scope is part of the
// query, so that nothing outside of it is even read.
func (d *door) Search(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	who := callerOf(ctx)
	nothing := func(func(hansard.Hit, error) bool) {}
	if who.user == nil {
		return nothing
	}
	alone := q.In == "" && who.Scope.Session != ""
	if q.In != "" {
		if _, err := d.pass(ctx, q.In, ""); err != nil {
			return func(yield func(hansard.Hit, error) bool) { yield(hansard.Hit{}, err) }
		}
	}
	q, ok := who.Scope.confine(q)
	if !ok {
		return nothing
	}
	return func(yield func(hansard.Hit, error) bool) {
		for h, err := range d.search(ctx, q) {
			if alone && (errors.Is(err, hansard.ErrNotFound) || errors.Is(err, hansard.ErrDeleted)) {
				return // the client did not ask for this session: the scope did
			}
			if h.Session == ReadySession {
				continue
			}
			if !yield(h, err) {
				return
			}
		}
	}
}

// search asks the store, or reads it if it has no search of its own.
func (d *door) search(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	if searcher, ok := d.Store.(hansard.Searcher); ok {
		return searcher.Search(ctx, q)
	}
	return terms.ByReading(ctx, d.Store, q)
}

// confine limits a query to what is in scope. It returns false if nothing is.
func (s Scope) confine(q hansard.SearchQuery) (hansard.SearchQuery, bool) {
	if s.Session != "" {
		if q.In != "" && q.In != s.Session {
			return q, false
		}
		q.In = s.Session
	}
	switch {
	case strings.HasPrefix(s.Prefix, q.Prefix):
		q.Prefix = s.Prefix
	case !strings.HasPrefix(q.Prefix, s.Prefix):
		return q, false
	}
	if len(s.Labels) > 0 {
		labels := maps.Clone(s.Labels)
		for name, value := range q.Labels {
			if want, ok := labels[name]; ok && want != value {
				return q, false
			}
			labels[name] = value
		}
		q.Labels = labels
	}
	return q, true
}

// labels are the pairs of a parameter that may be repeated.
func (p *params) labels() map[string]string {
	labels := map[string]string{}
	for _, pair := range p.values["label"] {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			p.fail("label", "it is not of the form name=value")
		}
		if other, twice := labels[name]; twice && other != value {
			p.fail("label", "it is given twice, with two values")
		}
		labels[name] = value
	}
	return labels
}

// time is a parameter that is a time; zero if it is not given.
func (p *params) time(name string) (t time.Time) {
	if text := p.text(name); text != "" {
		var err error
		if t, err = time.Parse(time.RFC3339Nano, text); err != nil {
			p.fail(name, "it is not a time like 2024-06-01T15:04:05Z")
		}
	}
	return t
}
