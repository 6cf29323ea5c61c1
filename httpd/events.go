package httpd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
)

// writing is the context of a write. A client that disconnects does not end it: a write
// that has begun is finished, and a retry with its key returns the outcome.
func writing(r *http.Request) context.Context { return context.WithoutCancel(r.Context()) }

// appendEvents stores a batch.
func (s *Server) appendEvents(w http.ResponseWriter, r *http.Request) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	body, free, err := s.body(w, r, maxBodyBytes)
	if err != nil {
		return err
	}
	defer free()
	b, err := wire.ParseBatch(body)
	if err != nil {
		return err
	}
	if err := conditions(r, &b); err != nil {
		return err
	}
	receipt, err := s.append(writing(r), sessionID(r), b)
	if err != nil {
		return err
	}
	if receipt.Last > 0 { // 0 if all events were known: nothing was stored, and nothing read
		w.Header().Set("ETag", etag(receipt.Last))
	}
	return writeJSON(w, http.StatusCreated, receipt)
}

// readEvent answers with the event that has an id.
func (s *Server) readEvent(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "view", "whole")
	as := s.viewing(p)
	if p.err != nil {
		return p.err
	}
	room := s.room(r.Context())
	defer room.free()
	if err := room.read(r.Context()); err != nil {
		return err
	}
	e, err := s.event(r.Context(), sessionID(r), r.PathValue("event"))
	if err != nil {
		return err
	}
	if _, err := room.fit(r.Context(), true, 2*len(e.Data)); err != nil {
		return err
	}
	room.rest()
	return writeBytes(w, http.StatusOK, append(as.event(nil, &e), '\n'))
}

// event reads the event with an id.
func (s *Server) event(ctx context.Context, id hansard.SessionID, event string) (hansard.Event, error) {
	if event == "" {
		return hansard.Event{}, &hansard.InvalidError{Field: "event", Reason: "it is empty"}
	}
	for e, err := range s.store.Read(ctx, id, hansard.Range{ID: event}) {
		return e, err
	}
	return hansard.Event{}, engine.NoEvent(id, event)
}

// afterID is the seq to begin after: after itself, or the seq of the event that after_id names.
func (s *Server) afterID(r *http.Request, p *params, after hansard.Seq) (hansard.Seq, error) {
	if !p.has("after_id") || p.err != nil {
		return after, nil
	}
	if p.has("after") {
		p.fail("after_id", "give one of after and after_id")
		return after, nil
	}
	return s.seqOf(r.Context(), sessionID(r), p.text("after_id"))
}

// seqOf is the seq of the event with an id.
func (s *Server) seqOf(ctx context.Context, id hansard.SessionID, event string) (hansard.Seq, error) {
	room := s.room(ctx)
	defer room.free()
	if err := room.read(ctx); err != nil {
		return 0, err
	}
	e, err := s.event(ctx, id, event)
	return e.Seq, err
}

// viewing is the view in which a request wants its events.
func (s *Server) viewing(p *params) view {
	as := viewOf(p)
	switch {
	case p.has("whole") && as == stored:
		p.fail("whole", "it is for view=parts; events as they are stored are whole")
	case p.flag("whole"):
		as = wholeParts
	}
	return as
}

// append stores a batch and counts the outcome.
func (s *Server) append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	receipt, err := s.store.Append(ctx, id, b)
	s.metrics.append(&b, receipt, err)
	return receipt, malformedData(&b, err)
}

// malformedData reports event data that is not JSON as malformed, like a body that is not
// JSON.
func malformedData(b *hansard.Batch, err error) error {
	var bad *hansard.InvalidError
	if !errors.As(err, &bad) || bad.TooLarge {
		return err
	}
	index, ok := strings.CutPrefix(bad.Field, "events[")
	index, rest, _ := strings.Cut(index, "]")
	n, convErr := strconv.Atoi(index)
	if ok && rest == ".data" && convErr == nil && n < len(b.Events) && len(b.Events[n].Data) > 0 && !json.Valid(b.Events[n].Data) {
		return wire.NewProblem("malformed", bad.Error(), "send JSON")
	}
	return err
}

// readEvents answers with a page of events, or with all events of a range as lines.
func (s *Server) readEvents(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "after", "after_id", "before", "reverse", "limit", "last", "kind", "from_kind", "from_summary", "id", "wait_ms", "view", "whole")
	rng := hansard.Range{
		After:       hansard.Seq(p.number("after", 0)),
		Before:      hansard.Seq(p.number("before", 0)),
		Reverse:     p.flag("reverse"),
		FromKind:    p.text("from_kind"),
		Last:        p.count("last", 0, math.MaxInt32),
		Kinds:       p.values["kind"],
		FromSummary: p.flag("from_summary"),
		ID:          p.text("id"),
	}
	lines := wantsLines(r)
	limit := p.count("limit", 0, math.MaxInt32)
	if !lines {
		limit = p.limit(maxPageEvents, maxPageEvents)
	}
	wait := time.Duration(min(p.number("wait_ms", 0), uint64(pollMax.Milliseconds()))) * time.Millisecond
	if p.has("last") && rng.Last == 0 {
		p.fail("last", "the last 0 events are none")
	}
	if wait > 0 && rng.Before > 0 {
		p.fail("wait_ms", "it waits for new events, and before leaves those out")
	}
	as := s.viewing(p)
	if p.has("id") && rng.ID == "" {
		p.fail("id", "it is empty")
	}
	var err error
	if rng.After, err = s.afterID(r, p, rng.After); err != nil || p.err != nil {
		return cmp.Or(p.err, err)
	}
	if err := engine.CheckRange(&rng); err != nil {
		return err
	}
	if wait > 0 {
		if err := s.waitFor(r, rng.After, wait); err != nil {
			return err
		}
	}
	if lines {
		rng.Limit = limit
		return s.writeLines(w, r, rng, as)
	}
	return s.writePage(w, r, rng, limit, as)
}

