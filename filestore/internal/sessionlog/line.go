// Package sessionlog is the log of one session: how its lines are written and read, how
// they chain, and what the last of them says about the whole. FORMAT.md has the rules (L,
// R, W, T). It takes open files and bytes and knows nothing of the ring; package filestore
// decides when a line may be written, and how much of a log may be trusted while others
// write.
//
// Read the files in this order:
//
//   - name.go: a session's file name
//   - line.go: one line as bytes; decode.go: the fast path for most of them; names.go, turnline.go:
//     the keys, ids and turns in it
//   - chain.go: checking that lines follow each other
//   - scan.go: where lines begin and end in a file
//   - header.go, tail.go: the first line, and the last line that ends a batch
//   - fork.go: a copy of a log under another header
//   - fold.go: metadata, from the last line back
//   - sweep.go: checking a whole log
//   - runs.go, assemble.go, headless.go, rebuild.go: repair, in this order
//   - redact.go: removing the content of single events
package sessionlog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"hansard"
	"hansard/filestore/internal/crc32c"
)

// A log is lines of JSON: a header, then one line per event. Every line ends in a suffix
// of fixed width that chains it to the line before:
//
//	…,"prev":"5c1f00aa","crc":"9e83d7b1"}\n
//
// crc is the CRC-32C of the line up to the comma before it, prev the crc of the line
// before ("00000000" in the header). FORMAT.md has the members. An event's line:
//
//	{"seq":7,"time":"2026-01-02T03:04:06.000000Z","b":0,"meta":812,"turned":455   stamp
//	,"kind":"message","role":"user","key":"k1","hash":"…","data":"hi"             body
//	,"prev":"5c1f00aa","crc":"9e83d7b1"}                                          suffix
//
// The body is encoded before any lock is taken; the stamp is known only in the commit. The
// order of members is fixed: the seq can be read without parsing (bisection), offsets can
// be found and replaced (repair), and the data, which may be megabytes, comes last and can
// be left out. Members a reader does not know are ignored (L2).
//
// One JSON object per line, so that cat, grep and jq work on it. So a line must not contain
// any byte at which some line reader splits (failure 28).

const (
	// FormatVersion is 2 since events have ids and attachments, and patches have
	// operations: a program that does not know them would store events twice, or compute a
	// different state.
	FormatVersion = 2
	// TimeLayout has a fixed width. Times are for people, and nothing is ordered by them
	// (failure 37).
	TimeLayout = "2006-01-02T15:04:05.000000Z"
	prevWidth  = len(`,"prev":"00000000"`)
	// CRCWidth and SuffixWidth are the fixed widths at the end of every line, so that a
	// checksum is found from the end of a line, or of a file, without parsing.
	CRCWidth    = len(`,"crc":"00000000"}`)
	SuffixWidth = prevWidth + CRCWidth
	// MaxLine bounds one line: the largest batch as one event, every byte of it escaped,
	// and its frame. Anything longer is damage, not a reason to use up all memory.
	MaxLine = 2*hansard.MaxBatchBytes + 4*hansard.MaxStateBytes
)

// Line is a decoded line of a log. The header is the line with seq 0. What a line says
// about other lines (MetaAt, TurnAt) is only as good as the chain that leads to it.
type Line struct {
	Version int       `json:"hansard"` // header only
	ID      string    `json:"id"`      // of the session in the header, else the event's own
	UID     string    `json:"uid"`     // header only
	Created time.Time `json:"created"` // header only
	// Own, in the header of a fork, is where its own lines begin: everything before is a
	// copy. See fork.go.
	Own int64 `json:"own"`
	// Parent, in the header of a fork whose log was not copied here as a whole, is what it
	// is a fork of.
	Parent *hansard.Parent `json:"parent"`
	Was    string          `json:"was"` // header only: the uid of the deleted log that this one follows

	Seq    hansard.Seq   `json:"seq"`
	Time   time.Time     `json:"time"`
	Left   int           `json:"b"` // lines of the same batch that follow
	Turn   hansard.Grant `json:"turn"`
	Kind   string        `json:"kind"`
	Role   string        `json:"role"`
	Author string        `json:"author"`
	By     string        `json:"by"`
	At     time.Time     `json:"at"` // when it happened, as its writer says
	Inbox  bool          `json:"inbox"`
	// Attachments are stored for the event beside the log.
	Attachments []hansard.Attachment `json:"attachments"`
	// Fork, on the first of a fork's own lines, is what it is a fork of.
	Fork *hansard.Parent `json:"fork"`

	Key     string `json:"key"`  // on the first line of its batch
	Hash    string `json:"hash"` // of the batch's content, with Key
	Deleted bool   `json:"deleted"`

	// Patch is the change of metadata this line made. MetaAt is the offset of the line with
	// the previous change (0: none but the header), so that metadata is found from the last
	// line without reading the log. Snap is the whole metadata after the change, written
	// now and then to keep that walk short: see fold.go.
	Patch  *hansard.Patch `json:"patch"`
	MetaAt int64          `json:"meta"`
	Snap   *hansard.Meta  `json:"snap"`

	// TurnAt is the offset of the newest line about the turn before this one; 0: there is
	// none. So the turn is found from the last line as well.
	TurnAt int64 `json:"turned"`

	// Redacts are the events whose content this line removes; Gone: the content of this
	// line has been removed (redact.go).
	Redacts []hansard.Seq `json:"redacts"`
	Gone    int           `json:"gone"`

	Data json.RawMessage `json:"data"`
	Raw  *string         `json:"raw"` // data that does not fit a line: see fitsLine

	Prev, CRC uint32 `json:"-"`
	size      int    `json:"-"` // bytes of the line, its newline included
}

