//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/httpd"
)

// logInWith uses the code of a link, and returns the status and whose token it is.
func logInWith(t *testing.T, server, link string) (int, string) {
	t.Helper()
	m := regexp.MustCompile(`#code=([^&\s]+)`).FindStringSubmatch(link)
	if m == nil {
		t.Fatalf("there is no code in %q", link)
	}
	body, err := json.Marshal(map[string]string{"code": m[1]})
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Post(server+"/v1/login", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var who struct{ Name string }
	_ = json.Unmarshal(text, &who)
	return res.StatusCode, who.Name
}

// storeWithTokens is a store in a directory, with a session a, its token file, a token that may read,
// and the address of its server.
func storeWithTokens(t *testing.T) (dir string, tokens *httpd.Tokens, mine, address string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if _, err := store.Create(t.Context(), "a", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	identity, err := store.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tokens, err = httpd.OpenTokens(filepath.Join(dir, "tokens"), identity)
	if err != nil {
		t.Fatal(err)
	}
	mine, err = tokens.Add(httpd.Token{Name: "mine", Rights: "read"})
	if err != nil {
		t.Fatal(err)
	}
	server := httpd.New(store, httpd.Options{Access: tokens})
	front := httptest.NewServer(server)
	t.Cleanup(func() { front.Close(); server.Shutdown(context.Background()) })
	return dir, tokens, mine, front.URL
}

// TestOpen: open gives the browser a link that logs in once, and the link is not visible in the
// machine's process list.
func TestOpen(t *testing.T) {
	dir, tokens, mine, address := storeWithTokens(t)

	// A browser that records its arguments and what it was given to read.
	seen := t.TempDir()
	browser := filepath.Join(seen, "browser")
	if err := os.WriteFile(browser, []byte("#!/bin/sh\necho \"$@\" >"+seen+"/args\nls -l \"$1\" >"+seen+"/mode\ncat \"$1\" >"+seen+"/page\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BROWSER", browser)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(seen, "cache"))
	t.Setenv(envToken, mine)
	for _, c := range []struct {
		name, whose string
		args        []string
	}{
		{"a server", "mine", []string{"open", "a", "--store", address}},
		{"a directory", "page-", []string{"open", "a", "--store", dir, "--url", address}},
	} {
		var out, errs bytes.Buffer
		if exit := run(t.Context(), c.args, strings.NewReader(""), &out, &errs); exit != 0 {
			t.Fatalf("%s: exit code %d: %s", c.name, exit, &errs)
		}
		link := strings.TrimSpace(out.String())
		if !strings.HasPrefix(link, address+"/#code=") || !strings.HasSuffix(link, "&session=a") || strings.Contains(link, mine) {
			t.Errorf("%s: the link is %s", c.name, link)
		}
		read := func(name string) string {
			content, err := os.ReadFile(filepath.Join(seen, name))
			if err != nil {
				t.Fatal(err)
			}
			return string(content)
		}
		if args := read("args"); strings.Contains(args, "code") || strings.Contains(args, "http") {
			t.Errorf("%s: everybody sees %s", c.name, args)
		}
		if mode := read("mode"); !strings.HasPrefix(mode, "-rw-------") {
			t.Errorf("%s: the file is %s", c.name, mode)
		}
		if page := read("page"); !strings.Contains(page, strings.ReplaceAll(link, "&", "&amp;")) {
			t.Errorf("%s: the browser reads %s", c.name, page)
		}
		if status, who := logInWith(t, address, link); status != 200 || !strings.HasPrefix(who, c.whose) {
			t.Errorf("%s: the login gives %d, %s", c.name, status, who)
		}
		if status, _ := logInWith(t, address, link); status != 401 {
			t.Errorf("%s: the link is good twice: %d", c.name, status)
		}
	}
	for _, k := range tokens.List() {
		if strings.HasPrefix(k.Name, "page-") && k.Expires.IsZero() {
			t.Errorf("%+v never ends", k)
		}
	}
}

// TestOpenOnlyWhatLogsIn: a link is printed only if it logs in, and nothing is left of an attempt.
// With a token and the address of its server the default store plays no part.
func TestOpenOnlyWhatLogsIn(t *testing.T) {
	dir, _, mine, address := storeWithTokens(t)
	t.Setenv(envToken, mine)
	other := filepath.Join(t.TempDir(), "other")
	t.Setenv("HANSARD_STORE", other)
	second, err := filestore.Open(other, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	var out, errs bytes.Buffer
	if exit := run(t.Context(), []string{"open", "a", "--print", "--url", address}, strings.NewReader(""), &out, &errs); exit != 0 {
		t.Fatalf("exit code %d: %s", exit, &errs)
	}
	if status, who := logInWith(t, address, out.String()); status != 200 || who != "mine" {
		t.Errorf("%s: %d, %s", &out, status, who)
	}
	for _, c := range []struct {
		exit        int
		token, want string
		args        []string
	}{
		{exitNotFound, mine, "no such session", []string{"open", "nope", "--store", address}},
		{exitUsage, mine, "can't open a Unix socket", []string{"open", "--store", "unix:/nowhere"}},
		{exitOther, mine, "there is no server at http://127.0.0.1:1", []string{"open", "--store", dir, "--url", "http://127.0.0.1:1"}},
		{exitOther, mine, "does not know the tokens of this store", []string{"open", "--store", other, "--url", address}},
		{exitOther, "", "does not know the tokens of this store", []string{"open", "--url", address}},
		{exitOther, "another-token-12", "not one of this server's", []string{"open", "--url", address}},
		{exitOther, "another-token-12", "not one of this server's", []string{"open", "--store", address}},
	} {
		t.Setenv(envToken, c.token)
		var out, errs bytes.Buffer
		if exit := run(t.Context(), c.args, strings.NewReader(""), &out, &errs); exit != c.exit || !strings.Contains(errs.String(), c.want) || out.Len() > 0 {
			t.Errorf("%v: exit code %d: %s%s", c.args, exit, &out, &errs)
		}
	}
	identity, err := second.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left, err := httpd.OpenTokens(filepath.Join(other, "tokens"), identity)
	if err != nil || len(left.List()) > 0 {
		t.Errorf("tokens are left in the other store: %+v, %v", left.List(), err)
	}
}

// TestLinksOfServeAndTokenAdd: both print a link that logs in, once: serve also at a later start,
// when it no longer knows any token; token add for the new token.
func TestLinksOfServeAndTokenAdd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	for i := range 2 {
		p := start(t, dir, "serve", "--listen", "127.0.0.1:0")
		url := strings.TrimSuffix(strings.TrimPrefix(p.line(), "serving "), "/")
		link := p.line()
		if i == 0 {
			if !strings.Contains(link, "/#token=") {
				t.Errorf("the first start prints %q", link)
			}
		} else {
			if status, who := logInWith(t, url, link); status != 200 || who != "page" {
				t.Errorf("%s: %d, %s", link, status, who)
			}
			if status, _ := logInWith(t, url, link); status != 401 {
				t.Errorf("%s is good twice: %d", link, status)
			}
			var out, errs bytes.Buffer
			if exit := run(t.Context(), []string{"token", "add", "ada", "--rights", "read", "--store", dir, "--url", url}, strings.NewReader(""), &out, &errs); exit != 0 {
				t.Fatalf("exit code %d: %s", exit, &errs)
			}
			if token := strings.TrimSpace(out.String()); strings.ContainsAny(token, " \n") || strings.Contains(errs.String(), token) {
				t.Errorf("token add prints %q and %q", &out, &errs)
			}
			// The server checks the file every half second.
			deadline := time.Now().Add(waitMax)
			for {
				status, who := logInWith(t, url, errs.String())
				if status == 200 && who == "ada" {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%s: %d, %s", &errs, status, who)
				}
				time.Sleep(20 * time.Millisecond) // between two attempts
			}
		}
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		p.exit()
	}
}
