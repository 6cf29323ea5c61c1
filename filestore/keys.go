package filestore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/runs"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Idempotency keys and the ids of events live in the log, for the life of the session: a
// retry is recognised however late it comes (failure 36). To find such a name without
// reading the log there is an index beside it, derived like everything in cache/: sorted runs of hashes
// for the beginning of the log, in cache/keys (package runs), and the same in memory for the
// rest (tailNames).
//
//	log     |---------------|--------|---|-----------------|------> grows
//	        0     run          run   run        tail      upTo
//
// Runs are not kept in memory: a look reads about one page of each, and there are few. So
// neither the time nor the memory that a session takes grows with its names.
//
// Before write.lock is taken the index is brought up to the end of the log and the names
// are looked up; under the lock only what the log got since is read. If that is much, the
// request is prepared again: nobody waits for somebody else's reading (failure 60).
//
// The index answers for the log only. lookupNames looks at what is pending, or in the group
// being planned.

const (
	// namesInMemory is how many names are kept in memory before a run is written, and
	// namesBehind how many bytes of log the runs may be behind: a fresh process reads the
	// log from where they end. The run is written in the background (runsdue.go); with
	// twice as much the next append writes it. A process that has to read more than
	// namesRead writes a run, so that the next one does not, and so does one that has not
	// written one of that much for half a minute. Reading a long log writes a run for every
	// namesAtOnce.
	namesInMemory = 8192
	namesBehind   = 8 << 20
	namesRead     = 256 << 10
	namesAtOnce   = 16 << 10
	// keyIndexBytes is what all indexes may take in memory.
	keyIndexBytes = 64 << 20
	// lockedBytes is how much of a log is read under write.lock, at most, unless others
	// write more than that again and again: then the last attempt reads whatever it takes:
	// a request that was prepared again for ever would be stuck.
	lockedBytes = 256 << 10
)

// keyIndex finds the names of one log, up to upTo. A name that is missing here is stored a
// second time, so the index never skips: it ends at the first line it can't read.
type keyIndex struct {
	// reading is held by whoever brings the index up to date before the lock, or writes
	// a run. That may take long, so it is waited for with a context, and never under
	// write.lock: there catchUp runs without it, and add makes that safe.
	reading sync.Mutex
	// only, if not nil, are the hashes of the names that one request asks for, for which
	// this index was made: no others are kept, and no run is written.
	only map[uint64]bool

	mu sync.Mutex // guards all below; held for work in memory only
	// round counts up when the index begins anew, for another log or because a run is
	// lost; 0 before the first time.
	round uint64
	uid   uint64
	inode uint64
	upTo  int64       // end of what is indexed, and of a whole batch
	crc   uint32      // of that line
	tail  *tailNames  // nil: nothing is indexed
	runs  []*runs.Run // for the log up to where they end; replaced, never changed
	// filter has the names of the tail, and of the runs from an offset on. looks counts the
	// names that were looked up in runs that it does not have.
	filter nameFilter
	looks  int
	// patience is how far the log has to grow before a run is written again, after that
	// failed.
	patience int64
	rests    bool  // a run is due although there is little to write: see resting
	weighed  int64 // its weight as keyIndexes has it
}

// keyring finds names in the logs.
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
		k.m.Put(name, x, 512, keyIndexBytes)
	}
	return x
}

// weigh records how large an index has become, which may push others out. It does nothing
// if the index was pushed out itself and another took its place.
func (k *keyIndexes) weigh(name string, x *keyIndex) {
	x.mu.Lock()
	weight := x.weight()
	x.weighed = weight
	x.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if now, ok := k.m.Peek(name); !ok || now == x {
		k.m.Put(name, x, weight, keyIndexBytes)
	}
}

// weight is about how many bytes an index takes in memory. The caller holds mu.
func (k *keyIndex) weight() int64 {
	w := 512 + k.tail.weight() + k.filter.bits.Weight()
	for _, r := range k.runs {
		w += r.Weight()
	}
	return w
}

