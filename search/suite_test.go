package search_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore"
	"hansard/search"
	"hansard/storetest"
)

func TestMain(m *testing.M) {
	if name, dir, ok := strings.Cut(os.Getenv(workerVariable), ":"); ok {
		err := error(nil)
		if name == "index" {
			err = indexOnly(dir)
		} else {
			err = work(dir, name)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	storetest.Main(func(dir string) (hansard.Store, error) { return openDir(dir) })
	os.Exit(m.Run())
}

func cacheOf(dir string) string { return filepath.Join(dir, "cache") }

// openDir opens a store on files with an index.
func openDir(dir string) (*filestore.Store, error) {
	return filestore.Open(dir, &filestore.Options{Search: search.New(cacheOf(dir), nil)})
}

func engine() storetest.Engine {
	where := storetest.NewAddresses()
	open := func(t testing.TB, dir string) hansard.Store {
		s, err := openDir(dir)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return where.Keep(s, dir)
	}
	return storetest.Engine{
		Name: "filestore with an index",
		Open: func(t testing.TB) hansard.Store { return open(t, t.TempDir()) },
		Reopen: func(t testing.TB, s hansard.Store) hansard.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			return open(t, where.Of(s))
		},
		Another: func(t testing.TB, s hansard.Store) hansard.Store { return open(t, where.Of(s)) },
		Address: where.Of,
	}
}

// TestContract: what the contract says about searches, and about closing, deleting and redacting,
// which an index could get in the way of.
func TestContract(t *testing.T) {
	storetest.RunSome(t, engine(), "search/", "delete/", "redact/", "reuse/", "close/")
}
