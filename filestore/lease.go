package filestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// A process tells the others which turns it keeps alive, and which it waits for,
// in its instance file: a table behind the marks, never synced. What it says is
// worth nothing once the process is dead, which the kernel tells.
//
//	record  key u64 | value u64 | held u64 | wall u64 | kind u8 | flags u8 | 2 zeros | crc u32
//
// A lease has the nonce of its grant as its key, a count that grows with each renewal
// as its value, how many milliseconds it was held when it was last renewed, and when that
// was, for people. A waiter has the mark of its session and its ticket.

const (
	tableAt     = 8 * markSlots
	recordWidth = 40
	tableStart  = 8 // records a new instance file has room for

	kindFree   = 0
	kindLease  = 1
	kindWaiter = 2

	flagOverdue = 1 // held for its whole MaxHold
)

// tableRecord is one record of the table.
type tableRecord struct {
	key, value uint64
	held       time.Duration
	wall       time.Time
	kind       byte
	flags      byte
}

func (r *tableRecord) encode() []byte {
	b := make([]byte, recordWidth)
	if r.kind == kindFree {
		return b
	}
	le := binary.LittleEndian
	le.PutUint64(b, r.key)
	le.PutUint64(b[8:], r.value)
	le.PutUint64(b[16:], uint64(r.held.Milliseconds()))
	if !r.wall.IsZero() {
		le.PutUint64(b[24:], uint64(r.wall.UnixMicro()))
	}
	b[32], b[33] = r.kind, r.flags
	le.PutUint32(b[36:], checksum(b[:36]))
	return b
}

func decodeRecord(b []byte) (r tableRecord, ok bool) {
	le := binary.LittleEndian
	if b[32] == kindFree && le.Uint32(b[36:]) == 0 {
		return r, true
	}
	r = tableRecord{key: le.Uint64(b), value: le.Uint64(b[8:]), held: time.Duration(le.Uint64(b[16:])) * time.Millisecond,
		kind: b[32], flags: b[33]}
	if wall := le.Uint64(b[24:]); wall != 0 {
		r.wall = time.UnixMicro(int64(wall)).UTC()
	}
	return r, le.Uint32(b[36:]) == checksum(b[:36])
}

// findLease reads the record of a grant from the table of an instance file. One that
// is being written is read again; if it may be one that stays unreadable, that is
// an error, and no sign of death.
func findLease(f vfs.File, nonce uint64) (r tableRecord, found bool, err error) {
	for range 20 {
		records, whole, err := readTable(f)
		for _, r := range records {
			if r.kind == kindLease && r.key == nonce {
				return r, true, nil
			}
		}
		if err != nil || whole {
			return r, false, err
		}
	}
	return r, false, errTornRecord
}

var errTornRecord = errors.New("a record of the instance file is not valid")

// readTable reads the table of an instance file. Not whole: some records are not
// valid, and left out.
func readTable(f vfs.File) (records []tableRecord, whole bool, err error) {
	size, err := f.Size()
	if err != nil {
		return nil, false, err
	}
	b := make([]byte, max(0, size-tableAt))
	n, err := f.ReadAt(b, tableAt)
	if err != nil && err != io.EOF {
		return nil, false, err
	}
	whole = true
	// A part of a record at the end is new: nobody can be looking for it.
	for b = b[:n]; len(b) >= recordWidth; b = b[recordWidth:] {
		if r, ok := decodeRecord(b); ok {
			records = append(records, r)
		} else {
			whole = false
		}
	}
	return records, whole, nil
}

// grantOf is a grant of one session.
type grantOf struct {
	name  string
	grant hansard.Grant
}

// lease is a turn that this process keeps alive. Times are of its own clock.
type lease struct {
	slot    int
	record  tableRecord
	ttl     time.Duration
	maxHold time.Duration
	remote  bool // its holder is not this process, and outlives it
	began   time.Duration
	renewed time.Duration
	lapse   *time.Timer // tells others how MaxHold goes by; nil: no bound
}

