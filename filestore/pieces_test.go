package filestore

import (
	"fmt"
	"strings"
	"testing"

	"hansard"
	"hansard/internal/vfs"
)

// TestPieces: an append that finds the ring full waits for the sync of a few logs, not of all
// that the ring names, even if the ring names each log only once.
func TestPieces(t *testing.T) {
	const logs = 5
	d := vfs.NewDisk(1)
	cfg := simConfig(1, 64<<10)
	cfg.pieceLogs = logs
	s, err := open(d.Process("a"), Options{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	synced, most := 0, 0
	d.OnOp(func(op vfs.Op) {
		if op.Kind == vfs.OpSync && strings.HasPrefix(op.Name, "sessions/") {
			synced++
		}
	})
	for i := range 300 {
		synced = 0
		if _, err := s.Append(t.Context(), hansard.SessionID(fmt.Sprint("s", i)), hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte(`1`)}}}); err != nil {
			t.Fatal(err)
		}
		most = max(most, synced)
	}
	if most == 0 || most > 2*logs {
		t.Errorf("one append waited for %d logs, want a few", most)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCutFor: a checkpoint ends where the ring begins to name more logs than asked for, unless
// that is at the start or most logs would have to be synced again.
func TestCutFor(t *testing.T) {
	once := map[string]dirtyLog{}
	often := map[string]dirtyLog{}
	for i := range uint64(10) {
		once[fmt.Sprint(i)] = dirtyLog{first: 100 + 10*i, end: 110 + 10*i}
		often[fmt.Sprint(i)] = dirtyLog{first: 100 + 10*i, end: 200 - i}
	}
	hot := map[string]dirtyLog{}
	for name, log := range once {
		log.first = 20 // before the start: left over from another piece
		hot[name] = log
	}
	for what, c := range map[string]struct {
		dirty map[string]dirtyLog
		logs  int
		cut   uint64
		piece bool
	}{
		"few logs":             {once, 10, 200, false},
		"each named once":      {once, 4, 140, true},
		"one":                  {once, 1, 110, true},
		"named to the end":     {often, 4, 200, false},
		"all before the start": {hot, 4, 200, false},
	} {
		if cut, piece := cutFor(c.dirty, 100, 200, c.logs); cut != c.cut || piece != c.piece {
			t.Errorf("%s: %d, %v, want %d, %v", what, cut, piece, c.cut, c.piece)
		}
	}
}
