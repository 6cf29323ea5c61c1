package filestore

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/runs"
	"hansard/filestore/internal/sessionlog"
)

// The plan: what is decided about each request of a group. It is made under write.lock,
// after catching up, on state = log + pending entries + what the group added so far. So
// seqs, keys, expectations and grants are decided in the one order in which lines are
// written (failures F5 and 41), and nothing is decided on what was read before the lock,
// unless it was compared again.
//
// A plan puts nothing into the ring or a log: its lines are drafts, which writeEntries
// turns into entries. The one trace it leaves if we die here is a lease in our instance
// file, which dies with us (turnplan.go, where turns are decided).

// restsOnGroup is the dep of an answer that rests on the group being planned, whose
// positions are not known yet; writeGroup replaces it by the end of the group.
const restsOnGroup = ^uint64(0)

// newAppend encodes, before any lock, what does not depend on the commit: under the lock
// only the stamp (seq, time, checksums) is added. r.size is an upper bound of what the
// request adds to the ring, without snapshots; roomFor relies on it.
func newAppend(id hansard.SessionID, b *hansard.Batch) *request {
	r := spareRequests.Get().(*request)
	events := engine.NormalizeInto(r.events, b)
	r.events = events
	r.op, r.id, r.name, r.expect, r.turn = opAppend, id, sessionlog.EncodeName(id), b.Expect, b.Turn
	r.key, r.create, r.meta, r.patch = b.Key, b.Create, engine.CloneMeta(b.Meta), engine.ClonePatch(b.Patch)
	r.inbox, r.apart, r.by, r.attached = b.InboxOnly(), b.Apart, b.By, attachedBy(events)
	if r.named = engine.NamesInto(r.spareNamed, events); r.named != nil {
		r.spareNamed = r.named
	}
	if b.Key != "" {
		r.hash = engine.ContentHash(events)
	}
	if r.named != nil {
		r.splitBodies(events)
		return r
	}
	r.encode(events, b.Key)
	r.size += r.frame()
	return r
}

// encode makes the bodies of the lines, in one buffer. The first body has the key.
func (r *request) encode(events []hansard.Event, key string) {
	width := len(key) // with room for the members around the data, so that it need not grow
	for i := range events {
		e := &events[i]
		width += len(e.Data) + len(e.Kind) + len(e.Role) + len(e.Author) + len(e.By) + len(e.ID) + 96
	}
	r.bodies = slices.Grow(r.bodies[:0], len(events))
	all := slices.Grow(r.buf[:0], width)
	for i := range events {
		begin := len(all)
		all = sessionlog.EncodeBody(all, &events[i], key, r.hash)
		r.bodies, key = append(r.bodies, all[begin:len(all):len(all)]), ""
		r.size += len(r.bodies[i]) + sessionlog.StampWidth
	}
	r.buf = all
}

// splitBodies is the end of newAppend for events with ids. Which of them are stored, and
// so which of them has the key and the patch, is known only in the commit.
func (r *request) splitBodies(events []hansard.Event) {
	r.first, r.last = sessionlog.AppendKey(nil, r.key, r.hash), sessionlog.AppendPatch(nil, r.patch)
	events[len(events)-1].Patch = nil
	r.encode(events, "")
	for i, body := range r.bodies {
		// The commit may compare this data with an event of the same id after the caller
		// got its memory back, so the request needs its own copy.
		e := &events[i]
		if own, ok := sessionlog.OwnData(body, e); ok {
			e.Data = own
		} else {
			e.Data = bytes.Clone(e.Data)
		}
	}
	if r.patch != nil {
		meta := engine.MetaEvent(r.by)
		r.alone = sessionlog.EncodeBody(nil, &meta, "", "")
		r.size += len(r.alone) + sessionlog.StampWidth
	}
	r.size += len(r.first) + len(r.last) + r.frame()
}

// frame is what an append may add to the ring besides its lines: the entry's header and
// name, a header line, and a line that ends a dead holder's turn.
func (r *request) frame() int {
	n := journal.EntryHeader + 2*len(r.name) + 2*sessionlog.StampWidth + endedWidth + byWidth(len(r.by))
	if r.create && !r.meta.IsZero() {
		n += len(sessionlog.Marshal(r.meta))
	}
	return n
}

