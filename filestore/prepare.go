package filestore

import (
	"context"
	"errors"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Whatever may take long to read is read before write.lock is taken, because under it
// every process waits (failure 60: the cost of an append grew with the keys of its
// session, and all other sessions paid for it). What was read may be stale by then:
//
//	prepare, no lock            under write.lock
//	check the log once          only its last line
//	find the names in it        only what the log got since, up to lockedBytes
//	fold the metadata           only the lines since, up to lockedBytes
//
// Where more than that is missing, or the name leads to another log by now, the request
// is sent back with errUnprepared and prepared again. After prepareTries rounds it is
// carried out under the lock, whatever it takes: a writer must not starve because others
// write faster than it reads.

// prepared is what was read for a request before write.lock. The caller writes it before
// the request is queued; the leader only reads it, except wantMeta.
type prepared struct {
	names *preparedNames // nil: it has none, or there was no log
	// attached are the attachments it names whose names in the directory are durable.
	attached map[string]attachedFile
	meta     *preparedMeta // nil: not read
	// redaction is of opRedact; nil: there was no log.
	redaction *preparedRedaction
	// wantMeta: finding the metadata took too long under the lock; read it next time.
	// Most patches find it in the session's cached state and need no preparation.
	wantMeta bool
	tries    int  // 0: a request that is never prepared
	last     bool // the last try: under the lock everything is read, whatever it takes
}

// preparedMeta is the metadata that the line at KnownMeta.At leads to. Inode and uid tell
// whether the log is still the one it was read from: an offset means nothing in another.
type preparedMeta struct {
	inode, uid uint64
	sessionlog.KnownMeta
}

// prepareTries is how often a request is prepared before it is carried out anyway.
const prepareTries = 4

// errUnprepared sends a request back: what it needs would take long to read under
// write.lock. Nothing was decided and nothing stored. It never leaves carryOut.
var errUnprepared = errors.New("the log has changed much since it was looked at")

// carryOut prepares a request and takes it through the commit, again if it comes back
// unprepared. Its errors are those of the commit; ErrUnknown ends it like any other, so a
// request that may be stored is never submitted twice.
func (cm *committer) carryOut(ctx context.Context, r *request) (hansard.Receipt, error) {
	for {
		r.prepared.tries++
		r.prepared.last = r.prepared.tries == prepareTries
		if err := cm.prepare(ctx, r); err != nil {
			return hansard.Receipt{}, err
		}
		receipt, err := cm.submit(ctx, r)
		if err != errUnprepared {
			return receipt, err
		}
		// It was in a group, but nothing of it was written: start over. What the last
		// plan left in the request must not reach the next answer.
		r.fate.Requeue()
		r.receipt, r.err, r.dep = hansard.Receipt{}, nil, 0
		r.rest, r.void = lineRef{}, nil
	}
}

// prepare reads what the commit will need and may take long. It takes no lock and
// changes nothing on the disk but caches. An error is the caller's answer: damage that
// was found, or the end of ctx. Nothing was queued then.
func (cm *committer) prepare(ctx context.Context, r *request) (err error) {
	r.prepared.names, r.prepared.meta, r.prepared.redaction = nil, nil, nil
	// The usual case: the log was checked before, its names, if any are asked for, are
	// known to be new, and no metadata is wanted. No file is opened for it.
	if err := cm.attachments.prepare(r); err != nil {
		return err
	}
	names := r.names()
	if seen, ok := cm.checks.checked.get(r.name); ok && seen.damage == nil && !r.prepared.wantMeta && r.op != opRedact {
		if len(names) == 0 {
			return nil
		}
		var due bool
		r.prepared.names, ok, due = cm.keyring.absent(r.name, names)
		if ok && due {
			cm.writeRunOf(r.name)
		}
		if ok && !r.prepared.last {
			return nil
		}
	}
	f, _, err := cm.reader.openToRead(r.name)
	if err != nil {
		return nil // no log yet; any other error meets the commit again, which types it
	}
	defer f.Close()
	f = bounded(ctx, f)
	if err := cm.checks.prepareLog(f, r); err != nil {
		return err
	}
	if len(names) > 0 {
		if r.prepared.names, err = cm.keyring.prepareNames(ctx, f, r.name, names); err != nil {
			return err
		}
	}
	if r.prepared.wantMeta {
		if r.prepared.meta, err = prepareMeta(f); err != nil {
			return err
		}
	}
	if r.op == opRedact {
		r.prepared.redaction, err = prepareRedaction(f, r)
	}
	return err
}

// prepareMeta folds the metadata of a log up to its last whole batch. Nil without an
// error: the log has no sound end, and the commit will say what is wrong with it.
func prepareMeta(f vfs.File) (*preparedMeta, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	tail, err := sessionlog.ReadTail(f, size)
	if err != nil {
		return nil, nil // the commit says what is wrong
	}
	p := &preparedMeta{KnownMeta: sessionlog.KnownMeta{At: tail.Last.NewestMeta(tail.LastAt)}}
	if p.inode, err = f.Inode(); err != nil {
		return nil, err
	}
	if p.uid, err = sessionlog.ReadUID(f); err != nil {
		return nil, err
	}
	p.State, err = sessionlog.ReadMeta(f, tail)
	return p, err
}
