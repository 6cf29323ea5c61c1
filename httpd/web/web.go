// Package web is the page of a Hansard server: sessions, transcripts that read like
// a conversation and update live, the turn, and a place to write a message.
//
// It is plain HTML, CSS and JavaScript modules, embedded as they are: nothing is
// built, and the page talks only to the server it came from. The files hold no
// secrets and need no token; what they show comes from the API, which needs one.
//
// Session content is untrusted. The page turns it into text nodes, never markup,
// and the headers of [Handler] deny the browser what the page does not need: inline
// script and style, markup made from strings, framing, foreign hosts.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed page
var files embed.FS

// policy is the Content-Security-Policy. Images may come from data: URLs because
// messages contain them, and from blobs, which the page makes from attachments; a
// browser runs no script in an <img>, and the page accepts only raster types. Trusted
// types make an assignment to innerHTML an error even if one is added by mistake.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// headers are sent with every answer, errors too.
var headers = map[string]string{
	"Content-Security-Policy":      policy,
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	// The browser revalidates each time, and gets a 304: files of a new version are
	// never mixed with old ones.
	"Cache-Control": "no-cache",
}

// types are set here instead of taken from the machine's own table, which may differ:
// with nosniff a wrong type means that the page does not load.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file is one file of the page, ready to be sent.
type file struct {
	content     []byte
	contentType string
	etag        string
}

// Handler serves the page at / and its files beside it. Everything else is 404.
func Handler() http.Handler {
	pages, err := load()
	if err != nil {
		panic(err) // the embedded files are part of the program
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		f, ok := pages[r.URL.Path]
		if !ok {
			http.Error(w, "there is nothing here; the page is at /", http.StatusNotFound)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the page can only be read", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", f.contentType)
		w.Header().Set("ETag", f.etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
	})
}

// load reads the embedded files by the path they are served at.
func load() (map[string]file, error) {
	pages := map[string]file{}
	err := fs.WalkDir(files, "page", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		contentType := types[path.Ext(name)]
		if contentType == "" {
			return fmt.Errorf("%s: no content type for %q", name, path.Ext(name))
		}
		sum := sha256.Sum256(content)
		at := strings.TrimPrefix(name, "page")
		if at == "/index.html" {
			at = "/"
		}
		pages[at] = file{content, contentType, `"` + hex.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	return pages, err
}
