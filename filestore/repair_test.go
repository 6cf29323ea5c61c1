package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

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
