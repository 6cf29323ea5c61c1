package search

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"

	"hansard"
	"hansard/internal/vfs"
)

// version covers the tables and the terms in them: a file of another version is rebuilt.
const version = 2

// The tables. A row of event, and of the table of words that has its terms, is numbered by
// its session, in the upper half, and its seq. A session is indexed up to last, if the
// event there still has this mark.
const schema = `
CREATE TABLE session (n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, created INTEGER NOT NULL, updated INTEGER NOT NULL, listed INTEGER NOT NULL, last INTEGER NOT NULL, mark INTEGER NOT NULL);
CREATE TABLE event (n INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, role TEXT NOT NULL);
CREATE TABLE shard (n INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
CREATE TABLE part (session INTEGER NOT NULL, shard INTEGER NOT NULL, PRIMARY KEY (session, shard)) WITHOUT ROWID;
`

// shardBytes is how many bytes of terms a table of words holds: erasing anything in it
// rewrites it. Only tests change it.
var shardBytes int64 = 64 << 20

// database is an open file.
type database struct {
	sql       *sql.DB
	conn      *sql.Conn // the only one: what it has cached matches the file
	temporary bool
	inode     os.FileInfo // of the file when it was opened

	// What the file holds, as of its version dataVersion.
	dataVersion int64
	sessions    map[hansard.SessionID]*indexed
	next        int64 // the number of the next session
	shards      []shard
}

// indexed is what the file holds of a session.
type indexed struct {
	n                int64
	created, updated int64
	listed           hansard.Seq // the last seq when it was listed
	last             hansard.Seq // the last indexed seq
	mark             int64
}

type shard struct {
	n, bytes int64
	changed  bool   // bytes differs from the file
	insert   string // a statement
}

func newShard(n, bytes int64) shard {
	sh := shard{n: n, bytes: bytes}
	sh.insert = "INSERT INTO " + sh.table() + "(rowid, text) VALUES (?, ?)"
	return sh
}

func (sh shard) table() string { return fmt.Sprintf("words%d", sh.n) }

// errStale: the file is not an index of this program, or damaged. It is rebuilt.
var errStale = errors.New("the search index is not usable")

// errElsewhere: the file is gone, or was replaced by another.
var errElsewhere = errors.New("the search index was replaced")

// errBehind: the file holds less than when it was brought up to date.
var errBehind = errors.New("the search index was set back")

// openDB makes sure that the file is open. The caller holds mu.
func (ix *Index) openDB(ctx context.Context) (*database, error) {
	if ix.closed {
		return nil, hansard.ErrClosed
	}
	if ix.db != nil && !ix.inPlace(ix.db) {
		_ = ix.closeDB()
	}
	if ix.db != nil {
		return ix.db, nil
	}
	if !ix.opt.ReadOnly {
		for try := 0; ; try++ {
			db, err := openFile(ctx, ix.path)
			switch {
			case err == nil:
				ix.db = db
				return db, nil
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case errors.Is(err, errStale) && try < 3:
				if err = ix.discard(err); err == nil {
					continue
				}
			case errors.Is(err, errElsewhere) && try < 10:
				continue
			}
			ix.tell(err)
			break
		}
	}
	return ix.openTemporary(ctx)
}

// inPlace tells whether the open file is still the one at its path.
//
// A file that was removed while it was open must not be used any more, not even for
// reading. SQLite finds a journal by the name of the file. It mistakes the journal of the
// new file for one that a killed writer left for the old file, and "restores" from it:
// then the old file holds what the new one held when it was made, which is nothing. So
// this is checked before SQLite locks the file, and again once it has: only then can its
// reads be trusted.
func (ix *Index) inPlace(db *database) bool {
	if db.temporary {
		return true
	}
	now, err := os.Lstat(ix.path)
	return err == nil && os.SameFile(now, db.inode)
}

// beginRead begins a read transaction, and loads what the file holds.
func (ix *Index) beginRead(ctx context.Context, db *database) error {
	if !ix.inPlace(db) {
		return errElsewhere
	}
	if _, err := db.conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	err := db.load(ctx)
	if !ix.inPlace(db) {
		err = errElsewhere // whatever was read
	}
	if err != nil {
		db.rollback()
	}
	return err
}

// tell logs why the file is not used, once for each reason.
func (ix *Index) tell(err error) {
	if why := err.Error(); why != ix.told {
		ix.told = why
		ix.opt.Log.Warn("the search index can't be kept with the store; it is in a temporary file of this process", "file", ix.path, "error", err)
	}
}

