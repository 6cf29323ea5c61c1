package filestore

import (
	"context"
	"sync"
	"time"

	"hansard/internal/vfs"
)

// Long operations end with the caller's context: reading a log of gigabytes, and waiting
// for another caller that does so. Operations that take the store's locks do not: a write
// that has begun is finished, and its caller gets ErrUnknown (queue.go).

// boundedFile is a file whose reads fail with the context's error once that has ended. So
// any code that reads it ends soon, and a timeout never looks like the end of the log or
// like damage: both would be remembered (TestContextBoundsReading).
type boundedFile struct {
	vfs.File
	ctx context.Context
}

// bounded makes reads of a file end with a context. A context that can't end costs
// nothing.
func bounded(ctx context.Context, f vfs.File) vfs.File {
	if ctx.Done() == nil {
		return f
	}
	return &boundedFile{f, ctx}
}

// ReadAt is the only method that matters: every long operation consists of reads.
func (f *boundedFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

// lockWithin takes a mutex that may be held for long, unless the context ends first. It
// polls, with pauses that grow to 5 ms, instead of sharing a channel between callers:
// they may be in different testing/synctest bubbles, which can't share one.
func lockWithin(ctx context.Context, mu *sync.Mutex) error {
	for pause := 50 * time.Microsecond; !mu.TryLock(); pause = min(2*pause, 5*time.Millisecond) {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
	return nil
}
