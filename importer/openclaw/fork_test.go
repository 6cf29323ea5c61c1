package openclaw

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore"
	"hansard/importer"
	"hansard/memstore"
)

// header is the first line of a session; parent is what it names as such, if anything.
func header(id, parent string) string {
	if parent != "" {
		parent = `,"parentSession":"` + parent + `"`
	}
	return `{"type":"session","version":3,"id":"` + id + `","timestamp":"2026-08-01T10:00:00Z","cwd":"/w"` + parent + `}`
}

// marker is how OpenClaw names a session in a database.
func marker(id string) string {
	return "sqlite:main:" + id + ":/home/u/.openclaw/agents/main/agent/openclaw-agent.sqlite"
}

// said is an entry. Some have a call of a tool, or its result, and tokens.
func said(id string) string {
	message := `"role":"user","content":[{"type":"text","text":"` + id + ` says"}]`
	switch id[len(id)-1] {
	case '2':
		message = `"role":"assistant","model":"m-` + id + `","content":[{"type":"toolCall","id":"c` + id + `","name":"bash","arguments":{}}],"usage":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4}`
	case '3':
		message = `"role":"toolResult","toolCallId":"c` + id[:len(id)-1] + `2","toolName":"bash","content":[]`
	}
	return `{"type":"message","id":"` + id + `","parentId":null,"timestamp":"2026-08-01T10:00:01Z","message":{` + message + `}}`
}

// family is what the sessions of a database are: their lines, and what the tables say of them.
type family map[string]*member

type member struct {
	key    string // of the conversation; its own id if empty
	parent string // what the first line names
	source string // the conversation's fork_source_session_id
	before string // previous_session_id
	by     string // who started it
	says   []string
}

func (m *member) lines(id string) []string {
	lines := []string{header(id, m.parent)}
	for _, id := range m.says {
		lines = append(lines, said(id))
	}
	return lines
}

// relatives are a session, which comes last in any list by ids, and its forks: from a message
// (f), of that the rewound one (d), then one from a message of that (c), and of the whole of
// the first with the marker in its first line (e), which was started by it (a).
func relatives() family {
	ours := []string{"p1", "p2", "p3", "p4", "p5", "p6"}
	return family{
		"z": {says: ours},
		"f": {source: "z", key: "k", says: append(slices.Clone(ours[:3]), "f1", "f2", "f3")},
		"d": {source: "z", key: "k", before: "f", says: append(slices.Clone(ours[:3]), "f1", "f2", "f3", "d1", "d2")},
		"c": {source: "d", says: append(slices.Clone(ours[:3]), "f1", "f2", "f3", "d1", "c1")},
		"e": {parent: marker("z"), source: "z", says: append(slices.Clone(ours), "e1")},
		"a": {parent: marker("z"), by: "z", says: append(slices.Clone(ours), "a1")},
	}
}

// origins are where these are forks of, by the seq of the last common event.
var origins = map[string]hansard.Parent{
	"f": {ID: "openclaw:z", At: 4}, "d": {ID: "openclaw:f", At: 9}, "c": {ID: "openclaw:d", At: 12},
	"e": {ID: "openclaw:z", At: 7}, "a": {ID: "openclaw:z", At: 7},
}

// describe writes the tables that say how sessions are related.
func (f family) describe(t testing.TB, db *sql.DB) {
	t.Helper()
	for _, id := range slices.Sorted(maps.Keys(f)) {
		m := f[id]
		key, current := m.key, id
		if key == "" {
			key = id
		}
		for other, o := range f { // the last one of the conversation
			if o.key == key && o.before == id {
				current = other
			}
		}
		do(t, db, `INSERT OR REPLACE INTO session_nodes VALUES (?,?,'{}',NULLIF(?,''),NULL)`, "agent:main:"+key, current, m.source)
		by := m.by
		if by != "" {
			by = "agent:main:" + by
		}
		do(t, db, `INSERT OR REPLACE INTO session_windows VALUES (?,?,NULLIF(?,''),NULL,1,NULL,NULLIF(?,''))`, id, "agent:main:"+key, m.before, by)
	}
}

