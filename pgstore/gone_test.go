package pgstore

import (
	"testing"

	"hansard"
)

// removed waits until nothing of session "s" is left but its tombstone.
func (b *blocking) removed() {
	b.t.Helper()
	const left = "SELECT (SELECT count(*) FROM hansard_events WHERE id = 's') + (SELECT count(*) FROM hansard_heads WHERE purging OR NOT deleted)"
	until(b.t, "it is removed", func() bool {
		n := -1
		if err := b.conn.QueryRow(b.t.Context(), left).Scan(&n); err != nil {
			b.t.Fatal(err)
		}
		return n == 0
	})
}

// TestImportTombstone: a copy that brings a deletion takes the content away, as Delete does.
func TestImportTombstone(t *testing.T) {
	s := newBlocking(t, "")
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte(`"secret"`)}}}); err != nil {
		t.Fatal(err)
	}
	info, err := s.Stat(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Import(t.Context(), hansard.Part{Origin: hansard.Origin{ID: "s", Created: info.Created, Deleted: true}}); err != nil {
		t.Fatal(err)
	}
	s.removed()
}
