package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// Every way we know to damage a log is tried on a store whose content is known
// from outside. What has to be answered follows from the bytes alone: the lines
// up to the first that is not what was written are safe, and so are the whole
// batches among them. See oracle.

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

// simConfig has everything follow from the seed, in the caller's goroutine.
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

// oddData are values whose bytes are easily lost or taken for something else.
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
		w.log, _ = sm.disk.CacheBytes(logPath(encodeName(w.id)))
	}
	return sm
}

func (w *written) append(t testing.TB, s *Store, d *vfs.Disk, b hansard.Batch, title string) {
	t.Helper()
	r, err := s.Append(context.Background(), w.id, b)
	if err != nil {
		t.Fatalf("append to %s: %v", w.id, err)
	}
	for i, e := range hansard.Normalize(&b) {
		e.Seq = r.First + hansard.Seq(i)
		w.events = append(w.events, e)
		if i < len(b.Events)-1 {
			w.titles = append(w.titles, w.titles[len(w.titles)-1])
		}
	}
	w.ended(t, d, r.Last, title)
}

func (w *written) ended(t testing.TB, d *vfs.Disk, seq hansard.Seq, title string) {
	b, ok := d.CacheBytes(logPath(encodeName(w.id)))
	if !ok {
		t.Fatalf("session %s has no log", w.id)
	}
	w.ends = append(w.ends, batchEnd{int64(len(b)), seq})
	w.titles = append(w.titles, title)
}

// verdict is what a store has to say of a log.
type verdict struct {
	missing bool // ErrNotFound: the first batch is not whole
	version bool // ErrVersion
	damage  int64
	safe    hansard.Seq // last of the whole batches before the damage
	safeEnd int64
}

const sound = -1 // verdict.damage of a log without damage

// oracle compares a log with what was written. Every line carries its checksum
// and that of the line before, so the first line that is not the one that was
// written there is where the damage begins; only the beginning of a line at the
// end of the file is none: it is what a cut-off copy leaves.
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
		v.damage = 0 // nothing is on its way to it: somebody emptied it
	}
	v.version = headerVersion(log) > formatVersion && bytes.IndexByte(log, '\n') > 0
	v.missing = v.safeEnd == 0 && v.damage == sound
	return v
}

// beginsLine tells whether bytes may be the beginning of a line that is not
// complete: nobody can tell that they are not.
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
	for i := range b { // a complete line has its newline next, or nothing
		if _, _, err := checkFrame(b[:i]); err == nil {
			return false
		}
	}
	return true
}

