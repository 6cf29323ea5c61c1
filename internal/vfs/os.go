package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// OS is the operating system's FS below one directory. Everything is opened through an
// os.Root, so no name and no link can lead outside of it, even if directories are swapped
// while in use; links inside of it are refused as well. Safe for concurrent use.
type OS struct {
	root *os.Root
	// dir is the directory itself. It stays open (and referenced, so that the garbage
	// collector does not close it) for the calls that need a directory's descriptor.
	dir *os.File
	// keeper is the owner of the files we make, if that is another user.
	keeper *keeper
}

// OpenDir opens a directory, which must exist (see [MakeDir]).
func OpenDir(path string) (*OS, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	dir, err := root.Open(".")
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return &OS{root: root, dir: dir, keeper: keeperOf(dir)}, nil
}

// MakeDir makes a directory and the missing ones above it, 0700, and makes their entries
// durable: if a power cut removed the store's own directory, everything ever acknowledged
// would be lost. An existing one is not an error.
func MakeDir(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: path, Err: errNotDir}
		}
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := MakeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(parent)
	if err != nil {
		return err
	}
	err = syncDir(d)
	return errors.Join(err, d.Close())
}

// Close closes the directory. Files opened through it stay open.
func (o *OS) Close() error {
	return errors.Join(o.dir.Close(), o.root.Close())
}

var (
	errNotRegular = fmt.Errorf("is %w", ErrNotRegular)
	errNotDir     = errors.New("not a directory")
	errIsDir      = fmt.Errorf("is a directory, %w", ErrNotRegular)
	errLink       = fmt.Errorf("is a symbolic link, which are not followed here; %w", ErrNotRegular)
)

// local turns a slash-separated name into one of this system, and refuses anything but a
// path below the directory.
func local(op, name string) (string, error) {
	l, err := filepath.Localize(name)
	if err != nil {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return l, nil
}

// named puts the name that the caller used into an error, replacing one that reveals where
// on the machine the store is.
func named(name string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return &fs.PathError{Op: strings.TrimSuffix(pe.Op, "at"), Path: name, Err: pe.Err}
	}
	return err
}

// kind is what a directory entry is, as far as we care.
type kind int

const (
	kindOther kind = iota
	kindRegular
	kindDir
	kindLink
)

