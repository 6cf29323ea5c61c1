package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// wantErased: none of these words is in any file but the journal.
func wantErased(d *vfs.Disk, words ...string) error {
	for _, name := range d.Names() {
		b, _ := d.CacheBytes(name)
		for _, w := range words {
			if name != journal.Name && bytes.Contains(b, []byte(w)) {
				return fmt.Errorf("%s still has %q", name, w)
			}
		}
	}
	return nil
}

// tell stores a session s with a secret in every place that can hold one.
func tell(s *Store) error {
	ctx := context.Background()
	if _, err := s.Create(ctx, "s", hansard.Meta{Title: "secret title", Labels: map[string]string{"secret": "label"}}); err != nil {
		return err
	}
	state := hansard.Patch{State: []byte(`{"secret":1}`)}
	for i := range 5 {
		b := hansard.Batch{Key: fmt.Sprint("secret key ", i), Events: []hansard.Event{text("secret %d", i)}, Patch: &state}
		if _, err := s.Append(ctx, "s", b); err != nil {
			return err
		}
	}
	attached, err := s.Attach(ctx, "s", strings.NewReader("secret attachment"))
	if err != nil {
		return err
	}
	named := text("secret event with an attachment")
	named.ID, named.Attachments = "secret id", []hansard.Attachment{attached}
	if _, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{named}}); err != nil {
		return err
	}
	_, err = s.Append(ctx, "other", hansard.Batch{Create: true, Events: []hansard.Event{text("stays")}})
	return err
}

// TestErase: after Delete and the next checkpoint, by any process, the only facts left of a
// session are that it was deleted and when it was created.
func TestErase(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	want(t, "tell", tell(a), nil)
	say(t, b, "s", nil, "secret of b")
	if _, err := listed(b, hansard.Query{}); err != nil {
		t.Fatal(err)
	}
	want(t, "catalog", b.writeCache(cache.Dir, cache.CatalogName, cache.EncodeCatalog(b.lister.catalog.m)), nil)
	old, err := a.Stat(ctx, "s")
	want(t, "stat", err, nil)
	was := headerOf(t, d, "s")
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	if err := wantErased(d, "secret 3"); err == nil {
		t.Fatal("the test does not find what is there")
	}
	want(t, "checkpoint", b.checkpoints.checkpoint(false), nil)
	if left := notes(d); len(left) > 0 {
		t.Errorf("noted are still %q", left)
	}
	for _, cut := range []bool{false, true} {
		if cut {
			d.PowerCut(vfs.Cut{})
			a, b = openSim(t, d.Process("c"), 3), openSim(t, d.Process("d"), 4)
		}
		if err := wantErased(d, "secret"); err != nil {
			t.Errorf("after a power cut %v: %v", cut, err)
		}
		for _, s := range []*Store{a, b} {
			if err := wantDeleted(s); err != nil {
				t.Errorf("after a power cut %v: %v", cut, err)
			}
			hears(t, s, "other", "stays")
			if infos, err := listed(s, hansard.Query{}); err != nil || len(infos) != 1 || infos[0].ID != "other" {
				t.Errorf("listed are %v, %v", infos, err)
			}
		}
		if now := headerOf(t, d, "s"); now.LogUID != was.LogUID || !now.Created.Equal(old.Created) {
			t.Errorf("the header is %+v, it was %+v", now, was)
		}
	}
}

