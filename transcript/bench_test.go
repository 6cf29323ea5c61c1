package transcript

import (
	"testing"

	"hansard"
)

// BenchmarkOf reads one event of each shape.
func BenchmarkOf(b *testing.B) {
	for b.Loop() {
		for _, c := range shapes {
			Of(hansard.Event{Kind: c.kind, Data: []byte(c.data)})
		}
	}
}
