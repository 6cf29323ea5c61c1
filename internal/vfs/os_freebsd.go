package vfs

import "golang.org/x/sys/unix"

func datasync(fd uintptr) error { return unix.Fsync(int(fd)) }

func fsync(fd uintptr) error { return unix.Fsync(int(fd)) }
