package filestore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strings"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Repairing the journal, D1 to D5 of FORMAT.md. A damaged journal has lost something that
// was durable: it has no valid slot, was cut short, or lacks an entry that a later entry
// proves was there (E4). No process writes to it: scanning would end at the damage, and
// the next append would overwrite acknowledged entries after it.
//
// The repair decides as little as possible. internal/journal/salvage.go finds what is
// valid by itself; this file builds a new journal from it; recovery (recover.go) compares
// every entry with its log, as after any crash, writes what is missing and sets aside
// what does not fit.
//
//	damaged journal ─► evidence/            D1, durable before anything else
//	        │          sync every log       D1, their entries may be lost
//	        ├─ whole entries ───────────┐   D2, D3
//	        └─ fragments not in a log ──┤   D4, at an offset no log has: go to aside/
//	                                    └─► new journal, rename ─► recovery    D5
//
// A crash before the rename leaves the damaged journal, to be repaired again with the same
// result; one after it leaves a journal like any other (TestRepairJournalCut).

// RepairJournal turns a damaged journal into a sound one, so that the store can be
// written to again, and reports what became of the sessions it had entries for. A sound
// journal is left alone: Changed is false.
//
// No other process may have the store open: ErrBusy. ErrVersion: a newer format, which
// this version must not take for damage. After an error with Changed true the new journal
// is installed and only recovery is left, which the next process to open the store does.
func (s *Store) RepairJournal(ctx context.Context) (hansard.JournalRepaired, error) {
	var done hansard.JournalRepaired
	if s.closed.Load() {
		return done, hansard.ErrClosed
	}
	if s.opt.ReadOnly {
		return done, hansard.ErrReadOnly
	}
	if err := ctx.Err(); err != nil {
		return done, err
	}
	// A quick answer before waiting for any lock. open.lock decides, in repair.
	if s.leases.OthersLive() {
		return done, &errInUse{}
	}
	w, err := s.journalRepair.repair(&done)
	if err != nil || w == nil {
		return done, err
	}
	return done, s.journalRepair.tellSessions(ctx, &done, w)
}

// errInUse refuses to repair the journal while another process has the store open: its
// positions, caches and descriptor would be those of the old file.
type errInUse struct{}

func (e *errInUse) Error() string {
	return "store is busy: the journal can't be repaired while another process has the store open"
}

// Is makes it an ErrBusy.
func (e *errInUse) Is(target error) bool { return target == hansard.ErrBusy }

// Hint is what the command prints below the error.
func (e *errInUse) Hint() string {
	return "end every program that uses the store, then repair the journal; reading still works"
}

// journalRepair replaces a damaged journal.
type journalRepair struct {
	*process
	lock        *writeLock
	checkpoints *checkpoints
	reader      *reader
}

// wreckage is what a repair put into the new journal, for the report.
type wreckage struct{ found []rescued }

// rescued is an entry that went into the new journal, and whether its log had it before
// the repair and has it now.
type rescued struct {
	*journal.Entry
	before, now bool
}

