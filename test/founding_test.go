//go:build unix

package test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore"
)

// The five reports this project was founded on. Each test first does it the naive way, step by
// step in the order that hurts, and must see it fail: otherwise the test proves nothing. Then it
// does it our way, under load.

// must is for steps of the naive programs, which all succeed: that is the problem.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFoundingF1: a save that empties the file before it locks it.
func TestFoundingF1(t *testing.T) {
	t.Run("naive", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "session.json")
		must(t, os.WriteFile(path, []byte(`{"messages":["hello"]}`), 0o600))
		writer, err := os.Create(path) // create, which truncates it, then lock
		must(t, err)
		read, err := os.ReadFile(path) // by a reader, who finds no lock yet
		must(t, err)
		must(t, syscall.Flock(int(writer.Fd()), syscall.LOCK_EX))
		buffered := bufio.NewWriter(writer)
		_, saved := buffered.WriteString(`{"messages":["hello","again"]}`)
		must(t, writer.Close())     // which unlocks
		dropped := buffered.Flush() // in a clean-up whose error nobody checks
		after, err := os.ReadFile(path)
		must(t, err)
		if len(read) > 0 || saved != nil || dropped == nil || len(after) > 0 {
			t.Errorf("the naive way did not fail: read %q, saved %v, flushed %v, left %q", read, saved, dropped, after)
		}
	})
	t.Run("ours", func(t *testing.T) {
		store, l := newStore(t), newLedger()
		serve(t, store, waitMax).ask("append demo first 1 10")
		reading := readAll(t, 4, store, "demo") // each read: whole, and never less than before
		var writing []*feeder
		for w := range 3 {
			writing = append(writing, feed(t, l, store, "demo", fmt.Sprint("w", w), 100, 3000*w+10))
		}
		for _, f := range writing {
			if code := f.exit(); code != 0 {
				t.Errorf("writer: exit code %d, stderr %s", code, f.stderr)
			}
		}
		t.Logf("%d events, %d looks", l.check(t, store), reading.finish())
	})
	t.Run("a save that is not on disk is an error", func(t *testing.T) {
		store, l := newStore(t), newLedger()
		w := serve(t, store, waitMax)
		w.ask("limit 1") // no byte can be written anywhere
		line := w.ask("append demo first 1 10")
		if l.answer(line) {
			t.Errorf("it was acknowledged: %s", line)
		}
		w.ask("limit 0")
		if line := w.ask("append demo second 1 10"); !l.answer(line) {
			t.Error(line)
		}
		l.check(t, store)
	})
	t.Run("three answers", func(t *testing.T) {
		store := newStore(t)
		ok(t, store, "append", "fine", "hello", "--create")
		ok(t, store, "append", "broken", "hello", "--create")
		damage(t, logOf(store, "broken"))
		for session, want := range map[string]int{"fine": 0, "missing": 3, "broken": 6} {
			if r := run(t, command(store, "show", session)); r.code != want {
				t.Errorf("show %s: exit code %d, want %d; stderr %s", session, r.code, want, r.stderr)
			}
		}
	})
}

// lockFile is the lock of reports F2 and F3: it is held while it exists.
type lockFile string

func (l lockFile) create() bool {
	f, err := os.OpenFile(string(l), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		_ = f.Close() // as naive as the rest
	}
	return err == nil
}

// TestFoundingF2: a release that destroys the next owner's lock: that of the store, and the turn,
// which the report is about.
func TestFoundingF2(t *testing.T) {
	t.Run("naive", func(t *testing.T) {
		lock := lockFile(filepath.Join(t.TempDir(), "session.lock"))
		owners := map[string]bool{} // in memory, of this process
		first := lock.create()
		owners["session"] = true
		delete(owners, "session") // release, first half; the file is removed later
		// Acquire again: the file is there, we do not own it, so it is an orphan.
		orphan := !lock.create() && !owners["session"]
		must(t, os.Remove(string(lock)))
		second := lock.create()
		must(t, os.Remove(string(lock))) // release of the first grant, second half
		third := lock.create()           // another process
		if !first || !orphan || !second || !third {
			t.Errorf("the naive way did not fail: %v %v %v %v", first, orphan, second, third)
		}
	})
	t.Run("ours", func(t *testing.T) {
		store, l := newStore(t), newLedger()
		first := open(t, store)
		if line := appendMarks(first, "demo", "first", 1, 10); !l.answer(line) {
			t.Fatal(line)
		}
		second := open(t, store)
		must(t, first.Close())
		holder := holdWriteLock(t, store)
		must(t, first.Close()) // again: it has nothing left to release
		busy(t, store)
		if line := appendMarks(first, "demo", "late", 1, 10); !strings.Contains(line, hansard.ErrClosed.Error()) {
			t.Errorf("an append after the release: %s", line)
		}
		must(t, holder.Close())
		if line := appendMarks(second, "demo", "next", 1, 10); !l.answer(line) {
			t.Error(line)
		}
		must(t, second.Close())
		l.check(t, store)
	})
	t.Run("our turns", turnsF2)
}

