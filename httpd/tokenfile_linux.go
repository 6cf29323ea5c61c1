package httpd

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// filePlace distinguishes a file from a copy of it: by its inode, and the inode's
// creation time where the file system records it.
func filePlace(f *os.File) string {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return inodeOf(f)
	}
	if st.Mask&unix.STATX_BTIME == 0 {
		return fmt.Sprintf("%d", st.Ino)
	}
	return fmt.Sprintf("%d-%d.%09d", st.Ino, st.Btime.Sec, st.Btime.Nsec)
}
