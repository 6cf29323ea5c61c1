//go:build unix && !linux

package main

import "syscall"

// endWithThread: there is no parent death signal here. The guard sees to it.
func endWithThread(*syscall.SysProcAttr) {}
