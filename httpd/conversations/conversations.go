// Package conversations serves the OpenAI Conversations API on a
// [hansard.Store], so that the official SDKs are clients of Hansard without any change.
//
//	POST                /v1/conversations
//	GET  POST  DELETE   /v1/conversations/{conversation_id}
//	GET  POST           /v1/conversations/{conversation_id}/items
//	GET        DELETE   /v1/conversations/{conversation_id}/items/{item_id}
//
// A conversation is a session, and its id is the session's id: one created here is
// called "conv_…" and appears in every list of sessions; any other session is a
// conversation too. Metadata are the session's labels.
//
// An item is an event. Its data are the bytes the client sent, and these bytes
// are returned, with what the API adds (id, type, status, a list for the content of
// a message given as a string) spliced in. An item without an id gets one derived
// from its seq, so that it is found without a search. Deleting an item appends
// an event that hides it.
//
// The handler keeps only a bounded cache of what it saw in the logs; any number of
// servers may serve one store. The server around it has to check who may call it,
// from where and how often.
package conversations

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"hansard"
	"hansard/internal/wire"
)

// Prefix is the path below which the handler serves. Mount it at Prefix and at
// Prefix + "/".
const Prefix = "/v1/conversations"

// The headers the handler knows. The first is the usual one for retries; the
// others are Hansard's own, for clients that run an agent loop.
const (
	keyHeader   = wire.KeyHeader
	turnHeader  = "Hansard-Turn"  // the grant of the turn to write under
	inboxHeader = "Hansard-Inbox" // "true": leave the items to the holder of the turn
)

// MaxBodyBytes is the maximum size of a request: a batch, and its frame.
const MaxBodyBytes = hansard.MaxBatchBytes + 1<<20

// Options configure a handler; nil or the zero value will do.
type Options struct {
	// Log gets the errors that an answer does not explain; nil is slog.Default.
	Log *slog.Logger
}

type handler struct {
	store hansard.Store
	log   *slog.Logger
	index *index
	// pageBytes ends a list early, with has_more, when its items are large.
	pageBytes int
}

// scoped is a store whose callers may be limited to sessions with certain labels, which they
// can't change, and to ids that begin in a certain way.
type scoped interface {
	ScopeLabels(context.Context) map[string]string
	ScopedID(ctx context.Context, name hansard.SessionID) hansard.SessionID
}

// fixed are the labels that the caller can't change.
func (h *handler) fixed(ctx context.Context) map[string]string {
	if s, ok := h.store.(scoped); ok {
		return s.ScopeLabels(ctx)
	}
	return nil
}

// New makes the handler of a store. It does not close the store.
func New(store hansard.Store, o *Options) http.Handler {
	h := &handler{store: store, log: slog.Default(), index: newIndex(store, maxKnown), pageBytes: MaxPageBytes}
	if o != nil && o.Log != nil {
		h.log = o.Log
	}
	return h
}

// request is a parsed request.
type request struct {
	*http.Request
	id     hansard.SessionID
	itemID string
	query  url.Values
	body   *object // of a POST
	key    string
	turn   hansard.Grant
	inbox  bool
}

// route answers one method on one path.
type route struct {
	method string
	// answer returns the body of a 200.
	answer func(h *handler, ctx context.Context, r *request) ([]byte, error)
	// query and members are the parameters it takes, in the address and in the
	// body; others are an error.
	query, members []string
}

var includeParams = []string{"include", "include[]"}

var (
	collectionRoutes = []route{
		{http.MethodPost, (*handler).create, nil, []string{"items", "metadata"}},
	}
	conversationRoutes = []route{
		{http.MethodGet, (*handler).retrieve, nil, nil},
		{http.MethodPost, (*handler).update, nil, []string{"metadata"}},
		{http.MethodDelete, (*handler).delete, nil, nil},
	}
	itemsRoutes = []route{
		{http.MethodGet, (*handler).listItems, append([]string{"limit", "after", "order"}, includeParams...), nil},
		{http.MethodPost, (*handler).createItems, includeParams, []string{"items"}},
	}
	itemRoutes = []route{
		{http.MethodGet, (*handler).retrieveItem, includeParams, nil},
		{http.MethodDelete, (*handler).deleteItem, nil, nil},
	}
)

// Routes returns the methods of every path, named as in [OpenAPI].
func Routes() map[string][]string {
	out := map[string][]string{}
	for path, routes := range map[string][]route{"": collectionRoutes, "/{conversation_id}": conversationRoutes,
		"/{conversation_id}/items": itemsRoutes, "/{conversation_id}/items/{item_id}": itemRoutes} {
		for _, rt := range routes {
			out[Prefix+path] = append(out[Prefix+path], rt.method)
		}
	}
	return out
}

// ServeHTTP finds the route. It does so by itself, without a mux, so that every
// answer has the API's shape and no path is ever redirected.
func (h *handler) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	r := &request{Request: hr}
	body, err := h.serve(w, r)
	if err == nil {
		writeJSON(w, http.StatusOK, body)
		return
	}
	answer, explained := errorFor(err, r.id)
	if !explained {
		h.log.Error("conversations", "method", r.Method, "error", wire.Scrub(err.Error()))
	}
	if errors.Is(err, hansard.ErrUnknown) && r.key != "" {
		answer.again = true // with a key a retry settles it
	}
	writeError(w, answer)
}

