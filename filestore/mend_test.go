package filestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestFailure58_IllDisk: a disk that refuses writes to the logs for a while leaves no session
// damaged. Once it works again, lines that were set aside are put in place by the next write to
// the session, the next process or the next checkpoint. Until then the reason that is reported is
// the true one.
func TestFailure58_IllDisk(t *testing.T) {
	ctx := context.Background()
	ill := map[string]vfs.Fault{
		"nothing is written": {Err: syscall.EIO, Always: true},
		"a part is written":  {Err: syscall.EIO, Always: true, Part: 30},
		"it is written":      {Err: syscall.EIO, Always: true, Done: true},
	}
	well := map[string]func(t *testing.T, d *vfs.Disk, a *Store) *Store{
		"the next append": func(t *testing.T, _ *vfs.Disk, a *Store) *Store { return a },
		"another process": func(t *testing.T, d *vfs.Disk, _ *Store) *Store { return openSim(t, d.Process("b"), 2) },
		"after a close": func(t *testing.T, d *vfs.Disk, a *Store) *Store {
			want(t, "close", a.Close(), nil)
			reader, err := open(d.Process("reader"), Options{ReadOnly: true}, simConfig(2, simRing))
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []hansard.SessionID{"old", "new"} {
				if err := wantSound(reader, id); err != nil {
					t.Error(err)
				}
			}
			return openSim(t, d.Process("b"), 3)
		},
		"after a power cut": func(t *testing.T, d *vfs.Disk, _ *Store) *Store {
			d.PowerCut(vfs.Cut{})
			return openSim(t, d.Process("b"), 2)
		},
		"after a kill": func(t *testing.T, d *vfs.Disk, _ *Store) *Store {
			d.PowerCut(vfs.Cut{Keep: 100})
			return openSim(t, d.Process("b"), 2)
		},
	}
	for how, fault := range ill {
		for when, next := range well {
			t.Run(how+"/"+when, func(t *testing.T) {
				d := vfs.NewDisk(1)
				a := openSim(t, d.Process("a"), 1)
				say(t, a, "old", nil, "one")
				d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: "sessions/*"}, fault)
				key := func(id hansard.SessionID, n int) hansard.Batch {
					return hansard.Batch{Create: true, Key: fmt.Sprint("key", n), Events: []hansard.Event{text("%d", n)}}
				}
				for i := range 8 {
					for _, id := range []hansard.SessionID{"old", "new"} {
						if _, err := a.Append(ctx, id, key(id, i)); err == nil {
							t.Errorf("append %d to %s was stored", i, id)
						}
					}
				}
				for _, id := range []hansard.SessionID{"old", "new"} {
					if !fault.Done { // else only the results were wrong
						wantTrueReason(t, a, id)
					}
				}
				d.ClearRules()
				s := next(t, d, a)
				for i := range 8 { // whatever became of them
					for _, id := range []hansard.SessionID{"old", "new"} {
						if _, err := s.Append(ctx, id, key(id, i)); err != nil {
							t.Fatalf("append %d to %s: %v", i, id, err)
						}
					}
				}
				wantOnce(t, s, "old", "one", "0", "1", "2", "3", "4", "5", "6", "7")
				wantOnce(t, s, "new", "0", "1", "2", "3", "4", "5", "6", "7")
				for _, id := range []hansard.SessionID{"old", "new"} {
					if err := wantSound(s, id); err != nil {
						t.Error(err)
					}
					if left := setAsideOf(s, sessionlog.EncodeName(id)); len(left) > 0 {
						t.Errorf("aside are still %q", left)
					}
				}
				d.PowerCut(vfs.Cut{})
				last := openSim(t, d.Process("last"), 9)
				wantOnce(t, last, "old", "one", "0", "1", "2", "3", "4", "5", "6", "7")
				wantOnce(t, last, "new", "0", "1", "2", "3", "4", "5", "6", "7")
			})
		}
	}
}

// wantOnce expects exactly these events, in any order.
func wantOnce(t testing.TB, s *Store, id hansard.SessionID, want ...string) {
	t.Helper()
	var got []string
	for e, err := range s.Read(context.Background(), id, hansard.Range{}) {
		if err != nil {
			t.Fatalf("read %s: %v", id, err)
		}
		got = append(got, strings.Trim(string(e.Data), `"`))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("session %s has %q, want %q", id, got, want)
	}
}

