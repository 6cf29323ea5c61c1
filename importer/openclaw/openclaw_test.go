package openclaw

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"hansard"
	"hansard/importer"
	"hansard/memstore"
	"hansard/transcript"
)

// The lines of a session, with everything that one can have. %s is its id.
var lines = []string{
	`{"type":"session","version":3,"id":"%s","timestamp":"2026-08-01T10:00:00Z","cwd":"/w"}`,
	`{"type":"message","id":"00000001","parentId":null,"timestamp":"2026-08-01T10:00:01Z","message":{"role":"user","content":[{"type":"text","text":"Grüße\u2028🦞"}]}}`,
	`{"type":"message","id":"00000002","parentId":"00000001","timestamp":"2026-08-01T10:00:02Z","message":{"role":"assistant","model":"m-1","content":[{"type":"thinking","thinking":"hm","thinkingSignature":"s"},{"type":"toolCall","id":"c1","name":"bash","arguments":{"command":"ls"}}],"usage":{"input":5,"output":6,"cacheRead":7,"cacheWrite":8}}}`,
	`{"type":"message","id":"00000003","parentId":"00000002","timestamp":"2026-08-01T10:00:03Z","message":{"role":"toolResult","toolCallId":"c1","toolName":"bash","isError":true,"content":[{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]}}`,
	`{"type":"compaction","id":"00000004","parentId":"00000003","timestamp":"2026-08-01T10:00:04Z","summary":"so far","firstKeptEntryId":"00000003","tokensBefore":1000}`,
	`{"type":"wormhole","id":"00000005", "parentId":"00000004","timestamp":"2026-08-01T10:00:05Z","text":"kept as it is"}`,
	`{"type":"leaf","parentId":"00000004","timestamp":"2026-08-01T10:00:06Z"}`,
}

const wantKinds = "meta message tool_call tool_result summary raw raw"

var used = transcript.Tokens{Input: 5, Output: 6, CacheRead: 7, CacheWrite: 8}

func lineOf(id string, n int) string { return strings.Replace(lines[n], "%s", id, 1) }

func pack(t testing.TB, text string) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll([]byte(text), nil)
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func do(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		t.Fatal(err)
	}
}

// makeDatabase makes the database of an agent, in WAL mode, without a session, and leaves it
// open.
func makeDatabase(t testing.TB, dir string) *sql.DB {
	t.Helper()
	path := filepath.Join(dir, "agents", "main", "agent", databaseName)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	do(t, db, `CREATE TABLE session_nodes (session_key TEXT PRIMARY KEY, current_session_id TEXT, entry_json TEXT, fork_source_session_id TEXT, label TEXT) STRICT;
		CREATE TABLE session_windows (session_id TEXT PRIMARY KEY, session_key TEXT, previous_session_id TEXT, reason TEXT, created_at INTEGER, model TEXT, spawned_by TEXT) STRICT;
		CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT, created_at INTEGER, event_zstd BLOB, event_utf8_bytes INTEGER, PRIMARY KEY (session_id, seq)) STRICT;
		CREATE TABLE session_transcript_archives (session_id TEXT, generation TEXT, session_key TEXT, reason TEXT, encoding TEXT, archive_blob BLOB, archive_sha256 TEXT, archive_name TEXT, created_at INTEGER, PRIMARY KEY (session_id, generation)) STRICT;
		CREATE TABLE session_transcript_cold_archives (session_id TEXT PRIMARY KEY, archive_name TEXT, archive_sha256 TEXT, storage TEXT, archive_blob BLOB) STRICT;
		CREATE TABLE auth_profile_store (store_key TEXT PRIMARY KEY, store_json TEXT) STRICT;
		INSERT INTO auth_profile_store VALUES ('k', '{"token":"sk-secret"}')`)
	return db
}

// insert puts lines of a session into rows; the one with the compaction is packed.
func insert(t testing.TB, db *sql.DB, id string, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		line := lineOf(id, n)
		if n == 4 {
			do(t, db, `INSERT INTO transcript_events VALUES (?,?,NULL,?,?,?)`, id, n, 1770000000000+n, pack(t, line), len(line))
			continue
		}
		do(t, db, `INSERT INTO transcript_events VALUES (?,?,?,?,NULL,NULL)`, id, n, line, 1770000000000+n)
	}
}

// converse says which conversation a session belongs to.
func converse(t testing.TB, db *sql.DB, id, key, spawnedBy string) {
	t.Helper()
	do(t, db, `INSERT OR REPLACE INTO session_nodes VALUES (?,?,'{}',NULL,NULL)`, key, id)
	do(t, db, `INSERT INTO session_windows VALUES (?,?,NULL,'initial',1,NULL,NULLIF(?,''))`, id, key, spawnedBy)
}

