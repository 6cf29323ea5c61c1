package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

// job is one run of one candidate, as every process of it needs to know it.
type job struct {
	Candidate                       string
	Dir                             string
	Process                         int
	Processes, Goroutines, Sessions int
	Run                             time.Duration
	AllowNetwork                    bool
}

// candidate is a way to store events.
type candidate struct {
	name string
	// setup makes the sessions, before the clock runs.
	setup func(context.Context, job) error
	open  func(job) (target, error)
	// check compares what is stored with what was acknowledged, per session.
	check func(context.Context, job, [][]ack) error
}

// target is a candidate, open in one process.
type target interface {
	// append stores one event for good. It is called by one goroutine of each
	// number at a time. The seq is 0 where the candidate has none.
	append(ctx context.Context, goroutine, session int, tag uint64) (seq uint64, err error)
	close() error
}

// ack is an acknowledged event.
type ack struct {
	Session int32
	Seq     uint64
	Tag     uint64 // unique in the run, and in the event's data
}

// sample is what one process measured.
type sample struct {
	Acks    []ack
	Warm    []ack   // of the warm-up: checked, not measured
	Nanos   []int64 // how long each append took
	Elapsed time.Duration
}

// warmUp appends once to every session, so that what a candidate does on first
// contact, opening files for one, is not measured.
func warmUp(ctx context.Context, t target, j job) ([]ack, error) {
	acks := make([]ack, j.Sessions)
	err := parallel(ctx, j.Goroutines, j.Goroutines, func(g int) error {
		for session := g; session < j.Sessions; session += j.Goroutines {
			tag := uint64(j.Process)<<48 | 0xffff<<32 | uint64(session+1)
			seq, err := t.append(ctx, g, session, tag)
			if err != nil {
				return err
			}
			acks[session] = ack{int32(session), seq, tag}
		}
		return ctx.Err()
	})
	return acks, err
}

// drive lets the goroutines of one process append until the time is up.
func drive(ctx context.Context, t target, j job) (sample, error) {
	parts := make([]sample, j.Goroutines)
	errs := make([]error, j.Goroutines)
	begin := make(chan time.Time)
	var wg sync.WaitGroup
	for g := range j.Goroutines {
		wg.Go(func() {
			start := <-begin
			parts[g], errs[g] = driveOne(ctx, t, j, g, start)
		})
	}
	start := time.Now()
	for range j.Goroutines {
		begin <- start
	}
	wg.Wait()
	all := sample{Elapsed: time.Since(start)}
	for _, p := range parts {
		all.Acks = append(all.Acks, p.Acks...)
		all.Nanos = append(all.Nanos, p.Nanos...)
	}
	return all, errors.Join(errs...)
}

func driveOne(ctx context.Context, t target, j job, g int, start time.Time) (sample, error) {
	var s sample
	whole := context.WithoutCancel(ctx) // an append is not interrupted, the loop is
	// The same sessions in the same order for every candidate.
	pick := rand.New(rand.NewPCG(uint64(j.Process), uint64(g)))
	base := uint64(j.Process)<<48 | uint64(g)<<32
	for now := start; now.Sub(start) < j.Run; {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		session, tag := pick.IntN(j.Sessions), base|uint64(len(s.Acks)+1)
		seq, err := t.append(whole, g, session, tag)
		if err != nil {
			return s, err
		}
		done := time.Now()
		s.Acks = append(s.Acks, ack{int32(session), seq, tag})
		s.Nanos = append(s.Nanos, done.Sub(now).Nanoseconds())
		now = done
	}
	return s, nil
}

func acksBySession(j job, samples []sample) [][]ack {
	acks := make([][]ack, j.Sessions)
	for _, s := range samples {
		for _, a := range slices.Concat(s.Warm, s.Acks) {
			acks[a.Session] = append(acks[a.Session], a)
		}
	}
	return acks
}

// The tag is the first thing in the text of an event: 16 hexadecimal digits.
const tagDigits = 16

func putTag(text []byte, tag uint64) {
	const digits = "0123456789abcdef"
	for i := tagDigits - 1; i >= 0; i-- {
		text[i] = digits[tag&15]
		tag >>= 4
	}
}

func getTag(text []byte) (uint64, error) {
	if len(text) < tagDigits {
		return 0, fmt.Errorf("an event of %d bytes was not written by this run", len(text))
	}
	return strconv.ParseUint(string(text[:tagDigits]), 16, 64)
}

// parallel runs fn for 0 … n-1 on some goroutines and returns the first error.
func parallel(ctx context.Context, workers, n int, fn func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i := range next {
				if err := fn(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
