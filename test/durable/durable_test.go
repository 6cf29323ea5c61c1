package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/httpd"
	"hansard/httpd/durable"
	"hansard/internal/npmtest"
	"hansard/internal/pgtest"
	"hansard/internal/wire"
	"hansard/memstore"
	"hansard/pgstore"
)

// longPoll is short, so that tests that wait for one to end are quick.
const longPoll = 500 * time.Millisecond

// suitePath is where the suite has its streams.
const suitePath = "/v1/stream/"

// The minimum that must have run, so that a suite which ends early is not taken for success.
const leastTests, leastPassed = 332, 330

// refusedOnPurpose returns why a test of the suite fails; empty if it must pass.
func refusedOnPurpose(name string) string {
	switch name {
	case "Caching and ETag should allow If-None-Match in CORS preflight responses":
		return "there is no CORS: pages of other sites are refused"
	case "Fork - Deletion and Lifecycle should cascade GC through three levels":
		return "of a stream that was deleted nothing is known but that: not that a fork of it, deleted too, has forks"
	}
	return ""
}

// TestConformance: the public suite against streams on memstore, on files and on PostgreSQL.
func TestConformance(t *testing.T) {
	node := need(t)
	t.Parallel() // much of the suite is waiting
	files, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	database, err := pgstore.Open(t.Context(), pgtest.New(t).Schema(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	for name, store := range map[string]hansard.Store{"memstore": memstore.New(), "filestore": files, "pgstore": database} {
		t.Run(name, func(t *testing.T) {
			streams := httptest.NewServer(serve(durable.New(store, durable.Options{LongPoll: longPoll})))
			defer streams.Close()
			conform(t, node, streams.URL, longPoll)
		})
	}
}

// TestConformanceWithTheServer: the suite against the whole server, with its checks and limits. A
// proxy adds the token, which the suite lacks, and the server's paths.
func TestConformanceWithTheServer(t *testing.T) {
	node := need(t)
	t.Parallel()
	server := httpd.New(memstore.New(), httpd.Options{Access: httpd.Single("a-token-for-tests")})
	defer server.Shutdown(context.Background())
	at := httptest.NewServer(server)
	defer at.Close()
	to, err := url.Parse(at.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.URL.Path = durable.Prefix + strings.TrimPrefix(r.In.URL.Path, suitePath)
		r.Out.Header.Set("Authorization", "Bearer a-token-for-tests")
		r.Out.Host = r.In.Host
		ourFork(r.Out.Header)
	}, ModifyResponse: func(r *http.Response) error {
		if at := r.Header.Get("Location"); at != "" {
			r.Header.Set("Location", strings.Replace(at, durable.Prefix, suitePath, 1))
		}
		return nil
	}, ErrorLog: log.New(io.Discard, "", 0)})
	defer proxy.Close()
	conform(t, node, proxy.URL, 20*time.Second)
}

// serve is a server with streams only.
func serve(s *durable.Streams) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		w.Header().Set("Cache-Control", "no-store")
		id := hansard.SessionID(strings.TrimPrefix(r.URL.Path, suitePath))
		ourFork(r.Header)
		body, err := io.ReadAll(r.Body)
		if err == nil {
			switch r.Method {
			case http.MethodGet, http.MethodHead:
				err = s.Read(w, r, id)
			case http.MethodPut:
				err = s.Create(w, r, id, body)
			case http.MethodPost:
				err = s.Append(w, r, id, body)
			case http.MethodDelete:
				err = s.Delete(w, r, id)
			default:
				err = wire.NewProblem("wrong-method", "", "")
			}
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			p := wire.ProblemOf(err)
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(p.Status)
			_, _ = w.Write(wire.Marshal(p))
		}
	})
}

// ourFork rewrites the path of the source of a fork to the server's.
func ourFork(h http.Header) {
	if from := h.Get("Stream-Forked-From"); from != "" {
		h.Set("Stream-Forked-From", strings.Replace(from, suitePath, durable.Prefix, 1))
	}
}

// need installs the suite.
func need(t *testing.T) (node string) {
	t.Helper()
	node, err := npmtest.Install()
	if errors.Is(err, npmtest.ErrOffline) {
		line := fmt.Sprintf("SKIPPED: %s: the suite can't be installed: %v", t.Name(), err)
		if os.Getenv("HANSARD_NO_SKIP") == "1" {
			t.Fatal(line)
		}
		fmt.Println(line)
		t.Skip(line)
	}
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// conform runs the suite against a server.
func conform(t *testing.T, node, at string, longPoll time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	report := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(ctx, node, filepath.Join("node_modules", "vitest", "vitest.mjs"), "run",
		// Some of its tests sleep for three quarters of a TTL, and the machine has other work.
		"--retry=2", "--testTimeout=60000", "--reporter=json", "--outputFile="+report, "conformance.test.mjs")
	cmd.Env = append(os.Environ(), "STREAMS_URL="+at, "LONG_POLL_MS="+strconv.Itoa(int(longPoll.Milliseconds())), "CI=1")
	out, runErr := cmd.CombinedOutput()
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("there is no report: %v, %v\n%s", err, runErr, out)
	}
	var result struct {
		TestResults []struct {
			AssertionResults []struct {
				FullName, Status string
				FailureMessages  []string
			}
		}
	}
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}
	passed, total := 0, 0
	for _, file := range result.TestResults {
		for _, one := range file.AssertionResults {
			if one.Status == "skipped" || one.Status == "pending" {
				continue
			}
			total++
			why := refusedOnPurpose(one.FullName)
			switch {
			case one.Status == "passed":
				passed++
				if why != "" {
					t.Errorf("%s passes, and is said to fail because %s", one.FullName, why)
				}
			case why == "":
				t.Errorf("failed: %s\n\t%.600s", one.FullName, strings.Join(one.FailureMessages, "\n"))
			}
		}
	}
	if t.Logf("%d of %d passed", passed, total); total < leastTests || passed < leastPassed {
		t.Errorf("there were to be %d tests, and %d to pass:\n%s", leastTests, leastPassed, out)
	}
}

// TestExample runs the example of docs/streams.md.
func TestExample(t *testing.T) {
	node := need(t)
	text, err := os.ReadFile("../../docs/streams.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```js\n")
	code, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("there is no example")
	}
	server := httpd.New(memstore.New(), httpd.Options{Access: httpd.Single("a-token-for-tests")})
	defer server.Shutdown(context.Background())
	at := httptest.NewServer(server)
	defer at.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--input-type=module", "-e", strings.ReplaceAll(code, "http://127.0.0.1:4267", at.URL))
	cmd.Env = append(os.Environ(), "HANSARD_TOKEN=a-token-for-tests")
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "[ { role: 'user', content: 'Hello!' } ]" {
		t.Errorf("%v\n%s", err, out)
	}
}
