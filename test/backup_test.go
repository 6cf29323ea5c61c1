//go:build unix

package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard/internal/pgtest"
	"hansard/storetest"
)

// TestBackupUnderLoad: backups of a store whose writers are killed at random moments, and which
// are killed themselves. A backup gets its name only when it is complete. A store restored from
// it, with all increments, has every batch acknowledged before the backup began, whole and at its
// seqs; every session consists of whole batches; verify finds nothing.
func TestBackupUnderLoad(t *testing.T) {
	rng := seeded(t)
	dir, backups := t.TempDir(), t.TempDir()
	w := &writers{t: t, l: newLedger(), rng: rng, store: filepath.Join(dir, "store"), sessions: []string{"a", "b", "c"}}
	file, digest := filepath.Join(dir, "picture.png"), "sha256:ef537f25c895bfa782526529a9b63d97aa631564d5d789c2b765448c8635fb6c"
	must(t, os.WriteFile(file, []byte("The quick brown fox jumps over the lazy dog."), 0o600))
	ok(t, w.store, "append", "pictures", "first", "--create", "--attach", file)
	done, killed := 0, 0
	for round := 0; done < 4*scale(1) || killed < 2; round++ {
		w.fill(3)
		before := w.l.acks()
		eventually(t, "writers are acknowledged", func() bool { return w.l.acks() > before+5 })
		ok(t, w.store, "append", "pictures", fmt.Sprint("picture ", round), "--attach", file)

		promised := w.l.snapshot()
		p := start(t, command(w.store, "backup", backups, "--since", backups, "--json"), nil)
		time.Sleep(time.Duration(rng.IntN(40_000)) * time.Microsecond) // the random moment
		if kill := rng.IntN(3); kill == 0 {
			p.kill()
			w.kill(1)
		} else if kill == 1 {
			w.kill(2)
		}
		if p.exit() != 0 {
			if p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
				killed++
				w.kill(len(w.running))
				checkWhole(t, backups)
				continue
			}
			t.Fatalf("backup: exit code %d\n%s", p.exit(), p.stderr)
		}
		done++
		w.kill(len(w.running)) // so that the store to check stays small
		restored := filepath.Join(dir, fmt.Sprint("restored", round))
		ok(t, restored, "restore", backups)
		promised.look(t, restored, "pictures")
		if got := ok(t, restored, "get", "pictures", digest, "-o", "-"); !strings.HasPrefix(got, "The quick brown fox") {
			t.Errorf("the attachment is %q", got)
		}
		if got := strings.Count(ok(t, restored, "show", "pictures", "--json"), "\n"); got != round+2 {
			t.Errorf("%d events with a picture were acknowledged, %d are restored", round+2, got)
		}
		ok(t, restored, "verify")
		must(t, os.RemoveAll(restored))
	}
	w.kill(len(w.running))
	checkWhole(t, backups)
	ok(t, w.store, "backup", backups, "--since", backups)
	left, err := filepath.Glob(filepath.Join(backups, ".*"))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("backups that were killed left %q", left)
	}
	t.Logf("%d backups and %d that were killed, while %d batches were acknowledged", done, killed, w.l.acks())
}

// checkWhole checks that each backup that has its name is complete.
func checkWhole(t *testing.T, backups string) {
	t.Helper()
	if files, err := filepath.Glob(filepath.Join(backups, "*.hbk")); err != nil || len(files) == 0 {
		return
	}
	ok(t, "", "backup", "--check", backups)
}

// snapshot is what has been acknowledged so far.
func (l *ledger) snapshot() *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := newLedger()
	now.acked = maps.Clone(l.acked)
	return now
}