// waitFor waits a limited time for an event. It is not an error if none comes.
func (s *Server) waitFor(r *http.Request, after hansard.Seq, wait time.Duration) error {
	if who := callerOf(r.Context()); !who.Scope.All() {
		if err := s.door.inScope(r.Context(), who, sessionID(r)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	err := s.hub.wait(ctx, sessionID(r), after)
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		return nil
	}
	return err
}

// wantsLines reports whether the client asked for lines.
func wantsLines(r *http.Request) bool {
	for _, accept := range r.Header.Values("Accept") {
		for _, part := range strings.Split(accept, ",") {
			if kind, _, err := mime.ParseMediaType(part); err == nil && kind == "application/x-ndjson" {
				return true
			}
		}
	}
	return false
}

// writePage answers with one page. What comes after the events of a page, more events or
// damage, is reported by the next page.
func (s *Server) writePage(w http.ResponseWriter, r *http.Request, rng hansard.Range, limit int, as view) error {
	info, err := s.store.Stat(r.Context(), sessionID(r))
	if err != nil {
		return err
	}
	last := info.LastSeq
	if w.Header().Set("ETag", tagAt(&info, last)); info.Damage == nil && unchanged(w, nil) { // which needs no reading
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body := []byte(`{"events":[`)
	more := false
	n := 0
	room := s.room(r.Context())
	defer room.free()
	if err := room.read(r.Context()); err != nil {
		return err
	}
	if rng.ID == "" {
		rng.Limit = limit + 1
	}
	for e, err := range s.store.Read(r.Context(), info.ID, rng) {
		if err != nil && n == 0 {
			return err
		}
		if err != nil || n == limit || n > 0 && as == stored && len(body)+len(e.Data) > maxPageBytes {
			more = true
			break
		}
		if fits, err := room.fit(r.Context(), n == 0, len(e.Data)); err != nil {
			return err
		} else if !fits {
			more = true
			break
		}
		end := len(body)
		if n++; n > 1 {
			body = append(body, ',')
		}
		body = as.event(body, &e)
		// In a view, an event may be larger than it is in the store.
		fits, err := room.fit(r.Context(), n == 1, max(0, len(body)-end-len(e.Data)))
		if err != nil {
			return err
		}
		if !fits || n > 1 && len(body) > maxPageBytes {
			body, more = body[:end], true
			break
		}
		last = max(last, e.Seq)
	}
	room.rest()
	body = append(body, `],"last_seq":`...)
	body = strconv.AppendUint(body, uint64(last), 10)
	body = append(body, `,"more":`...)
	body = strconv.AppendBool(body, more)
	w.Header().Set("ETag", tagAt(&info, last))
	return writeBytes(w, http.StatusOK, append(body, '}', '\n'))
}

// writeLines answers with all events of a range, one per line, in bounded memory: each is
// written to the answer while the store lends it, and charged for that time if it is large.
func (s *Server) writeLines(w http.ResponseWriter, r *http.Request, rng hansard.Range, as view) error {
	ctx := r.Context()
	room := s.room(ctx)
	defer room.free()
	if err := room.read(ctx); err != nil {
		return err
	}
	out := newLines(w)
	var gone, refused error // set when the client is gone, or there is no room for an event
	err := hansard.Lend(ctx, s.store, sessionID(r), rng, func(e *hansard.Event) bool {
		large := len(e.Data) > linesChunk
		if large {
			if _, refused = room.fit(ctx, true, 2*len(e.Data)); refused != nil {
				return false
			}
		}
		out.chunk = append(as.line(out.chunk, e), '\n')
		if len(out.chunk) < linesChunk {
			if large {
				room.empty() // a view may show little of it
			}
			return true
		}
		room.rest() // the client may be slow
		gone = out.flush()
		if large {
			out.chunk = nil
			room.empty()
		}
		if gone == nil {
			refused = room.read(ctx)
		}
		return gone == nil && refused == nil
	})
	room.rest()
	if gone != nil {
		return gone
	}
	if err = cmp.Or(refused, err); err != nil {
		if err := s.endLines(out, r, err); err != nil {
			return err
		}
	}
	return out.flush()
}
