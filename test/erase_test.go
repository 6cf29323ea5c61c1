//go:build unix

package test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// filesWith are the files of a store that contain these bytes.
func filesWith(t *testing.T, store, marker string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(marker)) {
			rel, _ := filepath.Rel(store, path) // below it: can't fail
			found = append(found, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// keptOpen are the descriptors of a process for a log that was replaced.
func keptOpen(t *testing.T, p *process, name string) (open []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Logf("SKIPPED: which files are open can't be told here: %v", err)
		return nil
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasSuffix(to, "/"+name+".jsonl (deleted)") {
			open = append(open, to)
		}
	}
	return open
}

// TestErased: after rm of a session that two other processes have open, one of them a server,
// prune leaves nothing of it except in the journal, and prune --scrub nothing at all; the others
// go on, and none of their descriptors keeps it.
func TestErased(t *testing.T) {
	const marker = "SECRETMARKER"
	for what, asked := range map[string]func(t *testing.T, s *server, args ...string) result{
		"on the directory": func(t *testing.T, s *server, args ...string) result { return run(t, command(s.store, args...)) },
		"through a server": through,
	} {
		t.Run(what, func(t *testing.T) {
			store := newStore(t)
			s := startServer(t, store)
			ok(t, store, "new", "doomed", "--title", marker+"-title", "--label", "secret="+marker)
			ok(t, store, "append", "other", "stays", "--create")
			w := start(t, command(store, "append", "doomed", "--jsonl", "-", "--each", "--json"), nil)
			for i := range 20 {
				w.ask(fmt.Sprintf(`{"id":"%s %d","data":"%s %d"}`, marker, i, marker, i))
			}
			for range 5 {
				if r := through(t, s, "append", "doomed", marker); r.code != 0 {
					t.Fatalf("append: %+v", r)
				}
			}
			if r := asked(t, s, "ls", "--json"); !strings.Contains(r.stdout, marker) {
				t.Fatalf("ls: %+v", r)
			}
			if r := asked(t, s, "rm", "doomed", "--yes"); r.code != 0 {
				t.Fatalf("rm: %+v", r)
			}
			if r := asked(t, s, "prune"); r.code != 0 { // it may have been done already
				t.Errorf("prune: %+v", r)
			}
			if found := filesWith(t, store, marker); len(found) != 1 || found[0] != "journal" {
				t.Errorf("after prune it is in %q", found)
			}
			ok(t, store, "prune", "--scrub")
			if found := filesWith(t, store, marker); len(found) > 0 {
				t.Errorf("after prune --scrub it is in %q", found)
			}
			w.send(`{"data":"more"}`)
			if code := w.exit(); code != 3 {
				t.Errorf("the writer: exit code %d, stderr %s", code, w.stderr)
			}
			for n := range 3 {
				if r := through(t, s, "append", "other", fmt.Sprint("on ", n)); r.code != 0 {
					t.Fatalf("append: %+v", r)
				}
			}
			if open := keptOpen(t, s.process, "doomed"); len(open) > 0 {
				t.Errorf("the server still has open %q", open)
			}
			if r := ok(t, store, "show", "other"); !strings.Contains(r, "on 2") {
				t.Errorf("other: %s", r)
			}
			if r := through(t, s, "show", "doomed"); r.code != 3 {
				t.Errorf("show: %+v", r)
			}
			ok(t, store, "verify")
			s.drain()
			ok(t, store, "verify")
			if found := filesWith(t, store, marker); len(found) > 0 {
				t.Errorf("in the end it is in %q", found)
			}
		})
	}
}

// TestScrubBesideWriters: the journal is replaced and overwritten repeatedly while processes
// write and sessions are deleted: every acknowledged event is there once, and nothing of the
// deleted ones.
func TestScrubBesideWriters(t *testing.T) {
	const marker = "SECRETMARKER"
	store, l := newStore(t), newLedger()
	ok(t, store, "new", remoteSession)
	s := startServer(t, store)
	var writers []*feeder
	for i := range 3 {
		writers = append(writers, feed(t, l, store, remoteSession, fmt.Sprint("line", i), scale(1000), 200))
	}
	scrubs := 0
	for running := true; running; scrubs++ {
		running = false
		for _, w := range writers {
			running = running || w.running()
		}
		id := fmt.Sprint("doomed-", scrubs)
		if r := through(t, s, "append", id, marker, "--create"); r.code != 0 {
			t.Fatalf("append: %+v", r)
		}
		if r := through(t, s, "rm", id, "--yes"); r.code != 0 {
			t.Fatalf("rm: %+v", r)
		}
		ok(t, store, "prune", "--scrub")
	}
	for _, w := range writers {
		if code := w.exit(); code != 0 {
			t.Errorf("writer %s: exit code %d, stderr %s", w.name, code, w.stderr)
		}
	}
	if found := filesWith(t, store, marker); len(found) > 0 {
		t.Errorf("what was deleted is in %q", found)
	}
	s.drain()
	ok(t, store, "verify")
	t.Logf("%d events, %d scrubs", l.check(t, store), scrubs)
}
