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

// Erasing: the content of a deleted session is taken away. Delete itself writes one line,
// a tombstone, which is what makes the session deleted; everything here comes after it,
// outside of the write path, and may be done again by anybody at any time:
//
//	note       the checkpoint that is about to free the tombstone's space in the ring, or
//	           recovery, makes a file erasing/<name>, durably
//	write.lock nothing in the ring for this log from start on (W6), or not yet
//	           a new log, of a header without metadata and the tombstone; synced
//	write.lock still the same file: rename
//	           sync sessions/: from here on the content is not in the log any more
//	           evidence/, aside/ and cache/: what is there of exactly this session
//	write.lock nothing is left to do: remove the note
//
// Invariants:
//   - The name leads to the old log, which ends in a tombstone, or to the new one, which
//     is durable: a crash at any step leaves the session deleted, never alive, never
//     damaged (TestSimEraseInterrupted).
//   - Nothing else of the session is removed before the new log is durable: lines in
//     aside/ may have the only durable copy of the tombstone.
//   - Whoever dies on the way leaves the note, and the next checkpoint of any process goes
//     on. The note is removed only under write.lock, when the log says that it is done: a
//     tombstone that came meanwhile keeps it.

// erasingDir has a file for each deleted session whose content may still be there, by the
// name of its log.
const erasingDir = "erasing"

// allLookedAt is a file in erasingDir: every log that was deleted before there were notes
// has been looked at. No session has this name.
const allLookedAt = erasingDir + "/.complete"

// eraser takes the content of deleted sessions away.
type eraser struct {
	*process
	lock   *writeLock
	asides *asides
	checks *checks

	mu sync.Mutex // one at a time in this process; before writeLock.mu
	// told is why erasing fails, as it was last logged. Guarded by mu.
	told string
}

// noteErasing makes it durable that deleted sessions are to be erased, before the ring
// forgets them. If that fails, nobody is held up: a full disk must not keep the ring from
// being freed. This process remembers it, and prune finds it.
func (p *process) noteErasing(names []string) {
	if len(names) == 0 {
		return
	}
	if err := p.writeNotes(names); err != nil {
		p.unnoted.Store(true)
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
		_ = f.Close() // it is empty: its name is all there is to it
	}
	return errors.Join(p.fs.SyncDir(erasingDir), p.fs.SyncDir("."))
}

// eraseNoted erases what was noted: after every checkpoint in the background, and when the
// last process leaves. In a store that has no record of it, every log is looked at once.
// Errors are logged, and the notes stay for the next time. So they do when until is closed:
// Close waits for the background, and goes on with what is left if it is the last to leave.
func (er *eraser) eraseNoted(until <-chan struct{}) {
	if er.opt.ReadOnly {
		return // it only recovered what it wanted to read
	}
	er.mu.Lock()
	defer er.mu.Unlock()
	names, complete, err := er.noted()
	// Taken back before the look: what could not be noted while it is under way counts for
	// the next one.
	unnoted := er.unnoted.Swap(false)
	all := err == nil && (!complete || unnoted)
	if all {
		var due []string
		due, err = er.due(until)
		er.noteErasing(due) // those that have to wait are not forgotten
		names = append(names, due...)
	}
	if err == nil && len(names) > 0 {
		_, err = er.erase(names, until)
	}
	if all && err == nil {
		err = er.noteComplete()
	}
	if unnoted && err != nil {
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

// noteComplete makes the file that says that all logs were looked at.
func (er *eraser) noteComplete() error {
	if err := er.fs.Mkdir(erasingDir); err != nil {
		return err
	}
	f, err := er.fs.Open(allLookedAt, vfs.Create)
	if err != nil {
		return err
	}
	// If a cut takes it, all logs are looked at again.
	return errors.Join(f.Close(), er.fs.SyncDir(erasingDir), er.fs.SyncDir("."))
}

// noted are the sessions that are to be erased; complete: there are no others, as far as
// anybody knows.
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

// due are the deleted sessions of which something is left, noted or not: found by looking
// at every log. Logs that can't be read are left out.
func (er *eraser) due(until <-chan struct{}) (names []string, err error) {
	all, err := er.logNames()
	if err != nil {
		return nil, err
	}
	left, err := er.leftovers()
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		if isClosed(until) {
			return nil, hansard.ErrClosed
		}
		deleted, erased, err := er.look(name)
		if err != nil || !deleted {
			continue
		}
		attached, err := er.attachedFiles(name)
		if err != nil {
			return nil, err
		}
		if !erased || len(left[name])+len(attached) > 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// look tells whether a log ends in a tombstone, and whether that is all that is left.
func (er *eraser) look(name string) (deleted, erased bool, err error) {
	f, err := er.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
	if err != nil {
		return false, false, err
	}
	defer f.Close()
	id, _ := sessionlog.DecodeName(name)
	_, erased, err = sessionlog.ReadErased(f, id)
	return erased || err == nil && sessionlog.EndsDeleted(f), erased, err
}

// erase takes away what is left of some sessions, of those that are deleted. Those that the
// ring still names have to wait. Each that can't be erased keeps its note, and no other from
// being erased; the errors are joined. The caller holds mu.
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
		case errors.Is(one, errInJournal), errors.Is(one, errChanged): // the next time, then
		case one != nil:
			err = errors.Join(err, fmt.Errorf("session %s: %w", did.Session, one))
		case deleted:
			shortened, done = append(shortened, name), append(done, did)
		default:
			err = errors.Join(err, er.dropNote(name))
		}
	}
	if len(shortened) == 0 {
		return nil, err
	}
	// Once for all: from here on their logs are durable without the content.
	rest := er.fs.SyncDir(sessionlog.Dir)
	if rest == nil {
		rest = er.eraseRest(shortened, done)
	}
	if rest != nil {
		return done, errors.Join(err, rest)
	}
	for _, name := range shortened {
		err = errors.Join(err, er.dropNote(name))
	}
	return done, err
}

