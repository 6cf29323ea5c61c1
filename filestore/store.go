// Package filestore keeps sessions in plain JSONL files that any number of processes
// share, without a daemon. No process is privileged.
//
//	store, err := filestore.Open("./sessions", nil)
//
// Every append of every process goes to one shared redo journal first, one sync makes
// all waiting appends durable, and then they are copied to the logs, one file per session
// that people can cat, grep and tail. What is in a log is durable, so readers take no
// lock. Mutual exclusion is the kernel's flock; no file is a lock by existing, so there
// are no stale locks (failures 1 to 6).
//
// Promises:
//   - Append returned nil: the batch is durable and in its log, once, whole, at the seqs
//     of the receipt, after any crash or power cut.
//   - ErrUnknown: it is there whole or not at all; a retry with the same key settles it.
//   - Any other error: it was not stored and never will be.
//   - What Read returned is still there after a power cut.
//
// The files follow the data down: store → prepare → queue → commit → plan → session →
// journal → apply; recover, rotate and checkpoint beside them; openlog, read, wait, list,
// verify and repair on the other side. A turn is asked for in turn, waited for in
// courtesy, decided in turnplan; internal/peers keeps it alive (lease) and watches it
// (holder). ARCHITECTURE.md has the life of one append, docs/protocol.md every rule and
// what breaks without it, FORMAT.md the bytes.
//
// Lock order, outermost first:
//
//	checkpoints.ckMu, check.lock   one checkpoint at a time
//	eraser.mu                      one erasing at a time
//	syncer.syncMu, sync.lock       one fdatasync at a time
//	writeLock.mu, write.lock       the ring, the control file, the sessions' state
//	open.lock                      who is alone; taken only under write.lock
//	queue.mu, waiters.mu, the caches' and the leases' mutexes: for work in memory
//
// Caveats: one machine. File systems on which flock does not reach all processes (NFS,
// SMB, FUSE, …) are refused unless Options.AllowNetwork is set.
package filestore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Options says how to open a store. The zero value is safe and durable.
type Options struct {
	// ReadOnly refuses writes. Opening changes nothing in the store, with one exception:
	// if a crash left work in the journal, no other process has finished it, and the
	// permissions allow it, it is finished. If they do not, reads include what is durable
	// only in the journal.
	ReadOnly bool
	// AllowNetwork opens the store on a file system whose locks can't be relied on
	// between machines. Use it only if a single machine has it mounted.
	AllowNetwork bool
	// MustExist makes Open return fs.ErrNotExist for a directory without a store,
	// instead of creating one.
	MustExist bool
	// LockWait is how long a write waits for the store's write lock before it returns
	// ErrBusy; 0 is 10 seconds. The lock is held for microseconds: a long wait means that
	// its holder is stopped. Close waits as long for a write of this process on a slow disk.
	LockWait time.Duration
	// Search is the index that Search uses: package search has one. The store closes
	// it. Nil: Search reads the logs.
	Search SearchIndex
	// Catalog opens the table of sessions that lists are made from, in a file of cache/;
	// self distinguishes this file from others and from copies of it. Package catalog has
	// one, on SQLite. Nil: each process keeps a table in memory, and a list looks at
	// every log. A store that is opened ReadOnly keeps the catalog up to date too, if the
	// permissions allow it: it contains nothing that is not in the logs.
	Catalog func(file, self string) (Catalog, error)
	// Progress is called with how many of the logs that the catalog needs have been read.
	Progress func(done, total int)
	// Log receives errors of background work, which no caller sees. Nil: they are
	// dropped; the counters of Measures count them in any case.
	Log *slog.Logger
}

// config is what only tests change.
type config struct {
	ringSize  uint64 // of a busy store
	firstRing uint64 // of a new one; 0: the same
	// inline runs everything in the caller's goroutine: the simulation stops a process at
	// any operation and replays it by its seed, so nothing may run concurrently.
	inline bool
	// anyway makes an inline open succeed although joining failed, as it does without
	// inline, where the store can still be read.
	anyway bool
	random func() uint64
	now    func() time.Time
	// mono is this process's own clock. It is never compared with another process's:
	// suspended laptops and time namespaces would make the comparison wrong. sleep
	// advances it, in the simulation.
	mono            func() time.Duration
	sleep           func(time.Duration)
	names           int           // instead of namesInMemory, if not 0
	pieceLogs       int           // of checkpoints that somebody waits for, if not 0
	pruneAge        time.Duration // instead of the constants of these names, if not 0
	checkpointEvery time.Duration
}

