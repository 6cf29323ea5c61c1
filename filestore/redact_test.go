package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// redactTold redacts some of what tell has stored: an event with a key, and the one with an id
// and an attachment.
func redactTold(s *Store) error {
	_, err := s.Redact(context.Background(), "s", hansard.Redaction{Seqs: []hansard.Seq{2, 6}, Reason: "told"})
	return err
}

// redactedWords are the texts that must be gone then, including checksums, hashes and digests,
// which it takes from the log.
func redactedWords(t *testing.T, d *vfs.Disk) []string {
	t.Helper()
	log, _ := d.CacheBytes(sessionlog.Path("s"))
	words := []string{`"secret 1"`, "secret event with an attachment", "secret attachment"}
	lines := strings.Split(string(log), "\n")
	for _, i := range []int{2, 6} {
		l, err := sessionlog.Decode([]byte(lines[i]))
		if err != nil {
			t.Fatal(err)
		}
		words = append(words, fmt.Sprintf("%08x", l.CRC))
		if l.Hash != "" {
			words = append(words, l.Hash)
		}
		for _, a := range l.Attachments {
			words = append(words, strings.TrimPrefix(a.Digest, hansard.DigestPrefix))
		}
	}
	return words
}

// TestRedactLeavesNothing: redacted content is in no file but the journal, whichever processes
// had the session open, and after prune --scrub not in the journal either. Everything else is
// unchanged.
func TestRedactLeavesNothing(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b, c := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2), openSim(t, d.Process("c"), 3)
	want(t, "tell", tell(a), nil)
	putEvidence(t, d, "s.repaired.0123456789abcdef", "secret event with an attachment")
	putEvidence(t, d, "s.5.repaired.0123456789abcdef", "of another session")
	somebody := d.Observer("somebody")
	want(t, "mkdir", errors.Join(somebody.Mkdir(cache.Dir), somebody.Mkdir(cache.KeysDir)), nil)
	putFile(t, d, "cache/keys/s.0000000000000000", []byte("secret attachment"))
	for _, s := range []*Store{b, c} {
		say(t, s, "s", nil, "beside")
	}
	words := redactedWords(t, d)
	if wantErased(d, words[len(words)-1]) == nil || len(words) < 7 {
		t.Fatalf("the test does not find what is there: %q", words)
	}
	want(t, "redact", redactTold(b), nil)
	if err := wantErased(d, words...); err != nil {
		t.Error(err)
	}
	if left := notes(d); len(left) > 0 {
		t.Errorf("noted are still %q", left)
	}
	if _, ok := d.CacheBytes("evidence/s.5.repaired.0123456789abcdef"); !ok {
		t.Error("evidence of another session is gone")
	}
	for i, s := range []*Store{a, b, c} {
		hears(t, s, "s", "secret 0", "null", "secret 2", "secret 3", "secret 4", "null", "beside", "beside", `{"seqs":[2,6],"reason":"told"}`)
		if err := wantSound(s, "s"); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	for _, s := range []*Store{c, a} { // they had the old log open
		say(t, s, "s", nil, "on")
		r, err := s.Append(ctx, "s", hansard.Batch{Key: "secret key 1", Events: []hansard.Event{text("anything")}})
		if err != nil || !r.Replayed || r.First != 2 {
			t.Errorf("the key of a redacted event: %+v, %v", r, err)
		}
	}
	if _, err := a.Prune(ctx, true); err != nil {
		t.Fatal(err)
	}
	for _, word := range words {
		if err := wantScrubbed(d, word); err != nil {
			t.Error(err)
		}
	}
	d.PowerCut(vfs.Cut{})
	after := openSim(t, d.Process("d"), 4)
	hears(t, after, "s", "secret 0", "null", "secret 2", "secret 3", "secret 4", "null", "beside", "beside", `{"seqs":[2,6],"reason":"told"}`, "on", "on")
	for _, word := range words {
		if err := wantScrubbed(d, word); err != nil {
			t.Errorf("after a power cut: %v", err)
		}
	}
}

