package openclaw

import (
	"errors"
	"maps"

	"hansard/importer"
	"hansard/importer/internal/database"
)

// A session can begin with a copy of another session's entries, including their ids:
//
//   - A fork of a conversation, or a session started with the context of another, has the
//     entries of the path that was active. Its first line has a member parentSession, and its
//     row in session_nodes has a fork_source_session_id.
//   - A fork from a message has the entries before that message, which is the row's
//     fork_source_entry_id. The row belongs to the conversation, and to the first of its
//     sessions: later ones have a previous_session_id.
//   - After a rewind, or a switch to another branch, a conversation continues in a new
//     session that has all entries of the one before, its previous_session_id. After a reset
//     it has none of them. Nothing says which it was: session_windows.reason is mostly NULL.
//
// So these only say where to look. Shared entries are found by comparing. Conversations that
// are reset every day have thousands of sessions, so one that follows another is compared
// only if it begins with the same entry.

// window is what OpenClaw calls a past or current session of a conversation.
type window struct {
	id string
	// Where it is: archives and cold are rows of these tables.
	archives, cold []int64
	live           bool
	// from is the session whose entries it may begin with. follows says that from is merely
	// the one before it.
	from    string
	follows bool
	first   string // its first entry, once it was looked up
	forks   []*window
	read    bool
}

// named is the session that it claims to be a fork of.
func (w *window) named() string {
	if w.follows {
		return ""
	}
	return w.from
}

// windows finds the sessions of the database. It returns those that are not forks of another
// session in it; the others are in their forks.
func (a *agent) windows() ([]*window, error) {
	f := &finder{agent: a, byID: map[string]*window{}}
	for _, find := range []func() error{f.archives, f.cold, f.live, f.lineage} {
		if err := find(); err != nil {
			return nil, err
		}
	}
	return f.families()
}

// finder finds the windows of a database.
type finder struct {
	*agent
	byID map[string]*window
	all  []*window // the oldest first
}

func (f *finder) window(id string) *window {
	w := f.byID[id]
	if w == nil {
		w = &window{id: id}
		f.byID[id], f.all = w, append(f.all, w)
	}
	return w
}

func (f *finder) archives() error {
	if !f.tables[archiveTable] {
		return nil
	}
	err := f.Rows(`SELECT rowid AS n, session_id FROM session_transcript_archives ORDER BY created_at, rowid`, nil, func(row database.Row) error {
		w := f.window(row.Text("session_id"))
		w.archives = append(w.archives, int64(row.Number("n")))
		return nil
	})
	for _, w := range f.all {
		if err == nil {
			err = f.archiveNames(w)
		}
	}
	return err
}

// archiveNames uses what the first line in an archive says. A quarter of a megabyte is more
// than the first compressed block.
func (f *finder) archiveNames(w *window) error {
	return f.Rows(`SELECT encoding, substr(archive_blob, 1, 262144) AS head FROM session_transcript_archives WHERE rowid = ?`, []any{w.archives[0]}, func(row database.Row) error {
		if br, err := f.reader(row.Bytes("head"), row.Text("encoding") == "zstd"); err == nil {
			line, _ := br.ReadBytes('\n') // damage is reported when it is read
			w.names(line)
		}
		return f.ctx.Err()
	})
}

func (f *finder) cold() error {
	if !f.tables[coldTable] {
		return nil
	}
	return f.Rows(`SELECT rowid AS n, session_id FROM session_transcript_cold_archives ORDER BY rowid`, nil, func(row database.Row) error {
		w := f.window(row.Text("session_id"))
		w.cold = append(w.cold, int64(row.Number("n")))
		return nil
	})
}

