package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"sort"
	"strings"
	"sync"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// What there is to tell about sessions: one of them from its log (describe), all of them
// from the directory and a catalog (list). Neither takes a lock, and nothing on the write
// path maintains an index for them: a log that was restored, copied or removed by hand is
// simply seen.
//
// A session that can't be described is listed as damaged or unreadable, with the reason.
// It is never left out, and never keeps the others from being listed (failure 45): a list
// that is shorter than the truth looks like lost sessions.

// lister lists sessions, from a catalog of what was seen of them.
type lister struct {
	*process
	reader  *reader
	asides  *asides
	checks  *checks
	catalog catalog
}

// Stat describes one session. Damage is in the Info and no error: who asks about a damaged
// session wants to know how far it is safe.
func (s *Store) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	info, err := s.reader.describe(ctx, id)
	return info, s.readError(id, err)
}

// describe reads a session's Info from its log: the header, the last line and
// the walk to its metadata. That much is read however long the log is (failure 55).
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
	// Of a damaged log, what is told is the state before the damage: that is what Read
	// gives, and what a repair starts from.
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
	// Lines lead to their metadata and turn by offset. If that leads nowhere, although the
	// last line is sound, the damage is somewhere before it: find out where.
	if errors.As(err, &damaged) || errors.Is(err, sessionlog.ErrNoLine) {
		_, found, err := sessionlog.Check(l.f, id, sessionlog.Decode)
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

// catalog remembers what the files of the store were described as. It is
// checked against name, size and time of every file at each List, so a file
// that was restored, copied or removed is simply seen; nothing on the write
// path touches it.
type catalog struct {
	mu     sync.Mutex             // one scan at a time; waited for with a context
	m      map[string]cache.Entry // by the name of the log
	loaded bool                   // what earlier processes left in cache/ was read
}

// List describes the sessions a query selects, newest first. An error comes last, behind
// what was found before it.
func (s *Store) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) {
		infos, err := s.lister.list(ctx, q)
		for _, info := range infos {
			info, err := s.lister.complete(ctx, info)
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
// one, for the sessions that are given out, so that a page of ten costs ten reads.
func (ls *lister) list(ctx context.Context, q hansard.Query) ([]hansard.Info, error) {
	if ls.closed.Load() {
		return nil, hansard.ErrClosed
	}
	if err := engine.CheckQuery(&q); err != nil {
		return nil, err
	}
	all, err := ls.refreshCatalog(ctx)
	var infos []hansard.Info
	for i := range all {
		if ok, err := q.Wants(&all[i]); err != nil {
			return nil, err
		} else if ok {
			infos = append(infos, all[i])
		}
	}
	sort.Slice(infos, func(i, j int) bool { return engine.NewerBy(q.Order, &infos[i], &infos[j]) })
	if q.Limit > 0 && len(infos) > q.Limit {
		infos = infos[:q.Limit]
	}
	return infos, err
}

// complete makes an entry of the catalog the caller's own, with the state that the
// catalog does not keep. Cloned: the caller may change what it gets, and the next List
// would show that.
func (ls *lister) complete(ctx context.Context, info hansard.Info) (hansard.Info, error) {
	if info.State == nil {
		now, err := ls.reader.describe(ctx, info.ID)
		ended := ctx.Err() != nil || errors.Is(err, hansard.ErrClosed) || errors.Is(err, hansard.ErrNotFound) || errors.Is(err, hansard.ErrDeleted)
		if err != nil && !ended {
			return ls.unreadable(info.ID, err), nil
		}
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

// refreshCatalog scans the directory and describes anew only what changed. A
// session that can't be described is in the list as damaged: it hides nobody.
func (ls *lister) refreshCatalog(ctx context.Context) ([]hansard.Info, error) {
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
	// Until recovery is known to be over, what the journal has counts as well: sessions
	// that are in no log yet, and events behind the logs' ends (failure 56).
	behind, err := ls.reader.unapplied()
	if err != nil {
		return nil, err
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
	for _, name := range behind.onlyInJournal(func(name string) bool { _, ok := fresh[name]; return ok }) {
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
	// Written when enough of it is new to be worth it: a fresh process describes the rest
	// itself. In a store where one session changes it is not written at every List.
	if changed > len(fresh)/8+64 {
		_ = ls.writeCache(cache.Dir, cache.CatalogName, cache.EncodeCatalog(c.m)) // a cache
	}
	return infos, nil
}

// scan describes the logs of the directory, by the catalog or anew; changed is how many
// anew. Of aside it leaves those that have no log. On error fresh has what was found so
// far. The caller holds the catalog's mutex.
func (ls *lister) scan(ctx context.Context, entries []vfs.Entry, behind *backlog, aside map[string]bool) (fresh map[string]cache.Entry, infos []hansard.Info, changed int, err error) {
	fresh = make(map[string]cache.Entry, len(entries))
	infos = make([]hansard.Info, 0, len(entries))
	for i, e := range entries {
		// Not at every one: on a warm catalog an entry costs a stat and nothing else.
		if i%256 == 0 && ctx.Err() != nil {
			return fresh, nil, 0, ctx.Err()
		}
		name, ok := strings.CutSuffix(e.Name, sessionlog.Suffix)
		if !ok {
			continue
		}
		id, ok := sessionlog.DecodeName(name)
		if !ok {
			continue // verify tells of it
		}
		// What the journal adds to a log does not show in its size and time, by
		// which the catalog would be believed now and later.
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

// withoutLog describes sessions whose log is missing: something of them was set aside,
// or only the journal has them yet.
func (ls *lister) withoutLog(ctx context.Context, names map[string]bool) (infos []hansard.Info, err error) {
	for name := range names {
		id, ok := sessionlog.DecodeName(name)
		if !ok {
			continue
		}
		info, err := ls.reader.describe(ctx, id)
		switch {
		case errors.Is(err, hansard.ErrDeleted):
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

// keep adds what a scan found that was not finished: the next one, which may have as
// little time, goes on from there. The caller holds c.mu.
func (c *catalog) keep(found map[string]cache.Entry) {
	if c.m == nil {
		c.m = map[string]cache.Entry{}
	}
	maps.Copy(c.m, found)
}

// isOver tells whether an error is the end of the call rather than something about
// the session: the caller has gone, the store is closed, no more files can be opened.
func (p *process) isOver(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || p.closed.Load() || isTooManyFiles(err))
}

// catalogEntry is the catalog's entry of a file, described anew if it changed: another
// inode, size or time, or something was set aside of it. What was damaged or unreadable is
// looked at each time: it may have been repaired in place, or rights given. An error is
// the end of the scan; what is wrong with the session is in the entry.
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
	case errors.Is(err, hansard.ErrVersion): // of a later program: sound, but not for us
		entry.Info = ls.unreadable(id, err)
		entry.Info.Unreadable, entry.Info.Damage = "", sessionlog.DamagedAt(id, 0, "%v", err)
	case err != nil:
		entry.Info = ls.unreadable(id, err)
	case len(entry.Info.State) > cache.MaxListedState:
		entry.Info.State = nil
	}
	return entry, true, nil
}

// unreadable is all that can be told of a session whose log can't be read. What is in
// it may be sound.
func (ls *lister) unreadable(id hansard.SessionID, err error) hansard.Info {
	info := hansard.Info{ID: id, Labels: map[string]string{}, State: json.RawMessage("null"), Unreadable: err.Error()}
	var e *hansard.UnreadableError
	if errors.As(err, &e) {
		info.Unreadable = e.Reason
	}
	return info
}
