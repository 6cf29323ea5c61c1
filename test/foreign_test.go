//go:build unix

package test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFailure15_PathSpelling: one store under several spellings of its path is one store: one
// lock, one sequence.
func TestFailure15_PathSpelling(t *testing.T) {
	dir, l := t.TempDir(), newLedger()
	store := filepath.Join(dir, "a", "store")
	must(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
	must(t, os.Mkdir(filepath.Join(dir, "b"), 0o700))
	ok(t, store, "new", "demo")
	must(t, os.Symlink("../a/store", filepath.Join(dir, "b", "link")))
	must(t, os.Symlink("a", filepath.Join(dir, "c")))
	const each = 50
	spellings := []string{store, filepath.Join(dir, "b", "link"), dir + "/c/store", dir + "/a/../a/./store//", "a/store", "./b/link/", "../" + filepath.Base(dir) + "/a/store", "file:a/store"}
	var writing []*process
	for i, spelling := range spellings {
		name, receipts := fmt.Sprint("w", i), 0
		cmd := command(spelling, "append", "demo", "--jsonl", "-", "--each", "--json")
		cmd.Dir = dir
		p := start(t, cmd, func(line string) {
			receipts++
			if err := l.receipt(fmt.Sprintf("%s-%d", name, receipts), line); err != nil {
				t.Error(err)
			}
		})
		for n := 1; n <= each; n++ {
			p.send(strings.TrimSuffix(batchInput(fmt.Sprintf("%s-%d", name, n), 1, 50), "\n"))
		}
		p.stdin.Close()
		writing = append(writing, p)
	}
	for _, p := range writing {
		if code := p.exit(); code != 0 {
			t.Errorf("%s: exit code %d, stderr %s", p.cmd, code, p.stderr)
		}
	}
	if got, want := l.check(t, store), len(spellings)*each; got != want || l.acks() != want {
		t.Errorf("%d events, %d receipts, want %d", got, l.acks(), want)
	}
}

// TestFailure44_Moved: nothing in a store depends on its location.
func TestFailure44_Moved(t *testing.T) {
	dir, l := t.TempDir(), newLedger()
	store := filepath.Join(dir, "here")
	for i := range 3 {
		w := serve(t, store, waitMax)
		for _, session := range []string{"a", "b"} {
			if line := w.ask(fmt.Sprintf("append %s %[1]s%d 2 100", session, i)); !l.answer(line) {
				t.Error(line)
			}
		}
		if i == 1 {
			w.kill() // moved with something to recover
		} else {
			w.finish()
		}
		moved := filepath.Join(dir, fmt.Sprint("there", i))
		must(t, os.Rename(store, moved))
		if _, err := os.Stat(store); err == nil {
			t.Fatal("it is still there")
		}
		store = moved
		l.check(t, store)
	}
	// A log that was restored into another store becomes a session of it. (Failure 43.)
	other := newStore(t)
	ok(t, other, "new", "first")
	b, err := os.ReadFile(logOf(store, "a"))
	must(t, err)
	must(t, os.WriteFile(logOf(other, "a"), b, 0o600))
	if got := list(t, other); len(got) != 2 {
		t.Errorf("%v are listed, want the restored one as well", got)
	}
	if got, want := len(readSession(t, other, "a")), len(readSession(t, store, "a")); got != want {
		t.Errorf("%d events in the restored session, want %d", got, want)
	}
	ok(t, other, "append", "a", "--data", string(newMark("restored", 0, 1, 10).encode()))
}

// tampering is a change made to the log of a session from outside.
type tampering struct {
	name string
	do   func(t *testing.T, log string, old []byte)
}

var tamperings = []tampering{
	{name: "a byte of the last line is changed", do: func(t *testing.T, log string, _ []byte) { change(t, log, -30) }},
	{name: "a byte in the middle is changed", do: func(t *testing.T, log string, _ []byte) {
		info, err := os.Stat(log)
		must(t, err)
		change(t, log, info.Size()/2)
	}},
	{name: "a line is appended", do: func(t *testing.T, log string, _ []byte) { addTo(t, log, `{"seq":99,"data":"mine"}`+"\n") }},
	{name: "text is appended", do: func(t *testing.T, log string, _ []byte) { addTo(t, log, "note to self\n") }},
	{name: "NULs are appended", do: func(t *testing.T, log string, _ []byte) { addTo(t, log, strings.Repeat("\x00", 100)) }},
	{name: "its last line is doubled", do: func(t *testing.T, log string, _ []byte) {
		b, err := os.ReadFile(log)
		must(t, err)
		lines := bytes.SplitAfter(b, []byte("\n"))
		addTo(t, log, string(lines[len(lines)-2]))
	}},
	{name: "its last line is removed by an editor", do: func(t *testing.T, log string, _ []byte) {
		b, err := os.ReadFile(log)
		must(t, err)
		b = b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1]
		must(t, os.WriteFile(log+"~", b, 0o600))
		must(t, os.Rename(log+"~", log))
	}},
	{name: "it is replaced by an older copy", do: func(t *testing.T, log string, old []byte) {
		must(t, os.WriteFile(log+"~", old, 0o600))
		must(t, os.Rename(log+"~", log))
	}},
	{name: "it is overwritten by an older copy", do: func(t *testing.T, log string, old []byte) {
		must(t, os.WriteFile(log, old, 0o600))
	}},
	{name: "it is removed", do: func(t *testing.T, log string, _ []byte) { must(t, os.Remove(log)) }},
	{name: "it is replaced by a directory", do: func(t *testing.T, log string, _ []byte) {
		must(t, os.Remove(log))
		must(t, os.Mkdir(log, 0o700))
	}},
	{name: "it is replaced by a link", do: func(t *testing.T, log string, _ []byte) {
		must(t, os.Rename(log, filepath.Join(filepath.Dir(log), "..", "elsewhere")))
		must(t, os.Symlink("../elsewhere", log))
	}},
}

