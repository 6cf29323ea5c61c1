package filestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// What users are told when something is in the way: what it is, and what helps.

// blockedFS blocks syncs of the journal on demand.
type blockedFS struct {
	vfs.FS
	next chan blockedSync // the next sync takes it, and is blocked
}

type blockedSync struct{ reached, letGo chan struct{} }

// block makes the next sync of the journal wait until letGo is closed.
func (b *blockedFS) block() blockedSync {
	s := blockedSync{make(chan struct{}), make(chan struct{})}
	b.next <- s
	return s
}

func (b *blockedFS) Open(name string, flags vfs.Flag) (vfs.File, error) {
	f, err := b.FS.Open(name, flags)
	if err != nil || name != journal.Name {
		return f, err
	}
	return &blockedFile{f, b}, nil
}

type blockedFile struct {
	vfs.File
	b *blockedFS
}

func (f *blockedFile) Datasync() error {
	select {
	case s := <-f.b.next:
		close(s.reached)
		<-s.letGo
	default:
	}
	return f.File.Datasync()
}

// crashed is the directory of a store whose process died.
func crashed(t *testing.T) string {
	t.Helper()
	alive, dead := t.TempDir(), t.TempDir()
	s, err := Open(alive, nil)
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "s", nil, "one")
	if err := os.CopyFS(dead, os.DirFS(alive)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dead
}

// TestBusyIsNotOneself: a write that waits for this process's own recovery, or for its own slow
// disk, says so and does not advise to kill the process.
func TestBusyIsNotOneself(t *testing.T) {
	root, err := vfs.OpenDir(crashed(t))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	b := &blockedFS{FS: root, next: make(chan blockedSync, 1)}
	reached := func(sync blockedSync) {
		t.Helper()
		select {
		case <-sync.reached:
		case <-time.After(time.Minute):
			t.Fatal("the journal is not synced")
		}
	}
	recovery := b.block() // under write.lock
	s, err := open(b, Options{LockWait: 100 * time.Millisecond}, defaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	reached(recovery)
	isBusy := func(what, own string) {
		t.Helper()
		_, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{text("not stored")}})
		var busy *hansard.BusyError
		if !errors.As(err, &busy) || busy.Holder != "" || !strings.Contains(busy.Own, own) {
			t.Errorf("%s: %v", what, err)
		}
		if strings.Contains(hansard.Hint(err), "kill") {
			t.Errorf("%s: the hint is %q", what, hansard.Hint(err))
		}
	}
	isBusy("in recovery", "crash")
	close(recovery.letGo)
	// After that the store works. LockWait may be too short for a busy machine.
	stored := func(what string) (err error) {
		for range 600 {
			if _, err = s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{text("%s", what)}}); !errors.Is(err, hansard.ErrBusy) {
				break
			}
		}
		return err
	}
	if err := stored("two"); err != nil {
		t.Fatal(err)
	}
	slow := b.block()
	three := make(chan error, 1)
	go func() { three <- stored("three") }()
	reached(slow)
	isBusy("beside a slow write", "a write of this process")
	close(slow.letGo)
	if err := <-three; err != nil {
		t.Error(err)
	}
	hears(t, s, "s", "one", "two", "three")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSessionsGone: a store whose directory of logs is missing is never taken for an empty one,
// and works again when the directory is back.
func TestSessionsGone(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	running, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	say(t, running, "s", nil, "one")
	sessions, away := filepath.Join(dir, sessionlog.Dir), filepath.Join(t.TempDir(), "away")
	if err := os.Rename(sessions, away); err != nil {
		t.Fatal(err)
	}
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, errSessionsGone) || !errors.Is(err, hansard.ErrDamaged) || errors.Is(err, hansard.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
		if !strings.Contains(hansard.Hint(err), "put it back") {
			t.Errorf("%s: the hint is %q", what, hansard.Hint(err))
		}
	}
	_, err = Open(dir, nil)
	check("open", err)
	reader, err := Open(dir, &Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for what, s := range map[string]*Store{"running": running, "reader": reader} {
		_, err := listed(s, hansard.Query{})
		check(what+": list", err)
		_, err = s.Stat(ctx, "s")
		check(what+": stat", err)
		_, err = s.Stat(ctx, "never")
		check(what+": stat of another", err)
		for _, err := range s.Origins(ctx, "") {
			check(what+": origins", err)
		}
		harm := ""
		for f, err := range s.Verify(ctx, "") {
			if err != nil {
				t.Errorf("%s: verify: %v", what, err)
			}
			if f.Level == hansard.LevelDamage {
				harm += f.Message
			}
			if f.Level == hansard.LevelOK && f.Session != "" {
				t.Errorf("%s: verify finds %+v", what, f)
			}
		}
		if !strings.Contains(harm, "sessions") || !strings.Contains(harm, "put it back") {
			t.Errorf("%s: verify says %q", what, harm)
		}
	}
	more := hansard.Batch{Create: true, Events: []hansard.Event{text("two")}}
	for _, id := range []hansard.SessionID{"s", "new"} {
		_, err := running.Append(ctx, id, more)
		check("append to "+string(id), err)
	}
	if _, err := os.Stat(sessions); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("somebody made it again: %v", err)
	}
	if err := os.Rename(away, sessions); err != nil {
		t.Fatal(err)
	}
	say(t, running, "s", nil, "two")
	hears(t, running, "s", "one", "two")
	if asides := func() map[string]bool { all, _ := running.asides.allAsides(); return all }(); len(asides) > 0 {
		t.Errorf("set aside: %v", asides)
	}
}

