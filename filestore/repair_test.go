package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// The second half of TestDamagedLogs: what verify finds, that a damaged log is
// not written to, and what repair makes of it.

func findings(s *Store, id hansard.SessionID) ([]hansard.Finding, error) {
	var all []hansard.Finding
	for f, err := range s.Verify(context.Background(), id) {
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// wantFindings: verify names the place of the damage, and an unfinished end.
func (w *written) wantFindings(s *Store, v verdict, size int64) error {
	all, err := findings(s, w.id)
	if err != nil || len(all) == 0 {
		return fmt.Errorf("verify: %d findings, %v", len(all), err)
	}
	f := all[0]
	if f.Session != w.id || f.File != logPath(encodeName(w.id)) || f.Events != v.safe && !v.version {
		return fmt.Errorf("verify: %+v, want %d events", f, v.safe)
	}
	switch {
	case v.version, v.damage != sound:
		if len(all) != 1 || f.Level != hansard.LevelDamage || !v.version && f.Offset != v.damage {
			return fmt.Errorf("verify: %+v, want damage at %d", all, v.damage)
		}
		return nil
	case f.Level != hansard.LevelOK:
		return fmt.Errorf("verify: %+v, want it sound", f)
	}
	if v.safeEnd == size {
		if len(all) != 1 {
			return fmt.Errorf("verify: %+v of a sound log", all)
		}
	} else if len(all) != 2 || all[1].Level != hansard.LevelNote || all[1].Offset != v.safeEnd {
		return fmt.Errorf("verify: %+v, want a note of the unfinished end at %d", all, v.safeEnd)
	}
	return nil
}

// wantAppend: a damaged log takes no write and keeps its bytes; an unfinished
// end is set aside whole, and cut, and nothing else.
func (w *written) wantAppend(s *Store, d *vfs.Disk, log []byte, v verdict) error {
	path := logPath(encodeName(w.id))
	_, err := s.Append(context.Background(), w.id, hansard.Batch{Events: []hansard.Event{text("more")}})
	if v.version || v.missing || v.damage != sound {
		if err := v.check("append", w.id, err); err != nil {
			return err
		}
		if now, _ := d.CacheBytes(path); !bytes.Equal(now, log) {
			return fmt.Errorf("a refused append changed the log")
		}
		if !v.missing {
			return nil
		}
		// What is there is no session: one can be made in its place.
		_, err = s.Append(context.Background(), w.id, hansard.Batch{Create: true, Events: []hansard.Event{text("more")}})
	}
	if err != nil {
		return fmt.Errorf("append behind %d events: %w", v.safe, err)
	}
	now, _ := d.CacheBytes(path)
	if !bytes.HasPrefix(now, log[:v.safeEnd]) {
		return errors.New("append changed what was safe")
	}
	if err := wantKept(d, log[v.safeEnd:]); err != nil {
		return err
	}
	return w.wantMore(s, v.safe)
}

// wantKept: exactly these bytes are in evidence/.
func wantKept(d *vfs.Disk, want []byte) error {
	n := 0
	for _, name := range d.Names() {
		if !strings.HasPrefix(name, evidenceDir+"/") {
			continue
		}
		n++
		if got, _ := d.DurableBytes(name); !bytes.Equal(got, want) {
			return fmt.Errorf("%s has %d bytes, %d were to be kept", name, len(got), len(want))
		}
	}
	if n > 1 || n == 0 && len(want) > 0 {
		return fmt.Errorf("%d files in evidence for %d bytes", n, len(want))
	}
	return nil
}

// wantMore: the safe events and one more, in a log that is sound.
func (w *written) wantMore(s *Store, safe hansard.Seq) error {
	var got []hansard.Event
	for e, err := range s.Read(context.Background(), w.id, hansard.Range{}) {
		if err != nil {
			return fmt.Errorf("read after the append: %w", err)
		}
		got = append(got, e)
	}
	if n := len(got); n != int(safe)+1 || got[n-1].Seq != safe+1 || string(got[n-1].Data) != `"more"` {
		return fmt.Errorf("after the append there are %d events, want %d", n, safe+1)
	}
	if err := w.wantEvents(got[:safe], safe); err != nil {
		return err
	}
	return wantSound(s, w.id)
}

func wantSound(s *Store, id hansard.SessionID) error {
	all, err := findings(s, id)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	for _, f := range all {
		if f.Level != hansard.LevelOK {
			return fmt.Errorf("verify: %+v, want it sound", f)
		}
	}
	return nil
}

// wantRepair: the safe events are there, the old bytes are kept and survive a
// power cut, and the session goes on.
func (w *written) wantRepair(s *Store, d *vfs.Disk, log []byte, v verdict) error {
	ctx := context.Background()
	done, err := s.Repair(ctx, w.id)
	if err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	if v.safeEnd == 0 {
		if err := w.wantHeadless(s, d, log, done); err != nil {
			return fmt.Errorf("%w\n%+v", err, done)
		}
		return nil
	}
	if !done.Changed || done.Events != v.safe || done.DroppedBytes != int64(len(log))-v.safeEnd {
		return fmt.Errorf("repair: %+v, want %d events", done, v.safe)
	}
	cut := d.Clone()
	cut.PowerCut(vfs.Cut{})
	for _, disk := range []*vfs.Disk{d, cut} {
		if old, _ := disk.CacheBytes(done.Kept); !bytes.Equal(old, log) {
			return fmt.Errorf("repair kept %d bytes in %q, want %d", len(old), done.Kept, len(log))
		}
	}
	if err := wantSound(s, w.id); err != nil {
		return fmt.Errorf("after repair: %w", err)
	}
	again, err := s.Repair(ctx, w.id)
	if err != nil || again.Changed || again.Events != v.safe {
		return fmt.Errorf("second repair: %+v, %v", again, err)
	}
	r, err := s.Append(ctx, w.id, hansard.Batch{Events: []hansard.Event{text("more")}})
	if err != nil || r.First != v.safe+1 {
		return fmt.Errorf("append after repair: %+v, %v", r, err)
	}
	if err := w.wantMore(s, v.safe); err != nil {
		return fmt.Errorf("after repair: %w", err)
	}
	info, err := s.Stat(ctx, w.id)
	if err != nil || info.Damaged() || info.LastSeq != v.safe+1 || v.safeEnd > 0 && info.Title != w.titles[v.safe] {
		return fmt.Errorf("stat after repair: %+v, %v", info, err)
	}
	return nil
}

// journaled is a store whose processes were killed with entries in the ring,
// and what they had acknowledged.
type journaled struct {
	disk  *vfs.Disk
	acked map[hansard.SessionID][]string // data, in order
	last  map[hansard.SessionID]int      // how many of them are in entries before the last
	end   int64                          // of what was ever written to the ring, in the file
}

// killed makes one; of many batches the ring was used, freed and used again.
func killed(t testing.TB, seed uint64, batches int) *journaled {
	t.Helper()
	j := &journaled{disk: vfs.NewDisk(seed), acked: map[hansard.SessionID][]string{}, last: map[hansard.SessionID]int{}}
	j.disk.OnOp(func(o vfs.Op) {
		if o.Kind == vfs.OpWrite && o.Name == journalName {
			j.end = max(j.end, o.Off+int64(o.Len))
		}
	})
	s := openSim(t, j.disk.Process("old"), seed)
	_ = s.Close() // so that there is a journal, left clean
	j.end = 0
	p := j.disk.Process("writer")
	s = openSim(t, p, seed+1)
	for i := range batches {
		id := hansard.SessionID(fmt.Sprint("s", i%3))
		j.last[id] = len(j.acked[id])
		b := hansard.Batch{Create: true}
		for k := range 1 + i%2 {
			e := text("%d.%d %s", i, k, strings.Repeat("x", i*7%90))
			b.Events = append(b.Events, e)
			j.acked[id] = append(j.acked[id], string(e.Data))
		}
		if _, err := s.Append(context.Background(), id, b); err != nil {
			t.Fatal(err)
		}
		if i%4 == 1 { // a server is asked whether it is ready
			if err := s.Probe(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if i < batches-1 {
			for id := range j.acked {
				j.last[id] = len(j.acked[id])
			}
		}
	}
	p.Kill()
	return j
}

// lost tells what of the acknowledged is not there, or not what it was.
func (j *journaled) lost(s *Store, want map[hansard.SessionID]int) error {
	for id, acked := range j.acked {
		i := 0
		for e, err := range s.Read(context.Background(), id, hansard.Range{}) {
			if errors.Is(err, hansard.ErrNotFound) && want[id] == 0 {
				break
			}
			if err != nil {
				return err
			}
			if i >= len(acked) || string(e.Data) != acked[i] {
				return fmt.Errorf("session %s: event %d is not what was acknowledged", id, i+1)
			}
			i++
		}
		if i < want[id] {
			return fmt.Errorf("session %s has %d events, %d were acknowledged", id, i, want[id])
		}
	}
	return nil
}

func (j *journaled) all() map[hansard.SessionID]int {
	n := map[hansard.SessionID]int{}
	for id, acked := range j.acked {
		n[id] = len(acked)
	}
	return n
}

// TestDamagedJournal flips bytes of the slots and of the ring under a store
// whose processes were killed, and cuts the file. Either everything that was
// acknowledged is there, or writes are refused for the damage and what the logs
// have can be read. After a power cut, too: only the last entry of all can't be
// told from one that was never finished.
func TestDamagedJournal(t *testing.T) {
	states := 0
	for seed, batches := range []int{1, 5, 12, 60} {
		j := killed(t, uint64(seed), batches)
		ring, _ := j.disk.CacheBytes(journalName)
		type damage struct {
			what string
			do   func(d *vfs.Disk)
		}
		var all []damage
		flip := func(at int64, mask byte) {
			all = append(all, damage{fmt.Sprintf("byte %d ^ %#x", at, mask), func(d *vfs.Disk) { d.Poke(journalName, at, []byte{ring[at] ^ mask}) }})
		}
		rng := rand.New(rand.NewPCG(uint64(seed), 51))
		for slot := range int64(2) {
			for at := range int64(slotUsed) {
				flip(slot*slotBytes+at, 1<<rng.IntN(8))
			}
		}
		for at := int64(ringAt); at < j.end; at += 1 + rng.Int64N(1+j.end/400) {
			flip(at, 1<<rng.IntN(8))
		}
		for _, n := range []int{0, 10, slotBytes, ringAt - 1, ringAt, ringAt + 50, int(j.end) - 1, int(j.end), len(ring) - 1} {
			all = append(all, damage{fmt.Sprintf("cut to %d bytes", n), func(d *vfs.Disk) { putFile(t, d, journalName, ring[:n]) }})
		}
		for _, power := range []bool{false, true} {
			bad := 0
			for _, dam := range all {
				states++
				d := j.disk.Clone()
				want := j.all()
				if power {
					d.PowerCut(vfs.Cut{})
					want = j.last
				}
				dam.do(d)
				if err := j.judge(d, want, !power); err != nil {
					t.Errorf("seed %d: %d batches, power cut %v, %s: %v", seed, batches, power, dam.what, err)
					if bad++; bad > 3 {
						break
					}
				}
			}
		}
	}
	t.Logf("%d states", states)
}

// judge opens a store with a damaged journal: it works and has everything, or
// it refuses writes and can be read.
func (j *journaled) judge(d *vfs.Disk, want map[hansard.SessionID]int, readable bool) error {
	s, err := openOn(d.Process("next"), 77, simRing)
	if err == nil {
		if err := j.lost(s, want); err != nil {
			return err
		}
		_, err = s.Append(context.Background(), "s0", hansard.Batch{Create: true, Events: []hansard.Event{text("more")}})
		return err
	}
	if !errors.Is(err, hansard.ErrDamaged) && !errors.Is(err, hansard.ErrVersion) || !strings.Contains(err.Error(), "journal") {
		return fmt.Errorf("open: %w, want an error that tells of the journal's damage", err)
	}
	cfg := simConfig(78, simRing)
	cfg.inline = false // as programs do: what is wrong is told by the first write
	ro, err := open(d.Process("reader"), Options{ReadOnly: true, LockWait: time.Hour}, cfg)
	if err != nil {
		return fmt.Errorf("open to read: %w", err)
	}
	all, err := findings(ro, "")
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	told := false
	for _, f := range all {
		told = told || f.File == journalName && f.Level == hansard.LevelDamage
	}
	if !told {
		return fmt.Errorf("verify says nothing of the journal: %+v", all)
	}
	if readable {
		return j.lost(ro, want)
	}
	return nil
}

// TestDamagedControl: the control file is a hint. Deleted, empty, zeroed,
// random, older or newer, under processes that live and for the next one: all is
// as it would be without it (invariant 11).
func TestDamagedControl(t *testing.T) {
	const seed = 61
	d := vfs.NewDisk(seed)
	var past [][]byte // what control was at some time
	d.OnOp(func(o vfs.Op) {
		if b, ok := d.CacheBytes(controlName); ok && o.Kind == vfs.OpWrite && o.Name == controlName {
			past = append(past, b)
		}
	})
	j := &journaled{disk: d, acked: map[hansard.SessionID][]string{}}
	p1 := d.Process("p1")
	s1 := openSim(t, p1, seed)
	add := func(s *Store, i int) error {
		e := text("%d %s", i, strings.Repeat("y", i*13%200))
		r, err := s.Append(context.Background(), "s", hansard.Batch{Create: true, Events: []hansard.Event{e}})
		if err != nil {
			return err
		}
		if int(r.First) != len(j.acked["s"])+1 {
			return fmt.Errorf("append %d got seq %d", i, r.First)
		}
		j.acked["s"] = append(j.acked["s"], string(e.Data))
		return nil
	}
	for i := range 40 { // some laps of the ring
		if err := add(s1, i); err != nil {
			t.Fatal(err)
		}
	}
	random := make([]byte, 3*recordBytes)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	controls := map[string][]byte{"deleted": nil, "empty": {}, "zeroed": make([]byte, 3*recordBytes), "random": random}
	for i := range past {
		controls[fmt.Sprintf("as it was after write %d of %d", i+1, len(past))] = past[i]
	}
	base, before := d.Clone(), len(j.acked["s"])
	for what, b := range controls {
		for _, live := range []bool{false, true} {
			j.disk, j.acked["s"] = base.Clone(), j.acked["s"][:before]
			if err := j.controlled(b, live, add); err != nil {
				t.Errorf("seed %d: control %s, live %v: %v", seed, what, live, err)
			}
		}
	}
}

// controlled goes on with another control file, then cuts the power.
func (j *journaled) controlled(control []byte, live bool, add func(*Store, int) error) error {
	d := j.disk
	replace := func() error {
		p := d.Observer("somebody")
		if control == nil {
			return p.Remove(controlName)
		}
		f, err := p.Open(controlName, vfs.Create)
		if err != nil {
			return err
		}
		_, werr := f.WriteAt(control, 0)
		return errors.Join(f.Truncate(int64(len(control))), werr, f.Close())
	}
	var stores []*Store
	if !live {
		if err := replace(); err != nil {
			return err
		}
	}
	for i := range 2 {
		s, err := openOn(d.Process(fmt.Sprint("p", i)), uint64(62+i), simRing)
		if err != nil {
			return err
		}
		stores = append(stores, s)
	}
	for i := range 12 {
		if live && i%4 == 1 {
			if err := replace(); err != nil {
				return err
			}
			if i == 5 { // and somebody joins
				s, err := openOn(d.Process("late"), 70, simRing)
				if err != nil {
					return fmt.Errorf("open: %w", err)
				}
				stores = append(stores, s)
			}
		}
		if err := add(stores[i%len(stores)], 100+i); err != nil {
			return err
		}
	}
	d.PowerCut(vfs.Cut{})
	s, err := openOn(d.Process("after"), 71, simRing)
	if err != nil {
		return fmt.Errorf("open after the power cut: %w", err)
	}
	return errors.Join(j.lost(s, j.all()), wantSound(s, "s"))
}

// TestRepairFromAside: what could not go to its log because somebody changed it
// is set aside, durable, and comes back with the repair where it follows what is
// safe.
func TestRepairFromAside(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		what string
		do   func(d *vfs.Disk, log []byte) // to the log, while the entry of "three" is only in the ring
		want []string
	}{
		{"removed", func(d *vfs.Disk, _ []byte) { putFile(t, d, logPath("s"), nil) }, []string{"one", "two", "three"}},
		{"garbage", func(d *vfs.Disk, _ []byte) { putFile(t, d, logPath("s"), []byte("garbage\n")) }, []string{"one", "two", "three"}},
		{"emptied", func(d *vfs.Disk, _ []byte) { putFile(t, d, logPath("s"), []byte{}) }, []string{"one", "two", "three"}},
		{"a line more", func(d *vfs.Disk, log []byte) { putFile(t, d, logPath("s"), append(log, "more\n"...)) }, []string{"one", "two", "three"}},
		{"shorter", func(d *vfs.Disk, log []byte) {
			putFile(t, d, logPath("s"), log[:len(log)-len(linesOf(log)[2])])
		}, []string{"one", "two", "three"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			s := openSim(t, d.Process("a"), 1)
			say(t, s, "s", nil, "one")
			say(t, s, "s", nil, "two")
			log, _ := d.CacheBytes(logPath("s"))
			d.KillAt(vfs.Match{Kind: vfs.OpWrite, Name: logPath("s")}, 0)
			say(t, s, "s", errAny, "three")
			d.ClearRules()
			c.do(d, log)
			b := openSim(t, d.Process("b"), 2)
			if info, err := b.Stat(ctx, "s"); err != nil || info.Damage != nil { // else the ring had all of it
				say(t, b, "s", hansard.ErrDamaged, "four")
				if _, err := b.Repair(ctx, "s"); err != nil {
					t.Errorf("repair: %v", err)
				}
			}
			hears(t, b, "s", c.want...)
			say(t, b, "s", nil, "four")
			d.PowerCut(vfs.Cut{})
			hears(t, openSim(t, d.Process("c"), 3), "s", append(c.want, "four")...)
		})
	}
}

// TestDamagedLongLog: a log too long to be checked whole at first touch. Its end
// is looked at by everybody; damage in the middle is known to all as soon as a
// reader or verify found it.
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
		find func(*Store) // finds it, where nobody is asked to know before
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
			if err := s.Delete(ctx, "long", ""); !errors.Is(err, hansard.ErrDamaged) {
				t.Errorf("%s: %s: delete: %v, want ErrDamaged", c.what, who, err)
			}
		}
		if now, _ := d.CacheBytes(logPath("long")); !bytes.Equal(now, c.log) {
			t.Errorf("%s: the log was changed", c.what)
		}
	}
}

