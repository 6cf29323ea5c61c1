package filestore

import (
	"context"
	"errors"
	"maps"
	"math"
	"sync"

	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Idempotency keys live in the log, for the life of the session: a retry is recognised
// however late it comes (failure 36). To find one without reading the log there is an
// index beside it, derived like everything in cache/: a sorted table of key hashes for
// the beginning of the log, in cache/keys (keytable.go), and a map in memory for the
// rest.
//
//	log     |---------------------------------|-----------------|------> grows
//	        0            table        tableUpTo      tail     upTo
//
// Before write.lock is taken the index is brought up to the end of the log and the key is
// looked up; under the lock only what the log got since is read. Where that is much the
// request is prepared anew: nobody waits for somebody else's reading (failure 60).
//
// The index answers for the log only. What is pending, or in the group being planned, is
// looked at by lookupKey.

const (
	// keysInMemory is how many keys the map takes before the table is written anew, and
	// keysBehind how many bytes of log the table may be behind: a fresh process reads the
	// log from where the table ends.
	keysInMemory = 1024
	keysBehind   = 4 << 20
	// keyIndexBytes is what all indexes may take in memory.
	keyIndexBytes = 64 << 20
	// lockedBytes is how much of a log is read under write.lock, at most, unless others
	// write more than that again and again: then the last attempt reads whatever it
	// takes, because a request that is prepared for ever is stuck.
	lockedBytes = 256 << 10
)

// keyIndex finds the keys of one log, up to upTo. A key that is missing here is stored a
// second time, so the index never skips: it ends at the first line it can't read.
type keyIndex struct {
	// reading is held by whoever brings the index up to date before the lock, or writes
	// its table. That may take long, so it is waited for with a context, and never under
	// write.lock: there catchUp runs without it, and add makes that safe.
	reading sync.Mutex

	mu sync.Mutex // guards all below; held for work in memory only
	// round counts up when the index begins anew, for another log; 0 before the first
	// time.
	round     uint64
	uid       uint64
	inode     uint64
	upTo      int64              // end of what is indexed, and of a whole batch
	crc       uint32             // of that line
	tail      map[string]tailKey // nil: nothing is indexed
	table     []byte             // sorted (hash, offset) pairs of 16 bytes, for the log up to tableUpTo; never changed
	tableUpTo int64
}

// tailKey is a key after the table: where its line begins, and what it says.
type tailKey struct {
	at   int64
	seen sessionlog.KeySeen
}

// keyring finds keys in the logs.
type keyring struct {
	*process
	checks *checks
	keys   keyIndexes
}

// keyIndexes are the indexes of the sessions that were written to with keys, most
// recently used, within keyIndexBytes. mu comes before the mu of an index.
type keyIndexes struct {
	mu sync.Mutex
	m  cache.LRU[*keyIndex]
}

// get is the index of a session, made empty if there is none.
func (k *keyIndexes) get(name string) *keyIndex {
	k.mu.Lock()
	defer k.mu.Unlock()
	x, ok := k.m.Get(name)
	if !ok {
		x = &keyIndex{}
		k.m.Put(name, x, x.weight(), keyIndexBytes)
	}
	return x
}

// weigh notes how large an index has become, and so may push others out. Not if it was
// pushed out itself and another took its place.
func (k *keyIndexes) weigh(name string, x *keyIndex) {
	weight := x.weight()
	k.mu.Lock()
	defer k.mu.Unlock()
	if now, ok := k.m.Peek(name); !ok || now == x {
		k.m.Put(name, x, weight, keyIndexBytes)
	}
}

// weight is about how many bytes an index takes in memory.
func (k *keyIndex) weight() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return int64(512 + len(k.table) + 256*len(k.tail))
}

// preparedKey is what was found out about a request's key before write.lock. It holds for
// the log up to upTo, in this round of the index.
type preparedKey struct {
	index *keyIndex
	round uint64
	upTo  int64               // how far the log was looked at
	seen  *sessionlog.KeySeen // nil: it was not used up to there
}

// prepareKey brings a session's index up to the end of its log and looks the request's
// key up, before any lock is taken: the first time this may read all of the log. The
// context bounds it.
func (kr *keyring) prepareKey(ctx context.Context, f vfs.File, name, key string) (*preparedKey, error) {
	k := kr.keys.get(name)
	if !k.reading.TryLock() {
		// Another request reads the log or writes the table, perhaps for long. If little
		// is missing it can be read under the lock; no reason to wait.
		if missing, err := k.missing(f); err != nil {
			return nil, err
		} else if missing <= lockedBytes {
			return k.lookUp(f, key)
		}
		if err := lockWithin(ctx, &k.reading); err != nil {
			return nil, err
		}
	}
	defer k.reading.Unlock()
	if err := k.catchUp(kr.checks, name, f); err != nil {
		return nil, err
	}
	k.saveIfDue(kr.process, name)
	kr.keys.weigh(name, k)
	return k.lookUp(f, key)
}

