// Package durable serves sessions of a [hansard.Store] with the Durable Streams protocol,
// so that existing clients of it, in whatever language, work with Hansard unchanged. The
// server around it, which has the routes, decides who may do what.
//
//	PUT     /ds/{id}   create a stream, with its first content if there is a body
//	POST    /ds/{id}   append, and close
//	GET     /ds/{id}   read from an offset; live=long-poll and live=sse wait for more
//	HEAD    /ds/{id}   where its end is, and whether it is closed
//	DELETE  /ds/{id}   delete the session
//
// A stream is a session, and every session is a stream.
//
//   - A stream of application/json has messages. A message is an event; its data are the
//     bytes of the message, its kind is "message". What other programs append to the
//     session is read as messages, too. Left out are redacted events and the store's own:
//     those of the turn, of forks and redactions, and changes of metadata without an event.
//     A session that was not created as a stream is one of application/json.
//   - A stream of another type has bytes. What one request appends is an event of the kind
//     "chunk". Its data are a string if the bytes are UTF-8 and that is not longer, else
//     {"base64":"…"}. Other events of the session are not part of it.
//   - An offset is the seq of the last event before it, in sixteen digits, and sixteen
//     zeros. Only the server may rely on that.
//   - A fork of a stream is a fork of the session, with the same offsets.
//   - The rest of a stream (its type, when it expires, whether it is closed, the progress
//     of its producers) is in the session's state, at "durable", and changes in the same
//     commit as its content.
package durable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// Prefix is the path of the streams, before the id.
const Prefix = "/ds/"

// The headers of the protocol.
const (
	headerNext       = "Stream-Next-Offset"
	headerUpToDate   = "Stream-Up-To-Date"
	headerClosed     = "Stream-Closed"
	headerCursor     = "Stream-Cursor"
	headerSeq        = "Stream-Seq"
	headerTTL        = "Stream-TTL"
	headerExpires    = "Stream-Expires-At"
	headerFork       = "Stream-Forked-From"
	headerForkOffset = "Stream-Fork-Offset"
	headerForkSub    = "Stream-Fork-Sub-Offset"
	headerEncoding   = "Stream-SSE-Data-Encoding"

	headerProducer    = "Producer-Id"
	headerEpoch       = "Producer-Epoch"
	headerProducerSeq = "Producer-Seq"
	headerExpectedSeq = "Producer-Expected-Seq"
	headerReceivedSeq = "Producer-Received-Seq"

	headerType = "Content-Type"
	headerTrue = "true"
)

// Hansard's own headers, for clients that run an agent loop.
const (
	headerTurn  = "Hansard-Turn"  // the grant of the turn to write under
	headerInbox = "Hansard-Inbox" // "true": leave the messages to the holder of the turn
)

const (
	mediaJSON  = "application/json"
	mediaBytes = "application/octet-stream"
	// kindChunk is the kind of the events of a stream of bytes.
	kindChunk = "chunk"
)

// The limits.
const (
	maxNameBytes    = 256 // a media type, a Producer-Id, a Stream-Seq
	maxProducers    = 256 // that a stream remembers
	maxPageBytes    = 4 << 20
	maxPageMessages = 10_000
	maxTries        = 64        // of a write whose condition others keep breaking
	maxReads        = 10_000    // streams with a TTL whose last read is remembered
	longestSafe     = 1<<53 - 1 // the largest integer that JavaScript has

	defaultLongPoll = 20 * time.Second
	defaultSSE      = 60 * time.Second
)

// Room is memory for a page that is being built.
type Room interface {
	// Fit charges for one more part, and reports whether there is room for it. It
	// waits for room for the first part.
	Fit(ctx context.Context, first bool, size int) (bool, error)
	// Read is called before events are read, and Rest after that. What is read is charged
	// only then, so it may wait until fewer others do.
	Read(ctx context.Context) error
	Rest()
	Free()
}

// Options configure the streams; the zero value will do.
type Options struct {
	// Room is asked for the memory of each page. Nil means no limit.
	Room func(ctx context.Context) Room
	// Closing ends requests that wait for more; the clients reconnect. Nil never does.
	Closing context.Context
	// LongPoll is how long a long poll waits, and SSE how long an event stream lasts.
	// 0 is 20 s and 60 s.
	LongPoll, SSE time.Duration
}

// Streams serves the streams of a store.
type Streams struct {
	store hansard.Store
	opt   Options
	now   func() time.Time
	reads lastReads
}

// New serves the streams of a store, which the caller has to close.
func New(store hansard.Store, o Options) *Streams {
	if o.Room == nil {
		o.Room = func(context.Context) Room { return boundless{} }
	}
	if o.Closing == nil {
		o.Closing = context.Background()
	}
	if o.LongPoll == 0 {
		o.LongPoll = defaultLongPoll
	}
	if o.SSE == 0 {
		o.SSE = defaultSSE
	}
	return &Streams{store: store, opt: o, now: time.Now, reads: lastReads{at: map[hansard.SessionID]time.Time{}}}
}

type boundless struct{}

func (boundless) Fit(context.Context, bool, int) (bool, error) { return true, nil }
func (boundless) Read(context.Context) error                   { return nil }
func (boundless) Rest()                                        {}
func (boundless) Free()                                        {}

// Delete deletes a stream: its session.
func (s *Streams) Delete(w http.ResponseWriter, r *http.Request, id hansard.SessionID) error {
	if _, _, err := s.open(r.Context(), id); err != nil {
		return err
	}
	if err := s.store.Delete(context.WithoutCancel(r.Context()), id, hansard.Grant(r.Header.Get(headerTurn))); err != nil {
		return s.told(r.Context(), id, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// open finds a stream that exists and has not expired.
func (s *Streams) open(ctx context.Context, id hansard.SessionID) (*config, *hansard.Info, error) {
	c, info, err := s.find(ctx, id)
	if err == nil && c.Unfinished {
		err = fmt.Errorf("%w: stream %s is being made", hansard.ErrNotFound, id)
	}
	if err == nil && s.expired(c, info) {
		err = fmt.Errorf("%w: stream %s has expired", hansard.ErrNotFound, id)
	}
	return c, info, s.told(ctx, id, err)
}

// find finds a stream, expired or not.
func (s *Streams) find(ctx context.Context, id hansard.SessionID) (*config, *hansard.Info, error) {
	info, err := s.store.Stat(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	c, err := parseConfig(info.State)
	if c != nil {
		c.parent = info.Parent
	}
	return c, &info, err
}

// told translates an error of the store for the protocol: malformed input is 400, and a
// deleted stream gets the same answer as one that never existed.
func told(err error) error {
	var p *wire.Problem
	switch kind := hansard.Kind(err); {
	case err == nil || errors.As(err, &p):
		return err
	case kind == hansard.ErrInvalid:
		return wire.NewProblem("malformed", err.Error(), hansard.Hint(err))
	case kind == hansard.ErrDeleted:
		p = wire.ProblemOf(err)
		p.Status = http.StatusNotFound
		return p
	}
	return err
}

func malformed(format string, args ...any) error {
	return wire.NewProblem("malformed", fmt.Sprintf(format, args...), "see docs/streams.md")
}

// refused refuses a request that does not fit the stream.
func refused(format string, args ...any) error {
	return wire.NewProblem("stream-conflict", fmt.Sprintf(format, args...), "a HEAD request shows the state of the stream")
}
