package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hansard"
	"hansard/backup"
	"hansard/filestore"
	"hansard/memstore"
	"hansard/storetest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// save makes a backup in a directory of its own.
func save(t testing.TB, src hansard.Exporter, o backup.WriteOptions) (string, backup.Written) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "b"+backup.Suffix)
	var w backup.Written
	must(t, backup.Save(path, func(out io.Writer) (err error) {
		w, err = backup.Write(t.Context(), src, out, o)
		return err
	}))
	return path, w
}

func open(t testing.TB, paths ...string) *backup.Chain {
	t.Helper()
	c, err := backup.Open(paths...)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// restoreAll restores and gives what was reported, by session.
func restoreAll(t testing.TB, c *backup.Chain, dst hansard.Importer) map[hansard.SessionID]backup.Restored {
	t.Helper()
	got := map[hansard.SessionID]backup.Restored{}
	must(t, c.Restore(t.Context(), dst, backup.RestoreOptions{Report: func(r backup.Restored) {
		r.Added += got[r.Session].Added
		got[r.Session] = r
	}}))
	return got
}

func wantAll(t testing.TB, got map[hansard.SessionID]backup.Restored) {
	t.Helper()
	for id, r := range got {
		if r.Err != nil {
			t.Errorf("session %s: %v", id, r.Err)
		}
	}
}

// count is how many sessions a store has.
func count(t testing.TB, s hansard.Store) (n int) {
	t.Helper()
	for _, err := range s.List(t.Context(), hansard.Query{}) {
		must(t, err)
		n++
	}
	return n
}

// increment makes an increment of a backup.
func increment(t testing.TB, src hansard.Exporter, base string) (string, backup.Written) {
	t.Helper()
	f, err := backup.OpenFile(base)
	must(t, err)
	defer f.Close()
	return save(t, src, backup.WriteOptions{Base: f})
}

func say(t testing.TB, s hansard.Store, id hansard.SessionID, texts ...string) {
	t.Helper()
	b := hansard.Batch{Create: true}
	for _, text := range texts {
		b.Events = append(b.Events, hansard.Message("user", text))
	}
	_, err := s.Append(t.Context(), id, b)
	must(t, err)
}

// engines are those that need nothing but a directory; test/ has the others.
func engines(t *testing.T, run func(t *testing.T, open func() hansard.Importer)) {
	t.Run("memory", func(t *testing.T) { run(t, func() hansard.Importer { return memstore.New() }) })
	t.Run("files", func(t *testing.T) {
		run(t, func() hansard.Importer {
			s, err := filestore.Open(t.TempDir(), nil)
			must(t, err)
			t.Cleanup(func() { s.Close() })
			return s
		})
	})
}

// TestEverything: what comes back is what Copy would have carried, and the store goes on
// from there.
func TestEverything(t *testing.T) {
	engines(t, func(t *testing.T, another func() hansard.Importer) {
		src, dst := another(), another()
		storetest.FillForCopy(t, src)
		path, w := save(t, src, backup.WriteOptions{})
		if w.Sessions != count(t, src) || w.Deleted == 0 || w.Attachments == 0 || w.Number != 0 {
			t.Errorf("wrote %+v", w)
		}
		c := open(t, path)
		must(t, c.Check(t.Context(), nil))
		got := restoreAll(t, c, dst)
		wantAll(t, got)
		if !got["gone"].Deleted || got["rich"].Added == 0 {
			t.Errorf("restored %+v", got)
		}
		for id, r := range restoreAll(t, c, dst) {
			if r.Err != nil || r.Added != 0 {
				t.Errorf("once more: %s: %+v", id, r)
			}
		}
		storetest.CheckCopy(t, src, dst)
	})
}

// TestIncrements: a full backup and increments restore to what the store was at the last
// of them. What has not changed is not in an increment.
func TestIncrements(t *testing.T) {
	engines(t, func(t *testing.T, another func() hansard.Importer) {
		src := another()
		storetest.FillForCopy(t, src)
		full, was := save(t, src, backup.WriteOptions{})

		say(t, src, "large", "one more", "and another")
		say(t, src, "new", "hello")
		must(t, src.Delete(t.Context(), "empty", ""))
		attached, err := src.Attach(t.Context(), "full", strings.NewReader("a picture"))
		must(t, err)
		e := hansard.Message("user", "look")
		e.Attachments = []hansard.Attachment{attached}
		_, err = src.Append(t.Context(), "full", hansard.Batch{Events: []hansard.Event{e}})
		must(t, err)
		first, w := increment(t, src, full)
		if w.Changed != 3 || w.Events != 4 || w.Attachments != 1 || w.Deleted != was.Deleted+1 || w.Number != 1 {
			t.Errorf("the first increment has %+v", w)
		}
		say(t, src, "new", "again")
		second, w := increment(t, src, first)
		if w.Changed != 1 || w.Events != 1 || w.Sessions != count(t, src) {
			t.Errorf("the second increment has %+v", w)
		}
		third, w := increment(t, src, second)
		if w.Changed != 0 || w.Events != 0 || w.Sessions != count(t, src) {
			t.Errorf("an increment with nothing new has %+v", w)
		}
		c := open(t, full, first, second, third)
		must(t, c.Check(t.Context(), nil))
		dst := another()
		got := restoreAll(t, c, dst)
		wantAll(t, got)
		if r := got["empty"]; !r.Deleted || r.Added != 0 {
			t.Errorf("a session that was deleted later: %+v", r)
		}
		for r, err := range hansard.Copy(t.Context(), src, dst) {
			if err != nil || r.Err != nil || r.Added != 0 {
				t.Errorf("what was restored is not the same: %+v, %v", r, err)
			}
		}
		for what, paths := range map[string][]string{
			"the full one missing": {first, second}, "one missing": {full, second}, "another order": {full, second, first}, "one twice": {full, first, first}, "two full ones": {full, full}, "none": {}} {
			if c, err := backup.Open(paths...); err == nil {
				c.Close()
				t.Errorf("%s: no error", what)
			} else if errors.Is(err, hansard.ErrDamaged) || hintOf(err) == "" {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func hintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// TestConflicts: nothing in the store is overwritten. What went on there is fine.
func TestConflicts(t *testing.T) {
	engines(t, func(t *testing.T, another func() hansard.Importer) {
		src := another()
		for _, id := range []hansard.SessionID{"ahead", "behind", "deleted", "differs", "other", "tombstone"} {
			say(t, src, id, "one", "two")
		}
		dst := another()
		for r, err := range hansard.Copy(t.Context(), src, dst) {
			must(t, errors.Join(err, r.Err))
		}
		say(t, src, "missing", "one")
		say(t, src, "behind", "three")
		say(t, src, "differs", "three")
		must(t, src.Delete(t.Context(), "tombstone", ""))
		path, _ := save(t, src, backup.WriteOptions{})
		say(t, dst, "ahead", "goes on")
		say(t, dst, "differs", "something else")
		must(t, dst.Delete(t.Context(), "deleted", ""))
		got := restoreAll(t, open(t, path), dst)
		for id, want := range map[hansard.SessionID]error{"ahead": nil, "behind": nil, "deleted": hansard.ErrDeleted, "differs": hansard.ErrConflict, "missing": nil,
			"tombstone": hansard.ErrExists} {
			if r := got[id]; !errors.Is(r.Err, want) || r.Session != id {
				t.Errorf("%s: %+v, want %v", id, r, want)
			}
		}
		if got["behind"].Added != 1 || got["ahead"].Added != 0 {
			t.Errorf("added %+v", got)
		}
		texts := func(id hansard.SessionID) (all []string) {
			for e, err := range dst.Read(t.Context(), id, hansard.Range{}) {
				must(t, err)
				all = append(all, e.Text())
			}
			return all
		}
		if got := fmt.Sprint(texts("differs"), texts("ahead"), texts("behind"), texts("tombstone")); got != "[one two something else] [one two goes on] [one two three] [one two]" {
			t.Errorf("the store has %s", got)
		}
		alien := another()
		say(t, alien, "other", "one", "two")
		if r := restoreAll(t, open(t, path), alien)["other"]; !errors.Is(r.Err, hansard.ErrExists) {
			t.Errorf("a session of the same id that began differently: %+v", r)
		}
	})
}

// TestSetBack: a store that was set back to an earlier state and went on differently is
// not taken for one that goes on.
func TestSetBack(t *testing.T) {
	dir, earlier := t.TempDir(), filepath.Join(t.TempDir(), "earlier")
	at := func(dir string) *filestore.Store {
		s, err := filestore.Open(dir, nil)
		must(t, err)
		return s
	}
	first := at(dir)
	say(t, first, "s", "one")
	say(t, first, "shorter", "one")
	must(t, first.Close())
	must(t, os.CopyFS(earlier, os.DirFS(dir)))
	first = at(dir)
	defer first.Close()
	say(t, first, "s", "two")
	say(t, first, "shorter", "two")
	full, _ := save(t, first, backup.WriteOptions{})
	second := at(earlier)
	defer second.Close()
	say(t, second, "s", "zwei", "drei")
	inc, w := increment(t, second, full)
	if w.Events != 3+1 {
		t.Errorf("the increment has %d events; those of a session that is another one have to be all of them", w.Events)
	}
	dst := memstore.New()
	c := open(t, full, inc)
	must(t, c.Check(t.Context(), nil))
	wantAll(t, restoreAll(t, c, dst))
	for r, err := range hansard.Copy(t.Context(), second, dst) {
		if err != nil || r.Err != nil || r.Added != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// TestVanished: a session whose log was removed from outside stays in the chain, and is
// reported.
func TestVanished(t *testing.T) {
	dir := t.TempDir()
	src, err := filestore.Open(dir, nil)
	must(t, err)
	for _, id := range []hansard.SessionID{"a", "b", "c", "z"} {
		say(t, src, id, "hello")
	}
	must(t, src.Close())
	src, err = filestore.Open(dir, nil)
	must(t, err)
	full, _ := save(t, src, backup.WriteOptions{})
	must(t, src.Close())
	must(t, os.Remove(filepath.Join(dir, "sessions", "b.jsonl")))
	must(t, os.Remove(filepath.Join(dir, "sessions", "z.jsonl")))
	src, err = filestore.Open(dir, nil)
	must(t, err)
	defer src.Close()
	f, err := backup.OpenFile(full)
	must(t, err)
	defer f.Close()
	var reported []hansard.SessionID
	inc, w := save(t, src, backup.WriteOptions{Base: f, Report: func(id hansard.SessionID, err error) { reported = append(reported, id) }})
	if fmt.Sprint(reported) != "[b z]" || w.Damaged != 2 || w.Sessions != 4 {
		t.Errorf("reported %v, wrote %+v", reported, w)
	}
	dst := memstore.New()
	c := open(t, full, inc)
	must(t, c.Check(t.Context(), nil))
	wantAll(t, restoreAll(t, c, dst))
	if _, err := dst.Stat(context.Background(), "z"); err != nil {
		t.Error(err)
	}
}

// noName hides the identity of a store, and lets a test do something while it is read.
type noName struct {
	hansard.Exporter
	looked func(id hansard.SessionID) // after Stat
}

func (n *noName) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	info, err := n.Exporter.Stat(ctx, id)
	if n.looked != nil {
		n.looked(id)
	}
	return info, err
}

// TestAnotherGeneration: a session of the same id that began at another time is another
// one, also if both have no events.
func TestAnotherGeneration(t *testing.T) {
	first, second := memstore.New(), memstore.New()
	for _, s := range []*memstore.Store{first, second} {
		_, err := s.Create(t.Context(), "s", hansard.Meta{Title: fmt.Sprintf("%p", s)})
		must(t, err)
	}
	full, _ := save(t, &noName{Exporter: first}, backup.WriteOptions{})
	inc, w := increment(t, &noName{Exporter: second}, full)
	if w.Changed != 1 {
		t.Errorf("the increment has %+v", w)
	}
	dst := memstore.New()
	c := open(t, full, inc)
	must(t, c.Check(t.Context(), nil))
	wantAll(t, restoreAll(t, c, dst))
	if info, err := dst.Stat(t.Context(), "s"); err != nil || info.Title != fmt.Sprintf("%p", second) {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestMeanwhile: sessions that grow and are deleted while they are read. What is in the
// backup ends with a whole batch, and a deleted session is deleted.
func TestMeanwhile(t *testing.T) {
	src := memstore.New()
	say(t, src, "deleted", "SECRET")
	say(t, src, "grows", "1", "2", "3")
	say(t, src, "later", "SECRET")
	_, err := src.Append(t.Context(), "later", hansard.Batch{Events: storetest.Marked("later", 1, 3000, 10)})
	must(t, err)
	reading := &noName{Exporter: src, looked: func(id hansard.SessionID) {
		if id == "grows" {
			say(t, src, id, "4", "5", "6", "7", "8", "9", "10", "11")
		} else {
			must(t, src.Delete(t.Context(), id, ""))
		}
	}}
	path, w := save(t, reading, backup.WriteOptions{})
	if w.Sessions != 1 || w.Deleted != 2 {
		t.Errorf("wrote %+v", w)
	}
	c := open(t, path)
	must(t, c.Check(t.Context(), nil))
	dst := memstore.New()
	wantAll(t, restoreAll(t, c, dst))
	info, err := dst.Stat(t.Context(), "grows")
	if err != nil || info.LastSeq != 3 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, id := range []hansard.SessionID{"deleted", "later"} {
		if _, err := dst.Stat(t.Context(), id); !errors.Is(err, hansard.ErrDeleted) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestDamagedSession: what can be read of a damaged session is in the backup, and the
// others are too. Once it is repaired, an increment has the rest.
func TestDamagedSession(t *testing.T) {
	dir := t.TempDir()
	src, err := filestore.Open(dir, nil)
	must(t, err)
	for _, id := range []hansard.SessionID{"a", "broken", "c"} {
		say(t, src, id, "one")
		say(t, src, id, "two")
		say(t, src, id, "three")
	}
	must(t, src.Close())
	log := filepath.Join(dir, "sessions", "broken.jsonl")
	text, err := os.ReadFile(log)
	must(t, err)
	must(t, os.WriteFile(log, []byte(strings.Replace(string(text), `"two"`, `"TWO"`, 1)), 0o600))
	src, err = filestore.Open(dir, nil)
	must(t, err)
	defer src.Close()
	var reported []string
	full, w := save(t, src, backup.WriteOptions{Report: func(id hansard.SessionID, err error) {
		reported = append(reported, fmt.Sprint(id, errors.Is(err, hansard.ErrDamaged)))
	}})
	if fmt.Sprint(reported) != "[brokentrue]" || w.Events != 3+1+3 || w.Damaged != 1 {
		t.Errorf("reported %v, wrote %+v", reported, w)
	}
	dst := memstore.New()
	c := open(t, full)
	must(t, c.Check(t.Context(), nil))
	if r := restoreAll(t, c, dst)["broken"]; r.Err != nil || r.Damage == "" || r.Events != 1 {
		t.Errorf("restored %+v", r)
	}
	_, err = src.Repair(t.Context(), "broken")
	must(t, err)
	inc, w := increment(t, src, full)
	if w.Damaged != 0 || w.Events != 2 {
		t.Errorf("the increment after a repair has %+v", w)
	}
	wantAll(t, restoreAll(t, open(t, full, inc), dst))
	if info, err := dst.Stat(t.Context(), "broken"); err != nil || info.LastSeq != 3 {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestSave: a file has its name only when it is whole, replaces nothing, and what killed
// ones left is removed, but not what is being written.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "b.hbk")
	left := filepath.Join(dir, ".b.hbk.123.hbk-partial")
	must(t, os.WriteFile(left, []byte("half"), 0o600))
	names := func() (names []string) {
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	failed := errors.New("failed")
	if err := backup.Save(path, func(out io.Writer) error { _, _ = io.WriteString(out, "half"); return failed }); !errors.Is(err, failed) || len(names()) != 0 {
		t.Errorf("%v; there is %q", err, names())
	}
	must(t, backup.Save(path, func(out io.Writer) error {
		if got := names(); len(got) != 1 || got[0] == "b.hbk" {
			t.Errorf("while it is written there is %q", got)
		}
		// Another one, beside it.
		return backup.Save(filepath.Join(dir, "c.hbk"), func(io.Writer) error {
			if got := names(); len(got) != 2 {
				t.Errorf("while two are written there is %q", got)
			}
			_, err := io.WriteString(out, "whole")
			return err
		})
	}))
	if b, err := os.ReadFile(path); err != nil || string(b) != "whole" {
		t.Errorf("%q, %v", b, err)
	}
	err := backup.Save(path, func(io.Writer) error { t.Error("it is there already"); return nil })
	if !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	// Somebody was faster.
	late := filepath.Join(dir, "late.hbk")
	err = backup.Save(late, func(io.Writer) error { return os.WriteFile(late, []byte("first"), 0o600) })
	if b, _ := os.ReadFile(late); !errors.Is(err, os.ErrExist) || string(b) != "first" {
		t.Errorf("%q, %v", b, err)
	}
	if got := names(); len(got) != 3 {
		t.Errorf("in the end there is %q", got)
	}
}

// ill is a store whose attachments can't be read to their end.
type ill struct {
	hansard.Exporter
	err error
}

func (i *ill) OpenAttachment(ctx context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
	r, err := i.Exporter.OpenAttachment(ctx, id, digest)
	if id != "b" || err != nil {
		return r, err
	}
	return &illReader{r, i.err}, nil
}

type illReader struct {
	hansard.AttachmentReader
	err error
}

func (r *illReader) Read(p []byte) (int, error) {
	if n, err := r.AttachmentReader.Read(p[:1]); n > 0 || err == nil {
		r.AttachmentReader = brokenReader{r.AttachmentReader, r.err}
		return n, err
	}
	return 0, r.err
}

type brokenReader struct {
	hansard.AttachmentReader
	err error
}

func (r brokenReader) Read([]byte) (int, error) { return 0, r.err }

// TestIllAttachment: an attachment that can't be read, or ends too soon, ends its session
// before the event that names it, and does not keep the others out.
func TestIllAttachment(t *testing.T) {
	src := memstore.New()
	for _, id := range []hansard.SessionID{"a", "b", "c"} {
		say(t, src, id, "one")
		a, err := src.Attach(t.Context(), id, strings.NewReader("a picture"))
		must(t, err)
		// More than a part, so that something is written before.
		for range 2 {
			_, err = src.Append(t.Context(), id, hansard.Batch{Events: storetest.Marked("many", 1, 1000, 10)})
			must(t, err)
		}
		e := hansard.Message("user", "look")
		e.Attachments = []hansard.Attachment{a}
		_, err = src.Append(t.Context(), id, hansard.Batch{Events: []hansard.Event{e}})
		must(t, err)
	}
	for _, bad := range []error{errors.New("input/output error"), io.EOF, hansard.ErrNoAttachment, hansard.ErrDamaged} {
		var reported []hansard.SessionID
		path, w := save(t, &ill{src, bad}, backup.WriteOptions{Report: func(id hansard.SessionID, err error) { reported = append(reported, id) }})
		if fmt.Sprint(reported) != "[b]" || w.Damaged != 1 || w.Attachments != 2 {
			t.Errorf("%v: reported %v, wrote %+v", bad, reported, w)
		}
		c := open(t, path)
		must(t, c.Check(t.Context(), nil))
		dst := memstore.New()
		got := restoreAll(t, c, dst)
		wantAll(t, got)
		if got["b"].Damage == "" || got["b"].Events != 2000 || got["a"].Events != 2002 || got["c"].Events != 2002 {
			t.Errorf("%v: restored %+v", bad, got)
		}
	}
	if _, err := backup.Write(t.Context(), &ill{src, hansard.ErrClosed}, io.Discard, backup.WriteOptions{}); !errors.Is(err, hansard.ErrClosed) {
		t.Errorf("a store that is closed meanwhile: %v", err)
	}
}

// TestFullDisk: an error of the destination ends the backup, whatever the store does.
func TestFullDisk(t *testing.T) {
	src := memstore.New()
	storetest.FillForCopy(t, src)
	full := errors.New("no space left on device")
	_, whole := save(t, src, backup.WriteOptions{})
	for part := range 12 { // no two are of exactly the same size: each has its time in it
		room := int(whole.Size) * part / 12
		if _, err := backup.Write(t.Context(), src, &bounded{room, full}, backup.WriteOptions{}); !errors.Is(err, full) {
			t.Errorf("with room for %d bytes: %v", room, err)
		}
	}
}

type bounded struct {
	room int
	err  error
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(p) > b.room {
		return b.room, b.err
	}
	b.room -= len(p)
	return len(p), nil
}

// TestInterrupted: a backup and a restore end with their context.
func TestInterrupted(t *testing.T) {
	src := memstore.New()
	storetest.FillForCopy(t, src)
	path, _ := save(t, src, backup.WriteOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := backup.Write(ctx, src, io.Discard, backup.WriteOptions{Progress: func(backup.Totals) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Errorf("backup: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	if err := open(t, path).Restore(ctx, memstore.New(), backup.RestoreOptions{Progress: func(backup.Progress) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Errorf("restore: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	if err := open(t, path).Check(ctx, func(backup.Progress) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("check: %v", err)
	}
	closed := memstore.New()
	must(t, closed.Close())
	if err := open(t, path).Restore(t.Context(), closed, backup.RestoreOptions{}); !errors.Is(err, hansard.ErrClosed) {
		t.Errorf("to a store that is closed: %v", err)
	}
}

// TestRedacted: what was redacted after a backup is redacted when the chain is restored,
// and stays so in a store that has the session. What the store has not redacted yet is,
// by the record that comes.
func TestRedacted(t *testing.T) {
	engines(t, func(t *testing.T, another func() hansard.Importer) {
		src, before := another(), another()
		for _, text := range []string{"one", "SECRET", "three"} {
			_, err := src.Append(t.Context(), "s", hansard.Batch{Create: true, Key: text, Events: []hansard.Event{hansard.Message("user", text)}})
			must(t, err)
		}
		full, _ := save(t, src, backup.WriteOptions{})
		wantAll(t, restoreAll(t, open(t, full), before))
		_, err := src.Redact(t.Context(), "s", hansard.Redaction{Seqs: []hansard.Seq{2}, Reason: "a password"})
		must(t, err)
		inc, _ := increment(t, src, full)
		anew, _ := save(t, src, backup.WriteOptions{})
		fresh := another()
		for _, chain := range [][]string{{full, inc}, {anew}} {
			c := open(t, chain...)
			must(t, c.Check(t.Context(), nil))
			for _, dst := range []hansard.Importer{fresh, fresh, before, src} {
				wantAll(t, restoreAll(t, c, dst))
				for e, err := range dst.Read(t.Context(), "s", hansard.Range{}) {
					if err != nil || e.Redacted != (e.Seq == 2) || strings.Contains(string(e.Data), "SECRET") {
						t.Errorf("%+v, %v", e, err)
					}
				}
			}
			fresh, before = another(), another()
			wantAll(t, restoreAll(t, open(t, full), before))
		}
	})
}

// TestDamagedSince: an increment does not take back what its base has of a session that was
// damaged since.
func TestDamagedSince(t *testing.T) {
	dir := t.TempDir()
	src, err := filestore.Open(dir, nil)
	must(t, err)
	for _, id := range []hansard.SessionID{"a", "broken", "c"} {
		say(t, src, id, "one")
		say(t, src, id, "two")
		say(t, src, id, "three")
	}
	full, _ := save(t, src, backup.WriteOptions{})
	must(t, src.Close())
	log := filepath.Join(dir, "sessions", "broken.jsonl")
	text, err := os.ReadFile(log)
	must(t, err)
	must(t, os.WriteFile(log, []byte(strings.Replace(string(text), `"two"`, `"TWO"`, 1)), 0o600))
	src, err = filestore.Open(dir, nil)
	must(t, err)
	defer src.Close()
	say(t, src, "c", "four")
	inc, w := increment(t, src, full)
	if w.Damaged != 1 || w.Changed != 1 {
		t.Errorf("wrote %+v", w)
	}
	dst := memstore.New()
	c := open(t, full, inc)
	must(t, c.Check(t.Context(), nil))
	wantAll(t, restoreAll(t, c, dst))
	for id, want := range map[hansard.SessionID]hansard.Seq{"a": 3, "broken": 3, "c": 4} {
		if info, err := dst.Stat(t.Context(), id); err != nil || info.LastSeq != want {
			t.Errorf("%s: %+v, %v", id, info, err)
		}
	}
	_, err = src.Repair(t.Context(), "broken")
	must(t, err)
	next, w := increment(t, src, inc)
	if w.Damaged != 0 {
		t.Errorf("after a repair: %+v", w)
	}
	c = open(t, full, inc, next)
	must(t, c.Check(t.Context(), nil))
	for id, r := range restoreAll(t, c, dst) {
		if r.Err != nil || r.Added != 0 {
			t.Errorf("%s once more: %+v", id, r)
		}
	}
}

// TestVanishedMeanwhile: a session that goes away while the backup is made is reported, and what
// the base has of it stays.
func TestVanishedMeanwhile(t *testing.T) {
	inner := memstore.New()
	say(t, inner, "s", "hello")
	full, _ := save(t, &noName{Exporter: inner}, backup.WriteOptions{})
	inc, w := increment(t, gone{&noName{Exporter: inner}}, full)
	if w.Damaged != 1 || w.Sessions != 1 {
		t.Errorf("wrote %+v", w)
	}
	dst := memstore.New()
	wantAll(t, restoreAll(t, open(t, full, inc), dst))
	if info, err := dst.Stat(t.Context(), "s"); err != nil || info.LastSeq != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}

// gone is a store whose sessions are not there any more when they are looked at.
type gone struct{ *noName }

func (gone) Stat(context.Context, hansard.SessionID) (hansard.Info, error) {
	return hansard.Info{}, hansard.ErrNotFound
}

// TestUnreadableSince: the same if it can't even be read when the session was created.
func TestUnreadableSince(t *testing.T) {
	for what, harm := range map[string]func(log string) error{
		"header": func(log string) error {
			b, err := os.ReadFile(log)
			if err == nil {
				b[20] ^= 1
				b[40] ^= 1
				err = os.WriteFile(log, b, 0o600)
			}
			return err
		},
		"not a file": func(log string) error { return errors.Join(os.Remove(log), os.Mkdir(log, 0o700)) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			src, err := filestore.Open(dir, nil)
			must(t, err)
			say(t, src, "a", "one")
			say(t, src, "s", "one")
			say(t, src, "s", "two")
			say(t, src, "z", "one")
			must(t, src.Close())
			src, err = filestore.Open(dir, nil)
			must(t, err)
			defer src.Close()
			full, _ := save(t, src, backup.WriteOptions{})
			must(t, harm(filepath.Join(dir, "sessions", "s.jsonl")))
			more, done := increment(t, src, full)
			if done.Damaged != 1 {
				t.Errorf("written: %+v, want one damaged session", done)
			}
			dst := memstore.New()
			restoreAll(t, open(t, full, more), dst)
			info, err := dst.Stat(t.Context(), "s")
			if err != nil || info.LastSeq != 2 {
				t.Errorf("restored: %+v, %v, want the two events that the first backup has", info, err)
			}
			if n := count(t, dst); n != 3 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}
