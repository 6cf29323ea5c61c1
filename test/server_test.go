//go:build unix

package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
)

// TestServers: two servers and three command-line writers on one directory, 64 clients over HTTP
// and 64 over WebSocket that append and follow, one server killed with -9 and restarted, over and
// over: every acknowledged event is there once, and every follower saw every event once, in
// order. (Failures 47, 48.)
func TestServers(t *testing.T) {
	const each, feeders = 64, 3
	kills := scale(4)
	store, l := newStore(t), newLedger()
	ok(t, store, "new", remoteSession)
	servers := []*server{startServer(t, store), startServer(t, store)}
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitMax+time.Duration(kills)*10*time.Second)
	defer cancel()

	stop := make(chan struct{})
	var clients []*remoteClient
	var wg, writing sync.WaitGroup
	writing.Add(2 * each)
	for i := range 2 * each {
		c := &remoteClient{l: l, stop: stop, writing: &writing, pace: 300 * time.Millisecond, servers: servers}
		if i%2 == 1 {
			c.servers = []*server{servers[1], servers[0]}
		}
		c.name = fmt.Sprint("client", i)
		clients = append(clients, c)
		wg.Go(func() {
			var err error
			switch {
			case i >= each:
				err = c.overWebSocket(ctx)
			default:
				err = c.overHTTP(ctx, i%4 >= 2)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	var lines []*feeder
	for i := range feeders {
		lines = append(lines, feed(t, l, store, remoteSession, fmt.Sprint("line", i), 150, 40))
	}
	for n := range kills {
		before := l.acks()
		eventually(t, "appends are acknowledged between two kills", func() bool { return l.acks() > before+100 })
		victim := servers[n%len(servers)]
		victim.kill()
		if victim.exit() != -1 {
			t.Errorf("the server had ended by itself: %s", victim.stderr)
		}
		victim.begin()
	}
	for _, f := range lines {
		if code := f.exit(); code != 0 {
			t.Errorf("writer %s: exit code %d, stderr %s", f.name, code, f.stderr)
		}
	}
	close(stop)
	writing.Wait()
	for _, s := range servers { // followers survive a graceful stop, too
		s.drain()
		s.begin()
	}
	// Everything that was ever sent is acknowledged; anything still in flight is a duplicate and
	// has its key. So this is the last event, and whoever has it has all.
	last := appendLast(t, ctx, store, l)
	wg.Wait()
	for _, s := range servers {
		s.drain()
	}
	events := l.check(t, store)
	if events != last {
		t.Errorf("%d events, and the last one was %d", events, last)
	}
	for _, c := range clients {
		if err := whole(c.got); err != nil || len(c.got) != events {
			t.Errorf("%s saw %d events, want %d: %v", c.name, len(c.got), events, err)
		}
	}
	t.Logf("%d events in %d batches, %d kills, %d followers", events, l.acks(), kills, len(clients))
}

// appendLast appends the event that ends the test.
func appendLast(t *testing.T, ctx context.Context, store string, l *ledger) (seq int) {
	t.Helper()
	s, err := filestore.Open(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := s.Append(ctx, remoteSession, hansard.Batch{Events: []hansard.Event{{Data: newMark(lastBatch, 0, 1, 10).encode()}}})
	if err != nil {
		t.Fatal(err)
	}
	l.ack(lastBatch, place{remoteSession, uint64(r.First), uint64(r.Last)})
	return int(r.Last)
}

// TestServeFirstStart: on a bare machine it starts on an empty store, prints its token once, and
// accepts it. (Failure 52.)
func TestServeFirstStart(t *testing.T) {
	store := newStore(t)
	p := start(t, command(store, "serve", "--listen", "127.0.0.1:0"), nil)
	address := strings.TrimPrefix(p.line(), "serving ")
	_, token, found := strings.Cut(p.line(), "#token=")
	if !found || !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Fatalf("it says %q and no token", address)
	}
	get := func(path, token string) int {
		req, err := http.NewRequest("GET", address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for path, want := range map[string][2]int{"": {200, 200}, "v1/sessions": {401, 200}, "healthz": {200, 200}, "readyz": {401, 200}, "metrics": {401, 200}} {
		if got := [2]int{get(path, ""), get(path, token)}; got != want {
			t.Errorf("/%s: %v without and with the token, want %v", path, got, want)
		}
	}
	if info, err := os.Stat(store + "/tokens"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the tokens: %v, %v", info, err)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d, stderr %s", code, p.stderr)
	}
	// The second start prints no token, and knows the first one.
	p = start(t, command(store, "serve", "--listen", "127.0.0.1:0"), nil)
	address = strings.TrimPrefix(p.line(), "serving ")
	if second := p.line(); strings.Contains(second, token) || strings.Contains(second, "#token") {
		t.Errorf("it tells the token again: %s", second)
	}
	if got := get("v1/sessions", token); got != 200 {
		t.Errorf("the token after a restart: %d", got)
	}
	// A readiness check leaves nothing visible.
	get("readyz", token)
	if ids := list(t, store); len(ids) != 0 {
		t.Errorf("the store has %q", ids)
	}
}

// TestServeDrains: a server that is told to stop answers requests in flight.
func TestServeDrains(t *testing.T) {
	store, l := newStore(t), newLedger()
	ok(t, store, "new", remoteSession)
	s := startServer(t, store)
	stop := make(chan struct{})
	defer close(stop)
	ctx, cancel := context.WithCancel(t.Context())
	var wg, writing sync.WaitGroup
	writing.Add(8)
	for i := range 8 {
		c := &remoteClient{name: fmt.Sprint("c", i), l: l, stop: stop, writing: &writing, servers: []*server{s}}
		wg.Go(func() { _ = c.overHTTP(ctx, true) }) // it loses its server: that is the point
	}
	eventually(t, "appends are acknowledged", func() bool { return l.acks() > 100 })
	s.signal(syscall.SIGTERM)
	if code := s.exit(); code != 0 {
		t.Errorf("exit code %d, stderr %s", code, s.stderr)
	}
	cancel()
	wg.Wait()
	l.check(t, store)
}

// TestServersEnvironment: whatever else is in the environment, appends are stored. (Failure 54.)
func TestServersEnvironment(t *testing.T) {
	store := newStore(t)
	cmd := command(store, "serve", "--listen", "127.0.0.1:0", "--token-from", serverTokenFile(t), "--json")
	for _, name := range []string{"HANSARD_MEMORY", "HANSARD_EPHEMERAL", "HANSARD_NO_PERSIST", "HANSARD_DISABLE_PERSISTENCE", "HANSARD_SKIP_FSYNC", "HANSARD_TEST", "CI", "NODE_ENV", "DEBUG"} {
		cmd.Env = append(cmd.Env, name+"=1")
	}
	p := start(t, cmd, nil)
	var said struct{ URL string }
	if err := json.Unmarshal([]byte(p.line()), &said); err != nil {
		t.Fatal(err)
	}
	remote := command(said.URL, "append", "demo", "kept", "--create")
	remote.Env = append(remote.Env, "HANSARD_TOKEN="+serverToken)
	if r := run(t, remote); r.code != 0 {
		t.Fatalf("append: exit code %d: %s", r.code, r.stderr)
	}
	p.kill()
	if out := ok(t, store, "show", "demo"); !strings.Contains(out, "kept") {
		t.Errorf("after kill -9: %s", out)
	}
}
