package openclaw

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"hansard/importer"
	"hansard/importer/internal/database"
)

// archive reads one archive of a session that was deleted or reset: a file as older versions
// kept it. OpenClaw eventually writes the same file into the directory of the sessions.
func (a *agent) archive(w *window, n int64) error {
	return a.Rows(`SELECT session_key, reason, encoding, archive_blob, archive_sha256 FROM session_transcript_archives WHERE rowid = ?`, []any{n}, func(row database.Row) error {
		s := &session{agent: a, id: w.id, parent: w.named(), labels: archiveLabels(w, row)}
		packed := row.Bytes("archive_blob")
		s.checkSum(packed, row.Text("archive_sha256"))
		return s.lines(packed, row.Text("encoding") == "zstd", func(n int64, line []byte) error { return s.entry(n, line, time.Time{}) })
	})
}

func archiveLabels(w *window, row database.Row) map[string]string {
	labels := map[string]string{"key": row.Text("session_key")}
	if !w.live { // a live session is not an archive, even if it was reset before
		labels[importer.LabelArchived] = row.Text("reason")
	}
	return labels
}

// coldName is the file name of a cold session, in sessions/cold.
var coldName = regexp.MustCompile(`^[a-f0-9]{64}\.jsonl\.zst$`)

// cold reads a session that was moved out of the rows because it was not used. It gets no
// label: its rows come back when it is used again.
func (a *agent) cold(w *window, n int64) error {
	var row database.Row
	err := a.Rows(`SELECT archive_name, archive_sha256, storage, archive_blob FROM session_transcript_cold_archives WHERE rowid = ?`, []any{n}, func(r database.Row) error {
		row = r
		return nil
	})
	if err != nil || row == nil {
		return err
	}
	s, err := a.describe(w)
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
}

// coldRecord takes one line of a cold session: a row of some table.
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
	if record.Kind != "event" { // the others are derived from these
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

// checkSum reports an archive that has changed. What can be read of it is still imported.
func (s *session) checkSum(packed []byte, want string) {
	if sum := sha256.Sum256(packed); want != "" && hex.EncodeToString(sum[:]) != want {
		s.damage(0, "the checksum of what was put away is not %.64s", want)
	}
}

// lines passes on the lines of an archive, counted from 0, as far as it can be read.
func (s *session) lines(packed []byte, zipped bool, take func(n int64, line []byte) error) error {
	br, err := s.reader(packed, zipped)
	if err != nil {
		s.damage(0, "what was put away can't be unpacked: %v", err)
		return nil
	}
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

// reader reads an archive.
func (a *agent) reader(packed []byte, zipped bool) (*bufio.Reader, error) {
	var r io.Reader = bytes.NewReader(packed)
	if zipped {
		if err := a.unpack.Reset(r); err != nil {
			return nil, err
		}
		r = a.unpack.IOReadCloser()
	}
	return bufio.NewReaderSize(io.LimitReader(r, archiveBytes), 64<<10), nil
}
