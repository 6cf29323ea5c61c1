package sessionlog

import (
	"cmp"
	"slices"
	"time"

	"hansard"
)

// The second step of a repair: which of the runs belong to the session, in the order of
// their seqs (W3). Gaps between them are filled with events of kind lost, so that no event
// changes its seq (W4).
//
//	header  1 2 3 ✗ ✗ 6 7 8      the log, 4 and 5 are damaged
//	                    8 9      set aside
//	→ header | 1–3 | lost 4, 5 | 6–8 | 9
//
// How far a run is trusted depends on the proof for it: the chain from the header on proves
// most; a run that continues where another ends shares its proof; one after a gap has only
// its seq and its place in the file. The old bytes stay in evidence/ whatever is decided
// here.

// maxLost is how many events may be recorded as lost: a run with a seq beyond that does not
// belong to this log, and writing a line for each missing seq would fill the disk.
const maxLost = 1 << 20

// piece is the part of a run that goes into the new log: seqs from … to.
type piece struct {
	*run
	from, to hansard.Seq
	// group is the index of the first of the pieces, up to this one, that prove each other;
	// -1: the header is among them, and nothing outweighs that.
	group int
	lines int         // of the group, up to this piece: its weight in a contradiction
	lost  hansard.Seq // events lost before it, in the whole log
	used  int64       // how far the old log has been used, this piece included
}

// Assembly is a new log being put together. It holds places in the old files, not lines.
type Assembly struct {
	Head   *Header // nil: it is lost
	Raw    []byte  // the header's bytes, with its newline
	Used   int64   // where the header ends in the old log; 0: it comes from elsewhere
	Pieces []piece
}

// Assemble puts together what the sources have. Where they contradict each other the first
// source counts: the log comes before the files in aside/, and of those the oldest comes
// first.
func Assemble(sources []*Source) *Assembly {
	a := &Assembly{}
	var runs []*run
	for _, src := range sources {
		if a.Head == nil && src.Head != nil {
			a.Head, a.Raw = src.Head, src.raw
			if src.Log {
				a.Used = src.at + a.Head.End
			}
		}
		runs = append(runs, src.Runs...)
	}
	// Stable, so that among runs with the same first seq the earlier source comes first.
	slices.SortStableFunc(runs, func(x, y *run) int { return cmp.Compare(x.First.Seq, y.First.Seq) })
	for _, r := range runs {
		for a.take(r) {
		}
	}
	// An incomplete batch at the end is dropped (W4): half a batch must not be shown
	// (failure 35). One that is followed by something shows its losses instead.
	for n := len(a.Pieces); n > 0; n-- {
		if p := &a.Pieces[n-1]; p.whole >= p.from {
			p.to = p.whole
			break
		}
		a.Pieces = a.Pieces[:n-1]
	}
	return a
}

// end is the last line so far, nil if there is not even a header, and the piece it is in.
func (a *Assembly) end() (*Line, piece) {
	if n := len(a.Pieces); n > 0 {
		return a.Pieces[n-1].last, a.Pieces[n-1]
	}
	none := piece{group: -1, used: a.Used}
	if a.Head != nil {
		return a.Head.Line, none
	}
	return nil, none
}

// take adds a run if it belongs to the log. again: pieces that contradict it were removed,
// and take must be called again with what is left.
func (a *Assembly) take(r *run) (again bool) {
	end, p := a.end()
	switch {
	// No header: it was lost, so the first run begins the log.
	case end == nil:
		if r.First.Seq <= maxLost {
			a.begin(r, 0)
		}
	case r.last.Seq <= end.Seq: // already there
	case r.follows(end):
		a.add(piece{run: r, from: end.Seq + 1, group: p.group, lines: p.lines, lost: p.lost})
	case r.First.Seq <= end.Seq+1:
		// It contradicts the pieces so far: other lines with the same seqs, or a next line that
		// does not follow. What the header proves counts; otherwise the longer one is more
		// likely to be ours.
		if p.group >= 0 && len(r.crcs) > p.lines {
			a.Pieces = a.Pieces[:p.group]
			return true
		}
	case a.believes(r, end, &p):
		a.begin(r, end.Seq)
	}
	return false
}

