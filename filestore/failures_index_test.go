package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

func TestFailure40_WholeIndexRewrittenPerUpdate(t *testing.T) {
	d := sessionsOn(t, 1, 200)
	s := openSim(t, d.Process("a"), 1)
	if _, err := listed(s, hansard.Query{}); err != nil {
		t.Fatal(err)
	}
	written := map[string]int{}
	d.OnOp(func(o vfs.Op) {
		if o.Kind == vfs.OpWrite {
			written[o.Name] += o.Len
		}
	})
	say(t, s, "s7", nil, "more")
	delete(written, peers.ControlName)
	if len(written) != 2 || written[journal.Name] > 1000 || written[sessionlog.Path("s7")] > 500 {
		t.Errorf("an append among 200 sessions wrote %v", written)
	}
}

func TestFailure41_LostUpdateOfTheIndex(t *testing.T) {
	// In depth: storetest, and test/ with 64 processes. Here: goroutines on two handles.
	dir := t.TempDir()
	const n = 40
	var wg sync.WaitGroup
	for h := range 2 {
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range n {
			wg.Go(func() {
				if _, err := s.Create(context.Background(), hansard.SessionID(fmt.Sprintf("s%d-%d", h, i)), hansard.Meta{}); err != nil {
					t.Error(err)
				}
				if i%8 == 0 {
					_, _ = listed(s, hansard.Query{})
				}
			})
		}
	}
	wg.Wait()
	s, err := Open(dir, &Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if infos, err := listed(s, hansard.Query{}); err != nil || len(infos) != 2*n {
		t.Errorf("%d sessions are listed, %d were made: %v", len(infos), 2*n, err)
	}
}

func TestFailure42_CorruptIndexTakenForTheTruth(t *testing.T) {
	// In depth: TestListCache.
	d := sessionsOn(t, 1, 100)
	for _, catalog := range []string{"", "{}", "garbage", "HANSCAT1\x00\x00\x00\x00"} {
		s := openSim(t, d.Process("a"), 1)
		if err := s.writeCache(cache.Dir, cache.CatalogName, []byte(catalog)); err != nil {
			t.Fatal(err)
		}
		if infos, err := listed(s, hansard.Query{}); err != nil || len(infos) != 100 {
			t.Errorf("catalog %q: %d sessions of 100, %v", catalog, len(infos), err)
		}
		_ = s.Close()
	}
}

func TestFailure43_RestoredOrCopiedSessionsStayInvisible(t *testing.T) {
	d := sessionsOn(t, 1, 3)
	s := openSim(t, d.Process("a"), 1)
	if infos, err := listed(s, hansard.Query{}); err != nil || len(infos) != 3 {
		t.Fatalf("%d sessions, %v", len(infos), err)
	}
	if err := putLog(d, "copied", buildLog("copied", 77, 5, keyedEvent)); err != nil {
		t.Fatal(err)
	}
	infos, err := listed(s, hansard.Query{Text: "copied"})
	if err != nil || len(infos) != 1 || infos[0].LastSeq != 5 {
		t.Errorf("list gives %+v, %v", infos, err)
	}
	if r := say(t, s, "copied", nil, "goes on"); r.First != 6 {
		t.Errorf("append got seq %d", r.First)
	}
}

func TestFailure44_AbsolutePathsBreakAfterAMove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "before")
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "s", nil, "one")
	if _, err := listed(s, hansard.Query{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "after")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(moved, nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	say(t, s, "s", nil, "two")
	hears(t, s, "s", "one", "two")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error("something was made in the old place")
	}
}

