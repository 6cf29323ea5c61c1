package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// Proc is a simulated process: an FS with its own descriptors and locks, which
// end with it.
type Proc struct {
	d        *Disk
	name     string
	observer bool
	dead     bool
	stopped  bool
	files    []*simFile // open
	ops      int
	calls    int // since its death
}

// Name is the name given to Process.
func (p *Proc) Name() string { return p.name }

// Ops is how many operations the process has begun.
func (p *Proc) Ops() int { return p.ops }

// Dead reports whether the process was killed, or the power cut.
func (p *Proc) Dead() bool { return p.dead }

// Stopped reports whether the process is stopped.
func (p *Proc) Stopped() bool { return p.stopped }

// OpenFiles lists the names under which files are still open.
func (p *Proc) OpenFiles() []string {
	var l []string
	for _, f := range p.files {
		l = append(l, f.name)
	}
	return l
}

// Kill ends the process as SIGKILL does: what it wrote stays in the cache, its
// descriptors and locks are gone, and every later call by it returns
// ErrCrashed. It is also how a process exits: the end of its function closes
// nothing.
func (p *Proc) Kill() {
	if p.dead {
		return
	}
	p.dead = true
	for _, f := range slices.Clone(p.files) {
		f.release()
	}
	p.d.procs = slices.DeleteFunc(p.d.procs, func(q *Proc) bool { return q == p })
}

// Stop stops the process at its next operation, as SIGSTOP does.
func (p *Proc) Stop() { p.stopped = true }

// Continue continues a stopped process.
func (p *Proc) Continue() { p.stopped = false }

// Yield lets others run; it is not an operation. Simulated code calls it where
// real code would sleep.
func (p *Proc) Yield() error {
	if p.dead {
		return p.late()
	}
	if p.d.run.running != nil && !p.observer {
		p.d.run.reschedule(p, true)
	}
	if p.dead {
		return ErrCrashed
	}
	return nil
}

// Await lets others run until ready returns true; ready must not call this
// file system. It stands for waiting on another thread of the same process;
// what is for the report of a deadlock. Without Run, a wait that can't succeed
// is an error.
func (p *Proc) Await(what string, ready func() bool) error {
	if p.dead {
		return p.late()
	}
	return p.await(&Op{Proc: p.name}, what, ready)
}

// enter begins every operation. Without an error the caller continues, and
// applies the fault.
func (p *Proc) enter(o *Op) (*Fault, error) {
	d := p.d
	o.Proc = p.name
	if p.dead {
		return nil, p.late()
	}
	if p.observer {
		return nil, nil
	}
	if d.run.running != nil {
		d.run.reschedule(p, false)
		if p.dead {
			return nil, ErrCrashed
		}
	}
	d.ops++
	d.kinds[bits.TrailingZeros32(uint32(o.Kind))]++
	p.ops++
	o.N, o.PN = d.ops, p.ops
	if chance(d.rng, d.Writeback) {
		d.background()
	}
	f, err := d.apply(p, o)
	if err != nil {
		return nil, p.leave(o, err)
	}
	return f, nil
}

// leave ends every operation; it returns the error for the caller.
func (p *Proc) leave(o *Op, err error) error {
	if err != nil && err != ErrCrashed {
		var pe *fs.PathError
		var le *os.LinkError
		var de *DeadlockError
		if !errors.As(err, &pe) && !errors.As(err, &le) && !errors.As(err, &de) {
			err = &fs.PathError{Op: o.Kind.String(), Path: o.Name, Err: err}
		}
	}
	if p.observer {
		return err
	}
	o.Err = err
	o.ino, o.data = nil, nil
	p.d.trace.add(o)
	for _, h := range p.d.hooks {
		h(*o)
	}
	if p.dead {
		return ErrCrashed // a hook did it: the process does not learn the outcome
	}
	return err
}

