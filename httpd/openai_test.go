package httpd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"hansard"
	"hansard/httpd"
	"hansard/httpd/conversations"
	"hansard/memstore"
)

// withConversations serves OpenAI's API too.
func withConversations(o *httpd.Options) {
	o.Conversations = func(store hansard.Store) http.Handler {
		return conversations.New(store, &conversations.Options{Log: o.Log})
	}
}

// openAICode is the code of an error in the shape of OpenAI's API, which every refusal below its
// routes must have; "" if the answer is not an error.
func (r reply) openAICode(t testing.TB) string {
	t.Helper()
	if r.status < 400 {
		return ""
	}
	var answer map[string]struct{ Message, Type, Param, Code *string }
	dec := json.NewDecoder(bytes.NewReader([]byte(r.body)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&answer); err != nil {
		t.Errorf("%d %.200s: %v", r.status, r.body, err)
	}
	e := answer["error"]
	kind := "invalid_request_error"
	if r.status >= 500 {
		kind = "server_error"
	}
	switch media := r.header.Get("Content-Type"); {
	case media != "application/json" || len(answer) != 1 || e.Message == nil || e.Type == nil || e.Code == nil || !strings.Contains(r.body, `"param":`):
		t.Errorf("%d %s is no error of OpenAI's API: %.200s", r.status, media, r.body)
		return "(none)"
	case *e.Type != kind || len(*e.Message) < 20:
		t.Errorf("%d: type %s, want %s, message %q", r.status, *e.Type, kind, *e.Message)
	case r.header.Get("X-Request-Id") == "":
		t.Errorf("%d: the answer does not name its request", r.status)
	case r.status == 401 && r.header.Get("WWW-Authenticate") != "Bearer":
		t.Errorf("401 without WWW-Authenticate")
	}
	return *e.Code
}

// conversationRoutes is every route of the conversations, with an acceptable body.
var conversationRoutes = []struct {
	method, path, body string
	right              string
	status             int    // for a permitted token
	code               string // of that
}{
	{"POST", "", `{}`, "append", 200, ""},
	{"GET", "/s", "", "read", 200, ""},
	{"POST", "/s", `{"metadata":{}}`, "read,append", 200, ""},
	{"DELETE", "/gone", "", "admin", 404, "conversation_not_found"},
	{"GET", "/s/items", "", "read", 200, ""},
	{"POST", "/s/items", `{"items":[{"role":"user","content":"x"}]}`, "append", 200, ""},
	{"GET", "/s/items/msg_none", "", "read", 404, "item_not_found"},
	{"DELETE", "/s/items/msg_none", "", "read,append", 404, "item_not_found"},
	// Things that do not exist, or not in that form.
	{"GET", "/s/nothing", "", "read", 404, "unknown_url"},
	{"GET", "/s/items/a/b", "", "read", 404, "unknown_url"},
	{"GET", "", "", "read", 405, "method_not_supported"},
	{"PUT", "/s", `{}`, "append", 405, "method_not_supported"},
	{"PATCH", "/s/items", `{}`, "append", 405, "method_not_supported"},
	{"DELETE", "", "", "admin", 405, "method_not_supported"},
	{"OPTIONS", "/s", "", "append", 405, "method_not_supported"},
}

func conversationCases() []accessCase {
	var all []accessCase
	add := func(name, method, path, body string, status int, code string, headers ...string) {
		all = append(all, accessCase{name, method, conversations.Prefix + path, body, headers, status, code})
	}
	for _, r := range conversationRoutes {
		add("no token", r.method, r.path, r.body, 401, "invalid_api_key", "Authorization", "")
		add("wrong token", r.method, r.path, r.body, 401, "invalid_api_key", "Authorization", "Bearer "+strings.Repeat("x", 43))
		add("no bearer", r.method, r.path, r.body, 401, "invalid_api_key", "Authorization", "Basic YTpi")
		add("wrong host", r.method, r.path, r.body, 403, "wrong_host", "Host", "evil.example")
		add("wrong origin", r.method, r.path, r.body, 403, "wrong_origin", "Origin", "http://evil.example")
		add("wrong site", r.method, r.path, r.body, 403, "wrong_origin", "Sec-Fetch-Site", "cross-site")
		for name, right := range map[string]string{"READER": "read", "APPENDER": "append", "ADMIN": "admin"} {
			status, code := r.status, r.code
			if right != "admin" && right != r.right {
				status, code = 403, "missing_right"
			}
			add("right of "+right, r.method, r.path, r.body, status, code, "Authorization", "Bearer "+name)
		}
	}
	// Before the handler sees them.
	for _, path := range []string{"/..", "/s/..", "/%2e%2e/x", "/s/items/..", "/a%2f..%2fb", "/%00", "/s//items", "//s"} {
		add("path", "GET", path, "", 404, "unknown_url")
	}
	for _, id := range []string{"a%2fb", "a%5cb", "~a", "%ff", strings.Repeat("a", 129)} {
		add("id", "GET", "/"+id, "", 400, "invalid_value")
		add("id", "GET", "/"+id+"/items", "", 400, "invalid_value")
	}
	// Bodies.
	large := strings.Repeat("x", conversations.MaxBodyBytes)
	add("a body over the limit", "POST", "/s/items", `{"items":[{"role":"user","content":"`+large+`"}]}`, 413, "request_too_large")
	add("an item over the limit", "POST", "/s/items", `{"items":[{"role":"user","content":"`+large[:hansard.MaxBatchBytes]+`"}]}`, 413, "request_too_large")
	for _, body := range []string{`{"items":[`, `[]`, `hello`, `{} {}`} {
		add("body "+body, "POST", "/s/items", body, 400, "invalid_json")
	}
	add("media", "POST", "", `{}`, 415, "unsupported_media_type", "Content-Type", "text/plain")
	add("query", "GET", "/s?page=2", "", 400, "unknown_parameter")
	add("key", "POST", "/s/items", `{"items":[{"role":"user","content":"x"}]}`, 400, "invalid_value", "Idempotency-Key", `"a`)
	add("turn", "POST", "/s/items", `{"items":[{"role":"user","content":"x"}]}`, 409, "turn_lost", "Hansard-Turn", "1-0000000000000000")
	return all
}

// TestConversationsAccess: each of these requests gets exactly its status, and an error in the
// shape of OpenAI's API, whichever layer refuses it.
func TestConversationsAccess(t *testing.T) {
	store := memstore.New()
	v := serve(t, store, withConversations)
	v.must(201, "POST", "/v1/sessions", `{"id":"s"}`)
	v.refuses(conversationCases())
	// Neighbouring paths are not part of OpenAI's API.
	if got := v.ask("GET", conversations.Prefix+"x", ""); got.problem() != "no-such-route" {
		t.Errorf("%d %s", got.status, got.body)
	}
	// If the API is not served, the error has its shape too.
	without := serveMemory(t)
	if got := without.ask("POST", conversations.Prefix, `{}`); got.status != 404 || got.openAICode(t) != "unknown_url" {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestConversationsReadOnly: a read-only server refuses every write, with the API's error shape.
func TestConversationsReadOnly(t *testing.T) {
	store := memstore.New()
	v := serve(t, store, withConversations, func(o *httpd.Options) { o.ReadOnly = true })
	if _, err := store.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range conversationRoutes {
		got, wantStatus, want := v.ask(r.method, conversations.Prefix+r.path, r.body), r.status, r.code
		if r.right != "read" {
			wantStatus, want = 403, "read_only"
		}
		if got.status != wantStatus || got.openAICode(t) != want {
			t.Errorf("%s %s: %d %s, want %d %s", r.method, r.path, got.status, got.body, wantStatus, want)
		}
	}
}

// TestConversationsFail: server errors and timeouts have the API's error shape as well.
func TestConversationsFail(t *testing.T) {
	v := serveMemory(t, func(o *httpd.Options) {
		o.Conversations = func(hansard.Store) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("of the test") })
		}
	})
	if got := v.ask("GET", conversations.Prefix+"/s", ""); got.status != 500 || got.openAICode(t) != "internal_error" || got.header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	// The log says where, without the paths of the machine it was built on.
	if log := v.log.String(); !strings.Contains(log, "panic") || !strings.Contains(log, "httpd_test.TestConversationsFail") || strings.Contains(log, ".go:") {
		t.Errorf("the log: %s", log)
	}

	store := memstore.New()
	address, _, _ := hasty(t, store, arrive, withConversations)
	answer := talk(t, address, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-for-tests\r\nContent-Length: 100\r\n\r\n{\"items\":", conversations.Prefix))
	if !strings.HasPrefix(answer, "HTTP/1.1 408") || !strings.Contains(answer, `{"error":{"code":"timeout"`) {
		t.Errorf("half a body was answered %q", answer)
	}
}

// TestConversationsOverload: bodies, pages and items of conversations share the common memory, and a
// request that finds none is told to come back.
func TestConversationsOverload(t *testing.T) {
	store := memstore.New()
	address, server, _ := hasty(t, store, arrive, withConversations)
	defer server.FillBodies()()
	for _, line := range []string{"POST " + conversations.Prefix, "GET " + conversations.Prefix + "/s/items", "GET " + conversations.Prefix + "/s/items/msg_1"} {
		answer := talk(t, address, line+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-for-tests\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
		for _, part := range []string{"HTTP/1.1 503", `"code":"overloaded"`, "X-Should-Retry: true", "Retry-After: 1"} {
			if !strings.Contains(answer, part) {
				t.Errorf("%s: there is no %s in %q", line, part, answer)
			}
		}
	}
}
