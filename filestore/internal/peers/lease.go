package peers

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
	"hansard/engine"
	"hansard/filestore/internal/crc32c"
	"hansard/internal/vfs"
)

// A process tells the others which turns it keeps alive, and which it waits for, in its
// instance file: a table after the marks, never synced. It counts only while the process
// lives, which the kernel knows (instance.go).
//
//	record    lease                          waiter
//	 0  u64   nonce of the grant             mark of the session
//	 8  u64   count, grows with each renewal ticket
//	16  u64   milliseconds held so far       0
//	24  u64   when it was renewed, in µs     0         for people
//	32  u8    kind: 0 free, 1 lease, 2 waiter
//	33  u8    flags: 1 held for its whole MaxHold
//	34  u16   0
//	36  u32   crc of the 36 bytes before
//
// Order of things, for a grant:
//
//   - KeepAlive writes the record before the grant's line is in the ring: a grant that is
//     not in the table of its instance counts as given up
//   - RenewOwn raises the count; a claimant that watched it stand still for the TTL may
//     take the turn
//   - GiveUp frees the record, once the end of the turn is in the log or the turn was lost
//
// Readers take no lock, so a record may be read while it is written: then its checksum is
// wrong, and it is read again. A record that could not be written (EIO, a full disk) stays
// torn until mend writes it again: nobody can tell whose it is, so a process that looks for
// a grant gets an error, not "dead" (TestTornRecordIsNoDeath).
//
// Lock order: Leases.mu, then Instance.mu.

const (
	// TableAt is where the table begins in an instance file.
	TableAt     = joinedAt + 8
	RecordWidth = 40
	// tableStart is how many records a new instance file has room for: if the disk fills up
	// later, the first few turns need no more space.
	tableStart = 8

	// Kinds of records. A free one is all zeros, as in a new file, and has no checksum.
	KindFree   = 0
	kindLease  = 1
	kindWaiter = 2

	// flagOverdue: the holder's process says that MaxHold is over. Only it can know,
	// because only its clock measured it.
	flagOverdue = 1
)

// tableRecord is one record of the table; the zero value is a free one.
type tableRecord struct {
	Key, value uint64
	held       time.Duration
	wall       time.Time
	Kind       byte
	flags      byte
}

// encode is the record as bytes. A free one is zeros, so that its old content is not found
// again.
func (r *tableRecord) encode() []byte {
	b := make([]byte, RecordWidth)
	if r.Kind == KindFree {
		return b
	}
	le := binary.LittleEndian
	le.PutUint64(b, r.Key)
	le.PutUint64(b[8:], r.value)
	le.PutUint64(b[16:], uint64(r.held.Milliseconds()))
	if !r.wall.IsZero() {
		le.PutUint64(b[24:], uint64(r.wall.UnixMicro()))
	}
	b[32], b[33] = r.Kind, r.flags
	le.PutUint32(b[36:], crc32c.Sum(b[:36]))
	return b
}

// decodeRecord decodes a record; ok is false if it is torn. Then nothing in r may be
// used.
func decodeRecord(b []byte) (r tableRecord, ok bool) {
	le := binary.LittleEndian
	if b[32] == KindFree && le.Uint32(b[36:]) == 0 {
		return r, true
	}
	r = tableRecord{Key: le.Uint64(b), value: le.Uint64(b[8:]), held: time.Duration(le.Uint64(b[16:])) * time.Millisecond,
		Kind: b[32], flags: b[33]}
	if wall := le.Uint64(b[24:]); wall != 0 {
		r.wall = time.UnixMicro(int64(wall)).UTC()
	}
	return r, le.Uint32(b[36:]) == crc32c.Sum(b[:36])
}

// findLease reads the record of a grant from the table of an instance file. A record that
// is just being written is read again; if one stays unreadable and the grant was not
// found, it may be that one: ErrTornRecord, which is not a sign of death (failure 17).
func findLease(f vfs.File, nonce uint64) (r tableRecord, found bool, err error) {
	// Enough time for a pwrite of 40 bytes to finish; if it does not, the answer is an
	// error.
	for range 20 {
		records, whole, err := ReadTable(f)
		for _, r := range records {
			if r.Kind == kindLease && r.Key == nonce {
				return r, true, nil
			}
		}
		if err != nil || whole {
			return r, false, err
		}
	}
	return r, false, ErrTornRecord
}

// ErrTornRecord is returned when a grant is not found and some record can't be read:
// whether its holder is alive is not known. It ends when the record's process has mended
// it.
var ErrTornRecord = errors.New("a record of the instance file is not valid")

// ReadTable reads the table of an instance file, free records included. whole is false if
// some records are not valid; they are left out. It needs no lock.
func ReadTable(f vfs.File) (records []tableRecord, whole bool, err error) {
	whole, err = eachRecord(f, func(r *tableRecord) bool {
		records = append(records, *r)
		return true
	})
	return records, whole, err
}

