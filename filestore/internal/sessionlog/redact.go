package sessionlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"hansard"
	"hansard/internal/vfs"
)

// Removing the content of single events (W8). The log is copied, and the lines of these
// events lose their data, their attachments and, on the first line of their batch, the hash
// of its key. Spaces fill the room, so that every line keeps its offset: offsets in lines,
// and in whatever is derived from them, stay right. The checksums change from the first
// such line on.

// goneMember says that a line's data was removed. It replaces data or raw, and is no longer
// than the shortest of those.
const goneMember = `,"gone":1`

// redactBody is a line up to its checksums, without the hash of its key and, if content is
// set, without its content; its length does not change.
func redactBody(body []byte, content bool) ([]byte, error) {
	out := make([]byte, 0, len(body))
	err := eachMember(body, func(name string, member []byte) {
		switch name {
		case "hash":
			return
		case "data", "raw", "attachments", "gone":
			if content {
				return
			}
		}
		out = append(out, member...)
	})
	if err != nil {
		return nil, err
	}
	if content {
		out = append(out, goneMember...)
	}
	if len(out) > len(body) {
		return nil, lineError("the line has no data that could be taken away")
	}
	return append(out, bytes.Repeat([]byte(" "), len(body)-len(out))...), nil
}

// eachMember calls fn with the members of a line without its suffix, in order: the name,
// and all bytes of the member with the brace or comma in front.
func eachMember(body []byte, fn func(name string, member []byte)) error {
	depth, quoted, begin := 0, false, 0
	give := func(end int) error {
		rest, ok := bytes.CutPrefix(body[begin+1:end], []byte(`"`))
		name, _, closed := bytes.Cut(rest, []byte(`":`))
		if !ok || !closed {
			return lineError("the line is not one of a log")
		}
		fn(string(name), body[begin:end])
		begin = end
		return nil
	}
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 1:
			if err := give(i); err != nil {
				return err
			}
		}
	}
	return give(len(bytes.TrimRight(body, " ")))
}

// SameButRedacted tells whether a log has these lines as they were written, except for
// content redacted since, and for the checksums that changed with it: a journal older than
// the log still has the content that was redacted.
func SameButRedacted(there, lines []byte) bool {
	if len(there) != len(lines) {
		return false
	}
	for len(lines) > 0 {
		i := bytes.IndexByte(lines, '\n')
		if i < SuffixWidth || there[i] != '\n' {
			return false
		}
		is, was := there[:i], lines[:i]
		there, lines = there[i+1:], lines[i+1:]
		if _, _, err := CheckFrame(is); err != nil {
			return false
		}
		is, was = is[:i-SuffixWidth], was[:i-SuffixWidth]
		same := bytes.Equal(is, was)
		for _, content := range []bool{false, true} {
			left, err := redactBody(was, content)
			same = same || err == nil && bytes.Equal(is, left)
		}
		if !same {
			return false
		}
	}
	return true
}

// HasRedacts is a quick check whether a line records a redaction; true means: decode it.
func HasRedacts(line []byte) bool {
	if !bytes.Contains(line, []byte(`,"redacts":[`)) {
		return false
	}
	if i := dataAt(line); i >= 0 {
		line = line[:i]
	}
	return bytes.Contains(line, []byte(`,"redacts":[`))
}

// EachRedaction calls fn with the lines that record redactions, between two offsets, the
// first of which begins a line: whole lines only.
func EachRedaction(f vfs.File, from, upTo int64, fn func(*Line)) error {
	sc := NewScanner(f, from)
	for sc.At < upTo {
		b, at, err := sc.Next()
		if errors.Is(err, ErrNoLine) {
			return nil
		}
		if err != nil {
			return err
		}
		if !HasRedacts(b) {
			continue
		}
		l, err := DecodeHead(b)
		if err != nil {
			return DamagedAt("", at, "%v", err)
		}
		fn(l)
	}
	return nil
}

// ErrRedactedAgain means that a rewriting has to start over: the rest of the log records
// another redaction, perhaps of a line that is already written.
var ErrRedactedAgain = errors.New("more was redacted meanwhile")

// Rewriting copies a log into another file, without the content that its redactions remove.
type Rewriting struct {
	id       hansard.SessionID
	old, new vfs.File
	gone     []hansard.Seq // in order, each once

	sc      *scanner
	decoder Decoder
	chain   Chain // of the old log
	buf     []byte
	written int64
	crc     uint32 // of the last line written
	// Changed is how many lines changed in more than their checksums.
	Changed int
	// Digests of attachments: of lines that lose their content, and of all others.
	taken, kept map[string]bool
}

