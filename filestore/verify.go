package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"sort"
	"strings"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Verify reads everything and reports what it found. It takes no lock, so it can run
// beside writers at any time, and has to distinguish what is being written from what is
// wrong:
//
//	journal   slots, chain, and whether more was durable than is valid (E4); read again
//	          if another process writes to it in the meantime
//	logs      every line, its data included, up to the size the log had at the beginning
//	          (TestVerifyGrowing); then against aside/ and what was applied to it according
//	          to the journal; then every grant (Grants); of a fork also that its history is
//	          its parent's
//	names     files in sessions/ that are no logs; sessions that only aside/ or the
//	          journal has
//
// One unreadable file is a finding, not the end (failure 45). It repairs nothing: people
// decide about that (repair.go).

// Verify examines one session, or, with an empty id, all sessions and the journal. It
// yields at least one finding per file, sound ones too, and notes. An error ends the call
// and is not about a session: the caller left, the store was closed.
func (s *Store) Verify(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Finding, error] {
	return func(yield func(hansard.Finding, error) bool) {
		if s.closed.Load() {
			yield(hansard.Finding{}, hansard.ErrClosed)
			return
		}
		v := verifier{s: s, yield: func(f hansard.Finding) bool { return yield(f, nil) }}
		var err error
		if id != "" {
			// The journal knows of lines that a log has lost, as readers do. Whether the
			// journal itself is sound is left to a check of the whole store.
			_ = v.readEntries(ctx)
			err = v.session(ctx, id, true)
		} else {
			err = v.all(ctx)
		}
		if err != nil && err != errStop {
			yield(hansard.Finding{}, err)
		}
	}
}

// verifier is one call of Verify.
type verifier struct {
	s     *Store
	yield func(hansard.Finding) bool
	// journal are the entries that were applied according to the ring, by the name of
	// their log. Empty when no process has the store open.
	journal map[string][]*journal.Entry
	// unfinished are the events of the session being examined whose content is yet to be
	// removed, and parent is the session that it is a fork of.
	unfinished []hansard.Seq
	parent     *hansard.Parent
}

// say passes a finding to the caller; errStop: it wants no more.
func (v *verifier) say(f hansard.Finding) error {
	if !v.yield(f) {
		return errStop
	}
	return nil
}

