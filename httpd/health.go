package httpd

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"hansard"
)

// healthz answers that the server runs.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	version := s.opt.Version
	if version == nil {
		version = map[string]string{"version": "dev"}
	}
	return writeJSON(w, http.StatusOK, version)
}

// storeIdentity answers which store this is. Every server of the store gives the same answer.
func (s *Server) storeIdentity(w http.ResponseWriter, r *http.Request) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	identity := ""
	if named, ok := s.base.(hansard.Identified); ok {
		var err error
		if identity, err = named.Identity(r.Context()); err != nil {
			return err
		}
	}
	return writeJSON(w, http.StatusOK, map[string]string{"identity": identity})
}

// Prober is a store that can prove that it can write, without leaving anything
// behind that people would see.
type Prober interface {
	Probe(ctx context.Context) error
}

// ReadySession is the session that /readyz writes to on a store that is not a [Prober].
// Lists by the server leave it out.
const ReadySession = hansard.SessionID("hansard.readyz")

const (
	// readyEvery is the minimum time between two writes by /readyz; in between it
	// repeats the last answer. After a failure it writes every time.
	readyEvery = 5 * time.Second
	readyMax   = 10 * time.Second
)

// readiness is the result of the last probe.
type readiness struct {
	mu  sync.Mutex // held during a probe: concurrent requests wait for its result
	at  time.Time
	err error
}

// readyz answers whether the store accepts a write, by writing.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	if s.closing.Err() != nil {
		return hansard.ErrClosed
	}
	s.ready.mu.Lock()
	defer s.ready.mu.Unlock()
	if s.ready.at.IsZero() || time.Since(s.ready.at) >= readyEvery || s.ready.err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), readyMax)
		defer cancel()
		s.ready.err = s.probe(ctx)
		if errors.Is(s.ready.err, context.DeadlineExceeded) {
			// Not ready, whatever blocked the write and whether or not it was stored.
			s.ready.err = &hansard.BusyError{}
		}
		s.ready.at = time.Now()
	}
	if s.ready.err != nil {
		return s.ready.err
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

func (s *Server) probe(ctx context.Context) error {
	if s.opt.ReadOnly {
		for _, err := range s.base.List(ctx, hansard.Query{Limit: 1}) {
			return err
		}
		return nil
	}
	if p, ok := s.base.(Prober); ok {
		return p.Probe(ctx)
	}
	_, err := s.base.Append(ctx, ReadySession, hansard.Batch{Create: true,
		Events: []hansard.Event{{Kind: "probe", Author: "hansard", Data: []byte("null")}}})
	return err
}
