package httpd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"hansard"
	"hansard/httpd"
	"hansard/internal/syncbuf"
	"hansard/memstore"
)

// waitMax bounds every wait of these tests.
const waitMax = 30 * time.Second

func TestMain(m *testing.M) {
	beCrowd()
	goleak.VerifyTestMain(m)
}

// served is a server under test.
type served struct {
	t      testing.TB
	store  hansard.Store
	server *httpd.Server
	url    string
	log    *buffer
	tokens map[string]string // by name: admin, reader, appender
	stop   func()
}

// buffer is a log that is written to while it is read.
type buffer = syncbuf.Buffer

// serve serves a store until the test ends, with a token for each right.
func serve(t testing.TB, store hansard.Store, change ...func(*httpd.Options)) *served {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	tokens, err := httpd.OpenTokens(path, "")
	if err != nil {
		t.Fatal(err)
	}
	v := &served{t: t, store: store, log: new(buffer), tokens: map[string]string{}}
	for name, rights := range map[string]httpd.Right{"admin": httpd.Admin, "reader": httpd.Read, "appender": httpd.Append} {
		if v.tokens[name], err = tokens.Add(tokenOf(name, rights)); err != nil {
			t.Fatal(err)
		}
	}
	opt := httpd.Options{Access: tokens, Log: slog.New(slog.NewTextHandler(v.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, f := range change {
		f(&opt)
	}
	v.server = httpd.New(store, opt)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v.url = "http://" + l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- v.server.Serve(l) }()
	v.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitMax)
		defer cancel()
		if err := v.server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Cleanup(v.stop)
	return v
}

func serveMemory(t testing.TB, change ...func(*httpd.Options)) *served {
	return serve(t, memstore.New(), change...)
}

// plain is a client that follows no redirects and keeps no connections.
var plain = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       waitMax,
}

// reply is an answer, read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

// problem is the name of the problem in a reply.
func (r reply) problem() string {
	var p struct{ Type string }
	if r.header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(r.body), &p) != nil {
		return ""
	}
	return strings.TrimPrefix(p.Type, "/problems/")
}

func (r reply) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
}

// ask sends a request as the admin: headers are pairs, an empty value removes one.
func (v *served) ask(method, path, body string, headers ...string) reply {
	v.t.Helper()
	r, err := v.try(method, path, body, headers...)
	if err != nil {
		v.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (v *served) try(method, path, body string, headers ...string) (reply, error) {
	req, err := http.NewRequest(method, v.url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	// Unchanged: clients may send anything, and that is what is tested.
	before, query, _ := strings.Cut(path, "?")
	req.URL.Opaque = before
	req.URL.RawQuery = query
	req.Header.Set("Authorization", "Bearer "+v.tokens["admin"])
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		switch name, value := headers[i], headers[i+1]; {
		case name == "Host":
			req.Host = value
		case value == "":
			req.Header.Del(name)
		default:
			req.Header.Set(name, value)
		}
	}
	res, err := plain.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(text)}, err
}

// must is ask for a request that must get this status.
func (v *served) must(status int, method, path, body string, headers ...string) reply {
	v.t.Helper()
	r := v.ask(method, path, body, headers...)
	if r.status != status {
		v.t.Fatalf("%s %s: %d, want %d: %s", method, path, r.status, status, r.body)
	}
	return r
}

// say appends a message to a session.
func (v *served) say(session, text string) {
	v.t.Helper()
	v.must(201, "POST", "/v1/sessions/"+session+"/events", fmt.Sprintf(`{"events":[{"data":%q}],"create":true}`, text))
}

// eventually polls a condition until it holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitMax); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came true: %s", what)
		}
	}
}

func mustRead(t testing.TB, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func (v *served) tryContext(ctx context.Context, method, path, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, v.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Bearer "+v.tokens["admin"])
	res, err := plain.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(text)}, err
}

func textLog(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }

// tokenOf describes a token with these rights and no limits.
func tokenOf(name string, rights httpd.Right) httpd.Token {
	return httpd.Token{Name: name, Rights: rights.String()}
}
