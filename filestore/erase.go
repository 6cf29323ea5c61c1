package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Erasing removes the content of a deleted session. Delete itself writes one line, a
// tombstone, which is what makes the session deleted; everything here comes after it,
// outside of the write path, and any process may repeat it at any time:
//
//	note       the checkpoint that is about to free the tombstone's space in the ring, or
//	           recovery, creates a file erasing/<name>, durably
//	write.lock if the ring has entries for this log from start on (W6): not yet
//	           write a new log, of a header without metadata and the tombstone; sync it
//	write.lock if the log is still the same file: rename
//	           sync sessions/: from here on the content is no longer in the log
//	           remove the session's files in evidence/, aside/ and cache/
//	write.lock if nothing is left to do: remove the note
//
// Invariants:
//   - The name leads to the old log, which ends in a tombstone, or to the new one, which
//     is durable: a crash at any step leaves the session deleted, never alive, never
//     damaged (TestSimEraseInterrupted).
//   - Nothing else of the session is removed before the new log is durable: lines in
//     aside/ may have the only durable copy of the tombstone.
//   - A process that dies on the way leaves the note, and the next checkpoint of any
//     process continues. The note is removed only under write.lock, when the log says that
//     it is done: a tombstone written in the meantime keeps it.

// erasingDir has a file for each session that was deleted or redacted and whose content
// may still be on disk, by the name of its log.
const erasingDir = "erasing"

// allLookedAt is a file in erasingDir: every log that was deleted or redacted without a note
// has been examined. No session has this name.
const allLookedAt = erasingDir + "/.complete"

// eraser removes the content of deleted sessions.
type eraser struct {
	*process
	lock   *writeLock
	asides *asides
	checks *checks
	lister *lister

	mu sync.Mutex // one at a time in this process; before writeLock.mu
	// told is the last logged reason why erasing fails. Guarded by mu.
	told string
}

// noteErasing records durably that deleted or redacted sessions are to be erased, before
// the ring forgets them. A failure holds up nothing: a full disk must not keep the ring from
// being freed. This process remembers it, and if it dies the missing allLookedAt tells the
// others: a file can be removed on a full disk (TestUnnotedKilled). Prune finds the sessions
// in any case.
func (p *process) noteErasing(names []string) {
	if len(names) == 0 {
		return
	}
	if err := p.writeNotes(names); err != nil {
		p.unnoted.Store(true)
		if p.fs.Remove(allLookedAt) == nil {
			_ = p.fs.SyncDir(erasingDir)
		}
		p.opt.Log.Warn("deleted sessions could not be noted for erasing; hansard prune finds them", "error", err)
	}
}

func (p *process) writeNotes(names []string) error {
	if err := p.fs.Mkdir(erasingDir); err != nil {
		return err
	}
	for _, name := range names {
		f, err := p.fs.Open(erasingDir+"/"+name, vfs.Create)
		if err != nil {
			return err
		}
		_ = f.Close() // the file is empty: only its name matters
	}
	return errors.Join(p.fs.SyncDir(erasingDir), p.fs.SyncDir("."))
}

// eraseNoted erases the noted sessions: in the background after every checkpoint, and
// when the last process leaves. In a store without allLookedAt, every log is examined
// once. Errors are logged, and the notes stay for the next time. They also stay when
// until is closed: Close waits for the background, and if it is the last to leave it
// continues with the rest.
func (er *eraser) eraseNoted(until <-chan struct{}) {
	if er.opt.ReadOnly {
		return // it only recovered the store in order to read
	}
	names, complete, err := er.noted()
	// Reset before the logs are examined: a session that could not be noted while that is
	// under way counts for the next time.
	unnoted := er.unnoted.Swap(false)
	all := err == nil && (!complete || unnoted)
	if all {
		var due, unread []string
		redacted := er.canNote()
		if !redacted {
			er.unnoted.Store(true) // it is not all, so it is to be done again
		}
		due, unread, err = er.due(until, redacted)
		// Those that have to wait are not forgotten, and logs that can't be read now are
		// looked at again.
		er.noteErasing(append(unread, due...))
		names = append(names, due...)
	}
	examined := all && err == nil
	er.mu.Lock() // not before: a redaction does not wait while all logs are read
	defer er.mu.Unlock()
	if err == nil && len(names) > 0 {
		_, err = er.erase(names, until)
	}
	// Also if some could not be erased: they have their notes, and one that never can be must
	// not have all logs read again at every checkpoint (TestNotErasedReadsLittle).
	if examined && !er.unnoted.Load() {
		complete := er.noteComplete()
		examined, err = complete == nil, errors.Join(err, complete)
	}
	if unnoted && !examined {
		er.unnoted.Store(true)
	}
	er.tell(err)
}

