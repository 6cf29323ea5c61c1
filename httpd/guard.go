package httpd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"hansard/httpd/durable"
	"hansard/internal/wire"
)

// guard checks every request before anything else: that it is meant for this server,
// and, if a page sent it, that it was a page of this server.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		id := uuid.NewString()
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, id))
		rec := &recorder{ResponseWriter: w, control: http.NewResponseController(w), stall: s.timing.stall,
			reads: r.Method == http.MethodGet || r.Method == http.MethodHead, known: r.Header.Values("If-None-Match")}
		// The write deadline of the last request on this connection must not end this one.
		_ = rec.control.SetWriteDeadline(time.Time{})
		if r.ContentLength != 0 {
			// Set it even if the body is never read: net/http waits for the unread rest.
			_ = rec.control.SetReadDeadline(began.Add(s.timing.body))
		}
		defer func() { // answered or aborted
			if rec.leave != nil {
				rec.leave()
			}
			s.auditRequest(rec, r, id)
			s.metrics.request(rec.route, r.Method, rec.status, time.Since(began))
			s.log.Debug("request", "request", id, "method", r.Method, "route", rec.route, "status", rec.status,
				"token", rec.token, "took", time.Since(began))
		}()
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler {
					panic(v)
				}
				s.log.Error("panic", "request", id, "route", rec.route, "stack", wire.Scrub(string(debug.Stack())))
				if rec.status != 0 {
					panic(http.ErrAbortHandler) // part of an answer must not be taken for all of it
				}
				s.problem(rec, r, wire.NewProblem("internal", "", "the server's log has more under this instance"))
			}
		}()
		h := rec.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cache-Control", "no-store")
		if isConversations(r.URL.Path) {
			h.Set("X-Request-Id", id) // where the SDKs look for it
		}
		if err := s.meant(r); err != nil {
			h.Set("Connection", "close")
			s.problem(rec, r, err)
			return
		}
		next.ServeHTTP(rec, r)
	})
}

type requestKey struct{}

// meant reports whether a request is meant for this server.
func (s *Server) meant(r *http.Request) error {
	if !s.knownHost(r) {
		return wire.NewProblem("wrong-host", "the Host header does not name this server",
			"use the address the server printed, or start it with --host NAME")
	}
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && !sameOrigin(r, origins[0]) {
		return wire.NewProblem("wrong-origin", "the Origin header names another site", "use the page of this server")
	}
	// For a request without an Origin the browser may say where it comes from.
	if site := r.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") && isAPI(r.URL.Path) {
		return wire.NewProblem("wrong-origin", "a page of another site sent this request", "use the page of this server")
	}
	for _, part := range strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/") {
		if part == "." || part == ".." || strings.ContainsRune(part, 0) {
			return noSuchRoute()
		}
	}
	if !strings.HasPrefix(r.URL.Path, "/") || strings.Contains(r.URL.Path, "//") {
		return noSuchRoute()
	}
	return nil
}

func noSuchRoute() error {
	return wire.NewProblem("no-such-route", "there is nothing at this path", "/openapi.json lists the routes")
}

// knownHost guards against names that an attacker points at this machine (DNS
// rebinding): a page served under such a name would have the same origin as this server.
func (s *Server) knownHost(r *http.Request) bool {
	name := r.Host
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if name == "localhost" || slices.Contains(s.opt.Hosts, name) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	if ip.IsLoopback() {
		return true
	}
	// Unlike a name, an address can't be pointed at this machine, but it has to be
	// the one that the client connected to.
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	connected, err := netip.ParseAddrPort(local.String())
	return err == nil && connected.Addr().Unmap() == ip.Unmap()
}

// sameOrigin reports whether an Origin is that of a page of this server. Behind a
// proxy that terminates TLS the page is https although this server is not.
func sameOrigin(r *http.Request, origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	if u.Scheme != "https" && (u.Scheme != "http" || r.TLS != nil) {
		return false
	}
	return strings.EqualFold(u.Host, r.Host)
}

func isAPI(path string) bool {
	return path == "/v1" || strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, durable.Prefix) || path == "/metrics" || path == "/readyz"
}

// recorder records the outcome of a request, and gives every write a deadline: a client
// that takes nothing for that long is considered gone, a slow one is not.
type recorder struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration // 0: the writer handles deadlines itself
	reads   bool          // GET or HEAD
	known   []string      // the answers that the client has already: If-None-Match
	status  int
	route   string
	token   string
	leave   func()      // of the token's user; nil if nobody was admitted
	admin   bool        // only an admin may make the request
	problem string      // the type of the problem, if the answer was one
	outside atomic.Bool // the session is out of the token's scope

	mu   sync.Mutex // guards all below, and the order of deadlines
	over bool       // finished: the deadline is no longer moved
	gone bool       // the connection was handed over
}

// finish gives the client a moment to receive the end. Nothing more is read from it.
func (w *recorder) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return
	}
	w.over = true
	now := time.Now()
	_ = w.control.SetReadDeadline(now)
	_ = w.control.SetWriteDeadline(now.Add(lastWords))
}

// handOver gives the connection to the caller.
func (w *recorder) handOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
}

// deadline sets the time by which the client has to take what is being written.
func (w *recorder) deadline(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		_ = w.control.SetWriteDeadline(t) // not every writer has one
	}
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) extend() {
	if w.stall > 0 {
		w.deadline(time.Now().Add(w.stall))
	}
}

func (w *recorder) Write(b []byte) (n int, err error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	for {
		part := b[n:min(len(b), n+linesChunk)]
		w.extend()
		wrote, err := w.ResponseWriter.Write(part)
		if n += wrote; err != nil || n == len(b) {
			return n, err
		}
	}
}

// Unwrap lets http.ResponseController find the wrapped writer.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// told is an error as reported to a client. It counts it, and logs it if it is the
// server's fault.
func (s *Server) told(r *http.Request, err error) *wire.Problem {
	p := *wire.ProblemOf(masked(r.Context(), err))
	id, _ := r.Context().Value(requestKey{}).(string)
	p.Instance = "urn:uuid:" + id
	switch p.Type {
	case wire.ProblemType("damaged"), wire.ProblemType("closing"):
	case wire.ProblemType("overloaded"): // the client asks for too much, as often as it likes
	default:
		if p.Status >= 500 {
			s.log.Error("failed", "request", id, "type", p.Type, "error", wire.Scrub(err.Error()))
		}
	}
	s.metrics.problem(p.Type)
	return &p
}

// problem answers with an error.
func (s *Server) problem(w http.ResponseWriter, r *http.Request, err error) {
	p := s.told(r, err)
	if rec, ok := w.(*recorder); ok {
		rec.problem = p.Type
	}
	h := w.Header()
	h.Del("ETag")
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if isConversations(r.URL.Path) {
		refuse(w, p)
		return
	}
	h.Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusPreconditionFailed && p.LastSeq != nil {
		h.Set("ETag", etag(*p.LastSeq))
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", fmt.Sprint(p.RetryAfter))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(wire.Marshal(p), '\n')) // nobody to tell when the client is gone
}