// draft collects the lines that a group adds to one session: they become one ring entry.
type draft struct {
	off   int64  // where in the log they go
	lprev uint32 // crc of the line before them, which apply compares
	bytes []byte
	// keys and batches have the keys and event ids of this draft: a second request of the
	// group with the same key or ids is a replay of the first.
	keys    map[string]sessionlog.KeySeen
	batches []draftBatch
	// ids are the events with ids of this draft, and byID finds them. Those of batches
	// are added when an id is first looked up.
	ids  []draftID
	byID map[string]int
	// names says where the lines with names (keys, ids) begin, for the index of the log.
	// unlisted: the lines have names that are not listed here.
	names    []runs.Pair
	unlisted bool
	redacts  bool // one of the lines is a redaction
}

// plan decides a group's requests in order, each on the state that the one before leaves.
// It lives under one hold of write.lock.
type plan struct {
	store   *locked
	now     time.Time      // one time for the whole group
	stamp   string         // the same, as lines have it
	touched []*session     // with drafts
	sizes   map[string]int // upper bound of the bytes of lines, by session
	memory  *memory        // that holds the drafts
	probed  bool           // a probe is in the group: something has to be written
	// snapBytes is what snapshots may still add to the group: they are not
	// in the sizes of its requests.
	snapBytes int
}

// measure adds up the bytes of lines for each session, so that a draft's memory is
// allocated once: growing it would copy megabytes while everybody waits for write.lock.
func (p *plan) measure(requests []*request) {
	if p.store.lineSizes == nil {
		p.store.lineSizes = map[string]int{}
	}
	p.sizes = p.store.lineSizes
	clear(p.sizes)
	all := 0
	for _, r := range requests {
		n := len(r.first) + len(r.last)
		for _, body := range r.bodies {
			n += len(body) + sessionlog.StampWidth
		}
		p.sizes[r.name] += n
		all += n
	}
	p.memory.lines = slices.Grow(p.memory.lines, all)
}

// room makes room for n bytes more in a draft: for all lines of its session in this group
// at once, from the memory that was measured for them. A snapshot is not in that sum and
// may need more.
func (p *plan) room(sess *session, n int) {
	d := sess.draft
	if cap(d.bytes)-len(d.bytes) >= n {
		return
	}
	n = max(n, p.sizes[sess.name]-len(d.bytes)) + len(d.bytes)
	begin := len(p.memory.lines)
	if cap(p.memory.lines)-begin < n {
		d.bytes = slices.Grow(d.bytes, n-len(d.bytes))
		return
	}
	p.memory.lines = p.memory.lines[:begin+n]
	d.bytes = append(p.memory.lines[begin:begin:begin+n], d.bytes...)
}

// add decides one request: it is refused, replayed, or its lines are drafted. It sets
// r.err or r.receipt, and what the answer rests on: r.dep, a position that has to be
// durable and applied before anybody is told, and r.rest, the line that has to be in the
// log if the ring is replaced before that.
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
	// A refusal or a replay rests on the newest lines of the session too, even if other
	// processes wrote them: if answered before they are durable, a power cut makes the
	// answer untrue (planted bugs "replay before durable", "holder told before his grant
	// is durable").
	r.dep = p.store.logs.pending.end(sess.name)
	if sess.draft != nil {
		r.dep = restsOnGroup
	}
	switch r.op {
	case opCreate:
		// A Create that succeeds rests on its own header; a refusal rests on the lines of
		// whoever made the session.
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
	case opFork:
		err = p.fork(sess, r)
	case opRedact:
		err = p.redact(sess, r)
	default:
		err = p.append(sess, r)
	}
	r.err = err
	// After the decision: the request's own lines count.
	if sess.exists && sess.damage == nil {
		r.rest = lineRef{uid: sess.uid, end: sess.end, crc: sess.crc}
	}
	if err == errUnprepared {
		// Nothing was decided: the request goes back to be prepared again, which must
		// not wait for a sync.
		r.dep = 0
	}
}

// create drafts the header of a new session. left is how many lines of its batch follow:
// a session made by its first append does not exist before that batch is whole (R1).
// Deleted sessions stay deleted (rule TombstoneLast, failure 32).
func (p *plan) create(sess *session, m hansard.Meta, left int) error {
	return p.createFork(sess, m, left, nil)
}

