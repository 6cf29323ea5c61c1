package filestore

import (
	"testing"

	"hansard"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestJoinBehindTheDead: a process may die at any operation, even in the middle of writing a log,
// without having published how far the journal is durable. The next process to join, beside
// others, can still write to the session.
func TestJoinBehindTheDead(t *testing.T) {
	behind := 0 // how often a log had more than was published
	for k := 1; ; k++ {
		d := vfs.NewDisk(uint64(k))
		c := openSim(t, d.Process("c"), 3) // a process stays, so nothing is recovered
		pa := d.Process("a")
		a := openSim(t, pa, 1)
		say(t, a, "s", nil, "one")
		// Another process is stopped while it holds sync.lock, so the progress of a sync is not
		// published.
		gate, err := d.Process("stopped").Open(peers.SyncLock, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := gate.Lock(vfs.LockExclusive); err != nil {
			t.Fatal(err)
		}
		before, _ := d.CacheBytes(sessionlog.Path("s"))
		d.KillAt(vfs.Match{Proc: "a", N: k}, -1)
		_, _ = a.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{text("two")}})
		if !pa.Dead() {
			break
		}
		if now, _ := d.CacheBytes(sessionlog.Path("s")); len(now) > len(before) {
			behind++
		}
		b := openSim(t, d.Process("b"), 2)
		for _, s := range []*Store{b, c, b} {
			say(t, s, "s", nil, "on")
		}
		if err := wantSound(b, "s"); err != nil {
			t.Errorf("killed at operation %d: %v", k, err)
		}
	}
	if behind < 2 {
		t.Errorf("only %d times a log had what nobody was told of", behind)
	}
}
