// Command hansard keeps the sessions of AI agents: it creates, appends to, reads,
// follows, lists, checks and repairs them, on any store that package hansard knows.
//
// Run "hansard help" for the commands. Exit codes: 0 ok, 1 other, 2 usage,
// 3 not found, 4 conflict, 5 held or fenced, 6 damaged; 128 plus the number of
// the signal that stopped it. "hansard turn" ends as the program it runs does.
package main

import (
	"context"
	"os"
	"runtime/debug"
)

// gcPercent is how much the heap may grow between two collections, if GOGC does not
// say. A store makes much garbage and keeps little: with the usual 100 a heap of a
// few MB is collected a hundred times a second while it is busy.
const gcPercent = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
