package filestore_test

import (
	"errors"
	"testing"

	"hansard"
	"hansard/filestore"
)

// TestProbe: a probe writes, leaves no session behind, and fails where a write
// would.
func TestProbe(t *testing.T) {
	dir := t.TempDir()
	s, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Measures()
	for range 3 {
		if err := s.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after := s.Measures(); after["write_locks_total"] < before["write_locks_total"]+3 {
		t.Errorf("three probes took the lock %v times", after["write_locks_total"]-before["write_locks_total"])
	}
	for info := range s.List(t.Context(), hansard.Query{}) {
		t.Errorf("the probe left session %s", info.ID)
	}
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	if m := s.Measures(); m["journal_syncs_total"] == 0 || m["journal_sync_seconds_total"] == 0 || m["recoveries_total"] != 0 {
		t.Errorf("measures %v", m)
	}
	for f, err := range s.Verify(t.Context(), "") {
		if err != nil || f.Level != hansard.LevelOK {
			t.Errorf("verify: %+v, %v", f, err)
		}
	}
	reader, err := filestore.Open(dir, &filestore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := reader.Probe(t.Context()); !errors.Is(err, hansard.ErrReadOnly) {
		t.Errorf("a store that can only be read: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(t.Context()); !errors.Is(err, hansard.ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
}
