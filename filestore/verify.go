package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"sort"
	"strings"

	"hansard"
	"hansard/internal/vfs"
)

// Verify examines one session, or all and the journal. It takes no lock.
func (s *Store) Verify(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Finding, error] {
	return func(yield func(hansard.Finding, error) bool) {
		if s.closed.Load() {
			yield(hansard.Finding{}, hansard.ErrClosed)
			return
		}
		v := verifier{s: s, yield: func(f hansard.Finding) bool { return yield(f, nil) }}
		var err error
		if id != "" {
			err = v.session(id, true)
		} else {
			err = v.all(ctx)
		}
		if err != nil && err != errStop {
			yield(hansard.Finding{}, err)
		}
	}
}

type verifier struct {
	s       *Store
	yield   func(hansard.Finding) bool
	journal map[string][]*entry // what the ring says that the logs have
}

func (v *verifier) say(f hansard.Finding) error {
	if !v.yield(f) {
		return errStop
	}
	return nil
}

// all examines everything in the store's directory.
func (v *verifier) all(ctx context.Context) error {
	if err := v.examineJournal(); err != nil {
		return err
	}
	entries, err := v.s.fs.ReadDir(sessionsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	seen := map[string]bool{}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		name, ok := strings.CutSuffix(e.Name, logSuffix)
		id, valid := decodeName(name)
		if !ok || !valid {
			f := hansard.Finding{Level: hansard.LevelNote, File: sessionsDir + "/" + e.Name,
				Message: "not a session: no session has this file name; it is left alone"}
			if err := v.say(f); err != nil {
				return err
			}
			continue
		}
		seen[name] = true
		if err := v.session(id, false); err != nil {
			return err
		}
	}
	// Sessions of which there is only what was set aside.
	asides, _ := v.s.fs.ReadDir(asideDir)
	for _, e := range asides {
		name := e.Name[:max(0, strings.LastIndexByte(e.Name, '.'))]
		if id, ok := decodeName(name); ok && !seen[name] {
			seen[name] = true
			if err := v.session(id, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// session examines one log, line by line.
func (v *verifier) session(id hansard.SessionID, named bool) error {
	if err := hansard.CheckID(id); err != nil {
		return err
	}
	name := encodeName(id)
	path := logPath(name)
	finding := hansard.Finding{Session: id, File: path}
	f, err := v.s.fs.Open(path, vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) && len(v.s.asides(name)) == 0 {
		if named {
			return fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
		}
		return nil
	}
	if err != nil {
		finding.Level, finding.Message = hansard.LevelDamage, "the log can't be opened: "+err.Error()
		return v.say(finding)
	}
	defer f.Close()
	size, err := f.Size() // of now: others may write faster than we read
	var d *hansard.DamagedError
	var c chain
	if err == nil {
		d, c, err = v.log(f, id, decodeLine, size)
	}
	if err != nil {
		finding.Level, finding.Message = hansard.LevelDamage, "the log can't be read: "+err.Error()
		return v.say(finding)
	}
	if inode, err := f.Inode(); d != nil && err == nil {
		v.s.foundDamage(name, inode, d)
	}
	if d == nil {
		d = v.behindJournal(f, name, &c)
	}
	if d == nil {
		// Its bytes are sound: this is for the report, and no reason to refuse
		// writes.
		if d, _, err = v.log(f, id, fenced(), size); err != nil {
			return err
		}
	}
	if d == nil {
		if d = v.s.asideDamage(name, id); d != nil {
			d.SafeSeq = c.safe
		}
	}
	finding.Events = c.safe
	switch {
	case d != nil:
		finding.Level, finding.Message = hansard.LevelDamage, d.Reason
		finding.Offset, finding.Line, finding.Events = d.Offset, d.Line, d.SafeSeq
	case c.deleted:
		finding.Level, finding.Message = hansard.LevelOK, "deleted"
	default:
		finding.Level, finding.Message = hansard.LevelOK, "sound"
	}
	if err := v.say(finding); err != nil {
		return err
	}
	if d != nil || c.deleted {
		return nil
	}
	return v.unfinishedTail(f, &c, finding)
}

// fenced decodes lines and proves that none was written under a grant that was
// not the current one, nor past an exclusive turn.
func fenced() func([]byte) (*line, error) {
	var grants hansard.Grants
	return func(b []byte) (*line, error) {
		l, err := decodeLine(b)
		if err != nil || l.Seq == 0 {
			return l, err
		}
		e := l.event()
		return l, grants.Next(&e)
	}
}

// log checks every line of a log, decoded in full, up to the batch that reaches size.
func (v *verifier) log(f vfs.File, id hansard.SessionID, decode func([]byte) (*line, error), size int64) (*hansard.DamagedError, chain, error) {
	_, err := readHeader(f, id)
	var damaged *hansard.DamagedError
	switch {
	case errors.As(err, &damaged):
		return damaged, chain{}, nil
	case errors.Is(err, hansard.ErrVersion):
		return damagedAt(id, 0, "%v", err), chain{}, nil
	case err == errEmptyLog:
		if v.s.emptied(f, id) != io.EOF {
			return damagedAt(id, 0, "the log is empty"), chain{}, nil
		}
	case err != nil && err != io.EOF:
		return nil, chain{}, err
	}
	c, d, err := checkUpTo(f, id, decode, size)
	return d, c, err
}

// unfinishedTail notes an unfinished end, which the next append sets aside.
func (v *verifier) unfinishedTail(f vfs.File, c *chain, finding hansard.Finding) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	end := int64(0)
	if tail, err := readTail(f, size); err == nil {
		end = tail.end
	}
	if end == size {
		return nil
	}
	finding.Level, finding.Offset, finding.Line = hansard.LevelNote, end, c.lines+1
	finding.Message = fmt.Sprintf("the last %d bytes are an unfinished batch: being written, or cut off by a copy; "+
		"the next append sets them aside in %s", size-end, evidenceDir)
	return v.say(finding)
}

// behindJournal compares a log with what the journal says was written to it.
func (v *verifier) behindJournal(f vfs.File, name string, c *chain) *hansard.DamagedError {
	for _, e := range v.journal[name] {
		b := make([]byte, len(e.bytes))
		if _, err := f.ReadAt(b, e.off); err != nil || string(b) != string(e.bytes) {
			d := damagedAt(c.id, e.off, "the log does not have what was written to it up to seq %d", e.last)
			d.SafeSeq = c.safe
			return d
		}
	}
	return nil
}

// examineJournal checks the ring. Others may be writing: a ring that changed
// while we looked is looked at again.
func (v *verifier) examineJournal() error {
	finding := hansard.Finding{Level: hansard.LevelOK, File: journalName}
	for try := 0; ; try++ {
		err := v.readJournal()
		if errors.Is(err, fs.ErrNotExist) {
			finding.Level, finding.Message = hansard.LevelNote, "there is no journal; the next write makes one"
			return v.say(finding)
		}
		if err == nil {
			finding.Message = "sound"
			return v.say(finding)
		}
		if try == 4 {
			finding.Level, finding.Message = hansard.LevelDamage, err.Error()
			if hint := hansard.Hint(err); hint != "" {
				finding.Message += "; " + hint
			}
			return v.say(finding)
		}
	}
}

func (v *verifier) readJournal() error {
	r, slots, best, err := v.s.openRing(vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer r.f.Close()
	sl := slots[best]
	var w wRecord
	live := false
	if f, err := v.s.fs.Open(controlName, vfs.ReadOnly); err == nil {
		w, _, live = (&control{f: f}).read()
		live = live && w.epoch == r.epoch
		_ = f.Close()
	}
	if live {
		sl = slots[durableSlot(slots, best, &w)]
	}
	entries, end, _, err := r.scan(sl.start, sl.startChain, 0)
	if err != nil {
		return err
	}
	if live && end < w.written {
		return &errJournalDamaged{fmt.Sprintf("its entries end at position %d, %d was written", end, w.written)}
	}
	if err := r.lostBehind(end, sl.start); err != nil {
		return err
	}
	v.journal = map[string][]*entry{}
	for _, e := range entries {
		if live && e.end() <= w.applied {
			v.journal[e.name] = append(v.journal[e.name], e)
		}
	}
	return nil
}