// tell logs that erasing fails, once for each reason.
func (er *eraser) tell(err error) {
	told := ""
	if err != nil && !er.closed.Load() {
		if told = err.Error(); told != er.told {
			er.opt.Log.Warn("the content of deleted sessions could not be erased; the next checkpoint tries again", "error", err)
		}
	}
	er.told = told
}

// noteComplete creates the file that says that all logs were examined.
func (er *eraser) noteComplete() error {
	if err := er.fs.Mkdir(erasingDir); err != nil {
		return err
	}
	f, err := er.fs.Open(allLookedAt, vfs.Create)
	if err != nil {
		return err
	}
	// If a power cut loses it, all logs are examined again.
	return errors.Join(f.Close(), er.fs.SyncDir(erasingDir), er.fs.SyncDir("."))
}

// canNote tells whether a note could be made now. If not, all logs would be read again, to
// their ends, at every checkpoint, for as long as the disk is full (TestNotErasedReadsLittle).
func (er *eraser) canNote() bool {
	const try = erasingDir + "/.try"
	if er.fs.Mkdir(erasingDir) != nil {
		return false
	}
	f, err := er.fs.Open(try, vfs.Create)
	return err == nil && errors.Join(f.Close(), er.fs.Remove(try)) == nil
}

// noted are the sessions that are to be erased; complete: no others are known.
func (er *eraser) noted() (names []string, complete bool, err error) {
	entries, err := er.fs.ReadDir(erasingDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	for _, e := range entries {
		if erasingDir+"/"+e.Name == allLookedAt {
			complete = true
		} else if sessionlog.IsName(e.Name) && e.Regular {
			names = append(names, e.Name)
		}
	}
	return names, complete, err
}

// due are the deleted sessions that have content left, noted or not, found by examining
// every log; unread are the logs that can't be read. With redacted, the sessions that have
// content of redacted events left are due, too: that takes reading all of every log.
func (er *eraser) due(until <-chan struct{}, redacted bool) (names, unread []string, err error) {
	all, err := er.logNames()
	if err != nil {
		return nil, nil, err
	}
	left, err := er.leftovers()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range all {
		if isClosed(until) {
			return nil, nil, hansard.ErrClosed
		}
		deleted, erased, err := er.look(name)
		unfinished := false
		if err == nil && !deleted && redacted {
			unfinished, err = er.lookRedacted(name, until)
		}
		if errors.Is(err, hansard.ErrClosed) {
			return nil, nil, err
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, vfs.ErrNotRegular) {
			unread = append(unread, name)
		}
		if unfinished {
			names = append(names, name)
		}
		if err != nil || !deleted {
			continue
		}
		attached, err := attachedFiles(er.fs, name)
		if err != nil {
			return nil, nil, err
		}
		if !erased || len(left[name])+len(attached) > 0 {
			names = append(names, name)
		}
	}
	return names, unread, nil
}

// look tells whether a log ends in a tombstone, and whether nothing else is left of it.
func (er *eraser) look(name string) (deleted, erased bool, err error) {
	f, err := er.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
	if err != nil {
		return false, false, err
	}
	defer f.Close()
	id, _ := sessionlog.DecodeName(name)
	if _, erased, err = sessionlog.ReadErased(f, id); err != nil || erased {
		return erased, erased, err
	}
	deleted, err = sessionlog.Deleted(f)
	return deleted, false, err
}

// lookRedacted tells whether a log still has content of events that it says are redacted.
// Not of a damaged one: it is repaired first, which is when it is looked at again.
func (er *eraser) lookRedacted(name string, until <-chan struct{}) (unfinished bool, err error) {
	f, err := er.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
	if err != nil {
		return false, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return false, err
	}
	f = untilClosed{f, until}
	gone, err := sessionlog.Redacted(f, size)
	if err == nil && len(gone) > 0 {
		unfinished, err = sessionlog.Unredacted(f, gone, size)
	}
	var damaged *hansard.DamagedError
	if errors.As(err, &damaged) {
		return false, nil
	}
	return unfinished, err
}

// untilClosed is a log whose reading ends when somebody does not want to wait any more.
type untilClosed struct {
	vfs.File
	until <-chan struct{}
}

func (u untilClosed) ReadAt(b []byte, off int64) (int, error) {
	if isClosed(u.until) {
		return 0, hansard.ErrClosed
	}
	return u.File.ReadAt(b, off)
}

// erase removes what is left of those of the sessions that are deleted. Sessions that the
// ring still names have to wait. A session that can't be erased keeps its note and does
// not stop the others; the errors are joined. The caller holds mu.
func (er *eraser) erase(names []string, until <-chan struct{}) (done []hansard.ErasedSession, err error) {
	var shortened []string
	for _, name := range sorted(names) {
		if isClosed(until) {
			err = errors.Join(err, hansard.ErrClosed)
			break
		}
		did := hansard.ErasedSession{}
		did.Session, _ = sessionlog.DecodeName(name)
		deleted, one := er.eraseLog(name, &did)
		switch {
		case errors.Is(one, errInJournal), errors.Is(one, errChanged): // next time
		case one != nil:
			err = errors.Join(err, fmt.Errorf("session %s: %w", did.Session, one))
		case deleted:
			shortened, done = append(shortened, name), append(done, did)
		default:
			if one = er.takeAway(name, er.outOfRing); one != nil && !errors.Is(one, errInJournal) && !errors.Is(one, errChanged) {
				err = errors.Join(err, fmt.Errorf("session %s: %w", did.Session, one))
			}
		}
	}
	if len(shortened) == 0 {
		return nil, err
	}
	// Once for all of them: from here on their logs are durable without the content.
	rest := er.fs.SyncDir(sessionlog.Dir)
	if rest == nil {
		rest = er.eraseRest(shortened, done)
	}
	if rest != nil {
		return done, errors.Join(err, rest)
	}
	for _, name := range shortened {
		err = errors.Join(err, er.dropNote(name, logSeen{}))
	}
	return done, err
}

// eraseLog reduces a deleted session's log to its tombstone. errInJournal: not yet.
// errChanged: the log was replaced just now.
func (er *eraser) eraseLog(name string, did *hansard.ErasedSession) (deleted bool, err error) {
	if err := er.outOfRing(name, func(*locked) error { return nil }); err != nil {
		return false, err
	}
	deleted, erased, err := er.look(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrNotRegular) {
		return false, nil // removed by hand: there is no session, and evidence/ is left alone
	}
	if err == nil && deleted && !erased {
		did.Bytes, err = er.replaceLog(name, did.Session)
	}
	return deleted, err
}

// dropNote removes a session's note if nothing is left to do: its log is erased, or is
// the log that was examined, without any redaction since. If lines are set aside, the
// tombstone may be among them, and may be added to the log later (mend.go).
func (er *eraser) dropNote(name string, seen logSeen) error {
	err := er.outOfRing(name, func(*locked) error {
		deleted, erased, err := er.look(name)
		quiet := erased
		if err == nil && !deleted || errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrNotRegular) {
			quiet, err = er.grownQuietly(name, seen)
		}
		aside, asideErr := er.asides.asides(name)
		if err != nil || !quiet || len(aside) > 0 || asideErr != nil {
			return errChanged
		}
		return ignoreMissing(er.fs.Remove(erasingDir + "/" + name))
	})
	if errors.Is(err, errInJournal) || errors.Is(err, errChanged) {
		return nil
	}
	return err
}

