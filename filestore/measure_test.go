package filestore_test

import (
	"testing"

	"hansard"
	"hansard/filestore"
)

// TestMeasures: the counters rise with an append, and those of things that did not happen stay 0.
func TestMeasures(t *testing.T) {
	s, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := s.Measures()
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	m := s.Measures()
	for _, name := range []string{"journal_syncs_total", "journal_sync_seconds_total", "write_locks_total"} {
		if m[name] <= before[name] {
			t.Errorf("%s is %v after an append, %v before", name, m[name], before[name])
		}
	}
	if m["recoveries_total"] != 0 || m["journal_rotations_total"] != 0 {
		t.Errorf("measures %v", m)
	}
}
