//go:build linux

package search_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"hansard"
	"hansard/memstore"
	"hansard/search"
)

// TestGrowth: a process that indexes a hundred thousand events, which are 70 MB of text, needs
// memory for SQLite's page cache of 32 MiB, for what a transaction gathers and what is read
// meanwhile, and for itself.
func TestGrowth(t *testing.T) {
	if testing.Short() {
		t.Skip("a hundred thousand events")
	}
	const events = 100_000
	dir := t.TempDir()
	s := store(t, dir, nil)
	rng := rand.New(rand.NewPCG(7, 8))
	for n := 0; n < events; {
		var texts []string
		for range 500 {
			var text strings.Builder
			for range 100 {
				fmt.Fprintf(&text, "w%d ", int(200_000*rng.Float64()*rng.Float64()))
			}
			texts = append(texts, text.String())
			n++
		}
		say(t, s, hansard.SessionID(fmt.Sprint("s", n/5000)), texts...)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), workerVariable+"=index:"+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	if t.Logf("%d MiB", peak>>10); peak > 200<<10 {
		t.Errorf("%d MiB of memory", peak>>10)
	}
}

// TestReadOnce: what is indexed is read once, and one event more of a session that was there
// before, whatever its length.
func TestReadOnce(t *testing.T) {
	index, s := search.New(t.TempDir(), nil), &countingReads{Store: memstore.New()}
	defer index.Close()
	for i := range 10 {
		say(t, s, hansard.SessionID(fmt.Sprint("s", i)), strings.Fields(strings.Repeat("words ", 1000))...)
	}
	find(t, over{index, s}, "nothing")
	if s.events != 10_000 {
		t.Errorf("%d events are read to index 10000", s.events)
	}
	s.events = 0
	say(t, s, "s3", "one", "more")
	find(t, over{index, s}, "nothing")
	if s.events != 3 {
		t.Errorf("%d events are read to index 2", s.events)
	}
}
