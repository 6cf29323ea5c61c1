package filestore

import (
	"maps"
	"testing"

	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestLoneAppendWrites: what an append of a process that writes alone writes, syncs and locks,
// and nothing more. It publishes what it wrote, what it synced and what it applied.
func TestLoneAppendWrites(t *testing.T) {
	d := vfs.NewDisk(1)
	s := openSim(t, d.Process("a"), 1)
	say(t, s, "s", nil, "one")
	say(t, s, "s", nil, "two")
	got := map[string]int{}
	d.OnOp(func(o vfs.Op) {
		if o.Kind&(vfs.OpWrite|vfs.OpSync|vfs.OpLock|vfs.OpTryLock|vfs.OpUnlock) != 0 {
			got[o.Kind.String()+" "+o.Name]++
		}
	})
	say(t, s, "s", nil, "three")
	expected := map[string]int{"lock write.lock": 2, "unlock write.lock": 2, "write journal": 1, "sync journal": 1,
		"write control": 3, "write " + sessionlog.Path("s"): 1}
	if !maps.Equal(got, expected) {
		t.Errorf("an append does %v, want %v", got, expected)
	}
}
