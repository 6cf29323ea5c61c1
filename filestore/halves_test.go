package filestore_test

import (
	"flag"
	"fmt"
	"os"

	"hansard/filestore"
)

// make test runs each test of this package once, in one of two halves. Simulations run
// without the race detector: they let one goroutine run at a time, so that it has nothing
// to see, and it would take nine times as long. Everything else runs under it. The two
// are told apart by one pattern, run here and skipped there: no test can be in neither.
const simulations = "^" + filestore.Simulation

// onlySimulations is set by make unit, because make race runs the rest.
const onlySimulations = "HANSARD_ONLY_SIMULATIONS"

// chooseHalf leaves out what runs elsewhere, unless the command line says what to run.
func chooseHalf() error {
	flag.Parse()
	for _, name := range []string{"test.run", "test.skip", "test.bench", "test.fuzz", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return nil
		}
	}
	switch {
	case raced:
		fmt.Println("simulations run without the race detector; -run asks for one all the same")
		return flag.Set("test.skip", simulations)
	case os.Getenv(onlySimulations) != "":
		fmt.Println("simulations only: the rest runs under the race detector")
		return flag.Set("test.run", simulations)
	}
	return nil
}
