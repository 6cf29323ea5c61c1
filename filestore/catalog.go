package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Lists from a catalog: a table of what is known about the logs, kept in cache/ and
// shared by all processes. Every query brings it up to date first, from these sources:
//
//	journal      the entries since the table's position name the sessions that changed.
//	             The chain of their checksums has to lead there
//	custody      no log was added to sessions/ or removed from outside (custody.go)
//	cache/damage, aside/, and the rows that are damaged or unreadable
//	             are checked every time: the log may have been repaired
//
// If the journal does not reach back far enough, or the directory was modified from
// outside, or either can't be determined, the directory is scanned, and logs with another
// inode, size or time are described anew. If anything goes wrong with the table, the list
// is made without it (list.go).
//
// A log that was edited in place shows up where the table has it: rows that are returned
// are compared with their files. Its position in the list and whether it matches the
// query may be outdated, until something is written to it or the directory is scanned.

// Catalog is a table of the logs in a file. Package catalog has one.
//
// Writers exclude each other only while an update runs: each names the revision that its
// update is based on, and is refused if there is a newer one.
type Catalog interface {
	// State is what the table describes: its revision, its mark and its bad rows.
	State(ctx context.Context) (CatalogState, error)
	// Stamps passes all rows by name, without descriptions.
	Stamps(ctx context.Context, each func(r *CatalogRow) error) error
	// Update puts and removes rows, all or none of them.
	Update(ctx context.Context, rev int64, rows []CatalogRow, gone []string, mark string) (now int64, err error)
	// Page returns the rows that a query selects, with their cursors.
	Page(ctx context.Context, rev int64, q hansard.Query, now time.Time) ([]CatalogRow, error)
	// Count returns how many there are.
	Count(ctx context.Context, rev int64, q hansard.Query) (int, error)
	Close() error
}

// CatalogState is what a catalog describes.
type CatalogState struct {
	Rev  int64
	Mark string       // of the last update
	Bad  []CatalogRow // damaged or unreadable
}

// CatalogRow is what is known about a log.
type CatalogRow struct {
	Name    string
	Inode   uint64
	Size    int64
	ModTime time.Time
	Gone    bool         // no session, or a deleted one: nothing else is known
	Info    hansard.Info // State is nil if it is too large to be kept
}

// Errors of a Catalog. Any other error means that it can't be used right now.
var (
	// ErrBadCatalog: the content of the file is useless.
	ErrBadCatalog = errors.New("the catalog is damaged or of another version")
	// ErrCatalogMoved: another process has updated it since.
	ErrCatalogMoved = errors.New("the catalog was updated by another process")
)

// Files of catalogs: catalog.<16 hex>.db, each with a unique name that is never reused.
// When one is removed, the SQLite journal of a process that still has it open must not be
// taken for the journal of its successor.
const (
	tablePrefix = "catalog."
	tableSuffix = ".db"
)

// isTableFile tells whether a file in cache/ is a catalog, or the journal of one.
func isTableFile(name string) bool {
	mark, ok := strings.CutPrefix(strings.TrimSuffix(name, "-journal"), tablePrefix)
	mark, db := strings.CutSuffix(mark, tableSuffix)
	return ok && db && isMark(mark)
}

// catalogTable is the catalog that this process has open.
type catalogTable struct {
	mu    sync.Mutex // waited for with a context
	t     Catalog
	file  string
	inode uint64
	// wrote is the last written version of each row that is checked at every list: if it
	// is unchanged there is nothing to write.
	wrote map[string]string
	// lost are the logs that were missing when the directory was as in lostIn (lostLogs).
	lost   []string
	lostIn vfs.DirStamp
}

// tableTries is how often a list starts over because another process updated the catalog.
const tableTries = 4

