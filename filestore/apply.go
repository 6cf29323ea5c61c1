package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"hansard"
	"hansard/internal/vfs"
)

const (
	asideDir    = "aside"
	evidenceDir = "evidence"
)

// apply copies the durable entries to the logs, in ring order. It compares
// before it writes, so that doing it again, or finishing what a killed process
// began, changes nothing. It stops, without losing anything, where the disk is
// full or a file can't be opened just now.
func (s *Store) apply() error {
	n := 0
	for n < len(s.pending) && s.pending[n].end() <= s.lim {
		n++
	}
	done, err := s.applyEntries(s.pending[:n])
	if done > 0 {
		s.w.applied = s.pending[done-1].end()
	}
	s.pending = s.pending[done:]
	// Padding behind it counts as applied, as far as it is durable: nothing that
	// is not may be taken for it.
	next := s.cursor
	if len(s.pending) > 0 {
		next = s.pending[0].pos
	}
	s.w.applied = max(s.w.applied, min(next, s.lim))
	if isNoSpace(err) {
		s.w.flags |= wFlagNoSpace
		return nil // the writers are told; the entries wait
	}
	if err == nil {
		s.w.flags &^= wFlagNoSpace
	}
	return err
}

// manyEntries is from how many on it pays to write logs side by side.
const manyEntries = 16

// applyEntries writes entries to their logs and tells how many of the first of
// them are there. What is behind those, though some of it may be written too, is
// found equal the next time.
func (s *Store) applyEntries(entries []*entry) (done int, err error) {
	if len(entries) >= manyEntries && !s.cfg.inline {
		s.writeSideBySide(entries)
	}
	for _, e := range entries {
		if err = s.applyEntry(e); err != nil {
			break
		}
		done++
	}
	for _, e := range entries[done:] {
		e.written = false // by the next time somebody may have changed the log
	}
	return done, err
}

// writeSideBySide lets two goroutines write the entries of logs that are open, each
// log's by one of them, in order. What could not be done, or needs more than
// writing, is left to applyEntry.
func (s *Store) writeSideBySide(entries []*entry) {
	of := make(map[*session]int, len(entries))
	var logs []*session
	var toWrite [][]*entry // for each of them
	for _, e := range entries {
		sess := s.sessions[e.name]
		if sess == nil || sess.f == nil {
			continue
		}
		i, ok := of[sess]
		if !ok {
			i, of[sess] = len(logs), len(logs)
			logs, toWrite = append(logs, sess), append(toWrite, nil)
		}
		toWrite[i] = append(toWrite[i], e)
	}
	var taken atomic.Int64 // whoever is free takes the next: the second one starts late
	write := func() {
		for i := taken.Add(1) - 1; i < int64(len(logs)); i = taken.Add(1) - 1 {
			for _, e := range toWrite[i] {
				if e.written = s.writeInPlace(logs[i], e); !e.written {
					break
				}
			}
		}
	}
	var other sync.WaitGroup
	other.Go(write)
	write()
	other.Wait()
}

// writeInPlace writes an entry behind the line it was made for, if its log is open
// and just as long as it should be.
func (s *Store) writeInPlace(sess *session, e *entry) bool {
	inode, size, err := s.fs.Inode(logPath(sess.name))
	if err != nil || inode != sess.inode || size != e.off || e.off == 0 || sess.fileUID != e.uid {
		return false
	}
	crc, err := crcBefore(sess.f, e.off)
	return err == nil && crc == e.lprev && writeLog(sess.f, e.bytes, e.off) == nil
}

// applyEntry writes one entry's bytes to where they go in its log.
func (s *Store) applyEntry(e *entry) error {
	sess := s.cached(e.name)
	aside := ""
	if !e.written {
		var err error
		if aside, err = s.writeToLog(sess, e); err != nil {
			// A bad spot of the disk must not keep every other session from
			// going on; but what may be over in a moment is tried again.
			if e.failed++; e.failed < 3 || !errors.Is(err, syscall.EIO) {
				return fmt.Errorf("write the log of session %s: %w", sess.id, err)
			}
			aside = err.Error()
		}
	}
	if aside != "" {
		if err := s.setAside(e); err != nil {
			return err
		}
		s.w.flags |= wFlagAside
		sess.forget()
	}
	if sess.waiting > 0 {
		sess.waiting--
	}
	if aside == "" {
		s.noteApplied(e)
		if sess.known {
			sess.inLog = e.off + int64(len(e.bytes))
		}
	}
	return nil
}

