package main

import (
	"bytes"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"hansard/filestore"
	"hansard/httpd"
)

// TestCopyRemote: copy transfers sessions to a server and back from it.
func TestCopyRemote(t *testing.T) {
	const token = "a-token-for-the-tests"
	dir := t.TempDir()
	here, back := filepath.Join(dir, "here"), filepath.Join(dir, "back")
	store, err := filestore.Open(filepath.Join(dir, "served"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	tokens, err := httpd.OpenTokens(filepath.Join(dir, "tokens"), "")
	if err != nil {
		t.Fatal(err)
	}
	appender, err := tokens.Add(httpd.Token{Name: "appender", Rights: "read,append"})
	if err != nil {
		t.Fatal(err)
	}
	tokens.Accept("given", token, httpd.Admin)
	server := httptest.NewServer(httpd.New(store, httpd.Options{Access: tokens}))
	defer server.Close()
	hansard := func(want int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != want {
			t.Fatalf("hansard %q: exit %d, want %d\n%s%s", args, code, want, &stdout, &stderr)
		}
		return stdout.String() + stderr.String()
	}
	hansard(exitOK, "new", "demo", "--title", "Far", "--label", "team=red", "--store", here)
	hansard(exitOK, "append", "demo", "hello", "--role", "user", "--key", "k", "--store", here)
	hansard(exitOK, "append", "demo", "--data", "{\"a\" :\n 1.50}", "--kind", "tool_call", "--store", here)
	hansard(exitOK, "set", "demo", "--state", `{"step":3}`, "--store", here)
	hansard(exitOK, "new", "gone", "--store", here)
	hansard(exitOK, "rm", "gone", "--yes", "--store", here)

	t.Setenv("HANSARD_TOKEN", "")
	if out := hansard(exitOther, "copy", here, server.URL); !strings.Contains(out, "there is no token") {
		t.Errorf("copy without a token: %s", out)
	}
	t.Setenv("HANSARD_TOKEN", appender)
	if out := hansard(exitOther, "copy", here, server.URL); strings.Count(out, "needs the right to admin") != 1 || strings.Contains(out, "demo") || strings.Contains(out, "copied") {
		t.Errorf("copy with a token that may only append is to tell that once, and no more: %s", out)
	}
	if out := hansard(exitOK, "ls", "--store", server.URL); strings.Contains(out, "demo") {
		t.Errorf("a copy that was refused made a session: %s", out)
	}
	t.Setenv("HANSARD_TOKEN", token)
	if out := hansard(exitOK, "copy", here, server.URL); !strings.Contains(out, "2 sessions, 3 events copied; 2 sessions the same") {
		t.Errorf("copy to a server: %s", out)
	}
	if out := hansard(exitOK, "copy", here, server.URL); !strings.Contains(out, "2 sessions, 0 events copied; 2 sessions the same") {
		t.Errorf("once more: %s", out)
	}
	t.Setenv("HANSARD_TOKEN", appender) // a token that may read may copy
	hansard(exitOK, "copy", server.URL, back)

	for _, args := range [][]string{{"show", "demo", "--json"}, {"stat", "demo"}} {
		was, is := hansard(exitOK, append(args, "--store", here)...), hansard(exitOK, append(args, "--store", back)...)
		if strings.ReplaceAll(was, here, "") != strings.ReplaceAll(is, back, "") || !strings.Contains(was, "demo") && !strings.Contains(was, "hello") {
			t.Errorf("%q there and back:\n%s\nwas\n%s", args, is, was)
		}
	}
	if out := hansard(exitOK, "append", "demo", "hello", "--role", "user", "--key", "k", "--json", "--store", back); !strings.Contains(out, `"replayed":true`) {
		t.Errorf("a key after the copies: %s", out)
	}
	if out := hansard(exitNotFound, "stat", "gone", "--store", back); !strings.Contains(out, "was deleted") {
		t.Errorf("the deleted session: %s", out)
	}
}
