package filestore

import (
	"bytes"
	"errors"
	"strconv"

	"hansard"
	"hansard/internal/vfs"
)

// A log whose header is damaged still has its lines, and they still prove each
// other. Where the first line is whole it even has the header's checksum: one
// damaged byte is found and put right, and the log is what it was. Else the log
// gets a new header, as long as it takes for the offsets in lines to hold; and because each line carries the checksum of the one
// before, all of them are written anew.

// headless is what is kept of a log with a damaged beginning.
type headless struct {
	*run
	head []byte
	// exact: the head is the one that was there, and the lines stay as they are.
	exact bool
}

// lost is how many events were before the first that is kept. Their seqs are taken
// by events of kind lost: no other event changes its seq.
func (h *headless) lost() hansard.Seq { return h.first.Seq - 1 }

// kept is how many bytes of the old log are in the new one.
func (h *headless) kept() int64 {
	if h.exact {
		return int64(len(h.head)) + h.end - h.at
	}
	return h.end - h.at
}

// behindHeader finds what can be kept of a log that does not begin with a valid
// header: the longest run of lines that prove each other.
func (r *rebuild) behindHeader(old vfs.File) error {
	found, err := longestRun(old, r.id)
	if err != nil || found == nil {
		return err
	}
	h := &headless{run: found, head: found.header, exact: found.header != nil}
	if !h.exact && h.first.Seq == 1 && h.at <= maxSearched {
		region := make([]byte, h.at)
		if _, err := old.ReadAt(region, 0); err != nil {
			return err
		}
		h.head = restoreHeader(region, r.id, h.first)
		h.exact = h.head != nil
	}
	if !h.exact && h.lost() <= maxLost {
		at, fixed := h.home()
		h.head = newHead(at, fixed, r.id, r.s.cfg.random(), h.first)
	}
	if h.head == nil {
		return nil // the lines would have to move, and what they say of each other's places be wrong
	}
	r.headless, r.safe = h, h.end
	r.chain = chain{id: r.id, started: true, crc: h.last.crc, seq: h.last.Seq, safe: h.last.Seq, deleted: h.last.Deleted}
	return nil
}

// run is lines that follow each other. The first may be in the middle of a batch: what
// is missing of it is shown as lost.
type run struct {
	first   *line
	last    *line // of the last whole batch
	at, end int64
	lines   int
	header  []byte // before the first line, if it is there and ours
	foreign bool   // it is there and another session's

	prev   *line // the line before, whole batch or not
	more   int   // lines since the last whole batch
	places [2]place
}

// place is what lines say of where the newest line of some kind is.
type place struct {
	seen  int64 // where it is; 0: none yet
	moved int64 // how much further that is than where lines say
	known bool
}

// offsetMembers are the members of lines that are offsets of other lines: of the
// newest patch, and of the newest change of the turn.
var offsetMembers = [2]string{`,"meta":`, `,"turned":`}

// longestRun reads a whole log. Lines behind the header of another session are not
// ours.
func longestRun(f vfs.File, id hansard.SessionID) (best *run, err error) {
	var header []byte // ours, just before
	var foreign uint32
	cur := &run{}
	sc := newScanner(f, 0)
	for {
		b, at, err := sc.next()
		if err != nil && !errors.Is(err, errNoLine) {
			return nil, err
		}
		var l *line
		if err == nil {
			if l, b, at = lastLineIn(b, at); l != nil && cur.prev != nil && cur.add(l, b, at) {
				continue
			}
		}
		if cur.lines > 0 && !cur.foreign && (best == nil || cur.lines > best.lines) {
			best = cur
		}
		cur = &run{}
		switch {
		case err != nil:
			return best, nil
		case l == nil || l.Seq == 0 && l.Version == 0:
			header = nil
		case l.Version > 0:
			if header, foreign = nil, l.crc; l.ID != string(id) && at == 0 {
				return nil, nil // all of it is
			} else if l.ID == string(id) && l.prev == 0 && l.Seq == 0 {
				header, foreign = append(bytes.Clone(b), '\n'), 0
			}
		default:
			cur.foreign = foreign != 0 && l.prev == foreign
			if header != nil && l.Seq == 1 && l.prev == lineCRC(header) {
				cur.header = header
			}
			cur.add(l, b, at)
			header = nil
		}
	}
}