func (h *handler) serve(w http.ResponseWriter, r *request) ([]byte, error) {
	routes, err := r.parsePath()
	if err != nil {
		return nil, err
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	at := slices.IndexFunc(routes, func(rt route) bool { return rt.method == method })
	if at < 0 {
		var allow []string
		for _, rt := range routes {
			allow = append(allow, rt.method)
		}
		w.Header().Set("Allow", strings.Join(allow, ", "))
		return nil, &apiError{status: http.StatusMethodNotAllowed, kind: kindRequest, code: "method_not_supported",
			message: "Not allowed to " + r.Method + " here; allowed: " + strings.Join(allow, ", ") + "."}
	}
	rt := routes[at]
	if err := r.parseQuery(rt.query); err != nil {
		return nil, err
	}
	if err := r.parseHeaders(); err != nil {
		return nil, err
	}
	if method == http.MethodPost {
		if err := r.parseBody(w, rt.members); err != nil {
			return nil, err
		}
	}
	return rt.answer(h, r.Context(), r)
}

// parsePath splits the path as it was sent: an escaped slash is part of a name, never
// the end of one.
func (r *request) parsePath() ([]route, error) {
	unknown := &apiError{status: http.StatusNotFound, kind: kindRequest, code: "unknown_url",
		message: "Unknown request URL: " + r.Method + " " + r.URL.Path + "."}
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), Prefix)
	if !ok || rest != "" && rest[0] != '/' {
		return nil, unknown
	}
	var parts []string
	for part := range strings.SplitSeq(strings.TrimPrefix(rest, "/"), "/") {
		name, err := url.PathUnescape(part)
		if err != nil {
			return nil, unknown
		}
		parts = append(parts, name)
	}
	if len(parts) == 1 && parts[0] == "" {
		return collectionRoutes, nil
	}
	if err := hansard.CheckID(hansard.SessionID(parts[0])); err != nil {
		return nil, badRequest("conversation_id", "invalid_value", "Invalid 'conversation_id': it is no id of a session.")
	}
	r.id = hansard.SessionID(parts[0])
	switch {
	case len(parts) == 1:
		return conversationRoutes, nil
	case parts[1] != "items" || len(parts) > 3:
		return nil, unknown
	case len(parts) == 2:
		return itemsRoutes, nil
	}
	if err := checkItemID(parts[2]); err != nil {
		return nil, badRequest("item_id", "invalid_value", "Invalid 'item_id': %v.", err)
	}
	r.itemID = parts[2]
	return itemRoutes, nil
}

func (r *request) parseQuery(known []string) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return badRequest("", "invalid_query", "The query of the address can't be parsed.")
	}
	for name := range query {
		// The SDK's client for Azure adds a version to every request.
		if !slices.Contains(known, name) && name != "api-version" {
			return badRequest(name, "unknown_parameter", "Unknown parameter: '%.64s'.", name)
		}
	}
	r.query = query
	return nil
}

func (r *request) parseHeaders() error {
	r.turn = hansard.Grant(r.Header.Get(turnHeader))
	if keys := r.Header.Values(keyHeader); len(keys) > 0 {
		var err error
		if r.key, err = wire.ParseKey(keys); err != nil {
			return err
		}
	}
	if strings.HasPrefix(r.key, deleteKey) {
		return badRequest(keyHeader, "invalid_value", "Invalid '%s': keys that begin with %q are the server's own.", keyHeader, deleteKey)
	}
	switch v := r.Header.Get(inboxHeader); v {
	case "", "false":
	case "true":
		r.inbox = true
	default:
		return badRequest(inboxHeader, "invalid_value", "Invalid '%s': it is neither true nor false.", inboxHeader)
	}
	return nil
}

func (r *request) parseBody(w http.ResponseWriter, known []string) error {
	if ct := r.Header.Get("Content-Type"); ct != "" {
		if media, _, err := mime.ParseMediaType(ct); err != nil || media != "application/json" {
			return &apiError{status: http.StatusUnsupportedMediaType, kind: kindRequest, code: "unsupported_media_type",
				message: "The content type of a request is application/json."}
		}
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &apiError{status: http.StatusRequestTimeout, kind: kindRequest, code: "timeout", message: "The body of the request did not arrive in time."}
	case err != nil:
		return badRequest("", "incomplete_body", "The body of the request could not be read to its end.")
	}
	if len(trim(data)) == 0 {
		data = []byte("{}")
	}
	r.body, err = parseObject(data)
	if err != nil {
		return badRequest("", "invalid_json", "The body of the request can't be parsed: %v.", err)
	}
	if unknown, ok := r.body.only(known...); !ok {
		return badRequest(unknown, "unknown_parameter", "Unknown parameter: '%.64s'.", unknown)
	}
	return nil
}
