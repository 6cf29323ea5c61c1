package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// openTemp gives an OS on a fresh directory, and the directory's path to do to
// it what others could do.
func openTemp(t *testing.T) (*OS, string) {
	t.Helper()
	dir := t.TempDir()
	o, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return o, dir
}

func mustOpen(t *testing.T, f FS, name string, flags Flag) File {
	t.Helper()
	file, err := f.Open(name, flags)
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func TestOSReadWrite(t *testing.T) {
	o, dir := openTemp(t)
	f := mustOpen(t, o, "a", Create)
	if _, err := f.WriteAt([]byte("hello"), 3); err != nil {
		t.Fatal(err)
	}
	// A second write at an earlier offset must land there: no O_APPEND.
	if _, err := f.WriteAt([]byte("abc"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Datasync(); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Size(); err != nil || n != 8 {
		t.Fatalf("size %d, %v; want 8", n, err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "a"))
	if err != nil || string(got) != "abchello" {
		t.Fatalf("content %q, %v", got, err)
	}
	buf := make([]byte, 10)
	if n, err := f.ReadAt(buf, 3); n != 5 || err != io.EOF {
		t.Fatalf("read at the end: %d, %v; want 5, EOF", n, err)
	}
	if err := f.Truncate(2); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Size(); err != nil || n != 2 {
		t.Fatalf("size after truncate %d, %v; want 2", n, err)
	}
	st, err := o.Stat("a")
	if err != nil || st.Size != 2 || st.ModTime.IsZero() || !st.Mode.IsRegular() {
		t.Fatalf("stat %+v, %v", st, err)
	}
	if ino, err := f.Inode(); err != nil || ino != st.Inode {
		t.Fatalf("inode %d, %v; stat says %d", ino, err, st.Inode)
	}
}

func TestOSFlags(t *testing.T) {
	o, dir := openTemp(t)
	if _, err := o.Open("missing", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("open without Create: %v; want not exist", err)
	}
	if _, err := o.Open("nodir/file", Create); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("create in a missing directory: %v; want not exist", err)
	}
	mustOpen(t, o, "a", Create|Exclusive)
	if _, err := o.Open("a", Create|Exclusive); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("exclusive on an existing file: %v; want exist", err)
	}
	mustOpen(t, o, "a", Create) // an existing one is opened
	ro := mustOpen(t, o, "a", ReadOnly)
	if _, err := ro.WriteAt([]byte("x"), 0); err == nil {
		t.Fatal("wrote through a read-only descriptor")
	} else if strings.Contains(err.Error(), dir) {
		t.Fatalf("error tells where the store is: %v", err)
	}
	if err := ro.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ro.Size(); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("size of a closed file: %v; want closed", err)
	}
	if err := ro.Datasync(); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("sync of a closed file: %v; want closed", err)
	}
}

func TestOSNames(t *testing.T) {
	o, _ := openTemp(t)
	for _, name := range []string{"", "/a", "../a", "a/../b", "a//b", "./a", "a/", "..", "a\x00b"} {
		if _, err := o.Open(name, Create); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("open %q: %v; want invalid", name, err)
		}
		if _, _, err := o.Inode(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("inode %q: %v; want invalid", name, err)
		}
		if err := o.Rename("x", name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("rename to %q: %v; want invalid", name, err)
		}
	}
	mustOpen(t, o, "a", Create) // one character is a name
}

func TestOSPermissions(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: Windows has no permission bits")
	}
	o, dir := openTemp(t)
	if err := o.Mkdir("d"); err != nil {
		t.Fatal(err)
	}
	if err := o.Mkdir("d"); err != nil {
		t.Fatalf("mkdir of an existing directory: %v", err)
	}
	mustOpen(t, o, "d/f", Create)
	for name, want := range map[string]fs.FileMode{"d": 0o700, "d/f": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", name, got, want)
		}
	}
	if err := o.Mkdir("d/f"); err == nil {
		t.Error("mkdir over a file succeeded")
	}
	if err := o.SyncDir("d"); err != nil {
		t.Error(err)
	}
	if err := o.SyncDir("."); err != nil {
		t.Error(err)
	}
	if err := o.SyncDir("d/f"); err == nil {
		t.Error("sync of a file as a directory succeeded")
	}
	if _, err := o.Open("d", 0); err == nil {
		t.Error("opened a directory as a file")
	}
	if err := o.Remove("d"); err == nil {
		t.Error("removed a directory")
	}
}