// tables are buffers for the part of the table in the first page of an instance file: most
// tables fit, and need one read.
var tables = sync.Pool{New: func() any { return new([4096 - TableAt]byte) }}

// eachRecord calls fn with the records of a table until it returns false. See ReadTable.
func eachRecord(f vfs.File, fn func(*tableRecord) bool) (whole bool, err error) {
	page := tables.Get().(*[4096 - TableAt]byte)
	defer tables.Put(page)
	b := page[:]
	n, err := vfs.ReadEnd(f, b, TableAt)
	if err == nil { // there may be more
		var size int64
		if size, err = f.Size(); err != nil {
			return false, err
		}
		b = make([]byte, max(0, size-TableAt))
		n, err = f.ReadAt(b, TableAt)
	}
	if err != nil && err != io.EOF {
		return false, err
	}
	whole = true
	// A partial record at the end is a new one being written: nobody can be looking for it,
	// because its grant is not in the ring yet.
	for b = b[:n]; len(b) >= RecordWidth; b = b[RecordWidth:] {
		r, ok := decodeRecord(b)
		whole = whole && ok
		if ok && !fn(&r) {
			break
		}
	}
	return whole, nil
}

// grantOf is a grant and the session it belongs to, by its file name.
type grantOf struct {
	Name  string
	Grant hansard.Grant
}

// lease is a turn that this process keeps alive, guarded by Leases.mu. Times are on its
// own monotonic clock; wall in its record is for people.
type lease struct {
	slot    int
	record  tableRecord // as it was last written, or should have been
	ttl     time.Duration
	maxHold time.Duration
	remote  bool          // its holder is a client of this process, and outlives it
	began   time.Duration // when the holder got the turn, in whichever process
	renewed time.Duration // when it was last renewed; silent if that is TTL ago
	lapse   *time.Timer   // records the progress towards MaxHold; nil: no limit
}

// Leases are the records of this process in the table of its instance file, and what it saw
// in those of others. All methods are safe for concurrent use; they write to the file and
// never sync it.
type Leases struct {
	fs   vfs.FS
	mono func() time.Duration // this process's own clock
	// inline: no timers; the simulation controls its own time.
	inline bool
	roster roster

	mu      sync.Mutex // guards all below
	inst    *Instance  // whose table it is; nil: not registered yet
	used    []bool     // slots of the table that are taken, torn ones included
	held    map[grantOf]*lease
	waiting map[string]int      // slots of announced waiters, by session
	passed  map[passedOver]bool // waiters of other processes that did not respond
	watched map[string]*watched // by session
	watches int                 // how many there may be before old ones are dropped
	// renewals counts the renewals of all leases together. A count per lease would start
	// over when a lease is dropped and kept again, and a watcher that saw the same count
	// long ago would think the holder silent since then (TestTurnRenewedOnceMore).
	renewals uint64

	// torn are the slots whose last write failed, with what belongs there. Any part of it
	// may be in the file, and others can't tell whose record it is: until it is rewritten,
	// they get an error for every grant that they do not find (TestTornRecordOfAnother).
	torn    map[int]tableRecord
	stopped bool        // the process ends: no more timers
	mender  *time.Timer // writes torn records again; nil: not needed
}

// NewLeases makes the leases of a process with this clock, which must be monotonic. inline:
// there are no timers. Nothing is written before Register.
func NewLeases(fsys vfs.FS, mono func() time.Duration, inline bool) *Leases {
	return &Leases{fs: fsys, mono: mono, inline: inline}
}

// Register makes and locks this process's instance file, under write.lock, before the
// process takes part in the store: recovery leaves marks in it.
func (l *Leases) Register(random func() uint64) (*Instance, error) {
	// 128 random bits: an instance is never mistaken for an earlier one, whatever the PID
	// or the host name (failures 4 to 6).
	inst := &Instance{Name: fmt.Sprintf("%s/%016x%016x", InstancesDir, random(), random())}
	if err := inst.register(l.fs, make([]byte, TableAt+tableStart*RecordWidth)); err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inst = inst
	return inst, nil
}

// mendEvery is how often a record that could not be written is tried again.
const mendEvery = 500 * time.Millisecond

// NonceOf is the random part of a grant, which no two grants share: "7-9f86d081884c7d65"
// → 0x9f86d081884c7d65. The number is not enough: after a log is restored, another grant
// may have the same one.
func NonceOf(g hansard.Grant) uint64 {
	_, hex, _ := strings.Cut(string(g), "-")
	nonce, _ := strconv.ParseUint(hex, 16, 64)
	return nonce
}

