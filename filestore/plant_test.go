package filestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/planting"
	"hansard/internal/vfs"
)

// Bugs put in on purpose: the simulation must find every one of them, or it is worth nothing.
// They are not in the code. TestSimPlanted builds the tests once more with the changes of
// plantings, through an overlay, and has that build hunt for one bug after another.
var bugs = map[string]func(seed uint64) error{
	"no sync":                            huntCuts,
	"no directory sync":                  huntCuts,
	"log before sync":                    huntCuts,
	"no chain":                           huntCuts, // takes entries of an earlier use of the ring for valid
	"replay before durable":              huntSharedKeys,
	"known id told before it is durable": huntSharedIDs,
	"pending ids not looked at":          huntSharedIDs,
	"attachment named before its directory is synced":     huntAttached,
	"attachment named before it is synced":                huntAttached,
	"attachment pruned between look and commit":           huntAttached,
	"prune does not look again":                           huntAttached,
	"prune removes what was attached again":               huntAttached,
	"an upload that outlives a delete":                    func(seed uint64) error { _, err := uploadBesideDelete(seed & 127); return err },
	"control trusted":                                     huntCuts,              // on first open
	"sync retried":                                        huntCutAfterSyncError, // and believed
	"opener without rule A":                               huntLateComer,         // believes a sync on a ring that was opened after another process's sync failed
	"no lock":                                             quietWorld,            // assigns seqs outside the lock
	"half a batch read":                                   huntReaders,           // to the last line, not to the last batch
	"append mode":                                         huntKills,             // writes entries at the end of a log, wherever they belong
	"log not copied":                                      huntSyncErrors,        // goes on with a log whose sync failed
	"lock file removed":                                   quietWorld,
	"no fence":                                            huntTurns, // accepts a write whatever its grant is
	"error taken for death":                               huntTurns,
	"grant before durable":                                huntCuts,
	"lease after its grant":                               huntTurns,
	"logs read before recovery":                           huntBesideRecovery,
	"client dead with its server":                         huntTurns,
	"silent too early":                                    huntTurns,
	"holder told before his grant is durable":             huntTold,
	"late rotation not caught up with":                    huntPairs,
	"memory of a pending group used again":                huntPairs,
	"memory of others' pending lines used again":          huntPairs,
	"written past the end of the ring":                    func(seed uint64) error { return cutGroups(seed, new(atomic.Int64)) },
	"answer outlives the entry it rests on":               huntLostRest,
	"damaged for ever by an ill disk":                     func(seed uint64) error { return huntIll(seed, func(int) {}) },
	"set aside and forgotten too early":                   func(seed uint64) error { return huntIll(seed, func(int) {}) },
	"half-written index believed":                         huntRuns,
	"half a reload believed":                              func(uint64) error { return failedReloads() },
	"marks of the living taken for done":                  func(uint64) error { return markedAgain() },
	"marks forgotten by recovery":                         func(uint64) error { return markedByMend() },
	"good line cut":                                       func(uint64) error { return tornCopy() },
	"erased before the tombstone is durable":              func(uint64) error { _, err := eraseInterrupted(false); return err },
	"erasing follows a prefix into another session":       func(uint64) error { return erasesOnlyItsOwn() },
	"fork committed before it is synced":                  huntForks,
	"fork committed before its name is durable":           huntForks,
	"fork without its attachments":                        huntForks,
	"fork seen before it is committed":                    huntForks,
	"fork's note removed too early":                       huntForks,
	"fork's leftovers kept":                               huntForks,
	"a redaction that loses its record":                   func(uint64) error { _, err := redactInterrupted(false); return err },
	"a redaction that a crash leaves unfinished":          func(uint64) error { _, err := redactInterrupted(false); return err },
	"lines that came while the log was redacted are lost": func(uint64) error { return redactedMeanwhile() },
	"a redacted log in place before it is synced":         huntRedact,
	"a redacted log whose name is not durable":            huntRedact,
	"a log replaced by a process that died":               func(uint64) error { return redactedAndKilled() },
	"a log redacted under the ring's entries for it":      huntRedact,
	"a redacted log taken for the one before":             huntRedact,
	"grants compared by number":                           func(uint64) error { return restoredLog() },
	"a log that recovery can't open is skipped":           huntRecoveries,
	"a bad log is tried once in recovery":                 huntRecoveries, // which then fails, and begins anew
	"a log that is bad twice stops recovery":              huntRecoveries,
	"recovery tried again believes its sync":              huntRecoveries,
	"a suspect that can't be read is synced":              huntRecoveries,
	"a log that can't be opened fills the journal":        huntRecoveries,
	"a log that is away is taken for synced":              huntAway,
	"set aside and forgotten though not synced":           huntAway,
	"a redaction that forgets what logs have lost":        huntHarmed,
}

