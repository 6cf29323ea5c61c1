package filestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"

	"hansard"
	"hansard/internal/vfs"
)

// Damage is found where it is looked for. A short log is checked whole when a
// process first touches it; of a long one, which would take too long, the end.
// What somebody found is noted in cache/damage, so that the next process knows.

const (
	damageDir = cacheDir + "/damage"
	// checkWhole is how long a log may be to be checked whole at first touch.
	checkWhole = 4 << 20
)

// checked are the logs this process has looked at, by inode.
type checked struct {
	mu sync.Mutex
	m  map[string]checkedLog
}

type checkedLog struct {
	inode  uint64
	damage *hansard.DamagedError
}

// sound tells whether no damage of a log was found in this process.
func (c *checked) sound(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[name].damage == nil
}

func (c *checked) set(name string, l checkedLog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) > 16*maxSessions {
		c.m = map[string]checkedLog{}
	}
	c.m[name] = l
}

func (c *checked) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, name)
}

// checkOnce is what is wrong with a log, as far as it was looked at.
func (s *Store) checkOnce(f vfs.File, name string, id hansard.SessionID, size int64) (*hansard.DamagedError, error) {
	inode, err := f.Inode()
	if err != nil {
		return nil, err
	}
	s.checked.mu.Lock()
	seen, ok := s.checked.m[name]
	s.checked.mu.Unlock()
	if ok && seen.inode == inode && seen.damage == nil {
		return nil, nil
	}
	var d *hansard.DamagedError
	if size <= checkWhole || s.noted(name) {
		all, err := f.Size() // of now: others may write faster than we read
		if err == nil {
			_, d, err = checkUpTo(f, id, quickLine, all)
		}
		if err != nil {
			return nil, err
		}
		if d != nil {
			s.noteDamage(name, d)
		}
	}
	s.checked.set(name, checkedLog{inode, d})
	return d, nil
}

// checkLog checks every line of a log, decoded by decode, and returns how far it
// got. Damage is what the bytes say; an error is that they could not be read,
// which is no damage.
func checkLog(f vfs.File, id hansard.SessionID, decode func([]byte) (*line, error)) (c chain, d *hansard.DamagedError, err error) {
	return checkUpTo(f, id, decode, math.MaxInt64)
}

// checkUpTo is checkLog of one that may grow faster than it is read: it ends with
// the batch that reaches upTo.
func checkUpTo(f vfs.File, id hansard.SessionID, decode func([]byte) (*line, error), upTo int64) (c chain, d *hansard.DamagedError, err error) {
	c.id = id
	sc := newScanner(f, 0)
	for {
		b, at, err := sc.next()
		if errors.Is(err, errNoLine) {
			d, err := unfinished(&c, f, at)
			return c, d, err
		}
		if err != nil {
			return c, nil, err
		}
		l, err := decode(b)
		if err == nil {
			err = c.follow(l)
		} else {
			c.lines++
		}
		if err != nil {
			return c, c.damage(at, err), nil
		}
		if l.Left == 0 && sc.at >= upTo {
			return c, nil, nil
		}
	}
}

// unfinished looks at what follows the last newline: the beginning of a line is
// being written, or was left by a copy; anything else is damage.
func unfinished(c *chain, f vfs.File, at int64) (*hansard.DamagedError, error) {
	size, err := f.Size()
	if err != nil || size <= at {
		return nil, err
	}
	rest := make([]byte, min(size-at, maxLineBytes))
	n, err := f.ReadAt(rest, at)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if c.started && looksUnfinished(rest[:n]) || !c.started && looksBegun(rest[:n]) {
		return nil, nil
	}
	c.lines++
	return c.damage(at, lineError("the last line is not one of a log")), nil
}

// quickLine is decodeLine for who needs only what the chain is made of: the
// canonical beginning of a line is read by hand.
func quickLine(b []byte) (*line, error) {
	seq, ok := quickSeq(b)
	if !ok || hasKey(b) || bytes.Contains(b, []byte(`,"deleted":true`)) {
		return decodeLine(b)
	}
	// {"seq":N,"time":"2006-01-02T15:04:05.000000Z","b":K
	rest := b[len(`{"seq":`):]
	for len(rest) > 0 && rest[0] != ',' {
		rest = rest[1:]
	}
	const timeWidth = len(`,"time":"`) + len(timeLayout) + 1
	if len(rest) < timeWidth+len(`,"b":0,`) || string(rest[timeWidth:timeWidth+5]) != `,"b":` {
		return decodeLine(b)
	}
	rest = rest[timeWidth+5:]
	n := 0
	for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
		n++
	}
	left, err := strconv.Atoi(string(rest[:n]))
	if err != nil {
		return decodeLine(b)
	}
	prev, crc, err := checkFrame(b)
	if err != nil {
		return nil, err
	}
	return &line{Seq: seq, Left: left, prev: prev, crc: crc}, nil
}

