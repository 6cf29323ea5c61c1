package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Job describes one run of one candidate to each of its processes.
type Job struct {
	Candidate                       string
	Dir                             string
	Address                         string // of the candidate's server, if it has one
	Process                         int
	Processes, Goroutines, Sessions int
	Run                             time.Duration
	// Once appends once to every session, cold, instead of for a time to any of them.
	Once bool
	// Create lets these appends make the sessions, which do not exist yet.
	Create       bool
	AllowNetwork bool
}

// Candidate is a way to store events.
type Candidate struct {
	Name string
	// Setup makes the sessions, before the clock runs.
	Setup func(context.Context, Job) error
	Open  func(Job) (Target, error)
	// Check compares what is stored with what was acknowledged, per session.
	Check func(context.Context, Job, [][]Ack) error
}

// Target is a candidate, open in one process.
type Target interface {
	// Append stores one event durably. At any time at most one goroutine calls it with
	// the same goroutine number. The seq is 0 if the candidate has none.
	Append(ctx context.Context, goroutine, session int, tag uint64) (seq uint64, err error)
	Close() error
}

// Ack is an acknowledged event.
type Ack struct {
	Session int32
	Seq     uint64
	Tag     uint64 // unique in the run, and in the event's data
}

// Sample is what one process measured.
type Sample struct {
	Acks    []Ack
	Warm    []Ack   // of the warm-up: checked, not measured
	Nanos   []int64 // how long each append took
	Elapsed time.Duration
	Cost    Cost
}

// Cost is what a process spent between two moments.
type Cost struct {
	CPU     time.Duration // 0 if the system does not report it
	Mallocs uint64
	Bytes   uint64 // allocated
}

// SpentSoFar is what this process has spent since it began.
func SpentSoFar() Cost {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Cost{CPU: cpuTime(), Mallocs: m.Mallocs, Bytes: m.TotalAlloc}
}

// Since is what was spent after an earlier moment.
func (c Cost) Since(before Cost) Cost {
	return Cost{CPU: c.CPU - before.CPU, Mallocs: c.Mallocs - before.Mallocs, Bytes: c.Bytes - before.Bytes}
}

// warmUp appends once to every session, so that what a candidate does only the first
// time, such as opening files, is not measured.
func warmUp(ctx context.Context, t Target, j Job) ([]Ack, error) {
	if j.Once {
		return nil, nil
	}
	acks := make([]Ack, j.Sessions)
	err := Parallel(ctx, j.Goroutines, j.Goroutines, func(g int) error {
		for session := g; session < j.Sessions; session += j.Goroutines {
			tag := uint64(j.Process)<<48 | 0xffff<<32 | uint64(session+1)
			seq, err := t.Append(ctx, g, session, tag)
			if err != nil {
				return err
			}
			acks[session] = Ack{int32(session), seq, tag}
		}
		return ctx.Err()
	})
	return acks, err
}

// drive lets the goroutines of one process append until the time is up.
func drive(ctx context.Context, t Target, j Job) (Sample, error) {
	parts := make([]Sample, j.Goroutines)
	errs := make([]error, j.Goroutines)
	begin := make(chan time.Time)
	var wg sync.WaitGroup
	for g := range j.Goroutines {
		wg.Go(func() {
			start := <-begin
			parts[g], errs[g] = driveOne(ctx, t, j, g, start)
		})
	}
	before := SpentSoFar()
	start := time.Now()
	for range j.Goroutines {
		begin <- start
	}
	wg.Wait()
	all := Sample{Elapsed: time.Since(start), Cost: SpentSoFar().Since(before)}
	for _, p := range parts {
		all.Acks = append(all.Acks, p.Acks...)
		all.Nanos = append(all.Nanos, p.Nanos...)
	}
	return all, errors.Join(errs...)
}

func driveOne(ctx context.Context, t Target, j Job, g int, start time.Time) (Sample, error) {
	var s Sample
	whole := context.WithoutCancel(ctx) // ctx ends the loop, never an append
	// The same sessions in the same order for every candidate.
	pick := rand.New(rand.NewPCG(uint64(j.Process), uint64(g)))
	base := uint64(j.Process)<<48 | uint64(g)<<32
	for now := start; j.Once || now.Sub(start) < j.Run; {
		if err := ctx.Err(); err != nil {
			return s, err
		}
		session, tag := 0, base|uint64(len(s.Acks)+1)
		if !j.Once {
			session = pick.IntN(j.Sessions)
		} else if session = g + len(s.Acks)*j.Goroutines; session >= j.Sessions {
			break
		}
		seq, err := t.Append(whole, g, session, tag)
		if err != nil {
			return s, err
		}
		done := time.Now()
		s.Acks = append(s.Acks, Ack{int32(session), seq, tag})
		s.Nanos = append(s.Nanos, done.Sub(now).Nanoseconds())
		now = done
	}
	return s, nil
}

// AcksBySession collects the acknowledged events of all processes by session.
func AcksBySession(j Job, samples []Sample) [][]Ack {
	acks := make([][]Ack, j.Sessions)
	for _, s := range samples {
		for _, a := range slices.Concat(s.Warm, s.Acks) {
			acks[a.Session] = append(acks[a.Session], a)
		}
	}
	return acks
}

// The tag is the first thing in the text of an event: 16 hexadecimal digits.
const tagDigits = 16

// PutTag writes a tag at the beginning of an event's text.
func PutTag(text []byte, tag uint64) {
	const digits = "0123456789abcdef"
	for i := tagDigits - 1; i >= 0; i-- {
		text[i] = digits[tag&15]
		tag >>= 4
	}
}

// GetTag reads it.
func GetTag(text []byte) (uint64, error) {
	if len(text) < tagDigits {
		return 0, fmt.Errorf("an event of %d bytes was not written by this run", len(text))
	}
	return strconv.ParseUint(string(text[:tagDigits]), 16, 64)
}

// Parallel runs fn for 0 … n-1 on some goroutines and returns the first error.
func Parallel(ctx context.Context, workers, n int, fn func(i int) error) error {
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

// TagsBySeq returns the tags of a session's events in the order of their seqs, and an
// error if those are not 1 … n.
func TagsBySeq(acks []Ack) ([]uint64, error) {
	tags := make([]uint64, len(acks))
	for _, a := range acks {
		if a.Seq < 1 || a.Seq > uint64(len(acks)) {
			return nil, fmt.Errorf("gap: seq %d was acknowledged, but only %d events were", a.Seq, len(acks))
		}
		if tags[a.Seq-1] != 0 {
			return nil, fmt.Errorf("duplicate: seq %d was acknowledged twice", a.Seq)
		}
		tags[a.Seq-1] = a.Tag
	}
	return tags, nil
}
