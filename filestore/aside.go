package filestore

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Lines that can't be written to their log are set aside, durably, so that they are not
// lost and no other session has to wait for them:
//
//	aside/<name>.<position in the ring> = the lines | a last line that says why
//
// For example aside/demo-1.73728, whose last line is
//
//	{"aside":"failed","off":5120,"uid":"bbee48349b14d377","reason":"…","prev":"…","crc":"…"}
//
// From then on the session is damaged, until the lines are in the log. After an I/O error
// ("failed") that happens automatically (mend.go); if the log was modified from outside
// ("changed") it takes a repair (repair.go). The file is removed only when its lines are
// durable somewhere else, so a crash at any step leaves at least one copy.

// asideDir has one file per entry that was set aside. Files are created and removed in it
// under write.lock; readers look without it.
const asideDir = "aside"

// asideWhy is why lines were set aside. An empty reason means they were not.
type asideWhy struct {
	// failed: the log could not be written or read, so the lines may be added to it
	// later. Otherwise the log is not the one the lines were written for, and only a
	// repair may decide what belongs there.
	failed bool
	reason string
}

// couldNot is a disk or permission failure, changedLog a log modified from outside,
// asideName the name of the file for an entry at a position.
func couldNot(err error) asideWhy              { return asideWhy{true, err.Error()} }
func changedLog(reason string) asideWhy        { return asideWhy{false, reason} }
func asideName(name string, pos uint64) string { return name + "." + strconv.FormatUint(pos, 10) }

// asideNote is the last line of a file in aside/. It has the checksum suffix of a log
// line, so that a torn or edited note is not trusted.
type asideNote struct {
	Aside  string `json:"aside"` // failed or changed
	Off    int64  `json:"off"`   // where in the log the lines belong
	UID    string `json:"uid"`   // and in which log
	Reason string `json:"reason"`
}

// aside is one file in aside/, as read.
type aside struct {
	journal.Entry // as it was in the ring, as far as the file says
	why           asideWhy
	file          string // in aside/
	told          bool   // the note is valid: it says where the lines belong, and why they are not there
}

// asides finds what was set aside. It has no state: the directory is authoritative, because
// any process may add to it.
type asides struct{ *process }

// setAside stores the lines of an entry and the reason, under write.lock. After nil they
// are durable, and the entry counts as applied. If this process dies before it publishes
// that, the next process to apply the entry finds the file and does not make a second
// one.
func (as *asides) setAside(e *journal.Entry, why asideWhy) error {
	// The log may be too short only because the lines before these were set aside after
	// an I/O error. Marked "changed", these lines would keep the earlier ones from being
	// mended.
	continues, err := as.continuesFailed(e)
	if err != nil {
		return err
	}
	if !why.failed && continues {
		why.failed, why.reason = true, "what is before it could not be written"
	}
	for pos := e.Pos; ; pos++ {
		file := asideDir + "/" + asideName(e.Name, pos)
		b, err := as.readAll(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return as.install(file, why.content(e))
		case err != nil:
			return err
		// Made by a process that died before it published that. We don't know whether the
		// file's name is durable, so sync it.
		case bytes.HasPrefix(b, e.Lines):
			return errors.Join(as.fs.SyncDir(asideDir), as.fs.SyncDir("."))
		}
		// Another journal had an entry at the same position.
	}
}

// content is the content of a file in aside/: the lines, then the note as a last line
// that chains to them.
func (w asideWhy) content(e *journal.Entry) []byte {
	b := bytes.Clone(e.Lines)
	prev := uint32(0)
	if n := len(b); n > 0 && b[n-1] != '\n' { // a fragment of an entry, from a damaged journal
		b = append(b, '\n')
	} else if n > sessionlog.CRCWidth {
		prev = sessionlog.LineCRC(b)
	}
	n := asideNote{Aside: "changed", Off: e.Offset, UID: fmt.Sprintf("%016x", e.UID), Reason: w.reason}
	if w.failed {
		n.Aside = "failed"
	}
	begin := len(b)
	b = append(b, sessionlog.Marshal(n)...)
	return sessionlog.AppendSuffix(b[:len(b)-1], begin, prev)
}

// install creates a file, whole and durable or not at all: written under a temporary
// name, synced, renamed, directories synced. A file that is visible under its name is
// complete, also after a power cut (failure 23). The temporary name is random, so that
// two processes never use the same one (failure 29), and in the store's directory, where
// sweep finds it if we die.
func (p *process) install(file string, b []byte) error {
	dir := file[:strings.IndexByte(file, '/')]
	if err := p.fs.Mkdir(dir); err != nil {
		return err
	}
	tmp := fmt.Sprintf("%s.%016x.tmp", dir, p.cfg.random())
	f, err := p.fs.Open(tmp, vfs.Create|vfs.Exclusive)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Datasync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = p.fs.Rename(tmp, file)
	}
	if err != nil {
		_ = p.fs.Remove(tmp)
		return err
	}
	// The store's directory too: aside/ itself may be new.
	return errors.Join(p.fs.SyncDir(dir), p.fs.SyncDir("."))
}

