//go:build !linux

package filestore

import (
	"runtime"
	"time"
)

// yield lets other goroutines run: there is no portable way to let other processes run.
func yield() { runtime.Gosched() }

// nap sleeps for a few µs.
func nap(d time.Duration) { time.Sleep(d) }
