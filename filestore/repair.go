package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Replacing a log that can't be appended to: a repair, and the deletion of a damaged
// session (delete.go). sessionlog decides the content of the new log (runs.go,
// assemble.go, rebuild.go); this file installs it:
//
//	under write.lock   begin      the ring has no entry on its way to the log; open it
//	no lock            sound?     then there is nothing to do
//	                   write      the new log, under a temporary name; sync it
//	                   keepOld    the old log and aside/ to evidence/, durably; not for a delete
//	under write.lock   install    unchanged? rename, sync sessions/, drop aside/
//
// Reading and writing a log of gigabytes takes minutes, so it is done without the lock.
// Writers refuse a damaged session in the meantime; if the log or aside/ changed all the
// same, install notices and everything is done again (failure 31).
//
// Invariants:
//   - The old bytes are durable in evidence/ before anything replaces them: a repair never
//     deletes anything (failures 30 and 33), only Delete does.
//   - The name leads to the old log or to the new one, both whole, after a crash at any
//     step (TestSimRepairInterrupted). Leftovers are a temporary file, which the next
//     first open sweeps, and a copy in evidence/.
//   - A log is replaced only if no entry from the ring's start on names it (W6): the
//     entry would be applied to the new log, at an offset of the old one.

// Repair replaces a damaged session by a sound one: every line that is whole, at its seq,
// from the log and from aside/; events of kind lost where lines are missing. The old
// bytes stay in evidence/, in the file that Repaired.Kept names. A sound session is left
// as it is. ErrNotFound: there is neither a log nor anything set aside.
func (s *Store) Repair(ctx context.Context, id hansard.SessionID) (hansard.Repaired, error) {
	if err := s.usable(ctx, id); err != nil {
		return hansard.Repaired{}, err
	}
	return s.rebuild(ctx, id, asRepaired, (*rebuild).repaired)
}

// Why a rebuild has to start over. Callers see them only after ten tries.
var (
	errInJournal = errors.New("the journal still has entries for this session")
	errChanged   = errors.New("the log changes as it is repaired")
)

// The purpose of a rebuild. A repair keeps the old bytes, under a name that contains
// this; a delete does not.
const (
	asRepaired = "repaired"
	asDeleted  = "deleted"
)

// rebuild replaces a log by another one that write produces; a repair keeps the old one
// in evidence/. It takes write.lock itself. After an error the name leads to the old log,
// or, if only a step after the rename failed, to the new one.
func (s *Store) rebuild(ctx context.Context, id hansard.SessionID, as string, write func(*rebuild, vfs.File) error) (done hansard.Repaired, err error) {
	for try := 0; ; try++ {
		r := &rebuild{s: s, id: id, name: sessionlog.EncodeName(id), as: as}
		r.done.Session = id
		err := r.replace(write)
		r.close()
		if try == 10 || !errors.Is(err, errInJournal) && !errors.Is(err, errChanged) {
			return r.done, err
		}
		if err := ctx.Err(); err != nil {
			return done, err
		}
		// A checkpoint moves the ring's start past the session's entries. Urgent: it must
		// not be left to another process, which may be stopped.
		if errors.Is(err, errInJournal) {
			if err := s.checkpoints.freeRing(true); err != nil {
				return done, err
			}
		}
	}
}

// rebuild is one attempt to replace a log. inode, size and asides are the state at its
// beginning; install compares them.
type rebuild struct {
	s      *Store
	id     hansard.SessionID
	name   string
	as     string   // the purpose, for the name in evidence/
	old    vfs.File // nil: it is missing, or not a regular file
	thing  bool     // something that is not a regular file has its name
	inode  uint64
	size   int64
	asides []string         // file names in aside/, in the order they were written
	done   hansard.Repaired // the report
	copies []string         // files in evidence/ that this attempt made
	placed bool             // the new log has the name of the old one, or may have it
}

// close closes the old log.
func (r *rebuild) close() {
	if r.old != nil {
		_ = r.old.Close() // it was only read
	}
}

