package filestore

import (
	"errors"
	"slices"
	"time"

	"hansard"
)

// restsOnGroup is the dep of an answer that rests on the group being planned.
const restsOnGroup = ^uint64(0)

// newAppend encodes what of a batch does not depend on the commit.
func newAppend(id hansard.SessionID, b *hansard.Batch) *request {
	events := hansard.Normalize(b)
	r := &request{op: opAppend, id: id, name: encodeName(id), expect: b.Expect, turn: b.Turn,
		key: b.Key, create: b.Create, patch: b.Patch, inbox: b.InboxOnly()}
	if b.Key != "" {
		r.hash = hansard.ContentHash(events)
	}
	r.bodies = make([][]byte, len(events))
	for i := range events {
		e := &events[i]
		key := ""
		if i == 0 {
			key = b.Key
		}
		// The frame of a body and of a line are small against the data.
		buf := make([]byte, 0, len(e.Data)+len(e.Kind)+len(e.Role)+len(e.Author)+96+len(key))
		r.bodies[i] = encodeBody(buf, e, key, r.hash)
		r.size += len(r.bodies[i]) + stampWidth
	}
	r.size += entryHeader + 2*len(r.name) + 2*stampWidth + endedWidth
	return r
}

// draft collects the lines a group adds to one session.
type draft struct {
	off   int64  // where they go
	lprev uint32 // crc of the line before
	bytes []byte
	keys  map[string]keySeen
}

// plan decides a group's requests in order, each on the state the one before
// leaves behind.
type plan struct {
	store   *Store
	now     time.Time
	stamp   string
	touched []*session     // with drafts
	sizes   map[string]int // of the lines for each session, at most
	probed  bool           // somebody wants to know that the group can be written
	// snapBytes is what snapshots may still add to the group: they are not
	// in the sizes of its requests.
	snapBytes int
}

// measure finds out how long the lines get that a group adds to each session, so
// that they need not be copied as they become more.
func (p *plan) measure(requests []*request) {
	if p.store.lineSizes == nil {
		p.store.lineSizes = map[string]int{}
	}
	p.sizes = p.store.lineSizes
	clear(p.sizes)
	for _, r := range requests {
		for _, body := range r.bodies {
			p.sizes[r.name] += len(body) + stampWidth
		}
	}
}

// add decides one request: it is refused, replayed, or its lines are drafted.
func (p *plan) add(r *request) {
	if r.op == opProbe {
		p.probed, r.dep = true, restsOnGroup
		return
	}
	sess, err := p.store.lookup(r.id, r.name)
	if err != nil {
		r.err = err
		return
	}
	// An answer rests on the newest lines of the session it was made from.
	r.dep = sess.waitEnd
	if sess.waiting == 0 {
		r.dep = 0
	}
	if sess.draft != nil {
		r.dep = restsOnGroup
	}
	switch r.op {
	case opCreate:
		err = p.create(sess, r.meta, 0)
		r.receipt = hansard.Receipt{Session: r.id}
		if sess.exists && err == nil {
			r.dep = restsOnGroup
		}
	case opDelete:
		err = p.delete(sess, r)
	case opAcquire:
		err = p.acquire(sess, r)
	case opRenew:
		err = p.renew(sess, r)
	case opRelease:
		err = p.release(sess, r)
	case opImport:
		err = p.importPart(sess, r)
	default:
		err = p.append(sess, r)
	}
	r.err = err
	if errors.Is(err, hansard.ErrHeld) && p.store.planted(plantHeldEarly) {
		r.dep = 0
	}
}

// create drafts the header of a new session.
func (p *plan) create(sess *session, m hansard.Meta, left int) error {
	if sess.deleted {
		return hansard.ErrDeleted
	}
	if sess.exists {
		return hansard.ErrExists
	}
	if sess.stub {
		if err := p.store.cutStub(sess); err != nil {
			return err
		}
	}
	sess.exists = true
	sess.uid = p.store.cfg.random()
	d := p.draft(sess)
	d.bytes = appendHeader(d.bytes, sess.id, sess.uid, p.now, left, m)
	sess.crc = lineCRC(d.bytes)
	sess.end = int64(len(d.bytes))
	sess.meta = &metaState{meta: m}
	return nil
}

