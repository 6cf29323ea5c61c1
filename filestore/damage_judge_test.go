package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// What is expected of a damaged log when it is read, written to and repaired.

// judge opens the store and compares its answers about a log with the verdict. With all set it
// also verifies, writes, repairs, and writes again.
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
	if now, _ := d.CacheBytes(sessionlog.Path(sessionlog.EncodeName(w.id))); !bytes.Equal(now, log) {
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
	if err := v.check("read", w.id, end); err != nil {
		return err
	}
	return w.wantReverse(s, v) // after the forward read noticed the damage, if nothing had before
}

// wantReverse: a reverse read of a damaged log gives only the damage; of a range before it, the
// whole batches.
func (w *written) wantReverse(s *Store, v verdict) error {
	reverse := func(r hansard.Range) (got []hansard.Event, end error) {
		r.Reverse = true
		for e, err := range s.Read(context.Background(), w.id, r) {
			if err != nil {
				return got, err
			}
			got = slices.Insert(got, 0, e)
		}
		return got, nil
	}
	got, err := reverse(hansard.Range{})
	if err != nil && len(got) > 0 {
		return fmt.Errorf("%d events in reverse, and then %w", len(got), err)
	}
	if err := v.check("read in reverse", w.id, err); err != nil {
		return err
	}
	if errors.Is(err, hansard.ErrDamaged) && v.safe > 0 {
		if got, err = reverse(hansard.Range{Before: v.safe + 1}); err != nil {
			return fmt.Errorf("read in reverse before the damage: %w", err)
		}
	}
	if err == nil {
		return w.wantEvents(got, v.safe)
	}
	return nil
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

// wantList: the session is listed as the verdict says, and hides no other.
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
	if f.Session != w.id || f.File != sessionlog.Path(sessionlog.EncodeName(w.id)) || f.Events != v.safe && !v.version {
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

// wantAppend: a damaged log takes no write and keeps its bytes. An unfinished end is kept as
// evidence and cut off; nothing else is touched.
func (w *written) wantAppend(s *Store, d *vfs.Disk, log []byte, v verdict) error {
	path := sessionlog.Path(sessionlog.EncodeName(w.id))
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
		// The file is not a session: one can be created in its place.
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

// wantRepair: every whole line is there at its seq, every other is marked as lost, the old bytes
// are kept and survive a power cut, and the session goes on.
func (w *written) wantRepair(s *Store, d *vfs.Disk, log []byte, v verdict) error {
	ctx := context.Background()
	done, err := s.Repair(ctx, w.id)
	if err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	if !done.Changed {
		return fmt.Errorf("repair: %+v", done)
	}
	cut := d.Clone()
	cut.PowerCut(vfs.Cut{})
	for _, disk := range []*vfs.Disk{d, cut} {
		if old, _ := disk.CacheBytes(done.Kept); len(log) > 0 && !bytes.Equal(old, log) {
			return fmt.Errorf("repair kept %d bytes in %q, want %d", len(old), done.Kept, len(log))
		}
	}
	if err := w.wantWhole(s, log, v, done); err != nil {
		return fmt.Errorf("%w\n%+v", err, done)
	}
	now, _ := cut.CacheBytes(sessionlog.Path(sessionlog.EncodeName(w.id)))
	if w.oneOfHeader(log) && len(w.events) > 0 && !bytes.Equal(now, w.log) {
		return errors.New("one byte of the header was damaged, and the log is not what it was")
	}
	if err := wantSound(s, w.id); err != nil {
		return fmt.Errorf("after repair: %w", err)
	}
	again, err := s.Repair(ctx, w.id)
	if err != nil || again.Changed || again.Events != done.Events {
		return fmt.Errorf("second repair: %+v, %v", again, err)
	}
	info, err := s.Stat(ctx, w.id)
	if err != nil || info.Damaged() || info.LastSeq != done.Events || v.safeEnd > 0 && done.Lost == 0 && info.Title != w.titles[done.Events] {
		return fmt.Errorf("stat after repair: %+v, %v", info, err)
	}
	title := "more"
	r, err := s.Append(ctx, w.id, hansard.Batch{Events: []hansard.Event{text("more")}, Patch: &hansard.Patch{Title: &title}})
	if err != nil || r.First != done.Events+1 {
		return fmt.Errorf("append after repair: %+v, %v", r, err)
	}
	if info, err := s.Stat(ctx, w.id); err != nil || info.Damaged() || info.LastSeq != r.Last || info.Title != title {
		return fmt.Errorf("stat after the append: %+v, %v", info, err)
	}
	return wantSound(s, w.id)
}

// wantWhole reads a repaired session: every event is what was written at its seq or is marked as
// lost, and none is lost whose line is still there.
func (w *written) wantWhole(s *Store, log []byte, v verdict, done hansard.Repaired) error {
	lost := map[hansard.Seq]bool{}
	n := hansard.Seq(0)
	for e, err := range s.Read(context.Background(), w.id, hansard.Range{}) {
		if err != nil {
			return fmt.Errorf("read after repair: %w", err)
		}
		if n++; e.Seq != n {
			return fmt.Errorf("event %d has seq %d", n, e.Seq)
		}
		if e.Kind == hansard.KindLost && string(e.Data) == "null" {
			lost[n] = true
			continue
		}
		e.Time = time.Time{}
		if int(n) > len(w.events) || !reflect.DeepEqual(e, w.events[n-1]) {
			return fmt.Errorf("event %d is not what was written there: %+v", n, e)
		}
	}
	if n != done.Events || len(lost) != int(done.Lost) {
		return fmt.Errorf("there are %d events, %d of them lost", n, len(lost))
	}
	there, last := w.intact(log, v)
	if n < last || n < v.safe {
		return fmt.Errorf("there are %d events, and seq %d is whole", n, max(last, v.safe))
	}
	for seq := range there {
		if seq <= last && lost[seq] {
			return fmt.Errorf("event %d is said to be lost", seq)
		}
	}
	return nil
}

// intact returns the seqs of the lines that are whole and in place in a log, and the last of them
// that ends its batch.
func (w *written) intact(log []byte, v verdict) (there map[hansard.Seq]bool, last hansard.Seq) {
	there = map[hansard.Seq]bool{}
	for seq := range v.safe {
		there[seq+1] = true
	}
	ends := map[int64]bool{}
	for _, e := range w.ends {
		ends[e.at] = true
	}
	if len(log) != len(w.log) {
		return there, 0 // lines may have moved: only the safe ones are expected
	}
	at := len(linesOf(w.log)[0])
	for i, l := range linesOf(w.log)[1:] {
		seq := hansard.Seq(i + 1)
		if bytes.Equal(log[at:at+len(l)], l) {
			there[seq] = true
			if ends[int64(at+len(l))] {
				last = seq
			}
		}
		at += len(l)
	}
	return there, last
}

// oneOfHeader reports whether one byte of the header was changed and nothing else.
func (w *written) oneOfHeader(log []byte) bool {
	n := 0
	for i := range min(len(log), len(w.log)) {
		if log[i] != w.log[i] {
			if n++; int64(i) >= w.ends[0].at {
				return false
			}
		}
	}
	return n == 1 && len(log) == len(w.log)
}
