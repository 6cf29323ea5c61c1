package importer

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"hansard/memstore"
)

// BenchmarkClaude measures reading and delivering without a disk.
func BenchmarkClaude(b *testing.B) {
	dir := b.TempDir()
	var text strings.Builder
	for i := range 4000 {
		text.WriteString(strings.Replace(strings.Replace(clAnswer, "Done.", strings.Repeat("some words of an answer\\n", 80), 1), `"a3"`, fmt.Sprintf(`"a%d"`, i), 1) + "\n")
	}
	files{"-w/1.jsonl": text.String()}.write(b, dir)
	sources, err := Named([]Format{claude{}}, []string{dir})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		store := memstore.New()
		if err := (&Engine{Store: store}).Run(context.Background(), sources, func(Report) {}); err != nil {
			b.Fatal(err)
		}
		_ = store.Close()
	}
}
