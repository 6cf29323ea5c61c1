// Package catalog keeps descriptions of the sessions of a file store in an SQLite file, so
// that listing a few sessions out of a hundred thousand reads only a few:
//
//	store, err := filestore.Open(dir, &filestore.Options{Catalog: catalog.Open})
//
// The file is in cache/ and derived: it may be removed, truncated or overwritten at any time
// by anyone, which costs only time. (One thing SQLite can't notice: other content that changed
// equally often, such as an earlier state of the file, written over the file itself while
// processes have it open.) Package filestore decides what is in it and when to trust it; this
// package is a table and its queries.
//
// It uses neither a write-ahead log nor memory mapping: both map shared memory, and writing to
// a mapping of a file on a full disk kills the process. Nothing is synced if a restart of the
// machine can be detected (boot): the first program after it begins a new file. Deleted content
// is overwritten (secure_delete), also in the journal, which is truncated after every commit.
package catalog

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"hansard"
	"hansard/engine"
	"hansard/filestore"
)

// schema is the schema of a file. A file with any other is of another version, or foreign.
var schema = []string{
	`CREATE TABLE mark (rev INTEGER NOT NULL, mark TEXT NOT NULL, self TEXT NOT NULL)`,
	`CREATE TABLE logs (n INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL, id TEXT, created INTEGER NOT NULL, updated INTEGER NOT NULL, title TEXT NOT NULL, held INTEGER NOT NULL, bad INTEGER NOT NULL, archived INTEGER NOT NULL, parent TEXT, info BLOB NOT NULL)`,
	`CREATE INDEX by_updated ON logs (updated, id) WHERE id IS NOT NULL`,
	`CREATE INDEX by_created ON logs (created, id) WHERE id IS NOT NULL`,
	`CREATE INDEX by_id ON logs (id) WHERE id IS NOT NULL`,
	`CREATE INDEX by_parent ON logs (parent) WHERE parent IS NOT NULL`,
	`CREATE INDEX held ON logs (n) WHERE held`,
	`CREATE INDEX bad ON logs (n) WHERE bad`,
	`CREATE TABLE labels (label TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (label, n)) WITHOUT ROWID`,
	`CREATE INDEX labels_of ON labels (n, label)`,
}

// pragmas are set on every connection. A malformed page is an error rather than an answer
// (cell_size_check), and code in a crafted file's schema is not run (trusted_schema).
var pragmas = []string{"busy_timeout(200)", "journal_mode(TRUNCATE)", "mmap_size(0)", "secure_delete(ON)", "temp_store(MEMORY)",
	"cache_size(-4000)", "cell_size_check(ON)", "trusted_schema(OFF)"}

// table is an open file. self is the identity it was created with: it is read in every
// transaction, because a copy of another catalog may be written over an open one.
type table struct {
	db   *sql.DB
	self string
}

// Open opens the file, which exists and may be empty. self distinguishes the file from every
// other one and from its copies; a file with a different self is [filestore.ErrBadCatalog].
func Open(file, self string) (filestore.Catalog, error) {
	db, err := sql.Open("sqlite", address(file))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // the settings belong to the connection
	t := &table{db, self + " " + boot()}
	if err := t.prepare(context.Background()); err != nil {
		_ = db.Close()
		return nil, explain(err)
	}
	return t, nil
}

// address is the URI of a file for SQLite, with the settings.
func address(file string) string {
	path := filepath.ToSlash(file)
	if !strings.HasPrefix(path, "/") && filepath.IsAbs(file) {
		path = "/" + path // C:/…
	}
	var escaped strings.Builder
	for _, c := range []byte(path) {
		switch {
		case c == '/' || c == '.' || c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z':
			escaped.WriteByte(c)
		default:
			fmt.Fprintf(&escaped, "%%%02X", c)
		}
	}
	q := url.Values{"_pragma": append([]string{}, pragmas...), "_txlock": {"immediate"}}
	if boot() != "" {
		q.Add("_pragma", "synchronous(OFF)")
	} else {
		q.Add("_pragma", "synchronous(NORMAL)")
	}
	return "file:" + escaped.String() + "?" + q.Encode()
}

// prepare makes the tables of an empty file, and checks those of any other.
func (t *table) prepare(ctx context.Context) error {
	return t.write(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
		if err != nil {
			return err
		}
		found, err := collect(rows, func(rows *sql.Rows) (s string, err error) { return s, rows.Scan(&s) })
		if err != nil {
			return err
		}
		if len(found) == 0 {
			for _, s := range schema {
				if _, err := tx.ExecContext(ctx, s); err != nil {
					return err
				}
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO mark VALUES (1, '', ?)", t.self)
			return err
		}
		if strings.Join(found, ";") != strings.Join(schema, ";") {
			return filestore.ErrBadCatalog
		}
		_, _, err = t.mark(ctx, tx)
		return err
	})
}

