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
// that of json.Valid for every input: bytes in strings that are not UTF-8 are let pass.
func Valid(data []byte) bool { return valid(data, maxDepth) }

// ValidMember is Valid for the value of a member: it is one level deeper than it looks.
func ValidMember(data []byte) bool { return valid(data, maxDepth-1) }

func valid(data []byte, depth int) bool {
	var room [64]byte
	c := checker{data: data, depth: depth, open: room[:0]}
	return c.value() && c.rest()
}

// checker is a position in a text. Its methods go on from there, and report whether what
// they went over is right.
type checker struct {
	data  []byte
	at    int
	depth int    // how many brackets may be open
	open  []byte // those that are, outermost first
}

// rest is what follows a complete value: what closes the brackets around it, and the
// values that come before those.
func (c *checker) rest() bool {
	for {
		c.space()
		if len(c.open) == 0 {
			return c.at == len(c.data)
		}
		if c.at == len(c.data) {
			return false
		}
		around := c.open[len(c.open)-1]
		switch b := c.data[c.at]; {
		case b == around+2: // ] follows [, and } follows {, at this distance
			c.at++
			c.open = c.open[:len(c.open)-1]
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

// value is a value up to its end or, if it is an object or an array with something in it,
// up to the end of the first value inside that is neither.
func (c *checker) value() bool {
	for {
		c.space()
		if c.at == len(c.data) {
			return false
		}
		switch b := c.data[c.at]; b {
		case '{', '[':
			if len(c.open) == c.depth {
				return false
			}
			c.at++
			c.space()
			if c.at < len(c.data) && c.data[c.at] == b+2 {
				c.at++
				return true
			}
			c.open = append(c.open, b)
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

// name is the name of a member, and its colon.
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

// text is a string, whose opening quote is next.
func (c *checker) text() bool {
	i, data := c.at+1, c.data
	for {
		for i+8 <= len(data) {
			n := plainBytes(binary.LittleEndian.Uint64(data[i:]))
			if i += n; n < 8 {
				break
			}
		}
		// This one is special, or one of the last.
		for ; ; i++ {
			if i >= len(data) {
				return false
			}
			b := data[i]
			if b == '"' {
				c.at = i + 1
				return true
			}
			if b == '\\' {
				n := escape(data[i:])
				if i += n; n == 0 {
					return false
				}
				break
			}
			if b < 0x20 {
				return false
			}
		}
	}
}

// escape is how long the escape is that begins with a backslash here; 0: it is none.
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

// plainBytes is how many of eight bytes, the first in memory first, come before one that
// is a control character, a quote or a backslash: a subtraction borrows from the top bit
// of a byte that is too small. Borrowing goes upwards, so that the lowest one is right.
func plainBytes(eight uint64) int {
	const each, top = 0x0101010101010101, 0x8080808080808080
	quote, backslash := eight^('"'*each), eight^('\\'*each)
	return bits.TrailingZeros64(((eight-' '*each)&^eight|(quote-each)&^quote|(backslash-each)&^backslash)&top) / 8
}

// Plain reports whether data is a string of JSON without escapes, and nothing else: what
// is between the quotes is the text.
func Plain(data []byte) bool {
	n := len(data)
	if n < 2 || data[0] != '"' || data[n-1] != '"' {
		return false
	}
	text := data[1 : n-1]
	for ; len(text) >= 8; text = text[8:] {
		if plainBytes(binary.LittleEndian.Uint64(text)) < 8 {
			return false
		}
	}
	for _, c := range text {
		if c < 0x20 || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
