package sessionlog

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"hansard"
	"hansard/internal/jsontext"
)

// Reading a session means decoding its lines, and nearly all of them have one shape: the
// members that AppendHead, AppendEvent and EncodeBody write, and strings without escapes. A Decoder
// parses those by hand, many times as fast as encoding/json, and without allocating for
// each line. It leaves everything else to encoding/json, so that what is a line and what it
// says is decided in one place.
//
//	{"seq":7,"time":"2026-01-02T03:04:06.000000Z","b":0,"kind":"message","role":"user","data":"hi","prev":"…","crc":"…"}
//	 stamp                                             middle                                 data
//
// Most lines differ from the one before only in their stamp, their id if they have one, and
// their data. Then the bytes between, the middle, are the same as before, and are compared
// instead of parsed.

// Decoder decodes lines one after the other. The zero value is ready.
type Decoder struct {
	// line is the line decoded last. Nothing else writes to it.
	line Line
	r    lineReader
	// middle is the middle of line, up to its id if it has one, if it was parsed by hand after a
	// stamp; empty: it was not, and nothing of line may be reused. behind is what follows the
	// id.
	middle, behind []byte
}

// Decode is [Decode] into a line that is valid until the next call; its Data is a part of
// b.
func (d *Decoder) Decode(b []byte) (*Line, error) {
	prev, crc, err := CheckFrame(b)
	if err != nil {
		return nil, err
	}
	if !d.plain(b) {
		d.forget()
		if err := json.Unmarshal(b, &d.line); err != nil {
			return nil, lineError("the line is not JSON of this format: " + err.Error())
		}
	}
	return d.checked(prev, crc, len(b))
}

// Head is Decode without the data, as [DecodeHead].
func (d *Decoder) Head(b []byte) (*Line, error) {
	prev, crc, err := CheckFrame(b)
	if err != nil {
		return nil, err
	}
	d.r.headOnly = true
	ok := d.plain(b)
	d.r.headOnly = false
	if !ok {
		return DecodeHead(b)
	}
	d.line.Data = nil
	return d.checked(prev, crc, len(b))
}

// checked ends the decoding of a line of n bytes.
func (d *Decoder) checked(prev, crc uint32, n int) (*Line, error) {
	l := &d.line
	l.Prev, l.CRC, l.size = prev, crc, n+1
	// The checksum is right, so it was written like this. But a reader that trusted it
	// would take everything that follows for an unfinished batch.
	if l.Left < 0 || l.Left > hansard.MaxBatchEvents {
		return nil, lineError("the line says that " + strconv.Itoa(l.Left) + " lines of its batch follow")
	}
	// No line begins there, and a read at that offset would look like a disk error.
	if l.MetaAt < 0 || l.TurnAt < 0 {
		return nil, lineError("the line names another line at a negative offset")
	}
	return l, nil
}

// plain decodes a line, without its newline, whose frame was checked. False: it has another
// shape, which does not mean that it is invalid.
func (d *Decoder) plain(b []byte) bool {
	if len(b) < SuffixWidth || b[0] != '{' {
		return false
	}
	r, l := &d.r, &d.line
	rest := b[1 : len(b)-SuffixWidth]
	seq, at, left, n := r.stamp(rest)
	rest = rest[n:]
	if n > 0 && len(d.middle) > 0 && bytes.HasPrefix(rest, d.middle) {
		if id, value, ok := d.again(rest[len(d.middle):]); ok {
			l.Seq, l.Time, l.Left = seq, at, left
			if id != nil {
				l.ID = string(id)
			}
			return r.data(l, value)
		}
	}
	d.forget()
	l.Seq, l.Time, l.Left = seq, at, left
	r.rest, r.odd, r.stamped, r.fromID = rest, false, n > 0, 0
	for first := !r.stamped; len(r.rest) > 0 && !r.odd; first = false {
		if !first {
			r.skip(',')
		}
		r.member(l)
	}
	// Without data it is a header, or a line of another shape. Of a header nothing is
	// reused.
	if r.odd || l.Data == nil && (l.Version == 0 || r.stamped) {
		return false
	}
	middle := rest[:len(rest)-len(l.Data)]
	switch {
	case !r.stamped:
	case r.fromID > 0:
		d.middle = append(d.middle, rest[:len(rest)-r.fromID]...)
		d.behind = append(d.behind, middle[len(rest)-r.behindID:]...)
	default:
		d.middle = append(d.middle, middle...)
	}
	return true
}

