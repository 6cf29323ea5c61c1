package pgstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
)

// examination is one session being examined.
type examination struct {
	id        hansard.SessionID
	head      head
	current   hansard.Grant // the column that the statement of an append checks
	exclusive bool
	meta      hansard.Meta // as it is stored
	grown     hansard.Meta // as the patches in the log produce it
	seq       hansard.Seq  // the last event that is safe
	time      time.Time    // of that event
	bytes     int64
	grants    engine.Grants
	lineage   engine.Lineage
	redacted  engine.Redactions
	shrunk    bool           // something was redacted while the log was read
	batch     hansard.KeyUse // the last one with a key
	end       hansard.Seq    // the last seq of the log when the examination began
	read      hansard.Seq    // the last seq that was read
	listing   []listingRow
	naming    []naming // of events that were read, not yet compared
	wrong     string   // the first problem found
	broken    bool     // the log itself can't be trusted after seq
}

// listingRow is a row of hansard_listing.
type listingRow struct {
	label  string
	listed time.Time
	early  bool // listed is earlier than the head's column says
}

// naming is a reference to an attachment by an event.
type naming struct {
	seq hansard.Seq
	hansard.Attachment
}

// logged is an event as it is examined.
type logged struct {
	event     hansard.Event
	key, hash *string
	content   *string
	size      *int32
	bad       error // set if part of it can't be read
}

func (e *examination) found(format string, args ...any) {
	if e.wrong == "" {
		e.wrong = fmt.Sprintf(format, args...)
	}
}

// breaks is found for a problem after which the log can't be trusted.
func (e *examination) breaks(format string, args ...any) {
	e.found(format, args...)
	e.broken = true
}

const (
	verifyHead = "SELECT " + headColumns + `, h.current, h.exclusive, s.title, s.labels, s.state, s.born,
	coalesce((SELECT seq FROM hansard_events WHERE id = $1 ORDER BY seq DESC LIMIT 1), 0)
	FROM hansard_heads h LEFT JOIN hansard_sessions s ON s.id = h.id WHERE h.id = $1`
	verifyList = `SELECT l.label, l.listed, l.listed < (SELECT h.listed FROM hansard_heads h WHERE h.id = $1) FROM hansard_listing l WHERE l.id = $1`
	verifyPage = "SELECT " + eventColumns + `, key, hash, size, content FROM (
		SELECT *, sum(octet_length(data)) OVER (ORDER BY seq) - octet_length(data) AS before FROM (
			SELECT * FROM hansard_events WHERE id = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4
		) part
	) page WHERE before < $5 ORDER BY seq`
)

// start reads the session's rows, and the first page of its log.
func (e *examination) start(ctx context.Context, s *Store) error {
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	b.Queue(verifyHead, string(e.id))
	b.Queue(verifyList, string(e.id))
	b.Queue(verifyPage, string(e.id), int64(0), int64(maxSeq), pageEvents, int64(pageBytes))
	b.Queue("COMMIT")
	return s.batch(ctx, b, func(res pgx.BatchResults) error {
		if _, err := res.Exec(); err != nil {
			return err
		}
		if err := e.readHead(res.QueryRow()); err != nil {
			return err
		}
		rows, err := res.Query()
		if err != nil {
			return err
		}
		if e.listing, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l listingRow, err error) {
			return l, row.Scan(&l.label, &l.listed, &l.early)
		}); err != nil {
			return err
		}
		if rows, err = res.Query(); err != nil {
			return err
		}
		page, err := readLogged(rows)
		for i := range page {
			e.event(&page[i])
		}
		return err
	})
}