// TestRedactKeepsPlaces: every line keeps its offset and length, so that offsets stay valid.
func TestRedactKeepsPlaces(t *testing.T) {
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	was, _ := d.CacheBytes(sessionlog.Path("s"))
	want(t, "redact", redactTold(a), nil)
	is, _ := d.CacheBytes(sessionlog.Path("s"))
	before, after := bytes.SplitAfter(was, []byte("\n")), bytes.SplitAfter(is, []byte("\n"))
	for i := range before[:len(before)-1] {
		if len(before[i]) != len(after[i]) {
			t.Errorf("line %d has %d bytes, it had %d", i, len(after[i]), len(before[i]))
		}
	}
	if !bytes.Equal(before[0], after[0]) || !bytes.Equal(before[1], after[1]) || bytes.Equal(before[3], after[3]) {
		t.Error("the checksums change from the first redacted line on, and not before it")
	}
	info, err := a.Stat(context.Background(), "s")
	if err != nil || string(info.State) != `{"secret":1}` {
		t.Errorf("described as %+v, %v", info, err)
	}
}

// TestRedactFinished: if a process dies after the record was stored, the next checkpoint
// completes the redaction, also one by a process that was already running.
func TestRedactFinished(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	want(t, "tell", tell(a), nil)
	words := redactedWords(t, d)
	d.KillAt(vfs.Match{Proc: "b", Kind: vfs.OpRename}, 0)
	want(t, "redact", redactTold(b), vfs.ErrCrashed)
	d.ClearRules()
	if err := wantErased(d, words[0]); err == nil {
		t.Fatal("it was finished")
	}
	all, err := findings(a, "s")
	if err != nil || !slices.ContainsFunc(all, func(f hansard.Finding) bool {
		return f.Level == hansard.LevelNote && strings.Contains(f.Message, "not finished")
	}) {
		t.Errorf("verify says %+v, %v", all, err)
	}
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	if err := errors.Join(wantErased(d, words...), wantSound(a, "s")); err != nil {
		t.Error(err)
	}
	// Asking again completes it as well, and stores nothing new.
	d = vfs.NewDisk(2)
	a, b = openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	want(t, "tell", tell(a), nil)
	d.KillAt(vfs.Match{Proc: "b", Kind: vfs.OpRename}, 0)
	want(t, "redact", redactTold(b), vfs.ErrCrashed)
	d.ClearRules()
	r, err := a.Redact(context.Background(), "s", hansard.Redaction{Seqs: []hansard.Seq{2, 6}})
	if err != nil || !r.Replayed {
		t.Errorf("again: %+v, %v", r, err)
	}
	if err := errors.Join(wantErased(d, words...), wantSound(a, "s")); err != nil {
		t.Error(err)
	}
}

// TestRedactBesideABusyWriter: a redaction succeeds although the ring always has entries for the
// session, durable or not; the last attempt empties the ring.
func TestRedactBesideABusyWriter(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	want(t, "tell", tell(a), nil)
	words := redactedWords(t, d)
	// Whenever b finishes a checkpoint, a has written again.
	n, busy := 0, false
	d.OnOp(func(op vfs.Op) {
		if op.Proc == "b" && op.Kind == vfs.OpUnlock && op.Name == "write.lock" && !busy {
			busy = true
			defer func() { busy = false }()
			if _, err := a.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("busy %d", n)}}); err != nil {
				t.Errorf("append: %v", err)
			}
			n++
		}
	})
	want(t, "redact", redactTold(b), nil)
	busy = true
	if err := errors.Join(wantErased(d, words...), wantSound(a, "s"), wantSound(b, "s")); err != nil {
		t.Error(err)
	}
	if n < takeAwayTries {
		t.Errorf("the writer was not busy: %d appends", n)
	}
	heard := 0
	for e, err := range b.Read(ctx, "s", hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(e.Data), `"busy`) {
			heard++
		}
	}
	if heard != n {
		t.Errorf("%d of %d appends are there", heard, n)
	}
	d.PowerCut(vfs.Cut{})
	c := openSim(t, d.Process("c"), 3)
	if err := errors.Join(wantErased(d, words...), wantSound(c, "s")); err != nil {
		t.Error(err)
	}
}

