package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strconv"
	"strings"

	"hansard"
	"hansard/internal/vfs"
)

// Repair makes a sound copy of a damaged session in its place: the whole batches
// before the damage, and of what was set aside what follows them. If it is the
// header that is damaged, the lines behind it are kept. The old bytes stay in
// evidence/.
func (s *Store) Repair(ctx context.Context, id hansard.SessionID) (hansard.Repaired, error) {
	if err := s.usable(ctx, id); err != nil {
		return hansard.Repaired{}, err
	}
	name := encodeName(id)
	for try := 0; ; try++ {
		done, err := s.repairLocked(id, name)
		if err == nil || !errors.Is(err, errInJournal) || try == 10 {
			return done, err
		}
		// The journal has entries for the log: they go first.
		if err := s.checkpoint(true); err != nil {
			return hansard.Repaired{}, err
		}
	}
}

var errInJournal = errors.New("the journal still has entries for this session")

func (s *Store) repairLocked(id hansard.SessionID, name string) (hansard.Repaired, error) {
	done := hansard.Repaired{Session: id}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.lockCaughtUp(); err != nil {
		return done, err
	}
	defer s.unlockW()
	if s.dirty[name].end > s.w.start {
		return done, errInJournal
	}
	old, err := s.fs.Open(logPath(name), vfs.ReadOnly)
	missing := errors.Is(err, fs.ErrNotExist)
	asides := s.asides(name)
	if missing && len(asides) == 0 {
		return done, fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
	}
	if err != nil && !missing {
		return done, err
	}
	r := &rebuild{s: s, id: id, name: name}
	if !missing {
		defer old.Close()
		if err := r.safePart(old); err != nil {
			return done, err
		}
		if r.sound && len(asides) == 0 {
			done.Events = r.chain.safe
			return done, nil
		}
	}
	kept, err := r.keepOld(old, asides)
	if err != nil {
		return done, fmt.Errorf("keep the old bytes: %w", err)
	}
	if err := r.follow(asides); err != nil {
		return done, err
	}
	if err := r.install(old); err != nil {
		return done, err
	}
	for _, a := range asides {
		if err := s.fs.Remove(asideDir + "/" + a); err != nil {
			return done, err
		}
	}
	if len(asides) > 0 {
		if err := s.fs.SyncDir(asideDir); err != nil {
			return done, err
		}
	}
	s.checked.forget(name)
	if sess := s.sessions[name]; sess != nil {
		sess.closeLog()
		sess.forget()
	}
	_ = s.fs.Remove(damageDir + "/" + name) // a cache
	done.Changed, done.Events, done.Kept = true, r.chain.safe, kept
	done.DroppedBytes = max(0, r.size-r.safe)
	if h := r.headless; h != nil {
		done.Lost = h.lost()
		done.DroppedBytes = max(0, r.size-h.kept())
	}
	return done, nil
}

// rebuild is a log being made anew.
type rebuild struct {
	s     *Store
	id    hansard.SessionID
	name  string
	size  int64 // of the old log
	safe  int64 // of it: whole batches, chained from the header
	sound bool
	chain chain
	more  []byte // to follow the safe part

	headless *headless // the header is damaged, and this is left
}

// safePart finds how much of the old log is safe.
func (r *rebuild) safePart(old vfs.File) error {
	var err error
	if r.size, err = old.Size(); err != nil {
		return err
	}
	var damaged *hansard.DamagedError
	if _, err := readHeader(old, r.id); errors.As(err, &damaged) {
		return r.behindHeader(old)
	} else if err == errEmptyLog {
		return nil
	} else if err != nil && err != io.EOF {
		return err
	}
	c, d, err := checkLog(old, r.id, decodeLine)
	if err != nil {
		return err
	}
	r.chain, r.sound = c, d == nil
	end := r.size
	if d != nil {
		end = d.Offset
	}
	if end > 0 {
		tail, err := readTail(old, end)
		if err != nil {
			return nil // not one batch is whole
		}
		r.safe = tail.end
		r.chain.crc, r.chain.seq, r.chain.left = tail.last.crc, tail.last.Seq, 0
		r.chain.safe = tail.last.Seq
	}
	return nil
}

