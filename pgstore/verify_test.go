package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/pgstore"
	"hansard/storetest"
)

// fillForVerify makes session "s", of 10 events: 1 to 3 in a batch with a key, 4 the grant of a
// turn that is held, 5 and 6 a batch with a key and a patch under it, and single ones, of which 7
// and 8 name an attachment of two parts. No event names another attachment. Session "t" is sound,
// and stays so.
func fillForVerify(t *testing.T, s *pgstore.Store) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	title := "patched"
	for _, id := range []hansard.SessionID{"s", "t"} {
		_, err := s.Create(ctx, id, hansard.Meta{Title: "made", Labels: map[string]string{"team": "red"}})
		must(err)
		_, err = s.Append(ctx, id, hansard.Batch{Events: storetest.Marked("w", 0, 3, 0), Key: "a"})
		must(err)
		turn, err := s.Acquire(ctx, id, hansard.Claim{})
		must(err)
		_, err = s.Append(ctx, id, hansard.Batch{Events: storetest.Marked("w", 1, 2, 0), Key: "b", Turn: turn.Grant, Patch: &hansard.Patch{Title: &title}})
		must(err)
		_, err = s.Attach(ctx, id, strings.NewReader("not named"))
		must(err)
		attached, err := s.Attach(ctx, id, strings.NewReader(strings.Repeat("0123456789abcdef", 1<<16)+"the rest"))
		must(err)
		for i := range 4 {
			events := storetest.Marked("w", 2+i, 1, 0)
			if i < 2 {
				events[0].Attachments = []hansard.Attachment{attached}
			}
			if i > 0 {
				events[0].ID = fmt.Sprint("id ", i) // the seqs 8 to 10
			}
			_, err = s.Append(ctx, id, hansard.Batch{Events: events})
			must(err)
		}
	}
	_, err := s.Create(ctx, "gone", hansard.Meta{})
	must(err)
	must(s.Delete(ctx, "gone", ""))
}

