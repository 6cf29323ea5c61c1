package filestore

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Damage is found by looking. A short log is checked whole when a process first touches
// it; of a long one, which would take too long, only the end. Damage once found is never
// ignored: this process remembers it, and notes it in cache/damage so that the next
// process looks closely too. verify.go checks everything.
//
// What is checked: the chain of checksums and seqs (L1 to L5). A log with known damage
// takes no writes (W3): an append would make a log whose middle is lost look sound at its
// end.

const (
	// checkWhole is the size up to which a log is checked whole when first touched.
	checkWhole = 4 << 20
)

// checks checks logs, once each, and remembers what is wrong with them.
type checks struct {
	*process
	asides  *asides
	checked checked
}

// checked are the logs that this process has checked, the most recently used ones. It has
// a mutex because readers use it, which take no other lock.
type checked struct {
	mu  sync.Mutex
	m   cache.LRU[checkedLog]
	bad map[string]bool // found damaged, and not found sound since
}

// checkedLogs is how many of them are remembered. A forgotten one is checked again, which
// only costs time.
const checkedLogs = 16 * maxSessions

// checkedLog is the outcome for one file: a log that was replaced has another inode and
// is checked again.
type checkedLog struct {
	inode  uint64
	damage *hansard.DamagedError
}

// sound tells whether this process has found no damage in a log; true also if it was
// never checked. It does not count as use, because lists ask about all sessions.
func (c *checked) sound(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, _ := c.m.Peek(name)
	return l.damage == nil
}

// get is what is known about a log, if it was checked.
func (c *checked) get(name string) (checkedLog, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.Get(name)
}

// set remembers the outcome of a check.
func (c *checked) set(name string, l checkedLog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.Put(name, l, 1, checkedLogs)
	if l.damage == nil {
		delete(c.bad, name)
		return
	}
	if c.bad == nil {
		c.bad = map[string]bool{}
	}
	c.bad[name] = true
}

// damaged are the logs that this process found damaged.
func (c *checked) damaged() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.bad))
}

// forget makes a log be checked again: it was repaired or mended.
func (c *checked) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.Drop(name)
	delete(c.bad, name)
}

// checkOnce is what is wrong with a log, as far as it was checked; nil: no damage was
// seen. A log that was found sound is not checked again, a damaged one is: it may have
// been repaired. It takes no lock, and may read up to checkWhole bytes, or all of a log
// with known damage.
func (ch *checks) checkOnce(f vfs.File, name string, id hansard.SessionID, size int64) (*hansard.DamagedError, error) {
	inode, err := f.Inode()
	if err != nil {
		return nil, err
	}
	seen, ok := ch.checked.get(name)
	if ok && seen.inode == inode && seen.damage == nil {
		return nil, nil
	}
	var d *hansard.DamagedError
	known := seen.damage != nil || ch.noted(name)
	if size <= checkWhole || known {
		// The process that noted the damage may have looked at the data as well.
		var decoder sessionlog.Decoder
		decode := decoder.Head
		if known {
			decode = decoder.Decode
		}
		// The current size, and not beyond: others may write faster than we read.
		all, err := f.Size()
		if err == nil {
			_, d, err = sessionlog.CheckUpTo(f, id, decode, all)
		}
		if err != nil {
			return nil, err
		}
		if d != nil {
			ch.noteDamage(name, d)
		}
	}
	ch.checked.set(name, checkedLog{inode, d})
	return d, nil
}

// foundDamage records damage found while reading, for this process and the others: the
// reader must not be the only one to know (TestDamageFoundByAReaderStays).
func (ch *checks) foundDamage(name string, inode uint64, d *hansard.DamagedError) {
	ch.checked.set(name, checkedLog{inode, d})
	ch.noteDamage(name, d)
}

// noteDamage records damage for other processes. The note is only a cache, so errors are
// ignored: the next process may then find the damage later than it could.
func (ch *checks) noteDamage(name string, d *hansard.DamagedError) {
	if ch.opt.ReadOnly {
		return
	}
	if b, err := json.Marshal(d); err == nil {
		_ = ch.writeCache(cache.DamageDir, name, b)
	}
}

// noted tells whether some process noted damage. The content of the note is not trusted.
func (ch *checks) noted(name string) bool {
	return cache.Noted(ch.fs, name)
}

// writeCache replaces a file below cache/, whole or not at all. It is synced before it
// gets its name, so that a power cut leaves the old one or the new one and not an empty
// file (failure 23). The rename itself need not be durable.
func (p *process) writeCache(dir, name string, b []byte) error {
	if p.opt.ReadOnly {
		return hansard.ErrReadOnly
	}
	return cache.Write(p.fs, p.cfg.random(), dir+"/"+name, true, func(f vfs.File) error {
		_, err := f.WriteAt(b, 0)
		return err
	})
}

// putRun writes a run of names. It is not synced: every page of a run is checked when it
// is used.
func (p *process) putRun(name string, fill func(vfs.File) error) error {
	if p.opt.ReadOnly {
		return hansard.ErrReadOnly
	}
	return cache.Write(p.fs, p.cfg.random(), name, false, func(f vfs.File) error { return fill(closingFile{f, p}) })
}

// knownDamage is the damage found before, by this or another process, of a session that
// is being loaded under write.lock. Lines set aside come first: that damage can be
// mended, which the type of the error says.
func (ch *checks) knownDamage(sess *session) (damage, err error) {
	d, err := ch.asides.asideDamage(sess.name, sess.id)
	if err != nil {
		return nil, err
	}
	if d != nil {
		d.Offset, d.SafeSeq = sess.end, sess.seq
		return &setAsideError{d}, nil
	}
	if sess.f == nil || sess.damage != nil {
		return nil, nil
	}
	if seen, _ := ch.checked.get(sess.name); seen.inode == sess.inode && seen.damage != nil {
		return seen.damage, nil
	}
	return nil, nil
}

// prepareLog checks a log that is about to be written to, before write.lock is taken.
// Damage found here is reported without delaying anybody. A log that is missing or just
// being created is left to the commit, which knows the ring.
func (ch *checks) prepareLog(f vfs.File, r *request) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	if _, err := sessionlog.ReadHeader(f, r.id); err != nil {
		if err == io.EOF || err == sessionlog.ErrEmptyLog {
			return nil // not created yet, or the commit reports what is wrong
		}
		return err
	}
	seen, known := ch.checked.get(r.name)
	d, err := ch.checkOnce(f, r.name, r.id, size)
	if d != nil && !sessionlog.EndsDeleted(f) { // nothing is written to a deleted one
		return d
	}
	if d != nil || err != nil {
		return err
	}
	if inode, err := f.Inode(); err != nil || known && seen.inode == inode {
		return err
	}
	// The last line in full, data included: under write.lock only its head is decoded,
	// and damage found there would mean reading the whole log while everybody waits.
	var damaged *hansard.DamagedError
	if _, err := sessionlog.ReadTail(f, size); errors.As(err, &damaged) && damaged.Offset > 0 {
		return damageFound(ch, r.name, f, new(sessionlog.Decoder).Decode, err)
	}
	return nil
}