func TestFailure45_OneUnreadableFileAbortsTheList(t *testing.T) {
	// In depth: TestListOddFiles.
	d := sessionsOn(t, 1, 100)
	if err := putLog(d, "s5", bytes.Repeat([]byte("garbage\n"), 50)); err != nil {
		t.Fatal(err)
	}
	s, c := opened(t, d, 1)
	d.Inject(vfs.Match{Kind: vfs.OpRead, Name: sessionlog.Path("s9")}, vfs.Fault{Err: syscall.EIO, Always: true})
	for range 2 {
		c.reset()
		infos, err := listed(s, hansard.Query{})
		if err != nil || len(infos) != 100 {
			t.Fatalf("%d sessions of 100, %v", len(infos), err)
		}
		for _, i := range infos {
			if i.Damaged() != (i.ID == "s5") || (i.Unreadable != "") != (i.ID == "s9") {
				t.Errorf("%s: damage %v, unreadable %q", i.ID, i.Damage, i.Unreadable)
			}
		}
	}
	if c.reads > 30 { // the second time only files that are not sound are read
		t.Errorf("an unchanged store is listed with %d reads", c.reads)
	}
}

func TestFailure46_CleanUpByPrefixTakesTheWrongSession(t *testing.T) {
	s := openSim(t, vfs.NewDisk(1).Process("a"), 1)
	for _, id := range []hansard.SessionID{"ab", "abc", "AB", "ab.1"} {
		say(t, s, id, nil, "one")
	}
	ctx := context.Background()
	for _, id := range []hansard.SessionID{"a", "abcd", "Ab", "ab."} {
		if err := s.Delete(ctx, id, ""); !errors.Is(err, hansard.ErrNotFound) {
			t.Errorf("delete %q: %v, want ErrNotFound", id, err)
		}
	}
	if err := s.Delete(ctx, "ab", ""); err != nil {
		t.Fatal(err)
	}
	for _, id := range []hansard.SessionID{"abc", "AB", "ab.1"} {
		hears(t, s, id, "one")
	}
}

func TestFailure51_TheIDIsAPath(t *testing.T) {
	// In depth: TestNames…, FuzzName.
	outside := t.TempDir()
	dir := filepath.Join(outside, "store")
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, id := range []hansard.SessionID{"../x", "..", ".", "", "a/b", "/etc/x", "a\x00b", "%2e%2e", "a\\b", "a b", "é", "-x", ".x", "a\nb",
		hansard.SessionID(strings.Repeat("a", 300))} {
		say(t, s, id, hansard.ErrInvalid, "x")
		if _, err := s.Stat(context.Background(), id); !errors.Is(err, hansard.ErrInvalid) {
			t.Errorf("stat %q: %v, want ErrInvalid", id, err)
		}
	}
	for _, id := range []hansard.SessionID{"con", "NUL", "twin", "Twin", "TWIN", "a:b", "a..b", "lpt1.txt"} {
		say(t, s, id, nil, "%s", id)
	}
	for _, id := range []hansard.SessionID{"con", "NUL", "twin", "Twin", "TWIN", "a:b", "a..b", "lpt1.txt"} {
		hears(t, s, id, string(id))
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside of the store there is %v, %v", entries, err)
	}
}

func TestFailure55_LargeSessionReadWholeForEveryRequest(t *testing.T) {
	// In depth: TestGrowth….
	log := buildLog("big", 5, 300, func(i int) (hansard.Event, string) { return pad(i, 100_000), "" })
	d := withLogs(t, 1, map[hansard.SessionID][]byte{"big": log})
	s, c := opened(t, d, 2)
	ctx := context.Background()
	c.reset()
	if info, err := s.Stat(ctx, "big"); err != nil || info.LastSeq != 300 {
		t.Fatalf("stat: %+v, %v", info, err)
	}
	for e, err := range s.Read(ctx, "big", hansard.Range{Last: 1}) {
		if err != nil || e.Seq != 300 {
			t.Fatalf("read: %+v, %v", e, err)
		}
	}
	say(t, s, "big", nil, "more")
	if c.bytes > int64(len(log))/4 {
		t.Errorf("stat, read and append of a session of %d bytes read %d", len(log), c.bytes)
	}
}
