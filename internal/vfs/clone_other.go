//go:build !linux

package vfs

// cloneBlocks is not known here: what is to be shared is copied.
func cloneBlocks(dst, src uintptr, n int64) (int64, error) { return 0, nil }
