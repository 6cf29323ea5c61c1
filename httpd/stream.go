package httpd

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"

	"hansard"
	"hansard/internal/wire"
)

// streamEvents follows a session as server-sent events: the id of each is its
// seq, so that a client that comes back with Last-Event-ID goes on where it was.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "after")
	after := hansard.Seq(p.number("after", 0))
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			p.fail("Last-Event-ID", "it is not the seq of an event")
		}
		after = hansard.Seq(n)
	}
	if p.err != nil {
		return p.err
	}
	info, err := s.store.Stat(r.Context(), sessionID(r))
	if err != nil {
		return err
	}
	if info.Damage != nil && after >= info.Damage.SafeSeq {
		return info.Damage
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies that would hold events back
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	stream := &sse{server: s, w: w, control: http.NewResponseController(w), caller: callerOf(r.Context())}
	if err := stream.follow(r.Context(), info.ID, after); errors.Is(err, os.ErrDeadlineExceeded) {
		s.dropped(err, "sse", stream.last)
	}
	return nil
}

// dropped notes that a follower was let go because it took nothing.
func (s *Server) dropped(err error, how string, last hansard.Seq) {
	s.metrics.droppedFollowers.Inc()
	s.log.Info("follower dropped", "how", how, "last", last, "error", wire.Scrub(err.Error()))
}

// sse is one stream under way.
type sse struct {
	server  *Server
	w       http.ResponseWriter
	control *http.ResponseController
	caller  caller
	last    hansard.Seq // the last event that was written
}

// follow writes events until the client is gone, which is its error, or the
// stream is over, which the client was told.
func (st *sse) follow(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	st.last = after
	if err := st.write([]byte("retry: 1000\n: following\n\n")); err != nil {
		return err
	}
	p, leave := st.server.hub.join(id)
	defer leave()
	for {
		wait, cancel := context.WithTimeout(ctx, st.server.timing.beat)
		frames, err := st.server.hub.next(wait, p, st.last)
		cancel()
		switch {
		case err == nil:
			err = st.events(frames)
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, context.DeadlineExceeded):
			if _, _, ok := st.server.opt.Access.Who(st.caller.token); !ok {
				return st.end(unauthorized("the token was withdrawn"))
			}
			err = st.write([]byte(": beat\n\n"))
		case errors.Is(err, hansard.ErrClosed):
			return nil // the client comes back to whoever serves then
		default:
			return st.end(err)
		}
		if err != nil {
			return err
		}
	}
}

func (st *sse) events(frames []frame) error {
	var out []byte
	for _, f := range frames {
		out = append(out, "id: "...)
		out = strconv.AppendUint(out, uint64(f.seq), 10)
		out = append(out, "\ndata: "...)
		out = append(out, f.line...)
		out = append(out, "\n\n"...)
	}
	if err := st.write(out); err != nil {
		return err
	}
	st.last = frames[len(frames)-1].seq
	return nil
}

// end tells the client why there is no more.
func (st *sse) end(err error) error {
	out := append([]byte("event: problem\ndata: "), wire.Marshal(wire.ProblemOf(err))...)
	return st.write(append(out, "\n\n"...))
}

func (st *sse) write(b []byte) error {
	if _, err := st.w.Write(b); err != nil {
		return err
	}
	return st.control.Flush()
}