// Stamp is the part of a line that is only known inside the commit, under write.lock. The
// body is encoded earlier: encoding megabytes must not keep other writers waiting.
type Stamp struct {
	Seq    hansard.Seq
	Time   string // formatted once per group
	Left   int
	Turn   hansard.Grant
	MetaAt int64
	TurnAt int64
	Snap   []byte // marshalled metadata, usually none
	// More holds members of the body that only some lines of a batch have (AppendKey,
	// AppendPatch), where the commit decides which.
	More []byte
	Prev uint32
}

// AppendEvent writes an event's line: the stamp, then the body from EncodeBody, then the
// checksums. QuickSeq, Decoder and offsetsIn rely on the order of members.
func AppendEvent(dst []byte, st *Stamp, body []byte) []byte {
	begin := len(dst)
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, uint64(st.Seq), 10)
	dst = append(dst, `,"time":"`...)
	dst = append(dst, st.Time...)
	dst = append(dst, `","b":`...)
	dst = strconv.AppendInt(dst, int64(st.Left), 10)
	if st.Turn != "" {
		dst = append(dst, `,"turn":"`...)
		dst = append(dst, st.Turn...)
		dst = append(dst, '"')
	}
	dst = appendOffsets(dst, st.MetaAt, st.TurnAt)
	if st.Snap != nil {
		dst = append(dst, `,"snap":`...)
		dst = append(dst, st.Snap...)
	}
	dst = append(dst, st.More...)
	dst = append(dst, body...)
	return AppendSuffix(dst, begin, st.Prev)
}

// appendOffsets writes the members of a line that are offsets of other lines. 0 is left
// out.
func appendOffsets(dst []byte, metaAt, turnAt int64) []byte {
	if metaAt != 0 {
		dst = append(dst, `,"meta":`...)
		dst = strconv.AppendInt(dst, metaAt, 10)
	}
	if turnAt != 0 {
		dst = append(dst, `,"turned":`...)
		dst = strconv.AppendInt(dst, turnAt, 10)
	}
	return dst
}

// StampWidth bounds what AppendEvent adds to a body without a snapshot, so that the room
// for a request is known before its stamp is.
const StampWidth = 256

// AppendSuffix ends the line that begins at begin with its two checksums. crc covers prev,
// so each line's crc stands for all lines before it.
func AppendSuffix(dst []byte, begin int, prev uint32) []byte {
	dst = append(dst, `,"prev":"`...)
	dst = appendHex(dst, prev)
	dst = append(dst, '"')
	crc := crc32c.Sum(dst[begin:])
	dst = append(dst, `,"crc":"`...)
	dst = appendHex(dst, crc)
	return append(dst, '"', '}', '\n')
}

// LineCRC is the crc that a line, with its newline, ends in. It must be a line of ours: it
// is not checked.
func LineCRC(b []byte) uint32 {
	crc, _ := parseHex(b[len(b)-11 : len(b)-3])
	return crc
}

// EncodeBody encodes the part of an event's line that does not depend on the commit. It
// begins with a comma. key and hash go on the first line of a batch only. The event has
// passed engine.CheckBatch: its strings are UTF-8, its data is valid JSON and not empty.
func EncodeBody(dst []byte, e *hansard.Event, key, hash string) []byte {
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
	if e.By != "" {
		dst = append(dst, `,"by":`...)
		dst = appendString(dst, e.By)
	}
	if e.ID != "" {
		dst = append(dst, `,"id":`...)
		dst = appendString(dst, e.ID)
	}
	if !e.At.IsZero() {
		dst = append(dst, `,"at":"`...)
		dst = e.At.UTC().AppendFormat(dst, TimeLayout)
		dst = append(dst, '"')
	}
	if e.Inbox {
		dst = append(dst, `,"inbox":true`...)
	}
	if len(e.Attachments) > 0 {
		dst = append(dst, `,"attachments":`...)
		dst = append(dst, Marshal(e.Attachments)...)
	}
	if e.Fork != nil {
		dst = append(dst, `,"fork":`...)
		dst = append(dst, Marshal(e.Fork)...)
	}
	if len(e.Redacts) > 0 {
		dst = append(dst, `,"redacts":`...)
		dst = append(dst, Marshal(e.Redacts)...)
	}
	dst = AppendKey(dst, key, hash)
	dst = AppendPatch(dst, e.Patch)
	if e.Redacted {
		return append(dst, goneMember...)
	}
	if fitsLine(e.Data) {
		dst = append(dst, dataMember...)
		return append(dst, e.Data...)
	}
	dst = append(dst, `,"raw":`...)
	return appendString(dst, string(e.Data))
}

