package httpd_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"hansard"
	"hansard/filestore"
	"hansard/memstore"
)

// The numbers are those of the list of known failures. 49 is in dropped_test.go; 52 and the paths of
// 51 are also in access_test.go.

// TestFailure47_SecondClient: however many follow a session, each gets every event.
func TestFailure47_SecondClient(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "1")
	const total = 100
	var streams []*sseConn
	var sockets []*wsConn
	for range 5 {
		streams = append(streams, v.stream("s", "", ""))
		c := v.socket("reader")
		c.send(`{"op":"follow","session":"s"}`)
		c.next("following")
		sockets = append(sockets, c)
	}
	for i := 1; i < total; i++ {
		v.say("s", fmt.Sprint(i+1))
	}
	for i := range streams {
		streams[i].events(0, total)
		sockets[i].events("s", 0, total)
	}
}

// TestFailure48_Disconnected: a follower that comes and goes, over servers that come and go, gets
// every event exactly once.
func TestFailure48_Disconnected(t *testing.T) {
	dir := t.TempDir()
	open := func() *served {
		store, err := filestore.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return serve(t, store)
	}
	const rounds, each = 4, 20
	last := hansard.Seq(0)
	for round := range rounds {
		v := open()
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range each {
				v.say("s", fmt.Sprint(round, i))
			}
		})
		// Each half round in another way.
		eventually(t, "the session is there", func() bool { return v.ask("GET", "/v1/sessions/s", "").status == 200 })
		c := v.stream("s", "", fmt.Sprint(last))
		c.events(last, last+each/2)
		c.cancel()
		last += each / 2
		k := v.socket("reader")
		k.send(`{"op":"follow","session":"s","after":%d}`, last)
		k.next("following")
		k.events("s", last, last+each/2)
		last += each / 2
		wg.Wait()
		v.stop()
	}
	v := open()
	var page struct{ Events []hansard.Event }
	v.must(200, "GET", "/v1/sessions/s/events", "").into(t, &page)
	if len(page.Events) != rounds*each {
		t.Errorf("%d events, want %d", len(page.Events), rounds*each)
	}
}

// TestFailure50_ReadingChanges: no way of reading changes a byte of the store.
func TestFailure50_ReadingChanges(t *testing.T) {
	dir := t.TempDir()
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	v := serve(t, store)
	for _, id := range []string{"a", "b"} {
		v.say(id, "one")
		v.say(id, "two")
	}
	before := logs(t, dir)
	listed := v.must(200, "GET", "/v1/sessions", "").body
	for range 3 {
		for _, path := range []string{"/v1/sessions", "/v1/sessions/a", "/v1/sessions/a/events", "/v1/sessions/a/events?last=1", "/v1/sessions/b/turn",
			"/v1/sessions/a/events?after=2&wait_ms=5", "/metrics", "/healthz", "/version", "/openapi.json", "/"} {
			v.must(200, "GET", path, "")
			v.must(200, "HEAD", path, "")
		}
		v.must(200, "GET", "/v1/sessions/a/events", "", "Accept", "application/x-ndjson")
		c := v.stream("a", "", "")
		c.events(0, 2)
		c.cancel()
		k := v.socket("reader")
		k.send(`{"op":"follow","session":"b"}`)
		k.next("following")
		k.events("b", 0, 2)
		k.CloseNow()
	}
	if after := v.must(200, "GET", "/v1/sessions", "").body; after != listed {
		t.Errorf("the list was\n%s and is\n%s", listed, after)
	}
	if after := logs(t, dir); after != before {
		t.Errorf("the logs were\n%s and are\n%s", before, after)
	}
}

