// Package filestore keeps sessions in plain JSONL files that any number of
// processes share, with no daemon and none of them privileged.
//
//	store, err := filestore.Open("./sessions", nil)
//
// Every append of every process goes to one shared redo journal first, one
// sync makes all that wait durable, and then it is copied to the logs, one file
// per session that people can cat, grep and tail. What is in a log is durable,
// so readers take no lock. Mutual exclusion is the kernel's flock; nothing in
// the directory is a lock by existing, so nothing can be a stale one.
//
// The files follow the data down: store → queue → commit → session → line →
// journal → apply; recover and checkpoint beside them; read, wait, list, verify
// and repair on the other side. A turn is asked for in turn, waited for in
// courtesy, decided in turnplan, kept alive in lease and watched in holder.
// ARCHITECTURE.md tells the life of one append, FORMAT.md the bytes.
//
// Caveats: one machine. File systems on which flock does not reach all
// processes (NFS, SMB, FUSE, …) are refused unless Options.AllowNetwork is set.
package filestore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// Options says how to open a store. The zero value is safe and durable.
type Options struct {
	// ReadOnly refuses writes. It touches nothing, except that it finishes
	// what a crash left if nobody else did: else readers would miss events
	// that are durable only in the journal.
	ReadOnly bool
	// AllowNetwork opens the store on a file system whose locks can't be
	// relied on between machines. Use it only where one machine has it mounted.
	AllowNetwork bool
	// MustExist is fs.ErrNotExist for a directory without a store, instead
	// of making one.
	MustExist bool
	// LockWait is how long a write waits for the store's write lock before
	// it answers ErrBusy; 0 is 10 seconds. The lock is held for microseconds:
	// waiting long means that its holder is stopped.
	LockWait time.Duration
}

// config is what only tests change.
type config struct {
	ringSize uint64
	// inline runs everything in the caller's goroutine, for the simulation.
	inline bool
	// anyway opens a store that can't be joined, as it is without inline.
	anyway bool
	random func() uint64
	now    func() time.Time
	// mono is this process's own clock, which nobody else's is compared with;
	// sleep lets its time pass, in the simulation.
	mono  func() time.Duration
	sleep func(time.Duration)
	plant plant
}

func defaultConfig() config {
	return config{ringSize: defaultRing, now: hansard.Now, random: func() uint64 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		return binary.LittleEndian.Uint64(b[:])
	}}
}

// Store is an open store. It implements hansard.Store and hansard.Checker.
type Store struct {
	fs   vfs.FS
	dir  *vfs.OS // nil in the simulation
	path string  // of dir
	opt  Options
	cfg  config

	closed    atomic.Bool
	closing   chan struct{} // closed by Close
	closeOnce sync.Once
	closeErr  error
	queue     queue
	waiters   waiters
	leases    leases // the turns this process keeps alive
	inLine    waitingLine
	checked   checked
	keys      keyIndexes
	catalog   catalog
	measures  measures
	workers   sync.WaitGroup // the leader and the background checkpoint
	kick      chan struct{}  // wakes the background checkpoint
	ckMu      sync.Mutex     // one checkpoint at a time in this process
	suspectMu sync.Mutex
	suspects  map[int]string // logs whose sync and copy failed, by the slot of their mark; written under both, read under ckMu

	// syncMu admits one fdatasync at a time on this process's ring: two at
	// once on one descriptor could each take the other's error report.
	// Order: ckMu, syncMu, wmu.
	syncMu   sync.Mutex
	syncGate *gate

	// wmu is held by the one goroutine of this process that has write.lock
	// or waits for it. It guards all below.
	wmu   sync.Mutex
	files lockFiles
	inst  *instance // this process among the others; nil: not registered yet
	// attached: this process takes part in writing. suspects are logs whose
	// sync failed and that could not be copied, by the slot of their mark.
	attached bool
	ctl      *control
	ring     *ring
	w        wRecord // as it was when write.lock was taken, plus our changes
	// lim is how far the ring is known to be durable.
	lim uint64
	// cursor is how far the caches know the ring. pending are the entries
	// that are not in the logs yet, dirty the logs that entries since
	// w.start went to, with the end of the last. cold: nothing is known.
	cold        bool
	cursor      uint64
	cursorChain uint64
	pending     []*entry
	dirty       map[string]dirtyLog
	sessions    map[string]*session
	retired     []vfs.File // rings that were replaced; somebody may still sync one

	ringBuf   []byte         // memory for the next group's entries,
	lineSizes map[string]int // and for the plan of it
	holder    []byte         // what people are told who wait for this process

	free   uint64 // bytes of the disk, when it was asked last
	freeAt time.Time

	own ownDurable
}

