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
	"hansard/internal/vfs"
)

// RepairJournal makes a sound journal out of a damaged one, so that the store can
// be written to again. Nobody else may have the store open.
//
// The old file is kept in evidence/. What is still whole in it goes into a new
// journal, and with it what is left of entries that are not, as lines that fit no
// log. The new journal is put in place by one rename; from there on everything is
// the recovery that follows any crash: it compares each entry with its log, writes
// what is missing, and sets aside what does not fit. So a crash before the rename
// leaves the damaged journal to be repaired again, and one after it a journal like
// any other.
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
	if s.othersLive() {
		return done, &errInUse{}
	}
	w, err := s.repairJournalLocked(&done)
	if err != nil || w == nil {
		return done, err
	}
	return done, s.tellSessions(ctx, &done, w)
}

// errInUse refuses to repair the journal under those who use it.
type errInUse struct{}

func (e *errInUse) Error() string {
	return "store is busy: the journal can't be repaired while another process has the store open"
}
func (e *errInUse) Is(target error) bool { return target == hansard.ErrBusy }
func (e *errInUse) Hint() string {
	return "end every program that uses the store, then repair the journal; reading goes on meanwhile"
}

// wreckage is what a repair of the journal worked on, to be told about.
type wreckage struct{ found []rescued }

// rescued is an entry that went into the new journal.
type rescued struct {
	*entry
	before, now bool // it is in its log
}

func (s *Store) repairJournalLocked(done *hansard.JournalRepaired) (w *wreckage, err error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.takeWriteLock(); err != nil {
		return nil, err
	}
	defer func() { _ = s.files.write.Unlock() }()
	attached := s.attached
	_ = s.files.open.Unlock() // a failed upgrade would lose it as well
	alone, err := s.files.open.TryLock(vfs.LockExclusive)
	if err != nil || !alone {
		if attached {
			_, _ = s.files.open.TryLock(vfs.LockShared) // whoever has it exclusively has write.lock too
		}
		return nil, errors.Join(err, &errInUse{})
	}
	reason := s.journalDamage()
	var damaged *errJournalDamaged
	if errors.As(reason, &damaged) {
		done.Reason = damaged.reason
		w, err = s.replaceJournal(done)
	} else if reason != nil && !errors.Is(reason, fs.ErrNotExist) {
		err = reason // a newer version, or it can't be read just now
	}
	_ = s.files.open.Unlock()
	if err != nil || damaged == nil {
		if attached {
			_, _ = s.files.open.TryLock(vfs.LockShared)
		}
		return nil, err
	}
	// From here on it is a store like any other after a crash.
	done.Changed, s.attached = true, false
	if err := s.attach(); err != nil {
		return nil, fmt.Errorf("the journal is repaired; what it holds is yet to be written to the logs: %w", err)
	}
	for i := range w.found {
		f := &w.found[i]
		f.now = s.inLog(f.entry)
	}
	return w, nil
}

