package bench

import (
	"bufio"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// The protocol between RunProcesses and RunWorker, over the worker's standard input
// and output:
//
//	→ a job, as a line of JSON
//	← "ready": the store is open and warm
//	→ "go", to all workers once the last one is ready
//	← "done": the time is up; the store is still open
//	→ "bye", to all workers once the last one is done
//	← the sample, as gob
//
// A worker whose input ends before "go" has lost its parent, and ends too.
const (
	wordReady = "ready\n"
	wordGo    = "go\n"
	wordDone  = "done\n"
	wordBye   = "bye\n"
)

// Hooks are called when the workers begin and end, so that callers can count what the
// workers, and the servers they use, do in between. They may be nil.
type Hooks struct {
	Ready func(pids []int) error
	Done  func() error
}

// barrier lets all goroutines pass once the last one has arrived and a function has been
// called.
type barrier struct {
	wait   sync.WaitGroup
	opened chan struct{}
	err    error
}

func newBarrier(n int, then func() error) *barrier {
	b := &barrier{opened: make(chan struct{})}
	b.wait.Add(n)
	go func() {
		b.wait.Wait()
		b.err = then()
		close(b.opened)
	}()
	return b
}

// failed is the reason why nobody may pass, if there is one.
func (b *barrier) failed() error {
	select {
	case <-b.opened:
		return b.err
	default:
		return nil
	}
}

// RunProcesses measures in several processes that start at the same moment: each is
// the command line worker, which has to call RunWorker.
func RunProcesses(ctx context.Context, worker []string, j Job, hooks Hooks) ([]Sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	samples := make([]Sample, j.Processes)
	errs := make([]error, j.Processes)
	pids := make([]int, j.Processes)
	ready := newBarrier(j.Processes, func() error {
		if hooks.Ready == nil || ctx.Err() != nil {
			return nil
		}
		return hooks.Ready(pids)
	})
	ended := newBarrier(j.Processes, func() error {
		if hooks.Done == nil {
			return nil
		}
		return hooks.Done()
	})
	var all sync.WaitGroup
	for i := range j.Processes {
		job := j
		job.Process = i
		all.Go(func() {
			if errs[i] = runProcess(ctx, worker, job, &pids[i], ready, ended, &samples[i]); errs[i] != nil {
				cancel() // if one fails, all stop
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		// The others were cancelled because of the one with a reason.
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	return samples, errors.Join(errs...)
}

// runProcess runs one worker. It reaches each barrier exactly once, whatever happens.
func runProcess(ctx context.Context, worker []string, j Job, pid *int, ready, ended *barrier, s *Sample) (err error) {
	var cameReady, cameEnded sync.Once
	defer cameEnded.Do(ended.wait.Done)
	defer cameReady.Do(ready.wait.Done)
	var complaint strings.Builder
	cmd := exec.CommandContext(ctx, worker[0], worker[1:]...)
	cmd.Stderr = &complaint
	cmd.WaitDelay = 5 * time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	*pid = cmd.Process.Pid
	pass := func(b *barrier, came *sync.Once) func() error {
		return func() error {
			came.Do(b.wait.Done)
			select {
			case <-b.opened:
				return b.err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	err = talk(stdin, bufio.NewReader(stdout), j, pass(ready, &cameReady), pass(ended, &cameEnded), s)
	stdin.Close()
	waitErr := cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, b := range []*barrier{ready, ended} {
		if hookErr := b.failed(); hookErr != nil {
			return hookErr // the worker's own error is only a consequence
		}
	}
	if said := strings.TrimSpace(complaint.String()); said != "" && (err != nil || waitErr != nil) {
		return fmt.Errorf("worker %d: %s", j.Process, said)
	}
	if err = errors.Join(err, waitErr); err != nil {
		return fmt.Errorf("worker %d: %w", j.Process, err)
	}
	return nil
}

func talk(to io.Writer, from *bufio.Reader, j Job, ready, ended func() error, s *Sample) error {
	if err := json.NewEncoder(to).Encode(j); err != nil {
		return err
	}
	for _, step := range []struct {
		expected string
		barrier  func() error
		answer   string
	}{{wordReady, ready, wordGo}, {wordDone, ended, wordBye}} {
		if word, err := from.ReadString('\n'); err != nil || word != step.expected {
			return fmt.Errorf("said %q instead of %q: %w", word, step.expected, err)
		}
		if err := step.barrier(); err != nil {
			return err
		}
		if _, err := io.WriteString(to, step.answer); err != nil {
			return err
		}
	}
	return gob.NewDecoder(from).Decode(s)
}

// RunWorker is the other end: it does its part of a run in this process.
func RunWorker(ctx context.Context, stdin io.Reader, stdout io.Writer, candidates ...Candidate) error {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	var j Job
	if err := json.Unmarshal(line, &j); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	i := slices.IndexFunc(candidates, func(c Candidate) bool { return c.Name == j.Candidate })
	if i < 0 {
		return fmt.Errorf("there is no candidate %q", j.Candidate)
	}
	t, err := candidates[i].Open(j)
	if err != nil {
		return err
	}
	s, err := driveOnGo(ctx, t, j, in, stdout)
	if closeErr := t.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return gob.NewEncoder(stdout).Encode(s)
}

func driveOnGo(ctx context.Context, t Target, j Job, in *bufio.Reader, out io.Writer) (Sample, error) {
	warm, err := warmUp(ctx, t, j)
	if err != nil {
		return Sample{}, err
	}
	if _, err := io.WriteString(out, wordReady); err != nil {
		return Sample{}, err
	}
	if word, err := in.ReadString('\n'); err != nil || word != wordGo {
		return Sample{}, errors.New("the bench that started this worker is gone")
	}
	s, err := drive(ctx, t, j)
	s.Warm = warm
	if err != nil {
		return s, err
	}
	if _, err := io.WriteString(out, wordDone); err != nil {
		return s, err
	}
	if word, err := in.ReadString('\n'); err != nil || word != wordBye {
		return s, errors.New("the bench that started this worker is gone")
	}
	return s, nil
}
