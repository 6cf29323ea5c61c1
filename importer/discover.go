package importer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/klauspost/compress/zstd"

	"hansard"
)

// headBytes is how much of a file is read to identify it.
const headBytes = 256 << 10

// Discover finds the sources of the formats where their tools keep them.
func Discover(formats []Format, m Machine) ([]*Source, error) {
	return (*Memory)(nil).Discover(formats, m)
}

// Discover is the function Discover; files that have not changed since they were imported are
// not opened.
func (mem *Memory) Discover(formats []Format, m Machine) ([]*Source, error) {
	var found []*Source
	for _, f := range formats {
		for _, root := range f.Roots(m) {
			more, err := mem.under(root, []Format{f})
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return found, err
			}
			found = append(found, more...)
		}
	}
	return relate(formats, found), nil
}

// Named finds the sources in the given files and directories. A file that no format knows is
// an error; in a directory such files are skipped, and not even opened if no format claims
// their names. If formats has only one, a named file is read in it without asking whether it
// matches.
func Named(formats []Format, paths []string) ([]*Source, error) {
	return (*Memory)(nil).Named(formats, paths)
}

// Named is the function Named; files that have not changed since they were imported are not
// opened.
func (mem *Memory) Named(formats []Format, paths []string) ([]*Source, error) {
	var found []*Source
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path) // the user named it
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(real)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			more, err := mem.under(real, particular(formats))
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
			continue
		}
		s, err := mem.one(real, info, formats)
		if err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return relate(formats, found), nil
}

// general is implemented by formats that accept any JSON. Directories are not searched for
// them unless they are requested.
type general interface{ general() }

func particular(formats []Format) []Format {
	if len(formats) == 1 {
		return formats
	}
	var out []Format
	for _, f := range formats {
		if _, ok := f.(general); !ok {
			out = append(out, f)
		}
	}
	return out
}

// one is the source of a file that was named.
func (mem *Memory) one(path string, info fs.FileInfo, formats []Format) (*Source, error) {
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	s := &Source{Root: filepath.Dir(path), Path: filepath.Base(path), Size: info.Size(), Modified: info.ModTime()}
	s.mark, _, _ = stampFile(info)
	if mem.recall(s, formats) {
		return s, nil
	}
	head := s.headOnce()
	for _, f := range formats {
		if len(formats) == 1 || f.Match(path, head) {
			s.Format = f
			f.Identify(s, head())
			return s, nil
		}
	}
	return nil, fmt.Errorf("%s: no tool that is known writes such a file; name its format with --from", path)
}

// under finds sources in a directory and those below it. Symbolic links are not followed.
func (mem *Memory) under(dir string, formats []Format) ([]*Source, error) {
	var found []*Source
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == dir {
				return err
			}
			if !errors.Is(err, fs.ErrNotExist) { // otherwise it was just removed
				// It is reported with the sources, and does not keep the others from being
				// found.
				rel, _ := filepath.Rel(dir, path)
				found = append(found, &Source{Format: formats[0], Root: dir, Path: rel, Session: rel, unreadable: err})
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		s := &Source{Root: dir, Path: rel, Size: info.Size(), Modified: info.ModTime()}
		s.mark, _, _ = stampFile(info)
		if mem.recall(s, formats) {
			found = append(found, s)
			return nil
		}
		head := s.headOnce()
		for _, f := range formats {
			if f.Match(path, head) {
				s.Format = f
				f.Identify(s, head())
				found = append(found, s)
				return nil
			}
		}
		return nil
	})
	return found, err
}

// relate finds forks, and puts parents before their children. Duplicates are dropped.
func relate(formats []Format, all []*Source) (found []*Source) {
	seen := map[string]bool{}
	for _, s := range all {
		if key := s.Format.Name() + ":" + s.File(); !seen[key] {
			seen[key] = true
			found = append(found, s)
		}
	}
	for _, f := range formats {
		var own []*Source
		for _, s := range found {
			if s.Format.Name() == f.Name() {
				own = append(own, s)
			}
		}
		if forks, ok := f.(forking); ok {
			forks.relate(own)
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].generation() < found[j].generation() })
	return found
}

// maxGenerations ends a circular chain of parents.
const maxGenerations = 1000

// generation is how many ancestors the source has.
func (s *Source) generation() int {
	n := 0
	for p := s.parent; p != nil && n < maxGenerations; p = p.parent {
		n++
	}
	return n
}

// id is that of its session in a store.
func (s *Source) id() hansard.SessionID { return SessionID(s.Format, s.Session) }

// File is the full path.
func (s *Source) File() string { return filepath.Join(s.Root, s.Path) }

// headOnce returns the beginning of the source, read on the first call.
func (s *Source) headOnce() func() []byte {
	var head []byte
	read := false
	return func() []byte {
		if !read {
			head, read = s.head(), true
		}
		return head
	}
}

func (s *Source) head() []byte {
	f, err := s.open()
	if err != nil {
		return nil
	}
	defer f.Close()
	head, _ := io.ReadAll(io.LimitReader(f, headBytes)) // as far as it is readable
	return head
}

// open opens the source for reading, decompressed, without following a symbolic link
// out of its root.
func (s *Source) open() (io.ReadCloser, error) { return openIn(s.Root, s.Path) }

// sizeIn is the size of a regular file in a directory.
func sizeIn(dir, name string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", filepath.Join(dir, name))
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func openIn(dir, name string) (io.ReadCloser, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would block until it has a writer
		return nil, fmt.Errorf("%s is not a regular file", filepath.Join(dir, name))
	}
	f, err := root.Open(name)
	if err != nil || !strings.HasSuffix(name, ".zst") {
		return f, err
	}
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &unpacked{z, f}, nil
}

// unpacked is a compressed file as it is read.
type unpacked struct {
	*zstd.Decoder
	file io.Closer
}

func (u *unpacked) Close() error {
	u.Decoder.Close()
	return u.file.Close()
}