// leases are what this process has in the table of its instance file, and what it
// saw in others'.
type leases struct {
	mu      sync.Mutex
	inst    *instance // whose table it is; nil: not registered yet
	used    []bool    // slots of the table
	held    map[grantOf]*lease
	waiting map[string]int      // slots of announced waiters, by session
	watched map[string]*watched // by session
	watches int                 // how many of them may be before the old ones are dropped
	// renewals counts those of all leases: a lease that is dropped and kept anew
	// must not show a count that somebody saw of it long ago.
	renewals uint64

	// torn are the slots whose last writing failed, and what belongs there: any
	// part of it may be, and nobody can tell whose record it is.
	torn   map[int]tableRecord
	timers bool        // mender may be used; not in the simulation
	mender *time.Timer // writes them again
}

// mendEvery is how often a record is tried that could not be written.
const mendEvery = 500 * time.Millisecond

// nonceOf is the random part of a grant, which no two grants share.
func nonceOf(g hansard.Grant) uint64 {
	_, hex, _ := strings.Cut(string(g), "-")
	nonce, _ := strconv.ParseUint(hex, 16, 64)
	return nonce
}

// put writes a record into a free slot.
func (l *leases) put(r *tableRecord) (slot int, err error) {
	if l.inst == nil {
		return 0, errors.New("this process is not registered in the store")
	}
	for slot = 0; slot < len(l.used) && l.used[slot]; slot++ {
	}
	for len(l.used) <= slot {
		l.used = append(l.used, false)
	}
	l.used[slot] = true
	if err := l.write(slot, r); err != nil {
		l.torn[slot] = tableRecord{} // it is not wanted any more
		return 0, err
	}
	return slot, nil
}

// write writes a record, and before it those that could not be written.
func (l *leases) write(slot int, r *tableRecord) error {
	l.mend(slot)
	return l.writeSlot(slot, r)
}

func (l *leases) writeSlot(slot int, r *tableRecord) error {
	if err := l.inst.writeAt(r.encode(), int64(tableAt+slot*recordWidth)); err != nil {
		if l.torn == nil {
			l.torn = map[int]tableRecord{}
		}
		l.torn[slot] = *r
		if l.timers && l.mender == nil {
			l.mender = time.AfterFunc(mendEvery, l.mendNow)
		}
		return fmt.Errorf("write the instance file: %w", err)
	}
	delete(l.torn, slot)
	return nil
}

// mend writes the records that could not be written, but for one that is about to
// be. The caller holds l.mu.
func (l *leases) mend(except int) {
	for slot, r := range l.torn {
		if slot != except && l.writeSlot(slot, &r) == nil && r.kind == kindFree {
			l.used[slot] = false
		}
	}
}

// mendNow writes what could not be written, and if it still can't, later again.
func (l *leases) mendNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mend(-1)
	l.mender = nil
	if len(l.torn) > 0 && l.timers {
		l.mender = time.AfterFunc(mendEvery, l.mendNow)
	}
}

// free empties a slot. If that fails the record stays for a moment.
func (l *leases) free(slot int) {
	if l.write(slot, &tableRecord{}) == nil {
		l.used[slot] = false
	}
}

// keepAlive begins to keep a grant alive, before it can be seen in the ring: a grant
// whose nonce is not in the table of its instance counts as given up. already is
// how long it was held before, by another process.
func (s *Store) keepAlive(name string, t *hansard.Turn, already time.Duration) error {
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) > 0 && len(l.held)&(len(l.held)-1) == 0 {
		s.dropSilent()
	}
	now := s.cfg.mono()
	h := &lease{ttl: t.TTL, maxHold: t.MaxHold, remote: t.Remote, began: now - already, renewed: now}
	h.record = tableRecord{kind: kindLease, key: nonceOf(t.Grant), value: l.nextCount(), held: already, wall: hansard.Now()}
	g := grantOf{name, t.Grant}
	var err error
	if old := l.held[g]; old != nil {
		// It moved away and comes back: two records of one grant would be
		// one that is renewed and one that stands still.
		h.slot = old.slot
		err = l.write(h.slot, &h.record)
		old.stop()
	} else {
		h.slot, err = l.put(&h.record)
	}
	if err != nil {
		return err
	}
	if l.held == nil {
		l.held = map[grantOf]*lease{}
	}
	l.held[g] = h
	if h.maxHold > 0 && !s.cfg.inline {
		h.lapse = time.AfterFunc(s.nextLapse(h), func() { s.lapsed(g) })
	}
	return nil
}