// foundDamage makes damage known to this process and the others.
func (s *Store) foundDamage(name string, inode uint64, d *hansard.DamagedError) {
	s.checked.set(name, checkedLog{inode, d})
	s.noteDamage(name, d)
}

// noteDamage remembers damage for other processes. A cache: errors do not count.
func (s *Store) noteDamage(name string, d *hansard.DamagedError) {
	if s.opt.ReadOnly {
		return
	}
	if b, err := json.Marshal(d); err == nil {
		_ = s.writeCache(damageDir, name, b)
	}
}

func (s *Store) noted(name string) bool {
	_, _, err := s.fs.Inode(damageDir + "/" + name)
	return err == nil
}

// writeCache replaces a file below cache/, whole or not at all. It must be what
// it says after a power cut too, so it is synced before it gets its name.
func (s *Store) writeCache(dir, name string, b []byte) error {
	if s.opt.ReadOnly {
		return hansard.ErrReadOnly
	}
	if err := errors.Join(s.fs.Mkdir(cacheDir), s.fs.Mkdir(dir)); err != nil {
		return err
	}
	tmp := fmt.Sprintf("cache.%016x.tmp", s.cfg.random())
	f, err := s.fs.Open(tmp, vfs.Create|vfs.Exclusive)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Datasync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = s.fs.Rename(tmp, dir+"/"+name)
	}
	if err != nil {
		_ = s.fs.Remove(tmp)
	}
	return err
}

// asideDamage is the damage of a session of which something was set aside.
func (s *Store) asideDamage(name string, id hansard.SessionID) *hansard.DamagedError {
	for _, aside := range s.asides(name) {
		return damagedAt(id, 0, "the log was changed by somebody else; what was to be written to it is in %s/%s", asideDir, aside)
	}
	return nil
}

// allAsides are the names of the sessions of which something was set aside.
func (s *Store) allAsides() map[string]bool {
	names := map[string]bool{}
	entries, _ := s.fs.ReadDir(asideDir)
	for _, e := range entries {
		if i := strings.LastIndexByte(e.Name, '.'); i > 0 {
			names[e.Name[:i]] = true
		}
	}
	return names
}

// asides are the files with what was set aside of a session.
func (s *Store) asides(name string) (names []string) {
	entries, err := s.fs.ReadDir(asideDir)
	if err != nil {
		return nil // most often there is no such directory
	}
	for _, e := range entries {
		pos, ok := strings.CutPrefix(e.Name, name+".")
		if _, err := strconv.ParseUint(pos, 10, 64); ok && err == nil {
			names = append(names, e.Name)
		}
	}
	return names
}

// knownDamage is what was found wrong with a session before, here or elsewhere.
func (s *Store) knownDamage(sess *session) error {
	if d := s.asideDamage(sess.name, sess.id); d != nil {
		d.Offset, d.SafeSeq = sess.end, sess.seq
		return d
	}
	if sess.f == nil || sess.damage != nil {
		return nil
	}
	s.checked.mu.Lock()
	seen := s.checked.m[sess.name]
	s.checked.mu.Unlock()
	if seen.inode == sess.inode && seen.damage != nil {
		return seen.damage
	}
	return nil
}

// prepareLog looks at a log that is about to be written to.
func (s *Store) prepareLog(f vfs.File, r *request) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	if _, err := readHeader(f, r.id); err != nil {
		if err == io.EOF || err == errEmptyLog {
			return nil // not made yet, or the commit says what is wrong
		}
		return err
	}
	if d, err := s.checkOnce(f, r.name, r.id, size); d != nil || err != nil {
		if d != nil {
			return d
		}
		return err
	}
	return nil
}

// prepare does what can take long before any lock is taken.
func (s *Store) prepare(r *request) error {
	s.checked.mu.Lock()
	seen, ok := s.checked.m[r.name]
	s.checked.mu.Unlock()
	if ok && seen.damage == nil && r.key == "" {
		return nil
	}
	f, err := s.fs.Open(logPath(r.name), vfs.ReadOnly)
	if err != nil {
		return nil // no log yet, or the commit will say what is wrong
	}
	err = s.prepareLog(f, r)
	_ = f.Close()
	if err != nil {
		return err
	}
	if r.key != "" {
		return s.prepareKeys(r.name)
	}
	return nil
}
