package filestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"strings"
	"sync"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Descriptions of sessions: of one from its log (describe), of all from the directory and
// a catalog (list). Neither takes a lock, and nothing on the write path maintains an
// index for them: a log that was restored, copied or removed by hand is simply picked up.
//
// A session that can't be described is listed as damaged or unreadable, with the reason.
// It is never left out, and never keeps the others from being listed (failure 45): a list
// with gaps looks like lost sessions.

// lister lists sessions, from a catalog of earlier descriptions.
type lister struct {
	*process
	reader  *reader
	asides  *asides
	checks  *checks
	catalog catalog
	table   catalogTable
}

// Stat describes one session. Damage is part of the Info and not an error: a caller that
// asks about a damaged session wants to know how far it is safe.
func (s *Store) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	info, err := s.reader.describe(ctx, id)
	return info, s.readError(id, err)
}

// describe reads a session's Info from its log: the header, the last line and the walk to
// its metadata. It reads no more than that, however long the log is (failure 55).
func (rd *reader) describe(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	info := hansard.Info{ID: id, Labels: map[string]string{}, State: json.RawMessage("null")}
	l, err := rd.openLogForRead(ctx, id)
	var damaged *hansard.DamagedError
	if errors.As(err, &damaged) {
		info.Damage = damaged
		return info, nil
	}
	if err != nil {
		return hansard.Info{}, err
	}
	defer l.f.Close()
	info.Damage = l.damage
	if info.Bytes, err = l.f.Size(); err != nil {
		return hansard.Info{}, err
	}
	if l.header == nil {
		return info, nil
	}
	info.Created, info.Updated = l.header.Created, l.header.Created
	// Of a damaged log the Info is the state before the damage: what Read returns, and
	// what a repair starts from.
	tail := l.tail
	if l.damage != nil {
		if tail, err = rd.safeTail(l); err != nil {
			return hansard.Info{}, err
		}
	}
	if tail == nil {
		return info, nil
	}
	if info.Parent, err = parentOf(l.f, l.header); err != nil && l.damage == nil {
		return hansard.Info{}, err
	}
	info.LastSeq = tail.Last.Seq
	if tail.Last.Seq > 0 {
		info.Updated = tail.Last.Time
	}
	m, err := sessionlog.ReadMeta(l.f, tail)
	var t *sessionlog.TurnState
	if err == nil {
		t, err = turnIn(l, tail)
	}
	// Lines lead to their metadata and turn by offset. If that fails although the last
	// line is sound, the damage is somewhere before it: find out where.
	if errors.As(err, &damaged) || errors.Is(err, sessionlog.ErrNoLine) {
		_, found, err := sessionlog.Check(l.f, id, new(sessionlog.Decoder).Decode)
		if err != nil {
			return hansard.Info{}, err
		}
		if found == nil {
			found = sessionlog.DamagedAt(id, tail.LastAt, "the metadata or the turn can't be found")
			found.SafeSeq = tail.Last.Seq
		}
		info.Damage, info.LastSeq = found, found.SafeSeq
		return info, nil
	}
	if err != nil {
		return hansard.Info{}, err
	}
	info.Title = m.Meta.Title
	for k, v := range m.Meta.Labels {
		info.Labels[k] = v
	}
	if len(m.Meta.State) > 0 {
		info.State = m.Meta.State
	}
	info.Turn = t.Held
	return info, nil
}

// safeTail is the last whole batch before the damage of a log; nil: there is none.
func (rd *reader) safeTail(l *openedLog) (*sessionlog.Tail, error) {
	if l.damage.Offset == 0 {
		return nil, nil
	}
	tail, err := sessionlog.ReadTail(l.f, l.damage.Offset)
	var damaged *hansard.DamagedError
	if errors.As(err, &damaged) {
		return nil, nil
	}
	return tail, err
}

// catalog remembers the descriptions of the store's logs. Every List checks it against
// name, size and time of each file, so a file that was restored, copied or removed is
// simply picked up; nothing on the write path touches it.
type catalog struct {
	mu     sync.Mutex             // one scan at a time; waited for with a context
	m      map[string]cache.Entry // by the name of the log
	loaded bool                   // the catalog that earlier processes left in cache/ was read
}

// List describes the sessions a query selects, newest first. An error comes last, after
// the sessions found before it.
func (s *Store) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) {
		rows, err := s.lister.list(ctx, q)
		for _, row := range rows {
			info, err := s.lister.complete(ctx, row)
			switch {
			case errors.Is(err, hansard.ErrNotFound), errors.Is(err, hansard.ErrDeleted):
				continue // gone since
			case err != nil:
				yield(hansard.Info{}, err)
				return
			}
			if !yield(info, nil) {
				return
			}
		}
		if err != nil {
			yield(hansard.Info{}, err)
		}
	}
}

