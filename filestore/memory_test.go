package filestore

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
)

// All tests of the package run with this: lines that are read after their memory was released are
// not JSON, have no checksum, and are in no log.
func init() {
	spoil = func(b []byte) {
		for i := range b {
			b[i] = 0xa5
		}
	}
	sessionlog.Spoil = spoil
}

// TestMemoryInUse: memory is reused once the last of its entries is no longer pending and its
// owner has released it, and then only once.
func TestMemoryInUse(t *testing.T) {
	var p pendingEntries
	first := p.memory()
	first.lines = append(first.lines, "lines of two entries"...)
	kept := first.lines
	p.add(&journal.Entry{Name: "a", Lines: kept[:5]}, first)
	p.add(&journal.Entry{Name: "a", Lines: kept[5:]}, first)
	p.add(&journal.Entry{Name: "b"}, nil)
	inUse := func(when string) {
		t.Helper()
		if m := p.memory(); m == first || string(kept) != "lines of two entries" {
			t.Fatalf("%s: given out again, with %q", when, kept)
		} else {
			p.letGo(m)
		}
	}
	inUse("both are pending")
	p.letGo(first)
	inUse("let go of, both are pending")
	p.drop(1)
	inUse("one is pending")
	p.drop(1)
	free := map[*memory]bool{}
	for range p.unused {
		m := p.memory()
		if free[m] {
			t.Fatal("given out twice")
		}
		free[m] = true
	}
	if !free[first] || bytes.Contains(kept, []byte("lines")) {
		t.Errorf("none is pending: not given out again, with %q", kept)
	}
	if len(p.all) != 1 || len(p.of("a")) != 0 || len(p.of("b")) != 1 {
		t.Errorf("pending are %v, of a %v, of b %v", p.all, p.of("a"), p.of("b"))
	}
}

func openHere(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestOthersLinesTakeNoMemory: lines of other processes are read into memory that is reused.
func TestOthersLinesTakeNoMemory(t *testing.T) {
	dir := t.TempDir()
	one, other := openHere(t, dir), openHere(t, dir)
	event := []hansard.Event{{Data: fmt.Appendf(nil, "%q", bytes.Repeat([]byte("x"), 8<<10))}}
	write := func(s *Store, n int) {
		for range n {
			if _, err := s.Append(context.Background(), "s", hansard.Batch{Create: true, Events: event}); err != nil {
				t.Fatal(err)
			}
		}
	}
	const many, rounds = 60, 20
	var bytes uint64
	for round := range 2 * rounds {
		write(other, many)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		write(one, 1)
		runtime.ReadMemStats(&after)
		if round >= rounds {
			bytes += after.TotalAlloc - before.TotalAlloc
		}
	}
	if each := bytes / rounds; each > many*8<<10/4 {
		t.Errorf("an append behind %d of another process allocates %d bytes", many, each)
	}
}
