package filestore

import (
	"fmt"

	"hansard"
	"hansard/internal/vfs"
)

// Metadata is folded from the patches in the log. Each line with a patch names
// the one before it, and the last line names the newest, so that a session is
// described by its last line and a walk back to the last snapshot.

// metaState is a session's metadata and what a walk to it costs.
type metaState struct {
	meta  hansard.Meta
	bytes int // of patches since the last snapshot
	count int // of them
}

const snapshotEvery = 256 // patches, at most

// metaAt is where the line with the newest metadata begins, seen from a line
// that begins at the offset at.
func (l *line) metaAt(at int64) int64 {
	if l.Patch != nil {
		return at
	}
	return l.MetaAt
}

// foldMeta walks back from the line at an offset to the last snapshot and
// applies the patches on the way forward. lineAt reads a line.
func foldMeta(at int64, lineAt func(int64) (*line, error)) (*metaState, error) {
	var patches []*hansard.Patch
	m := &metaState{}
	for {
		l, err := lineAt(at)
		if err != nil {
			return nil, err
		}
		if l.Snap != nil {
			m.meta = *l.Snap
			break
		}
		if at == 0 {
			break // a header without metadata
		}
		if l.Patch == nil || l.MetaAt >= at {
			return nil, damagedAt("", at, "the line has no metadata, though a later one says so")
		}
		patches = append(patches, l.Patch)
		m.bytes += len(l.Patch.State) + 64
		at = l.MetaAt
	}
	m.count = len(patches)
	for i := len(patches) - 1; i >= 0; i-- {
		next, err := hansard.ApplyPatch(m.meta, patches[i])
		if err != nil {
			return nil, fmt.Errorf("fold metadata: %w", err)
		}
		m.meta = next
	}
	return m, nil
}

// readMeta folds the metadata of an opened log.
func readMeta(f vfs.File, tail *logTail) (*metaState, error) {
	return foldMeta(tail.last.metaAt(tail.lastAt), func(at int64) (*line, error) { return decodeLineAt(f, at) })
}

func decodeLineAt(f vfs.File, at int64) (*line, error) {
	b, err := readLineAt(f, at)
	if err != nil {
		return nil, err
	}
	l, err := decodeLine(b)
	if err != nil {
		return nil, damagedAt("", at, "%v", err)
	}
	return l, nil
}

// patched is the session's metadata after a patch, under write.lock.
func (s *Store) patched(sess *session, p *hansard.Patch) (*metaState, error) {
	if sess.meta == nil {
		m := &metaState{}
		if sess.exists {
			var err error
			m, err = foldMeta(sess.metaAt, func(at int64) (*line, error) { return s.lineAt(sess, at) })
			if err != nil {
				return nil, err
			}
		}
		sess.meta = m
	}
	return sess.meta.after(p)
}

// after is the metadata behind one more patch.
func (m *metaState) after(p *hansard.Patch) (*metaState, error) {
	meta, err := hansard.ApplyPatch(m.meta, p)
	if err != nil {
		return nil, err
	}
	return &metaState{meta: meta, bytes: m.bytes + len(p.State) + 64, count: m.count + 1}, nil
}

// lineAt reads a line of a session from its draft, from an entry that is not in
// the log yet, or from the log.
func (s *Store) lineAt(sess *session, at int64) (*line, error) {
	from := func(b []byte, off int64) (*line, error) {
		b = b[at-off:]
		for i, c := range b {
			if c == '\n' {
				return decodeLine(b[:i])
			}
		}
		return nil, errNoLine
	}
	if d := sess.draft; d != nil && at >= d.off {
		return from(d.bytes, d.off)
	}
	for _, e := range s.pending {
		if e.name == sess.name && at >= e.off && at < e.off+int64(len(e.bytes)) {
			return from(e.bytes, e.off)
		}
	}
	if sess.f == nil {
		return nil, errNoLine
	}
	return decodeLineAt(sess.f, at)
}

// snapshotIfDue is the whole metadata when the walk back has become long: not
// more often than it doubles what is written, and within a budget.
func (m *metaState) snapshotIfDue(body, budget int) []byte {
	size := len(m.meta.State) + len(m.meta.Title) + 128
	for k, v := range m.meta.Labels {
		size += len(k) + len(v) + 8
	}
	if m.bytes < size && m.count < snapshotEvery || size > budget {
		return nil
	}
	snap := marshal(m.meta)
	if len(snap) > budget {
		return nil
	}
	m.bytes, m.count = 0, 0
	return snap
}
