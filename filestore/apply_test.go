package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestApplySideBySide: logs written in parallel end up as if written one by one, and a log
// modified from outside is still noticed and left alone.
func TestApplySideBySide(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const sessions = 3 * manyEntries
	id := func(i int) hansard.SessionID { return hansard.SessionID(fmt.Sprint("s", i)) }
	text := hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte(`"one"`)}}}
	for i := range 2 * sessions { // the second append finds the log that the first one made
		if _, err := s.Append(t.Context(), id(i%sessions), text); err != nil {
			t.Fatal(err)
		}
	}
	// All of them in one group: the leader waits for the lock until they have queued up.
	s.lock.mu.Lock()
	errs := make([]error, sessions)
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() { _, errs[i] = s.Append(t.Context(), id(i), text) })
	}
	for waiting := 0; waiting < sessions; runtime.Gosched() {
		s.committer.queue.mu.Lock()
		waiting = len(s.committer.queue.waiting)
		s.committer.queue.mu.Unlock()
	}
	// Change the checksum of the last line, so that neither length nor position gives it away.
	edited := filepath.Join(dir, filepath.FromSlash(sessionlog.Path(sessionlog.EncodeName(id(7)))))
	b, err := os.ReadFile(edited)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-4] ^= 1
	if err := os.WriteFile(edited, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s.lock.mu.Unlock()
	all.Wait()
	for i := range sessions {
		var got []string
		var readErr error
		for e, err := range s.Read(t.Context(), id(i), hansard.Range{}) {
			if err != nil {
				readErr = err
				break
			}
			got = append(got, string(e.Data))
		}
		if i == 7 {
			if !errors.Is(errs[i], hansard.ErrUnknown) || !errors.Is(errs[i], hansard.ErrDamaged) {
				t.Errorf("the append that was set aside: %v", errs[i])
			}
			if now, err := os.ReadFile(edited); err != nil || string(now) != string(b) {
				t.Errorf("the edited log was written to: %q, %v", now[len(b):], err)
			}
			if !errors.Is(readErr, hansard.ErrDamaged) {
				t.Errorf("the edited session reads as %q, %v", got, readErr)
			}
		} else if errs[i] != nil || readErr != nil || len(got) != 3 {
			t.Errorf("session %d: %v, reads as %q, %v", i, errs[i], got, readErr)
		}
	}
}

// TestAsideIsNotStored: if the log is modified from outside while an append is in flight, the
// append is set aside and not acknowledged, whichever process notices.
func TestAsideIsNotStored(t *testing.T) {
	for _, by := range []string{"a", "b"} {
		t.Run("by "+by, func(t *testing.T) {
			d := vfs.NewDisk(1)
			a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
			say(t, a, "s", nil, "one")
			say(t, a, "other", nil, "one")
			hand, err := d.Process("editor").Open(sessionlog.Path("s"), 0)
			if err != nil {
				t.Fatal(err)
			}
			told := false
			d.OnOp(func(op vfs.Op) {
				// The sync is done, and the other processes have been told.
				if op.Proc != "a" || op.Kind != vfs.OpWrite || op.Name != peers.ControlName || op.Off != peers.RecordBytes || told {
					return
				}
				told = true
				size, err := hand.Size()
				if err == nil {
					_, err = hand.WriteAt([]byte("and this\n"), size)
				}
				if err == nil && by == "b" {
					var l *locked
					if l, err = b.lock.lockCaughtUp(); err == nil {
						l.unlock()
					}
				}
				if err != nil {
					t.Error(err)
				}
			})
			_, err = a.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{text("two")}})
			if !told || !errors.Is(err, hansard.ErrUnknown) || !errors.Is(err, hansard.ErrDamaged) {
				t.Errorf("append: %v; the log was changed: %v", err, told)
			}
			if len(setAsideOf(a, "s")) != 1 {
				t.Errorf("set aside: %q", setAsideOf(a, "s"))
			}
			say(t, a, "other", nil, "two") // other sessions are not affected
			say(t, b, "other", nil, "three")
			hears(t, b, "other", "one", "two", "three")
			// Lines that were set aside need no recovery.
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Fatal(err)
			}
			file, err := d.Process("looker").Open(journal.Name, vfs.ReadOnly)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if slots, _, best, err := journal.ReadSlots(file); err != nil || best < 0 || !journal.LeftClean(slots, best) {
				t.Errorf("the journal was not left clean: %+v, %v", slots, err)
			}
		})
	}
}
