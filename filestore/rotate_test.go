package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
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

// TestRotateKeepsFeatures: the slot of a ring that replaces another one needs the same features,
// whatever its size.
func TestRotateKeepsFeatures(t *testing.T) {
	s := openSim(t, vfs.NewDisk(1).Process("p"), 1)
	l, err := s.lock.lockCaughtUp()
	if err != nil {
		t.Fatal(err)
	}
	defer l.unlock()
	slots, valid, _, err := journal.ReadSlots(l.ring.File)
	if err != nil {
		t.Fatal(err)
	}
	for i := range slots {
		if slots[i].Incompat = 4; valid[i] {
			if err := l.ring.WriteSlot(i, &slots[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, size := range []uint64{l.ring.Size, 2 * l.ring.Size} {
		made, stop := journal.Slot{}, errors.New("stop here")
		_, err := l.replaceJournalFile(size, func(sl *journal.Slot, _ []byte) (string, error) {
			made = *sl
			return "", stop
		})
		if !errors.Is(err, stop) || made.Incompat != 4 || made.Size != size || made.Clean {
			t.Errorf("the new slot is %+v, %v", made, err)
		}
	}
}

// TestSlotsFromSlots: no slot is written out but that of a new store. All others are made from the
// one before, so that none loses a feature that its ring needs. For the slot after a recovery this
// can't be tried: no journal that needs a feature is opened.
func TestSlotsFromSlots(t *testing.T) {
	var found []string
	for _, dir := range []string{".", "internal/journal"} {
		files, err := filepath.Glob(filepath.FromSlash(dir + "/*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				ast.Inspect(d, func(n ast.Node) bool {
					lit, ok := n.(*ast.CompositeLit)
					if !ok || len(lit.Elts) == 0 {
						return true
					}
					typ := lit.Type
					if from, ok := typ.(*ast.SelectorExpr); ok {
						typ = from.Sel
					}
					if name, ok := typ.(*ast.Ident); ok && name.Name == "Slot" {
						found = append(found, d.(*ast.FuncDecl).Name.Name)
					}
					return true
				})
			}
		}
	}
	if !slices.Equal(found, []string{"newJournal"}) {
		t.Errorf("slots are written out in %q", found)
	}
}
