package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// The journal is damaged in every way we know, and repaired; then what callers had been told is
// compared with what is there. Two worlds: in one the processes were killed (the logs have
// everything acknowledged), in the other the power was cut (much of it is only in the journal).

// joined is a store as programs get it: it opens whatever is wrong with the journal.
func joined(fsys vfs.FS, seed uint64) (*Store, error) {
	cfg := simConfig(seed, simRing)
	cfg.anyway = true
	s, err := open(fsys, Options{LockWait: time.Hour}, cfg)
	if err != nil {
		return nil, err
	}
	return s, s.takePartOnce()
}

// entriesOf returns the entries of a sound journal, from its start.
func entriesOf(t testing.TB, file []byte) []journal.Fragment {
	t.Helper()
	d := vfs.NewDisk(1)
	putFile(t, d, journal.Name, file)
	f, err := d.Process("look").Open(journal.Name, vfs.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	slots, valid, best, err := journal.ReadSlots(f)
	if err != nil || best < 0 {
		t.Fatalf("slots of a sound journal: %d, %v", best, err)
	}
	v := journal.ReadSalvage(file, slots, valid, best, simRing, sessionlog.IsName)
	if v.Unreadable > 0 {
		t.Fatalf("%d bytes of a sound journal are unreadable", v.Unreadable)
	}
	return v.Found
}

// harm is one way to damage a journal.
type harm struct {
	what string
	hit  []int // the entries that were changed; nil: not known
	do   func(b []byte) []byte
}

func zeroed(from, to int) func([]byte) []byte {
	return func(b []byte) []byte { clear(b[min(from, len(b)):min(to, len(b))]); return b }
}

// harms makes the ways to damage a journal with these entries.
func harms(found []journal.Fragment, size int, rng *rand.Rand) (all []harm) {
	add := func(hit []int, do func([]byte) []byte, format string, args ...any) {
		all = append(all, harm{fmt.Sprintf(format, args...), hit, do})
	}
	flip := func(at int) func([]byte) []byte {
		mask := byte(1) << rng.IntN(8)
		return func(b []byte) []byte { b[at] ^= mask; return b }
	}
	begin := func(i int) int { return journal.RingAt + found[i].At }
	end := func(i int) int { return journal.RingAt + found[i].At + int(found[i].Length()) }
	for i := range found {
		for at := 0; at < journal.EntryHeader; at += 2 { // every field
			add([]int{i}, flip(begin(i)+at), "byte %d of the header of entry %d flipped", at, i)
		}
		payload := begin(i) + journal.EntryHeader
		add([]int{i}, flip(payload), "name of entry %d flipped", i)
		for range 3 {
			add([]int{i}, flip(payload+rng.IntN(int(found[i].Size))), "payload of entry %d flipped", i)
		}
		add([]int{i}, zeroed(begin(i), end(i)), "entry %d zeroed", i)
		add([]int{i}, zeroed(begin(i), begin(i)+journal.EntryHeader), "header of entry %d zeroed", i)
		add([]int{i}, zeroed(payload, end(i)), "payload of entry %d zeroed", i)
		if i+1 < len(found) && found[i+1].At > found[i].At {
			add([]int{i, i + 1}, zeroed(begin(i), end(i+1)), "entries %d and %d zeroed", i, i+1)
			mask := flip(payload + 1)
			add([]int{i, i + 1}, func(b []byte) []byte { return mask(flip(begin(i + 1))(b)) }, "entries %d and %d flipped", i, i+1)
		}
		add(nil, func(b []byte) []byte { return zeroed(begin(i), end(i))(zeroed(0, journal.RingAt)(b)) }, "slots and entry %d zeroed", i)
		add(nil, func(b []byte) []byte { return b[:begin(i)+journal.EntryHeader/2] }, "cut in the header of entry %d", i)
		add(nil, func(b []byte) []byte { return b[:payload+int(found[i].Size)/2] }, "cut in the payload of entry %d", i)
	}
	for at := 0; at < size; at += 512 {
		add(nil, zeroed(at, at+512), "page at %d zeroed", at)
	}
	for slot := range 2 {
		for at := range journal.SlotUsed {
			add(nil, flip(slot*journal.SlotBytes+at), "byte %d of slot %d flipped", at, slot)
		}
	}
	add(nil, zeroed(0, journal.RingAt), "both slots zeroed")
	add(nil, func(b []byte) []byte { return b[:0] }, "emptied")
	add(nil, func(b []byte) []byte { return b[:journal.SlotBytes] }, "cut behind the first slot")
	add(nil, func(b []byte) []byte { return b[:journal.RingAt] }, "cut behind the slots")
	add(nil, func(b []byte) []byte { return b[:len(b)-1] }, "cut by a byte")
	add(nil, func(b []byte) []byte { return zeroed(0, journal.RingAt)(b[:len(b)-512]) }, "slots zeroed and cut by a page")
	return all
}

// TestRepairJournal defends: whatever happened to the journal, the repair brings back everything
// that is still in it; nothing acknowledged is dropped silently; sessions that were not hit lose
// nothing; and the store works again.
func TestRepairJournal(t *testing.T) {
	repaired, sessions := 0, 0
	for seed, batches := range []int{1, 5, 12, 25, 60, 90} {
		j := killed(t, uint64(seed), batches)
		for _, power := range []bool{false, true} {
			base := j.disk.Clone()
			if power {
				base.PowerCut(vfs.Cut{})
			}
			file, _ := base.CacheBytes(journal.Name)
			found := entriesOf(t, file)
			for _, h := range harms(found, len(file), rand.New(rand.NewPCG(uint64(seed), 7))) {
				d := base.Clone()
				broken := h.do(bytes.Clone(file))
				putFile(t, d, journal.Name, broken)
				done, err := j.repairedOn(d, power, broken)
				if err == nil && !power && !strings.HasPrefix(h.what, "page") {
					// The logs have it all, and that can be verified.
					for _, told := range done.Sessions {
						err = errors.Join(err, fmt.Errorf("the report has %+v", told))
					}
				}
				if err == nil && done.Changed {
					repaired++
					sessions += len(done.Sessions)
					err = j.hurtOnly(d, h, found)
				}
				if err != nil {
					t.Errorf("seed %d: %d batches, power cut %v, %s: %v\n%+v", seed, batches, power, h.what, err, done)
				}
				if t.Failed() && repaired > 0 {
					t.FailNow()
				}
			}
		}
	}
	t.Logf("%d journals repaired, %d times a session had something to tell", repaired, sessions)
	if repaired < 700 || sessions < 200 {
		t.Errorf("too little of it was damaged: %d, %d", repaired, sessions)
	}
}

// repairedOn repairs the journal of a disk and compares the result with what was acknowledged,
// and once more after another power cut.
func (j *journaled) repairedOn(d *vfs.Disk, power bool, broken []byte) (done hansard.JournalRepaired, err error) {
	ctx := context.Background()
	s, damage := joined(d.Process("repair"), 81)
	if damage != nil && !errors.Is(damage, hansard.ErrDamaged) {
		return done, damage
	}
	if done, err = s.RepairJournal(ctx); err != nil {
		return done, fmt.Errorf("repair: %w", err)
	}
	if done.Changed != (damage != nil) {
		return done, fmt.Errorf("repair of a journal with %v", damage)
	}
	if !done.Changed {
		return done, nil // TestDamagedJournal checks this case
	}
	if !strings.Contains(damage.Error(), done.Reason) || !strings.Contains(hansard.Hint(damage), "repair --journal") {
		return done, fmt.Errorf("the reason is %q, and the hint %q", damage, hansard.Hint(damage))
	}
	if err := wantFresh(d, broken); err != nil {
		return done, err
	}
	if again, err := s.RepairJournal(ctx); err != nil || again.Changed {
		return done, fmt.Errorf("the second repair: %+v, %v", again, err)
	}
	if err := j.told(s, done, power); err != nil {
		return done, err
	}
	d.PowerCut(vfs.Cut{})
	if old, _ := d.CacheBytes(done.Kept); !bytes.Equal(old, broken) {
		return done, fmt.Errorf("%s has %d bytes, the old journal had %d", done.Kept, len(old), len(broken))
	}
	s, err = openOn(d.Process("after"), 82, simRing)
	if err != nil {
		return done, fmt.Errorf("open after the repair: %w", err)
	}
	if err := j.told(s, done, power); err != nil {
		return done, fmt.Errorf("after a power cut: %w", err)
	}
	return done, nil
}

// wantFresh: the salt was never used before, and the epoch is above all that can be seen in the
// old journal.
func wantFresh(d *vfs.Disk, broken []byte) error {
	now, _ := d.CacheBytes(journal.Name)
	fresh, ok := journal.DecodeSlot(now[journal.SlotBytes:]) // written by the recovery
	if !ok {
		return errors.New("the new journal has no second slot")
	}
	var olds []journal.Slot
	for i := 0; i < journal.RingAt; i += journal.SlotBytes {
		if len(broken) >= i+journal.SlotUsed {
			if old, ok := journal.DecodeSlot(broken[i:]); ok {
				olds = append(olds, old)
			}
		}
	}
	for at := journal.RingAt; at+journal.EntryHeader <= len(broken); at += journal.EntryAlign {
		h := broken[at : at+journal.EntryHeader]
		if e, _, ok := journal.DecodeEntry(h, binary.LittleEndian.Uint64(h[8:]), binary.LittleEndian.Uint64(h[16:])); ok {
			olds = append(olds, journal.Slot{Salt: binary.LittleEndian.Uint64(h[8:]), Epoch: e.Epoch})
		}
	}
	for _, old := range olds {
		if fresh.Salt == old.Salt || fresh.Epoch <= old.Epoch+1 {
			return fmt.Errorf("the new journal has salt %x and epoch %d after salt %x and epoch %d", fresh.Salt, fresh.Epoch, old.Salt, old.Epoch)
		}
	}
	return nil
}

// told compares the sessions with what was acknowledged and with the report: every event is there
// at its seq, or its session is damaged and was reported, or the journal says that it lost
// something but not what.
func (j *journaled) told(s *Store, done hansard.JournalRepaired, power bool) error {
	ctx := context.Background()
	all, err := findings(s, "")
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	for _, f := range all {
		if f.File == journal.Name && f.Level == hansard.LevelDamage {
			return fmt.Errorf("verify: %+v", f)
		}
	}
	for id, acked := range j.acked {
		i := slices.IndexFunc(done.Sessions, func(t hansard.SalvagedSession) bool { return t.Session == id })
		damaged := i >= 0 && len(done.Sessions[i].Aside) > 0
		n, end := 0, error(nil)
		for e, err := range s.Read(ctx, id, hansard.Range{}) {
			if end = err; err != nil {
				break
			}
			if n >= len(acked) || string(e.Data) != acked[n] {
				return fmt.Errorf("session %s: event %d is not what was acknowledged", id, n+1)
			}
			n++
		}
		info, err := s.Stat(ctx, id)
		isDamaged := err == nil && info.Damaged() || errors.Is(err, hansard.ErrDamaged)
		switch {
		case isDamaged != damaged:
			return fmt.Errorf("session %s: stat %+v, %v; read ends with %v; the report says %v", id, info, err, end, damaged)
		case n == len(acked), damaged:
		case !power:
			return fmt.Errorf("session %s has %d events, %d were acknowledged, and the logs were not touched", id, n, len(acked))
		case done.UnreadableBytes == 0 && n < j.last[id]:
			return fmt.Errorf("session %s has %d events, %d were acknowledged, and nothing is said of it", id, n, len(acked))
		}
		if i >= 0 && done.Sessions[i].Events != hansard.Seq(n) {
			return fmt.Errorf("session %s has %d events, told was %+v", id, n, done.Sessions[i])
		}
	}
	return nil
}

// hurtOnly makes sure that damage to some entries affected only their sessions, and of those only
// the content of these entries and of later ones; that repairing the sessions brings back what
// was set aside and fits; and that all of them take writes.
func (j *journaled) hurtOnly(d *vfs.Disk, h harm, found []journal.Fragment) error {
	ctx := context.Background()
	s, err := openOn(d.Process("repair sessions"), 83, simRing)
	if err != nil {
		return err
	}
	for id, acked := range j.acked {
		name := sessionlog.EncodeName(id)
		whole, safe := true, hansard.Seq(0)
		for i, f := range found {
			if f.Name == name {
				hit := slices.Contains(h.hit, i)
				if whole = whole && !hit; whole {
					safe = hansard.Seq(f.LastSeq)
				}
			}
		}
		info, err := s.Stat(ctx, id)
		if h.hit != nil && whole && (err != nil || info.Damaged() || int(info.LastSeq) != len(acked)) {
			return fmt.Errorf("session %s was not hit and has %d of %d events: %+v, %v", id, info.LastSeq, len(acked), info.Damage, err)
		}
		if h.hit != nil && err == nil && info.LastSeq < safe {
			return fmt.Errorf("session %s has %d events, %d were before what was hit", id, info.LastSeq, safe)
		}
		if errors.Is(err, hansard.ErrDamaged) || err == nil && info.Damaged() {
			if _, err := s.Repair(ctx, id); err != nil {
				return fmt.Errorf("repair %s: %w", id, err)
			}
			was := info.LastSeq
			if info, err = s.Stat(ctx, id); err != nil || info.Damaged() || info.LastSeq < was {
				return fmt.Errorf("session %s after its repair: %+v, %v", id, info, err)
			}
		}
		// Losing a header loses no line.
		if strings.HasPrefix(h.what, "header of") || strings.Contains(h.what, "flipped") && len(h.hit) == 1 && !strings.Contains(h.what, "name") && !strings.Contains(h.what, "payload") {
			if int(info.LastSeq) < j.last[id] {
				return fmt.Errorf("session %s has %d of %d events after its repair", id, info.LastSeq, len(acked))
			}
		}
		r, err := s.Append(ctx, id, hansard.Batch{Create: true, Events: []hansard.Event{text("more")}})
		if err != nil || r.First != info.LastSeq+1 {
			return fmt.Errorf("append to %s: %+v, %v", id, r, err)
		}
		if err := wantSound(s, id); err != nil {
			return err
		}
	}
	return s.Close()
}

// TestSalvageNever: entries that a dead writer left past the end and nobody adopted are not
// salvaged, though each is valid by itself; entries after a hole are.
func TestSalvageNever(t *testing.T) {
	const size, salt = 16 << 10, 77
	line := []byte(`{"seq":1,"lines":"of the entry"}` + "\n")
	ring := make([]byte, journal.RingAt+size)
	sl := journal.Slot{Salt: salt, Size: size, HSeq: 3, Epoch: 5, Start: 800}
	pos, chain := sl.Start, uint64(0)
	put := func(name string, epoch, prev uint64) {
		e := &journal.Entry{Kind: journal.KindData, Pos: pos, Prev: prev, Epoch: epoch, Name: name, Lines: line}
		copy(ring[journal.RingAt+pos%size:], e.AppendTo(nil, salt))
		pos, chain = e.End(), e.Chain()
	}
	put("first", 5, 0)
	put("stale", 5, 1)       // does not follow it
	put("stale-2", 5, chain) // follows the stale one
	put("hole", 5, chain)    //
	hole := pos              // nothing is left of it
	put("kept", 6, 99)       // after a hole nobody knows what it follows
	put("kept-2", 6, chain)  //
	put("stale-3", 5, chain) // older than the one before
	clear(ring[journal.RingAt+hole-120 : journal.RingAt+hole])
	copy(ring, sl.Encode())
	for _, slots := range []bool{true, false} {
		best := 0
		if !slots {
			best = -1
		}
		v := journal.ReadSalvage(ring, [2]journal.Slot{sl}, [2]bool{slots, false}, best, size, sessionlog.IsName)
		var names []string
		for _, f := range v.Found {
			if f.Whole {
				names = append(names, f.Name)
			}
		}
		if want := "first kept kept-2"; strings.Join(names, " ") != want {
			t.Errorf("with slots %v: %q, want %q", slots, names, want)
		}
		if v.Epoch != 6 {
			t.Errorf("with slots %v: epoch %d", slots, v.Epoch)
		}
	}
}

// TestSalvageBehindProbes: probes are headers without text. If their headers and that of the
// entry after them are lost together, as when a sector fails, the lines of the entry are still
// found.
func TestSalvageBehindProbes(t *testing.T) {
	const size, salt = 16 << 10, 77
	line := []byte(`{"seq":1,"lines":"of the entry"}` + "\n")
	ring := make([]byte, journal.RingAt+size)
	sl := journal.Slot{Salt: salt, Size: size, HSeq: 3, Epoch: 5, Start: 800}
	pos, chain := sl.Start, uint64(0)
	put := func(e *journal.Entry) {
		e.Pos, e.Prev, e.Epoch = pos, chain, 5
		copy(ring[journal.RingAt+pos%size:], e.AppendTo(nil, salt))
		pos, chain = e.End(), e.Chain()
	}
	put(&journal.Entry{Kind: journal.KindData, Name: "first", Lines: line})
	begin := pos
	put(&journal.Entry{Kind: journal.KindPad})
	put(&journal.Entry{Kind: journal.KindPad})
	put(&journal.Entry{Kind: journal.KindData, Name: "hurt", Lines: line})
	clear(ring[journal.RingAt+begin : journal.RingAt+begin+3*journal.EntryHeader])
	put(&journal.Entry{Kind: journal.KindPad})
	put(&journal.Entry{Kind: journal.KindData, Name: "last", Lines: line})
	copy(ring, sl.Encode())
	v := journal.ReadSalvage(ring, [2]journal.Slot{sl}, [2]bool{true, false}, 0, size, sessionlog.IsName)
	var names []string
	for _, f := range v.Found {
		names = append(names, f.Name)
		if f.Name == "hurt" && (f.Whole || string(f.Lines) != string(line) || f.Pos != begin+2*journal.EntryHeader) {
			t.Errorf("found %+v at %d", f, f.Pos)
		}
	}
	if want := "first hurt last"; strings.Join(names, " ") != want || v.Unreadable != 2*journal.EntryHeader {
		t.Errorf("found %q and %d bytes without a meaning, want %q and two headers", names, v.Unreadable, want)
	}
}
