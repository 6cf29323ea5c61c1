package filestore

import (
	"errors"
	"fmt"
	"io/fs"

	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
)

// How a process finds out what the others did, under write.lock. catchup is the usual
// way: it reads the ring from this process's cursor on. reload is for when that is not
// enough, because the ring or the control file is not the one we know. After both the
// caches know the ring to its end; recover.go does the same for the first process to open
// the store.

// reload follows the others to the ring they use now, under write.lock: on joining them,
// when somebody replaced it, or when the control file is gone or wrong. Before it uses a
// ring it has opened, a process makes sure that its own sync may be believed (rule A,
// J5): the kernel may have reported a failed write-back to a process that is gone, and
// would return OK to us.
//
// Control is believed only where its epoch is the ring's; otherwise all positions are
// found in the ring itself.
//
// A reload that failed half-way has changed the ring but not the caches, and nothing in
// the files shows that later. So it is remembered: until one succeeds, the next holder of
// the lock in this process reloads again, whatever the control file says. (Failure 68;
// planted bug "half a reload believed".)
func (l *locked) reload() error {
	l.stale = true
	if err := l.followRing(); err != nil {
		return err
	}
	l.stale = false
	return nil
}

// followRing does the work of reload.
func (l *locked) followRing() error {
	r, slots, best, err := l.openRing(0)
	if errors.Is(err, fs.ErrNotExist) {
		// Not recreated: entries that only the removed journal holds would be lost.
		return errJournalGone
	}
	if err != nil {
		return err
	}
	l.useRing(r)
	if err := l.openControl(); err != nil {
		return err
	}
	// The rename that put this ring in place may not be durable. If a cut brought the old
	// ring back after the logs got what only the new one had, those lines would be in no
	// journal (rule DirectorySync).
	if err := l.fs.SyncDir("."); err != nil {
		return fmt.Errorf("sync store directory: %w", err)
	}
	// The caches were filled from another ring, or from an epoch whose entries a failed
	// sync may have taken away (rule CacheEpoch).
	l.dropCaches()
	w, durable, ok := l.ctl.Read()
	known := ok && w.Epoch == r.Epoch
	sl := slots[best]
	if known {
		// A newer slot may not be synced yet: its writer has not synced it yet, or died.
		// The slot with the published start is durable.
		sl = slots[journal.DurableSlot(slots, best, w.Start, w.Epoch)]
	} else {
		w = peers.Progress{Epoch: r.Epoch, Written: sl.Start, TailChain: sl.StartChain, Applied: sl.Start, Start: sl.Start, Base: sl.Start,
			Flags: peers.FlagReplaced} // for all that is known
		durable = sl.Start
	}
	// Scan to the end of what is valid, not to the published end: complete entries of a
	// writer that died before it published them are adopted (rule Adoption).
	entries, end, chain, err := r.Scan(sl.Start, sl.StartChain, 0)
	if err != nil {
		return err
	}
	l.w, l.lim = w, durable
	if known && (end < w.Written || sl.Start > w.Start) {
		// Rule WholeAtOpen: somebody's sync failed and the kernel dropped pages. Entries
		// after the hole would be lost later; the new ring gets the entries that are
		// left, durably.
		return l.rotate(r.Size)
	}
	l.w.Written, l.w.TailChain = end, chain
	// Rule A: the same bytes, written in place through our own descriptor. From now on a
	// failed write-back of them is reported to it. (Planted bug "opener without rule A".)
	if err := errors.Join(r.Rewrite(max(durable, sl.Start), end), r.RewriteSlot(0), r.RewriteSlot(1)); err != nil {
		return err
	}
	// If a page was dropped between the scan and the rewrite, the rewrite read it back
	// from the disk and wrote the old content: then the ring is what the disk had, see
	// readDurably.
	if _, again, againChain, err := r.Scan(sl.Start, sl.StartChain, end); err != nil || again != end || againChain != chain {
		return errors.Join(err, l.rotate(r.Size))
	}
	if !known {
		// Without control it is unknown which slot and which entries are durable, so all
		// of it is made durable (rules RebuildRewrites, ReloadSyncs). Waiting for the
		// disk under write.lock is the exception here: the control file was lost.
		if r.Rewrite(sl.Start, end) != nil || r.File.Datasync() != nil {
			return l.rotate(r.Size)
		}
		l.w.Base, l.lim = end, end
	}
	l.cursor, l.cursorChain, l.cold = end, chain, false
	// Entries before the applied position only mark their logs dirty; the others are
	// pending.
	for _, e := range entries {
		l.note(e, nil)
	}
	return nil
}

