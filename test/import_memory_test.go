//go:build unix

package test

import (
	"context"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"hansard/filestore"
	"hansard/importer"
)

// TestImportMemory: the memory of an import does not grow with the file: 200 MB take no more than
// 100 MB do, and a fraction of the file.
func TestImportMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it imports 300 MB")
	}
	small, _ := importPeak(t, 100<<20)
	large, records := importPeak(t, 200<<20)
	t.Logf("%d MiB are held at most with 100 MB, %d MiB with 200 MB, %d records", small>>20, large>>20, records)
	if large > 64<<20 || large > small+small/4+8<<20 {
		t.Errorf("%d MiB are held at most with 100 MB, %d MiB with 200 MB", small>>20, large>>20)
	}
}

// importPeak imports a file of this many bytes and returns the peak memory in use.
func importPeak(t *testing.T, size int64) (peak uint64, records int64) {
	t.Helper()
	dir := t.TempDir()
	claudeFile(t, filepath.Join(dir, "projects", "-w", "s.jsonl"), size)
	store, err := filestore.Open(filepath.Join(dir, "store"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	claude, _ := importer.Find(importer.Formats(), "claude")
	sources, err := importer.Named([]importer.Format{claude}, []string{filepath.Join(dir, "projects")})
	if err != nil {
		t.Fatal(err)
	}
	var seen atomic.Int64
	e := &importer.Engine{Store: store, Progress: func(n, _ int) {
		if seen.Add(int64(n))%1500 != 0 || n == 0 {
			return
		}
		runtime.GC() // only live memory counts
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
	}}
	err = e.Run(context.Background(), sources, func(r importer.Report) {
		if r.Err != nil || r.Added != r.Records {
			t.Errorf("%d of %d records were added: %v", r.Added, r.Records, r.Err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return peak, seen.Load()
}
