package durable

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// reading is a request to read.
type reading struct {
	id      hansard.SessionID
	created time.Time // of the session
	c       *config
	after   hansard.Seq
	now     bool // start at the end of the stream
	live    string
	cursor  string
	whole   bool // whole events, not their data
}

// paramEvents asks for whole events.
const paramEvents = "events"

// The ways to wait for more.
const (
	liveLongPoll = "long-poll"
	liveSSE      = "sse"
)

// Read answers with what follows an offset or, for HEAD, with a description of the stream.
func (s *Streams) Read(w http.ResponseWriter, r *http.Request, id hansard.SessionID) error {
	// The content has the type that its writer chose, which may be text/html. A browser that
	// opens it must not run it as a page of this server.
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	c, info, err := s.open(r.Context(), id)
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		h := w.Header()
		c.describe(h)
		c.ends(h, info)
		w.WriteHeader(http.StatusOK)
		return nil
	}
	rd, err := parseReading(r, c, info)
	if err != nil {
		return err
	}
	if c.TTL != nil {
		s.reads.note(id, s.now())
	}
	switch rd.live {
	case liveLongPoll:
		return s.longPoll(w, r, rd)
	case liveSSE:
		return s.stream(w, r, rd)
	}
	room := s.opt.Room(r.Context())
	defer room.Free()
	var p *page
	if rd.now {
		p = &page{next: rd.after, upToDate: true, closed: c.Closed != nil}
	} else if p, err = s.page(r.Context(), room, rd, rd.after); err != nil {
		return told(err)
	}
	return s.answer(w, r, rd, p)
}

func parseReading(r *http.Request, c *config, info *hansard.Info) (*reading, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, malformed("the query is not well formed")
	}
	for _, name := range []string{"offset", "live", "cursor", paramEvents} {
		if len(query[name]) > 1 {
			return nil, malformed("%s is given twice", name)
		}
	}
	rd := &reading{id: info.ID, created: info.Created, c: c, live: query.Get("live"), cursor: query.Get("cursor")}
	if query.Has("live") && rd.live != liveLongPoll && rd.live != liveSSE {
		return nil, malformed("live is %s or %s", liveLongPoll, liveSSE)
	}
	switch v := query.Get(paramEvents); {
	case v == headerTrue && c.json():
		rd.whole = true
	case v != "" && v != "false":
		return nil, malformed("%s is true, for a stream of %s, or false", paramEvents, mediaJSON)
	}
	tail := c.tail(info)
	switch text := query.Get("offset"); {
	case !query.Has("offset") && rd.live != "":
		return nil, malformed("live needs an offset")
	case !query.Has("offset") || text == offsetStart:
		rd.after = c.Start
	case text == offsetNow:
		rd.after, rd.now = tail, true
	default:
		if rd.after, err = parseOffset(text); err != nil {
			return nil, err
		}
		if rd.after > max(tail, info.LastSeq) {
			return nil, malformed("the stream ends before the offset %s", text)
		}
		if rd.after < c.Start {
			p := wire.NewProblem("deleted", "the offset is one of a stream that has expired", "read from the beginning, offset=-1")
			return nil, p
		}
		rd.after = min(rd.after, tail)
	}
	return rd, nil
}

// page is a part of a stream.
type page struct {
	body []byte // messages with commas between them, or bytes
	n    int    // messages, or chunks
	next hansard.Seq
	seen hansard.Seq // the last event that was read: waiting starts after it
	// redacted is how many events in it were redacted. It distinguishes the page from
	// one that clients have cached.
	redacted int
	// upToDate means that there is no more now, closed that there never will be.
	upToDate, closed bool
}

