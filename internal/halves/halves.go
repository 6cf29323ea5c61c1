// Package halves runs the tests of a package in two halves: one under the race detector,
// and one, which would take too long there, without it. make race runs the first, make
// unit the second, so every test runs once. One pattern separates them, skipped in one
// half and run in the other: no test can be in neither.
package halves

import (
	"flag"
	"fmt"
	"os"
)

// variable is set by make unit, because make race runs the other half.
const variable = "HANSARD_RACE_APART"

// Choose skips the half that runs elsewhere, unless the command line says what to run:
// under the race detector it skips the tests that match the pattern, without it the
// others, if make says that they run there. Without make, go test runs everything.
// TestMain calls it before the tests are run.
func Choose(unraced string) {
	flag.Parse()
	for _, name := range []string{"test.run", "test.skip", "test.bench", "test.fuzz", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return
		}
	}
	switch {
	case raced:
		set("test.skip", unraced, "left out under the race detector, unless -run asks for them")
	case os.Getenv(variable) != "":
		set("test.run", unraced, "the rest runs under the race detector")
	}
}

func set(name, pattern, why string) {
	fmt.Printf("-%s %s: %s\n", name, pattern, why)
	if err := flag.Set(name, pattern); err != nil {
		panic(err) // every test binary has this flag
	}
}