// createFork is create for a session that is a fork of one elsewhere; parent is nil if it
// is not a fork.
func (p *plan) createFork(sess *session, m hansard.Meta, left int, parent *hansard.Parent) error {
	if sess.deleted {
		return hansard.ErrDeleted
	}
	if sess.exists {
		return hansard.ErrExists
	}
	if sess.stub {
		if err := p.store.logs.cutStub(sess); err != nil {
			return err
		}
	}
	sess.exists = true
	// A new uid: an older log of this name that is restored, or one copied here from
	// another store, has a different one, so entries for this log are never written to
	// it.
	sess.uid = p.store.cfg.random()
	d := p.draft(sess)
	d.bytes = sessionlog.AppendHead(d.bytes, &sessionlog.Head{ID: sess.id, UID: sess.uid, Created: p.now, Left: left, Meta: m, Parent: parent})
	sess.crc = sessionlog.LineCRC(d.bytes)
	sess.end = int64(len(d.bytes))
	sess.meta = &sessionlog.MetaState{Meta: m}
	return nil
}

// delete drafts a tombstone, a line like any other (rule DeleteIsEntry): removing the
// file would let the journal, or the next Create, bring the session back.
func (p *plan) delete(sess *session, r *request) error {
	if err := sess.writable(); err != nil {
		return err
	}
	gone, err := p.fence(sess, r)
	if err != nil {
		return err
	}
	if gone != "" {
		p.turnEnds(sess, gone, "")
	}
	p.line(sess, &sessionlog.Stamp{Turn: r.turn}, []byte(sessionlog.Tombstone))
	sess.deleted = true
	r.dep = restsOnGroup
	return nil
}

// append checks a batch against the session, in the order that the contract gives, and
// drafts its lines. Everything that can refuse it comes before the first line: a batch is
// drafted whole or not at all (failure 35).
func (p *plan) append(sess *session, r *request) error {
	if err := sess.writable(); err != nil && (!errors.Is(err, hansard.ErrNotFound) || !r.create) {
		return err
	}
	// The names come before the fence and the expectation: a retry of what was stored is a
	// replay, though the turn has moved on and the seq has grown since (failure 36).
	bodies := r.bodies
	sifted := engine.Sifted{Patch: r.patch != nil}
	if r.named != nil || r.key != "" && sess.exists {
		replayed, err := p.replay(sess, r, &sifted)
		if err != nil || replayed {
			return err
		}
		if r.named != nil {
			bodies = pick(r, &sifted)
		}
	}
	gone, err := p.fence(sess, r)
	if err != nil {
		return err
	}
	if r.expect != nil && *r.expect != sess.seq {
		return &hansard.ConflictError{Session: r.id, Expected: *r.expect, Actual: sess.seq}
	}
	fresh := sifted.Fresh // nil: all of them
	if r.named != nil && fresh == nil {
		fresh = []int{}
	}
	if err := p.named(r, fresh); err != nil {
		return err
	}
	// The patch is applied before anything is drafted: it may be refused, or its metadata
	// may take long to read (errUnprepared).
	var meta hansard.Meta
	if sifted.Patch {
		if meta, err = p.store.logs.patched(sess, r); err != nil {
			return err
		}
	}
	r.dep = restsOnGroup
	created := !sess.exists
	if created {
		if err := p.create(sess, r.meta, r.following(-1, len(bodies))); err != nil {
			return err
		}
	}
	if gone != "" {
		p.turnEnds(sess, gone, r.by)
	}
	// After turnEnds, which adds a line before the batch.
	first := sess.seq + 1
	names := r.names()
	if len(names) > 0 {
		p.remember(sess, r, &sifted, len(bodies))
	}
	for i, body := range bodies {
		last := i == len(bodies)-1
		st := sessionlog.Stamp{Left: r.following(i, len(bodies)), Turn: r.turn}
		if i == 0 {
			st.More = r.first
		}
		if len(names) > 0 {
			names = p.place(sess, r, &sifted, i, names)
		}
		if last && sifted.Patch {
			st.More = append(st.More[:len(st.More):len(st.More)], r.last...)
			p.patchLine(sess, &st, body, r.patch, meta)
			continue
		}
		p.line(sess, &st, body)
	}
	if r.receipt = (hansard.Receipt{Session: r.id, First: first, Last: sess.seq}); r.named != nil {
		r.receipt = sifted.Receipt(r.id, first)
	}
	r.receipt.Created = created
	return nil
}

// remember notes the names that a request stores, in n lines from the next one on, for the
// requests of its group that come after.
func (p *plan) remember(sess *session, r *request, sifted *engine.Sifted, n int) {
	d, first := p.draft(sess), sess.seq+1
	if r.key != "" {
		d.addKey(r.key, sessionlog.KeySeen{Hash: r.hash, First: first, Last: first + hansard.Seq(r.following(0, n))})
	}
	if r.named != nil && len(sifted.Fresh) > 0 {
		b := draftBatch{named: r.named, fresh: sifted.Fresh, first: first}
		if sifted.Patch {
			b.patch = r.patch
		}
		d.batches = append(d.batches, b)
	}
}

