package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Recovery that meets errors, and a second power cut after it; logs that are away for a moment just
// when they are to be synced; logs that somebody cuts while others empty the journal. In the other
// simulations every recovery works at once, and the disk is as the engine left it.

// trouble is what a recovery meets on a disk after a power cut.
type trouble struct {
	what string
	// first arranges what the first process meets. killed: a sync fails, and the process is
	// killed before its next operation; the next process meets second.
	first, second func(d *vfs.Disk)
	killed        bool
	// bad is the log that is on a bad spot of the disk all the time, later: only once the store
	// is open.
	bad   hansard.SessionID
	later bool
}

// onceFaults are errors that pass. ENOENT is not one of them: a log that recovery finds missing was
// modified from outside.
var onceFaults = []vfs.Fault{
	{Err: syscall.EIO}, {Err: syscall.EIO, Keep: 50}, {Err: syscall.EIO, Part: -1}, {Err: syscall.EIO, Done: true},
	{Err: syscall.EMFILE}, {Err: syscall.EMFILE}, {Err: syscall.EINTR}, {Err: syscall.ENOSPC},
}

// badKinds are the operations that fail on a log on a bad spot.
var badKinds = []vfs.Kind{vfs.OpOpen, vfs.OpRead, vfs.OpWrite, vfs.OpInode, vfs.OpSync, vfs.OpSync | vfs.OpRead,
	vfs.OpSync | vfs.OpWrite, vfs.OpOpen | vfs.OpInode | vfs.OpSize, vfs.OpOpen | vfs.OpRead | vfs.OpWrite | vfs.OpSync}

// troubleOf chooses one.
func troubleOf(rng *rand.Rand) trouble {
	once := onceFaults[rng.IntN(len(onceFaults))]
	logSync := vfs.Match{Kind: vfs.OpSync, Name: "sessions/*", N: 1 + rng.IntN(3)}
	failed := vfs.Fault{Err: syscall.EIO, Keep: rng.IntN(2) * 50}
	switch n := rng.IntN(8); {
	case n < 3:
		at := vfs.Match{N: 1 + rng.IntN(110)}
		return trouble{what: fmt.Sprintf("%+v at operation %d", once, at.N), first: func(d *vfs.Disk) { d.Inject(at, once) }}
	case n < 5: // an error in the handling of a failed sync of a log
		after := vfs.Match{N: 1 + rng.IntN(12)}
		return trouble{what: fmt.Sprintf("sync %d of a log fails, then %+v at operation %d", logSync.N, once, after.N), first: func(d *vfs.Disk) {
			d.Inject(logSync, failed)
			onFailedSync(d, func(vfs.Op) { d.Inject(after, once) })
		}}
	case n < 6: // nobody knows of the failed sync but by its mark
		at := vfs.Match{Kind: []vfs.Kind{0, vfs.OpRead}[rng.IntN(2)], Name: "sessions/*", N: 1 + rng.IntN(4)}
		return trouble{what: fmt.Sprintf("sync %d of a log fails, its process is killed, then %+v at %s %d of a log", logSync.N, once, at.Kind, at.N), killed: true,
			first: func(d *vfs.Disk) {
				d.Inject(logSync, failed)
				onFailedSync(d, func(op vfs.Op) { d.KillAt(vfs.Match{Proc: op.Proc}, 0) })
			},
			second: func(d *vfs.Disk) { d.Inject(at, once) }}
	}
	kinds := badKinds[rng.IntN(len(badKinds))]
	t := trouble{bad: simSessions[rng.IntN(len(simSessions))], later: rng.IntN(3) == 0}
	t.what = fmt.Sprintf("%s of the log of %s fails (later: %v)", kinds, t.bad, t.later)
	t.first = func(d *vfs.Disk) {
		d.Inject(vfs.Match{Kind: kinds, Name: sessionlog.Path(sessionlog.EncodeName(t.bad))}, vfs.Fault{Err: syscall.EIO, Always: true})
	}
	return t
}

// onFailedSync calls fn at the first sync that fails.
func onFailedSync(d *vfs.Disk, fn func(vfs.Op)) {
	done := false
	d.OnOp(func(op vfs.Op) {
		if op.Kind == vfs.OpSync && op.Err != nil && !done {
			done = true
			fn(op)
		}
	})
}

