// Package terms defines what a search means, the same for all engines: which text of an event
// is searched, what its words are, what a query asks for, whether an event matches, how good
// the match is and which line of it to show. [hansard.Searcher] has the rules in prose.
//
// An engine keeps the terms of events in an index and looks up the terms of a query in it.
// Then it calls [Query.Find] on each event that it is about to yield, as the store has it: a
// stale or wrong index can't yield what is not in the store.
package terms

import (
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"hansard"
	"hansard/transcript"
)

// Doc is an event as a search sees it.
type Doc struct {
	Text string // what is searched; empty if nothing is
	// Role and Author are the event's, or those that its data names.
	Role, Author string
}

// Of is the part of an event that is searched.
func Of(e hansard.Event) Doc {
	if e.Kind == hansard.KindTurn || e.IsLost() {
		return Doc{Role: e.Role, Author: e.Author}
	}
	r := transcript.Of(e)
	// Composed, so that a letter is one character however it was written.
	return Doc{Text: norm.NFC.String(r.Searched(hansard.MaxSearchedText)), Role: r.Role, Author: r.Author}
}

// Scan passes the terms of a text to give, in order: words, folded, and in scripts without
// spaces each pair of neighbouring characters, then the last character of such a run alone.
// So a run of characters is found as consecutive pairs, and a single character as the
// beginning of a pair. A term is letters and digits in UTF-8. start and end are where it is
// in the text, first is the end of its first character. term is valid until give returns;
// if give returns false the scan ends.
func Scan(text string, give func(term []byte, start, first, end int) bool) {
	s := scanner{give: give}
	for i := 0; i < len(text) && !s.done; {
		c := text[i]
		if c < utf8.RuneSelf {
			if low := asciiFold[c]; low != 0 {
				s.letter(low, i)
			} else {
				s.flush()
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		f := foldOf(r)
		if f.text == "" && !f.joins {
			s.flush()
		}
		for _, r := range f.text {
			if f.gram {
				s.gram(r, i, i+size)
			} else {
				s.rune(r, i, i+size)
			}
		}
		i += size
	}
	s.flush()
}

// asciiFold is a letter or digit in lower case, 0 for what separates words.
var asciiFold = func() (t [utf8.RuneSelf]byte) {
	for c := byte(0); c < utf8.RuneSelf; c++ {
		switch {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
			t[c] = c
		case 'A' <= c && c <= 'Z':
			t[c] = c + 'a' - 'A'
		}
	}
	return t
}()

type scanner struct {
	give func(term []byte, start, first, end int) bool
	done bool

	// The word that is being read.
	word              []byte
	start, first, end int
	letters           int

	// The last character of a run without spaces; 0 if there is none.
	last             rune
	lastFrom, lastTo int
}

// letter adds an ASCII letter to the word.
func (s *scanner) letter(c byte, at int) {
	if s.last != 0 {
		s.flush()
	}
	if s.letters == 0 {
		s.start, s.first = at, at+1
	}
	s.letters++
	s.end = at + 1
	if s.letters <= hansard.MaxSearchedWord {
		s.word = append(s.word, c)
	}
}

func (s *scanner) rune(r rune, from, to int) {
	if s.last != 0 {
		s.flush()
	}
	if s.letters == 0 {
		s.start, s.first = from, to
	}
	s.letters++
	s.end = to
	if s.letters <= hansard.MaxSearchedWord {
		s.word = utf8.AppendRune(s.word, r)
	}
}

func (s *scanner) gram(r rune, from, to int) {
	if s.letters > 0 {
		s.flush()
	}
	if s.last != 0 {
		s.word = utf8.AppendRune(utf8.AppendRune(s.word[:0], s.last), r)
		s.emit(s.lastFrom, s.lastTo, to)
	}
	s.last, s.lastFrom, s.lastTo = r, from, to
}

// flush ends what is being read.
func (s *scanner) flush() {
	if s.letters > 0 {
		if s.letters <= hansard.MaxSearchedWord {
			s.emit(s.start, s.first, s.end)
		}
		s.word, s.letters = s.word[:0], 0
	}
	if s.last != 0 {
		s.word = utf8.AppendRune(s.word[:0], s.last)
		s.emit(s.lastFrom, s.lastTo, s.lastTo)
		s.last = 0
	}
}

func (s *scanner) emit(start, first, end int) {
	if !s.done && !s.give(s.word, start, first, end) {
		s.done = true
	}
	s.word = s.word[:0]
}

// folded is what a character becomes: none, one or more letters.
type folded struct {
	text  string
	gram  bool // it belongs to a script without spaces
	joins bool // it is part of the letter before it, and ignored
}

// folds caches what characters become. It is bounded by the number of different
// characters.
var folds sync.Map // rune → folded

func foldOf(r rune) folded {
	if f, ok := folds.Load(r); ok {
		return f.(folded)
	}
	f := fold(r)
	folds.Store(r, f)
	return f
}

// alike are letters that Unicode does not decompose, and that people type as other letters.
var alike = map[rune]string{'ß': "ss", 'ẞ': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'ł': "l", 'đ': "d", 'ı': "i", 'ς': "σ"}

func fold(r rune) folded {
	if unicode.Is(diacritics, r) || r == 0x00AD || r == 0x200B || r == 0x200C || r == 0x200D || r == 0xFEFF || unicode.Is(unicode.Variation_Selector, r) {
		return folded{joins: true}
	}
	var letters []rune
	for _, d := range norm.NFKD.String(string(r)) {
		d = unicode.ToLower(d)
		if as, ok := alike[d]; ok {
			letters = append(letters, []rune(as)...)
			continue
		}
		for _, d := range norm.NFKD.String(string(d)) { // some capitals decompose only in lower case
			if !unicode.Is(diacritics, d) && (unicode.IsLetter(d) || unicode.IsNumber(d) || unicode.IsMark(d)) {
				letters = append(letters, d)
			}
		}
	}
	f := folded{text: norm.NFC.String(string(letters))}
	first, _ := utf8.DecodeRuneInString(f.text)
	f.gram = f.text != "" && unicode.In(first, spaceless...)
	return f
}

// diacritics are the marks that do not make another letter: accents, and the points of
// Hebrew and Arabic. Marks of other scripts are vowels.
var diacritics = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x0300, Hi: 0x036F, Stride: 1}, {Lo: 0x0483, Hi: 0x0487, Stride: 1}, {Lo: 0x0591, Hi: 0x05BD, Stride: 1}, {Lo: 0x05BF, Hi: 0x05BF, Stride: 1},
	{Lo: 0x05C1, Hi: 0x05C2, Stride: 1}, {Lo: 0x0640, Hi: 0x0640, Stride: 1}, {Lo: 0x064B, Hi: 0x065F, Stride: 1}, {Lo: 0x0670, Hi: 0x0670, Stride: 1},
	{Lo: 0x1AB0, Hi: 0x1AFF, Stride: 1}, {Lo: 0x1DC0, Hi: 0x1DFF, Stride: 1}, {Lo: 0x20D0, Hi: 0x20FF, Stride: 1}, {Lo: 0xFE20, Hi: 0xFE2F, Stride: 1},
}}

// spaceless are the scripts that are written without spaces between words, and Hangul,
// where particles are joined to words.
var spaceless = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Yi, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Tibetan,
	unicode.Javanese, unicode.Balinese, unicode.Tai_Le, unicode.New_Tai_Lue, unicode.Tai_Tham, unicode.Tai_Viet,
	{R16: []unicode.Range16{{Lo: 0x3005, Hi: 0x3007, Stride: 1}, {Lo: 0x3099, Hi: 0x309A, Stride: 1}, {Lo: 0x30FC, Hi: 0x30FC, Stride: 1}}},
}
