//go:build !unix

package main

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
)

// program is a program that runs while the turn is held. There are no process
// groups and no signals here: Ctrl-C reaches the program directly, a lost turn
// ends it at once, and it outlives this process if that is killed.
type program struct {
	cmd     *exec.Cmd
	changed chan struct{} // closed at its end
}

const guardName = "turn-guard"

// notifyForwarded keeps Ctrl-C, which is meant for the program, from ending this
// process.
func notifyForwarded(ch chan<- os.Signal) { signal.Notify(ch, os.Interrupt) }

func startProgram(cmd *exec.Cmd) (*program, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &program{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait() // ProcessState has the result
		close(p.changed)
	}()
	return p, nil
}

func (p *program) look() (status int, ended bool) { return p.cmd.ProcessState.ExitCode(), true }
func (p *program) forward(os.Signal)              {}
func (p *program) stop()                          {}
func (p *program) end()                           { p.kill() }
func (p *program) kill()                          { _ = p.cmd.Process.Kill() } // it may have ended
func (p *program) finish()                        {}

func runGuard(io.Reader, io.Writer) error {
	return &usageError{guardName + " has no use here", "run hansard turn"}
}
