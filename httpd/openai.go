package httpd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"hansard"
	"hansard/httpd/conversations"
	"hansard/internal/wire"
)

// The routes of OpenAI's Conversations API have a handler of their own; this file is the
// server around it.

// conversations checks requests and passes them to the handler of the conversations.
func (s *Server) conversations() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(*recorder).route = conversations.Prefix
		want, writes := Append, true
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			want, writes = Read, false
		case http.MethodDelete:
			if !strings.Contains(r.URL.Path, "/items/") {
				want = Admin // deleting an item only hides it, with an event; a conversation is gone
			}
		}
		r, err := s.admit(w, r, want)
		if err == nil && tellsConversation(r) && !callerOf(r.Context()).Rights.allows(Read) {
			err = missingRight(Read)
		}
		if err == nil && writes && s.opt.ReadOnly {
			err = readOnly()
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		room := s.memory.load(callerOf(r.Context()).Name)
		defer room.free()
		if err := s.roomFor(r, room); err != nil {
			s.fail(w, r, err)
			return
		}
		s.talk.ServeHTTP(w, r)
	})
}

// tellsConversation reports whether the answer to a request contains the metadata of a
// conversation, which others may have written.
func tellsConversation(r *http.Request) bool {
	switch rest := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, conversations.Prefix), "/"); {
	case r.Method == http.MethodDelete:
		return true
	case r.Method != http.MethodPost:
		return false // reading needs the right to read
	case rest == "":
		return r.Header.Get(wire.KeyHeader) != "" // it may have been made before
	default:
		return !strings.Contains(rest, "/")
	}
}

// counted is the store of the conversations: what they append is counted like
// everything else.
type counted struct {
	hansard.Store
	metrics *metrics
}

func (c counted) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	receipt, err := c.Store.Append(ctx, id, b)
	c.metrics.append(&b, receipt, err)
	return receipt, masked(ctx, err)
}

// ScopedID is the id of a new conversation: the caller may be limited to some.
func (c counted) ScopedID(ctx context.Context, name hansard.SessionID) hansard.SessionID {
	return callerOf(ctx).newID(name)
}

// ScopeLabels are those of the caller, for what replaces all labels.
func (c counted) ScopeLabels(ctx context.Context) map[string]string {
	return callerOf(ctx).Scope.Labels
}

// roomFor charges a request of a conversation to the budget: its body, like all bodies, or
// the page that is the answer. The handler reads the body as it arrived, including the
// error if it did not arrive whole.
func (s *Server) roomFor(r *http.Request, room *load) error {
	if r.Method != http.MethodPost {
		if strings.Contains(r.URL.Path, "/items") { // a page, or a single item, which may be as large
			return room.grow(r.Context(), conversations.MaxPageBytes)
		}
		return nil
	}
	body, err := room.read(r.Context(), io.LimitReader(r.Body, conversations.MaxBodyBytes+1), r.ContentLength)
	var full *wire.Problem
	if p := ended(r.Context()); p != nil || errors.As(err, &full) {
		return cmp.Or(p, err)
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), failing{err}), r.Body}
	return room.grow(r.Context(), int64(len(body))) // the handler's own copy
}

// failing is the unread rest of a body: it returns err, or io.EOF if that is nil.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, cmp.Or(f.err, io.EOF) }

// isConversations reports whether every answer for a path, whichever code writes it, has the
// shape that the OpenAI SDKs expect.
func isConversations(path string) bool {
	return path == conversations.Prefix || strings.HasPrefix(path, conversations.Prefix+"/")
}

// openAICodes maps problems to the names they have in OpenAI's API, or in the handler's
// answers, where these differ.
var openAICodes = map[string]string{
	"unauthorized":      "invalid_api_key",
	"too-many-requests": "rate_limit_exceeded",
	"no-such-route":     "unknown_url",
	"internal":          "internal_error",
}

// refuse reports a problem in that shape.
func refuse(w http.ResponseWriter, p *wire.Problem) {
	name := strings.TrimPrefix(p.Type, wire.ProblemType(""))
	code, ok := openAICodes[name]
	if !ok {
		code = strings.ReplaceAll(name, "-", "_")
	}
	text := p.Error()
	message := strings.ToUpper(text[:1]) + text[1:]
	if p.Advice != "" {
		message += " (" + p.Advice + ")"
	}
	conversations.Refuse(w, p.Status, code, message+".", p.RetryAfter)
}
