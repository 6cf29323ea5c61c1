package httpd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hansard"
	"hansard/httpd"
	"hansard/internal/wire"
	"hansard/memstore"
)

// sseEvent is one server-sent event.
type sseEvent struct{ id, event, data string }

// sseConn is a stream under test.
type sseConn struct {
	t      testing.TB
	res    *http.Response
	in     *bufio.Reader
	cancel context.CancelFunc
}

// stream follows a session, after a seq if last is not empty.
func (v *served) stream(session, query, last string) *sseConn {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*waitMax)
	v.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", v.url+"/v1/sessions/"+session+"/events/stream"+query, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+v.tokens["reader"])
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := (&http.Client{Transport: plain.Transport}).Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		v.t.Fatalf("stream: %s %v", res.Status, res.Header)
	}
	return &sseConn{v.t, res, bufio.NewReader(res.Body), cancel}
}

// next reads the next event; comments are returned as the event ":".
func (c *sseConn) next() (e sseEvent, err error) {
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return e, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			return e, nil
		case name == "id":
			e.id = value
		case name == "data":
			e.data = value
		case name == "event":
			e.event = value
		case name == "":
			e.event = ":"
		}
	}
}

// events reads events up to a seq: each once and in order.
func (c *sseConn) events(after, upto hansard.Seq) {
	c.t.Helper()
	for after < upto {
		e, err := c.next()
		if err != nil {
			c.t.Fatalf("after seq %d: %v", after, err)
		}
		if e.event == ":" {
			continue
		}
		var event hansard.Event
		if err := json.Unmarshal([]byte(e.data), &event); err != nil {
			c.t.Fatalf("%+v: %v", e, err)
		}
		if event.Seq != after+1 || e.id != strconv.FormatUint(uint64(event.Seq), 10) {
			c.t.Fatalf("got seq %d with id %s, want %d", event.Seq, e.id, after+1)
		}
		after = event.Seq
	}
}

// TestStream: events are streamed as they come, from any seq, also with line breaks in them; the
// end is announced.
func TestStream(t *testing.T) {
	v := serveMemory(t)
	for i := range 5 {
		v.say("s", fmt.Sprint(i))
	}
	all, some := v.stream("s", "", ""), v.stream("s", "?after=3", "")
	resumed := v.stream("s", "?after=1", "4") // the browser's Last-Event-ID takes precedence
	all.events(0, 5)
	some.events(3, 5)
	resumed.events(4, 5)
	v.must(201, "POST", "/v1/sessions/s/events", "{\"events\":[{\"data\":{\n  \"a\": 1\r\n}}]}")
	all.events(5, 6)
	some.events(5, 6)
	v.must(204, "DELETE", "/v1/sessions/s", "")
	e, err := all.next()
	if err != nil || e.event != "problem" || !strings.Contains(e.data, "/problems/deleted") {
		t.Errorf("the end: %+v, %v", e, err)
	}
	if _, err := all.next(); err == nil {
		t.Error("it goes on after the end")
	}
}

// TestStreamExact: data that a line can't hold comes as a string in addition.
func TestStreamExact(t *testing.T) {
	v := serveMemory(t)
	data := "{\n  \"a\": \"<é>\"\r\n}"
	if _, err := v.store.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte(data)}}}); err != nil {
		t.Fatal(err)
	}
	c := v.stream("s", "", "")
	for {
		e, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.id == "" {
			continue
		}
		var got struct {
			Data json.RawMessage
			Raw  string
		}
		if err := json.Unmarshal([]byte(e.data), &got); err != nil || got.Raw != data || string(got.Data) != `{"a":"<é>"}` {
			t.Errorf("%s: %v", e.data, err)
		}
		return
	}
}