// wantTrueReason: no error claims that the log was modified from outside.
func wantTrueReason(t testing.TB, s *Store, id hansard.SessionID) {
	t.Helper()
	ctx := context.Background()
	info, err := s.Stat(ctx, id)
	all, verr := findings(s, id)
	never := hansard.Seq(1000)
	_, aerr := s.Append(ctx, id, hansard.Batch{Expect: &never, Events: []hansard.Event{text("again")}})
	if verr != nil || err != nil || info.Damage == nil || len(all) == 0 || aerr == nil {
		t.Fatalf("stat: %+v, %v; verify: %+v, %v; append: %v", info, err, all, verr, aerr)
	}
	for _, told := range []string{info.Damage.Reason, all[0].Message, aerr.Error()} {
		if !strings.Contains(told, syscall.EIO.Error()) || strings.Contains(told, "somebody") || strings.Contains(told, "empty") {
			t.Errorf("session %s is said to be damaged for %q", id, told)
		}
	}
}

// TestMendOnlyWhatFits: lines that were set aside stay there if the log is not the one they were
// written for.
func TestMendOnlyWhatFits(t *testing.T) {
	ctx := context.Background()
	for what, harm := range map[string]func(t *testing.T, d *vfs.Disk, log []byte){
		"edited": func(t *testing.T, d *vfs.Disk, log []byte) {
			putFile(t, d, sessionlog.Path("s"), changed(log, len(log)-5, 'f'))
		},
		"a line": func(t *testing.T, d *vfs.Disk, log []byte) {
			putFile(t, d, sessionlog.Path("s"), append(log, "more\n"...))
		},
		"shorter": func(t *testing.T, d *vfs.Disk, log []byte) { cutLog(t, d, int64(len(linesOf(log)[0]))) },
		"another's": func(t *testing.T, d *vfs.Disk, log []byte) {
			putFile(t, d, sessionlog.Path("s"), buildLog("s", 77, 2, func(i int) (hansard.Event, string) { return text("%d", i), "" }))
		},
		"removed": func(t *testing.T, d *vfs.Disk, log []byte) { putFile(t, d, sessionlog.Path("s"), nil) },
	} {
		t.Run(what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			say(t, a, "s", nil, "one")
			say(t, a, "s", nil, "two")
			log, _ := d.CacheBytes(sessionlog.Path("s"))
			d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: "sessions/*"}, vfs.Fault{Err: syscall.EIO, Always: true})
			say(t, a, "s", hansard.ErrUnknown, "three")
			for range 3 {
				say(t, a, "other", errAny, "one")
			}
			if len(setAsideOf(a, "s")) == 0 {
				t.Fatal("nothing was set aside")
			}
			d.ClearRules()
			harm(t, d, log)
			before, _ := d.CacheBytes(sessionlog.Path("s"))
			say(t, a, "s", hansard.ErrDamaged, "four")
			want(t, "close", a.Close(), nil)
			b := openSim(t, d.Process("b"), 2)
			say(t, b, "s", hansard.ErrDamaged, "four")
			if now, _ := d.CacheBytes(sessionlog.Path("s")); string(now) != string(before) {
				t.Error("the log was changed")
			}
			if _, err := b.Repair(ctx, "s"); err != nil {
				t.Fatal(err)
			}
			say(t, b, "s", nil, "four")
			if !anywhere(d, "three") {
				t.Error("what was set aside is gone")
			}
		})
	}
}

// TestMendWhenPutBack: a log that was moved away and put back with everything that was written to
// it is sound again without a repair.
func TestMendWhenPutBack(t *testing.T) {
	var log []byte
	d, a, _ := harmed(t, func(t testing.TB, d *vfs.Disk, all []byte, _ int) {
		log = all
		putFile(t, d, sessionlog.Path("s"), nil)
	})
	say(t, a, "s", hansard.ErrDamaged, "six")
	if len(setAsideOf(a, "s")) == 0 {
		t.Fatal("nothing was set aside")
	}
	putFile(t, d, sessionlog.Path("s"), log)
	say(t, a, "s", nil, "six")
	hears(t, a, "s", "one", "two", "three", "four", "five", "six")
}