// write makes rows of the lines of a session up to one.
func (f family) write(t testing.TB, db *sql.DB, id string, to int) {
	t.Helper()
	for seq, line := range f[id].lines(id) {
		if seq < to {
			do(t, db, `INSERT OR IGNORE INTO transcript_events VALUES (?,?,?,?,NULL,NULL)`, id, seq, line, 1770000000000+seq)
		}
	}
}

func (f family) database(t testing.TB, dir string) *sql.DB {
	t.Helper()
	db := makeDatabase(t, dir)
	f.describe(t, db)
	for id := range f {
		f.write(t, db, id, 1000)
	}
	return db
}

// check compares the sessions of a store with the rows: each has all entries of its own, once,
// in order, byte for byte.
func (f family) check(t *testing.T, when string, store hansard.Store) {
	t.Helper()
	for id, m := range f {
		want := m.lines(id)[1:]
		var got []string
		headers := 0
		for e, err := range store.Read(context.Background(), hansard.SessionID("openclaw:"+id), hansard.Range{}) {
			switch {
			case err != nil:
				t.Fatal(when, id, err)
			case string(e.Data) == header(id, m.parent):
				headers++
			case !e.StoresOwn() && !strings.Contains(string(e.Data), `"type":"session"`):
				got = append(got, string(e.Data))
			}
		}
		if !slices.Equal(got, want) || headers != 1 {
			t.Errorf("%s: %s has %d entries and %d first lines\n%s\nwant\n%s", when, id, len(got), headers, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func parentOf(t *testing.T, store hansard.Store, id string) (p hansard.Parent, labels map[string]string) {
	t.Helper()
	info, err := store.Stat(context.Background(), hansard.SessionID("openclaw:"+id))
	if err != nil {
		t.Fatal(id, err)
	}
	if info.Parent != nil {
		p = *info.Parent
	}
	return p, info.Labels
}

// TestForks: sessions that begin with a copy of another one's entries are forks in the store,
// of forks too, and nothing is stored or counted twice.
func TestForks(t *testing.T) {
	dir, store := t.TempDir(), memstore.New()
	defer store.Close()
	all := relatives()
	db := all.database(t, dir)
	do(t, db, `UPDATE session_nodes SET label = 'My work' WHERE session_key = 'agent:main:z'`)
	r := imported(t, store, dir)
	if r.Remark != "" || r.Copied != 3+6+7+6+6 || r.Records != 48 || r.Added != 48-r.Copied {
		t.Errorf("%d records, %d copied, %d added, %q", r.Records, r.Copied, r.Added, r.Remark)
	}
	if r.Calls != 3 || len(r.Open) != 1 || r.Orphans != 0 || r.Usage.Input != 3 {
		t.Errorf("%d calls, %d open, %d orphans, %d tokens", r.Calls, len(r.Open), r.Orphans, r.Usage.Input)
	}
	all.check(t, "once", store)
	for id, want := range origins {
		got, labels := parentOf(t, store, id)
		if got != want || labels["forked-at"] != "" || labels["source"] != id {
			t.Errorf("%s is a fork of %v with %v, want %v", id, got, labels, want)
		}
	}
	_, labels := parentOf(t, store, "a")
	if labels["parent"] != "openclaw:z" || labels["key"] != "agent:main:a" {
		t.Errorf("who was started has the labels %v", labels)
	}
	if _, labels := parentOf(t, store, "f"); labels["parent"] != "" || labels["key"] != "agent:main:k" || labels["model"] != "m-f2" {
		t.Errorf("a fork has the labels %v", labels)
	}
	for id, want := range map[hansard.SessionID]string{"openclaw:z": "My work", "openclaw:f": "p1 says"} {
		if info, err := store.Stat(t.Context(), id); err != nil || info.Title != want {
			t.Errorf("%s has the title %q, %v", id, info.Title, err)
		}
	}
	before := contents(t, store)
	for range 2 {
		if r := imported(t, store, dir); r.Added != 0 || r.Remark != "" || r.Copied != 28 {
			t.Errorf("again: %d events were added, %d copied, %q", r.Added, r.Copied, r.Remark)
		}
	}
	if !maps.Equal(before, contents(t, store)) {
		t.Error("another import changed the sessions")
	}
	if r := imported(t, nil, dir); r.Copied != 28 {
		t.Errorf("without a store %d are copied", r.Copied)
	}
}

// TestForkCuts: however far a session and its forks were at three imports, each has its
// entries once, in order, and a fourth import adds nothing.
func TestForkCuts(t *testing.T) {
	all := relatives()
	ids := slices.Sorted(maps.Keys(all))
	for which := range len(ids) + 1 { // each is cut by itself, and all of them together
		for first := range 10 {
			dir, store := t.TempDir(), memstore.New()
			db := makeDatabase(t, dir)
			all.describe(t, db)
			for _, to := range []int{first, first + (10-first)/2, 10} {
				for i, id := range ids {
					if i != which && which != len(ids) {
						all.write(t, db, id, 10)
					} else {
						all.write(t, db, id, to)
					}
				}
				imported(t, store, dir)
			}
			when := fmt.Sprintf("session %d cut at %d", which, first)
			if r := imported(t, store, dir); r.Added != 0 {
				t.Errorf("%s: %d events were added at the end", when, r.Added)
			}
			all.check(t, when, store)
			_ = store.Close()
			_ = db.Close()
		}
	}
}

// TestForkProcesses: four processes that import at once store everything once, while the
// sessions grow on both sides.
func TestForkProcesses(t *testing.T) {
	const here = "HANSARD_TEST_OPENCLAW"
	if dir := os.Getenv(here); dir != "" {
		store, err := filestore.Open(filepath.Join(dir, "store"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		imported(t, store, dir)
		return
	}
	dir := t.TempDir()
	all := relatives()
	db := makeDatabase(t, dir)
	all.describe(t, db)
	for _, to := range []int{5, 7, 10} {
		for id := range all {
			all.write(t, db, id, to)
		}
		var running []*exec.Cmd
		for range 4 {
			c := exec.Command(os.Args[0], "-test.run=^TestForkProcesses$", "-test.v")
			c.Env, c.Stderr = append(os.Environ(), here+"="+dir), os.Stderr
			out := &strings.Builder{}
			c.Stdout = out
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if t.Failed() {
					t.Log(out)
				}
			}()
			running = append(running, c)
		}
		for _, c := range running {
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
	store, err := filestore.Open(filepath.Join(dir, "store"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	all.check(t, "four processes", store)
	for id := range origins {
		if p, _ := parentOf(t, store, id); p.ID == "" {
			t.Errorf("%s is not a fork", id)
		}
	}
	if r := imported(t, store, dir); r.Added != 0 {
		t.Errorf("%d events were added at the end", r.Added)
	}
}

// TestForkUnlike: where a fork would not be exact, labels and the report say so.
func TestForkUnlike(t *testing.T) {
	ctx := context.Background()
	const own = "f f1 f2 f3"
	const whole = "f p1 p2 p3 f1 f2 f3"
	apart := map[string]string{"parent": "openclaw:z", "forked-at": "4", "forked-record": ""}
	cases := []struct {
		name   string
		change func(f family)
		do     func(s hansard.Store) error
		update string // of the rows, before the second import
		has    string
		labels map[string]string
		remark string
	}{
		{name: "deleted", has: whole, labels: map[string]string{"parent": "openclaw:z", "forked-at": ""}, remark: "session openclaw:f: it repeats records of openclaw:z, which was deleted here",
			do: func(s hansard.Store) error { return s.Delete(ctx, "openclaw:z", "") }},
		{name: "redacted", has: own, labels: apart, remark: "seq 3 of openclaw:z was redacted",
			do: func(s hansard.Store) error {
				_, err := s.Redact(ctx, "openclaw:z", hansard.Redaction{Seqs: []hansard.Seq{3}, Reason: "r"})
				return err
			}},
		{name: "redacted behind the fork", has: "z p1 p2 p3 " + own, labels: map[string]string{"forked-at": "", "forked-record": "p3"},
			do: func(s hansard.Store) error {
				_, err := s.Redact(ctx, "openclaw:z", hansard.Redaction{Seqs: []hansard.Seq{5}, Reason: "r"})
				return err
			}},
		{name: "a branch", has: own, labels: map[string]string{"parent": "openclaw:z", "forked-at": "5"}, remark: "it does not repeat all",
			change: func(f family) { f["z"].says = slices.Insert(f["z"].says, 1, "y1") }},
		{name: "rewritten", has: own, labels: apart, remark: "openclaw:z has other events than its source",
			update: `UPDATE transcript_events SET event_json = replace(event_json, 'p1 says', 'p1 said')`},
		{name: "another parent", has: whole, labels: map[string]string{"parent": "openclaw:gone", "forked-at": ""}, remark: "openclaw:gone, which is not in this source",
			change: func(f family) { f["f"].source = "gone" }},
		{name: "nothing shared", has: "f f1 f2 f3", labels: map[string]string{"parent": "openclaw:z", "forked-at": ""},
			change: func(f family) { f["f"].says = []string{"f1", "f2", "f3"} }},
		{name: "only after it", has: "f f1 f2 f3", labels: map[string]string{"parent": "", "forked-at": ""},
			change: func(f family) { f["f"].before, f["f"].says = "z", []string{"f1", "f2", "f3"} }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir, store := t.TempDir(), memstore.New()
			defer store.Close()
			all := family{"z": relatives()["z"], "f": relatives()["f"]}
			if c.change != nil {
				c.change(all)
			}
			db := makeDatabase(t, dir)
			all.describe(t, db)
			all.write(t, db, "z", 10)
			imported(t, store, dir)
			if c.do != nil {
				if err := c.do(store); err != nil {
					t.Fatal(err)
				}
			}
			all.write(t, db, "f", 10)
			if c.update != "" {
				do(t, db, c.update)
			}
			reports, _ := run(store, dir) // a session that was deleted is an error
			if len(reports) != 1 || (c.remark == "") != (reports[0].Remark == "") || !strings.Contains(reports[0].Remark, c.remark) {
				t.Fatalf("%+v", reports)
			}
			if got := entries(t, store, "f"); got != c.has {
				t.Errorf("it has %s, want %s", got, c.has)
			}
			_, labels := parentOf(t, store, "f")
			for k, v := range c.labels {
				if labels[k] != v {
					t.Errorf("label %s is %q, want %q", k, labels[k], v)
				}
			}
			if reports, _ = run(store, dir); reports[0].Added != 0 || reports[0].Remark != "" {
				t.Errorf("again: %d were added, %q", reports[0].Added, reports[0].Remark)
			}
		})
	}
}

// entries are the ids of the lines that a session has, in order.
func entries(t *testing.T, store hansard.Store, id string) string {
	t.Helper()
	var ids []string
	for e, err := range store.Read(context.Background(), hansard.SessionID("openclaw:"+id), hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, ok := strings.Cut(string(e.Data), `"id":"`); ok {
			id, _, _ := strings.Cut(rest, `"`)
			if ids = append(ids, id); e.Kind == "revision" {
				ids[len(ids)-1] += "!"
			}
		}
	}
	return strings.Join(ids, " ")
}

// TestForkOfStarted: a fork of a session that another one started is not one that it started.
func TestForkOfStarted(t *testing.T) {
	dir, store := t.TempDir(), memstore.New()
	defer store.Close()
	all := family{"z": {says: []string{"p1"}}, "a": {by: "z", says: []string{"a1"}}, "b": {source: "a", says: []string{"a1", "b1"}}}
	all.database(t, dir)
	imported(t, store, dir)
	for id, want := range map[string]string{"a": "openclaw:z", "b": "openclaw:a"} {
		if _, labels := parentOf(t, store, id); labels["parent"] != want {
			t.Errorf("%s has the parent %q, want %q", id, labels["parent"], want)
		}
	}
	if p, _ := parentOf(t, store, "b"); p != (hansard.Parent{ID: "openclaw:a", At: 2}) {
		t.Errorf("it is a fork of %v", p)
	}
}

// TestForkRewritten: an entry that OpenClaw changes later in what a fork shares is stored
// where it was changed.
func TestForkRewritten(t *testing.T) {
	dir, store := t.TempDir(), memstore.New()
	defer store.Close()
	all := family{"z": relatives()["z"], "f": relatives()["f"]}
	db := all.database(t, dir)
	imported(t, store, dir)
	do(t, db, `UPDATE transcript_events SET event_json = replace(event_json, 'p1 says', 'p1 said') WHERE session_id = 'f'`)
	for i, n := range []int{1, 0} {
		if r := imported(t, store, dir); r.Added != n {
			t.Errorf("import %d added %d events, want %d", i, r.Added, n)
		}
	}
	if f, z := entries(t, store, "f"), entries(t, store, "z"); f != "z p1 p2 p3 f f1 f2 f3 p1!" || z != "z p1 p2 p3 p4 p5 p6" {
		t.Errorf("the fork has %s, its parent %s", f, z)
	}
}

// TestForkCircle: sessions that are said to be forks of each other are all imported.
func TestForkCircle(t *testing.T) {
	dir, store := t.TempDir(), memstore.New()
	defer store.Close()
	all := family{
		"a": {before: "c", says: []string{"p1", "a1"}}, "b": {before: "a", says: []string{"p1", "b1"}}, "c": {before: "b", says: []string{"p1", "c1"}},
		"d": {before: "b", says: []string{"p1", "d1"}}, "e": {before: "e", says: []string{"e1"}}, "f": {parent: marker("f"), source: "f", says: []string{"f1"}},
	}
	all.database(t, dir)
	for i, n := range []int{13, 0} { // p1 is shared by four
		if r := imported(t, store, dir); r.Added != n {
			t.Errorf("import %d added %d events, want %d", i, r.Added, n)
		}
	}
	all.check(t, "a circle", store)
}

// TestResets: a session that only comes after another one of the conversation is not compared
// with it: there may be thousands.
func TestResets(t *testing.T) {
	dir := t.TempDir()
	all := family{
		"w1": {key: "k", says: []string{"p1", "p2"}}, "w2": {key: "k", before: "w1", says: []string{"q1"}}, "w3": {key: "k", before: "w2", says: []string{"q1", "r1"}},
		"w4": {key: "k", before: "w3"}, "w5": {key: "k", before: "w4"}, "w6": {key: "k", before: "gone", says: []string{"p1"}},
	}
	all.database(t, dir)
	sources, err := importer.Named(importer.Formats(New()), []string{dir})
	if err != nil || len(sources) != 1 {
		t.Fatal(sources, err)
	}
	var compared []string
	records := 0
	err = readDatabase(t.Context(), &importer.Input{Source: sources[0]}, func(rec importer.Record) error {
		if rec.Begins != nil {
			compared = append(compared, rec.Begins.Session)
		} else {
			records++
		}
		return nil
	})
	if err != nil || records != 12 || !slices.Equal(compared, []string{"w3"}) {
		t.Errorf("%q are compared, %d records, %v", compared, records, err)
	}
}

// TestForkPutAway: a parent that was put away, and a fork that was deleted.
func TestForkPutAway(t *testing.T) {
	dir, store := t.TempDir(), memstore.New()
	defer store.Close()
	all := relatives()
	db := makeDatabase(t, dir)
	all.describe(t, db)
	for _, id := range []string{"z", "f", "d", "a"} {
		all.write(t, db, id, 10)
	}
	// f, which a rewind left behind, and z were put away; e was deleted, with what the
	// tables said of it.
	for id, sum := range map[string]string{"z": "", "f": "wrong"} {
		blob := pack(t, coldOf(all[id].lines(id)))
		do(t, db, `INSERT INTO session_transcript_cold_archives VALUES (?, 'x', ?, 'sqlite', ?)`, id, sum, blob)
		do(t, db, `DELETE FROM transcript_events WHERE session_id = ?`, id)
	}
	do(t, db, `DELETE FROM session_windows WHERE session_id = 'e'`)
	do(t, db, `DELETE FROM session_nodes WHERE session_key = 'agent:main:e'`)
	blob := pack(t, strings.Join(all["e"].lines("e"), "\n")+"\n")
	do(t, db, `INSERT INTO session_transcript_archives VALUES ('e', 'g', 'agent:main:e', 'deleted', 'zstd', ?, ?, 'n', 1)`, blob, sumOf(blob))
	delete(all, "c")
	for i := range 2 {
		if r := imported(t, store, dir); r.Remark != "" || len(r.Damage) != 1 || i == 1 && r.Added != 0 {
			t.Errorf("import %d: %d added, damage %v, %s", i, r.Added, r.Damage, r.Remark)
		}
	}
	all.check(t, "put away", store)
	for id := range all {
		if p, _ := parentOf(t, store, id); p != origins[id] {
			t.Errorf("%s is a fork of %v, want %v", id, p, origins[id])
		}
	}
	if _, labels := parentOf(t, store, "e"); labels["archived"] != "deleted" || labels["key"] != "agent:main:e" {
		t.Errorf("what was deleted has the labels %v", labels)
	}
}

// TestForkOfDeleted: a fork of a session that OpenClaw deleted has no label that says that it
// was deleted itself, unless it was.
func TestForkOfDeleted(t *testing.T) {
	for _, both := range []bool{false, true} {
		dir, store := t.TempDir(), memstore.New()
		defer store.Close()
		all := family{"z": relatives()["z"], "e": relatives()["e"]}
		db := all.database(t, dir)
		for id := range all {
			if id == "z" || both {
				plain := []byte(strings.Join(all[id].lines(id), "\n") + "\n")
				do(t, db, `DELETE FROM transcript_events WHERE session_id = ?`, id)
				do(t, db, `INSERT INTO session_transcript_archives VALUES (?, 'g', '', 'deleted', 'identity', ?, ?, 'n', 1)`, id, plain, sumOf(plain))
			}
		}
		r := imported(t, store, dir)
		p, labels := parentOf(t, store, "e")
		switch has := entries(t, store, "e"); {
		case both:
			if labels["archived"] != "deleted" || p != origins["e"] || has != "z p1 p2 p3 p4 p5 p6 e e1" || r.Remark != "" {
				t.Errorf("%v, %v: %s, %q", p, labels, has, r.Remark)
			}
		case labels["archived"] != "" || p.ID != "" || labels["forked-at"] != "7" || has != "e e1" || !strings.Contains(r.Remark, `the parent's label "archived"`):
			t.Errorf("%v, %v: %s, %q", p, labels, has, r.Remark)
		}
	}
}

// TestForkInFile: a file that OpenClaw wrote of a session in its database names the parent as
// the database does.
func TestForkInFile(t *testing.T) {
	dir, store := t.TempDir(), memstore.New()
	defer store.Close()
	all := family{"z": relatives()["z"], "e": relatives()["e"]}
	sessions := filepath.Join(dir, "agents", "main", "sessions")
	if err := os.MkdirAll(sessions, 0o700); err != nil {
		t.Fatal(err)
	}
	for id, file := range map[string]string{"z": "z.jsonl", "e": "e.jsonl.deleted.2026-09-01T00-00-00.000Z"} {
		if err := os.WriteFile(filepath.Join(sessions, file), []byte(strings.Join(all[id].lines(id), "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := run(store, dir); err != nil {
		t.Fatal(err)
	}
	all.check(t, "files", store)
	if p, _ := parentOf(t, store, "e"); p != origins["e"] {
		t.Errorf("it is a fork of %v, want %v", p, origins["e"])
	}
}
