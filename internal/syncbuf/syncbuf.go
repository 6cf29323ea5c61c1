// Package syncbuf is a buffer that programs and servers under test write to while the
// test reads it.
package syncbuf

import (
	"bytes"
	"sync"
)

// Buffer is a [bytes.Buffer] for several goroutines. Its zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is everything written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