// lookUp finds a key in what is indexed. A hash in the table is only a hint: the line at
// its offset says which key it is.
func (k *keyIndex) lookUp(f vfs.File, key string) (*preparedKey, error) {
	inode, err := f.Inode()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	p := &preparedKey{index: k, round: k.round, upTo: k.upTo}
	t, ok := k.tail[key]
	table := k.table
	same := k.inode == inode
	k.mu.Unlock()
	if !same {
		// The index is that of another log by now, which took this one's place: its
		// offsets lead nowhere here, and not finding the key there proves nothing
		// (TestKeysOfAnotherLog).
		return &preparedKey{index: k}, nil
	}
	if ok {
		p.seen = &t.seen
		return p, nil
	}
	for _, at := range cache.FindKey(table, key) { // more than one if hashes collide
		l, err := sessionlog.DecodeHeadAt(f, at, sessionlog.MaxLine)
		if err != nil {
			return nil, err
		}
		if l.Key == key {
			seen := l.KeySeen()
			p.seen = &seen
			break
		}
	}
	return p, nil
}

// lookupKey finds a key in a session, under write.lock; nil: it was not used. It looks in
// the order newest first: the draft of this group, the pending entries, the log.
// errUnprepared sends the request back to be prepared, with nothing stored.
func (ol *logs) lookupKey(sess *session, r *request) (*sessionlog.KeySeen, error) {
	if d := sess.draft; d != nil {
		if seen, ok := d.keys[r.key]; ok {
			return &seen, nil
		}
	}
	for _, e := range ol.pending.of(sess.name) {
		if e.keys == nil {
			e.keys = sessionlog.KeysOf(e.Lines)
		}
		if seen, ok := e.keys[r.key]; ok {
			return &seen, nil
		}
	}
	if sess.f == nil {
		return nil, nil
	}
	if p := r.prepared.key; p != nil {
		seen, err := p.index.since(ol.checks, sess, p, r)
		if err != errUnprepared || !r.prepared.last {
			return seen, err
		}
	} else if r.prepared.tries > 0 && !r.prepared.last {
		return nil, errUnprepared // there was no log when it was prepared
	}
	// Nobody prepared it, or somebody replaces the log again and again: it is read now,
	// by an index of its own, which nobody else can be holding.
	k := &keyIndex{}
	if err := k.catchUp(ol.checks, sess.name, sess.f); err != nil {
		return nil, err
	}
	p, err := k.lookUp(sess.f, r.key)
	if err != nil {
		return nil, err
	}
	return p.seen, nil
}

