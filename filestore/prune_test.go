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

// wantScrubbed: the word is in no file, not even the journal, and in no file that a process still
// has open.
func wantScrubbed(d *vfs.Disk, word string) error {
	b, _ := d.CacheBytes(journal.Name)
	durable, _ := d.DurableBytes(journal.Name)
	if bytes.Contains(b, []byte(word)) || bytes.Contains(durable, []byte(word)) {
		return fmt.Errorf("the journal still has %q", word)
	}
	return wantErased(d, word)
}

// TestPrune: whatever is due is erased, no matter which process deleted it, and the report lists
// it.
func TestPrune(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	want(t, "tell", tell(a), nil)
	say(t, b, "s", nil, "secret of b")
	log, _ := d.CacheBytes(sessionlog.Path("s"))
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	if done, err := b.Prune(ctx, false); err != nil || len(done.Erased) != 1 || done.Erased[0].Session != "s" || done.Erased[0].Bytes < int64(len(log))/2 || done.Scrubbed != nil {
		t.Errorf("pruned %+v, %v", done, err)
	}
	if err := errors.Join(wantErased(d, "secret"), wantDeleted(a), wantDeleted(b)); err != nil {
		t.Error(err)
	}
	if done, err := b.Prune(ctx, false); err != nil || done.Erased != nil {
		t.Errorf("pruned again %+v, %v", done, err)
	}
	putEvidence(t, d, "s.repaired.0123456789abcdef", "secret") // left by an interrupted repair
	done, err := a.Prune(ctx, false)
	if err != nil || len(done.Erased) != 1 || !slices.Equal(done.Erased[0].Files, []string{"evidence/s.repaired.0123456789abcdef"}) || done.Erased[0].Bytes != 6 {
		t.Errorf("pruned %+v, %v", done, err)
	}
	hears(t, b, "other", "stays")
	if err := wantScrubbed(d, "secret"); err == nil {
		t.Error("the test does not find what the journal has")
	}
	r, err := open(d.Process("r"), Options{ReadOnly: true}, simConfig(5, simRing))
	want(t, "open to read", err, nil)
	_, err = r.Prune(ctx, false)
	want(t, "prune a store opened to read", err, hansard.ErrReadOnly)
	want(t, "close", a.Close(), nil)
	_, err = a.Prune(ctx, false)
	want(t, "prune a closed store", err, hansard.ErrClosed)
}

// TestScrub: no file has anything left of a deleted session, and everything else is there and
// goes on working, in every process.
func TestScrub(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	want(t, "tell", tell(a), nil)
	say(t, b, "s", nil, "secret of b")
	somebody := d.Observer("somebody")
	want(t, "mkdir", errors.Join(somebody.Mkdir(cache.Dir), somebody.Mkdir(cache.KeysDir)), nil)
	putFile(t, d, "cache/catalog", []byte("secret"))
	putFile(t, d, "cache/keys/other.0000000000000000", []byte("secret"))
	putEvidence(t, d, "journal.0123456789abcdef", "secret")
	putEvidence(t, d, "other.repaired.0123456789abcdef", "kept")
	want(t, "delete", b.Delete(ctx, "s", ""), nil)
	say(t, b, "other", nil, "in the ring")
	done, err := a.Prune(ctx, true)
	if err != nil || len(done.Erased) != 1 || !slices.Equal(done.Scrubbed, []string{journal.Name, "cache/keys/other.0000000000000000", "evidence/journal.0123456789abcdef"}) {
		t.Errorf("pruned %+v, %v", done, err)
	}
	for i, s := range []*Store{b, a, b} {
		say(t, s, "other", nil, "on %d", i)
	}
	hears(t, a, "other", "stays", "in the ring", "on 0", "on 1", "on 2")
	if err := errors.Join(wantScrubbed(d, "secret"), wantDeleted(a), wantDeleted(b)); err != nil {
		t.Error(err)
	}
	if b, ok := d.CacheBytes("evidence/other.repaired.0123456789abcdef"); !ok || string(b) != "kept" {
		t.Error("evidence of another session is gone")
	}
	d.PowerCut(vfs.Cut{})
	c := openSim(t, d.Process("c"), 3)
	hears(t, c, "other", "stays", "in the ring", "on 0", "on 1", "on 2")
	if err := errors.Join(wantScrubbed(d, "secret"), wantDeleted(c)); err != nil {
		t.Error(err)
	}
}

