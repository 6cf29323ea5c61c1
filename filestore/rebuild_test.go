package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
	"hansard/memstore"
)

// damagedSession writes a session of ten events, with keys, patches and a batch of three, closes
// the store, and damages the log.
func damagedSession(t testing.TB, harm func(lines [][]byte) [][]byte) (d *vfs.Disk, log []byte) {
	t.Helper()
	ctx := context.Background()
	d = vfs.NewDisk(1)
	s := openSim(t, d.Process("a"), 1)
	if _, err := s.Create(ctx, "s", hansard.Meta{Title: "given", State: []byte(`{"a":1}`)}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 10; i++ {
		b := hansard.Batch{Key: fmt.Sprint("key", i), Events: []hansard.Event{text("%d", i)}}
		switch i {
		case 4:
			b.Events = append(b.Events, text("5"), text("6"))
		case 7:
			b.Patch = &hansard.Patch{State: []byte(`{"b":2}`)}
		case 9:
			title := "nine"
			b.Patch = &hansard.Patch{Title: &title}
		}
		if _, err := s.Append(ctx, "s", b); err != nil {
			t.Fatal(err)
		}
		i += len(b.Events) - 1
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log, _ = d.CacheBytes(sessionlog.Path("s"))
	log = bytes.Join(harm(linesOf(log)), nil)
	putFile(t, d, sessionlog.Path("s"), log)
	return d, log
}

// broken damages lines in place.
func broken(at ...int) func([][]byte) [][]byte {
	return func(lines [][]byte) [][]byte {
		for _, i := range at {
			lines[i] = changed(lines[i], len(lines[i])/2, 0)
		}
		return lines
	}
}

// TestRepairKeepsWhatIsBehind: a repair keeps every whole line at its seq, also after the damage,
// with its keys, patches and batches.
func TestRepairKeepsWhatIsBehind(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		what  string
		harm  func(lines [][]byte) [][]byte
		want  string // - means lost
		title string
		state string
		keys  []int // that are known
	}{
		{"one line", broken(2), "1 - 3 4 5 6 7 8 9 10", "nine", `{"a":1,"b":2}`, []int{1, 3, 4, 7, 8, 9, 10}},
		{"two places", broken(2, 8), "1 - 3 4 5 6 7 - 9 10", "nine", `{"a":1,"b":2}`, []int{1, 3, 4, 7, 9, 10}},
		{"a patch", broken(7), "1 2 3 4 5 6 - 8 9 10", "nine", `{"a":1}`, []int{1, 3, 8, 10}},
		{"the last patch", broken(9), "1 2 3 4 5 6 7 8 - 10", "given", `{"a":1,"b":2}`, []int{10}},
		{"the middle of a batch", broken(5), "1 2 3 4 - 6 7 8 9 10", "nine", `{"a":1,"b":2}`, []int{4, 7}},
		{"the beginning of a batch", broken(4), "1 2 3 - 5 6 7 8 9 10", "nine", `{"a":1,"b":2}`, []int{3, 7}},
		{"the end of a batch and more", broken(6, 7, 8), "1 2 3 4 5 - - - 9 10", "nine", `{"a":1}`, []int{4, 9}},
		{"all but the last", broken(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), "- - - - - - - - - 10", "", "null", []int{10}},
		{"the last line", broken(10), "1 2 3 4 5 6 7 8 9", "nine", `{"a":1,"b":2}`, []int{9}},
		{"made shorter", func(l [][]byte) [][]byte { l[3] = []byte("[removed]\n"); return l }, "1 2 - 4 5 6 7 8 9 10", "nine", `{"a":1,"b":2}`, []int{2, 4}},
		{"removed", func(l [][]byte) [][]byte { return slices.Delete(l, 3, 4) }, "1 2 - 4 5 6 7 8 9 10", "nine", `{"a":1,"b":2}`, []int{2, 4}},
		{"a newline", func(l [][]byte) [][]byte { l[3] = changed(l[3], len(l[3])-1, ' '); return l }, "1 2 3 4 5 6 7 8 9 10", "nine", `{"a":1,"b":2}`, []int{3, 4}},
		{"something between", func(l [][]byte) [][]byte { return slices.Insert(l, 3, []byte("hello\n")) }, "1 2 3 4 5 6 7 8 9 10", "nine", `{"a":1,"b":2}`, []int{3, 4}},
		{"doubled", func(l [][]byte) [][]byte { return slices.Insert(l, 5, l[2:5]...) }, "1 2 3 4 5 6 7 8 9 10", "nine", `{"a":1,"b":2}`, []int{3, 4}},
		{"exchanged", func(l [][]byte) [][]byte { l[2], l[8] = l[8], l[2]; return l }, "1 2 3 4 5 6 7 8 9 10", "nine", `{"a":1,"b":2}`, []int{3, 4}},
		{"NULs", func(l [][]byte) [][]byte { clear(l[2]); clear(l[3]); return l }, "1 - - 4 5 6 7 8 9 10", "nine", `{"a":1,"b":2}`, []int{1, 4}},
	} {
		t.Run(c.what, func(t *testing.T) {
			d, log := damagedSession(t, c.harm)
			s := openSim(t, d.Process("b"), 2)
			lost := hansard.Seq(strings.Count(c.want, "-"))
			done, err := s.Repair(ctx, "s")
			if err != nil || done.Lost != lost || int(done.Events) != len(strings.Fields(c.want)) {
				t.Fatalf("repair: %+v, %v", done, err)
			}
			hears(t, s, "s", strings.Fields(strings.ReplaceAll(c.want, "-", "null"))...)
			if err := wantSound(s, "s"); err != nil {
				t.Error(err)
			}
			info, err := s.Stat(ctx, "s")
			if err != nil || info.Title != c.title || string(info.State) != c.state {
				t.Errorf("title %q, state %s, %v; want %q, %s", info.Title, info.State, err, c.title, c.state)
			}
			for _, i := range c.keys {
				b := hansard.Batch{Key: fmt.Sprint("key", i), Events: []hansard.Event{text("%d", i)}}
				if i == 4 {
					b.Events = append(b.Events, text("5"), text("6"))
				}
				switch i {
				case 7:
					b.Patch = &hansard.Patch{State: []byte(`{"b":2}`)}
				case 9:
					b.Patch = &hansard.Patch{Title: &c.title}
				}
				if r, err := s.Append(ctx, "s", b); err != nil || !r.Replayed || r.First != hansard.Seq(i) {
					t.Errorf("key %d again: %+v, %v", i, r, err)
				}
			}
			if old, _ := d.DurableBytes(done.Kept); !bytes.Equal(old, log) {
				t.Errorf("kept are %d bytes of %d", len(old), len(log))
			}
			say(t, s, "s", nil, "on")
		})
	}
}

// TestRepairLosesOperations: after a lost patch, operations on the state whose target is gone are
// left out, and test operations are not evaluated again. The session can still be described,
// written and copied.
func TestRepairLosesOperations(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	s := openSim(t, d.Process("a"), 1)
	// Large enough that no snapshot is due: a snapshot would have what was lost.
	if _, err := s.Create(ctx, "s", hansard.Meta{Title: strings.Repeat("x", 4000), State: []byte(`{"n":0,"draft":1}`)}); err != nil {
		t.Fatal(err)
	}
	change := func(s *Store, ops string) error {
		t.Helper()
		p := &hansard.Patch{}
		if err := json.Unmarshal([]byte(ops), &p.StateOps); err != nil {
			t.Fatal(err)
		}
		_, err := s.Append(ctx, "s", hansard.Batch{Patch: p})
		return err
	}
	for i, ops := range []string{
		`[{"op":"add","path":"/list","value":[1]},{"op":"replace","path":"/n","value":1}]`,
		`[{"op":"test","path":"/n","value":1},{"op":"add","path":"/list/-","value":2},{"op":"replace","path":"/n","value":2}]`,
		`[{"op":"test","path":"/n","value":2},{"op":"remove","path":"/draft"},{"op":"remove","path":"/list/0"}]`,
	} {
		if err := change(s, ops); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log, _ := d.CacheBytes(sessionlog.Path("s"))
	if bytes.Count(log, []byte(`"snap"`)) != 1 {
		t.Fatal("the log has another snapshot than its header's")
	}
	putFile(t, d, sessionlog.Path("s"), bytes.Join(broken(1)(linesOf(log)), nil))

	s = openSim(t, d.Process("b"), 2)
	if done, err := s.Repair(ctx, "s"); err != nil || done.Lost != 1 {
		t.Fatalf("repair: %+v, %v", done, err)
	}
	if err := wantSound(s, "s"); err != nil {
		t.Error(err)
	}
	if info, err := s.Stat(ctx, "s"); err != nil || string(info.State) != `{"n":2}` {
		t.Errorf("the state is %s, %v", info.State, err)
	}
	if err := change(s, `[{"op":"test","path":"/n","value":2},{"op":"replace","path":"/n","value":3}]`); err != nil {
		t.Errorf("the next change: %v", err)
	}
	if err := change(s, `[{"op":"test","path":"/n","value":2}]`); !errors.Is(err, hansard.ErrConflict) {
		t.Errorf("a test that fails: %v", err)
	}
	dst := memstore.New()
	defer dst.Close()
	for c, err := range hansard.Copy(ctx, s, dst) {
		if err := errors.Join(err, c.Err); err != nil {
			t.Errorf("copy: %v", err)
		}
	}
}

// TestRepairFromJournal: lines of a damaged log that the journal still has come back with the
// repair, whichever process found the damage.
func TestRepairFromJournal(t *testing.T) {
	for what, find := range map[string]func(*Store){
		"by the repair": func(*Store) {},
		"by verify":     func(s *Store) { _, _ = findings(s, "") },
		"by a write":    func(s *Store) { say(t, s, "s", hansard.ErrDamaged, "four") },
	} {
		t.Run(what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			for _, what := range []string{"one", "two", "three"} {
				say(t, a, "s", nil, "%s", what)
			}
			log, _ := d.CacheBytes(sessionlog.Path("s"))
			putFile(t, d, sessionlog.Path("s"), bytes.Join(broken(0, 2, 3)(linesOf(log)), nil))
			s := openSim(t, d.Process("b"), 2)
			find(s)
			done, err := s.Repair(context.Background(), "s")
			if err != nil || done.Events != 3 || done.Lost != 0 {
				t.Errorf("repair: %+v, %v", done, err)
			}
			hears(t, s, "s", "one", "two", "three")
			if now, _ := d.CacheBytes(sessionlog.Path("s")); !bytes.Equal(now, log) {
				t.Error("the log is not what it was")
			}
		})
	}
}

// TestRepairLeavesOthersOut: a line of another session is not taken for one of this session.
func TestRepairLeavesOthersOut(t *testing.T) {
	foreign := func(seq hansard.Seq, n int) (lines [][]byte) {
		st := sessionlog.Stamp{Time: "2026-02-01T00:00:00.000000Z", Prev: 77}
		for i := range n {
			e := text("foreign")
			st.Seq = seq + hansard.Seq(i)
			l := sessionlog.AppendEvent(nil, &st, sessionlog.EncodeBody(nil, &e, "", ""))
			st.Prev = sessionlog.LineCRC(l)
			lines = append(lines, l)
		}
		return lines
	}
	const all = "1 2 3 4 5 6 7 8 9 10"
	for _, c := range []struct {
		what string
		harm func(lines [][]byte) [][]byte
		want string
	}{
		{"put in", func(l [][]byte) [][]byte { return slices.Insert(l, 4, foreign(20, 1)...) }, all},
		{"several put in", func(l [][]byte) [][]byte { return slices.Insert(l, 4, foreign(20, 3)...) }, all},
		{"instead of one", func(l [][]byte) [][]byte { l[3] = foreign(3, 1)[0]; return l }, "1 2 - 4 5 6 7 8 9 10"},
		{"instead of the last", func(l [][]byte) [][]byte { l[10] = foreign(30, 1)[0]; return l }, "1 2 3 4 5 6 7 8 9"},
		{"behind the last", func(l [][]byte) [][]byte { return append(l, foreign(30, 1)...) }, all},
		{"behind a header of their own", func(l [][]byte) [][]byte {
			h := sessionlog.AppendHeader(nil, "other", 5, simConfig(1, 1).now(), 0, hansard.Meta{})
			e := text("foreign")
			st := sessionlog.Stamp{Seq: 1, Time: "2026-02-01T00:00:00.000000Z", Prev: sessionlog.LineCRC(h)}
			one := sessionlog.AppendEvent(nil, &st, sessionlog.EncodeBody(nil, &e, "", ""))
			st.Seq, st.Prev = 2, sessionlog.LineCRC(one)
			return append(broken(1)(l)[:2], h, one, sessionlog.AppendEvent(nil, &st, sessionlog.EncodeBody(nil, &e, "", "")))
		}, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			d, _ := damagedSession(t, c.harm)
			s := openSim(t, d.Process("b"), 2)
			if done, err := s.Repair(context.Background(), "s"); err != nil || !done.Changed {
				t.Fatalf("repair: %+v, %v", done, err)
			}
			hears(t, s, "s", strings.Fields(strings.ReplaceAll(c.want, "-", "null"))...)
		})
	}
}

