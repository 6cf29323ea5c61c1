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

// asking are the ways to ask for something while a server runs.
var asking = map[string]func(t *testing.T, s *server, args ...string) result{
	"on the directory": func(t *testing.T, s *server, args ...string) result { return run(t, command(s.store, args...)) },
	"through a server": through,
}

// markedFile is a file to attach that has a marker in its name and, many times, in its content.
func markedFile(t *testing.T, marker, what string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), marker+"-"+what)
	must(t, os.WriteFile(file, []byte(strings.Repeat(what+" "+marker+"\n", 10_000)), 0o600))
	return file
}

// fillMarked makes a session that a writer and a server have open, with a marker in twenty events
// of each of them, and in attached files that events name.
func fillMarked(t *testing.T, s *server, id, marker string, ask func(line string) string) {
	t.Helper()
	for i := range 20 {
		ask(fmt.Sprintf(`{"id":"event %d","data":"%s %d"}`, i, marker, i))
		if r := through(t, s, "append", id, fmt.Sprint(marker, " through ", i)); r.code != 0 {
			t.Fatalf("append: %+v", r)
		}
	}
	for what, asked := range asking {
		if r := asked(t, s, "append", id, marker, "--attach", markedFile(t, marker, what)); r.code != 0 {
			t.Fatalf("append --attach %s: %+v", what, r)
		}
	}
	if found := filesWith(t, s.store, marker); len(found) < 4 || !strings.HasPrefix(found[0], "attachments/") || !strings.HasPrefix(found[1], "attachments/") {
		t.Fatalf("before anything is erased it is in %q", found)
	}
}

// TestErased: after rm of a session that two other processes have open, one of them a server,
// prune leaves nothing of it except in the journal, and prune --scrub nothing at all, whether the
// server is asked or not; the others go on, and none of their descriptors keeps it.
func TestErased(t *testing.T) {
	const marker = "SECRETMARKER"
	for what, asked := range asking {
		t.Run(what, func(t *testing.T) {
			store := newStore(t)
			s := startServer(t, store)
			ok(t, store, "new", "doomed", "--title", marker+"-title", "--label", "secret="+marker)
			ok(t, store, "append", "other", "stays", "--create")
			w := start(t, command(store, "append", "doomed", "--jsonl", "-", "--each", "--json"), nil)
			w.ask(fmt.Sprintf(`{"id":"%s","data":1}`, marker))
			fillMarked(t, s, "doomed", marker, w.ask)
			if r := through(t, s, "attach", "doomed", markedFile(t, marker, "not named")); r.code != 0 {
				t.Fatalf("attach: %+v", r)
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
			if r := asked(t, s, "prune", "--scrub"); r.code != 0 {
				t.Errorf("prune --scrub: %+v", r)
			}
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

// TestRedacted: when events of a session are redacted that two other processes have open, one of
// them a server, nothing of them is left except in the journal, and after prune --scrub nothing at
// all, whether the server is asked or not; the others go on with the session, and none of their
// descriptors keeps the old log.
func TestRedacted(t *testing.T) {
	const marker = "SECRETMARKER"
	for what, asked := range asking {
		t.Run(what, func(t *testing.T) {
			store := newStore(t)
			s := startServer(t, store)
			ok(t, store, "append", "open", "stays", "--create")
			w := start(t, command(store, "append", "open", "--jsonl", "-", "--each", "--json"), nil)
			fillMarked(t, s, "open", marker, w.ask)
			if r := asked(t, s, "redact", "open", "2-43", "--reason", "asked for", "--yes"); r.code != 0 {
				t.Fatalf("redact: %+v", r)
			}
			if found := filesWith(t, store, marker); len(found) > 1 || len(found) == 1 && found[0] != "journal" {
				t.Errorf("after redact it is in %q", found)
			}
			if r := through(t, s, "append", "other", "on", "--create"); r.code != 0 {
				t.Fatalf("append: %+v", r)
			}
			if open := keptOpen(t, s.process, "open"); len(open) > 0 { // before scrubbing, which closes every log
				t.Errorf("after a write to another session the server still has open %q", open)
			}
			if r := asked(t, s, "prune", "--scrub"); r.code != 0 {
				t.Errorf("prune --scrub: %+v", r)
			}
			if found := filesWith(t, store, marker); len(found) > 0 {
				t.Errorf("after prune --scrub it is in %q", found)
			}
			w.ask(`{"data":"the writer goes on"}`)
			if r := through(t, s, "append", "open", "the server goes on"); r.code != 0 {
				t.Errorf("append: %+v", r)
			}
			for name, p := range map[string]*process{"server": s.process, "writer": w} {
				if open := keptOpen(t, p, "open"); len(open) > 0 {
					t.Errorf("the %s still has open %q", name, open)
				}
			}
			for _, asked := range asking {
				shown := asked(t, s, "show", "open", "--json").stdout
				if lines := strings.Split(strings.TrimSpace(shown), "\n"); len(lines) != 46 || strings.Contains(shown, marker) || strings.Count(shown, `"redacted":true`) != 42 ||
					!strings.Contains(lines[0], "stays") || !strings.Contains(lines[44], "the writer goes on") || !strings.Contains(lines[45], "the server goes on") {
					t.Errorf("show: %s", shown)
				}
				if r := asked(t, s, "get", "open", "--json"); r.code != 0 || r.stdout != "" {
					t.Errorf("get: %+v", r)
				}
			}
			w.finish()
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
		if scrubs%2 == 0 {
			ok(t, store, "prune", "--scrub")
		} else if r := through(t, s, "prune", "--scrub"); r.code != 0 {
			t.Fatalf("prune --scrub: %+v", r)
		}
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
