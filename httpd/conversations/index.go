package conversations

import (
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"hansard"
)

// To list items one has to know which of them are deleted, and the event that says so
// may be anywhere after the item. To find an item by an id that a client gave it, one
// has to have read the item. The index remembers what the logs say about both, for the
// parts of a log that were requested: a list of the newest twenty reads the end of the
// log and nothing else. It is a cache: what it forgets, or what another server writes,
// is read from the log.

// maxKnown bounds the cache, in entries of about forty bytes.
const maxKnown = 1 << 20

// knownChunk is how many events are read before they are added to the index.
const knownChunk = 4096

type index struct {
	store hansard.Store
	seed  maphash.Seed
	max   int

	mu       sync.Mutex // guards all below; taken before known.mu
	sessions map[hansard.SessionID]*list.Element
	recent   *list.List // of *known, most recently used first
	entries  int        // of all of them
}

// known is what is known of one session's log: what the events in (from, to] say.
// A log is only appended to, so what is known stays true.
type known struct {
	index *index
	id    hansard.SessionID
	// looking is held by the goroutine that reads more of the log.
	looking chan struct{}
	counted int // its share of index.entries; guarded by index.mu

	mu       sync.Mutex // guards all below
	from, to hansard.Seq
	toTime   time.Time // of the event at to, to notice a log that was replaced
	deleted  map[hansard.Seq]struct{}
	ids      map[uint64]hansard.Seq   // by the hash of a given id
	twice    map[uint64][]hansard.Seq // further events with the same hash
}

func newIndex(store hansard.Store, most int) *index {
	return &index{store: store, seed: maphash.MakeSeed(), max: most,
		sessions: make(map[hansard.SessionID]*list.Element), recent: list.New()}
}

// open returns what is known of a session up to its last event, and its description.
func (x *index) open(ctx context.Context, id hansard.SessionID) (*known, hansard.Info, error) {
	info, err := x.store.Stat(ctx, id)
	if err == nil && info.Damage != nil {
		err = info.Damage
	}
	if err != nil {
		x.forget(id)
		return nil, info, err
	}
	for range 2 {
		k := x.get(id, &info)
		if _, to, toTime := k.span(); to == info.LastSeq && toTime.Equal(info.Updated) {
			return k, info, nil // without waiting for others that read further back
		}
		if err := k.lock(ctx); err != nil {
			return nil, info, err
		}
		same, err := k.forward(ctx, &info)
		k.unlock()
		if same || err != nil {
			return k, info, err
		}
		// It is not the log that was read before.
		x.forget(id)
	}
	return nil, info, errTooBusy(id)
}

// get returns what is known of a session; if nothing is, it starts at the end of the log.
func (x *index) get(id hansard.SessionID, info *hansard.Info) *known {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.sessions[id]; ok {
		k := e.Value.(*known)
		if !k.farBehind(info.LastSeq) {
			x.recent.MoveToFront(e)
			return k
		}
		x.removeLocked(e)
	}
	k := &known{index: x, id: id, looking: make(chan struct{}, 1), from: info.LastSeq, to: info.LastSeq, toTime: info.Updated,
		deleted: make(map[hansard.Seq]struct{}), ids: make(map[uint64]hansard.Seq), twice: make(map[uint64][]hansard.Seq)}
	x.sessions[id] = x.recent.PushFront(k)
	return k
}

func (x *index) forget(id hansard.SessionID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.sessions[id]; ok {
		x.removeLocked(e)
	}
}

func (x *index) removeLocked(e *list.Element) {
	k := x.recent.Remove(e).(*known)
	delete(x.sessions, k.id)
	x.entries -= k.counted
	k.counted = 0
}

// account updates the entries of a session and evicts the least recently used sessions.
// Requests that still use an evicted one keep it.
func (x *index) account(k *known, entries int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.sessions[k.id]
	if !ok || e.Value != k {
		return
	}
	const perSession = 16 // a session takes memory even without entries
	x.entries += perSession + entries - k.counted
	k.counted = perSession + entries
	for x.entries > x.max && x.recent.Len() > 1 {
		x.removeLocked(x.recent.Back())
	}
}

// farBehind reports whether it is cheaper to start over at the end.
func (k *known) farBehind(last hansard.Seq) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return last > k.to && last-k.to > max(knownChunk, k.to-k.from)
}

