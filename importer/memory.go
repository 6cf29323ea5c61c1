package importer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"hansard"
	"hansard/transcript"
)

// Memory remembers which files were imported completely, so that a file that has not changed
// since is not even opened. It is a file that may be deleted at any time.
//
// A note is used only if it still holds: the file system has the same file with the same size,
// times and location, and the session has its last record. A session's records are delivered
// in order, so it has the earlier ones too. A file is remembered only if it had not changed
// for a while before it was read: otherwise a second change within the same tick of the clock
// would go unnoticed. Files with damage, or with an unfinished last line, are always read.
type Memory struct {
	store hansard.Store
	path  string // empty keeps nothing
	now   func() time.Time

	mu    sync.Mutex // guards notes and what they say, and fresh
	notes map[string]*note
	fresh bool // there is something to save
}

// quietTime is how long a file must have been unchanged. Some file systems have timestamps of
// two seconds.
const quietTime = 5 * time.Second

// memoryVersion is in the first line of the file. One of another version is not used.
const memoryVersion = "hansard imports 1"

// tracked is implemented by formats whose Read opens only the source and what it requests from
// the Input.
type tracked interface{ tracked() }

func (claude) tracked()   {}
func (codex) tracked()    {}
func (piFormat) tracked() {}

// note is what is remembered about a file.
type note struct {
	File   string `json:"file"`
	Format string `json:"format"`
	Stamp  string `json:"stamp"`
	// Beside are the stamps of other files that were read or looked for, by their full paths.
	Beside map[string]string `json:"beside,omitempty"`

	Session  string            `json:"session"`
	Parent   string            `json:"parent,omitempty"`
	SubAgent bool              `json:"sub_agent,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	First    string            `json:"first,omitempty"` // with Bare: forkEvidence
	Bare     int               `json:"bare,omitempty"`
	// Event is the id of the last event that was delivered; empty if all records are the
	// parent's.
	Event string `json:"event,omitempty"`

	Records int               `json:"records"`
	Copied  int               `json:"copied,omitempty"`
	Calls   int               `json:"calls,omitempty"`
	Results int               `json:"results,omitempty"`
	Orphans int               `json:"orphans,omitempty"`
	Open    []string          `json:"open,omitempty"`
	Usage   transcript.Tokens `json:"usage"`

	seen     bool // in this process
	verified bool // the store has it, or had it when this process last checked
}

// OpenMemory reads what is remembered about imports into a store. Without a path it remembers
// only as long as it is in use. An unreadable file counts as empty.
func OpenMemory(store hansard.Store, path string) *Memory {
	m := &Memory{store: store, path: path, now: time.Now, notes: map[string]*note{}}
	f, err := os.Open(path)
	if err != nil {
		return m
	}
	defer f.Close()
	dec := json.NewDecoder(bufio.NewReaderSize(f, 256<<10))
	var version string
	if dec.Decode(&version) != nil || version != memoryVersion {
		return m
	}
	for {
		n := &note{}
		if dec.Decode(n) != nil { // the end, or the rest is lost
			return m
		}
		m.notes[n.File] = n
	}
}

// Save writes what is remembered. If several programs save at once, the last one wins.
func (m *Memory) Save() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.path == "" || !m.fresh {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(m.path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(m.path), "imports-*.tmp") // readable only by its owner
	if err != nil {
		return err
	}
	err = errors.Join(m.write(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), m.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	m.fresh = false
	return nil
}

func (m *Memory) write(f io.Writer) error {
	w := bufio.NewWriterSize(f, 256<<10)
	enc := json.NewEncoder(w)
	if err := enc.Encode(memoryVersion); err != nil {
		return err
	}
	for file, n := range m.notes {
		if _, err := os.Lstat(file); !n.seen && errors.Is(err, fs.ErrNotExist) {
			delete(m.notes, file)
			continue
		}
		if err := enc.Encode(n); err != nil {
			return err
		}
	}
	return w.Flush()
}

// stampFile is what the file system says about a regular file: if the content changes, so does
// the stamp. A missing file has an empty one. Not ok: a stamp would prove nothing. at is when
// the file last changed.
func stampFile(info fs.FileInfo) (stamp string, at time.Time, ok bool) {
	dev, ino, changed, ok := inode(info)
	if !ok || !info.Mode().IsRegular() {
		return "", time.Time{}, false
	}
	modified := info.ModTime().UnixNano()
	return fmt.Sprintf("%d:%d:%d:%d:%d", info.Size(), modified, changed, dev, ino), time.Unix(0, max(modified, changed)), true
}

// stampPath is the current stamp of a path.
func stampPath(path string) (stamp string, at time.Time, ok bool) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", time.Time{}, true
	}
	if err != nil {
		return "", time.Time{}, false
	}
	return stampFile(info)
}

// recall completes a source from what is remembered, if the file is still the one that was
// imported.
func (m *Memory) recall(s *Source, formats []Format) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.notes[s.File()]
	if n == nil {
		return false
	}
	n.seen = true
	f, ok := Find(formats, n.Format)
	if !ok || s.mark == "" || s.mark != n.Stamp {
		return false
	}
	for path, want := range n.Beside {
		if stamp, _, known := stampPath(path); !known || stamp != want {
			return false
		}
	}
	if !n.verified && !m.stored(SessionID(f, n.Session), n.Event) {
		delete(m.notes, n.File) // also if the session was deleted: then nothing should mention it
		m.fresh = true
		return false
	}
	n.verified = true
	s.Format, s.Session, s.Parent, s.SubAgent, s.Labels, s.known = f, n.Session, n.Parent, n.SubAgent, n.Labels, n
	s.tell = forkEvidence{first: n.First, bare: n.Bare}
	return true
}

// stored reports whether a session has the event.
func (m *Memory) stored(id hansard.SessionID, event string) bool {
	ctx := context.Background()
	if event == "" {
		_, err := m.store.Stat(ctx, id)
		return err == nil
	}
	for _, err := range m.store.Read(ctx, id, hansard.Range{ID: event}) {
		return err == nil
	}
	return false
}

// reading is the note of a source while it is being read.
type reading struct {
	note  *note
	began time.Time
}

// begin records the state of a source before it is read; nil if it can't be remembered.
func (m *Memory) begin(s *Source) *reading {
	if _, ok := s.Format.(tracked); !ok || m == nil {
		return nil
	}
	r := &reading{began: m.now(), note: &note{File: s.File(), Format: s.Format.Name(), Beside: map[string]string{}}}
	if !r.add(s.File(), &r.note.Stamp) || r.note.Stamp == "" {
		return nil
	}
	return r
}

// add takes the stamp of a file that is about to be read.
func (r *reading) add(path string, stamp *string) bool {
	got, at, ok := stampPath(path)
	if ok = ok && r.began.Sub(at) > quietTime; ok {
		*stamp = got
	}
	return ok
}

// beside records another file that is about to be read.
func (r *reading) beside(path string) {
	if r == nil || r.note == nil {
		return
	}
	stamp := ""
	if !r.add(path, &stamp) {
		r.note = nil // it may have just been written
		return
	}
	r.note.Beside[path] = stamp
}

// end completes the note once everything is stored; nil if the files have changed in the
// meantime, or if there is anything to report again next time.
func (r *reading) end(j *job) *note {
	d := j.sessions[""]
	rep, s := &j.report, j.report.Source
	switch {
	case r == nil || r.note == nil || rep.Err != nil || len(rep.Damage) > 0 || rep.Records == 0:
		return nil
	case len(j.sessions) > 1 || d == nil && j.forks[""] == nil || d != nil && d.renamed.Load():
		return nil
	}
	n := r.note
	check := map[string]string{n.File: n.Stamp}
	for path, stamp := range n.Beside {
		check[path] = stamp
	}
	for path, want := range check {
		if stamp, _, ok := stampPath(path); !ok || stamp != want {
			return nil
		}
	}
	n.Session, n.Parent, n.SubAgent, n.Labels, n.First, n.Bare = s.Session, s.Parent, s.SubAgent, s.Labels, s.tell.first, s.tell.bare
	n.Records, n.Copied, n.Calls, n.Results, n.Orphans, n.Open, n.Usage = rep.Records, rep.Copied, rep.Calls, rep.Results, rep.Orphans, rep.Open, rep.Usage
	if d != nil {
		n.Event = d.lastID
	}
	n.seen, n.verified = true, true
	return n
}

// report repeats what the import of a file reported, without reading it again.
func (n *note) report(r *Report) {
	r.Records, r.Copied, r.Calls, r.Results, r.Orphans, r.Open, r.Usage = n.Records, n.Copied, n.Calls, n.Results, n.Orphans, n.Open, n.Usage
}

// remember keeps a note for the next import.
func (m *Memory) remember(n *note) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes[n.File], m.fresh = n, true
}
