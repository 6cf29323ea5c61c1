//go:build !linux

package bench

import "os"

// fdatasync waits until the content of f is on disk. Go's Sync is the strongest
// the system has, which is what a store has to use there.
func fdatasync(f *os.File) error { return f.Sync() }
