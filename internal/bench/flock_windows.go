package bench

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockAt is far past any data: locks are mandatory here.
func lockAt() *windows.Overlapped { return &windows.Overlapped{OffsetHigh: 1 << 30} }

// flock waits for the exclusive lock on f.
func flock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, lockAt())
}

func funlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, lockAt())
}

// SyncDir has nothing to do: directories can't be synced here.
func SyncDir(string) error { return nil }
