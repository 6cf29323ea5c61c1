package sessionlog

import (
	"errors"
	"io"

	"hansard"
	"hansard/filestore/internal/crc32c"
	"hansard/internal/vfs"
)

// A fork's log is its parent's up to a line, under a header of its own. Lines name the
// checksum of the line before, and offsets of others, so a different header would normally
// mean rewriting all of them. It does not if the header has the same length and checksum as
// the parent's: then the lines are the same bytes at the same offsets, and a file system
// that can share blocks shares them.
//
//	{"hansard":2,…,"id":"parent","created":…,"b":0,"fill":"000…000","prev":"00000000","crc":"d4b5b354"}
//	{"hansard":2,…,"id":"the-fork","created":…,"b":0,"own":5120,"fill":"0…0516…","prev":"00000000","crc":"d4b5b354"}
//
// The zeros that every header has to spare make the length right, and the digits that end
// them make the checksum right: CRC-32C is linear, so 16 digits of 3 bits each can produce
// any value. A checksum proves nothing against deliberate forgery, and need not here: it
// still finds every damaged byte.
//
// own is where the fork's own lines begin. Until the first of them is there, the fork does
// not exist: so the copy can be put in place, durably, before the entry with this line
// commits it.

// begun is io.EOF if the log is a fork's and has no line of its own yet.
func (h *Header) begun(f vfs.File) error {
	if h.Own == 0 {
		return nil
	}
	_, err := ReadLineAt(f, h.Own)
	if errors.Is(err, ErrNoLine) {
		return io.EOF
	}
	return err
}

// headerLike is a header, with its newline, of the given length and checksum. False: it
// does not fit.
func headerLike(h *Head, length int, crc uint32) ([]byte, bool) {
	b := appendHead(nil, h)
	zeros := length - len(b) - len(`,"fill":""`) - SuffixWidth - 1
	if zeros < saltDigits {
		return nil, false
	}
	b = appendFill(b, zeros)
	end := len(b) - 1 // after the digits
	sum := LineCRC(AppendSuffix(append([]byte(nil), b...), 0, 0))
	for i, digit := range saltFor(sum ^ crc) {
		b[end-saltDigits+i] = '0' + digit
	}
	b = AppendSuffix(b, 0, 0)
	return b, LineCRC(b) == crc
}

// saltFor returns the digits, 0 to 7, that change the checksum of a header by diff when
// they replace as many zeros at the end of its fill.
func saltFor(diff uint32) (digits [saltDigits]byte) {
	// What each bit of each digit changes. It depends only on the bytes that follow, which
	// are the same in every header.
	tail := AppendSuffix(append(make([]byte, saltDigits), '"'), 0, 0)
	tail = tail[:len(tail)-CRCWidth-1]
	zero := crc32c.Sum(tail)
	type column struct {
		sum  uint32
		bits uint64 // of the digits that give it
	}
	var basis [32]column // with the highest bit of its index
	for i := range 3 * saltDigits {
		tail[i/3] ^= 1 << (i % 3)
		c := column{crc32c.Sum(tail) ^ zero, 1 << i}
		tail[i/3] ^= 1 << (i % 3)
		for bit := 31; bit >= 0 && c.sum != 0; bit-- {
			if c.sum>>bit&1 == 0 {
				continue
			}
			if basis[bit].sum == 0 {
				basis[bit] = c
				break
			}
			c.sum, c.bits = c.sum^basis[bit].sum, c.bits^basis[bit].bits
		}
	}
	var bits uint64
	for bit := 31; bit >= 0; bit-- {
		if diff>>bit&1 != 0 {
			diff, bits = diff^basis[bit].sum, bits^basis[bit].bits
		}
	}
	for i := range digits {
		digits[i] = byte(bits >> (3 * i) & 7)
	}
	return digits
}

// ForkHeader is the header of a fork of a log: the parent's with another id, uid and time of
// creation, whose own lines begin at an offset. False: it does not fit in place of the
// parent's, and the lines have to be rewritten (Rewrite).
func ForkHeader(parent *Header, head *Head) ([]byte, bool) {
	return headerLike(head, int(parent.End), parent.CRC)
}

// Rewritten is where Rewrite left the copy.
type Rewritten struct {
	End            int64  // offset after the last line
	CRC            uint32 // of the last line
	MetaAt, TurnAt int64  // what the next line has to say
}

// Rewrite copies the lines of a log up to the offset end, which is the end of a batch, to
// another file, under another header: each with new checksums and offsets. goesOn is called
// now and then, and stops it with an error. The lines have to be intact: a damaged one is
// an error.
func Rewrite(dst, src vfs.File, parent *Header, head Head, end int64, goesOn func() error) (Rewritten, error) {
	// Where the fork's own lines begin is not known yet; the header is written again at the
	// end, with the same length and checksum.
	head.Own = maxOwn
	raw := AppendHead(nil, &head)
	l, err := Decode(raw[:len(raw)-1])
	if err != nil {
		return Rewritten{}, err
	}
	w := &lineWriter{f: dst, buf: raw, crc: l.CRC, left: head.Left}
	length := len(raw)
	c := Chain{ID: hansard.SessionID(parent.ID)}
	if err := c.Follow(parent.Line); err != nil {
		return Rewritten{}, err
	}
	sc := NewScanner(src, parent.End)
	for n := 0; sc.At < end; n++ {
		if n%256 == 0 {
			if err := goesOn(); err != nil {
				return Rewritten{}, err
			}
		}
		b, at, err := sc.Next()
		if err != nil {
			return Rewritten{}, err
		}
		line, err := Decode(b)
		if err == nil {
			err = c.Follow(line)
		}
		if err != nil {
			return Rewritten{}, c.Damage(at, err)
		}
		if err := w.line(place{line, at, b}); err != nil {
			return Rewritten{}, err
		}
	}
	if err := w.flush(); err != nil {
		return Rewritten{}, err
	}
	head.Own = w.at
	raw, ok := headerLike(&head, length, l.CRC)
	if !ok {
		return Rewritten{}, errors.New("the header of the fork does not fit") // can't happen: the final number is never longer
	}
	_, err = dst.WriteAt(raw, 0)
	return Rewritten{w.at, w.crc, w.metaAt, w.turnAt}, err
}

// maxOwn has as many digits as the offset of a line can have.
const maxOwn = 9_999_999_999_999