// put writes a record into a free slot. On an error the content of the slot is unknown: it
// stays in use, torn, until it has been written as free. The caller holds l.mu.
func (l *Leases) put(r *tableRecord) (slot int, err error) {
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
		l.torn[slot] = tableRecord{} // the slot should be empty
		return 0, err
	}
	return slot, nil
}

// write writes a record, and first those that could not be written earlier: if the disk
// works again, they need not wait for the timer. The caller holds l.mu.
func (l *Leases) write(slot int, r *tableRecord) error {
	l.mend(slot)
	return l.writeSlot(slot, r)
}

// writeSlot writes one record. If that fails, it is torn and the mender is started:
// others get errors until it is mended, whether or not this process does anything else
// (TestMender). The caller holds l.mu.
func (l *Leases) writeSlot(slot int, r *tableRecord) error {
	if err := l.inst.writeAt(r.encode(), int64(TableAt+slot*RecordWidth)); err != nil {
		if l.torn == nil {
			l.torn = map[int]tableRecord{}
		}
		l.torn[slot] = *r
		if !l.inline && !l.stopped && l.mender == nil {
			l.mender = time.AfterFunc(mendEvery, l.MendNow)
		}
		return fmt.Errorf("write the instance file: %w", err)
	}
	delete(l.torn, slot)
	return nil
}

// mend writes the torn records again, except one that is about to be written. A slot whose
// record should be free can then be used again. The caller holds l.mu.
func (l *Leases) mend(except int) {
	for slot, r := range l.torn {
		if slot != except && l.writeSlot(slot, &r) == nil && r.Kind == KindFree {
			l.used[slot] = false
		}
	}
}

// MendNow writes the torn records again and, if that still fails, restarts the timer. The
// timer calls it, and tests.
func (l *Leases) MendNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mend(-1)
	l.mender = nil
	if len(l.torn) > 0 && !l.inline && !l.stopped {
		l.mender = time.AfterFunc(mendEvery, l.MendNow)
	}
}

// free empties a slot. If that fails, the slot stays in use, and others see the old
// record or a torn one until it is mended. The caller holds l.mu.
func (l *Leases) free(slot int) {
	if l.write(slot, &tableRecord{}) == nil {
		l.used[slot] = false
	}
}

