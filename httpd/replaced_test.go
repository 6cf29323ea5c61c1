package httpd_test

import (
	"context"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"hansard"
	"hansard/memstore"
)

// asleep is a store whose waits check nothing until they are woken: on a busy machine much may
// happen between two looks.
type asleep struct {
	hansard.Store
	wake chan struct{}
}

func (a *asleep) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	select {
	case <-a.wake:
		return a.Store.Wait(ctx, id, after)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replace deletes a session and gives its id to another, with more events.
func (v *served) replace(session string, events int) {
	v.t.Helper()
	v.must(204, "DELETE", "/v1/sessions/"+session, "")
	v.must(201, "POST", "/v1/sessions", `{"id":"`+session+`","reuse":true}`)
	for range events {
		v.say(session, "of another session")
	}
}

// TestReplacedWhileFollowed: a follower of a session gets nothing of another session that has
// taken its id, and learns that its own is over.
func TestReplacedWhileFollowed(t *testing.T) {
	store := &asleep{Store: memstore.New(), wake: make(chan struct{})}
	v := serve(t, store)
	for range 3 {
		v.say("s", "hello")
	}
	stream, socket := v.stream("s", "", ""), v.socket("reader")
	stream.events(0, 3)
	socket.send(`{"op":"follow","session":"s"}`)
	socket.next("following")
	socket.events("s", 0, 3)
	v.replace("s", 5)
	// A new follower means the new session, whoever else is there.
	v.stream("s", "", "").events(0, 5)
	close(store.wake)
	for e, err := stream.next(); ; e, err = stream.next() {
		if e.event == ":" && err == nil {
			continue
		}
		if err != nil || e.event != "problem" || !strings.Contains(e.data, "/problems/deleted") {
			t.Errorf("the stream goes on with %+v, %v", e, err)
		}
		break
	}
	if m, err := socket.read(); err != nil || m.Op != "ended" || m.Last != 3 || m.Problem.Type != "/problems/deleted" {
		t.Errorf("the socket goes on with %+v, %v", m, err)
	}
}

// TestReplacedWhileAway: a client that comes back and says which session it followed gets nothing
// of another session with its id.
func TestReplacedWhileAway(t *testing.T) {
	v := serveMemory(t)
	for range 3 {
		v.say("s", "hello")
	}
	first := v.stream("s", "", "")
	first.events(0, 3)
	created := first.res.Header.Get("Hansard-Created")
	socket := v.socket("reader")
	socket.send(`{"op":"follow","session":"s","after":3}`)
	if m := socket.next("following"); m.Created != created {
		t.Errorf("created %q, and by the socket %q", created, m.Created)
	}
	socket.CloseNow()
	first.cancel()
	back := "?after=3&created=" + url.QueryEscape(created)
	v.say("s", "more")
	v.stream("s", back, "").events(3, 4)
	v.replace("s", 5)
	if got := v.ask("GET", "/v1/sessions/s/events/stream"+back, "", v.as("reader")...); got.status != 410 || got.problem() != "deleted" {
		t.Errorf("it came back to %d %s", got.status, got.body)
	}
	v.socket("reader").refused("deleted", `{"op":"follow","session":"s","after":3,"created":%q}`, created)
	v.stream("s", "?after=3", "").events(3, 5) // it did not say which
	if got := v.ask("GET", "/v1/sessions/s/events/stream?created=yesterday", "", v.as("reader")...); got.status != 422 {
		t.Errorf("a time that is none: %d %s", got.status, got.body)
	}
}

// TestReplacedWhilePolled: a request that waits for an event of a session waits for that one,
// though others still wait for an earlier session of its id, which had more events.
func TestReplacedWhilePolled(t *testing.T) {
	store := &asleep{Store: memstore.New(), wake: make(chan struct{})}
	v := serve(t, store)
	for range 3 {
		v.say("s", "hello")
	}
	poll := func(after string) <-chan reply {
		answer := make(chan reply, 1)
		go func() {
			r, err := v.try("GET", "/v1/sessions/s/events?wait_ms=60000&after="+after, "", v.as("reader")...)
			if err != nil {
				t.Error(err)
			}
			answer <- r
		}()
		return answer
	}
	old := poll("3")
	eventually(t, "the first one waits", func() bool { return v.server.Following() == 1 })
	v.replace("s", 2)
	fresh := poll("2")
	for len(fresh) == 0 && v.server.Following() < 2 {
		runtime.Gosched()
	}
	for range 3 {
		v.say("s", "of another session")
	}
	close(store.wake)
	var page struct{ Events []struct{ Seq int } }
	if r := <-fresh; r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	} else if r.into(t, &page); len(page.Events) == 0 || page.Events[0].Seq != 3 {
		t.Errorf("it was answered at once, with %s", r.body)
	}
	if r := <-old; r.problem() != "deleted" {
		t.Errorf("the one that waited for the old session got %d %s", r.status, r.body)
	}
}
