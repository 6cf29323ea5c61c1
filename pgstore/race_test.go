package pgstore

import (
	"context"
	"fmt"
	"testing"

	"hansard"
)

// TestRepeatedAfterRace: a statement that PostgreSQL aborts because of another one (a
// serialization failure, a deadlock) is sent again, and the caller does not see the error: it is
// stored once.
func TestRepeatedAfterRace(t *testing.T) {
	title := "patched"
	one := []hansard.Event{{Data: []byte("1")}}
	add := func(b hansard.Batch) func(context.Context, *Store) error {
		return func(ctx context.Context, s *Store) error {
			_, err := s.Append(ctx, "s", b)
			return err
		}
	}
	for name, write := range map[string]func(context.Context, *Store) error{
		"append":              add(hansard.Batch{Events: one}),
		"append with a patch": add(hansard.Batch{Events: one, Patch: &hansard.Patch{Title: &title}}),
		"acquire": func(ctx context.Context, s *Store) error {
			_, err := s.Acquire(ctx, "s", hansard.Claim{})
			return err
		},
	} {
		for _, code := range []string{"40001", "40P01"} {
			t.Run(name+"/"+code, func(t *testing.T) {
				s := newBlocking(t, "")
				// A sequence counts the failures: sequences are not rolled back.
				s.exec("CREATE SEQUENCE tries")
				s.exec(fmt.Sprintf(`CREATE FUNCTION lose_races() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF nextval('tries') <= 3 THEN RAISE EXCEPTION 'lost a race' USING ERRCODE = '%s'; END IF;
					RETURN NEW; END $$`, code))
				s.exec("CREATE TRIGGER lose_races BEFORE INSERT ON hansard_events FOR EACH ROW EXECUTE FUNCTION lose_races()")
				if err := write(t.Context(), s.Store); err != nil {
					t.Error(err)
				}
				var tries int
				if err := s.conn.QueryRow(t.Context(), "SELECT last_value FROM tries").Scan(&tries); err != nil || tries != 4 {
					t.Errorf("%d attempts, want 3 that lost and one that did not (%v)", tries, err)
				}
				soundLog(t, s.Store, 1)
			})
		}
	}
}
