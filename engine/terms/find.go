package terms

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"hansard"
)

// Found is where a text has what a query asks for.
type Found struct {
	marks []hansard.Mark // in the text, in order
	count []int          // how often each phrase occurs
	terms int            // of the text
}

// maxMarks is how many places of a text are remembered.
const maxMarks = 1000

// Find looks for everything a query asks for. It returns false if a phrase is missing.
func (q Query) Find(text string) (Found, bool) {
	f := &finder{query: q, count: make([]int, len(q.Phrases))}
	for i := range q.Phrases {
		f.longest = max(f.longest, len(q.Phrases[i].Terms))
	}
	Scan(text, f.term)
	if slices.Contains(f.count, 0) {
		return Found{}, false
	}
	slices.SortFunc(f.marks, func(a, b hansard.Mark) int { return cmp.Or(a.Start-b.Start, b.End-a.End) })
	return Found{marks: f.marks, count: f.count, terms: f.n}, true
}

// finder goes along the terms of a text. It remembers as many of them as the longest
// phrase has.
type finder struct {
	query   Query
	longest int
	count   []int
	marks   []hansard.Mark
	n       int
	window  []seen
}

type seen struct {
	term  []byte
	start int
}

func (f *finder) term(term []byte, start, first, end int) bool {
	f.n++
	if len(f.window) < f.longest {
		f.window = append(f.window, seen{})
	} else { // drop the oldest and reuse its memory
		oldest := f.window[0]
		copy(f.window, f.window[1:])
		f.window[len(f.window)-1] = oldest
	}
	newest := &f.window[len(f.window)-1]
	newest.term, newest.start = append(newest.term[:0], term...), start
	for i := range f.query.Phrases {
		p := &f.query.Phrases[i]
		if !f.ends(p) {
			continue
		}
		if f.count[i]++; len(f.marks) < maxMarks {
			to := end
			if p.Prefix && isPair(string(term)) {
				to = first // the query has only its first character
			}
			f.marks = append(f.marks, hansard.Mark{Start: f.window[len(f.window)-len(p.Terms)].start, End: to})
		}
	}
	return true
}

// ends reports whether a phrase ends with the newest term.
func (f *finder) ends(p *Phrase) bool {
	n := len(p.Terms)
	if n > len(f.window) {
		return false
	}
	tail := f.window[len(f.window)-n:]
	last := tail[n-1].term
	if p.Prefix && !bytes.HasPrefix(last, []byte(p.Terms[n-1])) || !p.Prefix && string(last) != p.Terms[n-1] {
		return false
	}
	for i := range n - 1 {
		if string(tail[i].term) != p.Terms[i] {
			return false
		}
	}
	return true
}

// Score is how good a find is, without regard to other texts: more occurrences are
// better, with diminishing returns, and count less in a longer text.
func (f Found) Score() float64 {
	const k, b, usual = 1.2, 0.75, 100
	score := 0.0
	for _, n := range f.count {
		score += float64(n) * (k + 1) / (float64(n) + k*(1-b+b*float64(f.terms)/usual))
	}
	return score
}

const (
	// snippetBytes is about how much of a text is shown, snippetBefore of it before the
	// first mark.
	snippetBytes  = 240
	snippetBefore = 60
)

// Snippet is one line of a text around what was found: the stretch that shows most of
// it, and of these the first.
func (f Found) Snippet(text string) (string, []hansard.Mark) {
	best, most := 0, 0
	for i, j := 0, 0; i < len(f.marks); i++ {
		for j = max(j, i); j < len(f.marks) && f.marks[j].End-f.marks[i].Start <= snippetBytes-snippetBefore; j++ {
		}
		if n := j - i; n > most {
			best, most = i, n
		}
	}
	if len(f.marks) == 0 {
		return "", nil
	}
	from := f.marks[best].Start - snippetBefore
	to := max(from+snippetBytes, f.marks[best].End)
	from, to = wordStart(text, max(0, from), f.marks[best].Start), wordEnd(text, min(len(text), to), f.marks[best].End)
	return oneLine(text, from, to, f.marks[best:])
}

