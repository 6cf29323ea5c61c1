package model

// OpKind is what a request asks for.
type OpKind uint8

// The requests.
const (
	Append OpKind = iota
	Delete
	Prune      // replace a deleted session's log by its tombstone
	Acquire    // take the turn over and keep the token in Token
	TurnAppend // append under the token in Token
	Release    // give up the token in Token
)

// Op is one request of a configuration's script. Requests begin in the order of
// the script, in any process; they end in any order.
type Op struct {
	Kind   OpKind
	Sess   uint8
	Cells  uint8 // size in the ring, 0 is 1
	Key    uint8 // idempotency key, 0 is none
	Expect uint8 // 1 + expected last seq, 0 is none
	Token  uint8 // which of the clients' tokens
	Joined bool  // rides in the same ring write as the request before
}

// view is a session as the critical section sees it: the log and the entries
// that are not applied yet. [state = log tail + pending entries of its session]
type view struct {
	seq, last uint8 // last seq and entry
	tombstone uint8
	grant, n  uint8 // current grant, 0 when free; its number
	grantLine uint8 // the line that says so
	keyed     uint8 // the entry with the key asked for
}

func (v *view) add(d *disk, id, key uint8) {
	e := &d.ent[id]
	v.seq, v.last = e.seq, id
	switch e.kind {
	case kindTombstone:
		v.tombstone = id
	case kindGrant:
		v.grant, v.n, v.grantLine = id, e.n, id
	case kindRelease:
		v.grant, v.grantLine = 0, id
	}
	if key != 0 && e.key == key {
		v.keyed = id
	}
}

// viewOf reads a session under W after the catch-up. first is the first entry of
// the group under construction.
func (x *explorer) viewOf(n *State, p *proc, sess, key, first uint8) view {
	if x.cfg.Caches && p.cached == 1 {
		v := view{seq: p.cacheSeq[sess], last: p.cacheLast[sess]}
		v.addGroup(&n.disk, sess, key, first)
		return v
	}
	var v view
	if f := n.logOf(sess); f != nil {
		for _, id := range f.line[:f.size] {
			if id == 0 || id&part != 0 {
				break
			}
			v.add(&n.disk, id, key)
		}
	}
	f := n.journal(p)
	for pos := p.applied; pos < p.written; {
		id := x.at(&n.disk, &f.cell, pos)
		if id == 0 {
			break
		}
		e := &n.ent[id]
		if e.kind != kindPad && e.sess == sess && e.seq > v.seq {
			v.add(&n.disk, id, key)
		}
		pos += e.cells
	}
	v.addGroup(&n.disk, sess, key, first)
	return v
}

func (v *view) addGroup(d *disk, sess, key, first uint8) {
	for id := first; id <= d.lastID; id++ {
		if e := &d.ent[id]; e.kind != kindPad && e.sess == sess {
			v.add(d, id, key)
		}
	}
}

// verdict is the outcome of one request: an entry to write, or an answer that
// rests on dep (0: on nothing that could be lost).
type verdict struct {
	entry  entry
	answer bool
	replay bool
	dep    uint8
}

// decide checks the conditions of one request, all in the critical section.
// [deleted? exists? expected? key? grant equal? → refusal or replay, which
// rests on dep = newest pending entry it looked at]
func (x *explorer) decide(n *State, p *proc, op *Op, first uint8) verdict {
	v := x.viewOf(n, p, op.Sess, op.Key, first)
	switch {
	case v.tombstone != 0 && x.on(TombstoneLast):
		return verdict{answer: true, dep: v.tombstone}
	case v.keyed != 0 && x.on(KeysCompared):
		return verdict{answer: true, replay: true, dep: v.keyed}
	case op.Expect != 0 && op.Expect-1 != v.seq:
		return verdict{answer: true, dep: v.last}
	}
	e := entry{kind: kindData, sess: op.Sess, seq: v.seq + 1, lprev: v.last, key: op.Key}
	switch op.Kind {
	case Delete:
		e.kind = kindTombstone
	case Acquire:
		e.kind, e.n, e.token = kindGrant, v.n+1, op.Token+1
	case TurnAppend, Release:
		token := n.token[op.Token]
		if p.decided == 0 && !x.fence(n, token, &v) {
			return verdict{answer: true, dep: v.grantLine}
		}
		e.grant = token
		if op.Kind == Release {
			e.kind = kindRelease
		}
	}
	return verdict{entry: e}
}

// fence compares a token with the current grant.
func (x *explorer) fence(n *State, token uint8, v *view) bool {
	if x.on(FenceEquality) {
		return token != 0 && token == v.grant
	}
	num := uint8(foreignN)
	if token != foreign {
		num = n.ent[token].n
	}
	return token != 0 && num >= v.n
}
