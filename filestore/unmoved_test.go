//go:build linux

package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestForeignChangesInCompany: a log that is replaced, removed or edited from outside is noticed
// in a group of many sessions, where one look at the directory stands for one at each log, just
// as in a group of its own: before the group is planned, and before its lines are written.
func TestForeignChangesInCompany(t *testing.T) {
	edit := func(change func(b []byte) []byte) func(path string) error {
		return func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, change(b), 0o600) // in place: the same inode
		}
	}
	harms := map[string]func(path string) error{
		"nothing":   func(string) error { return nil },
		"removed":   os.Remove,
		"emptied":   edit(func([]byte) []byte { return nil }),
		"shortened": edit(func(b []byte) []byte { return b[:len(b)-20] }),
		"longer":    edit(func(b []byte) []byte { return append(b, "and this\n"...) }),
		"last line edited": edit(func(b []byte) []byte { // any other digit
			b[len(b)-4] = map[bool]byte{false: '0', true: '1'}[b[len(b)-4] == '0']
			return b
		}),
		"replaced by a copy": func(path string) error {
			b, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
		},
		"replaced by another": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", []byte("other\n"), 0o600), os.Rename(path+".new", path))
		},
	}
	for name, harm := range harms {
		for _, late := range []bool{false, true} {
			moment := "before the plan"
			if late {
				moment = "before the logs"
			}
			t.Run(name+"/"+moment, func(t *testing.T) {
				alone, company := afterHarm(t, harm, late, 0), afterHarm(t, harm, late, 31)
				if alone != company {
					t.Errorf("alone:\n%s\nin company:\n%s", alone, company)
				}
			})
		}
	}
}

// afterHarm appends to a session, with others in the same group, while its log is changed, and
// describes the result.
func afterHarm(t *testing.T, harm func(path string) error, late bool, others int) string {
	t.Helper()
	dir := t.TempDir()
	fsys, err := vfs.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg := defaultConfig()
	cfg.random = func() uint64 { return 4711 }
	// An hour ahead: as if no log had been created for a while.
	cfg.now = func() time.Time { return time.Now().Add(time.Hour).UTC() }
	s, err := open(fsys, Options{LockWait: time.Minute}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ids := []hansard.SessionID{"harmed"}
	for i := range others {
		ids = append(ids, hansard.SessionID(fmt.Sprint("other-", i)))
	}
	for _, id := range ids {
		say(t, s, id, nil, "one")
	}
	group := func() (all []*request) {
		for _, id := range ids {
			r := newAppend(id, &hansard.Batch{Events: []hansard.Event{text("more")}})
			r.done = make(chan struct{}, 1)
			all = append(all, r)
		}
		return all
	}
	commit := func(all []*request, between func()) {
		s.committer.queue.mu.Lock()
		s.committer.queue.waiting = append(s.committer.queue.waiting, all...)
		s.committer.queue.mu.Unlock()
		if g := s.committer.writeGroup(); g != nil {
			between()
			s.committer.finishGroup(g)
		}
		for _, r := range all {
			<-r.done
		}
	}
	for range 2 { // the first sees the logs, the second relies on that
		all := group()
		commit(all, func() {})
		for _, r := range all {
			if r.err != nil {
				t.Fatal(r.err)
			}
		}
	}
	path := filepath.Join(dir, filepath.FromSlash(sessionlog.Path(sessionlog.EncodeName("harmed"))))
	do := func() {
		if err := harm(path); err != nil {
			t.Fatal(err)
		}
	}
	all := group()
	if late {
		commit(all, do)
	} else {
		do()
		commit(all, func() {})
	}
	for _, r := range all[1:] {
		if r.err != nil {
			t.Errorf("session %s, which nobody touched: %v", r.id, r.err)
		}
	}
	read, err := s.Stat(t.Context(), "harmed")
	told := fmt.Sprintf("answer: %v\nseq %d, damaged: %v, error: %v\nset aside: %d", all[0].err, read.LastSeq, read.Damage, err, len(setAsideOf(s, "harmed")))
	return regexp.MustCompile(`aside/harmed\.\d+`).ReplaceAllString(told, "aside/harmed.POSITION")
}

// TestStoreFilesReplaced: it is noticed if write.lock, the journal or control is replaced or
// removed from outside, although one look at the store's directory stands for one at each file.
// Two stores share the directory, so if one goes on with the old file, both assign the same seqs.
func TestStoreFilesReplaced(t *testing.T) {
	byCopy := func(path string) error {
		b, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
	}
	harms := map[string]struct {
		file string
		harm func(path string) error
	}{
		"nothing":                    {peers.ControlName, func(string) error { return nil }},
		"write.lock removed":         {peers.WriteLock, os.Remove},
		"write.lock replaced":        {peers.WriteLock, byCopy},
		"control removed":            {peers.ControlName, os.Remove},
		"control replaced":           {peers.ControlName, byCopy},
		"journal replaced by a copy": {journal.Name, byCopy},
	}
	for name, h := range harms {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var stores []*Store
			for range 2 {
				fsys, err := vfs.OpenDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				cfg := defaultConfig()
				// An hour ahead: as if the directory had not changed for a while.
				cfg.now = func() time.Time { return time.Now().Add(time.Hour).UTC() }
				s, err := open(fsys, Options{LockWait: time.Minute}, cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				stores = append(stores, s)
			}
			var want []string
			both := func(what string) {
				for i, s := range stores {
					say := fmt.Sprintf("%s by %d", what, i)
					if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{text("%s", say)}}); err != nil {
						t.Fatalf("%s: %v", say, err)
					}
					want = append(want, say)
				}
			}
			both("first")
			nextTick(t, dir)
			both("second")
			for i, s := range stores {
				s.lock.mu.Lock()
				known := s.lock.unmoved()
				s.lock.mu.Unlock()
				if !known {
					t.Errorf("store %d looks at every file: this tests nothing", i)
				}
			}
			path := filepath.Join(dir, h.file)
			if err := h.harm(path); err != nil {
				t.Fatal(err)
			}
			both("third")
			both("fourth")
			for i, s := range stores {
				hears(t, s, "s", want...)
				for file, open := range map[string]vfs.File{peers.WriteLock: s.lock.files.write, peers.ControlName: s.lock.state.ctl.File(), journal.Name: s.lock.state.ring.File} {
					has, err := open.Inode()
					leads, _, err2 := s.fs.Inode(file)
					if err != nil || err2 != nil || has != leads {
						t.Errorf("store %d has %s open as inode %d, its name leads to %d: %v, %v", i, file, has, leads, err, err2)
					}
				}
			}
		})
	}
}

// nextTick waits until the clock of the file system has moved on since the directory last
// changed, so that the next change gives it another time.
func nextTick(t *testing.T, dir string) {
	t.Helper()
	changed := func(dir string) int64 {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ctim.Nano()
	}
	for other := t.TempDir(); changed(other) <= changed(dir); {
		if err := os.Chtimes(other, time.Time{}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
}