// KeepAlive begins to keep a grant alive, under write.lock and before the grant's line can
// be seen in the ring: a grant whose nonce is not in the table of its instance counts as
// given up, so another process would take the turn at once (planted bug "lease after its
// grant"). If the line is then not written, the caller gives the lease up.
//
// already is how long the turn was held before, kept alive by another process: MaxHold
// moves with the grant. On an error the grant must not be written.
func (l *Leases) KeepAlive(name string, t *hansard.Turn, already time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Now and then is enough; "at a power of two" needs no counter.
	if len(l.held) > 0 && len(l.held)&(len(l.held)-1) == 0 {
		l.dropSilent()
	}
	now := l.mono()
	h := &lease{ttl: t.TTL, maxHold: t.MaxHold, remote: t.Remote, began: now - already, renewed: now}
	h.record = tableRecord{Kind: kindLease, Key: NonceOf(t.Grant), value: l.nextCount(), held: already, wall: engine.Now()}
	g := grantOf{name, t.Grant}
	var err error
	if old := l.held[g]; old != nil {
		// It moved away and comes back before it was forgotten here. With two records of one
		// grant, one would be renewed and one would stand still, and a watcher could find
		// either (TestTurnMovesBack).
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
	if h.maxHold > 0 && !l.inline {
		h.lapse = time.AfterFunc(l.nextLapse(h), func() { l.Lapsed(g.Name, g.Grant) })
	}
	return nil
}

// nextCount is the count of a renewal: no two renewals of this process have the same. The
// caller holds l.mu.
func (l *Leases) nextCount() uint64 {
	l.renewals++
	return l.renewals
}

// dropSilent forgets leases that nobody has renewed for four times their TTL: they moved
// to another process, or were superseded while their holder slept. Their holder finds out
// at its next renewal. One with a MaxHold is remembered until that is over: otherwise, kept
// again, it would get a fresh MaxHold (TestTurnMaxHoldRemembered). The caller holds l.mu.
func (l *Leases) dropSilent() {
	now := l.mono()
	for g, h := range l.held {
		if now-h.renewed > 4*h.ttl && (h.maxHold == 0 || l.overdue(h)) {
			l.drop(g, h)
		}
	}
}

// drop forgets a lease and frees its record. The caller holds l.mu.
func (l *Leases) drop(g grantOf, h *lease) {
	h.stop()
	delete(l.held, g)
	l.free(h.slot)
}

// stop ends the timer of a lease. It may have fired already: Lapsed checks whether the
// lease still exists.
func (h *lease) stop() {
	if h.lapse != nil {
		h.lapse.Stop()
	}
}

// GiveUp stops keeping a grant alive, if this process does; otherwise nothing happens. By
// name and grant, so that a late release can't end a newer grant of the same session
// (failure F2).
func (l *Leases) GiveUp(name string, grant hansard.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := grantOf{name, grant}
	if h := l.held[g]; h != nil {
		l.drop(g, h)
	}
}

// Lapsed records, for others to see, how long a turn has been held: claimants see when its
// MaxHold is over, and a process that it moves to continues counting from there. (If this
// process is dead by then, its table is not read, and MaxHold may start over: see
// hansard.Claim.) The timer of the lease calls it, and tests. The count does not change:
// this is not a renewal.
func (l *Leases) Lapsed(name string, grant hansard.Grant) {
	g := grantOf{name, grant}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[g]
	if h == nil || l.stopped || l.overdue(h) {
		return
	}
	h.record.held = l.mono() - h.began
	_ = l.write(h.slot, &h.record) // a failure is mended, or the next write covers it
	if h.lapse != nil {
		h.lapse.Reset(l.nextLapse(h))
	}
}

// nextLapse is when Lapsed is due next: often enough that little is lost if the grant
// moves, and exactly when MaxHold is over. The caller holds l.mu.
func (l *Leases) nextLapse(h *lease) time.Duration {
	return max(time.Millisecond, min(h.ttl/16, 5*time.Second, h.maxHold-(l.mono()-h.began)))
}

// overdue tells whether a lease was held for its whole MaxHold, and records it for others.
// From then on its holder can't renew, and any claimant may take the turn: a program that
// is stuck but alive must not keep it for ever (failure 8). The caller holds l.mu.
func (l *Leases) overdue(h *lease) bool {
	if h.maxHold == 0 || l.mono()-h.began < h.maxHold {
		return false
	}
	if h.record.flags&flagOverdue == 0 {
		h.record.flags |= flagOverdue
		_ = l.write(h.slot, &h.record) // in this process it counts in any case
	}
	return true
}

// RenewOwn renews a lease that this process keeps; ok is false if it does not keep it.
// The caller has read in the log that the grant is the current one. The error is ErrFenced
// past MaxHold, or a failed write of the record: then others have not seen the renewal, and
// the holder must not rely on it.
func (l *Leases) RenewOwn(name string, id hansard.SessionID, grant hansard.Grant) (ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.held[grantOf{name, grant}]
	if h == nil {
		return false, nil
	}
	if l.overdue(h) {
		return true, OverdueError(id, grant, h.maxHold)
	}
	now := l.mono()
	h.record.value = l.nextCount()
	h.record.held, h.record.wall = now-h.began, engine.Now()
	if err := l.write(h.slot, &h.record); err != nil {
		return true, err
	}
	// Only now: lookOwn must not call a lease alive that other processes may call silent.
	h.renewed = now
	return true, nil
}

// OverdueError tells a holder that its MaxHold is over. It is an ErrFenced although
// nobody may have taken the turn yet: the next claimant may, without waiting.
func OverdueError(id hansard.SessionID, g hansard.Grant, maxHold time.Duration) error {
	return fmt.Errorf("%w: session %s, grant %s: it was held for its whole %v", hansard.ErrFenced, id, g, maxHold)
}

// Own are the grants that end with this process. Remote ones are left out: their clients
// may go on through another process.
func (l *Leases) Own() (grants []grantOf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for g, h := range l.held {
		if !h.remote {
			grants = append(grants, g)
		}
	}
	return grants
}

// Instance is this process among the others; nil: not registered yet.
func (l *Leases) Instance() *Instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inst
}

// Keeps tells whether an instance, as a turn's record names it, is this process, and
// visible to others. If its file was removed, nobody would see a renewal: then the caller
// renews through the commit, which makes the file again.
func (l *Leases) Keeps(name string) (bool, error) {
	inst := l.Instance()
	if inst == nil || inst.Base() != name {
		return false, nil
	}
	return inst.registered(l.fs)
}

// Counts are how much leases take in memory and in the table, for tests.
type Counts struct {
	Held    int // turns kept alive
	Slots   int // records in the table
	Torn    int // of them, those that could not be written
	Watched int // leases of others
}

// Counts returns the current numbers.
func (l *Leases) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := Counts{Held: len(l.held), Torn: len(l.torn), Watched: len(l.watched)}
	for _, used := range l.used {
		if used {
			c.Slots++
		}
	}
	return c
}

// Holds tells whether this process keeps a grant alive, renewed or not.
func (l *Leases) Holds(name string, grant hansard.Grant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[grantOf{name, grant}] != nil
}

// StopAll stops the timers, because the process is ending. The leases stay known: a request
// that is still in the commit must not take the holders of remote turns for dead. Their
// records go with the instance file.
func (l *Leases) StopAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.held {
		h.stop()
	}
	l.stopped = true
	if l.mender != nil {
		l.mender.Stop()
	}
}
