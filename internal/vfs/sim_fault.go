package vfs

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
)

// Match selects one future operation: the N-th that fits the other fields,
// counted from when the rule is made. The zero value is the very next one.
type Match struct {
	Proc string // process; empty for any
	Kind Kind   // kinds; 0 for any
	Name string // file, as in path.Match; empty for any
	N    int    // from 1; 0 is 1
	// When, if set, has the last word on whether an operation fits; it is asked once for each
	// that fits the other fields.
	When func(Op) bool
}

func (m *Match) fits(o *Op) bool {
	return (m.Proc == "" || m.Proc == o.Proc) && (m.Kind == 0 || m.Kind&o.Kind != 0) &&
		(matches(m.Name, o.Name) || o.To != "" && matches(m.Name, o.To)) && (m.When == nil || m.When(*o))
}

// Fault is an error for an operation.
//
// EIO, ENOSPC and EDQUOT of a sync are writeback errors: the dirty pages are
// lost. Any other error of a sync leaves them dirty, and an error of a SyncDir
// leaves the names unsynced. Close closes, whatever it returns.
type Fault struct {
	Err error // for example syscall.EIO
	// Always: not once, but for every matching operation from then on.
	Always bool
	// Part is how many bytes of a write are done before the error; -1 for any
	// number, chosen from the seed. The caller gets 0, as seen on Linux.
	Part int
	// Keep is the chance in percent that a dirty page reaches the medium before
	// a sync fails.
	Keep int
	// Done: the operation takes effect, and only its result is the error.
	Done bool
}

// rule is something that happens at an operation.
type rule struct {
	Match
	seen   int
	always bool
	spent  bool
	do     func(p *Proc, o *Op) (*Fault, error)
}

// due counts the operation and reports whether the rule applies to it.
func (r *rule) due(o *Op) bool {
	if r.spent || !r.fits(o) {
		return false
	}
	r.seen++
	if r.seen < max(1, r.N) {
		return false
	}
	r.spent = !r.always
	return true
}

// Inject makes an operation fail.
func (d *Disk) Inject(m Match, f Fault) {
	d.rules = append(d.rules, &rule{Match: m, always: f.Always, do: func(*Proc, *Op) (*Fault, error) {
		return &f, nil
	}})
}

// KillAt kills the process that reaches an operation, before it is done. Of a
// write, part bytes are done; -1 is any number, chosen from the seed.
func (d *Disk) KillAt(m Match, part int) {
	d.rules = append(d.rules, &rule{Match: m, do: func(p *Proc, o *Op) (*Fault, error) {
		o.Note = "killed"
		if o.data != nil {
			n := d.writeCache(o.ino, o.data[:d.part(part, o.Len)], o.Off)
			o.Note = fmt.Sprintf("killed after %d", n)
		}
		p.Kill()
		return nil, ErrCrashed
	}})
}

// CutAt cuts the power before an operation.
func (d *Disk) CutAt(m Match, c Cut) {
	d.rules = append(d.rules, &rule{Match: m, do: func(_ *Proc, o *Op) (*Fault, error) {
		o.Note = "power cut"
		d.PowerCut(c)
		return nil, ErrCrashed
	}})
}

// StopAt stops the process that reaches an operation, before it is done, as
// SIGSTOP does: the call continues after Proc.Continue. Only under Run.
func (d *Disk) StopAt(m Match) {
	d.rules = append(d.rules, &rule{Match: m, do: func(p *Proc, o *Op) (*Fault, error) {
		if d.run.running == nil {
			panic("vfs: a process can only stop under Run")
		}
		o.Note = "stopped"
		p.Stop()
		return nil, p.await(o, "", nil)
	}})
}

// ClearRules cancels all pending faults, kills, cuts and stops.
func (d *Disk) ClearRules() { d.rules = nil }

// apply applies the rules to an operation before it is done.
func (d *Disk) apply(p *Proc, o *Op) (*Fault, error) {
	if len(d.rules) == 0 {
		return nil, nil
	}
	// Every rule counts the operation, even if an earlier one ends it.
	var due []*rule
	for _, r := range d.rules {
		if r.due(o) {
			due = append(due, r)
		}
	}
	if len(due) == 0 {
		return nil, nil
	}
	d.rules = slices.DeleteFunc(slices.Clone(d.rules), func(r *rule) bool { return r.spent })
	var fault *Fault
	for _, r := range due {
		f, err := r.do(p, o)
		if err != nil {
			return nil, err
		}
		if f != nil {
			fault = f
		}
	}
	return fault, nil
}

// part is how many of n bytes are done.
func (d *Disk) part(part, n int) int {
	if part < 0 {
		return d.rng.IntN(n + 1)
	}
	return min(part, n)
}

// losesPages reports whether a sync's error is a writeback error.
func losesPages(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
