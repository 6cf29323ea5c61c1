package filestore

import (
	"os"
	"strconv"
	"strings"

	"hansard/internal/vfs"
)

// lockHolder asks the kernel which process has write.lock: one that was stopped
// before it could say who it is has it too. 0: not known, as from inside another
// PID namespace.
func lockHolder(fsys vfs.FS) int {
	inode, _, err := fsys.Inode(writeLockName)
	if err != nil {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	want := ":" + strconv.FormatUint(inode, 10)
	for _, line := range strings.Split(string(locks), "\n") {
		// 12: FLOCK  ADVISORY  WRITE 4711 fe:00:131077 0 EOF
		field := strings.Fields(line)
		if len(field) < 6 || field[1] != "FLOCK" || field[3] != "WRITE" || !strings.HasSuffix(field[5], want) {
			continue
		}
		if pid, err := strconv.Atoi(field[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