func TestOSRefusesLinks(t *testing.T) {
	o, dir := openTemp(t)
	mustOpen(t, o, "real", Create)
	if err := o.Mkdir("d"); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"inside": "real", "outside": filepath.Join(t.TempDir(), "x"), "dangling": "none", "dirlink": "d"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skipf("SKIPPED: no symbolic links here: %v", err)
		}
	}
	for _, name := range []string{"inside", "outside", "dangling", "dirlink/f"} {
		for _, flags := range []Flag{0, ReadOnly, Create} {
			if f, err := o.Open(name, flags); !errors.Is(err, errLink) {
				t.Errorf("open %s (flags %d): %v, %v; want a refusal", name, flags, f, err)
			}
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target of a link was made: %v", err)
	}
	if err := o.Mkdir("dirlink"); !errors.Is(err, errLink) {
		t.Errorf("mkdir over a link: %v; want a refusal", err)
	}
	if _, err := o.ReadDir("dirlink"); !errors.Is(err, errLink) {
		t.Errorf("readdir of a link: %v; want a refusal", err)
	}
	if err := o.Rename("real", "dirlink/real"); !errors.Is(err, errLink) {
		t.Errorf("rename through a link: %v; want a refusal", err)
	}
	real, _, err := o.Inode("real")
	if err != nil {
		t.Fatal(err)
	}
	if ino, _, err := o.Inode("inside"); err != nil || ino == real && runtime.GOOS != "windows" {
		t.Errorf("inode of a link is %d (%v), its target's: followed", ino, err)
	}
	entries, err := o.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if want := e.Name == "real"; e.Regular != want {
			t.Errorf("entry %+v; want regular %v", e, want)
		}
		if want := e.Name == "d"; e.Dir != want {
			t.Errorf("entry %+v; want dir %v", e, want)
		}
	}
	if got, want := len(entries), 6; got != want {
		t.Errorf("%d entries, want %d", got, want)
	}
}

func TestOSRenameAndRemove(t *testing.T) {
	o, _ := openTemp(t)
	if _, _, err := o.Inode("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("inode of a missing name: %v; want not exist", err)
	}
	if _, err := o.Stat("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("stat of a missing name: %v; want not exist", err)
	}
	a := mustOpen(t, o, "a", Create)
	b := mustOpen(t, o, "b", Create)
	ia, _ := a.Inode()
	ib, _ := b.Inode()
	if ia == ib {
		t.Fatal("two files with one inode")
	}
	if err := o.Rename("b", "a"); err != nil {
		t.Fatal(err)
	}
	if got, _, err := o.Inode("a"); err != nil || got != ib {
		t.Fatalf("after the rename the name leads to %d, %v; want %d", got, err, ib)
	}
	if got, err := a.Inode(); err != nil || got != ia {
		t.Fatalf("the open file became %d, %v; want %d", got, err, ia)
	}
	if err := o.Rename("none", "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("rename of a missing file: %v; want not exist", err)
	}
	if err := o.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if err := o.Remove("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("second remove: %v; want not exist", err)
	}
	if _, err := b.WriteAt([]byte("still open"), 0); err != nil {
		t.Fatalf("write to a removed open file: %v", err)
	}
}