// page reads what follows a seq.
func (s *Streams) page(ctx context.Context, room Room, rd *reading, after hansard.Seq) (*page, error) {
	p := &page{next: after, seen: after}
	rng := hansard.Range{After: after}
	if rd.c.Closed != nil {
		if after >= rd.c.Closed.Tail {
			p.upToDate, p.closed = true, true
			return p, nil
		}
		rng.Before = rd.c.Closed.Tail + 1
	}
	if err := room.Read(ctx); err != nil {
		return nil, err
	}
	defer room.Rest()
	for e, err := range s.store.Read(ctx, rd.id, rng) {
		if err != nil {
			if p.n > 0 && hansard.Kind(err) == hansard.ErrDamaged {
				return p, nil // the safe content first; the next page reports the damage
			}
			return nil, err
		}
		closing := rd.c.closedBy(&e)
		content, ok := rd.content(&e)
		if e.Redacted {
			p.redacted++
		}
		if closing && !ok && !e.Redacted {
			p.upToDate, p.closed = true, true
			return p, nil
		}
		if ok {
			if p.n == maxPageMessages || p.n > 0 && len(p.body)+len(content) > maxPageBytes {
				return p, nil
			}
			if fits, err := room.Fit(ctx, p.n == 0, 2*len(content)); err != nil {
				return nil, err
			} else if !fits {
				return p, nil
			}
			if p.n++; rd.c.json() && p.n > 1 {
				p.body = append(p.body, ',')
			}
			p.body = append(p.body, content...)
		}
		p.seen = e.Seq
		if e.Fork == nil { // the event of a fork does not move the end of the stream
			p.next = e.Seq
		}
		if closing {
			p.upToDate, p.closed = true, true
			return p, nil
		}
	}
	p.upToDate, p.closed = true, rd.c.Closed != nil
	return p, nil
}

// pageOfSame is a page for a client that may have waited: the stream may have been deleted since, and its name reused. If
// the session is still the same after the page was read, the page belongs to the stream that was asked for.
func (s *Streams) pageOfSame(ctx context.Context, room Room, rd *reading, after hansard.Seq) (*page, error) {
	p, err := s.page(ctx, room, rd, after)
	if err != nil {
		return nil, err
	}
	info, err := s.store.Stat(ctx, rd.id)
	if err == nil && !info.Created.IsZero() && !info.Created.Equal(rd.created) {
		err = fmt.Errorf("%w: %s, and its name is another stream's now", hansard.ErrDeleted, rd.id)
	}
	return p, err
}

// content is what an event contributes to the stream; ok is false if it is not part of it.
func (rd *reading) content(e *hansard.Event) (content []byte, ok bool) {
	switch {
	case rd.whole:
		return wire.AppendEvent(nil, e), true
	case e.Redacted, len(e.Redacts) > 0:
		return nil, false
	case !rd.c.json():
		if e.Kind != kindChunk {
			return nil, false
		}
		return decodeChunk(e.Data)
	case e.Fork != nil, e.Kind == hansard.KindTurn, e.Kind == hansard.KindMeta && e.Patch != nil && string(e.Data) == "null":
		return nil, false
	}
	return e.Data, true
}

// all is the body of an answer.
func (p *page) all(json bool) []byte {
	if !json {
		return p.body
	}
	return append(append(append(make([]byte, 0, len(p.body)+2), '['), p.body...), ']')
}

