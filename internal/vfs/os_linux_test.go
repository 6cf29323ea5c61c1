package vfs

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOSReadLeavesNoTrace: reading does not change a file's access time, not even
// when it was written since it was last read.
func TestOSReadLeavesNoTrace(t *testing.T) {
	dir := t.TempDir()
	fsys, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	path := filepath.Join(dir, "log")
	accessed := func() time.Time {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return time.Unix(st.Atim.Unix())
	}
	// Read before it was written to: any mount that keeps access times gives it a
	// new one for the next read.
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	prepare := func() {
		if err := os.WriteFile(path, []byte("line\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	prepare()
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if accessed().Equal(old) {
		t.Skip("SKIPPED: this mount keeps no access times (noatime)")
	}
	for _, flags := range []Flag{ReadOnly, 0} {
		prepare()
		f, err := fsys.Open("log", flags)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(make([]byte, 4), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got := accessed(); !got.Equal(old) {
			t.Errorf("flags %d: read at %v, was %v before", flags, got, old)
		}
	}
}

// TestOSReadOthersFile: who may read a file that is somebody else's can open it,
// though he may not keep its access time from changing.
func TestOSReadOthersFile(t *testing.T) {
	if dir := os.Getenv("HANSARD_TEST_OTHERS"); dir != "" {
		fsys, err := OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer fsys.Close()
		f, err := fsys.Open("log", ReadOnly)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := make([]byte, 5)
		if _, err := f.ReadAt(b, 0); err != nil || string(b) != "line\n" {
			t.Fatalf("read %q, %v", b, err)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can become somebody else")
	}
	dir, err := os.MkdirTemp("", "hansard-others")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log"), []byte("line\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test") // the one we are is in a directory of our own
	if err := copyProgram(program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^TestOSReadOthersFile$", "-test.v")
	cmd.Dir, cmd.Env = dir, []string{"HANSARD_TEST_OTHERS=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

func copyProgram(to string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, from); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// TestReplace: a file takes the place of another, with nothing left of that one; without
// exchanging the two if there is nothing to exchange with, or the file system can't; and what
// is no file is left alone.
func TestReplace(t *testing.T) {
	fsys, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	write := func(t *testing.T, name string) {
		t.Helper()
		f, err := fsys.Open(name, Create)
		if err == nil {
			_, err = f.WriteAt([]byte(name), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	read := func(t *testing.T, name string) string {
		t.Helper()
		f, err := fsys.Open(name, ReadOnly)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := [16]byte{}
		n, err := f.ReadAt(b[:], 0)
		if err != io.EOF {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	if err := fsys.Mkdir("runs"); err != nil {
		t.Fatal(err)
	}
	for name, as := range map[string]FS{"exchanged": fsys, "renamed": struct{ FS }{fsys}} {
		t.Run(name, func(t *testing.T) {
			for _, there := range []bool{false, true} {
				write(t, "new")
				if err := Replace(as, "new", "runs/0"); err != nil {
					t.Fatal(err)
				}
				if got := read(t, "runs/0"); got != "new" {
					t.Errorf("there was one: %v: %q is there now", there, got)
				}
				if _, _, err := fsys.Inode("new"); !os.IsNotExist(err) {
					t.Errorf("there was one: %v: the first name is still there: %v", there, err)
				}
			}
			write(t, "new")
			if err := fsys.Mkdir("runs/dir"); err != nil {
				t.Fatal(err)
			}
			if err := Replace(as, "new", "runs/dir"); err == nil {
				t.Error("a directory was replaced")
			}
			if err := Replace(as, "missing", "runs/0"); !os.IsNotExist(err) {
				t.Errorf("replaced by nothing: %v", err)
			}
			if got := read(t, "new") + read(t, "runs/0"); got != "newnew" {
				t.Errorf("%q is left", got)
			}
			if err := fsys.Remove("runs/0"); err != nil {
				t.Fatal(err)
			}
		})
	}
	write(t, "a")
	write(t, "b")
	if done, err := fsys.exchange("a", "b"); err != nil {
		t.Error(err)
	} else if !done {
		t.Log("this file system can't exchange two files: both ways were the same")
	} else if got := read(t, "b"); got != "a" {
		t.Errorf("exchanged: %q", got)
	}
}

// exchanger counts what it is asked to exchange.
type exchanger struct {
	FS
	asked int
}

func (e *exchanger) exchange(string, string) (bool, error) { e.asked++; return true, nil }

// TestReplaceExchanges: a file system that can exchange files is asked to.
func TestReplaceExchanges(t *testing.T) {
	e := &exchanger{}
	if err := Replace(e, "new", "old"); err != nil || e.asked != 1 {
		t.Errorf("asked %d times, %v", e.asked, err)
	}
}
