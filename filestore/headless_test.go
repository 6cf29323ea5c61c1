package filestore

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestRepairHeader: title, keys and state of a session survive one damaged byte in the header.
// Without a header, the later patches and the keys survive.
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
			st := sessionlog.Stamp{Seq: 1, Time: "2026-02-01T00:00:00.000000Z", Prev: 77}
			return append(sessionlog.AppendEvent(nil, &st, sessionlog.EncodeBody(nil, &e, "", "")), log[bytes.IndexByte(log, '\n')+1:]...)
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
			log, _ := d.CacheBytes(sessionlog.Path("s"))
			putFile(t, d, sessionlog.Path("s"), c.harm(bytes.Clone(log)))
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
