package sessionlog

import (
	"bytes"
	"time"
	"unicode/utf8"

	"hansard"
	"hansard/internal/jsontext"
)

// Reading a session is decoding its lines, and nearly all of them are of one shape: the
// members that AppendEvent and EncodeBody write, and texts without escapes. decodePlain
// reads those by hand, several times as fast as encoding/json. It leaves everything else
// to that one, so that what is a line and what it says is decided in one place.

// decodePlain decodes a line, without its newline, whose frame was checked. False: it is
// of another shape, which says nothing about it.
func decodePlain(b []byte) (*Line, bool) {
	if len(b) < SuffixWidth || b[0] != '{' {
		return nil, false
	}
	r := lineReader{rest: b[1 : len(b)-SuffixWidth]}
	l := &Line{}
	for first := true; len(r.rest) > 0 && !r.odd; first = false {
		if !first {
			r.skip(',')
		}
		r.member(l)
	}
	// Without data it is a header, or a line of another shape.
	if r.odd || l.Data == nil {
		return nil, false
	}
	return l, true
}

// lineReader reads the members of a line, one after the other.
type lineReader struct {
	rest []byte
	odd  bool // it is of another shape: nothing more is read
}

// member reads one. Of two with one name the last counts, as in encoding/json.
func (r *lineReader) member(l *Line) {
	name := r.plain()
	r.skip(':')
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
		l.Turn = hansard.Grant(r.text())
	case "meta":
		l.MetaAt = int64(r.number())
	case "turned":
		l.TurnAt = int64(r.number())
	case "kind":
		l.Kind = r.text()
	case "role":
		l.Role = r.text()
	case "author":
		l.Author = r.text()
	case "by":
		l.By = r.text()
	case "id":
		l.ID = r.text()
	case "at":
		l.At = r.time()
	case "key":
		l.Key = r.text()
	case "hash":
		l.Hash = r.text()
	case "data":
		// The last member: what is left is all of it.
		if len(r.rest) == 0 || isSpace(r.rest[0]) || isSpace(r.rest[len(r.rest)-1]) || !jsontext.ValidMember(r.rest) {
			r.odd = true
			return
		}
		l.Data, r.rest = bytes.Clone(r.rest), nil
	default:
		r.odd = true
		return
	}
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
	if len(r.rest) < 2 || r.rest[0] != '"' {
		r.odd = true
		return nil
	}
	n := bytes.IndexByte(r.rest[1:], '"')
	if n < 0 || !jsontext.Plain(r.rest[:n+2]) || !utf8.Valid(r.rest[:n+2]) {
		r.odd = true
		return nil
	}
	text := r.rest[1 : n+1]
	r.rest = r.rest[n+2:]
	return text
}

func (r *lineReader) text() string {
	switch text := r.plain(); string(text) { // those that most lines have take no memory of their own
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
		return string(text)
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
	year, month, day := digits(0, 4), digits(5, 7), digits(8, 10)
	hour, minute, second, micro := digits(11, 13), digits(14, 16), digits(17, 19), digits(20, 26)
	if b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[19] != '.' || b[26] != 'Z' {
		r.odd = true
	}
	// The 29th and later days are there in some months only.
	if r.odd || month < 1 || month > 12 || day < 1 || day > 28 && time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Day() != day ||
		hour > 23 || minute > 59 || second > 59 {
		r.odd = true
		return time.Time{}
	}
	return time.Date(year, time.Month(month), day, hour, minute, second, micro*1000, time.UTC)
}
