//go:build !linux

package filestore

import (
	"runtime"
	"time"
)

// yield lets others of this process run: there is no telling how to let other processes.
func yield() { runtime.Gosched() }

// nap is a sleep of some µs.
func nap(d time.Duration) { time.Sleep(d) }
