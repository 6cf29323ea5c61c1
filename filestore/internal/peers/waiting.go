package peers

import (
	"cmp"
	"math"
	"slices"

	"hansard/internal/vfs"
)

// Which sessions' turns the processes wait for, according to their tables. Only fairness
// depends on it: a process that finds a turn free lets processes with lower tickets go
// first, for a moment (courtesy.go). So here, unlike in holder.go, an error may be ignored.

// Waiter is a process that waits for a session's turn.
type Waiter struct {
	Instance string // the name of its file in instances/
	Ticket   uint64 // a lower ticket has waited longer
}

// passedOver is a waiter that did not respond when it was next, and the session.
type passedOver struct {
	Waiter
	mark uint64
}

// passedMax is how many of them are remembered. A forgotten one is waited for once more.
const passedMax = 1024

// OlderWaiters are the processes that wait for a session's turn with a lower ticket, the
// oldest first, without those that were passed over. The first of them is alive; the others
// may not be. A process whose file can't be read is not waited for.
func (l *Leases) OlderWaiters(name string, ticket uint64) []Waiter {
	older, _, _ := l.waitersBefore(name, ticket) // a process not yet in the roster is younger
	return older
}

// Waiters are the other processes that wait for a session's turn, as in OlderWaiters, and
// those that were passed over.
func (l *Leases) Waiters(name string) (next, passed []Waiter) {
	next, passed, fresh := l.waitersBefore(name, math.MaxUint64)
	if len(next) == 0 && !fresh {
		// Nobody waited when the roster was read. A turn may be held for less time than that.
		l.CloseRoster()
		next, passed, _ = l.waitersBefore(name, math.MaxUint64)
	}
	return next, passed
}

func (l *Leases) waitersBefore(name string, ticket uint64) (next, passed []Waiter, fresh bool) {
	mark := MarkOf(name)
	fresh = l.roster.each(l, func(instance string, f vfs.File) {
		if t, waits := ticketIn(f, mark); waits && t < ticket {
			next = append(next, Waiter{instance, t})
		}
	})
	slices.SortFunc(next, func(a, b Waiter) int {
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), cmp.Compare(a.Instance, b.Instance))
	})
	l.mu.Lock()
	next = slices.DeleteFunc(next, func(w Waiter) bool {
		over := l.passed[passedOver{w, mark}]
		if over {
			passed = append(passed, w)
		}
		return over
	})
	l.mu.Unlock()
	// Checking only the first saves system calls: most of them are alive.
	for len(next) > 0 && next[0].gone(l) {
		next = next[1:]
	}
	return next, passed, fresh
}

// gone tells whether the process of a waiter is dead, or can't be checked.
func (w *Waiter) gone(l *Leases) (gone bool) {
	err := l.roster.with(l, w.Instance, func(f vfs.File) { gone = deadNow(f) })
	return err != nil || gone
}

// deadNow is dead for a file that stays open.
func deadNow(f vfs.File) bool {
	gone := dead(f)
	if gone {
		_ = f.Unlock() // closing would release it, but f stays open
	}
	return gone
}

// ticketIn is the ticket with which an instance waits for a session, if it does. If two
// sessions have the same mark, somebody waits a moment for nothing.
func ticketIn(f vfs.File, mark uint64) (ticket uint64, waits bool) {
	_, _ = eachRecord(f, func(r *tableRecord) bool {
		if r.Kind == kindWaiter && r.Key == mark {
			ticket, waits = r.value, true
		}
		return !waits
	})
	return ticket, waits
}

// PassOver stops waiting for processes that did not respond: they are stopped, or were not
// scheduled for a long time. They count again when they wait again, with another ticket.
func (l *Leases) PassOver(name string, late ...Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.passed == nil || len(l.passed) >= passedMax {
		l.passed = map[passedOver]bool{}
	}
	for _, w := range late {
		l.passed[passedOver{w, MarkOf(name)}] = true
	}
}

// Came is how a waiter responded to its bell.
type Came int

// A waiter withdraws its announcement as soon as it wakes up, before any disk access.
const (
	CameNot  Came = iota // it still waits
	CameUp               // it woke up, and claims the turn or has given up
	CameDead             // its process is gone
)

// Came tells how a waiter responded. An error counts as CameUp: the waiter can't be seen.
func (l *Leases) Came(name string, w Waiter) Came {
	came := CameUp
	_ = l.roster.with(l, w.Instance, func(f vfs.File) {
		switch t, waits := ticketIn(f, MarkOf(name)); {
		case deadNow(f):
			came = CameDead
		case waits && t == w.Ticket:
			came = CameNot
		}
	})
	return came
}

// Announce tells other processes that this one waits for a session's turn, once per
// session, however many callers wait in this process. False: it could not be written, and
// they will not let this one go first. Withdraw undoes it.
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

// Withdraw undoes Announce. If the record can't be freed now, others let this process go
// first for nothing, a moment each time, until it is mended.
func (l *Leases) Withdraw(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slot, ok := l.waiting[name]; ok {
		delete(l.waiting, name)
		l.free(slot)
	}
}