// writeToLog does the writing. A reason to set the entry aside is no error: the
// log was changed by somebody else, and his bytes are not ours to overwrite.
func (s *Store) writeToLog(sess *session, e *entry) (aside string, err error) {
	size, err := s.openLog(sess, e.off == 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "the log is missing", nil
	case err != nil && !isForeign(err):
		return "", err
	case err != nil:
		return err.Error(), nil
	}
	if size > 0 && e.off > 0 {
		if sess.fileUID == 0 {
			if sess.fileUID, err = readUID(sess.f); err != nil {
				return "", err
			}
		}
		if sess.fileUID != e.uid {
			return "the log is another session's", nil
		}
	}
	if size < e.off {
		return "the log is shorter than what was written to it", nil
	}
	if size == e.off {
		if e.off > 0 {
			crc, err := crcBefore(sess.f, e.off)
			if err != nil {
				return "", err
			}
			if crc != e.lprev {
				return "the line before is another one", nil
			}
		}
		return "", writeLog(sess.f, e.bytes, e.off)
	}
	// A predecessor was killed in mid-write, or it is all there.
	there := make([]byte, min(size-e.off, int64(len(e.bytes))))
	if _, err := sess.f.ReadAt(there, e.off); err != nil && err != io.EOF {
		return "", err
	}
	switch {
	case bytes.Equal(there, e.bytes):
		return "", nil
	case bytes.Equal(there, e.bytes[:len(there)]):
		if s.planted(plantAppendMode) {
			return "", writeLog(sess.f, e.bytes, size)
		}
		return "", writeLog(sess.f, e.bytes[len(there):], e.off+int64(len(there)))
	case onlyNULsDiffer(there, e.bytes):
		// A power cut kept the file's length and lost pages of its content, or
		// pages whose writing failed were dropped.
		return "", writeLog(sess.f, e.bytes, e.off)
	}
	return "the log has other content there", nil
}

func writeLog(f vfs.File, b []byte, off int64) error {
	_, err := f.WriteAt(b, off)
	return err
}

func onlyNULsDiffer(there, want []byte) bool {
	for i := range there {
		if there[i] != want[i] && there[i] != 0 {
			return false
		}
	}
	return true
}

// crcBefore reads the crc of the line that ends at off.
func crcBefore(f vfs.File, off int64) (uint32, error) {
	var b [11]byte // xxxxxxxx"}\n
	if off < int64(len(b)) {
		return 0, lineError("no line ends there")
	}
	if _, err := f.ReadAt(b[:], off-int64(len(b))); err != nil {
		return 0, err
	}
	crc, ok := parseHex(b[:8])
	if !ok || string(b[8:]) != "\"}\n" {
		return ^uint32(0), nil // no crc of ours: it matches none but by accident
	}
	return crc, nil
}

// setAside keeps bytes that can't go where they belong, durably, instead of
// losing them. From then on the session is damaged.
func (s *Store) setAside(e *entry) error {
	for pos := e.pos; ; pos++ {
		// Another journal may have had an entry at the same position.
		name := asideName(e.name, pos)
		b, err := s.readAll(asideDir + "/" + name)
		if err == nil && !bytes.HasPrefix(e.bytes, b) {
			continue
		}
		return s.keep(asideDir, name, e.bytes)
	}
}

func asideName(name string, pos uint64) string {
	return name + "." + strconv.FormatUint(pos, 10)
}

// keep makes a file with these bytes, durable before it returns. The same bytes
// under the same name are kept once.
func (s *Store) keep(dir, name string, b []byte) (err error) {
	if err := s.fs.Mkdir(dir); err != nil {
		return err
	}
	f, err := s.fs.Open(dir+"/"+name, vfs.Create)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	if err := f.Datasync(); err != nil {
		return err
	}
	if err := s.fs.SyncDir(dir); err != nil {
		return err
	}
	return s.fs.SyncDir(".")
}

// cutTail sets an unfinished end of a log aside and cuts it off, so that the
// next line does not fuse with it. Nothing else is ever cut.
func (s *Store) cutTail(sess *session, tail *logTail, size int64) error {
	end := tail.end
	torn := make([]byte, size-end)
	if _, err := sess.f.ReadAt(torn, end); err != nil && err != io.EOF {
		return err
	}
	if !looksUnfinished(torn) {
		return &hansard.DamagedError{Session: sess.id, Offset: end, SafeSeq: tail.last.Seq, Reason: "the last line is not one of a log"}
	}
	for _, e := range s.pending {
		if e.name == sess.name && e.off == end {
			return errors.New("an unfinished line waits for its journal entry") // disk full: later
		}
	}
	if s.planted(plantCutMore) {
		end = tail.lastAt
	}
	return s.cut(sess, torn, end)
}

// cut keeps bytes as evidence and cuts them off a log.
func (s *Store) cut(sess *session, torn []byte, end int64) error {
	name := fmt.Sprintf("%s.%d.%016x", sess.name, end, s.cfg.random())
	if err := s.keep(evidenceDir, name, torn); err != nil {
		return err
	}
	if err := sess.f.Truncate(end); err != nil {
		return err
	}
	return sess.f.Datasync()
}

// cutStub empties a log that was cut off in its first batch, which is no
// session, for a session that is about to be made.
func (s *Store) cutStub(sess *session) error {
	b, err := s.readAll(logPath(sess.name))
	if err != nil {
		return err
	}
	if err := s.cut(sess, b, 0); err != nil {
		return err
	}
	sess.stub, sess.fileUID = false, 0
	return nil
}

// isForeign tells whether an error of opening a log is somebody's doing and
// will not pass: a directory, a link, a file of another owner.
func isForeign(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, vfs.ErrNotRegular)
}
