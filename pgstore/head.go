package pgstore

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
)

// head is a session's row.
type head struct {
	last             hansard.Seq
	bytes            int64
	created, updated time.Time
	deleted          bool
	turn             *hansard.Turn // nil if nobody holds it
	newest           hansard.Grant
	mark             string
	parent           *hansard.Parent // nil if it is not a fork
}

// headColumns are what scanHead reads.
const headColumns = "h.last, h.bytes, h.created, h.updated, h.deleted, h.turn, h.renewed, h.newest, h.mark, h.parent, h.parent_at"

// scanHead reads a head, and the columns that follow it into more.
func scanHead(row pgx.Row, h *head, more ...any) error {
	var turn string
	var renewed *time.Time
	var last int64
	var parent *string
	var parentAt *int64
	into := append([]any{&last, &h.bytes, &h.created, &h.updated, &h.deleted, &turn, &renewed, (*string)(&h.newest), &h.mark, &parent, &parentAt}, more...)
	if err := row.Scan(into...); err != nil {
		return err
	}
	if parent != nil && parentAt != nil {
		h.parent = &hansard.Parent{ID: hansard.SessionID(*parent), At: hansard.Seq(*parentAt)}
	}
	h.last, h.created, h.updated = hansard.Seq(last), h.created.UTC(), h.updated.UTC()
	if turn == "" {
		return nil
	}
	h.turn = new(hansard.Turn)
	if err := json.Unmarshal([]byte(turn), h.turn); err != nil {
		return &unreadable{"hansard_heads.turn", err}
	}
	if renewed != nil {
		h.turn.Renewed = renewed.UTC()
	}
	return nil
}

// unreadable is something in the tables that no version of this program has written.
type unreadable struct {
	what string
	err  error
}

func (u *unreadable) Error() string { return u.what + ": " + u.err.Error() }
func (u *unreadable) Unwrap() error { return u.err }

// find returns ErrNotFound or ErrDeleted if the session can't be used.
func (h *head) find(id hansard.SessionID) error {
	switch {
	case h == nil:
		return fmt.Errorf("%w: %s", hansard.ErrNotFound, id)
	case h.deleted:
		return fmt.Errorf("%w: %s", hansard.ErrDeleted, id)
	}
	return nil
}

// held is the turn as Info shows it: what the log records, without the last renewal.
func (h *head) held() *hansard.Turn {
	if h.turn == nil {
		return nil
	}
	t := *h.turn
	t.Renewed = time.Time{}
	return &t
}

// lost tells why the holder's turn may be given to somebody else; if it may not, why is
// empty and safe is how long that stays so.
func (h *head) lost(now time.Time) (why string, safe time.Duration) {
	safe = h.turn.Renewed.Add(h.turn.TTL).Sub(now)
	if safe <= 0 {
		return "silent", 0
	}
	if h.turn.MaxHold > 0 {
		safe = min(safe, h.turn.Since.Add(h.turn.MaxHold).Sub(now))
	}
	if safe <= 0 {
		return "overdue", 0
	}
	return "", safe
}

func overdue(t *hansard.Turn, now time.Time) bool {
	return t.MaxHold > 0 && !now.Before(t.Since.Add(t.MaxHold))
}

// metaRow is a session's metadata as it is stored.
func metaRow(m hansard.Meta) (title, labels, state string) {
	text, _ := json.Marshal(m.Labels) // strings: can't fail
	if len(m.Labels) == 0 {
		text = []byte("{}")
	}
	return m.Title, string(text), string(m.State)
}

func scanMeta(title, labels, state string) (hansard.Meta, error) {
	m := hansard.Meta{Title: title, Labels: map[string]string{}}
	if err := json.Unmarshal([]byte(labels), &m.Labels); err != nil {
		return m, fmt.Errorf("hansard_sessions.labels: %w", err)
	}
	if state != "" {
		m.State = json.RawMessage(state)
	}
	return m, nil
}

// info describes a session.
func (h *head) info(id hansard.SessionID, m hansard.Meta) hansard.Info {
	i := hansard.Info{ID: id, Title: m.Title, Labels: m.Labels, State: m.State, Created: h.created, Updated: h.updated,
		LastSeq: h.last, Bytes: h.bytes, Turn: h.held(), Parent: h.parent}
	if i.Labels == nil {
		i.Labels = map[string]string{}
	}
	if len(i.State) == 0 {
		i.State = json.RawMessage("null")
	}
	return i
}

// listingLabels are the rows of a session in hansard_listing. A label's name has no
// equals sign, so the two parts can't be confused.
func listingLabels(labels map[string]string) []string {
	rows := []string{""}
	for name, value := range labels {
		rows = append(rows, name+"="+value)
	}
	return rows
}
