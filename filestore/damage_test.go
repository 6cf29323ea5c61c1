package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Every way we know to damage a log is tried on a store whose content is known from outside. The
// right answer follows from the bytes alone: the lines up to the first that is not what was
// written are safe, and so are the whole batches among them. See oracle.

// sample is a closed store on a simulated disk, and what was written to it.
type sample struct {
	disk *vfs.Disk
	logs map[hansard.SessionID]*written
}

// written is one session as its writer knows it.
type written struct {
	id     hansard.SessionID
	log    []byte
	events []hansard.Event // without times
	titles []string        // after each seq
	ends   []batchEnd
}

// batchEnd is where a whole batch ends in the log, and its last seq.
type batchEnd struct {
	at  int64
	seq hansard.Seq
}

// simConfig makes everything follow from the seed, in the caller's goroutine.
func simConfig(seed, ring uint64) config {
	rng := rand.New(rand.NewPCG(seed, 7))
	clock := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	return config{ringSize: ring, inline: true, random: rng.Uint64, now: func() time.Time {
		clock = clock.Add(time.Millisecond)
		return clock
	}}
}

// openOn opens a store on a simulated disk.
func openOn(fsys vfs.FS, seed uint64, ring uint64) (*Store, error) {
	return open(fsys, Options{LockWait: time.Hour}, simConfig(seed, ring))
}

func openSim(t testing.TB, fsys vfs.FS, seed uint64) *Store {
	t.Helper()
	s, err := openOn(fsys, seed, simRing)
	if err != nil {
		t.Fatalf("seed %d: open: %v", seed, err)
	}
	return s
}

func text(format string, args ...any) hansard.Event {
	b, _ := json.Marshal(fmt.Sprintf(format, args...)) // a string: can't fail
	return hansard.Event{Data: b}
}

// oddData are values whose bytes are easily lost or mistaken for something else.
var oddData = []string{
	"{\n  \"pretty\": [1,\r\n 2]\n}", `"caf\u00e9 ` + "\u2028 \u2029 \u0085 日本語 🙂" + `"`, `"\n{\"seq\":1,\"b\":0}\n"`,
	` {"a": 1.0e+5} `, `"tab\tquote\"back\\slash"`, `{"key":"k","seq":9,"deleted":true,"crc":"00000000"}`, `null`, "\t[]\n",
}