// list is List without the states that the catalog does not keep: those are read one by
// one, for the sessions that are returned, so that a page of ten costs ten reads.
func (ls *lister) list(ctx context.Context, q hansard.Query) (rows []CatalogRow, err error) {
	if ls.closed.Load() {
		return nil, hansard.ErrClosed
	}
	if err := engine.CheckQuery(&q); err != nil {
		return nil, err
	}
	if rows, ok, err := ls.pageFromTable(ctx, q); ok {
		return rows, err
	}
	now := ls.cfg.now() // before the scan
	all, err := ls.refreshCatalog(ctx)
	infos, pageErr := engine.Page(&q, now, all)
	for i := range infos {
		rows = append(rows, CatalogRow{Info: infos[i]})
	}
	return rows, cmp.Or(err, pageErr)
}

// Count implements [hansard.Counter].
func (s *Store) Count(ctx context.Context, q hansard.Query) (int, error) {
	if err := engine.CheckQuery(&q); err != nil {
		return 0, err
	}
	if s.closed.Load() {
		return 0, hansard.ErrClosed
	}
	q.Limit, q.Cursor = 0, ""
	n := 0
	ok, err := s.lister.withTable(ctx, func(t Catalog, rev int64) (err error) {
		n, err = t.Count(ctx, rev, q)
		return err
	})
	if ok {
		return n, err
	}
	rows, err := s.lister.list(ctx, q)
	return len(rows), err
}

// complete turns a row of the catalog into the caller's own Info, with the state that the
// catalog does not keep. Cloned: the caller may modify it, and the next List would show
// that.
func (ls *lister) complete(ctx context.Context, row CatalogRow) (hansard.Info, error) {
	info := row.Info
	if row.Name != "" {
		now, there, err := ls.asItIs(ctx, row)
		if err != nil {
			return info, err
		}
		if !there {
			return info, hansard.ErrNotFound
		}
		info = now
	}
	if info.State == nil {
		now, err := ls.reader.describe(ctx, info.ID)
		ended := ctx.Err() != nil || errors.Is(err, hansard.ErrClosed) || errors.Is(err, hansard.ErrNotFound) || errors.Is(err, hansard.ErrDeleted)
		if err != nil && !ended {
			return ls.unreadable(info.ID, err), nil
		}
		now.Cursor = info.Cursor
		return now, err
	}
	info.Labels, info.State = maps.Clone(info.Labels), bytes.Clone(info.State)
	if info.Turn != nil {
		turn := *info.Turn
		info.Turn = &turn
	}
	if info.Parent != nil {
		parent := *info.Parent
		info.Parent = &parent
	}
	return info, nil
}

// refreshCatalog scans the directory and describes anew only what changed. A session that
// can't be described is listed as damaged or unreadable, and hides no other.
func (ls *lister) refreshCatalog(ctx context.Context) ([]hansard.Info, error) {
	// Until recovery is known to be over, the journal counts as well: it may have
	// sessions without a log, and events past the logs' ends (failure 56). It is looked at
	// before the directory: a session whose log is created in between is in both, the
	// other way round it would be in neither.
	behind, err := ls.reader.unapplied()
	if err != nil {
		return nil, err
	}
	entries, err := ls.fs.ReadDir(sessionlog.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		if ls.sessionsGone() {
			return nil, errSessionsGone
		}
		return nil, nil
	}
	if err != nil {
		return nil, ls.explain(err)
	}
	c := &ls.catalog
	if err := lockWithin(ctx, &c.mu); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	if !c.loaded {
		c.m, c.loaded = cache.LoadCatalog(ls.fs, entries), true
	}
	aside, err := ls.asides.allAsides()
	if err != nil {
		return nil, ls.explain(err)
	}
	fresh, infos, changed, err := ls.scan(ctx, entries, behind, aside)
	if err != nil {
		c.keep(fresh)
		return nil, err
	}
	hasLog := func(name string) bool { _, ok := fresh[name]; return ok }
	for _, name := range append(behind.onlyInJournal(hasLog), ls.reader.dirty.had(hasLog)...) {
		aside[name] = true
	}
	missing, err := ls.withoutLog(ctx, aside)
	if err != nil {
		c.keep(fresh)
		return nil, err
	}
	infos = append(infos, missing...)
	changed += len(c.m) - len(fresh) + changed // removed files count too
	c.m = fresh
	// Written only when enough of it is new: a fresh process describes the rest itself.
	// If a single session changes, the file is not written at every List.
	if changed > len(fresh)/8+64 {
		_ = ls.writeCache(cache.Dir, cache.CatalogName, cache.EncodeCatalog(c.m)) // a cache
	}
	return infos, nil
}

