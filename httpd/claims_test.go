package httpd_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/internal/wire"
	"hansard/memstore"
)

// TestClaims: a claim repeated under its name gets the same turn. A claim withdrawn under its
// name gives the turn back, whether granted yet or not, and is never granted later.
func TestClaims(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "one")
	const path = "/v1/sessions/s/turn"
	ask := func(token, claim string) (reply, hansard.Grant) {
		t.Helper()
		var turn hansard.Turn
		got := v.ask("POST", path, fmt.Sprintf(`{"claim":%q}`, claim), "Authorization", "Bearer "+v.tokens[token])
		got.into(t, &turn)
		return got, turn.Grant
	}
	withdraw := func(claim string) {
		t.Helper()
		v.must(200, "DELETE", path, fmt.Sprintf(`{"claim":%q}`, claim))
	}
	free := func(when string) {
		t.Helper()
		if got := v.must(200, "GET", path, ""); got.body != `{"turn":null}`+"\n" {
			t.Errorf("%s: %s", when, got.body)
		}
	}
	first, grant := ask("admin", "a")
	again, same := ask("admin", "a")
	if first.status != 201 || again.status != 201 || grant == "" || same != grant {
		t.Errorf("granted %s, and then %s %s", first.body, again.body, same)
	}
	if got, _ := ask("appender", "a"); got.status != 423 {
		t.Errorf("another's claim of the same name: %d %s", got.status, got.body)
	}
	if got := v.must(201, "POST", path, `{}`, "Idempotency-Key", `"a"`); !strings.Contains(got.body, string(grant)) {
		t.Errorf("its name as a key: %s", got.body)
	}
	v.must(422, "POST", path, `{"claim":"a"}`, "Idempotency-Key", "b")
	withdraw("a")
	free("a is withdrawn")
	for _, claim := range []string{"a", "b"} {
		withdraw(claim) // a for the second time, b before it was known
		if got, _ := ask("admin", claim); got.status != 409 || got.problem() != "fenced" {
			t.Errorf("%s after it was withdrawn: %d %s", claim, got.status, got.body)
		}
	}
	free("nothing was granted since")

	// A waiting claim learns that it was withdrawn, and the next in line is not held up.
	if got, _ := ask("admin", "c"); got.status != 201 {
		t.Fatalf("c: %s", got.body)
	}
	known, waiting := v.server.Claims(), make(chan reply)
	go func() {
		got, err := v.try("POST", path, `{"claim":"d","wait_ms":-1}`)
		if err != nil {
			t.Error(err)
		}
		waiting <- got
	}()
	eventually(t, "d waits", func() bool { return v.server.Claims() > known })
	withdraw("d")
	if got := <-waiting; got.status != 409 || got.problem() != "fenced" {
		t.Errorf("d, withdrawn while it waits: %d %s", got.status, got.body)
	}
	withdraw("c")
	free("all are withdrawn")
}

// slowGrants is a store that grants a turn whatever became of its claimant, as a commit in flight
// does, and returns when the test lets it.
type slowGrants struct {
	hansard.Store
	grant, release func(ctx context.Context) // called before Acquire returns, and before Release begins
}

func (s *slowGrants) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	t, err := s.Store.Acquire(context.WithoutCancel(ctx), id, c)
	s.grant(ctx)
	return t, err
}

func (s *slowGrants) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	s.release(ctx)
	return s.Store.Release(ctx, id, g)
}