// dirtyLog is a log that entries since the ring's start went to.
type dirtyLog struct {
	end    uint64 // of the last entry
	logEnd int64  // how long its log is, at least: entries up to there were applied
}

// ownDurable is how far this process has synced the ring itself without telling
// anybody, because sync.lock was not to be had.
type ownDurable struct {
	mu         sync.Mutex
	epoch, pos uint64
}

func (o *ownDurable) get(epoch uint64) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.epoch != epoch {
		return 0 // of another ring or another time: it says nothing
	}
	return o.pos
}

func (o *ownDurable) set(epoch, pos uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.epoch != epoch {
		o.epoch, o.pos = epoch, 0
	}
	o.pos = max(o.pos, pos)
}

// Open opens the store in a directory, and makes one where there is none. The
// first process to open a store finishes what a power cut interrupted.
func Open(dir string, o *Options) (*Store, error) {
	var opt Options
	if o != nil {
		opt = *o
	}
	if opt.LockWait <= 0 {
		opt.LockWait = 10 * time.Second
	}
	if !opt.ReadOnly && !opt.MustExist {
		if err := vfs.MakeDir(dir); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	root, err := vfs.OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if !opt.AllowNetwork {
		if name, network, err := root.FSType(); err == nil && network {
			_ = root.Close()
			return nil, &unsupportedFS{name}
		}
	}
	s, err := open(root, opt, defaultConfig())
	if err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("open store: %w", err)
	}
	s.dir, s.path = root, dir
	return s, nil
}

// open is Open on any file system.
func open(fsys vfs.FS, opt Options, cfg config) (*Store, error) {
	if began := time.Now(); cfg.mono == nil {
		cfg.mono = func() time.Duration { return time.Since(began) }
	}
	s := &Store{fs: fsys, opt: opt, cfg: cfg, closing: make(chan struct{}), kick: make(chan struct{}, 1), holder: holderRecord()}
	s.leases.timers = !cfg.inline
	if _, err := fsys.Stat(journalName); err != nil {
		// Nothing to read yet, or only logs that were copied here.
		_, noSessions := fsys.ReadDir(sessionsDir)
		if errors.Is(err, fs.ErrNotExist) && noSessions != nil && (opt.MustExist || opt.ReadOnly) {
			return nil, fmt.Errorf("there is no store here: %w", fs.ErrNotExist)
		}
	}
	if opt.ReadOnly && s.recovered() {
		return s, nil
	}
	if err := s.join(); isReadOnly(err) {
		s.opt.ReadOnly = true
	} else if err != nil && !cfg.anyway {
		s.release()
		return nil, err
	}
	if !cfg.inline && !opt.ReadOnly && !s.opt.ReadOnly {
		s.workers.Add(1)
		go s.checkpointInBackground()
	}
	return s, nil
}

// recovered tells whether the logs have all that is durable: the last to leave
// left nothing, or somebody is here who has seen to it.
func (s *Store) recovered() bool {
	f, err := s.fs.Open(journalName, vfs.ReadOnly)
	if err != nil {
		return true // nothing to recover from
	}
	defer f.Close()
	slots, _, best, err := readSlots(f)
	return err != nil || best < 0 || leftClean(slots, best) || s.othersLive()
}