// replace is one attempt: see the steps above. Nil with done.Changed false: the log is
// sound. errInJournal and errChanged ask for another attempt.
func (r *rebuild) replace(write func(*rebuild, vfs.File) error) (err error) {
	if err := r.locked(r.begin); err != nil {
		return err
	}
	if sound, err := r.sound(); sound || err != nil {
		return err
	}
	// In the store's directory, where sweep finds a leftover, not in sessions/; and
	// random, so that two repairs never use the same file (failure 29).
	tmp := fmt.Sprintf("log.%016x.tmp", r.s.cfg.random())
	f, err := r.s.fs.Open(tmp, vfs.Create|vfs.Exclusive)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = r.s.fs.Remove(tmp)
		}
	}()
	if err := write(r, f); err != nil {
		return err
	}
	if deleted, err := sessionlog.Deleted(f); err != nil {
		return err
	} else if deleted {
		// The next checkpoint erases its content, and what earlier repairs kept of it.
		r.s.noteErasing([]string{r.name})
	}
	// Before the rename: otherwise a power cut could keep the name and lose the content,
	// leaving an empty log (failure 23).
	if err := f.Datasync(); err != nil {
		return err
	}
	if r.as != asDeleted {
		// Without the new log the copies are of no use, and may be parts: repeated on a full
		// disk, they would take what is left of it (TestRepairLeavesNoPart).
		defer func() {
			if err != nil && !r.placed {
				r.dropKept()
			}
		}()
		if r.done.Kept, err = r.keepOld(); err != nil {
			return fmt.Errorf("keep the old bytes: %w", err)
		}
	}
	return r.locked(func(l *locked) error { return r.install(l, tmp) })
}

// locked runs fn under write.lock, caught up, if the ring has no entry for the log from
// its start on. Otherwise errInJournal: the caller makes a checkpoint and tries again.
// Lines of those entries that the log has lost go to aside/ first, where the repair finds
// them: the ring is about to forget them (TestRepairFromJournal).
func (r *rebuild) locked(fn func(*locked) error) error {
	l, err := r.s.lock.lockCaughtUp()
	if err != nil {
		return err
	}
	defer l.unlock()
	if l.logs.dirty.get(r.name).end > l.w.Start {
		return errors.Join(errInJournal, l.keepLost(r.name))
	}
	return fn(l)
}

// begin records the state of the session and opens the old log, under write.lock, so that
// log and aside/ are consistent.
func (r *rebuild) begin(*locked) (err error) {
	if r.asides, err = r.s.asides.asides(r.name); err != nil {
		return err
	}
	r.old, err = r.s.fs.Open(sessionlog.Path(r.name), vfs.ReadOnly)
	switch {
	case errors.Is(err, vfs.ErrNotRegular):
		r.old, r.thing = nil, true
		return nil
	case errors.Is(err, fs.ErrNotExist) && len(r.asides) > 0:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("session %s: %w", r.id, hansard.ErrNotFound)
	case err != nil:
		return err
	}
	if r.inode, err = r.old.Inode(); err != nil {
		return err
	}
	r.size, err = r.old.Size()
	return err
}

// sound tells whether there is nothing to repair: nothing was set aside, and every line
// is whole. A log that is not damaged must not be rewritten: repairing twice equals once,
// and "repairing" a healthy session does not change it (failure 33).
func (r *rebuild) sound() (bool, error) {
	if r.old == nil || r.size == 0 || len(r.asides) > 0 {
		return false, nil
	}
	var damaged *hansard.DamagedError
	h, err := sessionlog.ReadHeader(r.old, r.id)
	if err == io.EOF && h != nil {
		err = r.s.forkUnfinished(r.old, r.name, r.id, h)
	}
	if errors.As(err, &damaged) {
		return false, nil
	} else if err != nil && err != io.EOF {
		return false, err
	}
	c, d, err := sessionlog.CheckUpTo(r.old, r.id, new(sessionlog.Decoder).Decode, r.size)
	if err != nil || d != nil {
		return false, err
	}
	r.done.Events = c.Safe
	return true, nil
}

