package httpd

import (
	"context"
	"net/http"

	"hansard"
	"hansard/httpd/durable"
)

// The Durable Streams protocol is in a package of its own; this file is the server around
// it: memory, shutdown, and one waiter for all clients of a session.

func (s *Server) newStreams() *durable.Streams {
	return durable.New(streamStore{counted{s.store, s.metrics}, s}, durable.Options{
		Room:     func(ctx context.Context) durable.Room { return streamRoom{s.room(ctx)} },
		Closing:  s.closing,
		LongPoll: s.timing.longPoll,
	})
}

// streamStore is the store of the streams: clients that wait for a session share one waiter.
type streamStore struct {
	counted
	server *Server
}

func (st streamStore) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	if _, err := st.server.door.pass(ctx, id, ""); err != nil {
		return err
	}
	return st.server.hub.wait(ctx, id, after)
}

// streamRoom is memory for a page of a stream.
type streamRoom struct{ *room }

func (r streamRoom) Fit(ctx context.Context, first bool, size int) (bool, error) {
	return r.fit(ctx, first, size)
}
func (r streamRoom) Read(ctx context.Context) error { return r.read(ctx) }
func (r streamRoom) Rest()                          { r.rest() }
func (r streamRoom) Free()                          { r.free() }

func (s *Server) readStream(w http.ResponseWriter, r *http.Request) error {
	return s.streams.Read(w, r, sessionID(r))
}

func (s *Server) deleteStream(w http.ResponseWriter, r *http.Request) error {
	return s.streams.Delete(w, r, sessionID(r))
}

func (s *Server) createStream(w http.ResponseWriter, r *http.Request) error {
	if durable.IsFork(r) && !callerOf(r.Context()).Rights.allows(Read) {
		return missingRight(Read)
	}
	return s.writeStream(w, r, s.streams.Create)
}

func (s *Server) appendStream(w http.ResponseWriter, r *http.Request) error {
	return s.writeStream(w, r, s.streams.Append)
}

func (s *Server) writeStream(w http.ResponseWriter, r *http.Request, do func(http.ResponseWriter, *http.Request, hansard.SessionID, []byte) error) error {
	body, room, err := s.anyBody(w, r, maxBodyBytes)
	if err != nil {
		return err
	}
	defer room.free()
	// The body is copied into event data.
	if err := room.grow(r.Context(), 2*int64(len(body))); err != nil {
		return err
	}
	return do(w, r, sessionID(r), body)
}
