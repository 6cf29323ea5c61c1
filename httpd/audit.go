package httpd

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"hansard"
	"hansard/httpd/conversations"
	"hansard/internal/wire"
)

// audit logs denied requests and requests that only an admin may make: one line of JSON
// each, with no session content and no token.
type audit struct {
	to io.Writer

	mu      sync.Mutex // guards all below, and the writing
	second  int64
	written int // in that second
	dropped int // since the last line
}

// maxAudited is how many denials are written per second. Without a limit, anyone without a
// token could fill the disk.
const maxAudited = 100

// Audited is a line of the audit log.
type Audited struct {
	Time    time.Time         `json:"time"`
	Request string            `json:"request"` // its id in the log and in the answer
	Remote  string            `json:"remote,omitempty"`
	Token   string            `json:"token,omitempty"` // its name; empty if it is not known
	Method  string            `json:"method"`          // of HTTP, or the op of a message
	Route   string            `json:"route"`
	Session hansard.SessionID `json:"session,omitempty"`
	Status  int               `json:"status"`
	Problem string            `json:"problem,omitempty"`
	// Dropped is how many denials before this one were not written, because there
	// were too many.
	Dropped int `json:"dropped,omitempty"`
}

// note writes a line; of denials at most maxAudited per second.
func (a *audit) note(line Audited, denied bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := line.Time.Unix(); now != a.second {
		a.second, a.written = now, 0
	}
	if denied && a.written >= maxAudited {
		a.dropped++
		return nil
	}
	a.written++
	line.Dropped, a.dropped = a.dropped, 0
	text, err := json.Marshal(line)
	if err == nil {
		_, err = a.to.Write(append(text, '\n'))
	}
	return err
}

// auditRequest audits a request, if it was denied or only an admin may make it.
func (s *Server) auditRequest(rec *recorder, r *http.Request, request string) {
	denied := rec.status == http.StatusUnauthorized || rec.status == http.StatusForbidden || rec.outside.Load()
	if s.opt.Audit == nil || !denied && !rec.admin {
		return
	}
	route := rec.route
	if route == "" {
		route = "none" // not the path: it may be anything
	}
	s.audit(Audited{Request: request, Remote: r.RemoteAddr, Token: rec.token, Method: methodName(r.Method), Route: route,
		Session: sessionOf(r), Status: rec.status, Problem: rec.problem}, denied)
}

func (s *Server) audit(line Audited, denied bool) {
	line.Time = time.Now().UTC().Truncate(time.Millisecond)
	line.Problem = strings.TrimPrefix(line.Problem, wire.ProblemType(""))
	if hansard.CheckID(line.Session) != nil {
		line.Session = "" // not an id: it may be anything
	}
	if err := s.audited.note(line, denied); err != nil {
		s.log.Error("the audit log can't be written", "error", wire.Scrub(err.Error()))
	}
}

// sessionOf is the session that a request is about.
func sessionOf(r *http.Request) hansard.SessionID {
	if rest, ok := strings.CutPrefix(r.URL.Path, conversations.Prefix+"/"); ok {
		id, _, _ := strings.Cut(rest, "/")
		return hansard.SessionID(id)
	}
	return sessionID(r)
}