// discard removes the file, for a reason. Anything that is not a file is left alone.
func (ix *Index) discard(reason error) error {
	_ = ix.closeDB()
	ix.opt.Log.Warn("the search index is rebuilt", "file", ix.path, "reason", reason)
	if info, err := os.Lstat(ix.path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", ix.path)
	}
	for _, name := range []string{ix.path, ix.path + "-journal"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (ix *Index) closeDB() error {
	if ix.db == nil {
		return nil
	}
	db := ix.db
	ix.db = nil
	return errors.Join(db.conn.Close(), db.sql.Close())
}

// openTemporary opens an unnamed file, which disappears with the process.
func (ix *Index) openTemporary(ctx context.Context) (*database, error) {
	db, err := connect(ctx, "", "journal_mode(OFF)", "synchronous(OFF)")
	if err != nil {
		return nil, err
	}
	db.temporary = true
	if err := db.prepare(ctx); err != nil {
		return nil, errors.Join(err, db.conn.Close(), db.sql.Close())
	}
	ix.db = db
	return db, nil
}

// makeFile makes an empty file, if there is none, and its directory, in the store that the
// directory is in: with the mode and owner of all other files there, and through no link.
// SQLite would make it readable by others; its journal has the file's mode and owner. For
// an existing file, no descriptor besides SQLite's may be opened and closed: that would
// drop SQLite's locks.
func makeFile(path string) error {
	dir := filepath.Dir(path)
	store, err := vfs.OpenDir(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer store.Close()
	name := filepath.Base(dir)
	if err := store.Mkdir(name); err != nil {
		return err
	}
	f, err := store.Open(name+"/"+filepath.Base(path), vfs.Create|vfs.Exclusive)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// openFile opens the file, and makes it if there is none.
func openFile(ctx context.Context, path string) (*database, error) {
	if err := makeFile(path); err != nil {
		return nil, err
	}
	before, err := os.Lstat(path)
	if err != nil {
		return nil, errElsewhere
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	// A journal that is truncated, not deleted, is the file that this process opened, even
	// if the name now refers to another.
	db, err := connect(ctx, path, "journal_mode(TRUNCATE)", "synchronous(NORMAL)")
	if err != nil {
		return nil, judged(err)
	}
	db.inode = before
	err = judged(db.prepare(ctx))
	if after, statErr := os.Lstat(path); statErr != nil || !os.SameFile(before, after) {
		err = errElsewhere // an unusable old file says nothing about the current one
	}
	if err != nil {
		_ = db.conn.Close()
		_ = db.sql.Close()
		return nil, err
	}
	return db, nil
}

// connect opens one connection, with the settings for all.
func connect(ctx context.Context, path string, more ...string) (*database, error) {
	name := "file:" // no name: a temporary file
	if path != "" {
		// As a URI, so that no character of the path has a special meaning to SQLite.
		name = "file://" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(filepath.ToSlash(path))
	}
	name += "?_pragma=" + strings.Join(append([]string{"busy_timeout(1000)", "page_size(8192)"}, append(more,
		"mmap_size(0)", "cache_size(-32768)", "temp_store(MEMORY)", "secure_delete(ON)", "trusted_schema(OFF)", "cell_size_check(ON)")...), "&_pragma=")
	pool, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(1)
	pool.SetConnMaxLifetime(0)
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &database{sql: pool, conn: conn, dataVersion: -1}, nil
}

// prepare makes the tables of a new file, and checks that those of an existing one are
// ours.
func (db *database) prepare(ctx context.Context) error {
	fresh, err := db.examine(ctx)
	if err != nil || !fresh {
		return err
	}
	if err := db.begin(ctx, 10*time.Second); err != nil {
		return err
	}
	defer db.rollback()
	if fresh, err := db.examine(ctx); err != nil || !fresh {
		return err // another process has just made them
	}
	if _, err := db.conn.ExecContext(ctx, schema+fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return err
	}
	return db.commit(ctx)
}

// examine tells whether the file is a new one. It is not usable if it has anything but our
// tables: a crafted file may have views and triggers.
func (db *database) examine(ctx context.Context) (fresh bool, err error) {
	var have, strange, others int
	if err := db.conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return false, err
	}
	if have > version {
		return false, fmt.Errorf("%w: it was made by a newer version of this program", errors.ErrUnsupported)
	}
	ours := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(schema), "\n") {
		ours[strings.Fields(line)[2]] = strings.TrimSuffix(line, ";")
	}
	rows, err := db.conn.QueryContext(ctx, "SELECT type, name, coalesce(sql, '') FROM sqlite_schema")
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var typ, name, sql string
		if err := rows.Scan(&typ, &name, &sql); err != nil {
			return false, err
		}
		switch {
		case typ == "index" && sql == "": // implicit index of a table
		case typ != "table":
			strange++
		case ours[name] != "":
			if ours[name] != sql {
				strange++
			}
			delete(ours, name)
		case strings.HasPrefix(sql, "CREATE VIRTUAL"):
			if sql != wordsTable(name) {
				strange++
			}
		default:
			others++ // FTS5's own tables
		}
	}
	if err := rows.Err(); err != nil {
		return false, err
	}
	if have == 0 && strange+others == 0 && len(ours) == strings.Count(strings.TrimSpace(schema), "\n")+1 {
		return true, nil
	}
	if have != version || strange > 0 || len(ours) > 0 {
		return false, fmt.Errorf("%w: its tables are others", errStale)
	}
	return false, nil
}

// wordsTable makes a table of words, without the texts. Rows are deleted by their number;
// stepper.remove does the rest.
func wordsTable(name string) string {
	return "CREATE VIRTUAL TABLE " + name + " USING fts5(text, content='', contentless_delete=1, tokenize='ascii', detail=full)"
}

// begin begins a write transaction, once no other process has one.
func (db *database) begin(ctx context.Context, wait time.Duration) error {
	for began := time.Now(); ; {
		_, err := db.conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		if err == nil || !isBusy(err) || time.Since(began) > wait {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (db *database) commit(ctx context.Context) error {
	// It is not cancelled: it waits only for a short read transaction.
	ctx = context.WithoutCancel(ctx)
	for began := time.Now(); ; {
		_, err := db.conn.ExecContext(ctx, "COMMIT")
		if err == nil || !isBusy(err) || time.Since(began) > 10*time.Second {
			return err
		}
	}
}

// rollback ends a transaction, if there is one.
func (db *database) rollback() { _, _ = db.conn.ExecContext(context.Background(), "ROLLBACK") }

// load reads what the file holds, if it has changed since. Within a transaction.
func (db *database) load(ctx context.Context) error {
	var now int64
	if err := db.conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&now); err != nil {
		return err
	}
	if now == db.dataVersion {
		return nil
	}
	db.dataVersion = -1 // until all of it is read
	if fresh, err := db.examine(ctx); err != nil || fresh {
		return cmp.Or(err, errStale)
	}
	db.sessions, db.next, db.shards = map[hansard.SessionID]*indexed{}, 1, nil
	rows, err := db.conn.QueryContext(ctx, "SELECT n, id, created, updated, listed, last, mark FROM session")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		in := &indexed{}
		if err := rows.Scan(&in.n, &id, &in.created, &in.updated, &in.listed, &in.last, &in.mark); err != nil {
			return err
		}
		db.sessions[hansard.SessionID(id)] = in
		db.next = max(db.next, in.n+1)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	shards, err := db.conn.QueryContext(ctx, "SELECT n, bytes FROM shard ORDER BY n")
	if err != nil {
		return err
	}
	defer shards.Close()
	for shards.Next() {
		var n, bytes int64
		if err := shards.Scan(&n, &bytes); err != nil {
			return err
		}
		db.shards = append(db.shards, newShard(n, bytes))
	}
	if err := shards.Err(); err != nil {
		return err
	}
	db.dataVersion = now
	return nil
}

// codeOf is the primary result code of SQLite, 0 if it is another error.
func codeOf(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// The result codes of SQLite that matter here.
const (
	codeError   = 1
	codeBusy    = 5
	codeLocked  = 6
	codeCorrupt = 11
	codeSchema  = 17
	codeNotADB  = 26

	codeMoved = 8 | 4<<8 // the open file has lost its name
)

func isBusy(err error) bool { c := codeOf(err); return c == codeBusy || c == codeLocked }

// judged says what an error of SQLite means for the file.
func judged(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) || errors.Is(err, errStale) {
		return err
	}
	switch {
	case e.Code() == codeMoved:
		return fmt.Errorf("%w: %w", errElsewhere, err)
	case e.Code()&0xff == codeCorrupt, e.Code()&0xff == codeNotADB, e.Code()&0xff == codeError, e.Code()&0xff == codeSchema:
		return fmt.Errorf("%w: %w", errStale, err)
	}
	return err
}