// TestVerifyFindsDamage: changes made to the tables from outside are found in the session they
// were made to, and in no other.
func TestVerifyFindsDamage(t *testing.T) {
	server := pgtest.Shared(t)
	for _, c := range []struct {
		sql  string
		safe hansard.Seq // events before the damage
		says string
	}{
		{"UPDATE hansard_heads SET bytes = bytes WHERE id = 's'", 10, ""}, // nothing is wrong
		{"DELETE FROM hansard_events WHERE id = 's' AND seq = 8", 7, "seq 9 follows seq 7"},
		{"DELETE FROM hansard_events WHERE id = 's' AND seq = 1", 0, "seq 2 follows seq 0"},
		{"DELETE FROM hansard_events WHERE id = 's' AND seq = 10", 9, "the last seq is said to be 10, the log has 9"},
		{"DELETE FROM hansard_events WHERE id = 's'", 0, "the last seq is said to be 10, the log has 0"},
		{"UPDATE hansard_heads SET last = 12 WHERE id = 's'", 10, "the last seq is said to be 12, the log has 10"},
		{"UPDATE hansard_heads SET last = 9 WHERE id = 's'", 10, "the last seq is said to be 9, the log has 10"},
		{"UPDATE hansard_heads SET bytes = 7 WHERE id = 's'", 10, "its row says 7 bytes"},
		{"UPDATE hansard_heads SET updated = updated + interval '1 hour' WHERE id = 's'", 10, "it was updated at"},
		{"UPDATE hansard_heads SET turn = '', current = '' WHERE id = 's'", 10, "the turn is said to be"},
		{"UPDATE hansard_heads SET current = '1-00000000000000aa' WHERE id = 's'", 10, "the turn is said to be"},
		{"UPDATE hansard_heads SET exclusive = true WHERE id = 's'", 10, "the turn is said to be exclusive"},
		{"UPDATE hansard_heads SET newest = '9-00000000000000aa' WHERE id = 's'", 10, "the turn is said to be"},
		{"UPDATE hansard_heads SET turn = '{' WHERE id = 's'", 10, "hansard_heads.turn"},
		{"UPDATE hansard_events SET turn = '1-00000000000000aa' WHERE id = 's' AND seq = 6", 5, "1-00000000000000aa"},
		{"UPDATE hansard_events SET data = '{' WHERE id = 's' AND seq = 7", 6, "the data of seq 7 is not JSON"},
		{"UPDATE hansard_events SET data = '1' WHERE id = 's' AND seq = 7", 10, "bytes"},
		{"UPDATE hansard_events SET patch = '{' WHERE id = 's' AND seq = 6", 5, "the patch of seq 6"},
		{"UPDATE hansard_events SET patch = NULL WHERE id = 's' AND patch IS NOT NULL", 10, "not what its patches lead to"},
		{"UPDATE hansard_events SET size = 20 WHERE id = 's' AND seq = 5", 10, "the batch at seq 5 has 20 events"},
		{"UPDATE hansard_events SET size = 0 WHERE id = 's' AND seq = 5", 10, "the batch at seq 5 has 0 events"},
		{"UPDATE hansard_events SET size = 5 WHERE id = 's' AND seq = 1", 10, "the batch at seq 5 begins inside the one at seq 1"},
		{"UPDATE hansard_events SET hash = NULL WHERE id = 's' AND seq = 5", 10, "the key at seq 5"},
		{"UPDATE hansard_events SET size = NULL WHERE id = 's' AND seq = 5", 10, "the key at seq 5"},
		{"UPDATE hansard_events SET content = 'other' WHERE id = 's' AND seq = 8", 10, "the hash at seq 8 is not that of its event"},
		{"UPDATE hansard_events SET event_id = 'other' WHERE id = 's' AND seq = 8", 10, "the hash at seq 8 is not that of its event"},
		{"UPDATE hansard_events SET event_id = NULL WHERE id = 's' AND seq = 8", 10, "the hash at seq 8 is not that of its event"},
		{"UPDATE hansard_sessions SET title = 'other' WHERE id = 's'", 10, "not what its patches lead to"},
		{"UPDATE hansard_sessions SET labels = '[]' WHERE id = 's'", 10, "hansard_sessions.labels"},
		{"UPDATE hansard_sessions SET born = '{' WHERE id = 's'", 10, "hansard_sessions.born"},
		{"DELETE FROM hansard_sessions WHERE id = 's'", 10, "no row in hansard_sessions"},
		{"DELETE FROM hansard_listing WHERE id = 's'", 10, "it is listed as"},
		{"DELETE FROM hansard_listing WHERE id = 's' AND label = 'team=red'", 10, "it is listed as"},
		{"UPDATE hansard_listing SET listed = listed - interval '1 hour' WHERE id = 's'", 10, "it is listed under"},
		{"DELETE FROM hansard_heads WHERE id = 's'", 0, "it has no row in hansard_heads"},
		{"DELETE FROM hansard_heads WHERE id = 's'; DELETE FROM hansard_sessions WHERE id = 's'; DELETE FROM hansard_listing WHERE id = 's'", 0, "it has no row in hansard_heads"},
		{"INSERT INTO hansard_listing VALUES ('gone', '', now())", 0, "is deleted, and still has rows"},
		{"INSERT INTO hansard_attachments (id, upload, size, made) VALUES ('gone', 'u', 0, now())", 0, "is deleted, and still has rows"},
		{"INSERT INTO hansard_attachment_parts VALUES ('gone', 'u', 0, '')", 0, "is deleted, and still has rows"},
		{"INSERT INTO hansard_attachments (id, upload, size, made) VALUES ('s', 'under way', 1, now())", 10, ""}, // nothing is wrong
		{"UPDATE hansard_events SET attachments = '{' WHERE id = 's' AND seq = 7", 6, "the attachments of seq 7"},
		{"UPDATE hansard_events SET attachments = NULL WHERE id = 's' AND seq = 8", 10, "the hash at seq 8 is not that of its event"},
		{"UPDATE hansard_events SET attachments = replace(attachments, ':1048584', ':7') WHERE id = 's' AND seq = 7", 10, "seq 7 says that attachment sha256:"},
		{"DELETE FROM hansard_attachments WHERE id = 's' AND named", 10, "seq 7 names attachment sha256:"},
		{"UPDATE hansard_attachments SET named = false WHERE id = 's'", 10, "as one that no event names"},
		{"UPDATE hansard_attachments SET size = size + 1 WHERE id = 's' AND NOT named", 10, "has 9 bytes in part 0 of 10 bytes, want 10"},
		{"DELETE FROM hansard_attachment_parts WHERE id = 's' AND n = 1", 10, "has 0 bytes in part 1 of 1048584 bytes, want 8"},
		{"DELETE FROM hansard_attachment_parts WHERE id = 's' AND n = 0", 10, "has 0 bytes in part 0 of"},
		{"UPDATE hansard_attachment_parts SET bytes = '12345678' WHERE id = 's' AND n = 1", 10, "has other bytes than its digest says"},
		{"UPDATE hansard_attachment_parts SET bytes = '1234567' WHERE id = 's' AND n = 1", 10, "has 7 bytes in part 1"},
		{"INSERT INTO hansard_attachment_parts SELECT id, upload, 2, '123' FROM hansard_attachments WHERE id = 's' AND named", 10, "its parts have 1048587"},
	} {
		t.Run(c.sql, func(t *testing.T) {
			url := server.Schema(t)
			s := open(t, url)
			defer s.Close()
			fillForVerify(t, s)
			server.Exec(t, "SET search_path = "+schemaOf(url)+"; "+c.sql)
			sound, damaged := 0, ""
			for f, err := range s.Verify(t.Context(), "") {
				switch {
				case err != nil:
					t.Errorf("verify could not look: %v", err)
				case f.Level == hansard.LevelOK && f.Events == 10:
					sound++
				case f.Events != c.safe:
					t.Errorf("%d events are said to be safe, want %d: %+v", f.Events, c.safe, f)
					fallthrough
				default:
					damaged += fmt.Sprintf("%s: %s", f.Session, f.Message)
				}
			}
			want := "s: "
			if strings.Contains(c.says, "is deleted") {
				want = "gone: "
			}
			switch {
			case c.says == "" && (damaged != "" || sound != 2):
				t.Errorf("nothing is wrong, and it says %q of one, and that %d are sound", damaged, sound)
			case c.says != "" && (!strings.HasPrefix(damaged, want) || !strings.Contains(damaged, c.says)):
				t.Errorf("it says %q, want %q of %s", damaged, c.says, want)
			}
			if wantSound := 1 + len(want)/len("gone: "); c.says != "" && sound != wantSound {
				t.Errorf("%d are sound, want %d", sound, wantSound)
			}
		})
	}
}