// defaultConfig is the configuration of every store that Open opens. Random numbers make
// temporary files, logs and grants unique. They come from the system: a generator seeded
// by time or PID would repeat itself between processes and containers.
func defaultConfig() config {
	return config{ringSize: journal.DefaultSize, firstRing: journal.FirstSize, now: engine.Now, random: func() uint64 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		return binary.LittleEndian.Uint64(b[:])
	}}
}

// Store is an open store. It implements hansard.Store and hansard.Checker. Its methods
// may be called by any number of goroutines.
//
// Its parts, from the files up: asides, checks and keyring know about single logs; lock
// gives the ring and the sessions' state to one goroutine at a time; syncer, checkpoints
// and committer handle writes under it; reader and lister take no lock; turns waits on
// behalf of claimants. The parts do not change after newStore.
type Store struct {
	*process
	asides        *asides
	checks        *checks
	keyring       *keyring
	attachments   *attachments
	lock          *writeLock
	syncer        *syncer
	checkpoints   *checkpoints
	reader        *reader
	lister        *lister
	committer     *committer
	turns         *turns
	forker        *forker
	journalRepair *journalRepair

	closeOnce sync.Once
	closeErr  error
}

// Open opens the store in a directory, and creates one if there is none. The first
// process to open a store finishes what a power cut interrupted.
//
// A store that can be read but not written opens too: on a read-only mount, with a
// damaged journal, on a full disk, or beside a process that is stopped inside write.lock.
// The first write then reports why. ErrUnsupported: file locks can't be relied on here.
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
			return nil, fmt.Errorf("open store: %w", explainAt(dir, err))
		}
	}
	root, err := vfs.OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", explainAt(dir, err))
	}
	// If flock is local to each machine two writers would both get write.lock, and no
	// test on one machine can detect that: only the type of the file system tells.
	if !opt.AllowNetwork {
		if name, network, err := root.FSType(); err == nil && network {
			_ = root.Close()
			return nil, &unsupportedFS{name}
		}
	}
	s, err := open(root, opt, defaultConfig())
	if err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("open store: %w", explainAt(dir, err))
	}
	s.dir, s.path = root, dir
	return s, nil
}