// TestRepairOfTheDeleted: damage before the tombstone does not bring anything back.
func TestRepairOfTheDeleted(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	s := openSim(t, d.Process("a"), 1)
	say(t, s, "s", nil, "one")
	say(t, s, "s", nil, "two")
	want(t, "delete", s.Delete(ctx, "s", ""), nil)
	log, _ := d.CacheBytes(sessionlog.Path("s"))
	want(t, "close", s.Close(), nil) // erases it
	putFile(t, d, sessionlog.Path("s"), bytes.Join(broken(2)(linesOf(log)), nil))
	s = openSim(t, d.Process("b"), 2)
	if done, err := s.Repair(ctx, "s"); err != nil || !done.Changed {
		t.Fatalf("repair: %+v, %v", done, err)
	}
	say(t, s, "s", hansard.ErrDeleted, "three")
	if err := wantSound(s, "s"); err != nil {
		t.Error(err)
	}
	want(t, "checkpoint", s.checkpoints.checkpoint(true), nil)
	if anywhere(d, "one") {
		t.Error("what was repaired and kept of the deleted session is still there")
	}
}

// TestRepairBehindAHole: lines after a hole longer than any line are found.
func TestRepairBehindAHole(t *testing.T) {
	root, err := vfs.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f, err := root.Open("log", vfs.Create)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log := buildLog("s", 1, 4, func(i int) (hansard.Event, string) { return pad(i, 10), "" })
	lines := linesOf(log)
	const hole = 2 * sessionlog.MaxLine
	before := bytes.Join(lines[:2], nil)
	behind := append([]byte("\n"), bytes.Join(lines[3:], nil)...)
	for at, b := range map[int64][]byte{0: before, hole: behind} {
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	src := &sessionlog.Source{F: f, Log: true}
	if err := src.Read("s"); err != nil || src.Head == nil || len(src.Runs) != 2 || src.Runs[1].First.Seq != 3 {
		t.Errorf("found %+v, %v", src, err)
	}
}

// interrupted kills a process, or cuts the power, before each of its operations that change the
// disk, from the moment it opens the store, and judges what is left.
func interrupted(t *testing.T, made func(t testing.TB) *vfs.Disk, call func(*Store) error, judge func(d *vfs.Disk) error) {
	t.Helper()
	states := 0
	for _, cut := range []*vfs.Cut{nil, {Keep: 0, Seed: 1}, {Keep: 50, Seed: 2}, {Keep: 50, Seed: 3}, {Keep: 100, Seed: 4}} {
		for k, done := 1, false; !done; k++ {
			d := made(t)
			at := vfs.Match{Proc: "b", Kind: vfs.OpChange, N: k}
			if cut == nil {
				d.KillAt(at, -1)
			} else {
				d.CutAt(at, *cut)
			}
			s, err := openOn(d.Process("b"), 2, simRing)
			if err == nil {
				err = call(s)
			}
			if done = err == nil; !done && !errors.Is(err, vfs.ErrCrashed) {
				t.Fatalf("operation %d: %v", k, err)
			}
			d.ClearRules()
			if err := judge(d); err != nil {
				t.Fatalf("%+v before operation %d: %v\n%s", cut, k, err, trace(d, 60))
			}
			states++
		}
	}
	t.Logf("%d states", states)
	if states < 100 {
		t.Errorf("only %d states", states)
	}
}

// wantEvidence: if the log is no longer the old one, the old bytes are kept.
func wantEvidence(d *vfs.Disk, old []byte) error {
	if now, _ := d.CacheBytes(sessionlog.Path("s")); bytes.Equal(now, old) {
		return nil
	}
	for _, name := range d.Names() {
		if b, _ := d.DurableBytes(name); strings.HasPrefix(name, evidenceDir+"/") && bytes.Equal(b, old) {
			return nil
		}
	}
	return errors.New("the old log is nowhere")
}

// TestSimRepairInterrupted: a repair interrupted by a kill or a power cut leaves either the
// damaged log or the sound one, and the old bytes in any case; the next repair completes it.
func TestSimRepairInterrupted(t *testing.T) {
	ctx := context.Background()
	var old []byte
	made := func(t testing.TB) (d *vfs.Disk) {
		d, old = damagedSession(t, broken(2, 5))
		return d
	}
	interrupted(t, made, func(s *Store) error {
		_, err := s.Repair(ctx, "s")
		return err
	}, func(d *vfs.Disk) error {
		if err := wantEvidence(d, old); err != nil {
			return err
		}
		s, err := openOn(d.Process("c"), 3, simRing)
		if err != nil {
			return err
		}
		if done, err := s.Repair(ctx, "s"); err != nil || done.Events != 10 {
			return fmt.Errorf("repair: %+v, %w", done, err)
		}
		hears(t, s, "s", "1", "null", "3", "4", "null", "6", "7", "8", "9", "10")
		return wantSound(s, "s")
	})
}

// TestRepairLastNewline: a damaged newline at the end of a log costs no event.
func TestRepairLastNewline(t *testing.T) {
	for _, instead := range []byte{0, ' ', 'x', '\r', '}', 0xff} {
		d, _ := damagedSession(t, func(lines [][]byte) [][]byte {
			last := lines[len(lines)-1]
			last[len(last)-1] = instead
			return lines
		})
		s := openSim(t, d.Process("b"), 2)
		done, err := s.Repair(context.Background(), "s")
		if err != nil || done.Events != 10 || done.Lost != 0 || done.DroppedBytes != 0 {
			t.Errorf("%q: %+v, %v", instead, done, err)
		}
		hears(t, s, "s", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
	}
}
