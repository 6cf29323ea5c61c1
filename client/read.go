package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
)

// maxLineBytes bounds the line of an event: its data twice, as it is and as a string with
// every byte escaped, and its frame.
const maxLineBytes = 4*hansard.MaxBatchBytes + 4*hansard.MaxStateBytes

// Stat implements [hansard.Store].
func (s *Store) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	leave, err := s.enter(ctx, hansard.CheckID(id))
	if err != nil {
		return hansard.Info{}, err
	}
	defer leave()
	asking, cancel := s.until(ctx)
	defer cancel()
	var found wire.Session
	_, err = s.answer(asking, &request{method: http.MethodGet, path: sessionPath(id, "")}, &found)
	return found.Describe(), s.ended(ctx, err)
}

// pollFor is how long the server is asked to wait per request.
const pollFor = 25 * time.Second

// Wait implements [hansard.Store].
func (s *Store) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	leave, err := s.enter(ctx, hansard.CheckID(id))
	if err != nil {
		return err
	}
	defer leave()
	asking, cancel := s.until(ctx)
	defer cancel()
	q := &request{method: http.MethodGet, path: sessionPath(id, "/events"), query: url.Values{
		"after": {number(uint64(after))}, "limit": {"1"}, "wait_ms": {number(uint64(pollFor.Milliseconds()))}}}
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		var page struct {
			LastSeq hansard.Seq `json:"last_seq"`
		}
		asked := time.Now()
		if _, err := s.answer(asking, q, &page); err != nil || page.LastSeq > after {
			return s.ended(ctx, err)
		}
		if time.Since(asked) > pauseMax {
			pause = pauseMin
			continue
		}
		// It did not wait: it is about to shut down.
		select {
		case <-time.After(pause):
		case <-asking.Done():
		}
	}
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// Read implements [hansard.Store]. Events are yielded as they arrive, so memory is
// bounded; if the connection breaks, a new one continues after the last event.
func (s *Store) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		leave, err := s.enter(ctx, hansard.CheckID(id), engine.CheckRange(&r))
		if err != nil {
			yield(hansard.Event{}, err)
			return
		}
		defer leave()
		reading, cancel := s.until(ctx)
		defer cancel()
		r := engine.Plain(r) // and a copy: each iteration reads from the beginning
		line := func(object []byte) (bool, error) {
			e, err := wire.ParseEvent(object)
			if err != nil {
				return false, fmt.Errorf("%s sends an event that can't be read: %w", s.name, err)
			}
			if err := reading.Err(); err != nil {
				return false, err // a read that was cut short must not look complete
			}
			r = restOf(r, &e)
			return yield(e, nil), nil
		}
		err = s.lines(reading, func() *request {
			if r.Limit < 0 {
				return nil
			}
			return &request{method: http.MethodGet, path: sessionPath(id, "/events"), query: rangeQuery(r), lines: true}
		}, line)
		if r.Limit < 0 && errors.As(err, new(*brokenOff)) {
			err = nil // everything had arrived
		}
		if err != nil {
			yield(hansard.Event{}, s.ended(ctx, err))
		}
	}
}

// restOf is what is left of a range after an event, for the connection that continues it.
// Limit -1 means that nothing is left.
func restOf(r hansard.Range, e *hansard.Event) hansard.Range {
	if r.ID != "" {
		return hansard.Range{Limit: -1} // only one event has the id
	}
	if r.Reverse {
		r.Before = e.Seq
		if e.Kind == r.FromKind {
			r.Limit = -1 // the range began with this event
		}
	} else {
		r.After, r.Last, r.FromKind = e.Seq, 0, ""
	}
	if r.Limit > 0 {
		r.Limit--
		if r.Limit == 0 {
			r.Limit = -1
		}
	}
	return r
}

func rangeQuery(r hansard.Range) url.Values {
	q := url.Values{}
	if r.After > 0 {
		q.Set("after", number(uint64(r.After)))
	}
	if r.Limit > 0 {
		q.Set("limit", strconv.Itoa(r.Limit))
	}
	if r.Last > 0 {
		q.Set("last", strconv.Itoa(r.Last))
	}
	if r.Before > 0 {
		q.Set("before", number(uint64(r.Before)))
	}
	if r.Reverse {
		q.Set("reverse", "true")
	}
	switch r.FromKind {
	case "":
	case hansard.KindSummary:
		q.Set("from_summary", "true") // older servers know it, too
	default:
		q.Set("from_kind", r.FromKind)
	}
	if len(r.Kinds) > 0 {
		q["kind"] = r.Kinds
	}
	if r.ID != "" {
		q.Set("id", r.ID)
	}
	return q
}

