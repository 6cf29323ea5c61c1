package httpd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"hansard"
	"hansard/httpd/conversations"
	"hansard/httpd/durable"
	"hansard/internal/wire"
)

// action is what a method of a route does. An error it returns becomes the answer.
type action struct {
	right  Right // 0: anyone
	writes bool
	do     func(w http.ResponseWriter, r *http.Request) error
}

// routes is the API: path, then method.
func (s *Server) routes() map[string]map[string]action {
	const session = "/v1/sessions/{id}"
	return map[string]map[string]action{
		"/v1/sessions": {
			"GET":  {Read, false, s.listSessions},
			"POST": {Append, true, s.createSession},
		},
		session: {
			"GET":    {Read, false, s.getSession},
			"PATCH":  {Append, true, s.patchSession},
			"DELETE": {Admin, true, s.deleteSession},
		},
		session + "/events": {
			"GET":  {Read, false, s.readEvents},
			"POST": {Append, true, s.appendEvents},
		},
		session + "/events/{event}": {"GET": {Read, false, s.readEvent}},
		session + "/events/stream":  {"GET": {Read, false, s.streamEvents}},
		session + "/attachments": {
			"GET":  {Read, false, s.listAttachments},
			"POST": {Append, true, s.attach},
		},
		session + "/attachments/{digest}": {"GET": {Read, false, s.getAttachment}},
		session + "/fork":                 {"POST": {Append, true, s.forkSession}}, // and Read
		session + "/turn": {
			"GET":    {Read, false, s.getTurn},
			"POST":   {Append, true, s.acquireTurn},
			"PUT":    {Append, true, s.renewTurn},
			"DELETE": {Append, true, s.releaseTurn},
		},
		"/v1/search": {"GET": {Read, false, s.searchEvents}},
		durable.Prefix + "{id}": {
			"GET":    {Read, false, s.readStream},
			"PUT":    {Append, true, s.createStream},
			"POST":   {Append, true, s.appendStream},
			"DELETE": {Admin, true, s.deleteStream},
		},
		session + "/find":   {"GET": {Read, false, s.findEventsWith}},
		"/v1/whoami":        {"GET": {Read | Append, false, s.whoami}},
		"/v1/origins":       {"GET": {Read, false, s.listOrigins}},
		session + "/keys":   {"GET": {Read, false, s.listKeys}},
		session + "/export": {"GET": {Read, false, s.exportSession}},
		session + "/import": {"POST": {Admin, true, s.importPart}},
		// Verifying one session reveals no more than reading it. Verifying the
		// store also shows files that are not sessions, and loads the disk.
		session + "/verify":  {"GET": {Read, false, s.verifySession}},
		"/v1/verify":         {"GET": {Admin, false, s.verifyStore}},
		session + "/redact":  {"POST": {Admin, true, s.redactEvents}},
		session + "/repair":  {"POST": {Admin, true, s.repairSession}},
		"/v1/journal/repair": {"POST": {Admin, true, s.repairJournal}},
		"/v1/prune":          {"POST": {Admin, true, s.prune}},
		"/v1/tokens": {
			"GET":  {Admin, false, s.listTokens},
			"POST": {Admin, false, s.addToken},
		},
		"/v1/tokens/{name}": {"DELETE": {Admin, false, s.removeToken}},
		"/v1/login": {
			"POST":   {0, false, s.logIn},
			"DELETE": {Read | Append, false, s.logOut},
		},
		"/v1/store":     {"GET": {Read | Append, false, s.storeIdentity}},
		"/v1/ws":        {"GET": {Read | Append, false, s.socket}},
		"/healthz":      {"GET": {0, false, s.healthz}},
		"/readyz":       {"GET": {Read | Append, false, s.readyz}},
		"/metrics":      {"GET": {Read, false, s.serveMetrics}},
		"/version":      {"GET": {0, false, s.version}},
		"/openapi.json": {"GET": {0, false, s.openAPI}},
	}
}

func (s *Server) router() http.Handler {
	mux := http.NewServeMux()
	for path, methods := range s.routes() {
		mux.Handle(path, s.route(path, methods))
	}
	if s.talk != nil {
		mux.Handle(conversations.Prefix, s.conversations())
		mux.Handle(conversations.Prefix+"/", s.conversations())
	}
	page := s.opt.Page
	if page == nil {
		page = http.HandlerFunc(plainPage)
	}
	mux.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAPI(r.URL.Path) {
			// Hide routes from unauthenticated callers.
			if _, err := s.admit(w, r, Read|Append); err != nil {
				s.problem(w, r, err)
				return
			}
			s.problem(w, r, noSuchRoute())
			return
		}
		w.(*recorder).route = "/"
		page.ServeHTTP(w, r)
	}))
	return mux
}

// route answers the methods of one path.
func (s *Server) route(path string, methods map[string]action) http.Handler {
	allow := slices.Sorted(maps.Keys(methods))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(*recorder).route = path
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		do, ok := methods[method]
		want := do.right
		if !ok && isAPI(path) {
			want = Read | Append
		}
		r, err := s.admit(w, r, want)
		switch {
		case err != nil:
		case !ok:
			w.Header().Set("Allow", strings.Join(allow, ", "))
			err = wire.NewProblem("wrong-method", "the route does not have this method", "it has "+strings.Join(allow, ", "))
		case do.writes && s.opt.ReadOnly:
			err = readOnly()
		default:
			err = do.do(w, r)
		}
		if err != nil {
			s.fail(w, r, err)
		}
	})
}

func readOnly() error { return onlyReads{} }

// onlyReads refuses a write to a read-only server whose store is not read-only.
type onlyReads struct{}

func (onlyReads) Error() string        { return hansard.ErrReadOnly.Error() + ": this server only reads" }
func (onlyReads) Is(target error) bool { return target == hansard.ErrReadOnly }
func (onlyReads) Hint() string         { return "ask a server that was not started with --read-only" }

// fail answers with an error, or cuts the connection if an answer has already begun.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	err = because(r.Context(), err)
	if w.(*recorder).status != 0 || errors.Is(err, context.Canceled) {
		// The client is gone, or has part of an answer: a cut connection is
		// how it learns that the rest is missing.
		panic(http.ErrAbortHandler)
	}
	s.problem(w, r, err)
}

// admit admits a request whose token has one of these rights.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, want Right) (*http.Request, error) {
	if want == 0 {
		return r, nil
	}
	who, err := s.authenticate(r)
	if err != nil {
		return r, err
	}
	rec := w.(*recorder)
	rec.token, rec.admin = who.Name, want == Admin
	ctx, leave := who.under(r.Context(), rec)
	who = callerOf(ctx)
	rec.leave = leave
	if err := s.conns.own(ctx, who.account); err != nil {
		rec.Header().Set("Connection", "close")
		return r, err
	}
	r = r.WithContext(ctx)
	if err := who.account.pace(who.Rate); err != nil {
		return r, err
	}
	if !who.Rights.allows(want) {
		return r, missingRight(want)
	}
	return r, nil
}

func missingRight(want Right) error {
	return wire.NewProblem("missing-right", fmt.Sprintf("this needs the right to %s", want), "use a token that has it")
}

// plainPage is the page of a server without Options.Page.
func plainPage(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(`Hansard is running. It has an API:

  export HANSARD_TOKEN=...    the one that was printed at the first start
  curl -H "Authorization: Bearer $HANSARD_TOKEN" http://` + r.Host + `/v1/sessions
  hansard --store http://` + r.Host + ` new demo
  hansard --store http://` + r.Host + ` append demo "Hello" --role user

/openapi.json describes it.
`))
}
