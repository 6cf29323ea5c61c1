package filestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestPruneAttachments: an attachment that no event names is removed a day after it was stored.
// It stays if an event names it, if it is fresh, or if its session is damaged or unknown.
func TestPruneAttachments(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	attachTo := func(id hansard.SessionID, content string) hansard.Attachment {
		t.Helper()
		a, err := s.Attach(ctx, id, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	attach := func(content string) hansard.Attachment { return attachTo("s", content) }
	pathOf := func(name string, a hansard.Attachment) string {
		return filepath.Join(dir, filepath.FromSlash(attachmentPath(name, a.Digest)))
	}
	path := func(a hansard.Attachment) string { return pathOf("s", a) }
	age := func(file string) {
		t.Helper()
		before := time.Now().Add(-25 * time.Hour)
		if err := os.Chtimes(file, before, before); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Create(ctx, "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	named, unnamed, fresh, again := attach("named"), attach("unnamed"), attach("fresh"), attach("again")
	if _, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), Attachments: []hansard.Attachment{named}}}}); err != nil {
		t.Fatal(err)
	}
	given := filepath.Join(dir, attachmentsDir, "s", uploadPrefix+"0123456789abcdef")
	if err := os.WriteFile(given, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path(named), path(unnamed), path(again), given} {
		age(file)
	}
	attach("again") // makes it fresh again
	stranger := filepath.Join(dir, attachmentsDir, "stranger")
	if err := os.Mkdir(stranger, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stranger, strings.Repeat("0", 64)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	age(filepath.Join(stranger, strings.Repeat("0", 64)))
	// Which attachments the events of a damaged session name can't be told.
	for range 2 {
		say(t, s, "damaged", nil, "words")
	}
	ofDamaged := pathOf("damaged", attachTo("damaged", "unnamed"))
	age(ofDamaged)
	log := filepath.Join(dir, filepath.FromSlash(sessionlog.Path("damaged")))
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(log, b, 0o600); err != nil {
		t.Fatal(err)
	}
	done, err := s.Prune(ctx, false)
	if err != nil || len(done.Attachments) != 2 {
		t.Errorf("pruned %+v, %v", done, err)
	}
	for file, there := range map[string]bool{ofDamaged: true, path(named): true, path(fresh): true, path(again): true, filepath.Join(stranger, strings.Repeat("0", 64)): true, path(unnamed): false, given: false} {
		if _, err := os.Stat(file); (err == nil) != there {
			t.Errorf("%s: %v, want it there: %v", file, err, there)
		}
	}
	_, err = s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), Attachments: []hansard.Attachment{unnamed}}}})
	want(t, "naming what was pruned", err, hansard.ErrNoAttachment)
}

// TestPruneBetweenLookAndCommit: an append checks its attachments again at commit. One that was
// pruned after the first check makes the append fail.
func TestPruneBetweenLookAndCommit(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(context.Background(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	a, err := s.Attach(t.Context(), "s", strings.NewReader("content"))
	if err != nil {
		t.Fatal(err)
	}
	r := newAppend("s", &hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), Attachments: []hansard.Attachment{a}}}})
	if err := s.committer.prepare(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, filepath.FromSlash(attachmentPath("s", a.Digest)))
	before := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(file, before, before); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Prune(t.Context(), false); err != nil || len(done.Attachments) != 1 {
		t.Fatalf("pruned %+v, %v", done, err)
	}
	_, err = s.committer.submit(t.Context(), r)
	want(t, "the append", err, hansard.ErrNoAttachment)
}

// TestPruneLooksAgain: prune reads the log without a lock. An old attachment that another
// process names, or attaches again, between that and write.lock is not removed.
func TestPruneLooksAgain(t *testing.T) {
	const content = "content"
	for what, meanwhile := range map[string]func(a *Store, old hansard.Attachment) error{
		"an event names it": func(a *Store, old hansard.Attachment) error {
			_, err := a.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), Attachments: []hansard.Attachment{old}}}})
			return err
		},
		"attached again": func(a *Store, old hansard.Attachment) error {
			again, err := a.Attach(t.Context(), "s", strings.NewReader(content))
			if err == nil && again != old {
				t.Errorf("attached again it is %+v, it was %+v", again, old)
			}
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := vfs.NewDisk(1)
			on := func(p *vfs.Proc, seed uint64) *Store {
				cfg := simConfig(seed, simRing)
				cfg.now, cfg.pruneAge = d.Now, 100*time.Millisecond
				s, err := open(p, Options{LockWait: time.Hour}, cfg)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			procA, procB := d.Process("a"), d.Process("b")
			a, b := on(procA, 1), on(procB, 2)
			if _, err := a.Create(t.Context(), "s", hansard.Meta{}); err != nil {
				t.Fatal(err)
			}
			old, err := a.Attach(t.Context(), "s", strings.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			for attached := d.Now(); d.Now().Sub(attached) <= 100*time.Millisecond; {
				say(t, a, "another", nil, "time passes")
			}
			// After the log was read, and before write.lock is taken.
			d.StopAt(vfs.Match{Proc: "b", Kind: vfs.OpLock, Name: peers.WriteLock})
			var pruned []string
			var errs [2]error
			d.Go(procB, func() { pruned, errs[1] = b.attachments.prune(t.Context()) })
			d.Go(procA, func() {
				if errs[0] = procA.Await("prune", procB.Stopped); errs[0] == nil {
					errs[0] = meanwhile(a, old)
				}
				procB.Continue()
			})
			if err := errors.Join(d.Run(), errs[0], errs[1]); err != nil {
				t.Fatal(err)
			}
			if len(pruned) > 0 {
				t.Errorf("pruned %q\n%s", pruned, trace(d, 40))
			}
			if err := attachedWell(t.Context(), a, "s", old); err != nil {
				t.Error(err)
			}
			if err := soundStore(b); err != nil {
				t.Error(err)
			}
		})
	}
}
