package storetest

import (
	"slices"
	"strings"
	"testing"
)

// A suite that can't fail proves nothing. Each mutant breaks one promise, and
// every case it names must notice.
func TestMutants(t *testing.T) {
	cases := make(map[string]Case)
	for _, c := range Cases() {
		cases[c.Name] = c
	}
	for _, m := range allMutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range m.caught {
				c, ok := cases[name]
				if !ok {
					t.Fatalf("there is no case %q", name)
				}
				if testing.Short() && c.needs&needsProcesses != 0 {
					continue
				}
				e := sharedEngine(m.plant)
				e.Patience = m.patience
				r := record(t, func(t testing.TB) { c.check(t, e) })
				for again := 0; !r.Failed() && again < 30; again++ {
					// A bug that shows in one order of goroutines, or in few of the
					// sequences that a case draws at random, may take many tries.
					r = record(t, func(t testing.TB) { c.check(t, e) })
				}
				if r.Skipped() || !r.Failed() {
					t.Errorf("survives %q, which defends: %s", name, c.Defends)
				} else {
					t.Logf("%s: %.200s", name, strings.Join(r.said, "\n"))
				}
			}
		})
	}
}

// Every case must be able to fail: it has a mutant.
func TestEveryCaseHasMutant(t *testing.T) {
	var caught []string
	for _, m := range allMutants() {
		caught = append(caught, m.caught...)
	}
	for _, c := range Cases() {
		if !slices.Contains(caught, c.Name) {
			t.Errorf("no mutant is caught by %q", c.Name)
		}
	}
}

// Every case says what it defends, and names are not used twice.
func TestCasesAreDescribed(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range Cases() {
		if c.Name == "" || c.Defends == "" || c.run == nil {
			t.Errorf("case %+v is not described", c)
		}
		if seen[c.Name] {
			t.Errorf("there are two cases %q", c.Name)
		}
		seen[c.Name] = true
	}
}

func allMutants() []mutant {
	return slices.Concat(writeMutants(), keyMutants(), idMutants(), attachmentMutants(), forkMutants(), lineageMutants(), redactMutants(), reuseMutants(), metaMutants(), stateOpsMutants(), readMutants(), waitMutants(), listMutants(), searchMutants(), contextMutants(), deleteMutants(), pruneMutants(), handleMutants(),
		turnMutants(), fenceMutants(), turnWaitMutants(), exclusiveMutants(), leaseMutants())
}