// overwritten reports whether the old journal file is full of zeros, as seen through an open
// descriptor.
func overwritten(f vfs.File) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		return err
	}
	if len(bytes.Trim(b, "\x00")) > 0 {
		return errors.New("the old journal still has something in it")
	}
	return nil
}

// TestScrubOverwrites: the old journal file is overwritten, not only removed.
func TestScrubOverwrites(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	old, err := d.Observer("somebody").Open(journal.Name, vfs.ReadOnly)
	want(t, "open the journal", err, nil)
	defer old.Close()
	_, err = a.Prune(ctx, true)
	want(t, "prune", err, nil)
	if err := overwritten(old); err != nil {
		t.Error(err)
	}
	say(t, a, "other", nil, "on")
	if err := overwritten(old); err != nil {
		t.Error("something is written to it:", err)
	}
}

// deletingFS calls a function whenever the directory of the logs is about to be synced.
type deletingFS struct {
	vfs.FS
	call func()
}

func (f *deletingFS) SyncDir(name string) error {
	if call := f.call; call != nil && name == sessionlog.Dir {
		f.call = nil // not for its own syncs
		call()
		f.call = call
	}
	return f.FS.SyncDir(name)
}

// TestScrubBesideDeletes: a store is scrubbed although another process deletes a session in
// every checkpoint of it; what was deleted before is gone from it.
func TestScrubBesideDeletes(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	fsys := &deletingFS{FS: d.Process("a")}
	a, b := openSim(t, fsys, 1), openSim(t, d.Process("b"), 2)
	want(t, "tell", tell(a), nil)
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	deleted := 0
	fsys.call = func() {
		deleted++
		id := hansard.SessionID(fmt.Sprint("busy", deleted))
		say(t, b, id, nil, "written and deleted")
		want(t, "delete", b.Delete(ctx, id, ""), nil)
	}
	_, err := a.Prune(ctx, true)
	want(t, "prune", err, nil)
	fsys.call = nil
	if deleted < 2 {
		t.Errorf("only %d sessions were deleted meanwhile", deleted)
	}
	if err := errors.Join(wantScrubbed(d, "secret"), wantDeleted(a)); err != nil {
		t.Error(err)
	}
}

// TestScrubBesideRedactions: a store is scrubbed although another process appends to a session and
// redacts it in every checkpoint of it, so that the journal always has entries of that session.
func TestScrubBesideRedactions(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	fsys := &deletingFS{FS: d.Process("a")}
	a, b := openSim(t, fsys, 1), openSim(t, d.Process("b"), 2)
	want(t, "tell", tell(a), nil)
	want(t, "redact", redactTold(a), nil)
	redacted := hansard.Seq(0)
	fsys.call = func() {
		say(t, b, "busy", nil, "one")
		redacted++
		_, err := b.committer.carryOut(ctx, newRedaction("busy", &hansard.Redaction{Seqs: []hansard.Seq{2*redacted - 1}}))
		want(t, "redact", err, nil)
	}
	fsys.call()
	_, err := a.Prune(ctx, true)
	want(t, "prune", err, nil)
	fsys.call = nil
	if redacted < 2 {
		t.Errorf("only %d events were redacted meanwhile", redacted)
	}
	want(t, "scrubbed", wantScrubbed(d, "secret 1"), nil)
}

// TestScrubBesideStopped: a store is scrubbed although a process that has just deleted a session is
// stopped before its sync, so that its tombstone is in the journal only.
func TestScrubBesideStopped(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	want(t, "tell", tell(b), nil)
	r := &request{op: opDelete, id: "s", name: "s", done: make(chan struct{}, 1)}
	b.committer.queue.waiting = append(b.committer.queue.waiting, r)
	if b.committer.writeGroup() == nil {
		t.Fatal("nothing was written")
	}
	_, err := a.Prune(ctx, true)
	want(t, "prune", err, nil)
	if err := errors.Join(wantScrubbed(d, "secret"), wantDeleted(a)); err != nil {
		t.Error(err)
	}
}

