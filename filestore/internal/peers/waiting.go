package peers

import (
	"slices"

	"hansard/internal/vfs"
)

// Which sessions' turns the processes wait for, as their tables tell. Only fairness depends
// on it: a process that finds a turn free lets processes with lower tickets go first, for a
// moment (courtesy.go). So here, other than in holder.go, an error may be ignored.

// OlderWaiters counts the living processes that wait for a session's turn with a lower
// ticket. A process whose file can't be read is not waited for; a dead one never is.
func (l *Leases) OlderWaiters(name string, ticket uint64) (n int) {
	_ = eachOther(l.fs, l.Instance(), vfs.ReadOnly, func(_ string, f vfs.File) error {
		// The table first: asking for the lock is a system call more, and most do not
		// wait.
		if waits(f, MarkOf(name), ticket) && !dead(f) {
			n++
		}
		return nil
	})
	return n
}

// waits tells whether an instance waits for a session with a lower ticket. Two sessions
// with the same mark cost a moment of waiting for nothing.
func waits(f vfs.File, mark, ticket uint64) bool {
	records, _, _ := ReadTable(f)
	return slices.ContainsFunc(records, func(r tableRecord) bool {
		return r.Kind == kindWaiter && r.Key == mark && r.value < ticket
	})
}

// Announce tells other processes that this one waits for a session's turn, once per
// session, however many callers wait in this process. False: it could not be written, and
// they will not let this one go first. Withdraw takes it back.
func (l *Leases) Announce(name string, ticket uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	slot, err := l.put(&tableRecord{Kind: kindWaiter, Key: MarkOf(name), value: ticket})
	if err != nil {
		return false
	}
	if l.waiting == nil {
		l.waiting = map[string]int{}
	}
	l.waiting[name] = slot
	return true
}

// Withdraw takes an announcement back. If the record can't be freed now, others let this
// process go first for nothing, a moment each time, until it is mended.
func (l *Leases) Withdraw(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slot, ok := l.waiting[name]; ok {
		delete(l.waiting, name)
		l.free(slot)
	}
}