// resting are the sessions whose log is so far ahead of its runs that a fresh process would
// have much to read, and makes a run due for them. It is asked now and then: while names
// arrive, runs are written when there are enough.
func (k *keyIndexes) resting() (names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, x := range k.m.All() {
		x.mu.Lock()
		end, _ := runs.End(x.runs)
		if x.rests = x.only == nil && x.uid != 0 && x.tail.len() > 0 && x.upTo-end >= namesRead && x.upTo >= x.patience; x.rests {
			names = append(names, name)
		}
		x.mu.Unlock()
	}
	return names
}

// preparedNames is what was found out about a request's names before write.lock. It holds
// for the log up to upTo, in this round of the index.
type preparedNames struct {
	index *keyIndex
	round uint64
	upTo  int64                  // how far the log was looked at
	seen  map[runs.Name]nameSeen // those that were used up to there; nil: none
}

// found notes a name that was used.
func (p *preparedNames) found(n runs.Name, seen nameSeen) {
	if p.seen == nil {
		p.seen = map[runs.Name]nameSeen{}
	}
	p.seen[n] = seen
}

// prepareNames brings a session's index up to the end of its log and looks the request's
// names up, before any lock is taken: the first time this may read all of the log. The
// context bounds it.
func (kr *keyring) prepareNames(ctx context.Context, f vfs.File, name string, names []sought) (*preparedNames, error) {
	k := kr.keys.get(name)
	if !k.reading.TryLock() {
		// Another request reads the log or writes a run, perhaps for long. If little
		// is missing it can be read under the lock; no reason to wait.
		if missing, err := k.missing(f); err != nil {
			return nil, err
		} else if missing <= lockedBytes {
			if p, err := k.lookUp(kr.checks, name, f, names); err != errRuns {
				return p, err
			}
		}
		if err := lockWithin(ctx, &k.reading); err != nil {
			return nil, err
		}
	}
	defer k.reading.Unlock()
	p, err := k.find(kr.checks, name, f, names)
	kr.keys.weigh(name, k)
	return p, err
}

// used tells whether any session has an index.
func (kr *keyring) used() bool {
	kr.keys.mu.Lock()
	defer kr.keys.mu.Unlock()
	return kr.keys.m.Len() > 0
}

// absent finds out from the index alone that a session has none of some names. Not ok: the
// log has to be looked at, or the caller has to write a run. due: a run has to be written,
// but that may happen in the background. Names that the filters do not rule out are looked
// up in the runs: one in a few dozen batches of ten new names needs that.
func (kr *keyring) absent(name string, names []sought) (p *preparedNames, ok, due bool) {
	kr.keys.mu.Lock()
	k, ok := kr.keys.m.Get(name)
	kr.keys.mu.Unlock()
	if !ok {
		return nil, false, false
	}
	var room, more [32]uint64
	k.mu.Lock()
	due = k.due(kr.process, 1, math.MaxInt64) || k.wantsFilter()
	if k.tail == nil || due && (kr.cfg.inline || k.overdue(kr.process)) {
		k.mu.Unlock()
		return nil, false, due
	}
	maybe := k.filter.bits.Keep(hashesOf(names, room[:0]))
	if k.tail.hasAny(maybe) {
		k.mu.Unlock()
		return nil, false, due
	}
	p, rs, uid, from := &preparedNames{index: k, round: k.round, upTo: k.upTo}, k.runs, k.uid, k.filter.from
	k.looked(len(names))
	k.mu.Unlock()
	for _, r := range rs {
		left := maybe
		if r.From < from { // the filter does not have its names
			left = hashesOf(names, more[:0])
		}
		if len(left) == 0 {
			continue
		}
		slices.Sort(left)
		if err := kr.runsOf(name, uid).Find(r, left, func(int, int64) { ok = false }); err != nil || !ok {
			return nil, false, due
		}
	}
	return p, true, due
}

// hashesOf appends the hashes of names.
func hashesOf(names []sought, to []uint64) []uint64 {
	for i := range names {
		to = append(to, names[i].hash)
	}
	return to
}