// dataMember precedes data that a body holds byte for byte, at its end.
const dataMember = `,"data":`

// OwnData is the data of an event within the body that EncodeBody made of it; not ok if the
// body has it in another form: as a string, in which every quote is escaped, or not at all.
func OwnData(body []byte, e *hansard.Event) (data []byte, ok bool) {
	at := len(body) - len(e.Data)
	if e.Redacted || at < 0 || !bytes.HasSuffix(body[:at], []byte(dataMember)) {
		return nil, false
	}
	return body[at:], true
}

// AppendKey writes a batch's key and the hash of its content; nothing without a key.
func AppendKey(dst []byte, key, hash string) []byte {
	if key == "" {
		return dst
	}
	dst = append(dst, `,"key":`...)
	dst = appendString(dst, key)
	if hash == "" { // of a batch that was redacted in the store it was copied from
		return dst
	}
	dst = append(dst, `,"hash":`...)
	return appendString(dst, hash)
}

// AppendPatch writes a patch; nothing without one.
func AppendPatch(dst []byte, p *hansard.Patch) []byte {
	if p == nil {
		return dst
	}
	dst = append(dst, `,"patch":`...)
	return append(dst, Marshal(p)...)
}

// Tombstone is the body of the last line of a deleted session. Deleting is a line like
// any other, through the ring: if the file were unlinked, the journal or the next Create
// could bring the session back (DeleteIsEntry, failure 32).
const Tombstone = `,"kind":"deleted","deleted":true,"data":null`

// fitsLine tells whether data keeps its bytes as a member of a line; otherwise it is
// stored as a JSON string in raw. Inside a line, space around a value is not part of it; a
// newline would end the line; and a value that parses on its own may be nested too deeply
// once it is inside another (encoding/json gives up at 10,000 levels).
func fitsLine(data []byte) bool {
	if isSpace(data[0]) || isSpace(data[len(data)-1]) {
		return false
	}
	// Brackets in strings are counted too: an upper bound is enough, and raw is always
	// correct.
	const deep = 5000
	return oneLine(data) && (len(data) < deep || bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) < deep)
}

// isSpace tells whether JSON allows c as space between tokens.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// oneLine tells whether every line reader keeps data on one line: JSON may have newlines
// between its tokens and, inside its strings, U+0085, U+2028 and U+2029, at which the line
// readers of many languages split (failure 28).
func oneLine(data []byte) bool {
	if bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		return false
	}
	return !bytes.Contains(data, []byte("\u2028")) && !bytes.Contains(data, []byte("\u2029")) &&
		!bytes.Contains(data, []byte("\u0085"))
}