// scan describes the logs of the directory, from the catalog or anew; changed is how many
// anew. It removes from aside the names that have a log. On error fresh has what was
// found so far. The caller holds the catalog's mutex.
func (ls *lister) scan(ctx context.Context, entries []vfs.Entry, behind *backlog, aside map[string]bool) (fresh map[string]cache.Entry, infos []hansard.Info, changed int, err error) {
	fresh = make(map[string]cache.Entry, len(entries))
	infos = make([]hansard.Info, 0, len(entries))
	for i, e := range entries {
		// Not for every one: with a warm catalog an entry costs only a stat.
		if i%256 == 0 && ctx.Err() != nil {
			return fresh, nil, 0, ctx.Err()
		}
		name, ok := strings.CutSuffix(e.Name, sessionlog.Suffix)
		if !ok {
			continue
		}
		id, ok := sessionlog.DecodeName(name)
		if !ok {
			continue // verify reports it
		}
		// What the journal adds to a log does not show in its size and time, so the
		// catalog must not be trusted by those, now or later.
		unsettled := behind != nil && (behind.damage != nil || behind.entries[name] != nil)
		entry, isNew, err := ls.catalogEntry(ctx, name, id, aside[name] || unsettled)
		if err != nil {
			return fresh, nil, 0, err
		}
		if unsettled {
			entry.Inode = 0 // matches no file: it is described anew the next time
		}
		delete(aside, name)
		if isNew {
			changed++
		}
		fresh[name] = entry
		if !entry.Gone {
			infos = append(infos, entry.Info)
		}
	}
	return fresh, infos, changed, nil
}

// withoutLog describes sessions whose log is missing: some of their lines were set aside,
// they are only in the journal so far, or the log was removed from outside.
func (ls *lister) withoutLog(ctx context.Context, names map[string]bool) (infos []hansard.Info, err error) {
	for name := range names {
		id, ok := sessionlog.DecodeName(name)
		if !ok {
			continue
		}
		info, err := ls.reader.describe(ctx, id)
		switch {
		case errors.Is(err, hansard.ErrDeleted), errors.Is(err, hansard.ErrNotFound):
			continue
		case ls.isOver(ctx, err):
			return nil, err
		case err != nil:
			info = ls.unreadable(id, err)
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// keep adds the results of an unfinished scan: the next one, which may have as little
// time, continues from there. The caller holds c.mu.
func (c *catalog) keep(found map[string]cache.Entry) {
	if c.m == nil {
		c.m = map[string]cache.Entry{}
	}
	maps.Copy(c.m, found)
}

// isOver tells whether an error ends the call rather than says something about the
// session: the caller is gone, the store is closed, no more files can be opened.
func (p *process) isOver(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || p.closed.Load() || isTooManyFiles(err))
}

// catalogEntry is the catalog's entry of a file, described anew if it changed: another
// inode, size or time, or lines were set aside. Damaged or unreadable ones are described
// every time: the log may have been repaired in place, or become readable. An error ends
// the scan; what is wrong with the session is in the entry.
func (ls *lister) catalogEntry(ctx context.Context, name string, id hansard.SessionID, aside bool) (entry cache.Entry, isNew bool, err error) {
	st, err := ls.fs.Stat(sessionlog.Path(name))
	if err != nil {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return cache.Entry{Gone: true}, false, nil
		case ls.isOver(ctx, err):
			return entry, false, err
		}
		return cache.Entry{Info: ls.unreadable(id, err)}, false, nil
	}
	old, ok := ls.catalog.m[name]
	if ok && old.Inode == st.Inode && old.Size == st.Size && old.ModTime.Equal(st.ModTime) && old.Info.Damage == nil && old.Info.Unreadable == "" && !aside && ls.checks.checked.sound(name) {
		return old, false, nil
	}
	entry = cache.Entry{Inode: st.Inode, Size: st.Size, ModTime: st.ModTime}
	entry.Info, err = ls.reader.describe(ctx, id)
	switch {
	case ls.isOver(ctx, err):
		return entry, false, err
	case errors.Is(err, hansard.ErrNotFound), errors.Is(err, hansard.ErrDeleted):
		entry.Gone = true
	case errors.Is(err, hansard.ErrVersion): // written by a later version: sound, but we can't read it
		entry.Info = ls.unreadable(id, err)
		entry.Info.Unreadable, entry.Info.Damage = "", sessionlog.DamagedAt(id, 0, "%v", err)
	case err != nil:
		entry.Info = ls.unreadable(id, err)
	case len(entry.Info.State) > cache.MaxListedState:
		entry.Info.State = nil
	}
	return entry, true, nil
}

// unreadable is the Info of a session whose log can't be read. Its content may be sound.
func (ls *lister) unreadable(id hansard.SessionID, err error) hansard.Info {
	info := hansard.Info{ID: id, Labels: map[string]string{}, State: json.RawMessage("null"), Unreadable: err.Error()}
	var e *hansard.UnreadableError
	if errors.As(err, &e) {
		info.Unreadable = e.Reason
	}
	return info
}
