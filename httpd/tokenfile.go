package httpd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"hansard/internal/vfs"
)

// stamp shows whether a file changed.
type stamp struct {
	size  int64
	time  time.Time
	place string
}

// openTokenFile opens the token file as the engine opens its own: it follows no links,
// never blocks in open, and the file must be the user's own and readable by nobody else.
func openTokenFile(path string, write bool) (*os.File, error) {
	if path == "" {
		return nil, errors.New("there is no file to keep tokens in")
	}
	flags := os.O_RDONLY
	if write {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
		flags = os.O_CREATE | os.O_APPEND | os.O_RDWR
	}
	f, err := vfs.OpenKept(path, flags|openStrictly, 0o600)
	if isLink(err) {
		return nil, fmt.Errorf("the token file %s is a symbolic link: name the file itself", path)
	}
	if err != nil {
		return nil, err
	}
	if err := checkTokenFile(path, f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func checkTokenFile(path string, f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("the token file %s is not a regular file", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("the token file %s may be read by others: chmod 600 it", path)
	case !ownFile(path, info):
		return fmt.Errorf("the token file %s belongs to another user: whoever owns it could let anybody in", path)
	case info.Size() > maxTokensBytes:
		return fmt.Errorf("the token file %s is too large", path)
	}
	return nil
}

// loadLocked reads the file if it changed.
func (t *Tokens) loadLocked() error {
	t.looked = time.Now()
	defer t.indexLocked()
	if t.path == "" {
		return nil
	}
	f, err := openTokenFile(t.path, false)
	if errors.Is(err, fs.ErrNotExist) {
		t.list, t.foreign, t.stamp = nil, nil, stamp{}
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	now := stamp{info.Size(), info.ModTime(), filePlace(f)}
	if now == t.stamp {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(f, maxTokensBytes))
	if err != nil {
		return err
	}
	t.list, t.foreign = t.parse(content, binding{t.store, now.place})
	t.stamp = now
	return nil
}
