package httpd_test

import (
	"strings"
	"testing"

	"hansard"
	"hansard/httpd"
	"hansard/memstore"
)

// TestStreams: the streams follow the same rights, scopes, names and limits as all other routes.
// What they do is tested in their own package.
func TestStreams(t *testing.T) {
	v := serve(t, memstore.New())
	v.must(201, "PUT", "/ds/s", `[1]`, "Content-Type", "application/json")
	v.must(204, "POST", "/ds/s", `{"a": 2}`, "Content-Type", "application/json")
	if got := v.must(200, "GET", "/ds/s", ""); got.body != `[1,{"a": 2}]` || got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("it is %s %v", got.body, got.header)
	}
	var page struct{ Events []hansard.Event }
	v.must(200, "GET", "/v1/sessions/s/events", "").into(t, &page)
	if len(page.Events) != 2 || page.Events[1].By == "" || string(page.Events[1].Data) != `{"a": 2}` {
		t.Errorf("the events are %+v", page.Events)
	}
	if got := v.ask("POST", "/ds/s", strings.Repeat("x", 17<<20), "Content-Type", "application/json"); got.status != 400 {
		t.Errorf("what is not JSON is %d %s", got.status, got.body)
	}
	v.must(201, "PUT", "/ds/bytes", "")
	if got := v.ask("POST", "/ds/bytes", strings.Repeat("\xff", 13<<20), "Content-Type", "application/octet-stream"); got.problem() != "too-large" {
		t.Errorf("13 MiB are %d %s", got.status, got.body)
	}
	if got := v.ask("POST", "/ds/bytes", "x", "Content-Type", "application/octet-stream", "Content-Encoding", "gzip"); got.problem() != "wrong-media-type" {
		t.Errorf("what is compressed is %d %s", got.status, got.body)
	}
	for _, path := range []string{"/ds/", "/ds/a/b", "/ds/__ds/subscriptions/x"} {
		if got := v.ask("GET", path, ""); got.problem() != "no-such-route" {
			t.Errorf("%s is %d %s", path, got.status, got.body)
		}
	}
	if got := v.ask("GET", "/ds/s", "", "Origin", "https://example.com"); got.problem() != "wrong-origin" {
		t.Errorf("a page of another site gets %d %s", got.status, got.body)
	}
	if got := v.ask("OPTIONS", "/ds/s", ""); got.problem() != "wrong-method" {
		t.Errorf("OPTIONS is %d %s", got.status, got.body)
	}
}

// TestStreamsAreNoPages: a browser runs nothing that is in a stream, whatever its type.
func TestStreamsAreNoPages(t *testing.T) {
	v := serve(t, memstore.New())
	v.must(201, "PUT", "/ds/s", `<script>alert(1)</script>`, "Content-Type", "text/html", "Stream-Closed", "true")
	for _, query := range []string{"", "?offset=-1&live=long-poll", "?offset=-1&live=sse"} {
		got := v.must(200, "GET", "/ds/s"+query, "")
		if h := got.header; h.Get("Content-Security-Policy") != "sandbox; default-src 'none'" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%q: the headers are %v", query, h)
		}
	}
}

// TestStreamsReadOnly: streams on a read-only server.
func TestStreamsReadOnly(t *testing.T) {
	v := serve(t, memstore.New(), func(o *httpd.Options) { o.ReadOnly = true })
	for _, method := range []string{"PUT", "POST", "DELETE"} {
		if got := v.ask(method, "/ds/s", "1", "Content-Type", "application/json"); got.problem() != "read-only" {
			t.Errorf("%s is %d %s", method, got.status, got.body)
		}
	}
}

// TestStreamForksAreInScope: forking a stream reads it: that takes the right to read, and a
// stream in the token's scope. The fork has to be in its scope, too.
func TestStreamForksAreInScope(t *testing.T) {
	v, tokens := scoped(t)
	for name, k := range map[string]httpd.Token{
		"writer": {Rights: "append"}, "both": {Rights: "read,append"},
		"team": {Rights: "read,append", Scope: httpd.Scope{Prefix: "team:", Labels: map[string]string{"k": "v"}}},
	} {
		k.Name = name
		token, err := tokens.Add(k)
		if err != nil {
			t.Fatal(err)
		}
		v.tokens[name] = token
	}
	for _, c := range []struct {
		token, from, to string
		status          int
		problem         string
	}{
		{"writer", "other", "w", 403, "missing-right"},
		{"both", "other", "b", 201, ""},
		{"team", "team:in", "team:fork", 201, ""},
		{"team", "team:out", "team:stolen", 404, "not-found"},
		{"team", "other", "team:stolen", 404, "not-found"},
		{"team", "team:in", "elsewhere", 404, "not-found"},
	} {
		got := v.ask("PUT", "/ds/"+c.to, "", "Authorization", "Bearer "+v.tokens[c.token], "Stream-Forked-From", "/ds/"+c.from)
		if got.status != c.status || c.problem != "" && got.problem() != c.problem {
			t.Errorf("%s forks %s as %s: %d %s", c.token, c.from, c.to, got.status, got.body)
		}
	}
	info, err := v.store.Stat(t.Context(), "team:fork")
	if err != nil || info.Labels["k"] != "v" || info.Parent == nil {
		t.Errorf("the fork is %+v, %v", info, err)
	}
	if _, err := v.store.Stat(t.Context(), "team:stolen"); err == nil {
		t.Error("what is out of scope was forked")
	}
}
