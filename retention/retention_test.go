package retention_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/memstore"
	"hansard/retention"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// aged makes a session whose last event is some days old.
func aged(t *testing.T, s hansard.Importer, id hansard.SessionID, days int, labels map[string]string) {
	t.Helper()
	at := now.AddDate(0, 0, -days)
	must(t, s.Import(t.Context(), hansard.Part{
		Origin: hansard.Origin{ID: id, Created: at, Meta: hansard.Meta{Labels: labels}},
		Events: []hansard.Event{{Seq: 1, Time: at, Kind: "message", Data: []byte(`"hello"`)}},
	}))
}

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func engines(t *testing.T, run func(t *testing.T, s hansard.Importer)) {
	t.Run("memory", func(t *testing.T) { run(t, memstore.New()) })
	t.Run("files", func(t *testing.T) {
		s, err := filestore.Open(t.TempDir(), nil)
		must(t, err)
		defer s.Close()
		run(t, s)
	})
}

// TestSelect: which sessions a rule selects, and why some are left.
func TestSelect(t *testing.T) {
	engines(t, func(t *testing.T, s hansard.Importer) {
		aged(t, s, "new", 1, nil)
		aged(t, s, "d30", 30, map[string]string{"team": "a"})
		aged(t, s, "d60", 60, map[string]string{"archived": "true"})
		aged(t, s, "d100", 100, map[string]string{"team": "a", "archived": ""})
		aged(t, s, "d200", 200, map[string]string{"pinned": "true", "team": "a"})
		aged(t, s, "d300", 300, map[string]string{"team": "b"})
		day := 24 * time.Hour
		for want, rule := range map[string]retention.Rule{
			"d100 d200/pinned d300":     {OlderThan: 90 * day},
			"d200/pinned d300":          {OlderThan: 90 * day, Keep: 4},
			"d60 d100 d200/pinned d300": {Keep: 2},
			"":                          {OlderThan: 90 * day, Keep: 6},
			"d100 d200/pinned":          {OlderThan: 90 * day, Labels: map[string]string{"team": "a"}},
			"d200/pinned":               {Keep: 2, Labels: map[string]string{"team": "a"}},
			"d60 d100":                  {OlderThan: day, Archived: true},
			"d100":                      {Keep: 1, Archived: true},
		} {
			got := ""
			for c, err := range retention.Select(t.Context(), s, rule, now) {
				must(t, err)
				if got != "" {
					got += " "
				}
				if got += string(c.ID); c.Left != "" {
					got += "/" + c.Left
				}
			}
			if got != want {
				t.Errorf("%+v selects %q, want %q", rule, got, want)
			}
		}
		for _, rule := range []retention.Rule{{}, {Archived: true}, {Labels: map[string]string{"team": "a"}}, {Keep: -1}, {OlderThan: -1}} {
			for _, err := range retention.Select(t.Context(), s, rule, now) {
				if !errors.Is(err, hansard.ErrInvalid) {
					t.Errorf("%+v: %v", rule, err)
				}
			}
		}
	})
}

// TestHeld: a session whose turn is held is left.
func TestHeld(t *testing.T) {
	engines(t, func(t *testing.T, s hansard.Importer) {
		aged(t, s, "s", 100, nil)
		turn, err := s.Acquire(t.Context(), "s", hansard.Claim{})
		must(t, err)
		info, err := s.Stat(t.Context(), "s")
		must(t, err)
		for c, err := range retention.Select(t.Context(), s, retention.Rule{OlderThan: time.Nanosecond}, time.Now().Add(time.Hour)) {
			if err != nil || c.Left != retention.Held {
				t.Errorf("%+v, %v", c, err)
			}
		}
		if left, err := retention.Delete(t.Context(), s, &info); left != retention.Held || err != nil {
			t.Errorf("%q, %v", left, err)
		}
		must(t, s.Release(t.Context(), "s", turn.Grant))
		if info, err = s.Stat(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if left, err := retention.Delete(t.Context(), s, &info); left != "" || err != nil {
			t.Errorf("%q, %v", left, err)
		}
		if _, err := s.Stat(t.Context(), "s"); !errors.Is(err, hansard.ErrDeleted) {
			t.Error(err)
		}
		if left, err := retention.Delete(t.Context(), s, &info); left != retention.Gone || err != nil {
			t.Errorf("again: %q, %v", left, err)
		}
	})
}

// between does something at a moment of a deletion.
type between struct {
	hansard.Store
	beforeAcquire, beforeStat, beforeDelete func()
}

func (b *between) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	b.beforeAcquire()
	return b.Store.Acquire(ctx, id, c)
}