// lastLineIn decodes a line, or, where the newline before it is what was damaged,
// the end of one.
func lastLineIn(b []byte, at int64) (*line, []byte, int64) {
	l, err := decodeLine(b)
	for i := len(b); err != nil; {
		if i = bytes.LastIndex(b[:i], []byte(`{"seq":`)); i <= 0 {
			return nil, b, at
		}
		if l, err = decodeLine(b[i:]); err == nil {
			return l, b[i:], at + int64(i)
		}
	}
	return l, b, at
}

// add takes the next line, if it follows.
func (r *run) add(l *line, b []byte, at int64) bool {
	if p := r.prev; p != nil && (l.prev != p.crc || l.Seq != p.Seq+1 || p.Left > 0 && l.Left != p.Left-1 || p.Deleted) {
		return false
	}
	if r.first == nil {
		r.first, r.at = l, at
	}
	// Under which turn an event stands can't be proven without what is lost.
	if r.first.Seq > 1 && l.Turn != "" || !r.inPlace(l, b, at) {
		return false
	}
	r.prev = l
	if r.more++; l.Left == 0 {
		r.last, r.end = l, at+int64(len(b))+1
		r.lines, r.more = r.lines+r.more, 0
	}
	return true
}

// inPlace checks what a line says of where others are. All of them may have moved,
// by as much.
func (r *run) inPlace(l *line, b []byte, at int64) bool {
	for i, is := range [2]bool{l.Patch != nil, l.Kind == "turn"} {
		p := &r.places[i]
		if says, ok := offsetIn(b, offsetMembers[i]); ok && p.seen > 0 {
			if moved := p.seen - says; p.known && moved != p.moved {
				return false
			} else {
				p.moved, p.known = moved, true
			}
		}
		if is {
			p.seen = at
		}
	}
	return !(r.places[0].known && r.places[1].known && r.places[0].moved != r.places[1].moved)
}

// home is where the run has to begin for its offsets to be right. Without any it is
// where it is, or where there is room for a header.
func (r *run) home() (at int64, fixed bool) {
	for _, p := range r.places {
		if p.known {
			return r.at - p.moved, true
		}
	}
	return r.at, false
}

// offsetIn is the number of a member that stands before the kind.
func offsetIn(b []byte, member string) (n int64, ok bool) {
	digits := offsetDigits(b, member)
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return n, err == nil
}

func offsetDigits(b []byte, member string) []byte {
	stamped, _, _ := bytes.Cut(b, []byte(`,"kind":`))
	i := bytes.Index(stamped, []byte(member))
	if i < 0 {
		return nil
	}
	digits := stamped[i+len(member):]
	n := 0
	for n < len(digits) && '0' <= digits[n] && digits[n] <= '9' {
		n++
	}
	return digits[:n]
}

// maxLost is how many events may be shown as lost: more is no log of ours.
const maxLost = 1 << 20

// maxSearched is how long a header may be that is searched for one wrong byte.
const maxSearched = 4 << 10

// restoreHeader is the header that was there, if one byte of it was damaged, or any
// of its checksum: the first line tells what that was. Nil: it can't be told.
func restoreHeader(region []byte, id hansard.SessionID, first *line) []byte {
	if len(region) < suffixWidth || len(region) > maxSearched {
		return nil
	}
	content := bytes.Clone(region[:len(region)-1-crcWidth])
	end := append(appendHex([]byte(`,"crc":"`), first.prev), '"', '}')
	var found []byte
	try := func() bool { // false: it is not clear which
		if checksum(content) != first.prev {
			return true
		}
		b := append(bytes.Clone(content), end...)
		l, err := decodeLine(b)
		if err != nil {
			return true
		}
		if _, ok := parseUID(l.UID); !ok || l.Version != formatVersion || l.ID != string(id) || l.prev != 0 || l.Seq != 0 ||
			l.Left > 0 && l.Left != first.Left+1 {
			return true
		}
		unclear := found != nil
		found = append(b, '\n')
		return !unclear
	}
	try()
	if found != nil {
		return found
	}
	for i, was := range content {
		for c := 0; c < 256; c++ {
			if byte(c) == was {
				continue
			}
			if content[i] = byte(c); !try() {
				return nil
			}
		}
		content[i] = was
	}
	return found
}

