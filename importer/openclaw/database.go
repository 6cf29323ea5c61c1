package openclaw

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/klauspost/compress/zstd"

	"hansard/importer"
	"hansard/importer/internal/database"
)

// Only the tables named here are read: the database has the agent's credentials, too.
const (
	eventTable   = "transcript_events"                // session_id, seq, event_json | event_zstd and event_utf8_bytes, created_at
	windowTable  = "session_windows"                  // session_id, session_key, spawned_by
	nodeTable    = "session_nodes"                    // session_key, current_session_id, fork_source_session_id, label
	archiveTable = "session_transcript_archives"      // sessions that were deleted or reset: a whole file each
	coldTable    = "session_transcript_cold_archives" // sessions that were put away: their rows, in a file or a blob
)

// archiveBytes is how large an archive may be, packed and unpacked.
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
		// What is older comes first.
		for _, read := range []func() error{a.archives, a.cold, a.live} {
			if err := read(); err != nil {
				return err
			}
		}
		return nil
	})
}

// agent is the database of one.
type agent struct {
	*database.DB
	in     *importer.Input
	ctx    context.Context
	tables map[string]bool
	unpack *zstd.Decoder
}

// session is one while it is read.
type session struct {
	*agent
	id, parent, title string
	labels            map[string]string
	facts             importer.Facts
	begun             bool
}

// damage reports what can't be imported.
func (s *session) damage(seq int64, what string, args ...any) {
	s.in.Report(importer.Damage{Message: fmt.Sprintf("session %s, seq %d: ", s.id, seq) + fmt.Sprintf(what, args...)})
}

// entry passes on one line of a session. Rows are rewritten in place at times.
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

// live reads the sessions that are in rows.
func (a *agent) live() error {
	for id := ""; ; {
		// By the primary key, whatever the number of rows.
		next, more := id, false
		err := a.Rows(`SELECT min(session_id) AS id FROM transcript_events WHERE session_id > ?`, []any{id}, func(row database.Row) error {
			next, more = row.Text("id"), row["id"] != nil
			return nil
		})
		if err != nil || !more {
			return err
		}
		id = next
		s, err := a.describe(id)
		if err != nil {
			return err
		}
		err = a.Rows(`SELECT * FROM transcript_events WHERE session_id = ? ORDER BY seq`, []any{id}, func(row database.Row) error {
			if err := a.ctx.Err(); err != nil {
				return err
			}
			return s.row(row)
		})
		if err != nil {
			return err
		}
	}
}

// row passes on one row. A large line is packed.
func (s *session) row(row database.Row) error {
	seq, line := int64(row.Number("seq")), row.Bytes("event_json")
	if packed, ok := row["event_zstd"].([]byte); ok && row["event_json"] == nil {
		var err error
		line, err = s.unpack.DecodeAll(packed, nil)
		if err == nil && row["event_utf8_bytes"] != nil && int64(len(line)) != int64(row.Number("event_utf8_bytes")) {
			err = fmt.Errorf("%d bytes, and not %d", len(line), int64(row.Number("event_utf8_bytes")))
		}
		if err != nil {
			s.damage(seq, "it can't be unpacked: %v", err)
			return nil
		}
	}
	return s.entry(seq, line, milliseconds(row.Number("created_at")))
}

// describe is what other tables say about a session. Older and newer versions have other
// columns; what is missing is not said.
func (a *agent) describe(id string) (*session, error) {
	s := &session{agent: a, id: id, labels: map[string]string{}}
	if !a.tables[windowTable] {
		return s, nil
	}
	var key, starter string
	err := a.Rows(`SELECT * FROM session_windows WHERE session_id = ?`, []any{id}, func(row database.Row) error {
		key, starter = row.Text("session_key"), row.Text("spawned_by")
		s.labels[importer.LabelModel] = row.Text("model")
		return nil
	})
	if err != nil || key == "" || !a.tables[nodeTable] {
		return s, err
	}
	s.labels["key"] = key
	err = a.node(key, func(row database.Row) {
		if s.title = row.Text("label"); row.Text("current_session_id") == id {
			s.parent = row.Text("fork_source_session_id")
		}
	})
	if err == nil && starter != "" {
		err = a.node(starter, func(row database.Row) { s.parent = row.Text("current_session_id") })
	}
	if s.parent == id {
		s.parent = ""
	}
	return s, err
}

func (a *agent) node(key string, take func(database.Row)) error {
	return a.Rows(`SELECT * FROM session_nodes WHERE session_key = ?`, []any{key}, func(row database.Row) error {
		take(row)
		return nil
	})
}

