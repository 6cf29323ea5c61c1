package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// forkedStore is a store with session "s" and its fork "f" at event 6, with two events of its
// own.
func forkedStore(t testing.TB) (*Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for i := range 4 {
		b := hansard.Batch{Events: []hansard.Event{text("%d", i), text("%d second", i)}, Create: true, Key: fmt.Sprint("k", i), Patch: &hansard.Patch{State: fmt.Appendf(nil, `{"n":%d}`, i)}}
		if _, err := s.Append(t.Context(), "s", b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Fork(t.Context(), "s", hansard.Fork{At: 6, As: "f", Meta: hansard.Meta{Title: "forked"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), "f", hansard.Batch{Events: []hansard.Event{text("own"), text("own second")}}); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func logFile(dir, name string) string {
	return filepath.Join(dir, "sessions", name+sessionlog.Suffix)
}

// TestForkIsACopyByteForByte: after the header the fork has the bytes of its parent at the same
// offsets, so that a file system can share them.
func TestForkIsACopyByteForByte(t *testing.T) {
	_, dir := forkedStore(t)
	parent, fork := read(t, logFile(dir, "s")), read(t, logFile(dir, "f"))
	begin := bytes.IndexByte(parent, '\n') + 1
	lines := bytes.SplitAfter(parent, []byte("\n"))
	end := begin
	for _, l := range lines[1:7] {
		end += len(l)
	}
	if !bytes.Equal(parent[begin:end], fork[begin:end]) || bytes.Equal(parent[:begin], fork[:begin]) {
		t.Errorf("the parent has\n%s\nthe fork\n%s", parent, fork)
	}
	if !strings.Contains(string(fork[end:]), `"fork":{"id":"s","at":6}`) {
		t.Errorf("behind its parent's lines the fork has\n%s", fork[end:])
	}
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestForkOfDamaged: a damaged session can be forked as far as it is safe, and no further.
func TestForkOfDamaged(t *testing.T) {
	s, dir := forkedStore(t)
	s.Close()
	b := read(t, logFile(dir, "s"))
	b[bytes.Index(b, []byte(`"2 second"`))+1] = 'X'
	if err := os.WriteFile(logFile(dir, "s"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for at, want := range map[hansard.Seq]error{0: hansard.ErrDamaged, 4: nil, 5: hansard.ErrDamaged, 8: hansard.ErrDamaged, 3: hansard.ErrInvalid} {
		info, err := s.Fork(t.Context(), "s", hansard.Fork{At: at, As: hansard.SessionID(fmt.Sprint("g", at))})
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("at %d: %+v, %v; want %v", at, info, err, want)
		}
	}
	if err := soundFork(s, "g4"); err != nil {
		t.Error(err)
	}
}

func soundFork(s *Store, id hansard.SessionID) error {
	for f, err := range s.Verify(context.Background(), id) {
		if err != nil || f.Level == hansard.LevelDamage {
			return fmt.Errorf("verify of %s: %+v, %w", id, f, err)
		}
	}
	return nil
}

// TestForkDamaged: a fork that lost its own lines is damaged, not missing, wherever it was cut.
// After a repair it is sound, and still a fork if the line that says so has survived.
func TestForkDamaged(t *testing.T) {
	_, dir := forkedStore(t)
	whole := read(t, logFile(dir, "f"))
	own := bytes.Index(whole, []byte(`{"seq":7`))
	first := bytes.IndexByte(whole, '\n') + 1
	for name, c := range map[string]struct {
		log    []byte
		events hansard.Seq
		parent bool
	}{
		"cut before its own lines":   {whole[:own], 6, false},
		"cut in its own first line":  {whole[:own+40], 6, false},
		"cut in its parent's lines":  {whole[:own-300], 4, false},
		"a parent's line is damaged": {bytes.Replace(whole, []byte(`"1 second"`), []byte(`"1 sEcond"`), 1), 9, true},
		"its own line is damaged":    {bytes.Replace(whole, []byte(`"kind":"fork"`), []byte(`"kind":"fOrk"`), 1), 9, false},
		"its header is damaged":      {append(bytes.Replace(whole[:first], []byte(`"id":"f"`), []byte(`"id":"g"`), 1), whole[first:]...), 9, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := forkedStore(t)
			s.Close()
			if err := os.WriteFile(logFile(dir, "f"), c.log, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if info, err := s.Stat(t.Context(), "f"); err != nil || info.Damage == nil {
				t.Fatalf("it is described as %+v, %v", info, err)
			}
			if soundFork(s, "f") == nil {
				t.Error("verify finds nothing")
			}
			if _, err := s.Create(t.Context(), "f", hansard.Meta{}); !errors.Is(err, hansard.ErrExists) && !errors.Is(err, hansard.ErrDamaged) {
				t.Errorf("its name is given away: %v", err)
			}
			done, err := s.Repair(t.Context(), "f")
			if err != nil || !done.Changed {
				t.Fatalf("repair: %+v, %v", done, err)
			}
			info, err := s.Stat(t.Context(), "f")
			if err != nil || info.Damage != nil || info.LastSeq != c.events || (info.Parent != nil) != c.parent {
				out, _ := json.Marshal(info)
				t.Errorf("repaired it is %s, %v", out, err)
			}
			if err := soundFork(s, "f"); err != nil {
				t.Error(err)
			}
			if _, err := s.Append(t.Context(), "f", hansard.Batch{Events: []hansard.Event{text("goes on")}}); err != nil {
				t.Error(err)
			}
			if _, err := s.Fork(t.Context(), "f", hansard.Fork{As: "again"}); err != nil || soundFork(s, "again") != nil {
				t.Errorf("a fork of it: %v, %v", err, soundFork(s, "again"))
			}
		})
	}
}

// betweenFS calls a function once, when the file placed for a fork is about to be synced.
type betweenFS struct {
	vfs.FS
	call func()
}

func (b *betweenFS) SyncDir(name string) error {
	if call := b.call; call != nil && name == sessionlog.Dir {
		b.call = nil
		call()
	}
	return b.FS.SyncDir(name)
}

// TestForkOfDeletedMeanwhile: a session that is deleted or repaired while it is being copied does
// not come back through the fork.
func TestForkOfDeletedMeanwhile(t *testing.T) {
	for what, c := range map[string]struct {
		do   func(t *testing.T, other *Store)
		want error
	}{
		"deleted": {func(t *testing.T, other *Store) {
			if err := other.Delete(t.Context(), "s", ""); err != nil {
				t.Error(err)
			}
		}, hansard.ErrDeleted},
		"erased": {func(t *testing.T, other *Store) {
			_, err := other.Prune(t.Context(), false)
			if err = errors.Join(other.Delete(t.Context(), "s", ""), err); err != nil {
				t.Error(err)
			}
			if _, err := other.Prune(t.Context(), true); err != nil {
				t.Error(err)
			}
		}, hansard.ErrDeleted},
		"appended to": {func(t *testing.T, other *Store) {
			if _, err := other.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{text("more")}}); err != nil {
				t.Error(err)
			}
		}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			other, dir := forkedStore(t)
			root, err := vfs.OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			between := &betweenFS{FS: root}
			s, err := open(between, Options{LockWait: time.Minute}, defaultConfig())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			between.call = func() { c.do(t, other) }
			info, err := s.Fork(t.Context(), "s", hansard.Fork{As: "late"})
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("Fork answers %+v, %v; want %v", info, err, c.want)
			}
			if c.want == nil {
				return
			}
			for _, file := range []string{logFile(dir, "late"), filepath.Join(dir, attachmentsDir, "late")} {
				if _, err := os.Stat(file); err == nil {
					t.Errorf("%s is left", file)
				}
			}
			if left, _ := os.ReadDir(filepath.Join(dir, forkingDir)); len(left) > 0 {
				t.Errorf("noted is still %s", left[0].Name())
			}
		})
	}
}

// TestForkOfWhatIsBeingRedacted: a recorded redaction whose content is still there, because the
// disk was full, is completed before the session is forked. Otherwise the fork would keep the
// content for ever.
func TestForkOfWhatIsBeingRedacted(t *testing.T) {
	d := largeDisk(1)
	s, err := openOn(d.Process("p"), 1, growthRing)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	if _, err := s.Append(ctx, "s", hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte(`"public"`)}, {Data: []byte(`"SECRET"`)}}}); err != nil {
		t.Fatal(err)
	}
	d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: "log.*.tmp"}, vfs.Fault{Err: syscall.ENOSPC})
	if _, err := s.Redact(ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{2}, Reason: "private"}); !errors.Is(err, hansard.ErrUnknown) {
		t.Fatalf("a redaction that finds no space: %v", err)
	}
	if _, err := s.Fork(ctx, "s", hansard.Fork{As: "forked", At: 2}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []hansard.SessionID{"s", "forked"} {
		for e, err := range s.Read(ctx, id, hansard.Range{Limit: 2}) {
			if err != nil || e.Redacted != (e.Seq == 2) || strings.Contains(string(e.Data), "SECRET") {
				t.Errorf("%s has %+v, %v", id, e, err)
			}
		}
	}
}