// TestStreamCatchUp: a follower far behind the newest events reads them all from the store, and
// then goes on with the others.
func TestStreamCatchUp(t *testing.T) {
	store := memstore.New()
	v := serve(t, store)
	const total = 5000
	add := func(n int) {
		t.Helper()
		b := hansard.Batch{Create: true}
		for range n {
			b.Events = append(b.Events, hansard.Event{Data: []byte(`"` + strings.Repeat("x", 500) + `"`)})
		}
		if _, err := store.Append(t.Context(), "s", b); err != nil {
			t.Fatal(err)
		}
	}
	add(total)
	first := v.stream("s", "?after=4999", "")
	first.events(total-1, total)
	late := v.stream("s", "", "")
	for range 10 {
		add(500)
	}
	first.events(total, 2*total)
	late.events(0, 2*total)
}

// waitless is a store that can't be waited on.
type waitless struct{ hansard.Store }

func (waitless) Wait(context.Context, hansard.SessionID, hansard.Seq) error {
	return errors.New("open /home/lovelace/s: too many open files")
}

// TestFollowFails: an error while following is logged under the name that the follower is given.
func TestFollowFails(t *testing.T) {
	v := serve(t, waitless{memstore.New()})
	v.say("s", "one")
	told := func(how, problem string) {
		t.Helper()
		var p wire.Problem
		if err := json.Unmarshal([]byte(problem), &p); err != nil || p.Type != "/problems/internal" {
			t.Fatalf("%s: %s, %v", how, problem, err)
		}
		name, ok := strings.CutPrefix(p.Instance, "urn:uuid:")
		want := "request=" + name + ` type=/problems/internal error="open (a file): too many open files"`
		if log := v.log.String(); !ok || !strings.Contains(log, want) {
			t.Errorf("%s: %s is not in the log: %s", how, want, log)
		}
	}
	c := v.stream("s", "", "1")
	for {
		e, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.event == "problem" {
			told("a stream", e.data)
			break
		}
	}
	k := v.socket("reader")
	k.send(`{"op":"follow","session":"s","after":1}`)
	k.next("following")
	_, text, err := k.Conn.Read(k.ctx)
	var ended struct{ Problem json.RawMessage }
	if err != nil || json.Unmarshal(text, &ended) != nil {
		t.Fatalf("%s, %v", text, err)
	}
	told("a socket", string(ended.Problem))
}

// revocable is an access that can be withdrawn.
type revocable struct {
	httpd.Access
	withdrawn atomic.Bool
}

func (r *revocable) Who(token string) (httpd.Pass, bool) {
	pass, ok := r.Access.Who(token)
	return pass, ok && !r.withdrawn.Load()
}

// TestFollowersBeat: while nothing happens there are signs of life, until the token is withdrawn.
func TestFollowersBeat(t *testing.T) {
	store := memstore.New()
	access := &revocable{Access: httpd.Single("a-token-for-tests")}
	address, _, _ := hasty(t, store, httpd.Hurry{Arrive: waitMax, Stall: waitMax, Grace: waitMax, Beat: 20 * time.Millisecond},
		func(o *httpd.Options) { o.Access = access })
	v := &served{t: t, url: "http://" + address, tokens: map[string]string{"reader": "a-token-for-tests", "admin": "a-token-for-tests"}}
	v.say("s", "one")
	c, k := v.stream("s", "", "1"), v.socket("reader")
	k.send(`{"op":"follow","session":"s","after":1}`)
	k.next("following")
	for range 3 { // the greeting, and two beats
		if e, err := c.next(); err != nil || e != (sseEvent{event: ":"}) {
			t.Fatalf("no sign of life but %+v, %v", e, err)
		}
	}
	access.withdrawn.Store(true)
	for {
		e, err := c.next()
		if err != nil {
			t.Fatalf("the stream ended without a word: %v", err)
		}
		if e.event == "problem" {
			if !strings.Contains(e.data, "/problems/unauthorized") {
				t.Errorf("the end of the stream: %s", e.data)
			}
			break
		}
	}
	if _, err := k.read(); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("the end of the socket: %v", err)
	}
}