// wordStart moves a place forward to the beginning of a word, but not far, and not
// beyond a limit.
func wordStart(s string, at, limit int) int {
	if at == 0 {
		return 0
	}
	for at < limit && !utf8.RuneStart(s[at]) {
		at++
	}
	if i := strings.IndexFunc(s[at:min(limit, at+20)], unicode.IsSpace); i >= 0 {
		return at + i + 1
	}
	return at
}

// wordEnd moves a place back to the end of a word, likewise.
func wordEnd(s string, at, limit int) int {
	if at == len(s) {
		return at
	}
	for at > limit && !utf8.RuneStart(s[at]) {
		at--
	}
	low := max(limit, at-20)
	if i := strings.LastIndexFunc(s[low:at], unicode.IsSpace); i >= 0 {
		return low + i
	}
	return at
}

// oneLine copies a part of a text, with white space collapsed into single spaces, and the
// marks that lie in it, joined where they touch.
func oneLine(text string, from, to int, marks []hansard.Mark) (string, []hansard.Mark) {
	var b strings.Builder
	if from > 0 {
		b.WriteString("…")
	}
	var out []hansard.Mark
	lead, gap := b.Len(), false
	place := func() int { // of what is written next
		if gap && b.Len() > lead {
			return b.Len() + 1
		}
		return b.Len()
	}
	next, open := 0, -1 // open: where the mark that is being written ends
	for i := from; i <= to; {
		if open >= 0 && i >= open {
			out[len(out)-1].End, open = b.Len(), -1
		}
		for i < to && next < len(marks) && marks[next].Start <= i {
			if m := marks[next]; m.End > i && m.End <= to {
				if open < 0 {
					if n := place(); len(out) > 0 && out[len(out)-1].End == n {
						// the mark continues
					} else {
						out = append(out, hansard.Mark{Start: n})
					}
				}
				open = max(open, m.End)
			}
			next++
		}
		if i == to {
			break
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			gap = true
		} else {
			if gap && b.Len() > lead {
				b.WriteByte(' ')
			}
			gap = false
			b.WriteString(text[i : i+size])
		}
		i += size
	}
	if to < len(text) {
		b.WriteString("…")
	}
	return b.String(), out
}

// Hit is the hit for an event that was found.
func (f Found) Hit(info *hansard.Info, e *hansard.Event, d *Doc) hansard.Hit {
	h := hansard.Hit{Session: info.ID, Seq: e.Seq, ID: e.ID, Time: e.Time, Kind: e.Kind, Role: d.Role, Author: d.Author, Title: info.Title, Score: f.Score()}
	h.Snippet, h.Marks = f.Snippet(d.Text)
	return h
}

// WantsSession reports whether a query includes a session.
func WantsSession(q *hansard.SearchQuery, info *hansard.Info) bool {
	if q.In != "" && q.In != info.ID || !strings.HasPrefix(string(info.ID), q.Prefix) {
		return false
	}
	for name, value := range q.Labels {
		if got, ok := info.Labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// WantsEvent reports whether a query includes an event, whatever its text.
func WantsEvent(q *hansard.SearchQuery, e *hansard.Event, d *Doc) bool {
	return (q.Kind == "" || q.Kind == e.Kind) && (q.Role == "" || q.Role == d.Role) &&
		(q.Since.IsZero() || !e.Time.Before(q.Since)) && (q.Before.IsZero() || e.Time.Before(q.Before))
}

// Better is the order of hits: by score, then by time, both descending; then by session
// and seq, so that the order is total.
func Better(a, b *hansard.Hit) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), b.Time.Compare(a.Time), cmp.Compare(b.Session, a.Session), cmp.Compare(b.Seq, a.Seq))
}
