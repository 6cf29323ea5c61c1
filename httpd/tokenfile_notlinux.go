//go:build unix && !linux

package httpd

import "os"

// filePlace distinguishes a file from a copy of it.
func filePlace(f *os.File) string { return inodeOf(f) }
