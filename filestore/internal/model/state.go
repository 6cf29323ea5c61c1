package model

// The sizes are the smallest that show every interleaving we know of: a ring
// that laps after a handful of appends, and logs that hold all of them.
const (
	maxProcs = 3
	maxCells = 4 // ring cells; an entry takes one or two
	maxRings = 3 // journal files alive at once: named in the cache, on disk, open
	maxLogs  = 2
	maxLines = 6
	maxIDs   = 8 // entry ids 1..7; an id doubles as the entry's chain value
)

// What a ring cell can hold besides id<<1|part.
const (
	zeros   = 0
	garbage = 0xff // half a write; fails every checksum
)

// part marks a log line of which only the first bytes are there.
const part = 0x80

// slot is one of the two headers of a journal file.
// [SLOT: hseq epoch start start_chain crc; the valid one with the highest hseq counts]
type slot struct{ ok, hseq, epoch, start, chain uint8 }

// ring is one journal file: what the page cache shows and what the disk has.
// A page that is clean although cache and disk differ was lost by a failed
// sync; it stays readable until it is evicted.
type ring struct {
	cell, cellDisk [maxCells]uint8
	slot, slotDisk [2]slot
	dirty          uint8 // a bit per cell, then one per slot (slotBit)
	errs           uint8 // failed syncs so far; a descriptor remembers the last one reported to it
}

func slotBit(i int) uint8 { return 1 << (maxCells + i) }

// logFile is one inode of a session's log, a line per entry. lost lines are
// those whose writeback failed: for a growing file neither writing the same bytes
// again nor another fdatasync gets them onto the disk.
type logFile struct {
	line, lineDisk [maxLines]uint8 // 0 is a NUL run
	size, sizeDisk uint8
	dirty, lost    uint8 // a bit per line
	errs           uint8 // as in ring
}

// sessionLog is what the path refers to: 1+index into file, 0 for no file.
type sessionLog struct {
	file         [2]logFile
	dir, dirDisk uint8
	ino          uint8 // counts the inodes the name has had
}

// The kinds of entry.
const (
	kindData = iota + 1
	kindPad
	kindTombstone
	kindGrant
	kindRelease
)

// entry is what a ring entry says. The record stays when its cells are
// overwritten, since logs, slots and chains refer to it.
type entry struct {
	kind, epoch, pos, cells uint8
	prev                    uint8 // chain: the entry before, in the ring
	hint                    uint8 // dhint: what was durable when it was written
	sess, seq, lprev        uint8
	key                     uint8
	grant                   uint8 // turn lines: the grant's entry, its nonce
	n                       uint8 // grants: the number that grows
	token                   uint8 // grants: 1 + where the client keeps the token
	after                   uint8 // ghost: what was acknowledged when it was written
}

// disk is all that a power cut, and so the recovery check, depends on. The masks
// have a bit per entry id and are ghosts: what the store has promised.
type disk struct {
	ring         [maxRings]ring
	dir, dirDisk uint8 // which ring the name `journal` refers to
	log          [maxLogs]sessionLog
	ent          [maxIDs]entry
	lastID       uint8

	acked   uint8 // answered with success
	seen    uint8 // complete in a log at some moment: a reader may have seen it
	relied  uint8 // a replay or a refusal was answered because of it
	deleted uint8 // sessions (not entries) whose delete was acknowledged
	denied  uint8 // answered "not stored"
	pruned  uint8 // sessions that are down to their tombstone
}

// wRec and yRec are the two records of control; ok is the checksum. W is written
// under write.lock, Y without it by a process that syncs: so the start, which
// checkpoints move, is in W. base is what was durable when the epoch began.
type wRec struct{ ok, epoch, written, chain, applied, start, base uint8 }

type yRec struct{ ok, epoch, durable uint8 }

// proc is one process: a program counter and what it keeps in memory.
type proc struct {
	pc, ret   uint8
	open      uint8 // holds open.lock shared
	epoch     uint8
	fd, fdErr uint8 // its ring file, and the failed syncs already reported to that descriptor
	failed    uint8 // that descriptor has reported an error
	own       uint8 // durable by its own fdatasync, perhaps not yet published

	// the request in hand
	op, ops  uint8 // 1 + first index into the script, how many
	mine     uint8 // entries written for it, a bit each
	dep      uint8 // the entry a refusal or replay rests on
	end      uint8 // ring position to wait for
	next     uint8 // first entry of the group not yet in the ring
	target   uint8 // what the fdatasync under way will cover
	space    uint8 // it waits only because the ring is full
	decided  uint8 // fence already compared (only without FenceInLock)
	publish  uint8 // it will publish what it syncs: it holds sync.lock, or thinks it is alone
	oldStart uint8 // the start as read together with durable (only without StartInW)

	// under W: what it read from the record W, and advanced
	written, chain, applied, start, base uint8

	// checkpoint, and the logs of a recovery
	upto, hseq    uint8 // the A it read, hseq of its slot
	slotTo        uint8 // 1 + the slot chosen earlier (only without SlotUnderLock)
	logs, suspect uint8 // logs still to sync, and those to copy instead
	ino, logErr   uint8 // the log it has open to sync: inode, errors already reported to it
	mark          uint8 // in its instance file: logs it is syncing; outlives it

	// what it remembers about the sessions (only with Caches): up to cursor
	cached, cursor      uint8
	cacheSeq, cacheLast [maxLogs]uint8
	logFD               [maxLogs]uint8 // cached descriptors (only without LogInode)
}

// State is everything; two equal States have the same future.
type State struct {
	disk
	w        wRec
	y        yRec
	lock     uint8 // write.lock: 1 + holder
	syncLock uint8 // sync.lock: 1 + holder
	marks    uint8 // in the instance files of the dead: the logs they were syncing
	fdBusy   uint8 // threads of one process: 1 + who is in fdatasync
	proc     [maxProcs]proc
	token    [2]uint8 // clients' turn tokens: 0, a grant's entry, or foreign
	script   uint8
	full     uint8 // the file system has no space

	// what may still happen
	kills, spawns, checkpoints, ringErrs, logErrs uint8
	evictions, cuts, controlFaults, fills, noCopy uint8
}

// foreign is a token of a grant that this log has never seen: the log was
// restored from a backup taken before that grant.
const (
	foreign  = 0xfe
	foreignN = 2
)

func bit(i uint8) uint8 { return 1 << i }

// journal is the ring a process has open.
func (s *State) journal(p *proc) *ring { return &s.ring[p.fd] }

// logOf is the file a session's path names, nil when there is none.
func (d *disk) logOf(sess uint8) *logFile {
	l := &d.log[sess]
	if l.dir == 0 {
		return nil
	}
	return &l.file[l.dir-1]
}

// show adds to the ghosts what a reader could see now.
// [read: the log to the last whole batch; no lock, no control]
func (d *disk) show() {
	for sess := range d.log {
		f := d.logOf(uint8(sess))
		if f == nil {
			continue
		}
		for _, v := range f.line[:f.size] {
			if v == 0 || v&part != 0 {
				break
			}
			d.seen |= bit(v)
		}
	}
}
