package test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestFullDisk: a disk fills up repeatedly under a store that is being written to. Appends say so
// and store nothing, readers go on, and when there is space again the same process goes on as
// well. (Failures 21, 22, 25.)
func TestFullDisk(t *testing.T) {
	for kind, dir := range map[string]func(t *testing.T) string{
		"tmpfs": func(t *testing.T) string { return newTmpfs(t, "100m") },
		"ext4":  func(t *testing.T) string { return newDisk(t, "ext4", 160).dir },
	} {
		t.Run(kind, func(t *testing.T) {
			dir, l := dir(t), newLedger()
			store := filepath.Join(dir, "store")
			w := serve(t, store, waitMax)
			if line := w.ask("append demo first 3 1000"); !l.answer(line) {
				t.Fatal(line)
			}
			for round := range scale(5) {
				fullRound(t, l, w, dir, store, round)
			}
			race := fullRace(t, l, w, dir)
			w.finish()
			l.check(t, store)
			t.Logf("%d batches acknowledged, %d refused, %d unknown; while it filled up: %v", l.acks(), len(l.refused), l.open, race)
		})
	}
}

// fullRound fills the disk, checks what works, and frees space again.
func fullRound(t *testing.T, l *ledger, w *process, dir, store string, round int) {
	t.Helper()
	before := len(readSession(t, store, "demo"))
	filler := fill(t, dir)
	for i := range 4 {
		line := w.ask(fmt.Sprintf("append demo full%d-%d 3 %d", round, i, 1+5000*i))
		if l.answer(line) || !strings.Contains(line, " no_space ") {
			t.Errorf("an append to a full disk: %s", line)
		}
	}
	for _, args := range [][]string{{"append", "demo", "never", "--json"}, {"append", "demo", strings.Repeat("never", 10_000), "--json"}, {"new", "never", "--json"}} {
		r := run(t, command(store, args...))
		if _, message := r.failure(); r.code != 1 || !strings.Contains(message, "no space left") {
			t.Errorf("%s on a full disk: exit code %d, %s%s", args[0], r.code, r.stdout, r.stderr)
		}
	}
	for _, args := range [][]string{{"ls"}, {"stat", "demo"}, {"tail", "demo"}, {"verify"}} {
		ok(t, store, args...)
	}
	if got := len(readSession(t, store, "demo")); got != before {
		t.Errorf("%d events on a full disk, want the %d that were there", got, before)
	}
	must(t, os.Remove(filler))
	if line := w.ask(fmt.Sprintf("append demo free%d 3 20000", round)); !l.answer(line) {
		t.Errorf("an append after there was space again: %s", line)
	}
}

