//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// guard is a process of ours that leads the program's process group.
type guard struct {
	cmd   *exec.Cmd
	leash io.WriteCloser // if it closes without a byte, the guard kills the group
}

const guardName = "turn-guard"

func startGuard() (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, guardName)
	cmd.Args[0] = "hansard"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	leash, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &guard{cmd, leash}
	// Wait until it ignores the signals meant for the program.
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		g.dismiss()
		return nil, fmt.Errorf("it did not start: %w", err)
	}
	return g, nil
}

// dismiss ends the guard, and leaves the rest of its group alone.
func (g *guard) dismiss() {
	_, _ = g.leash.Write([]byte{'.'}) // it may have been killed
	_ = g.leash.Close()
	_ = g.cmd.Wait() // its exit code means nothing
}

// runGuard is the guard. Its end of the leash is in.
func runGuard(in io.Reader, ready io.Writer) error {
	if syscall.Getpgrp() != syscall.Getpid() {
		return &usageError{guardName + " is for hansard turn itself", "run hansard turn"}
	}
	signal.Ignore() // all: they are meant for the program
	if _, err := ready.Write([]byte{'.'}); err != nil {
		return err
	}
	if _, err := io.ReadFull(in, make([]byte, 1)); err == nil {
		return nil
	}
	return syscall.Kill(0, syscall.SIGKILL) // the program, what it runs, and us
}
