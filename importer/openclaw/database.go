package openclaw

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"

	"hansard/importer"
	"hansard/importer/internal/database"
)

// Only the tables named here are read: the database also has the agent's credentials.
const (
	eventTable   = "transcript_events"                // session_id, seq, event_json | event_zstd and event_utf8_bytes, created_at
	windowTable  = "session_windows"                  // session_id, session_key, previous_session_id, spawned_by
	nodeTable    = "session_nodes"                    // session_key, current_session_id, fork_source_session_id, label
	archiveTable = "session_transcript_archives"      // sessions that were deleted or reset: a whole file each
	coldTable    = "session_transcript_cold_archives" // cold sessions: their rows, in a file or a blob
)

// archiveBytes is the maximum size of an archive, packed and unpacked.
const archiveBytes = 256 << 20

// readDatabase reads all sessions of a database.
func readDatabase(ctx context.Context, in *importer.Input, emit func(importer.Record) error) error {
	return database.Read(ctx, in, emit, func(db *database.DB) error {
		tables, err := db.Tables()
		if err != nil {
			return err
		}
		if !tables[eventTable] {
			return fmt.Errorf("it has no table %s", eventTable)
		}
		unpack, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(archiveBytes))
		if err != nil {
			return err
		}
		defer unpack.Close()
		a := &agent{DB: db, in: in, ctx: ctx, tables: tables, unpack: unpack}
		first, err := a.windows()
		if err != nil {
			return err
		}
		for _, w := range first {
			if err := a.family(w, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// agent is the database of one agent.
type agent struct {
	*database.DB
	in     *importer.Input
	ctx    context.Context
	tables map[string]bool
	unpack *zstd.Decoder
	mute   bool // damage is reported elsewhere
}

// session is a session while it is read.
type session struct {
	*agent
	id, parent, title string
	started           bool // by the parent
	labels            map[string]string
	facts             importer.Facts
	begun             bool
}

// damage reports what can't be imported.
func (s *session) damage(seq int64, what string, args ...any) {
	if s.mute {
		return
	}
	s.in.Report(importer.Damage{Message: fmt.Sprintf("session %s, seq %d: ", s.id, seq) + fmt.Sprintf(what, args...)})
}

// entry passes on one line of a session. OpenClaw sometimes rewrites rows in place.
func (s *session) entry(seq int64, line []byte, at time.Time) error {
	data := bytes.TrimSpace(line)
	if len(data) == 0 {
		return nil
	}
	rec, ok := importer.PiEntry(importer.Raw{Bytes: data, ID: importer.LineID(int(seq)+1, line)}, &s.facts)
	if !ok {
		s.damage(seq, "%d bytes are not a whole record", len(line))
		return nil
	}
	if rec.Event.At.IsZero() {
		rec.Event.At = at
	}
	rec.Session, rec.Parent, rec.Mutable = s.id, s.parent, true
	if !s.begun {
		s.begun = true
		s.facts.Note(&rec, s.labels)
		s.facts.Title(&rec, s.title)
	}
	return s.Emit(rec)
}

// live reads the entries that are in rows.
func (a *agent) live(w *window) error {
	s, err := a.describe(w)
	if err != nil {
		return err
	}
	return a.Rows(`SELECT * FROM transcript_events WHERE session_id = ? ORDER BY seq`, []any{w.id}, func(row database.Row) error {
		if err := a.ctx.Err(); err != nil {
			return err
		}
		return s.row(row)
	})
}

// row passes on one row.
func (s *session) row(row database.Row) error {
	seq := int64(row.Number("seq"))
	line, err := s.line(row)
	if err != nil {
		s.damage(seq, "it can't be unpacked: %v", err)
		return nil
	}
	return s.entry(seq, line, milliseconds(row.Number("created_at")))
}

// line is the line in a row. A large line is packed.
func (a *agent) line(row database.Row) ([]byte, error) {
	packed, ok := row["event_zstd"].([]byte)
	if !ok || row["event_json"] != nil {
		return row.Bytes("event_json"), nil
	}
	line, err := a.unpack.DecodeAll(packed, nil)
	if err == nil && row["event_utf8_bytes"] != nil && int64(len(line)) != int64(row.Number("event_utf8_bytes")) {
		err = fmt.Errorf("%d bytes, and not %d", len(line), int64(row.Number("event_utf8_bytes")))
	}
	return line, err
}

// describe is what other tables say about a session. Versions differ in their columns; a
// missing column is ignored.
func (a *agent) describe(w *window) (*session, error) {
	s := &session{agent: a, id: w.id, parent: w.named(), labels: map[string]string{}}
	if !a.tables[windowTable] {
		return s, nil
	}
	var key, starter string
	err := a.Rows(`SELECT * FROM session_windows WHERE session_id = ?`, []any{w.id}, func(row database.Row) error {
		key, starter = row.Text("session_key"), row.Text("spawned_by")
		s.labels[importer.LabelModel] = row.Text("model")
		return nil
	})
	if err != nil || key == "" || !a.tables[nodeTable] {
		return s, err
	}
	s.labels["key"] = key
	err = a.node(key, func(row database.Row) { s.title = row.Text("label") })
	if err == nil && starter != "" {
		err = a.node(starter, func(row database.Row) {
			if id := row.Text("current_session_id"); id != "" && id != w.id {
				s.parent, s.started = id, true
			}
		})
	}
	return s, err
}

func (a *agent) node(key string, take func(database.Row)) error {
	return a.Rows(`SELECT * FROM session_nodes WHERE session_key = ?`, []any{key}, func(row database.Row) error {
		take(row)
		return nil
	})
}

func milliseconds(n float64) time.Time {
	if n <= 0 || n > 2.5e14 {
		return time.Time{}
	}
	return time.UnixMilli(int64(n)).UTC()
}