// Redacted are the seqs that the log's redactions name, up to an offset, in order.
func Redacted(f vfs.File, upTo int64) (seqs []hansard.Seq, err error) {
	err = EachRedaction(f, 0, upTo, func(l *Line) { seqs = append(seqs, l.Redacts...) })
	slices.Sort(seqs)
	return slices.Compact(seqs), err
}

// Unredacted tells whether one of the lines with these seqs, up to an offset, still has its
// content. The store's own lines are left out: they are never redacted.
func Unredacted(f vfs.File, seqs []hansard.Seq, upTo int64) (bool, error) {
	sc := NewScanner(f, 0)
	for sc.At < upTo && len(seqs) > 0 {
		b, at, err := sc.Next()
		if errors.Is(err, ErrNoLine) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		seq, ok := QuickSeq(b)
		if !ok || seq != seqs[0] {
			continue
		}
		seqs = seqs[1:]
		l, err := Decode(b)
		if err != nil {
			return false, DamagedAt("", at, "%v", err)
		}
		if e := l.Event(); !e.Redacted && !e.StoresOwn() {
			return true, nil
		}
	}
	return false, nil
}

// NewRewriting begins a rewriting that removes the content of these events.
func NewRewriting(id hansard.SessionID, old, fresh vfs.File, gone []hansard.Seq) *Rewriting {
	return &Rewriting{id: id, old: old, new: fresh, gone: gone, sc: NewScanner(old, 0), chain: Chain{ID: id},
		taken: map[string]bool{}, kept: map[string]bool{}}
}

// CopyTo continues up to the end of the batch that reaches an offset. Every line is
// checked: a damaged line must not get a right checksum. It is a DamagedError then.
func (w *Rewriting) CopyTo(upTo int64) error {
	for w.sc.At < upTo || w.chain.Left > 0 {
		b, at, err := w.sc.Next()
		if errors.Is(err, ErrNoLine) {
			break
		}
		if err != nil {
			return err
		}
		if w.written+int64(len(w.buf)) != at {
			return fmt.Errorf("rewrite the log of session %s: line at %d would be at %d", w.id, at, w.written+int64(len(w.buf)))
		}
		if err := w.line(b); err != nil {
			var bad lineError
			if errors.As(err, &bad) {
				return w.chain.Damage(at, err)
			}
			return err
		}
		if len(w.buf) >= 1<<20 {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return w.flush()
}

// Size is the length of the new log so far, which ends with a batch.
func (w *Rewriting) Size() int64 { return w.written }

// TakenAway are the digests that only redacted lines named.
func (w *Rewriting) TakenAway() (digests []string) {
	for digest := range w.taken {
		if !w.kept[digest] {
			digests = append(digests, digest)
		}
	}
	slices.Sort(digests)
	return digests
}

func (w *Rewriting) flush() error {
	if _, err := w.new.WriteAt(w.buf, w.written); err != nil {
		return err
	}
	w.written += int64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// line writes one line of the old log.
func (w *Rewriting) line(b []byte) error {
	l, err := w.decoder.Head(b)
	if err == nil {
		err = w.chain.Follow(l)
	}
	if err != nil {
		return err
	}
	body, prev := b[:len(b)-SuffixWidth], w.crc
	i, named := slices.BinarySearch(w.gone, l.Seq)
	// The hash of a key covers its whole batch.
	hashed := l.Hash != "" && i < len(w.gone) && w.gone[i] <= l.Seq+hansard.Seq(l.Left)
	if HasRedacts(b) {
		h, err := DecodeHead(b)
		if err != nil {
			return err
		}
		for _, seq := range h.Redacts {
			if _, known := slices.BinarySearch(w.gone, seq); !known {
				return ErrRedactedAgain
			}
		}
	}
	if named || hashed || bytes.Contains(b, []byte(`,"attachments":`)) {
		if body, err = w.takeAway(b, named, hashed); err != nil {
			return err
		}
	}
	begin := len(w.buf)
	if prev == l.Prev && len(body) == len(b)-SuffixWidth && bytes.Equal(body, b[:len(body)]) {
		w.buf = append(append(w.buf, b...), '\n')
	} else {
		w.buf = AppendSuffix(append(w.buf, body...), begin, prev)
	}
	w.crc = LineCRC(w.buf)
	return nil
}

// takeAway is a line up to its checksums, without what was redacted.
func (w *Rewriting) takeAway(b []byte, named, hashed bool) ([]byte, error) {
	l, err := Decode(b)
	if err != nil {
		return nil, err
	}
	e := l.Event()
	named = named && !e.StoresOwn()
	digests := w.kept
	if named {
		digests = w.taken
	}
	for _, a := range e.Attachments {
		digests[a.Digest] = true
	}
	body := b[:len(b)-SuffixWidth]
	if named && e.Redacted && l.Hash == "" || !named && !hashed {
		return body, nil
	}
	w.Changed++
	return redactBody(body, named)
}