// TestJournalGone: if the journal is removed under running processes, the error names it and says
// what helps, and that does help.
func TestJournalGone(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	open := func() *Store {
		t.Helper()
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	running := open()
	say(t, running, "s", nil, "one")
	if err := os.Remove(filepath.Join(dir, journal.Name)); err != nil {
		t.Fatal(err)
	}
	newcomer := open()
	for what, s := range map[string]*Store{"running": running, "newcomer": newcomer} {
		_, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("x")}})
		if !errors.Is(err, hansard.ErrFailed) || errors.Is(err, hansard.ErrUnknown) || !strings.Contains(err.Error(), "journal of the store was removed") {
			t.Errorf("%s: append: %v", what, err)
		}
		if hint := hansard.Hint(err); !strings.Contains(hint, "end all processes") {
			t.Errorf("%s: the hint is %q", what, hint)
		}
		hears(t, s, "s", "one")
	}
	_ = running.Close() // may say the same
	_ = newcomer.Close()
	again := open()
	defer again.Close()
	say(t, again, "s", nil, "two")
	hears(t, again, "s", "one", "two")
}

// TestInstancesGone: without the directory of instances everything goes on, and it is made again.
func TestInstancesGone(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	say(t, s, "s", nil, "one")
	turn, err := s.Acquire(ctx, "s", hansard.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	gone := func() {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(dir, peers.InstancesDir)); err != nil {
			t.Fatal(err)
		}
	}
	gone()
	if err := s.Renew(ctx, "s", turn.Grant); err != nil {
		t.Errorf("renew: %v", err)
	}
	gone()
	if err := s.checkpoints.checkpoint(true); err != nil {
		t.Errorf("checkpoint: %v", err)
	}
	gone()
	if err := s.Release(ctx, "s", turn.Grant); err != nil {
		t.Errorf("release: %v", err)
	}
	if _, err := s.Acquire(ctx, "s", hansard.Claim{}); err != nil {
		t.Errorf("acquire: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, peers.InstancesDir)); err != nil || len(entries) != 1 {
		t.Errorf("instances: %v, %v", entries, err)
	}
}

// TestDiskErrorsSayRemount: when a file system has failed and needs a remount, the error says so.
func TestDiskErrorsSayRemount(t *testing.T) {
	ctx := context.Background()
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.EROFS} {
		d := vfs.NewDisk(1)
		s, err := openOn(d.Process("p"), 1, simRing)
		if err != nil {
			t.Fatal(err)
		}
		say(t, s, "s", nil, "one")
		check := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, errno) || !strings.Contains(hansard.Hint(err), "mounted again") {
				t.Errorf("%v: %s: %v, hint %q", errno, what, err, hansard.Hint(err))
			}
		}
		d.Inject(vfs.Match{}, vfs.Fault{Err: errno, Always: true})
		_, err = s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("two")}})
		check("append", err)
		_, err = s.Stat(ctx, "s")
		check("stat", err)
		if !errors.Is(err, hansard.ErrUnreadable) || errors.Is(err, hansard.ErrDamaged) {
			t.Errorf("%v: stat: %v", errno, err)
		}
		for _, err := range s.Read(ctx, "s", hansard.Range{}) {
			check("read", err)
		}
		_, err = listed(s, hansard.Query{})
		check("list", err)
		d.ClearRules()
		if errno == syscall.EIO { // in the middle of the commit
			d.Inject(vfs.Match{Kind: vfs.OpSync | vfs.OpOpen}, vfs.Fault{Err: errno, Always: true})
			_, err = s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("two")}})
			check("append, in doubt", err)
			if !errors.Is(err, hansard.ErrUnknown) {
				t.Errorf("%v: append: %v", errno, err)
			}
		}
	}
}
