package filestore

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"
	"unicode/utf8"

	"hansard"
)

// A log is lines of JSON: a header, then one line per event. Every line ends in
// a suffix of fixed width that chains it to the line before:
//
//	…,"prev":"5c1f00aa","crc":"9e83d7b1"}\n
//
// crc is the CRC-32C of the line up to the comma before it, prev the crc of the
// line before ("00000000" in the header). FORMAT.md has the members.

const (
	formatVersion = 1
	timeLayout    = "2006-01-02T15:04:05.000000Z"
	prevWidth     = len(`,"prev":"00000000"`)
	crcWidth      = len(`,"crc":"00000000"}`)
	suffixWidth   = prevWidth + crcWidth
	// maxLineBytes bounds what is looked at as one line: the largest batch
	// as one event, every byte of it escaped, and its frame.
	maxLineBytes = 2*hansard.MaxBatchBytes + 4*hansard.MaxStateBytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// line is a decoded line of a log. The header is the line with seq 0.
type line struct {
	Version int       `json:"hansard"` // header only
	ID      string    `json:"id"`      // header only
	UID     string    `json:"uid"`     // header only
	Created time.Time `json:"created"` // header only

	Seq     hansard.Seq   `json:"seq"`
	Time    time.Time     `json:"time"`
	Left    int           `json:"b"` // lines of the same batch that follow
	Turn    hansard.Grant `json:"turn"`
	Kind    string        `json:"kind"`
	Role    string        `json:"role"`
	Author  string        `json:"author"`
	Inbox   bool          `json:"inbox"`
	Key     string        `json:"key"`  // on the first line of its batch
	Hash    string        `json:"hash"` // of the batch's content, with Key
	Deleted bool          `json:"deleted"`

	// Patch is the change this line made. MetaAt is where the line with the
	// change before it begins (0: none but the header), so that metadata is
	// found from the last line without reading the log. Snap is the whole
	// metadata after the change, written now and then to keep that walk short.
	Patch  *hansard.Patch `json:"patch"`
	MetaAt int64          `json:"meta"`
	Snap   *hansard.Meta  `json:"snap"`

	// TurnAt is where the newest line about the turn before this one begins;
	// 0: there is none. So the turn is found from the last line, too.
	TurnAt int64 `json:"turned"`

	Data json.RawMessage `json:"data"`
	Raw  *string         `json:"raw"` // data whose bytes would not stay on one line

	prev, crc uint32
}

// appendHeader writes the first line of a session that is being made.
func appendHeader(dst []byte, id hansard.SessionID, uid uint64, created time.Time, left int, m hansard.Meta) []byte {
	begin := len(dst)
	dst = fmt.Appendf(dst, `{"hansard":%d,"uid":"%016x","id":`, formatVersion, uid)
	dst = appendString(dst, string(id))
	dst = fmt.Appendf(dst, `,"created":"%s","b":%d`, created.Format(timeLayout), left)
	if m.Title != "" || len(m.Labels) > 0 || len(m.State) > 0 {
		dst = append(dst, `,"snap":`...)
		dst = append(dst, marshal(m)...)
	}
	return appendSuffix(dst, begin, 0)
}

// stamp is what is only known inside the commit.
type stamp struct {
	seq    hansard.Seq
	time   string // formatted once per group
	left   int
	turn   hansard.Grant
	metaAt int64
	turnAt int64
	snap   []byte // marshalled metadata, usually none
	prev   uint32
}

// appendEvent writes an event's line: the stamp around the body, which was
// encoded before any lock was taken.
func appendEvent(dst []byte, st *stamp, body []byte) []byte {
	begin := len(dst)
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, uint64(st.seq), 10)
	dst = append(dst, `,"time":"`...)
	dst = append(dst, st.time...)
	dst = append(dst, `","b":`...)
	dst = strconv.AppendInt(dst, int64(st.left), 10)
	if st.turn != "" {
		dst = append(dst, `,"turn":"`...)
		dst = append(dst, st.turn...)
		dst = append(dst, '"')
	}
	if st.metaAt != 0 {
		dst = append(dst, `,"meta":`...)
		dst = strconv.AppendInt(dst, st.metaAt, 10)
	}
	if st.turnAt != 0 {
		dst = append(dst, `,"turned":`...)
		dst = strconv.AppendInt(dst, st.turnAt, 10)
	}
	if st.snap != nil {
		dst = append(dst, `,"snap":`...)
		dst = append(dst, st.snap...)
	}
	dst = append(dst, body...)
	return appendSuffix(dst, begin, st.prev)
}

// stampWidth is more than appendEvent ever adds to a body without a snapshot.
const stampWidth = 256

func appendSuffix(dst []byte, begin int, prev uint32) []byte {
	dst = append(dst, `,"prev":"`...)
	dst = appendHex(dst, prev)
	dst = append(dst, '"')
	crc := checksum(dst[begin:])
	dst = append(dst, `,"crc":"`...)
	dst = appendHex(dst, crc)
	return append(dst, '"', '}', '\n')
}

// lineCRC is the crc a line (with its newline) ends in.
func lineCRC(b []byte) uint32 {
	crc, _ := parseHex(b[len(b)-11 : len(b)-3])
	return crc
}

