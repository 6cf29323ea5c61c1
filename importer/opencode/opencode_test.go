package opencode

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hansard"
	"hansard/importer"
	"hansard/memstore"
	"hansard/transcript"
)

const (
	user   = `{"role":"user","agent":"build","model":{"providerID":"anthropic","modelID":"m-1"},"time":{"created":1770000000000}}`
	answer = `{"role":"assistant","parentID":"msg_1","modelID":"m-1","providerID":"anthropic","cost":0.012,"tokens":{"input":9,"output":40,"reasoning":1,"cache":{"read":300,"write":2}},"time":{"created":1770000001000}}`
)

var parts = []struct{ message, id, data string }{
	{"msg_1", "prt_1", `{"type":"text","text":"list the files"}`},
	{"msg_2", "prt_2", `{"type":"reasoning","text":"hm","time":{"start":1}}`},
	{"msg_2", "prt_3", `{"type":"tool","callID":"call_1","tool":"bash","state":{"status":"completed","input":{"command":"ls"},"output":"a.go"}}`},
	{"msg_2", "prt_4", `{"type":"tool","callID":"call_2","tool":"bash","state":{"status":"running","input":{}}}`},
	{"msg_2", "prt_5", `{"type":"step-finish","reason":"stop","cost":0.01}`},
	{"msg_2", "prt_6", `{"type":"compaction","auto":true}`},
	{"msg_2", "prt_7", `{"type":"hologram"}`},
}

var used = transcript.Tokens{Input: 9, Output: 40, Reasoning: 1, CacheRead: 300, CacheWrite: 2}

// makeDatabase makes a database as opencode has it, in WAL mode, and leaves it open.
func makeDatabase(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	do(t, db, `CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, directory TEXT, title TEXT, version TEXT, time_created INTEGER, time_updated INTEGER);
		CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
		CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
		CREATE TABLE session_message (id TEXT PRIMARY KEY, session_id TEXT, type TEXT, seq INTEGER, time_created INTEGER, data TEXT)`)
	do(t, db, `INSERT INTO session VALUES ('ses_1','p',NULL,'/w','Listing','1.2',1770000000000,1), ('ses_2','p','ses_1','/w','Sub','1.2',1770000000000,1)`)
	do(t, db, `INSERT INTO message VALUES ('msg_1','ses_1',1770000000000,1,?), ('msg_2','ses_1',1770000001000,1,?)`, user, answer)
	for _, p := range parts {
		do(t, db, `INSERT INTO part VALUES (?,?,'ses_1',1770000001000,1,?)`, p.id, p.message, p.data)
	}
	do(t, db, `INSERT INTO session_message VALUES ('msg_9','ses_2','user',1,1770000002000,'{"type":"user","text":"go"}'), ('msg_a','ses_2','assistant',2,1770000003000,'{"content":[{"type":"tool","id":"c9","state":{"status":"completed"}}]}')`)
	return db
}

func do(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, store hansard.Store, dir string) importer.Report {
	t.Helper()
	sources, err := importer.Named([]importer.Format{Format{}}, []string{dir})
	if err != nil || len(sources) != 1 {
		t.Fatalf("%d sources, %v", len(sources), err)
	}
	var report importer.Report
	if err := (&importer.Engine{Store: store}).Run(context.Background(), sources, func(r importer.Report) { report = r }); err != nil {
		t.Fatal(err)
	}
	if report.Err != nil {
		t.Fatal(report.Err)
	}
	return report
}

// kinds are those of a session's events; and data is byte for byte that of the rows.
func kinds(t *testing.T, store hansard.Store, id hansard.SessionID) string {
	t.Helper()
	var out []string
	for e, err := range store.Read(context.Background(), id, hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Kind)
		for _, p := range parts {
			if e.ID == p.id && string(e.Data) != p.data {
				t.Errorf("%s is %s, want %s", e.ID, e.Data, p.data)
			}
		}
	}
	return strings.Join(out, " ")
}

const want = "meta meta message usage reasoning tool_call tool_call meta summary raw"

func TestDatabase(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "opencode.db")
	db := makeDatabase(t, path) // which goes on using it
	store := memstore.New()
	defer store.Close()
	r := run(t, store, dir)
	if got := kinds(t, store, "opencode:ses_1"); got != want {
		t.Errorf("kinds %s, want %s", got, want)
	}
	if got := kinds(t, store, "opencode:ses_2"); got != "meta message message" {
		t.Errorf("kinds %s", got)
	}
	if r.Usage != used || r.Calls != 3 || len(r.Open) != 1 || r.Open[0] != "call_2" {
		t.Errorf("%+v", r)
	}
	info, err := store.Stat(context.Background(), "opencode:ses_2")
	if err != nil || info.Title != "Sub" || info.Labels["parent"] != "opencode:ses_1" || info.Labels["cwd"] != "/w" {
		t.Errorf("%+v, %v", info, err)
	}
	if r := run(t, store, dir); r.Added != 0 {
		t.Errorf("%d events were added again", r.Added)
	}
	changed := `{"type":"tool","callID":"call_2","tool":"bash","state":{"status":"completed","input":{},"output":"ok"}}`
	do(t, db, `UPDATE part SET data = ? WHERE id = 'prt_4'`, changed)
	for i, n := range []int{1, 0} {
		if r := run(t, store, dir); r.Added != n {
			t.Errorf("import %d after a change added %d events, want %d", i, r.Added, n)
		}
	}
	if got := kinds(t, store, "opencode:ses_1"); got != want+" revision" {
		t.Errorf("kinds %s", got)
	}
}

// TestClosedDatabase: one that nobody has open, and that may not be written to, is read,
// and nothing is left beside it.
func TestClosedDatabase(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "opencode.db")
	if err := makeDatabase(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	store := memstore.New()
	defer store.Close()
	run(t, store, dir)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if got := kinds(t, store, "opencode:ses_1"); got != want {
		t.Errorf("kinds %s, want %s", got, want)
	}
}

func TestTree(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) {
		path := filepath.Join(dir, "storage", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("session/p/ses_1.json", `{"id":"ses_1","version":"0.9","title":"Listing","directory":"/w","time":{"created":1770000000000}}`)
	write("message/ses_1/msg_1.json", user)
	write("message/ses_1/msg_2.json", answer)
	for _, p := range parts {
		write("part/"+p.message+"/"+p.id+".json", p.data)
	}
	write("part/msg_2/prt_8.json", `{"type":`)
	store := memstore.New()
	defer store.Close()
	r := run(t, store, dir)
	if got := kinds(t, store, "opencode:ses_1"); got != want || r.Usage != used || len(r.Damage) != 1 {
		t.Errorf("kinds %s, want %s; %+v", got, want, r)
	}
	if r := run(t, store, dir); r.Added != 0 {
		t.Errorf("%d events were added again", r.Added)
	}
}
