package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strconv"

	"hansard"
	"hansard/internal/vfs"
)

// Reading takes no lock and needs no position: what is in a log is durable, and
// a reader goes by the lines alone, up to the last that ends its batch.

// header is the first line of a log.
type header struct {
	*line
	uid uint64
	end int64 // behind it
}

// logTail is the end of what is whole in a log.
type logTail struct {
	last   *line
	lastAt int64
	end    int64 // behind it; more bytes are an unfinished batch
}

// damagedAt is the error for a log that is wrong at an offset.
func damagedAt(id hansard.SessionID, off int64, format string, args ...any) *hansard.DamagedError {
	return &hansard.DamagedError{Session: id, Offset: off, Reason: fmt.Sprintf(format, args...)}
}

// readUID reads the uid in a log's header: it stands at a fixed place, so that
// it can be compared without reading the whole line.
func readUID(f vfs.File) (uint64, error) {
	var b [len(`{"hansard":1,"uid":"0123456789abcdef"`)]byte
	if _, err := f.ReadAt(b[:], 0); err != nil && err != io.EOF {
		return 0, err
	}
	if !bytes.HasPrefix(b[:], []byte(`{"hansard":`)) || string(b[13:20]) != `"uid":"` {
		return 0, nil // none of ours
	}
	uid, _ := parseUID(string(b[20:36]))
	return uid, nil
}

// readHeader reads and checks the first line of a session's log. io.EOF is a
// log whose first line is not there yet.
func readHeader(f vfs.File, id hansard.SessionID) (*header, error) {
	b, err := readLineAt(f, 0)
	if errors.Is(err, errNoLine) {
		if err := beingMade(f, id); err != nil {
			return nil, err
		}
		b, err = readLineAt(f, 0) // it is there now
	}
	if err != nil {
		return nil, err
	}
	if v := headerVersion(b); v > formatVersion {
		return nil, fmt.Errorf("the log of session %s has format %d: %w", id, v, hansard.ErrVersion)
	}
	l, err := decodeLine(b)
	if err != nil {
		d := damagedAt(id, 0, "header: %v", err)
		d.Line = 1
		return nil, d
	}
	uid, ok := parseUID(l.UID)
	d := damagedAt(id, 0, "")
	d.Line = 1
	switch {
	case l.Version == 0:
		d.Reason = "the first line is not the header of a log"
	case l.ID != string(id):
		d.Reason = fmt.Sprintf("the log belongs to session %q", l.ID)
	case !ok || l.prev != 0 || l.Seq != 0:
		d.Reason = "the header is not valid"
	default:
		return &header{line: l, uid: uid, end: int64(len(b)) + 1}, nil
	}
	return nil, d
}

// beingMade tells whether a log without a line is one whose first line is being
// written: io.EOF; anything else is damage. Nil: the line has come meanwhile.
func beingMade(f vfs.File, id hansard.SessionID) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	b := make([]byte, min(size, maxLineBytes))
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return err
	}
	if bytes.IndexByte(b[:n], '\n') >= 0 {
		return nil
	}
	if looksBegun(b[:n]) && n > 0 {
		return io.EOF
	}
	if n == 0 {
		return errEmptyLog
	}
	d := damagedAt(id, 0, "it has no line of a log")
	d.Line = 1
	return d
}

// errEmptyLog is a log of no bytes: being made, or emptied by somebody else.
var errEmptyLog = errors.New("the log is empty")

// looksBegun tells whether bytes are the beginning of a header.
func looksBegun(b []byte) bool {
	const begin = `{"hansard":`
	n := min(len(b), len(begin))
	return string(b[:n]) == begin[:n] && looksPartial(b)
}

// looksPartial tells whether bytes may be a part of a line: no control
// characters, and not a whole line with something other than a newline behind.
func looksPartial(b []byte) bool {
	for _, c := range b {
		if c < 0x20 {
			return false
		}
	}
	// Content may look like the end of a line, but not with its checksum; so a
	// few looks are enough, and more would let content make this slow.
	for at, looks := 0, 0; looks < 16; looks++ {
		i := bytes.Index(b[at:], []byte(`,"crc":"`))
		if i < 0 || len(b) <= at+i+crcWidth {
			break
		}
		at += i + crcWidth
		if _, _, err := checkFrame(b[:at]); err == nil {
			return false
		}
	}
	return true
}