// redactingFS has another process redact an event each time a fork is about to be noted: at that
// point the parent has been checked but not copied yet.
type redactingFS struct {
	vfs.FS
	redact func()
}

func (r *redactingFS) Mkdir(name string) error {
	if name == forkingDir {
		r.redact()
	}
	return r.FS.Mkdir(name)
}

// TestForkBesideARedactor: a session can be forked while another process redacts one event after
// another, and the fork has nothing that was redacted before it was made. If the redactions go on
// for unrealistically long, Fork reports that the store is busy.
func TestForkBesideARedactor(t *testing.T) {
	if err := forkBesideARedactor(t, 40); err != nil {
		t.Error(err)
	}
	if err := forkBesideARedactor(t, 2*forkTries); !errors.Is(err, hansard.ErrBusy) {
		t.Errorf("beside somebody who does not stop: %v", err)
	}
}

func forkBesideARedactor(t *testing.T, events int) error {
	t.Helper()
	d := largeDisk(1)
	other, err := openOn(d.Process("other"), 2, growthRing)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ctx := context.Background()
	for i := range events {
		if _, err := other.Append(ctx, "s", hansard.Batch{Create: true, Events: []hansard.Event{text("SECRET %d", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	redacted := 0
	s, err := openOn(&redactingFS{d.Process("p"), func() {
		if redacted == events {
			return
		}
		redacted++
		if _, err := other.Redact(ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{hansard.Seq(redacted)}, Reason: "private"}); err != nil {
			t.Errorf("redact %d: %v", redacted, err)
		}
	}}, 1, growthRing)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Fork(ctx, "s", hansard.Fork{As: "forked", At: hansard.Seq(events)}); err != nil {
		return err
	}
	if redacted < events {
		t.Errorf("only %d events were redacted: the fork was not in their way", redacted)
	}
	for e, err := range s.Read(ctx, "forked", hansard.Range{Limit: events}) {
		if err != nil || !e.Redacted {
			t.Errorf("the fork has %+v, %v", e, err)
		}
	}
	return nil
}
