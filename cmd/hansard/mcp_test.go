//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hansard"
	"hansard/filestore"
	"hansard/internal/pgtest"
	"hansard/internal/syncbuf"
)

// mcpClient is a client of the program.
func mcpClient(t *testing.T, how sdk.Transport) *sdk.ClientSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	t.Cleanup(cancel)
	client, err := sdk.NewClient(&sdk.Implementation{Name: "tester", Version: "1"}, nil).Connect(ctx, how, nil)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func mcpCall(t *testing.T, client *sdk.ClientSession, tool string, args map[string]any) (text string, failed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	got, err := client.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return err.Error(), true
	}
	return got.Content[0].(*sdk.TextContent).Text, got.IsError
}

// mcpStdio starts the program as agents do.
func mcpStdio(t *testing.T, store string, args ...string) *sdk.ClientSession {
	t.Helper()
	cmd := exec.Command("hansard", append([]string{"mcp"}, args...)...)
	stderr := new(syncbuf.Buffer)
	cmd.Env = append(cmd.Environ(), "HANSARD_STORE="+store)
	cmd.Stderr = stderr
	client := mcpClient(t, &sdk.CommandTransport{Command: cmd})
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("the program ended with %v: %s", err, stderr)
		}
	})
	return client
}

// TestMCP: the program on standard input and output, on files, a server and PostgreSQL. It
// changes nothing unless it is allowed to.
func TestMCP(t *testing.T) {
	dir := t.TempDir()
	hansardOK(t, dir, "append", "demo", "Hello from the files", "--create", "--role", "user")
	serve := start(t, dir, "serve", "--listen", "127.0.0.1:0")
	url, _ := strings.CutPrefix(serve.line(), "serving ")
	for line := ""; os.Getenv("HANSARD_TOKEN") == ""; line = serve.line() {
		if _, token, ok := strings.Cut(line, "#token="); ok {
			t.Setenv("HANSARD_TOKEN", strings.TrimSpace(token))
		}
	}
	stores := map[string]string{"files": dir, "server": url}
	if !testing.Short() {
		schema := pgtest.New(t).Schema(t)
		hansardOK(t, schema, "migrate")
		hansardOK(t, schema, "append", "demo", "Hello from the database", "--create", "--role", "user")
		stores["postgres"] = schema
	}
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			reader := mcpStdio(t, store)
			if text, failed := mcpCall(t, reader, "read_session", map[string]any{"session": "demo"}); failed || !strings.Contains(text, "demo#1") || !strings.Contains(text, "Hello from") {
				t.Errorf("it is %s", text)
			}
			if text, failed := mcpCall(t, reader, "list_sessions", nil); failed || !strings.Contains(text, "begins: Hello from") {
				t.Errorf("the list is %s", text)
			}
			if text, failed := mcpCall(t, reader, "search_sessions", map[string]any{"session": "demo", "text": "hello FROM"}); failed || !strings.Contains(text, "demo#1") {
				t.Errorf("found is %s", text)
			}
			if _, failed := mcpCall(t, reader, "append_to_inbox", map[string]any{"session": "demo", "text": "x"}); !failed {
				t.Error("it was appended to")
			}
			writer := mcpStdio(t, store, "--allow-append")
			text, failed := mcpCall(t, writer, "append_to_inbox", map[string]any{"session": "demo", "text": "For your inbox"})
			if failed || !strings.Contains(text, "demo#") {
				t.Errorf("it is %s", text)
			}
			// The client that was connected before sees it.
			if text, failed := mcpCall(t, reader, "read_session", map[string]any{"session": "demo", "after": 1}); failed || !strings.Contains(text, "For your inbox") || !strings.Contains(text, "(inbox)") {
				t.Errorf("then it is %s", text)
			}
		})
	}
}