// headerVersion reads the version before anything else of the line is believed.
func headerVersion(b []byte) int {
	rest, ok := bytes.CutPrefix(b, []byte(`{"hansard":`))
	if !ok {
		return 0
	}
	n := 0
	for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
		n++
	}
	v, _ := strconv.Atoi(string(rest[:n]))
	return v
}

// errNoLine is the end of the lines: what follows has no newline.
var errNoLine = errors.New("no complete line")

// readLineAt reads the line that begins at off, without its newline.
func readLineAt(f vfs.File, off int64) ([]byte, error) {
	for size := 4 << 10; ; size *= 8 {
		buf := make([]byte, min(size, maxLineBytes))
		n, err := f.ReadAt(buf, off)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return buf[:i:i], nil
		}
		if n < len(buf) || len(buf) == maxLineBytes {
			return nil, errNoLine
		}
	}
}

// lineBefore finds the line whose newline is at end-1: where it begins and what
// it is, without the newline.
func lineBefore(f vfs.File, end int64) (at int64, b []byte, err error) {
	for size := int64(4 << 10); ; size *= 8 {
		begin := max(0, end-1-size)
		buf := make([]byte, end-1-begin)
		if _, err := f.ReadAt(buf, begin); err != nil && err != io.EOF {
			return 0, nil, err
		}
		if i := bytes.LastIndexByte(buf, '\n'); i >= 0 {
			return begin + int64(i) + 1, buf[i+1:], nil
		}
		if begin == 0 {
			return 0, buf, nil
		}
		if size > maxLineBytes {
			return 0, nil, damagedAt("", begin, "no line ends within %d bytes", size)
		}
	}
}

// lastNewline is the offset behind the last newline before size; 0 if none.
func lastNewline(f vfs.File, size int64) (int64, error) {
	for chunk := int64(4 << 10); ; chunk *= 8 {
		begin := max(0, size-chunk)
		buf := make([]byte, size-begin)
		if _, err := f.ReadAt(buf, begin); err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf, '\n'); i >= 0 || begin == 0 {
			if i < 0 {
				return 0, nil
			}
			return begin + int64(i) + 1, nil
		}
		if chunk > maxLineBytes {
			return 0, damagedAt("", begin, "no line ends within %d bytes", chunk)
		}
	}
}

// readTail finds the last line that ends its batch. Only that much is read, so
// it costs the same for every length of the log.
func readTail(f vfs.File, size int64) (*logTail, error) {
	end, err := lastNewline(f, size)
	if err != nil {
		return nil, err
	}
	for end > 0 {
		at, b, err := lineBefore(f, end)
		if err != nil {
			return nil, err
		}
		l, err := decodeLine(b)
		if err != nil {
			return nil, damagedAt("", at, "%v", err)
		}
		if at > 0 {
			// A line that does not follow the one before was put there.
			if crc, err := crcBefore(f, at); err != nil || crc != l.prev {
				if err == nil {
					err = damagedAt("", at, "the line does not follow the one before it")
				}
				return nil, err
			}
		}
		if l.Left == 0 {
			return &logTail{last: l, lastAt: at, end: end}, nil
		}
		end = at
	}
	return nil, damagedAt("", 0, "no batch of it is whole")
}

// readLast is readTail without its rule, for plantHalfBatch.
func readLast(f vfs.File, size int64) (*logTail, error) {
	end, err := lastNewline(f, size)
	if err != nil || end == 0 {
		return nil, errors.Join(err, damagedAt("", 0, "no line"))
	}
	at, b, err := lineBefore(f, end)
	if err != nil {
		return nil, err
	}
	l, err := decodeLine(b)
	return &logTail{last: l, lastAt: at, end: end}, err
}

// looksUnfinished tells whether bytes are the beginning of lines of a log.
func looksUnfinished(b []byte) bool {
	const begin = `{"seq":`
	for len(b) > 0 {
		if n := min(len(b), len(begin)); string(b[:n]) != begin[:n] {
			return false
		}
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return looksPartial(b)
		}
		b = b[i+1:]
	}
	return true
}

// openedLog is a log opened for reading.
type openedLog struct {
	f      vfs.File
	header *header
	tail   *logTail
	damage *hansard.DamagedError // nil: nothing wrong was seen
}