// place records, for the index, where the i-th line that a request stores begins, under
// each of the line's names. It is called before the line is drafted. names are the names
// of the request not placed yet; it returns the rest of them.
func (p *plan) place(sess *session, r *request, sifted *engine.Sifted, i int, names []sought) []sought {
	d := p.draft(sess)
	if d.names == nil {
		d.names = p.memory.pairsFor(len(names))
	}
	if i == 0 && r.key != "" {
		names = d.place(names, keyName(r.key), sess.end)
	}
	if r.named == nil || len(sifted.Fresh) == 0 {
		return names // the request has no ids, or it stores only its patch
	}
	if id := r.named[sifted.Fresh[i]].ID; id != "" {
		names = d.place(names, idName(id), sess.end)
	}
	return names
}

// following is how many lines of its batch follow the i-th of n; -1 is the header's place.
func (r *request) following(i, n int) int {
	if r.apart { // the header is in one batch with the first line
		return max(0, -i)
	}
	return n - 1 - i
}

// replay looks up the names of an append. It returns true if everything the append would
// store is stored already: r.receipt tells where, and the answer rests on those lines,
// through the dep that add set. Otherwise sifted is the part that is new.
func (p *plan) replay(sess *session, r *request, sifted *engine.Sifted) (bool, error) {
	var known knownNames
	if sess.exists {
		var err error
		if known, err = p.store.logs.lookupNames(sess, r); err != nil {
			return false, err
		}
	}
	if r.key != "" {
		if seen := known.key(r.key); seen != nil {
			if !engine.SameKeyContent(seen.Hash, r.hash) {
				// Another batch under a used key: calling it a replay would lose it
				// silently.
				return false, &hansard.KeyReusedError{Session: r.id, Key: r.key, First: seen.First, Last: seen.Last}
			}
			// Rule KeysCompared: the first attempt was stored, and its receipt is the
			// answer.
			r.receipt = hansard.Receipt{Session: r.id, First: seen.First, Last: seen.Last, Replayed: true,
				Seqs: engine.ReplayedSeqs(r.named, seen.First, seen.Last, known.event)}
			return true, known.err
		}
	}
	if r.named == nil {
		return false, nil
	}
	var err error
	if *sifted, err = known.sift(r); err != nil || sifted.Len() > 0 {
		return false, err
	}
	r.receipt = sifted.Receipt(r.id, 0)
	return true, nil
}

// pick returns the bodies of the lines that a request with ids stores.
func pick(r *request, sifted *engine.Sifted) [][]byte {
	switch len(sifted.Fresh) {
	case 0:
		return [][]byte{r.alone}
	case len(r.bodies):
		return r.bodies
	}
	bodies := make([][]byte, len(sifted.Fresh))
	for n, i := range sifted.Fresh {
		bodies[n] = r.bodies[i]
	}
	return bodies
}

// line drafts one line at the end of a session: it gets its seq, its time, the offsets of
// the newest metadata and turn before it, and the checksum of the line before.
func (p *plan) line(sess *session, st *sessionlog.Stamp, body []byte) {
	d := p.draft(sess)
	p.room(sess, len(body)+sessionlog.StampWidth+len(st.Snap)+len(st.More))
	if st.Time == "" { // else it is an import, with the time of the original
		st.Time = p.stamp
	}
	st.Seq, st.MetaAt, st.TurnAt, st.Prev = sess.seq+1, sess.metaAt, sess.turnAt, sess.crc
	n := len(d.bytes)
	d.bytes = sessionlog.AppendEvent(d.bytes, st, body)
	sess.seq++
	sess.crc = sessionlog.LineCRC(d.bytes)
	sess.end += int64(len(d.bytes) - n)
}

// draft is the session's draft, begun if there is none. It keeps where the group's lines
// start and what is before them, because the session's state moves with every line.
func (p *plan) draft(sess *session) *draft {
	if sess.draft == nil {
		sess.draft = &draft{off: sess.end, lprev: sess.crc}
		p.touched = append(p.touched, sess)
	}
	return sess.draft
}

// writable returns why a session takes no writes, nil if it takes them. Damage comes
// first: whether a damaged session exists or was deleted can't be known.
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
