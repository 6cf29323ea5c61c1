package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// disk is a file system in a file, for this test only, that can be cut off, filled, and thrown
// away.
type disk struct {
	t       *testing.T
	image   string
	dir     string // where it is mounted
	options string
	mounted bool
}

// newDisk makes a file system and mounts it, or skips the test if that is not possible.
func newDisk(t *testing.T, kind string, mib int64) *disk {
	t.Helper()
	needs(t, "mkfs."+kind, "mount", "losetup")
	if os.Geteuid() != 0 {
		skip(t, "mounting a file system needs root")
	}
	where := memDir(t)
	d := &disk{t: t, image: filepath.Join(where, "image"), dir: filepath.Join(where, "disk"), options: "loop"}
	must(t, os.Mkdir(d.dir, 0o700))
	must(t, os.WriteFile(d.image, nil, 0o600))
	must(t, os.Truncate(d.image, mib<<20))
	if out, err := exec.Command("mkfs."+kind, "-q", d.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.%s: %v: %s", kind, err, out)
	}
	t.Cleanup(d.unmount) // before its directory is removed
	if out, err := d.tryMount(); err != nil {
		skip(t, "a %s file system in a file can't be mounted: %v: %s", kind, err, out)
	}
	return d
}

func (d *disk) tryMount() (out []byte, err error) {
	out, err = exec.Command("mount", "-o", d.options, d.image, d.dir).CombinedOutput()
	d.mounted = err == nil
	return out, err
}

func (d *disk) mount() {
	d.t.Helper()
	if out, err := d.tryMount(); err != nil {
		d.t.Fatalf("mount: %v: %s", err, out)
	}
}

// unmount also detaches the loop device.
func (d *disk) unmount() {
	d.t.Helper()
	if !d.mounted {
		return
	}
	err := syscall.Unmount(d.dir, 0)
	if errors.Is(err, syscall.EBUSY) {
		d.t.Error("a process is left that uses the disk")
		err = syscall.Unmount(d.dir, syscall.MNT_DETACH)
	}
	if err != nil {
		d.t.Errorf("umount: %v", err)
	}
	d.mounted = err != nil
}

// cut is the power cut: from now on nothing reaches the disk, and what has not reached it is
// lost. Processes that use it must be ended before it is mounted again.
func (d *disk) cut() {
	d.t.Helper()
	if out, err := exec.Command("xfs_io", "-x", "-c", "shutdown", d.dir).CombinedOutput(); err != nil {
		d.t.Fatalf("shutdown: %v: %s", err, out)
	}
}

// newTmpfs mounts a small file system in memory.
func newTmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		skip(t, "a tmpfs can't be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("umount: %v", errors.Join(err, syscall.Unmount(dir, syscall.MNT_DETACH)))
		}
	})
	return dir
}

// fill takes all remaining space on a disk until the file it returns is removed.
func fill(t *testing.T, dir string) (filler string) {
	t.Helper()
	filler = filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	must(t, err)
	// Large blocks first, then the rest in ever smaller ones.
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if err := errors.Join(ignoreFull(err), ignoreFull(f.Sync()), f.Close()); err != nil {
		t.Fatal(fmt.Errorf("fill the disk: %w", err))
	}
	return filler
}

func ignoreFull(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}
