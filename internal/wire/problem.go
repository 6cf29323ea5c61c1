package wire

import (
	"errors"
	"net/http"
	"strings"

	"hansard"
)

// Problem is an error as the server reports it: problem+json (RFC 9457). Type is
// stable, and is what programs compare; the other members are what a program needs to
// continue. It is an error itself, for types that are not in the contract.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Advice is what to do next.
	Advice string `json:"hint,omitempty"`
	// Instance identifies the request in the server's log.
	Instance string `json:"instance,omitempty"`

	Session hansard.SessionID `json:"session,omitempty"`
	// Field is the part of the input that was refused.
	Field string `json:"field,omitempty"`
	// LastSeq is the session's last seq, if it was compared; for a damaged
	// session, the last one that is safe.
	LastSeq  *hansard.Seq `json:"last_seq,omitempty"`
	Expected *hansard.Seq `json:"expected,omitempty"`
	// StateOp and Path are the index and the path of a test in state_ops that failed.
	StateOp *int   `json:"state_op,omitempty"`
	Path    string `json:"path,omitempty"`
	// Key, First and Last say where a key was used before.
	Key   string      `json:"key,omitempty"`
	First hansard.Seq `json:"first,omitempty"`
	Last  hansard.Seq `json:"last,omitempty"`
	// IDs are the event ids that were used before.
	IDs []string `json:"ids,omitempty"`
	// Grant is the grant that was refused, Holder the current turn, without its
	// grant.
	Grant  hansard.Grant `json:"grant,omitempty"`
	Holder *hansard.Turn `json:"holder,omitempty"`
	// Damage is what is wrong with the session's log.
	Damage *hansard.DamagedError `json:"damage,omitempty"`
	// RetryAfter is the number of seconds after which a retry may help.
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

// ProblemType is the type of the problem with this name.
func ProblemType(name string) string { return "/problems/" + name }

// kind is one kind of problem.
type kind struct {
	name   string
	status int
	title  string
	err    error // of the contract; nil for the server's own
}