// TestDamagedLogs damages logs in every way of the table and compares what the
// store says with the oracle.
func TestDamagedLogs(t *testing.T) {
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

// putLog replaces a session's log behind everybody's back.
func putLog(d *vfs.Disk, id hansard.SessionID, log []byte) error {
	p := d.Observer("somebody")
	f, err := p.Open(logPath(encodeName(id)), vfs.Create)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(log, 0)
	return errors.Join(err, f.Datasync(), f.Close())
}

// judge opens the store and compares what it has to say about a log with the
// verdict. All of it also examines, writes, repairs, and writes again.
func (w *written) judge(d *vfs.Disk, log []byte, v verdict, seed uint64, all bool) error {
	if !all {
		s, err := open(d.Process("reader"), Options{ReadOnly: true, LockWait: time.Hour}, simConfig(seed, simRing))
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		return errors.Join(w.wantRead(s, v), w.wantStat(s, v))
	}
	s, err := openOn(d.Process("writer"), seed, simRing)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := errors.Join(w.wantRead(s, v), w.wantStat(s, v), w.wantList(s, v), w.wantFindings(s, v, int64(len(log)))); err != nil {
		return err
	}
	if now, _ := d.CacheBytes(logPath(encodeName(w.id))); !bytes.Equal(now, log) {
		return errors.New("reading changed the log")
	}
	if err := w.wantAppend(s, d, log, v); err != nil {
		return err
	}
	if v.damage == sound || v.version {
		return nil
	}
	return w.wantRepair(s, d, log, v)
}

// wantRead: the whole batches before the damage, unchanged, and then the damage.
func (w *written) wantRead(s *Store, v verdict) error {
	var got []hansard.Event
	var end error
	for e, err := range s.Read(context.Background(), w.id, hansard.Range{}) {
		if end = err; err != nil {
			break
		}
		got = append(got, e)
	}
	if err := w.wantEvents(got, v.safe); err != nil {
		return err
	}
	return v.check("read", w.id, end)
}

func (w *written) wantEvents(got []hansard.Event, safe hansard.Seq) error {
	if len(got) != int(safe) {
		return fmt.Errorf("read gives %d events, %d are safe", len(got), safe)
	}
	for i, e := range got {
		if e.Time.IsZero() {
			return fmt.Errorf("event %d has no time", i+1)
		}
		e.Time = time.Time{}
		if !reflect.DeepEqual(e, w.events[i]) {
			return fmt.Errorf("read gives %+v, written was %+v", e, w.events[i])
		}
	}
	return nil
}

// check compares the error that ends a call with the verdict.
func (v *verdict) check(call string, id hansard.SessionID, err error) error {
	var d *hansard.DamagedError
	switch {
	case v.version:
		if !errors.Is(err, hansard.ErrVersion) {
			return fmt.Errorf("%s: %v, want ErrVersion", call, err)
		}
	case v.missing:
		if !errors.Is(err, hansard.ErrNotFound) {
			return fmt.Errorf("%s: %v, want ErrNotFound", call, err)
		}
	case v.damage == sound:
		if err != nil {
			return fmt.Errorf("%s: %v, want no error", call, err)
		}
	case !errors.As(err, &d):
		return fmt.Errorf("%s: %v, want damage at %d", call, err, v.damage)
	case d.Offset != v.damage || d.SafeSeq != v.safe || d.Session != id:
		return fmt.Errorf("%s: %v, want damage at %d and %d safe", call, err, v.damage, v.safe)
	}
	return nil
}

func (w *written) wantStat(s *Store, v verdict) error {
	info, err := s.Stat(context.Background(), w.id)
	if err == nil && (info.LastSeq != v.safe || v.safeEnd > 0 && info.Title != w.titles[v.safe]) {
		return fmt.Errorf("stat: %+v, want last seq %d and title %q", info, v.safe, w.titles[v.safe])
	}
	if err == nil && info.Damage != nil {
		err = info.Damage
	}
	return v.check("stat", w.id, err)
}

// wantList: the session is listed as what it is, and hides no other.
func (w *written) wantList(s *Store, v verdict) error {
	var ids []hansard.SessionID
	for i, err := range s.List(context.Background(), hansard.Query{}) {
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		ids = append(ids, i.ID)
		if i.ID != w.id && i.Damage != nil {
			return fmt.Errorf("list: %s is damaged too: %v", i.ID, i.Damage)
		}
		if i.ID == w.id && (i.Damaged() != (v.damage != sound || v.version) || i.LastSeq != v.safe) {
			return fmt.Errorf("list: %+v, want %d events, damage at %d", i, v.safe, v.damage)
		}
	}
	if slices.Contains(ids, w.id) == v.missing || len(ids) < 3 {
		return fmt.Errorf("list gives %v", ids)
	}
	return nil
}

// damages is the table: how a log is damaged, and which logs are.
var damages = []struct {
	name    string
	logs    []hansard.SessionID
	every   int // so many states one is examined, written to and repaired
	corrupt func(w *written, sm *sample, try func(what string, log []byte))
}{
	{"truncated", []hansard.SessionID{"small", "Mixed:1", "other", "made"}, 4, truncateEverywhere},
	{"bit", []hansard.SessionID{"small", "made"}, 8, flipEveryBit},
	{"byte", []hansard.SessionID{"Mixed:1", "other"}, 16, flipEveryByte},
	{"nul", []hansard.SessionID{"small", "Mixed:1"}, 8, nulRuns},
	{"lines", []hansard.SessionID{"small", "Mixed:1"}, 4, moveLines},
	{"spliced", []hansard.SessionID{"Mixed:1"}, 8, spliceLines},
	{"garbage", []hansard.SessionID{"small", "Mixed:1", "made"}, 1, appendGarbage},
	{"whole", []hansard.SessionID{"small", "Mixed:1", "made"}, 1, changeWhole},
}

func truncateEverywhere(w *written, _ *sample, try func(string, []byte)) {
	for n := range w.log {
		try(fmt.Sprintf("truncated to %d of %d", n, len(w.log)), w.log[:n])
	}
}

func flipEveryBit(w *written, _ *sample, try func(string, []byte)) {
	for i := range w.log {
		for bit := range 8 {
			try(fmt.Sprintf("bit %d of byte %d flipped", bit, i), changed(w.log, i, w.log[i]^1<<bit))
		}
	}
}

func flipEveryByte(w *written, _ *sample, try func(string, []byte)) {
	for i, c := range w.log {
		for _, to := range []byte{c ^ 1, c ^ 0x20, c ^ 0x80, 0, '\n', '"'} {
			try(fmt.Sprintf("byte %d became %q", i, to), changed(w.log, i, to))
		}
	}
}

func changed(log []byte, i int, c byte) []byte {
	b := bytes.Clone(log)
	b[i] = c
	return b
}

func nulRuns(w *written, _ *sample, try func(string, []byte)) {
	for _, n := range []int{1, 16, 512, 4096} {
		for at := 0; at < len(w.log); at += 7 {
			b := bytes.Clone(w.log)
			clear(b[at:min(at+n, len(b))])
			try(fmt.Sprintf("%d NULs at %d", n, at), b)
		}
		try(fmt.Sprintf("%d NULs behind the end", n), append(bytes.Clone(w.log), make([]byte, n)...))
	}
}

func linesOf(log []byte) [][]byte {
	l := bytes.SplitAfter(log, []byte("\n"))
	return l[:len(l)-1]
}

func moveLines(w *written, _ *sample, try func(string, []byte)) {
	lines := linesOf(w.log)
	join := func(parts ...[][]byte) []byte { return bytes.Join(slices.Concat(parts...), nil) }
	for i := range lines {
		for n := 1; i+n <= len(lines) && n <= 3; n++ {
			try(fmt.Sprintf("%d lines from %d removed", n, i), join(lines[:i], lines[i+n:]))
			try(fmt.Sprintf("%d lines from %d doubled", n, i), join(lines[:i+n], lines[i:]))
		}
		for j := i + 1; j < len(lines); j++ {
			swapped := slices.Clone(lines)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			try(fmt.Sprintf("lines %d and %d swapped", i, j), join(swapped))
			try(fmt.Sprintf("line %d moved behind %d", i, j), join(lines[:i], lines[i+1:j+1], lines[i:i+1], lines[j+1:]))
		}
	}
}

func spliceLines(w *written, sm *sample, try func(string, []byte)) {
	lines := linesOf(w.log)
	for _, from := range []*written{sm.logs["other"], w} {
		for i := range lines {
			for j, l := range linesOf(from.log) {
				put := slices.Insert(slices.Clone(lines), i, l)
				try(fmt.Sprintf("line %d of %s put before line %d", j, from.id, i), bytes.Join(put, nil))
				instead := slices.Clone(lines)
				instead[i] = l
				try(fmt.Sprintf("line %d of %s instead of line %d", j, from.id, i), bytes.Join(instead, nil))
			}
		}
	}
}

func appendGarbage(w *written, sm *sample, try func(string, []byte)) {
	rng := rand.New(rand.NewPCG(3, 3))
	noise := make([]byte, 300)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for _, g := range []string{"x", "\n", "\n\n", "{}", "{}\n", `{"seq":1}` + "\n", " ", "\r\n", "\x00", `{"seq":`, `{"seq":99,"time":"`,
		`{"seq":99}`, `{"hansard":1,`, "\xef\xbb\xbf", string(noise), string(noise) + "\n", `{"seq":9` + strings.Repeat("x", 9000),
		`{"seq":9` + strings.Repeat("x", 9000) + "\x00\x00"} {
		for _, e := range w.ends {
			try(fmt.Sprintf("%q behind byte %d", g[:min(len(g), 20)], e.at), append(bytes.Clone(w.log[:e.at]), g...))
		}
		try(fmt.Sprintf("%q in front", g[:min(len(g), 20)]), append([]byte(g), w.log...))
		try(fmt.Sprintf("%q instead", g[:min(len(g), 20)]), []byte(g))
	}
	try("the log behind itself", append(bytes.Clone(w.log), w.log...))
	try("another log behind it", append(bytes.Clone(w.log), sm.logs["other"].log...))
}

func changeWhole(w *written, sm *sample, try func(string, []byte)) {
	try("the log of another session", sm.logs["other"].log)
	try("the log of another session behind a line", append([]byte("x\n"), sm.logs["other"].log...))
	try("CRLF", bytes.ReplaceAll(w.log, []byte("\n"), []byte("\r\n")))
	try("CR", bytes.ReplaceAll(w.log, []byte("\n"), []byte("\r")))
	try("BOM", append([]byte("\xef\xbb\xbf"), w.log...))
	try("upper case", bytes.ToUpper(w.log))
	try("pretty", bytes.ReplaceAll(w.log, []byte(`,"`), []byte(`, "`)))
	try("version 2", bytes.Replace(w.log, []byte(`{"hansard":1`), []byte(`{"hansard":2`), 1))
	try("version 10", bytes.Replace(w.log, []byte(`{"hansard":1`), []byte(`{"hansard":10`), 1))
	try("all NUL", make([]byte, len(w.log)))
	try("a page of NUL", make([]byte, 4096))
	try("without newlines", bytes.ReplaceAll(w.log, []byte("\n"), nil))
	try("another title", bytes.Replace(w.log, []byte("new"), []byte("old"), 1))
	for _, e := range w.ends { // edited by hand, with a checksum that fits
		lines := linesOf(w.log[:e.at])
		last := lines[len(lines)-1]
		edited := appendSuffix(bytes.Replace(last[:len(last)-1-suffixWidth], []byte(`"`), []byte(`"x":1,"`), 1), 0, 1)
		try(fmt.Sprintf("line %d edited, its checksum right and its place in the chain not", len(lines)),
			append(bytes.Join(lines[:len(lines)-1], nil), edited...))
	}
}