// repair replaces a damaged journal and recovers the store from the new one. Nil without
// an error: the journal is sound, or there is none. It takes write.lock, but only the
// lock itself (lockOnly): refresh would try to use the journal. And it takes open.lock
// exclusively, which proves that no other process has the store open; joining takes
// write.lock, so none can slip in.
func (jr *journalRepair) repair(done *hansard.JournalRepaired) (w *wreckage, err error) {
	l, err := jr.lock.lockOnly()
	if err != nil {
		return nil, err
	}
	defer l.giveBack()
	attached := l.attached
	// Release our own share first: upgrading a flock is not atomic, and a failed upgrade
	// would lose it as well.
	_ = l.lock.files.open.Unlock()
	alone, err := l.lock.files.open.TryLock(vfs.LockExclusive)
	if err != nil || !alone {
		if attached {
			// Can't fail: an exclusive lock is only taken under write.lock, which we
			// hold.
			_, _ = l.lock.files.open.TryLock(vfs.LockShared)
		}
		return nil, errors.Join(err, &errInUse{})
	}
	reason := jr.journalDamage()
	var damaged *journal.DamagedError
	if errors.As(reason, &damaged) {
		done.Reason = damaged.Reason
		w, err = jr.replaceJournal(l, done)
	} else if reason != nil && !errors.Is(reason, fs.ErrNotExist) {
		err = reason // a newer version, or an I/O error: neither is damage
	}
	_ = l.lock.files.open.Unlock()
	if err != nil || damaged == nil {
		if attached {
			_, _ = l.lock.files.open.TryLock(vfs.LockShared)
		}
		return nil, err
	}
	// From here on the store is like any other after a crash, and attach recovers it.
	done.Changed, l.attached = true, false
	if err := l.attach(); err != nil {
		return nil, fmt.Errorf("the journal is repaired; what it holds is yet to be written to the logs: %w", err)
	}
	for i := range w.found {
		f := &w.found[i]
		f.now = l.logs.inLog(f.Entry)
	}
	return w, nil
}

