package filestore

import (
	"context"
	"errors"
	"testing"
	"time"

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

// TestCloseOnSlowDisk: Close does not wait long for another process that is stopped, but for this
// process's own write on a slow disk it waits as long as a write waits for the lock.
func TestCloseOnSlowDisk(t *testing.T) {
	const step, wait = 10 * time.Millisecond, 300 * time.Millisecond
	root, err := vfs.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	b := &blockedFS{FS: root, next: make(chan blockedSync, 1)}
	s, err := open(b, Options{LockWait: wait}, defaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "s", nil, "one")
	slow, stored := b.block(), make(chan error, 1)
	go func() {
		_, err := s.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{text("two")}})
		stored <- err
	}()
	select {
	case <-slow.reached:
	case <-time.After(time.Minute):
		t.Fatal("the journal is not synced")
	}
	began := time.Now()
	done, err := finished(s.process, make(chan struct{}), step)
	var busy *hansard.BusyError
	if took := time.Since(began); done || !errors.As(err, &busy) || busy.Own == "" || took < wait {
		t.Errorf("after %v of a sync that does not end: %v, %v", took, done, err)
	}
	close(slow.letGo)
	if err := <-stored; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