// newHead makes a new header and, for the events before first, lines that say they
// are lost: as long as where the run has to begin. Nil: there is no room for them.
func newHead(home int64, fixed bool, id hansard.SessionID, uid uint64, first *line) []byte {
	lines := func(b []byte) []byte {
		e := hansard.Event{Kind: hansard.KindLost, Data: []byte("null")}
		body := encodeBody(nil, &e, "", "")
		st := stamp{time: first.Time.UTC().Format(timeLayout)}
		for st.seq = 1; st.seq < first.Seq; st.seq++ {
			st.prev = lineCRC(b)
			b = appendEvent(b, &st, body)
		}
		return b
	}
	header := appendHeader(nil, id, uid, first.Time.UTC(), 0, hansard.Meta{})
	b := lines(header)
	room := home - int64(len(b))
	if room < 0 && fixed {
		return nil
	}
	if room <= 0 {
		return b
	}
	// Space before the checksums makes up for what was longer.
	header = append(header[:len(header)-suffixWidth-1:len(header)-suffixWidth-1], bytes.Repeat([]byte(" "), int(room))...)
	return lines(appendSuffix(header, 0, 0))
}

// writeHeadless writes the new head and the lines behind it, and tells how long the
// new log is.
func (r *rebuild) writeHeadless(f, old vfs.File) (int64, error) {
	h := r.headless
	if _, err := f.WriteAt(h.head, 0); err != nil {
		return 0, err
	}
	w := lineWriter{f: f, at: int64(len(h.head)), prev: lineCRC(h.head), asIs: h.exact}
	sc := newScanner(old, h.at)
	for {
		b, at, err := sc.next()
		if errors.Is(err, errNoLine) || err == nil && at >= h.end {
			break
		}
		if err == nil {
			err = w.write(b)
		}
		if err != nil {
			return 0, err
		}
	}
	for b := range bytes.Lines(r.more) {
		if err := w.write(b[:len(b)-1]); err != nil {
			return 0, err
		}
	}
	r.more = nil
	err := w.flush()
	return w.at, err
}

// lineWriter writes lines behind each other, chained anew unless asIs.
type lineWriter struct {
	f    vfs.File
	at   int64 // of buf
	buf  []byte
	prev uint32
	asIs bool
	seen [2]bool // a line that offsetMembers lead to
}

func (w *lineWriter) write(b []byte) error {
	begin := len(w.buf)
	if w.asIs {
		w.buf = append(append(w.buf, b...), '\n')
	} else {
		l, err := decodeLine(b)
		if err != nil {
			return err
		}
		w.buf = append(w.buf, b[:len(b)-suffixWidth]...)
		for i, is := range [2]bool{l.Patch != nil, l.Kind == "turn"} {
			if digits := offsetDigits(w.buf[begin:], offsetMembers[i]); !w.seen[i] && len(digits) > 0 {
				// What it leads to is lost. The line keeps its length.
				copy(digits, append([]byte("0"), bytes.Repeat([]byte(" "), len(digits)-1)...))
			}
			w.seen[i] = w.seen[i] || is
		}
		w.buf = appendSuffix(w.buf, begin, w.prev)
		w.prev = lineCRC(w.buf)
	}
	if len(w.buf) < 1<<20 {
		return nil
	}
	return w.flush()
}

func (w *lineWriter) flush() error {
	if _, err := w.f.WriteAt(w.buf, w.at); err != nil {
		return err
	}
	w.at += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}
