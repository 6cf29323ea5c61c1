package transcript

import "strings"

// Searched is the text of an event that is searched for words: what people read in it,
// without the syntax and the member names of JSON, without binary data, and without the
// store's own notes. If it has more than most bytes the middle is left out: the
// beginning of a long output says what it is about, and the end what went wrong.
func (r Reading) Searched(most int) string {
	b := &searched{}
	b.parts(r.Parts)
	text := strings.TrimSuffix(b.String(), "\n")
	if len(text) <= most {
		return text
	}
	end := most / 4
	return strings.ToValidUTF8(text[:most-end-len(cutMark)], "") + cutMark + strings.ToValidUTF8(text[len(text)-end:], "")
}

// cutMark stands where the middle of a text is left out. It separates words.
const cutMark = "\n…\n"

type searched struct{ strings.Builder }

func (b *searched) line(s string) {
	if s == "" {
		return
	}
	withoutBase64(StripEscapes(s), func(piece string) { b.WriteString(piece) })
	b.WriteByte('\n')
}

func (b *searched) parts(parts []Part) {
	for i := range parts {
		switch p := &parts[i]; p.Type {
		case Usage, Deletion, Note:
		case Call:
			b.line(p.Name)
			for _, a := range p.Args {
				if a.JSON {
					b.values(value(a.Text))
				} else {
					b.line(a.Text)
				}
			}
		case Result:
			b.parts(p.Parts)
		case Image, File:
			b.line(p.Name)
			b.line(p.Text)
		case JSON:
			b.values(value(p.JSON))
		default:
			b.line(p.Text)
		}
	}
}

// values writes the strings and numbers in JSON, in order, one per line. It iterates over
// the tokens instead of recursing: depth costs nothing, and invalid JSON does no harm.
func (b *searched) values(v value) {
	for i := 0; i < len(v); {
		switch c := v[i]; {
		case c == '"':
			end := skipString(v, i)
			if at := space(v, end); at >= len(v) || v[at] != ':' { // else it is a member's name
				b.line(v[i:end].text())
			}
			i = end
		case c == '-' || '0' <= c && c <= '9':
			end := i
			for end < len(v) && !isDelimiter(v[end]) {
				end++
			}
			b.line(string(v[i:end]))
			i = end
		default:
			i++
		}
	}
}

// base64Min is the length from which a run of base64 is not meant to be read: that of a
// line of it in a certificate or a mail.
const base64Min = 64

// withoutBase64 passes on a text in pieces, without what looks like base64: long runs of
// its alphabet that mix cases and digits, and are not paths, which have many slashes.
func withoutBase64(s string, give func(piece string)) {
	from := 0
	for i := 0; i < len(s); {
		end := i
		var upper, lower, digit bool
		slashes := 0
		for ; end < len(s); end++ {
			c := s[end]
			switch {
			case 'a' <= c && c <= 'z':
				lower = true
			case 'A' <= c && c <= 'Z':
				upper = true
			case '0' <= c && c <= '9':
				digit = true
			case c == '/':
				slashes++
			case c != '+' && c != '=':
				goto over
			}
		}
	over:
		if n := end - i; n >= base64Min && upper && lower && digit && slashes <= n/20 {
			give(s[from:i])
			from = end
		}
		i = end + 1
	}
	if from < len(s) {
		give(s[from:])
	}
}
