package client_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hansard"
	"hansard/client"
	"hansard/filestore"
	"hansard/httpd"
	"hansard/internal/halves"
	"hansard/internal/pgtest"
	"hansard/memstore"
	"hansard/pgstore"
	"hansard/search"
	"hansard/storetest"
)

const token = "a-token-for-the-tests"

func TestMain(m *testing.M) {
	storetest.Main(dial)
	// These search through an index in SQLite, which is in Go and very slow under the race
	// detector. The client is the same on memstore.
	halves.Choose("^Test(Filestore|Copy)$|" + storetest.Bulk("TestMemstore"))
	os.Exit(pgtest.Main(m))
}

func dial(address string) (hansard.Store, error) {
	return client.New(address, &client.Options{Token: token})
}

// serve serves a store on the loopback until the test ends, and returns its address.
func serve(t testing.TB, store hansard.Store) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httpd.New(store, httpd.Options{Access: httpd.Single(token)})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("Close of the served store: %v", err)
		}
	})
	return "http://" + l.Addr().String()
}

// served is a client of a server of a store. A second handle is a client of a second server if
// the store's data can have one.
func served(name string, open func(t testing.TB) (serve string), another func(t testing.TB, address string) string) storetest.Engine {
	where := storetest.NewAddresses()
	connect := func(t testing.TB, address string) hansard.Store {
		s, err := dial(address)
		if err != nil {
			t.Fatal(err)
		}
		return where.Keep(s, address)
	}
	return storetest.Engine{
		Name: name,
		By:   "given",
		Open: func(t testing.TB) hansard.Store { return connect(t, open(t)) },
		Another: func(t testing.TB, s hansard.Store) hansard.Store {
			return connect(t, another(t, where.Of(s)))
		},
		Reopen: func(t testing.TB, s hansard.Store) hansard.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			return connect(t, where.Of(s))
		},
		Address: where.Of,
	}
}

// TestMemstore: the contract through the wire, on memstore.
func TestMemstore(t *testing.T) {
	t.Parallel() // it mostly waits, like TestFilestore and TestCopy
	storetest.Run(t, memoryEngine())
}

func memoryEngine() storetest.Engine {
	return served("memstore through the wire",
		func(t testing.TB) string { return serve(t, memstore.New()) },
		func(_ testing.TB, address string) string { return address })
}

// TestFilestore: the contract through the wire, on files; every other handle goes through its own
// server.
func TestFilestore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, fileEngine())
}

func fileEngine() storetest.Engine {
	return sharedEngine("filestore through the wire", func(t testing.TB) string { return t.TempDir() }, openFiles)
}

func openFiles(t testing.TB, dir string) hansard.Store {
	t.Helper()
	s, err := filestore.Open(dir, &filestore.Options{Search: search.New(filepath.Join(dir, "cache"), nil)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// postgresEngine is like fileEngine, on PostgreSQL.
func postgresEngine() storetest.Engine {
	return sharedEngine("pgstore through the wire", func(t testing.TB) string { return pgtest.Shared(t).Schema(t) }, openPostgres)
}

func openPostgres(t testing.TB, url string) hansard.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sharedEngine is an engine whose data several servers can serve at once.
func sharedEngine(name string, place func(testing.TB) string, open func(t testing.TB, place string) hansard.Store) storetest.Engine {
	places := map[string]string{} // by address
	start := func(t testing.TB, place string) string {
		address := serve(t, open(t, place))
		places[address] = place
		return address
	}
	return served(name,
		func(t testing.TB) string { return start(t, place(t)) },
		func(t testing.TB, address string) string { return start(t, places[address]) })
}

func BenchmarkFilestore(b *testing.B) { storetest.Bench(b, fileEngine()) }
