package pgstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/internal/pgtest"
)

// tapStore is a store with a single, tapped connection, so that a statement prepared once stays
// prepared.
func tapStore(t *testing.T) (*pgtest.Tap, *blocking) {
	t.Helper()
	server := pgtest.Shared(t)
	tap, address := server.Tap(t, server.Schema(t)+"&pool_max_conns=1")
	return tap, newBlockingAt(t, server, address)
}

// TestOneRoundTrip: an append takes one round trip, whatever its conditions are. If something has
// to be looked up before it can be decided it takes two, and a refusal by the one statement takes
// two more, to find the reason.
func TestOneRoundTrip(t *testing.T) {
	tap, s := tapStore(t)
	ctx := t.Context()
	turn, err := s.Acquire(ctx, "s", hansard.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	picture, err := s.Attach(ctx, "s", strings.NewReader("picture"))
	if err != nil {
		t.Fatal(err)
	}
	title, step := "", 0
	one := func() []hansard.Event { return []hansard.Event{{Data: fmt.Appendf(nil, "%d", step)}} }
	at := func() *hansard.Seq {
		info, err := s.Stat(ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		return hansard.At(info.LastSeq)
	}
	key := func() string { return fmt.Sprint("key ", step) }
	kinds := []struct {
		name  string
		trips int
		batch func() hansard.Batch
	}{
		{"plain", 1, func() hansard.Batch { return hansard.Batch{Events: one()} }},
		{"of 100 events", 1, func() hansard.Batch {
			var b hansard.Batch
			for range 100 {
				b.Events = append(b.Events, one()...)
			}
			return b
		}},
		{"for the inbox", 1, func() hansard.Batch { return hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), Inbox: true}}} }},
		{"to be created, and there", 1, func() hansard.Batch { return hansard.Batch{Events: one(), Create: true} }},
		{"with a key", 1, func() hansard.Batch { return hansard.Batch{Events: one(), Key: key()} }},
		{"with an expectation", 1, func() hansard.Batch { return hansard.Batch{Events: one(), Expect: at()} }},
		{"with a grant", 1, func() hansard.Batch { return hansard.Batch{Events: one(), Turn: turn.Grant} }},
		{"with all three", 1, func() hansard.Batch {
			return hansard.Batch{Events: one(), Key: key(), Expect: at(), Turn: turn.Grant}
		}},
		{"with a patch", 2, func() hansard.Batch {
			title = fmt.Sprint("title ", step)
			return hansard.Batch{Events: one(), Patch: &hansard.Patch{Title: &title}}
		}},
		{"that names an attachment", 2, func() hansard.Batch {
			return hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), Attachments: []hansard.Attachment{picture}}}}
		}},
		{"with a known key", 3, func() hansard.Batch { return hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}, Key: "known"} }},
		{"with a wrong expectation", 3, func() hansard.Batch { return hansard.Batch{Events: one(), Expect: hansard.At(1_000_000)} }},
		{"with a void grant", 3, func() hansard.Batch { return hansard.Batch{Events: one(), Turn: "9-00000000000000aa"} }},
	}
	// The first rounds prepare the statements; in the first, the key is not known yet.
	for round := range 4 {
		for _, k := range kinds {
			step++
			b := k.batch()
			trips := tap.During(tellOthers, func() {
				_, err := s.Append(ctx, "s", b)
				if refused := strings.Contains(k.name, "wrong") || strings.Contains(k.name, "void"); (err != nil) != refused {
					t.Errorf("an append %s: %v", k.name, err)
				}
			})
			if round < 2 {
				continue
			}
			if len(trips) != k.trips {
				t.Errorf("an append %s took %d round trips, want %d: %q", k.name, len(trips), k.trips, trips)
				continue
			}
			if k.trips != 2 && !slices.ContainsFunc([]pgtest.Trip{{appendOne, shelve}, {appendShelved}, {namedOne, shelve}, {namedShelved}, {appendPlain, shelve}}, func(t pgtest.Trip) bool { return slices.Equal(t, trips[0]) }) {
				t.Errorf("an append %s begins with %.300q, and not with the one statement", k.name, trips[0])
			}
			for _, trip := range trips {
				if strings.Contains(strings.Join(trip, "; "), "pg_notify") {
					t.Errorf("an append %s tells others in its own round trip: %q", k.name, trip)
				}
			}
		}
	}
}

// TestCombined: appends to a session that arrive while one is in flight are sent together: 64 at
// once take two round trips, the first one's and one for all the others.
func TestCombined(t *testing.T) {
	const n = 64
	tap, s := tapStore(t)
	ctx := t.Context()
	write := func(i int) <-chan outcome[hansard.Receipt] {
		b := hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}
		if i%2 == 0 {
			b.Key = fmt.Sprint("key ", i)
		}
		return later(func() (hansard.Receipt, error) { return s.Append(ctx, "s", b) })
	}
	for i := range 2 { // prepares the statements
		if first := <-write(-2 - 2*i); first.err != nil {
			t.Fatal(first.err)
		}
	}
	if _, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}, {Data: []byte("2")}}}); err != nil {
		t.Fatal(err)
	}
	var receipts []<-chan outcome[hansard.Receipt]
	got := map[hansard.Seq]bool{}
	trips := tap.During(tellOthers, func() {
		s.lock()
		receipts = append(receipts, write(0))
		s.waiting(1)
		for i := range n - 1 {
			receipts = append(receipts, write(i+1))
		}
		until(t, "the others queue up behind the first", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			l := s.lanes["s"]
			return l != nil && len(l.waiting) == n-1
		})
		s.exec("COMMIT")
		for _, r := range receipts {
			r := <-r
			if r.err != nil {
				t.Error(r.err)
			}
			got[r.value.First] = true
		}
	})
	if len(got) != n {
		t.Errorf("%d appends were given %d seqs", n, len(got))
	}
	// Occasionally a cleaner is at work at the same time.
	trips = slices.DeleteFunc(trips, func(trip pgtest.Trip) bool {
		return strings.Contains(strings.Join(trip, "; "), "FROM hansard_attachments WHERE digest IS NULL")
	})
	if len(trips) != 2 {
		t.Errorf("%d appends at once took %d round trips, want 2: %.300q", n, len(trips), trips)
	}
}
