package backup

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// partial is the suffix of backups that are being written.
const partial = ".hbk-partial"

// Save creates a file that is either whole and durable, or absent: write writes to a
// temporary file in the same directory, which is synced and then given its name. If a file
// of that name exists already, Save returns [fs.ErrExist].
func Save(path string, write func(io.Writer) error) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return exists(path)
	}
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	if _, err := os.Stat(dir); err != nil { // checked first, so that the error does not name a temporary file
		return err
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
	// A file system without hard links. Here a file that another process creates between
	// the two calls is replaced.
	if _, err := os.Lstat(path); err == nil {
		return exists(path)
	}
	return os.Rename(tmp, path)
}

// create makes a temporary file, which is locked while this process lives.
func create(dir, name string) (*os.File, error) {
	for {
		f, err := os.CreateTemp(dir, "."+name+".*"+partial) // 0600: it contains every session
		if err != nil {
			return nil, err
		}
		lock(f)
		// Another backup may have taken it for a leftover, and removed it, before it was locked.
		if _, err := os.Lstat(f.Name()); !errors.Is(err, fs.ErrNotExist) {
			return f, nil
		}
		_ = f.Close()
	}
}

// removeLeft removes the temporary files of backups that were killed. Files being written
// are locked, and stay.
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