// illWorld plays a world in which writes to the logs, or other operations on them, fail for a
// while. Then they work again, and everything must be as if nothing had happened. It returns how
// often something was set aside.
func illWorld(seed uint64, fault vfs.Fault, kinds vfs.Kind, from, length int) (asides int, err error) {
	w := newWorld(seed)
	seen := 0
	w.disk.OnOp(func(op vfs.Op) {
		if op.Kind == vfs.OpRename && strings.HasPrefix(op.To, asideDir) {
			asides++
		}
		switch seen++; seen {
		case from:
			w.ill, w.wasIll = true, true
			w.disk.Inject(vfs.Match{Kind: kinds, Name: "sessions/*"}, fault)
		case from + length:
			w.ill = false
			w.disk.ClearRules()
		}
	})
	if err := w.strike(2, 14, func(*vfs.Disk) {}); err != nil {
		return asides, fmt.Errorf("%+v of %v from operation %d on for %d: %w", fault, kinds, from, length, err)
	}
	return asides, nil
}

// huntIll tries some kinds of disk faults.
func huntIll(seed uint64, each func(asides int)) error {
	faults := []vfs.Fault{
		{Err: syscall.EIO, Always: true}, {Err: syscall.EIO, Always: true, Part: -1},
		{Err: syscall.EIO, Always: true, Done: true}, {Err: syscall.ENOSPC, Always: true, Part: -1},
	}
	kinds := []vfs.Kind{vfs.OpWrite, vfs.OpWrite | vfs.OpRead, vfs.OpWrite | vfs.OpOpen, vfs.OpWrite | vfs.OpSync, vfs.OpSync}
	n := 0
	for from := 20; from < 900; from += 37 + int(seed%20) {
		for _, length := range []int{10, 60, 300} {
			asides, err := illWorld(seed, faults[(int(seed)+n)%len(faults)], kinds[n%len(kinds)], from, length)
			if err != nil {
				return err
			}
			n++
			each(asides)
		}
	}
	return nil
}

// TestSimIllDisk defends: logs that can't be written, read or opened for a while are whole once
// that is over, with everything acknowledged, without a repair or a restart; the first write
// after it succeeds. (P7, invariant 18)
func TestSimIllDisk(t *testing.T) {
	var aside atomic.Int64
	inWorlds(t, 24, 1_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		err := huntIll(7000+seed, func(asides int) {
			states.Add(1)
			if asides > 0 {
				aside.Add(1)
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
	t.Logf("in %d of them something was set aside", aside.Load())
	if aside.Load() < 200 && !t.Failed() {
		t.Error("too few")
	}
}

// TestSimMendInterrupted: if putting back lines that were set aside is interrupted by a kill or a
// power cut, at any operation, the next attempt completes it.
func TestSimMendInterrupted(t *testing.T) {
	made := func(t testing.TB) *vfs.Disk {
		d := vfs.NewDisk(1)
		a := openSim(t, d.Process("a"), 1)
		say(t, a, "s", nil, "one")
		d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: "sessions/*"}, vfs.Fault{Err: syscall.EIO, Always: true, Part: 20})
		say(t, a, "s", hansard.ErrUnknown, "two")
		say(t, a, "n", errAny, "one")
		for range 3 {
			say(t, a, "n", errAny, "two")
		}
		d.ClearRules()
		return d // "a" stays alive and does nothing
	}
	interrupted(t, made, func(s *Store) error {
		_, err := s.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{text("three")}})
		return err
	}, func(d *vfs.Disk) error {
		s, err := openOn(d.Process("c"), 3, simRing)
		if err != nil {
			return err
		}
		if _, err := s.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{text("four")}}); err != nil {
			return err
		}
		var got []string
		for e, err := range s.Read(context.Background(), "s", hansard.Range{}) {
			if err != nil {
				return err
			}
			got = append(got, strings.Trim(string(e.Data), `"`))
		}
		if all := strings.Join(got, " "); all != "one two three four" && all != "one two four" {
			return fmt.Errorf("there is %q", all)
		}
		return errors.Join(wantSound(s, "s"), wantSound(s, ""))
	})
}
