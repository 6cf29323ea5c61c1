package filestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Damage to the journal and the control file, and how repair deals with it.

// journaled is a store whose processes were killed with entries in the ring, and what they had
// acknowledged.
type journaled struct {
	disk  *vfs.Disk
	acked map[hansard.SessionID][]string // data, in order
	last  map[hansard.SessionID]int      // how many of them are in entries before the last
	end   int64                          // of everything ever written to the ring, as an offset in the file
}

// killed makes one. With many batches the ring has been used, freed and used again.
func killed(t testing.TB, seed uint64, batches int) *journaled {
	t.Helper()
	j := &journaled{disk: vfs.NewDisk(seed), acked: map[hansard.SessionID][]string{}, last: map[hansard.SessionID]int{}}
	j.disk.OnOp(func(o vfs.Op) {
		if o.Kind == vfs.OpWrite && o.Name == journal.Name {
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
		if i%4 == 1 { // as when a server is asked whether it is ready
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

// lost reports which acknowledged events are missing or changed.
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

// TestDamagedJournal flips bytes of the slots and the ring under a store whose processes were
// killed, and truncates the file. Either everything acknowledged is there, or writes are refused
// because of the damage and the content of the logs can be read. The same after a power cut,
// except that the very last entry can't be told from one that was never completed.
func TestDamagedJournal(t *testing.T) {
	states := 0
	for seed, batches := range []int{1, 5, 12, 60} {
		j := killed(t, uint64(seed), batches)
		ring, _ := j.disk.CacheBytes(journal.Name)
		type damage struct {
			what string
			do   func(d *vfs.Disk)
		}
		var all []damage
		flip := func(at int64, mask byte) {
			all = append(all, damage{fmt.Sprintf("byte %d ^ %#x", at, mask), func(d *vfs.Disk) { d.Poke(journal.Name, at, []byte{ring[at] ^ mask}) }})
		}
		rng := rand.New(rand.NewPCG(uint64(seed), 51))
		for slot := range int64(2) {
			for at := range int64(journal.SlotUsed) {
				flip(slot*journal.SlotBytes+at, 1<<rng.IntN(8))
			}
		}
		for at := int64(journal.RingAt); at < j.end; at += 1 + rng.Int64N(1+j.end/400) {
			flip(at, 1<<rng.IntN(8))
		}
		for _, n := range []int{0, 10, journal.SlotBytes, journal.RingAt - 1, journal.RingAt, journal.RingAt + 50, int(j.end) - 1, int(j.end), len(ring) - 1} {
			all = append(all, damage{fmt.Sprintf("cut to %d bytes", n), func(d *vfs.Disk) { putFile(t, d, journal.Name, ring[:n]) }})
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

// judge opens a store with a damaged journal: it either works and has everything, or refuses
// writes and can be read.
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
	cfg.inline = false // as in programs: the first write reports the damage
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
		told = told || f.File == journal.Name && f.Level == hansard.LevelDamage
	}
	if !told {
		return fmt.Errorf("verify says nothing of the journal: %+v", all)
	}
	return j.cautious(ro, want, readable)
}

// cautious: a reader gets what the logs and the journal have, and a warning that more may be
// missing.
func (j *journaled) cautious(s *Store, want map[hansard.SessionID]int, all bool) error {
	for id, acked := range j.acked {
		i := 0
		var end error
		for e, err := range s.Read(context.Background(), id, hansard.Range{}) {
			if end = err; err != nil {
				break
			}
			if i >= len(acked) || string(e.Data) != acked[i] {
				return fmt.Errorf("session %s: event %d is not what was acknowledged", id, i+1)
			}
			i++
		}
		if all && i < want[id] {
			return fmt.Errorf("session %s has %d events, %d were acknowledged", id, i, want[id])
		}
		if !errors.Is(end, hansard.ErrDamaged) && !errors.Is(end, hansard.ErrVersion) {
			return fmt.Errorf("session %s: reading %d of %d events ends with %v, want what may be missing", id, i, len(acked), end)
		}
	}
	return nil
}

// TestDamagedControl: the control file is a hint. Deleted, empty, zeroed, random, older or newer,
// under running processes and for the next one: the outcome is the same as without it
// (invariant 11).
func TestDamagedControl(t *testing.T) {
	const seed = 61
	d := vfs.NewDisk(seed)
	var past [][]byte // earlier contents of control
	d.OnOp(func(o vfs.Op) {
		if b, ok := d.CacheBytes(peers.ControlName); ok && o.Kind == vfs.OpWrite && o.Name == peers.ControlName {
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
	random := make([]byte, 3*peers.RecordBytes)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	controls := map[string][]byte{"deleted": nil, "empty": {}, "zeroed": make([]byte, 3*peers.RecordBytes), "random": random}
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
			return p.Remove(peers.ControlName)
		}
		f, err := p.Open(peers.ControlName, vfs.Create)
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
			if i == 5 { // and another process joins
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

// TestRepairFromAside: lines that could not go to their log because it was modified from outside
// are set aside durably. The repair brings them back if they follow the safe part.
func TestRepairFromAside(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		what string
		do   func(d *vfs.Disk, log []byte) // to the log, while the entry of "three" is only in the ring
		want []string
	}{
		{"removed", func(d *vfs.Disk, _ []byte) { putFile(t, d, sessionlog.Path("s"), nil) }, []string{"one", "two", "three"}},
		{"garbage", func(d *vfs.Disk, _ []byte) { putFile(t, d, sessionlog.Path("s"), []byte("garbage\n")) }, []string{"one", "two", "three"}},
		{"emptied", func(d *vfs.Disk, _ []byte) { putFile(t, d, sessionlog.Path("s"), []byte{}) }, []string{"one", "two", "three"}},
		{"a line more", func(d *vfs.Disk, log []byte) { putFile(t, d, sessionlog.Path("s"), append(log, "more\n"...)) }, []string{"one", "two", "three"}},
		{"shorter", func(d *vfs.Disk, log []byte) {
			putFile(t, d, sessionlog.Path("s"), log[:len(log)-len(linesOf(log)[2])])
		}, []string{"one", "two", "three"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			s := openSim(t, d.Process("a"), 1)
			say(t, s, "s", nil, "one")
			say(t, s, "s", nil, "two")
			log, _ := d.CacheBytes(sessionlog.Path("s"))
			d.KillAt(vfs.Match{Kind: vfs.OpWrite, Name: sessionlog.Path("s")}, 0)
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

// TestRepairLeavesNoPart: a repair that fails, because the disk is full, leaves nothing of what it
// began to keep in evidence/: repeated, it would take the rest of the disk, and a part of a log looks
// like all of it.
func TestRepairLeavesNoPart(t *testing.T) {
	for _, at := range []vfs.Match{
		{Kind: vfs.OpWrite, Name: evidenceDir + "/*"},
		{Kind: vfs.OpSync, Name: evidenceDir + "/*"},
	} {
		d := vfs.NewDisk(1)
		s := openSim(t, d.Process("a"), 1)
		say(t, s, "s", nil, "one")
		say(t, s, "s", nil, "two")
		want(t, "checkpoint", s.checkpoints.checkpoint(true), nil)
		d.Poke(sessionlog.Path("s"), 20, []byte{'X'})
		d.Inject(at, vfs.Fault{Err: syscall.ENOSPC})
		_, err := s.Repair(context.Background(), "s")
		want(t, "repair", err, syscall.ENOSPC)
		for _, name := range d.Names() {
			if strings.HasPrefix(name, evidenceDir+"/") {
				t.Errorf("%+v: %s is left", at, name)
			}
		}
		done, err := s.Repair(context.Background(), "s")
		want(t, "repair again", err, nil)
		if !done.Changed {
			t.Errorf("%+v: it was not repaired", at)
		}
	}
}
