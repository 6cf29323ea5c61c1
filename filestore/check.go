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

// Damage is found where it is looked for. A short log is checked whole when a process
// first touches it; of a long one, which would take too long, only the end. Damage is
// never ignored once found: it is remembered by this process, and noted in cache/damage
// so that the next process looks closely too. verify.go checks everything.
//
// What is looked at: the chain of checksums and seqs (L1 to L5). A log with known damage
// takes no writes (W3): an append would make a log whose middle is lost look sound at its
// end.

const (
	// checkWhole is how long a log may be to be checked whole at first touch.
	checkWhole = 4 << 20
)

// checks looks at logs, once each, and remembers what is wrong with them.
type checks struct {
	*process
	asides  *asides
	checked checked
}

// checked are the logs that this process has looked at, the most recently used ones. It
// has a mutex because readers use it, who take no other lock.
type checked struct {
	mu  sync.Mutex
	m   cache.LRU[checkedLog]
	bad map[string]bool // those that were found damaged, and not sound since
}

// checkedLogs is how many of them are remembered. A forgotten one is checked again, which
// costs time and nothing else.
const checkedLogs = 16 * maxSessions

// checkedLog is the outcome for one file: a log that was replaced has another inode and
// is looked at again.
type checkedLog struct {
	inode  uint64
	damage *hansard.DamagedError
}

// sound tells whether no damage of a log was found in this process; true also if it was
// never looked at. It does not count as use: lists ask about all sessions.
func (c *checked) sound(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, _ := c.m.Peek(name)
	return l.damage == nil
}

// get is what is known of a log, if it was looked at.
func (c *checked) get(name string) (checkedLog, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.Get(name)
}

// set remembers what was found.
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

// forget has a log looked at again: it was repaired or mended.
func (c *checked) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.Drop(name)
	delete(c.bad, name)
}

// checkOnce is what is wrong with a log, as far as it was looked at; nil: nothing was
// seen. A log that was found sound is not looked at again, one that was found damaged is:
// it may have been repaired. It takes no lock, and may read up to checkWhole bytes.
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
		// Whoever noted the damage may have looked closer than DecodeQuick does.
		decode := sessionlog.DecodeQuick
		if known {
			decode = sessionlog.Decode
		}
		// The size of now, and not beyond: others may write faster than we read.
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

// foundDamage makes damage known to this process and the others: a reader that came upon
// it must not be the only one to know (TestDamageFoundByAReaderStays).
func (ch *checks) foundDamage(name string, inode uint64, d *hansard.DamagedError) {
	ch.checked.set(name, checkedLog{inode, d})
	ch.noteDamage(name, d)
}

// noteDamage remembers damage for other processes. It is a cache, so errors are ignored:
// the next process may then find the damage later than it could.
func (ch *checks) noteDamage(name string, d *hansard.DamagedError) {
	if ch.opt.ReadOnly {
		return
	}
	if b, err := json.Marshal(d); err == nil {
		_ = ch.writeCache(cache.DamageDir, name, b)
	}
}

// noted tells whether some process noted damage. What is in the file is not believed.
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

// putRun writes a run of names. Nobody waits for a sync: every page of a run is checked
// when it is used.
func (p *process) putRun(name string, fill func(vfs.File) error) error {
	if p.opt.ReadOnly {
		return hansard.ErrReadOnly
	}
	return cache.Write(p.fs, p.cfg.random(), name, false, func(f vfs.File) error { return fill(closingFile{f, p}) })
}

// knownDamage is what was found wrong with a session before, here or by others, for a
// session that is being loaded under write.lock. What was set aside comes first: it may
// be mended, which the type of the error says.
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

// prepareLog looks at a log that is about to be written to, before write.lock is taken.
// Damage that is found here is told without disturbing anybody; what is wrong with a log
// that is missing or just being made is left to the commit, which knows the ring.
func (ch *checks) prepareLog(f vfs.File, r *request) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	if _, err := sessionlog.ReadHeader(f, r.id); err != nil {
		if err == io.EOF || err == sessionlog.ErrEmptyLog {
			return nil // not made yet, or the commit says what is wrong
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
	// and damage found there would have the whole log read while everybody waits.
	var damaged *hansard.DamagedError
	if _, err := sessionlog.ReadTail(f, size); errors.As(err, &damaged) && damaged.Offset > 0 {
		return damageFound(ch, r.name, f, sessionlog.Decode, err)
	}
	return nil
}
