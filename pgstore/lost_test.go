package pgstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
)

// soundLog reads the log of session s: it must have this many events and be sound.
func soundLog(t *testing.T, s *Store, want int) (log []hansard.Event) {
	t.Helper()
	for e, err := range s.Read(t.Context(), "s", hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, e)
	}
	if len(log) != want {
		t.Fatalf("the log has %d events, want %d: %+v", len(log), want, log)
	}
	for f, err := range s.Verify(t.Context(), "s") {
		if err != nil || f.Level != hansard.LevelOK {
			t.Errorf("%+v, %v", f, err)
		}
	}
	return log
}

// TestLostConnection: if a connection is lost in the middle of a write, before the server got it
// or after it was carried out, the caller does not see the error. The write is stored once, and
// the receipt says where.
func TestLostConnection(t *testing.T) {
	title := "patched"
	one := []hansard.Event{{Data: []byte("1")}}
	patch := &hansard.Patch{Title: &title}
	silent := hansard.Claim{Exclusive: true, TTL: hansard.MinTTL}
	for name, c := range map[string]struct {
		held  *hansard.Claim // the claim of a former holder
		batch hansard.Batch
		lost  string
	}{
		"plain":                        {nil, hansard.Batch{Events: one}, appendOne},
		"key":                          {nil, hansard.Batch{Events: one, Key: "k"}, namedOne},
		"expectation":                  {nil, hansard.Batch{Events: one, Expect: hansard.At(0)}, appendOne},
		"patch":                        {nil, hansard.Batch{Events: one, Patch: patch}, "COMMIT"},
		"past a silent holder":         {&silent, hansard.Batch{Events: one}, "COMMIT"},
		"key past a silent holder":     {&silent, hansard.Batch{Events: one, Key: "k"}, "COMMIT"},
		"patch past a silent holder":   {&silent, hansard.Batch{Events: one, Patch: patch}, "COMMIT"},
		"asking past a silent holder":  {&silent, hansard.Batch{Events: one}, appendOne},
		"expects past a silent holder": {&silent, hansard.Batch{Events: one, Expect: hansard.At(1)}, "COMMIT"},
	} {
		for _, heard := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/heard %v", name, heard), func(t *testing.T) {
				tap, s := tapStore(t)
				before := hansard.Seq(0)
				if c.held != nil {
					turn := stolen(t, s, *c.held)
					s.pass(turn.Renewed.Add(turn.TTL))
					before = 2 // the grant and its end
				}
				tap.Lose(pgtest.Loss{SQL: c.lost, Heard: heard})
				want := hansard.Receipt{Session: "s", First: before + 1, Last: before + 1}
				r, err := s.Append(t.Context(), "s", c.batch)
				if replayed := r.Replayed; err != nil || r.First != want.First || r.Last != want.Last || replayed {
					t.Errorf("%+v, %v; want %+v", r, err, want)
				}
				if left := tap.Left(); left > 0 {
					t.Fatal("no connection was lost")
				}
				log := soundLog(t, s.Store, int(want.Last))
				if c.held != nil && (log[1].Kind != hansard.KindTurn || log[2].Turn != "") {
					t.Errorf("the end of the turn and the write behind it: %+v", log[1:])
				}
				if turn, err := s.Turn(t.Context(), "s"); turn != nil || err != nil {
					t.Errorf("the turn afterwards: %+v, %v", turn, err)
				}
				if c.batch.Key != "" {
					want.Replayed = true
					if r, err := s.Append(t.Context(), "s", c.batch); err != nil || !reflect.DeepEqual(r, want) {
						t.Errorf("the caller's own retry: %+v, %v; want %+v", r, err, want)
					}
				}
			})
		}
	}
}

// TestLostUsualAppend: the same for the statements of the usual append, which are sent without a
// batch: whether they were prepared before or are sent for the first time.
func TestLostUsualAppend(t *testing.T) {
	one := []hansard.Event{{Data: []byte("1")}}
	for name, c := range map[string]struct {
		batch hansard.Batch
		lost  string
	}{
		"plain": {hansard.Batch{Events: one}, appendShelved},
		"key":   {hansard.Batch{Events: one, Key: "k"}, namedShelved},
		"id":    {hansard.Batch{Events: []hansard.Event{{ID: "i", Data: []byte("1")}}}, namedShelved},
	} {
		for _, heard := range []bool{false, true} {
			for _, prepared := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/heard %v/prepared %v", name, heard, prepared), func(t *testing.T) {
					tap, s := tapStore(t)
					stored := hansard.Seq(0)
					add := func(b hansard.Batch) {
						t.Helper()
						stored++
						if r, err := s.Append(t.Context(), "s", b); err != nil || r.Replayed || r.Last != stored {
							t.Errorf("%+v, %v; want seq %d", r, err, stored)
						}
					}
					add(hansard.Batch{Events: one, Key: "first"}) // from now on the session has its place in the list
					if prepared {
						add(hansard.Batch{Events: one})
						add(hansard.Batch{Events: one, Key: "second"})
					}
					tap.Lose(pgtest.Loss{SQL: c.lost, Heard: heard})
					add(c.batch)
					if tap.Left() > 0 {
						t.Fatal("no connection was lost")
					}
					if name != "plain" { // a retry stores nothing
						if r, err := s.Append(t.Context(), "s", c.batch); err != nil || !r.Replayed {
							t.Errorf("the retry: %+v, %v", r, err)
						}
					}
					soundLog(t, s.Store, int(stored))
				})
			}
		}
	}
}

