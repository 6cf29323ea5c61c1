//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the terminal that this process and its shell share. nil means none:
// its methods then do nothing.
type terminal struct {
	f     *os.File
	given bool // to the program
}

func openTerminal() *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil // none: a service, a script, a container
	}
	return &terminal{f: f}
}

// ours tells whether our process group is in the foreground.
func (t *terminal) ours() bool {
	if t == nil {
		return false
	}
	group, err := unix.IoctlGetInt(int(t.f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// give puts a process group into the foreground.
func (t *terminal) give(group int) {
	if t == nil {
		return
	}
	t.put(group)
	t.given = true
}

// takeBack puts our own process group into the foreground again, if we gave it away.
func (t *terminal) takeBack() {
	if t == nil || !t.given {
		return
	}
	t.put(syscall.Getpgrp())
	t.given = false
}

func (t *terminal) put(group int) {
	signal.Ignore(syscall.SIGTTOU)                                    // it would stop us in the background
	_ = unix.IoctlSetPointerInt(int(t.f.Fd()), unix.TIOCSPGRP, group) // the group may have ended
}

func (t *terminal) close() {
	if t != nil {
		_ = t.f.Close()
	}
}

func getsid() (int, error) { return unix.Getsid(0) }
