// Package httpd serves a [hansard.Store] over HTTP and WebSocket: to agents in
// any language, and to people in a browser.
//
//	server, err := httpd.New(store, httpd.Options{Access: tokens})
//	err = server.Serve(listener)
//
// It keeps no state but connections, so any number of servers may serve one store,
// beside commands and libraries that use it directly. What it promises on top of
// the store: a 2xx answer to a write means durable; a follower gets every event
// once and in order, and continues from the last seq it has after any loss of
// connection or server; no reader ever delays a writer.
//
// It is closed by default: every request needs a token, except for the static
// files of the page, /healthz, /version and /openapi.json; Host and Origin are
// checked before anything else. docs/server.md has the routes, openapi.json the
// shapes.
package httpd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"hansard"
	"hansard/httpd/durable"
)

// The limits of the server.
const (
	maxHeaderBytes = 64 << 10
	// maxBodyBytes has room for the largest batch with every byte escaped, and
	// its frame.
	maxBodyBytes = 2*hansard.MaxBatchBytes + 8<<20
	// maxPartBytes is the same for a part of a session being copied to another
	// store, which may have twice the data.
	maxPartBytes = 2 * maxBodyBytes
	// maxSmallBody is for bodies that hold no events.
	maxSmallBody = 2 * hansard.MaxStateBytes
	// maxMemoryBytes is how much of all bodies and pages is in memory at once.
	maxMemoryBytes = 8 * maxBodyBytes
	// maxPageEvents and maxPageBytes are the largest page of events.
	maxPageEvents     = 1000
	maxPageBytes      = 8 << 20
	maxPageSessions   = 1000
	defaultPageLength = 100 // sessions

	// pollMax is the longest time that a request for events waits for an event.
	pollMax = 60 * time.Second
)

// timing is how long things may take. Only tests change the default.
type timing struct {
	header, body, idle time.Duration // for a request to arrive, and for the next one
	// stall is how long a client may read nothing of what is written to it. Then it
	// is dropped, and reconnects with the last seq it has. A follower is told that
	// seq if it reads on within grace.
	stall, grace time.Duration
	beat         time.Duration // between signs of life on a stream
	longPoll     time.Duration // of the Durable Streams protocol; 0 is its default
}

var defaultTiming = timing{header: 10 * time.Second, body: time.Minute, idle: 2 * time.Minute, stall: 30 * time.Second, grace: 10 * time.Second, beat: 15 * time.Second}

// Options configure a server.
type Options struct {
	// Access decides who may do what. Nil admits nobody.
	Access Access
	// Hosts are names by which clients may call this server, besides those
	// of the loopback and the address they connected to.
	Hosts []string
	// ReadOnly refuses everything that would change the store.
	ReadOnly bool
	// Log gets what operators of the server should know. Nil discards it.
	Log *slog.Logger
	// Audit gets a line of JSON, an [Audited], for every request that was denied
	// and every one that only an admin may make. Nil writes none.
	Audit io.Writer
	// Version is what /version answers, any JSON.
	Version any
	// Page serves "/" and everything below it that is not the API: static files,
	// for anyone. Nil serves a plain text page that says what to do.
	Page http.Handler
	// Conversations makes the handler of /v1/conversations for a store, behind
	// the same checks: reading needs the right to read, deleting a conversation
	// the admin right, the rest the right to append. Nil serves none.
	Conversations func(hansard.Store) http.Handler
}

// Server serves a store. Make one with [New].
type Server struct {
	base    hansard.Store // what is served
	store   hansard.Store // what callers get: the door
	door    *door
	opt     Options
	timing  timing
	log     *slog.Logger
	hub     *hub
	memory  *budget
	metrics *metrics
	handler http.Handler
	talk    http.Handler // the conversations; nil if not served
	streams *durable.Streams
	http    *http.Server
	ready   readiness
	live    *live
	logins  *logins
	limits  limits
	audited audit
	conns   conns
	// previews are for lists; finding limits how many search at once.
	previews previews
	finding  chan struct{}

	// closing ends with Shutdown: requests that wait or follow end.
	closing   context.Context
	letGo     context.CancelFunc
	followers sync.WaitGroup // connections that net/http no longer tracks
}

// New makes a server for a store. The caller still has to close the store, after Shutdown.
func New(store hansard.Store, opt Options) *Server {
	return newServer(store, opt, defaultTiming, defaultLimits)
}

func newServer(store hansard.Store, opt Options, t timing, lim limits) *Server {
	s := &Server{base: store, opt: opt, timing: t, limits: lim, log: opt.Log, memory: newBudget(lim.memory, t.body), finding: make(chan struct{}, findSlots)}
	s.conns = conns{most: lim.conns, strangersMost: lim.strangers, all: map[net.Conn]*conn{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.opt.Access == nil {
		s.opt.Access = nobody{}
	}
	s.audited.to = opt.Audit
	s.door = &door{Store: store, holders: map[held]string{}}
	s.store = s.door
	s.closing, s.letGo = context.WithCancel(context.Background())
	s.logins = newLogins(s.opt.Access)
	s.live = newLive(s)
	s.metrics = newMetrics(store)
	s.hub = newHub(s.closing, store, s.metrics, s.memory, lim.followed)
	if opt.Conversations != nil {
		s.talk = opt.Conversations(counted{s.store, s.metrics})
	}
	s.streams = s.newStreams()
	s.handler = s.guard(s.router())
	s.http = &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: t.header,
		IdleTimeout:       t.idle,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       s.conns.begin,
		ConnState:         s.conns.state,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // broken handshakes and the like
		// No WriteTimeout: streams last. Every write has a deadline of its own.
	}
	return s
}

// ServeHTTP answers one request. It lets a Server be part of another program's server.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers the requests of a listener until Shutdown. It may be called for
// several listeners at once.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ServeTLS is Serve with a certificate and its key, from files.
func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {
	err := s.http.ServeTLS(l, certFile, keyFile)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops listening, ends requests that wait or follow, and waits until writes
// under way are answered. If ctx ends first it cuts the remaining connections and
// returns the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.letGo()
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close() // the error to return is that ctx ended first
	}
	done := make(chan struct{})
	go func() { s.followers.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return err
}