// TestFoundingF3: two processes take over one stale lock, judged by a PID or by age.
func TestFoundingF3(t *testing.T) {
	t.Run("naive, with an owner", naiveOwners)
	t.Run("naive, delete and create", func(t *testing.T) {
		lock := lockFile(filepath.Join(t.TempDir(), "session.lock"))
		lock.create()                    // its owner died: both A and B judge it stale
		must(t, os.Remove(string(lock))) // A
		a := lock.create()
		must(t, os.Remove(string(lock))) // B, which judged before A acted
		b := lock.create()
		if !a || !b {
			t.Errorf("the naive way did not fail: %v %v", a, b)
		}
	})
	t.Run("naive, rename", func(t *testing.T) {
		dir := t.TempDir()
		lock := filepath.Join(dir, "session.lock")
		must(t, os.WriteFile(lock, []byte("dead"), 0o600))
		for _, who := range []string{"a", "b"} {
			must(t, os.WriteFile(filepath.Join(dir, who), []byte(who), 0o600))
		}
		a := os.Rename(filepath.Join(dir, "a"), lock)
		b := os.Rename(filepath.Join(dir, "b"), lock)
		if a != nil || b != nil {
			t.Errorf("the naive way did not fail: %v %v", a, b)
		}
	})
	t.Run("ours", func(t *testing.T) {
		store, l := newStore(t), newLedger()
		ok(t, store, "new", "demo")
		for round := range scale(3) {
			// A process dies inside the lock while eight wait for it.
			dead := start(t, worker(t, "hold", filepath.Join(store, "write.lock")), nil)
			dead.line()
			busy(t, store)
			var waiting []*feeder
			for w := range 8 {
				waiting = append(waiting, feed(t, l, store, "demo", fmt.Sprintf("r%d-w%d", round, w), 5, 50))
			}
			dead.kill()
			for _, f := range waiting {
				if code := f.exit(); code != 0 {
					t.Errorf("a waiter: exit code %d, stderr %s", code, f.stderr)
				}
			}
		}
		if events := l.check(t, store); events != scale(3)*8*5 {
			t.Errorf("%d events, want %d", events, scale(3)*8*5)
		}
	})
	t.Run("nothing on disk is a lock", func(t *testing.T) {
		store, l := newStore(t), newLedger()
		ok(t, store, "new", "demo")
		// Left behind by others: with a live process's PID, another host, garbage.
		for name, content := range map[string]string{"write.lock": fmt.Sprint(os.Getpid()), "open.lock": "1@elsewhere", "sync.lock": "\x00",
			"check.lock": "x", "instances/0123456789abcdef0123456789abcdef": strings.Repeat("\xff", 64), "demo.lock": "1", "sessions/demo.lock": "1"} {
			must(t, os.WriteFile(filepath.Join(store, name), []byte(content), 0o600))
		}
		f := feed(t, l, store, "demo", "w", 5, 50)
		if code := f.exit(); code != 0 {
			t.Errorf("exit code %d, stderr %s", code, f.stderr)
		}
		l.check(t, store)
	})
	t.Run("our turns, the holder dies", turnsF3)
	t.Run("our turns, restarted in place", turnsInPlace) // containers: TestTurnNamespaces
	t.Run("our turns, slow", turnsSlow)
	t.Run("our turns, among rubbish", turnsAmongRubbish)
}

