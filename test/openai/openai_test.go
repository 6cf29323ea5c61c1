package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/httpd/conversations"
	"hansard/memstore"
)

// The tests in JavaScript that have to have run, so that a file which is not
// found, or ends early, is not taken for success.
const leastTests = 27

func TestSDKs(t *testing.T) {
	node, err := install()
	if err != nil && !errors.Is(err, errOffline) {
		t.Fatal(err)
	}
	if err != nil {
		line := fmt.Sprintf("SKIPPED: %s: the SDKs can't be installed: %v", t.Name(), err)
		if os.Getenv("HANSARD_NO_SKIP") == "1" {
			t.Fatal(line)
		}
		fmt.Println(line)
		t.Skip(line)
	}
	files, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	for name, store := range map[string]hansard.Store{"memstore": memstore.New(), "filestore": files} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(serve(store))
			defer server.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, node, "--test", "--test-reporter=tap", "openai.test.mjs", "agents.test.mjs")
			cmd.Env = append(os.Environ(), "HANSARD_URL="+server.URL, "OPENAI_AGENTS_DISABLE_TRACING=1")
			out, err := cmd.CombinedOutput()
			passed := count(out, "pass")
			if err != nil || passed < leastTests || count(out, "fail") != 0 {
				t.Fatalf("%v, %d passed, at least %d have to:\n%s", err, passed, leastTests, out)
			}
			t.Logf("%d tests passed, %d skipped", passed, count(out, "skipped"))
		})
	}
}

// count reads a number of the summary that node prints.
func count(out []byte, what string) int {
	m := regexp.MustCompile(`(?m)^# ` + what + ` (\d+)$`).FindSubmatch(out)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1])) // digits
	return n
}

// serve is a server as an SDK sees it, and beside it what the tests need to do
// to a session that no SDK can.
func serve(store hansard.Store) http.Handler {
	mux := http.NewServeMux()
	api := conversations.New(store, nil)
	mux.Handle(conversations.Prefix, api)
	mux.Handle(conversations.Prefix+"/", api)
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
	// An agent takes the turn for itself alone; the answer is the grant.
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
