package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// streamEvents follows a session as server-sent events. The id of each is its seq, so that
// a client that reconnects with Last-Event-ID continues where it was.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "after", "after_id", "view", "created")
	as := viewOf(p)
	after, err := s.afterID(r, p, hansard.Seq(p.number("after", 0)))
	if err != nil {
		return err
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			p.fail("Last-Event-ID", "it is not the seq of an event")
		}
		after = hansard.Seq(n)
	}
	created := p.time("created")
	if p.err != nil {
		return p.err
	}
	info, err := s.store.Stat(r.Context(), sessionID(r))
	if err != nil {
		return err
	}
	if !created.IsZero() && !created.Equal(info.Created) {
		return replaced(info.ID)
	}
	if info.Damage != nil && after >= info.Damage.SafeSeq {
		return info.Damage
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // for proxies that would hold events back
	h.Set(headerCreated, info.Created.Format(time.RFC3339Nano))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	ctx, leave := s.door.follow(r.Context(), info.ID, info.LastSeq)
	defer leave()
	s.stream(w.(*recorder), r).follow(ctx, followed{info.ID, as, generation(&info)}, after)
	return nil
}

// headerCreated is when the session was created. A client that reconnects with it as "created" gets no events of
// another session that has reused the id since.
const headerCreated = "Hansard-Created"

// stream turns an answer that has begun into a stream.
func (s *Server) stream(w *recorder, r *http.Request) *sse {
	st := &sse{server: s, w: w, r: r}
	st.patience = patience{stall: s.timing.stall, grace: s.timing.grace,
		dropped: func() { s.dropped("sse", hansard.Seq(st.last.Load())) },
		cut:     func() { _ = w.control.SetWriteDeadline(time.Now()) },
	}
	return st
}

// dropped counts and logs a follower that was dropped because it read nothing.
func (s *Server) dropped(how string, last hansard.Seq) {
	s.metrics.droppedFollowers.Inc()
	s.log.Info("follower dropped", "how", how, "last", last)
}

// sse is one stream under way.
type sse struct {
	server   *Server
	w        *recorder
	r        *http.Request
	patience patience
	last     atomic.Uint64 // the last event that is written, or being written
}

// follow writes events until the client is gone, or until the stream is over and
// the client was told.
func (st *sse) follow(ctx context.Context, what followed, after hansard.Seq) {
	st.last.Store(uint64(after))
	// From here to the end patience bounds how long a write takes.
	stall := st.w.stall
	st.w.stall = 0
	st.w.deadline(time.Time{})
	st.pass(ctx, what)
	st.patience.end()
	st.w.stall = stall
	st.w.extend() // for the last bytes of the answer, written by net/http
}

func (st *sse) pass(ctx context.Context, what followed) {
	err := st.write([]byte("retry: 1000\n: following\n\n"))
	p, leave := st.server.hub.join(what)
	defer leave()
	for err == nil && !st.patience.isSlow() {
		wait, cancel := context.WithTimeout(ctx, st.server.timing.beat)
		var frames []frame
		var free func()
		frames, free, err = st.server.hub.next(wait, p, hansard.Seq(st.last.Load()))
		cancel()
		switch {
		case err == nil:
			err = st.events(ctx, frames)
			free()
		case ctx.Err() != nil: // below
		case errors.Is(err, context.DeadlineExceeded):
			err = st.write([]byte(": beat\n\n"))
		case errors.Is(err, hansard.ErrClosed):
			return // the client reconnects to another server, or to this one later
		default:
			st.problem(err)
			return
		}
	}
	switch why := ended(ctx); {
	case why != nil:
		st.problem(why)
	case ctx.Err() == nil && err == nil:
		// It was dropped but read the rest after all: tell it how far it got.
		last := st.last.Load()
		_ = st.write(fmt.Appendf(nil, "event: dropped\nid: %d\ndata: {\"last_seq\":%d}\n\n", last, last))
	}
}

func (st *sse) events(ctx context.Context, frames []frame) error {
	done, err := st.server.hub.service.begin(ctx)
	if err != nil {
		return err
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	out := &gathered{buf: (*buf)[:0], send: st.send}
	defer func() { *buf = out.buf; done(out.size) }()
	st.last.Store(uint64(frames[len(frames)-1].seq))
	defer st.patience.done()
	for _, f := range frames {
		out.buf = append(out.buf, "id: "...)
		out.buf = strconv.AppendUint(out.buf, uint64(f.seq), 10)
		out.buf = append(out.buf, "\ndata: "...)
		if err := out.add(f.line); err != nil {
			return err
		}
		out.buf = append(out.buf, "\n\n"...)
	}
	if err := out.flush(); err != nil {
		return err
	}
	return st.w.control.Flush()
}

// buffers hold what is being written to followers.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// gathered is what is being written to a follower: small pieces are gathered in a buffer, large
// ones sent as they are. All followers share the frames; if each had a copy of a large one, many
// that read nothing would take many times its size.
type gathered struct {
	buf  []byte
	size int // of what was sent
	send func([]byte) error
}

// add adds a piece that may be large. Others are appended to the buffer.
func (g *gathered) add(piece []byte) error {
	if len(g.buf)+len(piece) <= linesChunk {
		g.buf = append(g.buf, piece...)
		return nil
	}
	if err := g.flush(); err != nil {
		return err
	}
	if len(piece) <= linesChunk {
		g.buf = append(g.buf, piece...)
		return nil
	}
	g.size += len(piece)
	return g.send(piece)
}

func (g *gathered) flush() error {
	g.size += len(g.buf)
	err := g.send(g.buf)
	g.buf = g.buf[:0]
	return err
}

// problem tells the client why there is no more.
func (st *sse) problem(err error) {
	out := append([]byte("event: problem\ndata: "), wire.Marshal(st.server.told(st.r, err))...)
	_ = st.write(append(out, "\n\n"...)) // nothing is left to do if that fails
}

func (st *sse) write(b []byte) error {
	defer st.patience.done()
	if err := st.send(b); err != nil {
		return err
	}
	return st.w.control.Flush()
}

// send is write for a part of what is written. The caller ends the patience.
func (st *sse) send(b []byte) error {
	for len(b) > 0 {
		part := b[:min(len(b), linesChunk)]
		st.patience.begin()
		if _, err := st.w.Write(part); err != nil {
			return err
		}
		b = b[len(part):]
	}
	return nil
}
