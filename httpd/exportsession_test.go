package httpd_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"hansard"
	"hansard/archive"
	"hansard/httpd"
	"hansard/memstore"
)

// TestExport: a session is streamed as a file, whole, and does not give access to a parent
// session that the caller may not see.
func TestExport(t *testing.T) {
	store := memstore.New()
	v := serve(t, store)
	ctx := context.Background()
	big := `"` + strings.Repeat("x", 1<<20) + `"`
	for id, b := range map[hansard.SessionID]hansard.Batch{
		"parent": {Create: true, Events: []hansard.Event{{Role: "user", Data: []byte(`"secret"`)}}},
		"child": {Create: true, Key: "k", Events: []hansard.Event{{Role: "user", Data: []byte(`"own"`)}, {Role: "user", Data: []byte(big)}},
			Meta: hansard.Meta{Labels: map[string]string{"parent": "parent", "forked-at": "1"}}},
	} {
		if _, err := store.Append(ctx, id, b); err != nil {
			t.Fatal(err)
		}
	}
	got := v.ask("GET", "/v1/sessions/child/export", "")
	file, err := archive.Open(ctx, strings.NewReader(got.body), int64(len(got.body)))
	if err != nil {
		t.Fatal(err)
	}
	if name := got.header.Get("Content-Disposition"); name != "attachment; filename=child.jsonl" {
		t.Errorf("Content-Disposition is %s", name)
	}
	dst := memstore.New()
	defer dst.Close()
	for c, err := range hansard.Copy(ctx, file, dst) {
		if err != nil || c.Err != nil || c.Added != 2 {
			t.Error(err, c)
		}
	}
	if body := v.ask("GET", "/v1/sessions/child/export?format=openai", "").body; !strings.Contains(body, "secret") || !strings.Contains(body, "own") {
		t.Errorf("a fork lacks what it was forked from: %.200s", body)
	}
	if page := v.ask("GET", "/v1/sessions/child/export?format=html", ""); !bytes.HasPrefix([]byte(page.body), []byte("<!doctype html>")) ||
		!strings.Contains(page.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("%.100s %v", page.body, page.header)
	}
	tokens, err := httpd.OpenTokens(filepath.Join(t.TempDir(), "tokens"), "")
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.Add(httpd.Token{Name: "narrow", Rights: "read", Scope: httpd.Scope{Session: "child"}})
	if err != nil {
		t.Fatal(err)
	}
	narrow := serve(t, &checked{Store: store}, func(o *httpd.Options) { o.Access = tokens })
	for _, format := range []string{"openai", "anthropic", "claude", "codex", "html", "cleveragents"} {
		got := narrow.ask("GET", "/v1/sessions/child/export?format="+format, "", "Authorization", "Bearer "+token)
		if got.status != 200 || strings.Contains(got.body, "secret") || !strings.Contains(got.body, "own") {
			t.Errorf("%s, for a token that may not see the parent: %d %.300s", format, got.status, got.body)
		}
	}
}