// answer answers a read that is not an event stream.
func (s *Streams) answer(w http.ResponseWriter, r *http.Request, rd *reading, p *page) error {
	h := w.Header()
	h.Set(headerNext, formatOffset(p.next))
	if p.upToDate {
		h.Set(headerUpToDate, headerTrue)
	}
	closedTag := ""
	if p.closed {
		h.Set(headerClosed, headerTrue)
		closedTag = ":c"
	}
	if rd.live != "" {
		h.Set(headerCursor, nextCursor(s.now(), rd.cursor))
	}
	if rd.live != "" && p.n == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	rd.c.describe(h)
	if !rd.now {
		tag := fmt.Sprintf(`"%x:%s:%s%s"`, rd.created.UnixNano(), formatOffset(rd.after), formatOffset(p.next), closedTag)
		if p.redacted > 0 {
			tag = fmt.Sprintf(`%s:r%d"`, strings.TrimSuffix(tag, `"`), p.redacted)
		}
		if rd.whole {
			tag = strings.TrimSuffix(tag, `"`) + `:e"`
		}
		h.Set("ETag", tag)
		if rd.live == "" && matches(r.Header.Values("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	body := p.all(rd.c.json())
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(body)
	return err
}

func matches(have []string, tag string) bool {
	for _, header := range have {
		for _, one := range strings.Split(header, ",") {
			if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
				return true
			}
		}
	}
	return false
}

// waiting is the context of a request that waits. It ends after a time, and when the server
// closes.
func (s *Streams) waiting(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithTimeout(ctx, most)
	stop := context.AfterFunc(s.opt.Closing, cancel)
	return out, func() { stop(); cancel() }
}

// wait waits for an event. over means that the time is up, or the server closes.
func (s *Streams) wait(ctx, request context.Context, id hansard.SessionID, after hansard.Seq) (over bool, err error) {
	err = s.store.Wait(ctx, id, after)
	switch {
	case err != nil && ctx.Err() != nil && request.Err() == nil:
		return true, nil
	case errors.Is(err, hansard.ErrClosed):
		return true, nil
	}
	return false, err
}

// longPoll answers as soon as there is something to read.
func (s *Streams) longPoll(w http.ResponseWriter, r *http.Request, rd *reading) error {
	ctx, cancel := s.waiting(r.Context(), s.opt.LongPoll)
	defer cancel()
	after := rd.after
	for {
		over, err := s.poll(ctx, w, r, rd, &after)
		if over || err != nil {
			return told(err)
		}
	}
}

// poll reads once, and waits once if there is nothing. over means that it has answered.
func (s *Streams) poll(ctx context.Context, w http.ResponseWriter, r *http.Request, rd *reading, after *hansard.Seq) (over bool, err error) {
	room := s.opt.Room(r.Context())
	p, err := s.pageOfSame(r.Context(), room, rd, *after)
	if err != nil {
		room.Free()
		return false, err
	}
	if p.n > 0 || p.closed {
		defer room.Free()
		return true, s.answer(w, r, rd, p)
	}
	room.Free()
	*after = p.seen
	over, err = s.wait(ctx, r.Context(), rd.id, p.seen)
	if over && err == nil {
		return true, s.answer(w, r, rd, p)
	}
	return false, err
}

// stream sends what is stored, then what arrives, as server-sent events.
func (s *Streams) stream(w http.ResponseWriter, r *http.Request, rd *reading) error {
	ctx, cancel := s.waiting(r.Context(), s.opt.SSE)
	defer cancel()
	h := w.Header()
	rd.c.describe(h)
	h.Set(headerType, "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-store")
	h.Set("X-Accel-Buffering", "no") // for proxies that would hold events back
	if !rd.c.json() && !rd.c.text() {
		h.Set(headerEncoding, "base64")
	}
	w.WriteHeader(http.StatusOK)
	told := false // the client has been told where the stream ends
	for {
		room := s.opt.Room(r.Context())
		p, err := s.pageOfSame(r.Context(), room, rd, rd.after)
		if err == nil && (p.n > 0 || p.closed || !told) {
			err = s.send(w, rd, p)
			told = true
		}
		room.Free()
		if err != nil || p.closed {
			return err
		}
		rd.after = p.seen
		if !p.upToDate {
			continue
		}
		if over, err := s.wait(ctx, r.Context(), rd.id, rd.after); over || err != nil {
			return err
		}
	}
}

// send sends a page, and a control event with the offset after it.
func (s *Streams) send(w http.ResponseWriter, rd *reading, p *page) error {
	var out []byte
	if p.n > 0 {
		out = append(out, "event: data\n"...)
		switch {
		case rd.c.json():
			out = appendData(out, string(p.all(true)))
		case rd.c.text():
			out = appendData(out, strings.ToValidUTF8(string(p.body), "\uFFFD"))
		default:
			out = appendData(out, base64.StdEncoding.EncodeToString(p.body))
		}
		out = append(out, '\n')
	}
	control := map[string]any{"streamNextOffset": formatOffset(p.next)}
	if p.upToDate {
		control["upToDate"] = true
	}
	if p.closed {
		control["streamClosed"] = true
	} else {
		control["streamCursor"] = nextCursor(s.now(), rd.cursor)
		rd.cursor = control["streamCursor"].(string)
	}
	out = append(out, "event: control\n"...)
	out = appendData(out, string(wire.Marshal(control)))
	if _, err := w.Write(append(out, '\n')); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// lineEnds are the line ends of an event stream: each line of the data needs its own "data:".
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func appendData(out []byte, text string) []byte {
	for line := range strings.SplitSeq(lineEnds.Replace(text), "\n") {
		out = append(out, "data:"...)
		if strings.HasPrefix(line, " ") {
			out = append(out, ' ') // clients remove one space
		}
		out = append(out, line...)
		out = append(out, '\n')
	}
	return out
}