// again returns the id, if there is one, and the data of a line that matches the one before
// up to here. False: it continues differently.
func (d *Decoder) again(rest []byte) (id, data []byte, ok bool) {
	if len(d.behind) == 0 {
		return nil, rest, true
	}
	id, ok = jsontext.PlainText(rest)
	if !ok || !utf8.Valid(id) {
		return nil, nil, false
	}
	rest = rest[len(id)+2:]
	return id, rest[min(len(d.behind), len(rest)):], bytes.HasPrefix(rest, d.behind)
}

// forget drops everything of the line before.
func (d *Decoder) forget() { d.line, d.middle, d.behind = Line{}, d.middle[:0], d.behind[:0] }

// lineReader reads the members of a line, one after the other.
type lineReader struct {
	rest []byte
	odd  bool // it has another shape: nothing more is read
	// headOnly: the data is not checked.
	headOnly bool
	stamped  bool // the stamp was read
	// fromID and behindID are how much of the line was left at its id, the last one if
	// there are two, and after it; 0: it has none.
	fromID, behindID int

	// Kept from the line before: what a line has in common with it takes no memory and
	// little time.
	turn, kind, role, author, by string
	minute                       [len("2006-01-02T15:04:")]byte
	minuteTime                   time.Time
}

// member reads one member. Of two with the same name the last counts, as in encoding/json.
func (r *lineReader) member(l *Line) {
	name := r.name()
	if r.odd {
		return
	}
	switch string(name) {
	case "seq":
		l.Seq = hansard.Seq(r.number())
		r.twice()
	case "time":
		l.Time = r.time()
		r.twice()
	case "b":
		l.Left = int(r.number())
		r.twice()
	case "turn":
		l.Turn = hansard.Grant(r.text(&r.turn))
	case "meta":
		l.MetaAt = int64(r.number())
	case "turned":
		l.TurnAt = int64(r.number())
	case "kind":
		l.Kind = r.text(&r.kind)
	case "role":
		l.Role = r.text(&r.role)
	case "author":
		l.Author = r.text(&r.author)
	case "by":
		l.By = r.text(&r.by)
	case "id":
		r.fromID = len(r.rest)
		l.ID = string(r.plain())
		r.behindID = len(r.rest)
	case "at":
		l.At = r.time()
	case "hansard":
		l.Version = int(r.number())
	case "uid":
		l.UID = string(r.plain())
	case "created":
		l.Created = r.time()
	case "own":
		l.Own = int64(r.number())
	case "was":
		l.Was = string(r.plain())
	case "fill":
		r.plain() // room to spare, without meaning
	case "key":
		l.Key = string(r.plain())
	case "hash":
		l.Hash = string(r.plain())
	case "data":
		// The last member: the value is all that is left.
		r.odd = !r.data(l, r.rest)
		r.rest = nil
	default:
		r.odd = true
	}
}

// twice handles a stamp member that occurs again after the stamp: the middle would then say
// more than is kept of it.
func (r *lineReader) twice() { r.odd = r.odd || r.stamped }

// data takes the value of the last member. False: it has another shape.
func (r *lineReader) data(l *Line, value []byte) bool {
	if l.Seq == 0 && r.headOnly || !r.headOnly && !isMember(value) {
		return false
	}
	l.Data = value[:len(value):len(value)]
	return true
}

// stamp reads the members at the beginning of every event's line, in the order in which
// AppendEvent writes them, and returns their length. 0: the line begins differently.
func (r *lineReader) stamp(b []byte) (seq hansard.Seq, at time.Time, left, n int) {
	const name, timed, counted = `"seq":`, `,"time":"`, `","b":`
	if len(b) < len(name) || string(b[:len(name)]) != name {
		return 0, time.Time{}, 0, 0
	}
	n = len(name)
	v, digits := number(b[n:])
	n += digits
	const width = len(timed) + len(TimeLayout) + len(counted)
	if digits == 0 || len(b)-n <= width || string(b[n:n+len(timed)]) != timed || string(b[n+width-len(counted):n+width]) != counted {
		return 0, time.Time{}, 0, 0
	}
	at, ok := r.timeOf(b[n+len(timed) : n+width-len(counted)])
	n += width
	follow, digits := number(b[n:])
	if !ok || digits == 0 {
		return 0, time.Time{}, 0, 0
	}
	return hansard.Seq(v), at, int(follow), n + digits
}