// TestRedactOlderJournal: a journal older than the logs, as in a backup of a store in use, does
// not bring back redacted content, and is not reported as damage.
func TestRedactOlderJournal(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	words := redactedWords(t, d)
	older, _ := d.CacheBytes(journal.Name)
	want(t, "redact", redactTold(a), nil)
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	d.PowerCut(vfs.Cut{})
	putFile(t, d, journal.Name, nil)
	putFile(t, d, journal.Name, older)
	heard := []string{"secret 0", "null", "secret 2", "secret 3", "secret 4", "null", `{"seqs":[2,6],"reason":"told"}`}
	mayOnlyRead(d, "r")
	r, err := open(d.Process("r"), Options{ReadOnly: true}, simConfig(5, simRing))
	want(t, "open to read", err, nil)
	hears(t, r, "s", heard...)
	if err := wantSound(r, "s"); err != nil {
		t.Error(err)
	}
	d.ClearRules()
	b := openSim(t, d.Process("b"), 2)
	hears(t, b, "s", heard...)
	if err := errors.Join(wantSound(b, "s"), wantErased(d, words...)); err != nil {
		t.Error(err)
	}
	if _, err := b.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("on")}}); err != nil {
		t.Error(err)
	}
}

// TestRedactRefusedWhereDamaged: a log that is damaged or has lines set aside is not rewritten: a
// line with a wrong checksum must not get a right one.
func TestRedactRefusedWhereDamaged(t *testing.T) {
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	log, _ := d.CacheBytes(sessionlog.Path("s"))
	at := bytes.Index(log, []byte("secret 3"))
	d.Poke(sessionlog.Path("s"), int64(at), []byte("S"))
	b := openSim(t, d.Process("b"), 2)
	want(t, "redact a damaged session", redactTold(b), hansard.ErrDamaged)
	// Damage that nobody has noticed yet, after the record.
	d = vfs.NewDisk(2)
	a = openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	_, err := a.committer.carryOut(context.Background(), newRedaction("s", &hansard.Redaction{Seqs: []hansard.Seq{2}}))
	want(t, "record", err, nil)
	want(t, "free the ring", a.checkpoints.freeRing(true), nil)
	d.Poke(sessionlog.Path("s"), int64(at), []byte("S"))
	damaged, _ := d.CacheBytes(sessionlog.Path("s"))
	want(t, "take away", a.checkpoints.takeAway(context.Background(), "s"), hansard.ErrDamaged)
	if now, _ := d.CacheBytes(sessionlog.Path("s")); !bytes.Equal(now, damaged) {
		t.Error("a damaged log was rewritten")
	}
	if left := notes(d); len(left) != 1 {
		t.Errorf("noted are %q: it is to be finished when the log is repaired", left)
	}
	if _, err := a.Repair(context.Background(), "s"); err != nil {
		t.Fatal(err)
	}
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	if err := errors.Join(wantErased(d, `"secret 1"`), wantSound(a, "s")); err != nil {
		t.Error(err)
	}
}

// TestRedactMended: a record that could not be written to its log and was set aside is put in
// place later, and then the content is removed.
func TestRedactMended(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	words := redactedWords(t, d)
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: sessionlog.Path("s")}, vfs.Fault{Err: syscall.EIO, Always: true})
	want(t, "redact", redactTold(a), hansard.ErrUnknown)
	for range 3 {
		_, _ = a.Append(ctx, "other", hansard.Batch{Events: []hansard.Event{text("more")}}) // tries to apply it
	}
	if left := setAsideOf(a, "s"); len(left) == 0 {
		t.Fatal("nothing was set aside")
	}
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	d.ClearRules()
	a.checkpoints.mendAll()
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	if err := errors.Join(wantErased(d, words...), wantSound(a, "s")); err != nil {
		t.Error(err)
	}
}

