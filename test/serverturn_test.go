//go:build unix

package test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/client"
)

// TestServerTurnOutlivesServer: a turn belongs to the client that holds it, not to the server it
// was acquired through. The server is killed, or stopped gracefully, while others want the turn:
// they do not get it, and the client goes on. When the client is gone too the turn is free after
// its TTL. (Failures 4, 7.)
func TestServerTurnOutlivesServer(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", remoteSession)
	first, second := startServer(t, store), startServer(t, store)
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitMax)
	defer cancel()
	dial := func(s *server) hansard.Store {
		t.Helper()
		c, err := client.New("http://"+s.address, &client.Options{Token: serverToken})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	holder, other := dial(first), dial(second)
	turn, err := holder.Acquire(ctx, remoteSession, hansard.Claim{TTL: 20 * time.Minute, Label: "far away"})
	if err != nil {
		t.Fatal(err)
	}
	goesOn := func(when string, s hansard.Store) {
		t.Helper()
		var held *hansard.HeldError
		if _, err := other.Acquire(ctx, remoteSession, hansard.Claim{Label: "rival"}); !errors.As(err, &held) || held.Turn.Seq != turn.Seq {
			t.Errorf("%s: a rival's claim: %v", when, err)
		}
		if err := s.Renew(ctx, remoteSession, turn.Grant); err != nil {
			t.Errorf("%s: Renew: %v", when, err)
		}
		b := hansard.Batch{Turn: turn.Grant, Events: []hansard.Event{{Data: []byte(`"I go on"`)}}}
		if _, err := s.Append(ctx, remoteSession, b); err != nil {
			t.Errorf("%s: Append: %v", when, err)
		}
	}
	goesOn("at first", holder)
	first.kill()
	first.exit()
	goesOn("through the other server, when the first was killed", other)
	first.begin()
	goesOn("through the first, started again", dial(first))
	second.signal(syscall.SIGTERM)
	if code := second.exit(); code != 0 {
		t.Errorf("the server: exit code %d, stderr %s", code, second.stderr)
	}
	other = dial(first)
	goesOn("when the other was stopped", other)

	// If a holder is gone together with its server, others wait for its TTL, and no longer.
	if err := other.Release(ctx, remoteSession, turn.Grant); err != nil {
		t.Fatal(err)
	}
	second.begin()
	if turn, err = dial(second).Acquire(ctx, remoteSession, hansard.Claim{TTL: 300 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	second.kill()
	second.exit()
	next, err := dial(first).Acquire(ctx, remoteSession, hansard.Claim{Wait: hansard.Forever, Label: "rival"})
	if err != nil {
		t.Fatal(err)
	}
	if next.Grant.Number() != turn.Grant.Number()+1 {
		t.Errorf("%s follows %s", next.Grant, turn.Grant)
	}
}
