// Package database reads SQLite databases of other tools for an import: read-only, in one
// transaction, and without leaving any files beside them.
package database

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

// DB is a snapshot of a database.
type DB struct {
	tx   *sql.Tx
	ctx  context.Context
	emit func(importer.Record) error
}

// Read reads the database of a source in one transaction, so that it sees one snapshot. An
// error that do returns is about the source, unless it comes from emit.
func Read(ctx context.Context, in *importer.Input, emit func(importer.Record) error, do func(*DB) error) (err error) {
	path, done, err := quietCopy(in.File())
	if err != nil {
		return in.Failed(err)
	}
	defer func() { err = errors.Join(err, done()) }()
	path = "/" + strings.TrimPrefix(filepath.ToSlash(path), "/") // C:/… too
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
	return about(in, do(&DB{tx: tx, ctx: ctx, emit: emit}))
}

// Again reads the same snapshot for another caller. It may be called while records are
// passed on, but not within [DB.Rows].
func (d *DB) Again(in *importer.Input, emit func(importer.Record) error, do func(*DB) error) error {
	return about(in, do(&DB{tx: d.tx, ctx: d.ctx, emit: emit}))
}

// about tells errors of the source from those of emit.
func about(in *importer.Input, err error) error {
	var taken *takeError
	switch {
	case errors.As(err, &taken):
		return taken.err
	case err != nil:
		return in.Failed(err)
	}
	return nil
}

// quietCopy is where to read a database. One that nobody has open is copied first: SQLite
// would create the files of its write-ahead log beside it, and leave them there. If another
// program opens it in the meantime it is read in place after all, with that program's log.
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

// takeError is an error of the callback that takes the records.
type takeError struct{ err error }

func (e *takeError) Error() string { return e.err.Error() }

// Emit passes a record on.
func (d *DB) Emit(rec importer.Record) error {
	if err := d.emit(rec); err != nil {
		return &takeError{err}
	}
	return nil
}

// Row is a row as a map of its columns.
type Row map[string]any

// Rows passes on the rows of a query. While it does, no other query can be made: that would
// need a second connection, which sees another snapshot.
func (d *DB) Rows(query string, args []any, take func(Row) error) (err error) {
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
		row := Row{}
		for i, name := range names {
			row[name] = values[i]
		}
		if err := take(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Tables are the names of the tables.
func (d *DB) Tables() (map[string]bool, error) {
	tables := map[string]bool{}
	err := d.Rows(`SELECT name FROM sqlite_master WHERE type = 'table'`, nil, func(row Row) error {
		tables[row.Text("name")] = true
		return nil
	})
	return tables, err
}

// Columns are the names of the columns of a table; none if there is no such table.
func (d *DB) Columns(table string) (map[string]bool, error) {
	columns := map[string]bool{}
	err := d.Rows(`SELECT name FROM pragma_table_info(?)`, []any{table}, func(row Row) error {
		columns[row.Text("name")] = true
		return nil
	})
	return columns, err
}

// Text is the text in a column; empty if there is none.
func (r Row) Text(name string) string {
	switch v := r[name].(type) {
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

// Bytes are those of a text or a blob in a column.
func (r Row) Bytes(name string) []byte {
	if b, ok := r[name].([]byte); ok {
		return b
	}
	return []byte(r.Text(name))
}

// Number is the number in a column; 0 if there is none.
func (r Row) Number(name string) float64 {
	switch v := r[name].(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	}
	return 0
}
