package httpd

import (
	"context"
	"net/http"
	"strings"

	"hansard"
	"hansard/httpd/conversations"
	"hansard/internal/wire"
)

// The routes of OpenAI's Conversations API have a handler of their own; what is
// here is the server around it.

// conversations lets requests through to the routes of the conversations.
func (s *Server) conversations() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(*recorder).route = conversations.Prefix
		want, writes := Append, true
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			want, writes = Read, false
		case http.MethodDelete:
			if !strings.Contains(r.URL.Path, "/items/") {
				want = Admin // an item is hidden, by an event; a conversation is gone
			}
		}
		r, err := s.admit(w, r, want)
		if err == nil && writes && s.opt.ReadOnly {
			err = readOnly()
		}
		free := func() {}
		if err == nil && r.Method == http.MethodPost {
			free, err = s.roomFor(r)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		defer free()
		s.talk.ServeHTTP(w, r)
	})
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
	return receipt, err
}

// roomFor waits until there is memory for the body of a conversation's request:
// it is one of all bodies.
func (s *Server) roomFor(r *http.Request) (free func(), err error) {
	size := r.ContentLength
	if size < 0 || size > conversations.MaxBodyBytes {
		size = conversations.MaxBodyBytes // no more of it is read
	}
	return s.bodies.take(r.Context(), size)
}

// isConversations tells whether a path is one below which every answer, whoever
// gives it, has the shape the OpenAI SDKs expect.
func isConversations(path string) bool {
	return path == conversations.Prefix || strings.HasPrefix(path, conversations.Prefix+"/")
}

// openAICodes are those problems that have another name in OpenAI's API, or in
// the handler's answers.
var openAICodes = map[string]string{
	"unauthorized":  "invalid_api_key",
	"no-such-route": "unknown_url",
	"internal":      "internal_error",
}

// refuse tells a problem in that shape.
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