// added adds what this process has appended to a log to its index, if there is one, so that
// it need not be read again. It does nothing if another process has appended before.
func (kr *keyring) added(a *appended) {
	kr.keys.mu.Lock()
	k, ok := kr.keys.m.Peek(a.name)
	kr.keys.mu.Unlock()
	if !ok {
		return
	}
	if k.append(a) {
		kr.keys.weigh(a.name, k)
	}
}

// append adds what a group has appended to the log, if the index ends where that begins. It
// returns whether the index takes more memory now and has to be weighed again.
func (k *keyIndex) append(a *appended) (grown bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.tail == nil || k.inode != a.inode || k.uid != a.uid || k.upTo != a.from || k.crc != a.before {
		return false
	}
	for _, p := range a.names {
		k.put(p)
	}
	k.upTo, k.crc = a.upTo, a.crc
	return k.weight() > k.weighed
}

// find returns what a log has under one name, up to its end as it is now: nothing in it if
// there is no such name. Nil: the log was replaced meanwhile, and nothing is known.
func (kr *keyring) find(ctx context.Context, f vfs.File, name string, wanted sought) (*nameSeen, error) {
	k := kr.keys.get(name)
	f = bounded(ctx, f)
	if err := lockWithin(ctx, &k.reading); err != nil {
		return nil, err
	}
	defer k.reading.Unlock()
	p, err := k.find(kr.checks, name, f, []sought{wanted})
	kr.keys.weigh(name, k)
	if err != nil || p.round == 0 {
		return nil, err
	}
	seen := p.seen[wanted.Name]
	return &seen, nil
}

// runsTries is how often runs that others replace, or that are damaged, are looked for
// again before the log is read without them.
const runsTries = 4

// find brings the index up to the end of the log and looks names up in it. The caller
// holds k.reading, or is the only one who knows this index.
func (k *keyIndex) find(ch *checks, name string, f vfs.File, names []sought) (*preparedNames, error) {
	for try := 1; ; try++ {
		err := k.catchUp(ch, name, f, try < runsTries)
		if err != nil {
			return nil, err
		}
		p, err := k.lookUp(ch, name, f, names)
		if err != errRuns {
			return p, err
		}
		again := try < runsTries-1
		if err := k.load(ch, name, f, again, again); err != nil {
			return nil, err
		}
	}
}

// errRuns: the runs are not as they were, and the index has to be loaded again. It never
// leaves this file.
var errRuns = errors.New("the runs were replaced, or are damaged")