// mark is the state that the rows describe. A file other than the one opened is unusable.
func (t *table) mark(ctx context.Context, tx *sql.Tx) (rev int64, mark string, err error) {
	var self string
	if err := tx.QueryRowContext(ctx, "SELECT rev, mark, self FROM mark").Scan(&rev, &mark, &self); err != nil {
		return 0, "", err
	}
	if self != t.self {
		return 0, "", filestore.ErrBadCatalog
	}
	return rev, mark, nil
}

// write runs fn in an exclusive transaction.
func (t *table) write(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// read runs fn in a snapshot.
func (t *table) read(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := t.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return explain(err)
	}
	defer func() { _ = tx.Rollback() }()
	return explain(fn(tx))
}

// explain distinguishes an unusable file from one that is in use, and from a cancelled call.
func explain(err error) error {
	var e *sqlite.Error
	switch {
	case err == nil, errors.Is(err, filestore.ErrBadCatalog), errors.Is(err, filestore.ErrCatalogMoved),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &e):
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_PERM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_NOMEM:
			return err
		}
	}
	return fmt.Errorf("%w: %w", filestore.ErrBadCatalog, err)
}

// State implements [filestore.Catalog].
func (t *table) State(ctx context.Context) (s filestore.CatalogState, err error) {
	err = t.read(ctx, func(tx *sql.Tx) error {
		if s.Rev, s.Mark, err = t.mark(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT "+columns+" FROM logs INDEXED BY bad WHERE bad")
		if err != nil {
			return err
		}
		s.Bad, err = collect(rows, scanRow)
		return err
	})
	return s, err
}

// Stamps implements [filestore.Catalog].
func (t *table) Stamps(ctx context.Context, each func(r *filestore.CatalogRow) error) error {
	return t.read(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT name, inode, size, mtime FROM logs ORDER BY name")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r filestore.CatalogRow
			var inode, mtime int64
			if err := rows.Scan(&r.Name, &inode, &r.Size, &mtime); err != nil {
				return err
			}
			r.Inode, r.ModTime = uint64(inode), time.Unix(0, mtime)
			if err := each(&r); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// Update implements [filestore.Catalog].
func (t *table) Update(ctx context.Context, rev int64, rows []filestore.CatalogRow, gone []string, mark string) (int64, error) {
	err := t.write(ctx, func(tx *sql.Tx) error {
		moved, err := tx.ExecContext(ctx, "UPDATE mark SET rev = rev + 1, mark = ? WHERE rev = ? AND self = ?", mark, rev, t.self)
		if err != nil {
			return err
		}
		if n, err := moved.RowsAffected(); err != nil || n != 1 {
			return errors.Join(err, filestore.ErrCatalogMoved)
		}
		u, err := newUpdate(ctx, tx)
		if err != nil {
			return err
		}
		for i := range rows {
			if err := u.put(ctx, &rows[i]); err != nil {
				return err
			}
		}
		for _, name := range gone {
			if err := u.drop(ctx, name); err != nil {
				return err
			}
		}
		return nil
	})
	return rev + 1, explain(err)
}

// update has the statements of an update, compiled once.
type update struct{ unlabel, remove, insert, label *sql.Stmt }

func newUpdate(ctx context.Context, tx *sql.Tx) (u *update, err error) {
	u = &update{}
	for _, s := range []struct {
		into *(*sql.Stmt)
		text string
	}{
		{&u.unlabel, "DELETE FROM labels WHERE n = (SELECT n FROM logs WHERE name = ?)"},
		{&u.remove, "DELETE FROM logs WHERE name = ?"},
		{&u.insert, "INSERT INTO logs (name, inode, size, mtime, id, created, updated, title, held, bad, archived, parent, info) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
		{&u.label, "INSERT OR IGNORE INTO labels VALUES (?, ?)"},
	} {
		if *s.into, err = tx.PrepareContext(ctx, s.text); err != nil {
			return nil, err
		}
	}
	return u, nil
}

func (u *update) drop(ctx context.Context, name string) error {
	for _, s := range []*sql.Stmt{u.unlabel, u.remove} {
		if _, err := s.ExecContext(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (u *update) put(ctx context.Context, r *filestore.CatalogRow) error {
	if err := u.drop(ctx, r.Name); err != nil {
		return err
	}
	var id, parent any
	info := []byte("{}")
	if !r.Gone {
		id = string(r.Info.ID)
		var err error
		if info, err = json.Marshal(stored(r.Info)); err != nil {
			return err
		}
	} else {
		r.Info = hansard.Info{}
	}
	if r.Info.Parent != nil {
		parent = string(r.Info.Parent.ID)
	}
	res, err := u.insert.ExecContext(ctx, r.Name, int64(r.Inode), r.Size, r.ModTime.UnixNano(), id, r.Info.Created.UnixMicro(), r.Info.Updated.UnixMicro(),
		strings.ToLower(r.Info.Title), r.Info.Turn != nil, r.Info.Damage != nil || r.Info.Unreadable != "", r.Info.Archived(), parent, info)
	if err != nil {
		return err
	}
	n, err := res.LastInsertId()
	for name, value := range r.Info.Labels {
		if err == nil {
			_, err = u.label.ExecContext(ctx, name+"="+value, n)
		}
	}
	return err
}

// entry is a description as it is stored: including what the JSON of an Info leaves out.
type entry struct {
	hansard.Info
	NoState bool `json:"no_state,omitempty"` // the state is too large to be kept
}

func stored(i hansard.Info) entry {
	e := entry{Info: i, NoState: i.State == nil}
	if e.NoState {
		e.State = json.RawMessage("null")
	}
	return e
}

// columns are what scanRow reads. Text larger than any description is not read at all: a
// crafted file must not use up the memory.
var columns = fmt.Sprintf("name, inode, size, mtime, CASE WHEN length(info) <= %d THEN info ELSE '' END", maxInfo)

// maxInfo bounds a description: see filestore/internal/cache.
const maxInfo = 1 << 20

func scanRow(rows *sql.Rows) (r filestore.CatalogRow, err error) {
	var inode, mtime int64
	var info []byte
	if err := rows.Scan(&r.Name, &inode, &r.Size, &mtime, &info); err != nil {
		return r, err
	}
	r.Inode, r.ModTime = uint64(inode), time.Unix(0, mtime)
	var e entry
	if err := json.Unmarshal(info, &e); err != nil {
		return r, fmt.Errorf("%w: %w", filestore.ErrBadCatalog, err)
	}
	if r.Info = e.Info; e.NoState {
		r.Info.State = nil
	}
	if r.Info.Labels == nil {
		r.Info.Labels = map[string]string{}
	}
	return r, nil
}

// collect reads all rows.
func collect[T any](rows *sql.Rows, scan func(*sql.Rows) (T, error)) (all []T, err error) {
	defer rows.Close()
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// Close implements [filestore.Catalog].
func (t *table) Close() error { return t.db.Close() }

// Page implements [filestore.Catalog].
func (t *table) Page(ctx context.Context, rev int64, q hansard.Query, now time.Time) (page []filestore.CatalogRow, err error) {
	from, err := engine.ParseCursor(&q)
	if err != nil {
		return nil, err
	}
	rest := 0
	err = t.read(ctx, func(tx *sql.Tx) error {
		if err := t.at(ctx, tx, rev); err != nil {
			return err
		}
		take := func(text string, args []any, in func(*hansard.Info) bool) error {
			rows, err := tx.QueryContext(ctx, text, args...)
			if err != nil {
				return err
			}
			defer rows.Close()
			for (q.Limit == 0 || len(page) < q.Limit) && rows.Next() {
				r, err := scanRow(rows)
				if err != nil {
					return err
				}
				if in(&r.Info) {
					page = append(page, r)
				}
			}
			return rows.Err()
		}
		if !from.Again {
			s, err := newSelection(ctx, tx, &q, q.Order)
			if err != nil {
				return err
			}
			if from.ID != "" {
				s.and(s.time+" <= ?", ceilMicro(from.At))
			}
			if err := take(s.rows(), s.args, from.InRest); err != nil {
				return err
			}
		}
		if rest = len(page); !from.ComesAgain() {
			return nil
		}
		changed := q
		if from.Since.After(changed.Since) {
			changed.Since = from.Since
		}
		s, err := newSelection(ctx, tx, &changed, hansard.OrderCreated)
		if err != nil {
			return err
		}
		return take(s.rows(), s.args, from.InAgain)
	})
	if err != nil {
		return nil, err
	}
	infos := make([]hansard.Info, len(page))
	for i := range page {
		infos[i] = page[i].Info
	}
	from.Mark(infos, rest, now)
	for i := range page {
		page[i].Info.Cursor = infos[i].Cursor
	}
	return page, nil
}

// Count implements [filestore.Catalog].
func (t *table) Count(ctx context.Context, rev int64, q hansard.Query) (n int, err error) {
	err = t.read(ctx, func(tx *sql.Tx) error {
		if err := t.at(ctx, tx, rev); err != nil {
			return err
		}
		s, err := newSelection(ctx, tx, &q, q.Order)
		if err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT count(*)"+s.from+s.where.String(), s.args...).Scan(&n)
	})
	return n, err
}

// at makes sure that the rows have not changed since revision rev.
func (t *table) at(ctx context.Context, tx *sql.Tx, rev int64) error {
	now, _, err := t.mark(ctx, tx)
	if err == nil && now != rev {
		err = filestore.ErrCatalogMoved
	}
	return err
}
