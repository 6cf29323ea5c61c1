package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// demote makes a program run as a user that PostgreSQL accepts and, for a server, as the
// first process of a PID namespace: when it ends, all processes in it end.
func demote(cmd *exec.Cmd, server bool) error {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if server {
		attr.Cloneflags = syscall.CLONE_NEWPID
	}
	if os.Getuid() == 0 {
		uid, gid, err := postgresUser()
		if err != nil {
			return err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	} else if server {
		// A user namespace gives an ordinary user the right to make a PID namespace.
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
	return nil
}

// giveAway makes a directory belong to the user that the programs run as.
func giveAway(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := postgresUser()
	if err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

func postgresUser() (uid, gid int, err error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		return 0, 0, fmt.Errorf("PostgreSQL refuses to run as root, and there is no user postgres: %w", err)
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

// Pause stops every process of the server, as a machine that hangs does.
func (s *Server) Pause() error { return s.signalAll(syscall.SIGSTOP) }

// Resume continues a paused server.
func (s *Server) Resume() error { return s.signalAll(syscall.SIGCONT) }

// signalAll signals the postmaster and its children.
func (s *Server) signalAll(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return fmt.Errorf("the server is down")
	}
	pid := s.cmd.Process.Pid
	// The postmaster first: it starts no more children.
	if err := syscall.Kill(pid, sig); err != nil {
		return err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return err
	}
	for _, child := range fields(text) {
		if err := syscall.Kill(child, sig); err != nil && err != syscall.ESRCH {
			return err
		}
	}
	return nil
}

func fields(text []byte) (pids []int) {
	n := 0
	for _, c := range text {
		if c >= '0' && c <= '9' {
			n = n*10 + int(c-'0')
		} else if n > 0 {
			pids, n = append(pids, n), 0
		}
	}
	return pids
}

// CPU is the CPU time of all processes of the server so far, including those that have
// ended, to about 10 ms.
func (s *Server) CPU() (used time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return 0, fmt.Errorf("the server is down")
	}
	pid := s.cmd.Process.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	for _, process := range append(fields(text), pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
		if err != nil {
			continue // it has just ended
		}
		// After the name, which may have spaces, fields 11 to 14 are the ticks of the process and
		// of its children that have ended, in user mode and in the kernel.
		_, rest, _ := strings.Cut(string(text), ") ")
		for _, ticks := range strings.Fields(rest)[11:15] {
			n, err := strconv.Atoi(ticks)
			if err != nil {
				return 0, err
			}
			used += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return used, nil
}
