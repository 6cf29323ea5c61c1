package filestore

import (
	"slices"

	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/runs"
	"hansard/filestore/internal/sessionlog"
)

// Entries that are in the ring and not yet in their logs, as this process knows them.
// They are the difference between what a log shows and what the next writer has to build
// on: a session's state is its log plus its pending entries plus the draft of the group
// being planned. Guarded by write.lock, like all of logs.

// pendingEntry is an entry of the ring on its way to its log, with what this process has
// derived from it. That is lost with the caches and derived again.
type pendingEntry struct {
	*journal.Entry
	from    *memory           // memory that holds it; nil: none that is reused
	names   *sessionlog.Names // of its lines; nil: not collected yet
	failed  int               // failed attempts to write it to its log, see applyEntry
	written bool              // writeSideBySide wrote it, under this same write.lock
}

// memory holds entries: those that one scan of the ring found, or those of a group. It is
// reused when none of them is pending any more. Every process reads what all the others
// write: without reuse most of the memory that a busy store allocates would be other
// processes' lines.
type memory struct {
	found journal.Scanned
	lines []byte      // of a group's drafts
	pairs []runs.Pair // and the positions of names in them
	uses  int         // one for each pending entry, and one for the scan or the group while it is under way
}

// pairsFor is room for the positions of n names.
func (m *memory) pairsFor(n int) []runs.Pair {
	begin := len(m.pairs)
	m.pairs = slices.Grow(m.pairs, n)[:begin+n]
	return m.pairs[begin : begin : begin+n]
}

// spareMemories is how many of them are kept, and spareLines and sparePairs how much each
// keeps for lines and names.
const (
	spareMemories = 8
	spareLines    = 1 << 20
	sparePairs    = 16 << 10
)

// pendingEntries are the entries that are not in the logs yet. Which entries a session
// has pending, up to which position, and how long its log will be, is asked here and kept
// nowhere else, so that it can't disagree with the ring (failure 34).
//
// Invariant: all is in ring order, and by has the same entries; those of one log are in
// the order of all. So the first of all is the first of its log, which drop relies on.
type pendingEntries struct {
	all []*pendingEntry            // in ring order
	by  map[string][]*pendingEntry // and by the name of the log

	// Memory to reuse.
	spare  []*pendingEntry
	spares [][]*pendingEntry // empty, with room for one
	unused []*memory
}

// add adds the next entry of the ring, always in ring order. from is the memory that
// holds it; nil: memory that is not reused.
func (p *pendingEntries) add(e *journal.Entry, from *memory) {
	if p.by == nil {
		p.by = map[string][]*pendingEntry{}
	}
	var entry *pendingEntry
	if n := len(p.spare); n > 0 {
		entry, p.spare = p.spare[n-1], p.spare[:n-1]
	} else {
		entry = new(pendingEntry)
	}
	*entry = pendingEntry{Entry: e, from: from}
	if from != nil {
		from.uses++
	}
	p.all = append(p.all, entry)
	of := p.by[e.Name]
	if n := len(p.spares); of == nil && n > 0 {
		of, p.spares = p.spares[n-1], p.spares[:n-1]
	}
	p.by[e.Name] = append(of, entry)
}

// spoil overwrites released memory, in tests, so that any further use of it is noticed.
var spoil func([]byte)

// memory returns memory for a scan of the ring, or for a group. The caller lets go of it
// when it has added the pending entries and no longer needs the others.
func (p *pendingEntries) memory() (m *memory) {
	if n := len(p.unused); n > 0 {
		m, p.unused = p.unused[n-1], p.unused[:n-1]
	} else {
		m = new(memory)
	}
	m.uses = 1
	return m
}

// letGo ends one use of a memory; after the last one it may be used again.
func (p *pendingEntries) letGo(m *memory) {
	if m.uses--; m.uses > 0 {
		return
	}
	m.found.Release()
	if spoil != nil {
		spoil(m.found.Buffer())
		spoil(m.lines[:cap(m.lines)])
		for i := range m.pairs[:cap(m.pairs)] {
			m.pairs[:cap(m.pairs)][i] = runs.Pair{Hash: 0x5757575757575757, At: -1}
		}
	}
	if m.lines = m.lines[:0]; cap(m.lines) > spareLines {
		m.lines = nil
	}
	if m.pairs = m.pairs[:0]; cap(m.pairs) > sparePairs {
		m.pairs = nil
	}
	if len(p.unused) < spareMemories {
		p.unused = append(p.unused, m)
	}
}

// upTo are the first entries, those that end at or before a position. The result is valid
// until the next add or drop.
func (p *pendingEntries) upTo(pos uint64) []*pendingEntry {
	n := 0
	for n < len(p.all) && p.all[n].End() <= pos {
		n++
	}
	return p.all[:n]
}

// drop forgets the first n, which are in their logs or set aside. Never others: a full
// disk stops apply, it does not make it skip entries (rule ApplyStops). Their memory may
// be reused.
func (p *pendingEntries) drop(n int) {
	for _, e := range p.all[:n] {
		of := p.by[e.Name]
		if len(of) > 1 {
			p.by[e.Name] = of[1:]
		} else {
			delete(p.by, e.Name)
			of[0] = nil
			p.spares = append(p.spares, of[:0])
		}
		from := e.from
		*e = pendingEntry{}
		p.spare = append(p.spare, e)
		if from != nil {
			p.letGo(from)
		}
	}
	if n < len(p.all)/2 {
		p.all = p.all[n:]
		return
	}
	rest := copy(p.all, p.all[n:])
	clear(p.all[rest:])
	p.all = p.all[:rest]
}

// of are those of one log, oldest first.
func (p *pendingEntries) of(name string) []*pendingEntry { return p.by[name] }

// end is where the newest entry of a log ends in the ring: an answer about the session
// has to wait for it. 0: none is pending, the log is complete.
func (p *pendingEntries) end(name string) uint64 {
	if of := p.by[name]; len(of) > 0 {
		return of[len(of)-1].End()
	}
	return 0
}

// bytes is how much space they still need in the logs, see checkDisk.
func (p *pendingEntries) bytes() (n uint64) {
	for _, e := range p.all {
		n += uint64(len(e.Lines))
	}
	return n
}
