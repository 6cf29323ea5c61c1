package pgstore_test

import (
	"slices"
	"testing"

	"hansard"
	"hansard/filestore"
	"hansard/internal/pgtest"
	"hansard/memstore"
	"hansard/storetest"
)

func TestCopy(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		storetest.RunCopy(t, engine(), func(testing.TB) hansard.Store { return memstore.New() })
	})
	t.Run("files", func(t *testing.T) {
		storetest.RunCopy(t, engine(), func(t testing.TB) hansard.Store {
			s, err := filestore.Open(t.TempDir(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		})
	})
}

// TestKeysAfterEventsWithout: the keys of a session go on after more events without keys than are
// read at once.
func TestKeysAfterEventsWithout(t *testing.T) {
	s := open(t, pgtest.Shared(t).Schema(t))
	defer s.Close()
	if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	var want []hansard.KeyUse
	for i, key := range []string{"", "", "", "first", "", "", "", "second"} {
		n := 1000
		if key != "" {
			n = 2
		}
		r, err := s.Append(t.Context(), "s", hansard.Batch{Events: storetest.Marked("w", i, n, 0), Key: key})
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			want = append(want, hansard.KeyUse{Key: key, First: r.First, Last: r.Last})
		}
	}
	for _, after := range []hansard.Seq{0, want[0].First} {
		var got []hansard.KeyUse
		for k, err := range s.Keys(t.Context(), "s", after) {
			if err != nil {
				t.Fatal(err)
			}
			k.Hash = ""
			got = append(got, k)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after seq %d the keys are %+v, want %+v", after, got, want)
		}
		want = want[1:]
	}
}
