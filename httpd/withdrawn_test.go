package httpd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hansard"
	"hansard/httpd"
	"hansard/memstore"
)

// unhurried never checks anything by itself: whatever ends here was ended because of the token.
var unhurried = httpd.Hurry{Arrive: time.Hour, Stall: time.Hour, Grace: time.Hour, Beat: time.Hour}

// withdrawing is a server with a token, "victim", that another process withdraws.
type withdrawing struct {
	*served
	withdraw func()
}

func withdrawable(t *testing.T, store hansard.Store) *withdrawing {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	tokens, err := httpd.OpenTokens(path, "")
	if err != nil {
		t.Fatal(err)
	}
	v := &served{t: t, store: store, tokens: map[string]string{}}
	for _, name := range []string{"admin", "victim"} {
		if v.tokens[name], err = tokens.Add(tokenOf(name, httpd.Admin)); err != nil {
			t.Fatal(err)
		}
	}
	v.tokens["reader"] = v.tokens["victim"]
	address, server, log := hasty(t, store, unhurried, func(o *httpd.Options) { o.Access = tokens })
	v.url, v.server, v.log = "http://"+address, server, log
	return &withdrawing{v, func() {
		t.Helper()
		other, err := httpd.OpenTokens(path, "")
		if err == nil {
			err = other.Remove("victim")
		}
		if err != nil {
			t.Fatal(err)
		}
	}}
}

// as sends a request with the victim's token, and delivers the answer when it comes.
func (v *withdrawing) as(method, path, body string) <-chan reply {
	answer := make(chan reply, 1)
	go func() {
		got, err := v.try(method, path, body, "Authorization", "Bearer "+v.tokens["victim"])
		if err != nil {
			got.body = err.Error()
		}
		answer <- got
	}()
	return answer
}

// refused waits for an answer that says that the token is no longer valid.
func (v *withdrawing) refused(what string, answer <-chan reply) {
	v.t.Helper()
	select {
	case got := <-answer:
		if got.status != 401 || got.problem() != "unauthorized" || !strings.Contains(got.body, "withdrawn") {
			v.t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	case <-time.After(waitMax):
		v.t.Fatalf("%s goes on", what)
	}
}

// TestFailure61_WithdrawnToken: everything a withdrawn token had in flight ends, although the
// session is never idle and the server never checks by itself.
func TestFailure61_WithdrawnToken(t *testing.T) {
	if httpd.OutlivesMax > 2*time.Second {
		t.Errorf("it may take %v until a withdrawn token is without effect", httpd.OutlivesMax)
	}
	v := withdrawable(t, memstore.New())
	v.say("s", "one")
	stream, socket := v.stream("s", "", ""), v.socket("victim")
	socket.send(`{"op":"follow","session":"s"}`)
	socket.next("following")
	writing, rest := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer rest()
	wg.Go(func() { // there is always an event to send
		for writing.Err() == nil {
			if _, err := v.store.Append(writing, "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}); err != nil && writing.Err() == nil {
				t.Error(err)
			}
		}
	})
	stream.events(0, 10)
	v.withdraw()
	ended := make(chan error, 2)
	go func() {
		for {
			e, err := stream.next()
			if err == nil && e.event != "problem" {
				continue
			}
			if err == nil && !strings.Contains(e.data, "/problems/unauthorized") {
				err = fmt.Errorf("the stream ends with %s", e.data)
			}
			ended <- err
			return
		}
	}()
	go func() {
		for {
			_, err := socket.read()
			if err == nil {
				continue
			}
			if websocket.CloseStatus(err) == websocket.StatusPolicyViolation {
				err = nil
			}
			ended <- err
			return
		}
	}()
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(waitMax):
			t.Fatal("a follower goes on")
		}
	}
}

