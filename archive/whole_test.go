package archive_test

import (
	"bytes"
	"context"
	"testing"

	"hansard"
	"hansard/archive"
	"hansard/filestore"
	"hansard/memstore"
)

// family makes a session with everything in it, some of which is redacted, forks of it, and a
// fork of one of these.
func family(t *testing.T) (hansard.Importer, []hansard.SessionID) {
	t.Helper()
	ctx := context.Background()
	s := everything(t, "demo")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	apart := hansard.Batch{Apart: true, Events: []hansard.Event{{ID: "p1", Data: []byte(`"one"`)}, {ID: "p2", Data: []byte(`"𝄞 \u0000 two"`)}, {ID: "p3", Data: []byte(`"three"`)}}}
	r, err := s.Append(ctx, "demo", apart)
	must(err)
	// Inside a turn, with a key; before anything is taken away; and behind that.
	_, err = s.Fork(ctx, "demo", hansard.Fork{At: 3, As: "in-turn", Meta: hansard.Meta{Title: "forked", Labels: map[string]string{"f": "1"}}})
	must(err)
	_, err = s.Fork(ctx, "demo", hansard.Fork{At: r.First + 1, As: "before", Meta: hansard.Meta{State: []byte(`[1.50]`)}})
	must(err)
	// With a key, of 16 MiB, and with attachments.
	_, err = s.Redact(ctx, "demo", hansard.Redaction{Seqs: []hansard.Seq{2, 5, 6}, Reason: "é — a secret"})
	must(err)
	_, err = s.Fork(ctx, "demo", hansard.Fork{As: "behind"})
	must(err)
	_, err = s.Append(ctx, "behind", hansard.Batch{Key: "own", Events: []hansard.Event{{ID: "own", Data: []byte(`"own"`)}}})
	must(err)
	_, err = s.Fork(ctx, "behind", hansard.Fork{As: "grandchild"})
	must(err)
	_, err = s.Redact(ctx, "grandchild", hansard.Redaction{Seqs: []hansard.Seq{r.Last}, Reason: "again"})
	must(err)
	return s, []hansard.SessionID{"grandchild", "in-turn", "behind", "before", "demo"}
}

// TestFamily: forks and what was redacted go out and in, in one file or several, whatever
// comes first, into another engine and back: every export is the same, byte for byte.
func TestFamily(t *testing.T) {
	ctx := context.Background()
	src, ids := family(t)
	files := map[hansard.SessionID][]byte{}
	var all []byte
	for _, id := range ids {
		files[id] = export(t, src, id)
		all = append(all, files[id]...)
	}
	for name, parts := range map[string][][]byte{"one file": {all}, "several": {files["grandchild"], files["demo"], files["in-turn"], files["before"], files["behind"]}} {
		disk, err := filestore.Open(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		back := memstore.New()
		for _, part := range parts {
			file, err := archive.Open(ctx, bytes.NewReader(part), int64(len(part)))
			if err != nil {
				t.Fatal(err)
			}
			take(t, name+" into files", file, disk)
		}
		take(t, name+" out of files", disk, back)
		for _, store := range []hansard.Importer{disk, back} {
			for _, id := range ids {
				if got := export(t, store, id); !bytes.Equal(got, files[id]) {
					t.Errorf("%s: %s of %T has %d bytes, it had %d", name, id, store, len(got), len(files[id]))
				}
			}
		}
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
		_ = back.Close()
	}
}

func take(t *testing.T, what string, from hansard.Exporter, to hansard.Importer) {
	t.Helper()
	for c, err := range hansard.Copy(context.Background(), from, to) {
		if err != nil || c.Err != nil {
			t.Fatalf("%s: %s: %v, %v", what, c.Session, err, c.Err)
		}
	}
}
