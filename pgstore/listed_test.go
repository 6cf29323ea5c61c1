package pgstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/internal/pgtest"
)

// listed returns the ids of a list by one label.
func listed(t *testing.T, s *Store, label string) (ids []hansard.SessionID) {
	t.Helper()
	for info, err := range s.List(t.Context(), hansard.Query{Labels: map[string]string{"team": label}}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
	}
	return ids
}

// TestListedWhileWaiting: an append waits for a patch that labels the session and is slow to
// commit. It also updates the session's place in the list of that label, although the append
// began before that row existed.
func TestListedWhileWaiting(t *testing.T) {
	title := "patched"
	one := []hansard.Event{{Data: []byte("1")}}
	for name, b := range map[string]hansard.Batch{
		"one statement": {Events: one},
		"decided":       {Events: one, Patch: &hansard.Patch{Title: &title}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newBlocking(t, "")
			red := map[string]string{"team": "red"}
			s.lock()
			waiting := later(func() (hansard.Receipt, error) { return s.Append(t.Context(), "s", b) })
			s.waiting(1)
			// The time the patch read when it had the row, long ago.
			then := s.clock().Add(-2 * span)
			l := &locked{id: "s", now: then}
			c := &change{head: head{updated: then}, meta: &hansard.Meta{Labels: red}}
			if err := c.rows.add([]hansard.Event{{Kind: "message", Data: []byte("1"), Patch: &hansard.Patch{Labels: map[string]*string{"team": ptr("red")}}}}, batch{}); err != nil {
				t.Fatal(err)
			}
			c.head.last, c.head.bytes = 1, 1
			queued := &pgx.Batch{}
			c.write(queued, l, "of somebody else")
			if err := s.conn.SendBatch(t.Context(), queued).Close(); err != nil {
				t.Fatal(err)
			}
			// Another session is used meanwhile: newer than the patch, older than the waiting
			// append.
			if _, err := s.Create(t.Context(), "meanwhile", hansard.Meta{Labels: red}); err != nil {
				t.Fatal(err)
			}
			s.exec("COMMIT")
			if r := <-waiting; r.err != nil {
				t.Fatal(r.err)
			}
			soundLog(t, s.Store, 2)
			if got, want := fmt.Sprint(listed(t, s.Store, "red")), "[s meanwhile]"; got != want {
				t.Errorf("the list by the label is %s, want %s", got, want)
			}
		})
	}
}

// TestListExact: the list is in the order of the last events, although the listing it is made
// from is accurate only to ten seconds: sessions are appended to repeatedly, in one order and
// then in the other, within that span.
func TestListExact(t *testing.T) {
	s := newBlocking(t, "")
	const n = 12
	add := func(i int) {
		b := hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}, Create: true, Patch: &hansard.Patch{Labels: map[string]*string{"team": ptr("red")}}}
		if _, err := s.Append(t.Context(), hansard.SessionID(fmt.Sprintf("s%02d", i)), b); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want func(place int) int) {
		t.Helper()
		for _, limit := range []int{0, 1, 5} {
			place := 0
			for info, err := range s.List(t.Context(), hansard.Query{Labels: map[string]string{"team": "red"}, Limit: limit}) {
				if id := hansard.SessionID(fmt.Sprintf("s%02d", want(place))); err != nil || info.ID != id {
					t.Errorf("limit %d: %s in place %d, want %s (%v)", limit, info.ID, place, id, err)
				}
				place++
			}
		}
	}
	for i := range n {
		add(i)
	}
	check(func(place int) int { return n - 1 - place })
	for i := range n {
		add(n - 1 - i)
	}
	check(func(place int) int { return place })
}

// TestHotUpdates: appends update rows in place (HOT), and hardly touch the listing. Updates that
// touch an index cost a page of each index and of the WAL.
func TestHotUpdates(t *testing.T) {
	t.Parallel() // with a server of its own: a snapshot held by another test keeps rows from being reused
	server := pgtest.New(t, "autovacuum = off")
	s, err := Open(t.Context(), server.Schema(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const sessions, labels, appends = 10, 3, 300
	var all sync.WaitGroup
	for i := range sessions {
		id := hansard.SessionID(fmt.Sprint("s", i))
		if _, err := s.Create(t.Context(), id, hansard.Meta{Labels: map[string]string{"a": "1", "b": "2"}}); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for n := range appends {
				b := hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}
				if n%10 == 0 { // titles and labels are indexed; agents mostly change the state
					b.Patch = &hansard.Patch{State: fmt.Appendf(nil, `{"n":%d}`, n)}
				}
				if _, err := s.Append(t.Context(), id, b); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	began := time.Now()
	all.Wait()
	// Each row of the listing at most once per span.
	most := sessions * labels * (1 + int(time.Since(began)/span))
	counted := func(table string) (updates, hot int) {
		t.Helper()
		err := s.pool.QueryRow(t.Context(), "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = $1", table).Scan(&updates, &hot)
		if err != nil {
			t.Fatal(err)
		}
		return updates, hot
	}
	until(t, "the counts are there", func() bool {
		updates, _ := counted("hansard_heads")
		return updates >= sessions*appends
	})
	for _, table := range []string{"hansard_heads", "hansard_sessions"} {
		updates, hot := counted(table)
		t.Logf("%s: %d updates, %d of them in place", table, updates, hot)
		if hot*100 < updates*95 {
			t.Errorf("%s: only %d of %d updates are in place", table, hot, updates)
		}
	}
	updates, _ := counted("hansard_listing")
	t.Logf("hansard_listing: %d updates for %d appends to sessions with %d rows each", updates, sessions*appends, labels)
	if updates > most {
		t.Errorf("hansard_listing: %d updates, want at most %d", updates, most)
	}
}