func run(store hansard.Store, dir string) (reports []importer.Report, err error) {
	sources, err := importer.Named(importer.Formats(New()), []string{dir})
	if err != nil {
		return nil, err
	}
	err = (&importer.Engine{Store: store}).Run(context.Background(), sources, func(r importer.Report) { reports = append(reports, r) })
	for _, r := range reports {
		if err == nil {
			err = r.Err
		}
	}
	return reports, err
}

func imported(t testing.TB, store hansard.Store, dir string) importer.Report {
	t.Helper()
	reports, err := run(store, dir)
	if err != nil || len(reports) != 1 {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	return reports[0]
}

// contents is what the store has, by session.
func contents(t testing.TB, store hansard.Store) map[hansard.SessionID]string {
	t.Helper()
	out := map[hansard.SessionID]string{}
	for info, err := range store.List(context.Background(), hansard.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "%q %v %s\n", info.Title, info.Labels, info.State)
		for e, err := range store.Read(context.Background(), info.ID, hansard.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%d %s %s %s %v %s\n", e.Seq, e.ID, e.Kind, e.Role, e.At, e.Data)
		}
		out[info.ID] = b.String()
	}
	return out
}

func kinds(t testing.TB, store hansard.Store, id hansard.SessionID) string {
	t.Helper()
	var out []string
	n := 0
	for e, err := range store.Read(context.Background(), id, hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Patch != nil && string(e.Data) == "null" { // only a label or a title
			continue
		}
		out = append(out, e.Kind)
		if want := lineOf(strings.TrimPrefix(string(id), "openclaw:"), min(n, len(lines)-1)); n < len(lines) && string(e.Data) != want {
			t.Errorf("%s, seq %d is\n%s, want\n%s", id, e.Seq, e.Data, want)
		}
		n++
	}
	return strings.Join(out, " ")
}

// full makes a database with two sessions, one of which the other started.
func full(t testing.TB, dir string) *sql.DB {
	t.Helper()
	db := makeDatabase(t, dir)
	converse(t, db, "s1", "agent:main:main", "")
	converse(t, db, "s2", "agent:main:subagent:x", "agent:main:main")
	insert(t, db, "s1", 0, len(lines))
	insert(t, db, "s2", 0, 2)
	return db
}

func TestDatabase(t *testing.T) {
	dir := t.TempDir()
	db := full(t, dir) // which goes on using it
	store := memstore.New()
	defer store.Close()
	r := imported(t, store, dir)
	if got := kinds(t, store, "openclaw:s1"); got != wantKinds {
		t.Errorf("kinds %s, want %s", got, wantKinds)
	}
	if got := kinds(t, store, "openclaw:s2"); got != "meta message" {
		t.Errorf("kinds %s", got)
	}
	if r.Usage != used || r.Calls != 1 || len(r.Open) != 0 || r.Records != len(lines)+2 || len(r.Damage) != 0 {
		t.Errorf("%+v", r)
	}
	info, err := store.Stat(context.Background(), "openclaw:s2")
	if err != nil || info.Title != "Grüße 🦞" || info.Labels["parent"] != "openclaw:s1" || info.Labels["key"] != "agent:main:subagent:x" || info.Labels["cwd"] != "/w" || info.Labels["source"] != "s2" {
		t.Errorf("%+v, %v", info, err)
	}
	for id, text := range contents(t, store) {
		if strings.Contains(text, "sk-secret") {
			t.Errorf("%s has a credential", id)
		}
	}
	if r := imported(t, store, dir); r.Added != 0 {
		t.Errorf("%d events were added again", r.Added)
	}
	// A row that is rewritten, and a name that was given later.
	do(t, db, `UPDATE transcript_events SET event_json = replace(event_json, 'kept', 'left') WHERE session_id = 's1' AND seq = 5`)
	do(t, db, `UPDATE session_nodes SET label = 'My work' WHERE session_key = 'agent:main:main'`)
	for i, n := range []int{2, 0} { // the row, and that the title changed
		if r := imported(t, store, dir); r.Added != n {
			t.Errorf("import %d after a change added %d events, want %d", i, r.Added, n)
		}
	}
	if got := kinds(t, store, "openclaw:s1"); got != wantKinds+" revision" {
		t.Errorf("kinds %s", got)
	}
	if info, err := store.Stat(context.Background(), "openclaw:s1"); err != nil || info.Title != "My work" {
		t.Errorf("the title is %q, %v", info.Title, err)
	}
}

