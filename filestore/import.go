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
	"hansard/internal/vfs"
)

var _ hansard.Importer = (*Store)(nil)

// Origins implements [hansard.Exporter]. A session whose header can't be read is
// given without the time it was created at.
func (s *Store) Origins(ctx context.Context, after hansard.SessionID) iter.Seq2[hansard.Origin, error] {
	return func(yield func(hansard.Origin, error) bool) {
		ids, err := s.allIDs(ctx)
		if err != nil {
			yield(hansard.Origin{}, err)
			return
		}
		for _, id := range ids {
			if id <= after {
				continue
			}
			o, err := s.origin(ctx, id)
			if errors.Is(err, hansard.ErrNotFound) {
				continue // removed meanwhile, or its first batch is not there yet
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// allIDs are the sessions that have a log, sorted.
func (s *Store) allIDs(ctx context.Context) (ids []hansard.SessionID, err error) {
	if err := s.readable(ctx, "any"); err != nil {
		return nil, err
	}
	entries, err := s.fs.ReadDir(sessionsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name, logSuffix)
		if !ok {
			continue
		}
		if id, ok := decodeName(name); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func (s *Store) origin(ctx context.Context, id hansard.SessionID) (hansard.Origin, error) {
	o := hansard.Origin{ID: id}
	l, err := s.openLogForRead(ctx, id)
	switch {
	case err == nil:
		defer l.f.Close()
		if l.header != nil {
			o.Created = l.header.Created
			if l.header.Snap != nil {
				o.Meta = *l.header.Snap
			}
		}
		return o, nil
	case !errors.Is(err, hansard.ErrDeleted):
		return o, err
	}
	f, err := s.fs.Open(logPath(encodeName(id)), vfs.ReadOnly)
	if err != nil {
		return o, err
	}
	defer f.Close()
	h, err := readHeader(f, id)
	if err != nil {
		return o, err
	}
	o.Created, o.Deleted = h.Created, true
	return o, nil
}

// Keys implements [hansard.Exporter].
func (s *Store) Keys(ctx context.Context, id hansard.SessionID, after hansard.Seq) iter.Seq2[hansard.KeyUse, error] {
	return func(yield func(hansard.KeyUse, error) bool) {
		if err := s.eachKey(ctx, id, after, func(k hansard.KeyUse) bool { return yield(k, nil) }); err != nil {
			yield(hansard.KeyUse{}, err)
		}
	}
}

func (s *Store) eachKey(ctx context.Context, id hansard.SessionID, after hansard.Seq, yield func(hansard.KeyUse) bool) error {
	l, err := s.openLogForRead(ctx, id)
	if err != nil {
		return err
	}
	defer l.f.Close()
	tail := l.tail
	if l.damage != nil {
		if tail, err = s.safeTail(l); err != nil {
			return err
		}
	}
	if tail == nil {
		return nil
	}
	for sc := newScanner(l.f, 0); ; {
		b, at, err := sc.next()
		if errors.Is(err, errNoLine) || err == nil && at >= tail.end {
			return nil
		}
		if err != nil {
			return err
		}
		if !hasKey(b) {
			continue
		}
		line, err := decodeLine(b)
		if err != nil {
			return damagedAt(id, at, "%v", err)
		}
		if line.Key == "" || line.Seq <= after {
			continue
		}
		seen := line.keySeen()
		if !yield(hansard.KeyUse{Key: line.Key, Hash: seen.hash, First: seen.first, Last: seen.last}) {
			return nil
		}
	}
}

// Import implements [hansard.Importer].
func (s *Store) Import(ctx context.Context, p hansard.Part) error {
	if err := s.usable(ctx, p.ID); err != nil {
		return err
	}
	if err := hansard.CheckPartInput(&p); err != nil {
		return err
	}
	r := newImport(&p)
	if err := s.prepare(r); err != nil {
		return err
	}
	_, err := s.submit(ctx, r)
	return err
}

// newImport encodes what of a part does not depend on the commit. Each event is a
// batch of its own but for those of a key.
func newImport(p *hansard.Part) *request {
	r := &request{op: opImport, id: p.ID, name: encodeName(p.ID), part: p, left: make([]int, len(p.Events))}
	keys := p.Keys
	for i := range p.Events {
		e := &p.Events[i]
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
		body := encodeBody(make([]byte, 0, len(e.Data)+256), e, key, hash)
		r.bodies = append(r.bodies, body)
		r.size += len(body) + stampWidth
	}
	r.size += entryHeader + 2*len(r.name) + 4*stampWidth + endedWidth + len(marshal(p.Meta))
	return r
}

// importPart checks a part against the session and drafts its lines.
func (p *plan) importPart(sess *session, r *request) error {
	part := r.part
	switch err := sess.writable(); {
	case err == nil:
		header, err := p.store.lineAt(sess, 0)
		if err != nil {
			return err
		}
		if err := hansard.SameOrigin(part, header.Created); err != nil {
			return err
		}
	case !errors.Is(err, hansard.ErrNotFound):
		return err
	}
	t, err := p.turn(sess)
	if err != nil {
		return err
	}
	grants := hansard.Grants{Current: t.held, Last: t.last}
	if err := hansard.CheckPart(part, sess.seq, &grants); err != nil {
		return err
	}
	metas, err := p.metasAfter(sess, part)
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
		if sess.turn != nil && sess.turn.held != nil {
			p.turnEnds(sess, "deleted elsewhere")
		}
		p.line(sess, &stamp{}, []byte(tombstone))
		sess.deleted = true
		return nil
	}
	for i, body := range r.bodies {
		p.importLine(sess, &part.Events[i], r.left[i], metas[i], body)
	}
	return nil
}

// createAt is create for a session that was made elsewhere, some time ago.
func (p *plan) createAt(sess *session, part *hansard.Part) error {
	now := p.now
	defer func() { p.now = now }()
	p.now = part.Created.UTC()
	return p.create(sess, part.Meta, 0)
}

// metasAfter is the metadata that each event of a part leads to, where it has a
// patch. It is known before the first line is drafted: a part is whole or not at all.
func (p *plan) metasAfter(sess *session, part *hansard.Part) ([]*metaState, error) {
	metas := make([]*metaState, len(part.Events))
	at := &metaState{meta: part.Meta}
	loaded := !sess.exists
	for i := range part.Events {
		patch := part.Events[i].Patch
		if patch == nil {
			continue
		}
		if !loaded {
			if _, err := p.store.patched(sess, patch); err != nil { // loads it
				return nil, err
			}
			at, loaded = sess.meta, true
		}
		next, err := at.after(patch)
		if err != nil {
			return nil, fmt.Errorf("the patch of seq %d: %w", part.Events[i].Seq, err)
		}
		at, metas[i] = next, next
	}
	return metas, nil
}

// importLine drafts an event's line as it was elsewhere.
func (p *plan) importLine(sess *session, e *hansard.Event, left int, meta *metaState, body []byte) {
	st := stamp{left: left, turn: e.Turn, time: e.Time.UTC().Format(timeLayout)}
	at := sess.end
	if meta != nil {
		st.snap = meta.snapshotIfDue(len(body), p.snapBytes)
		p.snapBytes -= len(st.snap)
	}
	p.line(sess, &st, body)
	if meta != nil {
		sess.metaAt, sess.meta = at, meta
	}
	if e.Kind == hansard.KindTurn {
		var record hansard.TurnRecord
		_ = json.Unmarshal(e.Data, &record) // CheckPart has read it
		sess.turnAt, sess.turn = at, stateAfter(&record, e.Turn, e.Seq, e.Time)
	}
}