// keepOld copies what is about to be replaced, and what was set aside.
func (r *rebuild) keepOld(old vfs.File, asides []string) (string, error) {
	mark := fmt.Sprintf("%016x", r.s.cfg.random())
	kept := ""
	if old != nil && r.size > 0 {
		kept = r.name + ".repaired." + mark
		if err := r.s.fs.Mkdir(evidenceDir); err != nil {
			return "", err
		}
		f, err := r.s.fs.Open(evidenceDir+"/"+kept, vfs.Create|vfs.Exclusive)
		if err != nil {
			return "", err
		}
		err = copyBytes(f, old, r.size)
		if err == nil {
			err = f.Datasync()
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		kept = evidenceDir + "/" + kept
	}
	for _, a := range asides {
		b, err := r.s.readAll(asideDir + "/" + a)
		if err != nil {
			return "", err
		}
		if err := r.s.keep(evidenceDir, a+".aside."+mark, b); err != nil {
			return "", err
		}
		if kept == "" {
			kept = evidenceDir + "/" + a + ".aside." + mark
		}
	}
	return kept, errors.Join(r.s.fs.Mkdir(evidenceDir), r.s.fs.SyncDir(evidenceDir))
}

// follow appends what was set aside where it follows the safe part: it was
// acknowledged, and only the log was not the one it belonged to.
func (r *rebuild) follow(asides []string) error {
	sort.Slice(asides, func(i, j int) bool { return asidePos(asides[i]) < asidePos(asides[j]) })
	for _, a := range asides {
		b, err := r.s.readAll(asideDir + "/" + a)
		if err != nil {
			return err
		}
		r.followLines(b)
	}
	return nil
}

// followLines appends the whole batches at the beginning of b, if they follow.
func (r *rebuild) followLines(b []byte) {
	c, whole := r.chain, 0
	for at := 0; ; {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			break
		}
		l, err := decodeLine(b[at : at+i])
		if err != nil || c.follow(l) != nil {
			break
		}
		if at += i + 1; c.left == 0 {
			r.chain, whole = c, at
		}
	}
	r.more = append(r.more, b[:whole]...)
}

func asidePos(name string) uint64 {
	pos, _ := strconv.ParseUint(name[strings.LastIndexByte(name, '.')+1:], 10, 64)
	return pos
}

// install writes the new log and puts it in place of the old one.
func (r *rebuild) install(old vfs.File) (err error) {
	tmp := fmt.Sprintf("log.%016x.tmp", r.s.cfg.random())
	f, err := r.s.fs.Open(tmp, vfs.Create|vfs.Exclusive)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = r.s.fs.Remove(tmp)
		}
	}()
	at := r.safe
	if r.headless != nil {
		if at, err = r.writeHeadless(f, old); err != nil {
			return err
		}
	} else if at > 0 {
		if err := copyBytes(f, old, at); err != nil {
			return err
		}
	} else if len(r.more) == 0 || !r.chain.started {
		// Nothing is safe, not even the header: the session begins anew.
		r.more = appendHeader(nil, r.id, r.s.cfg.random(), r.s.cfg.now(), 0, hansard.Meta{})
	}
	if _, err := f.WriteAt(r.more, at); err != nil {
		return err
	}
	if err := r.endTurn(f, at+int64(len(r.more))); err != nil {
		return err
	}
	if err := f.Datasync(); err != nil {
		return err
	}
	if err := r.s.fs.Rename(tmp, logPath(r.name)); err != nil {
		return err
	}
	return r.s.fs.SyncDir(sessionsDir)
}

// endTurn ends the turn that the new log says is held: what was lost may have given
// it to another, and the grants that are in the past must not come back with it.
func (r *rebuild) endTurn(f vfs.File, size int64) error {
	tail, err := readTail(f, size)
	if err != nil || tail.last.Deleted {
		return err
	}
	t, err := turnIn(&openedLog{f: f}, tail)
	if err != nil || t.held == nil {
		return err
	}
	record := hansard.TurnRecord{Change: hansard.TurnEnded, Why: "repaired"}
	e := record.Event()
	st := stamp{seq: tail.last.Seq + 1, time: r.s.cfg.now().Format(timeLayout), turn: t.held.Grant, prev: tail.last.crc,
		metaAt: tail.last.metaAt(tail.lastAt), turnAt: tail.last.turnAt(tail.lastAt)}
	r.chain.safe++
	return writeLog(f, appendEvent(nil, &st, encodeBody(nil, &e, "", "")), size)
}

// readAll reads a whole file.
func (s *Store) readAll(name string) ([]byte, error) {
	f, err := s.fs.Open(name, vfs.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, err
	}
	return b, nil
}