// begin adds a run that only its seq places here, as a group of its own. last is the seq
// before the gap.
func (a *Assembly) begin(r *run, last hansard.Seq) {
	_, p := a.end()
	a.add(piece{run: r, from: r.First.Seq, group: len(a.Pieces), lost: p.lost + r.First.Seq - last - 1})
}

// add appends a piece and fills in what depends on the one before it.
func (a *Assembly) add(p piece) {
	_, before := a.end()
	p.to = p.last.Seq
	p.lines += int(p.to-p.from) + 1
	p.used = before.used
	if p.Src.Log {
		p.used = max(p.used, p.run.end)
	}
	a.Pieces = append(a.Pieces, p)
}

// follows tells whether the run continues a line: it begins right after that line and names
// its crc, or it contains the same line. The latter is how files in aside/ overlap with the
// log.
func (r *run) follows(end *Line) bool {
	if r.First.Seq == end.Seq+1 {
		return r.First.Prev == end.CRC && !end.Deleted && (end.Left == 0 || r.First.Left == end.Left-1)
	}
	return r.First.Seq <= end.Seq && r.crcs[end.Seq-r.First.Seq] == end.CRC
}

// believes tells whether a run after a gap belongs there (W3). A single line that follows
// nothing and is followed by nothing may have been inserted from outside, unless damaged
// bytes precede it: those are then the gap.
func (a *Assembly) believes(r *run, end *Line, p *piece) bool {
	gap := r.First.Seq - end.Seq - 1
	switch {
	case p.lost+gap > maxLost || end.Deleted:
		return false
	case gap < hansard.Seq(end.Left) && r.First.Left != end.Left-int(gap)-1:
		return false // its batch would have another length
	case !r.Src.Log:
		return true // it was meant for this log: only the store writes to aside/
	}
	return r.At > p.used || r.At == p.used && len(r.crcs) > 1
}

// Count is the last seq, and how many events before it are lost.
func (a *Assembly) Count() (last, lost hansard.Seq) {
	_, p := a.end()
	return p.to, p.lost
}

// NewHeader gives the log a new header if the old one is lost, or if the batch it began is
// lost and its b would count lines that never come. uid, created and m are the old ones as
// far as they are known.
func (a *Assembly) NewHeader(id hansard.SessionID, uid uint64, created time.Time, m hansard.Meta) error {
	return a.UseHeader(AppendHeader(nil, id, uid, created.UTC(), 0, m))
}

// ForkHeader is a header for the repaired log of a fork. Where its own lines begin may have
// changed, so the header names the parent instead, taken from the last line that names one:
// earlier ones name the parent's own parents.
func (a *Assembly) ForkHeader() error {
	head := a.Head.Head()
	head.Own, head.Parent = 0, nil
	for _, p := range a.Pieces {
		err := eachPlace(p.Src.F, p.At, func(l place) (more bool, err error) {
			if l.at >= p.run.end || l.Seq > p.to {
				return false, nil
			}
			if l.Fork != nil && l.Seq >= p.from {
				head.Parent = l.Fork
			}
			return l.Seq < p.to, nil
		})
		if err != nil {
			return err
		}
	}
	if raw, ok := headerLike(&head, len(a.Raw), a.Head.CRC); ok {
		return a.UseHeader(raw) // and the lines after it stay unchanged
	}
	return a.UseHeader(AppendHead(nil, &head))
}

// UseHeader takes a header unchanged, with its newline: restored, or made by NewHeader. An
// error means that it is not a valid line.
func (a *Assembly) UseHeader(raw []byte) error {
	l, err := Decode(raw[:len(raw)-1])
	a.Raw, a.Head = raw, &Header{Line: l}
	return err
}
