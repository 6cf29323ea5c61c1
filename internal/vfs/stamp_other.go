//go:build !linux

package vfs

// DirStamp is not available here.
func (o *OS) DirStamp(string) (d DirStamp, ok bool) { return d, false }
