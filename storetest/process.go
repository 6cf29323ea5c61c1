package storetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"hansard"
)

// Processes are the test binary itself, started again. The suite writes an order
// into the child's environment; [Main], called first in TestMain, finds it there
// and does the work instead of running tests. The child says when it has opened
// the store, begins when its standard input tells it to, and prints a line of JSON for
// everything that was acknowledged: what the parent has read has happened, however the
// child ends. It stops when its input ends, and so also when its parent is gone.

// orderVariable is the environment variable that makes a process a child.
const orderVariable = "HANSARD_STORETEST_ORDER"

// order is what a child is to do: one of the workers.
type order struct {
	Address  string
	Writer   *writer   `json:",omitempty"`
	Reader   *reader   `json:",omitempty"`
	Follower *follower `json:",omitempty"`
	Creator  *creator  `json:",omitempty"`
	Counter  *counter  `json:",omitempty"`
	Agent    *agent    `json:",omitempty"`
	Mirror   *mirror   `json:",omitempty"`
	// Linger says that the child stays alive, with its store open, after its work.
	Linger bool `json:",omitempty"`
}

func (o *order) worker() (worker, error) {
	switch {
	case o.Writer != nil:
		return o.Writer, nil
	case o.Reader != nil:
		return o.Reader, nil
	case o.Follower != nil:
		return o.Follower, nil
	case o.Creator != nil:
		return o.Creator, nil
	case o.Counter != nil:
		return o.Counter, nil
	case o.Agent != nil:
		return o.Agent, nil
	case o.Mirror != nil:
		return o.Mirror, nil
	}
	return nil, errors.New("an order without work")
}

// line is what a child prints.
type line struct {
	Ready  bool    `json:"ready,omitempty"`
	Report *report `json:"report,omitempty"`
	Done   bool    `json:"done,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// Main lets a test binary be one of the suite's processes: call it first in TestMain.
// In a process that the suite did not start it returns at once; in one that it did, it
// does the work and does not return. The function opens the data at an address that
// [Engine].Address returned.
func Main(open func(address string) (hansard.Store, error)) {
	text := os.Getenv(orderVariable)
	if text == "" {
		return
	}
	out := json.NewEncoder(os.Stdout)
	if err := obey(text, open, os.Stdin, out); err != nil {
		out.Encode(line{Error: err.Error()})
		os.Exit(1)
	}
	out.Encode(line{Done: true})
	os.Exit(0)
}

func obey(text string, open func(string) (hansard.Store, error), stdin io.Reader, out *json.Encoder) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	work, err := o.worker()
	if err != nil {
		return err
	}
	s, err := open(o.Address)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := out.Encode(line{Ready: true}); err != nil {
		return err
	}
	in := bufio.NewReader(stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return s.Close() // not needed after all
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		io.Copy(io.Discard, in)
		cancel()
	}()
	err = work.run(ctx, s, func(r report) { out.Encode(line{Report: &r}) })
	if err == nil && o.Linger {
		<-ctx.Done()
	}
	return errors.Join(err, s.Close())
}

// child is a process at work, seen from the suite.
type child struct {
	x     *env
	what  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	ready chan struct{} // closed when it has opened the store
	ended chan struct{} // closed when it is gone and all its output was read

	mu      sync.Mutex // guards all below until ended
	reports []report
	enough  int           // this many reports
	reached chan struct{} // closed when there are enough
	done    bool
	failure string
	stderr  bytes.Buffer
}

// spawn starts a process that opens the store and waits for its turn to begin.
func (x *env) spawn(what string, o order) *child {
	x.Helper()
	o.Address = x.engine.Address(x.store)
	text, err := json.Marshal(o)
	if err != nil {
		x.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		x.Fatal(err)
	}
	// If TestMain does not call Main, the child runs no test and prints nothing.
	cmd := exec.CommandContext(x.ctx, self, "-test.run=^$")
	cmd.Env = append(os.Environ(), orderVariable+"="+string(text))
	c := &child{x: x, what: what, cmd: cmd, ready: make(chan struct{}), ended: make(chan struct{})}
	cmd.Stderr = &c.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		x.Fatal(err)
	}
	if c.in, err = cmd.StdinPipe(); err != nil {
		x.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		x.Fatalf("%s: %v", what, err)
	}
	x.children = append(x.children, c)
	go c.listen(out)
	return c
}

// said returns a channel that is closed once the child has reported n times. Call it
// before the child begins.
func (c *child) said(n int) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enough, c.reached = n, make(chan struct{})
	return c.reached
}

// listen reads everything the child prints, and then reaps it.
func (c *child) listen(out io.Reader) {
	defer close(c.ended)
	in := bufio.NewReader(out)
	for {
		// A line that a kill has cut in half does not count.
		text, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			continue // the test binary's own output, such as PASS
		}
		if l.Ready {
			close(c.ready)
		}
		c.mu.Lock()
		c.done = c.done || l.Done
		if l.Error != "" {
			c.failure = l.Error
		}
		if l.Report != nil {
			c.reports = append(c.reports, *l.Report)
			if c.reached != nil && len(c.reports) == c.enough {
				close(c.reached)
			}
		}
		c.mu.Unlock()
	}
	err := c.cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done && c.failure == "" {
		c.failure = fmt.Sprintf("it ended without a word (%v); does TestMain call storetest.Main?", err)
	}
}

// begin starts children at the same moment, once each has opened the store.
func (x *env) begin(children ...*child) {
	x.Helper()
	for _, c := range children {
		opened := make(chan struct{})
		go func() {
			defer close(opened)
			select {
			case <-c.ready:
			case <-c.ended:
			}
		}()
		x.within(c.what+": opening the store", opened)
	}
	for _, c := range children {
		io.WriteString(c.in, "begin\n") // an error shows when the child ends
	}
}

// stop tells a child to end.
func (c *child) stop() { c.in.Close() }

// kill ends a child as kill -9 does, in the middle of whatever it is doing.
func (c *child) kill() {
	c.x.Helper()
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.x.Fatalf("%s: kill: %v", c.what, err)
	}
	c.x.within(c.what+": being killed", c.ended)
}

// finish waits for a child that must succeed and returns what it reported.
func (c *child) finish() []report {
	c.x.Helper()
	c.x.within(c.what, c.ended)
	if c.failure != "" || !c.done {
		c.x.Fatalf("%s: %s\n%s", c.what, c.failure, c.stderr.String())
	}
	return c.reports
}

// acks returns the acknowledgements a child received, however it ended. It must have
// ended.
func (c *child) acks() []Ack {
	var out []Ack
	for _, r := range c.reports {
		if r.Ack != nil {
			out = append(out, *r.Ack)
		}
	}
	return out
}
