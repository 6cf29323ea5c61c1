package httpd_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/httpd"
	"hansard/memstore"
)

// checked is a store that can be verified and repaired. It is always sound, unless verify says
// otherwise.
type checked struct {
	*memstore.Store
	verify func(ctx context.Context, yield func(hansard.Finding, error) bool)
}

func (c *checked) Verify(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Finding, error] {
	return func(yield func(hansard.Finding, error) bool) {
		switch {
		case c.verify != nil:
			c.verify(ctx, yield)
		case id != "":
			info, err := c.Stat(ctx, id)
			yield(hansard.Finding{Level: hansard.LevelOK, Session: id, Events: info.LastSeq, Message: "sound"}, err)
		default:
			if !yield(hansard.Finding{Level: hansard.LevelOK, File: "journal", Message: "sound"}, nil) {
				return
			}
			for info, err := range c.List(ctx, hansard.Query{}) {
				if !yield(hansard.Finding{Level: hansard.LevelOK, Session: info.ID, Events: info.LastSeq, Message: "sound"}, err) {
					return
				}
			}
		}
	}
}

func (c *checked) Repair(ctx context.Context, id hansard.SessionID) (hansard.Repaired, error) {
	info, err := c.Stat(ctx, id)
	return hansard.Repaired{Session: id, Events: info.LastSeq}, err
}

func (c *checked) RepairJournal(context.Context) (hansard.JournalRepaired, error) {
	return hansard.JournalRepaired{}, nil
}

// damage is a finding whose text has a path of the machine.
var damage = hansard.Finding{Level: hansard.LevelDamage, Session: "s", File: "sessions/s.jsonl", Offset: 7, Line: 2, Events: 1,
	Message: "the log can't be opened: open /srv/secret/s: permission denied"}

