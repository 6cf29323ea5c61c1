package sessionlog

import (
	"cmp"
	"slices"
	"time"

	"hansard"
)

// The second step of a repair: which of the runs belong to the session, in the order of
// their seqs (W3). What is missing between them will be shown by events of kind lost, so
// that no event changes its seq (W4).
//
//	header  1 2 3 ✗ ✗ 6 7 8      the log, 4 and 5 are damaged
//	                    8 9      set aside
//	→ header | 1–3 | lost 4, 5 | 6–8 | 9
//
// How much a run is believed depends on what proves it: the chain from the header on
// proves most; a run that goes on where another ends shares its proof; one behind a gap
// has only its seq and its place in the file. The old bytes stay in evidence/ whatever is
// decided here.

// maxLost is how many events may be shown as lost: a run with a higher seq than that
// allows does not belong to this log, and writing a line for each missing seq would fill
// the disk.
const maxLost = 1 << 20

// piece is the part of a run that goes into the new log: seqs from … to.
type piece struct {
	*run
	from, to hansard.Seq
	// group is the index of the first of the pieces that prove each other up to this one;
	// -1: the header is among them, and nothing outweighs that.
	group int
	lines int         // of the group, up to this piece: what a contradiction is weighed by
	lost  hansard.Seq // events lost before it, in the whole log
	used  int64       // how far the old log was used, up to it
}

// Assembly is a new log being put together. It holds places in the old files, no lines.
type Assembly struct {
	Head   *Header // nil: it is lost
	Raw    []byte  // the header's bytes, with its newline
	Used   int64   // where the header ends in the old log; 0: it is from elsewhere
	Pieces []piece
}

// Assemble puts together what the sources have. Where they contradict each other the
// first counts: the log before what was set aside, and of that the oldest.
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
	// Stable, so that of runs with the same first seq the earlier source comes first.
	slices.SortStableFunc(runs, func(x, y *run) int { return cmp.Compare(x.First.Seq, y.First.Seq) })
	for _, r := range runs {
		for a.take(r) {
		}
	}
	// A batch at the end that is not whole is dropped (W4): half of one must not be shown
	// (failure 35). One with something behind it shows its losses instead.
	for n := len(a.Pieces); n > 0; n-- {
		if p := &a.Pieces[n-1]; p.whole >= p.from {
			p.to = p.whole
			break
		}
		a.Pieces = a.Pieces[:n-1]
	}
	return a
}

// end is the last line so far, nil where there is not even a header, and the piece it is
// in.
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

// take adds a run if it belongs to the log. again: pieces that contradict it were
// removed, and it has to be taken once more against what is left.
func (a *Assembly) take(r *run) (again bool) {
	end, p := a.end()
	switch {
	// No header: it was lost, and the first run begins the log.
	case end == nil:
		if r.First.Seq <= maxLost {
			a.begin(r, 0)
		}
	case r.last.Seq <= end.Seq: // it is there
	case r.follows(end):
		a.add(piece{run: r, from: end.Seq + 1, group: p.group, lines: p.lines, lost: p.lost})
	case r.First.Seq <= end.Seq+1:
		// It contradicts what is there: other lines with the same seqs, or a next line
		// that does not follow. What the header proves counts; otherwise the longer one
		// is more likely ours.
		if p.group >= 0 && len(r.crcs) > p.lines {
			a.Pieces = a.Pieces[:p.group]
			return true
		}
	case a.believes(r, end, &p):
		a.begin(r, end.Seq)
	}
	return false
}

// begin adds a run that follows nothing, except by its seq: a group of its own. last is
// the seq before the gap.
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

// follows tells whether the run goes on where a line ends: it begins behind that line and
// names its crc, or it contains the same line. The latter is how what was set aside
// overlaps with the log.
func (r *run) follows(end *Line) bool {
	if r.First.Seq == end.Seq+1 {
		return r.First.Prev == end.CRC && !end.Deleted && (end.Left == 0 || r.First.Left == end.Left-1)
	}
	return r.First.Seq <= end.Seq && r.crcs[end.Seq-r.First.Seq] == end.CRC
}

// believes tells whether a run behind a gap belongs there (W3). A single line that
// follows nothing and is followed by nothing may have been put there by somebody, unless
// something damaged is before it: that is then the gap.
func (a *Assembly) believes(r *run, end *Line, p *piece) bool {
	gap := r.First.Seq - end.Seq - 1
	switch {
	case p.lost+gap > maxLost || end.Deleted:
		return false
	case gap < hansard.Seq(end.Left) && r.First.Left != end.Left-int(gap)-1:
		return false // its batch would have another length
	case !r.Src.Log:
		return true // it was on its way to this log: only we write to aside/
	}
	return r.At > p.used || r.At == p.used && len(r.crcs) > 1
}

// Count is the last seq, and how many events before it are lost.
func (a *Assembly) Count() (last, lost hansard.Seq) {
	_, p := a.end()
	return p.to, p.lost
}

// NewHeader gives the log a new header, where the old one is lost, or where the batch it
// began is and its b would count lines that never come. uid, created and m are the old
// ones as far as they are known.
func (a *Assembly) NewHeader(id hansard.SessionID, uid uint64, created time.Time, m hansard.Meta) error {
	return a.UseHeader(AppendHeader(nil, id, uid, created.UTC(), 0, m))
}

// ForkHeader is a header for the repaired log of a fork. Where its own lines begin may have
// changed, so it says of which session it is a fork, by the last line that does: those before
// it are of the parent's own parents.
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
		return a.UseHeader(raw) // and the lines behind it stay as they are
	}
	return a.UseHeader(AppendHead(nil, &head))
}

// UseHeader takes a header as it is, with its newline: restored, or made by NewHeader.
// The error means that it is not a valid line.
func (a *Assembly) UseHeader(raw []byte) error {
	l, err := Decode(raw[:len(raw)-1])
	a.Raw, a.Head = raw, &Header{Line: l}
	return err
}
