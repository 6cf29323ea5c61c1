//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/httpd"
)

// TestShare: a link gives read access to one session, and nothing else, until it is withdrawn; it
// is listed, and only links can be withdrawn as links.
func TestShare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, id := range []hansard.SessionID{"a", "b"} {
		if _, err := store.Create(t.Context(), id, hansard.Meta{}); err != nil {
			t.Fatal(err)
		}
	}
	identity, err := store.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := httpd.OpenTokens(filepath.Join(dir, "tokens"), identity)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := tokens.Add(httpd.Token{Name: "owner", Rights: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	server := httpd.New(store, httpd.Options{Access: tokens})
	front := httptest.NewServer(server)
	defer func() { front.Close(); server.Shutdown(t.Context()) }()
	t.Setenv(envToken, owner)
	hansardRun := func(want int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if exit := run(t.Context(), args, strings.NewReader(""), &out, &errs); exit != want {
			t.Fatalf("%v: exit code %d: %s", args, exit, &errs)
		}
		return out.String()
	}
	status := func(method, path, body, token string) int {
		t.Helper()
		req, err := http.NewRequest(method, front.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	becomes := func(want int, token string) {
		t.Helper()
		for deadline := time.Now().Add(waitMax); status("GET", "/v1/sessions/a", "", token) != want; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it never becomes %d", want)
			}
		}
	}
	// On the store itself, and through its server.
	for _, at := range [][]string{{"--store", dir, "--url", front.URL}, {"--store", front.URL}} {
		var made struct {
			Name, URL string
			Expires   time.Time
		}
		if err := json.Unmarshal([]byte(hansardRun(0, append([]string{"share", "a", "--for", "7d", "--json"}, at...)...)), &made); err != nil {
			t.Fatal(err)
		}
		link, ok := strings.CutPrefix(made.URL, front.URL+"/#share=")
		token, rest, _ := strings.Cut(link, "&")
		if !ok || rest != "session=a" || time.Until(made.Expires) > 7*24*time.Hour || time.Until(made.Expires) < 6*24*time.Hour {
			t.Errorf("the link is %+v", made)
		}
		becomes(200, token)
		for path, want := range map[string]int{"/v1/sessions/b": 404, "/v1/sessions/a/events": 200, "/v1/tokens": 403, "/metrics": 403} {
			if got := status("GET", path, "", token); got != want {
				t.Errorf("%s by a link: %d, want %d", path, got, want)
			}
		}
		if got := status("POST", "/v1/sessions/a/events", `{"events":[{"data":1}]}`, token); got != 403 {
			t.Errorf("a link writes: %d", got)
		}
		store := at[:2]
		if list := hansardRun(0, append([]string{"share", "ls"}, store...)...); !strings.Contains(list, made.Name) || strings.Contains(list, "owner") || strings.Contains(list, token) {
			t.Errorf("the links are %s", list)
		}
		hansardRun(exitNotFound, append([]string{"share", "rm", "owner"}, store...)...)
		hansardRun(0, append([]string{"share", "rm", made.Name}, store...)...)
		becomes(401, token)
		if got := status("GET", "/v1/sessions/a", "", owner); got != 200 {
			t.Errorf("the owner's token was withdrawn: %d", got)
		}
	}
	hansardRun(exitNotFound, "share", "nope", "--store", dir)
	hansardRun(exitUsage, "share", "a", "--for", "0s", "--store", dir)
}

// TestTurnGivesNoPassword: the program that a turn runs does not see the database password,
// wherever it was given.
func TestTurnGivesNoPassword(t *testing.T) {
	turn := newTurnTest(t)
	t.Setenv(envStore, "postgres://u:SECRET@h/db?password=SECRET&sslpassword=SECRET&sslmode=disable")
	t.Setenv("PGPASSWORD", "SECRET")
	t.Setenv("PGSSLPASSWORD", "SECRET")
	exit, out, errs := turn.run("turn", "demo", "--", "env")
	if exit != 0 || strings.Contains(out, "SECRET") || !strings.Contains(out, "HANSARD_STORE=postgres://u@h/db?sslmode=disable\n") {
		t.Errorf("exit code %d: %s%s", exit, out, errs)
	}
}
