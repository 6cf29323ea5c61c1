package filestore

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
	"hansard/memstore"
)

// logHarms are changes made to a log from outside while writers have the store open. mark is its
// length when the journal was last emptied.
var logHarms = map[string]func(t testing.TB, d *vfs.Disk, log []byte, mark int){
	"an older copy": func(t testing.TB, d *vfs.Disk, log []byte, mark int) {
		putFile(t, d, sessionlog.Path("s"), nil) // the same name, a different file
		putFile(t, d, sessionlog.Path("s"), log[:mark])
	},
	"cut":           func(t testing.TB, d *vfs.Disk, log []byte, mark int) { cutLog(t, d, int64(mark)) },
	"cut in a line": func(t testing.TB, d *vfs.Disk, log []byte, mark int) { cutLog(t, d, int64(mark+20)) },
	"removed":       func(t testing.TB, d *vfs.Disk, _ []byte, _ int) { putFile(t, d, sessionlog.Path("s"), nil) },
	"emptied":       func(t testing.TB, d *vfs.Disk, _ []byte, _ int) { cutLog(t, d, 0) },
	"garbage": func(t testing.TB, d *vfs.Disk, _ []byte, _ int) {
		putFile(t, d, sessionlog.Path("s"), []byte("garbage\n"))
	},
	"a line less": func(t testing.TB, d *vfs.Disk, log []byte, _ int) {
		cutLog(t, d, int64(bytes.LastIndexByte(log[:len(log)-1], '\n')+1))
	},
	"an older one, on": olderAndOn,
}

func cutLog(t testing.TB, d *vfs.Disk, size int64) {
	t.Helper()
	f, err := d.Observer("somebody").Open(sessionlog.Path("s"), 0)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Datasync(), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// olderAndOn is an older copy to which another store has appended.
func olderAndOn(t testing.TB, d *vfs.Disk, log []byte, mark int) {
	e := text("elsewhere")
	st := sessionlog.Stamp{Seq: 4, Time: "2026-02-01T00:00:00.000000Z", Prev: sessionlog.LineCRC(log[:mark])}
	other := sessionlog.AppendEvent(bytes.Clone(log[:mark]), &st, sessionlog.EncodeBody(nil, &e, "", ""))
	for len(other) < len(log)+100 {
		st.Seq, st.Prev = st.Seq+1, sessionlog.LineCRC(other)
		other = sessionlog.AppendEvent(other, &st, sessionlog.EncodeBody(nil, &e, "", ""))
	}
	putFile(t, d, sessionlog.Path("s"), other)
}

// harmed is a session of five events, the last two of which are still in the journal, and whose
// log was then changed from outside.
func harmed(t testing.TB, harm func(testing.TB, *vfs.Disk, []byte, int)) (d *vfs.Disk, a, b *Store) {
	t.Helper()
	d = vfs.NewDisk(1)
	a, b = openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	for _, what := range []string{"one", "two", "three"} {
		say(t, a, "s", nil, "%s", what)
	}
	if err := a.checkpoints.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	before, _ := d.CacheBytes(sessionlog.Path("s"))
	say(t, a, "s", nil, "four")
	say(t, a, "other", nil, "one")
	say(t, a, "s", nil, "five")
	log, _ := d.CacheBytes(sessionlog.Path("s"))
	harm(t, d, log, len(before))
	return d, a, b
}

// TestLostLinesAreKept: lines that the journal has and a log has lost are not forgotten, whatever
// was done to the log, whether the damage was seen or nobody looked before the journal's space
// was reused.
func TestLostLinesAreKept(t *testing.T) {
	ctx := context.Background()
	type who = func(t *testing.T, a, b *Store)
	seen := map[string]who{
		"by nobody":       func(*testing.T, *Store, *Store) {},
		"by a writer":     func(t *testing.T, a, _ *Store) { say(t, a, "s", hansard.ErrDamaged, "six") },
		"by another":      func(t *testing.T, _, b *Store) { say(t, b, "s", hansard.ErrDamaged, "six") },
		"by verify":       func(_ *testing.T, a, _ *Store) { _, _ = findings(a, "") },
		"by a reader":     func(t *testing.T, a, _ *Store) { wantDamaged(t, a) },
		"by one who left": func(t *testing.T, a, b *Store) { say(t, b, "s", hansard.ErrDamaged, "six"); _ = b.Close() },
	}
	then := map[string]who{
		"checkpoint":         func(t *testing.T, a, _ *Store) { want(t, "checkpoint", a.checkpoints.checkpoint(true), nil) },
		"another checkpoint": func(t *testing.T, _, b *Store) { _ = b.checkpoints.checkpoint(true) },
		"the journal around": func(t *testing.T, a, _ *Store) {
			for range 40 {
				say(t, a, "other", nil, "and on, until the space of the journal has been used again and again")
			}
		},
		"close":       func(t *testing.T, a, b *Store) { want(t, "close", errors.Join(a.Close(), b.Close()), nil) },
		"a redaction": redactBesideOthers,
	}
	for what, harm := range logHarms {
		for by, see := range seen {
			for end, finish := range then {
				t.Run(what+"/"+by+"/"+end, func(t *testing.T) {
					d, a, b := harmed(t, harm)
					see(t, a, b)
					finish(t, a, b)
					_, _ = a.Close(), b.Close()
					c := openSim(t, d.Process("c"), 3)
					all, err := findings(c, "")
					damaged := false
					for _, f := range all {
						damaged = damaged || f.Session == "s" && f.Level == hansard.LevelDamage
					}
					if err != nil || !damaged {
						t.Errorf("verify: %+v, %v", all, err)
					}
					say(t, c, "s", hansard.ErrDamaged, "six")
					say(t, c, "other", nil, "goes on")
					if _, err := c.Repair(ctx, "s"); err != nil {
						t.Fatal(err)
					}
					var got []string
					for e, err := range c.Read(ctx, "s", hansard.Range{}) {
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, string(e.Data))
					}
					if n := len(got); what != "an older one, on" && (n != 5 || got[3] != `"four"` && what != "a line less" || got[4] != `"five"`) {
						t.Errorf("after the repair there is %q", got)
					}
					// Lines that contradict the log are not in it, but are not gone either.
					for _, line := range []string{"four", "five"} {
						if !anywhere(d, line) {
							t.Errorf("%q is gone", line)
						}
					}
				})
			}
		}
	}
}

