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
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