// plantedBug names the bug to activate, in the build that has them.
const plantedBug = "HANSARD_PLANTED_BUG"

// TestSimPlanted defends the simulation itself: it finds every bug that was put in on purpose.
func TestSimPlanted(t *testing.T) {
	if bug := os.Getenv(plantedBug); bug != "" {
		if found := hunt(bug); found != nil {
			fmt.Printf("found: %.200s\n", found)
			return
		}
		t.Fatal("the simulation does not find it")
	}
	tests := buildPlanted(t)
	for bug := range bugs {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), tests, "-test.run=^TestSimPlanted$")
			cmd.Env = append(os.Environ(), plantedBug+"="+bug)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "found: ") {
				t.Fatalf("%v\n%s", err, planting.Quote(out))
			}
			t.Log(planting.Quote(out))
		})
	}
}

// hunt plays the scenario that should expose a bug, seed after seed, until something goes wrong.
func hunt(bug string) error {
	disaster := bugs[bug]
	if disaster == nil {
		return nil
	}
	for seed := range uint64(120) {
		if err := disaster(5000 + seed); err != nil {
			return err
		}
	}
	return nil
}

// plantedFiles are the files with bugs in them.
func plantedFiles(t *testing.T) map[string]string {
	t.Helper()
	var changes []planting.Change
	for _, p := range plantings {
		changes = append(changes, planting.Change(p))
	}
	files := planting.Files(t, changes)
	for file, content := range files {
		files[file] = strings.Replace(content, "\nimport ", "\nimport \"hansard/filestore/internal/planted\"\n\nimport ", 1)
	}
	unused := maps.Clone(bugs)
	for _, p := range plantings {
		for bug := range bugs {
			if strings.Contains(p.Becomes, strconv.Quote(bug)) {
				delete(unused, bug)
			}
		}
	}
	if len(unused) > 0 {
		t.Fatalf("bugs that nothing plants: %q", slices.Collect(maps.Keys(unused)))
	}
	return files
}

// TestPlantingsFit: the lines that bugs are planted in are still in the code, and every
// bug is planted.
func TestPlantingsFit(t *testing.T) { plantedFiles(t) }

// buildPlanted builds the tests of this package with all bugs in, none of them active.
func buildPlanted(t *testing.T) string {
	t.Helper()
	files := plantedFiles(t)
	files["internal/planted/planted.go"] = fmt.Sprintf(`package planted

import "os"

var bug = os.Getenv(%q)

// Is tells whether a bug is wanted.
func Is(name string) bool { return name == bug }
`, plantedBug)
	return planting.Build(t, files)
}

// huntCuts cuts the power after every change.
func huntCuts(seed uint64) error { return cutWorld(seed, new(atomic.Int64)) }

