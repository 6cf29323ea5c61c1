// Package peers is what the processes that have one store open know about each other:
//
//   - locks.go, gate.go: the lock files that order them
//   - control.go: how far the ring is, published by the process that changed it
//   - instance.go: a file per process, locked by the kernel while the process lives
//   - lease.go, waiting.go: the table in that file: turns kept alive, turns waited for
//   - holder.go: the state of the holder of a turn
//
// None of it is ever synced. It has meaning only among processes that are alive at the same
// time; after a power cut it is ignored, and rebuilt from the journal (ControlNotTrusted).
// Only the kernel says whether a process is alive, never a PID or an age (failures 1 to 7
// of docs/failures.md).
package peers

// The files that kernel locks (flock) are taken on. They are made once and never removed;
// their existence means nothing. After a lock file is removed or renamed, two processes
// could lock two different files (failures 16 and 18): so a process that took write.lock
// compares its inode with the one now at that path.
//
//	write.lock  orders what is written; held for page-cache work only
//	sync.lock   lets one sync serve all processes that wait; progress does not need it
//	open.lock   held shared by every process that has the store open; one that gets it
//	            exclusively is alone, and recovers what a crash left
//	check.lock  one checkpoint at a time; progress does not need it
//
// Order: check.lock, sync.lock, write.lock, open.lock. A lock ends with its process, so
// a dead holder never blocks anybody; a stopped one blocks others only if they need the
// lock to make progress, which is true of write.lock alone.
const (
	WriteLock = "write.lock"
	SyncLock  = "sync.lock"
	OpenLock  = "open.lock"
	CheckLock = "check.lock"
)
