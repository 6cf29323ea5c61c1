package peers

import (
	"os"
	"strconv"
	"strings"

	"hansard/internal/vfs"
)

// LockHolder asks the kernel which process has write.lock, to name it in an error. The
// control file names the last process that recorded itself there; one that was stopped
// between flock and that write is known only to the kernel. 0: not known, for example
// because it is in a PID namespace that this process can't see into.
//
// It is for people only. The PID may belong to another process by the time it is read, so
// nothing depends on it.
func LockHolder(fsys vfs.FS) int {
	inode, _, err := fsys.Inode(WriteLock)
	if err != nil {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	// By inode alone: on btrfs the device numbers in /proc/locks are not those of stat.
	// So a locked file with the same inode number on another file system looks like ours:
	// if two processes match, neither is named, or someone might kill the wrong one.
	found := 0
	want := ":" + strconv.FormatUint(inode, 10)
	for _, line := range strings.Split(string(locks), "\n") {
		// 12: FLOCK  ADVISORY  WRITE 4711 fe:00:131077 0 EOF
		// A waiting process has "->" before FLOCK, so its fields do not match.
		field := strings.Fields(line)
		if len(field) < 6 || field[1] != "FLOCK" || field[3] != "WRITE" || !strings.HasSuffix(field[5], want) {
			continue
		}
		pid, err := strconv.Atoi(field[4])
		if err != nil || pid <= 0 || found != 0 && found != pid {
			return 0
		}
		found = pid
	}
	return found
}