// TestClaimUnanswered: a client whose connection broke while it was granted a turn asks again
// under the same name and gets a turn that is its own.
func TestClaimUnanswered(t *testing.T) {
	const path, claim = "/v1/sessions/s/turn", `{"claim":"a"}`
	gone := func(ctx context.Context) { <-ctx.Done() }
	start := func(t *testing.T) (*slowGrants, *served) {
		store := &slowGrants{memstore.New(), gone, func(context.Context) {}}
		v := serve(t, store)
		v.say("s", "one")
		return store, v
	}
	// ask sends the claim over its own connection.
	ask := func(t *testing.T, v *served) net.Conn {
		t.Helper()
		askers := v.server.Askers()
		c, err := net.Dial("tcp", strings.TrimPrefix(v.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
			path, v.tokens["admin"], len(claim), claim); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the claim is there", func() bool { return v.server.Askers() > askers })
		return c
	}
	current := func(t *testing.T, v *served) (g hansard.Grant) {
		t.Helper()
		turn, err := v.store.Turn(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if turn != nil {
			g = turn.Grant
		}
		return g
	}
	granted := func(t *testing.T, v *served, answer reply) {
		t.Helper()
		var turn hansard.Turn
		answer.into(t, &turn)
		if now := current(t, v); answer.status != 201 || turn.Grant == "" || turn.Grant != now {
			t.Errorf("answered %d %s, and the turn is that of %q", answer.status, answer.body, now)
		}
	}
	again := func(v *served) <-chan reply {
		got := make(chan reply, 1)
		go func() {
			r, err := v.try("POST", path, claim)
			if err != nil {
				r.body = err.Error()
			}
			got <- r
		}()
		return got
	}
	t.Run("asked again after it was given back", func(t *testing.T) {
		store, v := start(t)
		ask(t, v).Close()
		v.stopWaiting()
		if g := current(t, v); g != "" {
			t.Errorf("%s was granted to nobody and not given back", g)
		}
		store.grant = func(context.Context) {}
		granted(t, v, v.ask("POST", path, claim))
	})
	t.Run("asked again while it is given back", func(t *testing.T) {
		store, v := start(t)
		returning, wait := make(chan struct{}), make(chan struct{})
		store.release = func(context.Context) { close(returning); <-wait }
		ask(t, v).Close()
		<-returning
		store.grant = func(context.Context) {}
		answer := again(v)
		eventually(t, "the second waits", func() bool { return v.server.Askers() == 1 })
		close(wait)
		granted(t, v, <-answer)
	})
	t.Run("asked again while it is granted", func(t *testing.T) {
		store, v := start(t)
		store.release = func(context.Context) { t.Error("the turn of the second was given back") }
		first := ask(t, v)
		answer := again(v)
		eventually(t, "the second waits", func() bool { return v.server.Askers() == 2 })
		first.Close()
		granted(t, v, <-answer)
		v.stopWaiting()
	})
	t.Run("asked twice, and both are gone", func(t *testing.T) {
		_, v := start(t)
		first, second := ask(t, v), ask(t, v)
		second.Close()
		first.Close()
		v.stopWaiting()
		if g := current(t, v); g != "" {
			t.Errorf("%s was granted to nobody and not given back", g)
		}
	})
}

// TestClaimScope: a narrowed token can neither withdraw nor share the claims that the token it was
// made from has to other sessions.
func TestClaimScope(t *testing.T) {
	v := serveMemory(t)
	v.say("mine", "one")
	v.say("other", "one")
	var err error
	if v.tokens["narrowed"], err = wire.Narrow(v.tokens["appender"], wire.Narrowing{Session: "mine", Rights: "append", Expires: time.Now().Add(time.Hour).Unix()}); err != nil {
		t.Fatal(err)
	}
	v.must(201, "POST", "/v1/sessions/other/turn", `{"claim":"a"}`, v.as("appender")...)
	for _, claim := range []string{"a", "b"} {
		for _, method := range []string{"DELETE", "POST"} {
			if got := v.ask(method, "/v1/sessions/other/turn", `{"claim":"`+claim+`"}`, v.as("narrowed")...); got.problem() != "not-found" {
				t.Errorf("%s of %s: %d %s", method, claim, got.status, got.body)
			}
		}
	}
	if turn, err := v.store.Turn(t.Context(), "other"); err != nil || turn == nil {
		t.Errorf("the turn is %v, %v", turn, err)
	}
	if n := v.server.Claims(); n != 1 {
		t.Errorf("%d claims are remembered", n)
	}
}
