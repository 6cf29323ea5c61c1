package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"hansard"
	"hansard/internal/npmtest"
	"hansard/mcp"
	"hansard/memstore"
)

// scenarios are those of the suite that any server can pass. The others call tools, read
// resources and get prompts of a server made for them.
var scenarios = []string{"server-initialize", "ping", "tools-list", "resources-list", "dns-rebinding-protection"}

// TestConformance: the public suite against the server over HTTP. The suite has no token: a proxy
// adds one.
func TestConformance(t *testing.T) {
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
	store := memstore.New()
	if _, err := store.Append(t.Context(), "demo", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", "Hello")}}); err != nil {
		t.Fatal(err)
	}
	const token = "a-token-for-tests"
	handler := mcp.Handler(mcp.New(store, mcp.Options{Version: "test", AllowAppend: true}), token)
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		handler.ServeHTTP(w, r)
	}))
	defer at.Close()
	passed := regexp.MustCompile(`Passed: (\d+)/(\d+), 0 failed, 0 warnings`)
	for _, scenario := range scenarios {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		cmd := exec.CommandContext(ctx, node, filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js"), "server", "--url", at.URL+mcp.Path, "--scenario", scenario)
		out, err := cmd.CombinedOutput()
		cancel()
		if m := passed.FindSubmatch(out); err != nil || m == nil || string(m[1]) != string(m[2]) || string(m[1]) == "0" {
			t.Errorf("%s: %v\n%s", scenario, err, out)
		}
	}
}