// recoverUnder opens what a power cut has left in some trouble. Writers of other sessions must not
// be kept waiting by it: an error that passes may fail one call, a bad log none. A second power cut
// takes nothing, and once the disk works everything is there.
func (w *world) recoverUnder(d *vfs.Disk, t trouble) error {
	was := w.wasIll
	w.wasIll = true // what is to be erased may not have been noted
	defer func() { w.wasIll = was }()
	if !t.later {
		t.first(d)
	}
	p := d.Process("first")
	s, err := w.openAnyway(p)
	if err == nil && t.later {
		_, _ = s.Append(context.Background(), t.bad, hansard.Batch{Events: []hansard.Event{text("late")}})
		t.first(d)
	}
	for try := range 4 {
		switch {
		case t.killed && p.Dead():
			p = d.Process("second")
			t.second(d)
			s, err = w.openAnyway(p)
		case s == nil:
			s, err = w.openAnyway(p)
		}
		if err == nil {
			err = w.alive(s)
		}
		if err == nil {
			break
		}
		if s != nil && try < 3 {
			err = nil // the next attempt
		}
	}
	if err == nil && t.bad != "" {
		err = s.checkpoints.checkpoint(true) // or the journal would fill up
	}
	if err != nil {
		return fmt.Errorf("others are kept from writing: %w", err)
	}
	after := d.Clone()
	after.PowerCut(vfs.Cut{})
	if err := w.check(after, "after"); err != nil {
		return fmt.Errorf("after a second power cut: %w", err)
	}
	d.ClearRules()
	_ = s.Close()
	return w.check(d, "check")
}

// openAnyway opens the store, even if it can't be written to yet: the next write tries again.
func (w *world) openAnyway(p *vfs.Proc) (*Store, error) {
	w.opened++
	cfg := simConfig(w.seed+uint64(w.opened), w.ring)
	cfg.anyway, cfg.pieceLogs = true, 1+int(w.seed%3)
	s, err := open(p, Options{}, cfg)
	if err == nil && s.syncer.syncGate == nil {
		s.release()
		return nil, errors.New("sync.lock could not be opened")
	}
	return s, err
}

// huntRecoveries cuts the power of a world now and then, and has recoveries meet errors.
func huntRecoveries(seed uint64) error { return recoverWorld(seed, new(atomic.Int64)) }

func recoverWorld(seed uint64, states *atomic.Int64) error {
	w := newWorld(seed)
	rng := rand.New(rand.NewPCG(seed, 98))
	var found error
	next := 60 + rng.IntN(40)
	w.disk.OnOp(func(op vfs.Op) {
		if found != nil || op.N < next {
			return
		}
		next = op.N + 30 + rng.IntN(60)
		cut := vfs.Cut{Keep: []int{0, 50, 100}[rng.IntN(3)], Seed: uint64(op.N)}
		for range 4 {
			d := w.disk.Clone()
			d.PowerCut(cut)
			t := troubleOf(rng)
			if states.Add(1); found == nil {
				if err := w.recoverUnder(d, t); err != nil {
					found = fmt.Errorf("seed %d: power cut after operation %d, %+v, then %s: %w\n%s", seed, op.N, cut, t.what, err, trace(d, 150))
				}
			}
		}
	})
	return errors.Join(w.play(2, 12), found)
}

// TestSimRecovery defends: whatever fails while a store is recovered, once, twice, with a kill in
// between or for as long as it is open, nothing acknowledged is lost to a second power cut, and
// nobody but the writers of a bad log is refused. (P2, P6, P7)
func TestSimRecovery(t *testing.T) {
	inWorlds(t, 40, 1_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		if err := recoverWorld(10_000+seed, states); err != nil {
			t.Error(err)
		}
	})
}

// outsideLock tells of each process whether it is outside of write.lock.
func outsideLock(d *vfs.Disk) func(proc string) bool {
	in := map[string]bool{}
	d.OnOp(func(op vfs.Op) {
		if op.Name == peers.WriteLock && op.Err == nil && (op.Kind == vfs.OpLock || op.Kind == vfs.OpUnlock) {
			in[op.Proc] = op.Kind == vfs.OpLock
		}
	})
	return func(proc string) bool { return !in[proc] }
}

// huntAway plays a world in which logs are away for a moment when they are to be synced: somebody
// moves them and puts them back. Now and then writes to them fail, so that lines are set aside and
// put back too. The power is cut after everything that frees the journal, or forgets what was set
// aside.
func huntAway(seed uint64) error {
	_, err := awayWorld(seed, new(atomic.Int64))
	return err
}

// awayWorld is huntAway, and returns how often a log was away.
func awayWorld(seed uint64, states *atomic.Int64) (times int, err error) {
	w := newWorld(seed)
	w.away, w.wasIll = true, seed%2 == 1
	rng := rand.New(rand.NewPCG(seed, 97))
	outside := outsideLock(w.disk)
	from, length := 60+rng.IntN(200), 40+rng.IntN(200)
	wander := func() {
		// Only a process that is about to sync a log opens it to write outside of the lock.
		w.disk.Inject(vfs.Match{Kind: vfs.OpOpen, Name: "sessions/*", When: func(op vfs.Op) bool {
			away := op.Flags == 0 && outside(op.Proc) && rng.IntN(4) == 0
			if away {
				times++
			}
			return away
		}}, vfs.Fault{Err: syscall.ENOENT, Always: true})
	}
	wander()
	var found error
	n := 0
	w.disk.OnOp(func(op vfs.Op) {
		n++
		switch {
		case seed%2 == 0:
		case n == from:
			w.ill = true
			w.disk.Inject(vfs.Match{Kind: vfs.OpWrite, Name: "sessions/*"}, vfs.Fault{Err: syscall.EIO, Always: true})
		case n == from+length:
			w.ill = false
			w.disk.ClearRules()
			wander()
		}
		freed := op.Kind == vfs.OpSync && op.Name == journal.Name || op.Kind == vfs.OpSyncDir && op.Name == asideDir
		if found == nil && freed {
			if err := w.cutAndCheck(vfs.Cut{}, false, states); err != nil {
				found = fmt.Errorf("seed %d: power cut after operation %d: %w\n%s", seed, op.N, err, trace(w.disk, 80))
			}
		}
	})
	if err := w.strike(2, 20, func(*vfs.Disk) {}); err != nil {
		return times, err
	}
	return times, found
}

