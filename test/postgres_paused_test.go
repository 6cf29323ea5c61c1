//go:build unix

package test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/storetest"
)

// TestPostgresPausedServer: a server is stopped for longer than the TTL of the turns it keeps for
// its clients, and others take them through another server. When it continues, writes it was sent
// under the old grants are refused, and their holders are told. (Failure 20.)
func TestPostgresPausedServer(t *testing.T) {
	store := pgtest.Shared(t).Schema(t)
	db := openPostgres(t, store)
	paused, other := startPostgresServer(t, store), startPostgresServer(t, store)
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitMax)
	defer cancel()
	const ttl = 3 * time.Second // a busy machine has to be able to renew in time
	const socketHeld, leaseHeld = hansard.SessionID("by-socket"), hansard.SessionID("by-lease")
	for _, id := range []hansard.SessionID{socketHeld, leaseHeld} {
		_, err := db.Create(ctx, id, hansard.Meta{})
		must(t, err)
	}
	batch := func(writer string, n int, g hansard.Grant) hansard.Batch {
		return hansard.Batch{Events: storetest.Marked(writer, n, 1, 0), Turn: g}
	}

	// One turn is kept by the server, for a WebSocket; one by its client.
	s, err := dialSocket(ctx, paused.address)
	must(t, err)
	defer s.conn.CloseNow()
	must(t, s.send(order{"op": "acquire", "session": socketHeld, "claim": order{"ttl_ms": ttl.Milliseconds(), "label": "sleeper"}}))
	granted, err := s.read()
	if err != nil || granted.Op != "turn" {
		t.Fatalf("acquire: %+v, %v", granted, err)
	}
	lease, err := hansard.Take(ctx, connect(t, paused), leaseHeld, hansard.Claim{TTL: ttl, Label: "sleeper"})
	must(t, err)
	old := map[hansard.SessionID]hansard.Grant{socketHeld: granted.Turn.Grant, leaseHeld: lease.Grant()}
	for id, g := range old {
		_, err := connect(t, paused).Append(ctx, id, batch("sleeper", 0, g))
		must(t, err)
		eventually(t, "the turn is kept for longer than its TTL", func() bool {
			turn, err := db.Turn(ctx, id)
			must(t, err)
			return turn != nil && turn.Grant == g && turn.Renewed.Sub(turn.Since) > ttl
		})
	}

	paused.signal(syscall.SIGSTOP)
	next := map[hansard.SessionID]hansard.Grant{}
	beside := connect(t, other)
	for id := range old {
		turn, err := beside.Acquire(ctx, id, hansard.Claim{Wait: waitMax, TTL: 10 * time.Minute, Label: "successor"})
		must(t, err)
		next[id] = turn.Grant
		_, err = beside.Append(ctx, id, batch("successor", 0, turn.Grant))
		must(t, err)
	}
	// Sent while the server is stopped: the server gets it before it learns anything else.
	b := batch("sleeper", 1, old[socketHeld])
	must(t, s.send(order{"op": "append", "session": socketHeld, "batch": order{"events": given(b.Events), "turn": b.Turn, "key": "late"}}))
	paused.signal(syscall.SIGCONT)

	var refused, told bool
	for !refused || !told {
		m, err := s.read()
		must(t, err)
		switch {
		case m.Op == "problem" && m.Problem.Type == "/problems/fenced" && m.Problem.Status == http.StatusConflict:
			refused = true
		case m.Op == "lost" && m.Grant == old[socketHeld] && m.Problem.Type == "/problems/fenced":
			told = true
		default:
			t.Fatalf("the server that was stopped says %+v %+v", m, m.Problem)
		}
	}
	select {
	case <-lease.Context().Done():
		if err := context.Cause(lease.Context()); !errors.Is(err, hansard.ErrFenced) {
			t.Errorf("the lease ended with %v, want fenced", err)
		}
	case <-ctx.Done():
		t.Error("the holder of the lease was never told")
	}
	for id, g := range old {
		if err := refusedAsFenced(ctx, paused.address, id, batch("sleeper", 2, g)); err != nil {
			t.Error(err)
		}
		// The server works, and the new holder's turn is unchanged.
		_, err := connect(t, paused).Append(ctx, id, batch("successor", 1, next[id]))
		must(t, err)
		var wrote []string
		for _, e := range storetest.ReadAll(t, db, id) {
			if e.Kind != hansard.KindTurn {
				wrote = append(wrote, fmt.Sprintf("%s under %d", e.Author, e.Turn.Number()))
			}
		}
		if got, want := fmt.Sprint(wrote), "[sleeper under 1 successor under 2 successor under 2]"; got != want {
			t.Errorf("session %s: %s, want %s", id, got, want)
		}
	}
}