// rest reads the rest of the log, and the attachments.
func (e *examination) rest(ctx context.Context, s *Store) error {
	if err := e.compareNamed(ctx, s); err != nil {
		return err
	}
	for before := hansard.Seq(0); e.read < e.end && e.read > before; {
		var page []logged
		before = e.read
		err := s.look(ctx, func(ctx context.Context) error {
			rows, err := s.pool.Query(ctx, verifyPage, string(e.id), int64(e.read), int64(e.end), pageEvents, int64(pageBytes))
			if err == nil {
				page, err = readLogged(rows)
			}
			return err
		})
		if err != nil {
			return err
		}
		for i := range page {
			e.event(&page[i])
		}
		if err := e.compareNamed(ctx, s); err != nil {
			return err
		}
	}
	if err := e.laterRedactions(ctx, s); err != nil {
		return err
	}
	if err := e.attachments(ctx, s); err != nil {
		return err
	}
	if e.read == e.end && e.wrong == "" {
		return nil
	}
	// A session that was deleted meanwhile is not damaged: it has no log any more.
	return s.look(ctx, func(ctx context.Context) error {
		var h head
		err := s.pool.QueryRow(ctx, findHead, string(e.id)).Scan(&h.deleted, nil)
		if err != nil {
			return err
		}
		return h.find(e.id)
	})
}

// readHead reads the rows of hansard_heads and hansard_sessions.
func (e *examination) readHead(row pgx.Row) error {
	var title, labels, state, born *string
	var end int64
	var bad *unreadable
	switch err := scanHead(row, &e.head, &e.current, &e.exclusive, &title, &labels, &state, &born, &end); {
	case errors.Is(err, pgx.ErrNoRows):
		return (*head)(nil).find(e.id)
	case errors.As(err, &bad):
		e.found("%v", bad)
	case err != nil:
		return err
	}
	e.end = hansard.Seq(end)
	if err := e.head.find(e.id); err != nil {
		return err
	}
	if title == nil || labels == nil || state == nil || born == nil {
		e.found("it has no row in hansard_sessions")
		return nil
	}
	var err error
	if e.meta, err = scanMeta(*title, *labels, *state); err != nil {
		e.found("%v", err)
	}
	if e.grown, err = scanBorn(*born); err != nil {
		e.found("%v", err)
	}
	return nil
}

func scanBorn(text string) (hansard.Meta, error) {
	var b bornMeta
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return hansard.Meta{}, fmt.Errorf("hansard_sessions.born: %w", err)
	}
	return hansard.Meta{Title: b.Title, Labels: b.Labels, State: []byte(b.State)}, nil
}

// readLogged reads a page of the log.
func readLogged(rows pgx.Rows) (page []logged, err error) {
	defer rows.Close()
	for rows.Next() {
		var l logged
		var bad *unreadable
		switch err := scanEvent(more{rows, []any{&l.key, &l.hash, &l.size, &l.content}}, &l.event); {
		case errors.As(err, &bad):
			l.bad = bad
		case err != nil:
			return nil, err
		}
		page = append(page, l)
	}
	return page, rows.Err()
}

// more is a row whose last columns are scanned into last.
type more struct {
	pgx.Row
	last []any
}

func (m more) Scan(into ...any) error { return m.Row.Scan(append(into, m.last...)...) }

func (e *examination) event(l *logged) {
	ev := &l.event
	e.read = ev.Seq
	if l.bad != nil {
		e.breaks("%v", l.bad)
	}
	if ev.Seq != e.seq+1 && !e.broken {
		e.breaks("seq %d follows seq %d", ev.Seq, e.seq)
	}
	if !json.Valid(ev.Data) {
		e.breaks("the data of seq %d is not JSON", ev.Seq)
	}
	if err := e.grants.Next(ev); err != nil {
		e.breaks("%v", err)
	}
	if err := e.lineage.Next(ev); err != nil {
		e.breaks("%v", err)
	}
	if err := e.redacted.Next(ev); err != nil {
		e.found("%v", err)
	}
	meta, err := engine.ReplayPatch(e.grown, ev.Patch)
	if err != nil {
		e.breaks("the patch of seq %d: %v", ev.Seq, err)
	}
	if !e.broken {
		e.seq, e.time, e.grown = ev.Seq, ev.Time, meta
	}
	e.bytes += int64(len(ev.Data))
	e.keyUse(ev.Seq, l.key, l.hash, l.size)
	for _, a := range ev.Attachments {
		e.naming = append(e.naming, naming{ev.Seq, a})
	}
	if was := l.content; (ev.ID == "") != (was == nil) || was != nil && *was != contentOf(ev) {
		e.found("the hash at seq %d is not that of its event, whose id is %q", ev.Seq, ev.ID)
	}
}

