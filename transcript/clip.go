package transcript

import (
	"strings"
	"unicode/utf8"
)

// Clip returns the parts with at most this many bytes of each text, and at most four
// times as many of all texts together: enough to look at, and little enough to send to a
// reader who may never scroll to it. Cut says how much is missing in each. Larger
// pictures are left out, not cut. The order and the number of parts stay.
func Clip(parts []Part, most int) []Part {
	c := &clipper{each: most, left: 4 * most}
	return c.parts(parts)
}

const (
	// nameMax is as much of a name as anyone reads: that much is always kept.
	nameMax = 300
	// addressMax is the same for an address, which is kept whole or not at all: half
	// an address is useless.
	addressMax = 2000
)

type clipper struct{ each, left int }

func (c *clipper) parts(parts []Part) []Part {
	if len(parts) == 0 {
		return parts
	}
	out := make([]Part, len(parts))
	for i, p := range parts {
		if p.Type == JSON {
			// As text: half a document is not JSON.
			p.Text, p.Cut = c.text(Pretty(p.JSON))
		} else {
			p.Text, p.Cut = c.text(p.Text)
		}
		for _, name := range []*string{&p.ID, &p.Name, &p.Label, &p.MediaType, &p.Detail} {
			whole := len(*name)
			*name = c.name(*name)
			p.Cut += whole - len(*name)
		}
		room := min(c.each, c.left)
		if !strings.HasPrefix(p.URL, "data:") {
			room = max(room, addressMax)
		}
		if len(p.URL) > room {
			p.Cut, p.URL = p.Cut+len(p.URL), ""
		}
		c.left -= len(p.URL)
		if len(p.Args) > 0 {
			args := make([]Arg, len(p.Args))
			for j, a := range p.Args {
				a.Text, a.Cut = c.text(a.Text)
				name := c.name(a.Name)
				a.Cut += len(a.Name) - len(name)
				a.Name = name
				args[j] = a
			}
			p.Args = args
		}
		p.JSON = nil
		p.Parts = c.parts(p.Parts)
		out[i] = p
	}
	return out
}

// name is the beginning of a name, or all of it if there is room.
func (c *clipper) name(s string) string {
	end := max(nameMax, min(c.each, c.left))
	if len(s) <= end {
		end = len(s)
	}
	for end < len(s) && end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	c.left -= max(0, end-nameMax)
	return s[:end]
}

// text is the beginning of a text, up to the end of a line if there is one, and how
// much is missing.
func (c *clipper) text(s string) (string, int) {
	room := max(0, min(c.each, c.left))
	if len(s) <= room {
		c.left -= len(s)
		return s, 0
	}
	end := room
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	if line := strings.LastIndexByte(s[:end], '\n'); line > end/2 {
		end = line + 1
	}
	c.left -= end
	return s[:end], len(s) - end
}