// isMember tells whether data is the value of a member, without space around it.
func isMember(data []byte) bool {
	return len(data) > 0 && !isSpace(data[0]) && !isSpace(data[len(data)-1]) && jsontext.ValidMember(data)
}

// name reads the name of a member, and its colon. The names that member knows are lower
// case.
func (r *lineReader) name() []byte {
	b := r.rest
	n := 1
	for n < len(b) && 'a' <= b[n] && b[n] <= 'z' {
		n++
	}
	if len(b) < n+2 || b[0] != '"' || b[n] != '"' || b[n+1] != ':' {
		r.odd = true
		return nil
	}
	r.rest = b[n+2:]
	return b[1:n]
}

func (r *lineReader) skip(c byte) {
	if len(r.rest) == 0 || r.rest[0] != c {
		r.odd = true
		return
	}
	r.rest = r.rest[1:]
}

// plain is a string without escapes: the bytes between its quotes.
func (r *lineReader) plain() []byte {
	text, ok := jsontext.PlainText(r.rest)
	if !ok || !utf8.Valid(text) {
		r.odd = true
		return nil
	}
	r.rest = r.rest[len(text)+2:]
	return text
}

// text is a string without escapes that many lines share; last is the one read before.
func (r *lineReader) text(last *string) string {
	text := r.plain()
	if string(text) == *last {
		return *last
	}
	switch string(text) {
	case hansard.KindMessage:
		return hansard.KindMessage
	case hansard.KindToolCall:
		return hansard.KindToolCall
	case hansard.KindToolResult:
		return hansard.KindToolResult
	case "user":
		return "user"
	case "assistant":
		return "assistant"
	case "agent":
		return "agent"
	case "tool":
		return "tool"
	default:
		*last = string(text)
		return *last
	}
}

func (r *lineReader) number() uint64 {
	v, n := number(r.rest)
	if n == 0 {
		r.odd = true
	}
	r.rest = r.rest[n:]
	return v
}

// number is a number as this package writes them, and how many digits it has: not negative,
// and too short to overflow. 0 digits: b does not begin with one.
func number(b []byte) (v uint64, n int) {
	for n < len(b) && n < 16 && '0' <= b[n] && b[n] <= '9' {
		v = 10*v + uint64(b[n]-'0')
		n++
	}
	// No number but 0 begins with a zero, and the value must end here.
	if n > 1 && b[0] == '0' || n < len(b) && b[n] != ',' {
		return 0, 0
	}
	return v, n
}

func (r *lineReader) time() time.Time {
	const width = len(TimeLayout) + 2
	if len(r.rest) < width || r.rest[0] != '"' || r.rest[width-1] != '"' {
		r.odd = true
		return time.Time{}
	}
	t, ok := r.timeOf(r.rest[1 : width-1])
	r.odd = !ok
	r.rest = r.rest[width:]
	return t
}

// timeOf is a time in TimeLayout, of that length.
func (r *lineReader) timeOf(b []byte) (t time.Time, ok bool) {
	odd := false
	digits := func(from, to int) (v int) {
		for _, c := range b[from:to] {
			odd = odd || c < '0' || c > '9'
			v = 10*v + int(c-'0')
		}
		return v
	}
	second, micro := digits(17, 19), digits(20, 26)
	if r.minute[0] != 0 && string(b[:17]) == string(r.minute[:]) && !odd && second < 60 && b[19] == '.' && b[26] == 'Z' {
		return r.minuteTime.Add(time.Duration(second)*time.Second + time.Duration(micro)*time.Microsecond), true
	}
	year, month, day := digits(0, 4), digits(5, 7), digits(8, 10)
	hour, minute := digits(11, 13), digits(14, 16)
	if b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[19] != '.' || b[26] != 'Z' {
		odd = true
	}
	// Not every month has a 29th, 30th or 31st.
	if odd || month < 1 || month > 12 || day < 1 || day > 28 && time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Day() != day ||
		hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	copy(r.minute[:], b)
	r.minuteTime = time.Date(year, time.Month(month), day, hour, minute, 0, 0, time.UTC)
	return time.Date(year, time.Month(month), day, hour, minute, second, micro*1000, time.UTC), true
}