// kinds are all kinds of problems: one for each kind of the contract's errors, and the
// server's own.
var kinds = []kind{
	{"outcome-unknown", http.StatusGatewayTimeout, "It may or may not be stored", hansard.ErrUnknown},
	{"too-large", http.StatusRequestEntityTooLarge, "A limit was exceeded", hansard.ErrTooLarge},
	{"invalid", http.StatusUnprocessableEntity, "The input is not valid", hansard.ErrInvalid},
	{"not-found", http.StatusNotFound, "No such session", hansard.ErrNotFound},
	{"deleted", http.StatusGone, "The session was deleted", hansard.ErrDeleted},
	{"exists", http.StatusConflict, "The session exists already", hansard.ErrExists},
	{"conflict", http.StatusPreconditionFailed, "The session is not as expected", hansard.ErrConflict},
	{"key-reused", http.StatusUnprocessableEntity, "The idempotency key was used for different content", hansard.ErrKeyReused},
	{"id-reused", http.StatusConflict, "Event ids were used for different content", hansard.ErrIDReused},
	{"no-event", http.StatusNotFound, "No such event", hansard.ErrNoEvent},
	{"no-attachment", http.StatusUnprocessableEntity, "No such attachment", hansard.ErrNoAttachment},
	{"held", http.StatusLocked, "Somebody else holds the turn", hansard.ErrHeld},
	{"fenced", http.StatusConflict, "The turn is no longer held", hansard.ErrFenced},
	{"damaged", http.StatusServiceUnavailable, "The session is damaged", hansard.ErrDamaged},
	{"unreadable", http.StatusServiceUnavailable, "The session can't be read", hansard.ErrUnreadable},
	{"busy", http.StatusServiceUnavailable, "The store is busy", hansard.ErrBusy},
	{"no-space", http.StatusInsufficientStorage, "The disk is full", hansard.ErrNoSpace},
	{"read-only", http.StatusForbidden, "The store can only be read", hansard.ErrReadOnly},
	{"store-failed", http.StatusInternalServerError, "The store's disk failed", hansard.ErrFailed},
	{"newer-version", http.StatusInternalServerError, "Written by another version", hansard.ErrVersion},
	{"unsupported", http.StatusNotImplemented, "Not supported", hansard.ErrUnsupported},
	{"closing", http.StatusServiceUnavailable, "The server is shutting down", hansard.ErrClosed},

	{"malformed", http.StatusBadRequest, "The request is malformed", nil},
	{"unauthorized", http.StatusUnauthorized, "The token is missing or unknown", nil},
	{"missing-right", http.StatusForbidden, "The token lacks a right", nil},
	{"wrong-host", http.StatusForbidden, "The request names another host", nil},
	{"wrong-origin", http.StatusForbidden, "The request comes from another site", nil},
	{"no-such-route", http.StatusNotFound, "No such route", nil},
	{"no-such-token", http.StatusNotFound, "No such token", nil},
	{"token-exists", http.StatusConflict, "The token exists already", nil},
	{"wrong-method", http.StatusMethodNotAllowed, "The route has no such method", nil},
	{"timeout", http.StatusRequestTimeout, "The request took too long to arrive", nil},
	{"wrong-media-type", http.StatusUnsupportedMediaType, "The body is not JSON", nil},
	{"stream-closed", http.StatusConflict, "The stream is closed", nil},
	{"stream-conflict", http.StatusConflict, "The stream is not as the request has it", nil},
	{"stale-epoch", http.StatusForbidden, "The producer has a newer epoch", nil},
	{"too-many-requests", http.StatusTooManyRequests, "The token asks too often", nil},
	{"overloaded", http.StatusServiceUnavailable, "The server is overloaded", nil},
	{"internal", http.StatusInternalServerError, "Something went wrong in the server", nil},
}

// ProblemKinds returns the name and status of every kind of problem.
func ProblemKinds() map[string]int {
	out := make(map[string]int, len(kinds))
	for _, k := range kinds {
		out[k.name] = k.status
	}
	return out
}

// ContractErrors returns the errors of the contract, one for each of its kinds, for tests
// of other tables that have to know them all.
func ContractErrors() (out []error) {
	for _, k := range kinds {
		if k.err != nil {
			out = append(out, k.err)
		}
	}
	return out
}

// NewProblem makes a problem of one of the server's own kinds.
func NewProblem(name, detail, hint string) *Problem {
	for _, k := range kinds {
		if k.name == name {
			return &Problem{Type: ProblemType(name), Title: k.title, Status: k.status, Detail: detail, Advice: hint}
		}
	}
	panic("wire: no kind of problem is called " + name)
}

// ProblemOf turns an error into a problem. An error that is neither a problem nor in
// the contract becomes "internal", without its text.
func ProblemOf(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	var syntax *SyntaxError
	if errors.As(err, &syntax) {
		return NewProblem("malformed", syntax.Error(), "send a JSON object in UTF-8")
	}
	of := hansard.Kind(err)
	for _, k := range kinds {
		if of != nil && k.err == of {
			p := &Problem{Type: ProblemType(k.name), Title: k.title, Status: k.status, Detail: Scrub(err.Error()), Advice: hansard.Hint(err)}
			p.fill(err)
			return p
		}
	}
	return NewProblem("internal", "", "the server's log has more under this instance")
}