// openLogForRead opens a session's log. It answers ErrNotFound, ErrDeleted and
// ErrVersion; damage is in the result. The caller closes it.
func (s *Store) openLogForRead(ctx context.Context, id hansard.SessionID) (l *openedLog, err error) {
	if err := s.readable(ctx, id); err != nil {
		return nil, err
	}
	name := encodeName(id)
	f, err := s.fs.Open(logPath(name), vfs.ReadOnly)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if d := s.asideDamage(name, id); d != nil {
			d.Reason = "the log is missing; what was to be written to it is in " + asideDir
			return nil, d
		}
		return nil, fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
	case err != nil && isForeign(err):
		return nil, damagedAt(id, 0, "the log can't be opened: %v", err)
	case err != nil:
		return nil, fmt.Errorf("session %s: %w", id, err)
	}
	l = &openedLog{f: f}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	l.header, err = readHeader(f, id)
	if err == errEmptyLog {
		err = s.emptied(f, id)
	}
	if err == io.EOF {
		// It is being made: its first batch is not there yet.
		return nil, fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
	}
	var damaged *hansard.DamagedError
	if errors.As(err, &damaged) {
		l.header, l.damage = nil, damaged
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	for range 5 {
		if err := s.openTail(l, name, id, size); err != nil {
			return nil, err
		}
		if l.tail != nil || l.damage != nil {
			return l, nil
		}
		// What was not whole when we looked is whole now: look again.
		if size, err = f.Size(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("session %s: the log changes as it is read", id)
}

// emptied tells whether an empty log is one that is being made, io.EOF, or was
// emptied: nothing of the ring is on its way to the logs, and it is still empty.
func (s *Store) emptied(f vfs.File, id hansard.SessionID) error {
	c, err := s.fs.Open(controlName, vfs.ReadOnly)
	if err != nil {
		return io.EOF
	}
	defer c.Close()
	w, _, ok := (&control{f: c}).read()
	size, err := f.Size()
	if err != nil || !ok || w.applied < w.written || size > 0 {
		return io.EOF
	}
	return damagedAt(id, 0, "the log is empty")
}

// openTail reads the end of an opened log, and all of it where it is short.
func (s *Store) openTail(l *openedLog, name string, id hansard.SessionID, size int64) error {
	tail, err := readTail(l.f, size)
	if s.planted(plantHalfBatch) {
		tail, err = readLast(l.f, size)
	}
	var damaged *hansard.DamagedError
	switch {
	case errors.As(err, &damaged) && damaged.Offset == 0:
		if !wholeBatch(l.f) {
			return fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
		}
		_, l.damage, err = checkLog(l.f, id, decodeLine)
	case errors.As(err, &damaged):
		_, l.damage, err = checkLog(l.f, id, decodeLine)
	case err != nil:
		return err
	case tail.last.Deleted:
		return fmt.Errorf("session %s: %w", id, hansard.ErrDeleted)
	default:
		if l.damage, err = s.checkOnce(l.f, name, id, tail.end); err == nil && l.damage == nil && tail.end < size {
			l.damage, err = damagedEnd(l.f, id, tail, size)
		}
	}
	if err != nil {
		return err
	}
	l.tail = tail
	if l.damage == nil {
		l.damage = s.asideDamage(name, id)
		if l.damage != nil && tail != nil {
			l.damage.Offset, l.damage.SafeSeq = tail.end, tail.last.Seq
		}
	}
	return nil
}

// damagedEnd looks at what is behind the last whole batch.
func damagedEnd(f vfs.File, id hansard.SessionID, tail *logTail, size int64) (*hansard.DamagedError, error) {
	rest := make([]byte, min(size-tail.end, maxLineBytes))
	n, err := f.ReadAt(rest, tail.end)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if looksUnfinished(rest[:n]) {
		return nil, nil
	}
	d := damagedAt(id, tail.end, "what is behind the last batch is no line of a log")
	d.SafeSeq = tail.last.Seq
	return d, nil
}

// wholeBatch tells whether a log has one whole batch, however damaged the rest:
// one that has none is a session whose first batch is being written.
func wholeBatch(f vfs.File) bool {
	sc := newScanner(f, 0)
	for {
		b, _, err := sc.next()
		if err != nil {
			return false
		}
		l, err := decodeLine(b)
		if err != nil || l.Left == 0 {
			return true
		}
	}
}

// Read gives the events of a range, oldest first.
func (s *Store) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		if err := s.read(ctx, id, r, func(e hansard.Event) bool { return yield(e, nil) }); err != nil && err != errStop {
			yield(hansard.Event{}, err)
		}
	}
}

