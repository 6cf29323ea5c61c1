package httpd

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// body reads a JSON body of bounded size in bounded time. The caller owns the bytes
// until it calls free.
func (s *Server) body(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, free func(), err error) {
	if media := r.Header.Get("Content-Type"); media != "" {
		kind, _, err := mime.ParseMediaType(media)
		if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
			return nil, nil, wire.NewProblem("wrong-media-type", "the Content-Type is not JSON", "send Content-Type: application/json")
		}
	}
	body, room, err := s.anyBody(w, r, limit)
	if err != nil {
		return nil, nil, err
	}
	return body, room.free, nil
}

// anyBody reads a body of any type. The caller owns the bytes until it frees the room they
// take.
func (s *Server) anyBody(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, room *load, err error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, nil, wire.NewProblem("wrong-media-type", "compressed bodies are not read", "send it as it is")
	}
	if r.ContentLength > limit {
		return nil, nil, tooLarge(limit)
	}
	taken := s.memory.load(callerOf(r.Context()).Name)
	defer func() {
		if err != nil {
			taken.free()
		}
	}()
	body, err = taken.read(r.Context(), http.MaxBytesReader(w, r.Body, limit), r.ContentLength)
	var over *http.MaxBytesError
	var full *wire.Problem
	if p := ended(r.Context()); p != nil {
		return nil, nil, p // it may have arrived, but must not be acted on
	}
	switch {
	case errors.As(err, &full):
		return nil, nil, err
	case errors.As(err, &over):
		return nil, nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, nil, wire.NewProblem("timeout", fmt.Sprintf("the body did not arrive within %v", s.timing.body), "send it again")
	case err != nil:
		return nil, nil, wire.NewProblem("malformed", "the body ended before it was complete", "send it again")
	}
	// The read deadline of the body must not end a request that then waits for something.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return body, taken, nil
}

func tooLarge(limit int64) error {
	return &hansard.InvalidError{Field: "body", TooLarge: true, Reason: fmt.Sprintf("the limit is %d bytes", limit)}
}

// decode reads a JSON body into a struct. Unknown members are refused, and so are
// query parameters: everything is in the body.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, into any) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	body, free, err := s.body(w, r, maxSmallBody)
	if err != nil {
		return err
	}
	defer free()
	return decodeJSON(body, into)
}

func decodeJSON(body []byte, into any) error {
	// encoding/json would accept null for an object, the last of two members with the
	// same name, and Title for title.
	if err := wire.EachMember(body, func(name string, _ []byte) error {
		if name != strings.ToLower(name) {
			return noSuchMember(name)
		}
		return nil
	}); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	var mistyped *json.UnmarshalTypeError
	var bad *hansard.InvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bad): // from an UnmarshalJSON that knows what is wrong
		return bad
	case errors.As(err, &mistyped) && mistyped.Field != "":
		// A patch's members are members of the body: Patch is only the Go name of the embedded
		// struct.
		return &hansard.InvalidError{Field: strings.TrimPrefix(mistyped.Field, "Patch."), Reason: fmt.Sprintf("it is a JSON %s, which does not fit", mistyped.Value)}
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		name := strings.Trim(strings.TrimPrefix(err.Error(), "json: unknown field "), `"`)
		return noSuchMember(name)
	}
	return &wire.SyntaxError{Offset: int(dec.InputOffset()), Reason: "it is not a JSON object"}
}

func noSuchMember(name string) error {
	return &hansard.InvalidError{Field: name, Reason: "there is no such member"}
}

// params reads the query of a request: it refuses parameters that the route does
// not have, or that are repeated without a meaning.
type params struct {
	values url.Values
	err    error
}

func paramsOf(r *http.Request, known ...string) *params {
	values, err := url.ParseQuery(r.URL.RawQuery)
	p := &params{values: values}
	if err != nil {
		p.err = wire.NewProblem("malformed", "the query is not well formed", "percent-encode it")
		return p
	}
	for name := range values {
		ok := false
		for _, k := range known {
			ok = ok || k == name
		}
		if !ok {
			p.fail(name, "the route has no such parameter")
		}
	}
	return p
}

func (p *params) fail(name, reason string) {
	if p.err == nil {
		p.err = &hansard.InvalidError{Field: name, Reason: reason}
	}
}

func (p *params) text(name string) string {
	values := p.values[name]
	if len(values) > 1 {
		p.fail(name, "it is given twice")
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func (p *params) has(name string) bool { return len(p.values[name]) > 0 }

// number is a parameter that is a number; if it is absent, otherwise.
func (p *params) number(name string, otherwise uint64) uint64 {
	if !p.has(name) {
		return otherwise
	}
	n, err := strconv.ParseUint(p.text(name), 10, 64)
	if err != nil {
		p.fail(name, "it is not a number from 0 up")
	}
	return n
}

// count is a number that is at most most.
func (p *params) count(name string, otherwise, most int) int {
	return int(min(p.number(name, uint64(otherwise)), uint64(most)))
}

// limit is how much a page may hold: usual if the parameter is absent, and most if it is 0,
// which means no limit everywhere.
func (p *params) limit(usual, most int) int {
	if n := p.count("limit", usual, most); n > 0 {
		return n
	}
	return most
}

func (p *params) flag(name string) bool {
	switch p.text(name) {
	case "":
		if p.has(name) {
			return true // ?from_summary
		}
		return false
	case "true", "1":
		return true
	case "false", "0":
		return false
	}
	p.fail(name, "it is neither true nor false")
	return false
}

// unchanged reports whether a reading client already has this answer. An answer without an
// ETag gets one.
func unchanged(w http.ResponseWriter, body []byte) bool {
	rec, ok := w.(*recorder)
	if !ok || !rec.reads {
		return false
	}
	tag := w.Header().Get("ETag")
	if tag == "" {
		sum := sha256.Sum256(body)
		tag = `"` + hex.EncodeToString(sum[:12]) + `"`
		w.Header().Set("ETag", tag)
	}
	for _, header := range rec.known {
		for _, have := range strings.Split(header, ",") {
			if have = strings.TrimPrefix(strings.TrimSpace(have), "W/"); have == tag || have == "*" {
				return true
			}
		}
	}
	return false
}

// writeJSON answers with a value.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	return writeBytes(w, status, append(wire.Marshal(v), '\n'))
}

func writeBytes(w http.ResponseWriter, status int, body []byte) error {
	if status == http.StatusOK && unchanged(w, body) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	return err
}
