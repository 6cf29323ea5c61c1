package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"hansard"
	"hansard/catalog"
	"hansard/client"
	"hansard/filestore"
	"hansard/search"
)

// access is what a command wants to do with the store.
type access int

const (
	reading  access = iota // change nothing, not even the store's directory
	writing                // the store must exist
	creating               // make the store if it does not exist
)

// errNoStore is returned when the store that was named does not exist.
var errNoStore = errors.New("there is no store")

// noStoreError names the store as the user gave it.
type noStoreError struct{ spec, hint string }

func (e *noStoreError) Error() string        { return fmt.Sprintf("there is no store at %s", e.spec) }
func (e *noStoreError) Is(target error) bool { return target == errNoStore }
func (e *noStoreError) Hint() string         { return e.hint }

// withStore opens the store, runs fn and closes it. The result of fn counts even if
// closing fails: if a command whose write was stored reported a failure, it would be
// repeated, and the write stored twice.
func (a *app) withStore(want access, fn func(hansard.Store) error) (err error) {
	s, err := a.open(want)
	if err != nil {
		return err
	}
	defer func() {
		letGo := a.stop.hold()
		closeErr := s.Close()
		letGo(nil)
		if closeErr != nil && err == nil {
			a.warn("everything was done, but closing the store failed", closeErr)
		}
	}()
	return fn(s)
}

// open opens the store of --store or the environment.
func (a *app) open(want access) (hansard.Store, error) {
	spec, err := a.storeSpec()
	if err != nil {
		return nil, err
	}
	var pause func(func())
	letGo := a.stop.hold()
	defer func() { letGo(pause) }()
	s, err := a.opener(spec, &filestore.Options{
		ReadOnly:     want == reading,
		MustExist:    want != creating,
		AllowNetwork: a.allowNetwork,
		LockWait:     a.lockWait,
		Log:          a.log,
		Catalog:      catalog.Open,
		Progress:     a.catalogProgress(),
	})
	if errors.Is(err, errNoStore) {
		id := a.session
		if id == "" {
			id = "ID"
		}
		return nil, &noStoreError{shownStore(spec), "the first session makes it: " + a.again("new", id)}
	}
	if err != nil {
		return nil, err
	}
	if p, ok := s.(interface{ Pause(func()) }); ok {
		pause = p.Pause
	}
	return s, nil
}

// storeSpec is --store, else HANSARD_STORE, else what the configuration says, else
// the user's data directory.
func (a *app) storeSpec() (string, error) {
	if a.storeSet {
		if err := checkShown("--store", a.store); err != nil {
			return "", err
		}
		if a.store == "" {
			return "", &usageError{"--store is empty", "give a directory, or leave the flag out for the default"}
		}
	}
	store, err := a.applySetting("store")
	return store.Value, err
}

// defaultStore is in the user's data directory.
func defaultStore() (string, error) {
	// The XDG specification says to ignore relative paths.
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "hansard"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &usageError{"there is no home directory to keep the store in", "name the store with --store or HANSARD_STORE"}
	}
	return filepath.Join(home, ".local", "share", "hansard"), nil
}

// openStore opens the store that a URL or a path names. The options are those of the file
// engine; other engines use those they know.
func (a *app) openStore(spec string, o *filestore.Options) (hansard.Store, error) {
	scheme, rest := splitScheme(spec)
	switch scheme {
	case "", "file":
		path, err := filePath(scheme, rest)
		if err != nil {
			return nil, err
		}
		// It opens nothing until a search, or until an indexed session is erased.
		a.index = search.New(filepath.Join(path, "cache"), a.searching)
		o.Search = a.index
		s, err := openFiles(path, o)
		if err == nil {
			a.warnOfOthers(path)
		}
		return s, err
	case "http", "https", "unix":
		token, err := a.serverToken(spec)
		if err != nil {
			return nil, err
		}
		return client.New(spec, &client.Options{Token: token})
	case "postgres", "postgresql":
		return openPostgres(spec, o)
	default:
		return nil, &usageError{
			fmt.Sprintf("there is no kind of store called %q", scheme),
			fmt.Sprintf("for a directory of that name write %s", shellQuote("./"+spec)),
		}
	}
}

// splitScheme splits a URL at its scheme; a path has none. A single letter is
// the drive of a Windows path.
func splitScheme(spec string) (scheme, rest string) {
	scheme, rest, ok := strings.Cut(spec, ":")
	if !ok || len(scheme) < 2 {
		return "", spec
	}
	for i, r := range scheme {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || !strings.ContainsRune("0123456789+.-", r)) {
			return "", spec
		}
	}
	return strings.ToLower(scheme), rest
}

// filePath is the path of file:PATH, taken literally, or of file:///PATH, where %XX stands
// for a byte.
func filePath(scheme, rest string) (string, error) {
	if scheme == "" {
		return rest, nil
	}
	if !strings.HasPrefix(rest, "//") {
		if rest == "" {
			return "", &usageError{"file: names no path", "write file:./sessions or file:///srv/sessions"}
		}
		return filepath.FromSlash(rest), nil
	}
	u, err := url.Parse("file:" + rest)
	if err != nil || u.Host != "" && u.Host != "localhost" || u.Path == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", &usageError{
			fmt.Sprintf("%q is not a file URL of this machine", "file:"+rest),
			"write file:./sessions or file:///srv/sessions",
		}
	}
	return filepath.FromSlash(u.Path), nil
}

// catalogProgress shows on a terminal how far the catalog of a large store is built.
func (a *app) catalogProgress() func(done, total int) {
	p := newProgress(a.stderr)
	return func(done, total int) {
		if done == total {
			p.done()
			return
		}
		p.show(func() string {
			return fmt.Sprintf("Reading sessions for the catalog: %s of %s", humanCount(done), humanCount(total))
		})
	}
}

// openFiles checks before it opens, so that the usual mistakes get a clear error message
// and nothing is created by accident.
func openFiles(path string, o *filestore.Options) (hansard.Store, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if o.MustExist {
			return nil, errNoStore
		}
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("store %s: a part of the path is a file, not a directory", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("store %s: %w", path, err)
	case err != nil: // opening it gives a better error
	case !info.IsDir():
		return nil, fmt.Errorf("store %s is a file, not a directory", path)
	}
	s, err := filestore.Open(path, o)
	if err != nil {
		if o.MustExist && errors.Is(err, fs.ErrNotExist) {
			return nil, errNoStore
		}
		return nil, err
	}
	return s, nil
}