// TestScrubInTime: a session that is deleted while the store is scrubbed is erased first.
func TestScrubInTime(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	_, err := a.checkpoints.replaceUnused(new(ringPlace))
	want(t, "scrub a ring with a tombstone", err, errInJournal)
	old, err := a.checkpoints.freshRing(ctx)
	want(t, "scrub", err, nil)
	want(t, "close", old.Close(), nil)
	if err := errors.Join(wantScrubbed(d, "secret"), wantDeleted(a)); err != nil {
		t.Error(err)
	}
}

// TestScrubBeforeTheAnswer: a session is deleted, erased and scrubbed from the journal by another
// process before a call is answered. A Delete then succeeds; the outcome of an append is unknown.
func TestScrubBeforeTheAnswer(t *testing.T) {
	ctx := context.Background()
	for what, c := range map[string]struct {
		call func(a *Store) error
		want error
	}{
		"delete": {func(a *Store) error { return a.Delete(ctx, "s", "") }, nil},
		"append": {func(a *Store) error {
			_, err := a.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("secret")}})
			return err
		}, hansard.ErrUnknown},
	} {
		t.Run(what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
			want(t, "tell", tell(a), nil)
			want(t, "checkpoint", a.checkpoints.checkpoint(true), nil) // otherwise it makes room first
			busy := false
			d.OnOp(func(op vfs.Op) {
				if op.Proc != "a" || op.Kind != vfs.OpSync || op.Name != journal.Name || busy {
					return
				}
				busy = true
				if err := b.Delete(ctx, "s", ""); err != nil && !errors.Is(err, hansard.ErrDeleted) {
					t.Errorf("delete by b: %v", err)
				}
				if _, err := b.Prune(ctx, true); err != nil {
					t.Errorf("prune by b: %v", err)
				}
			})
			err := c.call(a)
			want(t, what, err, c.want)
			if !busy {
				t.Error("nobody came between")
			}
			if err := errors.Join(wantScrubbed(d, "secret"), wantDeleted(a), wantDeleted(b)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSimScrubInterrupted: scrubbing that is interrupted by a kill or a power cut, at any
// operation, loses nothing and can be repeated.
func TestSimScrubInterrupted(t *testing.T) {
	ctx := context.Background()
	made := func(t testing.TB) *vfs.Disk {
		d := vfs.NewDisk(1)
		a := openSim(t, d.Process("a"), 1)
		want(t, "tell", tell(a), nil)
		want(t, "delete", a.Delete(ctx, "s", ""), nil)
		say(t, a, "other", nil, "two")
		return d // and a stays alive
	}
	interrupted(t, made, func(s *Store) error {
		_, err := s.Prune(ctx, true)
		return err
	}, func(d *vfs.Disk) error {
		s, err := openOn(d.Process("c"), 3, simRing)
		if err != nil {
			return err
		}
		if err := wantDeleted(s); err != nil {
			return err
		}
		if _, err := s.Append(ctx, "other", hansard.Batch{Events: []hansard.Event{text("three")}}); err != nil {
			return err
		}
		var got []string
		for e, err := range s.Read(ctx, "other", hansard.Range{}) {
			if err != nil {
				return err
			}
			got = append(got, strings.Trim(string(e.Data), `"`))
		}
		if strings.Join(got, " ") != "stays two three" {
			return fmt.Errorf("the other session has %q", got)
		}
		if _, err := s.Prune(ctx, true); err != nil {
			return err
		}
		return errors.Join(wantScrubbed(d, "secret"), wantDeleted(s))
	})
}

// TestScrubFails: if there is no room for a new journal, the old one stays in use.
func TestScrubFails(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: "journal.*.tmp"}, vfs.Fault{Err: syscall.ENOSPC, Always: true})
	_, err := a.Prune(ctx, true)
	want(t, "prune", err, hansard.ErrNoSpace)
	say(t, a, "other", nil, "on")
	hears(t, a, "other", "stays", "on")
	for _, name := range d.Names() {
		if strings.HasSuffix(name, ".tmp") {
			t.Errorf("%s is left", name)
		}
	}
}