func (f *finder) live() error {
	for id, more := "", true; more; {
		more = false
		// By the primary key, whatever the number of rows.
		last := id
		err := f.Rows(`SELECT * FROM transcript_events WHERE session_id > ? ORDER BY session_id, seq LIMIT 2`, []any{last}, func(row database.Row) error {
			line, err := f.line(row)
			switch {
			case !more:
				id, more = row.Text("session_id"), true
				w := f.window(id)
				if w.live = true; err == nil {
					w.names(line)
				}
			case err == nil && id == row.Text("session_id") && len(f.byID[id].archives)+len(f.byID[id].cold) == 0:
				rec, _ := importer.PiEntry(importer.Raw{Bytes: line}, &importer.Facts{})
				f.byID[id].first = rec.Same
			}
			return f.ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// names uses what the first line says.
func (w *window) names(line []byte) {
	if parent := importer.PiParent(line); parent != "" && w.from == "" {
		w.from = parent
	}
}

// lineage uses what the tables say about sessions whose first lines name no parent.
func (f *finder) lineage() error {
	nodes, err := f.Columns(nodeTable)
	if err != nil {
		return err
	}
	sources := map[string]string{} // of conversations
	if nodes["fork_source_session_id"] {
		err = f.Rows(`SELECT session_key, fork_source_session_id FROM session_nodes WHERE fork_source_session_id IS NOT NULL`, nil, func(row database.Row) error {
			sources[row.Text("session_key")] = row.Text("fork_source_session_id")
			return nil
		})
	}
	if err != nil {
		return err
	}
	columns, err := f.Columns(windowTable)
	if err != nil || !columns["session_key"] {
		return err
	}
	before := "NULL"
	if columns["previous_session_id"] {
		before = "previous_session_id"
	}
	return f.Rows(`SELECT session_id, session_key, `+before+` AS before FROM session_windows`, nil, func(row database.Row) error {
		w := f.byID[row.Text("session_id")]
		if w == nil || w.from != "" {
			return nil
		}
		if w.from = row.Text("before"); w.from != "" {
			w.follows = true
		} else {
			w.from = sources[row.Text("session_key")]
		}
		return nil
	})
}

// begins is the first entry of a session.
func (f *finder) begins(w *window) (string, error) {
	if w.first != "" {
		return w.first, nil
	}
	found := errors.New("found")
	err := f.Again(f.in, func(rec importer.Record) error {
		if w.first = rec.Same; w.first != "" {
			return found
		}
		return nil
	}, func(db *database.DB) error {
		quiet := *f.agent
		quiet.DB, quiet.mute = db, true
		return quiet.session(w)
	})
	if errors.Is(err, found) {
		err = nil
	}
	return w.first, err
}

// families gives each window its forks, and returns those that are not forks.
func (f *finder) families() (first []*window, err error) {
	for _, w := range f.all {
		from := f.byID[w.from]
		if w.follows && from != nil {
			before, err := f.begins(from)
			if err != nil {
				return nil, err
			}
			now, err := f.begins(w)
			if err != nil {
				return nil, err
			}
			if before != now || now == "" {
				from = nil
			}
		}
		if from != nil {
			from.forks = append(from.forks, w)
			continue
		}
		if w.follows {
			w.from = ""
		}
		first = append(first, w)
	}
	reached := map[*window]bool{}
	reach := func(w *window) {
		for next := []*window{w}; len(next) > 0; {
			w := next[len(next)-1]
			next = next[:len(next)-1]
			if !reached[w] {
				reached[w] = true
				next = append(next, w.forks...)
			}
		}
	}
	for _, w := range first {
		reach(w)
	}
	for _, w := range f.all { // those that are forks of each other, or of themselves
		if !reached[w] {
			w.from = ""
			first = append(first, w)
			reach(w)
		}
	}
	return first, nil
}

// family reads a session, and then its forks.
func (a *agent) family(w *window, from *importer.Source) error {
	if w.read { // a fork of its own fork
		return nil
	}
	w.read = true
	var part *importer.Source
	if w.from != "" || len(w.forks) > 0 {
		var err error
		if part, err = a.part(w, from); err != nil {
			return err
		}
	}
	if w.from != "" {
		if err := a.Emit(importer.Record{Begins: part}); err != nil {
			return err
		}
	}
	if err := a.session(w); err != nil {
		return err
	}
	for _, fork := range w.forks {
		if err := a.family(fork, part); err != nil {
			return err
		}
	}
	return nil
}

// part is a session as a part that can be compared with another.
func (a *agent) part(w *window, from *importer.Source) (*importer.Source, error) {
	s, err := a.describe(w)
	if err != nil {
		return nil, err
	}
	delete(s.labels, importer.LabelModel) // that changes
	if !w.live && len(w.cold) == 0 {
		err = a.Rows(`SELECT session_key, reason FROM session_transcript_archives WHERE rowid = ?`, []any{w.archives[len(w.archives)-1]}, func(row database.Row) error {
			s.labels = archiveLabels(w, row)
			return nil
		})
	}
	maps.DeleteFunc(s.labels, func(_, v string) bool { return v == "" })
	part := a.in.Part(w.id, w.from, from, func(in *importer.Input, emit func(importer.Record) error) error {
		return a.Again(in, emit, func(db *database.DB) error {
			again := *a
			again.DB, again.in = db, in
			return again.session(w)
		})
	})
	part.Parent, part.SubAgent, part.Labels = s.parent, s.started, s.labels
	return part, err
}

// session reads one session. Older content comes first.
func (a *agent) session(w *window) error {
	for _, n := range w.archives {
		if err := a.archive(w, n); err != nil {
			return err
		}
	}
	for _, n := range w.cold {
		if err := a.cold(w, n); err != nil {
			return err
		}
	}
	if !w.live {
		return nil
	}
	return a.live(w)
}
