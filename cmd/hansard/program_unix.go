//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// program is a program that runs while the turn is held, in a process group of
// its own: the terminal's signals reach it alone, and ours reach all it started.
//
// A guard leads the group. It lives as long as the program, so that the group's
// number means nobody else, and it kills the group when this process dies. All
// methods but stop are for one goroutine, on the thread that started it.
type program struct {
	cmd     *exec.Cmd
	group   int
	guard   *guard
	tty     *terminal
	changed chan os.Signal // SIGCHLD: look again
}

// forwarded are the signals that are the program's. SIGCONT comes after a stop.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT}

// notifyForwarded asks for the signals that are the program's, except those that
// this process was told to ignore (nohup, scripts): so is the program.
func notifyForwarded(ch chan<- os.Signal) {
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
}

func startProgram(cmd *exec.Cmd) (*program, error) {
	g, err := startGuard()
	if err != nil {
		return nil, fmt.Errorf("the program's guard: %w", err)
	}
	p := &program{cmd: cmd, group: g.cmd.Process.Pid, guard: g, tty: openTerminal(), changed: make(chan os.Signal, 1)}
	signal.Notify(p.changed, syscall.SIGCHLD)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: p.group}
	foreground := p.tty.ours()
	if foreground {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, int(p.tty.f.Fd())
	}
	endWithThread(cmd.SysProcAttr)
	err = cmd.Start()
	if foreground {
		p.tty.given = true // also when only the last step, exec, failed
	}
	if err != nil {
		p.finish()
		return nil, err
	}
	return p, nil
}

// look tells whether the program has ended, and with which exit code. One that
// was stopped from the terminal stops this process too, so that the shell gets
// its prompt.
func (p *program) look() (status int, ended bool) {
	child := p.cmd.Process.Pid
	whose := child
	if os.Getpid() == 1 {
		whose = -1 // in a container orphans become our children, and nobody else waits for them
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(whose, &ws, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid == 0: // no child is not possible: only this reaps it
			return 0, false
		case pid != child:
		case ws.Stopped():
			p.stopped(ws.StopSignal())
		case ws.Signaled():
			return exitSignal + int(ws.Signal()), true
		case ws.Exited():
			return ws.ExitStatus(), true
		}
	}
}

// stopped does to our own process group what was done to the program's. Without
// a terminal, or without a shell that could continue us, it is not ours to follow.
func (p *program) stopped(by syscall.Signal) {
	switch {
	case p.tty == nil || orphaned() && by != syscall.SIGTSTP:
		return
	case orphaned():
		p.signal(syscall.SIGCONT)
		return
	}
	p.tty.takeBack()
	_ = syscall.Kill(0, syscall.SIGTSTP) // ourselves: can't fail; see stopper
}

// orphaned tells whether our process group has no shell above it that would
// continue it: the kernel does not let the terminal stop such a group.
func orphaned() bool {
	session, err := getsid()
	return err == nil && session == syscall.Getpgrp()
}

// stop stops the program because this process is about to be stopped. It may
// come from any goroutine between start and finish.
func (p *program) stop() { _ = syscall.Kill(-p.group, syscall.SIGTSTP) }

// forward passes a signal on: what the terminal would send, to all that would get
// it from there; what only a program knows to take, to the program alone. SIGCONT
// says that a shell continued us, perhaps in the foreground.
func (p *program) forward(sig os.Signal) {
	number := sig.(syscall.Signal)
	switch number {
	case syscall.SIGUSR1, syscall.SIGUSR2:
		_ = syscall.Kill(p.cmd.Process.Pid, number) // not reaped yet: it is nobody else's
		return
	case syscall.SIGCONT:
		if p.tty.ours() {
			p.tty.give(p.group)
		}
	}
	p.signal(number)
}

// signal reaches the program and what it runs in its process group, also when it
// has made itself another one, as interactive shells do.
func (p *program) signal(sig syscall.Signal) {
	_ = syscall.Kill(-p.group, sig) // the guard is there, if nobody else
	pid := p.cmd.Process.Pid        // not reaped yet: it is nobody else's
	switch group, err := syscall.Getpgid(pid); {
	case err != nil || group == p.group:
	case group == pid:
		_ = syscall.Kill(-pid, sig)
	default:
		_ = syscall.Kill(pid, sig)
	}
}

// end asks the program to end; a stopped one has to go on for that.
func (p *program) end() {
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT)
}

func (p *program) kill() { p.signal(syscall.SIGKILL) }

// finish gives the terminal back and lets the guard go, after the program ended.
func (p *program) finish() {
	signal.Stop(p.changed)
	p.tty.takeBack()
	p.tty.close()
	p.guard.dismiss()
	if p.cmd.Process != nil {
		_ = p.cmd.Wait() // it was reaped already; this waits for its output
	}
}
