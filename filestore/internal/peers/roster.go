package peers

import (
	"sync"
	"time"

	"hansard/internal/vfs"
)

// roster keeps the instance files of other processes open for a moment: a turn that many
// contend for is handed on a thousand times a second, and each time somebody looks who
// waits. Who is missing, because it came a moment ago, is the youngest.
type roster struct {
	mu    sync.Mutex // guards all below; held while the files are read
	files map[string]vfs.File
}

const (
	// rosterFor is how long it is used.
	rosterFor = 50 * time.Millisecond
	// rosterMax is how many files it has at most.
	rosterMax = 64
)

// each calls fn with the file of every process but that of l, of those that were there a
// moment ago (fresh is false) or are there now. fn has to give back a lock that it takes. A
// file that can't be opened is left out.
func (r *roster) each(l *Leases, fn func(instance string, f vfs.File)) (fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files != nil {
		for name, f := range r.files {
			fn(name, f)
		}
		return false
	}
	entries, err := l.fs.ReadDir(InstancesDir)
	if err != nil {
		return true
	}
	keep := !l.inline && len(entries) <= rosterMax
	if keep {
		r.files = map[string]vfs.File{}
		time.AfterFunc(rosterFor, l.CloseRoster)
	}
	own := l.Instance()
	for _, e := range entries {
		if !e.Regular || own != nil && e.Name == own.Base() {
			continue
		}
		f, err := l.fs.Open(InstancesDir+"/"+e.Name, vfs.ReadOnly)
		if err != nil {
			continue
		}
		fn(e.Name, f)
		if keep {
			r.files[e.Name] = f
		} else {
			_ = f.Close()
		}
	}
	return true
}

func (r *roster) close() {
	for _, f := range r.files {
		_ = f.Close()
	}
	r.files = nil
}

// CloseRoster closes what it has open.
func (l *Leases) CloseRoster() {
	l.roster.mu.Lock()
	defer l.roster.mu.Unlock()
	l.roster.close()
}