func TestOSLocks(t *testing.T) {
	o, _ := openTemp(t)
	a := mustOpen(t, o, "lock", Create)
	b := mustOpen(t, o, "lock", Create)
	try := func(f File, mode LockMode, want bool) {
		t.Helper()
		got, err := f.TryLock(mode)
		if err != nil || got != want {
			t.Fatalf("try: %v, %v; want %v", got, err, want)
		}
	}
	if err := a.Lock(LockExclusive); err != nil {
		t.Fatal(err)
	}
	try(b, LockExclusive, false)
	try(b, LockShared, false)
	// A locked file can still be read and written by others: instance files
	// carry a heartbeat.
	if _, err := b.WriteAt([]byte("beat"), 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Unlock(); err != nil {
		t.Fatal(err)
	}
	try(b, LockShared, true)
	try(a, LockShared, true)
	try(a, LockExclusive, false) // b is in the way, and a's shared lock is lost now
	try(b, LockExclusive, true)
	try(a, LockShared, false)
	if err := b.Close(); err != nil { // the lock ends with the open file
		t.Fatal(err)
	}
	try(a, LockExclusive, true)
	if err := a.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := a.Unlock(); err != nil {
		t.Fatalf("unlock of nothing: %v", err)
	}
}

func TestOSLockWaits(t *testing.T) {
	o, _ := openTemp(t)
	a := mustOpen(t, o, "lock", Create)
	b := mustOpen(t, o, "lock", Create)
	if err := a.Lock(LockExclusive); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- b.Lock(LockExclusive) }()
	select {
	case err := <-got:
		t.Fatalf("got a lock that is held: %v", err)
	default:
	}
	if err := a.Unlock(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the lock was released and nobody got it")
	}
}

// The garbage collector must not close a file whose lock is still wanted.
func TestOSLockSurvivesGC(t *testing.T) {
	o, _ := openTemp(t)
	a := mustOpen(t, o, "lock", Create)
	if err := a.Lock(LockExclusive); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.GC()
	b := mustOpen(t, o, "lock", 0)
	if got, err := b.TryLock(LockShared); err != nil || got {
		t.Fatalf("try: %v, %v; want false", got, err)
	}
	runtime.KeepAlive(a)
}

func TestOSFreeAndType(t *testing.T) {
	o, _ := openTemp(t)
	if n, err := o.Free(); err != nil || n == 0 {
		t.Errorf("free %d, %v", n, err)
	}
	name, _, err := o.FSType()
	if err != nil || name == "" {
		t.Errorf("type %q, %v", name, err)
	}
}

func TestOSNoCOW(t *testing.T) {
	o, _ := openTemp(t)
	f := mustOpen(t, o, "ring", Create)
	if n, ok := f.(interface{ NoCOW() error }); ok {
		if err := n.NoCOW(); err != nil {
			t.Error(err)
		}
	}
}

func TestMakeDir(t *testing.T) {
	base := t.TempDir()
	p := filepath.Join(base, "a", "b", "c")
	for range 2 {
		if err := MakeDir(p); err != nil {
			t.Fatal(err)
		}
	}
	o, err := OpenDir(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := MakeDir(file); err == nil {
		t.Error("made a directory over a file")
	}
	if _, err := OpenDir(file); err == nil {
		t.Error("opened a file as a directory")
	}
	if _, err := OpenDir(filepath.Join(base, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of a missing directory: %v; want not exist", err)
	}
}

func TestOSLargeWrite(t *testing.T) {
	o, _ := openTemp(t)
	f := mustOpen(t, o, "big", Create)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if _, err := f.WriteAt(want, 7); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, 7); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read back something else, %v", err)
	}
}

// ReadEnd gives what ReadAt gives, wherever the read begins and the file or a page ends.
func TestReadEnd(t *testing.T) {
	dir, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := dir.Open("file", Create)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, 11, 4090, 4095, 4096, 4097, 8192, 9000} {
		content := bytes.Repeat([]byte("0123456789abc"), size/13+1)[:size]
		if _, err := f.WriteAt(content, 0); err != nil {
			t.Fatal(err)
		}
		for off := max(0, size-20); off <= size+2; off++ {
			for length := 1; length <= 24; length++ {
				want, got := make([]byte, length), make([]byte, length)
				n, wantErr := f.ReadAt(want, int64(off))
				m, gotErr := ReadEnd(f, got, int64(off))
				if n != m || wantErr != gotErr || !bytes.Equal(want, got) {
					t.Fatalf("file of %d, %d bytes at %d: got %d %q %v, want %d %q %v", size, length, off, m, got, gotErr, n, want, wantErr)
				}
			}
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadEnd(f, make([]byte, 2), 0); err == nil {
		t.Fatal("a closed file was read")
	}
}
