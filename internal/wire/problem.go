package wire

import (
	"errors"
	"net/http"
	"strings"

	"hansard"
)

// Problem is an error as the server tells it: problem+json (RFC 9457). Type is
// stable and is what programs compare; the other members are what a program needs
// to go on. It is an error itself, for those types that are not the contract's.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Advice is what to do next.
	Advice string `json:"hint,omitempty"`
	// Instance is the request, as the server's log calls it.
	Instance string `json:"instance,omitempty"`

	Session hansard.SessionID `json:"session,omitempty"`
	// Field is what was refused of the input.
	Field string `json:"field,omitempty"`
	// LastSeq is the session's last seq, where it was compared; of a damaged
	// session, the last that is safe.
	LastSeq  *hansard.Seq `json:"last_seq,omitempty"`
	Expected *hansard.Seq `json:"expected,omitempty"`
	// Key, First and Last tell where a key was used before.
	Key   string      `json:"key,omitempty"`
	First hansard.Seq `json:"first,omitempty"`
	Last  hansard.Seq `json:"last,omitempty"`
	// Grant is the one that was refused, Holder the turn that is held.
	Grant  hansard.Grant `json:"grant,omitempty"`
	Holder *hansard.Turn `json:"holder,omitempty"`
	// Damage is what is wrong with the session's log.
	Damage *hansard.DamagedError `json:"damage,omitempty"`
	// RetryAfter is in how many seconds trying again may help.
	RetryAfter int `json:"retry_after,omitempty"`
}

func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return strings.ToLower(p.Title)
}

// Hint is what to do next.
func (p *Problem) Hint() string { return p.Advice }

// ProblemType is the type of a problem of this name.
func ProblemType(name string) string { return "/problems/" + name }

// kind is one kind of problem.
type kind struct {
	name   string
	status int
	title  string
	err    error // of the contract; nil for the server's own
}

// kinds are all the problems there are. The first whose error matches counts: an
// open outcome outranks whatever caused it.
var kinds = []kind{
	{"outcome-unknown", http.StatusGatewayTimeout, "It may or may not be stored", hansard.ErrUnknown},
	{"too-large", http.StatusRequestEntityTooLarge, "Over a limit", hansard.ErrTooLarge},
	{"invalid", http.StatusUnprocessableEntity, "Refused input", hansard.ErrInvalid},
	{"not-found", http.StatusNotFound, "No such session", hansard.ErrNotFound},
	{"deleted", http.StatusGone, "The session was deleted", hansard.ErrDeleted},
	{"exists", http.StatusConflict, "The session exists already", hansard.ErrExists},
	{"conflict", http.StatusPreconditionFailed, "The last seq is another than the expected one", hansard.ErrConflict},
	{"key-reused", http.StatusUnprocessableEntity, "The idempotency key was used for other content", hansard.ErrKeyReused},
	{"held", http.StatusLocked, "Somebody else holds the turn", hansard.ErrHeld},
	{"fenced", http.StatusConflict, "The turn is no longer held", hansard.ErrFenced},
	{"damaged", http.StatusServiceUnavailable, "The session is damaged", hansard.ErrDamaged},
	{"busy", http.StatusServiceUnavailable, "The store is busy", hansard.ErrBusy},
	{"no-space", http.StatusInsufficientStorage, "The disk is full", hansard.ErrNoSpace},
	{"read-only", http.StatusForbidden, "The store can only be read", hansard.ErrReadOnly},
	{"store-failed", http.StatusInternalServerError, "The store's disk failed", hansard.ErrFailed},
	{"newer-version", http.StatusInternalServerError, "Written by a newer version", hansard.ErrVersion},
	{"unsupported", http.StatusNotImplemented, "Not supported", hansard.ErrUnsupported},
	{"closing", http.StatusServiceUnavailable, "The server is shutting down", hansard.ErrClosed},

	{"malformed", http.StatusBadRequest, "Not what the route reads", nil},
	{"unauthorized", http.StatusUnauthorized, "No token, or not one of this server's", nil},
	{"missing-right", http.StatusForbidden, "The token lacks a right", nil},
	{"wrong-host", http.StatusForbidden, "Not the name of this server", nil},
	{"wrong-origin", http.StatusForbidden, "A page of another site asked", nil},
	{"no-such-route", http.StatusNotFound, "No such route", nil},
	{"wrong-method", http.StatusMethodNotAllowed, "The route has no such method", nil},
	{"timeout", http.StatusRequestTimeout, "The request took too long to arrive", nil},
	{"wrong-media-type", http.StatusUnsupportedMediaType, "The body is of another type than JSON", nil},
	{"overloaded", http.StatusServiceUnavailable, "Too much is under way", nil},
	{"internal", http.StatusInternalServerError, "Something went wrong in the server", nil},
}

// ProblemKinds gives the name and the status of every kind of problem.
func ProblemKinds() map[string]int {
	out := make(map[string]int, len(kinds))
	for _, k := range kinds {
		out[k.name] = k.status
	}
	return out
}

// NewProblem is a problem of a kind that is the server's own.
func NewProblem(name, detail, hint string) *Problem {
	for _, k := range kinds {
		if k.name == name {
			return &Problem{Type: ProblemType(name), Title: k.title, Status: k.status, Detail: detail, Advice: hint}
		}
	}
	panic("wire: no kind of problem is called " + name)
}

