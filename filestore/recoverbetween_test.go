package filestore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"hansard"
	"hansard/internal/vfs"
)

// TestRecoveredBetweenTwoLooks: whatever a reader has looked at when another process recovers the
// store, it misses nothing that was acknowledged. The recovery runs after each of the reader's
// operations in turn, because schedules drawn at random hardly ever hold up a reader for that long.
func TestRecoveredBetweenTwoLooks(t *testing.T) {
	w := newWorld(5)
	s, err := w.open(w.disk.Process("writer"))
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "a", nil, "one")
	if err := s.checkpoints.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	say(t, s, "a", nil, "two")
	say(t, s, "n", nil, "new") // its log is gone after the cut
	w.disk.PowerCut(vfs.Cut{})
	ctx := context.Background()
	want := map[hansard.SessionID]hansard.Seq{"a": 2, "n": 1}
	for name, look := range map[string]func(s *Store) (map[hansard.SessionID]hansard.Seq, error){
		"list": func(s *Store) (map[hansard.SessionID]hansard.Seq, error) {
			got := map[hansard.SessionID]hansard.Seq{}
			infos, err := listed(s, hansard.Query{})
			for _, i := range infos {
				if got[i.ID] = i.LastSeq; i.Damage != nil {
					err = i.Damage
				}
			}
			return got, err
		},
		"count": func(s *Store) (map[hansard.SessionID]hansard.Seq, error) {
			n, err := hansard.Count(ctx, s, hansard.Query{})
			if n != len(want) {
				return nil, errors.Join(err, fmt.Errorf("%d sessions", n))
			}
			return want, err
		},
		"origins, read": func(s *Store) (map[hansard.SessionID]hansard.Seq, error) {
			got := map[hansard.SessionID]hansard.Seq{}
			for o, err := range s.Origins(ctx, "") {
				if err != nil {
					return nil, err
				}
				for e, err := range s.Read(ctx, o.ID, hansard.Range{}) {
					if err != nil {
						return nil, err
					}
					got[o.ID] = e.Seq
				}
			}
			return got, nil
		},
		"stat": func(s *Store) (map[hansard.SessionID]hansard.Seq, error) {
			got := map[hansard.SessionID]hansard.Seq{}
			for id := range want {
				info, err := s.Stat(ctx, id)
				if err != nil {
					return nil, err
				}
				got[id] = info.LastSeq
			}
			return got, nil
		},
		"verify": func(s *Store) (map[hansard.SessionID]hansard.Seq, error) {
			got := map[hansard.SessionID]hansard.Seq{}
			for f, err := range s.Verify(ctx, "") {
				if err != nil {
					return nil, err
				}
				if f.Level == hansard.LevelDamage {
					return nil, fmt.Errorf("%s: %s", f.File, f.Message)
				}
				if f.Session != "" {
					got[f.Session] = f.Events
				}
			}
			return got, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for k, reached := 1, true; reached; k++ {
				d := w.disk.Clone()
				mayOnlyRead(d, "reader")
				reached = false
				d.OnOp(func(op vfs.Op) {
					if op.Proc != "reader" || op.PN != k {
						return
					}
					reached = true
					s, err := w.open(d.Process("recovers"))
					if err == nil {
						err = s.Close()
					}
					if err != nil {
						t.Errorf("recover after operation %d: %v", k, err)
					}
				})
				s, err := w.openWith(d.Process("reader"), Options{ReadOnly: true, MustExist: true})
				if err != nil {
					t.Fatal(err)
				}
				got, err := look(s)
				if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("recovery after operation %d: %v, %v, want %v\n%s", k, got, err, want, trace(d, 20))
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
