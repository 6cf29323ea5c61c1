//go:build !linux

package pgtest

import (
	"errors"
	"os/exec"
	"time"
)

var errLinux = errors.New("servers of tests run on Linux only")

func demote(*exec.Cmd, bool) error { return errLinux }
func giveAway(string) error        { return errLinux }

// Pause stops every process of the server.
func (s *Server) Pause() error { return errLinux }

// Resume continues a paused server.
func (s *Server) Resume() error { return errLinux }

// CPU is the CPU time of the server's processes.
func (s *Server) CPU() (time.Duration, error) { return 0, errLinux }
