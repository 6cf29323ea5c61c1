package httpd

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"hansard/internal/wire"
)

// Right is something a token may allow.
type Right uint8

// The rights. Admin includes the others.
const (
	Read   Right = 1 << iota // list, read and follow
	Append                   // create, append, change metadata, take turns
	Admin                    // delete, import, verify the store, repair, and all of the above
)

// allows reports whether these rights include another.
func (r Right) allows(want Right) bool { return r&want != 0 || r&Admin != 0 }

var rightNames = []struct {
	right Right
	name  string
}{{Read, "read"}, {Append, "append"}, {Admin, "admin"}}

func (r Right) String() string {
	var names []string
	for _, n := range rightNames {
		if r&n.right != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ",")
}

// ParseRights reads what String writes.
func ParseRights(names string) (Right, error) {
	var out Right
	for _, name := range strings.Split(names, ",") {
		known := false
		for _, n := range rightNames {
			if strings.TrimSpace(name) == n.name {
				out, known = out|n.right, true
			}
		}
		if !known {
			return 0, fmt.Errorf("there is no right called %q: read, append and admin are", name)
		}
	}
	return out, nil
}

// Pass is what a token allows.
type Pass struct {
	// Name identifies the token to people and in the log.
	Name   string
	Rights Right
	Scope  Scope
	// Expires is when the token stops being valid; zero is never.
	Expires time.Time
	// Rate is how many requests, or messages on a WebSocket, it may make per
	// second; 0 means no limit.
	Rate float64
}

// Access decides what tokens allow.
type Access interface {
	// Who returns what a token allows, and false for one that is unknown or no
	// longer valid. It is called again from time to time for the tokens in use. It
	// takes the same time for an invalid token as for a valid one.
	Who(token string) (Pass, bool)
}

type nobody struct{}

func (nobody) Who(string) (Pass, bool) { return Pass{}, false }

// hashed is a token as it is stored: useless to anyone who finds it. The tokens that
// are made here have 256 random bits, so a plain hash is enough.
type hashed [sha256.Size]byte

func hashToken(token string) hashed { return sha256.Sum256([]byte(token)) }

// Single is the Access of one token that may do everything.
func Single(token string) Access {
	t := &Tokens{}
	t.Accept("given", token, Admin)
	return t
}

// caller is who makes a request, and what the token allowed when the request began.
type caller struct {
	Pass
	user    *user
	account *account
	outside *atomic.Bool // set when it asks for something out of its scope
}

type callerKey struct{}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// authenticate finds out who makes a request. It enters the user; the caller must leave.
func (s *Server) authenticate(r *http.Request) (caller, error) {
	token, problem := bearer(r)
	if problem == noToken {
		cookie, err := loginOf(r)
		if err != nil {
			return caller{}, err
		}
		if cookie != "" {
			token, problem = cookie, ""
		}
	}
	if problem != "" {
		return caller{}, unauthorized(problem)
	}
	return s.live.enter(token)
}

func unauthorized(detail string) error {
	return wire.NewProblem("unauthorized", detail, "send Authorization: Bearer TOKEN; hansard token add makes one")
}

// tokenProtocol is how a browser gives its token when it opens a WebSocket: it
// can't set headers there.
const tokenProtocol = "hansard.token."

const noToken = "there is no token"

// bearer is the token of a request.
func bearer(r *http.Request) (token, problem string) {
	headers := r.Header.Values("Authorization")
	switch {
	case len(headers) > 1:
		return "", "there are several Authorization headers"
	case len(headers) == 1:
		scheme, token, ok := strings.Cut(headers[0], " ")
		if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " ,\t") {
			return "", "the Authorization header is not Bearer TOKEN"
		}
		return token, ""
	}
	if isUpgrade(r) {
		for _, p := range protocols(r) {
			if token, ok := strings.CutPrefix(p, tokenProtocol); ok && token != "" {
				return token, ""
			}
		}
	}
	return "", noToken
}

func isUpgrade(r *http.Request) bool { return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") }

// protocols are the WebSocket subprotocols a client offers.
func protocols(r *http.Request) []string {
	var out []string
	for _, header := range r.Header.Values("Sec-Websocket-Protocol") {
		for _, p := range strings.Split(header, ",") {
			out = append(out, strings.TrimSpace(p))
		}
	}
	return out
}
