package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// wantHeadless is what wantRepair wants of a log whose header was damaged: whatever
// is there afterwards is what was written at that seq, or says that it is lost; all
// behind the damage is there; and one damaged byte of the header does no harm.
func (w *written) wantHeadless(s *Store, d *vfs.Disk, log []byte, done hansard.Repaired) error {
	ctx := context.Background()
	path := logPath(encodeName(w.id))
	cut := d.Clone()
	cut.PowerCut(vfs.Cut{})
	if old, _ := cut.CacheBytes(done.Kept); len(log) > 0 && !bytes.Equal(old, log) {
		return fmt.Errorf("repair kept %d bytes in %q, want %d", len(old), done.Kept, len(log))
	}
	if !done.Changed {
		return errors.New("nothing was repaired")
	}
	now, _ := cut.CacheBytes(path)
	got, err := w.lostOrWritten(s, done.Lost)
	if err != nil {
		return err
	}
	if got != done.Events {
		return fmt.Errorf("%d events, told were %d", got, done.Events)
	}
	if one, all := w.damagedAt(log); all {
		lost, last := w.behind(log)
		if last > 0 && (done.Events != last || done.Lost != lost) {
			return fmt.Errorf("events %d to %d are behind the damage", lost+1, last)
		}
		if one && len(w.events) > 0 && !bytes.Equal(now, w.log) {
			return errors.New("one byte was damaged, and the log is not what it was")
		}
	}
	if err := wantSound(s, w.id); err != nil {
		return fmt.Errorf("after repair: %w", err)
	}
	if again, err := s.Repair(ctx, w.id); err != nil || again.Changed || again.Events != done.Events {
		return fmt.Errorf("second repair: %+v, %v", again, err)
	}
	title := "more"
	r, err := s.Append(ctx, w.id, hansard.Batch{Events: []hansard.Event{text("more")}, Patch: &hansard.Patch{Title: &title}})
	if err != nil || r.First != done.Events+1 {
		return fmt.Errorf("append after repair: %+v, %v", r, err)
	}
	if info, err := s.Stat(ctx, w.id); err != nil || info.Damaged() || info.LastSeq != r.Last || info.Title != title {
		return fmt.Errorf("stat after repair: %+v, %v", info, err)
	}
	return wantSound(s, w.id)
}

// lostOrWritten reads a session: so many events that say they are lost, and then
// what was written.
func (w *written) lostOrWritten(s *Store, lost hansard.Seq) (n hansard.Seq, err error) {
	for e, err := range s.Read(context.Background(), w.id, hansard.Range{}) {
		if err != nil {
			return n, fmt.Errorf("read after repair: %w", err)
		}
		if n++; e.Seq != n {
			return n, fmt.Errorf("event %d has seq %d", n, e.Seq)
		}
		if n <= lost {
			if e.Kind != hansard.KindLost || string(e.Data) != "null" {
				return n, fmt.Errorf("event %d should be lost: %+v", n, e)
			}
			continue
		}
		e.Time = time.Time{}
		if int(n) > len(w.events) || !reflect.DeepEqual(e, w.events[n-1]) {
			return n, fmt.Errorf("event %d is not what was written there: %+v", n, e)
		}
	}
	return n, nil
}

// damagedAt tells whether bytes were changed in place, beginning in the header, and
// whether it was one byte of it.
func (w *written) damagedAt(log []byte) (one, inPlace bool) {
	if len(log) != len(w.log) {
		return false, false
	}
	n := 0
	for i := range log {
		if log[i] != w.log[i] {
			if n++; n == 1 && int64(i) >= w.ends[0].at {
				return false, false
			}
			one = n == 1
		}
	}
	return one, true
}

