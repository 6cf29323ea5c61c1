package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"hansard"
	"hansard/httpd"
	"hansard/memstore"
)

// hostileText is what a terminal must not get raw: a sequence that sets the clipboard, a C1
// control, DEL, a right-to-left override, zero-width characters, a tag.
const hostileText = "\x1b]52;c;ZXZpbA==\a\r\u009b2J\x7f\u202e\u200b\u200d\u2060\ufeff\u00ad\u3164\U000E0041"

// lies serves a store, and puts the hostile text into every text of its answers.
func lies(t *testing.T) (url string, asked *[]string) {
	t.Helper()
	tokens, err := httpd.OpenTokens(filepath.Join(t.TempDir(), "tokens"), "")
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.Add(httpd.Token{Name: "HONEST", Rights: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(envToken, token)
	store := memstore.New()
	if _, err := store.Create(t.Context(), "s", hansard.Meta{Title: "HONEST", Labels: map[string]string{"HONEST": "HONEST"}, State: []byte(`{"a":"HONEST"}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Role: "HONEST", Author: "HONEST", Data: []byte(`"HONEST"`)}, {Kind: "HONEST", Data: []byte(`{"HONEST":"HONEST"}`)}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Acquire(t.Context(), "s", hansard.Claim{Label: "HONEST"}); err != nil {
		t.Fatal(err)
	}
	server := httpd.New(store, httpd.Options{Access: tokens})
	quoted, err := json.Marshal(hostileText)
	if err != nil {
		t.Fatal(err)
	}
	hostile := string(quoted[1 : len(quoted)-1])
	// Ids, grants, details and tokens made by the honest server.
	names := regexp.MustCompile(`"(id|session|name|detail|hint|title|token|grant|reason|message|kept)":"([^"]*)"`)
	asked = new([]string)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.Path)
		honest := httptest.NewRecorder()
		server.ServeHTTP(honest, r)
		body := strings.ReplaceAll(honest.Body.String(), "HONEST", hostile)
		body = names.ReplaceAllStringFunc(body, func(m string) string {
			parts := names.FindStringSubmatch(m)
			return `"` + parts[1] + `":"` + parts[2] + hostile + `"`
		})
		for k, v := range honest.Header() {
			if k != "Content-Length" {
				w.Header()[k] = v
			}
		}
		w.WriteHeader(honest.Code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(func() { front.Close(); server.Shutdown(t.Context()) })
	return front.URL, asked
}

// raw is the first character in an output that a terminal must not get.
func raw(out string) (rune, bool) {
	for i, r := range out {
		if r != '\n' && r != '\t' && isControl(r) || isHidden(r) || r == utf8.RuneError && !utf8.ValidString(out[i:i+1]) {
			return r, true
		}
	}
	return 0, false
}

// TestHostileServer: whatever a server sends (ids, names of tokens, errors, content), no command
// prints it in a way that could control or deceive a terminal.
func TestHostileServer(t *testing.T) {
	url, asked := lies(t)
	dir := t.TempDir()
	seen := 0
	for _, args := range [][]string{
		{"ls"}, {"ls", "--limit", "1"}, {"stat", "s"}, {"show", "s"}, {"tail", "s"}, {"new"}, {"new", "s"}, {"new", "made"}, {"append", "s", "text"}, {"append", "made", "text"}, {"set", "s", "--title", "x"},
		{"turn", "s", "--show"}, {"turn", "s", "--", "true"}, {"token", "ls"}, {"token", "add", "more"}, {"token", "rm", "nobody"}, {"share", "s"}, {"share", "ls"}, {"share", "rm", "x"},
		{"verify"}, {"verify", "s"}, {"repair", "s"}, {"repair", "--all"}, {"rm", "made", "--yes"}, {"rm", "nope", "--yes"}, {"stat", "nope"}, {"copy", url, filepath.Join(dir, "copy")},
		{"demo", "--sessions", "1", "--pause", "0s", "--seed", "7"}, {"__complete", "show", ""}, {"__complete", "token", "rm", ""}, {"__complete", "append", "s", "--role", ""},
		{"__complete", "ls", "--label", ""}, {"__complete", "append", "s", "--turn", ""},
	} {
		for _, json := range []bool{false, true} {
			line := append([]string{}, args...)
			if args[0] != "copy" && args[0] != "__complete" {
				line = append([]string{"--store", url}, line...)
			}
			if args[0] == "__complete" {
				t.Setenv("HANSARD_STORE", url)
			}
			if json {
				line = append([]string{"--json"}, line...)
			}
			var out, errs bytes.Buffer
			run(t.Context(), line, strings.NewReader(""), &out, &errs)
			text := out.String()
			if json { // as it would be on a terminal
				text = string(escapeJSON([]byte(text)))
			}
			text += errs.String()
			if r, found := raw(text); found {
				t.Errorf("%v prints %U: %q", line, r, text)
			}
			if strings.Contains(text, "52;c;") {
				seen++
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d outputs had any of the hostile text, after %q", seen, *asked)
	}
}

// TestTerminalJSON: JSON on a terminal has nothing raw in it either, and means the same.
func TestTerminalJSON(t *testing.T) {
	var buf bytes.Buffer
	o := newOutput(&buf)
	o.tty = true
	e := hansard.Event{Seq: 1, Kind: hansard.KindMessage, Data: []byte("{\"a\":\"" + "\u009b\u202e\u200b\x7f\U000E0041" + "\"}")}
	for _, write := range []func() error{
		func() error { return o.eventJSON(e) }, func() error { return o.sessionEventJSON("s", e) }, func() error { return o.jsonLine(map[string]string{"a": hostileText}) },
	} {
		buf.Reset()
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if err := o.Flush(); err != nil {
			t.Fatal(err)
		}
		if r, found := raw(buf.String()); found {
			t.Errorf("%U in %q", r, buf.String())
		}
		var got struct {
			A    string
			Data struct{ A string }
		}
		if err := json.Unmarshal(buf.Bytes(), &got); err != nil || got.A != hostileText && got.Data.A != "\u009b\u202e\u200b\x7f\U000E0041" {
			t.Errorf("%q is %+v, %v", buf.String(), got, err)
		}
	}
}