// encodeBody encodes the part of an event's line that does not depend on the
// commit. It begins with a comma.
func encodeBody(dst []byte, e *hansard.Event, key, hash string) []byte {
	dst = append(dst, `,"kind":`...)
	dst = appendString(dst, e.Kind)
	if e.Role != "" {
		dst = append(dst, `,"role":`...)
		dst = appendString(dst, e.Role)
	}
	if e.Author != "" {
		dst = append(dst, `,"author":`...)
		dst = appendString(dst, e.Author)
	}
	if e.Inbox {
		dst = append(dst, `,"inbox":true`...)
	}
	if key != "" {
		dst = append(dst, `,"key":`...)
		dst = appendString(dst, key)
		dst = append(dst, `,"hash":`...)
		dst = appendString(dst, hash)
	}
	if e.Patch != nil {
		dst = append(dst, `,"patch":`...)
		dst = append(dst, marshal(e.Patch)...)
	}
	if fitsLine(e.Data) {
		dst = append(dst, `,"data":`...)
		return append(dst, e.Data...)
	}
	dst = append(dst, `,"raw":`...)
	return appendString(dst, string(e.Data))
}

// tombstone is the body of the last line of a deleted session.
const tombstone = `,"kind":"deleted","deleted":true,"data":null`

// fitsLine tells whether data keeps its bytes as a member of a line: space around
// a value is not part of it there, and a parser that takes the value alone may
// find it nested too deeply inside another.
func fitsLine(data []byte) bool {
	if isSpace(data[0]) || isSpace(data[len(data)-1]) {
		return false
	}
	const deep = 5000
	return oneLine(data) && (len(data) < deep || bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) < deep)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// oneLine tells whether every reader of lines takes data for a part of one:
// JSON may have newlines between its tokens, and U+0085, U+2028 and U+2029,
// which many languages' line readers split at, inside its strings.
func oneLine(data []byte) bool {
	if bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		return false
	}
	return !bytes.Contains(data, []byte("\u2028")) && !bytes.Contains(data, []byte("\u2029")) &&
		!bytes.Contains(data, []byte("\u0085"))
}

// marshal encodes metadata, on one line for every reader of lines.
func marshal(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // people read this
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("filestore: checked metadata does not marshal: %v", err))
	}
	b := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if !oneLine(b) {
		b = bytes.ReplaceAll(b, []byte("\u0085"), []byte(`\u0085`))
		b = bytes.ReplaceAll(b, []byte("\u2028"), []byte(`\u2028`))
		b = bytes.ReplaceAll(b, []byte("\u2029"), []byte(`\u2029`))
	}
	return b
}

func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	plain := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		r, n := rune(c), 1
		if c >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(s[i:])
			if r != '\u0085' && r != '\u2028' && r != '\u2029' {
				i += n
				continue
			}
		}
		dst = append(dst, s[plain:i]...)
		switch r {
		case '"', '\\':
			dst = append(dst, '\\', byte(r))
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
		i += n
		plain = i
	}
	return append(append(dst, s[plain:]...), '"')
}

// lineError is why a line is not one of this format.
type lineError string

func (e lineError) Error() string { return string(e) }

// checkFrame checks the suffix of a line (without its newline) and gives its
// two checksums.
func checkFrame(b []byte) (prev, crc uint32, err error) {
	if len(b) < suffixWidth+2 {
		return 0, 0, lineError("the line is too short to be one of a log")
	}
	tail := b[len(b)-suffixWidth:]
	prev, ok1 := parseHex(tail[9:17])
	crc, ok2 := parseHex(tail[prevWidth+8 : prevWidth+16])
	if string(tail[:9]) != `,"prev":"` || tail[17] != '"' || string(tail[prevWidth:prevWidth+8]) != `,"crc":"` ||
		string(tail[prevWidth+16:]) != `"}` || !ok1 || !ok2 {
		return 0, 0, lineError("the line does not end in its checksums")
	}
	if checksum(b[:len(b)-crcWidth]) != crc {
		return 0, 0, lineError("the line's checksum does not match its content")
	}
	return prev, crc, nil
}

// decodeLine checks and decodes a line without its newline. Where it stands in
// the chain is the caller's to check.
func decodeLine(b []byte) (*line, error) {
	prev, crc, err := checkFrame(b)
	if err != nil {
		return nil, err
	}
	l := &line{}
	if err := json.Unmarshal(b, l); err != nil {
		return nil, lineError("the line is not JSON of this format: " + err.Error())
	}
	l.prev, l.crc = prev, crc
	if l.Left < 0 || l.Left > hansard.MaxBatchEvents {
		return nil, lineError("the line says that " + strconv.Itoa(l.Left) + " lines of its batch follow")
	}
	return l, nil
}

func (l *line) event() hansard.Event {
	e := hansard.Event{Seq: l.Seq, Time: l.Time, Kind: l.Kind, Role: l.Role, Author: l.Author,
		Turn: l.Turn, Inbox: l.Inbox, Patch: l.Patch, Data: l.Data}
	if l.Raw != nil {
		e.Data = json.RawMessage(*l.Raw)
	}
	return e
}

func appendHex(dst []byte, v uint32) []byte {
	const digits = "0123456789abcdef"
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, digits[v>>shift&15])
	}
	return dst
}

func parseHex(b []byte) (uint32, bool) {
	for _, c := range b {
		if 'A' <= c && c <= 'F' {
			return 0, false // one spelling
		}
	}
	var v [4]byte
	if n, err := hex.Decode(v[:], b); n != 4 || err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint32(v[:]), true
}

func parseUID(s string) (uint64, bool) {
	uid, err := strconv.ParseUint(s, 16, 64)
	return uid, err == nil && len(s) == 16
}
