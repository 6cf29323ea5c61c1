package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Pruning removes attachments that no event names, a day after they were attached: until
// then somebody may be about to append the event. The attachments that a log names are
// collected without a lock. Under write.lock we only check that the log still ends there,
// so that an append is either seen here, or looks for the file after it is gone and is
// refused.

// pruneAge is how long an attachment may exist without an event that names it.
const pruneAge = 24 * time.Hour

// pruneTries is how often a growing log is read again; then it is left for the next
// prune.
const pruneTries = 3

// prune removes, in all sessions, attachments that no event names and abandoned uploads.
// On an error it also returns what was removed before. A session whose log can't be read
// does not stop the others; the first error is returned.
func (at *attachments) prune(ctx context.Context) (removed []string, err error) {
	dirs, err := at.fs.ReadDir(attachmentsDir)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	for _, d := range dirs {
		id, ok := sessionlog.DecodeName(d.Name)
		if !ok {
			continue
		}
		if ctx.Err() != nil {
			return removed, ctx.Err()
		}
		files, one := at.pruneOld(ctx, id, d.Name)
		removed = append(removed, files...)
		if one != nil && err == nil {
			err = fmt.Errorf("session %s: %w", id, one)
		}
		if at.isOver(ctx, one) {
			break
		}
	}
	return removed, err
}

// pruneOld is prune for one session.
func (at *attachments) pruneOld(ctx context.Context, id hansard.SessionID, name string) (removed []string, err error) {
	old, err := at.old(name)
	if err != nil {
		return nil, err
	}
	for try := 0; len(old) > 0 && try < pruneTries; try++ {
		files, done, err := at.pruneSession(ctx, id, name, old)
		removed = append(removed, files...)
		if err != nil || done {
			return removed, err
		}
	}
	return removed, nil
}

// old are a session's attachment files that are older than pruneAge.
func (at *attachments) old(name string) (files []string, err error) {
	all, err := attachedFiles(at.fs, name)
	for _, file := range all {
		if at.isOld(file) {
			files = append(files, file)
		}
	}
	return files, err
}

func (at *attachments) isOld(file string) bool {
	st, err := at.fs.Stat(file)
	return err == nil && at.cfg.now().Sub(st.ModTime) > cmp.Or(at.cfg.pruneAge, pruneAge)
}

// pruneSession removes those of the files that the session's log does not name. done is
// false if the log has grown in the meantime.
func (at *attachments) pruneSession(ctx context.Context, id hansard.SessionID, name string, files []string) (removed []string, done bool, err error) {
	f, err := at.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
	if err != nil {
		return nil, true, ignoreMissing(err) // no log, so we can't tell whose they are: leave them alone
	}
	defer f.Close()
	named := map[string]attachedAt{}
	c, damage, err := sessionlog.Check(bounded(ctx, f), id, proven(named, &engine.Lineage{}, &engine.Redactions{}))
	if err != nil || damage != nil {
		return nil, true, err // lines after the damage may name attachments
	}
	l, err := at.lock.lockCaughtUp()
	if err != nil {
		return nil, true, err
	}
	defer l.unlock()
	sess, err := l.lookup(id, name)
	if err != nil {
		return nil, true, err
	}
	if err := sess.writable(); err != nil {
		return nil, true, nil // deleted, and erasing removes all of them; or damaged
	}
	if sess.seq != c.Safe {
		return nil, false, nil
	}
	for _, file := range files {
		digest := hansard.DigestPrefix + file[len(attachmentDir(name))+1:]
		if _, ok := named[digest]; ok || !at.isOld(file) { // or attached again just now
			continue
		}
		if err := at.fs.Remove(file); err != nil && ignoreMissing(err) != nil {
			return removed, true, errors.Join(err, ctx.Err())
		}
		removed = append(removed, file)
	}
	return removed, true, nil
}
