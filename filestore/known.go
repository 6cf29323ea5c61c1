package filestore

import (
	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/runs"
	"hansard/filestore/internal/sessionlog"
)

// What a session knows of the names in a request, under write.lock: the key of the batch
// and the ids of its events. A name stands in the log, in an entry that is not in the log
// yet, or in the draft of this group; nowhere twice, because it was looked up here before
// it was written.

// names are those that a request has to look up.
func (r *request) names() []runs.Name {
	if r.key == "" && r.named == nil {
		return nil
	}
	names := make([]runs.Name, 0, 1+len(r.named))
	if r.key != "" {
		names = append(names, keyName(r.key))
	}
	for _, n := range r.named {
		if n.ID != "" {
			names = append(names, idName(n.ID))
		}
	}
	return names
}

// knownNames answers which names a session has.
type knownNames struct {
	draft   *draft
	pending []*pendingEntry
	log     map[runs.Name]nameSeen
	err     error // of a look at an event, which then counts as unknown
}

// lookupNames finds what a session has under the names of a request, under write.lock.
// errUnprepared sends the request back to be prepared, with nothing stored.
func (ol *logs) lookupNames(sess *session, r *request) (*knownNames, error) {
	k := &knownNames{draft: sess.draft, pending: ol.pending.of(sess.name)}
	for _, e := range k.pending {
		if e.names == nil {
			e.names = sessionlog.NamesOf(e.Lines)
		}
	}
	var err error
	k.log, err = ol.lookupInLog(sess, r)
	return k, err
}

// key is where a key was used, newest first; nil: it was not.
func (k *knownNames) key(key string) *sessionlog.KeySeen {
	if k.draft != nil {
		if t, ok := k.draft.keys[key]; ok {
			return &t.key
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
		if d, ok := k.draft.ids[id]; ok {
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
	sifted, err := engine.Sift(r.id, r.named, engine.PatchHash(r.patch), k.event)
	if k.err != nil {
		err = k.err
	}
	return sifted, err
}

// draftID is an event with an id in a draft: where its line begins, and what it is.
type draftID struct {
	at    int64
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
		d.addKey(k.Key, tailName{key: sessionlog.KeySeen{Hash: k.Hash, First: k.First, Last: k.Last}})
	}
	for i := range r.named {
		e := &r.part.Events[i]
		d.addID(draftID{seq: e.Seq, named: &r.named[i], patch: e.Patch, redacted: e.Redacted})
	}
}

func (d *draft) addKey(key string, t tailName) {
	if d.keys == nil {
		d.keys = map[string]tailName{}
	}
	d.keys[key] = t
}

func (d *draft) addID(id draftID) {
	if id.named.ID == "" {
		return
	}
	if d.ids == nil {
		d.ids = map[string]draftID{}
	}
	d.ids[id.named.ID] = id
}

// appended is a stretch of a log that a group wrote, and the names in it.
type appended struct {
	name        string
	inode, uid  uint64
	from, upTo  int64
	before, crc uint32 // of the lines that end at from and at upTo
	draft       *draft
}

// appendedTo is what the group adds to a session, for the index of its log; nil if that
// has to read it.
func (d *draft) appendedTo(sess *session) *appended {
	if d.unlisted || sess.f == nil {
		return nil
	}
	return &appended{name: sess.name, inode: sess.inode, uid: sess.uid, from: d.off, upTo: sess.end, before: d.lprev, crc: sess.crc, draft: d}
}