// change changes a byte of a file, counted from its end when at is negative.
func change(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	if at < 0 {
		at += int64(len(b))
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte{b[at] ^ 1}, at)
	must(t, err)
}

func addTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString(text)
	must(t, err)
}

// TestFailure43_Tampered: a log is modified from outside while a writer has it open. The writer,
// or whoever looks next, notices; the foreign bytes are left as they are, and other sessions go
// on.
func TestFailure43_Tampered(t *testing.T) {
	for _, how := range tamperings {
		t.Run(how.name, func(t *testing.T) { tampered(t, how) })
	}
}

func tampered(t *testing.T, how tampering) {
	store, l := newStore(t), newLedger()
	log := logOf(store, "demo")
	w, beside := serve(t, store, waitMax), serve(t, store, waitMax)
	yes := func(line string) {
		t.Helper()
		if !l.answer(line) {
			t.Fatal(line)
		}
	}
	yes(w.ask("append demo one 2 100"))
	yes(w.ask("append sound s1 2 100"))
	old, err := os.ReadFile(log)
	must(t, err)
	yes(w.ask("append demo two 3 100"))
	yes(beside.ask("append demo three 1 100"))
	how.do(t, log, old)
	theirs, _ := os.ReadFile(log) // there may be none
	line := w.ask("append demo four 1 100")
	said := strings.Fields(line)
	after, _ := os.ReadFile(log)
	t.Logf("the next append: %.160s", line)
	if !bytes.HasPrefix(after, theirs) {
		t.Errorf("what somebody else wrote was changed: %d bytes, now %d", len(theirs), len(after))
	}
	yes(w.ask("append sound s2 2 100"))
	yes(beside.ask("append sound s3 2 100"))
	w.finish()
	beside.finish()
	yes(serve(t, store, waitMax).ask("append sound s4 2 100"))
	if got := readSession(t, store, "sound"); len(got) != 8 || whole(got) != nil {
		t.Errorf("the other session has %d events, want 8: %v", len(got), whole(got))
	}
	r := run(t, command(store, "show", "demo", "--json"))
	verify := run(t, command(store, "verify", "--json"))
	listed := strings.Contains(ok(t, store, "ls", "--json"), `"demo"`)
	noticed := said[0] == "err" && said[2] == "damaged" || r.code == 6 || verify.code == 6
	t.Logf("show: exit code %d; verify: exit code %d", r.code, verify.code)
	if events, err := parseEvents(r.stdout); err != nil || whole(events) != nil {
		t.Errorf("what is left of the session: %v, %v", err, whole(events))
	}
	if _, err := os.Stat(log); !noticed || !listed && err == nil {
		t.Errorf("it was not noticed: append %s; show: exit code %d; verify: exit code %d %s; listed %v", line, r.code, verify.code, verify.stdout, listed)
	}
	if after, _ := os.ReadFile(log); !bytes.HasPrefix(after, theirs) {
		t.Errorf("what somebody else wrote was changed later")
	}
	if said[0] != "err" {
		return
	}
	// Once noticed it is not forgotten: what the journal had is kept, and comes back with a
	// repair.
	if verify.code != 6 {
		t.Errorf("the damage was reported, and then verify says %d: %s", verify.code, verify.stdout)
	}
	ok(t, store, "repair", "demo")
	ok(t, store, "verify")
	events := readSession(t, store, "demo")
	if err := whole(events); err != nil || len(events) != 6 {
		t.Errorf("after the repair there are %d events, want 6: %v", len(events), err)
	}
}
