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

// Suffix is what the names of backups end in.
const Suffix = ".hbk"

// Chain is a full backup and increments of it, each made on the one before.
type Chain struct {
	files []*File
	// salvage: what is damaged is passed over.
	salvage bool
}

// Open opens a full backup and its increments, in the order in which they were made. It
// refuses a gap: one that is missing would leave sessions with a hole.
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

// OpenSalvage opens backups of which not all may be whole, or there. Restore then brings
// back what can be read: it passes over what is damaged, and over sessions of which an
// earlier part is missing. If the newest manifest can't be read, sessions come back that
// were deleted later.
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

// check checks that each is the base of the next.
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

// last is the newest backup: its manifest tells what the whole chain is worth.
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
// it is not empty, and those it was made on, and gives their paths, the full one first.
// It gives none if there is none. If the directory has backups of several stores, and
// store is empty, that is an error.
func Newest(dir, store string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*"+Suffix))
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	type found struct {
		path, digest, base string
		f                  *File
	}
	byDigest := map[string]*found{}
	stores := map[string]bool{}
	var newest *found
	var broken []error
	for _, path := range names {
		f, err := OpenFile(path)
		if err != nil {
			broken = append(broken, err)
			continue
		}
		f.Close() // its head and end are all that is needed
		if store != "" && f.Store() != "" && f.Store() != store {
			continue
		}
		b := &found{path, f.Digest(), f.Base(), f}
		byDigest[b.digest], stores[f.Store()] = b, true
		if newest == nil || f.Started().After(newest.f.Started()) {
			newest = b
		}
	}
	switch {
	case newest == nil && len(broken) > 0:
		return nil, errors.Join(broken...)
	case newest == nil:
		return nil, nil
	case store == "" && len(stores) > 1:
		return nil, &refusal{fmt.Sprintf("%s has backups of %d stores", dir, len(stores)), "name the files: the full backup first, then its increments in order"}
	}
	var paths []string
	for b := newest; ; {
		paths = append(paths, b.path)
		if b.base == "" {
			break
		}
		before := byDigest[b.base]
		if before == nil || len(paths) > len(byDigest) {
			return nil, errors.Join(append([]error{&refusal{fmt.Sprintf("the backup that %s is an increment of is not in %s", b.path, dir),
				"put it back, or make a full backup"}}, broken...)...)
		}
		b = before
	}
	slices.Reverse(paths)
	return paths, nil
}

// escapeGlob makes a path mean itself in a pattern.
func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `[*]`, `?`, `[?]`, `[`, `[[]`).Replace(path)
}

// wanted is the newest manifest, asked for the sessions of one backup of the chain.
type wanted struct {
	*lookup
	number int
}

// has reports whether the content of a session in this backup counts. It does not if the
// session was deleted or replaced since. Without a manifest all of them do.
func (w *wanted) has(id hansard.SessionID) (bool, error) {
	if w.lookup == nil {
		return true, nil
	}
	e, err := w.find(id)
	return err == nil && e != nil && !e.Deleted && e.From <= w.number, err
}