// TestVerifyPassesDeleted: verify goes on after more deleted sessions in a row than it reads at once.
func TestVerifyPassesDeleted(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.Schema(t)
	s := open(t, url)
	defer s.Close()
	fillForVerify(t, s)
	for _, id := range []string{"gone", "u"} { // before the sessions, and after them
		server.Exec(t, "INSERT INTO "+schemaOf(url)+".hansard_heads (id, last, bytes, created, updated, listed, mark, deleted) SELECT '"+id+"-' || g, 1, 1, now(), now(), now(), '', true FROM generate_series(1, 2000) g")
	}
	if _, err := s.Create(t.Context(), "v", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	var sound []hansard.SessionID
	for f, err := range s.Verify(t.Context(), "") {
		if err != nil || f.Level != hansard.LevelOK {
			t.Errorf("%+v, %v", f, err)
		}
		sound = append(sound, f.Session)
	}
	if want := []hansard.SessionID{"s", "t", "v"}; !slices.Equal(sound, want) {
		t.Errorf("sound are %q, want %q", sound, want)
	}
}

// TestReadDamage: a read ends before events that were removed from outside, and says so.
func TestReadDamage(t *testing.T) {
	server := pgtest.Shared(t)
	for _, c := range []struct {
		removed string
		r       hansard.Range
		given   int
		safe    hansard.Seq // 0: it does not reach the damage
	}{
		{"seq = 8", hansard.Range{}, 7, 7},
		{"seq = 8", hansard.Range{After: 5}, 2, 7},
		{"seq = 8", hansard.Range{After: 7}, 0, 7},
		{"seq = 8", hansard.Range{Limit: 7}, 7, 0},
		{"seq = 8", hansard.Range{Limit: 8}, 7, 7},
		{"seq = 8", hansard.Range{After: 8}, 2, 0},
		{"seq = 8", hansard.Range{Last: 2}, 2, 0},
		{"seq = 8", hansard.Range{Last: 3}, 1, 7},
		{"seq = 8", hansard.Range{Kinds: []string{"message"}}, 8, 0}, // of 10, one is about the turn
		{"seq = 8", hansard.Range{Before: 8}, 7, 0},
		{"seq = 8", hansard.Range{Before: 9}, 7, 7},
		{"seq = 8", hansard.Range{Reverse: true}, 2, 7},
		{"seq = 8", hansard.Range{Reverse: true, Limit: 2}, 2, 0},
		{"seq = 8", hansard.Range{Reverse: true, After: 8}, 2, 0},
		{"seq = 8", hansard.Range{Reverse: true, After: 7}, 2, 7},
		{"seq = 8", hansard.Range{Reverse: true, Before: 9}, 0, 7},
		{"seq = 8", hansard.Range{Reverse: true, Before: 8, Limit: 3}, 3, 0},
		{"seq = 1", hansard.Range{Reverse: true}, 9, 0},
		{"seq > 8", hansard.Range{Reverse: true}, 0, 8},
		{"seq > 8", hansard.Range{Reverse: true, Limit: 1}, 0, 8},
		{"seq > 8", hansard.Range{Reverse: true, Before: 9}, 8, 0},
		{"seq > 8", hansard.Range{Reverse: true, After: 10}, 0, 0},
		{"seq > 8", hansard.Range{}, 8, 8},
		{"seq > 8", hansard.Range{After: 8}, 0, 8},
		{"seq > 8", hansard.Range{Limit: 8}, 8, 0},
		{"seq > 8", hansard.Range{After: 10}, 0, 0},
	} {
		t.Run(fmt.Sprintf("%s %+v", c.removed, c.r), func(t *testing.T) {
			url := server.Schema(t)
			s := open(t, url)
			defer s.Close()
			fillForVerify(t, s)
			server.Exec(t, "DELETE FROM "+schemaOf(url)+".hansard_events WHERE id = 's' AND "+c.removed)
			given, safe, damaged := 0, hansard.Seq(0), false
			for _, err := range s.Read(t.Context(), "s", c.r) {
				var damage *hansard.DamagedError
				switch {
				case errors.As(err, &damage):
					safe, damaged = damage.SafeSeq, true
				case err != nil:
					t.Fatal(err)
				default:
					given++
				}
			}
			if given != c.given || safe != c.safe || damaged != (c.safe > 0 || c.removed == "seq = 1") {
				t.Errorf("%d events, damaged %v, and safe up to %d; want %d, %d", given, damaged, safe, c.given, c.safe)
			}
		})
	}
}
