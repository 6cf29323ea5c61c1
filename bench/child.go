package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"hansard/internal/bench"
)

// Child processes of this program have one of these as their argument.
const (
	roleWorker = "worker" // appends, for bench.RunProcesses
	roleTask   = "task"   // one of tasks
)

// order describes a task to the process that does it.
type order struct {
	Task    string
	Job     bench.Job
	N       int
	Key     string
	Catalog bool
	Session int
}

// task is done by a process of its own. It calls ready, which returns when all processes
// that take part are ready, if there are others to wait for.
type task func(ctx context.Context, o order, ready func() error) (any, error)

// tasks are all tasks, by name.
var tasks = map[string]task{
	"read": doRead, "list": doList, "follow": doFollow, "write": doWrite, "turns": doTurns, "first": doFirst, "keyed": doKeyed, "followers": doFollowers,
}

// serveRole does what this process was started for, if it is a child.
func serveRole(ctx context.Context) (served bool, err error) {
	if len(os.Args) != 2 {
		return false, nil
	}
	switch os.Args[1] {
	case roleWorker:
		return true, bench.RunWorker(ctx, os.Stdin, os.Stdout, candidates()...)
	case roleTask:
		return true, serveTask(ctx, bufio.NewReader(os.Stdin), os.Stdout)
	}
	return false, nil
}

func serveTask(ctx context.Context, in *bufio.Reader, out io.Writer) error {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	do := tasks[o.Task]
	if do == nil {
		return fmt.Errorf("there is no task %q", o.Task)
	}
	result, err := do(ctx, o, func() error {
		if _, err := io.WriteString(out, "ready\n"); err != nil {
			return err
		}
		_, err := in.ReadString('\n')
		return err
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

// child is a process with a task.
type child struct {
	cmd       *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Reader
	complaint strings.Builder
}

func (l *lab) start(ctx context.Context, o order) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, l.self, roleTask)}
	c.cmd.Stderr = &c.complaint
	c.cmd.WaitDelay = 5 * time.Second
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	return c, json.NewEncoder(c.in).Encode(o)
}

// ready waits until the process is ready.
func (c *child) ready() error {
	if word, err := c.out.ReadString('\n'); err != nil || word != "ready\n" {
		return c.ended(fmt.Errorf("said %q instead of being ready: %w", word, err))
	}
	return nil
}

// proceed lets a process that is ready continue.
func (c *child) proceed() error {
	_, err := io.WriteString(c.in, "go\n")
	return err
}

// result waits for the end of the process and decodes its result.
func (c *child) result(into any) error {
	return c.ended(json.NewDecoder(c.out).Decode(into))
}

func (c *child) ended(err error) error {
	c.in.Close() // a process that waits for it ends
	waitErr := c.cmd.Wait()
	if err == nil && waitErr == nil {
		return nil
	}
	if said := strings.TrimSpace(c.complaint.String()); said != "" {
		return errors.New(said)
	}
	return errors.Join(err, waitErr)
}

// do runs a task in a process of its own, from its start to its end.
func (l *lab) do(ctx context.Context, o order, into any) error {
	c, err := l.start(ctx, o)
	if err != nil {
		return err
	}
	return c.result(into)
}