// TestWithdrawnWaits: a request that waits with a withdrawn token, for an event, a turn or a
// report, is refused, and what it waited for is not granted later.
func TestWithdrawnWaits(t *testing.T) {
	store, _, ended := held(t)
	v := withdrawable(t, store)
	v.say("s", "one")
	v.say("t", "one")
	turn, err := v.store.Acquire(t.Context(), "s", hansard.Claim{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	claim := v.as("POST", "/v1/sessions/s/turn", `{"wait_ms":-1}`)
	named := v.as("POST", "/v1/sessions/s/turn", `{"wait_ms":-1,"claim":"n"}`)
	poll := v.as("GET", "/v1/sessions/t/events?after=1&wait_ms=3600000", "")
	in, body := reading(t, t.Context(), v.url, v.tokens["victim"])
	defer body.Close()
	eventually(t, "all wait", func() bool { return v.server.Busy() == 4 && v.server.Claims() == 1 && v.server.Following() == 1 })
	v.withdraw()
	v.refused("a claim", claim)
	v.refused("a claim with a name", named)
	v.refused("a long poll", poll)
	if rest, err := io.ReadAll(in); err != nil || !strings.Contains(string(rest), "/problems/unauthorized") {
		t.Errorf("the report ends with %q, %v", rest, err)
	}
	<-ended
	if err := v.store.Release(t.Context(), "s", turn.Grant); err != nil {
		t.Fatal(err)
	}
	if now, err := v.store.Turn(t.Context(), "s"); now != nil || err != nil {
		t.Errorf("the turn was given to %+v, %v", now, err)
	}
}

// TestWithdrawnSocket: a socket whose token was withdrawn appends nothing more, and the turns it
// held and waited for are given back.
func TestWithdrawnSocket(t *testing.T) {
	v := withdrawable(t, memstore.New())
	for _, id := range []string{"s", "t", "u"} {
		v.say(id, "one")
	}
	theirs, err := v.store.Acquire(t.Context(), "t", hansard.Claim{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	v.must(201, "POST", "/v1/sessions/u/turn", `{"ttl_ms":3600000}`, "Authorization", "Bearer "+v.tokens["victim"])
	c := v.socket("victim")
	c.send(`{"op":"acquire","session":"s","claim":{"ttl_ms":3600000}}`)
	c.next("turn")
	c.send(`{"op":"acquire","session":"t","claim":{"ttl_ms":3600000,"wait_ms":-1}}`)
	c.send(`{"op":"append","session":"s","batch":{"events":[{"data":1}]}}`)
	c.next("stored")
	v.withdraw()
	sent := 0
	for { // as fast as it can, without a pause
		if c.Write(c.ctx, websocket.MessageText, []byte(`{"op":"append","session":"s","batch":{"events":[{"data":1}]}}`)) != nil {
			break
		}
		if _, err := c.read(); err != nil {
			break
		}
		sent++
	}
	t.Logf("%d appends until it was seen", sent)
	if err := v.store.Release(t.Context(), "t", theirs.Grant); err != nil {
		t.Fatal(err)
	}
	for _, id := range []hansard.SessionID{"s", "t", "u"} {
		eventually(t, "the turn of "+string(id)+" is free", func() bool {
			now, err := v.store.Turn(t.Context(), id)
			return err == nil && now == nil
		})
	}
}

// TestWithdrawnSlow: a client that neither reads nor sends can't prolong what a withdrawn token
// began: a stream, a socket, an answer of lines, an unfinished body.
func TestWithdrawnSlow(t *testing.T) {
	v := withdrawable(t, memstore.New())
	for range 4 { // more than the connection buffers
		v.say("s", strings.Repeat("x", 4<<20))
	}
	dial := func(path, more string) net.Conn {
		t.Helper()
		conn, err := dialNarrow(t.Context(), "tcp", strings.TrimPrefix(v.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s\r\n", path, v.tokens["victim"], more)
		return conn
	}
	stream := dial("GET /v1/sessions/s/events/stream", "")
	lines := dial("GET /v1/sessions/s/events", "Accept: application/x-ndjson\r\n")
	page := dial("GET /v1/sessions/s/events", "")
	body := dial("POST /v1/sessions/s/events", "Content-Type: application/json\r\nContent-Length: 100\r\n")
	io.WriteString(body, `{"events"`)
	for _, conn := range []net.Conn{stream, lines, page} {
		if _, err := bufio.NewReaderSize(conn, 16).Peek(1); err != nil { // it has begun
			t.Fatal(err)
		}
	}
	socket := v.socketThrough("victim", &http.Transport{DialContext: dialNarrow})
	socket.send(`{"op":"follow","session":"s"}`)
	if _, err := socket.read(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are under way", func() bool { return v.server.Busy() == 5 })
	v.withdraw()
	eventually(t, "nothing is under way", func() bool { return v.server.Busy() == 0 })
	res, err := http.ReadResponse(bufio.NewReader(body), nil)
	if err != nil || res.StatusCode != 401 {
		t.Errorf("the body that never came: %+v, %v", res, err)
	}
}

// slowAccess takes its time for one token, once it is armed.
type slowAccess struct {
	httpd.Access
	token        string
	armed        atomic.Bool
	asked, letGo chan struct{}
}

func (a *slowAccess) Who(token string) (httpd.Pass, bool) {
	if a.armed.Load() && token == a.token && a.armed.CompareAndSwap(true, false) {
		a.asked <- struct{}{}
		<-a.letGo
	}
	return a.Access.Who(token)
}

// TestWithdrawnSlowly: while it is checked whether the tokens in use are still valid, which takes
// long for many or where somebody else has to be asked, requests are answered.
func TestWithdrawnSlowly(t *testing.T) {
	access := &slowAccess{asked: make(chan struct{}), letGo: make(chan struct{})}
	v := serveMemory(t, func(o *httpd.Options) { access.Access, o.Access = o.Access, access })
	v.say("s", "one")
	access.token = v.tokens["reader"]
	waiting, done := make(chan reply, 1), make(chan reply, 1)
	go func() {
		got, _ := v.try("GET", "/v1/sessions/s/events?after=1&wait_ms=60000", "", v.as("reader")...)
		waiting <- got
	}()
	eventually(t, "it waits", func() bool { return v.server.Following() == 1 })
	access.armed.Store(true)
	<-access.asked
	go func() {
		got, _ := v.try("POST", "/v1/sessions/s/events", `{"events":[{"data":2}]}`)
		done <- got
	}()
	select {
	case got := <-done:
		if got.status != 201 {
			t.Errorf("another token: %d %s", got.status, got.body)
		}
	case <-time.After(waitMax):
		t.Error("a request waits for the check of another token")
	}
	close(access.letGo)
	if got := <-waiting; got.status != 200 {
		t.Errorf("the one that waited: %d %s", got.status, got.body)
	}
}
