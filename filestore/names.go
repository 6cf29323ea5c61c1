package filestore

import (
	"slices"

	"hansard/engine"
	"hansard/filestore/internal/runs"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// keyName and idName are the two kinds of names: a batch's key, and an event's id.
func keyName(key string) runs.Name { return runs.Name{Kind: 'k', Text: key} }
func idName(id string) runs.Name   { return runs.Name{Kind: 'i', Text: id} }

// sought is a name that is looked up, with its hash, which is made once: the tail, the
// filters and the runs need it, and so does the index when the name is stored.
type sought struct {
	runs.Name
	hash uint64
}

func seek(n runs.Name) sought { return sought{n, n.Hash()} }

// namesOf are the names that a line is found by.
func namesOf(l *sessionlog.Line) (names []runs.Name) {
	if l.Key != "" {
		names = append(names, keyName(l.Key))
	}
	if l.ID != "" && l.Seq > 0 {
		names = append(names, idName(l.ID))
	}
	return names
}

// nameSeen is what a log has under a name: the one or the other, by its kind.
type nameSeen struct {
	at    int64 // where the line begins
	key   sessionlog.KeySeen
	event engine.Known
}

// lineAt reads the line at an offset, as much of it as tells what is under a name: an event
// is compared by its content, a key by its hash, which stands before it.
func lineAt(f vfs.File, kind byte, at int64) (*sessionlog.Line, error) {
	if kind == 'k' {
		return sessionlog.DecodeHeadAt(f, at, sessionlog.MaxLine)
	}
	return sessionlog.DecodeAt(f, at)
}

// seenAt reads what a log has under a name at an offset; not ok: another name is there.
func seenAt(f vfs.File, name runs.Name, at int64) (seen nameSeen, ok bool, err error) {
	l, err := lineAt(f, name.Kind, at)
	if err != nil || !slices.Contains(namesOf(l), name) {
		return nameSeen{}, false, err
	}
	seen = nameSeen{at: at}
	if name.Kind == 'k' {
		seen.key = l.KeySeen()
	} else {
		e := l.Event()
		seen.event = engine.KnownEvent(&e)
	}
	return seen, true, nil
}

// seenIn reads what a log has under a name, of which these are the lines with its hash; not
// ok: they have other names, which collide with it. A line that has no name with this hash
// is not the one that was indexed: that is damage, because the name may have been there.
func seenIn(f vfs.File, name sought, lines []int64) (seen nameSeen, ok bool, err error) {
	for _, at := range lines {
		now, same, err := seenAt(f, name.Name, at)
		if err != nil {
			return nameSeen{}, false, err
		}
		if same {
			seen, ok = now, true
			continue
		}
		l, err := lineAt(f, name.Kind, at)
		if err != nil {
			return nameSeen{}, false, err
		}
		if !slices.ContainsFunc(namesOf(l), func(n runs.Name) bool { return n.Hash() == name.hash }) {
			return nameSeen{}, false, sessionlog.DamagedAt("", at, "the line that had the name %q is another", name.Text)
		}
	}
	return seen, ok, nil
}
