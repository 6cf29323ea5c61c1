package pgstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"hansard"
	"hansard/engine"
	"hansard/internal/pgtest"
)

// long imports a session of several pages.
func long(t *testing.T, s *Store, id hansard.SessionID, events int) {
	t.Helper()
	p := hansard.Part{Origin: hansard.Origin{ID: id, Created: engine.Now()}}
	for i := range events {
		p.Events = append(p.Events, hansard.Event{Seq: hansard.Seq(i + 1), Time: engine.Now(), Kind: "message", Data: []byte("1")})
	}
	if err := s.Import(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// one returns the finding of verify for a session.
func one(t *testing.T, s *Store, id hansard.SessionID) (found hansard.Finding) {
	t.Helper()
	for f, err := range s.Verify(t.Context(), id) {
		if err != nil {
			t.Fatal(err)
		}
		found = f
	}
	return found
}

// TestVerifyInPages: a long log is verified page by page. Damage after the first page is found; a
// lost connection costs one page; events appended meanwhile do not count, and a session deleted
// meanwhile is not damage.
func TestVerifyInPages(t *testing.T) {
	tap, s := tapStore(t)
	const events = 2*pageEvents + 200
	long(t, s.Store, "l", events)
	if f := one(t, s.Store, "l"); f.Level != hansard.LevelOK || f.Events != events {
		t.Errorf("a sound one: %+v", f)
	}
	tap.Lose(pgtest.Loss{SQL: verifyPage}, pgtest.Loss{SQL: verifyPage}, pgtest.Loss{SQL: verifyPage, Heard: true})
	if f := one(t, s.Store, "l"); f.Level != hansard.LevelOK || f.Events != events || tap.Left() > 0 {
		t.Errorf("with %d losses left: %+v", tap.Left(), f)
	}

	grows := &examination{id: "l"}
	if err := grows.start(t.Context(), s.Store); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), "l", hansard.Batch{Events: []hansard.Event{{Data: []byte("2")}}}); err != nil {
		t.Fatal(err)
	}
	if err := grows.rest(t.Context(), s.Store); err != nil {
		t.Fatal(err)
	}
	if grows.compare(); grows.wrong != "" || grows.seq != events {
		t.Errorf("appended to meanwhile: %q, %d events", grows.wrong, grows.seq)
	}

	goes := &examination{id: "l"}
	if err := goes.start(t.Context(), s.Store); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "l", ""); err != nil {
		t.Fatal(err)
	}
	if err := goes.rest(t.Context(), s.Store); !errors.Is(err, hansard.ErrDeleted) {
		t.Errorf("deleted meanwhile: %v", err)
	}

	for seq, says := range map[int64]string{1100: "seq 1101 follows seq 1099", events: "the last seq is said to be"} {
		id := hansard.SessionID(fmt.Sprint("without-", seq))
		long(t, s.Store, id, events)
		s.exec("DELETE FROM hansard_events WHERE id = $1 AND seq = $2", string(id), seq)
		if f := one(t, s.Store, id); f.Level != hansard.LevelDamage || f.Events != hansard.Seq(seq-1) || !strings.Contains(f.Message, says) {
			t.Errorf("without seq %d: %+v, want %q", seq, f, says)
		}
	}
}

// TestVerifyManyOrphans: rows without a session are found, once per session, however many pages
// of them there are.
func TestVerifyManyOrphans(t *testing.T) {
	s := newBlocking(t, "")
	const orphans = 2300
	s.exec(`INSERT INTO hansard_listing SELECT 'o' || g, l, now() FROM generate_series(1, $1::integer) g, unnest(ARRAY['', 'a=b']) l`, orphans)
	s.exec(`INSERT INTO hansard_sessions SELECT 'o' || g, '', '{}', '', '{}' FROM generate_series(1, 10) g`)
	found := map[hansard.SessionID]int{}
	for f, err := range s.Verify(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if f.Level == hansard.LevelDamage {
			found[f.Session]++
		}
	}
	for id, times := range found {
		if times != 1 {
			t.Errorf("%s is told of %d times", id, times)
		}
	}
	if len(found) != orphans {
		t.Errorf("%d sessions without a head, want %d", len(found), orphans)
	}
}