// ProblemOf tells an error as a problem. One that is neither a problem nor of the
// contract is "internal" and says nothing of itself.
func ProblemOf(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	var syntax *SyntaxError
	if errors.As(err, &syntax) {
		return NewProblem("malformed", syntax.Error(), "send a JSON object in UTF-8")
	}
	for _, k := range kinds {
		if k.err != nil && errors.Is(err, k.err) {
			p := &Problem{Type: ProblemType(k.name), Title: k.title, Status: k.status, Detail: Scrub(err.Error()), Advice: hansard.Hint(err)}
			p.fill(err)
			return p
		}
	}
	return NewProblem("internal", "", "the server's log has more under this instance")
}

// fill adds what a program needs to go on.
func (p *Problem) fill(err error) {
	var invalid *hansard.InvalidError
	var conflict *hansard.ConflictError
	var reused *hansard.KeyReusedError
	var held *hansard.HeldError
	var fenced *hansard.FencedError
	var damaged *hansard.DamagedError
	switch {
	case errors.Is(err, hansard.ErrUnknown):
	case errors.As(err, &invalid):
		p.Field, p.Detail = invalid.Field, Scrub(invalid.Reason)
	case errors.As(err, &conflict):
		p.Session, p.Expected, p.LastSeq = conflict.Session, &conflict.Expected, &conflict.Actual
	case errors.As(err, &reused):
		p.Session, p.Key, p.First, p.Last = reused.Session, reused.Key, reused.First, reused.Last
	case errors.As(err, &held):
		p.Session, p.Holder, p.RetryAfter = held.Session, &held.Turn, 1
	case errors.As(err, &fenced):
		p.Session, p.Grant, p.Holder = fenced.Session, fenced.Grant, fenced.Current
	case errors.As(err, &damaged):
		p.Damage = ScrubDamage(damaged)
		p.Session, p.LastSeq = damaged.Session, &p.Damage.SafeSeq
	case errors.Is(err, hansard.ErrBusy), errors.Is(err, hansard.ErrClosed):
		p.RetryAfter = 1
	}
}

// Err is the error of the contract that a problem was made of, as near as it
// comes, or the problem itself.
func (p *Problem) Err() error {
	name, _ := strings.CutPrefix(p.Type, ProblemType(""))
	switch {
	case name == "invalid" || name == "too-large" && p.Field != "":
		return &hansard.InvalidError{Field: p.Field, Reason: p.Detail, TooLarge: name == "too-large"}
	case name == "conflict" && p.LastSeq != nil && p.Expected != nil:
		return &hansard.ConflictError{Session: p.Session, Expected: *p.Expected, Actual: *p.LastSeq}
	case name == "key-reused" && p.Session != "":
		return &hansard.KeyReusedError{Session: p.Session, Key: p.Key, First: p.First, Last: p.Last}
	case name == "held" && p.Holder != nil:
		return &hansard.HeldError{Session: p.Session, Turn: *p.Holder}
	case name == "fenced" && p.Grant != "":
		return &hansard.FencedError{Session: p.Session, Grant: p.Grant, Current: p.Holder}
	case name == "damaged" && p.Damage != nil:
		return p.Damage
	case name == "closing":
		return p // it is the server that is closing, not the caller's store
	}
	for _, k := range kinds {
		if k.name == name && k.err != nil {
			return &told{p, k.err}
		}
	}
	return p
}

// told is an error of the contract in the words of the server.
type told struct {
	*Problem
	is error
}

func (e *told) Unwrap() error { return e.is }

// ScrubDamage takes the paths of the machine out of what is said of a log.
func ScrubDamage(d *hansard.DamagedError) *hansard.DamagedError {
	if d == nil {
		return nil
	}
	clean := *d
	clean.Reason = Scrub(d.Reason)
	return &clean
}

// Scrub takes the paths of the machine out of a text: whoever is not on it has
// no use for them. A text of several lines, such as a stack, keeps its lines.
func Scrub(text string) string {
	var out strings.Builder
	inPath := false // the word before was one, and may go on behind a space
	for text != "" {
		end := strings.IndexAny(text, " \t\r\n")
		if end < 0 {
			end = len(text)
		}
		word := text[:end]
		inPath = isPath(word) || inPath && strings.ContainsAny(word, `/\`)
		colon := strings.HasSuffix(word, ":")
		switch {
		case inPath && colon:
			out.WriteString("(a file):")
		case inPath:
			out.WriteString("(a file)")
		default:
			out.WriteString(word)
		}
		inPath = inPath && !colon
		if end < len(text) {
			out.WriteByte(text[end])
			end++
		}
		text = text[end:]
	}
	return out.String()
}

// isPath tells whether a word is, or has in it, where something is on the machine.
func isPath(word string) bool {
	bare := strings.TrimLeft(word, "\"'(`")
	absolute := strings.HasPrefix(bare, "/") && len(bare) > 1 || strings.Contains(bare, "=/") || strings.Contains(bare, ":/")
	drive := len(bare) > 2 && bare[1] == ':' && (bare[2] == '\\' || bare[2] == '/')
	return absolute || drive || strings.Contains(bare, ".jsonl")
}
