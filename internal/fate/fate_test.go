package fate

import (
	"sync"
	"testing"
)

// TestOneOfThem: of a caller that gives up and a commit, exactly one gets the request.
func TestOneOfThem(t *testing.T) {
	for range 10_000 {
		var f Fate
		var took, withdrew bool
		var both sync.WaitGroup
		both.Go(func() { took = f.Take() })
		both.Go(func() { withdrew = f.Withdraw() })
		both.Wait()
		if took == withdrew {
			t.Fatalf("taken: %v, withdrawn: %v", took, withdrew)
		}
		if f.Taken() != took {
			t.Fatalf("taken: %v, and it says %v", took, f.Taken())
		}
		if f.Take() || f.Withdraw() {
			t.Fatal("a second one got it")
		}
		if f.Requeue(); !f.Take() {
			t.Fatal("queued again, it can't be taken")
		}
	}
}
