package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// request is a request that can be sent again.
type request struct {
	method string
	path   string
	query  url.Values
	body   []byte
	fresh  func() []byte // makes the body of each attempt, if it is not the same
	lines  bool          // asks for one JSON object per line
	// part asks for the bytes from an offset on.
	part bool
	from int64
	// stream is a body that is not JSON. Such a request can't be sent again.
	stream io.Reader
}

const (
	pauseMin = 20 * time.Millisecond
	pauseMax = time.Second
	// maxAnswer bounds a response that is read as a whole.
	maxAnswer = 64 << 20
)

// do sends a request until it is answered, as long as retrying helps. A response that
// is a problem becomes the error. uncertain means that the request may have executed
// although the response was lost.
func (s *Store) do(ctx context.Context, q *request) (res *http.Response, uncertain bool, err error) {
	tries := s.tries()
	for {
		var sent bool
		res, sent, err = s.once(ctx, q)
		if err == nil {
			return res, uncertain, nil
		}
		uncertain = uncertain || sent
		if ctx.Err() == nil && passing(err) && (s.reached.Load() || !nobodyThere(err)) && tries.again(ctx) {
			continue
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, uncertain, err
	}
}

// tries are attempts at one thing.
type tries struct {
	store *Store
	since time.Time // when the first one failed: how long it took until then does not count
	pause time.Duration
}

func (s *Store) tries() tries { return tries{store: s, pause: pauseMin} }

// again waits for the next attempt after one has failed; false if there is to be none.
func (t *tries) again(ctx context.Context) bool {
	if t.since.IsZero() {
		t.since = time.Now()
	}
	if time.Since(t.since) > t.store.patience || t.store.closing.Err() != nil {
		return false
	}
	select {
	case <-time.After(t.pause/2 + rand.N(t.pause)):
	case <-ctx.Done():
		return false
	case <-t.store.closing.Done(): // one more
	}
	t.pause = min(2*t.pause, pauseMax)
	return true
}

// passing reports whether trying again may help.
func passing(err error) bool {
	var away *UnreachableError
	if errors.As(err, new(*tls.CertificateVerificationError)) || errors.Is(err, http.ErrSchemeMismatch) {
		return false
	}
	return errors.As(err, &away) || errors.Is(err, hansard.ErrUnknown) || isClosing(err)
}

// isClosing reports whether a server says that it is shutting down: another one, or the
// same one later, will do it.
func isClosing(err error) bool {
	var p *wire.Problem
	return errors.As(err, &p) && p.Type == wire.ProblemType("closing")
}

// nobodyThere reports whether nothing listens at an address, as far as that can be
// known.
func nobodyThere(err error) bool {
	var unknown *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) || errors.As(err, &unknown) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH)
}

// once sends a request once. sent means that the server may have acted on it even if
// there is an error.
func (s *Store) once(ctx context.Context, q *request) (res *http.Response, sent bool, err error) {
	var wrote atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }}
	address := s.base + q.path
	if len(q.query) > 0 {
		address += "?" + q.query.Encode()
	}
	if q.fresh != nil {
		q.body = q.fresh()
	}
	var body io.Reader = bytes.NewReader(q.body)
	if q.stream != nil {
		body = q.stream
	}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), q.method, address, body)
	if err != nil {
		return nil, false, err
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	if q.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.stream != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Header.Set("Expect", "100-continue") // so that a refusal arrives before the body is read
	}
	if q.part {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", q.from))
	}
	req.Header.Set("Accept", "application/json")
	if q.lines {
		req.Header.Set("Accept", "application/x-ndjson")
	}
	res, err = s.http.Do(req)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // the text of the outer one repeats the request
		}
		if wrote.Load() {
			s.reached.Store(true) // a server listens there
		}
		return nil, wrote.Load(), &UnreachableError{s.name, err}
	}
	s.reached.Store(true)
	if res.StatusCode < 300 {
		return res, false, nil
	}
	defer res.Body.Close()
	err = s.refusal(res)
	var away *UnreachableError
	return nil, errors.As(err, &away) || errors.Is(err, hansard.ErrUnknown), err
}

// refusal turns a response into an error.
func (s *Store) refusal(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return &UnreachableError{s.name, err}
	}
	var p wire.Problem
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind == "application/problem+json" && json.Unmarshal(body, &p) == nil && p.Type != "" {
		return p.Err()
	}
	if res.StatusCode == http.StatusBadGateway || res.StatusCode == http.StatusServiceUnavailable || res.StatusCode == http.StatusGatewayTimeout {
		return &UnreachableError{s.name, errors.New("something in front of it answers " + res.Status)}
	}
	return &wire.Problem{Type: "about:blank", Status: res.StatusCode, Title: res.Status,
		Detail: fmt.Sprintf("%s answers %s, and not like a Hansard server", s.name, res.Status), Advice: "check the address"}
}

// answer sends a request and decodes the response into a value.
func (s *Store) answer(ctx context.Context, q *request, into any) (uncertain bool, err error) {
	for tries := s.tries(); ; {
		res, unclear, err := s.do(ctx, q)
		uncertain = uncertain || unclear
		if err != nil {
			return uncertain, err
		}
		body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		res.Body.Close()
		switch {
		case err == nil && into == nil:
			return uncertain, nil
		case err == nil:
			if err := json.Unmarshal(body, into); err != nil {
				return true, fmt.Errorf("%s answers %s with something its API does not allow: %w", s.name, q.path, err)
			}
			return uncertain, nil
		}
		uncertain = true // the response broke off
		if ctx.Err() == nil && tries.again(ctx) {
			continue
		}
		if ctx.Err() != nil {
			return true, ctx.Err()
		}
		return true, &UnreachableError{s.name, err}
	}
}

// readAnswer reads an answer into a value.
func readAnswer(res *http.Response, into any) error {
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// Probe checks that the server's store takes writes.
func (s *Store) Probe(ctx context.Context) error {
	leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	_, err = s.answer(ctx, &request{method: http.MethodGet, path: "/readyz"}, nil)
	return err
}

func sessionPath(id hansard.SessionID, more string) string {
	return "/v1/sessions/" + url.PathEscape(string(id)) + more
}
