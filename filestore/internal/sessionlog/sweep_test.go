package sessionlog

import (
	"io"
	"testing"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// gapFile is a header and the beginning of a line, and then bytes that are not a line.
type gapFile struct {
	vfs.File
	begin []byte
	size  int64
}

func (f *gapFile) Size() (int64, error) { return f.size, nil }

func (f *gapFile) ReadAt(p []byte, off int64) (n int, err error) {
	for n = range p {
		switch at := off + int64(n); {
		case at >= f.size:
			return n, io.EOF
		case at < int64(len(f.begin)):
			p[n] = f.begin[at]
		default:
			p[n] = 'x'
		}
	}
	return len(p), nil
}

// TestCheckLongGap: bytes without a newline that are more than a line can have are damage, and not
// the beginning of a line that is being written, whatever they begin with.
func TestCheckLongGap(t *testing.T) {
	begin := AppendHeader(nil, "s", 7, time.Unix(0, 0), 0, hansard.Meta{})
	at := int64(len(begin))
	begin = append(begin, `{"seq":1,`...)
	for size, damaged := range map[int64]bool{at + 100: false, at + MaxLine: false, at + 2*MaxLine: true} {
		_, d, err := Check(&gapFile{begin: begin, size: size}, "s", new(Decoder).Decode)
		if err != nil || (d != nil) != damaged || damaged && d.Offset != at {
			t.Errorf("%d bytes: %v, %v; want damage %v at byte %d", size, d, err, damaged, at)
		}
	}
}