// TestLostBehindPending: a process whose own line was still pending when another one applied it, and
// a further one, knows of both: if the last is cut off the log, its checkpoint keeps it.
func TestLostBehindPending(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	say(t, a, "s", nil, "one")
	r := newAppend("s", &hansard.Batch{Events: []hansard.Event{text("two")}})
	r.done = make(chan struct{}, 1)
	a.committer.queue.waiting = append(a.committer.queue.waiting, r)
	g := a.committer.writeGroup()
	say(t, b, "s", nil, "three")
	log, _ := d.CacheBytes(sessionlog.Path("s"))
	cutLog(t, d, int64(bytes.LastIndexByte(log[:len(log)-1], '\n')+1))
	a.committer.finishGroup(g)
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	if !anywhere(d, "three") {
		t.Error("what was cut off is gone")
	}
	say(t, a, "s", hansard.ErrDamaged, "four")
}

// redactBesideOthers removes the content of an event of another session in the way that does not
// wait for a quiet moment: the journal is emptied for it.
func redactBesideOthers(t *testing.T, a, _ *Store) {
	_, err := a.committer.carryOut(context.Background(), newRedaction("other", &hansard.Redaction{Seqs: []hansard.Seq{1}}))
	want(t, "redact", err, nil)
	want(t, "take away", a.checkpoints.tryTakeAway("other", true), nil)
}

// anywhere reports whether a text is in any file of the store except the journal and stray
// temporary files.
func anywhere(d *vfs.Disk, text string) bool {
	for _, name := range d.Names() {
		if b, _ := d.CacheBytes(name); name != journal.Name && bytes.Contains(b, []byte(`"`+text+`"`)) {
			return true
		}
	}
	return false
}

// wantDamaged: a reader of the session gets the damage.
func wantDamaged(t testing.TB, s *Store) {
	t.Helper()
	ctx := context.Background()
	var end error
	for _, err := range s.Read(ctx, "s", hansard.Range{}) {
		end = err
	}
	if !errors.Is(end, hansard.ErrDamaged) {
		t.Errorf("read: %v, want ErrDamaged", end)
	}
	if info, err := s.Stat(ctx, "s"); err != nil || info.Damage == nil {
		t.Errorf("stat: %+v, %v, want damage", info, err)
	}
	if err := s.Wait(ctx, "s", 0); !errors.Is(err, hansard.ErrDamaged) {
		t.Errorf("wait: %v, want ErrDamaged", err)
	}
}

// TestShortenedIsReported: a process that knows of events that a log has lost reports it to
// readers and writers alike, whichever comes first.
func TestShortenedIsReported(t *testing.T) {
	for what, harm := range logHarms {
		for _, order := range [][]string{{"read", "append", "read"}, {"append", "read", "append"}} {
			t.Run(what+"/"+order[0], func(t *testing.T) {
				_, a, _ := harmed(t, harm)
				for _, do := range order {
					if do == "read" {
						wantDamaged(t, a)
					} else {
						say(t, a, "s", hansard.ErrDamaged, "six")
					}
				}
			})
		}
	}
}

