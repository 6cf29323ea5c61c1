//go:build !linux

package peers

import "hansard/internal/vfs"

// LockHolder is not known if the kernel has no /proc/locks; the control file has what the
// holder recorded (LastHolder).
func LockHolder(vfs.FS) int { return 0 }