// all examines the journal and every session that left a trace: a log, lines in the
// journal, lines in aside/. The journal goes first, because the logs are compared with
// it: what was applied when it was read must be in a log that is read later.
func (v *verifier) all(ctx context.Context) error {
	if err := v.examineJournal(ctx); err != nil {
		return err
	}
	behind, err := v.s.reader.unapplied() // before the directory: see refreshCatalog
	if err != nil {
		return err
	}
	entries, err := v.s.fs.ReadDir(sessionlog.Dir)
	// Corrupt is not empty: without its logs the store is damaged, and a missing
	// directory must not look like a store without sessions (failure 42).
	if v.s.sessionsGone() {
		f := hansard.Finding{Level: hansard.LevelDamage, File: sessionlog.Dir, Message: errSessionsGone.Error() + "; " + errSessionsGone.Hint()}
		if err := v.say(f); err != nil {
			return err
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return v.s.explain(err)
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	seen := map[string]bool{}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		name, ok := strings.CutSuffix(e.Name, sessionlog.Suffix)
		id, valid := sessionlog.DecodeName(name)
		// N1. Reported, because a log that was renamed by hand is a session that nobody
		// finds; as a note, because it may just be an editor's backup.
		if !ok || !valid {
			f := hansard.Finding{Level: hansard.LevelNote, File: sessionlog.Dir + "/" + e.Name,
				Message: "not a session: no session has this file name; it is left alone"}
			if err := v.say(f); err != nil {
				return err
			}
			continue
		}
		seen[name] = true
		if err := v.session(ctx, id, false); err != nil {
			return err
		}
	}
	// Sessions that get their log when recovery is over.
	for _, name := range behind.onlyInJournal(func(name string) bool { return seen[name] }) {
		if id, ok := sessionlog.DecodeName(name); ok {
			seen[name] = true
			if err := v.session(ctx, id, false); err != nil {
				return err
			}
		}
	}
	// Sessions whose log was removed since the journal's start.
	for name := range v.journal {
		if id, ok := sessionlog.DecodeName(name); ok && !seen[name] {
			seen[name] = true
			if err := v.session(ctx, id, false); err != nil {
				return err
			}
		}
	}
	// Sessions whose log is gone, or could never be written: only aside/ has them.
	asides, _ := v.s.fs.ReadDir(asideDir)
	for _, e := range asides {
		name := e.Name[:max(0, strings.LastIndexByte(e.Name, '.'))]
		if id, ok := sessionlog.DecodeName(name); ok && !seen[name] {
			seen[name] = true
			if err := v.session(ctx, id, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// session examines one session and reports what it found. named: the caller asked for
// this one, so a missing one is ErrNotFound; otherwise it was removed since the directory
// was read, which is no finding. A log that can't be read is a finding of its own level,
// "unread": it may be sound (failure 14).
func (v *verifier) session(ctx context.Context, id hansard.SessionID, named bool) error {
	if err := hansard.CheckID(id); err != nil {
		return err
	}
	name := sessionlog.EncodeName(id)
	path := sessionlog.Path(name)
	finding := hansard.Finding{Session: id, File: path}
	f, behind, err := v.s.reader.openToRead(name)
	aside, asideErr := v.s.asides.asides(name)
	if asideErr != nil {
		return v.s.explain(asideErr)
	}
	if errors.Is(err, fs.ErrNotExist) && behind == nil && len(aside) == 0 && len(v.journal[name]) == 0 {
		if named {
			return fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
		}
		return nil
	}
	// Something else has its name, or there is no log but lines that were set aside or a
	// journal that may have had some: the session is damaged, not missing.
	if errors.Is(err, vfs.ErrNotRegular) || errors.Is(err, fs.ErrNotExist) {
		finding.Level, finding.Message = hansard.LevelDamage, "the log can't be opened: "+err.Error()
		if d, err := v.s.asides.asideDamage(name, id); err == nil && d != nil {
			finding.Message = d.Reason
		}
		return v.say(finding)
	}
	// Out of file descriptors, cancelled, closed: every further log would be reported as
	// unreadable, so this ends the call.
	if v.s.isOver(ctx, err) {
		return err
	}
	if err != nil {
		return v.unread(finding, err)
	}
	defer f.Close()
	c, d, err := v.examine(ctx, bounded(ctx, f), name, id)
	if v.s.isOver(ctx, err) {
		return err
	}
	if err != nil {
		return v.unread(finding, err)
	}
	if d == nil && behind != nil {
		// Its lines are sound, but the journal may have had more: the same damage that
		// Read reports.
		l := openedLog{}
		l.mayLack(id, behind)
		d = l.damage
		d.SafeSeq = c.Safe
	}
	differs, err := v.againstParent(ctx, id, &d, &c)
	if err != nil {
		return err
	}
	finding.Events = c.Safe
	switch {
	case d != nil:
		finding.Level, finding.Message = hansard.LevelDamage, d.Reason
		finding.Offset, finding.Line, finding.Events = d.Offset, d.Line, d.SafeSeq
	case c.Deleted:
		finding.Level, finding.Message = hansard.LevelOK, hansard.FoundDeleted
	default:
		finding.Level, finding.Message = hansard.LevelOK, "sound"
	}
	if err := v.say(finding); err != nil {
		return err
	}
	// After damage, or a tombstone, an unfinished end says nothing new.
	if d != nil || c.Deleted {
		return nil
	}
	if err := v.notes(finding, differs); err != nil {
		return err
	}
	return v.unfinishedTail(bounded(ctx, f), &c, finding)
}

// againstParent compares a sound fork with its parent; if the history differs, d becomes
// that damage. The message says what differs, also if that is not damage.
func (v *verifier) againstParent(ctx context.Context, id hansard.SessionID, d **hansard.DamagedError, c *sessionlog.Chain) (message string, err error) {
	if *d != nil || c.Deleted || v.parent == nil {
		return "", nil
	}
	differs, err := engine.CompareParent(ctx, v.s, id, *v.parent)
	if err == nil && differs.Damage {
		*d = &hansard.DamagedError{Session: id, SafeSeq: c.Safe, Reason: differs.Message}
	}
	return differs.Message, err
}

// notes reports what is worth knowing about a sound session.
func (v *verifier) notes(note hansard.Finding, differs string) error {
	note.Level = hansard.LevelNote
	if differs != "" {
		note.Message = differs
		if err := v.say(note); err != nil {
			return err
		}
	}
	if len(v.unfinished) > 0 {
		note.Message = fmt.Sprintf("the redaction of %d events, the first of them %d, is not finished: their content is still there; prune, or redacting them again, finishes it", len(v.unfinished), v.unfinished[0])
		return v.say(note)
	}
	return nil
}

// unread reports that a file could not be examined, and what helps.
func (v *verifier) unread(f hansard.Finding, err error) error {
	err = v.s.explain(err)
	f.Level, f.Message = hansard.LevelUnread, err.Error()
	if hint := hansard.Hint(err); hint != "" {
		f.Message += "; " + hint
	}
	return v.say(f)
}

// examine finds what is wrong with a log, and how far it is sound. It checks in the order
// of what explains most: damaged lines; lines set aside, with the reason in their file;
// lines that the journal knows were written and are gone; grants. An error means that the
// log could not be read.
func (v *verifier) examine(ctx context.Context, f vfs.File, name string, id hansard.SessionID) (c sessionlog.Chain, d *hansard.DamagedError, err error) {
	v.unfinished, v.parent = nil, nil
	// A fixed end: others may write faster than we read.
	size, err := f.Size()
	if err == nil {
		d, c, err = v.log(f, id, new(sessionlog.Decoder).Decode, size)
	}
	// Remembered for writers and List: of a long log they check only the end.
	if inode, noInode := f.Inode(); d != nil && noInode == nil {
		v.s.checks.foundDamage(name, inode, d)
	}
	if err == nil && (d == nil || size == 0 || !c.Started) {
		// Before the journal, which may have the same lines, but not the reason.
		a, asideErr := v.s.asides.asideDamage(name, id)
		if asideErr != nil {
			return c, nil, asideErr
		}
		if a != nil && !c.Deleted {
			d, a.SafeSeq = a, c.Safe
		}
	}
	if d == nil && err == nil && !c.Deleted { // else what is missing was erased
		d, err = v.behindJournal(f, name, &c)
	}
	if d == nil && err == nil {
		// The bytes are sound. What this finds is reported but not noted as damage:
		// refusing writes would not help, and a repair could not change it.
		named, lineage, redactions := map[string]attachedAt{}, engine.Lineage{}, &engine.Redactions{}
		d, _, err = v.log(f, id, proven(named, &lineage, redactions), size)
		if end := redactions.End(); d == nil && err == nil && end != nil {
			d = &hansard.DamagedError{Session: id, SafeSeq: c.Safe, Reason: end.Error()}
		}
		v.unfinished, v.parent = redactions.Unfinished(), lineage.Parent
		if d == nil && err == nil && !c.Deleted {
			if d, err = v.attached(ctx, id, name, named); d == nil && err == nil {
				d, err = v.forked(f, id, &lineage)
			}
		}
	}
	return c, d, err
}

// proven returns a decoder that follows the turn and the ids of events from line to line.
// It fails at a line that was written under a grant that was not the current one, or past
// an exclusive turn (T1 to T4), and at an id that comes twice. So the log alone proves that
// no stale holder ever wrote (invariant 13), and that no event was stored again.
//
// named collects the attachments that events name, lineage what the session is a fork of,
// and redactions what was redacted.
func proven(named map[string]attachedAt, lineage *engine.Lineage, redactions *engine.Redactions) func([]byte) (*sessionlog.Line, error) {
	var grants engine.Grants
	var ids engine.IDs
	return func(b []byte) (*sessionlog.Line, error) {
		l, err := sessionlog.Decode(b)
		if err != nil || l.Seq == 0 {
			return l, err
		}
		e := l.Event()
		for _, a := range e.Attachments {
			if _, twice := named[a.Digest]; !twice {
				named[a.Digest] = attachedAt{e.Seq, a.Size}
			}
		}
		return l, cmp.Or(grants.Next(&e), ids.Next(&e), lineage.Next(&e), redactions.Next(&e))
	}
}

// attachedAt is where an attachment is named first, and its size according to the event.
type attachedAt struct {
	seq  hansard.Seq
	size int64
}

// attached checks that the attachments that events name are there, to the byte. Like a
// wrong grant this is reported, and nothing is refused because of it.
func (v *verifier) attached(ctx context.Context, id hansard.SessionID, name string, named map[string]attachedAt) (*hansard.DamagedError, error) {
	for _, digest := range slices.Sorted(maps.Keys(named)) {
		wrong := ""
		f, err := v.s.fs.Open(attachmentPath(name, digest), vfs.ReadOnly)
		switch {
		case errors.Is(err, fs.ErrNotExist) && slices.Contains(v.unfinished, named[digest].seq):
			// Attachments are removed before the line that names them is (takeaway.go).
		case errors.Is(err, fs.ErrNotExist):
			wrong = "is not there"
		case err != nil:
			return nil, err
		default:
			if wrong, err = v.content(bounded(ctx, f), digest, named[digest].size); err != nil {
				return nil, err
			}
		}
		if wrong != "" {
			return &hansard.DamagedError{Session: id, Reason: fmt.Sprintf("event %d names attachment %s, which %s", named[digest].seq, digest, wrong)}, nil
		}
	}
	return nil, nil
}

// forked checks that a log is described as a fork of the session that its lines name.
func (v *verifier) forked(f vfs.File, id hansard.SessionID, lineage *engine.Lineage) (*hansard.DamagedError, error) {
	h, err := sessionlog.ReadHeader(f, id)
	if err != nil {
		return nil, ignoreUnfinished(err)
	}
	described, err := parentOf(f, h)
	if err != nil {
		return nil, err
	}
	if err := lineage.End(described); err != nil {
		return &hansard.DamagedError{Session: id, Reason: err.Error()}, nil
	}
	return nil, nil
}

// ignoreUnfinished drops the error of a log that is being created.
func ignoreUnfinished(err error) error {
	if err == io.EOF || err == sessionlog.ErrEmptyLog {
		return nil
	}
	return err
}

// content returns what is wrong with the file of an attachment; empty: nothing.
func (v *verifier) content(f vfs.File, digest string, size int64) (wrong string, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	got, err := f.Size()
	if err != nil {
		return "", err
	}
	if got != size {
		return fmt.Sprintf("has %d bytes, and not %d", got, size), nil
	}
	a, err := engine.CopyAttachment(io.Discard, io.NewSectionReader(f, 0, got), hansard.MaxAttachmentBytes)
	if err != nil || a.Digest == digest {
		return "", err
	}
	return "has other bytes than its digest says", nil
}

// log checks every line of a log up to the batch that reaches size, with the given
// decoder. Unlike checkOnce it decodes the data too, and checks logs of any length.
func (v *verifier) log(f vfs.File, id hansard.SessionID, decode func([]byte) (*sessionlog.Line, error), size int64) (*hansard.DamagedError, sessionlog.Chain, error) {
	h, err := sessionlog.ReadHeader(f, id)
	if err == io.EOF && h != nil {
		err = v.s.forkUnfinished(f, sessionlog.EncodeName(id), id, h)
	}
	var damaged *hansard.DamagedError
	switch {
	case errors.As(err, &damaged):
		return damaged, sessionlog.Chain{}, nil
	case errors.Is(err, hansard.ErrVersion):
		return sessionlog.DamagedAt(id, 0, "%v", err), sessionlog.Chain{}, nil
	case err == sessionlog.ErrEmptyLog:
		// Being created, or emptied from outside: only the second is damage.
		if v.s.reader.emptied(f, id) != io.EOF {
			return sessionlog.DamagedAt(id, 0, "the log is empty"), sessionlog.Chain{}, nil
		}
	case err != nil && err != io.EOF:
		return nil, sessionlog.Chain{}, err
	}
	c, d, err := sessionlog.CheckUpTo(f, id, decode, size)
	return d, c, err
}

// unfinishedTail notes bytes after the last whole batch. They are no damage: a batch that
// is being written looks like that, and so does a copy of a log that was being written.
// If no entry of the ring completes them, the next append cuts them off (W2).
func (v *verifier) unfinishedTail(f vfs.File, c *sessionlog.Chain, finding hansard.Finding) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	end := int64(0)
	var damaged *hansard.DamagedError
	switch tail, err := sessionlog.ReadTail(f, size); {
	case err == nil:
		end = tail.End
	case !errors.As(err, &damaged): // damaged: no batch is whole
		return err
	}
	if end == size {
		return nil
	}
	finding.Level, finding.Offset, finding.Line = hansard.LevelNote, end, c.Lines+1
	finding.Message = fmt.Sprintf("the last %d bytes are an unfinished batch: being written, or cut off by a copy; "+
		"the next append sets them aside in %s", size-end, evidenceDir)
	return v.say(finding)
}

// behindJournal compares a log with the entries that were applied to it according to the
// journal. A log that was cut at the end of a batch, or replaced by an older copy, is
// sound by itself; only this shows that acknowledged events are missing.
func (v *verifier) behindJournal(f vfs.File, name string, c *sessionlog.Chain) (*hansard.DamagedError, error) {
	for _, e := range v.journal[name] {
		b := make([]byte, len(e.Lines))
		_, err := f.ReadAt(b, e.Offset)
		if err != nil && err != io.EOF {
			return nil, err
		}
		// io.EOF here is a log that is too short: damage, not an error.
		if err != nil || string(b) != string(e.Lines) && !sessionlog.SameButRedacted(b, e.Lines) {
			d := sessionlog.DamagedAt(c.ID, e.Offset, "the log does not have what was written to it up to seq %d", e.LastSeq)
			d.SafeSeq = c.Safe
			return d, nil
		}
	}
	return nil, nil
}

// examineJournal checks the ring and reports what it found. Others may be writing to it:
// slots and entries are not read at one moment, and a ring that wrapped in between looks
// damaged. Only what is wrong five times in a row is reported.
func (v *verifier) examineJournal(ctx context.Context) error {
	finding := hansard.Finding{Level: hansard.LevelOK, File: journal.Name}
	for try := 0; ; try++ {
		err := v.readJournal(ctx)
		if v.s.isOver(ctx, err) {
			return err
		}
		if errors.Is(err, fs.ErrNotExist) {
			finding.Level, finding.Message = hansard.LevelNote, "there is no journal; the next write makes one"
			return v.say(finding)
		}
		if err == nil {
			finding.Message = "sound"
			// Sound, but with work left: say so, because the reported events of a session
			// may not all be in its file yet.
			if b, err := v.s.reader.unapplied(); err == nil && b != nil {
				finding.Message = fmt.Sprintf("sound; recovery is not over: %d sessions are examined together with what it holds for them", len(b.entries))
			}
			return v.say(finding)
		}
		if errors.Is(err, fs.ErrPermission) {
			return v.unread(finding, err) // trying again would not help
		}
		if try == 4 && isDiskError(err) {
			return v.unread(finding, err) // it may be sound, and a repair would not help
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

// readJournal checks the ring once and collects the applied entries in v.journal. Nil: it
// is sound. A *journal.DamagedError may also come from a ring that changed while it was
// read.
func (v *verifier) readJournal(ctx context.Context) error {
	return v.scanJournal(ctx, func(r *journal.Ring, end, start uint64) error { return r.LostBehind(end, start) })
}

// readEntries is readJournal without the check after the end, which reads all of the
// ring: enough to know what the logs should have.
func (v *verifier) readEntries(ctx context.Context) error {
	return v.scanJournal(ctx, func(*journal.Ring, uint64, uint64) error { return nil })
}

// scanJournal reads the valid entries of the ring; behind checks what follows them.
func (v *verifier) scanJournal(ctx context.Context, behind func(r *journal.Ring, end, start uint64) error) error {
	r, slots, best, err := v.s.openRing(vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer r.File.Close()
	r.File = bounded(ctx, r.File)
	sl := slots[best]
	w, live := peers.LookAtControl(v.s.fs)
	// Without a living process the control file is outdated: a power cut may have kept
	// the record and lost the entries that it refers to (ControlNotTrusted).
	live = live && w.Epoch == r.Epoch && v.s.reader.someoneJoined()
	// A checkpoint under way may have written a slot that is not durable yet: starting
	// there would check less.
	if live {
		sl = slots[journal.DurableSlot(slots, best, w.Start, w.Epoch)]
	}
	entries, end, _, err := r.Scan(sl.Start, sl.StartChain, 0)
	if err != nil {
		return err
	}
	// Control was read before the ring, so the ring must have at least what it says.
	if live && end < w.Written {
		return &journal.DamagedError{Reason: fmt.Sprintf("its entries end at position %d, %d was written", end, w.Written)}
	}
	if err := behind(r, end, sl.Start); err != nil {
		return err
	}
	// Entries past applied may not be in their logs yet; without a living process nobody
	// knows which are, and recovery compares all of them anyway.
	v.journal = map[string][]*journal.Entry{}
	for _, e := range entries {
		if live && e.End() <= w.Applied {
			v.journal[e.Name] = append(v.journal[e.Name], e)
		}
	}
	return nil
}
