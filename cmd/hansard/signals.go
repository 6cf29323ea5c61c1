package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// graceMax is how long a write in progress may continue after a signal asked the
// program to stop. A second signal ends it at once, which is also safe.
const graceMax = 2 * time.Second

// signalError is the cause of a context that a signal ended.
type signalError struct{ number int }

func (e signalError) Error() string { return "interrupted" }

// catchSignals gives a context that ends with the first SIGINT, SIGTERM or
// SIGHUP. The second one has its default effect: it ends the program.
func catchSignals(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	// A broken pipe is an error of a write, not a reason to die inside one.
	// SIGPIPE is caught, not ignored: programs run by turn would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ch := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // nohup, background jobs of scripts
			signal.Notify(ch, s)
		}
	}
	go func() {
		select {
		case s := <-ch:
			signal.Stop(ch)
			number, _ := s.(syscall.Signal)
			cancel(signalError{int(number)})
		case <-ctx.Done():
			signal.Stop(ch)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// stoppedBy returns the signal that ended the context.
func stoppedBy(ctx context.Context) (number int, ok bool) {
	var s signalError
	ok = errors.As(context.Cause(ctx), &s)
	return s.number, ok
}

// forWrite returns a context for writes: it outlives ctx by graceMax, so that
// after a signal the write in progress can finish, but a busy store can't hold the
// program up for long.
func forWrite(ctx context.Context) (context.Context, context.CancelFunc) {
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(graceMax, cancel) })
	return patient, func() { unhook(); cancel() }
}
