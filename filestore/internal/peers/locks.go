// Package peers is what the processes that have one store open know of each other:
//
//   - locks.go, gate.go: the lock files that order them
//   - control.go: how far the ring is, published by whoever changed it
//   - instance.go: a file per process, locked by the kernel while the process lives
//   - lease.go, waiting.go: the table in that file: turns kept alive, turns waited for
//   - holder.go: what became of the holder of a turn
//
// Nothing in it is ever synced. It says something only among processes that live at the
// same time; after a power cut it is ignored, and rebuilt from the journal
// (ControlNotTrusted). Whether a process lives is the kernel's answer, never a PID's or
// an age's (failures 1 to 7 of docs/failures.md).
package peers

// The files that the kernel's locks (flock) are taken on. They are made once and never
// removed; that they exist means nothing. A removed or renamed lock file would be two
// files for two processes, each with its lock (failures 16 and 18): so whoever took
// write.lock compares the inode with the one the name leads to now.
//
//	write.lock  orders what is written; held for page-cache work only
//	sync.lock   lets one sync serve all processes that wait; progress does not need it
//	open.lock   held shared by every process that has the store open; whoever gets it
//	            exclusively is alone, and recovers what a crash left
//	check.lock  one checkpoint at a time; progress does not need it
//
// Order: check.lock, sync.lock, write.lock, open.lock. A lock ends with its process, so
// a dead holder never blocks anybody; a stopped one blocks only where progress needs the
// lock, which is write.lock alone.
const (
	WriteLock = "write.lock"
	SyncLock  = "sync.lock"
	OpenLock  = "open.lock"
	CheckLock = "check.lock"
)