// TestSameAsFile: a session that OpenClaw took over from a file into its database has no event
// twice, and is the same whichever was imported.
func TestSameAsFile(t *testing.T) {
	dir, old := t.TempDir(), t.TempDir()
	insert(t, makeDatabase(t, dir), "s1", 0, len(lines))
	var text strings.Builder
	for n := range lines {
		text.WriteString(lineOf("s1", n) + "\n")
	}
	file := filepath.Join(old, "agents", "main", "sessions", "s1.jsonl")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	store := memstore.New()
	defer store.Close()
	imported(t, store, old)
	want := contents(t, store)
	if r := imported(t, store, dir); r.Added != 0 {
		t.Errorf("%d events were added again", r.Added)
	}
	other := memstore.New()
	defer other.Close()
	imported(t, other, dir)
	for _, got := range []map[hansard.SessionID]string{contents(t, store), contents(t, other)} {
		if !maps.Equal(got, want) {
			t.Errorf("it is\n%s\nwant\n%s", got, want)
		}
	}
}

// TestCuts: however far the sessions were at three imports, the result is that of one.
func TestCuts(t *testing.T) {
	whole := t.TempDir()
	full(t, whole)
	once := memstore.New()
	defer once.Close()
	imported(t, once, whole)
	want := contents(t, once)
	for first := range len(lines) {
		for second := first; second <= len(lines); second++ {
			dir := t.TempDir()
			db := makeDatabase(t, dir)
			converse(t, db, "s1", "agent:main:main", "")
			converse(t, db, "s2", "agent:main:subagent:x", "agent:main:main")
			store := memstore.New()
			from := 0
			for _, to := range []int{first, second, len(lines)} {
				insert(t, db, "s1", from, to)
				insert(t, db, "s2", min(from, 2), min(to, 2))
				from = to
				imported(t, store, dir)
			}
			if got := contents(t, store); !maps.Equal(got, want) {
				t.Fatalf("cut at %d and %d: it is\n%s\nwant\n%s", first, second, got, want)
			}
			_ = store.Close()
			_ = db.Close()
		}
	}
}

// TestConcurrently: four importers at once store everything once.
func TestConcurrently(t *testing.T) {
	dir := t.TempDir()
	full(t, dir)
	once, store := memstore.New(), memstore.New()
	defer once.Close()
	defer store.Close()
	imported(t, once, dir)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := run(store, dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, want := contents(t, store), contents(t, once); !maps.Equal(got, want) {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
}

// TestDamage: what is damaged is told, and the rest imported.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	db := full(t, dir)
	do(t, db, `UPDATE transcript_events SET event_json = '{"type":"mess' WHERE session_id = 's1' AND seq = 1`)
	do(t, db, `UPDATE transcript_events SET event_utf8_bytes = event_utf8_bytes + 1 WHERE session_id = 's1' AND seq = 4`)
	do(t, db, `INSERT INTO transcript_events VALUES ('s1', 7, NULL, 1, x'0102', 5)`)
	do(t, db, `INSERT INTO session_transcript_cold_archives VALUES ('s3', '`+strings.Repeat("a", 64)+`.jsonl.zst', '', 'file', NULL), ('s4', '../elsewhere.zst', '', 'file', NULL)`)
	elsewhere := filepath.Join(dir, "agents", "main", "sessions", "elsewhere.zst")
	if err := errors.Join(os.MkdirAll(filepath.Join(filepath.Dir(elsewhere), "cold"), 0o700), os.WriteFile(elsewhere, pack(t, cold("s4")), 0o600)); err != nil {
		t.Fatal(err)
	}
	broken := pack(t, strings.Repeat(lineOf("s5", 1)+"\n", 3))
	do(t, db, `INSERT INTO session_transcript_archives VALUES ('s5', 'g', 'k', 'deleted', 'zstd', ?, ?, 'n', 1)`, broken[:len(broken)-3], sumOf(broken))
	store := memstore.New()
	defer store.Close()
	r := imported(t, store, dir)
	for _, d := range r.Damage {
		t.Log(d.Message)
	}
	if len(r.Damage) != 7 {
		t.Errorf("%d are reported", len(r.Damage))
	}
	var got []string
	for e, err := range store.Read(context.Background(), "openclaw:s1", hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Kind)
	}
	if want := "meta tool_call tool_result raw raw"; strings.Join(got, " ") != want {
		t.Errorf("kinds %s, want %s", got, want)
	}
	if got := kinds(t, store, "openclaw:s2"); got != "meta message" {
		t.Errorf("kinds %s", got)
	}
}

