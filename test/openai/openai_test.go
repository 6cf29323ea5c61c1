package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/httpd/conversations"
	"hansard/internal/npmtest"
	"hansard/memstore"
)

// The minimum number of JavaScript tests that must have run, so that a file which is not found,
// or ends early, is not taken for success.
const leastTests = 27

// TestSDKs: the SDKs against the handler, on memstore and on files.
func TestSDKs(t *testing.T) {
	node := needSDKs(t)
	files, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	for name, store := range map[string]hansard.Store{"memstore": memstore.New(), "filestore": files} {
		t.Run(name, func(t *testing.T) {
			api := httptest.NewServer(conversations.New(store, nil))
			defer api.Close()
			runSDKs(t, node, api.URL, store, "HANSARD_TOKEN=any token")
		})
	}
}

// TestSDKsWithTheProgram: the SDKs against the program, with its checks of hosts and tokens,
// while this process works on the same store.
func TestSDKsWithTheProgram(t *testing.T) {
	node := needSDKs(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "hansard")
	if out, err := exec.Command("go", "build", "-o", program, "hansard/cmd/hansard").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if help, err := exec.Command(program, "serve", "--help").Output(); err != nil || !bytes.Contains(help, []byte("--listen")) {
		skip(t, "the program has no server")
	}
	store, err := filestore.Open(filepath.Join(dir, "store"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	reader, err := exec.Command(program, "token", "add", "reader", "--rights", "read", "--store", filepath.Join(dir, "store")).Output()
	if err != nil {
		t.Fatal(err)
	}
	const token = "a-token-of-this-test-0123456789abcdef"
	tokenFile := filepath.Join(dir, "token")
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := exec.Command(program, "serve", "--store", filepath.Join(dir, "store"), "--listen", "127.0.0.1:0", "--token-from", tokenFile)
	out := &lines{seen: make(chan string, 100)}
	serve.Stdout, serve.Stderr = out, out
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serve.Process.Kill()
		_ = serve.Wait()
	}()
	api := ""
	for deadline := time.After(time.Minute); api == ""; {
		select {
		case line := <-out.seen:
			api = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(line)
		case <-deadline:
			t.Fatal("the server does not say where it listens")
		}
	}
	runSDKs(t, node, api, store, "HANSARD_TOKEN="+token, "HANSARD_READER="+strings.TrimSpace(string(reader)))
}

// lines splits the output of a program; lines that nobody reads are dropped.
type lines struct {
	rest []byte
	seen chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		select {
		case l.seen <- string(line):
		default:
		}
		l.rest = rest
	}
}

func needSDKs(t *testing.T) (node string) {
	t.Helper()
	node, err := npmtest.Install()
	if errors.Is(err, npmtest.ErrOffline) {
		skip(t, "the SDKs can't be installed: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// skip skips a test, visibly, or fails where nothing may be skipped.
func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf("SKIPPED: %s: %s", t.Name(), fmt.Sprintf(format, args...))
	if os.Getenv("HANSARD_NO_SKIP") == "1" {
		t.Fatal(line)
	}
	fmt.Println(line)
	t.Skip(line)
}

// runSDKs runs the tests in JavaScript against an API that serves a store.
func runSDKs(t *testing.T, node, api string, store hansard.Store, env ...string) {
	t.Helper()
	others := httptest.NewServer(others(store))
	defer others.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--test", "--test-reporter=tap", "openai.test.mjs", "agents.test.mjs")
	cmd.Env = append(append(os.Environ(), env...), "HANSARD_URL="+api, "OTHERS_URL="+others.URL, "OPENAI_AGENTS_DISABLE_TRACING=1")
	out, err := cmd.CombinedOutput()
	passed := count(out, "pass")
	if err != nil || passed < leastTests || count(out, "fail") != 0 {
		t.Fatalf("%v, %d passed, at least %d have to:\n%s", err, passed, leastTests, out)
	}
	t.Logf("%d tests passed, %d skipped", passed, count(out, "skipped"))
}

// count reads a number from the summary that node prints.
func count(out []byte, what string) int {
	m := regexp.MustCompile(`(?m)^# ` + what + ` (\d+)$`).FindSubmatch(out)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1])) // digits
	return n
}

// others does to the store what no SDK can: it plays the other programs.
func others(store hansard.Store) http.Handler {
	mux := http.NewServeMux()
	fail := func(w http.ResponseWriter, err error) {
		status := http.StatusInternalServerError
		if errors.Is(err, hansard.ErrUnsupported) {
			status = http.StatusNotImplemented
		}
		http.Error(w, err.Error(), status)
	}
	// Another program appends to the session: POST /append/{id}?kind=&role=
	mux.HandleFunc("POST /append/{id}", func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		e := hansard.Event{Kind: r.FormValue("kind"), Role: r.FormValue("role"), Data: data}
		b := hansard.Batch{Create: true, Events: []hansard.Event{e}}
		if _, err := store.Append(r.Context(), hansard.SessionID(r.PathValue("id")), b); err != nil {
			fail(w, err)
		}
	})
	// The data of the last event, as it is stored.
	mux.HandleFunc("GET /last/{id}", func(w http.ResponseWriter, r *http.Request) {
		for e, err := range store.Read(r.Context(), hansard.SessionID(r.PathValue("id")), hansard.Range{Last: 1}) {
			if err != nil {
				fail(w, err)
				return
			}
			_, _ = w.Write(e.Data)
		}
	})
	// An agent takes the turn exclusively; the answer is the grant.
	mux.HandleFunc("POST /hold/{id}", func(w http.ResponseWriter, r *http.Request) {
		turn, err := store.Acquire(r.Context(), hansard.SessionID(r.PathValue("id")), hansard.Claim{Exclusive: true, Label: "the other agent"})
		if err != nil {
			fail(w, err)
			return
		}
		fmt.Fprint(w, turn.Grant)
	})
	return mux
}
