package filestore

import (
	"fmt"
	"os"
	"testing"
	"time"

	"hansard"
)

// watchedFiles are the paths that the kernel watches for a process.
func watchedFiles(s *Store) []string {
	s.waiters.mu.Lock()
	defer s.waiters.mu.Unlock()
	if s.waiters.watch == nil {
		return nil
	}
	return s.waiters.watch.WatchList()
}

// TestWaitLingers: a log stays watched for a moment after the last waiter has left, and no
// longer.
func TestWaitLingers(t *testing.T) {
	s := openReal(t, 1)[0]
	say(t, s, "s", nil, "hello")
	p := s.waiters.join("s")
	if !p.watched {
		t.Skip("SKIPPED: there is no inotify here: logs are polled")
	}
	s.waiters.leave("s", p, true)
	if again := s.waiters.rejoin("s"); again != p || len(watchedFiles(s)) != 1 {
		t.Fatalf("it is not watched any more: %v", watchedFiles(s))
	}
	expire := func() {
		p.linger.Stop()
		s.waiters.expire("s", p)
	}
	p.left = time.Now().Add(-2 * lingerFor) // long ago; but there is a waiter
	expire()
	if len(watchedFiles(s)) != 1 {
		t.Error("it is not watched while somebody waits")
	}
	s.waiters.leave("s", p, true)
	expire() // too early
	if len(watchedFiles(s)) != 1 {
		t.Error("it is not watched after a moment")
	}
	p.linger.Stop()
	p.left = time.Now().Add(-2 * lingerFor)
	expire()
	if len(watchedFiles(s)) != 0 || len(s.waiters.m) != 0 || s.waiters.lingering != 0 {
		t.Errorf("watched for ever: %v", watchedFiles(s))
	}
}

// TestWaitLingersForFew: of many logs that were waited for, only a few stay watched.
func TestWaitLingersForFew(t *testing.T) {
	s := openReal(t, 1)[0]
	for i := range 3 * lingerMax {
		id := hansard.SessionID(fmt.Sprint("s", i))
		say(t, s, id, nil, "hello")
		s.waiters.leave(string(id), s.waiters.join(string(id)), true)
	}
	if n := len(watchedFiles(s)); n > lingerMax {
		t.Errorf("%d files are watched", n)
	}
}

// TestWaitReplacedLog: a waiter for a log that is replaced (by a repair, or by another process's
// redaction) is woken by writes to the new one.
func TestWaitReplacedLog(t *testing.T) {
	s := openReal(t, 1)[0]
	say(t, s, "s", nil, "hello")
	p := s.waiters.join("s")
	defer s.waiters.leave("s", p, true)
	if !p.watched {
		t.Skip("SKIPPED: there is no inotify here: logs are polled")
	}
	path := s.hostPath("s")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wokenBy := func(what string, do func() error) {
		t.Helper()
		woken := s.waiters.channel(p)
		if err := do(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-woken:
		case <-time.After(time.Minute):
			t.Fatalf("not woken by %s", what)
		}
	}
	var replaced *os.File
	wokenBy("the replacement", func() error {
		if replaced, err = os.Create(path + ".tmp"); err == nil {
			_, err = replaced.Write(b)
		}
		if err == nil {
			err = os.Rename(path+".tmp", path)
		}
		return err
	})
	defer replaced.Close()
	for range 3 { // the replacement may wake it more than once
		wokenBy("a write to the new file", func() error { _, err := replaced.WriteAt(b, 0); return err })
	}
}
