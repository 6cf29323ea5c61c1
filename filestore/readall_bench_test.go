package filestore

import (
	"os"
	"path/filepath"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
)

// BenchmarkReadAll reads a session of 10,000 events of 1 KiB, as a program does when it resumes
// one: one written event by event, and one written in large batches.
func BenchmarkReadAll(b *testing.B) {
	const events = 10_000
	for name, size := range map[string]int{"batches of 1": 1, "batches of 1000": 1000} {
		b.Run(name, func(b *testing.B) {
			batches := make([]int, events/size)
			for i := range batches {
				batches[i] = size
			}
			log, _ := batchLog("s", 1000, batches...)
			dir := b.TempDir()
			s, err := Open(dir, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(sessionlog.Path("s"))), log, 0o600); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(log)))
			for b.Loop() {
				n := 0
				for e, err := range s.Read(b.Context(), "s", hansard.Range{}) {
					if n++; err != nil || e.Seq != hansard.Seq(n) {
						b.Fatalf("the %dth is %d, %v", n, e.Seq, err)
					}
				}
				if n != events {
					b.Fatalf("%d events", n)
				}
			}
		})
	}
}