// readAside reads one file in aside/. A note that is missing or not valid is not an
// error: the lines may still be good, so they are kept for a repair, and told is false.
func (as *asides) readAside(name, file string) (*aside, error) {
	b, err := as.readAll(asideDir + "/" + file)
	if err != nil {
		return nil, err
	}
	a := &aside{file: file, Entry: journal.Entry{Name: name, Pos: asidePos(file), Lines: b}}
	at := bytes.LastIndexByte(bytes.TrimSuffix(b, []byte("\n")), '\n') + 1
	line := bytes.TrimSuffix(b[at:], []byte("\n"))
	var note asideNote
	if !bytes.HasPrefix(line, []byte(`{"aside":`)) || json.Unmarshal(line, &note) != nil {
		return a, nil
	}
	if _, _, err := sessionlog.CheckFrame(line); err != nil {
		return a, nil
	}
	a.UID, a.told = sessionlog.ParseUID(note.UID)
	a.Offset, a.Lines, a.why = note.Off, b[:at], asideWhy{note.Aside == "failed", note.Reason}
	if i := bytes.IndexByte(a.Lines, '\n'); i >= sessionlog.SuffixWidth && at > sessionlog.CRCWidth {
		a.LinePrev, _, err = sessionlog.CheckFrame(a.Lines[:i])
		a.LineCRC = sessionlog.LineCRC(a.Lines)
		a.told = a.told && err == nil
	}
	return a, nil
}

// continuesFailed tells whether an entry directly follows lines that were set aside
// because they could not be written: same log, same offset, same checksum.
func (as *asides) continuesFailed(e *journal.Entry) (bool, error) {
	files, err := as.asides(e.Name)
	for _, file := range files {
		a, err := as.readAside(e.Name, file)
		if err == nil && a.told && a.why.failed && a.UID == e.UID && a.Offset+int64(len(a.Lines)) == e.Offset && a.LineCRC == e.LinePrev {
			return true, nil
		}
	}
	return false, err
}

// asideDamage is the damage of a session that has lines set aside; nil: it has none. It
// takes no lock, so a file may be gone by the time it is read.
func (as *asides) asideDamage(name string, id hansard.SessionID) (*hansard.DamagedError, error) {
	files, err := as.asides(name)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		a, err := as.readAside(name, file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // it was mended just now
		case err != nil || a.why.reason == "":
			return sessionlog.DamagedAt(id, 0, "the log was modified from outside; what was to be written to it is in %s/%s", asideDir, file), nil
		case a.why.failed:
			return sessionlog.DamagedAt(id, 0, "the log could not be written: %s; the lines are kept in %s/%s and are added to the log automatically once it can be written",
				a.why.reason, asideDir, file), nil
		default:
			return sessionlog.DamagedAt(id, 0, "the log was modified from outside: %s; what belongs there is in %s/%s", a.why.reason, asideDir, file), nil
		}
	}
	return nil, nil
}

// setAsideError is damage that may go away by itself: the lines that were set aside may
// be in the log by now. A caller that gets it tries to mend the session, and retries
// (mended).
type setAsideError struct{ *hansard.DamagedError }

func (e *setAsideError) Unwrap() error { return e.DamagedError }

// isSetAside tells whether an error is damage because of lines set aside.
func isSetAside(err error) bool {
	if err == nil {
		return false
	}
	var aside *setAsideError
	return errors.As(err, &aside)
}

// asideError is asideDamage for a caller whose lines were set aside when they were
// written, even if they have been added to the log since.
func (as *asides) asideError(name string, id hansard.SessionID) error {
	if d, err := as.asideDamage(name, id); err != nil {
		return err
	} else if d != nil {
		return d
	}
	return sessionlog.DamagedAt(id, 0, "the log could not be written at that moment")
}

// allAsides are the names of the sessions that have lines set aside. Only a missing
// directory means that there are none.
func (as *asides) allAsides() (map[string]bool, error) {
	names := map[string]bool{}
	entries, err := as.fs.ReadDir(asideDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look what was set aside: %w", err)
	}
	for _, e := range entries {
		if i := strings.LastIndexByte(e.Name, '.'); i > 0 {
			names[e.Name[:i]] = true
		}
	}
	return names, nil
}

// asides are the files of one session in aside/, in the order in which they were written:
// by position, compared as numbers. What follows the name must be a number, or the files
// of "a.1" would be taken for those of "a".
func (as *asides) asides(name string) (files []string, err error) {
	entries, err := as.fs.ReadDir(asideDir)
	// Only a missing directory means that nothing was set aside. If any other error (out
	// of descriptors, say) counted as "nothing", a session with lines set aside would
	// look sound, and their seqs would be assigned twice (TestAsidesUnknown).
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look what was set aside: %w", err)
	}
	for _, e := range entries {
		pos, ok := strings.CutPrefix(e.Name, name+".")
		if _, err := strconv.ParseUint(pos, 10, 64); ok && err == nil {
			files = append(files, e.Name)
		}
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(asidePos(a), asidePos(b)) })
	return files, nil
}

// asidePos is the ring position in a file's name.
func asidePos(file string) uint64 {
	pos, _ := strconv.ParseUint(file[strings.LastIndexByte(file, '.')+1:], 10, 64)
	return pos
}

// dropAsides removes files whose lines are durable in the log or in evidence/, under
// write.lock. If a power cut brings them back, their lines are found to be in the log,
// and they are removed again.
func (as *asides) dropAsides(files []string) error {
	for _, file := range files {
		if err := as.fs.Remove(asideDir + "/" + file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if len(files) == 0 {
		return nil
	}
	return as.fs.SyncDir(asideDir)
}