// open is Open on any file system, real or simulated. On an error the caller closes fsys.
func open(fsys vfs.FS, opt Options, cfg config) (*Store, error) {
	if began := time.Now(); cfg.mono == nil {
		cfg.mono = func() time.Duration { return time.Since(began) }
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := newStore(&process{fs: fsys, opt: opt, cfg: cfg, closing: make(chan struct{}), holder: peers.HolderRecord()})
	if _, err := fsys.Stat(journal.Name); err != nil {
		// No journal: an empty directory, or logs that were copied here, which are a
		// store (failure 43).
		_, noSessions := fsys.ReadDir(sessionlog.Dir)
		if errors.Is(err, fs.ErrNotExist) && noSessions != nil && (opt.MustExist || opt.ReadOnly) {
			return nil, fmt.Errorf("there is no store here: %w", fs.ErrNotExist)
		}
	}
	if opt.ReadOnly {
		// Nothing to recover: stay out of write.lock and leave no instance file.
		if done, err := s.reader.logsComplete(); done && err == nil {
			s.logsKnown.Store(true)
			return s, nil
		}
	}
	// A store that this user may not write, or on a read-only mount, can still be read.
	// onlyRead remembers why, for the first write.
	if err := s.join(); isReadOnly(err) {
		s.opt.ReadOnly, s.onlyRead = true, s.explain(err)
	} else if err != nil && !cfg.anyway {
		s.release()
		return nil, err
	}
	if !cfg.inline && !opt.ReadOnly && !s.opt.ReadOnly {
		s.workers.Add(1)
		go s.checkpoints.checkpointInBackground()
	}
	return s, nil
}

// newStore wires the parts together. It touches neither disk nor locks. Each part gets
// pointers to the parts it needs and to no others; only lock.state leads to what
// write.lock guards (TestLockIsTheOnlyWay).
func newStore(p *process) *Store {
	p.waiters = &waiters{process: p}
	p.leases = peers.NewLeases(p.fs, p.cfg.mono, p.cfg.inline)
	s := &Store{process: p}
	s.asides = &asides{process: p}
	s.checks = &checks{process: p, asides: s.asides}
	s.keyring = &keyring{process: p, checks: s.checks}
	s.lock = &writeLock{process: p}
	dirty, suspects := &dirtyLogs{}, &suspects{}
	open := &logs{process: p, asides: s.asides, checks: s.checks, dirty: dirty}
	s.lock.state = &locked{process: p, lock: s.lock, logs: open, asides: s.asides, checks: s.checks, suspects: suspects}
	s.syncer = &syncer{process: p, lock: s.lock}
	s.reader = &reader{process: p, asides: s.asides, checks: s.checks, dirty: dirty, keyring: s.keyring}
	s.lister = &lister{process: p, reader: s.reader, asides: s.asides, checks: s.checks}
	s.checkpoints = &checkpoints{process: p, lock: s.lock, syncer: s.syncer, asides: s.asides, checks: s.checks,
		eraser:   &eraser{process: p, lock: s.lock, asides: s.asides, checks: s.checks, lister: s.lister},
		suspects: suspects, kick: make(chan struct{}, 1), mending: make(chan struct{}, 1)}
	s.attachments = &attachments{process: p, lock: s.lock, reader: s.reader}
	s.committer = &committer{process: p, lock: s.lock, syncer: s.syncer, checkpoints: s.checkpoints, reader: s.reader,
		asides: s.asides, checks: s.checks, keyring: s.keyring, attachments: s.attachments}
	s.checkpoints.beforeClose, s.checkpoints.atTick = s.committer.queue.beforeClose, s.committer.tendRuns
	s.turns = &turns{process: p, committer: s.committer, reader: s.reader, pace: usualPace}
	p.waiters.rung, s.committer.released = s.turns.rung, s.turns.released
	s.forker = &forker{process: p, lock: s.lock, reader: s.reader, committer: s.committer, checkpoints: s.checkpoints}
	s.journalRepair = &journalRepair{process: p, lock: s.lock, checkpoints: s.checkpoints, reader: s.reader}
	return s
}

// unsupportedFS refuses a file system whose locks can't be relied on.
type unsupportedFS struct{ name string }

func (e *unsupportedFS) Error() string {
	return "open store: the directory is on " + e.name + ", where file locks do not reach every process"
}

// Is makes it an ErrUnsupported.
func (e *unsupportedFS) Is(target error) bool { return target == hansard.ErrUnsupported }

// Hint is what the command prints below the error.
func (e *unsupportedFS) Hint() string {
	return "put the store on a local disk, or run one server beside the disk; --allow-network-fs overrides this where only one machine uses the directory"
}

// Create creates a new, empty session. ErrExists: there is one; ErrDeleted: there was
// one, and its id is never reused by accident (failure 32): see reuse.go.
func (s *Store) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	if err := s.usable(ctx, id); err != nil {
		return hansard.Info{}, err
	}
	if err := engine.CheckMeta(&m); err != nil {
		return hansard.Info{}, err
	}
	reuse := m.Reuse
	m.Reuse = false
	create := func() error {
		r := &request{op: opCreate, id: id, name: sessionlog.EncodeName(id), meta: m}
		r.size = journal.EntryHeader + 2*len(r.name) + 2*sessionlog.StampWidth + len(sessionlog.Marshal(m))
		_, err := s.committer.carryOut(ctx, r)
		return err
	}
	err := create()
	if reuse && errors.Is(err, hansard.ErrDeleted) && !errors.Is(err, hansard.ErrUnknown) {
		err = s.reuse(ctx, id, m, create)
	}
	if err != nil {
		return hansard.Info{}, err
	}
	// It is stored: a context that ends now must not turn that into an error.
	return s.Stat(context.WithoutCancel(ctx), id)
}

