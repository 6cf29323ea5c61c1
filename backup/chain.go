package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hansard"
)

// Suffix is the file name suffix of backups.
const Suffix = ".hbk"

// Chain is a full backup and its increments, each based on the one before.
type Chain struct {
	files []*File
	// salvage skips what is damaged.
	salvage bool
}

// Open opens a full backup and its increments, in the order in which they were made. It
// refuses a gap: a missing increment would leave a hole in sessions.
func Open(paths ...string) (*Chain, error) {
	c := &Chain{}
	for _, path := range paths {
		f, err := OpenFile(path)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.files = append(c.files, f)
	}
	if err := c.check(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// OpenSalvage opens backups of which some may be damaged or missing. Restore then brings
// back what can be read: it skips what is damaged, and sessions whose earlier part is
// missing. If the newest manifest can't be read, sessions that were deleted later come back.
func OpenSalvage(paths ...string) (*Chain, error) {
	c := &Chain{salvage: true}
	for i, path := range paths {
		f, err := OpenFile(path)
		var damage *DamageError
		var cut *NotWholeError
		if errors.As(err, &damage) || errors.As(err, &cut) && cut.Begun {
			f, err = openBroken(path, i)
		}
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.files = append(c.files, f)
	}
	if len(c.files) == 0 {
		return nil, c.check()
	}
	return c, nil
}

// check checks that each backup is the base of the next.
func (c *Chain) check() error {
	if len(c.files) == 0 {
		return &refusal{"no backup was named", "name a full backup, and its increments behind it"}
	}
	if first := c.files[0]; first.head.Base != "" {
		return &refusal{fmt.Sprintf("%s is increment %d: the full backup and what is between is missing", first.path, first.head.Number),
			"name the full backup first, then its increments in order; or the directory that has all of them"}
	}
	for i, f := range c.files[1:] {
		before := c.files[i]
		switch {
		case f.head.Base == "":
			return &refusal{fmt.Sprintf("%s is a full backup, and not an increment of %s", f.path, before.path), "restore one after the other"}
		case f.head.Base != before.Digest() || f.head.Number != before.head.Number+1:
			return &refusal{fmt.Sprintf("%s does not follow %s: there is a gap, or they are in another order", f.path, before.path),
				"name them in the order in which they were made; or the directory that has all of them"}
		}
	}
	return nil
}

// Files are the backups of the chain.
func (c *Chain) Files() []*File { return slices.Clone(c.files) }

// last is the newest backup: its manifest decides what in the whole chain is valid.
func (c *Chain) last() *File { return c.files[len(c.files)-1] }

// Close closes all files.
func (c *Chain) Close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Newest finds the newest whole backup in a directory, of the store with this identity if
// it is not empty, and the backups it is based on, and returns their paths, the full one
// first. It returns no paths if there is no backup. It skips files that are not whole and
// returns them in broken. If the directory has backups of several stores, and store is
// empty, that is an error.
func Newest(dir, store string) (paths []string, broken []error, err error) {
	names, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*"+Suffix))
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.ReadDir(dir); err != nil {
		return nil, nil, err
	}
	found := map[string]*File{} // by digest
	stores := map[string]bool{}
	var newest *File
	for _, path := range names {
		f, err := OpenFile(path)
		if err != nil {
			broken = append(broken, err)
			continue
		}
		f.Close() // only its head and end are needed, and they have been read
		if store != "" && f.Store() != "" && f.Store() != store {
			continue
		}
		found[f.Digest()], stores[f.Store()] = f, true
		if newest == nil || f.Started().After(newest.Started()) {
			newest = f
		}
	}
	if newest != nil && store == "" && len(stores) > 1 {
		return nil, broken, &refusal{fmt.Sprintf("%s has backups of %d stores", dir, len(stores)), "name the files: the full backup first, then its increments in order"}
	}
	for f := newest; f != nil; f = found[f.Base()] {
		paths = append(paths, f.path)
		if f.Base() != "" && found[f.Base()] == nil || len(paths) > len(found) {
			return nil, broken, &refusal{fmt.Sprintf("the backup that %s is an increment of is not in %s, or not whole", f.path, dir), "put it back, or make a full backup"}
		}
	}
	slices.Reverse(paths)
	return paths, broken, nil
}

// escapeGlob escapes a path for use in a glob pattern.
func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `[*]`, `?`, `[?]`, `[`, `[[]`).Replace(path)
}

// wanted is the newest manifest, used to look up the sessions of one backup of the chain.
type wanted struct {
	*lookup
	number int
}

// has reports whether the content of a session in this backup is still valid. It is not if
// the session was deleted or replaced since. Without a manifest all content is.
func (w *wanted) has(id hansard.SessionID) (bool, error) {
	if w.lookup == nil {
		return true, nil
	}
	e, err := w.find(id)
	return err == nil && e != nil && !e.Deleted && e.From <= w.number, err
}
