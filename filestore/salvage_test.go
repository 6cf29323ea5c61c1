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
	"hansard/internal/vfs"
)

// A journal is damaged in every way we know, and repaired; what callers had been
// told is compared with what is there then. Two worlds: the processes were
// killed (the logs have everything that was acknowledged), and the power was cut
// (much of it is only in the journal).

// joined is a store as programs get it: opened, whatever is wrong with the journal.
func joined(fsys vfs.FS, seed uint64) (*Store, error) {
	cfg := simConfig(seed, simRing)
	cfg.anyway = true
	s, err := open(fsys, Options{LockWait: time.Hour}, cfg)
	if err != nil {
		return nil, err
	}
	return s, s.joinLocked()
}

// entriesOf are the entries from the start of a sound journal on.
func entriesOf(t testing.TB, file []byte) []fragment {
	t.Helper()
	d := vfs.NewDisk(1)
	putFile(t, d, journalName, file)
	f, err := d.Process("look").Open(journalName, vfs.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	slots, valid, best, err := readSlots(f)
	if err != nil || best < 0 {
		t.Fatalf("slots of a sound journal: %d, %v", best, err)
	}
	v := salvageFrom(file, slots, valid, best, simRing)
	if v.unreadable > 0 {
		t.Fatalf("%d bytes of a sound journal are unreadable", v.unreadable)
	}
	return v.found
}

// harm is one way to damage a journal.
type harm struct {
	what string
	hit  []int // the entries that are not what they were; nil: who knows
	do   func(b []byte) []byte
}

func zeroed(from, to int) func([]byte) []byte {
	return func(b []byte) []byte { clear(b[min(from, len(b)):min(to, len(b))]); return b }
}

// harms makes the damages of a journal with these entries.
func harms(found []fragment, size int, rng *rand.Rand) (all []harm) {
	add := func(hit []int, do func([]byte) []byte, format string, args ...any) {
		all = append(all, harm{fmt.Sprintf(format, args...), hit, do})
	}
	flip := func(at int) func([]byte) []byte {
		mask := byte(1) << rng.IntN(8)
		return func(b []byte) []byte { b[at] ^= mask; return b }
	}
	begin := func(i int) int { return ringAt + found[i].at }
	end := func(i int) int { return ringAt + found[i].at + int(found[i].length()) }
	for i := range found {
		for at := 0; at < entryHeader; at += 2 { // every field
			add([]int{i}, flip(begin(i)+at), "byte %d of the header of entry %d flipped", at, i)
		}
		payload := begin(i) + entryHeader
		add([]int{i}, flip(payload), "name of entry %d flipped", i)
		for range 3 {
			add([]int{i}, flip(payload+rng.IntN(int(found[i].size))), "payload of entry %d flipped", i)
		}
		add([]int{i}, zeroed(begin(i), end(i)), "entry %d zeroed", i)
		add([]int{i}, zeroed(begin(i), begin(i)+entryHeader), "header of entry %d zeroed", i)
		add([]int{i}, zeroed(payload, end(i)), "payload of entry %d zeroed", i)
		if i+1 < len(found) && found[i+1].at > found[i].at {
			add([]int{i, i + 1}, zeroed(begin(i), end(i+1)), "entries %d and %d zeroed", i, i+1)
			mask := flip(payload + 1)
			add([]int{i, i + 1}, func(b []byte) []byte { return mask(flip(begin(i + 1))(b)) }, "entries %d and %d flipped", i, i+1)
		}
		add(nil, func(b []byte) []byte { return zeroed(begin(i), end(i))(zeroed(0, ringAt)(b)) }, "slots and entry %d zeroed", i)
		add(nil, func(b []byte) []byte { return b[:begin(i)+entryHeader/2] }, "cut in the header of entry %d", i)
		add(nil, func(b []byte) []byte { return b[:payload+int(found[i].size)/2] }, "cut in the payload of entry %d", i)
	}
	for at := 0; at < size; at += 512 {
		add(nil, zeroed(at, at+512), "page at %d zeroed", at)
	}
	for slot := range 2 {
		for at := range slotUsed {
			add(nil, flip(slot*slotBytes+at), "byte %d of slot %d flipped", at, slot)
		}
	}
	add(nil, zeroed(0, ringAt), "both slots zeroed")
	add(nil, func(b []byte) []byte { return b[:0] }, "emptied")
	add(nil, func(b []byte) []byte { return b[:slotBytes] }, "cut behind the first slot")
	add(nil, func(b []byte) []byte { return b[:ringAt] }, "cut behind the slots")
	add(nil, func(b []byte) []byte { return b[:len(b)-1] }, "cut by a byte")
	add(nil, func(b []byte) []byte { return zeroed(0, ringAt)(b[:len(b)-512]) }, "slots zeroed and cut by a page")
	return all
}

// TestRepairJournal defends: whatever happened to the journal, the repair brings
// back all that is still in it; nothing acknowledged is dropped without a word;
// sessions that were not hit lose nothing; and the store works again.
func TestRepairJournal(t *testing.T) {
	repaired, sessions := 0, 0
	for seed, batches := range []int{1, 5, 12, 25, 60, 90} {
		j := killed(t, uint64(seed), batches)
		for _, power := range []bool{false, true} {
			base := j.disk.Clone()
			if power {
				base.PowerCut(vfs.Cut{})
			}
			file, _ := base.CacheBytes(journalName)
			found := entriesOf(t, file)
			for _, h := range harms(found, len(file), rand.New(rand.NewPCG(uint64(seed), 7))) {
				d := base.Clone()
				broken := h.do(bytes.Clone(file))
				putFile(t, d, journalName, broken)
				done, err := j.repairedOn(d, power, broken)
				if err == nil && !power && !strings.HasPrefix(h.what, "page") {
					// The logs have it all, and it can be seen that they do.
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

// repairedOn repairs the journal of a disk and compares what is there then with
// what was acknowledged. Everything is looked at after one more power cut, too.
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
		return done, nil // TestDamagedJournal looks at what is there then
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

// wantFresh: a salt that was never used, and an epoch above all that can be seen in
// the old journal.
func wantFresh(d *vfs.Disk, broken []byte) error {
	now, _ := d.CacheBytes(journalName)
	fresh, ok := decodeSlot(now[slotBytes:]) // written by the recovery
	if !ok {
		return errors.New("the new journal has no second slot")
	}
	var olds []slot
	for i := 0; i < ringAt; i += slotBytes {
		if len(broken) >= i+slotUsed {
			if old, ok := decodeSlot(broken[i:]); ok {
				olds = append(olds, old)
			}
		}
	}
	for at := ringAt; at+entryHeader <= len(broken); at += entryAlign {
		h := broken[at : at+entryHeader]
		if e, _, ok := decodeEntry(h, binary.LittleEndian.Uint64(h[8:]), binary.LittleEndian.Uint64(h[16:])); ok {
			olds = append(olds, slot{salt: binary.LittleEndian.Uint64(h[8:]), epoch: e.epoch})
		}
	}
	for _, old := range olds {
		if fresh.salt == old.salt || fresh.epoch <= old.epoch+1 {
			return fmt.Errorf("the new journal has salt %x and epoch %d after salt %x and epoch %d", fresh.salt, fresh.epoch, old.salt, old.epoch)
		}
	}
	return nil
}

// told compares the sessions with what was acknowledged and with the report: every
// event is there at its seq, or its session is damaged and was reported, or the
// journal says that it lost something and not what.
func (j *journaled) told(s *Store, done hansard.JournalRepaired, power bool) error {
	ctx := context.Background()
	all, err := findings(s, "")
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	for _, f := range all {
		if f.File == journalName && f.Level == hansard.LevelDamage {
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

// hurtOnly makes sure that a damage to some entries touched their sessions only,
// and of those only what was in these entries and behind; that repairing the
// sessions brings back what was set aside and follows; and that all take writes.
func (j *journaled) hurtOnly(d *vfs.Disk, h harm, found []fragment) error {
	ctx := context.Background()
	s, err := openOn(d.Process("repair sessions"), 83, simRing)
	if err != nil {
		return err
	}
	for id, acked := range j.acked {
		name := encodeName(id)
		whole, safe := true, hansard.Seq(0)
		for i, f := range found {
			if f.name == name {
				hit := slices.Contains(h.hit, i)
				if whole = whole && !hit; whole {
					safe = hansard.Seq(f.last)
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
		// A header that is lost takes no line with it.
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

// TestSalvageNever: what a dead writer left behind the end, and nobody adopted, is
// no part of the story, though it is valid by itself; what is behind a hole is.
func TestSalvageNever(t *testing.T) {
	const size, salt = 16 << 10, 77
	line := []byte(`{"seq":1,"lines":"of the entry"}` + "\n")
	ring := make([]byte, ringAt+size)
	sl := slot{salt: salt, size: size, hseq: 3, epoch: 5, start: 800}
	pos, chain := sl.start, uint64(0)
	put := func(name string, epoch, prev uint64) {
		e := &entry{kind: kindData, pos: pos, prev: prev, epoch: epoch, name: name, bytes: line}
		copy(ring[ringAt+pos%size:], e.appendTo(nil, salt))
		pos, chain = e.end(), e.chain()
	}
	put("first", 5, 0)
	put("stale", 5, 1)       // does not follow it
	put("stale-2", 5, chain) // follows the stale one
	put("hole", 5, chain)    //
	hole := pos              // of which nothing is left
	put("kept", 6, 99)       // behind a hole nobody knows what it follows
	put("kept-2", 6, chain)  //
	put("stale-3", 5, chain) // older than the one before
	clear(ring[ringAt+hole-120 : ringAt+hole])
	copy(ring, sl.encode())
	for _, slots := range []bool{true, false} {
		best := 0
		if !slots {
			best = -1
		}
		v := salvageFrom(ring, [2]slot{sl}, [2]bool{slots, false}, best, size)
		var names []string
		for _, f := range v.found {
			if f.whole {
				names = append(names, f.name)
			}
		}
		if want := "first kept kept-2"; strings.Join(names, " ") != want {
			t.Errorf("with slots %v: %q, want %q", slots, names, want)
		}
		if v.epoch != 6 {
			t.Errorf("with slots %v: epoch %d", slots, v.epoch)
		}
	}
}

// TestSalvageBehindProbes: probes are headers without text. Where they and the entry
// behind them lost theirs together, as when a sector did, its lines are still found.
func TestSalvageBehindProbes(t *testing.T) {
	const size, salt = 16 << 10, 77
	line := []byte(`{"seq":1,"lines":"of the entry"}` + "\n")
	ring := make([]byte, ringAt+size)
	sl := slot{salt: salt, size: size, hseq: 3, epoch: 5, start: 800}
	pos, chain := sl.start, uint64(0)
	put := func(e *entry) {
		e.pos, e.prev, e.epoch = pos, chain, 5
		copy(ring[ringAt+pos%size:], e.appendTo(nil, salt))
		pos, chain = e.end(), e.chain()
	}
	put(&entry{kind: kindData, name: "first", bytes: line})
	begin := pos
	put(&entry{kind: kindPad})
	put(&entry{kind: kindPad})
	put(&entry{kind: kindData, name: "hurt", bytes: line})
	clear(ring[ringAt+begin : ringAt+begin+3*entryHeader])
	put(&entry{kind: kindPad})
	put(&entry{kind: kindData, name: "last", bytes: line})
	copy(ring, sl.encode())
	v := salvageFrom(ring, [2]slot{sl}, [2]bool{true, false}, 0, size)
	var names []string
	for _, f := range v.found {
		names = append(names, f.name)
		if f.name == "hurt" && (f.whole || string(f.bytes) != string(line) || f.pos != begin+2*entryHeader) {
			t.Errorf("found %+v at %d", f, f.pos)
		}
	}
	if want := "first hurt last"; strings.Join(names, " ") != want || v.unreadable != 2*entryHeader {
		t.Errorf("found %q and %d bytes without a meaning, want %q and two headers", names, v.unreadable, want)
	}
}
