package httpd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hansard"
)

// message is anything the server says on a WebSocket.
type message struct {
	Op      string
	Ref     any
	Session string
	Created string
	LastSeq hansard.Seq `json:"last_seq"`
	Last    hansard.Seq
	Events  []hansard.Event
	Receipt hansard.Receipt
	Turn    hansard.Turn
	Grant   hansard.Grant
	Problem struct {
		Type, Detail string
		Status       int
	}
}

// wsConn is a WebSocket under test.
type wsConn struct {
	t testing.TB
	*websocket.Conn
	ctx context.Context
}

func (v *served) socket(token string) *wsConn {
	v.t.Helper()
	return v.socketThrough(token, http.DefaultTransport)
}

func (v *served) socketThrough(token string, through http.RoundTripper) *wsConn {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitMax)
	v.t.Cleanup(cancel)
	conn, _, err := websocket.Dial(ctx, strings.Replace(v.url, "http", "ws", 1)+"/v1/ws", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: through}, HTTPHeader: http.Header{"Authorization": {"Bearer " + v.tokens[token]}}})
	if err != nil {
		v.t.Fatal(err)
	}
	conn.SetReadLimit(64 << 20)
	v.t.Cleanup(func() { conn.CloseNow() })
	return &wsConn{t: v.t, Conn: conn, ctx: ctx}
}