// Marshal encodes metadata on one line, for every line reader. v has been checked, so an
// error is a bug here: it panics.
func Marshal(v any) []byte {
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

// appendString appends a JSON string with no more escapes than needed: people read these
// lines. It escapes quotes, backslashes, control characters, and what oneLine excludes. s
// is valid UTF-8: invalid bytes would be kept unchanged.
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

// lineError says why a line is not valid in this format: damage, as opposed to a failed
// read.
type lineError string

// Error says what is wrong with the line.
func (e lineError) Error() string { return string(e) }

// CheckFrame checks the suffix of a line (without its newline) and gives its two
// checksums (L1). A line that passes is what was once written, byte for byte; a flipped
// bit, a torn write or NULs do not pass (failures 21 and 23).
func CheckFrame(b []byte) (prev, crc uint32, err error) {
	if prev, crc, err = checkEnd(b); err != nil {
		return 0, 0, err
	}
	if crc32c.Sum(b[:len(b)-CRCWidth]) != crc {
		return 0, 0, lineError("the line's checksum does not match its content")
	}
	return prev, crc, nil
}

// checkEnd is CheckFrame without computing the checksum: it only checks that b ends like a
// line.
func checkEnd(b []byte) (prev, crc uint32, err error) {
	if len(b) < SuffixWidth+2 {
		return 0, 0, lineError("the line is too short to be one of a log")
	}
	tail := b[len(b)-SuffixWidth:]
	prev, ok1 := parseHex(tail[9:17])
	crc, ok2 := parseHex(tail[prevWidth+8 : prevWidth+16])
	if string(tail[:9]) != `,"prev":"` || tail[17] != '"' || string(tail[prevWidth:prevWidth+8]) != `,"crc":"` ||
		string(tail[prevWidth+16:]) != `"}` || !ok1 || !ok2 {
		return 0, 0, lineError("the line does not end in its checksums")
	}
	return prev, crc, nil
}

// Decode checks and decodes a line without its newline (L1, L2). The error is a
// lineError. The caller has to check its place in the chain (L3 to L5): see Chain.
func Decode(b []byte) (*Line, error) {
	l, err := new(Decoder).Decode(b)
	if err != nil {
		return nil, err
	}
	l.Data = bytes.Clone(l.Data)
	return l, nil
}

// DecodeHead is Decode without the data, which comes last in a line and is most of it:
// for callers that need only what comes before it. The checksum is still computed over the
// whole line. Data and Raw stay empty, and are not checked to be valid JSON.
func DecodeHead(b []byte) (*Line, error) {
	prev, crc, err := CheckFrame(b)
	if err != nil {
		return nil, err
	}
	head := b[:len(b)-SuffixWidth]
	if i := dataAt(head); i >= 0 {
		head = head[:i]
	}
	l := &Line{}
	if err := json.Unmarshal(append(bytes.Clone(head), '}'), l); err != nil {
		return Decode(b) // for an error that says what is wrong
	}
	l.Prev, l.CRC, l.size = prev, crc, len(b)+1
	if l.Left < 0 || l.Left > hansard.MaxBatchEvents || l.MetaAt < 0 || l.TurnAt < 0 {
		return Decode(b)
	}
	return l, nil
}

// dataAt is where the member with an event's data begins, its comma included; -1: there
// is none. It finds the first `,"data":` or `,"raw":` at the top level: the same bytes in
// content are inside a string or an object.
func dataAt(b []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++ // skip the escaped character
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 1 && (bytes.HasPrefix(b[i:], []byte(`,"data":`)) || bytes.HasPrefix(b[i:], []byte(`,"raw":`))):
			return i
		}
	}
	return -1
}

// Event is the event that the line stores, with its data as the writer gave it, byte for
// byte.
func (l *Line) Event() (e hansard.Event) {
	e.Seq, e.Time, e.Kind, e.Role, e.Author = l.Seq, l.Time, l.Kind, l.Role, l.Author
	e.Turn, e.By, e.ID, e.At, e.Inbox = l.Turn, l.By, l.ID, l.At, l.Inbox
	e.Attachments, e.Fork, e.Redacts, e.Patch, e.Data = l.Attachments, l.Fork, l.Redacts, l.Patch, l.Data
	if l.Raw != nil {
		e.Data = json.RawMessage(*l.Raw)
	}
	if l.Gone != 0 {
		e.TakeAway()
	}
	return e
}

// appendHex appends 8 lower-case digits: fixed width, one spelling.
func appendHex(dst []byte, v uint32) []byte {
	const digits = "0123456789abcdef"
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, digits[v>>shift&15])
	}
	return dst
}

// parseHex is its inverse; false for anything else. Upper case is refused: a checksum
// does not cover its own spelling, so a damaged bit could otherwise go unnoticed.
func parseHex(b []byte) (v uint32, ok bool) {
	if len(b) != 8 {
		return 0, false
	}
	// All eight at once, in the bytes of a word: no sum carries into the next byte.
	const each = 0x0101010101010101
	text := binary.BigEndian.Uint64(b)
	letter := text >> 6 & each // set in letters, not in digits
	digits := text&(0x0f*each) + 9*letter
	// Encoding the digits again must give the same text.
	if digits&(0xf0*each) != 0 || digits+'0'*each+((digits+6*each)>>4&each)*('a'-'0'-10) != text {
		return 0, false
	}
	digits = (digits | digits>>4) & 0x00ff00ff00ff00ff
	digits = (digits | digits>>8) & 0x0000ffff0000ffff
	return uint32(digits | digits>>16), true
}

// ParseUID reads the uid of a header, 16 hex digits.
func ParseUID(s string) (uint64, bool) {
	uid, err := strconv.ParseUint(s, 16, 64)
	return uid, err == nil && len(s) == 16
}

// DamagedAt is the error for a log that is wrong at an offset. Callers that know more add
// the line number and how far the log is intact.
func DamagedAt(id hansard.SessionID, off int64, format string, args ...any) *hansard.DamagedError {
	return &hansard.DamagedError{Session: id, Offset: off, Reason: fmt.Sprintf(format, args...)}
}
