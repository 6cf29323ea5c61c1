package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
)

var _ hansard.Importer = (*Store)(nil)

// Copying sessions between stores of any engine (hansard.Copy): the exporting half reads
// without a lock, the importing half is one more kind of request of the commit.
//
//	Origins   all sessions, including deleted ones: a deleted id must stay deleted in the
//	          copy (invariant 14)
//	Keys      the idempotency keys: a retry against the copy must find them (failure 36)
//	Import    a part: events with their original seqs, times, grants and patches
//
// A part goes through the ring like an append and is stored whole or not at all. It is
// checked against the session's last seq under write.lock, so an interrupted copy resumes
// where it stopped, a part that is sent twice conflicts instead of being stored twice,
// and two copiers can't interleave.

// Origins implements [hansard.Exporter]: the sessions past an id, in order, so that a
// copy can resume after an interruption. A session whose header can't be read comes
// without its creation time.
func (s *Store) Origins(ctx context.Context, after hansard.SessionID) iter.Seq2[hansard.Origin, error] {
	return func(yield func(hansard.Origin, error) bool) {
		ids, err := s.reader.allIDs(ctx)
		if err != nil {
			yield(hansard.Origin{}, err)
			return
		}
		for _, id := range ids {
			if id <= after {
				continue
			}
			o, err := s.reader.origin(ctx, id)
			if errors.Is(err, hansard.ErrNotFound) {
				continue // removed since the directory was read, or its first batch is being written
			}
			// Any other error ends the iteration: skipping a session would make the copy
			// look complete.
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// allIDs are the sessions that have a log, or will have one when recovery is over, or
// have lost it, sorted. It reads the directories, not the
// catalog: a copy must not miss any.
func (rd *reader) allIDs(ctx context.Context) (ids []hansard.SessionID, err error) {
	if err := rd.readable(ctx, "any"); err != nil {
		return nil, err
	}
	// After a power cut a session may be in the journal only (J7). Before the directory: see
	// refreshCatalog.
	behind, err := rd.unapplied()
	if err != nil {
		return nil, err
	}
	entries, err := rd.fs.ReadDir(sessionlog.Dir)
	// A missing directory beside a journal is not an empty store: copying nothing without
	// an error would look like a successful copy (failure 42).
	if rd.sessionsGone() {
		return nil, errSessionsGone
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, rd.explain(err)
	}
	hasLog := map[string]bool{}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name, sessionlog.Suffix)
		if !ok {
			continue
		}
		if id, ok := sessionlog.DecodeName(name); ok {
			hasLog[name] = true
			ids = append(ids, id)
		}
	}
	without, err := rd.asides.allAsides()
	if err != nil {
		return nil, rd.explain(err)
	}
	has := func(name string) bool { return hasLog[name] }
	for _, name := range append(behind.onlyInJournal(has), rd.dirty.had(has)...) {
		without[name] = true
	}
	for name := range without {
		if id, ok := sessionlog.DecodeName(name); ok && !hasLog[name] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// origin is how a session began: its creation time and first metadata, from the header. A
// deleted session has an origin too.
func (rd *reader) origin(ctx context.Context, id hansard.SessionID) (hansard.Origin, error) {
	o := hansard.Origin{ID: id}
	l, err := rd.openLogForRead(ctx, id)
	var damaged *hansard.DamagedError
	switch {
	case errors.As(err, &damaged):
		return o, nil // there is no log to read: like one without a header
	case err == nil:
		defer l.f.Close()
		// A damaged session is included: what is before the damage can be copied.
		if l.header != nil {
			o.Created = l.header.Created
			if l.header.Snap != nil {
				o.Meta = *l.header.Snap
			}
			if o.Parent, err = parentOf(l.f, l.header); l.damage != nil {
				err = nil // the line with the parent may be lost
			}
		}
		return o, err
	case !errors.Is(err, hansard.ErrDeleted):
		return o, err
	}
	// Of a deleted session only the creation time is left: its metadata is gone.
	f, _, err := rd.openToRead(sessionlog.EncodeName(id))
	if err != nil {
		return o, err
	}
	defer f.Close()
	h, err := sessionlog.ReadHeader(f, id)
	if err != nil {
		return o, err
	}
	o.Created, o.Deleted = h.Created, true
	return o, nil
}

// Keys implements [hansard.Exporter]: the keys of batches whose first event is past a seq,
// in the order they were used.
func (s *Store) Keys(ctx context.Context, id hansard.SessionID, after hansard.Seq) iter.Seq2[hansard.KeyUse, error] {
	return func(yield func(hansard.KeyUse, error) bool) {
		if err := s.reader.eachKey(ctx, id, after, func(k hansard.KeyUse) bool { return yield(k, nil) }); err != nil {
			yield(hansard.KeyUse{}, err)
		}
	}
}

// eachKey calls yield with the keys of a log past a seq, up to its last whole batch, or
// up to the damage. It scans the log rather than the key index, which has hashes, not
// keys, and no order.
func (rd *reader) eachKey(ctx context.Context, id hansard.SessionID, after hansard.Seq, yield func(hansard.KeyUse) bool) error {
	l, err := rd.openLogForRead(ctx, id)
	if err != nil {
		return err
	}
	defer l.f.Close()
	// Only keys of events that Read returns: in the copy, the key of a lost batch must
	// not make a retry look like a replay.
	tail := l.tail
	if l.damage != nil {
		if tail, err = rd.safeTail(l); err != nil {
			return err
		}
	}
	// No batch is whole before the damage.
	if tail == nil {
		return nil
	}
	for sc := sessionlog.NewScanner(l.f, 0); ; {
		b, at, err := sc.Next()
		if errors.Is(err, sessionlog.ErrNoLine) || err == nil && at >= tail.End {
			return nil
		}
		if err != nil {
			return err
		}
		// A cheap test of the bytes first: decoding every line would make this as slow as
		// reading the session.
		if !sessionlog.HasName(b) {
			continue
		}
		line, err := sessionlog.Decode(b)
		if err != nil {
			return sessionlog.DamagedAt(id, at, "%v", err)
		}
		if line.Key == "" || line.Seq <= after {
			continue
		}
		seen := line.KeySeen()
		if !yield(hansard.KeyUse{Key: line.Key, Hash: seen.Hash, First: seen.First, Last: seen.Last}) {
			return nil
		}
	}
}

// Import implements [hansard.Importer]. Nil means that the part is durable and in the
// log. ConflictError: its first seq does not follow the session's last one, for example
// because the part was imported before. Nothing of a refused part is stored.
func (s *Store) Import(ctx context.Context, p hansard.Part) error {
	if err := s.usable(ctx, p.ID); err != nil {
		return err
	}
	if err := engine.CheckPartInput(&p); err != nil {
		return err
	}
	engine.TakeAwayIn(&p)
	r := newImport(&p)
	if _, err := s.committer.carryOut(ctx, r); err != nil {
		return err
	}
	// The part may record redactions of events imported before: remove their content here
	// too.
	if redacts(&p) {
		if err := s.checkpoints.takeAway(ctx, r.name); err != nil {
			return recordedOnly(ifClosed(s.process, err))
		}
	}
	return nil
}

// redacts tells whether a part records redactions.
func redacts(p *hansard.Part) bool {
	return slices.ContainsFunc(p.Events, func(e hansard.Event) bool { return len(e.Redacts) > 0 })
}

// newImport encodes, before any lock, everything of a part that does not depend on the
// commit. The origin's batches are not known, except those that had a key: a replay has
// to return the first and last seq of the whole batch. Every other event becomes a batch
// of its own. The part itself is still atomic, because it is one entry of the ring.
func newImport(p *hansard.Part) *request {
	r := &request{op: opImport, id: p.ID, name: sessionlog.EncodeName(p.ID), part: p, left: make([]int, len(p.Events)), named: engine.Names(p.Events), attached: attachedBy(p.Events)}
	keys := p.Keys
	for i := range p.Events {
		e := &p.Events[i]
		// The key and its hash are in the first line of the batch; left counts down to
		// its last line (L4).
		key, hash := "", ""
		if len(keys) > 0 && keys[0].First <= e.Seq && e.Seq <= keys[0].Last {
			r.left[i] = int(keys[0].Last - e.Seq)
			if e.Seq == keys[0].First {
				key, hash = keys[0].Key, keys[0].Hash
			}
			if r.left[i] == 0 {
				keys = keys[1:]
			}
		}
		body := sessionlog.EncodeBody(make([]byte, 0, len(e.Data)+256), e, key, hash)
		r.bodies = append(r.bodies, body)
		r.size += len(body) + sessionlog.StampWidth
	}
	// Plus at most a header, the end of a turn and a tombstone: an upper bound.
	r.size += journal.EntryHeader + 2*len(r.name) + 4*sessionlog.StampWidth + endedWidth + len(sessionlog.Marshal(p.Meta)) + len(sessionlog.Marshal(p.Parent))
	return r
}

// importPart checks a part against the session and drafts its lines, under write.lock.
// Everything that can be refused is checked before the first line is drafted: a draft
// can't be undone.
func (p *plan) importPart(sess *session, r *request) error {
	part := r.part
	// A session of the same id that was created independently is not the one being
	// copied: SameOrigin compares the creation times.
	switch err := sess.writable(); {
	case err == nil:
		header, err := p.store.logs.lineAt(sess, 0)
		if err != nil {
			return err
		}
		if err := engine.SameOrigin(part, header.Created); err != nil {
			return err
		}
	case !errors.Is(err, hansard.ErrNotFound):
		return err
	}
	t, err := p.turn(sess)
	if err != nil {
		return err
	}
	// The events carry grants of the origin. They have to fit the turn in this log, or
	// verify would later find lines written under a grant that was not held.
	grants := engine.Grants{Current: t.Held, Last: t.Last}
	var known knownNames
	if sess.exists && r.named != nil {
		if known, err = p.store.logs.lookupNames(sess, r); err != nil {
			return err
		}
	}
	if err := errors.Join(engine.CheckPart(part, sess.seq, &grants, known.event), known.err); err != nil {
		return err
	}
	if err := p.named(r, nil); err != nil {
		return err
	}
	metas, err := p.metasAfter(sess, r)
	if err != nil {
		return err
	}
	if !sess.exists {
		if err := p.createAt(sess, part); err != nil {
			return err
		}
	}
	r.dep = restsOnGroup
	if part.Deleted {
		// Deleted in the origin: a tombstone here. A turn that is held according to the
		// log ends first, as before any line that its holder did not write.
		if sess.turn != nil && sess.turn.Held != nil {
			p.turnEnds(sess, "deleted elsewhere", "")
		}
		p.line(sess, &sessionlog.Stamp{}, []byte(sessionlog.Tombstone))
		sess.deleted = true
		return nil
	}
	// Nothing below can fail.
	for i, body := range r.bodies {
		p.importLine(sess, &part.Events[i], r.left[i], metas[i], body)
	}
	p.draft(sess).rememberPart(r)
	p.draft(sess).redacts = redacts(part)
	return nil
}

// createAt is create for a session that was created elsewhere: its header has that time,
// by which later parts recognise it. The plan's own time is restored for the requests
// that follow in the group.
func (p *plan) createAt(sess *session, part *hansard.Part) error {
	now := p.now
	defer func() { p.now = now }()
	p.now = part.Created.UTC()
	return p.createFork(sess, part.Meta, 0, part.Parent)
}

// metasAfter is the metadata after each event of a part that has a patch. A patch can be
// refused (the result may be too large), so all of them are applied before the first line
// is drafted: a part is stored whole or not at all.
func (p *plan) metasAfter(sess *session, r *request) ([]hansard.Meta, error) {
	part := r.part
	metas := make([]hansard.Meta, len(part.Events))
	at := part.Meta // of a session that this part creates
	loaded := !sess.exists
	for i := range part.Events {
		patch := part.Events[i].Patch
		if patch == nil {
			continue
		}
		if !loaded {
			// Only if there is a patch: the request may have to be prepared again for
			// this.
			if err := p.store.logs.loadMeta(sess, r); err != nil {
				return nil, err
			}
			at, loaded = sess.meta.Meta, true
		}
		next, err := engine.ReplayPatch(at, patch)
		if err != nil {
			return nil, fmt.Errorf("the patch of seq %d: %w", part.Events[i].Seq, err)
		}
		at, metas[i] = next, next
	}
	return metas, nil
}

// importLine drafts an event's line as it was in the origin, with its time and grant.
// Seq, offsets and checksums are this log's own. A line about the turn changes the
// session's turn too. The instance it names is not one of this store, so its holder
// counts as dead here, or, for a remote turn, as silent after its TTL (T7): a holder that
// can't reach the copy does not block it.
func (p *plan) importLine(sess *session, e *hansard.Event, left int, meta hansard.Meta, body []byte) {
	st := sessionlog.Stamp{Left: left, Turn: e.Turn, Time: e.Time.UTC().Format(sessionlog.TimeLayout)}
	at := sess.end
	if e.Patch != nil {
		p.patchLine(sess, &st, body, e.Patch, meta)
	} else {
		p.line(sess, &st, body)
	}
	if e.Kind == hansard.KindTurn {
		var record hansard.TurnRecord
		_ = json.Unmarshal(e.Data, &record) // CheckPart has parsed it
		sess.turnAt, sess.turn = at, sessionlog.StateAfter(&record, e.Turn, e.Seq, e.Time)
	}
	if e.Fork != nil && e.Turn != "" {
		sess.turnAt, sess.turn = at, &sessionlog.TurnState{Last: e.Turn}
	}
}