// errStop ends a scan whose reader has enough.
var errStop = errors.New("stop")

func (s *Store) read(ctx context.Context, id hansard.SessionID, r hansard.Range, yield func(hansard.Event) bool) error {
	if err := s.readable(ctx, id); err != nil {
		return err
	}
	if err := hansard.CheckRange(&r); err != nil {
		return err
	}
	l, err := s.openLogForRead(ctx, id)
	if err != nil {
		return err
	}
	defer l.f.Close()
	if l.header == nil {
		return l.damage
	}
	last := hansard.Seq(0)
	switch {
	case l.damage != nil:
		last = l.damage.SafeSeq
	case l.tail != nil:
		last = l.tail.last.Seq
	}
	after := r.After
	if r.FromSummary || r.Last > 0 {
		if after, err = s.startOf(ctx, l, id, r, last); err != nil {
			return err
		}
	}
	left := r.Limit
	err = s.scanEvents(ctx, l, id, after, last, func(e *line) bool {
		if !r.Wants(e.Kind) {
			return true
		}
		left--
		return yield(e.event()) && left != 0
	})
	if err != nil {
		return err
	}
	if l.damage != nil {
		return l.damage
	}
	return nil
}

// startOf finds where a range that is counted from the end begins. It looks at
// ever larger pieces of the end, so that it costs what it finds.
func (s *Store) startOf(ctx context.Context, l *openedLog, id hansard.SessionID, r hansard.Range, last hansard.Seq) (hansard.Seq, error) {
	after := r.After
	if r.FromSummary {
		at, err := s.lastMatches(ctx, l, id, after, last, 1, func(kind string) bool { return kind == hansard.KindSummary })
		if err != nil {
			return 0, err
		}
		if at > 0 {
			after = max(after, at-1)
		}
	}
	if r.Last == 0 {
		return after, nil
	}
	if len(r.Kinds) == 0 {
		if n := hansard.Seq(r.Last); last > n {
			after = max(after, last-n)
		}
		return after, nil
	}
	at, err := s.lastMatches(ctx, l, id, after, last, r.Last, r.Wants)
	if at > 0 {
		after = max(after, at-1)
	}
	return after, err
}

// lastMatches is the seq of the n-th last event, past after, whose kind is
// wanted, or of the first if there are fewer; 0 if there is none.
func (s *Store) lastMatches(ctx context.Context, l *openedLog, id hansard.SessionID, after, last hansard.Seq, n int, wants func(string) bool) (hansard.Seq, error) {
	for window := hansard.Seq(64); ; window *= 8 {
		from := after
		if last > after+window {
			from = last - window
		}
		var found []hansard.Seq
		err := s.scanEvents(ctx, l, id, from, last, func(e *line) bool {
			if wants(e.Kind) {
				found = append(found, e.Seq)
				if len(found) > n {
					found = found[1:]
				}
			}
			return true
		})
		if err != nil {
			return 0, err
		}
		if len(found) == n || from == after {
			if len(found) == 0 {
				return 0, nil
			}
			return found[0], nil
		}
	}
}

// scanEvents calls fn with the events of (after, last], whole batches checked
// against the chain. It returns errStop when fn had enough.
func (s *Store) scanEvents(ctx context.Context, l *openedLog, id hansard.SessionID, after, last hansard.Seq, fn func(*line) bool) error {
	if last == 0 || after >= last {
		return nil
	}
	sc := newScanner(l.f, 0)
	c := chain{id: id}
	if after > 0 {
		if at, first, ok := locate(l, after); ok {
			sc = newScanner(l.f, at)
			c.resume(first)
		}
	}
	var batch []*line // given out when it is whole
	for n := 0; ; n++ {
		if n%256 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if s.closed.Load() {
				return hansard.ErrClosed
			}
		}
		b, at, err := sc.next()
		if err == errNoLine {
			return nil
		}
		if err != nil {
			return err
		}
		e, err := decodeLine(b)
		if err == nil {
			err = c.follow(e)
		}
		if err != nil {
			return s.damagedInScan(l.f, id, c.damage(at, err))
		}
		if e.Seq > after {
			batch = append(batch, e)
		}
		if e.Left > 0 && !s.planted(plantHalfBatch) {
			continue
		}
		for _, e := range batch {
			if !fn(e) {
				return errStop
			}
		}
		batch = batch[:0]
		if e.Seq >= last {
			return nil
		}
	}
}