// TestMCPDeleted: another process deletes a session while a model reads it.
func TestMCPDeleted(t *testing.T) {
	dir := t.TempDir()
	for i := range 50 {
		hansardOK(t, dir, "append", "demo", fmt.Sprintf("message %d %s", i, strings.Repeat("long ", 100)), "--create")
	}
	client := mcpStdio(t, dir)
	text, failed := mcpCall(t, client, "read_session", map[string]any{"session": "demo", "max_bytes": 2000})
	if failed || !strings.Contains(text, "Older events: read_session session=demo before=") {
		t.Fatalf("it is %s", text)
	}
	hansardOK(t, dir, "rm", "demo", "--yes")
	for tool, args := range map[string]map[string]any{"read_session": {"session": "demo", "before": 40}, "read_event": {"session": "demo", "seq": 1}, "search_sessions": {"session": "demo", "text": "x"}} {
		if text, failed := mcpCall(t, client, tool, args); !failed || !strings.Contains(text, "deleted") {
			t.Errorf("%s: %s", tool, text)
		}
	}
	if text, failed := mcpCall(t, client, "list_sessions", nil); failed || strings.Contains(text, "demo") {
		t.Errorf("the list is %s", text)
	}
}

// TestMCPHuge: a page of a session of more than a hundred megabytes costs no more than what it
// shows.
func TestMCPHuge(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes much")
	}
	dir := t.TempDir()
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	const batches, each = 10, 200
	for i := range batches {
		b := hansard.Batch{Create: true}
		for j := range each {
			b.Events = append(b.Events, hansard.Message("user", fmt.Sprintf("event %d %s", i*each+j+1, strings.Repeat("words and more ", 4000))))
		}
		if _, err := store.Append(context.Background(), "huge", b); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	client := mcpStdio(t, dir)
	for _, args := range []map[string]any{{}, {"before": 1000}, {"after": 1000}, {"max_bytes": 1 << 30}, {"kinds": []string{"none"}}} {
		args["session"] = "huge"
		text, failed := mcpCall(t, client, "read_session", args)
		if failed || len(text) > 70<<10 {
			t.Errorf("%v: %d bytes, %.300s", args, len(text), text)
		}
	}
	text, failed := mcpCall(t, client, "search_sessions", map[string]any{"session": "huge", "text": `"event 1999"`})
	if failed || !strings.Contains(text, "huge#1999") || len(text) > 1000 {
		t.Errorf("found is %.500s", text)
	}
}

// TestMCPOverHTTP: the program over HTTP, with the token that it made, or a given one.
func TestMCPOverHTTP(t *testing.T) {
	dir := t.TempDir()
	hansardOK(t, dir, "append", "demo", "Hello", "--create")
	file := filepath.Join(t.TempDir(), "token")
	const given = "a-token-of-this-test-0123456789"
	if err := os.WriteFile(file, []byte(given), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{nil, {"--token-from", file}} {
		p := start(t, dir, append([]string{"mcp", "--json", "--listen", "127.0.0.1:0"}, more...)...)
		var at struct{ URL, Token string }
		if err := json.Unmarshal([]byte(p.line()), &at); err != nil {
			t.Fatal(err)
		}
		if more != nil {
			if at.Token != "" {
				t.Error("it shows a token that it was given")
			}
			at.Token = given
		}
		client := mcpClient(t, &sdk.StreamableClientTransport{Endpoint: at.URL, HTTPClient: &http.Client{Transport: withToken(at.Token)}})
		if text, failed := mcpCall(t, client, "read_session", map[string]any{"session": "demo"}); failed || !strings.Contains(text, "Hello") {
			t.Errorf("it is %s", text)
		}
		resp, err := http.Post(at.URL, "application/json", strings.NewReader(`{}`))
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a token: %v, %v", resp, err)
		}
		resp.Body.Close()
		client.Close()
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if code := p.exit(); code != 0 {
			t.Errorf("it ended with %d: %s", code, p.stderr)
		}
	}
}

type withToken string

func (token withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}

// TestMCPKilled: the program ends when its client goes away, and on a signal.
func TestMCPKilled(t *testing.T) {
	dir := t.TempDir()
	hansardOK(t, dir, "append", "demo", "Hello", "--create")
	gone := start(t, dir, "mcp")
	gone.stdin.Close()
	if code := gone.exit(); code != 0 {
		t.Errorf("its client went: %d %s", code, gone.stderr)
	}
	stopped := start(t, dir, "mcp")
	stopped.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
	stopped.line() // it runs
	_ = stopped.cmd.Process.Signal(syscall.SIGTERM)
	began := time.Now()
	if code := stopped.exit(); code != 0 || time.Since(began) > waitMax/2 {
		t.Errorf("it was stopped: %d %s", code, stopped.stderr)
	}
}