// since is what became of a key, under write.lock: as it was prepared, and with what the
// log got since. errUnprepared where that can't be told cheaply.
func (k *keyIndex) since(ch *checks, sess *session, p *preparedKey, r *request) (*sessionlog.KeySeen, error) {
	missing, err := k.missing(sess.f)
	if err != nil {
		return nil, err
	}
	if missing == otherLog || missing > lockedBytes && !r.prepared.last {
		return nil, errUnprepared
	}
	if missing > 0 {
		if err := k.catchUp(ch, sess.name, sess.f); err != nil {
			return nil, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round != p.round {
		return nil, errUnprepared // the log was replaced
	}
	if t, ok := k.tail[r.key]; ok {
		return &t.seen, nil
	}
	// The table was written meanwhile and took over keys that came after our look. Which
	// key a hash stands for only the log tells: look again.
	if p.seen == nil && k.tableUpTo > p.upTo && len(cache.FindKey(k.table, r.key)) > 0 {
		return nil, errUnprepared
	}
	return p.seen, nil
}

// otherLog is what is missing in the index of another log: everything.
const otherLog = math.MaxInt64

// missing is how many bytes of a log are not indexed; otherLog if the index is that of
// another file, or of this one before somebody changed it: the length and the checksum of
// the line at upTo are compared.
func (k *keyIndex) missing(f vfs.File) (int64, error) {
	inode, err := f.Inode()
	if err != nil {
		return 0, err
	}
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	same, upTo, crc := k.tail != nil && k.inode == inode && k.upTo <= size, k.upTo, k.crc
	k.mu.Unlock()
	if same && upTo > 0 {
		now, err := sessionlog.CRCBefore(f, upTo)
		if err != nil {
			return 0, err
		}
		same = now == crc
	}
	if !same {
		return otherLog, nil
	}
	return size - upTo, nil
}

// catchUp brings the index up to the end of the log, from the beginning if it is another
// log by now. On error what was read counts. Two may run at once: see add.
func (k *keyIndex) catchUp(ch *checks, name string, f vfs.File) error {
	missing, err := k.missing(f)
	if err == nil && missing == otherLog {
		err = k.begin(ch, name, f)
	}
	if err != nil || missing == 0 {
		return err
	}
	k.mu.Lock()
	from, round := k.upTo, k.round
	k.mu.Unlock()
	return k.readFrom(ch, name, f, from, round)
}

// begin starts the index of a log at its beginning, or where its table ends, if there is
// a table that fits the log. What other goroutines prepared in the old round is void.
func (k *keyIndex) begin(ch *checks, name string, f vfs.File) error {
	inode, err := f.Inode()
	if err != nil {
		return err
	}
	uid, err := sessionlog.ReadUID(f)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	table, upTo, crc := cache.LoadKeys(ch.fs, name, f, uid, size)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.round++
	k.inode, k.uid, k.upTo, k.crc = inode, uid, upTo, crc
	k.tail, k.table, k.tableUpTo = map[string]tailKey{}, table, upTo
	return nil
}

// readFrom reads what the log has after an offset and adds it to the index, batch by
// batch: an unfinished batch does not exist yet (R1), and its key is free.
func (k *keyIndex) readFrom(ch *checks, name string, f vfs.File, from int64, round uint64) error {
	sc := sessionlog.NewScanner(f, from)
	batch := map[string]tailKey{} // keys of the batch being read
	for {
		b, at, err := sc.Next()
		if errors.Is(err, sessionlog.ErrNoLine) {
			return nil
		}
		if err != nil {
			return err
		}
		l, err := sessionlog.DecodeQuick(b)
		if err != nil {
			// What comes after this line can't be looked up: a key there would be stored
			// a second time. So the session is damaged, and takes no keys
			// (TestKeysBehindDamage).
			return damageFound(ch, name, f, sessionlog.DecodeQuick, err)
		}
		if l.Key != "" {
			batch[l.Key] = tailKey{at, l.KeySeen()}
		}
		if l.Left == 0 {
			k.add(round, batch, sc.At, l.CRC)
			clear(batch)
		}
	}
}

// add indexes the keys of a batch that ends at upTo. Two goroutines may be reading the
// same lines: the second adds nothing. Nor does one that began before the log was
// replaced.
func (k *keyIndex) add(round uint64, keys map[string]tailKey, upTo int64, crc uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round != round || upTo <= k.upTo {
		return
	}
	maps.Copy(k.tail, keys)
	k.upTo, k.crc = upTo, crc
}

// damageFound is the damage of a log in which a line could not be decoded, made known to
// everybody. It checks the log from the beginning: the first damage is what counts. If
// there is none the log has changed meanwhile, and the cause is returned as it is.
func damageFound(ch *checks, name string, f vfs.File, decode func([]byte) (*sessionlog.Line, error), cause error) error {
	id, _ := sessionlog.DecodeName(name)
	_, d, err := sessionlog.Check(f, id, decode)
	if d == nil {
		return errors.Join(cause, err)
	}
	if inode, err := f.Inode(); err == nil {
		ch.foundDamage(name, inode, d)
	}
	return d
}

// saveIfDue writes the table anew when much is in memory only, or when a fresh process
// would have to read much of the log; a large table not more often than it pays. It
// is a cache: what fails here costs time later, nothing else. The caller holds
// k.reading.
func (k *keyIndex) saveIfDue(p *process, name string) {
	k.mu.Lock()
	due := len(k.tail) >= keysInMemory || len(k.tail) > 0 && k.upTo-k.tableUpTo >= max(keysBehind, int64(len(k.table)))
	k.mu.Unlock()
	if due {
		k.save(p, name)
	}
}

// save writes the table, with what is in memory. Meanwhile others may add keys.
func (k *keyIndex) save(p *process, name string) {
	k.mu.Lock()
	uid, round, upTo, crc := k.uid, k.round, k.upTo, k.crc
	pairs := make([][16]byte, 0, len(k.table)/16+len(k.tail))
	for key, t := range k.tail {
		pairs = append(pairs, cache.KeyPair(key, t.at))
	}
	old := k.table
	k.mu.Unlock()
	for ; len(old) > 0; old = old[16:] {
		pairs = append(pairs, [16]byte(old))
	}
	b := cache.EncodeKeys(uid, upTo, crc, pairs)
	_ = p.writeCache(cache.KeysDir, name, b)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round != round {
		return
	}
	k.table, k.tableUpTo = b[cache.KeysHead:], upTo
	for key, t := range k.tail {
		if t.at < upTo {
			delete(k.tail, key)
		}
	}
}