// List implements [hansard.Store].
func (s *Store) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	return answers(ctx, s, engine.CheckQuery(&q), &request{method: http.MethodGet, path: "/v1/sessions", query: listQuery(q), lines: true}, "a session",
		func(session wire.Session) hansard.Info { return session.Describe() })
}

// Count implements [hansard.Counter].
func (s *Store) Count(ctx context.Context, q hansard.Query) (int, error) {
	leave, err := s.enter(ctx, engine.CheckQuery(&q))
	if err != nil {
		return 0, err
	}
	defer leave()
	asking, cancel := s.until(ctx)
	defer cancel()
	q.Limit, q.Cursor = 0, ""
	query := listQuery(q)
	query.Set("count", "true")
	var found wire.Count
	_, err = s.answer(asking, &request{method: http.MethodGet, path: "/v1/sessions", query: query}, &found)
	return found.Count, s.ended(ctx, err)
}

func listQuery(q hansard.Query) url.Values {
	out := url.Values{}
	if q.Limit > 0 {
		out.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Cursor != "" {
		out.Set("cursor", q.Cursor)
	}
	if q.Order == hansard.OrderCreated {
		out.Set("order", "created")
	}
	if q.Prefix != "" {
		out.Set("prefix", q.Prefix)
	}
	if q.Parent != "" {
		out.Set("parent", string(q.Parent))
	}
	for _, id := range q.IDs {
		out.Add("id", string(id))
	}
	if q.Text != "" {
		out.Set("q", q.Text)
	}
	for name, t := range map[string]time.Time{"since": q.Since, "before": q.Before, "created_since": q.CreatedSince, "created_before": q.CreatedBefore} {
		if !t.IsZero() {
			out.Set(name, t.Format(time.RFC3339Nano))
		}
	}
	if q.Held {
		out.Set("held", "true")
	}
	if q.Damaged {
		out.Set("damaged", "true")
	}
	switch q.Archived {
	case hansard.ArchivedNo:
		out.Set("archived", "no")
	case hansard.ArchivedOnly:
		out.Set("archived", "only")
	}
	for name, value := range q.Labels {
		out.Add("label", name+"="+value)
	}
	return out
}

// lines requests lines and passes each of them to take, until take returns false. When
// the connection breaks, or the server shuts down, it asks again; next is the request to
// continue with, or nil if that is impossible.
func (s *Store) lines(ctx context.Context, next func() *request, take func(object []byte) (more bool, err error)) error {
	tries := s.tries()
	for {
		res, _, err := s.do(ctx, next())
		if err != nil {
			return err
		}
		err = eachLine(res.Body, func(line []byte) (bool, error) {
			if p := problemLine(line); p != nil {
				err := p.Err()
				if isClosing(err) {
					err = &brokenOff{err} // the rest is to be had elsewhere
				}
				return false, err
			}
			tries = s.tries()
			return take(line)
		})
		res.Body.Close()
		var broken *brokenOff
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.As(err, &broken):
			return err
		}
		if next() != nil && tries.again(ctx) {
			continue
		}
		if ctx.Err() != nil { // it ended during the pause
			return ctx.Err()
		}
		return &UnreachableError{s.name, err}
	}
}

// problemLine returns the problem, if the last line of a response is one.
func problemLine(line []byte) *wire.Problem {
	if len(line) < 11 || string(line[:11]) != `{"problem":` {
		return nil
	}
	var last struct{ Problem *wire.Problem }
	if json.Unmarshal(line, &last) != nil {
		return nil
	}
	return last.Problem
}

// brokenOff is the error of a response whose end never arrived.
type brokenOff struct{ err error }

func (e *brokenOff) Error() string { return "the response broke off: " + e.err.Error() }
func (e *brokenOff) Unwrap() error { return e.err }

// eachLine yields the lines of a response, each in memory of its own.
func eachLine(body io.Reader, take func([]byte) (bool, error)) error {
	in := bufio.NewReaderSize(body, 64<<10)
	for {
		var line []byte
		for {
			part, err := in.ReadSlice('\n')
			line = append(line, part...)
			if err == io.EOF && len(line) == 0 {
				return nil
			}
			if err == nil {
				break
			}
			if err != bufio.ErrBufferFull {
				if err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return &brokenOff{err}
			}
			if len(line) > maxLineBytes {
				return errors.New("the server sends a line longer than any event")
			}
		}
		if more, err := take(line[:len(line)-1]); err != nil || !more {
			return err
		}
	}
}