// behind is how many events are before the lines behind the damage, and the last seq;
// 0 if there are none, or others, too.
func (w *written) behind(log []byte) (lost, last hansard.Seq) {
	from := len(log)
	for from > 0 && log[from-1] == w.log[from-1] {
		from--
	}
	for _, l := range linesOf(w.log[w.ends[0].at:]) {
		if bytes.Contains(log[:from], l) {
			return 0, 0 // there is something before it, too
		}
	}
	at := int(w.ends[0].at)
	for seq, l := range linesOf(w.log[at:]) {
		if at >= from {
			return hansard.Seq(seq), hansard.Seq(len(w.events))
		}
		at += len(l)
	}
	return 0, 0
}

// TestRepairHeader: the title, the keys and the state of a session survive one byte;
// without a header the patches behind it do, and the keys.
func TestRepairHeader(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		what  string
		harm  func(log []byte) []byte
		title string
		state string
		lost  hansard.Seq
	}{
		{"one byte", func(log []byte) []byte { return changed(log, bytes.Index(log, []byte("given")), 'G') }, "given", `{"a":1,"b":2}`, 0},
		{"the newline", func(log []byte) []byte { return changed(log, bytes.IndexByte(log, '\n'), 0) }, "given", `{"a":1,"b":2}`, 0},
		{"something in front", func(log []byte) []byte { return append([]byte("x\n"), log...) }, "given", `{"a":1,"b":2}`, 0},
		{"all of it", func(log []byte) []byte { clear(log[:bytes.IndexByte(log, '\n')]); return log }, "", `{"b":2}`, 0},
		{"its line removed", func(log []byte) []byte { return log[bytes.IndexByte(log, '\n')+1:] }, "", `{"b":2}`, 0},
		{"another event instead", func(log []byte) []byte {
			e := text("foreign")
			st := stamp{seq: 1, time: "2026-02-01T00:00:00.000000Z", prev: 77}
			return append(appendEvent(nil, &st, encodeBody(nil, &e, "", "")), log[bytes.IndexByte(log, '\n')+1:]...)
		}, "", `{"b":2}`, 0},
		{"the first event, too", func(log []byte) []byte { clear(log[:len(linesOf(log)[0])+50]); return log }, "", `{"b":2}`, 1},
		{"the patch, too", func(log []byte) []byte { clear(log[:len(log)-len(linesOf(log)[3])-20]); return log }, "", "", 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			s := openSim(t, d.Process("a"), 1)
			if _, err := s.Create(ctx, "s", hansard.Meta{Title: "given", State: []byte(`{"a":1}`)}); err != nil {
				t.Fatal(err)
			}
			add := func(i int, b hansard.Batch) hansard.Receipt {
				b.Key = fmt.Sprint("key", i)
				b.Events = []hansard.Event{text("%d", i)}
				r, err := s.Append(ctx, "s", b)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			add(1, hansard.Batch{})
			add(2, hansard.Batch{Patch: &hansard.Patch{State: []byte(`{"b":2}`)}})
			add(3, hansard.Batch{})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			log, _ := d.CacheBytes(logPath("s"))
			putFile(t, d, logPath("s"), c.harm(bytes.Clone(log)))
			s = openSim(t, d.Process("b"), 2)
			done, err := s.Repair(ctx, "s")
			if err != nil || done.Events != 3 || done.Lost != c.lost {
				t.Fatalf("repair: %+v, %v", done, err)
			}
			info, err := s.Stat(ctx, "s")
			if err != nil || info.Damaged() || info.Title != c.title || strings.Trim(string(info.State), " ") != c.state && !(c.state == "" && string(info.State) == "null") {
				t.Errorf("title %q, state %s, %v, %v; want %q, %s", info.Title, info.State, info.Damage, err, c.title, c.state)
			}
			if r := add(3, hansard.Batch{}); !r.Replayed || r.First != 3 {
				t.Errorf("key 3 again: %+v", r)
			}
			if r := add(4, hansard.Batch{}); r.First != 4 {
				t.Errorf("a new one: %+v", r)
			}
			if err := wantSound(s, "s"); err != nil {
				t.Error(err)
			}
		})
	}
}
