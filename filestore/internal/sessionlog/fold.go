package sessionlog

import (
	"fmt"

	"hansard"
	"hansard/engine"
	"hansard/internal/vfs"
)

// Metadata is folded from the patches in the log. Each line with a patch names the one
// before it, and the last line names the newest, so that a session's metadata takes its
// last line and a walk back to the last snapshot:
//
//	header ◄── patch ◄── patch+snap ◄── patch ◄── … last line
//	                     ╰─ the walk ends here: snap is everything before it
//
// There is no second file with the metadata: it could disagree with the log (failure 34).

// MetaState is a session's metadata and what a walk to it costs. It is shared, and never
// modified.
type MetaState struct {
	Meta hansard.Meta
	Walk MetaWalk
}

// MetaWalk is what finding the metadata costs: the lines from the one with the newest
// patch back to the last snapshot. The next snapshot is due when this gets large
// (patchLine in meta.go), so that the cost does not grow with the session (failure 55).
type MetaWalk struct {
	Lines   int64 // bytes of these lines, without the snapshot itself
	Patches int   // bytes of their patches, by PatchBytes
	Count   int   // how many lines after the snapshot
}

const (
	// SnapshotEvery is the maximum number of patches between two snapshots.
	SnapshotEvery = 256
	// WalkBytes is the maximum number of bytes of lines between them, unless the metadata
	// itself is larger: a patch may be on the line of a large event, and the walk reads
	// whole lines (TestFailure55_MetadataOnLargeEvents).
	WalkBytes = int64(256 << 10)
)

// PatchBytes is what a patch counts for in a walk: about its size, and never zero.
func PatchBytes(p *hansard.Patch) int {
	n := len(p.State) + 64
	for i := range p.StateOps {
		n += len(p.StateOps[i].Path) + len(p.StateOps[i].Value) + 32
	}
	return n
}

// NewestMeta is the offset of the line with the newest metadata, seen from a line that
// begins at the offset at: itself, or the one it points to.
func (l *Line) NewestMeta(at int64) int64 {
	if l.Patch != nil {
		return at
	}
	return l.MetaAt
}

// KnownMeta is the metadata that the line at an offset leads to, read earlier from the
// same log: a walk may end there instead of at a snapshot. The caller has to check that it
// is still the same log.
type KnownMeta struct {
	At    int64
	State *MetaState
}

// FoldMeta walks back from the line at an offset to the last snapshot, or to the line
// whose metadata is known, and applies the patches on the way forward. lineAt reads a line,
// from the log or from an entry not yet applied to it, and may refuse one that is too long
// to read under write.lock; its error is returned unchanged. known may be nil.
func FoldMeta(at int64, known *KnownMeta, lineAt func(int64) (*Line, error)) (*MetaState, error) {
	var patches []*hansard.Patch
	m := &MetaState{}
	for {
		if known != nil && at == known.At {
			m.Meta = known.State.Meta
			m.Walk.Lines += known.State.Walk.Lines
			m.Walk.Patches += known.State.Walk.Patches
			m.Walk.Count += known.State.Walk.Count
			break
		}
		l, err := lineAt(at)
		if err != nil {
			return nil, err
		}
		m.Walk.Lines += int64(l.size)
		if l.Snap != nil {
			m.Meta = *l.Snap
			// Every walk reads its snapshot: if it counted, a large one would make the next due
			// at once.
			m.Walk.Lines -= int64(MetaBytes(l.Snap))
			break
		}
		if at == 0 {
			break // a header without metadata
		}
		// Offsets must lead to a patch, and backwards: otherwise the walk over a log that was
		// tampered with would never end.
		if l.Patch == nil || l.MetaAt >= at {
			return nil, DamagedAt("", at, "the line has no metadata, though a later one says so")
		}
		patches = append(patches, l.Patch)
		m.Walk.Patches += PatchBytes(l.Patch)
		at = l.MetaAt
	}
	m.Walk.Count += len(patches)
	for i := len(patches) - 1; i >= 0; i-- {
		next, err := engine.ReplayPatch(m.Meta, patches[i])
		if err != nil {
			return nil, fmt.Errorf("fold metadata: %w", err)
		}
		m.Meta = next
	}
	return m, nil
}

// ReadMeta folds the metadata of an open log, without a lock: what is in the log does not
// change.
func ReadMeta(f vfs.File, tail *Tail) (*MetaState, error) {
	return FoldMeta(tail.Last.NewestMeta(tail.LastAt), nil, func(at int64) (*Line, error) { return DecodeHeadAt(f, at, MaxLine) })
}

// DecodeAt reads and decodes the line that begins at an offset. If there is no valid
// line, that is a DamagedError; ErrNoLine: nothing complete is there.
func DecodeAt(f vfs.File, at int64) (*Line, error) {
	b, err := ReadLineAt(f, at)
	if err != nil {
		return nil, err
	}
	l, err := Decode(b)
	if err != nil {
		return nil, DamagedAt("", at, "%v", err)
	}
	return l, nil
}

// DecodeHeadAt is DecodeAt without the data, of a line no longer than limit; ErrLongLine
// otherwise.
func DecodeHeadAt(f vfs.File, at int64, limit int) (*Line, error) {
	b, err := ReadLineWithin(f, at, limit)
	if err != nil {
		return nil, err
	}
	l, err := DecodeHead(b)
	if err != nil {
		return nil, DamagedAt("", at, "%v", err)
	}
	return l, nil
}

// MetaBytes is roughly how many bytes metadata takes in a line. It only decides when a
// snapshot is due.
func MetaBytes(m *hansard.Meta) int {
	size := len(m.State) + len(m.Title) + 128
	for k, v := range m.Labels {
		size += len(k) + len(v) + 8
	}
	return size
}
