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

// program is a program that runs while the turn is held, in its own process group:
// the terminal's signals reach only that group, and ours reach everything it
// started.
//
// A guard leads the group. It lives as long as the program, so that the group's
// number is not reused, and it kills the group if this process dies. All methods
// except stop must be called by one goroutine, on the thread that started the
// program.
type program struct {
	cmd     *exec.Cmd
	group   int
	guard   *guard
	tty     *terminal
	changed chan os.Signal // SIGCHLD: check again
}

// forwarded are the signals passed on to the program. SIGCONT comes after a stop.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT}

// notifyForwarded catches the signals to pass on, except those that this process
// was started to ignore (nohup, scripts): the program ignores them too.
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
		p.tty.given = true // even if only the last step, exec, failed
	}
	if err != nil {
		p.finish()
		return nil, err
	}
	return p, nil
}

// look tells whether the program has ended, and with which exit code. If it was
// stopped from the terminal, this process stops too, so that the shell shows its
// prompt.
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
		case err != nil || pid == 0: // "no child" is impossible: only this reaps it
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

// stopped stops our own process group like the program's. Not without a terminal;
// and without a shell that could continue us, a SIGTSTP is undone instead.
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

// stop stops the program because this process is about to be stopped. Any
// goroutine may call it between start and finish.
func (p *program) stop() { _ = syscall.Kill(-p.group, syscall.SIGTSTP) }

// forward passes a signal on: one that a terminal would send, to the whole group;
// one with a meaning only to the program, to the program alone. SIGCONT says that
// a shell continued us, perhaps in the foreground.
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

// signal signals the program and its process group, even if it has made a new
// group for itself, as interactive shells do.
func (p *program) signal(sig syscall.Signal) {
	_ = syscall.Kill(-p.group, sig) // at least the guard is there
	pid := p.cmd.Process.Pid        // not reaped yet: it is nobody else's
	switch group, err := syscall.Getpgid(pid); {
	case err != nil || group == p.group:
	case group == pid:
		_ = syscall.Kill(-pid, sig)
	default:
		_ = syscall.Kill(pid, sig)
	}
}

// end asks the program to end; a stopped one has to be continued for that.
func (p *program) end() {
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT)
}

func (p *program) kill() { p.signal(syscall.SIGKILL) }

// finish takes the terminal back and ends the guard, after the program has ended.
func (p *program) finish() {
	signal.Stop(p.changed)
	p.tty.takeBack()
	p.tty.close()
	p.guard.dismiss()
	if p.cmd.Process != nil {
		_ = p.cmd.Wait() // it was reaped already; this waits for its output
	}
}
