package peers

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"hansard/internal/vfs"
)

// roster keeps the instance files and bells of other processes open: a contended turn is
// handed on a thousand times a second, and each time a process looks up who waits, and
// rings for one of them. The timestamps of the directories show whether the roster is still
// current. Where they can't, it is used for a short time anyway: a process missing from it
// has just arrived, and is the youngest.
type roster struct {
	mu      sync.Mutex // guards all below; held while the files are read
	members map[string]*member
	at      vfs.DirStamp // of instances/ before the files were opened; zero: it proves nothing
	opened  time.Time
	used    time.Time
	closer  *time.Timer
	now     func() time.Time // for tests; nil: the real clock

	bells vfs.DirStamp // of bells/ before others and the members' bells were read; zero: it proves nothing
	hung  bool         // the directory of bells exists
	// others: another process has one.
	others bool
}

// member is another process.
type member struct {
	table vfs.File
	bell  vfs.File // nil: not opened yet
}

const (
	// rosterFor is how long it is used without proof that it is current.
	rosterFor = 50 * time.Millisecond
	// rosterKept is how long it stays open when nobody uses it.
	rosterKept = time.Second
	// rosterMax is the maximum number of processes in it.
	rosterMax = 64
)

// settledDir is the stamp of a directory of the store; zero: it proves nothing.
func settledDir(l *Leases, name string) vfs.DirStamp {
	dir, ok := l.fs.(*vfs.OS)
	if !ok || l.inline {
		return vfs.DirStamp{}
	}
	now := time.Now()
	if l.roster.now != nil {
		now = l.roster.now()
	}
	return dir.SettledDir(name, now)
}

// each calls fn with the file of every process except l's own: those known a moment ago
// (fresh is false), or those there now. fn has to release a lock that it takes. A file that
// can't be opened is left out.
func (r *roster) each(l *Leases, fn func(instance string, f vfs.File)) (fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := settledDir(l, InstancesDir)
	same := at != vfs.DirStamp{} && at == r.at
	if r.members != nil && (same || time.Since(r.opened) < rosterFor) {
		r.used = time.Now()
		for name, m := range r.members {
			fn(name, m.table)
		}
		return same
	}
	r.close()
	entries, err := l.fs.ReadDir(InstancesDir)
	if err != nil {
		return true
	}
	keep := !l.inline && len(entries) <= rosterMax
	if keep {
		r.members, r.at = map[string]*member{}, at
		r.opened = time.Now()
		r.used = r.opened
		if r.closer == nil {
			r.closer = time.AfterFunc(rosterKept, func() { r.expire() })
		}
	}
	own := l.Instance()
	for _, e := range entries {
		if !e.Regular || own != nil && e.Name == own.Base() {
			continue
		}
		f, err := l.fs.Open(InstancesDir+"/"+e.Name, vfs.ReadOnly)
		if err != nil {
			r.at = vfs.DirStamp{} // perhaps out of descriptors: the file must not be left out for long
			continue
		}
		fn(e.Name, f)
		if keep {
			r.members[e.Name] = &member{table: f}
		} else {
			_ = f.Close()
		}
	}
	return true
}

// expire closes a roster that nobody has used for a while.
func (r *roster) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rest := rosterKept - time.Since(r.used); r.members != nil && r.closer != nil && rest > 0 {
		r.closer.Reset(rest)
		return
	}
	r.close()
	r.closer = nil
}

// close closes what is open. The caller holds r.mu.
func (r *roster) close() {
	for _, m := range r.members {
		_ = m.table.Close()
		if m.bell != nil {
			_ = m.bell.Close()
		}
	}
	r.members, r.at = nil, vfs.DirStamp{}
}

// CloseRoster closes what it has open.
func (l *Leases) CloseRoster() {
	l.roster.mu.Lock()
	defer l.roster.mu.Unlock()
	l.roster.close()
}

// with calls fn with the instance file of another process: the open one, or else the one
// found by its name.
func (r *roster) with(l *Leases, instance string, fn func(vfs.File)) error {
	r.mu.Lock()
	m := r.members[instance]
	if m != nil {
		defer r.mu.Unlock()
		fn(m.table)
		return nil
	}
	r.mu.Unlock()
	f, err := l.fs.Open(InstancesDir+"/"+instance, vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer f.Close()
	fn(f)
	return nil
}

// Ring rings a waiter's bell for a session. An error means that it will not hear: it
// belongs to another user, or does not listen to a bell.
func (l *Leases) Ring(w Waiter, name string, number uint64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], number)
	at := int64(8 * BellSlot(name))
	r := &l.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[w.Instance]
	if m != nil && m.bell != nil && r.sameBells(l) {
		_, err := m.bell.WriteAt(b[:], at)
		return err
	}
	f, err := l.fs.Open(BellsDir+"/"+w.Instance, 0)
	if err != nil {
		return err
	}
	// Kept open only if it was opened after the directory's stamp was taken.
	if m = r.members[w.Instance]; m != nil && r.bells != (vfs.DirStamp{}) {
		m.bell = f
	} else {
		defer f.Close()
	}
	_, err = f.WriteAt(b[:], at)
	return err
}

// OthersHear tells whether another process may have a bell: if nobody has waited there is
// none, and no table has to be read.
func (l *Leases) OthersHear() bool {
	r := &l.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bells != (vfs.DirStamp{}) && r.sameBells(l) {
		return r.others
	}
	r.forgetBells()
	var at vfs.DirStamp
	if r.hung { // most stores have no bells
		at = settledDir(l, BellsDir) // before the look
	}
	bells, err := l.fs.ReadDir(BellsDir)
	r.hung, r.others = err == nil, false
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	own := l.Instance()
	r.bells = at
	r.others = slices.ContainsFunc(bells, func(e vfs.Entry) bool { return own == nil || e.Name != own.Base() })
	return r.others
}

// OthersHeard is the last result of OthersHear.
func (l *Leases) OthersHeard() bool {
	l.roster.mu.Lock()
	defer l.roster.mu.Unlock()
	return l.roster.others
}

// sameBells tells whether the open bells are still the files of those names. The caller
// holds r.mu.
func (r *roster) sameBells(l *Leases) bool {
	if at := settledDir(l, BellsDir); at != (vfs.DirStamp{}) && at == r.bells {
		return true
	}
	r.forgetBells()
	return false
}

// forgetBells closes the bells. The caller holds r.mu.
func (r *roster) forgetBells() {
	r.bells = vfs.DirStamp{}
	for _, m := range r.members {
		if m.bell != nil {
			_ = m.bell.Close()
			m.bell = nil
		}
	}
}
