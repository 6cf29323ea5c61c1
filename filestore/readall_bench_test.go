package filestore

import (
	"testing"

	"hansard"
)

// BenchmarkReadAll reads a session of 10,000 events of 1 KiB, as programs do that resume it.
func BenchmarkReadAll(b *testing.B) {
	const events = 10_000
	s, err := Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for n := 0; n < events; n += 1000 {
		batch := hansard.Batch{Create: true}
		for i := range 1000 {
			batch.Events = append(batch.Events, pad(n+i, 1000))
		}
		if _, err := s.Append(b.Context(), "s", batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for e, err := range s.Read(b.Context(), "s", hansard.Range{}) {
			if err != nil {
				b.Fatal(err)
			}
			if n++; e.Seq != hansard.Seq(n) {
				b.Fatalf("seq %d is the %dth", e.Seq, n)
			}
		}
		if n != events {
			b.Fatalf("%d events", n)
		}
	}
}
