package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"hansard"
	"hansard/filestore"
)

// TestDamagedAttachment: an attachment that was damaged on the server's disk is ErrDamaged, however
// much of it the server sends.
func TestDamagedAttachment(t *testing.T) {
	for _, size := range []int{1000, 300_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir := t.TempDir()
			files, err := filestore.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			s, err := dial(serve(t, files))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
				t.Fatal(err)
			}
			content := bytes.Repeat([]byte("x"), size)
			a, err := s.Attach(t.Context(), "s", bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			found, err := filepath.Glob(filepath.Join(dir, "attachments", "*", "*"))
			if err != nil || len(found) != 1 {
				t.Fatalf("the store has %q, %v", found, err)
			}
			content[size/2] ^= 1
			if err := os.WriteFile(found[0], content, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := s.OpenAttachment(t.Context(), "s", a.Digest)
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				r.Close()
			}
			if !errors.Is(err, hansard.ErrDamaged) {
				t.Errorf("reading it: %v", err)
			}
		})
	}
}
