package filestore_test

import (
	"os"
	"runtime/debug"
	"testing"

	"hansard"
	"hansard/filestore"
	"hansard/internal/halves"
	"hansard/storetest"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(2000) // the simulation has a small heap and makes much garbage
	debug.SetMemoryLimit(1 << 30)
	if wakeWorker() {
		return
	}
	storetest.Main(func(dir string) (hansard.Store, error) { return filestore.Open(dir, nil) })
	// Simulations run one goroutine at a time: the race detector can find nothing there and would
	// take nine times as long.
	halves.Choose(filestore.Alone + "|" + storetest.Bulk("TestContract"))
	os.Exit(m.Run())
}

func engine() storetest.Engine {
	where := storetest.NewAddresses()
	open := func(t testing.TB, dir string) hansard.Store {
		s, err := filestore.Open(dir, nil)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return where.Keep(s, dir)
	}
	return storetest.Engine{
		Name: "filestore",
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

func TestContract(t *testing.T) { storetest.Run(t, engine()) }

func BenchmarkStore(b *testing.B) { storetest.Bench(b, engine()) }