// eraseLog leaves nothing of a deleted session's log but its tombstone. errInJournal: not
// yet. errChanged: somebody else replaced the log just now.
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

// dropNote removes a session's note, if there is nothing to do for it. Where lines are set
// aside, the tombstone may be among them, and be put into the log later (mend.go).
func (er *eraser) dropNote(name string) error {
	err := er.outOfRing(name, func(*locked) error {
		deleted, erased, err := er.look(name)
		aside, asideErr := er.asides.asides(name)
		if err == nil && deleted && !erased || len(aside) > 0 || asideErr != nil {
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

// replaceLog puts what AppendErased writes in the place of a log that ends in a tombstone,
// and tells how many bytes that freed. Its name is durable when the caller has synced
// sessions/: before that a power cut brings the old log back, which ends in a tombstone too.
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

// writeTemporary makes a file in the store's directory and syncs it: before it gets the
// name of a log, or a power cut leaves a log without its tombstone (failure 23).
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

// putErased renames the new log over the old one, under write.lock, if that is the file
// that was read: nothing is written behind a tombstone, but a copy may have taken its
// place (copyLog). No descriptor of this process keeps the old bytes; other processes close
// theirs when they see the tombstone in the ring.
func (l *locked) putErased(name string, inode uint64, size int64, tmp string) error {
	if now, length, err := l.fs.Inode(sessionlog.Path(name)); err != nil || now != inode || length != size {
		return errors.Join(err, errChanged)
	}
	if err := l.fs.Rename(tmp, sessionlog.Path(name)); err != nil {
		return err
	}
	l.checks.checked.forget(name)
	if sess := l.logs.sessions[name]; sess != nil {
		sess.closeLog()
		sess.forget()
	}
	l.waiters.wake(name)
	return nil
}

// eraseRest removes what other files have of sessions whose logs are erased, durably.
func (er *eraser) eraseRest(names []string, done []hansard.ErasedSession) error {
	left, err := er.leftovers()
	if err != nil {
		return err
	}
	dirs := map[string]bool{}
	for i, name := range names {
		attached, err := er.attachedFiles(name)
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
	if changed, err := er.strikeFromCatalog(names); err != nil {
		return err
	} else if changed {
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

// remove removes a file; one of aside/ under write.lock, as they all are.
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

// leftovers are the files besides the logs that belong to single sessions, by the names of
// those. Names are read from the right: what begins with "a." may be of session "a.5".
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

// attachedFiles are the files of a session's attachments, and uploads that were never
// finished.
func (p *process) attachedFiles(name string) (files []string, err error) {
	entries, err := p.fs.ReadDir(attachmentDir(name))
	if err != nil {
		return nil, ignoreMissing(err)
	}
	for _, e := range entries {
		files = append(files, attachmentDir(name)+"/"+e.Name)
	}
	return files, nil
}

// asideOf is the name of the log that a file in aside/ is for; empty: of none.
func asideOf(file string) string {
	name, pos := cutLast(file)
	if !isNumber(pos) {
		return ""
	}
	return name
}

// runOf is the name of the log that a run of keys is for.
func runOf(file string) string {
	name, from := cutLast(file)
	if !isMark(from) {
		return ""
	}
	return name
}

// evidenceOf is the name of the log that a file in evidence/ comes from; empty: of none,
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

// strikeFromCatalog takes sessions out of the catalog that processes leave to each other:
// it has titles and labels. The catalogs in memory are of living processes, which see that
// the logs are others now.
func (er *eraser) strikeFromCatalog(names []string) (changed bool, err error) {
	logs, err := er.fs.ReadDir(sessionlog.Dir)
	if err != nil {
		return false, err
	}
	m := cache.LoadCatalog(er.fs, logs)
	if m == nil {
		// None, or one that nobody believes, which may have anything in it.
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
