package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// counts are the system calls that processes made between two moments.
type counts struct{ calls, flushes float64 }

// tracer counts them. perf costs the traced processes little; strace stops them twice per
// call, so groups are smaller, or larger, than they would be.
type tracer struct {
	name  string
	start func(pids []int, dir string) (stop func() (counts, error), err error)
}

// attachTries is how often processes are listed again to be traced.
const attachTries = 5

// attach starts to trace processes. One of them, such as a worker of a database, may
// end between being listed and being traced: then it lists them again.
func (t tracer) attach(pids func() []int, dir string) (stop func() (counts, error), err error) {
	for range attachTries {
		if stop, err = t.start(pids(), dir); err == nil {
			break
		}
	}
	return stop, err
}

// flushCalls are the calls that wait for the disk.
var flushCalls = []string{"fsync", "fdatasync", "msync", "sync_file_range", "syncfs", "sync"}

// isFlush leaves out sync_file_range: it starts writing and promises nothing.
func isFlush(call string) bool { return call != "sync_file_range" }

// findTracer returns the best tracer that works here, or one without a name.
func findTracer() tracer {
	for _, t := range []tracer{{"perf", startPerf}, {"strace", startStrace}} {
		dir, err := os.MkdirTemp("", "hansard-bench-trace-")
		if err != nil {
			return tracer{}
		}
		// Try it on a process that lives long enough.
		sleeper := exec.Command("sleep", "30")
		if sleeper.Start() == nil {
			stop, err := t.start([]int{sleeper.Process.Pid}, dir)
			if err == nil {
				_, err = stop()
			}
			_ = sleeper.Process.Kill() // it may have ended
			_ = sleeper.Wait()         // it was killed
			os.RemoveAll(dir)
			if err == nil {
				return t
			}
		}
	}
	return tracer{}
}

func joined(pids []int) string {
	words := make([]string, len(pids))
	for i, pid := range pids {
		words[i] = strconv.Itoa(pid)
	}
	return strings.Join(words, ",")
}

// startPerf counts with the kernel's tracepoints: perf begins and ends on command,
// and acknowledges that it did.
func startPerf(pids []int, dir string) (func() (counts, error), error) {
	controlOut, controlIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ackOut, ackIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	events := []string{"raw_syscalls:sys_enter"}
	for _, call := range flushCalls {
		if isFlush(call) {
			events = append(events, "syscalls:sys_enter_"+call)
		}
	}
	file := filepath.Join(dir, "perf")
	cmd := exec.Command("perf", "stat", "-x", ",", "-e", strings.Join(events, ","), "-D", "-1", "--control", "fd:3,4", "-o", file, "-p", joined(pids))
	cmd.ExtraFiles = []*os.File{controlOut, ackIn}
	err = cmd.Start()
	controlOut.Close()
	ackIn.Close()
	if err != nil {
		return nil, err
	}
	answers := bufio.NewReader(ackOut)
	tell := func(word string) error {
		if _, err := controlIn.WriteString(word + "\n"); err != nil {
			return err
		}
		_ = ackOut.SetReadDeadline(time.Now().Add(20 * time.Second)) // a pipe can
		_, err := answers.ReadString('\n')
		return err
	}
	end := func() {
		controlIn.Close()
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		_ = cmd.Wait()                       // it was interrupted
		ackOut.Close()
	}
	if err := tell("enable"); err != nil {
		end()
		return nil, fmt.Errorf("perf: %w", err)
	}
	return func() (counts, error) {
		err := tell("disable")
		end()
		if err != nil {
			return counts{}, fmt.Errorf("perf: %w", err)
		}
		return readPerf(file)
	}, nil
}

func readPerf(file string) (c counts, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	found := false
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(line, ",")
		if len(fields) < 3 {
			continue
		}
		n, err := strconv.ParseFloat(fields[0], 64)
		if err != nil && fields[0] != "<not counted>" { // which means that the process slept
			continue
		}
		switch {
		case fields[2] == "raw_syscalls:sys_enter":
			c.calls, found = n, true
		case strings.HasPrefix(fields[2], "syscalls:"):
			c.flushes += n
		}
	}
	if !found {
		return c, errors.New("perf counted nothing")
	}
	return c, nil
}

func startStrace(pids []int, dir string) (func() (counts, error), error) {
	file := filepath.Join(dir, "strace")
	args := []string{"-f", "-c", "-U", "calls,name", "-o", file}
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	cmd := exec.Command("strace", args...)
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(said)
	for range pids {
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "attached") {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // it was killed
			return nil, fmt.Errorf("strace: %s %w", line, err)
		}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for {
			if _, err := lines.ReadString('\n'); err != nil {
				return
			}
		}
	}()
	return func() (counts, error) {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			return counts{}, err
		}
		<-drained
		_ = cmd.Wait() // it was interrupted
		return readStrace(file)
	}, nil
}

func readStrace(file string) (c counts, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		n, err := strconv.ParseFloat(fields[0], 64)
		if err != nil || fields[1] == "total" {
			continue
		}
		c.calls += n
		for _, call := range flushCalls {
			if fields[1] == call && isFlush(call) {
				c.flushes += n
			}
		}
	}
	return c, nil
}

// family are a process and its children.
func family(pid int) []int {
	pids := []int{pid}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return pids
	}
	for _, word := range strings.Fields(string(text)) {
		if child, err := strconv.Atoi(word); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// familyCPU is the CPU time that a process and its children have used so far,
// including those that have ended. It is 0 where the system does not report it.
func familyCPU(pid int) (used time.Duration) {
	const tick = 10 * time.Millisecond // on every Linux
	for _, pid := range family(pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The name, in brackets, may have spaces.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for i := 11; i <= 14 && i < len(fields); i++ { // utime, stime, cutime, cstime
			if n, err := strconv.ParseInt(fields[i], 10, 64); err == nil {
				used += time.Duration(n) * tick
			}
		}
	}
	return used
}

// residentKB is how much memory a process has.
func residentKB(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			return strconv.ParseFloat(fields[1], 64)
		}
	}
	return 0, errors.New("the system does not tell how much memory a process has")
}
