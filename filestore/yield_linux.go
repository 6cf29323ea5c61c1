package filestore

import (
	"time"

	"golang.org/x/sys/unix"
)

// yield lets other processes run that are ready to.
func yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// nap sleeps for a few µs. time.Sleep may take a millisecond if the process has nothing
// else to do.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // cut short by a signal: the caller looks again anyway
}