// Append stores a batch. Nil means that it is durable and in its log, ErrUnknown that it
// may be, any other error that it is not stored and never will be. The end of ctx stops
// the waiting, never a write that has begun.
//
// Everything that can be checked without a lock is checked and encoded here, in the
// caller's goroutine: under write.lock every process waits.
func (s *Store) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	if err := s.usable(ctx, id); err != nil {
		return hansard.Receipt{}, err
	}
	if err := engine.CheckBatch(&b); err != nil {
		return hansard.Receipt{}, err
	}
	r := newAppend(id, &b)
	receipt, err := s.committer.carryOut(ctx, r)
	if err == nil {
		r.recycle()
	}
	return receipt, err
}

// readable is the check at the beginning of every call: the store is open, the id is
// valid (it becomes a file name: failure 51), and the caller still waits.
func (p *process) readable(ctx context.Context, id hansard.SessionID) error {
	if p.closed.Load() {
		return hansard.ErrClosed
	}
	if err := hansard.CheckID(id); err != nil {
		return err
	}
	return ctx.Err()
}

// usable is readable for writes.
func (p *process) usable(ctx context.Context, id hansard.SessionID) error {
	if err := p.readable(ctx, id); err != nil {
		return err
	}
	return p.writable()
}

// writable is ErrReadOnly if the store was opened read-only, or could not be opened for
// writing; then with the reason.
func (p *process) writable() error {
	switch {
	case p.onlyRead != nil:
		return fmt.Errorf("%w: %w", hansard.ErrReadOnly, p.onlyRead)
	case p.opt.ReadOnly:
		return hansard.ErrReadOnly
	}
	return nil
}

// Close refuses new work, waits for the group under way, releases this process's own
// turns and, in the last process that has the store open, empties the journal, so that
// there is nothing to recover. Calling it again returns the same error. What was
// acknowledged is durable whatever Close returns.
//
// The order matters: turns are released through the queue, so the queue is closed only
// after them; workers are waited for before the files they use are closed (failure 19).
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.closed.Store(true)
		close(s.closing)
		s.waiters.wakeAll()
		// A program must not hang on exit because another one is stopped.
		patience := max(s.opt.LockWait/10, time.Second)
		s.turns.releaseAll(patience)
		s.committer.queue.refuse(hansard.ErrClosed)
		done := make(chan struct{})
		go func() { s.workers.Wait(); close(done) }()
		idle, err := finished(s.process, done, patience)
		if s.closeErr = err; !idle {
			return
		}
		s.closeErr = s.leave()
		if s.opt.Search != nil {
			s.closeErr = errors.Join(s.closeErr, s.opt.Search.Close())
		}
	})
	return s.closeErr
}

// finished waits until done is closed. If that takes too long the leader waits for a lock whose
// holder is stopped, or for a slow disk, which gets as long as a lock does. Queued requests have
// been refused; the files are left to the end of the process, because closing them under the
// leader would be a race.
func finished(p *process, done <-chan struct{}, patience time.Duration) (bool, error) {
	for waited := patience; ; waited += patience {
		select {
		case <-done:
			return true, nil
		case <-time.After(patience):
		}
		if p.opt.ReadOnly {
			return false, nil // a reader needs nothing from the lock
		}
		err := p.busy()
		var busy *hansard.BusyError
		if !errors.As(err, &busy) || busy.Own == "" || waited >= p.opt.LockWait {
			return false, err
		}
	}
}

// Pause runs fn while this process is outside the write lock and keeps it there, so that
// a process that stops itself in fn (Ctrl-Z) does not block other processes' writes.
func (s *Store) Pause(fn func()) { s.lock.pause(fn) }

var (
	_ hansard.Store   = (*Store)(nil)
	_ hansard.Checker = (*Store)(nil)
	_ hansard.Pruner  = (*Store)(nil)
	_ hansard.Counter = (*Store)(nil)

	_ hansard.JournalRepairer = (*Store)(nil)
)