// huntCutAfterSyncError makes a sync of the ring fail, and cuts the power after every change from
// then on.
func huntCutAfterSyncError(seed uint64) error {
	for k := 4; k <= 12; k++ {
		w := newWorld(seed)
		w.disk.Inject(vfs.Match{Kind: vfs.OpSync, Name: journal.Name, N: k}, vfs.Fault{Err: syscall.EIO})
		var states atomic.Int64
		var found *error
		w.disk.OnOp(func(op vfs.Op) {
			if op.Kind == vfs.OpSync && op.Err != nil && found == nil {
				found = w.cutEverywhere(&states)
			}
		})
		err := w.play(2, 6)
		if found != nil {
			err = errors.Join(*found, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// huntLateComer makes a sync fail, kills the process that got the error and stops the other one.
// Then a third one joins and writes, before the power is cut: nobody tells the third one that the
// ring has lost entries before its own.
func huntLateComer(seed uint64) error {
	for k := 4; k <= 30; k++ {
		w := newWorld(seed)
		w.disk.Inject(vfs.Match{Kind: vfs.OpSync, Name: journal.Name, N: k}, vfs.Fault{Err: syscall.EIO})
		both := []*worker{w.spawn("P0", 10, 100), w.spawn("P1", 10, 101)}
		var late *worker
		w.disk.OnOp(func(op vfs.Op) {
			if op.Kind != vfs.OpSync || op.Err == nil || late != nil {
				return
			}
			w.disk.KillAt(vfs.Match{Proc: op.Proc}, 0)
			for _, k := range both {
				if k.p.Name() != op.Proc {
					k.p.Stop()
				}
			}
			late = w.spawn("late", 6, 102)
		})
		var found error
		w.disk.OnIdle(func() bool {
			if late != nil && late.done && found == nil {
				d := w.disk.Clone()
				d.PowerCut(vfs.Cut{})
				found = w.check(d, "after")
			}
			stopped := false
			for _, k := range both {
				stopped = stopped || k.p.Stopped()
				k.p.Continue()
			}
			return stopped
		})
		if err := errors.Join(w.disk.Run(), found, w.wrong); err != nil {
			return fmt.Errorf("seed %d: sync %d fails, a third process joins: %w\n%s", seed, k, err, trace(w.disk, 60))
		}
	}
	return nil
}

func quietWorld(seed uint64) error {
	return disaster(seed, 3, 20, func(*vfs.Disk) {})
}

// huntReaders has readers read all the time while each write happens in two steps.
func huntReaders(seed uint64) error {
	w := newWorld(seed)
	w.disk.Split = 100
	w.spawn("P0", 12, 100)
	for i := range 2 {
		r := &worker{w: w, p: w.disk.Process(fmt.Sprintf("R%d", i))}
		w.disk.Go(r.p, func() {
			for range 60 {
				s, err := w.openWith(r.p, Options{ReadOnly: true, MustExist: true})
				if err != nil {
					_ = r.p.Yield()
					continue // no store yet
				}
				r.s = s
				for _, id := range simSessions {
					r.read(context.Background(), id)
				}
				_ = s.Close()
			}
		})
	}
	if err := errors.Join(w.disk.Run(), w.wrong); err != nil {
		return fmt.Errorf("seed %d: %w\n%s", seed, err, trace(w.disk, 60))
	}
	return nil
}

// huntSharedKeys has all processes append under the same keys, and cuts the power after every
// change.
func huntSharedKeys(seed uint64) error {
	return huntStopped(seed, 1, func(k *worker) { k.shared = true })
}

// huntSharedIDs does the same with events that have the same ids.
func huntSharedIDs(seed uint64) error {
	return huntStopped(seed, 1, func(k *worker) { k.mirroring = true })
}

// huntAttached has processes attach content, append events that name it and prune, and cuts the
// power after every change.
func huntAttached(seed uint64) error {
	_, err := attachedWorld(seed)
	return err
}

// attachedWorld is huntAttached, and returns how many files were pruned.
func attachedWorld(seed uint64) (pruned int, err error) {
	w := newWorld(seed)
	w.pruneAge = time.Duration(1+seed%4*4) * time.Millisecond // in changes of the disk
	var states atomic.Int64
	found := w.cutEverywhere(&states)
	w.wantOldPruned()
	for i := range 2 {
		w.spawn(fmt.Sprintf("P%d", i), 10, uint64(100+i)).attaching = true
	}
	err = errors.Join(w.disk.Run(), w.wrong)
	if err != nil {
		err = fmt.Errorf("seed %d: %w\n%s", seed, err, trace(w.disk, 80))
	}
	return w.pruned, errors.Join(*found, err)
}

// huntForks has a session forked while it is written to, and cuts the power after every change.
func huntForks(seed uint64) error {
	if err := forkCut(seed, new(atomic.Int64)); err != nil {
		return err
	}
	return forkKilled(seed, new(atomic.Int64))
}

// huntTold does the same with processes that want the same turn, after the first write, which
// creates the session.
func huntTold(seed uint64) error {
	return huntStopped(seed, 2, func(k *worker) { k.taking = true })
}

// huntStopped stops one process between its writes (beginning with write number from) and their
// syncs, while others do the same work, and cuts the power after every change.
func huntStopped(seed uint64, from int, work func(*worker)) error {
	w := newWorld(seed)
	var states atomic.Int64
	found := w.cutEverywhere(&states)
	var all []*worker
	for i := range 3 {
		k := w.spawn(fmt.Sprintf("P%d", i), 8, uint64(100+i))
		work(k)
		all = append(all, k)
	}
	// The stop lasts until the others are done.
	wrote, writes := false, 0
	w.disk.OnOp(func(op vfs.Op) {
		switch {
		case op.Proc != "P0":
		case op.Kind == vfs.OpWrite && op.Name == journal.Name && op.Off >= journal.RingAt:
			wrote = true
			writes++
		case op.Kind == vfs.OpUnlock && op.Name == peers.WriteLock && wrote:
			wrote = false
			if writes >= from {
				all[0].p.Stop()
			}
		}
	})
	w.disk.OnIdle(func() bool {
		stopped := all[0].p.Stopped()
		all[0].p.Continue()
		return stopped
	})
	return errors.Join(w.disk.Run(), *found, w.wrong)
}

// huntStoppedCheckpoint stops a process that has written a slot but not synced it, while another
// goes on, and cuts the power after every change.
func huntStoppedCheckpoint(seed uint64) error {
	w := newWorld(seed)
	var states atomic.Int64
	victim := w.spawn("P0", 30, 100)
	w.spawn("P1", 30, 101)
	var found *error
	w.disk.OnOp(func(op vfs.Op) {
		slot := op.Kind == vfs.OpWrite && op.Name == journal.Name && op.Off < journal.RingAt && op.Len == journal.SlotUsed
		if slot && op.Proc == "P0" && op.PN > 120 && found == nil {
			victim.p.Stop()
			found = w.cutEverywhere(&states)
		}
	})
	w.disk.OnIdle(func() bool {
		stopped := victim.p.Stopped()
		victim.p.Continue()
		return stopped
	})
	err := errors.Join(w.disk.Run(), w.wrong)
	if found != nil {
		err = errors.Join(*found, err)
	}
	return err
}

// TestSimHunts: the hunts find nothing if no bug was planted.
func TestSimHunts(t *testing.T) {
	for seed := range uint64(3) {
		for _, hunt := range []func(uint64) error{huntSharedKeys, huntStoppedCheckpoint, huntCutAfterSyncError, huntSyncErrors, huntKills, huntPairs, huntRecoveries, huntAway, huntHarmed} {
			if err := hunt(5000 + seed); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSimReaders: the same without the bug. (P4)
func TestSimReaders(t *testing.T) {
	for seed := range uint64(20) {
		if err := huntReaders(5000 + seed); err != nil {
			t.Fatal(err)
		}
	}
}

func huntKills(seed uint64) error {
	for k := 1 + int(seed%5); k <= 600; k += 5 {
		err := disaster(seed, 3, 10, func(d *vfs.Disk) { d.KillAt(vfs.Match{N: k}, -1) })
		if err != nil {
			return err
		}
	}
	return nil
}

// huntSyncErrors makes a sync fail and kills the process that got the error at its next
// operation, so that nobody knows.
func huntSyncErrors(seed uint64) error {
	for k := 1; k <= 40; k++ {
		for _, kill := range []bool{false, true} {
			err := disaster(seed, 3, 10, func(d *vfs.Disk) {
				d.Inject(vfs.Match{Kind: vfs.OpSync, N: k}, vfs.Fault{Err: syscall.EIO})
				if kill {
					d.OnOp(func(op vfs.Op) {
						if op.Kind == vfs.OpSync && op.Err != nil {
							d.KillAt(vfs.Match{Proc: op.Proc}, 0)
						}
					})
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// tornCopy replaces a log with a copy that ends in the middle of its last line.
func tornCopy() error {
	w := newWorld(1)
	if err := w.play(1, 20); err != nil {
		return err
	}
	path := sessionlog.Path(sessionlog.EncodeName("a"))
	b, ok := w.disk.CacheBytes(path)
	if !ok {
		return nil
	}
	f, err := w.disk.Process("copy").Open(path, 0)
	if err != nil {
		return nil
	}
	if err := f.Truncate(int64(len(b)) - 20); err != nil {
		return nil
	}
	tail, err := sessionlog.ReadTail(f, int64(len(b))-20)
	if err != nil {
		return nil
	}
	for seq := range w.ledger.acked["a"] {
		if seq > tail.Last.Seq {
			delete(w.ledger.acked["a"], seq) // the copy's loss, not ours
		}
	}
	w.ledger.seen = newLedger().seen
	w.spawn("after", 20, 7)
	if err := w.disk.Run(); err != nil {
		return err
	}
	if w.wrong != nil {
		return fmt.Errorf("after the copy: %w", w.wrong)
	}
	return w.finish()
}

// TestSimLateComer: the same without the bug.
func TestSimLateComer(t *testing.T) {
	for seed := range uint64(6) {
		if err := huntLateComer(5000 + seed); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTornCopy: the same without the bug: only what the copy lost is lost.
func TestTornCopy(t *testing.T) {
	if err := tornCopy(); err != nil {
		t.Fatal(err)
	}
}
