package test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// outlet is the power supply of the writers: it records their answers until it is pulled.
type outlet struct {
	l      *ledger
	mu     sync.Mutex
	pulled bool
	before int // answers that came before
	late   int // acknowledgements that came after: true or not, nobody saw them in time
}

// answer records an answer. Only acknowledgements read before the cut are promises; a refusal
// that came after it still counts.
func (o *outlet) answer(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pulled && strings.HasPrefix(line, "ack ") {
		o.late++
		return
	}
	o.l.answer(line)
	if !o.pulled {
		o.before++
	}
}

func (o *outlet) pull() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pulled = true
}

func (o *outlet) answers() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.before
}

// cutOnce lets a few processes write, cuts the power at a random moment, and brings the disk
// back. It returns how many acknowledgements came too late.
func cutOnce(t *testing.T, d *disk, l *ledger, rng *rand.Rand, store string, round int) (late int) {
	t.Helper()
	o := &outlet{l: l}
	var writers []*process
	for w := range 1 + rng.IntN(3) {
		name := fmt.Sprintf("r%d-w%d", round, w)
		writers = append(writers, start(t, worker(t, "load", store, rng.Uint64(), name, 0, 40_000, "a,b,c,d"), o.answer))
	}
	if rng.IntN(5) > 0 { // else it is cut while they open the store
		want := 1 + rng.IntN(40)
		eventually(t, "the writers are acknowledged", func() bool { return o.answers() >= want })
	}
	time.Sleep(time.Duration(rng.IntN(15_000)) * time.Microsecond) // the random moment
	o.pull()
	d.cut()
	for _, p := range writers {
		p.kill()
		if strings.Contains(p.stderr.String(), "goroutine ") {
			t.Errorf("a writer fell over the cut: %s", p.stderr)
		}
	}
	d.unmount()
	d.mount()
	return o.late
}

// TestPowerCut: the disk of a store under load is cut off at random moments, also while the store
// is opened and recovers from the last cut. Everything acknowledged before the cut is there.
// (Failure 23.)
func TestPowerCut(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			needs(t, "xfs_io")
			rng, d, l := seeded(t), newDisk(t, kind, 400), newLedger()
			naiveLoses(t, d)
			store := filepath.Join(d.dir, "store")
			cuts, late := scale(52), 0
			for round := range cuts {
				late += cutOnce(t, d, l, rng, store, round)
				// Not always: the next writers must find what a cut left, too.
				if l.acks() > 0 && rng.IntN(3) == 0 {
					l.look(t, store)
				}
				if t.Failed() {
					t.Fatalf("after cut %d", round)
				}
			}
			events := l.check(t, store)
			if l.acks() < 5*cuts {
				t.Errorf("only %d appends were acknowledged: too little to lose", l.acks())
			}
			t.Logf("%d cuts; %d batches acknowledged before a cut, %d too late to count; %d events; %d outcomes unknown, %d refused",
				cuts, l.acks(), late, events, l.open, len(l.refused))
		})
	}
}

// naiveLoses makes sure that the method works: a writer that does not sync loses acknowledged
// data in every cut.
func naiveLoses(t *testing.T, d *disk) {
	t.Helper()
	path := filepath.Join(d.dir, "naive")
	for range 3 {
		var mu sync.Mutex
		acked := 0
		w := start(t, worker(t, "naive", path), func(string) {
			mu.Lock()
			defer mu.Unlock()
			acked++
		})
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return acked
		}
		eventually(t, "the naive writer is at work", func() bool { return count() > 100 })
		promised := count()
		d.cut()
		w.kill()
		d.unmount()
		d.mount()
		b, _ := os.ReadFile(path) // it may not even exist
		if kept := strings.Count(string(b), "line "); kept >= promised {
			t.Fatalf("a writer that does not sync lost nothing: %d of %d", kept, promised)
		}
		_ = os.Remove(path) // if it exists
	}
}