// archives reads sessions that were deleted or reset: a file as older versions kept it.
// OpenClaw writes the same file into the directory of the sessions, sooner or later.
func (a *agent) archives() error {
	if !a.tables[archiveTable] {
		return nil
	}
	return a.each(`SELECT rowid AS n FROM session_transcript_archives ORDER BY created_at, rowid`, func(n int64) error {
		// One that goes on is no archive, even if it was reset before.
		goesOn := false
		err := a.Rows(`SELECT 1 FROM transcript_events WHERE session_id = (SELECT session_id FROM session_transcript_archives WHERE rowid = ?) LIMIT 1`, []any{n}, func(database.Row) error {
			goesOn = true
			return nil
		})
		if err != nil {
			return err
		}
		return a.Rows(`SELECT session_id, session_key, reason, encoding, archive_blob, archive_sha256 FROM session_transcript_archives WHERE rowid = ?`, []any{n}, func(row database.Row) error {
			s := &session{agent: a, id: row.Text("session_id"), labels: map[string]string{"key": row.Text("session_key")}}
			if !goesOn {
				s.labels[importer.LabelArchived] = row.Text("reason")
			}
			packed := row.Bytes("archive_blob")
			s.checkSum(packed, row.Text("archive_sha256"))
			return s.lines(packed, row.Text("encoding") == "zstd", func(n int64, line []byte) error { return s.entry(n, line, time.Time{}) })
		})
	})
}

// each passes on the numbers that a query gives, when it is over.
func (a *agent) each(query string, take func(n int64) error) error {
	var all []int64
	err := a.Rows(query, nil, func(row database.Row) error {
		all = append(all, int64(row.Number("n")))
		return nil
	})
	for _, n := range all {
		if err == nil {
			err = a.ctx.Err()
		}
		if err == nil {
			err = take(n)
		}
	}
	return err
}

// coldName is what the file of a session that was put away is named, in sessions/cold.
var coldName = regexp.MustCompile(`^[a-f0-9]{64}\.jsonl\.zst$`)

// cold reads sessions that were put away because nobody used them. They are not told apart
// from others: their rows come back when they are used.
func (a *agent) cold() error {
	if !a.tables[coldTable] {
		return nil
	}
	return a.each(`SELECT rowid AS n FROM session_transcript_cold_archives ORDER BY rowid`, func(n int64) error {
		var row database.Row
		err := a.Rows(`SELECT session_id, archive_name, archive_sha256, storage, archive_blob FROM session_transcript_cold_archives WHERE rowid = ?`, []any{n}, func(r database.Row) error {
			row = r
			return nil
		})
		if err != nil || row == nil {
			return err
		}
		s, err := a.describe(row.Text("session_id"))
		if err != nil {
			return err
		}
		packed := row.Bytes("archive_blob")
		if row.Text("storage") == "file" {
			if packed, err = a.coldFile(row.Text("archive_name")); err != nil {
				s.damage(0, "the file it was put into can't be read: %v", err)
				return nil
			}
		}
		s.checkSum(packed, row.Text("archive_sha256"))
		return s.lines(packed, true, s.coldRecord)
	})
}

// coldRecord takes one line of what was put away: a row of some table.
func (s *session) coldRecord(_ int64, line []byte) error {
	var record struct {
		Kind string `json:"kind"`
		Row  struct {
			Seq     int64   `json:"seq"`
			Event   string  `json:"event_json"`
			Created float64 `json:"created_at"`
		} `json:"row"`
	}
	if err := json.Unmarshal(line, &record); err != nil {
		s.damage(0, "%d bytes of what was put away are not a whole record", len(line))
		return nil
	}
	if record.Kind != "event" { // the others are made of these
		return nil
	}
	return s.entry(record.Row.Seq, []byte(record.Row.Event), milliseconds(record.Row.Created))
}

// coldFile reads a file of the directory sessions/cold beside the database.
func (a *agent) coldFile(name string) ([]byte, error) {
	if !coldName.MatchString(name) {
		return nil, fmt.Errorf("it has the name %.100q", name)
	}
	root, err := os.OpenRoot(a.in.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name = filepath.Join(filepath.Dir(a.in.Path), "..", "sessions", "cold", name)
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > archiveBytes {
		return nil, fmt.Errorf("it is not a file, or has %d bytes", info.Size())
	}
	return root.ReadFile(name)
}

// checkSum reports an archive that is not what it was. What can be read of it counts.
func (s *session) checkSum(packed []byte, want string) {
	if sum := sha256.Sum256(packed); want != "" && hex.EncodeToString(sum[:]) != want {
		s.damage(0, "the checksum of what was put away is not %.64s", want)
	}
}

// lines passes on the lines of an archive, counted from 0, as far as it can be read.
func (s *session) lines(packed []byte, zipped bool, take func(n int64, line []byte) error) error {
	var r io.Reader = bytes.NewReader(packed)
	if zipped {
		if err := s.unpack.Reset(r); err != nil {
			s.damage(0, "what was put away can't be unpacked: %v", err)
			return nil
		}
		r = s.unpack.IOReadCloser()
	}
	br := bufio.NewReaderSize(io.LimitReader(r, archiveBytes), 64<<10)
	for n := int64(0); ; n++ {
		line, err := br.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 && (err == nil || err == io.EOF) {
			if err := take(n, bytes.TrimSuffix(line, []byte{'\n'})); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			s.damage(n, "the rest can't be unpacked: %v", err)
			return nil
		}
	}
}

func milliseconds(n float64) time.Time {
	if n <= 0 || n > 2.5e14 {
		return time.Time{}
	}
	return time.UnixMilli(int64(n)).UTC()
}
