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
	"strings"
	"sync"
	"time"
)

// The talk between runProcesses and RunWorker, over the worker's standard input
// and output:
//
//	→ a job, as a line of JSON
//	← "ready": the store is open and warm
//	→ "go", to all workers once the last one is ready
//	← the sample, as gob
//
// A worker whose input ends before "go" lost its parent and ends too.
const (
	wordReady = "ready\n"
	wordGo    = "go\n"
)

// runProcesses measures in several processes that start at the same moment.
func (r *runner) runProcesses(ctx context.Context, j job) ([]sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	samples := make([]sample, j.Processes)
	errs := make([]error, j.Processes)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(j.Processes)
	for i := range j.Processes {
		job := j
		job.Process = i
		done.Go(func() {
			if samples[i], errs[i] = r.runProcess(ctx, job, ready.Done, start); errs[i] != nil {
				cancel() // one fails, all stop
			}
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	for _, err := range errs {
		// The others were cancelled because of the one with a reason.
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	return samples, errors.Join(errs...)
}

// runProcess runs one worker. It calls ready once, whatever happens.
func (r *runner) runProcess(ctx context.Context, j job, ready func(), start <-chan struct{}) (s sample, err error) {
	var once sync.Once
	defer once.Do(ready)
	var complaint strings.Builder
	cmd := exec.CommandContext(ctx, r.cfg.Worker[0], r.cfg.Worker[1:]...)
	cmd.Stderr = &complaint
	cmd.WaitDelay = 5 * time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return s, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return s, err
	}
	if err := cmd.Start(); err != nil {
		return s, err
	}
	err = talk(stdin, bufio.NewReader(stdout), j, func() { once.Do(ready); <-start }, &s)
	stdin.Close()
	waitErr := cmd.Wait()
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	if said := strings.TrimSpace(complaint.String()); said != "" && (err != nil || waitErr != nil) {
		return s, fmt.Errorf("worker %d: %s", j.Process, said)
	}
	if err = errors.Join(err, waitErr); err != nil {
		return s, fmt.Errorf("worker %d: %w", j.Process, err)
	}
	return s, nil
}

func talk(to io.Writer, from *bufio.Reader, j job, barrier func(), s *sample) error {
	if err := json.NewEncoder(to).Encode(j); err != nil {
		return err
	}
	if word, err := from.ReadString('\n'); err != nil || word != wordReady {
		return fmt.Errorf("said %q instead of being ready: %w", word, err)
	}
	barrier()
	if _, err := io.WriteString(to, wordGo); err != nil {
		return err
	}
	return gob.NewDecoder(from).Decode(s)
}

// RunWorker is the other end: it does its part of a run in this process.
func RunWorker(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	var j job
	if err := json.Unmarshal(line, &j); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	c := plainFiles
	if j.Candidate == hansardFiles.name {
		c = hansardFiles
	}
	t, err := c.open(j)
	if err != nil {
		return err
	}
	s, err := driveOnGo(ctx, t, j, in, stdout)
	if closeErr := t.close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return gob.NewEncoder(stdout).Encode(s)
}

func driveOnGo(ctx context.Context, t target, j job, in *bufio.Reader, out io.Writer) (sample, error) {
	warm, err := warmUp(ctx, t, j)
	if err != nil {
		return sample{}, err
	}
	if _, err := io.WriteString(out, wordReady); err != nil {
		return sample{}, err
	}
	if word, err := in.ReadString('\n'); err != nil || word != wordGo {
		return sample{}, errors.New("the bench that started this worker is gone")
	}
	s, err := drive(ctx, t, j)
	s.Warm = warm
	return s, err
}