// TestSimAway defends: a log that is away for a moment is neither taken for synced nor for lost.
func TestSimAway(t *testing.T) {
	var times atomic.Int64
	inWorlds(t, 40, 1_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		n, err := awayWorld(11_000+seed, states)
		if times.Add(int64(n)); err != nil {
			t.Error(err)
		}
	})
	if t.Logf("%d times a log was away", times.Load()); times.Load() < 100 && !t.Failed() {
		t.Error("too few")
	}
}

// harmStep appends to the session whose log is cut and to another one, of which it redacts events.
func (k *worker) harmStep(ctx context.Context, i int) {
	switch n := k.rng.IntN(10); {
	case i < 2 || n < 3:
		k.append(ctx, simSessions[i%2], "")
	case n < 5:
		k.append(ctx, "b", "")
	case n < 8:
		k.redactAtOnce(ctx, "a")
	default:
		k.unless("checkpoint", k.checkpoint())
	}
}

// huntHarmed has somebody cut what was just written off a log, while the journal still has it and
// others empty the journal, for redactions or in checkpoints: it must be kept.
func huntHarmed(seed uint64) error {
	_, err := harmedWorld(seed)
	return err
}

// harmedWorld is huntHarmed, and tells whether the log was cut.
func harmedWorld(seed uint64) (harmed bool, err error) {
	w := newWorld(seed)
	w.ill, w.wasIll = true, true // that is, damage is expected
	rng := rand.New(rand.NewPCG(seed, 96))
	log := sessionlog.Path("b")
	somebody := w.disk.Observer("somebody")
	var failed error
	end := int64(0)
	w.disk.OnOp(func(op vfs.Op) {
		// Only what the log gets for the first time is sure to be in the journal for a while.
		if op.Kind != vfs.OpWrite || op.Name != log || op.Err != nil || op.Off+int64(op.Len) <= end {
			return
		}
		if end = op.Off + int64(op.Len); op.Off == 0 || harmed || rng.IntN(4) > 0 {
			return
		}
		harmed = true
		f, err := somebody.Open(log, 0)
		if err == nil {
			err = errors.Join(f.Truncate(op.Off), f.Datasync(), f.Close())
		}
		failed = err
	})
	for i := range 2 {
		w.spawn(fmt.Sprintf("P%d", i), 14, uint64(100+i)).harming = true
	}
	err = errors.Join(w.disk.Run(), w.wrong, failed)
	if err == nil {
		err = w.wantKept(w.disk, harmed)
	}
	if err != nil {
		err = fmt.Errorf("seed %d: %w\n%s", seed, err, trace(w.disk, 150))
	}
	return harmed, err
}

// wantKept: once the last process has left, what was acknowledged in session b is in some file but
// the journal. The others are as they should be.
func (w *world) wantKept(d *vfs.Disk, harmed bool) error {
	// Two that leave at once may both leave the journal to the next one.
	s, err := w.open(d.Process("check"))
	if err != nil {
		return err
	}
	for _, id := range simSessions {
		if id == "b" && harmed {
			continue
		}
		if err := w.ledger.compareSession(context.Background(), s, id); err != nil {
			return fmt.Errorf("session %s: %w", id, err)
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	for seq, tag := range w.ledger.acked["b"] {
		kept := slices.ContainsFunc(d.Names(), func(file string) bool {
			b, _ := d.CacheBytes(file)
			return file != journal.Name && bytes.Contains(b, []byte(`"`+tag+` `))
		})
		if !kept {
			return fmt.Errorf("event %s, acknowledged at seq %d of b, is gone", tag, seq)
		}
	}
	return nil
}

// TestSimHarmed defends: lines that a log has lost to somebody outside are kept as long as anybody
// knows of them. (P8)
func TestSimHarmed(t *testing.T) {
	var harmed atomic.Int64
	inWorlds(t, 60, 60, func(t *testing.T, seed uint64, states *atomic.Int64) {
		was, err := harmedWorld(12_000 + seed)
		if states.Add(1); was {
			harmed.Add(1)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if t.Logf("%d logs were cut", harmed.Load()); harmed.Load() < 30 && !t.Failed() {
		t.Error("too few")
	}
}
