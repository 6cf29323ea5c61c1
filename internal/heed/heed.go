// Package heed is for tests that send signals to the programs they start. Under nohup, or
// in the background of a shell, a test is started with signals ignored, and its programs
// would inherit that; a shell can't trap a signal that was ignored when it started.
package heed

import (
	"os"
	"os/signal"
	"syscall"
)

// Signals makes programs that this process starts from now on begin with default signal
// handling. The process itself keeps ignoring what it ignored.
func Signals() {
	dropped := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			// A signal that is caught here is not ignored by a program that is started.
			signal.Notify(dropped, sig)
		}
	}
}
