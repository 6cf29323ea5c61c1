package sessionlog

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"hansard"
	"hansard/internal/jsontext"
)

// Reading a session is decoding its lines, and nearly all of them are of one shape: the
// members that AppendEvent and EncodeBody write, and texts without escapes. A Decoder reads
// those by hand, many times as fast as encoding/json, and without memory for each line. It
// leaves everything else to encoding/json, so that what is a line and what it says is
// decided in one place.

// Decoder decodes lines one after the other. The zero value is ready.
type Decoder struct {
	line Line
	r    lineReader
}

// Decode is [Decode] of a line that is good until the next call; its Data is a part of b.
func (d *Decoder) Decode(b []byte) (*Line, error) {
	prev, crc, err := CheckFrame(b)
	if err != nil {
		return nil, err
	}
	if !d.plain(b) {
		d.line = Line{}
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
	// The checksum was right, so somebody wrote it so. But whoever believed it would take
	// everything that follows for an unfinished batch.
	if l.Left < 0 || l.Left > hansard.MaxBatchEvents {
		return nil, lineError("the line says that " + strconv.Itoa(l.Left) + " lines of its batch follow")
	}
	// No line begins there, and reading there fails as if the disk were ill.
	if l.MetaAt < 0 || l.TurnAt < 0 {
		return nil, lineError("the line names another line at a negative offset")
	}
	return l, nil
}

// plain decodes a line, without its newline, whose frame was checked. False: it is of
// another shape, which says nothing about it.
func (d *Decoder) plain(b []byte) bool {
	if len(b) < SuffixWidth || b[0] != '{' {
		return false
	}
	d.line = Line{}
	r := &d.r
	r.rest, r.odd = b[1:len(b)-SuffixWidth], false
	for first := true; len(r.rest) > 0 && !r.odd; first = false {
		if !first {
			r.skip(',')
		}
		r.member(&d.line)
	}
	// Without data it is a header, or a line of another shape.
	return !r.odd && d.line.Data != nil
}

// lineReader reads the members of a line, one after the other.
type lineReader struct {
	rest []byte
	odd  bool // it is of another shape: nothing more is read
	// headOnly: the data is not checked.
	headOnly bool

	// What a line has in common with the one before takes no memory and little time.
	turn, kind, role, author, by string
	minute                       [len("2006-01-02T15:04:")]byte
	minuteTime                   time.Time
}

// member reads one. Of two with one name the last counts, as in encoding/json.
func (r *lineReader) member(l *Line) {
	name := r.name()
	if r.odd {
		return
	}
	switch string(name) {
	case "seq":
		l.Seq = hansard.Seq(r.number())
	case "time":
		l.Time = r.time()
	case "b":
		l.Left = int(r.number())
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
		l.ID = string(r.plain())
	case "at":
		l.At = r.time()
	case "key":
		l.Key = string(r.plain())
	case "hash":
		l.Hash = string(r.plain())
	case "data":
		// The last member: what is left is all of it.
		if l.Seq == 0 && r.headOnly || !r.headOnly && !isMember(r.rest) {
			r.odd = true
			return
		}
		l.Data, r.rest = r.rest[:len(r.rest):len(r.rest)], nil
	default:
		r.odd = true
	}
}

// isMember tells whether data is the value of a member, without space around it.
func isMember(data []byte) bool {
	return len(data) > 0 && !isSpace(data[0]) && !isSpace(data[len(data)-1]) && jsontext.ValidMember(data)
}

// name is the name of a member, and its colon. Those that member knows are lower case.
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

// plain is a string without escapes, as it stands between its quotes.
func (r *lineReader) plain() []byte {
	text, ok := jsontext.PlainText(r.rest)
	if !ok || !utf8.Valid(text) {
		r.odd = true
		return nil
	}
	r.rest = r.rest[len(text)+2:]
	return text
}

// text is a string without escapes that many lines have; last is the one that was read
// before.
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

// number is a number as this package writes them: not negative, and far from what does not
// fit.
func (r *lineReader) number() (v uint64) {
	n := 0
	for n < len(r.rest) && n < 16 && '0' <= r.rest[n] && r.rest[n] <= '9' {
		v = 10*v + uint64(r.rest[n]-'0')
		n++
	}
	// 0 and no other number begins with a zero, and it ends here.
	if n == 0 || n > 1 && r.rest[0] == '0' || n < len(r.rest) && r.rest[n] != ',' {
		r.odd = true
	}
	r.rest = r.rest[n:]
	return v
}

// time is a time in TimeLayout.
func (r *lineReader) time() time.Time {
	const width = len(TimeLayout) + 2
	if len(r.rest) < width || r.rest[0] != '"' || r.rest[width-1] != '"' {
		r.odd = true
		return time.Time{}
	}
	b := r.rest[1 : width-1]
	r.rest = r.rest[width:]
	digits := func(from, to int) (v int) {
		for _, c := range b[from:to] {
			if c < '0' || c > '9' {
				r.odd = true
			}
			v = 10*v + int(c-'0')
		}
		return v
	}
	second, micro := digits(17, 19), digits(20, 26)
	if r.minute[0] != 0 && string(b[:17]) == string(r.minute[:]) && !r.odd && second < 60 && b[19] == '.' && b[26] == 'Z' {
		return r.minuteTime.Add(time.Duration(second)*time.Second + time.Duration(micro)*time.Microsecond)
	}
	year, month, day := digits(0, 4), digits(5, 7), digits(8, 10)
	hour, minute := digits(11, 13), digits(14, 16)
	if b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[19] != '.' || b[26] != 'Z' {
		r.odd = true
	}
	// The 29th and later days are there in some months only.
	if r.odd || month < 1 || month > 12 || day < 1 || day > 28 && time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Day() != day ||
		hour > 23 || minute > 59 || second > 59 {
		r.odd = true
		return time.Time{}
	}
	copy(r.minute[:], b)
	r.minuteTime = time.Date(year, time.Month(month), day, hour, minute, 0, 0, time.UTC)
	return time.Date(year, time.Month(month), day, hour, minute, second, micro*1000, time.UTC)
}