// journalDamage is why the journal can't be used, by the same checks as recovery's: what
// recovery accepts must not be repaired, or the "repair" loses entries that recovery
// would have applied. Nil: it is sound.
func (jr *journalRepair) journalDamage() error {
	r, slots, best, err := jr.openRing(vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer r.File.Close()
	if journal.LeftClean(slots, best) {
		return nil
	}
	sl := slots[best]
	_, end, _, err := r.Scan(sl.Start, sl.StartChain, 0)
	if err != nil {
		return err
	}
	return r.LostBehind(end, sl.Start)
}

// replaceJournal replaces the damaged journal with a sound one. The caller holds
// write.lock and open.lock exclusively. Before the rename nothing but evidence/ gets new
// content, and all steps can be repeated.
func (jr *journalRepair) replaceJournal(l *locked, done *hansard.JournalRepaired) (*wreckage, error) {
	old, err := jr.readAll(journal.Name)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	// Named after its content: an interrupted and repeated repair keeps one copy.
	kept := fmt.Sprintf("%s.%x", journal.Name, sha256.Sum256(old))[:len(journal.Name)+17]
	if err := jr.keep(evidenceDir, kept, old); err != nil {
		return nil, jr.writeError("keep the old journal", err)
	}
	done.Kept = evidenceDir + "/" + kept
	f, err := jr.fs.Open(journal.Name, vfs.ReadOnly)
	if err != nil {
		return nil, err
	}
	slots, valid, best, err := journal.ReadSlots(f)
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	for i := range slots {
		if valid[i] && slots[i].Incompat != 0 {
			return nil, fmt.Errorf("journal: %w", hansard.ErrVersion)
		}
	}
	v := journal.ReadSalvage(old, slots, valid, best, jr.cfg.ringSize, sessionlog.IsName)
	// Above every epoch ever used: a control record of the same epoch would be trusted.
	if w, ok := peers.LookAtControl(jr.fs); ok {
		v.Epoch = max(v.Epoch, w.Epoch)
	}
	l.dropCaches()
	if err := jr.syncAllLogs(l); err != nil {
		return nil, jr.writeError("sync the logs", err)
	}
	w := &wreckage{}
	var entries []*journal.Entry
	for i := range v.Found {
		f := &v.Found[i]
		sure := true
		if !f.Whole {
			f.Name, sure = jr.nameOf(v, f)
		}
		there, err := jr.hasFragment(l, f)
		if err != nil {
			return nil, err
		}
		// Whole entries go in even if their log has them: apply finds them equal.
		// Fragments go in only if their log does not have them, and at an offset that
		// fits no log: a fragment may be half a batch.
		if !f.Whole {
			if there {
				continue
			}
			if !sure {
				v.Unreadable += f.Length()
			}
			if f.Name == "" {
				continue
			}
			f.Offset = journal.LostAt
		}
		entries = append(entries, f.Entry)
		w.found = append(w.found, rescued{Entry: f.Entry, before: there})
	}
	done.UnreadableBytes = int64(v.Unreadable)
	sl := v.NewSlot(entries, jr.cfg.random())
	if err := jr.installRing(sl, journal.Content(entries, sl)); err != nil {
		return nil, jr.writeError("make a new journal", err)
	}
	return w, nil
}

// hasFragment tells whether a log has what an entry was to write to it, under write.lock.
//
//	whole              its bytes are at its offset
//	header valid       the log has this uid, and the line that ends where the entry would
//	                   have has the crc that the header names; the chain proves the rest
//	text only          its lines are somewhere at the end of the log
//
// A missing log does not have it. A read error is an error: setting aside what the log
// has would report damage where there is none.
func (jr *journalRepair) hasFragment(l *locked, f *journal.Fragment) (bool, error) {
	if f.Whole {
		return l.logs.inLog(f.Entry), nil
	}
	if f.Name == "" {
		return false, nil
	}
	sess := l.logs.cached(f.Name)
	size, err := l.logs.openLog(sess, false)
	if errors.Is(err, fs.ErrNotExist) || err != nil && isForeign(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if f.Header {
		end := f.Offset + f.LineBytes
		uid, err := sessionlog.ReadUID(sess.f)
		if err != nil || uid != f.UID || end > size {
			return false, err
		}
		crc, err := sessionlog.CRCBefore(sess.f, end)
		return err == nil && crc == f.LineCRC, err
	}
	// Where its lines went is not known. The ring holds what was written last, and for
	// one log no more than a ring's length.
	tail := make([]byte, min(size, journal.DefaultSize))
	if _, err := sess.f.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return false, err
	}
	return bytes.Contains(tail, f.Lines), nil
}

// nameOf is the name of the log that a fragment belongs to, empty if it can't be
// determined. The name in the fragment may be damaged, and with one byte changed may be
// the name of another session. It is sure only if something else agrees: the id in a
// header line, the uid of the log, or the checksum over name and lines. If it is not sure
// the lines are set aside under that name and counted as unreadable as well.
func (jr *journalRepair) nameOf(v *journal.Salvage, f *journal.Fragment) (name string, sure bool) {
	if first, _, ok := bytes.Cut(f.Lines, []byte("\n")); ok {
		if l, err := sessionlog.Decode(first); err == nil && l.Version > 0 && hansard.CheckID(hansard.SessionID(l.ID)) == nil {
			return sessionlog.EncodeName(hansard.SessionID(l.ID)), true
		}
	}
	if f.Header {
		if name := jr.nameByUID(v, f.UID); name != "" {
			return name, true
		}
	}
	if _, ok := sessionlog.DecodeName(f.Name); !ok {
		return "", false
	}
	return f.Name, f.Sure
}

// nameByUID is the name of the log with this uid: from a whole entry of the journal, or
// else by reading the header of every log. Empty if there is none.
func (jr *journalRepair) nameByUID(v *journal.Salvage, uid uint64) string {
	for i := range v.Found {
		if o := &v.Found[i]; o.Whole && o.UID == uid {
			return o.Name
		}
	}
	names, _ := jr.logNames() // an error counts as not found
	for _, name := range names {
		if l, err := jr.fs.Open(sessionlog.Path(name), vfs.ReadOnly); err == nil {
			its, err := sessionlog.ReadUID(l)
			_ = l.Close()
			if err == nil && its == uid {
				return name
			}
		}
	}
	return ""
}

// logNames are the names of all logs, sorted, so that the simulation can replay a run.
func (p *process) logNames() (names []string, err error) {
	entries, err := p.fs.ReadDir(sessionlog.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name, sessionlog.Suffix)
		if _, valid := sessionlog.DecodeName(name); ok && valid {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names, nil
}

// syncAllLogs makes every log durable, and sessions/. A lost entry may have been applied,
// and its lines may be in a log that no checkpoint has synced: after the repair the ring
// does not have them any more, and nothing says which log it was. A log whose sync fails,
// or that a dead process had marked, is replaced by a copy, as in a checkpoint; the ring
// has nothing to correct the copy with. One that can't be read stays a suspect, as in
// recovery, and stops nobody (TestRepairJournalBesideABadLog). Under write.lock; no other
// process is there to wait for it.
func (jr *journalRepair) syncAllLogs(l *locked) error {
	if err := register(l); err != nil { // suspects leave marks in it
		return err
	}
	marked, _, err := peers.Marks(jr.fs, l.inst, true)
	if err != nil {
		return err
	}
	names, err := jr.logNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		sess := l.logs.cached(name)
		_, opened := l.logs.openLog(sess, false)
		if errors.Is(opened, fs.ErrNotExist) || opened != nil && isForeign(opened) {
			continue // removed, or replaced by something that is not a log
		}
		// As in settleLog: our death, or another attempt of ours, must not hide a failed
		// sync (TestRepairJournalTriedAgain).
		mark := peers.MarkOf(name)
		slot, suspect, err := l.suspects.slotFor(name)
		if err == nil {
			err = l.inst.Mark(slot, mark)
		}
		switch {
		case err != nil:
		case opened != nil || suspect || marked[mark] || sess.f.Datasync() != nil:
			err = copyMarked(l, sess, nil, opened)
		default:
			err = l.inst.Mark(slot, 0)
		}
		if err != nil {
			return err
		}
	}
	return jr.fs.SyncDir(sessionlog.Dir)
}

// tellSessions adds to the report what became of the sessions that the journal had
// entries for: those that got events back, and those with lines set aside, with the seqs
// that can't be read any more. Sessions that had everything are left out. It takes no
// lock; the repair is done.
func (jr *journalRepair) tellSessions(ctx context.Context, done *hansard.JournalRepaired, w *wreckage) error {
	byName := map[string][]rescued{}
	var names []string
	for _, e := range w.found {
		if byName[e.Name] == nil {
			names = append(names, e.Name)
		}
		byName[e.Name] = append(byName[e.Name], e)
	}
	sort.Strings(names)
	for _, name := range names {
		id, _ := sessionlog.DecodeName(name)
		told := hansard.SalvagedSession{Session: id}
		// last is the highest seq the session is known to have had, readable the seqs
		// that are in aside/: the others past the log's end are lost.
		last, readable, aside := hansard.Seq(0), map[hansard.Seq]bool{}, false
		for _, e := range byName[name] {
			seqs := seqsIn(e.Lines)
			last = max(last, hansard.Seq(e.LastSeq))
			switch {
			case e.now && !e.before:
				told.Restored += len(seqs)
			case !e.now:
				aside = true
				for _, seq := range seqs {
					readable[seq] = true
					last = max(last, seq)
				}
			}
		}
		if told.Restored == 0 && !aside {
			continue
		}
		// A session with lines in aside/ is damaged, or has no log at all.
		info, err := jr.reader.describe(ctx, id)
		if err != nil && !errors.Is(err, hansard.ErrDamaged) && !errors.Is(err, hansard.ErrNotFound) && !errors.Is(err, hansard.ErrDeleted) {
			return err
		}
		told.Events = info.LastSeq
		if aside {
			files, err := jr.checkpoints.asides.asides(name)
			if err != nil {
				return err
			}
			for _, a := range files {
				told.Aside = append(told.Aside, asideDir+"/"+a)
			}
			for seq := told.Events + 1; seq <= last; seq++ {
				if !readable[seq] {
					told.MissingLast = seq
					if told.MissingFirst == 0 {
						told.MissingFirst = seq
					}
				}
			}
		}
		done.Sessions = append(done.Sessions, told)
	}
	return nil
}

// seqsIn are the seqs of the whole lines; a fragment may have others.
func seqsIn(b []byte) (seqs []hansard.Seq) {
	for line := range bytes.Lines(b) {
		if l, err := sessionlog.Decode(bytes.TrimSuffix(line, []byte("\n"))); err == nil && l.Seq > 0 {
			seqs = append(seqs, l.Seq)
		}
	}
	return seqs
}