// outOfRing runs fn under write.lock if the ring has no entry for a log from its start on
// (W6): an entry would be applied to the new log, at an offset of the old one.
func (er *eraser) outOfRing(name string, fn func(*locked) error) error {
	l, err := er.lock.lockCaughtUp()
	if err != nil {
		return err
	}
	defer l.unlock()
	if l.logs.dirty.get(name).end > l.w.Start {
		return errInJournal
	}
	return fn(l)
}

// replaceLog replaces a log that ends in a tombstone with what AppendErased writes, and
// returns how many bytes that freed. The rename is durable when the caller has synced
// sessions/: before that a power cut restores the old log, which ends in a tombstone too.
func (er *eraser) replaceLog(name string, id hansard.SessionID) (freed int64, err error) {
	old, err := er.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
	if err != nil {
		return 0, err
	}
	defer old.Close()
	inode, err := old.Inode()
	if err != nil {
		return 0, err
	}
	size, err := old.Size()
	if err != nil {
		return 0, err
	}
	tail, err := sessionlog.ReadTail(old, size)
	if err != nil {
		return 0, err
	}
	if !tail.Last.Deleted {
		return 0, errChanged
	}
	uid, created := er.cfg.random(), tail.Last.Time
	if h, err := sessionlog.ReadHeader(old, id); err == nil {
		uid, created = h.LogUID, h.Created
	}
	b := sessionlog.AppendErased(nil, id, uid, created, tail.Last.Time)
	tmp := fmt.Sprintf("log.%016x.tmp", er.cfg.random())
	if err := er.writeTemporary(tmp, b); err != nil {
		return 0, err
	}
	err = er.outOfRing(name, func(l *locked) error { return l.putErased(name, inode, size, tmp) })
	if err != nil {
		_ = er.fs.Remove(tmp)
		return 0, err
	}
	return size - int64(len(b)), nil
}