// TestDamagedOnDisk: the same on a real file system, a few of each kind.
func TestDamagedOnDisk(t *testing.T) {
	sm := makeSample(t, 12)
	w := sm.logs["small"]
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	path := filepath.Join(dir, filepath.FromSlash(logPath("small")))
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
			if err != nil || v.safeEnd > 0 && done.Events != v.safe {
				t.Errorf("%s: repair: %+v, %v", what, done, err)
			}
			if v.safeEnd == 0 {
				if n, err := w.lostOrWritten(s, done.Lost); err != nil || n != done.Events {
					t.Errorf("%s: %d events after %+v, %v", what, n, done, err)
				}
				v.safe = done.Events
			}
			if old, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(done.Kept))); err != nil || !bytes.Equal(old, log) {
				t.Errorf("%s: repair kept %d bytes of %d, %v", what, len(old), len(log), err)
			}
			if _, err := s.Append(context.Background(), w.id, hansard.Batch{Events: []hansard.Event{text("more")}}); err != nil {
				t.Errorf("%s: append after repair: %v", what, err)
			} else if err := w.wantMore(s, v.safe); err != nil && done.Lost == 0 {
				t.Errorf("%s: %v", what, err)
			}
			if err := s.checkpoint(true); err != nil { // nothing of it is left in the journal
				t.Fatal(err)
			}
		})
	}
	t.Logf("%d states", n)
}