// TestRedactBesideReaders: a reader that has begun goes on reading the session as it was; one
// that looks things up in the old log does not report damage.
func TestRedactBesideReaders(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	want(t, "tell", tell(a), nil)
	for _, reverse := range []bool{false, true} {
		seq := hansard.Seq(1)
		if reverse {
			seq = 3
		}
		n := 0
		for e, err := range b.Read(ctx, "s", hansard.Range{Reverse: reverse, Before: 7}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 1 {
				if _, err := a.Redact(ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{seq, seq + 1}}); err != nil {
					t.Fatal(err)
				}
				say(t, b, "s", nil, "on") // opens the new log, and compares
			}
			_ = e
		}
		if n != 6 {
			t.Errorf("%d events", n)
		}
		for _, s := range []*Store{a, b} {
			if err := wantSound(s, "s"); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestRedactedIsClosed: no process keeps the old log open.
func TestRedactedIsClosed(t *testing.T) {
	dir := t.TempDir()
	var stores []*Store
	for range 3 {
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores = append(stores, s)
		_, err = s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{text("secret")}})
		want(t, "append", err, nil)
	}
	if _, err := stores[0].Redact(t.Context(), "s", hansard.Redaction{Seqs: []hansard.Seq{1, 2, 3}}); err != nil {
		t.Fatal(err)
	}
	if err := inFiles(dir, "secret", journal.Name); err != nil {
		t.Error(err)
	}
	for _, s := range stores[1:] {
		want(t, "checkpoint", s.checkpoints.checkpoint(true), nil) // as the background does
		want(t, "close what was replaced", s.checkpoints.closeRedacted(), nil)
	}
	for i, s := range stores {
		s.lock.mu.Lock()
		if sess := s.lock.state.logs.sessions["s"]; sess != nil && sess.f != nil && !s.sameFile(sessionlog.Path("s"), sess.inode) {
			t.Errorf("process %d keeps the old log open", i)
		}
		s.lock.mu.Unlock()
	}
	// A process that opened the old log again, between the record and the new log.
	s := stores[1]
	say(t, s, "s", nil, "again")
	if _, err := stores[2].Redact(t.Context(), "s", hansard.Redaction{Seqs: []hansard.Seq{5}}); err != nil {
		t.Fatal(err)
	}
	want(t, "checkpoint", s.checkpoints.freeRing(true), nil)
	want(t, "close what was replaced", s.checkpoints.closeRedacted(), nil)
	s.lock.mu.Lock()
	defer s.lock.mu.Unlock()
	if sess := s.lock.state.logs.sessions["s"]; sess != nil && sess.f != nil && !s.sameFile(sessionlog.Path("s"), sess.inode) {
		t.Error("the old log is still open")
	}
	if len(s.lock.state.logs.redacted) > 0 {
		t.Error("what was replaced is remembered for ever")
	}
}

// inFiles returns an error if a word is in a file below a directory, except for one file.
func inFiles(dir, word, but string) error {
	return filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == but {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte(word)) {
			err = fmt.Errorf("%s has %q", path, word)
		}
		return err
	})
}

// TestRedactedBehindAnother: a process that has not looked for a while finds that others have
// applied entries, freed them and then replaced the log. What it knew of the old log does not
// make the new one damaged.
func TestRedactedBehindAnother(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b, c := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2), openSim(t, d.Process("c"), 3)
	want(t, "tell", tell(a), nil)
	inRing := func(s *Store, r *request) *group { // and not durable, so not in the log
		r.done = make(chan struct{}, 1)
		s.committer.queue.waiting = append(s.committer.queue.waiting, r)
		r.prepared.last = true
		return s.committer.writeGroup()
	}
	record := newRedaction("s", &hansard.Redaction{Seqs: []hansard.Seq{2, 6}})
	g := inRing(c, record)
	l, err := b.lock.lockCaughtUp() // b knows that it is in flight
	want(t, "lock", err, nil)
	l.unlock()
	c.committer.finishGroup(g)
	want(t, "record", record.err, nil)
	want(t, "take away", c.checkpoints.takeAway(ctx, "s"), nil)
	more := newAppend("s", &hansard.Batch{Events: []hansard.Event{text("in the ring")}})
	h := inRing(c, more)
	l, err = b.lock.lockCaughtUp()
	want(t, "lock", err, nil)
	sess, err := l.lookup("s", "s")
	if err != nil || sess.damage != nil {
		t.Errorf("b finds %v, %v", sess.damage, err)
	}
	l.unlock()
	for _, err := range b.Read(ctx, "s", hansard.Range{}) {
		if err != nil {
			t.Errorf("b reads: %v", err)
		}
	}
	c.committer.finishGroup(h)
	want(t, "the append", more.err, nil)
}
