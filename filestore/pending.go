package filestore

import (
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
)

// Entries that are in the ring and not yet in their logs, as this process knows them.
// They are the difference between what a log shows and what the next writer has to build
// upon: a session's state is its log plus its pending entries plus the draft of the group
// being planned. Guarded by write.lock, like all of logs.

// pendingEntry is an entry of the ring on its way to its log, with what this process
// found out about it. That is lost with the caches and found out again.
type pendingEntry struct {
	*journal.Entry
	names   *sessionlog.Names // of its lines; nil: not looked at yet
	failed  int               // attempts to write it to its log that failed, see applyEntry
	written bool              // writeSideBySide wrote it, under this same write.lock
}

// pendingEntries are the entries that are not in the logs yet. What waits for a session,
// up to which position, and how long its log should be meanwhile, is asked of them and
// kept nowhere else, so that it can't disagree with the ring (failure 34).
//
// Invariant: all is in ring order, and by has the same entries; those of one log are in
// the order of all. So the first of all is the first of its log, which drop relies on.
type pendingEntries struct {
	all []*pendingEntry            // in ring order
	by  map[string][]*pendingEntry // and by the name of the log
}

// add takes the next entry of the ring: never one before the last.
func (p *pendingEntries) add(e *journal.Entry) {
	if p.by == nil {
		p.by = map[string][]*pendingEntry{}
	}
	entry := &pendingEntry{Entry: e}
	p.all = append(p.all, entry)
	p.by[e.Name] = append(p.by[e.Name], entry)
}

// upTo are the first of them, those that end at or before a position. The result is good
// until the next add or drop.
func (p *pendingEntries) upTo(pos uint64) []*pendingEntry {
	n := 0
	for n < len(p.all) && p.all[n].End() <= pos {
		n++
	}
	return p.all[:n]
}

// drop forgets the first n, which are in their logs or set aside. Never others: out of
// space stops apply, it does not skip (rule ApplyStops).
func (p *pendingEntries) drop(n int) {
	for _, e := range p.all[:n] {
		if rest := p.by[e.Name][1:]; len(rest) > 0 {
			p.by[e.Name] = rest
		} else {
			delete(p.by, e.Name)
		}
	}
	p.all = p.all[n:]
}

// of are those of one log, oldest first.
func (p *pendingEntries) of(name string) []*pendingEntry { return p.by[name] }

// end is where the newest entry of a log ends in the ring: what an answer about the
// session has to wait for. 0: none is pending, the log alone tells.
func (p *pendingEntries) end(name string) uint64 {
	if of := p.by[name]; len(of) > 0 {
		return of[len(of)-1].End()
	}
	return 0
}

// bytes is how much room they still need in the logs, see checkDisk.
func (p *pendingEntries) bytes() (n uint64) {
	for _, e := range p.all {
		n += uint64(len(e.Lines))
	}
	return n
}
