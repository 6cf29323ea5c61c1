// Package npmtest installs packages of the npm registry for tests: those that a
// package-lock.json names, by their hashes, without npm and without running their
// scripts.
package npmtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// lockfile is what we need from package-lock.json: exact versions, and the hash of
// every package. With that, installing a package is one download, so a machine needs
// neither npm nor node (which is a package too), and no package gets to run a script.
type lockfile struct {
	Packages map[string]struct {
		Version   string
		Integrity string
		OS, CPU   oneOrMore
	}
}

// oneOrMore is a string or a list of strings, as a package writes it.
type oneOrMore []string

func (o *oneOrMore) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*o = oneOrMore{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(o))
}

// ErrOffline is returned when the registry can't be reached.
var ErrOffline = errors.New("the registry can't be reached")

// Install puts the packages of the package-lock.json in the working directory into
// node_modules, unless they are already there, and returns the path of node.
func Install() (node string, err error) {
	data, err := os.ReadFile("package-lock.json")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	mark := hex.EncodeToString(sum[:])
	if got, err := os.ReadFile("node_modules/.installed"); err != nil || string(got) != mark {
		var lock lockfile
		if err := json.Unmarshal(data, &lock); err != nil {
			return "", err
		}
		if err := download(&lock, mark); err != nil {
			return "", err
		}
	}
	if found, _ := filepath.Glob("node_modules/node-*/bin/node"); len(found) > 0 {
		return filepath.Abs(found[0])
	}
	return exec.LookPath("node") // none of the packages is for this system
}

// download makes a new node_modules beside the old one and replaces the old one
// when it is complete: an interrupted installation changes nothing.
func download(lock *lockfile, mark string) error {
	fresh, err := os.MkdirTemp(".", "node_modules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	var all sync.WaitGroup
	slots := make(chan struct{}, 6)
	problems := make(chan error, len(lock.Packages))
	for name, p := range lock.Packages {
		if name == "" || !fits(p.OS, runtime.GOOS) || !fits(p.CPU, strings.Replace(runtime.GOARCH, "amd64", "x64", 1)) {
			continue
		}
		to := strings.TrimPrefix(name, "node_modules/")
		name = name[strings.LastIndex(name, "node_modules/")+len("node_modules/"):] // it may be nested in that of another package
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			tarball, err := fetch(name, p.Version, p.Integrity)
			if err == nil {
				err = unpack(tarball, filepath.Join(fresh, filepath.FromSlash(to)))
			}
			if err != nil {
				problems <- fmt.Errorf("%s %s: %w", name, p.Version, err)
			}
		})
	}
	all.Wait()
	close(problems)
	for err := range problems {
		return err
	}
	if err := os.WriteFile(filepath.Join(fresh, ".installed"), []byte(mark), 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll("node_modules"); err != nil {
		return err
	}
	return os.Rename(fresh, "node_modules")
}

func fits(only oneOrMore, have string) bool { return len(only) == 0 || slices.Contains(only, have) }

// fetch downloads one package and checks it against the hash in the lock file.
func fetch(name, version, integrity string) ([]byte, error) {
	registry := os.Getenv("npm_config_registry")
	if registry == "" {
		registry = "https://registry.npmjs.org"
	}
	url := fmt.Sprintf("%s/%s/-/%s-%s.tgz", strings.TrimSuffix(registry, "/"), name, path.Base(name), version)
	want, ok := strings.CutPrefix(integrity, "sha512-")
	if !ok {
		return nil, errors.New("no sha512 in the lock file")
	}
	client := http.Client{Timeout: 3 * time.Minute}
	var last error
	for range 3 {
		data, err := get(&client, url)
		if err != nil {
			last = err
			continue
		}
		if sum := sha512.Sum512(data); base64.StdEncoding.EncodeToString(sum[:]) != want {
			return nil, errors.New("what was downloaded is not what is in the lock file")
		}
		return data, nil
	}
	return nil, last
}

func get(client *http.Client, url string) ([]byte, error) {
	resp, err := client.Get(url)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOffline, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// unpack writes the files of a package. The first directory in it has any name.
func unpack(tarball []byte, dir string) error {
	plain, err := gzip.NewReader(bytes.NewReader(tarball))
	if err != nil {
		return err
	}
	for files := tar.NewReader(plain); ; {
		h, err := files.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		_, name, ok := strings.Cut(h.Name, "/")
		// Types and source maps are for people.
		if h.Typeflag != tar.TypeReg || !ok || !filepath.IsLocal(name) || strings.HasSuffix(name, ".map") || strings.HasSuffix(name, "ts") {
			continue
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644|os.FileMode(h.Mode)&0o111)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, files)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}
