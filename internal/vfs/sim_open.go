package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
)

// simFile is an open file of a simulated process.
type simFile struct {
	p        *Proc
	ino      *inode
	name     string
	readOnly bool
	closed   bool
	errSince int // errors of the inode up to here need not be reported

	locked bool
	mode   LockMode
}

// release is what happens to an open file when it is closed, or its process
// killed.
func (f *simFile) release() {
	f.unlock()
	f.closed = true
	f.ino.open--
	f.p.d.released(f.ino)
	f.p.files = slices.DeleteFunc(f.p.files, func(g *simFile) bool { return g == f })
}

// enter is Proc.enter for an open file. A fault that does not depend on the operation's
// effect is returned here.
func (f *simFile) enter(o *Op) (*Fault, error) {
	o.Name = f.name
	flt, err := f.p.enter(o)
	if err != nil {
		return nil, err
	}
	if f.closed {
		return nil, f.p.leave(o, fs.ErrClosed)
	}
	if flt != nil && !flt.Done && o.Kind&(OpWrite|OpSync|OpClose) == 0 {
		o.Note = "injected"
		return nil, f.p.leave(o, flt.Err)
	}
	return flt, nil
}

// ReadAt implements [File].
func (f *simFile) ReadAt(b []byte, off int64) (int, error) {
	o := Op{Kind: OpRead, Off: off, Len: len(b)}
	flt, err := f.enter(&o)
	if err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, f.p.leave(&o, fs.ErrInvalid)
	}
	d := f.p.d
	n := 0
	if cut := f.split(len(b)); cut > 0 {
		n = d.readCache(f.ino, b[:cut], off)
		if n == cut {
			if err := f.p.between(&o); err != nil {
				return 0, f.p.leave(&o, err)
			}
			n += d.readCache(f.ino, b[cut:], off+int64(cut))
		}
	} else {
		n = d.readCache(f.ino, b, off)
	}
	if err := f.p.done(&o, flt, nil); err != nil {
		return 0, err
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements [File].
func (f *simFile) WriteAt(b []byte, off int64) (int, error) {
	p, d := f.p, f.p.d
	o := Op{Kind: OpWrite, Off: off, Len: len(b)}
	if !f.readOnly && !f.closed && off >= 0 {
		o.ino, o.data = f.ino, b
	}
	flt, err := f.enter(&o)
	switch {
	case err != nil:
		return 0, err
	case f.readOnly:
		return 0, p.leave(&o, syscall.EBADF)
	case off < 0:
		return 0, p.leave(&o, fs.ErrInvalid)
	case flt != nil && !flt.Done:
		n := d.writeCache(f.ino, b[:d.part(flt.Part, len(b))], off)
		o.Note = fmt.Sprintf("injected after %d", n)
		return 0, p.leave(&o, flt.Err)
	}
	n := 0
	if cut := f.split(len(b)); cut > 0 {
		n = d.writeCache(f.ino, b[:cut], off)
		if err := p.between(&o); err != nil {
			return 0, p.leave(&o, err)
		}
	}
	n += d.writeCache(f.ino, b[n:], off+int64(n))
	if n < len(b) {
		o.Note = fmt.Sprintf("full after %d", n)
		return n, p.leave(&o, syscall.ENOSPC)
	}
	if err := p.done(&o, flt, nil); err != nil {
		return 0, err
	}
	return n, nil
}

// CloneFrom implements [File]. Shared blocks are like written ones: not on the medium
// until they are synced.
func (f *simFile) CloneFrom(src File, n int64) (int64, error) {
	from, ok := src.(*simFile)
	if !ok || f.readOnly {
		return 0, nil
	}
	n = min(n, from.ino.size)
	if n -= n % int64(f.p.d.pageSize()); n <= 0 {
		return 0, nil
	}
	b := make([]byte, n)
	f.p.d.readCache(from.ino, b, 0)
	written, err := f.WriteAt(b, 0)
	if err != nil {
		return 0, err
	}
	return int64(written), nil
}

// split decides whether and where a read or write of n bytes is interrupted by others; 0
// means not at all.
func (f *simFile) split(n int) int {
	d := f.p.d
	s := &d.run
	if s.running == nil || f.p.observer || n < 2 || len(s.tasks) < 2 {
		return 0
	}
	percent := d.Split
	if percent == 0 && s.chooser == nil {
		percent = 25
	}
	if !chance(d.rng, percent) {
		return 0
	}
	return 1 + d.rng.IntN(n-1)
}

// between lets others run in the middle of an operation.
func (p *Proc) between(o *Op) error {
	p.d.run.reschedule(p, true)
	if p.dead {
		o.Note = "killed in the middle"
		return ErrCrashed
	}
	return nil
}

// Truncate implements [File].
func (f *simFile) Truncate(size int64) error {
	o := Op{Kind: OpTruncate, Off: size}
	flt, err := f.enter(&o)
	if err != nil {
		return err
	}
	if f.readOnly || size < 0 {
		return f.p.leave(&o, syscall.EINVAL)
	}
	if size != f.ino.size {
		f.p.d.truncate(f.ino, size)
	}
	return f.p.done(&o, flt, nil)
}

// Size implements [File].
func (f *simFile) Size() (int64, error) {
	o := Op{Kind: OpSize}
	flt, err := f.enter(&o)
	if err != nil {
		return 0, err
	}
	n := f.ino.size
	return n, f.p.done(&o, flt, nil)
}

// Inode implements [File].
func (f *simFile) Inode() (uint64, error) {
	if f.p.dead {
		return 0, f.p.late()
	}
	return f.ino.num, nil
}

// Datasync implements [File].
func (f *simFile) Datasync() error {
	d := f.p.d
	o := Op{Kind: OpSync}
	flt, err := f.enter(&o)
	if err != nil {
		return err
	}
	switch {
	case flt == nil || flt.Done:
		d.flush(f.ino)
	case losesPages(flt.Err):
		o.Note = "injected"
		d.fail(f.ino, flt.Err, flt.Keep)
	default:
		o.Note = "injected"
		return f.p.leave(&o, flt.Err)
	}
	if f.ino.errSeq != f.errSince {
		f.errSince = f.ino.errSeq
		f.ino.errSeen = true
		return f.p.leave(&o, f.ino.err)
	}
	return f.p.done(&o, flt, nil)
}

// Close implements [File].
func (f *simFile) Close() error {
	o := Op{Kind: OpClose}
	flt, err := f.enter(&o)
	if err != nil {
		return err
	}
	f.release()
	return f.p.done(&o, flt, nil)
}

// blocked reports whether others hold a conflicting lock.
func (f *simFile) blocked(mode LockMode) bool {
	for _, g := range f.ino.locks {
		if g != f && (mode == LockExclusive || g.mode == LockExclusive) {
			return true
		}
	}
	return false
}

func (f *simFile) unlock() {
	if f.locked {
		f.locked = false
		f.ino.locks = slices.DeleteFunc(f.ino.locks, func(g *simFile) bool { return g == f })
	}
}

// lock takes the lock, which must not be blocked.
func (f *simFile) lock(mode LockMode) {
	f.unlock()
	f.locked, f.mode = true, mode
	f.ino.locks = append(f.ino.locks, f)
}

// Lock implements [File].
func (f *simFile) Lock(mode LockMode) error {
	o := Op{Kind: OpLock, Mode: mode}
	flt, err := f.enter(&o)
	if err != nil {
		return err
	}
	if f.locked && f.mode != mode {
		f.unlock() // flock releases the old lock before it waits for another
	}
	if f.blocked(mode) {
		if err := f.p.await(&o, f.wants(mode), func() bool { return !f.blocked(mode) }); err != nil {
			return f.p.leave(&o, err)
		}
	}
	f.lock(mode)
	return f.p.done(&o, flt, nil)
}

// wants describes a wait.
func (f *simFile) wants(mode LockMode) string {
	var holders []string
	for _, g := range f.ino.locks {
		holders = append(holders, g.p.name)
	}
	return fmt.Sprintf("the %s lock on %s, held by %s", mode, f.name, strings.Join(holders, ", "))
}

// TryLock implements [File].
func (f *simFile) TryLock(mode LockMode) (bool, error) {
	o := Op{Kind: OpTryLock, Mode: mode}
	flt, err := f.enter(&o)
	if err != nil {
		return false, err
	}
	if f.locked && f.mode != mode {
		f.unlock()
	}
	got := !f.blocked(mode)
	if got {
		f.lock(mode)
	} else {
		o.Note = "not got"
	}
	if err := f.p.done(&o, flt, nil); err != nil {
		return false, err
	}
	return got, nil
}

// Unlock implements [File].
func (f *simFile) Unlock() error {
	o := Op{Kind: OpUnlock}
	flt, err := f.enter(&o)
	if err != nil {
		return err
	}
	f.unlock()
	return f.p.done(&o, flt, nil)
}