// repaired writes the new log of a repair to f and fills in the report. It ends a turn
// that is held according to the new log: the lost lines may have given it to another
// holder (T6).
func (r *rebuild) repaired(f vfs.File) error {
	sources, err := r.sources()
	if err != nil {
		return err
	}
	defer func() {
		for _, src := range sources {
			if !src.Log {
				_ = src.F.Close() // it was only read
			}
		}
	}()
	a := sessionlog.Assemble(sources)
	// The lines of the session are chosen; the header comes first in the file.
	kept, err := r.header(a)
	if err != nil {
		return err
	}
	w, err := a.WriteTo(f)
	if err != nil {
		return err
	}
	if err := w.EndTurn(r.s.cfg.now()); err != nil {
		return err
	}
	_, r.done.Lost = a.Count()
	r.done.Events = w.Seq
	r.done.DroppedBytes = max(0, r.size-w.Kept-kept)
	return nil
}

// sources are the files that the session's lines are taken from: its log first, because
// if two contradict each other the first wins, then aside/ in the order it was written.
// The caller closes all but the log. After an error nothing is left open.
func (r *rebuild) sources() (sources []*sessionlog.Source, err error) {
	defer func() {
		if err != nil {
			for _, src := range sources {
				if !src.Log {
					_ = src.F.Close()
				}
			}
		}
	}()
	if r.old != nil {
		log := &sessionlog.Source{F: r.old, Log: true}
		if err := log.Read(r.id); err != nil {
			return nil, err
		}
		sources = append(sources, log)
	}
	for _, name := range r.asides {
		f, err := r.s.fs.Open(asideDir+"/"+name, vfs.ReadOnly)
		if err != nil {
			return sources, err
		}
		src := &sessionlog.Source{F: f}
		sources = append(sources, src)
		if err := src.Read(r.id); err != nil {
			return sources, err
		}
	}
	return sources, nil
}

// header makes sure that the new log has a header, and returns how many bytes of the old
// log it is. In order of preference: the old one; the old one with one wrong byte
// corrected, proven by the first line's prev; a new one, with another uid, so that
// entries and caches of the old log are not taken for it (W4).
func (r *rebuild) header(a *sessionlog.Assembly) (kept int64, err error) {
	if h := a.Head; h != nil {
		// A header that counts lines of its batch which are all lost would leave a log
		// without any whole batch: the session would not exist.
		if h.Left > 0 && len(a.Pieces) == 0 {
			meta := hansard.Meta{}
			if h.Snap != nil {
				meta = *h.Snap
			}
			return 0, a.NewHeader(r.id, h.LogUID, h.Created, meta)
		}
		if a.Used > 0 {
			kept = int64(len(a.Raw))
		}
		if h.Own > 0 || h.Parent != nil {
			return kept, a.ForkHeader()
		}
		return kept, nil
	}
	if len(a.Pieces) == 0 { // no lines are left: an empty session under the same id
		return 0, a.NewHeader(r.id, r.s.cfg.random(), r.s.cfg.now(), hansard.Meta{})
	}
	p := a.Pieces[0]
	// Trying 255 values for every byte of a long header would take too long.
	if p.Src.Log && p.First.Seq == 1 && p.At <= sessionlog.MaxSearched {
		region := make([]byte, p.At)
		if _, err := r.old.ReadAt(region, 0); err != nil {
			return 0, err
		}
		if raw := sessionlog.RestoreHeader(region, r.id, p.First); raw != nil {
			if err := a.UseHeader(raw); err != nil || a.Head.Own == 0 {
				return int64(len(raw)), err
			}
			return int64(len(raw)), a.ForkHeader()
		}
	}
	return 0, a.NewHeader(r.id, r.s.cfg.random(), p.First.Time, hansard.Meta{})
}

// dropKept removes what keepOld made.
func (r *rebuild) dropKept() {
	for _, file := range r.copies {
		_ = r.s.fs.Remove(file)
		if r.done.Kept == file {
			r.done.Kept = ""
		}
	}
}