// TestVerify: findings come one per line, without paths of the machine, and the last line says
// whether they are complete.
func TestVerify(t *testing.T) {
	store := &checked{Store: memstore.New()}
	v := serve(t, store)
	v.say("s", "one")
	v.say("t", "two")
	want := `{"level":"ok","session":"s","events":1,"message":"sound"}` + "\n" + `{"complete":true,"findings":1}` + "\n"
	if got := v.must(200, "GET", "/v1/sessions/s/verify", ""); got.body != want || got.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%v %s", got.header, got.body)
	}
	if got := v.must(200, "GET", "/v1/verify", "").body; strings.Count(got, "\n") != 4 || !strings.HasSuffix(got, `{"complete":true,"findings":3}`+"\n") {
		t.Errorf("the whole store: %s", got)
	}
	store.verify = func(_ context.Context, yield func(hansard.Finding, error) bool) {
		_ = yield(damage, nil) && yield(hansard.Finding{}, errors.New("read /srv/secret: input/output error"))
	}
	got := v.must(200, "GET", "/v1/verify", "").body
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"level":"damage"`) || !strings.Contains(lines[1], `{"problem":{"type":"/problems/internal"`) ||
		!strings.Contains(lines[1], "urn:uuid:") || strings.Contains(got, "secret") {
		t.Errorf("an error on the way: %s", got)
	}
	if log := v.log.String(); !strings.Contains(log, "input/output error") || strings.Contains(log, "secret") {
		t.Errorf("the log says %s", log)
	}
	store.verify = func(_ context.Context, yield func(hansard.Finding, error) bool) {
		yield(hansard.Finding{}, hansard.ErrBusy)
	}
	if got := v.ask("GET", "/v1/verify", ""); got.status != 503 || got.problem() != "busy" {
		t.Errorf("an error at once: %d %s", got.status, got.body)
	}
}

// TestNothingToVerify: a store that can't be verified is not reported as sound.
func TestNothingToVerify(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "one")
	for _, r := range []string{"GET /v1/verify", "GET /v1/sessions/s/verify", "POST /v1/sessions/s/repair", "POST /v1/journal/repair"} {
		method, path, _ := strings.Cut(r, " ")
		if got := v.ask(method, path, ""); got.status != 501 || got.problem() != "unsupported" {
			t.Errorf("%s: %d %s", r, got.status, got.body)
		}
	}
}

// held is a store that reports one finding and then blocks until it is let go; the end of its
// context is signalled.
func held(t *testing.T) (store *checked, next, ended chan struct{}) {
	t.Helper()
	next, ended = make(chan struct{}), make(chan struct{})
	return &checked{Store: memstore.New(), verify: func(ctx context.Context, yield func(hansard.Finding, error) bool) {
		if !yield(damage, nil) {
			return
		}
		select {
		case <-next:
			yield(hansard.Finding{Level: hansard.LevelOK, Session: "t", Message: "sound"}, nil)
		case <-ctx.Done():
			close(ended)
			yield(hansard.Finding{}, ctx.Err())
		}
	}}, next, ended
}

// reading begins to read a report.
func reading(t *testing.T, ctx context.Context, address, token string) (*bufio.Reader, io.Closer) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", address+"/v1/verify", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := plain.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(res.Body)
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, `"level":"damage"`) {
		t.Fatalf("the first line: %q, %v", line, err)
	}
	return in, res.Body
}

// TestVerifyShows: findings are sent while the rest is still being checked, and there are signs
// of life, although the server's patience runs out many times over.
func TestVerifyShows(t *testing.T) {
	const short = 300 * time.Millisecond
	store, next, _ := held(t)
	address, _, _ := hasty(t, store, httpd.Hurry{Arrive: short, Stall: short, Grace: short, Beat: short})
	in, body := reading(t, t.Context(), "http://"+address, "a-token-for-tests")
	defer body.Close()
	for range 5 {
		if line, err := in.ReadString('\n'); line != "\n" || err != nil {
			t.Fatalf("a sign of life: %q, %v", line, err)
		}
	}
	close(next)
	rest, err := io.ReadAll(in)
	if lines := strings.Fields(string(rest)); err != nil || len(lines) != 2 || lines[1] != `{"complete":true,"findings":2}` {
		t.Errorf("the rest: %q, %v", rest, err)
	}
}

// TestVerifyEnds: a server that shuts down says so in the report, and verification stops when the
// client goes away.
func TestVerifyEnds(t *testing.T) {
	store, _, ended := held(t)
	v := serve(t, store)
	in, body := reading(t, t.Context(), v.url, v.tokens["admin"])
	defer body.Close()
	go v.stop()
	rest, err := io.ReadAll(in)
	if err != nil || !strings.Contains(string(rest), "/problems/closing") || strings.Contains(string(rest), "complete") {
		t.Errorf("the rest: %q, %v", rest, err)
	}
	<-ended

	store, _, ended = held(t)
	w := serve(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	_, body = reading(t, ctx, w.url, w.tokens["admin"])
	cancel()
	body.Close()
	select {
	case <-ended:
	case <-time.After(waitMax):
		t.Error("the looking went on without anybody to tell")
	}
}

// serveDir serves a file store.
func serveDir(t *testing.T) (v *served, dir string) {
	t.Helper()
	dir = t.TempDir()
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, store), dir
}

// TestRepairServed: a damaged session is repaired through the server.
func TestRepairServed(t *testing.T) {
	v, dir := serveDir(t)
	v.say("s", "one")
	v.say("s", "second")
	corrupt(t, filepath.Join(dir, "sessions", "s.jsonl"), "second", "SECOND")
	if got := v.must(200, "GET", "/v1/verify", "").body; !strings.Contains(got, `"level":"damage","session":"s","file":"sessions/s.jsonl"`) || strings.Contains(got, dir) {
		t.Errorf("verify: %s", got)
	}
	var done hansard.Repaired
	v.must(200, "POST", "/v1/sessions/s/repair", "").into(t, &done)
	if !done.Changed || done.Events != 2 || filepath.IsAbs(done.Kept) || done.Kept == "" {
		t.Errorf("repaired: %+v", done)
	}
	v.say("s", "third")
	if got := v.must(200, "GET", "/v1/sessions/s/verify", "").body; !strings.Contains(got, `"level":"ok","session":"s","file":"sessions/s.jsonl","events":3`) {
		t.Errorf("then: %s", got)
	}
}

// TestRepairJournalServed: a damaged journal is repaired through the server that has the store
// open, if no other process has.
func TestRepairJournalServed(t *testing.T) {
	v, dir := serveDir(t)
	v.say("s", "one")
	corrupt(t, filepath.Join(dir, "journal"), "HANSJRN", "HANSBAD")
	corrupt(t, filepath.Join(dir, "journal"), "HANSJRN", "HANSBAD")
	other, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := v.ask("POST", "/v1/journal/repair", "")
	if got.status != 503 || got.problem() != "busy" || !strings.Contains(got.body, "end every program") {
		t.Errorf("with another process at the store: %d %s", got.status, got.body)
	}
	_ = other.Close() // it never got in
	if got := v.must(200, "GET", "/v1/verify", "").body; !strings.Contains(got, `{"level":"damage","file":"journal"`) {
		t.Errorf("verify: %s", got)
	}
	var journal hansard.JournalRepaired
	v.must(200, "POST", "/v1/journal/repair", "{}").into(t, &journal)
	if !journal.Changed || journal.Reason == "" || filepath.IsAbs(journal.Kept) {
		t.Errorf("repaired: %+v", journal)
	}
	v.say("s", "two")
	if got := v.must(200, "GET", "/v1/verify", "").body; strings.Contains(got, "damage") || !strings.Contains(got, "complete") {
		t.Errorf("in the end: %s", got)
	}
	only := serve(t, readOnlyFiles(t, dir), func(o *httpd.Options) { o.ReadOnly = true })
	only.must(200, "GET", "/v1/verify", "")
	for _, path := range []string{"/v1/sessions/s/repair", "/v1/journal/repair"} {
		if got := only.ask("POST", path, ""); got.status != 403 || got.problem() != "read-only" {
			t.Errorf("%s of a server that only reads: %d %s", path, got.status, got.body)
		}
	}
}

// corrupt replaces the first occurrence of old in a file with new, of the same length, in place.
func corrupt(t *testing.T, path, old, new string) {
	t.Helper()
	at := strings.Index(mustRead(t, path), old)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil || at < 0 {
		t.Fatalf("%s has %q at %d: %v", path, old, at, err)
	}
	_, err = f.WriteAt([]byte(new), int64(at))
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func readOnlyFiles(t *testing.T, dir string) hansard.Store {
	t.Helper()
	s, err := filestore.Open(dir, &filestore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