func (p *plan) delete(sess *session, r *request) error {
	if err := sess.writable(); err != nil {
		return err
	}
	gone, err := p.fence(sess, r)
	if err != nil {
		return err
	}
	if gone != "" {
		p.turnEnds(sess, gone)
	}
	p.line(sess, &stamp{turn: r.turn}, []byte(tombstone))
	sess.deleted = true
	r.dep = restsOnGroup
	return nil
}

// append checks a batch against the session, in the order the contract gives,
// and drafts its lines.
func (p *plan) append(sess *session, r *request) error {
	if err := sess.writable(); err != nil && (!errors.Is(err, hansard.ErrNotFound) || !r.create) {
		return err
	}
	if r.key != "" && sess.exists {
		seen, err := p.store.lookupKey(sess, r.key)
		if err != nil {
			return err
		}
		if seen != nil {
			if seen.hash != r.hash {
				return &hansard.KeyReusedError{Session: r.id, Key: r.key, First: seen.first, Last: seen.last}
			}
			r.receipt = hansard.Receipt{Session: r.id, First: seen.first, Last: seen.last, Replayed: true}
			if p.store.planted(plantReplayEarly) {
				r.dep = 0
			}
			return nil
		}
	}
	gone, err := p.fence(sess, r)
	if err != nil {
		return err
	}
	if r.expect != nil && *r.expect != sess.seq {
		return &hansard.ConflictError{Session: r.id, Expected: *r.expect, Actual: sess.seq}
	}
	var meta *metaState
	if r.patch != nil {
		if meta, err = p.store.patched(sess, r.patch); err != nil {
			return err
		}
	}
	r.dep = restsOnGroup
	if !sess.exists {
		if err := p.create(sess, hansard.Meta{}, len(r.bodies)); err != nil {
			return err
		}
	}
	if gone != "" {
		p.turnEnds(sess, gone)
	}
	first := sess.seq + 1
	for i, body := range r.bodies {
		st := stamp{left: len(r.bodies) - 1 - i, turn: r.turn}
		if st.left == 0 && meta != nil {
			st.snap = meta.snapshotIfDue(len(body), p.snapBytes)
			p.snapBytes -= len(st.snap)
			at := sess.end
			p.line(sess, &st, body)
			sess.metaAt, sess.meta = at, meta
			continue
		}
		p.line(sess, &st, body)
	}
	r.receipt = hansard.Receipt{Session: r.id, First: first, Last: sess.seq}
	if r.key != "" {
		if sess.draft.keys == nil {
			sess.draft.keys = map[string]keySeen{}
		}
		sess.draft.keys[r.key] = keySeen{hash: r.hash, first: first, last: sess.seq}
	}
	return nil
}

// line drafts one line at the end of a session.
func (p *plan) line(sess *session, st *stamp, body []byte) {
	d := p.draft(sess)
	if room := len(body) + stampWidth + len(st.snap); cap(d.bytes)-len(d.bytes) < room {
		d.bytes = slices.Grow(d.bytes, max(room, p.sizes[sess.name]-len(d.bytes)))
	}
	if st.time == "" { // else it happened elsewhere, before
		st.time = p.stamp
	}
	st.seq, st.metaAt, st.turnAt, st.prev = sess.seq+1, sess.metaAt, sess.turnAt, sess.crc
	n := len(d.bytes)
	d.bytes = appendEvent(d.bytes, st, body)
	sess.seq++
	sess.crc = lineCRC(d.bytes)
	sess.end += int64(len(d.bytes) - n)
}

func (p *plan) draft(sess *session) *draft {
	if sess.draft == nil {
		sess.draft = &draft{off: sess.end, lprev: sess.crc}
		p.touched = append(p.touched, sess)
	}
	return sess.draft
}

// writable tells why a session takes no writes, if it does not.
func (sess *session) writable() error {
	switch {
	case sess.damage != nil:
		return sess.damage
	case sess.deleted:
		return hansard.ErrDeleted
	case !sess.exists:
		return hansard.ErrNotFound
	}
	return nil
}