func (c *wsConn) send(format string, args ...any) {
	c.t.Helper()
	if err := c.Write(c.ctx, websocket.MessageText, fmt.Appendf(nil, format, args...)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *wsConn) read() (message, error) {
	var m message
	_, text, err := c.Conn.Read(c.ctx)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(text, &m)
}

// next waits for the next message, which must have this op.
func (c *wsConn) next(op string) message {
	c.t.Helper()
	m, err := c.read()
	if err != nil {
		c.t.Fatalf("waiting for %q: %v", op, err)
	}
	if m.Op != op {
		c.t.Fatalf("got %+v, want %q", m, op)
	}
	return m
}

// refused sends a message that must be answered with this problem.
func (c *wsConn) refused(problem, format string, args ...any) {
	c.t.Helper()
	c.send(format, args...)
	if m := c.next("problem"); m.Problem.Type != "/problems/"+problem {
		c.t.Errorf("%s: %+v, want %s", fmt.Sprintf(format, args...), m.Problem, problem)
	}
}

// events reads events up to a seq: each once and in order.
func (c *wsConn) events(session string, after, upto hansard.Seq) {
	c.t.Helper()
	for after < upto {
		m := c.next("events")
		for _, e := range m.Events {
			if m.Session != session || e.Seq != after+1 {
				c.t.Fatalf("seq %d of %s, want %d of %s", e.Seq, m.Session, after+1, session)
			}
			after = e.Seq
		}
	}
}

// TestSocketFollow: one connection follows several sessions from given points, appends to them,
// and resumes where it was.
func TestSocketFollow(t *testing.T) {
	v := serveMemory(t)
	for i := range 5 {
		v.say("a", fmt.Sprint(i))
		v.say("b", fmt.Sprint(i))
	}
	c := v.socket("admin")
	c.send(`{"op":"follow","ref":"x","session":"a","after":3}`)
	if m := c.next("following"); m.Ref != "x" || m.Session != "a" || m.LastSeq != 5 {
		t.Errorf("following: %+v", m)
	}
	c.events("a", 3, 5)
	c.send(`{"op":"follow","ref":2,"session":"b"}`)
	c.next("following")
	c.events("b", 0, 5)
	c.send(`{"op":"append","ref":3,"session":"a","batch":{"events":[{"data": {"deep" : [ 1 ]} }],"key":"k"}}`)
	var stored, event message
	for range 2 { // in either order
		m, err := c.read()
		if err != nil {
			t.Fatal(err)
		}
		if m.Op == "stored" {
			stored = m
		} else {
			event = m
		}
	}
	if stored.Receipt.First != 6 || stored.Ref != 3.0 || stored.Receipt.Replayed {
		t.Errorf("stored: %+v", stored)
	}
	if len(event.Events) != 1 || event.Events[0].Seq != 6 || string(event.Events[0].Data) != `{"deep" : [ 1 ]}` {
		t.Errorf("event: %+v", event)
	}
	c.send(`{"op":"append","ref":4,"session":"a","batch":{"events":[{"data": {"deep" : [ 1 ]} }],"key":"k"}}`)
	if m := c.next("stored"); !m.Receipt.Replayed {
		t.Errorf("a retry: %+v", m.Receipt)
	}
	c.send(`{"op":"unfollow","ref":5,"session":"a"}`)
	c.next("unfollowed")
	v.say("a", "nobody hears")
	v.say("b", "heard")
	c.events("b", 5, 6)

	// Following again begins at the new place.
	c.send(`{"op":"follow","session":"b","after":2}`)
	c.next("following")
	c.events("b", 2, 6)

	v.must(204, "DELETE", "/v1/sessions/b", "")
	if m := c.next("ended"); m.Session != "b" || m.Last != 6 || m.Problem.Type != "/problems/deleted" {
		t.Errorf("ended: %+v", m)
	}
	c.Close(websocket.StatusNormalClosure, "")
}

// TestSocketRefuses: an error is answered with the ref of its request, and the connection goes
// on.
func TestSocketRefuses(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "one")
	c := v.socket("admin")
	c.refused("malformed", `{"op":`)
	c.refused("malformed", `[]`)
	c.refused("invalid", `{"op":"dance"}`)
	c.refused("invalid", `{"op":"ping","op":"ping"}`)
	c.refused("invalid", `{"op":"ping","what":1}`)
	c.refused("invalid", `{"op":7}`)
	c.refused("too-large", `{"op":"ping","ref":"%s"}`, strings.Repeat("x", 300))
	c.refused("invalid", `{"op":"follow","session":"../s"}`)
	c.refused("not-found", `{"op":"follow","session":"nowhere"}`)
	c.refused("invalid", `{"op":"follow","session":"s","after":-1}`)
	c.refused("invalid", `{"op":"unfollow","session":"s"}`)
	c.refused("invalid", `{"op":"append","session":"s"}`)
	c.refused("invalid", `{"op":"append","session":"s","batch":{}}`)
	c.refused("malformed", `{"op":"append","session":"s","batch":{"events":[{"data":{bad}}]}}`)
	c.refused("not-found", `{"op":"append","session":"nowhere","batch":{"events":[{"data":1}]}}`)
	c.refused("conflict", `{"op":"append","session":"s","batch":{"events":[{"data":1}],"expect":7}}`)
	c.refused("fenced", `{"op":"append","session":"s","batch":{"events":[{"data":1}],"turn":"1-0000000000000000"}}`)
	c.refused("fenced", `{"op":"hold","session":"s","grant":"1-0000000000000000"}`)
	c.refused("fenced", `{"op":"release","session":"s","grant":"1-0000000000000000"}`)
	c.refused("invalid", `{"op":"acquire","session":"s","claim":{"ttl_ms":1}}`)
	c.refused("invalid", `{"op":"acquire","session":"s","claim":{"claim":"a name"}}`)
	c.send(`{"op":"ping","ref":{"any":["json"]}}`)
	if m := c.next("pong"); fmt.Sprint(m.Ref) != "map[any:[json]]" {
		t.Errorf("pong: %+v", m)
	}
	reader := v.socket("reader")
	reader.refused("missing-right", `{"op":"append","session":"s","batch":{"events":[{"data":1}]}}`)
	reader.refused("missing-right", `{"op":"acquire","session":"s"}`)
	appender := v.socket("appender")
	appender.refused("missing-right", `{"op":"follow","session":"s"}`)
	if err := c.Write(c.ctx, websocket.MessageBinary, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.read(); websocket.CloseStatus(err) != websocket.StatusUnsupportedData {
		t.Errorf("a binary message: %v", err)
	}
	if n := tagSeq(v.must(200, "GET", "/v1/sessions/s", "")); n != "1" {
		t.Errorf("after all that: last seq %s", n)
	}
}

// TestSocketTurn: a turn is renewed while the connection lasts, released when it is closed
// properly, left to its TTL when it is cut, and still held by a client that comes back.
func TestSocketTurn(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "one")
	ctx := context.Background()
	// renewed waits for a renewal by the server: the client sends none.
	renewed := func(g hansard.Grant) {
		t.Helper()
		var first time.Time
		eventually(t, "the turn is renewed", func() bool {
			now, err := v.store.Turn(ctx, "s")
			if err != nil || now == nil || now.Grant != g {
				t.Fatalf("the turn is %+v, %v", now, err)
			}
			if first.IsZero() {
				first = now.Renewed
			}
			return now.Renewed.After(first)
		})
	}
	c := v.socket("admin")
	// A TTL that works on a busy machine: the server has two thirds of it to spare.
	c.send(`{"op":"acquire","ref":1,"session":"s","claim":{"ttl_ms":2000,"label":"planner"}}`)
	turn := c.next("turn").Turn
	if turn.Grant.Number() != 1 || turn.Holder.Label != "planner" {
		t.Fatalf("turn: %+v", turn)
	}
	renewed(turn.Grant)
	if _, err := v.store.Acquire(ctx, "s", hansard.Claim{}); !errors.Is(err, hansard.ErrHeld) {
		t.Fatalf("acquire while the connection lasts: %v", err)
	}
	c.send(`{"op":"append","ref":2,"session":"s","batch":{"events":[{"data":1}],"turn":"%s"}}`, turn.Grant)
	c.next("stored")

	// The connection is cut, comes back in time, and still holds the turn.
	c.CloseNow()
	c = v.socket("admin")
	c.send(`{"op":"hold","ref":1,"session":"s","grant":"%s"}`, turn.Grant)
	if got := c.next("turn").Turn; got.Grant != turn.Grant {
		t.Fatalf("held again: %+v", got)
	}
	renewed(turn.Grant)
	// The turn is stolen, and the client learns it.
	stolen, err := v.store.Acquire(ctx, "s", hansard.Claim{Steal: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	if m := c.next("lost"); m.Grant != turn.Grant || m.Problem.Type != "/problems/fenced" {
		t.Errorf("lost: %+v", m)
	}
	c.refused("fenced", `{"op":"append","session":"s","batch":{"events":[{"data":1}],"turn":"%s"}}`, turn.Grant)
	c.refused("held", `{"op":"acquire","session":"s"}`)
	c.send(`{"op":"acquire","ref":9,"session":"s","claim":{"wait_ms":-1}}`)
	if err := v.store.Release(ctx, "s", stolen.Grant); err != nil {
		t.Fatal(err)
	}
	third := c.next("turn").Turn
	// Closed properly: free at once, long before its TTL.
	c.Close(websocket.StatusNormalClosure, "")
	next, err := v.store.Acquire(ctx, "s", hansard.Claim{Wait: waitMax / 2})
	if err != nil || next.Grant.Number() != third.Grant.Number()+1 {
		t.Errorf("after a good end: %+v, %v", next, err)
	}
	if err := v.store.Release(ctx, "s", next.Grant); err != nil {
		t.Fatal(err)
	}
	// Cut: the next client gets it when the TTL is over.
	c = v.socket("admin")
	c.send(`{"op":"acquire","ref":1,"session":"s","claim":{"ttl_ms":150}}`)
	c.next("turn")
	c.CloseNow()
	if _, err := v.store.Acquire(ctx, "s", hansard.Claim{Wait: waitMax / 2}); err != nil {
		t.Errorf("after the connection was cut: %v", err)
	}
	c = v.socket("admin")
	c.send(`{"op":"acquire","ref":1,"session":"s","claim":{"steal":"again"}}`)
	grant := c.next("turn").Turn.Grant
	c.send(`{"op":"release","ref":2,"session":"s","grant":"%s"}`, grant)
	c.next("released")
	c.refused("fenced", `{"op":"release","session":"s","grant":"%s"}`, grant)
}

// TestSocketShutdown: a server that stops says so, and the client continues with another, from
// where it was.
func TestSocketShutdown(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "one")
	c := v.socket("reader")
	c.send(`{"op":"follow","session":"s"}`)
	c.next("following")
	c.events("s", 0, 1)
	go v.stop()
	if _, err := c.read(); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the end: %v", err)
	}
	v.stop()
}

// TestSocketAnsweredBeforeServed: on a connection that waits, among many others, for events it
// follows, requests are answered at once: an append is not held up by followers, not even by its
// own.
func TestSocketAnsweredBeforeServed(t *testing.T) {
	v := serveMemory(t)
	v.say("a", "1") // this one is served from memory,
	v.say("b", "1") // and this one needs a read from the store
	c := v.socket("admin")
	c.send(`{"op":"follow","session":"a","after":1}`)
	c.next("following")
	v.say("a", "2")
	c.events("a", 1, 2)
	release := v.server.Occupy()
	v.say("a", "3")
	c.send(`{"op":"follow","session":"b"}`)
	c.next("following")
	for v.server.Waiting() < 2 {
		if c.ctx.Err() != nil {
			t.Fatal("nobody waits to be served")
		}
		runtime.Gosched()
	}
	for i := range 10 {
		c.send(`{"op":"append","session":"a","batch":{"events":[{"data":%d}]}}`, i)
		c.next("stored")
	}
	c.send(`{"op":"unfollow","session":"b"}`)
	c.next("unfollowed")
	release()
	c.events("a", 2, 13)
}