// logs returns every name and every byte of the sessions of a store.
func logs(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(filepath.Join(dir, "sessions"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		fmt.Fprintf(&out, "%s %d %x\n", d.Name(), len(content), sha256.Sum256(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestFailure51_IDIsAPath: no id that a client can send escapes the store, or creates a file in
// it.
func TestFailure51_IDIsAPath(t *testing.T) {
	parent := t.TempDir()
	store, err := filestore.Open(filepath.Join(parent, "store"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(parent, "secret.jsonl"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := serve(t, store)
	v.say("s", "one")
	before := tree(t, parent)
	for _, id := range []string{"../secret", "..%2fsecret", "%2e%2e%2fsecret", "..%5csecret", "..%2f..%2f..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "s%00", "s.jsonl%00", "..", ".",
		"CON%20", "s%2f..%2fs", "sessions%2fs", "%c0%ae%c0%ae%c0%afsecret", "~root", "file:%2f%2f%2fetc"} {
		for _, more := range []string{"", "/events", "/events/stream", "/turn"} {
			got, err := v.raw("GET", "/v1/sessions/"+id+more, "")
			if err != nil {
				t.Fatal(err)
			}
			if got.status < 400 || strings.Contains(got.body, "secret\n") || strings.Contains(got.body, "root:") {
				t.Errorf("GET %s: %d %s", id+more, got.status, got.body)
			}
		}
		if got, err := v.raw("POST", "/v1/sessions/"+id+"/events", `{"events":[{"data":1}],"create":true}`); err != nil || got.status < 400 {
			t.Errorf("append to %s: %d %v", id, got.status, err)
		}
		if got, err := v.raw("DELETE", "/v1/sessions/"+id, ""); err != nil || got.status < 400 {
			t.Errorf("delete %s: %d %v", id, got.status, err)
		}
	}
	if after := tree(t, parent); after != before {
		t.Errorf("there was\n%s and is\n%s", before, after)
	}
}

// tree lists every file below a directory except for transient ones.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			fmt.Fprintln(&out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestFailure52_OpenToEveryone: without a token no route of the table reveals anything, and the
// tokens exist nowhere but with those they were given to.
func TestFailure52_OpenToEveryone(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "a secret message")
	for path, methods := range v.server.Routes() {
		for _, method := range methods {
			path := strings.ReplaceAll(path, "{id}", "s")
			if path == "/healthz" || path == "/version" || path == "/openapi.json" {
				continue
			}
			for _, headers := range [][]string{{"Authorization", ""}, {"Host", "evil.example"}, {"Origin", "http://evil.example"}} {
				body := ""
				if path == "/v1/login" && method == "POST" {
					body = `{"code":"x"}`
				}
				got := v.ask(method, path, body, headers...)
				if got.status != 401 && got.status != 403 || strings.Contains(got.body, "secret") {
					t.Errorf("%s %s with %q: %d %s", method, path, headers, got.status, got.body)
				}
			}
		}
	}
	for name, token := range v.tokens {
		if strings.Contains(v.log.String(), token) || strings.Contains(v.must(200, "GET", "/metrics", "").body, token) {
			t.Errorf("the token %s is in the log or the metrics", name)
		}
	}
	if strings.Contains(v.log.String(), "a secret message") {
		t.Error("the log has message text")
	}
}

// TestFailure53_StoredOrNot: 2xx means stored, 404 means not there; a damaged session is neither,
// and yields its safe part.
func TestFailure53_StoredOrNot(t *testing.T) {
	for _, err := range []error{hansard.ErrNoSpace, hansard.ErrFailed, hansard.ErrUnknown, hansard.ErrBusy, hansard.ErrReadOnly, fmt.Errorf("something else")} {
		v := serve(t, &broken{memstore.New(), err})
		if got := v.ask("POST", "/v1/sessions/s/events", oneEvent); got.status < 400 || got.status == 404 {
			t.Errorf("%v: %d", err, got.status)
		}
		v.stop()
	}
	dir := t.TempDir()
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	v := serve(t, store)
	for i := range 5 {
		v.say("s", fmt.Sprintf("message %d", i))
	}
	v.say("other", "fine")
	v.stop()
	// The third message is edited from outside.
	path := filepath.Join(dir, "sessions", "s.jsonl")
	content := mustRead(t, path)
	if err := os.WriteFile(path, []byte(strings.Replace(content, "message 2", "massage 2", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if store, err = filestore.Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	v = serve(t, store)
	if got := v.ask("GET", "/v1/sessions/s/events?after=2", ""); got.status != 503 || got.problem() != "damaged" || !strings.Contains(got.body, `"last_seq":2`) {
		t.Errorf("the damage itself: %d %s", got.status, got.body)
	}
	safe := v.must(200, "GET", "/v1/sessions/s/events", "")
	if !strings.Contains(safe.body, "message 1") || strings.Contains(safe.body, "massage") || !strings.Contains(safe.body, `"more":true`) {
		t.Errorf("what is safe: %s", safe.body)
	}
	lines := v.must(200, "GET", "/v1/sessions/s/events", "", "Accept", "application/x-ndjson")
	if got := strings.Split(strings.TrimSpace(lines.body), "\n"); len(got) != 3 || !strings.HasPrefix(got[2], `{"problem":{"type":"/problems/damaged"`) {
		t.Errorf("as lines: %s", lines.body)
	}
	if got := v.must(200, "GET", "/v1/sessions/s", ""); !strings.Contains(got.body, `"damaged":true`) {
		t.Errorf("the session: %s", got.body)
	}
	if got := v.must(200, "GET", "/v1/sessions", ""); !strings.Contains(got.body, `"damaged":true`) || !strings.Contains(got.body, `"id":"other"`) {
		t.Errorf("the list: %s", got.body)
	}
	if got := v.ask("POST", "/v1/sessions/s/events", oneEvent); got.status != 503 {
		t.Errorf("an append: %d", got.status)
	}
	v.say("other", "still fine")
}

// TestFailure54_NoPersistence: the program has no engine that forgets, so no variable can switch
// to one.
func TestFailure54_NoPersistence(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "hansard/cmd/hansard").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if !contains(deps, "hansard/filestore") || contains(deps, "hansard/memstore") {
		t.Errorf("the program is made of %q", deps)
	}
}

func contains(list []string, want string) bool {
	for _, s := range list {
		if s == want {
			return true
		}
	}
	return false
}

// TestFailure55_LargeSession: a request for a small part of a large session costs little, and one
// for all of it holds little in memory at a time.
func TestFailure55_LargeSession(t *testing.T) {
	store, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	v := serve(t, store)
	const batches, each, size = 64, 16, 64 << 10 // 64 MiB
	data := []byte(`"` + strings.Repeat("x", size-2) + `"`)
	for range batches {
		b := hansard.Batch{Create: true}
		for range each {
			b.Events = append(b.Events, hansard.Event{Data: data})
		}
		if _, err := store.Append(t.Context(), "s", b); err != nil {
			t.Fatal(err)
		}
	}
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for _, path := range []string{"/v1/sessions/s", "/v1/sessions/s/events?last=2", "/v1/sessions/s/events?after=500&limit=2", "/v1/sessions/s/events?limit=1", "/v1/sessions/s/turn", "/v1/sessions"} {
		v.must(200, "GET", path, "") // fills caches
		if n := allocated(func() { v.must(200, "GET", path, "") }); n > 16<<20 {
			t.Errorf("GET %s allocates %d MiB of a session of 64 MiB", path, n>>20)
		}
	}
	c := v.stream("s", "", fmt.Sprint(batches*each-2))
	if n := allocated(func() { c.events(batches*each-2, batches*each) }); n > 16<<20 {
		t.Errorf("following the end allocates %d MiB", n>>20)
	}
	got := v.must(200, "GET", "/v1/sessions/s/events", "")
	if len(got.body) > 10<<20 {
		t.Errorf("a page has %d MiB", len(got.body)>>20)
	}
}