// TestFoundingF4: one shared index that everybody reads, changes and writes.
func TestFoundingF4(t *testing.T) {
	t.Run("naive", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "index.json")
		must(t, os.WriteFile(path, []byte("one\ntwo\n"), 0o600))
		a, err := os.ReadFile(path)
		must(t, err)
		must(t, os.Truncate(path, 0)) // A is about to write
		b, err := os.ReadFile(path)   // B falls back to an empty index
		must(t, err)
		must(t, os.WriteFile(path, append(a, "three\n"...), 0o600)) // A
		must(t, os.WriteFile(path, append(b, "four\n"...), 0o600))  // B
		if left, _ := os.ReadFile(path); string(left) != "four\n" {
			t.Errorf("the naive way did not fail: %q", left)
		}
	})
	t.Run("naive, fixed temporary name", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "index.json")
		must(t, os.WriteFile(path+".tmp", []byte("a\n"), 0o600))
		must(t, os.WriteFile(path+".tmp", []byte("b\n"), 0o600))
		a, b := os.Rename(path+".tmp", path), os.Rename(path+".tmp", path)
		if left, _ := os.ReadFile(path); a != nil || b == nil || string(left) != "b\n" {
			t.Errorf("the naive way did not fail: %v, %v, %q", a, b, left)
		}
	})
	t.Run("ours", func(t *testing.T) {
		const processes, goroutines = 12, 12
		store := newStore(t)
		var made []*process
		for i := range processes {
			made = append(made, start(t, command(store, "new", fmt.Sprint("process-", i)), nil))
		}
		s := open(t, store)
		errs := make(chan error, goroutines)
		for i := range goroutines {
			go func() {
				_, err := s.Create(t.Context(), hansard.SessionID(fmt.Sprint("goroutine-", i)), hansard.Meta{})
				errs <- err
			}()
		}
		for range goroutines {
			must(t, <-errs)
		}
		for _, p := range made {
			if code := p.exit(); code != 0 {
				t.Errorf("new: exit code %d, stderr %s", code, p.stderr)
			}
		}
		must(t, s.Close())
		if got := len(list(t, store)); got != processes+goroutines {
			t.Errorf("%d sessions are listed, want %d", got, processes+goroutines)
		}
		// Corrupt never means empty: a damaged session is listed, and hides no other.
		damage(t, logOf(store, "process-0"))
		must(t, os.RemoveAll(filepath.Join(store, "cache"))) // derived, if it exists at all
		if got := len(list(t, store)); got != processes+goroutines {
			t.Errorf("%d sessions are listed beside a damaged one, want %d", got, processes+goroutines)
		}
	})
}

// TestFoundingF5: a sequence number that is counted outside of the commit.
func TestFoundingF5(t *testing.T) {
	t.Run("naive", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		must(t, os.WriteFile(path, []byte("1\n2\n"), 0o600))
		count := func() int {
			b, err := os.ReadFile(path)
			must(t, err)
			return strings.Count(string(b), "\n")
		}
		a, b := count(), count() // both, before either appends
		for _, n := range []int{a, b} {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = fmt.Fprintln(f, n+1)
			must(t, errors.Join(err, f.Close()))
		}
		if left, _ := os.ReadFile(path); string(left) != "1\n2\n3\n3\n" {
			t.Errorf("the naive way did not fail: %q", left)
		}
	})
	t.Run("ours", func(t *testing.T) {
		const processes, each, goroutines = 6, 50, 32
		store, l := newStore(t), newLedger()
		var writing []*feeder
		for w := range processes {
			writing = append(writing, feed(t, l, store, "demo", fmt.Sprint("w", w), each, 100))
		}
		s := open(t, store)
		answers := make(chan string, goroutines)
		for i := range goroutines {
			go func() { answers <- appendMarks(s, "demo", fmt.Sprint("g", i), 3, 100) }()
		}
		for range goroutines {
			if line := <-answers; !l.answer(line) {
				t.Error(line)
			}
		}
		for _, f := range writing {
			if code := f.exit(); code != 0 {
				t.Errorf("writer: exit code %d, stderr %s", code, f.stderr)
			}
		}
		// And with retries: many send the same batch, and it is stored once.
		before := len(readSession(t, store, "demo"))
		var retries []*process
		for range processes {
			retries = append(retries, start(t, command(store, "append", "demo", "--key", "k", "--json", "--data",
				string(newMark("keyed", 0, 1, 10).encode())), nil))
		}
		for _, p := range retries {
			if line := p.line(); !strings.Contains(line, fmt.Sprintf(`"first":%d,"last":%d`, before+1, before+1)) {
				t.Errorf("a retry: %s", line)
			}
		}
		must(t, s.Close())
		if got, want := l.check(t, store), processes*each+3*goroutines+1; got != want {
			t.Errorf("%d events, want %d", got, want)
		}
	})
}

// open opens a store in this process. It is closed at the end of the test, if not before.
func open(t *testing.T, store string) *filestore.Store {
	t.Helper()
	s, err := filestore.Open(store, nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() }) // harmless the second time
	return s
}

// logOf is the log of a session whose id needs no encoding.
func logOf(store, session string) string { return filepath.Join(store, "sessions", session+".jsonl") }

// damage changes a byte in the first line of a log.
func damage(t *testing.T, log string) {
	t.Helper()
	b, err := os.ReadFile(log)
	must(t, err)
	b[20] ^= 1
	must(t, os.WriteFile(log, b, 0))
}

// holdWriteLock takes the store's write lock until the file is closed.
func holdWriteLock(t *testing.T, store string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join(store, "write.lock"))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() }) // usually it is closed already
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	return f
}

// busy checks that nobody can append at the moment, and that the command says so.
func busy(t *testing.T, store string) result {
	t.Helper()
	r := run(t, command(store, "append", "demo", "never", "--json", "--lock-wait", "100ms"))
	if code, _ := r.failure(); r.code != 1 || code != "busy" {
		t.Errorf("an append while somebody holds the lock: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	return r
}
