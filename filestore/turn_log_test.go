package filestore

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// TestTurnVerify: a write under a grant that was over, and one past an exclusive
// turn, are found in the log by who was not there.
func TestTurnVerify(t *testing.T) {
	ctx := context.Background()
	for _, exclusive := range []bool{false, true} {
		d := vfs.NewDisk(1)
		cfg := simConfig(1, simRing)
		cfg.plant = plantNoFence
		a, err := open(d.Process("a"), Options{LockWait: time.Hour}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		say(t, a, "s", nil, "hello")
		one := take(t, a, "s", hansard.Claim{Exclusive: exclusive})
		sayUnder(t, a, "s", one.Grant, nil, "mine")
		if exclusive {
			say(t, a, "s", nil, "past it")
		} else {
			want(t, "release", a.Release(ctx, "s", one.Grant), nil)
			sayUnder(t, a, "s", one.Grant, nil, "stale")
		}
		b := openSim(t, d.Process("b"), 2)
		found := ""
		for f, err := range b.Verify(ctx, "s") {
			if err != nil {
				t.Fatal(err)
			}
			if f.Level == hansard.LevelDamage {
				found = fmt.Sprintf("line %d: %s", f.Line, f.Message)
			}
		}
		if !strings.Contains(found, "line 5: seq 4") && !strings.Contains(found, "line 6: seq 5") {
			t.Errorf("exclusive %v: verify found %q", exclusive, found)
		}
		if !exclusive {
			say(t, b, "s", nil, "the session goes on")
		}
	}
}

// TestTurnRepair: a repair that lost lines ends the turn, whose holder may have
// lost it in them; the next grant is another one.
func TestTurnRepair(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	say(t, a, "s", nil, "hello")
	one := take(t, a, "s", hansard.Claim{})
	sayUnder(t, a, "s", one.Grant, nil, "mine")
	two := take(t, a, "s", hansard.Claim{Steal: "now"})
	sayUnder(t, a, "s", two.Grant, nil, "mine too")
	want(t, "checkpoint", a.checkpoint(true), nil)
	log, _ := d.CacheBytes(logPath("s"))
	lines := bytes.SplitAfter(log, []byte("\n"))
	broken := slices.Concat(lines[:4]...)
	broken = append(broken, changed(lines[4], 30, 'X')...)
	if err := putLog(d, "s", append(broken, lines[5]...)); err != nil {
		t.Fatal(err)
	}
	b := openSim(t, d.Process("b"), 2)
	r, err := b.Repair(ctx, "s")
	if err != nil || !r.Changed || r.Events != 4 {
		t.Fatalf("repair: %+v, %v", r, err)
	}
	wantChanges(t, b, "s", "1 granted", "1 ended repaired")
	for _, g := range []hansard.Grant{one.Grant, two.Grant} {
		sayUnder(t, b, "s", g, hansard.ErrFenced, "of a time that is lost")
	}
	three := take(t, b, "s", hansard.Claim{})
	if three.Grant == two.Grant {
		t.Errorf("grant %s was given twice", two.Grant)
	}
	sayUnder(t, b, "s", three.Grant, nil, "on")
	wantChanges(t, b, "s", "1 granted", "1 ended repaired", "2 granted")
}

// TestTurnClonedStore: a store that was copied while a turn was held, and a machine
// that was restarted, give grants that were never given before.
func TestTurnClonedStore(t *testing.T) {
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	say(t, a, "s", nil, "hello")
	one := take(t, a, "s", hansard.Claim{Exclusive: true})
	clone, restarted := d.Clone(), d.Clone()
	restarted.PowerCut(vfs.Cut{})
	next := hansard.Claim{Steal: "to have a second one here, too"}
	grants := []hansard.Grant{one.Grant, take(t, a, "s", next).Grant}
	for i, other := range []*vfs.Disk{clone, restarted} {
		if i == 0 { // where its holder has never been
			other.PowerCut(vfs.Cut{Keep: 100})
		}
		s := openSim(t, other.Process("b"), uint64(10+i))
		turn := take(t, s, "s", hansard.Claim{})
		if turn.Grant.Number() != 2 || slices.Contains(grants, turn.Grant) {
			t.Errorf("grant %s, after %v elsewhere", turn.Grant, grants)
		}
		for _, g := range grants {
			sayUnder(t, s, "s", g, hansard.ErrFenced, "of the other store")
		}
		grants = append(grants, turn.Grant)
		wantChanges(t, s, "s", "1 granted", "2 taken dead")
	}
	for _, g := range grants[2:] {
		sayUnder(t, a, "s", g, hansard.ErrFenced, "of a clone")
	}
	sayUnder(t, a, "s", grants[1], nil, "mine")
}
