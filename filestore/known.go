package filestore

import (
	"slices"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/runs"
	"hansard/filestore/internal/sessionlog"
)

// What a session knows of the names in a request, under write.lock: the key of the batch
// and the ids of its events. A name is in the log, in an entry that has not reached the log
// yet, or in the draft of this group, and never in two of them, because it was looked up
// here before it was written.

// names are those that a request has to look up: its key, and the ids of its events in their
// order. They are hashed once, by the caller, who prepares the request.
func (r *request) names() []sought {
	if len(r.sought) > 0 || r.key == "" && r.named == nil {
		return r.sought
	}
	r.sought = slices.Grow(r.sought, 1+len(r.named))
	if r.key != "" {
		r.sought = append(r.sought, seek(keyName(r.key)))
	}
	for i := range r.named {
		if id := r.named[i].ID; id != "" {
			r.sought = append(r.sought, seek(idName(id)))
		}
	}
	return r.sought
}

// knownNames says which names a session has.
type knownNames struct {
	draft   *draft
	pending []*pendingEntry
	log     map[runs.Name]nameSeen
	err     error // of a look at an event, which then counts as unknown
}

// lookupNames finds what a session has under the names of a request, under write.lock.
// errUnprepared sends the request back to be prepared, with nothing stored.
func (ol *logs) lookupNames(sess *session, r *request) (k knownNames, err error) {
	k.draft, k.pending = sess.draft, ol.pending.of(sess.name)
	for _, e := range k.pending {
		if e.names == nil {
			e.names = sessionlog.NamesOf(e.Lines)
		}
	}
	k.log, err = ol.lookupInLog(sess, r)
	return k, err
}

// key is where a key was used, newest first; nil: it was not.
func (k *knownNames) key(key string) *sessionlog.KeySeen {
	if k.draft != nil {
		if seen, ok := k.draft.keys[key]; ok {
			return &seen
		}
	}
	for _, e := range k.pending {
		if seen, ok := e.names.Keys[key]; ok {
			return &seen
		}
	}
	if seen, ok := k.log[keyName(key)]; ok {
		return &seen.key
	}
	return nil
}

// event is what the session has under an event's id.
func (k *knownNames) event(id string) (engine.Known, bool) {
	if k.draft != nil {
		if d := k.draft.event(id); d != nil {
			return d.known(), true
		}
	}
	for _, entry := range k.pending {
		line, ok := entry.names.IDs[id]
		if !ok {
			continue
		}
		l, err := sessionlog.Decode(line)
		if err != nil {
			k.err = err
			return engine.Known{}, false
		}
		e := l.Event()
		return engine.KnownEvent(&e), true
	}
	seen, ok := k.log[idName(id)]
	return seen.event, ok
}

// sift decides what of a request's events is new to the session.
func (k *knownNames) sift(r *request) (engine.Sifted, error) {
	known := k.event
	if (k.draft == nil || len(k.draft.batches)+len(k.draft.ids) == 0) && len(k.pending) == 0 && len(k.log) == 0 {
		known = nil // as usual: nothing has to be looked up for each event
	}
	sifted, err := engine.Sift(r.id, r.named, engine.PatchHash(r.patch), known)
	if k.err != nil {
		err = k.err
	}
	return sifted, err
}

// draftBatch is a batch with ids in a draft: those of its events that are stored, in lines
// from first on. The patch, if it is stored, is on the last.
type draftBatch struct {
	named []engine.Named // of the request, which is in the same group
	fresh []int
	first hansard.Seq
	patch *hansard.Patch
}

// draftID is an event with an id in a draft.
type draftID struct {
	seq   hansard.Seq
	named *engine.Named
	patch *hansard.Patch
	// redacted: it came without its content, by an import.
	redacted bool
}

func (d *draftID) known() engine.Known {
	if d.redacted {
		return engine.Known{Seq: d.seq, Patch: engine.PatchHash(d.patch), Redacted: true}
	}
	return engine.Known{Seq: d.seq, Content: d.named.Content(), Patch: engine.PatchHash(d.patch)}
}

// rememberPart notes the names of an import, for the requests of its group that come
// after. Where its lines begin is not written down: the index of the log reads them.
func (d *draft) rememberPart(r *request) {
	d.unlisted = true
	for _, k := range r.part.Keys {
		d.addKey(k.Key, sessionlog.KeySeen{Hash: k.Hash, First: k.First, Last: k.Last})
	}
	for i := range r.named {
		e := &r.part.Events[i]
		if r.named[i].ID != "" {
			d.addID(draftID{seq: e.Seq, named: &r.named[i], patch: e.Patch, redacted: e.Redacted})
		}
	}
}

func (d *draft) addKey(key string, seen sessionlog.KeySeen) {
	if d.keys == nil {
		d.keys = map[string]sessionlog.KeySeen{}
	}
	d.keys[key] = seen
}

// event is the event with an id in this draft; nil: there is none. Most drafts have one
// request and are never asked, so the map is made only when it is needed.
func (d *draft) event(id string) *draftID {
	for _, b := range d.batches {
		for n, i := range b.fresh {
			e := draftID{seq: b.first + hansard.Seq(n), named: &b.named[i]}
			if n == len(b.fresh)-1 {
				e.patch = b.patch
			}
			if e.named.ID != "" {
				d.addID(e)
			}
		}
	}
	d.batches = nil
	if i, ok := d.byID[id]; ok {
		return &d.ids[i]
	}
	return nil
}

func (d *draft) addID(e draftID) {
	if d.byID == nil {
		d.byID = map[string]int{}
	}
	d.byID[e.named.ID] = len(d.ids)
	d.ids = append(d.ids, e)
}

// place records, for the index, the offset at which a name's line begins. The name is one
// of those that were looked up, which are in order; the rest is what follows it.
func (d *draft) place(names []sought, name runs.Name, at int64) (rest []sought) {
	for names[0].Name != name {
		names = names[1:]
	}
	d.names = append(d.names, runs.Pair{Hash: names[0].hash, At: at})
	return names[1:]
}

// appended is a stretch of a log that a group wrote, and the names in it.
type appended struct {
	name        string
	inode, uid  uint64
	from, upTo  int64
	before, crc uint32 // of the lines that end at from and at upTo
	names       []runs.Pair
}

// appendedTo is what the group adds to a session, for the index of its log; nil if the
// index has to read it from the log.
func (d *draft) appendedTo(sess *session) *appended {
	if d.unlisted || sess.f == nil {
		return nil
	}
	return &appended{name: sess.name, inode: sess.inode, uid: sess.uid, from: d.off, upTo: sess.end, before: d.lprev, crc: sess.crc, names: d.names}
}