// nextCount is the count of a renewal: no two of this process have the same. The
// caller holds l.mu.
func (l *leases) nextCount() uint64 {
	l.renewals++
	return l.renewals
}

// dropSilent forgets leases that nobody has renewed for long: moved to another
// process, or superseded while their holder slept. One with a MaxHold is remembered
// until that is over: kept anew it would begin anew. The caller holds l.mu.
func (s *Store) dropSilent() {
	now := s.cfg.mono()
	for g, h := range s.leases.held {
		if now-h.renewed > 4*h.ttl && (h.maxHold == 0 || s.overdue(h)) {
			s.leases.drop(g, h)
		}
	}
}

func (l *leases) drop(g grantOf, h *lease) {
	h.stop()
	delete(l.held, g)
	l.free(h.slot)
}

func (h *lease) stop() {
	if h.lapse != nil {
		h.lapse.Stop()
	}
}

// giveUp ends the keeping of a grant, if this process does it.
func (s *Store) giveUp(name string, grant hansard.Grant) {
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	g := grantOf{name, grant}
	if h := l.held[g]; h != nil {
		l.drop(g, h)
	}
}

// lapsed notes, for others to see, for how long a turn was held: who waits sees when
// its MaxHold is over, and a process that it moves to goes on counting from there.
func (s *Store) lapsed(g grantOf) {
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[g]
	if h == nil || s.closed.Load() || s.overdue(h) {
		return
	}
	h.record.held = s.cfg.mono() - h.began
	_ = l.write(h.slot, &h.record) // the next one may
	if h.lapse != nil {
		h.lapse.Reset(s.nextLapse(h))
	}
}

// nextLapse is when lapsed is due: often enough that little is lost if the grant
// moves, and when MaxHold is over.
func (s *Store) nextLapse(h *lease) time.Duration {
	return max(time.Millisecond, min(h.ttl/16, 5*time.Second, h.maxHold-(s.cfg.mono()-h.began)))
}

// overdue tells whether a lease was held for its whole MaxHold, and notes it. The
// caller holds l.mu.
func (s *Store) overdue(h *lease) bool {
	if h.maxHold == 0 || s.cfg.mono()-h.began < h.maxHold {
		return false
	}
	if h.record.flags&flagOverdue == 0 {
		h.record.flags |= flagOverdue
		_ = s.leases.write(h.slot, &h.record) // it counts here in any case
	}
	return true
}

// renewOwn counts up the renewals of a lease of this process; not ok: there is
// no such lease here.
func (s *Store) renewOwn(name string, id hansard.SessionID, grant hansard.Grant) (ok bool, err error) {
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[grantOf{name, grant}]
	if h == nil {
		return false, nil
	}
	if s.overdue(h) {
		return true, overdueError(id, grant, h.maxHold)
	}
	now := s.cfg.mono()
	h.record.value = l.nextCount()
	h.record.held, h.record.wall = now-h.began, hansard.Now()
	if err := l.write(h.slot, &h.record); err != nil {
		return true, err
	}
	h.renewed = now
	return true, nil
}

func overdueError(id hansard.SessionID, g hansard.Grant, maxHold time.Duration) error {
	return fmt.Errorf("%w: session %s, grant %s: it was held for its whole %v", hansard.ErrFenced, id, g, maxHold)
}

// own are the grants that end with this process.
func (l *leases) own() (grants []grantOf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g, h := range l.held {
		if !h.remote {
			grants = append(grants, g)
		}
	}
	return grants
}

// keeps tells whether an instance is this process's, and seen as such by others.
func (s *Store) keeps(instance string) (bool, error) {
	l := &s.leases
	l.mu.Lock()
	inst := l.inst
	l.mu.Unlock()
	if inst == nil || inst.base() != instance {
		return false, nil
	}
	return inst.registered(s.fs)
}

// stopAll ends what is done for the leases, with the process. They stay known: who is
// in the commit just now must not take the holders of remote turns for dead.
func (l *leases) stopAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.held {
		h.stop()
	}
	l.timers = false
	if l.mender != nil {
		l.mender.Stop()
	}
}