// fill adds what a program needs to continue.
func (p *Problem) fill(err error) {
	var invalid *hansard.InvalidError
	var conflict *hansard.ConflictError
	var failed *hansard.StateTestError
	var reused *hansard.KeyReusedError
	var reusedIDs *hansard.IDReusedError
	var held *hansard.HeldError
	var fenced *hansard.FencedError
	var damaged *hansard.DamagedError
	switch {
	case hansard.Kind(err) == hansard.ErrUnknown:
	case errors.As(err, &invalid):
		p.Field, p.Detail = invalid.Field, Scrub(invalid.Reason)
	case errors.As(err, &conflict):
		p.Session, p.Expected, p.LastSeq = conflict.Session, &conflict.Expected, &conflict.Actual
	case errors.As(err, &failed):
		// Its path is one in the state, not one of the machine, and may be shown.
		p.Session, p.StateOp, p.Path, p.Detail = failed.Session, &failed.Index, failed.Path, failed.Error()
	case errors.As(err, &reused):
		p.Session, p.Key, p.First, p.Last = reused.Session, reused.Key, reused.First, reused.Last
	case errors.As(err, &reusedIDs):
		p.Session, p.IDs = reusedIDs.Session, reusedIDs.IDs
	case errors.As(err, &held):
		p.Session, p.Holder, p.RetryAfter = held.Session, holder(&held.Turn), 1
	case errors.As(err, &fenced):
		p.Session, p.Grant, p.Holder = fenced.Session, fenced.Grant, holder(fenced.Current)
	case errors.As(err, &damaged):
		p.Damage = ScrubDamage(damaged)
		p.Session, p.LastSeq = damaged.Session, &p.Damage.SafeSeq
	case errors.Is(err, hansard.ErrBusy), errors.Is(err, hansard.ErrClosed):
		p.RetryAfter = 1
	}
}

// holder is who has a turn, without the grant: with that a refused caller could write
// under it.
func holder(t *hansard.Turn) *hansard.Turn {
	if t == nil {
		return nil
	}
	who := *t
	who.Grant = ""
	return &who
}

// Err is the contract's error that a problem was made from, as closely as it can be
// restored, or the problem itself.
func (p *Problem) Err() error {
	name, _ := strings.CutPrefix(p.Type, ProblemType(""))
	switch {
	case name == "invalid" || name == "too-large" && p.Field != "":
		return &hansard.InvalidError{Field: p.Field, Reason: p.Detail, TooLarge: name == "too-large"}
	case name == "conflict" && p.LastSeq != nil && p.Expected != nil:
		return &hansard.ConflictError{Session: p.Session, Expected: *p.Expected, Actual: *p.LastSeq}
	case name == "conflict" && p.StateOp != nil:
		return &hansard.StateTestError{Session: p.Session, Index: *p.StateOp, Path: p.Path}
	case name == "key-reused" && p.Session != "":
		return &hansard.KeyReusedError{Session: p.Session, Key: p.Key, First: p.First, Last: p.Last}
	case name == "id-reused" && p.Session != "":
		return &hansard.IDReusedError{Session: p.Session, IDs: p.IDs}
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

// told is an error of the contract with the server's text.
type told struct {
	*Problem
	is error
}

func (e *told) Unwrap() error { return e.is }

// ScrubDamage removes the machine's paths from a description of damage.
func ScrubDamage(d *hansard.DamagedError) *hansard.DamagedError {
	if d == nil {
		return nil
	}
	clean := *d
	clean.Reason = Scrub(d.Reason)
	return &clean
}

// Scrub removes the machine's paths from a text: they are useless to others. A text of
// several lines, such as a stack trace, keeps its lines.
func Scrub(text string) string {
	var out strings.Builder
	inPath := false // the previous word was a path, which may go on after a space
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

// isPath reports whether a word is or contains a path on the machine.
func isPath(word string) bool {
	bare := strings.TrimLeft(word, "\"'(`")
	absolute := strings.HasPrefix(bare, "/") && len(bare) > 1 || strings.Contains(bare, "=/") || strings.Contains(bare, ":/")
	drive := len(bare) > 2 && bare[1] == ':' && (bare[2] == '\\' || bare[2] == '/')
	return absolute || drive || strings.Contains(bare, ".jsonl")
}