// TestBackupBetweenEngines: a backup of a store of one kind is restored to one of another kind,
// also by a restore that is killed in the middle and started again.
func TestBackupBetweenEngines(t *testing.T) {
	files := func(t *testing.T) end { return filesEnd(newStore(t)) }
	postgres := func(t *testing.T) end { return postgresEnd(pgtest.Shared(t).Schema(t)) }
	serving := func(of func(*testing.T) end) func(*testing.T) end {
		return func(t *testing.T) end { return serverEnd(t, of(t)) }
	}
	for name, ends := range map[string][2]func(*testing.T) end{
		"files to PostgreSQL":               {files, postgres},
		"PostgreSQL to files":               {postgres, files},
		"a server on PostgreSQL to files":   {serving(postgres), files},
		"files to a server on files":        {files, serving(files)},
		"PostgreSQL to itself, in pieces":   {postgres, postgres},
		"a server on files to a PostgreSQL": {serving(files), postgres},
	} {
		t.Run(name, func(t *testing.T) { backupBetween(t, ends[0](t), ends[1]) })
	}
}

func backupBetween(t *testing.T, src end, newDst func(*testing.T) end) {
	from := src.open(t)
	defer from.Close()
	storetest.FillForCopy(t, from)
	dir := t.TempDir()
	full, inc := filepath.Join(dir, "full.hbk"), filepath.Join(dir, "inc.hbk")
	on := func(e end, args ...string) *exec.Cmd {
		cmd := exec.Command(program, append(args, "--store", e.address)...)
		cmd.Env = append(cmd.Environ(), "HANSARD_TOKEN="+serverToken)
		return cmd
	}
	do := func(cmd *exec.Cmd) string {
		t.Helper()
		r := run(t, cmd)
		if r.code != 0 {
			t.Fatalf("%s: exit code %d\n%s%s", cmd, r.code, r.stdout, r.stderr)
		}
		return r.stdout
	}
	do(on(src, "backup", full))
	total := fillOnlyLong(t, from)
	var made struct{ Changed, Events int }
	must(t, json.Unmarshal([]byte(do(on(src, "backup", inc, "--since", full, "--json"))), &made))
	if made.Changed != 1 || made.Events != int(total) {
		t.Errorf("the increment has %+v, want the one session of %d events that is new", made, total)
	}
	ok(t, "", "backup", "--check", full, inc)
	for range 10 {
		dst := newDst(t)
		p := start(t, on(dst, "restore", full, inc), nil)
		at := killWhileCopying(t, p, dst)
		if at == total {
			continue // it was too fast this time
		}
		t.Logf("killed when it had restored %d of %d events", at, total)
		if out := do(on(dst, "restore", full, inc)); !strings.Contains(out, fmt.Sprintf("%s events added", commas(total-at))) {
			t.Errorf("begun again, with %d events missing, it says %s", total-at, out)
		}
		to := dst.open(t)
		defer to.Close()
		storetest.CheckCopy(t, from, to)
		return
	}
	t.Error("it was always done before it could be killed")
}

// commas formats a number as the command prints it.
func commas[T ~uint64](n T) string {
	if n < 1000 {
		return fmt.Sprint(uint64(n))
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// TestPrunePostgres: on PostgreSQL prune deletes what its rule selects, and leaves what is
// pinned, held, or written to meanwhile.
func TestPrunePostgres(t *testing.T) {
	store := pgtest.Shared(t).Schema(t)
	for _, id := range []string{"old", "pinned", "held"} {
		ok(t, store, "append", id, "hello", "--create")
	}
	ok(t, store, "pin", "pinned")
	holder := start(t, command(store, "turn", "held", "--", "cat"), nil)
	eventually(t, "the turn is held", func() bool { return strings.Contains(ok(t, store, "stat", "held", "--json"), `"turn":{`) })
	if out := ok(t, store, "prune", "--older-than", "1ms", "--yes"); !strings.Contains(out, "1 session deleted") || !strings.Contains(out, "left: 1 held, 1 pinned") {
		t.Errorf("prune says:\n%s", out)
	}
	holder.finish()
	if got := strings.Join(list(t, store), " "); got != "held pinned" {
		t.Errorf("there is %s", got)
	}
	if out := ok(t, store, "stats", "--json"); !strings.Contains(out, `"total":{"sessions":2,`) {
		t.Errorf("stats says %s", out)
	}
	ok(t, store, "verify")
}
