//go:build !linux

package filestore

import "runtime"

// yield lets others of this process run: there is no telling how to let other processes.
func yield() { runtime.Gosched() }