// catchup brings this process up to date under write.lock, before anything is decided:
// complete entries that a dead writer did not publish are adopted (J2), what others wrote
// reaches the caches, and what is durable the logs. Seqs assigned on less would be
// assigned twice.
//
// It is idempotent. On error what was applied stays applied, and the caller publishes it.
func (l *locked) catchup() error {
	if l.cold || l.cursor < l.w.Start {
		// The caches were dropped, or others used the ring for a whole lap while we did
		// nothing: where our cursor stands there are other entries now (rule CacheStart).
		slots, _, best, err := journal.ReadSlots(l.ring.File)
		if err != nil {
			return err
		}
		if best < 0 {
			// No valid slot says where the ring starts. rotate fails for the same reason
			// and flags the store as failed.
			return l.rotate(l.ring.Size)
		}
		l.dropCaches()
		sl := slots[journal.DurableSlot(slots, best, l.w.Start, l.w.Epoch)]
		l.cursor, l.cursorChain, l.cold = sl.Start, sl.StartChain, false
	}
	m := l.logs.pending.memory()
	defer l.logs.pending.letGo(m)
	end, chain, err := l.ring.ScanInto(&m.found, l.cursor, l.cursorChain, l.w.Written, l.logs.nameOf)
	if err != nil {
		return err
	}
	// Rule WholeAtLock: the ring is shorter than what was published, see reload.
	if end < l.w.Written {
		if err := l.rotate(l.ring.Size); err != nil {
			return err
		}
		return l.catchup()
	}
	// What was adopted counts like the published entries from here on.
	l.w.Written, l.w.TailChain = end, chain
	l.cursor, l.cursorChain = end, chain
	// If control can't be written it says less than this process knows, and refresh goes by
	// it: what was synced would go to no log (TestControlNotWritten).
	l.lim = max(l.lim, min(l.lock.own.get(l.w.Epoch), end))
	if len(m.found.Entries) > 0 {
		l.company = companyGroups // all of them are other processes': the cursor is already past our own
	}
	for _, e := range m.found.Entries {
		l.note(e, m)
		if sess := l.logs.sessions[e.Name]; sess != nil {
			// Another process's entry advances the cached state of a session we know; a
			// session that is not cached is loaded when it is needed.
			if sess.known && sess.damage == nil {
				sess.follow(e)
			}
			// Its tombstone is in the log: a descriptor would keep the bytes of a file
			// that is removed or replaced (W6).
			if e.End() <= l.w.Applied {
				sess.closeTaken(e)
			}
		}
	}
	l.dropApplied()
	return l.apply()
}

// companyGroups is for how many groups after another process's entry we count that
// process as writing too.
const companyGroups = 8

// dropApplied forgets pending entries that other processes have applied to the logs, and
// wakes those who wait for the sessions.
func (l *locked) dropApplied() {
	applied := l.logs.pending.upTo(l.w.Applied)
	for _, e := range applied {
		// Entries before start are freed: the log may have been replaced since (note).
		if e.End() > l.w.Start {
			l.logs.noteApplied(e.Entry)
		}
		if sess := l.logs.sessions[e.Name]; sess != nil {
			sess.ahead = 0
			sess.closeTaken(e.Entry)
		}
		l.waiters.wake(e.Name)
	}
	l.logs.pending.drop(len(applied))
}
