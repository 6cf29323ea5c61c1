//go:build unix && !linux

package main

import "syscall"

// endWithThread: there is no parent death signal here. The guard kills the
// program.
func endWithThread(*syscall.SysProcAttr) {}
