package pgstore_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"testing"

	"hansard"
	"hansard/internal/halves"
	"hansard/internal/pgtest"
	"hansard/pgstore"
	"hansard/storetest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(workerVariable); text != "" {
		if err := runWorker(text); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	storetest.Main(func(url string) (hansard.Store, error) { return pgstore.Open(context.Background(), url, nil) })
	halves.Choose(storetest.Bulk("TestContract"))
	os.Exit(pgtest.Main(m))
}

func open(t testing.TB, url string) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func engine() storetest.Engine {
	where := storetest.NewAddresses()
	return storetest.Engine{
		Name: "pgstore",
		Open: func(t testing.TB) hansard.Store {
			url := pgtest.Shared(t).Schema(t)
			return where.Keep(open(t, url), url)
		},
		Reopen: func(t testing.TB, s hansard.Store) hansard.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			return where.Keep(open(t, where.Of(s)), where.Of(s))
		},
		Another: func(t testing.TB, s hansard.Store) hansard.Store {
			return where.Keep(open(t, where.Of(s)), where.Of(s))
		},
		Address: where.Of,
	}
}

func TestContract(t *testing.T) { storetest.Run(t, engine()) }

func BenchmarkStore(b *testing.B) { storetest.Bench(b, engine()) }

// schemaOf is the schema a URL names.
func schemaOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return u.Query().Get("search_path")
}
