package filestore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// onLarge is a batch with a patch and an event of size bytes.
func onLarge(i, size, state int) hansard.Batch {
	return hansard.Batch{Events: []hansard.Event{pad(i, size)},
		Patch: &hansard.Patch{State: json.RawMessage(fmt.Sprintf(`{"n":%d,"big":%q}`, i, strings.Repeat("s", state)))}}
}

// TestFailure55_MetadataOnLargeEvents: patches stored with large events do not make Stat read all
// of those events: the walk to the metadata is bounded by the bytes of its lines, whatever the
// mix of large and small ones.
func TestFailure55_MetadataOnLargeEvents(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		what  string
		sizes []int // of the events, in turn
		state int   // bytes of metadata
	}{
		{"large", []int{512 << 10}, 10},
		{"one large, then small", []int{1 << 20, 10, 10, 10, 10, 10, 10, 10}, 10},
		{"middling", []int{60 << 10}, 10},
		{"middling, with much state", []int{60 << 10}, 300 << 10},
		{"large, with much state", []int{512 << 10}, 300 << 10},
		{"small, with much state", []int{10}, 300 << 10},
	} {
		d := largeDisk(1)
		s, err := openOn(d.Process("writer"), 1, 16<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(ctx, "m", hansard.Meta{}); err != nil {
			t.Fatal(err)
		}
		worst, written := int64(0), int64(0)
		for i := range 16 {
			b := onLarge(i, c.sizes[i%len(c.sizes)], c.state)
			if i > 0 && c.state > 1000 { // the state stays as large, but the patches are small
				b.Patch.State = json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))
			}
			if _, err := s.Append(ctx, "m", b); err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
			written += int64(c.sizes[i%len(c.sizes)] + len(b.Patch.State))
			largest := int64(c.sizes[i%len(c.sizes)])
			f, err := s.fs.Open(sessionlog.Path("m"), vfs.ReadOnly)
			if err != nil {
				t.Fatal(err)
			}
			count := &countFS{}
			size, _ := f.Size()
			tail, err := sessionlog.ReadTail(f, size)
			if err != nil {
				t.Fatal(err)
			}
			m, err := sessionlog.ReadMeta(&countFile{f, "m", count}, tail)
			if err != nil || !strings.Contains(string(m.Meta.State), fmt.Sprintf(`"n":%d`, i)) {
				t.Fatalf("%s: patch %d: %v", c.what, i, err)
			}
			// Reading a line also reads part of what follows: at most as much again.
			if limit := 2 * (max(sessionlog.WalkBytes, 2*int64(c.state)) + largest + int64(c.state)); count.bytes > limit {
				t.Errorf("%s: after patch %d the walk read %d bytes, want at most %d", c.what, i, count.bytes, limit)
			}
			worst = max(worst, count.bytes)
		}
		log, _ := d.CacheBytes(sessionlog.Path("m"))
		t.Logf("%s: at most %d bytes for a walk; the log has %d", c.what, worst, len(log))
		if limit := 2*written + 64<<10; int64(len(log)) > limit {
			t.Errorf("%s: the log has %d bytes, for %d of events and patches", c.what, len(log), written)
		}
	}
}

// TestMetaWalkOfOldLogs: in a log whose patches have no snapshots the metadata is still found,
// and the next patch ends the long walk.
func TestMetaWalkOfOldLogs(t *testing.T) {
	ctx := context.Background()
	log := buildLog("old", 5, 40, func(i int) (hansard.Event, string) {
		e := pad(i, 200<<10)
		e.Patch = &hansard.Patch{State: json.RawMessage(fmt.Sprintf(`{"k%d":%d}`, i, i))}
		return e, ""
	})
	d := withLogs(t, 1, map[hansard.SessionID][]byte{"old": log})
	want := `"k0":0`
	for try, limit := range []int64{1 << 40, 10 * sessionlog.WalkBytes} {
		s, c := readOnly(t, d)
		info, err := s.Stat(ctx, "old")
		if err != nil || !strings.Contains(string(info.State), want) || !strings.Contains(string(info.State), `"k39":39`) {
			t.Fatalf("stat: %+v, %v", info, err)
		}
		t.Logf("%d bytes read", c.bytes)
		if c.bytes > limit {
			t.Errorf("look %d: stat read %d bytes %v, want at most %d", try, c.bytes, c.files, limit)
		}
		w, _ := opened(t, d, 3)
		if _, err := w.Append(ctx, "old", hansard.Batch{Patch: &hansard.Patch{State: json.RawMessage(`{"new":1}`)}}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		want = `"new":1`
	}
}
