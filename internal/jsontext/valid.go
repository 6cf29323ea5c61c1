// Package jsontext checks JSON, exactly as encoding/json does and several times as fast:
// every event that is stored, and every line that is read, is checked once.
package jsontext

import (
	"encoding/binary"
	"math/bits"
)

// maxDepth is how deeply encoding/json lets objects and arrays be nested.
const maxDepth = 10_000

// Valid reports whether data is one JSON value, with space around it or not. The answer is
// that of json.Valid for every input: strings may contain bytes that are not UTF-8.
func Valid(data []byte) bool { return valid(data, maxDepth) }

// ValidMember is Valid for the value of a member: it is one level deeper than it looks.
func ValidMember(data []byte) bool { return valid(data, maxDepth-1) }

// ValidAround is Valid for an object with members that may each be as deep as Valid allows.
func ValidAround(data []byte) bool { return valid(data, maxDepth+1) }

func valid(data []byte, depth int) bool {
	c := checker{data: data, depth: depth}
	return c.value() && c.rest()
}

// checker is a position in a text. Its methods advance from there, and report whether what
// they passed is valid.
type checker struct {
	data  []byte
	at    int
	depth int // how many brackets may be open
	open  int // how many are
	// objects has a bit for each of the outermost 64 open brackets, set if it is a brace;
	// inner has those inside of them. So most texts need no allocation.
	objects uint64
	inner   []byte
}

// push records an open bracket.
func (c *checker) push(b byte) {
	switch bit := uint64(1) << c.open; {
	case c.open >= 64:
		c.inner = append(c.inner, b)
	case b == '{':
		c.objects |= bit
	default:
		c.objects &^= bit
	}
	c.open++
}

// pop removes the innermost open bracket.
func (c *checker) pop() {
	c.open--
	c.inner = c.inner[:max(0, c.open-64)]
}

// around is the innermost open bracket. There is one.
func (c *checker) around() byte {
	switch {
	case c.open > 64:
		return c.inner[c.open-65]
	case c.objects>>(c.open-1)&1 == 1:
		return '{'
	}
	return '['
}

// rest checks what follows a complete value: the closing brackets around it, and the values
// before them.
func (c *checker) rest() bool {
	for {
		c.space()
		if c.open == 0 {
			return c.at == len(c.data)
		}
		if c.at == len(c.data) {
			return false
		}
		around := c.around()
		switch b := c.data[c.at]; {
		case b == around+2: // ] follows [, and } follows {, at this distance
			c.at++
			c.pop()
		case b != ',':
			return false
		default:
			c.at++
			if around == '{' && !c.name() || !c.value() {
				return false
			}
		}
	}
}

// value checks a value up to its end or, if it is an object or an array that is not empty,
// up to the end of the first value inside that is neither.
func (c *checker) value() bool {
	for {
		c.space()
		if c.at == len(c.data) {
			return false
		}
		switch b := c.data[c.at]; b {
		case '{', '[':
			if c.open == c.depth {
				return false
			}
			c.at++
			c.space()
			if c.at < len(c.data) && c.data[c.at] == b+2 {
				c.at++
				return true
			}
			c.push(b)
			if b == '{' && !c.name() {
				return false
			}
		case '"':
			return c.text()
		case 't':
			return c.word("true")
		case 'f':
			return c.word("false")
		case 'n':
			return c.word("null")
		default:
			return c.number()
		}
	}
}

// name checks the name of a member, and its colon.
func (c *checker) name() bool {
	c.space()
	if c.at == len(c.data) || c.data[c.at] != '"' || !c.text() {
		return false
	}
	c.space()
	c.at++
	return c.at <= len(c.data) && c.data[c.at-1] == ':'
}

func (c *checker) space() {
	for c.at < len(c.data) {
		switch c.data[c.at] {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return
		}
	}
}

// text checks a string, whose opening quote is next.
func (c *checker) text() bool {
	i, data := c.at+1, c.data
	for {
		i += plainLen(data[i:])
		if i >= len(data) {
			return false
		}
		switch data[i] {
		case '"':
			c.at = i + 1
			return true
		case '\\':
			n := escape(data[i:])
			if i += n; n == 0 {
				return false
			}
		default: // a control character
			return false
		}
	}
}

