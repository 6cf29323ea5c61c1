//go:build unix

package httpd

import (
	"fmt"
	"os"
	"syscall"
)

func inodeOf(f *os.File) string {
	if info, err := f.Stat(); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			return fmt.Sprintf("%d", st.Ino)
		}
	}
	return ""
}