// damagedInScan makes damage that a reader came upon known, and tells it with
// what is safe of the whole log.
func (s *Store) damagedInScan(f vfs.File, id hansard.SessionID, d *hansard.DamagedError) error {
	_, whole, err := checkLog(f, id, decodeLine)
	if err == nil && whole != nil {
		d = whole
	}
	if inode, err := f.Inode(); err == nil {
		s.foundDamage(encodeName(id), inode, d)
	}
	return d
}

// locate finds the line with a seq by bisection: lines are in the order of
// their seqs. It returns the offset behind it, and the line. Not ok: go from
// the beginning, and find out why.
func locate(l *openedLog, seq hansard.Seq) (behind int64, at *line, ok bool) {
	if l.tail == nil || seq >= l.tail.last.Seq {
		return 0, nil, false
	}
	lo, hi := l.header.end, l.tail.lastAt // the line begins in [lo, hi)
	for lo < hi {
		mid := lo + (hi-lo)/2
		begin := lo
		if mid > lo {
			// The first line that begins at or behind mid.
			skip, err := readLineAt(l.f, mid-1)
			if err != nil {
				return 0, nil, false
			}
			begin = mid - 1 + int64(len(skip)) + 1
		}
		if begin >= hi {
			hi = mid // no line begins in [mid, hi)
			continue
		}
		b, err := readLineAt(l.f, begin)
		if err != nil {
			return 0, nil, false
		}
		got, isEvent := quickSeq(b)
		switch {
		case !isEvent:
			return 0, nil, false
		case got == seq:
			e, err := decodeLine(b)
			return begin + int64(len(b)) + 1, e, err == nil
		case got < seq:
			lo = begin + int64(len(b)) + 1
		case mid == lo:
			return 0, nil, false
		default:
			hi = mid
		}
	}
	return 0, nil, false
}

// quickSeq reads the seq of an event's line without decoding it.
func quickSeq(b []byte) (hansard.Seq, bool) {
	rest, ok := bytes.CutPrefix(b, []byte(`{"seq":`))
	if !ok {
		return 0, false
	}
	n := 0
	for n < len(rest) && n < 20 && '0' <= rest[n] && rest[n] <= '9' {
		n++
	}
	seq, err := strconv.ParseUint(string(rest[:n]), 10, 64)
	return hansard.Seq(seq), err == nil
}

// scanner reads a log line by line, forward.
type scanner struct {
	f    vfs.File
	at   int64 // of the next line
	buf  []byte
	used int // bytes of buf before the next line
}

func newScanner(f vfs.File, at int64) *scanner {
	room := int64(64 << 10)
	if size, err := f.Size(); err == nil { // no more than a short log needs
		room = min(room, max(512, size-at+1))
	}
	return &scanner{f: f, at: at, buf: make([]byte, 0, room)}
}

// next gives the next line, without its newline, and where it begins; it is
// good until the next call. errNoLine is the end.
func (sc *scanner) next() (b []byte, at int64, err error) {
	searched := sc.used
	for {
		if i := bytes.IndexByte(sc.buf[searched:], '\n'); i >= 0 {
			b, at = sc.buf[sc.used:searched+i], sc.at
			sc.used = searched + i + 1
			sc.at += int64(len(b)) + 1
			return b, at, nil
		}
		// Make room: drop what was given, grow for a line that is longer.
		rest := copy(sc.buf, sc.buf[sc.used:])
		sc.buf, sc.used = sc.buf[:rest], 0
		searched = rest
		if rest == cap(sc.buf) {
			if rest >= maxLineBytes {
				return nil, sc.at, errNoLine
			}
			sc.buf = append(make([]byte, 0, 4*cap(sc.buf)), sc.buf...)
		}
		n, err := sc.f.ReadAt(sc.buf[rest:cap(sc.buf)], sc.at+int64(rest))
		if err != nil && err != io.EOF {
			return nil, sc.at, err
		}
		if n == 0 {
			return nil, sc.at, errNoLine
		}
		sc.buf = sc.buf[:rest+n]
	}
}
