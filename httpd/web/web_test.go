package web

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, method, at string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, at, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

// TestFiles: every file is served with its type, and again only if it changed.
func TestFiles(t *testing.T) {
	served := 0
	err := fs.WalkDir(files, "page", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		at := strings.TrimPrefix(name, "page")
		if at == "/index.html" {
			at = "/"
		}
		res := get(t, "GET", at)
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != types[path.Ext(name)] {
			t.Errorf("%s: %s, type %q", at, res.Status, res.Header.Get("Content-Type"))
		}
		if again := get(t, "GET", at, "If-None-Match", res.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s asked for again: %s", at, again.Status)
		}
		served++
		return nil
	})
	if err != nil || served < 10 {
		t.Fatalf("%d files were served: %v", served, err)
	}
}

// TestHeaders: every answer, even an error, forbids what the page does not need.
func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		method, at string
		status     int
	}{
		{"GET", "/", 200}, {"HEAD", "/", 200}, {"GET", "/app.js", 200},
		{"GET", "/nothing", 404}, {"GET", "/index.html", 404}, {"GET", "/page/app.js", 404}, {"GET", "/..%2fweb.go", 404},
		{"POST", "/", 405}, {"DELETE", "/app.js", 405},
	} {
		res := get(t, c.method, c.at)
		if res.StatusCode != c.status {
			t.Errorf("%s %s: %s, want %d", c.method, c.at, res.Status, c.status)
		}
		policy := res.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s %s: the policy %q lacks %q", c.method, c.at, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("%s %s: the policy %q allows what is unsafe", c.method, c.at, policy)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s %s: %s is %q, want %q", c.method, c.at, name, got, want)
			}
		}
	}
}

// unsafe matches the ways in which content could become markup or script, and those to contact
// another host.
var unsafe = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|setHTMLUnsafe|createContextualFragment|@import|url\(|\sstyle="|\son[a-z]+="`)

var foreign = regexp.MustCompile(`https?://[a-z0-9.-]+`)

// TestNothingUnsafe: the files contain no way for content to become markup, and name no other
// host.
func TestNothingUnsafe(t *testing.T) {
	pages, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for at, f := range pages {
		if found := unsafe.FindString(string(f.content)); found != "" {
			t.Errorf("%s uses %s", at, found)
		}
		for _, url := range foreign.FindAllString(string(f.content), -1) {
			if url != "http://www.w3.org" { // the SVG namespace
				t.Errorf("%s names %s", at, url)
			}
		}
	}
}
