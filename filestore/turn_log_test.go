package filestore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestTurnVerify: a process that was not there finds in the log a write under a grant that was
// over, and a write past an exclusive turn.
func TestTurnVerify(t *testing.T) {
	ctx := context.Background()
	for _, exclusive := range []bool{false, true} {
		d := vfs.NewDisk(1)
		a := openSim(t, d.Process("a"), 1)
		say(t, a, "s", nil, "hello")
		one := take(t, a, "s", hansard.Claim{Exclusive: exclusive})
		sayUnder(t, a, "s", one.Grant, nil, "mine")
		if exclusive {
			a.release() // without giving the turn back
			writePastTurn(t, d, "s", "")
		} else {
			want(t, "release", a.Release(ctx, "s", one.Grant), nil)
			want(t, "close", a.Close(), nil)
			writePastTurn(t, d, "s", one.Grant)
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

// writePastTurn appends an event that is valid in every way except that it ignores the turn.
func writePastTurn(t *testing.T, d *vfs.Disk, id hansard.SessionID, g hansard.Grant) {
	t.Helper()
	f, err := d.Process("past").Open(sessionlog.Path(sessionlog.EncodeName(id)), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	tail, err := sessionlog.ReadTail(f, size)
	if err != nil {
		t.Fatal(err)
	}
	last := tail.Last
	e := text("past it")
	e.Kind = hansard.KindMessage
	b := sessionlog.AppendEvent(nil, &sessionlog.Stamp{Seq: last.Seq + 1, Time: last.Time.Format(sessionlog.TimeLayout), Turn: g,
		MetaAt: last.NewestMeta(tail.LastAt), TurnAt: last.NewestTurn(tail.LastAt), Prev: last.CRC}, sessionlog.EncodeBody(nil, &e, "", ""))
	if _, err := f.WriteAt(b, size); err != nil {
		t.Fatal(err)
	}
}

// TestTurnRepair: a repair that lost lines ends the turn, because its holder may have lost the
// turn in them, and the next grant is a new one. An event keeps its grant even if the record of
// that grant is lost.
func TestTurnRepair(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		what    string
		broken  []int // lines; the rest is there
		events  hansard.Seq
		lost    hansard.Seq
		changes []string
	}{
		{"a grant and what was written under it", []int{4, 5}, 4, 0, []string{"1 granted", "1 ended repaired"}},
		{"a grant", []int{4}, 6, 1, []string{"1 granted", "2 ended repaired"}},
		{"the first grant", []int{2}, 6, 1, []string{"2 stolen stolen", "2 ended repaired"}},
		{"what was written under the first", []int{3}, 6, 1, []string{"1 granted", "2 stolen stolen", "2 ended repaired"}},
		{"all but the last", []int{1, 2, 3, 4}, 6, 4, []string{"2 ended repaired"}},
		{"the header, too", []int{0, 1, 2, 3}, 6, 3, []string{"2 stolen stolen", "2 ended repaired"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			say(t, a, "s", nil, "hello")
			one := take(t, a, "s", hansard.Claim{Exclusive: true})
			sayUnder(t, a, "s", one.Grant, nil, "mine")
			two := take(t, a, "s", hansard.Claim{Steal: "now"})
			sayUnder(t, a, "s", two.Grant, nil, "mine too")
			want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
			log, _ := d.CacheBytes(sessionlog.Path("s"))
			lines := linesOf(log)
			for _, i := range c.broken {
				lines[i] = changed(lines[i], 30, 'X')
				lines[i] = changed(lines[i], 60, 'X')
			}
			if err := putLog(d, "s", slices.Concat(lines...)); err != nil {
				t.Fatal(err)
			}
			b := openSim(t, d.Process("b"), 2)
			r, err := b.Repair(ctx, "s")
			if err != nil || !r.Changed || r.Events != c.events || r.Lost != c.lost {
				t.Fatalf("repair: %+v, %v", r, err)
			}
			wantChanges(t, b, "s", c.changes...)
			if err := wantSound(b, "s"); err != nil {
				t.Error(err)
			}
			if c.lost > 0 {
				for e, err := range b.Read(ctx, "s", hansard.Range{After: 4, Limit: 1}) {
					if err != nil || e.Turn != two.Grant || string(e.Data) != `"mine too"` {
						t.Errorf("seq 5 is %+v, %v", e, err)
					}
				}
			}
			for _, g := range []hansard.Grant{one.Grant, two.Grant} {
				sayUnder(t, b, "s", g, hansard.ErrFenced, "of a time that is lost")
			}
			three := take(t, b, "s", hansard.Claim{})
			if c.lost > 0 && three.Grant.Number() != 3 || three.Grant == two.Grant {
				t.Errorf("grant %s behind %s", three.Grant, two.Grant)
			}
			sayUnder(t, b, "s", three.Grant, nil, "on")
			if err := wantSound(b, "s"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTurnClonedStore: a store that was copied while a turn was held, and one on a restarted
// machine, issue grants that were never issued before.
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
