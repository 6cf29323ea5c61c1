// Package storetest is the contract of [hansard.Store] as code: an engine is a
// Store when it passes [Run]. Every case carries the promise it defends.
//
// It is an ordinary package, for engines inside and outside this module. Wiring up an
// engine:
//
//	func TestMain(m *testing.M) {
//		storetest.Main(func(dir string) (hansard.Store, error) { return mystore.Open(dir) })
//		os.Exit(m.Run())
//	}
//
//	func engine() storetest.Engine {
//		dirs := storetest.NewAddresses()
//		open := func(t testing.TB, dir string) hansard.Store {
//			s, err := mystore.Open(dir)
//			if err != nil {
//				t.Fatal(err)
//			}
//			return dirs.Keep(s, dir)
//		}
//		return storetest.Engine{
//			Name:    "mystore",
//			Open:    func(t testing.TB) hansard.Store { return open(t, t.TempDir()) },
//			Another: func(t testing.TB, s hansard.Store) hansard.Store { return open(t, dirs.Of(s)) },
//			Reopen:  func(t testing.TB, s hansard.Store) hansard.Store { s.Close(); return open(t, dirs.Of(s)) },
//			Address: dirs.Of,
//		}
//	}
//
//	func TestStore(t *testing.T)       { storetest.Run(t, engine()) }
//	func BenchmarkStore(b *testing.B)  { storetest.Bench(b, engine()) }
//
// No case sleeps to let something happen. Every wait has its own deadline
// ([Engine].Patience), so that a lost wake-up fails instead of hanging. Random choices
// come from a seed that a failure prints; STORETEST_SEED replays it.
//
// Helpers that the suite shares with crash tests and tests over the wire are exported:
// [Marked] makes events that know their batch, [CheckWhole] and [CheckLog] check what
// was read against what was acknowledged.
package storetest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hansard"
)

// Engine tells the suite how to use an engine. Only Open is required; cases that need
// a function that is nil are skipped, and the skip says so.
type Engine struct {
	Name string

	// Open returns a fresh, empty store. The suite closes it.
	Open func(t testing.TB) hansard.Store

	// Reopen closes a store and opens the same data again. Nil: the engine
	// keeps nothing.
	Reopen func(t testing.TB, s hansard.Store) hansard.Store

	// Another opens a second, independent handle on the data of a store, to
	// be used at the same time. The suite closes it. Nil: there is only one.
	Another func(t testing.TB, s hansard.Store) hansard.Store

	// Address is what the function given to [Main] needs to open the data of
	// a store in another process. Nil: one process only.
	Address func(s hansard.Store) string

	// By is the name under which a server knows the suite, if the store is on
	// one: that is the By of everything the suite writes, whatever By it sets, and
	// refusals do not reveal grants. Empty: the By that the suite sets is stored.
	By string

	// Patience is the deadline for things that must happen; 0 means 30 s.
	Patience time.Duration
}

// Case is one promise and the code that tries to break it.
type Case struct {
	Name string
	// Defends is the promise, in a sentence.
	Defends string
	// Answers names the failures of docs/failures.md that this case would
	// notice: "F1" to "F5" for the founding reports, else their numbers.
	Answers string

	needs needs
	run   func(x *env)
}

// needs is what a case requires of an engine.
type needs uint8

const (
	needsReopen needs = 1 << iota
	needsAnother
	needsProcesses
)

// Cases lists the suite.
func Cases() []Case {
	return slices.Concat(createCases, reuseCases, appendCases, fieldCases, byCases, identityCases, bytesCases, expectCases, keyCases, idCases, attachmentCases, redactCases, patchCases, stateOpsCases, readCases,
		waitCases, listCases, forkCases, searchCases, contextCases, deleteCases, pruneCases, closeCases, concurrentCases, turnCases, turnFenceCases, turnTimeCases, turnWaitCases, inboxCases, leaseCases, turnCrowdCases, historyCases, modelCases, processCases)
}

// Run runs the whole suite on an engine, one subtest per case.
func Run(t *testing.T, e Engine) { RunSome(t, e, "") }

// RunSome runs the cases whose names begin with one of these: for wrappers around an
// engine that passes Run.
func RunSome(t *testing.T, e Engine, names ...string) {
	if os.Getenv(orderVariable) != "" {
		// Without this a forgotten Main would start the suite again in every
		// process that the suite starts.
		t.Fatal("this process was started by the suite: call storetest.Main first in TestMain")
	}
	for _, c := range Cases() {
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(c.Name, name) }) {
			t.Run(c.Name, func(t *testing.T) { c.check(t, e) })
		}
	}
}

// bulk are the cases in which one caller writes and reads much data. Those named without a
// slash stand for all cases of their kind.
var bulk = []string{"data", "create/invalid meta", "patch/over a limit", "state ops/limits"}

// Bulk is a pattern, for go test -run and -skip, of those cases of a test that calls Run in
// which one caller writes and reads much data. They take ten times as long under the race
// detector, and have nothing for it to find: goroutines share memory in the other cases.
func Bulk(test string) string {
	patterns := make([]string, len(bulk))
	for i, name := range bulk {
		patterns[i] = "^" + test + "$/^" + strings.ReplaceAll(strings.ReplaceAll(name, " ", "_"), "/", "$/^") + "$"
	}
	return strings.Join(patterns, "|")
}

// check runs one case and then audits everything the case left behind.
func (c Case) check(t testing.TB, e Engine) {
	if missing := c.needs.missing(e); missing != "" {
		t.Skip("engine " + e.Name + " has no " + missing)
	}
	x := newEnv(t, e, c)
	c.run(x)
	if !t.Failed() {
		x.audit()
	}
}

func (n needs) missing(e Engine) string {
	var out []string
	if n&needsReopen != 0 && e.Reopen == nil {
		out = append(out, "Reopen")
	}
	if n&needsAnother != 0 && e.Another == nil {
		out = append(out, "Another")
	}
	if n&needsProcesses != 0 && e.Address == nil {
		out = append(out, "Address")
	}
	return strings.Join(out, " and ")
}

// Addresses remembers the address of each open store, for engines whose Store does not
// know it. It is a convenience for wiring an [Engine].
type Addresses struct {
	mu sync.Mutex
	of map[hansard.Store]string
}

// NewAddresses makes an empty Addresses.
func NewAddresses() *Addresses { return &Addresses{of: make(map[hansard.Store]string)} }

// Keep records the address of a store and returns the store.
func (a *Addresses) Keep(s hansard.Store, address string) hansard.Store {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[s] = address
	return s
}

// Of returns the address that was recorded.
func (a *Addresses) Of(s hansard.Store) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	address, ok := a.of[s]
	if !ok {
		panic(fmt.Sprintf("storetest: no address was recorded for this %T", s))
	}
	return address
}
