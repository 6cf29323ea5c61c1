package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// pager sits between the output and a terminal: output that fits the screen is
// written to it, longer output is shown by the program that $PAGER names.
type pager struct {
	terminal io.Writer
	command  string // a shell command
	rows     int

	held  bytes.Buffer // while it may still fit the screen
	lines int
	cmd   *exec.Cmd
	pipe  io.WriteCloser
}

// defaultPager is used if $PAGER is not set and it is installed.
const defaultPager = "less"

// pagerCommand is the pager to use; empty is none.
func pagerCommand() string {
	command, set := os.LookupEnv("PAGER")
	if !set {
		if _, err := exec.LookPath(defaultPager); err != nil {
			return ""
		}
		return defaultPager
	}
	if command = strings.TrimSpace(command); command == "cat" {
		return ""
	}
	return command
}

// paged runs a function whose output is shown by the pager if it is longer than the
// screen. Without a terminal or a pager it just runs it.
func (a *app) paged(no bool, run func() error) error {
	command := pagerCommand()
	if no || a.json || !a.out.tty || a.out.height <= 0 || command == "" {
		return run()
	}
	p := &pager{terminal: a.stdout, command: command, rows: a.out.height}
	a.out.Reset(p)
	err := run()
	if flushErr := a.out.Flush(); err == nil {
		err = flushErr
	}
	a.out.Reset(a.stdout)
	closeErr := p.close()
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil // the reader has seen enough
	case err == nil:
		return closeErr
	}
	return err
}

func (p *pager) Write(b []byte) (int, error) {
	if p.pipe != nil {
		return p.pipe.Write(b)
	}
	p.held.Write(b)
	if p.lines += bytes.Count(b, []byte("\n")); p.lines < p.rows {
		return len(b), nil
	}
	if err := p.start(); err != nil {
		// If the pager can't be started, the output must still be readable.
		p.rows = int(^uint(0) >> 1)
		return len(b), nil
	}
	_, err := p.held.WriteTo(p.pipe)
	return len(b), err
}

func (p *pager) start() error {
	cmd := exec.Command("sh", "-c", p.command)
	cmd.Stdout, cmd.Stderr = p.terminal, os.Stderr
	cmd.Env = os.Environ()
	if _, set := os.LookupEnv("LESS"); !set {
		cmd.Env = append(cmd.Env, "LESS=FRX") // keep colours, do not clear the screen
	}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.pipe = cmd, pipe
	return nil
}

// close shows the rest, and waits until it has been read.
func (p *pager) close() error {
	if p.pipe == nil {
		_, err := p.held.WriteTo(p.terminal)
		return err
	}
	_ = p.pipe.Close() // the pager may be gone
	_ = p.cmd.Wait()   // its exit code says nothing about the transcript
	return nil
}
