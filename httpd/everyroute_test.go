package httpd_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"hansard/httpd"
	"hansard/httpd/conversations"
	"hansard/internal/wire"
)

// needed is what a route needs: a right, or none; and whether it covers the whole store, so that
// a token for some sessions is refused.
type needed struct {
	right string // empty: open to everybody; any: one of read and append
	whole bool
	body  string
	query string
}

// everyRoute is all routes. A new route has to be added, with what it needs.
var everyRoute = map[string]needed{
	"GET /v1/sessions":                                        {right: "read"},
	"POST /v1/sessions":                                       {right: "append", body: `{"id":"ID"}`},
	"GET /v1/sessions/{id}":                                   {right: "read"},
	"PATCH /v1/sessions/{id}":                                 {right: "append", body: `{"title":"t"}`},
	"DELETE /v1/sessions/{id}":                                {right: "admin"},
	"GET /v1/sessions/{id}/events":                            {right: "read"},
	"POST /v1/sessions/{id}/events":                           {right: "append", body: oneEvent},
	"GET /v1/sessions/{id}/events/{event}":                    {right: "read"},
	"GET /v1/sessions/{id}/attachments":                       {right: "read"},
	"POST /v1/sessions/{id}/attachments":                      {right: "append", body: "bytes"},
	"GET /v1/sessions/{id}/attachments/{digest}":              {right: "read"},
	"POST /v1/sessions/{id}/fork":                             {right: "read,append", body: `{}`},
	"GET /v1/sessions/{id}/events/stream":                     {right: "read"},
	"GET /v1/search":                                          {right: "read", query: "?q=one"},
	"GET /v1/sessions/{id}/find":                              {right: "read", query: "?q=one"},
	"GET /ds/{id}":                                            {right: "read"},
	"PUT /ds/{id}":                                            {right: "append"},
	"POST /ds/{id}":                                           {right: "append", body: `{}`},
	"DELETE /ds/{id}":                                         {right: "admin"},
	"GET /v1/whoami":                                          {right: "any"},
	"GET /v1/sessions/{id}/turn":                              {right: "read"},
	"POST /v1/sessions/{id}/turn":                             {right: "append", body: `{"steal":"test"}`},
	"PUT /v1/sessions/{id}/turn":                              {right: "append", body: `{"grant":"1-0000000000000000"}`},
	"DELETE /v1/sessions/{id}/turn":                           {right: "append", body: `{"grant":"1-0000000000000000"}`},
	"GET /v1/origins":                                         {right: "read"},
	"GET /v1/sessions/{id}/keys":                              {right: "read"},
	"GET /v1/sessions/{id}/export":                            {right: "read"},
	"POST /v1/sessions/{id}/import":                           {right: "admin", body: `{"created":"2026-01-02T03:04:05Z"}`},
	"GET /v1/sessions/{id}/verify":                            {right: "read"},
	"GET /v1/verify":                                          {right: "admin", whole: true},
	"POST /v1/sessions/{id}/repair":                           {right: "admin"},
	"POST /v1/sessions/{id}/redact":                           {right: "admin", body: `{"seqs":[1]}`},
	"POST /v1/journal/repair":                                 {right: "admin", whole: true},
	"POST /v1/prune":                                          {right: "admin", whole: true},
	"GET /v1/tokens":                                          {right: "admin", whole: true},
	"POST /v1/tokens":                                         {right: "admin", whole: true, body: `{"name":"new","rights":"read"}`},
	"DELETE /v1/tokens/{name}":                                {right: "admin", whole: true},
	"POST /v1/login":                                          {body: `{"code":"x"}`}, // 401 for an invalid code
	"DELETE /v1/login":                                        {right: "any"},
	"GET /v1/store":                                           {right: "any"},
	"GET /v1/ws":                                              {right: "any"},
	"GET /healthz":                                            {},
	"GET /readyz":                                             {right: "any"},
	"GET /metrics":                                            {right: "read", whole: true},
	"GET /version":                                            {},
	"GET /openapi.json":                                       {},
	"POST /v1/conversations":                                  {right: "append", body: `{}`},
	"GET /v1/conversations/{conversation_id}":                 {right: "read"},
	"POST /v1/conversations/{conversation_id}":                {right: "read,append", body: `{"metadata":{}}`},
	"DELETE /v1/conversations/{conversation_id}":              {right: "admin"},
	"GET /v1/conversations/{conversation_id}/items":           {right: "read"},
	"POST /v1/conversations/{conversation_id}/items":          {right: "append", body: `{"items":[{"role":"user","content":"x"}]}`},
	"GET /v1/conversations/{conversation_id}/items/{item_id}": {right: "read"},
	"DELETE /v1/conversations/{conversation_id}/items/{item_id}": {right: "read,append"},
}

// liveToken is a kind of valid token: its rights, and for which session.
type liveToken struct {
	name, rights string
	scoped       bool // for "team:in" only
	headers      []string
}