func (k *known) lock(ctx context.Context) error {
	select {
	case k.looking <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *known) unlock() {
	k.mu.Lock()
	entries := len(k.deleted) + len(k.ids)
	for _, more := range k.twice {
		entries += len(more)
	}
	k.mu.Unlock()
	<-k.looking
	k.index.account(k, entries)
}

// forward reads what was appended since. same is false if the log is not the one that
// was read before.
func (k *known) forward(ctx context.Context, info *hansard.Info) (same bool, err error) {
	_, to, toTime := k.span()
	if info.LastSeq < to {
		// Others may have read further since then: look at the log again.
		if *info, err = k.index.store.Stat(ctx, k.id); err != nil {
			return false, err
		}
	}
	if info.LastSeq <= to {
		return info.LastSeq == to && info.Updated.Equal(toTime), nil
	}
	r := hansard.Range{Limit: int(info.LastSeq - to)}
	if to > 0 { // read the last known event again, to compare it
		r.After, r.Limit = to-1, r.Limit+1
	}
	for e, err := range k.index.store.Read(ctx, k.id, r) {
		if err != nil {
			return false, err
		}
		if e.Seq == to {
			if !e.Time.Equal(toTime) {
				return false, nil
			}
			continue
		}
		k.add(&e)
		k.mu.Lock()
		k.to, k.toTime = e.Seq, e.Time
		k.mu.Unlock()
	}
	return true, nil
}

// cover reads back until the events past after are known.
func (k *known) cover(ctx context.Context, after hansard.Seq) error {
	for {
		if from, _, _ := k.span(); from <= after {
			return nil
		}
		if err := k.back(ctx, after); err != nil {
			return err
		}
	}
}

// back reads one more piece before the known part, but nothing up to after. Other
// goroutines get the lock between the pieces.
func (k *known) back(ctx context.Context, after hansard.Seq) error {
	if err := k.lock(ctx); err != nil {
		return err
	}
	defer k.unlock()
	from, _, _ := k.span()
	if from <= after {
		return nil
	}
	begin := max(after, from-min(from, knownChunk))
	for e, err := range k.index.store.Read(ctx, k.id, hansard.Range{After: begin, Limit: int(from - begin)}) {
		if err != nil {
			return err
		}
		k.add(&e)
	}
	k.mu.Lock()
	k.from = begin
	k.mu.Unlock()
	return nil
}

func (k *known) span() (from, to hansard.Seq, toTime time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.from, k.to, k.toTime
}

// add takes in what one event says.
func (k *known) add(e *hansard.Event) {
	if e.Kind == kindDeleted {
		var t tombstone
		if json.Unmarshal(e.Data, &t) == nil && t.Seq > 0 && t.Seq < e.Seq {
			k.mu.Lock()
			k.deleted[t.Seq] = struct{}{}
			k.mu.Unlock()
		}
		return
	}
	// Most events have no id; this check is ten times as fast as parsing.
	if !bytes.Contains(e.Data, []byte(`"id"`)) && !bytes.Contains(e.Data, []byte(`\u00`)) {
		return
	}
	s, ok := shapeOf(e)
	if !ok || s.given == "" {
		return
	}
	hash := maphash.String(k.index.seed, s.given)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch first, there := k.ids[hash]; {
	case !there:
		k.ids[hash] = e.Seq
	case first != e.Seq && !slices.Contains(k.twice[hash], e.Seq):
		k.twice[hash] = append(k.twice[hash], e.Seq)
	}
}

func (k *known) isDeleted(seq hansard.Seq) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, deleted := k.deleted[seq]
	return deleted
}

// places are the known events that may have this id in their data, newest first: live ones,
// and deleted ones.
func (k *known) places(itemID string) (live, deleted []hansard.Seq) {
	hash := maphash.String(k.index.seed, itemID)
	k.mu.Lock()
	defer k.mu.Unlock()
	first, there := k.ids[hash]
	if !there {
		return nil, nil
	}
	all := append([]hansard.Seq{first}, k.twice[hash]...)
	slices.Sort(all)
	slices.Reverse(all)
	for _, seq := range all {
		if _, gone := k.deleted[seq]; gone {
			deleted = append(deleted, seq)
		} else {
			live = append(live, seq)
		}
	}
	return live, deleted
}