// escape is the length of the escape that begins with the backslash here; 0 if it is not
// valid.
func escape(data []byte) int {
	if len(data) < 2 {
		return 0
	}
	switch data[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(data) < 6 || !isHex(data[2]) || !isHex(data[3]) || !isHex(data[4]) || !isHex(data[5]) {
			return 0
		}
		return 6
	}
	return 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func (c *checker) word(w string) bool {
	if len(c.data)-c.at < len(w) || string(c.data[c.at:c.at+len(w)]) != w {
		return false
	}
	c.at += len(w)
	return true
}

func (c *checker) number() bool {
	c.skip('-')
	switch {
	case c.skip('0'):
	case c.digits() == 0:
		return false
	}
	if c.skip('.') && c.digits() == 0 {
		return false
	}
	if c.skip('e') || c.skip('E') {
		if !c.skip('+') {
			c.skip('-')
		}
		return c.digits() > 0
	}
	return true
}

func (c *checker) skip(b byte) bool {
	if c.at < len(c.data) && c.data[c.at] == b {
		c.at++
		return true
	}
	return false
}

func (c *checker) digits() (n int) {
	for c.at < len(c.data) && '0' <= c.data[c.at] && c.data[c.at] <= '9' {
		c.at++
		n++
	}
	return n
}

const each, top = 0x0101010101010101, 0x8080808080808080

// special finds the first of eight bytes, in memory order, that is a control character, a
// quote or a backslash: the result has the top bit of that byte set, and perhaps those of
// later bytes; none if there is no such byte. The bits that are not top bits mean nothing. A
// subtraction sets the top bit of a byte that is too small, and borrows go upwards, so that
// the lowest one is right. A quote with one bit flipped is a space, and so comes right after
// the control characters. Flipping leaves the top bits as they were: a byte that has its own
// top bit set is none of these characters.
func special(eight uint64) uint64 {
	low, backslash := eight^(0x02*each), eight^('\\'*each)
	return ((low - 0x21*each) | (backslash - each)) &^ eight
}

// plainLen is how many bytes come before the first that is a control character, a quote or
// a backslash; all of them if none is. Nearly everything stored is text, so a check spends
// most of its time here: 32 bytes at once, without dependencies between them.
func plainLen(text []byte) int {
	const long = 128 // what has no escape for so long probably has none for longer
	i := 0
	for i+32 <= len(text) {
		b := text[i : i+32 : i+32]
		first := special(binary.LittleEndian.Uint64(b)) & top // escapes come close together
		if first != 0 {
			return i + bits.TrailingZeros64(first)/8
		}
		second, third, fourth := special(binary.LittleEndian.Uint64(b[8:])), special(binary.LittleEndian.Uint64(b[16:])), special(binary.LittleEndian.Uint64(b[24:]))
		if (second|third|fourth)&top != 0 {
			break
		}
		if i += 32; i == long {
			i += plainASCII(text[long:])
		}
	}
	for ; i+8 <= len(text); i += 8 {
		if s := special(binary.LittleEndian.Uint64(text[i:])) & top; s != 0 {
			return i + bits.TrailingZeros64(s)/8
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < 0x20 || c == '"' || c == '\\' {
			return i
		}
	}
	return i
}

// masks are constants of plainASCII. They are variables because the compiler would put a
// constant into its register again for every word.
var masks = [...]uint64{0x02 * each, 0x21 * each, ('\\' ^ 0x02) * each, each}

// plainASCII is plainLen for long ASCII text, rounded down to 64 bytes. It ends at a byte that
// is not ASCII: without looking for those it takes two thirds of the time.
func plainASCII(text []byte) (n int) {
	flip, low, backslash, one := masks[0], masks[1], masks[2], masks[3]
	small := func(eight []byte) uint64 { // as special
		word := binary.LittleEndian.Uint64(eight) ^ flip
		return (word - low) | ((word ^ backslash) - one)
	}
	for ; n+64 <= len(text); n += 64 {
		b := text[n : n+64 : n+64]
		if (small(b)|small(b[8:])|small(b[16:])|small(b[24:])|small(b[32:])|small(b[40:])|small(b[48:])|small(b[56:]))&top != 0 {
			break
		}
	}
	return n
}

// PlainText is the text between the quotes of a JSON string without escapes at the beginning
// of data. It returns false if data does not begin with one.
func PlainText(data []byte) (text []byte, ok bool) {
	if len(data) < 2 || data[0] != '"' {
		return nil, false
	}
	n := 1 + plainLen(data[1:])
	if n == len(data) || data[n] != '"' {
		return nil, false
	}
	return data[1:n], true
}
