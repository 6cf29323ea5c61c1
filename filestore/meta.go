package filestore

import (
	"bytes"
	"math"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/sessionlog"
)

// Metadata under write.lock. It is folded from the patches in the log: each line points
// to the line with the newest patch before it, and some patches carry a snapshot of
// everything, so a walk back from the last line is short (sessionlog/fold.go).
//
//	header ◄── patch ◄── patch + snap ◄── patch ◄── patch ◄── last line
//	                     the walk ends here
//
// A walk that would read more than lockedBytes is not done under the lock: the request
// goes back, and the metadata is read before it tries again (prepare.go).

// patched is the session's metadata after a request's patch, under write.lock: patches
// are merged in the order of the log (failures 34 and 41). An error refuses the request;
// nothing is drafted yet.
func (ol *logs) patched(sess *session, r *request) (hansard.Meta, error) {
	if !sess.exists {
		return engine.ApplyPatch(r.id, r.meta, r.patch) // this append creates it
	}
	if err := ol.loadMeta(sess, r); err != nil {
		return hansard.Meta{}, err
	}
	return engine.ApplyPatch(r.id, sess.meta.Meta, r.patch)
}

// loadMeta makes sure that the metadata of a session is known, under write.lock: from the
// cache, or by a walk that ends at a snapshot, at the header, or at what was prepared.
// errUnprepared asks for the request to be prepared again, with wantMeta set.
func (ol *logs) loadMeta(sess *session, r *request) error {
	if sess.meta != nil {
		return nil
	}
	if !sess.exists {
		sess.meta = &sessionlog.MetaState{}
		return nil
	}
	// Prepared metadata is valid for this log only, which inode and uid identify. It does
	// not matter if the log has grown since: the walk reaches the prepared line on its
	// way back.
	var known *sessionlog.KnownMeta
	if p := r.prepared.meta; p != nil && p.inode == sess.inode && p.uid == sess.uid {
		known = &p.KnownMeta
	}
	// No limit for a request that nobody prepares (tries is 0), and for the last attempt.
	left := lockedBytes
	if r.prepared.tries == 0 || r.prepared.last {
		left = math.MaxInt
	}
	m, err := sessionlog.FoldMeta(sess.metaAt, known, func(at int64) (*sessionlog.Line, error) {
		b, err := ol.lineBytes(sess, at, min(left, sessionlog.MaxLine))
		// The limit shrinks with each line, so this also catches a walk that gets too
		// long.
		if err == sessionlog.ErrLongLine {
			r.prepared.wantMeta = true
			return nil, errUnprepared
		}
		if err != nil {
			return nil, err
		}
		left -= len(b)
		l, err := sessionlog.DecodeHead(b)
		if err != nil {
			return nil, sessionlog.DamagedAt("", at, "%v", err)
		}
		return l, nil
	})
	if err != nil {
		return err
	}
	sess.meta = m
	return nil
}

// lineAt reads a line of a session, wherever it is, under write.lock.
func (ol *logs) lineAt(sess *session, at int64) (*sessionlog.Line, error) {
	b, err := ol.lineBytes(sess, at, sessionlog.MaxLine)
	if err != nil {
		return nil, err
	}
	l, err := sessionlog.Decode(b)
	if err != nil {
		return nil, sessionlog.DamagedAt("", at, "%v", err)
	}
	return l, nil
}

// lineBytes are the bytes of a line of a session, without the newline, under write.lock:
// in its draft, in an entry that is not in the log yet, or, if there are no more than
// limit, in the log. Newest first: the log may already have a part of a pending entry.
// They belong to the caller: those of an entry or a draft are copied, because the result
// of decoding them outlives their memory.
func (ol *logs) lineBytes(sess *session, at int64, limit int) ([]byte, error) {
	from := func(b []byte, off int64) ([]byte, error) {
		b = b[at-off:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			return bytes.Clone(b[:i]), nil
		}
		return nil, sessionlog.ErrNoLine
	}
	if d := sess.draft; d != nil && at >= d.off {
		return from(d.bytes, d.off)
	}
	for _, e := range ol.pending.of(sess.name) {
		if at >= e.Offset && at < e.Offset+int64(len(e.Lines)) {
			return from(e.Lines, e.Offset)
		}
	}
	if sess.f == nil {
		return nil, sessionlog.ErrNoLine
	}
	return sessionlog.ReadLineWithin(sess.f, at, limit)
}

// patchLine drafts a line with a patch, after which the metadata is next. When the walk
// back has become long (in lines, in bytes of patches, or in bytes of the lines they are
// on) the line also gets a snapshot. Snapshots at most double what is written, and stay
// within the group's budget: they are not in the sizes that room was made for (roomFor).
// If the budget is used up the next patch gets one.
func (p *plan) patchLine(sess *session, st *sessionlog.Stamp, body []byte, patch *hansard.Patch, next hansard.Meta) {
	w := sess.meta.Walk
	own := int64(len(body) + len(st.More) + sessionlog.StampWidth)
	w.Lines += own
	w.Patches += sessionlog.PatchBytes(patch)
	w.Count++
	size := sessionlog.MetaBytes(&next)
	due := w.Patches >= size || w.Count >= sessionlog.SnapshotEvery || w.Lines >= max(sessionlog.WalkBytes, 2*int64(size))
	if due && size <= p.snapBytes {
		if snap := sessionlog.Marshal(next); len(snap) <= p.snapBytes {
			p.snapBytes -= len(snap)
			// A walk that ends here reads the whole line, so its own length counts for
			// the next one: not every walk should end with a large event
			// (TestFailure55_MetadataOnLargeEvents).
			st.Snap, w = snap, sessionlog.MetaWalk{Lines: own}
		}
	}
	at := sess.end
	p.line(sess, st, body)
	sess.metaAt, sess.meta = at, &sessionlog.MetaState{Meta: next, Walk: w}
}
