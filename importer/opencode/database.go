package opencode

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"hansard/importer"

	_ "modernc.org/sqlite" // the driver
)

// readDatabase reads all sessions of a database, in one transaction, so that it is the
// database of one moment. It is opened for reading only.
func readDatabase(ctx context.Context, in *importer.Input, emit func(importer.Record) error) (err error) {
	path, done, err := quietCopy(in.File())
	if err != nil {
		return in.Failed(err)
	}
	defer func() { err = errors.Join(err, done()) }()
	u := url.URL{Scheme: "file", Path: path, RawQuery: "mode=ro&_pragma=query_only(1)&_pragma=busy_timeout(5000)"}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return in.Failed(err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return in.Failed(err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	d := &database{tx: tx, ctx: ctx, emit: emit}
	if err := d.sessions(); err != nil {
		return d.failed(in, err)
	}
	return nil
}

// quietCopy is where to read a database. One that nobody has open is copied first: SQLite
// would make the files of its write-ahead log beside it, and leave them there. If somebody
// opens it meanwhile it is read in place after all, beside their log.
func quietCopy(path string) (quiet string, done func() error, err error) {
	inPlace := func() (string, func() error, error) { return path, func() error { return nil }, nil }
	before, err := os.Stat(path)
	if err != nil {
		return "", nil, err
	}
	if inUse(path) {
		return inPlace()
	}
	dir, err := os.MkdirTemp("", "hansard-import-")
	if err != nil {
		return "", nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	quiet = filepath.Join(dir, "copy.db")
	if err := copyFile(quiet, path); err != nil {
		return "", nil, errors.Join(err, remove())
	}
	after, err := os.Stat(path)
	if err != nil || inUse(path) || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		if err := remove(); err != nil {
			return "", nil, err
		}
		return inPlace()
	}
	return quiet, remove, nil
}

// inUse reports whether there is a log beside a database.
func inUse(path string) bool {
	for _, suffix := range []string{"-wal", "-journal"} {
		if _, err := os.Lstat(path + suffix); err == nil {
			return true
		}
	}
	return false
}

func copyFile(to, from string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

type database struct {
	tx   *sql.Tx
	ctx  context.Context
	emit func(importer.Record) error
}

// takeError is the error of whoever takes the records.
type takeError struct{ err error }

func (e *takeError) Error() string { return e.err.Error() }

func (d *database) failed(in *importer.Input, err error) error {
	var taken *takeError
	if errors.As(err, &taken) {
		return taken.err
	}
	return in.Failed(err)
}

func (d *database) take(rec importer.Record) error {
	if err := d.emit(rec); err != nil {
		return &takeError{err}
	}
	return nil
}

// rows passes on the rows of a query, each as a set of its columns.
func (d *database) rows(query string, args []any, take func(row map[string]any) error) (err error) {
	rows, err := d.tx.QueryContext(d.ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		values, targets := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			targets[i] = &values[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		row := map[string]any{}
		for i, name := range names {
			row[name] = values[i]
		}
		if err := take(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (d *database) tables() (map[string]bool, error) {
	tables := map[string]bool{}
	err := d.rows(`SELECT name FROM sqlite_master WHERE type = 'table'`, nil, func(row map[string]any) error {
		tables[str(row, "name")] = true
		return nil
	})
	return tables, err
}

func (d *database) sessions() error {
	tables, err := d.tables()
	if err != nil {
		return err
	}
	if !tables["session"] {
		return fmt.Errorf("it has no table session")
	}
	// The ids first: a second query while rows are open would need a second
	// connection, and see another moment.
	var sessions []map[string]any
	err = d.rows(`SELECT * FROM session ORDER BY id`, nil, func(row map[string]any) error {
		sessions = append(sessions, row)
		return nil
	})
	if err != nil {
		return err
	}
	for _, row := range sessions {
		r := &reader{emit: d.take, session: session{id: str(row, "id"), parent: str(row, "parent_id"), title: str(row, "title"), directory: str(row, "directory"), version: str(row, "version")}}
		// Of a row with many columns only what describes the session is kept: the
		// counts in it change with every message.
		about := importer.JSON(map[string]any{"id": r.id, "parent_id": r.parent, "title": r.title, "directory": r.directory, "version": r.version, "project_id": row["project_id"]})
		if err := r.about(milliseconds(num(row, "time_created")), about); err != nil {
			return err
		}
		if err := d.history(r, tables); err != nil {
			return err
		}
	}
	return nil
}

// history reads the messages of one session.
func (d *database) history(r *reader, tables map[string]bool) error {
	if tables["message"] && tables["part"] {
		if err := d.messages(r); err != nil {
			return err
		}
	}
	if !tables["session_message"] {
		return nil
	}
	return d.rows(`SELECT * FROM session_message WHERE session_id = ? ORDER BY seq`, []any{r.id}, func(row map[string]any) error {
		return r.entry(str(row, "id"), str(row, "type"), milliseconds(num(row, "time_created")), []byte(str(row, "data")))
	})
}

// pageRows is how many messages are read before their parts are.
const pageRows = 500

func (d *database) messages(r *reader) error {
	for after := ""; ; {
		var page []map[string]any
		err := d.rows(`SELECT id, time_created, data FROM message WHERE session_id = ? AND id > ? ORDER BY id LIMIT ?`, []any{r.id, after, pageRows}, func(row map[string]any) error {
			page = append(page, row)
			return nil
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, row := range page {
			after = str(row, "id")
			role, err := r.message(after, milliseconds(num(row, "time_created")), []byte(str(row, "data")))
			if err != nil {
				return err
			}
			err = d.rows(`SELECT id, time_created, data FROM part WHERE message_id = ? ORDER BY id`, []any{after}, func(row map[string]any) error {
				return r.part(str(row, "id"), role, milliseconds(num(row, "time_created")), []byte(str(row, "data")))
			})
			if err != nil {
				return err
			}
		}
	}
}

func str(row map[string]any, name string) string {
	switch v := row[name].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case nil:
		return ""
	default:
		return strings.TrimSpace(fmt.Sprint(v))
	}
}

func num(row map[string]any, name string) float64 {
	switch v := row[name].(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	}
	return 0
}