// journalDamage is why the journal can't be used, as the first to open the store
// finds it.
func (s *Store) journalDamage() error {
	r, slots, best, err := s.openRing(vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer r.f.Close()
	if leftClean(slots, best) {
		return nil
	}
	sl := slots[best]
	_, end, _, err := r.scan(sl.start, sl.startChain, 0)
	if err != nil {
		return err
	}
	return r.lostBehind(end, sl.start)
}

// replaceJournal puts a sound journal in place of the damaged one. Everything
// before the rename can be done again.
func (s *Store) replaceJournal(done *hansard.JournalRepaired) (*wreckage, error) {
	old, err := s.readAll(journalName)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	kept := fmt.Sprintf("%s.%x", journalName, sha256.Sum256(old))[:len(journalName)+17]
	if err := s.keep(evidenceDir, kept, old); err != nil {
		return nil, s.writeError("keep the old journal", err)
	}
	done.Kept = evidenceDir + "/" + kept
	f, err := s.fs.Open(journalName, vfs.ReadOnly)
	if err != nil {
		return nil, err
	}
	slots, valid, best, err := readSlots(f)
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	for i := range slots {
		if valid[i] && slots[i].incompat != 0 {
			return nil, fmt.Errorf("journal: %w", hansard.ErrVersion)
		}
	}
	v := salvageFrom(old, slots, valid, best, s.cfg.ringSize)
	if ctl, err := s.fs.Open(controlName, vfs.ReadOnly); err == nil {
		if w, _, ok := (&control{f: ctl}).read(); ok {
			v.epoch = max(v.epoch, w.epoch)
		}
		_ = ctl.Close()
	}
	s.dropCaches()
	if err := s.syncAllLogs(); err != nil {
		return nil, s.writeError("sync the logs", err)
	}
	w := &wreckage{}
	var entries []*entry
	for i := range v.found {
		f := &v.found[i]
		sure := true
		if !f.whole {
			f.name, sure = s.nameOf(v, f)
		}
		there, err := s.hasFragment(f)
		if err != nil {
			return nil, err
		}
		if !f.whole {
			if there {
				continue
			}
			if !sure {
				v.unreadable += f.length()
			}
			if f.name == "" {
				continue
			}
			f.off = lostAt
		}
		entries = append(entries, f.entry)
		w.found = append(w.found, rescued{entry: f.entry, before: there})
	}
	done.UnreadableBytes = int64(v.unreadable)
	sl := v.newSlot(entries, s.cfg.random())
	if err := s.installRing(sl, content(entries, sl)); err != nil {
		return nil, s.writeError("make a new journal", err)
	}
	return w, nil
}

// hasFragment tells whether a log has what an entry was to write to it. Of one
// that is not whole the end is known, or some of its lines.
func (s *Store) hasFragment(f *fragment) (bool, error) {
	if f.whole {
		return s.inLog(f.entry), nil
	}
	if f.name == "" {
		return false, nil
	}
	sess := s.cached(f.name)
	size, err := s.openLog(sess, false)
	if errors.Is(err, fs.ErrNotExist) || err != nil && isForeign(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if f.header {
		end := f.off + f.lines
		uid, err := readUID(sess.f)
		if err != nil || uid != f.uid || end > size {
			return false, err
		}
		crc, err := crcBefore(sess.f, end)
		return err == nil && crc == f.lcrc, err
	}
	// Where its lines went is not known; it was not long ago.
	tail := make([]byte, min(size, defaultRing))
	if _, err := sess.f.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return false, err
	}
	return bytes.Contains(tail, f.bytes), nil
}

// nameOf is the name of the log that a fragment belongs to. The one it says may be
// damaged itself, and be another session's now: it is sure only where its uid, its
// checksum or its first line agree.
func (s *Store) nameOf(v *salvage, f *fragment) (name string, sure bool) {
	if first, _, ok := bytes.Cut(f.bytes, []byte("\n")); ok {
		if l, err := decodeLine(first); err == nil && l.Version > 0 && hansard.CheckID(hansard.SessionID(l.ID)) == nil {
			return encodeName(hansard.SessionID(l.ID)), true
		}
	}
	if f.header {
		if name := s.nameByUID(v, f.uid); name != "" {
			return name, true
		}
	}
	if _, ok := decodeName(f.name); !ok {
		return "", false
	}
	return f.name, f.sure
}

// nameByUID is the name of the log with this uid, as the journal or the log says.
func (s *Store) nameByUID(v *salvage, uid uint64) string {
	for i := range v.found {
		if o := &v.found[i]; o.whole && o.uid == uid {
			return o.name
		}
	}
	for _, name := range s.logNames() {
		if l, err := s.fs.Open(logPath(name), vfs.ReadOnly); err == nil {
			its, err := readUID(l)
			_ = l.Close()
			if err == nil && its == uid {
				return name
			}
		}
	}
	return ""
}

// logNames are the names of all logs.
func (s *Store) logNames() (names []string) {
	entries, _ := s.fs.ReadDir(sessionsDir)
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name, logSuffix)
		if _, valid := decodeName(name); ok && valid {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// syncAllLogs makes every log durable: what a lost entry put into one may not be,
// and nothing tells which one it was.
func (s *Store) syncAllLogs() error {
	suspects, err := s.deadMarks()
	if err != nil {
		return err
	}
	for _, name := range s.logNames() {
		sess := s.cached(name)
		if _, err := s.openLog(sess, false); err != nil {
			if errors.Is(err, fs.ErrNotExist) || isForeign(err) {
				continue // somebody else's doing
			}
			return err
		}
		if suspects[markOf(name)] || sess.f.Datasync() != nil {
			if err := s.replaceByCopy(sess, nil); err != nil {
				return err
			}
		}
	}
	return s.fs.SyncDir(sessionsDir)
}

// tellSessions says what became of the sessions that the journal had something of:
// those that got events back, and those of which something was set aside.
func (s *Store) tellSessions(ctx context.Context, done *hansard.JournalRepaired, w *wreckage) error {
	byName := map[string][]rescued{}
	var names []string
	for _, e := range w.found {
		if byName[e.name] == nil {
			names = append(names, e.name)
		}
		byName[e.name] = append(byName[e.name], e)
	}
	sort.Strings(names)
	for _, name := range names {
		id, _ := decodeName(name)
		told := hansard.SalvagedSession{Session: id}
		last, readable, aside := hansard.Seq(0), map[hansard.Seq]bool{}, false
		for _, e := range byName[name] {
			seqs := seqsIn(e.bytes)
			last = max(last, hansard.Seq(e.last))
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
		info, err := s.Stat(ctx, id)
		if err != nil && !errors.Is(err, hansard.ErrDamaged) && !errors.Is(err, hansard.ErrNotFound) && !errors.Is(err, hansard.ErrDeleted) {
			return err
		}
		told.Events = info.LastSeq
		if aside {
			for _, a := range s.asides(name) {
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

// seqsIn are the seqs of the lines that can be read.
func seqsIn(b []byte) (seqs []hansard.Seq) {
	for line := range bytes.Lines(b) {
		if l, err := decodeLine(bytes.TrimSuffix(line, []byte("\n"))); err == nil && l.Seq > 0 {
			seqs = append(seqs, l.Seq)
		}
	}
	return seqs
}
