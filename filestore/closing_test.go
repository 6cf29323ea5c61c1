package filestore

import (
	"context"
	"errors"
	"testing"

	"hansard"
	"hansard/internal/vfs"
)

// closingFS closes the store at the n-th opening of a file.
type closingFS struct {
	vfs.FS
	n     int
	close func()
}

func (f *closingFS) Open(name string, flags vfs.Flag) (vfs.File, error) {
	if f.n--; f.n == 0 {
		f.close()
	}
	return f.FS.Open(name, flags)
}

// TestClosedUnderWay: a call that is under way when the store is closed says that it is closed, if
// it does not succeed; not that the session can't be read.
func TestClosedUnderWay(t *testing.T) {
	ctx := context.Background()
	for what, call := range map[string]func(*Store) error{
		"read": func(s *Store) (err error) {
			for _, err = range s.Read(ctx, "a", hansard.Range{}) {
			}
			return err
		},
		"stat": func(s *Store) error { _, err := s.Stat(ctx, "a"); return err },
		"wait": func(s *Store) error { return s.Wait(ctx, "a", 0) },
		"fork": func(s *Store) error { _, err := s.Fork(ctx, "a", hansard.Fork{As: "b"}); return err },
		"append": func(s *Store) error {
			_, err := s.Append(ctx, "a", hansard.Batch{Events: []hansard.Event{text("two")}})
			return err
		},
		"redact": func(s *Store) error {
			_, err := s.Redact(ctx, "a", hansard.Redaction{Seqs: []hansard.Seq{1}})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			for n, closed := 1, true; closed; n++ {
				dir, err := vfs.OpenDir(t.TempDir())
				want(t, "open", err, nil)
				fsys := &closingFS{FS: dir}
				s, err := open(fsys, Options{}, simConfig(1, simRing))
				want(t, "open", err, nil)
				say(t, s, "a", nil, "one")
				closed = false
				// As Close does at last: what it waits for before that may be this call.
				fsys.close = func() { closed = true; s.closed.Store(true); _ = dir.Close() }
				fsys.n = n
				if err := call(s); err != nil && !errors.Is(err, hansard.ErrClosed) {
					t.Errorf("closed at opening %d: %v", n, err)
				}
				s.release()
				_ = dir.Close()
			}
		})
	}
}