// writeTemporary creates a file in the store's directory and syncs it before it gets the
// name of a log: otherwise a power cut could leave a log without its tombstone (failure
// 23).
func (p *process) writeTemporary(tmp string, b []byte) error {
	f, err := p.fs.Open(tmp, vfs.Create|vfs.Exclusive)
	if err != nil {
		return err
	}
	err = writeLog(f, b, 0)
	if err == nil {
		err = f.Datasync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = p.fs.Remove(tmp)
	}
	return err
}

// putErased renames the new log over the old one, under write.lock, if that is still the
// file that was read: nothing is written after a tombstone, but a copy may have replaced
// the file (replaceByCopy). No descriptor of this process keeps the old bytes; other processes
// close theirs when they see the tombstone in the ring.
func (l *locked) putErased(name string, inode uint64, size int64, tmp string) error {
	if now, length, err := l.fs.Inode(sessionlog.Path(name)); err != nil || now != inode || length != size {
		return errors.Join(err, errChanged)
	}
	if err := l.inCustody(func() error { return l.fs.Rename(tmp, sessionlog.Path(name)) }); err != nil {
		return err
	}
	forgetReplaced(l, name)
	return nil
}

// eraseRest removes, durably, what other files contain of sessions whose logs are erased.
func (er *eraser) eraseRest(names []string, done []hansard.ErasedSession) error {
	left, err := er.leftovers()
	if err != nil {
		return err
	}
	// Directories in which nothing is left are synced too: another process may have
	// removed the files and died before that was durable (found by
	// TestSimReuseInterrupted).
	dirs := map[string]bool{asideDir: true, evidenceDir: true, cache.KeysDir: true, cache.DamageDir: true, cache.Dir: true}
	for _, name := range names {
		dirs[attachmentDir(name)] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if _, err := er.fs.ReadDir(dir); errors.Is(err, fs.ErrNotExist) {
			delete(dirs, dir)
		}
	}
	for i, name := range names {
		attached, err := attachedFiles(er.fs, name)
		if err != nil {
			return err
		}
		left[name] = append(left[name], attached...)
		slices.Sort(left[name])
		for _, file := range left[name] {
			_, size, err := er.fs.Inode(file)
			if err == nil {
				err = er.remove(file)
			}
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			done[i].Bytes += size
			done[i].Files = append(done[i].Files, file)
			dirs[file[:strings.LastIndexByte(file, '/')]] = true
		}
	}
	changed, err := er.strikeFromCatalog(names)
	if err != nil {
		return err
	}
	removed, err := er.lister.strikeFromTable(names)
	if err != nil {
		return err
	}
	if changed || removed {
		dirs[cache.Dir] = true
	}
	if changed, err := er.strikeFromSearch(names); err != nil {
		return err
	} else if changed {
		dirs[cache.Dir] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := er.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a file; one in aside/ under write.lock, like every change there.
func (er *eraser) remove(file string) error {
	if strings.HasPrefix(file, asideDir+"/") {
		l, err := er.lock.lock()
		if err != nil {
			return err
		}
		defer l.unlock()
	}
	return er.fs.Remove(file)
}

// leftovers are the files besides the logs that belong to single sessions, by the names
// of those. Names are parsed from the right: "a." may begin a file of session "a.5".
func (er *eraser) leftovers() (map[string][]string, error) {
	left := map[string][]string{}
	for _, in := range []struct {
		dir    string
		nameOf func(file string) string
	}{
		{asideDir, asideOf}, {evidenceDir, evidenceOf}, {cache.KeysDir, runOf}, {cache.DamageDir, func(file string) string { return file }},
	} {
		entries, err := er.fs.ReadDir(in.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if name := in.nameOf(e.Name); e.Regular && sessionlog.IsName(name) {
				left[name] = append(left[name], in.dir+"/"+e.Name)
			}
		}
	}
	return left, nil
}

// attachedFiles are the files of a session's attachments, including unfinished uploads.
func attachedFiles(disk vfs.FS, name string) (files []string, err error) {
	entries, err := disk.ReadDir(attachmentDir(name))
	if err != nil {
		return nil, ignoreMissing(err)
	}
	for _, e := range entries {
		files = append(files, attachmentDir(name)+"/"+e.Name)
	}
	return files, nil
}

// asideOf is the name of the log that a file in aside/ belongs to; empty: none.
func asideOf(file string) string {
	name, pos := cutLast(file)
	if !isNumber(pos) {
		return ""
	}
	return name
}

// runOf is the name of the log that a run of keys belongs to.
func runOf(file string) string {
	name, from := cutLast(file)
	if !isMark(from) {
		return ""
	}
	return name
}

// evidenceOf is the name of the log that a file in evidence/ comes from; empty: none,
// such as a journal that was repaired.
//
//	<name>.<offset>.<16 hex>                an unfinished end that was cut off
//	<name>.repaired.<16 hex>                a log that was replaced; .deleted by older programs
//	<name>.<pos>.aside.<16 hex>             lines set aside that a repair took back
//	<name>.<pos>.aside.deleted              the same of a deleted session, by older programs
func evidenceOf(file string) string {
	rest, mark := cutLast(file)
	rest, what := cutLast(rest)
	switch {
	case what == "aside" && (mark == "deleted" || isMark(mark)):
		return asideOf(rest)
	case isMark(mark) && (what == "repaired" || what == "deleted" || isNumber(what)):
		return rest
	}
	return ""
}

// cutLast cuts a file name at its last dot.
func cutLast(s string) (before, after string) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return "", s
	}
	return s[:i], s[i+1:]
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}

func isMark(s string) bool {
	_, err := strconv.ParseUint(s, 16, 64)
	return err == nil && len(s) == 16
}

// strikeFromCatalog removes sessions from the catalog file that processes share: it has
// titles and labels. The catalogs in memory belong to living processes, which notice that
// the logs were replaced.
func (er *eraser) strikeFromCatalog(names []string) (changed bool, err error) {
	logs, err := er.fs.ReadDir(sessionlog.Dir)
	if err != nil {
		return false, err
	}
	m := cache.LoadCatalog(er.fs, logs)
	if m == nil {
		// None, or one that is not valid and may contain anything.
		err := er.fs.Remove(cache.Dir + "/" + cache.CatalogName)
		return err == nil, ignoreMissing(err)
	}
	for _, name := range names {
		if entry, ok := m[name]; ok && !entry.Gone {
			changed = true
			delete(m, name)
		}
	}
	if !changed {
		return false, nil
	}
	return true, er.writeCache(cache.Dir, cache.CatalogName, cache.EncodeCatalog(m))
}

// isClosed tells whether a channel is closed; nil never is.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sorted is a set of names in order, so that the simulation can replay a run.
func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
