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
	"time"

	"hansard"
)

// Stat describes one session.
func (s *Store) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	return s.describe(ctx, id)
}

// describe reads a session's Info from its log: the header, the last line and
// the walk to its metadata.
func (s *Store) describe(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	info := hansard.Info{ID: id, Labels: map[string]string{}, State: json.RawMessage("null")}
	l, err := s.openLogForRead(ctx, id)
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
	tail := l.tail
	if l.damage != nil {
		if tail, err = s.safeTail(l); err != nil {
			return hansard.Info{}, err
		}
	}
	if tail == nil {
		return info, nil
	}
	info.LastSeq = tail.last.Seq
	if tail.last.Seq > 0 {
		info.Updated = tail.last.Time
	}
	m, err := readMeta(l.f, tail)
	var t *turnState
	if err == nil {
		t, err = turnIn(l, tail)
	}
	if errors.As(err, &damaged) || errors.Is(err, errNoLine) {
		_, found, err := checkLog(l.f, id, decodeLine)
		if err != nil {
			return hansard.Info{}, err
		}
		if found == nil {
			found = damagedAt(id, tail.lastAt, "the metadata or the turn can't be found")
			found.SafeSeq = tail.last.Seq
		}
		info.Damage, info.LastSeq = found, found.SafeSeq
		return info, nil
	}
	if err != nil {
		return hansard.Info{}, err
	}
	info.Title = m.meta.Title
	for k, v := range m.meta.Labels {
		info.Labels[k] = v
	}
	if len(m.meta.State) > 0 {
		info.State = m.meta.State
	}
	info.Turn = t.held
	return info, nil
}

// safeTail is the last whole batch before the damage of a log.
func (s *Store) safeTail(l *openedLog) (*logTail, error) {
	if l.damage.Offset == 0 {
		return nil, nil
	}
	tail, err := readTail(l.f, l.damage.Offset)
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
	mu     sync.Mutex
	m      map[string]catalogEntry
	loaded bool
}

type catalogEntry struct {
	Inode   uint64
	Size    int64
	ModTime time.Time
	Info    hansard.Info
	Gone    bool // deleted, or not a session yet
}

// List describes the sessions a query selects, newest first.
func (s *Store) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) {
		infos, err := s.list(ctx, q)
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
		if err != nil {
			yield(hansard.Info{}, err)
		}
	}
}

func (s *Store) list(ctx context.Context, q hansard.Query) ([]hansard.Info, error) {
	if s.closed.Load() {
		return nil, hansard.ErrClosed
	}
	if err := hansard.CheckQuery(&q); err != nil {
		return nil, err
	}
	all, err := s.refreshCatalog(ctx)
	var infos []hansard.Info
	for i := range all {
		if ok, err := q.Wants(&all[i]); err != nil {
			return nil, err
		} else if ok {
			info := all[i] // the catalog keeps its own
			info.Labels, info.State = maps.Clone(info.Labels), bytes.Clone(info.State)
			if info.Turn != nil {
				turn := *info.Turn
				info.Turn = &turn
			}
			infos = append(infos, info)
		}
	}
	sort.Slice(infos, func(i, j int) bool { return hansard.Newer(&infos[i], &infos[j]) })
	if q.Limit > 0 && len(infos) > q.Limit {
		infos = infos[:q.Limit]
	}
	return infos, err
}

// refreshCatalog scans the directory and describes anew only what changed. A
// session that can't be described is in the list as damaged: it hides nobody.
func (s *Store) refreshCatalog(ctx context.Context) ([]hansard.Info, error) {
	entries, err := s.fs.ReadDir(sessionsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := &s.catalog
	c.mu.Lock()
	defer c.mu.Unlock()
	s.loadCatalog()
	aside := s.allAsides()
	fresh := make(map[string]catalogEntry, len(entries))
	infos := make([]hansard.Info, 0, len(entries))
	changed := 0
	for i, e := range entries {
		if i%256 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		name, ok := strings.CutSuffix(e.Name, logSuffix)
		if !ok {
			continue
		}
		id, ok := decodeName(name)
		if !ok {
			continue // verify tells of it
		}
		entry, isNew := s.catalogEntry(ctx, name, id, aside[name])
		delete(aside, name)
		if isNew {
			changed++
		}
		fresh[name] = entry
		if !entry.Gone {
			infos = append(infos, entry.Info)
		}
	}
	for name := range aside { // sessions whose log is missing
		if id, ok := decodeName(name); ok {
			info, err := s.describe(ctx, id)
			if err != nil {
				info = unreadable(id, err)
			}
			infos = append(infos, info)
		}
	}
	changed += len(c.m) - len(fresh) + changed // removed files count too
	c.m = fresh
	if changed > len(fresh)/8+64 {
		s.saveCatalog()
	}
	return infos, nil
}

// catalogEntry is the catalog's entry of a file, described anew if it changed.
func (s *Store) catalogEntry(ctx context.Context, name string, id hansard.SessionID, aside bool) (entry catalogEntry, isNew bool) {
	st, err := s.fs.Stat(logPath(name))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return catalogEntry{Gone: true}, false
		}
		return catalogEntry{Info: unreadable(id, err)}, false
	}
	old, ok := s.catalog.m[name]
	if ok && old.Inode == st.Inode && old.Size == st.Size && old.ModTime.Equal(st.ModTime) && old.Info.Damage == nil && !aside && s.checked.sound(name) {
		return old, false
	}
	entry = catalogEntry{Inode: st.Inode, Size: st.Size, ModTime: st.ModTime}
	entry.Info, err = s.describe(ctx, id)
	switch {
	case errors.Is(err, hansard.ErrNotFound), errors.Is(err, hansard.ErrDeleted):
		entry.Gone = true
	case err != nil:
		entry.Info = unreadable(id, err)
	}
	return entry, true
}

func unreadable(id hansard.SessionID, err error) hansard.Info {
	return hansard.Info{ID: id, Labels: map[string]string{}, State: json.RawMessage("null"),
		Damage: &hansard.DamagedError{Session: id, Reason: err.Error()}}
}