// makeSample writes a few sessions of every kind of line.
func makeSample(t testing.TB, seed uint64) *sample {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	sm := &sample{disk: vfs.NewDisk(seed), logs: map[hansard.SessionID]*written{}}
	s := openSim(t, sm.disk.Process("writer"), seed)
	ctx := context.Background()
	for i, id := range []hansard.SessionID{"made", "small", "Mixed:1", "other"} {
		batches := []int{0, 2, 6, 5}[i]
		w := &written{id: id}
		sm.logs[id] = w
		if _, err := s.Create(ctx, id, hansard.Meta{Title: "new", Labels: map[string]string{"l": "1"}}); err != nil {
			t.Fatal(err)
		}
		w.ended(t, sm.disk, 0, "new")
		for i := range batches {
			b := hansard.Batch{}
			for j := range 1 + i*3%5 {
				e := text("event %d.%d of %s", i, j, id)
				if (i+j)%3 == 2 {
					e.Data = json.RawMessage(oddData[rng.IntN(len(oddData))])
				}
				if j == 1 {
					e.Kind, e.Role, e.Author, e.Inbox = hansard.KindToolCall, "assistant", "anna \"x\"\n", true
				}
				b.Events = append(b.Events, e)
			}
			title := w.titles[len(w.titles)-1]
			if i%2 == 1 {
				title = fmt.Sprintf("title %d\u2028", i)
				b.Patch = &hansard.Patch{Title: &title, State: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}
			}
			if i%3 == 1 {
				b.Key = fmt.Sprintf("key %d", i)
			}
			w.append(t, s, sm.disk, b, title)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, w := range sm.logs {
		w.log, _ = sm.disk.CacheBytes(sessionlog.Path(sessionlog.EncodeName(w.id)))
	}
	return sm
}

func (w *written) append(t testing.TB, s *Store, d *vfs.Disk, b hansard.Batch, title string) {
	t.Helper()
	r, err := s.Append(context.Background(), w.id, b)
	if err != nil {
		t.Fatalf("append to %s: %v", w.id, err)
	}
	for i, e := range engine.Normalize(&b) {
		e.Seq = r.First + hansard.Seq(i)
		w.events = append(w.events, e)
		if i < len(b.Events)-1 {
			w.titles = append(w.titles, w.titles[len(w.titles)-1])
		}
	}
	w.ended(t, d, r.Last, title)
}

func (w *written) ended(t testing.TB, d *vfs.Disk, seq hansard.Seq, title string) {
	b, ok := d.CacheBytes(sessionlog.Path(sessionlog.EncodeName(w.id)))
	if !ok {
		t.Fatalf("session %s has no log", w.id)
	}
	w.ends = append(w.ends, batchEnd{int64(len(b)), seq})
	w.titles = append(w.titles, title)
}

// verdict is what a store must say about a log.
type verdict struct {
	missing bool // ErrNotFound: the first batch is not whole
	version bool // ErrVersion
	damage  int64
	safe    hansard.Seq // last of the whole batches before the damage
	safeEnd int64
}

const sound = -1 // verdict.damage of a log without damage

// oracle compares a log with what was written. Every line carries its own checksum and that of
// the line before, so the damage begins at the first line that is not the one written there. The
// one exception is an incomplete line at the end of the file: a truncated copy leaves that, and
// it is not damage.
func (w *written) oracle(log []byte) verdict {
	n := 0
	for n < len(log) && n < len(w.log) && log[n] == w.log[n] {
		n++
	}
	v := verdict{damage: sound}
	bad := int64(bytes.LastIndexByte(log[:n], '\n') + 1) // the first line that is not whole and equal
	for _, e := range w.ends {
		if e.at <= bad {
			v.safe, v.safeEnd = e.seq, e.at
		}
	}
	if n < len(log) && !beginsLine(log[bad:], bad == 0) {
		v.damage = bad
	}
	if len(log) == 0 {
		v.damage = 0 // no write to it is under way: it was emptied from outside
	}
	v.version = sessionlog.HeaderVersion(log) > 0 && sessionlog.HeaderVersion(log) != sessionlog.FormatVersion && bytes.IndexByte(log, '\n') > 0
	v.missing = v.safeEnd == 0 && v.damage == sound
	return v
}

// beginsLine reports whether the bytes may be the beginning of an incomplete line, that is,
// nothing proves that they are not.
func beginsLine(b []byte, header bool) bool {
	begin := `{"seq":`
	if header {
		begin = `{"hansard":`
	}
	if n := min(len(b), len(begin)); string(b[:n]) != begin[:n] {
		return false
	}
	if bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' }) {
		return false
	}
	for i := range b { // a complete line is followed by its newline or by nothing
		if _, _, err := sessionlog.CheckFrame(b[:i]); err == nil {
			return false
		}
	}
	return true
}

// TestSimDamagedLogs damages logs in every way of the table and compares what the
// store says with the oracle.
func TestSimDamagedLogs(t *testing.T) {
	const seed = 11
	sm := makeSample(t, seed)
	var states atomic.Int64
	t.Run("logs", func(t *testing.T) {
		for _, c := range damages {
			for _, id := range c.logs {
				t.Run(c.name+"/"+string(id), func(t *testing.T) {
					t.Parallel()
					disk := sm.disk.Clone()
					w := sm.logs[id]
					n, bad := uint64(0), 0
					c.corrupt(w, sm, func(what string, log []byte) {
						if bad > 2 || bytes.Equal(log, w.log) {
							return
						}
						n++
						d := disk.Clone()
						if err := putLog(d, id, log); err != nil {
							t.Fatal(err)
						}
						if err := w.judge(d, log, w.oracle(log), n, n%uint64(c.every) == 0); err != nil {
							bad++
							t.Errorf("seed %d: %s: %v", seed, what, err)
						}
					})
					states.Add(int64(n))
				})
			}
		}
	})
	t.Logf("%d states", states.Load())
	if n := states.Load(); n < 50_000 && !t.Failed() {
		t.Errorf("only %d states were tried", n)
	}
}

// putLog replaces a session's log without any process knowing.
func putLog(d *vfs.Disk, id hansard.SessionID, log []byte) error {
	p := d.Observer("somebody")
	f, err := p.Open(sessionlog.Path(sessionlog.EncodeName(id)), vfs.Create)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(log, 0)
	return errors.Join(err, f.Datasync(), f.Close())
}

// TestDamagedLongLog: a log too long to be checked whole on first use. Every process checks its
// end; damage in the middle is known to all once a reader or verify has found it.
func TestDamagedLongLog(t *testing.T) {
	ctx := context.Background()
	log := buildLog("long", 5, 12_000, func(i int) (hansard.Event, string) { return pad(i, 400), "" })
	if len(log) <= checkWhole {
		t.Fatalf("a log of %d bytes is checked whole", len(log))
	}
	middle := bytes.LastIndexByte(log[:len(log)/2], '\n') + 1
	flipped := changed(log, middle+100, log[middle+100]^1)
	for _, c := range []struct {
		what string
		log  []byte
		at   int
		find func(*Store) // finds the damage, where nothing else is expected to
	}{
		{"garbage behind it", append(bytes.Clone(log), "garbage"...), len(log), nil},
		{"NULs behind it", append(bytes.Clone(log), make([]byte, 5000)...), len(log), nil},
		{"an unfinished line with NULs", append(bytes.Clone(log), []byte(`{"seq":9`+strings.Repeat("x", 6000)+"\x00\x00")...), len(log), nil},
		{"the last line damaged", changed(log, len(log)-50, 'X'), bytes.LastIndexByte(log[:len(log)-1], '\n') + 1, nil},
		{"found by a reader", flipped, middle, func(s *Store) {
			for range s.Read(ctx, "long", hansard.Range{}) {
			}
		}},
		{"found by verify", flipped, middle, func(s *Store) { _, _ = findings(s, "") }},
	} {
		d := withLogs(t, 1, map[hansard.SessionID][]byte{"long": c.log})
		s, _ := opened(t, d, 1)
		if info, err := s.Stat(ctx, "long"); err != nil || c.find == nil && info.Damage == nil {
			t.Errorf("%s: stat: %+v, %v", c.what, info, err)
		}
		if c.find != nil {
			c.find(s)
		}
		later, _ := opened(t, d, 2)
		for who, s := range map[string]*Store{"who found it": s, "another process": later} {
			info, err := s.Stat(ctx, "long")
			if err != nil || info.Damage == nil || info.Damage.Offset != int64(c.at) {
				t.Errorf("%s: %s: stat: damage %v, %v, want it at %d", c.what, who, info.Damage, err, c.at)
			}
			if infos, err := listed(s, hansard.Query{}); err != nil || len(infos) != 1 || !infos[0].Damaged() {
				t.Errorf("%s: %s: list: %+v, %v, want damage", c.what, who, infos, err)
			}
			if _, err := s.Append(ctx, "long", hansard.Batch{Events: []hansard.Event{text("x")}}); !errors.Is(err, hansard.ErrDamaged) {
				t.Errorf("%s: %s: append: %v, want ErrDamaged", c.what, who, err)
			}
		}
		if now, _ := d.CacheBytes(sessionlog.Path("long")); !bytes.Equal(now, c.log) {
			t.Errorf("%s: the log was changed", c.what)
		}
		if err := s.Delete(ctx, "long", ""); err != nil {
			t.Errorf("%s: delete: %v", c.what, err)
		}
		if _, err := later.Stat(ctx, "long"); !errors.Is(err, hansard.ErrDeleted) {
			t.Errorf("%s: stat of the deleted: %v", c.what, err)
		}
	}
}

// TestDamagedOnDisk: the same on a real file system, with a few cases of each kind.
func TestDamagedOnDisk(t *testing.T) {
	sm := makeSample(t, 12)
	w := sm.logs["small"]
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	path := filepath.Join(dir, filepath.FromSlash(sessionlog.Path("small")))
	n := 0
	for _, c := range damages[:7] {
		try := 0
		c.corrupt(w, sm, func(what string, log []byte) {
			if try++; try%97 != 0 || bytes.Equal(log, w.log) {
				return
			}
			n++
			_ = os.Remove(path)
			if err := os.WriteFile(path, log, 0o600); err != nil {
				t.Fatal(err)
			}
			v := w.oracle(log)
			if err := errors.Join(w.wantRead(s, v), w.wantStat(s, v), w.wantFindings(s, v, int64(len(log)))); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if v.damage == sound || v.version {
				return
			}
			done, err := s.Repair(context.Background(), w.id)
			if err == nil {
				err = w.wantWhole(s, log, v, done)
			}
			if err != nil {
				t.Errorf("%s: repair: %+v, %v", what, done, err)
			}
			if old, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(done.Kept))); err != nil || !bytes.Equal(old, log) {
				t.Errorf("%s: repair kept %d bytes of %d, %v", what, len(old), len(log), err)
			}
			if r, err := s.Append(context.Background(), w.id, hansard.Batch{Events: []hansard.Event{text("more")}}); err != nil || r.First != done.Events+1 {
				t.Errorf("%s: append after repair: %+v, %v", what, r, err)
			}
			if err := s.checkpoints.checkpoint(true); err != nil { // the journal has none of it any more
				t.Fatal(err)
			}
		})
	}
	t.Logf("%d states", n)
}