// TestLostAndLate: a statement delayed by the network is carried out after it was sent again,
// just when the answer to that is lost too. The lookup under its mark returns what was stored,
// not what would have been stored or refused.
func TestLostAndLate(t *testing.T) {
	late := []hansard.Event{{Data: []byte(`"late"`)}}
	for name, c := range map[string]struct {
		before    func(ctx context.Context, s *Store) error
		meanwhile func(ctx context.Context, s *Store) error
		batch     hansard.Batch
		want      hansard.Seq
	}{
		"behind another": {
			meanwhile: func(ctx context.Context, s *Store) error {
				_, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}})
				return err
			}, batch: hansard.Batch{Events: late}, want: 2},
		"behind a refusal": {
			before: func(ctx context.Context, s *Store) error {
				_, err := s.Acquire(ctx, "s", hansard.Claim{Exclusive: true})
				return err
			},
			meanwhile: func(ctx context.Context, s *Store) error {
				turn, err := s.Turn(ctx, "s")
				if err != nil {
					return err
				}
				return s.Release(ctx, "s", turn.Grant)
			}, batch: hansard.Batch{Events: late}, want: 3},
		"as expected": {
			meanwhile: func(context.Context, *Store) error { return nil },
			batch:     hansard.Batch{Events: late, Expect: hansard.At(0)}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			tap, s := tapStore(t)
			other, err := Open(t.Context(), s.server.URL(schemaIn(t, s)), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if c.before != nil {
				if err := c.before(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			}
			release, delivered := make(chan struct{}), make(chan struct{})
			tap.Lose(
				pgtest.Loss{SQL: appendOne, Late: release, Then: func() { close(delivered) }},
				pgtest.Loss{SQL: "COMMIT", Then: func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					if err := c.meanwhile(ctx, other); err != nil {
						t.Error(err)
					}
					close(release)
					<-delivered
				}},
			)
			if r, err := s.Append(t.Context(), "s", c.batch); err != nil || r.First != c.want || r.Last != c.want {
				t.Errorf("%+v, %v; want seq %d", r, err, c.want)
			}
			if log := soundLog(t, s.Store, int(c.want)); string(log[c.want-1].Data) != `"late"` {
				t.Errorf("the log: %+v", log)
			}
		})
	}
}

// TestLostTwice: if a statement and what came after it would begin at the same seq and are not
// the same, the outcome is unknown, and no seq is reported.
func TestLostTwice(t *testing.T) {
	tap, s := tapStore(t)
	turn := stolen(t, s, hansard.Claim{Exclusive: true, TTL: hansard.MinTTL})
	s.pass(turn.Renewed.Add(turn.TTL))
	b := hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}, Key: "k"}
	tap.Lose(pgtest.Loss{SQL: namedOne}, pgtest.Loss{SQL: "COMMIT", Heard: true})
	if r, err := s.Append(t.Context(), "s", b); !errors.Is(err, hansard.ErrUnknown) {
		t.Errorf("%+v, %v; want that the outcome is unknown", r, err)
	}
	if r, err := s.Append(t.Context(), "s", b); err != nil || !r.Replayed || r.First != 3 {
		t.Errorf("the retry with its key: %+v, %v; want seq 3", r, err)
	}
	soundLog(t, s.Store, 3)
}

// TestLostThenRefused: as long as a statement may still arrive, an error of the database does not
// mean that nothing is stored.
func TestLostThenRefused(t *testing.T) {
	for _, code := range []string{diskFull, queryCanceled} {
		tap, s := tapStore(t)
		s.exec(fmt.Sprintf(`CREATE FUNCTION refuse_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION 'refused' USING ERRCODE = '%s'; END $$`, code))
		s.exec("CREATE TRIGGER refuse_all BEFORE INSERT ON hansard_events FOR EACH ROW EXECUTE FUNCTION refuse_all()")
		b := hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}
		if _, err := s.Append(t.Context(), "s", b); err == nil || errors.Is(err, hansard.ErrUnknown) {
			t.Errorf("%s, with nothing on its way: %v", code, err)
		}
		tap.Lose(pgtest.Loss{SQL: appendOne})
		if _, err := s.Append(t.Context(), "s", b); !errors.Is(err, hansard.ErrUnknown) {
			t.Errorf("%s, with a statement on its way: %v", code, err)
		}
	}
}

// schemaIn is the schema of a store.
func schemaIn(t testing.TB, s *blocking) (name string) {
	t.Helper()
	if err := s.conn.QueryRow(t.Context(), "SELECT current_schema()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}
