//go:build !linux

package vfs

// DirStamp can't be told here.
func (o *OS) DirStamp(string) (d DirStamp, ok bool) { return d, false }