// contentOf is the hash stored with an event that has an id.
func contentOf(e *hansard.Event) string {
	if e.Redacted {
		return ""
	}
	return engine.EventHash(e)
}

// keyUse checks the columns on the first event of a batch that has a key or several events.
func (e *examination) keyUse(seq hansard.Seq, key, hash *string, size *int32) {
	switch {
	case key == nil && hash == nil && size == nil:
		return
	case (key == nil) != (hash == nil) || size == nil:
		e.found("the key at seq %d lacks itself, its hash or its size", seq)
		return
	case *size < 1 || seq+hansard.Seq(*size)-1 > e.head.last:
		e.found("the batch at seq %d has %d events, which can't be", seq, *size)
		return
	case seq <= e.batch.Last:
		e.found("the batch at seq %d begins inside the one at seq %d", seq, e.batch.First)
	}
	e.batch = hansard.KeyUse{First: seq, Last: seq + hansard.Seq(*size) - 1}
}

// compare checks the session's rows against its log.
func (e *examination) compare() {
	current := hansard.Grant("")
	if e.grants.Current != nil {
		current = e.grants.Current.Grant
	}
	held := hansard.Grant("")
	if e.head.turn != nil {
		held = e.head.turn.Grant
	}
	switch {
	case e.wrong != "": // further differences would only follow from it
	case e.seq != e.head.last:
		e.found("the last seq is said to be %d, the log has %d", e.head.last, e.seq)
	case e.seq > 0 && !e.time.Equal(e.head.updated):
		e.found("it was updated at %v, its last event says %v", e.head.updated, e.time)
	case e.redacted.End() != nil:
		e.found("%v", e.redacted.End())
	case len(e.redacted.Unfinished()) > 0:
		e.found("the content of seq %d is there, though an event records that it was taken away", e.redacted.Unfinished()[0])
	case e.bytes != e.head.bytes && !e.shrunk:
		e.found("its row says %d bytes, the log has %d", e.head.bytes, e.bytes)
	case current != held || current != e.current || e.grants.Last != e.head.newest:
		e.found("the turn is said to be %q and %q behind %q, the log says %q behind %q", held, e.current, e.head.newest, current, e.grants.Last)
	case e.lineage.End(e.head.parent) != nil:
		e.found("%v", e.lineage.End(e.head.parent))
	case e.exclusive != (e.grants.Current != nil && e.grants.Current.Exclusive):
		e.found("the turn is said to be exclusive: %v; the log says %v", e.exclusive, !e.exclusive)
	case e.meta.Title != e.grown.Title || !maps.Equal(e.meta.Labels, e.grown.Labels) || !bytes.Equal(e.meta.State, e.grown.State):
		e.found("its metadata is not what its patches lead to")
	}
	e.compareListing()
}

// compareListing checks the session's rows in hansard_listing against its head and labels.
func (e *examination) compareListing() {
	var got []string
	for _, l := range e.listing {
		got = append(got, l.label)
		if l.listed.After(e.head.updated) || !l.listed.Add(span).After(e.head.updated) || l.early {
			e.found("it is listed under %v, and was updated at %v", l.listed.UTC(), e.head.updated)
		}
	}
	want := listingLabels(e.meta.Labels)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		e.found("it is listed as %q, its labels say %q", got, want)
	}
}