// TestNoSuchTable: another database of that name is refused, and said to be no session's.
func TestNoSuchTable(t *testing.T) {
	dir := t.TempDir()
	do(t, makeDatabase(t, dir), `DROP TABLE transcript_events`)
	store := memstore.New()
	defer store.Close()
	if _, err := run(store, dir); err == nil || !strings.Contains(err.Error(), "transcript_events") {
		t.Errorf("the error is %v", err)
	}
}

// cold is how OpenClaw puts a session away.
func cold(id string) string {
	var own []string
	for n := range lines {
		own = append(own, lineOf(id, n))
	}
	return coldOf(own)
}

func coldOf(lines []string) string {
	var b strings.Builder
	line := func(kind string, row map[string]any) {
		data, _ := json.Marshal(map[string]any{"kind": kind, "row": row})
		b.Write(append(data, '\n'))
	}
	b.WriteString(`{"kind":"header","version":1,"sessionId":"x","generation":"g"}` + "\n")
	for n, text := range lines {
		line("event", map[string]any{"seq": n, "event_json": text, "created_at": 1770000000000 + n})
	}
	line("identity", map[string]any{"event_id": "00000001", "seq": 1})
	line("fts", map[string]any{"text": "Grüße"})
	return b.String()
}

// TestPutAway: sessions that OpenClaw put away, in a blob or a file, that were deleted, or
// reset while they go on.
func TestPutAway(t *testing.T) {
	dir := t.TempDir()
	db := full(t, dir)
	blob := pack(t, cold("s3"))
	do(t, db, `INSERT INTO session_transcript_cold_archives VALUES ('s3', 'x', ?, 'sqlite', ?)`, sumOf(blob), blob)
	blob = pack(t, cold("s4"))
	name := strings.Repeat("b", 64) + ".jsonl.zst"
	do(t, db, `INSERT INTO session_transcript_cold_archives VALUES ('s4', ?, ?, 'file', NULL)`, name, sumOf(blob))
	sessions := filepath.Join(dir, "agents", "main", "sessions")
	if err := os.MkdirAll(filepath.Join(sessions, "cold"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sessions, "cold", name), blob, 0o600); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for n := range lines {
		text.WriteString(lineOf("s5", n) + "\n")
	}
	packed := pack(t, text.String())
	do(t, db, `INSERT INTO session_transcript_archives VALUES ('s5', 'g', 'agent:main:gone', 'deleted', 'zstd', ?, ?, 'n', 1)`, packed, sumOf(packed))
	plain := []byte(lineOf("s1", 0) + "\n" + `{"type":"message","id":"0000000a","message":{"role":"user","content":"before"}}` + "\n")
	do(t, db, `INSERT INTO session_transcript_archives VALUES ('s1', 'g', 'agent:main:main', 'reset', 'identity', ?, ?, 'm', 2)`, plain, sumOf(plain))
	// The same archive, as OpenClaw publishes it.
	if err := os.WriteFile(filepath.Join(sessions, "s5.jsonl.deleted.2026-09-01T00-00-00.000Z.zst"), packed, 0o600); err != nil {
		t.Fatal(err)
	}
	store := memstore.New()
	defer store.Close()
	reports, err := run(store, dir)
	if err != nil || len(reports) != 2 {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	for _, r := range reports {
		if len(r.Damage) > 0 {
			t.Errorf("damage %v", r.Damage)
		}
	}
	for _, id := range []hansard.SessionID{"openclaw:s3", "openclaw:s4", "openclaw:s5"} {
		if got := kinds(t, store, id); got != wantKinds {
			t.Errorf("%s: kinds %s, want %s", id, got, wantKinds)
		}
	}
	for id, want := range map[hansard.SessionID]string{"openclaw:s5": "deleted", "openclaw:s1": "", "openclaw:s3": ""} {
		if info, err := store.Stat(context.Background(), id); err != nil || info.Labels["archived"] != want {
			t.Errorf("%s: archived is %q, %v", id, info.Labels["archived"], err)
		}
	}
	// What was reset is there, once, with what came after it.
	all := contents(t, store)["openclaw:s1"]
	if strings.Count(all, `"before"`) != 1 || strings.Count(all, "wormhole") != 1 || strings.Count(all, `"type":"session"`) != 1 {
		t.Errorf("s1 is\n%s", all)
	}
}

// TestClosed: a database that nobody has open is read, and nothing is left beside it.
func TestClosed(t *testing.T) {
	dir := t.TempDir()
	if err := full(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	store := memstore.New()
	defer store.Close()
	imported(t, store, dir)
	entries, err := os.ReadDir(filepath.Join(dir, "agents", "main", "agent"))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if got := slices.Sorted(maps.Keys(contents(t, store))); len(got) != 2 {
		t.Errorf("sessions %v", got)
	}
}