// keepOld copies the log that is about to be replaced, and the files of aside/, to
// evidence/, and returns the name to report. When it returns nil the copies and their
// names are durable. Copies, not renames: until install the session's name must lead to
// its log.
//
//	evidence/<name>.repaired.<16 hex>            the old log
//	evidence/<name>.<pos>.aside.<16 hex>         a file of aside/
func (r *rebuild) keepOld() (kept string, err error) {
	mark := fmt.Sprintf("%016x", r.s.cfg.random())
	if err := r.s.fs.Mkdir(evidenceDir); err != nil {
		return "", err
	}
	if r.size > 0 {
		kept = evidenceDir + "/" + r.name + "." + r.as + "." + mark
		f, err := r.s.fs.Open(kept, vfs.Create|vfs.Exclusive)
		if err != nil {
			return "", err
		}
		r.copies = append(r.copies, kept)
		err = copyBytes(f, r.old, r.size)
		if err == nil {
			err = f.Datasync()
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	for _, a := range r.asides {
		b, err := r.s.readAll(asideDir + "/" + a)
		if err != nil {
			return "", err
		}
		r.copies = append(r.copies, evidenceDir+"/"+a+".aside."+mark)
		if err := r.s.keep(evidenceDir, a+".aside."+mark, b); err != nil {
			return "", err
		}
		if kept == "" {
			kept = evidenceDir + "/" + a + ".aside." + mark
		}
	}
	return kept, errors.Join(r.s.fs.SyncDir(evidenceDir), r.s.fs.SyncDir("."))
}

// install replaces the old log with the new one, under write.lock, if the old one is
// still the file that was read; else errChanged. aside/ is emptied last: if we die in
// between, the session still counts as damaged, until its lines are found in the new log
// (J9) or it is repaired again.
func (r *rebuild) install(l *locked, tmp string) error {
	if err := r.unchanged(); err != nil {
		return err
	}
	// A directory or a link can't be copied like a log, and nothing can be renamed over a
	// directory: it is moved to evidence/ as it is.
	if r.thing {
		if err := l.fs.Mkdir(evidenceDir); err != nil {
			return err
		}
		r.done.Kept = fmt.Sprintf("%s/%s.%s.%016x", evidenceDir, r.name, r.as, l.cfg.random())
		if err := l.fs.Rename(sessionlog.Path(r.name), r.done.Kept); err != nil {
			return err
		}
		if err := l.fs.SyncDir(evidenceDir); err != nil {
			return err
		}
	}
	r.placed = true
	if err := replaceDurably(l, func() error { return l.fs.Rename(tmp, sessionlog.Path(r.name)) }); err != nil {
		return err
	}
	r.done.Changed = true
	if err := l.asides.dropAsides(r.asides); err != nil {
		return err
	}
	// What this process knows is about the old file. Other processes notice the new
	// inode.
	cache.ForgetNote(l.fs, r.name)
	forgetReplaced(l, r.name)
	return nil
}

// unchanged is errChanged if what is about to be replaced is not what was read, under
// write.lock. Inode and size are enough: writers only append, and a replaced log has
// another inode. It opens the file instead of trusting the old descriptor: what matters
// is what the name leads to now.
func (r *rebuild) unchanged() error {
	now, err := r.s.asides.asides(r.name)
	if err != nil {
		return err
	}
	if !slices.Equal(now, r.asides) {
		return errChanged
	}
	f, err := r.s.fs.Open(sessionlog.Path(r.name), vfs.ReadOnly)
	if err != nil {
		if r.thing && errors.Is(err, vfs.ErrNotRegular) || !r.thing && r.old == nil && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(errChanged, err)
	}
	defer f.Close()
	inode, err := f.Inode()
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil && (r.old == nil || inode != r.inode || size != r.size) {
		err = errChanged
	}
	return err
}

// readAll reads a whole file into memory: for files of aside/, stubs and the journal,
// never for a log, which may be larger than memory.
func (p *process) readAll(name string) ([]byte, error) {
	f, err := p.fs.Open(name, vfs.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, err
	}
	return b, nil
}