// unsupportedFS refuses a file system whose locks can't be relied on.
type unsupportedFS struct{ name string }

func (e *unsupportedFS) Error() string {
	return "open store: the directory is on " + e.name + ", where file locks do not reach every process"
}
func (e *unsupportedFS) Is(target error) bool { return target == hansard.ErrUnsupported }
func (e *unsupportedFS) Hint() string {
	return "put the store on a local disk, or run one server beside the disk; --allow-network-fs overrides this where only one machine uses the directory"
}

// Create makes a new, empty session.
func (s *Store) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	if err := s.usable(ctx, id); err != nil {
		return hansard.Info{}, err
	}
	if err := hansard.CheckMeta(&m); err != nil {
		return hansard.Info{}, err
	}
	r := &request{op: opCreate, id: id, name: encodeName(id), meta: m}
	r.size = entryHeader + 2*len(r.name) + 2*stampWidth + len(marshal(m))
	if err := s.prepare(r); err != nil {
		return hansard.Info{}, err
	}
	if _, err := s.submit(ctx, r); err != nil {
		return hansard.Info{}, err
	}
	return s.Stat(context.WithoutCancel(ctx), id)
}

// Append stores a batch; nil means that it is durable.
func (s *Store) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	if err := s.usable(ctx, id); err != nil {
		return hansard.Receipt{}, err
	}
	if err := hansard.CheckBatch(&b); err != nil {
		return hansard.Receipt{}, err
	}
	r := newAppend(id, &b)
	if err := s.prepare(r); err != nil {
		return hansard.Receipt{}, err
	}
	return s.submit(ctx, r)
}

// Delete ends a session for ever.
func (s *Store) Delete(ctx context.Context, id hansard.SessionID, turn hansard.Grant) error {
	if err := s.usable(ctx, id); err != nil {
		return err
	}
	r := &request{op: opDelete, id: id, name: encodeName(id), turn: turn}
	r.size = entryHeader + 2*len(r.name) + 2*stampWidth + endedWidth
	if err := s.prepare(r); err != nil {
		return err
	}
	_, err := s.submit(ctx, r)
	return err
}

// readable tells whether a call may be tried at all.
func (s *Store) readable(ctx context.Context, id hansard.SessionID) error {
	if s.closed.Load() {
		return hansard.ErrClosed
	}
	if err := hansard.CheckID(id); err != nil {
		return err
	}
	return ctx.Err()
}

// usable tells whether a write may be tried at all.
func (s *Store) usable(ctx context.Context, id hansard.SessionID) error {
	if err := s.readable(ctx, id); err != nil {
		return err
	}
	if s.opt.ReadOnly {
		return hansard.ErrReadOnly
	}
	return nil
}

// Close refuses new work, waits for what is under way, and leaves the store
// with nothing to recover if this was the last process that had it open.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.closed.Store(true)
		close(s.closing)
		s.waiters.wakeAll()
		patience := max(s.opt.LockWait/10, time.Second)
		s.releaseAll(patience)
		s.queue.refuse(hansard.ErrClosed)
		done := make(chan struct{})
		go func() { s.workers.Wait(); close(done) }()
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-done:
			s.closeErr = s.leave()
		case <-timer.C:
			// The leader waits for a lock whose holder is stopped. Nobody
			// waits for it any more, and what it holds ends with the process.
			// A reader wanted nothing of it.
			if !s.opt.ReadOnly {
				s.closeErr = s.busy()
			}
		}
	})
	return s.closeErr
}

// Pause runs fn while this process is outside the write lock and keeps it
// there, so that a process stopped in fn (Ctrl-Z) holds up nobody.
func (s *Store) Pause(fn func()) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if s.files.write != nil {
		_ = s.files.write.Unlock() // lockIsFree may have taken it ahead
	}
	fn()
}

var (
	_ hansard.Store   = (*Store)(nil)
	_ hansard.Checker = (*Store)(nil)

	_ hansard.JournalRepairer = (*Store)(nil)
)
