package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// After a power cut the logs may lack lines that only the journal has. Readers that run beside
// the recovering process, and readers that may not write, still get all of them.

// mayOnlyRead keeps a process from joining, as a read-only mount would.
func mayOnlyRead(d *vfs.Disk, proc string) {
	d.Inject(vfs.Match{Proc: proc, Kind: vfs.OpOpen, Name: peers.SyncLock}, vfs.Fault{Err: syscall.EROFS, Always: true})
}

// readsAll opens the store for reading and compares everything it shows with the ledger.
func (w *world) readsAll(p *vfs.Proc, verify bool) error {
	s, err := w.openWith(p, Options{ReadOnly: true, MustExist: true})
	if errors.Is(err, fs.ErrNotExist) && w.ledger.acks == 0 {
		return nil // no store yet
	}
	if err != nil {
		return fmt.Errorf("open to read: %w", err)
	}
	return errors.Join(w.ledger.compare(s, verify && w.ledger.acks > 0), w.ledger.compareList(s), s.Close())
}

// compareList: all sessions are listed, with everything that was acknowledged.
func (l *ledger) compareList(s *Store) error {
	infos := map[hansard.SessionID]hansard.Info{}
	for info, err := range s.List(context.Background(), hansard.Query{}) {
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		infos[info.ID] = info
	}
	for _, id := range simSessions {
		info, listed := infos[id]
		switch {
		case listed && l.deleted[id]:
			return fmt.Errorf("list: session %s was deleted, and is there", id)
		case !listed && l.created[id] && !l.deleted[id] && !l.maybe[id]:
			return fmt.Errorf("list: session %s was made, and is missing", id)
		case listed && info.Damage != nil:
			return fmt.Errorf("list: %w", info.Damage)
		case l.deleted[id] || l.maybe[id]:
			continue
		}
		for seq := range l.acked[id] {
			if info.LastSeq < seq {
				return fmt.Errorf("list: session %s ends at seq %d, event %d was acknowledged", id, info.LastSeq, seq)
			}
		}
	}
	return nil
}

// readBeside has two readers read repeatedly while another process opens and recovers the store
// (if recovers is set).
func (w *world) readBeside(d *vfs.Disk, recovers bool) error {
	var wrong error
	for _, name := range []string{"R0", "R1"} {
		mayOnlyRead(d, name)
		p := d.Process(name)
		d.Go(p, func() {
			for n := range 3 {
				if err := w.readsAll(p, n == 1); err != nil && wrong == nil {
					wrong = fmt.Errorf("%s, beside recovery %v: %w", name, recovers, err)
				}
			}
		})
	}
	if recovers {
		p := d.Process("first")
		d.Go(p, func() {
			s, err := w.open(p)
			if err == nil {
				err = s.Close()
			}
			if err != nil && wrong == nil {
				wrong = fmt.Errorf("recover: %w", err)
			}
		})
	}
	return errors.Join(d.Run(), wrong)
}

// besideRecovery plays a world. After some of the operations that change the disk, readers look
// at what a power cut would leave, beside a recovering process and without one.
func besideRecovery(seed uint64, states *atomic.Int64) error {
	w := newWorld(seed)
	var found error
	version := uint64(0)
	w.disk.OnOp(func(op vfs.Op) {
		if found != nil || w.disk.Version() == version || op.N%3 != 0 {
			return
		}
		version = w.disk.Version()
		for i, keep := range []int{0, 50, 100} {
			c := vfs.Cut{Keep: keep, Seed: uint64(op.N*4 + i)}
			for _, recovers := range []bool{false, true} {
				d := w.disk.Clone()
				d.PowerCut(c)
				states.Add(1)
				if err := w.readBeside(d, recovers); err != nil {
					found = fmt.Errorf("seed %d: power cut after operation %d, %+v: %w\n%s", seed, op.N, c, err, trace(d, 60))
					return
				}
			}
		}
	})
	err := w.play(2, 10)
	return errors.Join(found, err)
}

func huntBesideRecovery(seed uint64) error {
	return besideRecovery(seed, new(atomic.Int64))
}

// TestSimFailure56_ReadBeforeRecovery: everything acknowledged is read, listed and verified, by a
// reader beside the recovering process and by one on a store that nobody may write.
func TestSimFailure56_ReadBeforeRecovery(t *testing.T) {
	inWorlds(t, 4, 2_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		if err := besideRecovery(8000+seed, states); err != nil {
			t.Error(err)
		}
	})
}

// TestReadWhereRecoveryFails: if the journal can't be applied because the disk is full, readers
// still see everything in it.
func TestReadWhereRecoveryFails(t *testing.T) {
	w := newWorld(3)
	p := w.disk.Process("writer")
	s, err := w.open(p)
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "a", nil, "one")
	if err := s.checkpoints.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	say(t, s, "a", nil, "two")
	say(t, s, "n", nil, "new")
	w.disk.PowerCut(vfs.Cut{})
	w.disk.Inject(vfs.Match{Kind: vfs.OpWrite, Name: sessionlog.Dir + "/*"}, vfs.Fault{Err: syscall.ENOSPC, Always: true})
	cfg := simConfig(9, simRing)
	cfg.anyway = true
	s, err = open(w.disk.Process("next"), Options{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	hears(t, s, "a", "one", "two")
	hears(t, s, "n", "new")
	if infos, err := listed(s, hansard.Query{}); err != nil || len(infos) != 2 {
		t.Errorf("listed: %+v, %v", infos, err)
	}
	w.disk.ClearRules()
	say(t, s, "a", nil, "three")
	hears(t, s, "a", "one", "two", "three")
}

// TestBacklogNoRight: a process that may not read the journal can't know what the logs lack, and
// gets an error that says so.
func TestBacklogNoRight(t *testing.T) {
	w := newWorld(4)
	s, err := w.open(w.disk.Process("writer"))
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "a", nil, "one")
	w.disk.PowerCut(vfs.Cut{})
	mayOnlyRead(w.disk, "reader")
	w.disk.Inject(vfs.Match{Proc: "reader", Kind: vfs.OpOpen, Name: journal.Name}, vfs.Fault{Err: syscall.EACCES, Always: true})
	r, err := w.openWith(w.disk.Process("reader"), Options{ReadOnly: true, MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Stat(context.Background(), "a"); !errors.Is(err, syscall.EACCES) {
		t.Errorf("stat: %v, want that the journal can't be read", err)
	}
	if _, err := listed(r, hansard.Query{}); !errors.Is(err, syscall.EACCES) {
		t.Errorf("list: %v, want that the journal can't be read", err)
	}
}