// late is the answer to a dead process. One that never stops calling would
// hang the test.
func (p *Proc) late() error {
	const callsMax = 10_000
	if p.calls++; p.calls < callsMax {
		return ErrCrashed
	}
	if s := &p.d.run; s.running != nil && s.running.p == p {
		s.errs = append(s.errs, fmt.Errorf("vfs: process %s does not end after its death", p.name))
		runtime.Goexit()
	}
	panic("vfs: process " + p.name + " does not end after its death")
}

// checked is enter for operations on a name.
func (p *Proc) checked(o *Op) (*Fault, error) {
	f, err := p.enter(o)
	if err != nil {
		return nil, err
	}
	if !fs.ValidPath(o.Name) || strings.ContainsRune(o.Name, 0) {
		return nil, p.leave(o, fs.ErrInvalid)
	}
	if f != nil && !f.Done {
		o.Note = "injected"
		return nil, p.leave(o, f.Err)
	}
	return f, nil
}

// done is leave for an operation that may have to return a fault although it
// was done.
func (p *Proc) done(o *Op, f *Fault, err error) error {
	if f != nil && err == nil {
		o.Note = "injected, but done"
		err = f.Err
	}
	return p.leave(o, err)
}

// parent checks the directory of a name.
func (p *Proc) parent(name string) error {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		i := p.d.names[dir]
		if i == nil {
			return &fs.PathError{Op: "lookup", Path: dir, Err: syscall.ENOENT}
		}
		if !i.dir {
			return &fs.PathError{Op: "lookup", Path: dir, Err: errNotDir}
		}
		if dir == "." {
			return nil
		}
	}
}

func (p *Proc) lookup(name string) (*inode, error) {
	if err := p.parent(name); err != nil {
		return nil, err
	}
	i := p.d.names[name]
	if i == nil {
		return nil, syscall.ENOENT
	}
	return i, nil
}

// Open implements [FS].
func (p *Proc) Open(name string, flags Flag) (File, error) {
	o := Op{Kind: OpOpen, Name: name, Flags: flags}
	f, err := p.checked(&o)
	if err != nil {
		return nil, err
	}
	i, err := p.lookup(name)
	switch {
	case errors.Is(err, syscall.ENOENT) && flags&Create != 0 && p.parent(name) == nil:
		i = p.d.create(name, OpOpen)
	case err != nil:
		return nil, p.leave(&o, err)
	case flags&(Create|Exclusive) == Create|Exclusive:
		return nil, p.leave(&o, syscall.EEXIST)
	case i.dir:
		return nil, p.leave(&o, errIsDir)
	}
	file := &simFile{p: p, ino: i, name: name, readOnly: flags&ReadOnly != 0, errSince: i.errSince()}
	i.open++
	p.files = append(p.files, file)
	if err := p.done(&o, f, nil); err != nil {
		if !p.dead {
			file.release()
		}
		return nil, err
	}
	return file, nil
}

// Mkdir implements [FS].
func (p *Proc) Mkdir(name string) error {
	o := Op{Kind: OpMkdir, Name: name}
	f, err := p.checked(&o)
	if err != nil {
		return err
	}
	i, err := p.lookup(name)
	switch {
	case errors.Is(err, syscall.ENOENT) && p.parent(name) == nil:
		p.d.create(name, OpMkdir)
		err = nil
	case err == nil && !i.dir:
		err = errNotDir
	}
	return p.done(&o, f, err)
}

// Rename implements [FS]. Directories can't be renamed here.
func (p *Proc) Rename(oldname, newname string) error {
	o := Op{Kind: OpRename, Name: oldname, To: newname}
	f, err := p.checked(&o)
	if err != nil {
		return err
	}
	if !fs.ValidPath(newname) {
		return p.leave(&o, fs.ErrInvalid)
	}
	var i *inode
	if err = errors.Join(p.parent(oldname), p.parent(newname)); err == nil {
		i, err = p.lookup(oldname)
	}
	if err == nil && (i.dir || p.d.names[newname] != nil && p.d.names[newname].dir) {
		err = errIsDir
	}
	if err == nil {
		p.d.rename(oldname, newname)
	} else {
		err = &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: bare(err)}
	}
	return p.done(&o, f, err)
}

