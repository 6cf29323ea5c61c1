package vfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/windows"
)

const openFlags = 0

func (f *osFile) readOnce(p []byte, off int64) (int, error) { return f.ReadAt(p, off) }

// lockState remembers whether the lock is held. Windows refuses a second lock
// on the same range even to its holder, where flock converts it.
type lockState struct {
	mu   sync.Mutex // guards held, and the order of lock calls on this file
	held bool
}

// Windows locks are mandatory: nobody else could read a locked range. So the
// lock is on one byte that no file reaches.
func lockedByte() *windows.Overlapped {
	return &windows.Overlapped{Offset: 0xfffffffe, OffsetHigh: 0x7fffffff}
}

// Lock implements [File].
func (f *osFile) Lock(mode LockMode) error {
	_, err := f.lock("lock", mode, 0)
	return err
}

// TryLock implements [File]. As with flock, the current lock is released
// first, so a failed upgrade loses it.
func (f *osFile) TryLock(mode LockMode) (bool, error) {
	return f.lock("trylock", mode, windows.LOCKFILE_FAIL_IMMEDIATELY)
}

func (f *osFile) lock(op string, mode LockMode, flags uint32) (bool, error) {
	if mode == LockExclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	got := true
	err := f.control(op, func(fd uintptr) error {
		if err := f.unlockLocked(fd); err != nil {
			return err
		}
		err := windows.LockFileEx(windows.Handle(fd), flags, 0, 1, 0, lockedByte())
		if err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING {
			got, err = false, nil
		}
		f.held = got && err == nil
		return err
	})
	return got && err == nil, err
}

// Unlock implements [File].
func (f *osFile) Unlock() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.control("unlock", f.unlockLocked)
}

func (f *osFile) unlockLocked(fd uintptr) error {
	if !f.held {
		return nil
	}
	if err := windows.UnlockFileEx(windows.Handle(fd), 0, 1, 0, lockedByte()); err != nil {
		return err
	}
	f.held = false
	return nil
}

func datasync(fd uintptr) error { return windows.FlushFileBuffers(windows.Handle(fd)) }

// syncDir does nothing: Windows has no sync of a directory; NTFS journals the
// entry and writes it out with the flush of the file itself.
func syncDir(*os.File) error { return nil }

// lookEntry does not follow the last component of the name.
func (o *OS) lookEntry(name string) (uint64, kind, error) {
	l, err := filepath.Localize(name)
	if err != nil {
		return 0, 0, err
	}
	info, err := o.root.Lstat(l)
	if err != nil {
		return 0, 0, underlying(err)
	}
	k := kindOf(info.Mode())
	if k != kindRegular {
		return 0, k, nil // opening it may have side effects, and its inode is never compared
	}
	f, err := o.root.Open(l)
	if err != nil {
		return 0, 0, underlying(err)
	}
	defer f.Close()
	return lookFile(f)
}

func lookFile(f *os.File) (uint64, kind, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, underlying(err)
	}
	var bh windows.ByHandleFileInformation
	if err := withFD(f, func(fd uintptr) error {
		return windows.GetFileInformationByHandle(windows.Handle(fd), &bh)
	}); err != nil {
		return 0, 0, err
	}
	return uint64(bh.FileIndexHigh)<<32 | uint64(bh.FileIndexLow), kindOf(info.Mode()), nil
}

func statInode(_ fs.FileInfo, ino uint64) uint64 { return ino }

// volume is the mount point that the directory is on.
func (o *OS) volume() (*uint16, error) {
	abs, err := filepath.Abs(o.root.Name())
	if err != nil {
		return nil, err
	}
	p, err := windows.UTF16PtrFromString(abs)
	if err != nil {
		return nil, err
	}
	buf := make([]uint16, windows.MAX_PATH+1)
	if err := windows.GetVolumePathName(p, &buf[0], uint32(len(buf))); err != nil {
		return nil, os.NewSyscallError("GetVolumePathName", err)
	}
	return &buf[0], nil
}

// Free implements [FS].
func (o *OS) Free() (uint64, error) {
	abs, err := filepath.Abs(o.root.Name())
	if err != nil {
		return 0, err
	}
	p, err := windows.UTF16PtrFromString(abs)
	if err != nil {
		return 0, err
	}
	var free uint64
	err = windows.GetDiskFreeSpaceEx(p, &free, nil, nil)
	return free, os.NewSyscallError("GetDiskFreeSpaceEx", err)
}

// FSTypeOf is not known here.
func FSTypeOf(string) string { return "" }

// FSType names the file system, and says whether it is on another machine.
func (o *OS) FSType() (name string, network bool, err error) {
	vol, err := o.volume()
	if err != nil {
		return "", false, err
	}
	buf := make([]uint16, windows.MAX_PATH+1)
	if err := windows.GetVolumeInformation(vol, nil, 0, nil, nil, nil, &buf[0], uint32(len(buf))); err != nil {
		return "", false, os.NewSyscallError("GetVolumeInformation", err)
	}
	return windows.UTF16ToString(buf), windows.GetDriveType(vol) == windows.DRIVE_REMOTE, nil
}

// identify is lookEntry with the size.
func (o *OS) identify(name string) (ino uint64, size int64, err error) {
	st, err := o.Stat(name)
	return st.Inode, st.Size, underlying(err)
}