// withTable brings the catalog up to date and queries it. Not ok: list without it.
func (ls *lister) withTable(ctx context.Context, ask func(t Catalog, rev int64) error) (ok bool, err error) {
	if ls.opt.Catalog == nil || ls.path == "" {
		return false, nil
	}
	if behind, err := ls.reader.unapplied(); behind != nil || err != nil {
		return false, nil // the scan handles both
	}
	if err := lockWithin(ctx, &ls.table.mu); err != nil {
		return true, err
	}
	defer ls.table.mu.Unlock()
	for range tableTries {
		if ls.closed.Load() {
			return true, hansard.ErrClosed
		}
		t, openErr := ls.openTable()
		if openErr != nil {
			return false, nil
		}
		rev, err := ls.bringUp(ctx, t)
		if err == nil {
			err = ask(t, rev)
		}
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return true, ctx.Err()
		case errors.Is(err, ErrBadCatalog):
			ls.dropTable()
		case errors.Is(err, hansard.ErrInvalid), ls.isOver(ctx, err):
			return true, err
		case !errors.Is(err, ErrCatalogMoved):
			return false, nil // locked, or the disk is full: list without it
		}
	}
	return false, nil
}

// openTable returns the catalog we have open, if its name still leads to that file, else
// another one, or a new one. The caller holds table.mu.
func (ls *lister) openTable() (Catalog, error) {
	c := &ls.table
	if c.t != nil {
		if inode, _, err := ls.fs.Inode(c.file); err == nil && inode == c.inode {
			return c.t, nil
		}
		ls.closeTable()
	}
	entries, err := ls.fs.ReadDir(cache.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// The first by name, so that all processes use the same one.
	var found []string
	for _, e := range entries {
		if e.Regular && isTableFile(e.Name) && strings.HasSuffix(e.Name, tableSuffix) {
			found = append(found, cache.Dir+"/"+e.Name)
		}
	}
	slices.Sort(found)
	for _, file := range found {
		if err = ls.useTable(file); err == nil || !errors.Is(err, ErrBadCatalog) {
			return c.t, err
		}
		ls.removeTable(file)
	}
	file := fmt.Sprintf("%s/%s%016x%s", cache.Dir, tablePrefix, ls.cfg.random(), tableSuffix)
	if err := ls.fs.Mkdir(cache.Dir); err != nil {
		return nil, err
	}
	// Created here, with the mode and owner of all other files. Nobody has it open yet,
	// so closing it gives up nobody's lock.
	f, err := ls.fs.Open(file, vfs.Create|vfs.Exclusive)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if err := ls.useTable(file); err != nil {
		ls.removeTable(file)
		return nil, err
	}
	return c.t, nil
}

// useTable opens a catalog. Its file is never opened in any other way: SQLite's locks
// belong to the process, and closing any descriptor of the file would give them up.
func (ls *lister) useTable(file string) error {
	inode, _, err := ls.fs.Inode(file)
	if err != nil {
		return err
	}
	t, err := ls.opt.Catalog(filepath.Join(ls.path, filepath.FromSlash(file)), fmt.Sprintf("%s %d", file, inode))
	if err != nil {
		return err
	}
	ls.table.t, ls.table.file, ls.table.inode, ls.table.wrote = t, file, inode, map[string]string{}
	return nil
}

// closeTable forgets the open catalog. The caller holds table.mu.
func (ls *lister) closeTable() {
	if ls.table.t != nil {
		_ = ls.table.t.Close()
		ls.table.t = nil
	}
}

// dropTable removes a catalog that is useless.
func (ls *lister) dropTable() {
	ls.closeTable()
	ls.removeTable(ls.table.file)
}

func (p *process) removeTable(file string) {
	_ = p.fs.Remove(file)
	_ = p.fs.Remove(file + "-journal")
}

// tableMark is the state that a catalog describes: a position in the journal, and the
// directory.
type tableMark struct {
	Salt, Pos, Chain uint64 // Salt 0: not known
	Generation       uint64 // of the directory, see custody; 0: not known
	// Dir is the directory as it was when it was scanned, and Looked the time of the
	// scan, in seconds. Settled: the directory's last change was so long before the scan
	// that any change since has another time.
	Dir     vfs.DirStamp
	Looked  int64
	Settled bool
}

const (
	// settleTime is more than the resolution of any directory's time.
	settleTime = 2 * time.Second
	// lookAgain is how long a directory in custody goes without a scan: see custody.go.
	lookAgain = 10 * time.Minute
)

// bringUp brings the catalog up to date, and returns its new revision.
func (ls *lister) bringUp(ctx context.Context, t Catalog) (rev int64, err error) {
	state, err := t.State(ctx)
	if err != nil {
		return 0, err
	}
	var was tableMark
	known := json.Unmarshal([]byte(state.Mark), &was) == nil
	dir, generation, inCustody := ls.custody()
	looked := known && inCustody && ls.sameLogs(&was, dir, generation)
	names, now, followed := ls.followRing(&was)
	now.Generation, now.Dir, now.Looked, now.Settled = generation, was.Dir, was.Looked, was.Settled
	forced, err := ls.lookedAtEachTime(state.Bad, dir)
	if err != nil {
		return 0, err
	}
	if !looked || !followed {
		at := ls.cfg.now()
		now.Dir, now.Looked = dir, at.Unix()
		now.Settled = inCustody && at.UnixNano() > max(dir.Mod, dir.Change)+int64(settleTime)
		return ls.rescan(ctx, t, state.Rev, now, forced)
	}
	var rows []CatalogRow
	var gone []string
	for name := range forced {
		names[name] = true
	}
	for name := range names {
		row, there, err := ls.describeRow(ctx, name, forced[name])
		switch {
		case err != nil:
			return 0, err
		case !there:
			gone = append(gone, name)
		case !forced[name] || ls.table.isNew(&row):
			rows = append(rows, row)
		}
	}
	mark := now.encode()
	if len(rows) == 0 && mark == state.Mark && !slices.ContainsFunc(gone, func(name string) bool { return !forced[name] || ls.table.wrote[name] != "-" }) {
		return state.Rev, nil
	}
	if rev, err = t.Update(ctx, state.Rev, rows, gone, mark); err == nil {
		ls.table.note(rows, gone, forced)
	}
	return rev, err
}

func (m *tableMark) encode() string { return string(sessionlog.Marshal(m)) }

// isNew tells whether a row that is checked every time differs from the one last written.
func (c *catalogTable) isNew(r *CatalogRow) bool {
	return c.wrote[r.Name] != string(sessionlog.Marshal(r))
}

// note remembers rows that are checked every time.
func (c *catalogTable) note(rows []CatalogRow, gone []string, forced map[string]bool) {
	for i := range rows {
		if name := rows[i].Name; forced[name] {
			c.wrote[name] = string(sessionlog.Marshal(&rows[i]))
		}
	}
	for _, name := range gone {
		if forced[name] {
			c.wrote[name] = "-"
		}
	}
}

// sameLogs tells whether the logs are those of the last scan, except for what the journal
// says.
func (ls *lister) sameLogs(was *tableMark, now vfs.DirStamp, generation uint64) bool {
	if now == was.Dir && was.Settled {
		return true
	}
	recently := now == was.Dir || ls.cfg.now().Sub(time.Unix(was.Looked, 0)).Abs() < lookAgain
	return generation != 0 && generation == was.Generation && recently
}

// lookedAtEachTime are the logs that are described anew for every list.
func (ls *lister) lookedAtEachTime(bad []CatalogRow, dir vfs.DirStamp) (map[string]bool, error) {
	forced, err := ls.asides.allAsides()
	if err != nil {
		return nil, ls.explain(err)
	}
	notes, err := ls.fs.ReadDir(cache.DamageDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range notes {
		if e.Regular && sessionlog.IsName(e.Name) {
			forced[e.Name] = true
		}
	}
	for i := range bad {
		forced[bad[i].Name] = true
	}
	for _, name := range append(ls.lostLogs(dir), ls.checks.checked.damaged()...) {
		forced[name] = true
	}
	return forced, nil
}

// lostLogs are the logs that this process knows had lines, and that are missing. Other
// processes may not know that, so it is no matter of the table. Logs are looked for only
// if the directory may have changed since the last time. The caller holds table.mu.
func (ls *lister) lostLogs(dir vfs.DirStamp) []string {
	c := &ls.table
	if dir != c.lostIn || dir == (vfs.DirStamp{}) {
		at := ls.cfg.now().UnixNano()
		c.lost = ls.reader.dirty.had(func(name string) bool {
			_, _, err := ls.fs.Inode(sessionlog.Path(name))
			return !errors.Is(err, fs.ErrNotExist)
		})
		if c.lostIn = (vfs.DirStamp{}); at > max(dir.Mod, dir.Change)+int64(settleTime) {
			c.lostIn = dir
		}
	}
	return slices.Clone(c.lost)
}

// followRing tells which sessions the journal has entries for since a mark, and where the
// journal is now. Not ok: the journal does not reach back to the mark, or its end can't
// be determined.
//
// All valid entries count, also those past the position up to which the control file says
// they are in the logs: publishing that position may have failed. The new mark is not
// beyond it.
func (ls *lister) followRing(was *tableMark) (names map[string]bool, now tableMark, ok bool) {
	names = map[string]bool{}
	r, slots, best, err := ls.openRing(vfs.ReadOnly)
	if err != nil {
		return nil, now, false
	}
	defer r.File.Close()
	applied, chain, ok := ls.ringEnd(r, slots, best)
	if !ok {
		return nil, now, false
	}
	now = tableMark{Salt: r.Salt, Pos: applied, Chain: chain}
	if was.Salt != r.Salt || was.Pos > applied || was.Pos == applied && was.Chain != chain {
		return nil, now, false
	}
	end, passed := was.Pos, was.Pos == applied
	_, _, err = r.Walk(was.Pos, was.Chain, 0, func(e *journal.Entry) {
		if end = e.End(); end == applied && e.Chain() == chain {
			passed = true
		}
		if e.Kind == journal.KindData {
			names[e.Name] = true
		}
	})
	return names, now, err == nil && passed
}

// ringEnd is the position up to which the ring's entries are in the logs, and the chain
// there.
func (ls *lister) ringEnd(r *journal.Ring, slots [2]journal.Slot, best int) (applied, chain uint64, ok bool) {
	if journal.LeftClean(slots, best) {
		return slots[best].Start, slots[best].StartChain, true
	}
	for range 3 { // a record that is just being written reads as missing
		w, ok := peers.LookAtControl(ls.fs)
		switch {
		case !ok || w.Epoch != r.Epoch:
		case w.Applied == w.Written:
			return w.Applied, w.TailChain, true
		default:
			chain, err := r.ChainAt(w.Applied)
			return w.Applied, chain, err == nil
		}
	}
	return 0, 0, false
}

// describeRow describes a log for the catalog, as it is now. Not there: there is no log,
// and nothing of the session anywhere else. aside: a session without a log may have lines
// that were set aside, or is known to have had a log.
func (ls *lister) describeRow(ctx context.Context, name string, aside bool) (row CatalogRow, there bool, err error) {
	id, ok := sessionlog.DecodeName(name)
	if !ok {
		return row, false, nil
	}
	if _, _, err := ls.fs.Inode(sessionlog.Path(name)); errors.Is(err, fs.ErrNotExist) {
		if !aside {
			return row, false, nil
		}
		infos, err := ls.withoutLog(ctx, map[string]bool{name: true})
		if err != nil || len(infos) == 0 || infos[0].Unreadable != "" && infos[0].Damage == nil && !ls.hasAsides(name) {
			return row, false, err
		}
		return CatalogRow{Name: name, Info: infos[0]}, true, nil
	}
	e, _, err := ls.catalogEntry(ctx, name, id, true)
	if err != nil {
		return row, false, err
	}
	return CatalogRow{Name: name, Inode: e.Inode, Size: e.Size, ModTime: e.ModTime, Gone: e.Gone, Info: e.Info}, true, nil
}

func (ls *lister) hasAsides(name string) bool {
	files, err := ls.asides.asides(name)
	return err != nil || len(files) > 0
}

// rescanBatch is how many rows are put into the catalog at once: an interrupted scan
// resumes there the next time.
const rescanBatch = 500

// rescan compares all logs with the catalog, and describes those that differ.
func (ls *lister) rescan(ctx context.Context, t Catalog, rev int64, mark tableMark, forced map[string]bool) (int64, error) {
	entries, err := ls.fs.ReadDir(sessionlog.Dir)
	if err != nil && (!errors.Is(err, fs.ErrNotExist) || ls.sessionsGone()) {
		return 0, err // the scan without a catalog reports it
	}
	names := make([]string, 0, len(entries)+len(forced))
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name, sessionlog.Suffix); ok && sessionlog.IsName(name) {
			names = append(names, name)
		}
	}
	for name := range forced {
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	stale, gone, err := ls.compare(ctx, t, names, forced)
	if err != nil {
		return 0, err
	}
	total := len(stale)
	for first := true; first || len(stale) > 0; first = false {
		batch := stale[:min(len(stale), rescanBatch)]
		stale = stale[len(batch):]
		rows := make([]CatalogRow, 0, len(batch))
		for _, name := range batch {
			row, there, err := ls.describeRow(ctx, name, forced[name])
			if err != nil {
				return 0, err
			}
			if there {
				rows = append(rows, row)
			} else {
				gone = append(gone, name)
			}
		}
		text := "" // incomplete so far
		if len(stale) == 0 {
			text = mark.encode()
		}
		if rev, err = t.Update(ctx, rev, rows, gone, text); err != nil {
			return 0, err
		}
		ls.table.note(rows, gone, forced)
		if gone = nil; ls.opt.Progress != nil {
			ls.opt.Progress(total-len(stale), total)
		}
	}
	return rev, nil
}

// compare returns the logs that have to be described, and the rows that have no log.
func (ls *lister) compare(ctx context.Context, t Catalog, names []string, forced map[string]bool) (stale, gone []string, err error) {
	i := 0
	unknown := func(upTo string) {
		for ; i < len(names) && names[i] < upTo; i++ {
			stale = append(stale, names[i])
		}
	}
	err = t.Stamps(ctx, func(r *CatalogRow) error {
		unknown(r.Name)
		if i == len(names) || names[i] != r.Name {
			gone = append(gone, r.Name)
			return nil
		}
		i++
		if i%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		st, err := ls.fs.Stat(sessionlog.Path(r.Name))
		if forced[r.Name] || err != nil || st.Inode != r.Inode || st.Size != r.Size || !st.ModTime.Equal(r.ModTime) {
			stale = append(stale, r.Name)
		}
		return nil
	})
	for ; i < len(names); i++ {
		stale = append(stale, names[i])
	}
	return stale, gone, err
}

// pageFromTable is the page of a query. Not ok: list without the catalog.
func (ls *lister) pageFromTable(ctx context.Context, q hansard.Query) (rows []CatalogRow, ok bool, err error) {
	now := ls.cfg.now()
	ok, err = ls.withTable(ctx, func(t Catalog, rev int64) (err error) {
		rows, err = t.Page(ctx, rev, q, now)
		return err
	})
	return rows, ok, err
}

// asItIs is the description of a row that is returned to the caller: the catalog's, if
// the log is the one that was described, else a new one.
func (ls *lister) asItIs(ctx context.Context, row CatalogRow) (info hansard.Info, there bool, err error) {
	st, statErr := ls.fs.Stat(sessionlog.Path(row.Name))
	if statErr == nil && st.Inode == row.Inode && st.Size == row.Size && st.ModTime.Equal(row.ModTime) {
		return row.Info, true, nil
	}
	now, there, err := ls.describeRow(ctx, row.Name, true)
	now.Info.Cursor = row.Info.Cursor
	return now.Info, there && !now.Gone, err
}

// strikeFromTable removes sessions from the catalogs in cache/. A catalog they can't be
// removed from is deleted: processes that have it open notice that.
func (ls *lister) strikeFromTable(names []string) (changed bool, err error) {
	entries, err := ls.fs.ReadDir(cache.Dir)
	if err != nil {
		return false, ignoreMissing(err)
	}
	ls.table.mu.Lock()
	defer ls.table.mu.Unlock()
	ours := ""
	if ls.opt.Catalog != nil && ls.path != "" && slices.ContainsFunc(entries, func(e vfs.Entry) bool { return e.Regular && isTableFile(e.Name) }) {
		if t, err := ls.openTable(); err == nil && ls.strike(t, names) == nil {
			ours = ls.table.file
		} else {
			ls.closeTable()
		}
	}
	for _, e := range entries {
		if file := cache.Dir + "/" + e.Name; e.Regular && isTableFile(e.Name) && strings.TrimSuffix(file, "-journal") != ours {
			if removeErr := ignoreMissing(ls.fs.Remove(file)); removeErr != nil {
				return changed, removeErr
			}
			changed = true
		}
	}
	return changed, nil
}

// strike removes everything a catalog has about some sessions.
func (ls *lister) strike(t Catalog, names []string) error {
	ctx := context.Background()
	for range tableTries {
		state, err := t.State(ctx)
		if err != nil {
			return err
		}
		// Without rows they are described again at the next scan; the mark stays the
		// same.
		if _, err = t.Update(ctx, state.Rev, nil, names, state.Mark); !errors.Is(err, ErrCatalogMoved) {
			return err
		}
	}
	return ErrCatalogMoved
}