// headerOf reads the header of a log from a disk.
func headerOf(t testing.TB, d *vfs.Disk, name string) *sessionlog.Header {
	t.Helper()
	f, err := d.Observer("somebody").Open(sessionlog.Path(name), vfs.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id, _ := sessionlog.DecodeName(name)
	h, err := sessionlog.ReadHeader(f, id)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// notes lists the sessions noted for erasing.
func notes(d *vfs.Disk) (names []string) {
	for _, file := range d.Names() {
		if name, ok := strings.CutPrefix(file, erasingDir+"/"); ok && file != allLookedAt {
			names = append(names, name)
		}
	}
	return names
}

// TestEraseOlder: a session deleted by a program that did not know about erasing is erased by the
// next checkpoint. That checkpoint looks at all logs; later ones do not.
func TestEraseOlder(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	log, _ := d.CacheBytes(sessionlog.Path("s"))
	want(t, "close", a.Close(), nil)
	putFile(t, d, sessionlog.Path("s"), log)
	putFile(t, d, allLookedAt, nil)
	putEvidence(t, d, "s.deleted.0123456789abcdef", "secret")
	b := openSim(t, d.Process("b"), 2)
	if err := wantDeleted(b); err != nil {
		t.Error(err)
	}
	want(t, "checkpoint", b.checkpoints.checkpoint(false), nil)
	if err := errors.Join(wantErased(d, "secret"), wantDeleted(b)); err != nil {
		t.Error(err)
	}
	putFile(t, d, sessionlog.Path("s"), log) // a backup put back by hand: prune has to find it
	b.noteErasing([]string{"s"})
	want(t, "drop the note", b.checkpoints.eraser.dropNote("s", logSeen{}), nil)
	if left := notes(d); len(left) != 1 {
		t.Errorf("noted are %q, and s is not erased", left)
	}
	putFile(t, d, erasingDir+"/s", nil)
	want(t, "checkpoint", b.checkpoints.checkpoint(false), nil)
	if wantErased(d, "secret") == nil {
		t.Error("every checkpoint looks at every log")
	}
}

func putEvidence(t testing.TB, d *vfs.Disk, name, content string) {
	t.Helper()
	if err := d.Observer("somebody").Mkdir(evidenceDir); err != nil {
		t.Fatal(err)
	}
	putFile(t, d, evidenceDir+"/"+name, []byte(content))
}

// TestEraseInTime: a session is not erased while its tombstone is still in the ring.
func TestEraseInTime(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	a.noteErasing([]string{"s", "other", "never"})
	a.checkpoints.eraser.eraseNoted(nil)
	if wantErased(d, "secret") == nil {
		t.Error("erased while the ring has entries for it")
	}
	if left := notes(d); !slices.Contains(left, "s") {
		t.Errorf("noted are %q", left)
	}
	want(t, "checkpoint", a.checkpoints.checkpoint(false), nil)
	if err := errors.Join(wantErased(d, "secret"), wantDeleted(a)); err != nil {
		t.Error(err)
	}
	hears(t, a, "other", "stays")
	if left := notes(d); len(left) > 0 {
		t.Errorf("noted are still %q", left)
	}
}

// TestEraseNames: file names in aside/, evidence/ and cache/ are parsed from the right.
func TestEraseNames(t *testing.T) {
	const mark = "0123456789abcdef"
	for file, want := range map[string]string{
		"a.5." + mark: "a", "a.5.7." + mark: "a.5", "a.repaired." + mark: "a", "a.5.repaired." + mark: "a.5", "a.deleted." + mark: "a",
		"a.9.aside." + mark: "a", "a.5.9.aside." + mark: "a.5", "a.9.aside.deleted": "a", "a.5.9.aside.deleted": "a.5", "a.aside.9.aside.deleted": "a.aside",
		"a.9.aside.repaired." + mark: "a.9.aside", "journal." + mark: "", "journal.5." + mark: "journal", "a." + mark: "", "a": "", "": "", "a.aside.deleted": "",
		"a.x." + mark: "", "a.repaired": "", "a." + mark + ".5." + mark: "a." + mark,
	} {
		if got := evidenceOf(file); got != want {
			t.Errorf("evidence %q is of %q, want %q", file, got, want)
		}
	}
	for file, want := range map[string]string{"a.5": "a", "a.5.7": "a.5", "a.x": "", "a": ""} {
		if got := asideOf(file); got != want {
			t.Errorf("aside %q is of %q, want %q", file, got, want)
		}
	}
	for file, want := range map[string]string{"a." + mark: "a", "a.5." + mark: "a.5", "a.5": ""} {
		if got := runOf(file); got != want {
			t.Errorf("run %q is of %q, want %q", file, got, want)
		}
	}
}

// neighbours are files of other sessions whose names begin like those of s.
var neighbours = []string{
	"aside/s.5.77", "evidence/s.5.repaired.0123456789abcdef", "evidence/s.5.7.0123456789abcdef", "evidence/s.5.3.aside.0123456789abcdef",
	"evidence/s.5.3.aside.deleted", "evidence/s5.repaired.0123456789abcdef", "evidence/journal.0123456789abcdef", "evidence/s.txt",
	"cache/keys/s.5.0000000000000000", "cache/damage/s.5", "cache/damage/s5",
}

// own are files of s.
var own = []string{
	"aside/s.77", "evidence/s.repaired.0123456789abcdef", "evidence/s.7.0123456789abcdef", "evidence/s.3.aside.0123456789abcdef",
	"evidence/s.3.aside.deleted", "evidence/s.deleted.0123456789abcdef", "cache/keys/s.0000000000000000", "cache/damage/s",
}

// erasesOnlyItsOwn: erasing a deleted session removes all of its files, and none of a session
// whose name begins the same way.
func erasesOnlyItsOwn() error {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, err := openOn(d.Process("a"), 1, simRing)
	if err == nil {
		err = errors.Join(tell(a), a.Delete(ctx, "s", ""))
	}
	if err != nil {
		return err
	}
	p := d.Observer("somebody")
	for _, dir := range []string{asideDir, evidenceDir, cache.Dir, cache.KeysDir, cache.DamageDir} {
		if err := p.Mkdir(dir); err != nil {
			return err
		}
	}
	for _, file := range slices.Concat(neighbours, own) {
		f, err := p.Open(file, vfs.Create)
		if err == nil {
			_, err = f.WriteAt([]byte("something\n"), 0)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return err
		}
	}
	if err := a.checkpoints.checkpoint(true); err != nil {
		return err
	}
	names := d.Names()
	for _, file := range neighbours {
		if !slices.Contains(names, file) {
			return fmt.Errorf("%s is gone, which is not of s", file)
		}
	}
	for _, file := range own {
		if slices.Contains(names, file) {
			return fmt.Errorf("%s is still there, which is of s", file)
		}
	}
	return wantErased(d, "secret")
}

// TestEraseOnlyItsOwn: the prefix "s." also matches files of session "s.5".
func TestEraseOnlyItsOwn(t *testing.T) {
	if err := erasesOnlyItsOwn(); err != nil {
		t.Error(err)
	}
}

// eraseInterrupted kills the erasing process, or cuts the power, at every operation. The session
// stays deleted and sound, and the next process finishes the job. With beside set, another
// process stays alive.
func eraseInterrupted(beside bool) (states int, err error) {
	ctx := context.Background()
	for _, cut := range []*vfs.Cut{nil, {Keep: 0, Seed: 1}, {Keep: 50, Seed: 2}, {Keep: 50, Seed: 3}, {Keep: 100, Seed: 4}} {
		for k, done := 1, false; !done; k++ {
			d := vfs.NewDisk(1)
			d.PageSize, d.SectorSize = 512, 128
			a, err := openOn(d.Process("a"), 1, simRing)
			if err == nil {
				// A checkpoint first: from then on the notes count.
				err = errors.Join(tell(a), a.checkpoints.checkpoint(true), a.Delete(ctx, "s", ""))
			}
			if err != nil {
				return states, err
			}
			if !beside {
				d.PowerCut(vfs.Cut{Keep: 50, Seed: uint64(k)})
			}
			at := vfs.Match{Proc: "b", Kind: vfs.OpChange, N: k}
			if cut == nil {
				d.KillAt(at, -1)
			} else {
				d.CutAt(at, *cut)
			}
			b, err := openOn(d.Process("b"), 2, simRing)
			if err == nil {
				err = b.checkpoints.checkpoint(true)
			}
			if err == nil {
				err = b.Close()
			}
			if done = err == nil && notKilled(d); err != nil && !errors.Is(err, vfs.ErrCrashed) {
				return states, fmt.Errorf("operation %d: %w", k, err)
			}
			d.ClearRules()
			if err := stillDeleted(d); err != nil {
				return states, fmt.Errorf("%+v before operation %d: %w\n%s", cut, k, err, trace(d, 60))
			}
			states++
		}
	}
	return states, nil
}

// notKilled reports whether nothing happened to process b: erasing does not report errors.
func notKilled(d *vfs.Disk) bool {
	for _, op := range d.Trace() {
		if strings.Contains(op, "(killed)") || strings.Contains(op, "power cut") {
			return false
		}
	}
	return true
}

// stillDeleted checks a disk on which erasing was interrupted.
func stillDeleted(d *vfs.Disk) error {
	for i, who := range []string{"c", "d"} {
		s, err := openOn(d.Process(who), uint64(3+i), simRing)
		if err != nil {
			return err
		}
		if err := wantDeleted(s); err != nil {
			return fmt.Errorf("%s: %w", who, err)
		}
		for e, err := range s.Read(context.Background(), "other", hansard.Range{}) {
			if err != nil || string(e.Data) != `"stays"` {
				return fmt.Errorf("the other session has %s, %w", e.Data, err)
			}
		}
		if err := errors.Join(s.checkpoints.checkpoint(true), s.Close()); err != nil {
			return err
		}
		if err := wantErased(d, "secret"); err != nil {
			return err
		}
		if left := notes(d); len(left) > 0 {
			return fmt.Errorf("noted are still %q", left)
		}
		d.PowerCut(vfs.Cut{})
	}
	return wantErased(d, "secret")
}

// TestSimEraseInterrupted: after a kill or a power cut at any step, a deleted session stays
// deleted and sound, and its content is gone after the next checkpoint.
func TestSimEraseInterrupted(t *testing.T) {
	for what, beside := range map[string]bool{"by who recovers": false, "beside others": true} {
		t.Run(what, func(t *testing.T) {
			states, err := eraseInterrupted(beside)
			if err != nil {
				t.Fatal(err)
			}
			if t.Logf("%d states", states); states < 100 {
				t.Errorf("only %d states", states)
			}
		})
	}
}

// TestEraseOlderJournal: a journal older than the logs, as in a backup of a store in use, does
// not bring back any of an erased session, and is not reported as damage.
func TestEraseOlderJournal(t *testing.T) {
	ctx := context.Background()
	for what, deletedBefore := range map[string]bool{"with the tombstone": true, "without it": false} {
		t.Run(what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			want(t, "tell", tell(a), nil)
			if deletedBefore {
				want(t, "delete", a.Delete(ctx, "s", ""), nil)
			}
			older, _ := d.CacheBytes(journal.Name)
			if !deletedBefore {
				want(t, "delete", a.Delete(ctx, "s", ""), nil)
			}
			want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
			if err := wantErased(d, "secret"); err != nil {
				t.Fatal(err)
			}
			d.PowerCut(vfs.Cut{})
			putFile(t, d, journal.Name, nil)
			putFile(t, d, journal.Name, older)
			mayOnlyRead(d, "r")
			r, err := open(d.Process("r"), Options{ReadOnly: true}, simConfig(5, simRing))
			want(t, "open to read", err, nil)
			_, err = r.Stat(ctx, "s")
			want(t, "stat without recovery", err, hansard.ErrDeleted)
			if err := wantSound(r, "s"); err != nil {
				t.Error(err)
			}
			hears(t, r, "other", "stays")
			d.ClearRules()
			b := openSim(t, d.Process("b"), 2)
			if err := wantDeleted(b); err != nil {
				t.Error(err)
			}
			for _, op := range d.Trace() {
				if strings.Contains(op, "→ "+asideDir+"/s.") {
					t.Errorf("set aside: %s", op)
				}
			}
			hears(t, b, "other", "stays")
			want(t, "checkpoint", b.checkpoints.checkpoint(true), nil)
			if err := wantErased(d, "secret"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEraseMended: a tombstone that could not be written to its log and was set aside is put in
// place later, and then the content is erased.
func TestEraseMended(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: sessionlog.Path("s")}, vfs.Fault{Err: syscall.EIO, Always: true})
	want(t, "delete", a.Delete(ctx, "s", ""), hansard.ErrUnknown)
	for range 3 {
		_, _ = a.Append(ctx, "other", hansard.Batch{Events: []hansard.Event{text("more")}}) // tries to apply it
	}
	if left := setAsideOf(a, "s"); len(left) == 0 {
		t.Fatal("nothing was set aside")
	}
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	if left := notes(d); len(left) != 1 {
		t.Errorf("noted are %q", left)
	}
	d.ClearRules()
	a.checkpoints.mendAll()
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	if err := errors.Join(wantErased(d, "secret"), wantDeleted(a)); err != nil {
		t.Error(err)
	}
}

// TestEraseSetAside: lines of a deleted session that were set aside are not kept, whether the
// next process to join finds them or the background.
func TestEraseSetAside(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	want(t, "close", a.Close(), nil)
	want(t, "mkdir", d.Observer("somebody").Mkdir(asideDir), nil)
	putFile(t, d, asideDir+"/s.77", []byte("secret\n"))
	b := openSim(t, d.Process("b"), 2)
	if err := errors.Join(wantErased(d, "secret"), wantDeleted(b)); err != nil {
		t.Error(err)
	}
}

// TestEraseImported: importing a session that was deleted elsewhere erases it here.
func TestEraseImported(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	for o, err := range a.Origins(ctx, "") {
		want(t, "origins", err, nil)
		if o.ID == "s" {
			o.Deleted = true
			want(t, "import", a.Import(ctx, hansard.Part{Origin: o}), nil)
		}
	}
	want(t, "checkpoint", a.checkpoints.checkpoint(false), nil)
	if err := errors.Join(wantErased(d, "secret"), wantDeleted(a)); err != nil {
		t.Error(err)
	}
}

// TestEraseMany: sessions deleted together are erased together: sessions/ is synced once for all
// of them.
func TestEraseMany(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	for i := range 10 {
		id := hansard.SessionID(fmt.Sprint("many-", i))
		say(t, a, id, nil, "secret %d", i)
		want(t, "delete", a.Delete(ctx, id, ""), nil)
	}
	want(t, "free the ring", a.checkpoints.freeRing(true), nil)
	before := d.Count(vfs.OpSyncDir)
	a.checkpoints.eraser.eraseNoted(nil)
	if n := d.Count(vfs.OpSyncDir) - before; n > 3 {
		t.Errorf("%d syncs of directories for ten sessions", n)
	}
	if err := wantErased(d, "secret"); err != nil {
		t.Error(err)
	}
}

// TestEraseReplaced: if a session can't be erased now, because its file was replaced from
// outside, it is noted for later, even if it had not been noted before.
func TestEraseReplaced(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	log, _ := d.CacheBytes(sessionlog.Path("s"))
	want(t, "close", a.Close(), nil)
	putFile(t, d, sessionlog.Path("s"), log)
	putFile(t, d, allLookedAt, nil)
	b := openSim(t, d.Process("b"), 2)
	once := false
	d.OnOp(func(op vfs.Op) {
		if op.Kind == vfs.OpSync && strings.HasPrefix(op.Name, "log.") && !once {
			once = true
			putFile(t, d, sessionlog.Path("s"), nil)
			putFile(t, d, sessionlog.Path("s"), log)
		}
	})
	want(t, "checkpoint", b.checkpoints.checkpoint(true), nil)
	if left := notes(d); !once || !slices.Equal(left, []string{"s"}) {
		t.Errorf("noted are %q", left)
	}
	want(t, "checkpoint", b.checkpoints.checkpoint(true), nil)
	if err := errors.Join(wantErased(d, "secret"), wantDeleted(b)); err != nil {
		t.Error(err)
	}
}

// TestEraseStops: erasing in the background stops between two sessions when the store is closed;
// the last process to leave finishes it.
func TestEraseStops(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	want(t, "delete", a.Delete(ctx, "other", ""), nil)
	want(t, "free the ring", a.checkpoints.freeRing(true), nil)
	closing := make(chan struct{})
	d.OnOp(func(op vfs.Op) {
		if op.Kind == vfs.OpRename && op.To == sessionlog.Path("other") {
			close(closing)
		}
	})
	a.checkpoints.eraser.eraseNoted(closing)
	if left := notes(d); !slices.Equal(left, []string{"s"}) {
		t.Errorf("noted are %q", left)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := a.Prune(ended, true)
	want(t, "prune", err, context.Canceled)
	if left := notes(d); !slices.Equal(left, []string{"s"}) {
		t.Errorf("noted are %q", left)
	}
	want(t, "close", a.Close(), nil)
	if err := wantErased(d, "secret", "stays"); err != nil {
		t.Error(err)
	}
}

// TestEraseBesideVerify: a session that is erased while it is verified is not reported as
// damaged.
func TestEraseBesideVerify(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	var found []hansard.Finding
	v := verifier{s: a, yield: func(f hansard.Finding) bool { found = append(found, f); return true }}
	want(t, "journal", v.readEntries(ctx), nil)
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	want(t, "verify", v.session(ctx, "s", true), nil)
	if len(found) != 1 || found[0].Level != hansard.LevelOK || found[0].Message != "deleted" {
		t.Errorf("found %+v", found)
	}
}

// TestEraseFails: an error in erasing one session affects no other and does not keep the ring
// from being freed; once the cause is gone the next checkpoint erases it.
func TestEraseFails(t *testing.T) {
	ctx := context.Background()
	for what, at := range map[string]vfs.Match{
		"no notes":      {Kind: vfs.OpChange, Name: erasingDir + "/*"},
		"no new log":    {Kind: vfs.OpWrite, Name: "log.*"},
		"no sync of it": {Kind: vfs.OpSync, Name: "log.*"},
		"no rename":     {Kind: vfs.OpRename, Name: "log.*"},
	} {
		t.Run(what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			want(t, "tell", tell(a), nil)
			want(t, "delete", a.Delete(ctx, "s", ""), nil)
			d.Inject(at, vfs.Fault{Err: syscall.ENOSPC, Always: true})
			want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
			l, err := a.lock.lockCaughtUp()
			want(t, "lock", err, nil)
			if l.w.Start != l.w.Applied {
				t.Error("the ring was not freed")
			}
			l.unlock()
			if err := wantDeleted(a); err != nil {
				t.Error(err)
			}
			say(t, a, "other", nil, "goes on")
			d.ClearRules()
			want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
			if err := errors.Join(wantErased(d, "secret"), wantDeleted(a), wantSound(a, "other")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEraseIndexes: indexes in cache/ that a process removed while it erased a session, before it
// was killed, do not come back with a power cut once another one has finished the erasing.
func TestEraseIndexes(t *testing.T) {
	ctx := context.Background()
	for k, dead := 1, true; dead; k++ {
		d := vfs.NewDisk(1)
		a := openSim(t, d.Process("a"), 1)
		want(t, "prepare", tell(a), nil)
		want(t, "prepare", a.fs.Mkdir(cache.Dir), nil)
		for _, name := range []string{"search.db", "catalog.0123456789abcdef.db"} {
			putFile(t, d, cache.Dir+"/"+name, []byte("secret 1"))
		}
		want(t, "prepare", errors.Join(a.fs.SyncDir(cache.Dir), a.fs.SyncDir(".")), nil)
		want(t, "delete", a.Delete(ctx, "s", ""), nil)
		pb := d.Process("b")
		b := openSim(t, pb, 2)
		d.KillAt(vfs.Match{Proc: "b", Kind: vfs.OpChange, N: k}, -1)
		_ = b.checkpoints.checkpoint(true)
		dead = pb.Dead()
		d.ClearRules()
		want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
		if left := notes(d); len(left) > 0 {
			t.Fatalf("operation %d: noted are still %q", k, left)
		}
		d.PowerCut(vfs.Cut{})
		if err := wantErased(d, "secret 1"); err != nil {
			t.Errorf("operation %d: %v", k, err)
		}
	}
}

// TestEraseUnread: a deleted session that could not be noted for erasing, and whose log could not
// be read when all of them were examined, is erased when it can be read.
func TestEraseUnread(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []vfs.Kind{vfs.OpOpen, vfs.OpRead, vfs.OpSize} {
		for n := 1; n < 4; n++ {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			want(t, "prepare", tell(a), nil)
			want(t, "delete", a.Delete(ctx, "s", ""), nil)
			d.Inject(vfs.Match{Kind: vfs.OpOpen, Name: erasingDir + "/s"}, vfs.Fault{Err: syscall.ENOSPC})
			noted := false
			d.OnOp(func(op vfs.Op) {
				if errors.Is(op.Err, syscall.ENOSPC) {
					noted = true // from here on the log can't be read
				}
				if op.Kind == vfs.OpReadDir && op.Name == sessionlog.Dir && noted {
					noted = false
					d.Inject(vfs.Match{Kind: kind, Name: sessionlog.Path("s"), N: n}, vfs.Fault{Err: syscall.EIO, Always: true})
				}
			})
			_ = a.checkpoints.checkpoint(true)
			d.ClearRules()
			for range 2 {
				say(t, a, "other", nil, "more")
				want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
			}
			if err := wantErased(d, "secret 1"); err != nil {
				t.Errorf("%v %d: %v", kind, n, err)
			}
		}
	}
}

// TestUnnotedKilled: a deletion or a redaction that could not be noted, by a process that was
// killed before it finished, is finished by the next checkpoint of another process, or by prune;
// by prune also if nothing says that there may be such sessions.
func TestUnnotedKilled(t *testing.T) {
	ctx := context.Background()
	redact := func(s *Store) { _, _ = s.Redact(ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{2}}) }
	remove := func(s *Store) { _ = s.Delete(ctx, "s", ""); _ = s.checkpoints.checkpoint(true) }
	for what, do := range map[string]func(*Store){"redact": redact, "delete": remove} {
		for _, prune := range []bool{false, true} {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			want(t, "prepare", tell(a), nil)
			want(t, "checkpoint", a.checkpoints.checkpoint(true), nil) // makes allLookedAt
			pb := d.Process("b")
			b := openSim(t, pb, 2)
			d.Inject(vfs.Match{Kind: vfs.OpOpen, Name: erasingDir + "/s"}, vfs.Fault{Err: syscall.ENOSPC, Always: true})
			d.KillAt(vfs.Match{Proc: "b", Kind: vfs.OpRename, Name: "log.*"}, -1)
			do(b)
			if !pb.Dead() || len(notes(d)) > 0 {
				t.Fatalf("%s: killed: %v, noted: %q", what, pb.Dead(), notes(d))
			}
			d.ClearRules()
			if prune {
				putFile(t, d, allLookedAt, []byte{})
				_, err := a.Prune(ctx, false)
				want(t, "prune", err, nil)
			} else {
				say(t, a, "other", nil, "more")
				want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
			}
			if err := errors.Join(wantErased(d, "secret 1"), wantSound(a, "other")); err != nil {
				t.Errorf("%s, prune %v: %v", what, prune, err)
			}
		}
	}
}

// TestNotErasedReadsLittle: while a deleted session can't be erased, whether it has a note or not,
// a checkpoint does not read all of every log because of it.
func TestNotErasedReadsLittle(t *testing.T) {
	full := func(d *vfs.Disk) { // no note can be made
		d.Inject(vfs.Match{Kind: vfs.OpOpen, Name: erasingDir + "/*"}, vfs.Fault{Err: syscall.ENOSPC, Always: true})
		d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: "log.*"}, vfs.Fault{Err: syscall.ENOSPC, Always: true})
	}
	ill := func(d *vfs.Disk) {
		d.Inject(vfs.Match{Kind: vfs.OpRename, Name: "log.*"}, vfs.Fault{Err: syscall.EIO, Always: true})
	}
	for what, c := range map[string]struct {
		fault func(*vfs.Disk)
		first bool // the store was never checkpointed, so all logs are examined once
		most  int
	}{"without a note": {full, false, 300_000}, "with a note": {ill, true, 800_000}} {
		t.Run(what, func(t *testing.T) {
			ctx := context.Background()
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			want(t, "prepare", tell(a), nil)
			for range 50 {
				say(t, a, "long", nil, "%s", strings.Repeat("x", 10_000))
			}
			if !c.first {
				want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
			}
			c.fault(d)
			want(t, "delete", a.Delete(ctx, "s", ""), nil)
			read := 0
			d.OnOp(func(op vfs.Op) {
				if op.Kind == vfs.OpRead && op.Name == sessionlog.Path("long") {
					read += op.Len
				}
			})
			for range 3 {
				say(t, a, "other", nil, "more")
				want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
			}
			if read > c.most {
				t.Errorf("%d bytes of a log were read", read)
			}
			d.ClearRules()
			say(t, a, "other", nil, "more")
			want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
			if err := wantErased(d, "secret 1"); err != nil {
				t.Error(err)
			}
		})
	}
}
