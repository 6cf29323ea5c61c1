package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/internal/vfs"
)

// TestRotateCatchesUp defends: when a sync fails and the journal can't be replaced at once, the
// writer that replaces it later still sees its entries, and does not assign their seqs a second
// time.
func TestRotateCatchesUp(t *testing.T) {
	w := newWorld(1)
	s, err := w.open(w.disk.Process("p"))
	if err != nil {
		t.Fatal(err)
	}
	add := func(text string) (hansard.Receipt, error) {
		return s.Append(context.Background(), "a", hansard.Batch{Create: true,
			Events: []hansard.Event{{Data: json.RawMessage(`"` + text + `"`)}}})
	}
	if _, err := add("one"); err != nil {
		t.Fatal(err)
	}
	w.disk.Inject(vfs.Match{Kind: vfs.OpSync, Name: journal.Name}, vfs.Fault{Err: syscall.EIO})
	w.disk.Inject(vfs.Match{Kind: vfs.OpOpen, Name: "journal.*.tmp"}, vfs.Fault{Err: syscall.EIO})
	if _, err := add("two"); !errors.Is(err, hansard.ErrUnknown) {
		t.Fatalf("the failed one: %v, want ErrUnknown", err)
	}
	w.disk.ClearRules()
	r, err := add("three")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for e, err := range s.Read(context.Background(), "a", hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(e.Data))
	}
	if len(texts) != 3 || r.First != 3 || texts[r.First-1] != `"three"` {
		t.Errorf("the next one is at seq %d of %q", r.First, texts)
	}
}
