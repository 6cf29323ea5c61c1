package catalog

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"hansard"
)

// selection is the SQL statement for a query, without its cursor.
type selection struct {
	from  string // where the rows are found, and in which order
	time  string // the column of the order
	sort  string
	where strings.Builder
	args  []any
}

// fewSessions is the number of sessions up to which they are sorted, rather than found by
// walking down a list of mostly other sessions.
const fewSessions = 2000

// newSelection decides where to look for the rows: by the ids in the query, among the forks of a
// session, among those that are held or damaged, among those with a prefix or a label that few
// have, or down the list.
func newSelection(ctx context.Context, tx *sql.Tx, q *hansard.Query, order hansard.Order) (*selection, error) {
	s := &selection{time: "updated", from: " FROM logs INDEXED BY by_updated", sort: " ORDER BY updated DESC, id DESC"}
	if order == hansard.OrderCreated {
		s.time, s.sort = "created", " ORDER BY created DESC, id DESC"
		if q.Since.IsZero() { // otherwise going by update time reads fewer rows
			s.from = " FROM logs INDEXED BY by_created"
		}
	}
	s.where.WriteString(" WHERE id IS NOT NULL")
	rare, err := rareLabel(ctx, tx, q)
	if err != nil {
		return nil, err
	}
	joined, fewNamed := "", false
	if q.Prefix != "" {
		fewNamed, err = areFew(ctx, tx, "logs INDEXED BY by_id WHERE id IS NOT NULL AND id >= ? AND id < ?", q.Prefix, q.Prefix+"\x7f")
		if err != nil {
			return nil, err
		}
	}
	switch {
	case len(q.IDs) > 0:
		s.from = " FROM logs INDEXED BY by_id"
		ids := make([]any, len(q.IDs))
		for i, id := range q.IDs {
			ids[i] = string(id)
		}
		s.and("id IN (?"+strings.Repeat(", ?", len(ids)-1)+")", ids...)
	case q.Parent != "":
		s.from = " FROM logs INDEXED BY by_parent"
	case q.Held:
		s.from = " FROM logs INDEXED BY held"
	case q.Damaged:
		s.from = " FROM logs INDEXED BY bad"
	case fewNamed:
		s.from = " FROM logs INDEXED BY by_id"
	case rare != "":
		s.from = " FROM labels CROSS JOIN logs ON logs.n = labels.n"
		s.and("labels.label = ?", rare)
		joined = rare
	}
	s.filter(q, joined)
	return s, nil
}

// rareLabel is a label of the query that few sessions have; empty: there is none.
func rareLabel(ctx context.Context, tx *sql.Tx, q *hansard.Query) (string, error) {
	for name, value := range q.Labels {
		few, err := areFew(ctx, tx, "labels WHERE label = ?", name+"="+value)
		if err != nil {
			return "", err
		}
		if few {
			return name + "=" + value, nil
		}
	}
	return "", nil
}

// areFew reports whether there are not more than fewSessions of something.
func areFew(ctx context.Context, tx *sql.Tx, of string, args ...any) (bool, error) {
	var n int
	err := tx.QueryRowContext(ctx, "SELECT count(*) FROM (SELECT 1 FROM "+of+" LIMIT ?)", append(args, fewSessions+1)...).Scan(&n)
	return n <= fewSessions, err
}

// filter adds the conditions of the query, except for a label by which the rows are found.
func (s *selection) filter(q *hansard.Query, joined string) {
	if q.Prefix != "" {
		s.and("id >= ? AND id < ?", q.Prefix, q.Prefix+"\x7f") // no id has a character past "~"
	}
	for _, bound := range []struct {
		at   time.Time
		text string
	}{{q.Since, "updated >= ?"}, {q.Before, "updated < ?"}, {q.CreatedSince, "created >= ?"}, {q.CreatedBefore, "created < ?"}} {
		if !bound.at.IsZero() {
			s.and(bound.text, ceilMicro(bound.at))
		}
	}
	if q.Parent != "" {
		s.and("parent = ?", string(q.Parent))
	}
	if q.Held {
		s.and("held")
	}
	if q.Damaged {
		s.and("bad")
	}
	if q.Archived != hansard.ArchivedAny {
		s.and("archived = ?", q.Archived == hansard.ArchivedOnly)
	}
	for name, value := range q.Labels {
		if label := name + "=" + value; label != joined {
			s.and("EXISTS (SELECT 1 FROM labels AS l WHERE l.n = logs.n AND l.label = ?)", label)
		}
	}
	if q.Text != "" {
		text := strings.ToLower(q.Text)
		s.and("(instr(title, ?) OR instr(lower(id), ?))", text, text)
	}
}

func (s *selection) and(text string, args ...any) {
	s.where.WriteString(" AND " + text)
	s.args = append(s.args, args...)
}

// rows is the statement for the rows, in order.
func (s *selection) rows() string { return "SELECT " + columns + s.from + s.where.String() + s.sort }

// ceilMicro is the first microsecond that is not before a time: sessions have whole microseconds.
func ceilMicro(t time.Time) int64 {
	if t.Nanosecond()%1000 != 0 {
		t = t.Add(time.Microsecond)
	}
	return t.UnixMicro()
}