// lookUp finds names in what is indexed, without write.lock.
func (k *keyIndex) lookUp(ch *checks, name string, f vfs.File, names []sought) (*preparedNames, error) {
	inode, err := f.Inode()
	if err != nil {
		return nil, err
	}
	p := &preparedNames{index: k}
	k.mu.Lock()
	if k.inode != inode {
		// The index is that of another log by now, which took this one's place: its
		// offsets lead nowhere here, and not finding a name there proves nothing
		// (TestKeysOfAnotherLog).
		k.mu.Unlock()
		return p, nil
	}
	p.round, p.upTo = k.round, k.upTo
	tail := k.linesOf(names, 0)
	rs, x, from := k.runs, ch.runsOf(name, k.uid), k.filter.from
	k.looked(len(names))
	filtered := make([]bool, len(names)) // what the filter shows not to be there
	for i := range names {
		filtered[i] = !k.filter.bits.Has(names[i].hash)
	}
	k.mu.Unlock()
	var left, maybe []sought
	for i, n := range names {
		seen, ok, err := seenIn(f, n, tail[i])
		if err != nil {
			return nil, err
		}
		if ok {
			p.found(n.Name, seen)
			continue
		}
		if left = append(left, n); !filtered[i] {
			maybe = append(maybe, n)
		}
	}
	// In the order of their hashes: those in one page of a run are found with one read.
	inOrder := func(a, b sought) int { return cmp.Compare(a.hash, b.hash) }
	slices.SortFunc(left, inOrder)
	slices.SortFunc(maybe, inOrder)
	for _, r := range rs {
		some := maybe
		if r.From < from { // the filter does not have its names
			some = left
		}
		if err := p.lookInRun(x, r, f, some); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// lookInRun finds names in a run. A hash is only a hint: the line at its offset says which
// names it has. A run that can't be read or that leads to no line is not believed, and is
// removed: if it is the log that is damaged, reading it will show that.
func (p *preparedNames) lookInRun(x runs.Index, r *runs.Run, f vfs.File, names []sought) error {
	type hint struct {
		name runs.Name
		at   int64
	}
	var hints []hint
	hashes := make([]uint64, len(names))
	for i, n := range names {
		hashes[i] = n.hash
	}
	wrong := x.Find(r, hashes, func(i int, at int64) { hints = append(hints, hint{names[i].Name, at}) })
	for _, h := range hints {
		if wrong == nil && (h.at < r.From || h.at >= r.UpTo) {
			wrong = sessionlog.ErrNoLine
		}
		if wrong != nil {
			break
		}
		seen, ok, err := seenAt(f, h.name, h.at)
		switch {
		case ok:
			p.found(h.name, seen)
		case errors.Is(err, sessionlog.ErrNoLine), errors.Is(err, hansard.ErrDamaged):
			wrong = err
		case err != nil:
			return err
		}
	}
	if wrong == nil {
		return nil
	}
	if !errors.Is(wrong, runs.ErrChanged) {
		x.Remove(r)
	}
	return errRuns
}

// runsOf is where the runs of a log are.
func (p *process) runsOf(name string, uid uint64) runs.Index {
	return runs.Index{FS: p.fs, Path: cache.KeysDir + "/" + name, UID: uid}
}

// lookupInLog finds which names of a request the log of a session has, under write.lock.
func (ol *logs) lookupInLog(sess *session, r *request) (map[runs.Name]nameSeen, error) {
	if sess.f == nil {
		return nil, nil
	}
	if p := r.prepared.names; p != nil {
		seen, err := p.index.since(ol.checks, sess, p, r)
		if err != errUnprepared || !r.prepared.last {
			return seen, err
		}
	} else if r.prepared.tries > 0 && !r.prepared.last {
		return nil, errUnprepared // there was no log when it was prepared
	}
	// Nobody prepared it, or the log is replaced again and again: it is read now, into an
	// index of its own, which nobody else can hold.
	k, names := &keyIndex{only: map[uint64]bool{}}, r.names()
	for _, n := range names {
		k.only[n.hash] = true
	}
	p, err := k.find(ol.checks, sess.name, sess.f, names)
	if err != nil {
		return nil, err
	}
	return p.seen, nil
}

// since returns what the log has under a request's names, under write.lock: what was
// prepared, and what the log got since. errUnprepared if that can't be found out cheaply.
func (k *keyIndex) since(ch *checks, sess *session, p *preparedNames, r *request) (map[runs.Name]nameSeen, error) {
	missing, err := int64(0), error(nil)
	if !k.covers(sess) {
		missing, err = k.missing(sess.f)
	}
	if err != nil {
		return nil, err
	}
	if missing == otherLog || missing > lockedBytes && !r.prepared.last {
		return nil, errUnprepared
	}
	if missing > 0 {
		if err := k.catchUp(ch, sess.name, sess.f, false); err != nil {
			return nil, err
		}
	}
	names := r.names()
	added, upTo, err := k.addedSince(p, names)
	for i, lines := range added {
		if len(lines) == 0 {
			continue
		}
		// Read from the log, under the lock: no more than came since the look.
		if upTo-p.upTo > lockedBytes && !r.prepared.last {
			return nil, errUnprepared
		}
		seen, ok, err := seenIn(sess.f, names[i], lines)
		if err != nil {
			return nil, err
		}
		if ok {
			p.found(names[i].Name, seen)
		}
	}
	return p.seen, err
}

// addedSince returns, for each of some names, the lines with its hash that the log got
// since it was looked at; nil if it got nothing. The index goes up to upTo.
func (k *keyIndex) addedSince(p *preparedNames, names []sought) (lines [][]int64, upTo int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round != p.round {
		return nil, 0, errUnprepared // the log was replaced
	}
	// A run was written meanwhile, and may have taken over names that came after our
	// look. No file is opened under the lock: look again.
	if end, _ := runs.End(k.runs); end > p.upTo {
		return nil, 0, errUnprepared
	}
	if k.upTo == p.upTo {
		return nil, k.upTo, nil
	}
	return k.linesOf(names, p.upTo), k.upTo, nil
}

// covers tells whether the index has all of a log that this process knows the end of,
// without asking the disk. The caller holds write.lock, and has looked at the log.
func (k *keyIndex) covers(sess *session) bool {
	end, crc := sess.end, sess.crc
	if d := sess.draft; d != nil {
		end, crc = d.off, d.lprev
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tail != nil && k.inode == sess.inode && k.uid == sess.uid && k.upTo == end && k.crc == crc
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
	// One that was begun before the log had its header does not know the log's uid.
	same = same && (k.uid != 0 || upTo == 0)
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
// log by now. On error what was read counts. Two may run at once: see add. With save, which
// needs k.reading, runs that are due are written.
func (k *keyIndex) catchUp(ch *checks, name string, f vfs.File, save bool) error {
	for {
		missing, err := k.missing(f)
		if err == nil && missing == otherLog {
			err = k.load(ch, name, f, false, true)
		}
		if err != nil {
			return err
		}
		k.mu.Lock()
		from, round := k.upTo, k.round
		end, _ := runs.End(k.runs)
		k.mu.Unlock()
		if missing > 0 {
			err = k.readFrom(ch, name, f, from, round, save)
		}
		if err != nil || !save {
			return err
		}
		if from > end {
			from = math.MaxInt64 // all but the end of what follows the runs was in memory
		}
		if !k.isDue(ch.process, 1, from) {
			k.refilter(ch.process, name)
			return nil
		}
		// Others may have written runs: then there is less to write, or nothing.
		if err := k.load(ch, name, f, true, true); err != nil {
			return err
		}
		if k.isDue(ch.process, 1, from) {
			k.save(ch.process, name)
		}
	}
}

// load begins the index of a log, or continues it if it is known to be the same log
// (again): from where its runs end, if runs are used and fit the log. If they end earlier
// than those that were known, names are lost, and the log is read from there. What other
// goroutines prepared before that is void.
func (k *keyIndex) load(ch *checks, name string, f vfs.File, again, use bool) error {
	k.mu.Lock()
	round := k.round
	k.mu.Unlock()
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
	var rs []*runs.Run
	if use {
		rs = ch.runsOf(name, uid).Load(size, func(upTo int64, crc uint32) bool {
			got, failed := sessionlog.CRCBefore(f, upTo)
			if upTo >= int64(sessionlog.SuffixWidth) { // no line ends before that, which is no failure of reading
				err = cmp.Or(err, failed)
			}
			return failed == nil && got == crc
		})
	}
	if err != nil {
		return err // nothing can be said about the runs
	}
	upTo, crc := runs.End(rs)
	k.mu.Lock()
	defer k.mu.Unlock()
	if again && (k.round != round || k.inode != inode || k.uid != uid) {
		return nil // it was begun anew, perhaps for another log
	}
	if known, _ := runs.End(k.runs); !again || upTo < known {
		k.round++
		k.inode, k.uid, k.upTo, k.crc, k.patience = inode, uid, upTo, crc, 0
		k.tail, k.filter, k.looks = &tailNames{}, newNameFilter(upTo, fewNames), 0
	}
	k.use(rs)
	return nil
}

// use makes the index continue with these runs, which cover as much of the log as those
// before, or more. The caller holds mu.
func (k *keyIndex) use(rs []*runs.Run) {
	before, _ := runs.End(k.runs)
	upTo, crc := runs.End(rs)
	if k.runs = rs; upTo > k.upTo { // with names that were not read here
		k.upTo, k.crc = upTo, crc
		k.filter = newNameFilter(upTo, fewNames)
	}
	if upTo > before {
		k.rests = false
		k.tail.keepFrom(upTo)
	}
}

// readFrom reads what the log has after an offset and adds it to the index, batch by
// batch: an unfinished batch does not exist yet (R1), and its names are free.
func (k *keyIndex) readFrom(ch *checks, name string, f vfs.File, from int64, round uint64, save bool) error {
	sc := sessionlog.NewScanner(f, from)
	var d sessionlog.Decoder
	var batch []runs.Pair // names of the batch being read
	for {
		b, at, err := sc.Next()
		if errors.Is(err, sessionlog.ErrNoLine) {
			return nil
		}
		if err != nil {
			return err
		}
		l, err := d.Head(b)
		if err != nil {
			// What comes after this line can't be looked up: a key there would be stored
			// a second time. So the session is damaged, and takes no keys
			// (TestKeysBehindDamage).
			return damageFound(ch, name, f, d.Head, err)
		}
		for _, n := range namesOf(l) {
			if hash := n.Hash(); k.only == nil || k.only[hash] {
				batch = append(batch, runs.Pair{Hash: hash, At: at})
			}
		}
		if l.Left == 0 {
			k.add(round, batch, sc.At, l.CRC)
			batch = batch[:0]
			if save && k.isDue(ch.process, namesAtOnce/namesInMemory, 0) {
				k.save(ch.process, name)
			}
		}
	}
}

// add indexes the names of a batch that ends at upTo. Two goroutines may be reading the
// same lines: the second adds nothing. Nor does one that began before the log was
// replaced.
func (k *keyIndex) add(round uint64, names []runs.Pair, upTo int64, crc uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round != round || upTo <= k.upTo {
		return
	}
	for _, p := range names {
		k.put(p)
	}
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

// due tells whether a run has to be written: because many names are in memory only, or
// because much of the log was read, from an offset on, by a caller that had none of what
// follows the runs in memory, so that the next process would have to read it, too. For a
// caller that goes on reading times is more than 1: then a run is due only for that many
// times as many names. The caller holds mu.
func (k *keyIndex) due(p *process, times int, from int64) bool {
	end, _ := runs.End(k.runs)
	return k.only == nil && k.uid != 0 && k.upTo > end && k.upTo >= k.patience &&
		(k.tail.len() >= times*p.namesInMemory() || times == 1 && (k.rests || k.upTo-end >= namesBehind || k.upTo-from >= namesRead))
}

// overdue tells whether so much is in memory only that an append has to write the run
// itself: in the background other sessions may come first. The caller holds mu.
func (k *keyIndex) overdue(p *process) bool {
	end, _ := runs.End(k.runs)
	return k.tail.len() >= 2*p.namesInMemory() || k.upTo-end >= 2*namesBehind
}

// isDue is due for a caller that does not hold mu.
func (k *keyIndex) isDue(p *process, times int, from int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.due(p, times, from)
}

// namesInMemory is how many names are kept before a run is written.
func (p *process) namesInMemory() int { return cmp.Or(p.cfg.names, namesInMemory) }

// save writes a run of the names in memory. Others may add names meanwhile. It is a cache:
// what fails here costs time and memory later, nothing else. The caller holds k.reading.
func (k *keyIndex) save(p *process, name string) {
	k.mu.Lock()
	x, round, upTo, crc, rs := p.runsOf(name, k.uid), k.round, k.upTo, k.crc, k.runs
	pairs := slices.Clone(k.tail.pairs)
	k.mu.Unlock()
	rs, err := x.Add(rs, pairs, upTo, crc, p.putRun)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.round != round:
	case errors.Is(err, runs.ErrChanged): // somebody else writes one; see what there is then
		k.patience = upTo + 1
	case err != nil:
		k.patience = upTo + namesBehind
	default:
		k.use(rs)
	}
}
