package importer

import (
	"cmp"
	"context"
	"errors"
	"slices"
)

// forkEvidence is what tells the original of a history from its copies.
type forkEvidence struct {
	first string // the first record that can be copied
	// bare is how many records near the beginning of the source are never copied: the
	// original has them, a copy does not.
	bare int
}

// looked is how many records of a source are examined, and lookedBytes how much of it once
// the first copyable record was found.
const (
	looked      = 200
	lookedBytes = 1 << 20
)

func (s *Source) evidence() forkEvidence {
	var e forkEvidence
	n, size := 0, 0
	enough := errors.New("enough")
	// Unreadable content is reported when it is imported.
	_ = s.quiet().each(context.Background(), func(rec Record) error {
		switch {
		case rec.Link:
		case rec.Same == "":
			e.bare++
		case e.first == "":
			e.first = rec.Same
		}
		n, size = n+1, size+len(rec.Event.Data)
		if n == looked || size > lookedBytes && e.first != "" {
			return enough
		}
		return nil
	})
	return e
}

// relate finds forks by the record that their histories begin with: nothing in a file of
// Claude Code names its parent.
func (claude) relate(sources []*Source) {
	byFirst := map[string][]*Source{}
	for _, s := range sources {
		if s.SubAgent {
			continue
		}
		if s.known == nil {
			s.tell = s.evidence()
		}
		if s.tell.first != "" {
			byFirst[s.tell.first] = append(byFirst[s.tell.first], s)
		}
	}
	for _, same := range byFirst {
		if !slices.ContainsFunc(same, func(s *Source) bool { return s.known == nil }) {
			continue // none of them will be read
		}
		slices.SortFunc(same, func(a, b *Source) int {
			return cmp.Or(cmp.Compare(b.tell.bare, a.tell.bare), cmp.Compare(a.Session, b.Session))
		})
		descend(same)
	}
}

// restamped: a copy names the fork's session.
func (claude) restamped(member string) bool {
	return member == "sessionId" || member == "sessionKind" || member == "forkedFrom"
}

// descend makes each source of a common history, from the second on, a fork of the one
// before it that it shares most with.
func descend(sources []*Source) {
	var histories []history
	for _, s := range sources[:len(sources)-1] {
		h, err := readHistory(context.Background(), s)
		if err != nil {
			h = nil // reported when it is imported
		}
		histories = append(histories, h)
	}
	for i, s := range sources[1:] {
		best, most := -1, 0
		for p := 0; p <= i && p < len(histories); p++ {
			if n := s.shared(histories[p]); n > most && sources[p].Session != s.Session {
				best, most = p, n
			}
		}
		if best >= 0 {
			s.parent, s.Parent = sources[best], sources[best].Session
		}
	}
}

// shared is how many records of a history a source repeats, from the beginning on.
func (s *Source) shared(h history) (n int) {
	ended := errors.New("ended")
	_ = s.quiet().each(context.Background(), func(rec Record) error {
		if rec.Same == "" || rec.Own || rec.Link {
			return nil
		}
		if !h.has(rec.key(s.Format)) {
			return ended
		}
		n++
		return nil
	})
	return n
}
