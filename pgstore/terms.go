package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"hansard"
)

// An index maps terms to sessions. A session has one term for each label, and one for each
// piece of up to three characters of its id and title, in lower case. A title that contains a
// text has all pieces of the text. The reverse is not true, so what the index finds is
// compared with the query; but sessions that have all pieces of a text, or two labels, are
// either few, or so many that walking down the list finds them soon.

// The kinds of terms, by their first character.
const (
	labelTerm    = "l" // and "name=value"
	textTerm     = "t" // and a piece
	archivedTerm = "a"
)

// pieceLength is how many characters a piece has; the last ones of a text have fewer.
const pieceLength = 3

// pieces are the pieces of a text.
func pieces(text string) (out []string) {
	runes := []rune(strings.ToLower(text))
	for i := range runes {
		out = append(out, textTerm+string(runes[i:min(i+pieceLength, len(runes))]))
	}
	return out
}

// termsOf are the terms of a session, as a tsvector is written.
func termsOf(id hansard.SessionID, title string, labels map[string]string) string {
	terms := append(pieces(string(id)), pieces(title)...)
	for name, value := range labels {
		terms = append(terms, labelTerm+name+"="+value)
	}
	if _, ok := labels[hansard.LabelArchived]; ok {
		terms = append(terms, archivedTerm)
	}
	slices.Sort(terms)
	terms = slices.Compact(terms)
	for i := range terms {
		terms[i] = quoteTerm(terms[i])
	}
	return strings.Join(terms, " ")
}

// quoteTerm is a term as it is written in a tsvector and a tsquery.
func quoteTerm(term string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(term, `\`, `\\`), "'", "''") + "'"
}

// maxTerms bounds how many pieces are looked up: the first of a long text are rare enough.
const maxTerms = 30

// termQuery is the tsquery that the terms of all sessions of a query match. It is empty if
// the query has no condition on terms.
func termQuery(q *hansard.Query) string {
	var terms []string
	for name, value := range q.Labels {
		terms = append(terms, quoteTerm(labelTerm+name+"="+value))
	}
	if q.Archived == hansard.ArchivedOnly {
		terms = append(terms, quoteTerm(archivedTerm))
	}
	found := pieces(q.Text)
	switch n := len(found); {
	case n >= pieceLength:
		for _, piece := range found[:min(n-pieceLength+1, maxTerms)] { // those that are whole
			terms = append(terms, quoteTerm(piece))
		}
	case n > 0:
		terms = append(terms, quoteTerm(found[0])+":*") // prefix match
	}
	return strings.Join(terms, " & ")
}

const (
	// fewWith selects the sessions that have some terms. The first part is planned as if all
	// were wanted: with a limit PostgreSQL would prefer to read the table, expecting to find
	// enough of them soon.
	fewWith = `WITH found AS MATERIALIZED (SELECT id FROM hansard_sessions WHERE terms IS NOT NULL AND terms @@ $1::text::tsquery) SELECT id FROM found LIMIT $2`
	// unsaid selects the sessions whose terms are missing or stale.
	unsaid = `SELECT id, title, labels FROM hansard_sessions WHERE said IS DISTINCT FROM hashtextextended(title || labels, 0) LIMIT $1`
	// say stores new terms, unless the title or labels they were made from changed meanwhile.
	say = `UPDATE hansard_sessions s SET terms = u.terms::tsvector, said = hashtextextended(s.title || s.labels, 0)
	FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS u(id, title, labels, terms) WHERE s.id = u.id AND s.title = u.title AND s.labels = u.labels`
)

// fewTermed is up to how many sessions are looked up one by one, rather than by walking on.
const fewTermed = 5000

// withTerms returns candidates that include all sessions a query selects, found by their
// terms; ok is false if they are many, or the query has no terms. fill is true if some
// sessions have stale terms; those are candidates too.
func withTerms(ctx context.Context, q querier, query *hansard.Query) (ids []string, ok, fill bool, err error) {
	terms := termQuery(query)
	if terms == "" {
		return nil, false, false, nil
	}
	if !storable(terms) {
		return nil, true, false, nil // no session has them
	}
	unfilled, err := readUnsaid(ctx, q, fewTermed+1)
	if err != nil {
		return nil, false, false, err
	}
	if len(unfilled) > fewTermed {
		return nil, false, true, nil
	}
	rows, err := q.Query(ctx, fewWith, terms, fewTermed+1)
	if err != nil {
		return nil, false, false, err
	}
	if ids, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, false, false, err
	}
	ok = len(ids) <= fewTermed
	for _, s := range unfilled {
		ids = append(ids, s.id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), ok, len(unfilled) > 0, nil
}

// unsaidSession is a session whose terms are missing or stale.
type unsaidSession struct{ id, title, labels string }

func readUnsaid(ctx context.Context, q querier, limit int) ([]unsaidSession, error) {
	rows, err := q.Query(ctx, unsaid, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s unsaidSession, err error) {
		return s, row.Scan(&s.id, &s.title, &s.labels)
	})
}

// fillTerms updates missing and stale terms of all sessions, a few at a time.
func (s *Store) fillTerms(ctx context.Context) error {
	for {
		todo, err := readUnsaid(ctx, s.pool, 500)
		if err != nil || len(todo) == 0 {
			return err
		}
		var ids, titles, labels, terms []string
		for _, t := range todo {
			var have map[string]string
			if err := json.Unmarshal([]byte(t.labels), &have); err != nil {
				return fmt.Errorf("the labels of session %s: %w", t.id, err)
			}
			ids, titles, labels = append(ids, t.id), append(titles, t.title), append(labels, t.labels)
			terms = append(terms, termsOf(hansard.SessionID(t.id), t.title, have))
		}
		done, err := s.execReserved(ctx, say, ids, titles, labels, terms)
		if err != nil || done.RowsAffected() == 0 {
			return err
		}
	}
}