func (b *between) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	b.beforeStat()
	return b.Store.Stat(ctx, id)
}

func (b *between) Delete(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	b.beforeDelete()
	return b.Store.Delete(ctx, id, g)
}

// TestRaces: whatever another does to the session at whatever moment, it is left, or the
// other is refused: nothing that was acknowledged is deleted.
func TestRaces(t *testing.T) {
	text := func(inbox bool) hansard.Batch {
		e := hansard.Message("user", "wait")
		e.Inbox = inbox
		return hansard.Batch{Events: []hansard.Event{e}}
	}
	yes := "true"
	doings := map[string]func(ctx context.Context, s hansard.Store) error{
		"append": func(ctx context.Context, s hansard.Store) error {
			_, err := s.Append(ctx, "s", text(false))
			return err
		},
		"inbox": func(ctx context.Context, s hansard.Store) error { _, err := s.Append(ctx, "s", text(true)); return err },
		"pin": func(ctx context.Context, s hansard.Store) error {
			_, err := s.Append(ctx, "s", hansard.Batch{Patch: &hansard.Patch{Labels: map[string]*string{hansard.LabelPinned: &yes}}})
			return err
		},
		"take": func(ctx context.Context, s hansard.Store) error {
			_, err := s.Acquire(ctx, "s", hansard.Claim{})
			return err
		},
		"steal": func(ctx context.Context, s hansard.Store) error {
			_, err := s.Acquire(ctx, "s", hansard.Claim{Steal: "mine"})
			return err
		},
	}
	engines(t, func(t *testing.T, s hansard.Importer) {
		n := 0
		for name, do := range doings {
			for _, moment := range []string{"before the turn", "before the look", "before the deletion"} {
				n++
				id := hansard.SessionID("s")
				aged(t, s, id, 100, nil)
				info, err := s.Stat(t.Context(), id)
				must(t, err)
				var done error
				act := func(when string) func() {
					return func() {
						if when == moment {
							done = do(t.Context(), s)
						}
					}
				}
				guarded := &between{s, act("before the turn"), act("before the look"), act("before the deletion")}
				left, err := retention.Delete(t.Context(), guarded, &info)
				if err != nil {
					t.Errorf("%s %s: %v", name, moment, err)
				}
				known := name == "inbox" && moment == "before the deletion" // documented
				if deleted := left == ""; deleted == (done == nil) && !known {
					t.Errorf("%s %s: it was answered %v, and the session left because of %q", name, moment, done, left)
				}
				if left != "" && name != "take" && name != "steal" {
					if turn, err := s.Turn(t.Context(), id); err != nil || turn != nil {
						t.Errorf("%s %s: the turn is %+v, %v", name, moment, turn, err)
					}
				}
				if left != "" {
					turn, _ := s.Turn(t.Context(), id)
					if turn != nil {
						must(t, s.Release(t.Context(), id, turn.Grant))
					}
				}
				s = another(t, s)
			}
		}
		if n != 15 {
			t.Errorf("%d cases", n)
		}
	})
}

// another is a fresh store of the same kind.
func another(t *testing.T, s hansard.Importer) hansard.Importer {
	t.Helper()
	if _, files := s.(*filestore.Store); files {
		fresh, err := filestore.Open(t.TempDir(), nil)
		must(t, err)
		t.Cleanup(func() { must(t, fresh.Close()) })
		return fresh
	}
	return memstore.New()
}

// TestDamaged: a damaged session is left.
func TestDamaged(t *testing.T) {
	left, err := retention.Delete(t.Context(), damaged{memstore.New()}, &hansard.Info{ID: "s"})
	if left != retention.Damaged || err != nil {
		t.Errorf("%q, %v", left, err)
	}
	for c, err := range retention.Select(t.Context(), damaged{memstore.New()}, retention.Rule{OlderThan: time.Hour}, now) {
		if err != nil || fmt.Sprint(c.ID, c.Left) != "s"+retention.Damaged && fmt.Sprint(c.ID, c.Left) != "u"+retention.Unreadable {
			t.Errorf("%+v, %v", c, err)
		}
	}
}

type damaged struct{ *memstore.Store }

func (damaged) Acquire(context.Context, hansard.SessionID, hansard.Claim) (hansard.Turn, error) {
	return hansard.Turn{}, &hansard.DamagedError{Session: "s"}
}

func (damaged) List(context.Context, hansard.Query) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) {
		_ = yield(hansard.Info{ID: "s", Damage: &hansard.DamagedError{}}, nil) && yield(hansard.Info{ID: "u", Unreadable: "no right"}, nil)
	}
}
