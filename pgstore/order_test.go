package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
)

// TestDecidedOnTheLockedRow: a call that waits for a session's row while another client changes
// it is decided on the new row, not on the one it saw when it began. The order is forced: the
// other client has the row, and releases it when the call waits.
func TestDecidedOnTheLockedRow(t *testing.T) {
	title := "patched"
	events := []hansard.Event{{Data: []byte("1")}}
	type call func(ctx context.Context, s *Store, mine hansard.Grant) error
	plain := func(ctx context.Context, s *Store, _ hansard.Grant) error {
		_, err := s.Append(ctx, "s", hansard.Batch{Events: events})
		return err
	}
	patch := func(ctx context.Context, s *Store, _ hansard.Grant) error {
		_, err := s.Append(ctx, "s", hansard.Batch{Events: events, Patch: &hansard.Patch{Title: &title}})
		return err
	}
	plainUnder := func(ctx context.Context, s *Store, g hansard.Grant) error {
		_, err := s.Append(ctx, "s", hansard.Batch{Events: events, Turn: g})
		return err
	}
	patchUnder := func(ctx context.Context, s *Store, g hansard.Grant) error {
		_, err := s.Append(ctx, "s", hansard.Batch{Events: events, Turn: g, Patch: &hansard.Patch{Title: &title}})
		return err
	}
	acquire := func(ctx context.Context, s *Store, _ hansard.Grant) error {
		_, err := s.Acquire(ctx, "s", hansard.Claim{})
		return err
	}
	renew := func(ctx context.Context, s *Store, g hansard.Grant) error { return s.Renew(ctx, "s", g) }
	release := func(ctx context.Context, s *Store, g hansard.Grant) error { return s.Release(ctx, "s", g) }
	remove := func(ctx context.Context, s *Store, _ hansard.Grant) error { return s.Delete(ctx, "s", "") }
	removeUnder := func(ctx context.Context, s *Store, g hansard.Grant) error { return s.Delete(ctx, "s", g) }

	for _, other := range []struct {
		name  string
		ttl   time.Duration // of the turn that is held when it begins; 0: none is held
		does  func(s *blocking)
		want  error
		calls map[string]call
	}{
		{"deletes it", 0, deletes, hansard.ErrDeleted, map[string]call{
			"append": plain, "append with a patch": patch, "acquire": acquire, "delete": remove}},
		{"takes the turn", time.Hour, takes("2-00000000000000aa", false), hansard.ErrFenced, map[string]call{
			"append": plainUnder, "append with a patch": patchUnder, "renew": renew, "release": release, "delete": removeUnder}},
		{"takes the turn exclusively", 0, takes("1-00000000000000aa", true), hansard.ErrHeld, map[string]call{
			"append": plain, "append with a patch": patch, "delete": remove, "acquire": acquire}},
		{"renews a turn that was over", hansard.MinTTL, renews, hansard.ErrHeld, map[string]call{
			"acquire": acquire, "append": plain, "append with a patch": patch, "delete": remove}},
	} {
		for name, call := range other.calls {
			t.Run(other.name+"/"+name, func(t *testing.T) {
				s := newBlocking(t, "")
				var mine hansard.Grant
				if other.ttl > 0 {
					turn := stolen(t, s, hansard.Claim{TTL: other.ttl, Exclusive: true})
					mine = turn.Grant
					if other.ttl < time.Minute {
						s.pass(turn.Renewed.Add(other.ttl))
					}
				}
				s.lock()
				other.does(s)
				out := later(func() (struct{}, error) { return struct{}{}, call(t.Context(), s.Store, mine) })
				s.waiting(1)
				s.exec("COMMIT")
				if got := <-out; !errors.Is(got.err, other.want) {
					t.Errorf("%v, want %v", got.err, other.want)
				}
				var written int
				if err := s.conn.QueryRow(t.Context(), `SELECT count(*) FROM hansard_events WHERE id = 's' AND kind <> 'turn'`).Scan(&written); err != nil || written != 0 {
					t.Errorf("%d events were written (%v)", written, err)
				}
			})
		}
	}
}

// deletes does in the other transaction what Delete does.
func deletes(s *blocking) {
	s.exec(removeHead, "s", "of somebody else")
	s.exec(removeMeta, "s")
	s.exec(removeList, "s")
}

// takes gives the turn to another holder.
func takes(g hansard.Grant, exclusive bool) func(s *blocking) {
	return func(s *blocking) {
		now := s.clock()
		turn := hansard.Turn{Grant: g, Seq: 1, Since: now, Renewed: now, TTL: time.Hour, Exclusive: exclusive}
		b := &pgx.Batch{}
		(&change{head: head{turn: &turn, newest: g}}).writeTurn(b, "s")
		if err := s.conn.SendBatch(s.t.Context(), b).Close(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// renews is a sign of life of the turn's holder, good for an hour.
func renews(s *blocking) { s.exec(renewTurn, "s", s.clock().Add(time.Hour)) }