// look returns what kind of entry a name is without following it, after making sure
// that no directory on the path is a link: os.Root would follow links that stay inside.
func (o *OS) look(op, name string) (ino uint64, k kind, err error) {
	if _, err := local(op, name); err != nil {
		return 0, 0, err
	}
	if parent := path.Dir(name); parent != "." {
		_, k, err := o.look(op, parent)
		if err != nil {
			return 0, 0, err
		}
		if k != kindDir {
			return 0, 0, &fs.PathError{Op: op, Path: parent, Err: refusal(k, kindDir)}
		}
	}
	ino, k, err = o.lookEntry(name)
	if err != nil {
		return 0, 0, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return ino, k, nil
}

func refusal(got, want kind) error {
	switch {
	case got == kindLink:
		return errLink
	case want == kindDir:
		return errNotDir
	case got == kindDir:
		return errIsDir
	}
	return errNotRegular
}

// Open implements [FS].
func (o *OS) Open(name string, flags Flag) (File, error) {
	flag := os.O_RDWR | openFlags
	if flags&ReadOnly != 0 {
		flag = os.O_RDONLY | openFlags
	}
	if flags&Create != 0 {
		flag |= os.O_CREATE
	}
	if flags&Exclusive != 0 {
		flag |= os.O_EXCL
	}
	// Before the open, because opening a FIFO or a device can have side effects and
	// O_CREATE would create the target of a link. Something swapped in between is still
	// confined by os.Root, and checked again below.
	switch _, k, err := o.look("open", name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case flags&(Create|Exclusive) == Create|Exclusive:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case k != kindRegular:
		return nil, &fs.PathError{Op: "open", Path: name, Err: refusal(k, kindRegular)}
	}
	l, err := local("open", name)
	if err != nil {
		return nil, err
	}
	f, err := o.keeper.openKept(flag, func(flag int) (*os.File, error) {
		f, err := o.root.OpenFile(l, flag|noAtime, 0o600)
		if noAtime != 0 && errors.Is(err, fs.ErrPermission) {
			f, err = o.root.OpenFile(l, flag, 0o600) // only the owner may use O_NOATIME
		}
		return f, err
	})
	if err != nil {
		return nil, named(name, err)
	}
	ino, k, err := lookFile(f)
	if err == nil && k != kindRegular {
		err = refusal(k, kindRegular)
	}
	if err != nil {
		_ = f.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &osFile{f: f, name: name, ino: ino}, nil
}

// Mkdir implements [FS].
func (o *OS) Mkdir(name string) error {
	_, k, err := o.look("mkdir", name)
	if err == nil && k != kindDir {
		return &fs.PathError{Op: "mkdir", Path: name, Err: refusal(k, kindDir)}
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := local("mkdir", name)
	if err != nil {
		return err
	}
	err = o.root.Mkdir(l, 0o700)
	if err == nil && o.keeper != nil {
		o.giveDir(l)
	}
	if errors.Is(err, fs.ErrExist) { // another process made it first
		if _, k, err := o.look("mkdir", name); err == nil && k == kindDir {
			return nil
		}
	}
	return named(name, err)
}

// giveDir gives a new directory to its owner. Through its descriptor, and only if it is a
// directory: a link could lead to someone else's file.
func (o *OS) giveDir(name string) {
	d, err := o.root.Open(name)
	if err != nil {
		return
	}
	defer d.Close()
	if _, k, err := lookFile(d); err == nil && k == kindDir {
		_ = d.Chown(o.keeper.uid, o.keeper.gid) // if it can't be given away, it stays root's
	}
}

// Rename implements [FS].
func (o *OS) Rename(oldname, newname string) error {
	return o.withTwo("rename", oldname, newname, o.root.Rename)
}

// Link implements [FS]. Only a regular file gets a second name.
func (o *OS) Link(oldname, newname string) error {
	return o.withTwo("link", oldname, newname, func(lo, ln string) error {
		switch _, k, err := o.look("link", oldname); {
		case err != nil:
			return err
		case k != kindRegular:
			return &fs.PathError{Op: "link", Path: oldname, Err: refusal(k, kindRegular)}
		}
		return o.root.Link(lo, ln)
	})
}

// withTwo does something with two names, after checking that no directory above them is a
// link.
func (o *OS) withTwo(op, oldname, newname string, do func(oldname, newname string) error) error {
	lo, err := local(op, oldname)
	if err != nil {
		return err
	}
	ln, err := local(op, newname)
	if err != nil {
		return err
	}
	for _, parent := range []string{path.Dir(oldname), path.Dir(newname)} {
		if _, k, err := o.look(op, parent); err != nil {
			return err
		} else if k != kindDir {
			return &fs.PathError{Op: op, Path: parent, Err: refusal(k, kindDir)}
		}
	}
	err = do(lo, ln)
	var le *os.LinkError
	if errors.As(err, &le) {
		return &os.LinkError{Op: op, Old: oldname, New: newname, Err: le.Err}
	}
	return named(oldname, err)
}

// Remove implements [FS]. Directories are refused, links are removed
// themselves.
func (o *OS) Remove(name string) error {
	_, k, err := o.look("remove", name)
	if err != nil {
		return err
	}
	if k == kindDir {
		return &fs.PathError{Op: "remove", Path: name, Err: errIsDir}
	}
	l, err := local("remove", name)
	if err != nil {
		return err
	}
	return named(name, o.root.Remove(l))
}

// openDir opens a directory for the calls that need its descriptor.
func (o *OS) openDir(op, name string) (*os.File, error) {
	_, k, err := o.look(op, name)
	if err != nil {
		return nil, err
	}
	if k != kindDir {
		return nil, &fs.PathError{Op: op, Path: name, Err: refusal(k, kindDir)}
	}
	l, err := local(op, name)
	if err != nil {
		return nil, err
	}
	d, err := o.root.Open(l)
	return d, named(name, err)
}

// ReadDir implements [FS].
func (o *OS) ReadDir(name string) ([]Entry, error) {
	d, err := o.openDir("readdir", name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	des, err := d.ReadDir(-1)
	if err != nil {
		return nil, named(name, err)
	}
	entries := make([]Entry, 0, len(des))
	for _, de := range des {
		entries = append(entries, Entry{Name: de.Name(), Dir: de.IsDir(), Regular: de.Type().IsRegular()})
	}
	return entries, nil
}

// Stat implements [FS]. A link is described, not followed: its Mode says so.
func (o *OS) Stat(name string) (Stat, error) {
	ino, _, err := o.look("stat", name)
	if err != nil {
		return Stat{}, err
	}
	l, err := local("stat", name)
	if err != nil {
		return Stat{}, err
	}
	info, err := o.root.Lstat(l)
	if err != nil {
		return Stat{}, named(name, err)
	}
	return Stat{Inode: statInode(info, ino), Size: info.Size(), ModTime: info.ModTime(), Mode: info.Mode()}, nil
}

// Inode implements [FS]. For a link it is the link's own. Directories on the path are not
// checked: the number is only compared with that of an open file.
func (o *OS) Inode(name string) (uint64, int64, error) {
	if _, err := local("inode", name); err != nil {
		return 0, 0, err
	}
	ino, size, err := o.identify(name)
	if err != nil {
		return 0, 0, &fs.PathError{Op: "inode", Path: name, Err: err}
	}
	return ino, size, nil
}

// SyncDir implements [FS].
func (o *OS) SyncDir(name string) error {
	d, err := o.openDir("syncdir", name)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := syncDir(d); err != nil {
		return &fs.PathError{Op: "syncdir", Path: name, Err: err}
	}
	return nil
}

// osFile is an open file of the operating system.
type osFile struct {
	f         *os.File // referenced, or the garbage collector would close it and drop the lock
	name      string
	ino       uint64 // never changes while the file is open
	lockState        //nolint:unused // only Windows needs one
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.f.ReadAt(p, off)
	return n, named(f.name, err)
}

// ReadEnd is ReadAt for a few bytes that are expected to reach the end of a file, with one
// system call instead of two: the usual ReadAt reads again after a short read, because an
// error may be the reason. Within one page it can't be. The caller makes sure that nobody
// closes the file during the call.
func ReadEnd(f File, p []byte, off int64) (int, error) {
	if o, ok := f.(*osFile); ok && off/smallestPage == (off+int64(len(p))-1)/smallestPage {
		return o.readOnce(p, off)
	}
	return f.ReadAt(p, off)
}

// smallestPage is the smallest page size of any system: what lies within one of these lies
// within one page everywhere.
const smallestPage = 4096

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	return n, named(f.name, err)
}

// CloneFrom implements [File].
func (f *osFile) CloneFrom(src File, n int64) (int64, error) {
	from, ok := src.(*osFile)
	if !ok || n <= 0 {
		return 0, nil
	}
	cloned := int64(0)
	err := f.control("clone", func(fd uintptr) error {
		return withFD(from.f, func(fromFD uintptr) (err error) {
			cloned, err = cloneBlocks(fd, fromFD, n)
			return err
		})
	})
	return cloned, err
}

func (f *osFile) Truncate(size int64) error { return named(f.name, f.f.Truncate(size)) }

// Size seeks to the end: after a stat between two writes, the second one would have to
// write the inode again (85 µs on the next sync), because its timestamps were read.
func (f *osFile) Size() (int64, error) {
	n, err := f.f.Seek(0, io.SeekEnd)
	return n, named(f.name, err)
}

func (f *osFile) Inode() (uint64, error) { return f.ino, nil }

func (f *osFile) Datasync() error { return f.control("datasync", datasync) }

func (f *osFile) Close() error { return named(f.name, f.f.Close()) }

// control calls fn with the descriptor, which can't be closed during the call.
func (f *osFile) control(op string, fn func(fd uintptr) error) error {
	if err := withFD(f.f, fn); err != nil {
		return &fs.PathError{Op: op, Path: f.name, Err: err}
	}
	return nil
}

func withFD(f *os.File, fn func(fd uintptr) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := c.Control(func(fd uintptr) { ferr = fn(fd) }); err != nil {
		return fs.ErrClosed // the only possible reason
	}
	return ferr
}

var (
	_ FS   = (*OS)(nil)
	_ File = (*osFile)(nil)
)
