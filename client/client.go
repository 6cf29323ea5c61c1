// Package client is a [hansard.Store] that lives on a server: the same interface,
// over HTTP.
//
//	store, err := client.New("http://127.0.0.1:4267", &client.Options{Token: os.Getenv("HANSARD_TOKEN")})
//
// It retries where that is safe: a read continues after the last event it yielded,
// and an append always has an idempotency key, the caller's or one of its own, so that
// it is stored once however often it is sent. If the outcome of a write remains
// unknown the error is [hansard.ErrUnknown].
//
// A server that was never reached is an [UnreachableError] at once; for one that was
// reached before, it keeps trying as long as [Options].Patience says.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hansard"
)

// Options say how to reach a server. The zero value has no token, which Hansard's own
// server refuses.
type Options struct {
	// Token authenticates the caller.
	Token string
	// Patience is how long to keep trying when a server that was reached before
	// does not answer; 0 means 15 seconds, less than 0 does not wait.
	Patience time.Duration
	// TLS is for servers whose certificate the system does not know.
	TLS *tls.Config
}

// Store is a store on a server. Make one with [New].
type Store struct {
	base     string // without a trailing slash
	name     string // of the server, for people
	token    string
	patience time.Duration
	http     *http.Client

	reached atomic.Bool     // a server has accepted a request at the address
	closing context.Context // ends with Close
	letGo   context.CancelFunc

	mu     sync.Mutex // guards closed; active must not grow once it is set
	closed bool
	active sync.WaitGroup // calls under way
}

var _ hansard.Store = (*Store)(nil)

// New makes a store from the address of a server: http://HOST:PORT, https://HOST,
// or unix:PATH. The token may also be in the address, as in the one that the server
// prints: http://HOST:PORT/#token=TOKEN. New does not contact the server.
func New(address string, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	s := &Store{token: o.Token, patience: cmp.Or(o.Patience, 15*time.Second)}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		TLSClientConfig:       o.TLS,
		TLSHandshakeTimeout:   10 * time.Second,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       60 * time.Second,
		DisableCompression:    true,
		ExpectContinueTimeout: 2 * time.Second,
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" {
			return nil, invalid("it names no socket")
		}
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		s.base, s.name = "http://localhost", "unix:"+path
	} else if err := s.parse(address); err != nil {
		return nil, err
	}
	s.http = &http.Client{
		Transport: transport,
		// A token is for the server it was given to: it must not follow a redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.closing, s.letGo = context.WithCancel(context.Background())
	return s, nil
}

func (s *Store) parse(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return invalid("it is not a URL") // without its text, which may contain a secret
	case u.Scheme != "http" && u.Scheme != "https":
		return invalid("it begins neither with http:// nor with https://")
	case u.Host == "":
		return invalid("it names no host")
	case u.User != nil:
		return invalid("it has a user or a password; a token is what a server wants")
	case u.RawQuery != "":
		return invalid("it has a query")
	}
	if token, ok := strings.CutPrefix(u.Fragment, "token="); ok && s.token == "" {
		s.token = token
	}
	s.base = u.Scheme + "://" + u.Host + strings.TrimRight(u.Path, "/")
	s.name = s.base
	return nil
}

func invalid(reason string) error {
	return &hansard.InvalidError{Field: "address", Reason: reason}
}

// enter begins every call. It checks whether the store is closed, then the arguments,
// and only then whether the context has ended.
func (s *Store) enter(ctx context.Context, given ...error) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, hansard.ErrClosed
	}
	for _, err := range append(given, ctx.Err()) {
		if err != nil {
			return nil, err
		}
	}
	s.active.Add(1)
	return s.active.Done, nil
}

// Close implements [hansard.Store]. Writes in progress are finished; waits and reads
// are ended.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.letGo()
	s.active.Wait()
	s.http.CloseIdleConnections()
	return nil
}

// until returns a context for a call that Close ends.
func (s *Store) until(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	return out, func() { stop(); cancel() }
}

// ended says why such a call ended: the caller's context comes first.
func (s *Store) ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && s.closing.Err() != nil && errors.Is(err, context.Canceled) {
		return hansard.ErrClosed
	}
	return err
}

// UnreachableError is returned when the server did not answer.
type UnreachableError struct {
	Server string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the server at %s can't be reached: %v", e.Server, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Hint says what to look at.
func (e *UnreachableError) Hint() string {
	return "check that hansard serve is running there, and that the address is right"
}