// TestRestoredIsSound: replacing a log with an older copy while the journal has nothing of it
// counts as a restore, also for processes that knew the newer one.
func TestRestoredIsSound(t *testing.T) {
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	say(t, a, "s", nil, "one")
	old, _ := d.CacheBytes(sessionlog.Path("s"))
	say(t, a, "s", nil, "two")
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	putFile(t, d, sessionlog.Path("s"), old)
	hears(t, a, "s", "one")
	say(t, a, "s", nil, "three")
	hears(t, a, "s", "one", "three")
}

// TestVerifyAgreesWithRead: if a read reports damage because a log has lost lines, so do a
// verification of the session and one of the whole store.
func TestVerifyAgreesWithRead(t *testing.T) {
	ctx := context.Background()
	for what, harm := range logHarms {
		_, a, _ := harmed(t, harm)
		var read error
		for _, err := range a.Read(ctx, "s", hansard.Range{}) {
			if err != nil {
				read = err
			}
		}
		if read == nil {
			t.Errorf("%s: Read finds nothing", what)
		}
		for _, id := range []hansard.SessionID{"s", ""} {
			damaged := false
			for f, err := range a.Verify(ctx, id) {
				if err != nil {
					t.Errorf("%s: Verify(%q): %v", what, id, err)
				}
				damaged = damaged || f.Session == "s" && f.Level == hansard.LevelDamage
			}
			if !damaged {
				t.Errorf("%s: Read says %v, Verify(%q) says nothing", what, read, id)
			}
		}
	}
}

// TestCutInFirstBatch: a log that is cut in the batch that created the session is damaged: its
// lines were acknowledged, and the process knows that. A session whose first batch is on its way
// looks the same, and does not exist yet.
func TestCutInFirstBatch(t *testing.T) {
	ctx := context.Background()
	for what, keep := range map[string]func(log []byte) int{
		"in the header":    func(log []byte) int { return 20 },
		"after the header": func(log []byte) int { return bytes.IndexByte(log, '\n') + 1 },
		"in an event":      func(log []byte) int { return bytes.IndexByte(log, '\n') + 50 },
	} {
		t.Run(what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			_, err := a.Append(ctx, "s", hansard.Batch{Create: true, Events: []hansard.Event{text("one"), text("two")}})
			want(t, "append", err, nil)
			b := openSim(t, d.Process("b"), 2)
			log, _ := d.CacheBytes(sessionlog.Path("s"))
			cutLog(t, d, int64(keep(log)))
			for _, s := range []*Store{a, b} {
				wantDamaged(t, s)
			}
		})
	}
}

// TestCopyReportsLostLogs: a session whose log was removed, and of which lines are set aside, is
// reported by a copy and not left out, and stops no other.
func TestCopyReportsLostLogs(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	s := openSim(t, d.Process("a"), 1)
	for _, id := range []hansard.SessionID{"a", "s", "z"} {
		say(t, s, id, nil, "one")
	}
	putFile(t, d, sessionlog.Path("s"), nil)
	want(t, "checkpoint", s.checkpoints.checkpoint(true), nil) // sets its lines aside
	var copied []hansard.SessionID
	for c, err := range hansard.Copy(ctx, s, memstore.New()) {
		want(t, "copy", err, nil)
		if copied = append(copied, c.Session); c.Session == "s" {
			want(t, "copy of s", c.Err, hansard.ErrDamaged)
		} else {
			want(t, "copy", c.Err, nil)
		}
	}
	if !slices.Equal(copied, []hansard.SessionID{"a", "s", "z"}) {
		t.Errorf("copied %v", copied)
	}
}

// TestLostLogIsListed: a session whose log was removed from outside is in lists and among the
// origins as soon as it is damaged, before a checkpoint sets its lines aside. One whose log was
// removed after that had freed them is not there.
func TestLostLogIsListed(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	s := openSim(t, d.Process("a"), 1)
	say(t, s, "gone", nil, "one")
	want(t, "checkpoint", s.checkpoints.checkpoint(true), nil)
	for _, id := range []hansard.SessionID{"a", "s"} {
		say(t, s, id, nil, "one")
	}
	putFile(t, d, sessionlog.Path("s"), nil)
	putFile(t, d, sessionlog.Path("gone"), nil)
	for _, when := range []string{"at once", "again", "set aside"} {
		listed := map[hansard.SessionID]bool{}
		for info, err := range s.List(ctx, hansard.Query{}) {
			want(t, "list", err, nil)
			listed[info.ID] = info.Damage != nil
		}
		if want := map[hansard.SessionID]bool{"a": false, "s": true}; !maps.Equal(listed, want) {
			t.Errorf("%s: listed as damaged: %v", when, listed)
		}
		var origins []hansard.SessionID
		for o, err := range s.Origins(ctx, "") {
			want(t, "origins", err, nil)
			origins = append(origins, o.ID)
		}
		if !slices.Equal(origins, []hansard.SessionID{"a", "s"}) {
			t.Errorf("%s: origins %v", when, origins)
		}
		if when == "again" {
			want(t, "checkpoint", s.checkpoints.checkpoint(true), nil)
		}
	}
}
