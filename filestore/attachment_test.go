package filestore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
)

// hookReader calls a function in the middle of its content.
type hookReader struct {
	left int
	hook func()
}

func (r *hookReader) Read(p []byte) (int, error) {
	if r.left--; r.left < 0 {
		return 0, io.EOF
	}
	if r.left == 1 && r.hook != nil {
		r.hook()
	}
	clear(p)
	return len(p), nil
}

// TestUploadOutlivesDelete: if a session is deleted during an upload, the upload fails with
// ErrDeleted and leaves no files.
func TestUploadOutlivesDelete(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Attach(t.Context(), "s", &hookReader{left: 5, hook: func() {
		if err := s.Delete(t.Context(), "s", ""); err != nil {
			t.Error(err)
		}
	}})
	want(t, "attaching to a session that is deleted meanwhile", err, hansard.ErrDeleted)
	entries, err := os.ReadDir(filepath.Join(dir, attachmentsDir, "s"))
	if err != nil && !errors.Is(err, os.ErrNotExist) || len(entries) > 0 {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}

// TestVerifyAttachments: verify reports an attachment that is missing, truncated or changed.
func TestVerifyAttachments(t *testing.T) {
	for name, spoil := range map[string]func(file string) error{
		"missing": os.Remove,
		"cut":     func(file string) error { return os.Truncate(file, 3) },
		"changed": func(file string) error { return os.WriteFile(file, []byte("CONTENT"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
				t.Fatal(err)
			}
			a, err := s.Attach(t.Context(), "s", strings.NewReader("content"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), Attachments: []hansard.Attachment{a}}}}); err != nil {
				t.Fatal(err)
			}
			told := func() (message string) {
				for f, err := range s.Verify(t.Context(), "s") {
					if err != nil {
						t.Fatal(err)
					}
					if f.Level != hansard.LevelOK {
						message += f.Message
					}
				}
				return message
			}
			if message := told(); message != "" {
				t.Fatalf("sound, and verify says %q", message)
			}
			if err := spoil(filepath.Join(dir, filepath.FromSlash(attachmentPath("s", a.Digest)))); err != nil {
				t.Fatal(err)
			}
			if message := told(); !strings.Contains(message, "event 1 names attachment "+a.Digest) {
				t.Errorf("verify says %q", message)
			}
			r, err := s.OpenAttachment(t.Context(), "s", a.Digest)
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				r.Close()
			}
			if !errors.Is(err, hansard.ErrDamaged) && !errors.Is(err, hansard.ErrNoAttachment) {
				t.Errorf("reading it: %v", err)
			}
		})
	}
}

// TestAttachMemory: attaching and reading a large attachment takes little memory.
func TestAttachMemory(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	// Garbage of other tests must not decide when the collector runs.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	const size = 200 << 20
	// Before the first look, which would count the garbage of other tests, too.
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var m runtime.MemStats
		for {
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	a, err := s.Attach(t.Context(), "s", io.LimitReader(&hookReader{left: 1 << 30}, size))
	if err != nil || a.Size != size {
		t.Fatalf("%+v, %v", a, err)
	}
	r, err := s.OpenAttachment(t.Context(), "s", a.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, r); err != nil || n != size {
		t.Errorf("%d bytes, %v", n, err)
	}
	r.Close()
	close(stop)
	<-done
	if grown := int64(peak.Load()) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("%d MB of memory for %d MB", grown>>20, size>>20)
	}
}

// TestSimAttached: after a power cut at any moment, no event names an attachment that is missing,
// although what no event names is pruned all the time.
func TestSimAttached(t *testing.T) {
	pruned := 0
	for seed := range uint64(scale(12)) {
		n, err := attachedWorld(5000 + seed)
		if err != nil {
			t.Fatal(err)
		}
		pruned += n
	}
	if t.Logf("%d files were pruned", pruned); pruned < scale(12) {
		t.Errorf("only %d files were pruned", pruned)
	}
}

// TestGrowthAttached: attachments cost readers of the log nothing. Describing, listing and
// reading a session with large pictures reads as much as with small ones.
func TestGrowthAttached(t *testing.T) {
	const events = 60
	costs := func(size int64) map[string]int64 {
		d := largeDisk(1)
		w, err := openOn(d.Process("writer"), 1, growthRing)
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			if i == 0 {
				if _, err := w.Create(t.Context(), "s", hansard.Meta{}); err != nil {
					t.Fatal(err)
				}
			}
			// The same length in the log: all sizes have the same number of digits.
			a, err := w.Attach(t.Context(), "s", io.LimitReader(&hookReader{left: int(size) + i}, size+int64(i)))
			if err != nil {
				t.Fatal(err)
			}
			e := pad(i, 100)
			e.Attachments = []hansard.Attachment{a}
			if _, err := w.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{e}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		s, c := readOnly(t, d)
		bytes := map[string]int64{}
		ask := func(what string, do func() error) {
			c.reset()
			if err := do(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			for file, n := range c.files {
				if strings.HasPrefix(file, attachmentsDir) {
					t.Errorf("%s reads %d bytes of %s", what, n, file)
				}
			}
			bytes[what] = c.bytes
		}
		ask("stat", func() error { _, err := s.Stat(t.Context(), "s"); return err })
		ask("list", func() error {
			for _, err := range s.List(t.Context(), hansard.Query{}) {
				return err
			}
			return errors.New("nothing is listed")
		})
		ask("read the last 50", func() error {
			n := 0
			for e, err := range s.Read(t.Context(), "s", hansard.Range{Last: 50}) {
				if err != nil {
					return err
				}
				n += len(e.Attachments)
			}
			if n != 50 {
				return fmt.Errorf("%d attachments are named", n)
			}
			return nil
		})
		return bytes
	}
	small, large := costs(100_000), costs(900_000)
	for what, n := range large {
		if n != small[what] {
			t.Errorf("%s reads %d bytes with large attachments, %d with small ones", what, n, small[what])
		}
	}
	t.Logf("bytes read: %v", large)
}
