package backup

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// partial is what the names of backups end in while they are written.
const partial = ".hbk-partial"

// Save makes a file that is either there, whole and durable, or not at all: what write
// writes goes to another name in the same directory, is synced and then gets its name. A
// file of that name that is there already is [fs.ErrExist].
func Save(path string, write func(io.Writer) error) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return exists(path)
	}
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	removeLeft(dir)
	tmp, err := create(dir, name)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	if err := write(tmp); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	if err := giveName(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func exists(path string) error {
	return &fs.PathError{Op: "backup", Path: path, Err: fs.ErrExist}
}

// giveName gives a file its name without replacing another one.
func giveName(tmp, path string) error {
	err := os.Link(tmp, path)
	switch {
	case err == nil:
		return os.Remove(tmp)
	case errors.Is(err, fs.ErrExist):
		return exists(path)
	}
	// A file system without links. Somebody else may be faster by a moment.
	if _, err := os.Lstat(path); err == nil {
		return exists(path)
	}
	return os.Rename(tmp, path)
}

// create makes a file to write to, which is locked while this process lives.
func create(dir, name string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(dir, "."+name+".*"+partial) // 0600: it has all there is
		if err != nil {
			return nil, err
		}
		lock(f)
		// Another backup may have taken it for left over before it was locked.
		if _, err := os.Lstat(f.Name()); !errors.Is(err, fs.ErrNotExist) {
			return f, nil
		}
		_ = f.Close()
	}
}

// removeLeft removes what backups left that were killed. One that is being written is
// locked.
func removeLeft(dir string) {
	left, err := filepath.Glob(filepath.Join(escapeGlob(dir), ".*"+partial))
	if err != nil {
		return
	}
	for _, path := range left {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if lock(f) {
			_ = os.Remove(path)
		}
		_ = f.Close()
	}
}