// Link implements [FS].
func (p *Proc) Link(oldname, newname string) error {
	o := Op{Kind: OpLink, Name: oldname, To: newname}
	f, err := p.checked(&o)
	if err != nil {
		return err
	}
	if !fs.ValidPath(newname) {
		return p.leave(&o, fs.ErrInvalid)
	}
	var i *inode
	if err = errors.Join(p.parent(oldname), p.parent(newname)); err == nil {
		i, err = p.lookup(oldname)
	}
	switch {
	case err != nil:
	case i.dir:
		err = errIsDir
	case p.d.names[newname] != nil:
		err = syscall.EEXIST
	default:
		p.d.link(i, newname)
	}
	if err != nil {
		err = &os.LinkError{Op: "link", Old: oldname, New: newname, Err: bare(err)}
	}
	return p.done(&o, f, err)
}

// Remove implements [FS].
func (p *Proc) Remove(name string) error {
	o := Op{Kind: OpRemove, Name: name}
	f, err := p.checked(&o)
	if err != nil {
		return err
	}
	i, err := p.lookup(name)
	if err == nil && i.dir {
		err = errIsDir
	}
	if err == nil {
		p.d.remove(name)
	}
	return p.done(&o, f, err)
}

// ReadDir implements [FS]. The order is chosen from the seed.
func (p *Proc) ReadDir(name string) ([]Entry, error) {
	o := Op{Kind: OpReadDir, Name: name}
	f, err := p.checked(&o)
	if err != nil {
		return nil, err
	}
	i, err := p.lookup(name)
	if err == nil && !i.dir {
		err = errNotDir
	}
	if err := p.done(&o, f, err); err != nil {
		return nil, err
	}
	var l []Entry
	for n, i := range p.d.names {
		if below(name, n) {
			l = append(l, Entry{Name: path.Base(n), Dir: i.dir, Regular: !i.dir})
		}
	}
	slices.SortFunc(l, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	if !p.observer { // an observer must not change the run
		p.d.rng.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
	}
	return l, nil
}

// Stat implements [FS].
func (p *Proc) Stat(name string) (Stat, error) {
	o := Op{Kind: OpStat, Name: name}
	f, err := p.checked(&o)
	if err != nil {
		return Stat{}, err
	}
	i, err := p.lookup(name)
	if err := p.done(&o, f, err); err != nil {
		return Stat{}, err
	}
	st := Stat{Inode: i.num, Size: i.size, ModTime: stamped(i.mtime), Mode: 0o600}
	if i.dir {
		st.Mode = fs.ModeDir | 0o700
	}
	return st, nil
}

// Inode implements [FS].
func (p *Proc) Inode(name string) (uint64, int64, error) {
	o := Op{Kind: OpInode, Name: name}
	f, err := p.checked(&o)
	if err != nil {
		return 0, 0, err
	}
	i, err := p.lookup(name)
	if err := p.done(&o, f, err); err != nil {
		return 0, 0, err
	}
	return i.num, i.size, nil
}

// SyncDir implements [FS].
func (p *Proc) SyncDir(name string) error {
	o := Op{Kind: OpSyncDir, Name: name}
	f, err := p.checked(&o)
	if err != nil {
		return err
	}
	i, err := p.lookup(name)
	if err == nil && !i.dir {
		err = errNotDir
	}
	if err == nil {
		p.d.syncDir(name)
	}
	return p.done(&o, f, err)
}

// Free implements [FS].
func (p *Proc) Free() (uint64, error) {
	o := Op{Kind: OpFree, Name: "."}
	f, err := p.checked(&o)
	if err != nil {
		return 0, err
	}
	n := uint64(p.d.free())
	return n, p.done(&o, f, nil)
}

var (
	_ FS   = (*Proc)(nil)
	_ File = (*simFile)(nil)
)