// fullRace fills and frees the disk while the writer writes, so that it runs out of space at any
// moment. It counts the answers.
func fullRace(t *testing.T, l *ledger, w *process, dir string) map[string]int {
	t.Helper()
	stop := make(chan struct{})
	var filling sync.WaitGroup
	filling.Go(func() {
		for {
			f, err := os.Create(filepath.Join(dir, "filler"))
			if err != nil {
				continue // there was no space for its name
			}
			for size := 1 << 20; size > 0; {
				if _, err = f.Write(make([]byte, size)); err != nil {
					size /= 4
				}
			}
			_ = f.Close() // full, as it should be
			_ = os.Remove(f.Name())
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	answers := map[string]int{}
	for i := range scale(300) {
		line := w.ask(fmt.Sprintf("append demo race%d 2 %d", i, 1+i*100%30_000))
		l.answer(line)
		f := strings.Fields(line)
		if f[0] == "err" {
			f[0] = f[2]
		}
		if answers[f[0]]++; f[0] != "ack" && f[0] != "no_space" && f[0] != "unknown" {
			t.Errorf("while the disk filled up: %s", line)
		}
	}
	close(stop)
	filling.Wait()
	if line := w.ask("append demo last 1 100"); !l.answer(line) {
		t.Errorf("after there was space again: %s", line)
	}
	return answers
}

// TestDeleteOnFullDisk: a disk that the store itself filled up gets space back by deleting, by
// the process that filled it or by another one; before that, appends are refused for certain.
// (Failure 22.)
func TestDeleteOnFullDisk(t *testing.T) {
	for kind, dir := range map[string]func(t *testing.T) string{
		"tmpfs": func(t *testing.T) string { return newTmpfs(t, "32m") },
		"ext4":  func(t *testing.T) string { return newDisk(t, "ext4", 48).dir },
	} {
		t.Run(kind, func(t *testing.T) {
			l, store := newLedger(), filepath.Join(dir(t), "store")
			w := serve(t, store, waitMax)
			for round := range 2 {
				if line := w.ask(fmt.Sprintf("append demo first%d 1 100", round)); !l.answer(line) {
					t.Fatal(line)
				}
				large := fmt.Sprint("large", round)
				for n, size := 0, 1<<20; size >= 100; n++ {
					line := w.ask(fmt.Sprintf("append %s %d 1 %d", large, n, size))
					if strings.Contains(line, " no_space ") {
						size /= 4
					} else if !strings.HasPrefix(line, "ack ") {
						t.Fatalf("while the disk fills up: %s", line)
					}
				}
				if line := w.ask(fmt.Sprintf("append demo full%d 1 100", round)); l.answer(line) || !strings.Contains(line, " no_space ") {
					t.Errorf("an append to a full disk: %s", line)
				}
				if round == 1 {
					w.finish()
				}
				ok(t, store, "rm", large, "--yes")
				ok(t, store, "prune") // the other process would erase it within half a minute
				if round == 0 {
					line := w.ask("append demo freed 1 20000")
					if !l.answer(line) {
						t.Errorf("an append after a session was deleted: %s", line)
					}
				}
			}
			ok(t, store, "new", "again")
			l.check(t, store)
		})
	}
}

// TestShortWrite: a write of a record really ends in the middle, at each of many byte positions,
// in the journal and in the log. The log stays whole. (Failure 21.)
func TestShortWrite(t *testing.T) {
	t.Run("journal", func(t *testing.T) {
		l, store := newLedger(), filepath.Join(memDir(t), "store")
		w := serve(t, store, waitMax)
		shortWrites(t, l, w, store, 120, func(batch string) int64 {
			// The position of the last batch's entry; the next one follows it.
			f, err := os.Open(filepath.Join(store, "journal"))
			must(t, err)
			defer f.Close()
			b, err := io.ReadAll(io.LimitReader(f, 4<<20))
			must(t, err)
			at := bytes.LastIndex(b, []byte(batch+"/"))
			if at < 0 {
				t.Fatalf("batch %s is not in the journal", batch)
			}
			return int64(at + 40) // about its end
		})
		w.finish()
		l.check(t, store)
	})
	// To hit the limit before the journal does, the log has to be longer.
	t.Run("log", func(t *testing.T) {
		l, store := newLedger(), filepath.Join(memDir(t), "store")
		w := serve(t, store, waitMax)
		for i := range 5 {
			if line := w.ask(fmt.Sprintf("append demo large%d 1 %d", i, 14<<20)); !l.answer(line) {
				t.Fatal(line)
			}
		}
		end := func(string) int64 {
			info, err := os.Stat(logOf(store, "demo"))
			must(t, err)
			return info.Size()
		}
		shortWrites(t, l, w, store, 240, end)
		w.finish()
		needs(t, "prlimit")
		for i := range scale(20) { // and the command, which opens, recovers and closes on the way
			batch := fmt.Sprint("command", i)
			cmd := command(store, "append", "demo", "--json", "--jsonl", "-")
			limited := exec.Command("prlimit", append([]string{fmt.Sprintf("--fsize=%d", end("")+int64(17*(i%20))), "--"}, cmd.Args...)...)
			limited.Env, limited.Stdin = cmd.Env, strings.NewReader(batchInput(batch, 1, 200))
			r := run(t, limited)
			code, _ := r.failure()
			if r.code != 1 || code == "" || strings.Contains(r.stderr, "goroutine ") {
				t.Errorf("a write that is cut short: exit code %d, %s%s", r.code, r.stdout, r.stderr)
			}
			l.refuse(batch, code, r.stderr)
			if last := readLast(t, store); i%5 == 0 && !strings.HasSuffix(last, "}\n") {
				t.Errorf("the last event is %q", last)
			}
		}
		l.check(t, store)
	})
}

// readLast is the last event as another process sees it.
func readLast(t *testing.T, store string) string {
	t.Helper()
	return ok(t, store, "show", "demo", "--last", "1", "--json")
}

// shortWrites appends to a file that may not grow beyond a limit a few bytes past its end, and
// then without the limit.
func shortWrites(t *testing.T, l *ledger, w *process, store string, n int, end func(last string) int64) {
	t.Helper()
	answers := map[string]int{}
	batch := "start"
	if line := w.ask("append demo start 1 100"); !l.answer(line) {
		t.Fatal(line)
	}
	for i := range scale(n) {
		limit := end(batch) + int64(i*7%400)
		w.ask(fmt.Sprintf("limit %d", limit))
		line := w.ask(fmt.Sprintf("append demo short%d 1 200", i))
		l.answer(line)
		answers[strings.Fields(line)[0]]++
		if i%20 == 0 {
			readLast(t, store)
		}
		w.ask("limit 0")
		batch = fmt.Sprint("next", i)
		if line := w.ask("append demo " + batch + " 1 100"); !l.answer(line) {
			t.Fatalf("an append after a write that was cut short at %d: %s", limit, line)
		}
	}
	t.Logf("%d limits: %v; %d unknown", scale(n), answers, l.open)
	if answers["err"] < scale(n)/2 {
		t.Errorf("only %d of %d writes were cut short", answers["err"], scale(n))
	}
}
