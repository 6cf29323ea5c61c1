package sessionlog

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"hansard/internal/vfs"
)

// bytesFile is a file that is only read.
type bytesFile struct {
	vfs.File
	b []byte
}

func (f bytesFile) Size() (int64, error) { return int64(len(f.b)), nil }

func (f bytesFile) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(f.b).ReadAt(p, off)
}

// TestScanBackwards: scanning backwards gives the same lines and offsets as scanning
// forward, however long they are and wherever chunks end.
func TestScanBackwards(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 60 {
		var log []byte
		for range rng.IntN(60) {
			length := []int{0, 1, 100, 5000, backChunk - 1, backChunk, 5 * backChunk}[rng.IntN(3+round%5)]
			if round%2 == 0 && length > 0 {
				length = rng.IntN(length)
			}
			log = append(append(log, strings.Repeat("x", length)...), '\n')
		}
		type line struct {
			text string
			at   int64
		}
		var want []line
		forward := NewScanner(bytesFile{b: log}, 0)
		for {
			b, at, err := forward.Next()
			if err != nil {
				break
			}
			want = append(want, line{string(b), at})
		}
		behind := bytesFile{b: append(bytes.Clone(log), "not a line yet"...)}
		back := NewBackScanner(behind, int64(len(log)))
		for i := len(want) - 1; i >= 0; i-- {
			b, at, err := back.Prev()
			if err != nil || at != want[i].at || string(b) != want[i].text {
				t.Fatalf("seed %d: line %d of %d: %d bytes at %d, %v; want %d at %d", seed, i, len(want), len(b), at, err, len(want[i].text), want[i].at)
			}
		}
		for range 2 {
			if b, _, err := back.Prev(); err != ErrNoLine {
				t.Fatalf("seed %d: before the first line: %q, %v", seed, b, err)
			}
		}
	}
	// A truncated file, and one that can't be read.
	if _, _, err := NewBackScanner(bytesFile{b: []byte("a\n")}, 9).Prev(); err != ErrNoLine {
		t.Errorf("cut: %v", err)
	}
	if _, _, err := NewBackScanner(illFile{}, 9).Prev(); err != io.ErrUnexpectedEOF {
		t.Errorf("ill: %v", err)
	}
}

type illFile struct{ vfs.File }

func (illFile) ReadAt([]byte, int64) (int, error) { return 0, io.ErrUnexpectedEOF }