// liveTokens makes one of each kind.
func liveTokens(t *testing.T, v *served, tokens *httpd.Tokens) []liveToken {
	t.Helper()
	var all []liveToken
	add := func(k httpd.Token) string {
		t.Helper()
		token, err := tokens.Add(k)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	one := httpd.Scope{Session: "team:in"}
	for _, rights := range []string{"read", "append", "read,append", "admin"} {
		mark := strings.ReplaceAll(rights, ",", "-")
		for scope, kind := range map[string]httpd.Scope{"": {}, "session": one, "label": {Prefix: "team:", Labels: map[string]string{"k": "v"}}} {
			token := add(httpd.Token{Name: "live-" + mark + scope, Rights: rights, Scope: kind})
			all = append(all, liveToken{scope + " " + rights, rights, scope != "", []string{"Authorization", "Bearer " + token}})
			v.tokens["cookie"] = token
			all = append(all, liveToken{"cookie " + scope + " " + rights, rights, scope != "", by(v.logIn("cookie"), "Origin", v.url)})
		}
		if rights != "admin" {
			token, err := wire.Narrow(add(httpd.Token{Name: "wide-" + mark, Rights: "admin"}), wire.Narrowing{Session: "team:in", Rights: rights, Expires: time.Now().Add(time.Hour).Unix()})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, liveToken{"narrowed " + rights, rights, true, []string{"Authorization", "Bearer " + token}})
		}
	}
	share := add(httpd.Token{Name: "share", Rights: "read", Scope: one, Share: true, Expires: time.Now().Add(time.Hour)})
	return append(all, liveToken{"share", "read", true, []string{"Authorization", "Bearer " + share}})
}

// deadTokens are credentials that must not be accepted.
func deadTokens(t *testing.T, v *served, tokens *httpd.Tokens) map[string][]string {
	t.Helper()
	gone, err := tokens.Add(tokenOf("gone", httpd.Admin))
	if err != nil {
		t.Fatal(err)
	}
	v.tokens["gone"] = gone
	cookie := v.logIn("gone")
	narrow := func(n wire.Narrowing) string {
		t.Helper()
		n.Rights = "read,append"
		out, err := wire.Narrow(gone, n)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	old, ofGone := narrow(wire.Narrowing{Expires: time.Now().Unix() - 1}), narrow(wire.Narrowing{Expires: time.Now().Add(time.Hour).Unix()})
	if err := tokens.Remove("gone"); err != nil {
		t.Fatal(err)
	}
	dead := map[string][]string{"none": {"Authorization", ""}, "cookie of a withdrawn one": by(cookie, "Origin", v.url), "another cookie": by(cookie+"x", "Origin", v.url)}
	for name, token := range map[string]string{"unknown": strings.Repeat("x", 43), "withdrawn": gone, "narrowed, expired": old, "narrowed of a withdrawn one": ofGone, "a login code": code(t, v.tokens["cookie"], time.Minute)} {
		dead[name] = []string{"Authorization", "Bearer " + token}
	}
	return dead
}

// TestEveryRouteEveryToken: every route with every kind of token, on a session in the token's
// scope and on one outside.
func TestEveryRouteEveryToken(t *testing.T) {
	v, _ := scoped(t)
	there := map[string]bool{}
	for _, routes := range []map[string][]string{v.server.Routes(), conversations.Routes()} {
		for path, methods := range routes {
			for _, method := range methods {
				there[method+" "+path] = true
				if _, ok := everyRoute[method+" "+path]; !ok {
					t.Errorf("%s %s is not in the table: add it, with what it needs", method, path)
				}
			}
		}
	}
	cases := 0
	for route, need := range everyRoute {
		if !there[route] {
			t.Errorf("%s is in the table and not there", route)
			continue
		}
		method, path, _ := strings.Cut(route, " ")
		v, tokens := scoped(t) // a new one each time, since some of them delete
		live := liveTokens(t, v, tokens)
		dead := deadTokens(t, v, tokens)
		ask := func(id string, headers []string) int {
			t.Helper()
			cases++
			path := strings.NewReplacer("{id}", id, "{conversation_id}", id, "{name}", "nobody", "{item_id}", "msg_none", "{event}", "first", "{digest}", fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(scopedContent)))).Replace(path)
			if strings.HasSuffix(path, "/stream") {
				return v.status(path, headers...)
			}
			return v.ask(method, path+need.query, strings.ReplaceAll(need.body, "ID", id), headers...).status
		}
		for name, headers := range dead {
			got := ask("team:in", headers)
			if open := need.right == "" && route != "POST /v1/login"; got == 401 == open || open && got != 200 {
				t.Errorf("%s with %s: %d", route, name, got)
			}
		}
		for _, k := range live {
			mayDo := may(k.rights, need.right) || need.right == ""
			inside, outside := ask("team:in", k.headers), ask("other", k.headers)
			what := fmt.Sprintf("%s with %s: %d inside, %d outside", route, k.name, inside, outside)
			if !strings.Contains(path, "id}") && route != "POST /v1/sessions" {
				outside = inside // it is not about a session
			}
			switch {
			case need.right == "": // open to everybody: the token does not matter
			case !mayDo || need.whole && k.scoped:
				if inside != 403 || outside != 403 {
					t.Error(what, "want 403")
				}
			case inside == 401 || inside == 403 && !strings.HasSuffix(path, "/import"):
				t.Error(what, "want it let in")
			case k.scoped && strings.Contains(route, "/import"):
				if outside != 404 && outside != 403 {
					t.Error(what, "want 403 or 404")
				}
			case k.scoped && (strings.Contains(path, "id}") || route == "POST /v1/sessions") && outside != 404 && outside != 409:
				t.Error(what, "want 404")
			}
		}
		v.stop()
	}
	t.Logf("%d routes, %d cases", len(everyRoute), cases)
}
