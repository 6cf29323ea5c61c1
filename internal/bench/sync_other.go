//go:build !linux

package bench

import "os"

// Fdatasync waits until the content of f is on disk. Go's Sync is the strongest
// the system has, which is what a store has to use there.
func Fdatasync(f *os.File) error { return f.Sync() }
