package bench

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

const (
	// RawWrite is what one writer writes.
	RawWrite = 1 << 10
	rawFile  = 16 << 20
)

// RunRaw overwrites an existing file, size bytes at a time, and waits for the disk after
// each write: there is no space to allocate, no size to change. With 1 KiB that is the
// fastest that one waiting writer can be on this disk.
func RunRaw(ctx context.Context, dir string, run time.Duration, size int) (s Sample, err error) {
	path := filepath.Join(dir, "raw")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return s, err
	}
	defer func() {
		f.Close()
		if rmErr := os.Remove(path); err == nil {
			err = rmErr
		}
	}()
	// Real zeros: blocks that are only reserved are marked as written by the
	// first write to them, which is metadata and would be measured.
	block := make([]byte, 1<<20)
	for at := int64(0); at < rawFile; at += int64(len(block)) {
		if _, err := f.WriteAt(block, at); err != nil {
			return s, err
		}
	}
	if err := f.Sync(); err != nil {
		return s, err
	}
	data := block[:size]
	start := time.Now()
	for now, at := start, int64(0); now.Sub(start) < run; at = (at + int64(size)) % rawFile {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		data[0]++
		if _, err := f.WriteAt(data, at); err != nil {
			return s, err
		}
		if err := Fdatasync(f); err != nil {
			return s, err
		}
		done := time.Now()
		s.Nanos = append(s.Nanos, done.Sub(now).Nanoseconds())
		now = done
	}
	s.Elapsed = time.Since(start)
	return s, nil
}
