package pgstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/internal/pgtest"
)

// The size at which plans are examined: one session with this many keyed batches, and this many
// other sessions.
const (
	grownKeys     = 100_000
	grownSessions = 20_000
)

// grow fills the tables directly: a hundred thousand appends would test something else. It adds as
// many deleted sessions as there are others, with ids that follow each other; the first of them still
// has events, none of which has a key.
func grow(t testing.TB, conn *pgx.Conn, keys, sessions int) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO hansard_heads (id, last, bytes, created, updated, listed, mark) SELECT 'big', $1, $1, now(), now(), now() - interval '1 hour', ''
			UNION ALL SELECT 'small-' || g, 3, 3, now() - make_interval(mins => g), now() - make_interval(secs => g), now() - make_interval(secs => g), '' FROM generate_series(1, $2::integer) g`,
		`INSERT INTO hansard_sessions (id, title, labels, state, born, terms, said) SELECT id, title, labels, '', '{}',
			array_to_tsvector(ARRAY['lteam=red', 'lshard=' || length(id), 'lself=' || id] || ARRAY(SELECT DISTINCT 't' || substr(t, n, 3) FROM unnest(ARRAY[id, title]) t, generate_series(1, length(t)) n)),
			hashtextextended(title || labels, 0)
			FROM (SELECT id, 'title of ' || id AS title, json_build_object('team', 'red', 'shard', length(id)::text, 'self', id)::text AS labels FROM hansard_heads) h WHERE $1 + $2::integer > 0`,
		`INSERT INTO hansard_listing (id, label, listed) SELECT h.id, l, h.listed FROM hansard_heads h, unnest(ARRAY['', 'team=red', 'shard=' || length(h.id), 'self=' || h.id]) l WHERE $1 + $2::integer > 0`,
		`INSERT INTO hansard_events (id, seq, "time", inbox, kind, role, author, turn, data, key, hash, size, mark, event_id, content)
			SELECT 'big', g, now(), false, CASE WHEN g % 1000 = 0 THEN 'summary' ELSE 'message' END, '', '', '', '1', 'key-' || g, 'hash', 1, 'mark-' || g, 'id-' || g, 'hash' FROM generate_series(1, $1) g
			UNION ALL SELECT 'small-' || s, g, now(), false, 'message', '', '', '', '1', NULL, NULL, NULL, 'mark-' || g, NULL, NULL FROM generate_series(1, $2::integer) s, generate_series(1, 3) g`,
		`INSERT INTO hansard_attachments (id, upload, digest, size, made, named) SELECT 'big', 'upload-' || g, 'digest-' || g, 3, now(), false FROM generate_series(1, $1 / 10) g
			UNION ALL SELECT 'small-' || g, 'upload-1', 'digest-1', 3, now(), true FROM generate_series(1, $2::integer) g`,
		`INSERT INTO hansard_attachments (id, upload, size, made) SELECT 'big', 'unfinished-' || g, 3, now() - interval '2 days' FROM generate_series(1, 10) g WHERE $1 + $2::integer > 0`,
		`INSERT INTO hansard_searched (id, last) SELECT id, last FROM hansard_heads WHERE $1 + $2::integer > 0`,
		`INSERT INTO hansard_words (id, seq, "time", kind, role, terms) SELECT id, seq, "time" + make_interval(secs => seq), kind, role, array_to_tsvector(ARRAY['all', 'word' || seq % 1000, 'self' || id])
			FROM hansard_events WHERE $1 + $2::integer > 0`,
		`INSERT INTO hansard_attachment_parts (id, upload, n, bytes) SELECT a.id, a.upload, g, 'x' FROM hansard_attachments a, generate_series(0, 2) g WHERE $1 + $2::integer > 0`,
		`INSERT INTO hansard_heads (id, last, bytes, created, updated, listed, mark, deleted) SELECT 'gone-' || g, 1, 1, now(), now(), now(), '', true FROM generate_series(1, $2::integer) g WHERE $1 > 0`,
		`INSERT INTO hansard_events (id, seq, "time", inbox, kind, role, author, turn, data, mark)
			SELECT 'gone-1', g, now(), false, 'message', '', '', '', '1', 'mark-' || g FROM generate_series(1, $2::integer) g WHERE $1 > 0`,
	} {
		if _, err := conn.Exec(t.Context(), sql, keys, sessions); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// hotStatement is a statement that the store sends, with parameters for the tables that grow
// makes, and the maximum number of database pages it may touch.
type hotStatement struct {
	sql   string
	pages int
	args  []any
	rare  bool   // not used by every call: it may be slow until PostgreSQL notices that a table has grown
	set   string // what is sent before it in its transaction
	whole bool   // it covers all sessions
}

func hotStatements(t *testing.T) []hotStatement {
	t.Helper()
	now := time.Now()
	var r rows
	var keys []string
	for i := range 10 {
		keys = append(keys, fmt.Sprint("new-", i))
		if err := r.add([]hansard.Event{{Kind: "message", ID: keys[i], Data: []byte("1")}}, batch{key: keys[i], hash: "h"}); err != nil {
			t.Fatal(err)
		}
	}
	none, labels := []string{}, []string{"", "team=red"}
	one := []any{"big", "1", "", true, nil, "message", "", "", false, 1, "mark", "", nil, true}
	named := append(slices.Clone(one), "new", "new", "h", "")
	many, bare := togetherArgs(r), togetherArgs(bareRows(t))
	seqs := []int64{7, 777}
	attached := []string{"digest-7", "digest-77", "digest-none"}
	return []hotStatement{
		{appendPlain, 350, r.args("big", "mark", 10, int64(10), "", false, nil, keys, keys, true), false, "", false}, // 10 events into four indexes
		{namedTogether, 700, many, false, "", false},                                                                 // the same, twice
		{appendTogether, 300, bare, false, "", false},
		{shelveTogether, 30, []any{[]string{"small-9999", "small-9998"}, []string{"mark-1", "mark-1"}}, false, "", false},
		{shelveTogether, 80, []any{[]string{"small-9999", "big"}, []string{"mark-1", "mark-1"}}, true, "", false},
		{appendOne, 50, one, false, "", false},
		{appendShelved, 50, one, false, "", false},
		{namedOne, 50, named, false, "", false},
		{namedShelved, 50, named, false, "", false},
		{lockSession, 10, []any{"big"}, false, "", false},
		{findKeys, 80, []any{"big", keys}, false, "", false},
		{findIDs, 80, []any{"big", keys}, false, "", false},
		{findEvent, 10, []any{"big", "id-77"}, false, "", false},
		{findMark, 10, []any{"big", "mark-77"}, false, "", false},
		{findMeta, 10, []any{"big"}, false, "", false},
		{insertAt, 200, r.args("big", "mark", int64(grownKeys), now), false, "", false},
		{updateLog, 10, []any{"big", int64(1), int64(1), now}, false, "", false},
		{shelve, 20, []any{"small-9999", "mark-1"}, false, "", false}, // its place in the list is right
		{shelve, 80, []any{"big", "mark-1"}, true, "", false},         // it has to be corrected
		{updateMeta, 40, []any{"big", "t", "{}", "", "'tbig'"}, false, "", false},
		{dropLabels, 20, []any{"big", labels}, true, "", false},
		{addLabels, 30, []any{"big", labels}, false, "", false},
		{updateTurn, 10, []any{"big", "", "", "", false, nil}, false, "", false},
		{renewTurn, 10, []any{"big", now}, false, "", false},
		{removeHead, 20, []any{"big", "m"}, false, "", false},
		{removeMeta, 10, []any{"big"}, false, "", false},
		{removeList, 20, []any{"big"}, true, "", false},
		{removeWait, 10, []any{"big"}, false, "", false},
		{purgeSome, 2500, []any{"big", int64(5000)}, false, "", false}, // 2,000 rows, each removed
		{purged, 10, []any{"big"}, false, "", false},
		{toPurge, 10, nil, false, "", false},
		{createHead, 20, []any{"fresh", now, "m", "big", int64(7)}, false, "", false},
		{childrenOf, 10, []any{"big"}, false, "", false},
		{parentThere, 10, []any{"big"}, false, "", false},
		{sameContent, 20, []any{"small-1", "big", int64(grownKeys)}, false, "", false},
		// For a fork, everything that is copied is read; if nothing is copied, little.
		{copyEvents, 100, []any{"fresh", "small-1", int64(3)}, true, "", false},
		{copyAttachments, 60, []any{"fresh", "small-1", now}, true, "", false},
		{copyParts, 60, []any{"fresh", "small-1"}, true, "", false},
		{addUp, 30, []any{"small-1"}, true, "", false},
		{turnBefore, 30, []any{"small-1", int64(3)}, true, "", false},
		{patchesUpTo, 30, []any{"small-1", int64(3)}, true, "", false},
		{attachedUp, 30, []any{"small-1"}, true, "", false},
		{bornWith, 10, []any{"big"}, false, "", false},
		{batchAround, 20, []any{"big", int64(grownKeys / 2), int64(10_000)}, false, "", false},
		{createMeta, 40, []any{"fresh", "t", "{}", "", "{}", "'tfre' 'tt'"}, false, "", false},
		{createListing, 30, []any{"fresh", labels, now}, false, "", false},
		{findAhead, 10, []any{"big", "ticket", 3.0}, false, "", false},
		{putTicket, 10, []any{"big", "ticket", now}, false, "", false},
		{dropTicket, 10, []any{"big", "ticket"}, false, "", false},
		{dropStale, 10, []any{"big", "ticket", now}, false, "", false},
		{findTurn, 10, []any{"big"}, false, "", false},
		{statSession, 10, []any{"big"}, false, "", false},
		{lookAtHeads, 20, []any{[]string{"big", "small-1", "small-2"}}, false, "", false},
		{readPage, 100, []any{"big", int64(grownKeys / 2), int64(maxSeq), 500, none, int64(pageBytes)}, false, "", false},
		{readPageBack, 100, []any{"big", int64(0), int64(grownKeys / 2), 500, none, int64(pageBytes)}, false, "", false},
		{readPageBack, 100, []any{"big", int64(0), int64(maxSeq), 60, none, int64(pageBytes)}, false, "", false},
		{findHead, 10, []any{"big"}, false, "", false},
		{fromSummary, 10, []any{"big", int64(0), int64(maxSeq)}, false, "", false},
		{fromSummary, 10, []any{"big", int64(0), int64(grownKeys / 2)}, false, "", false},
		{fromKind, 10, []any{"big", int64(0), int64(grownKeys / 2), "message"}, false, "", false},
		{fromLast, 20, []any{"big", int64(0), int64(grownKeys / 2), 100, none}, false, "", false},
		{keysAfter, 80, []any{"big", int64(grownKeys / 2)}, false, "", false},
		{keysAfter, 80, []any{"gone-1", int64(0)}, false, "", false}, // none of them has a key
		{originsAfter, 2000, []any{"small-5"}, false, "", false},     // 200 sessions
		{originsAfter, 2000, []any{"big"}, false, "", false},
		{walkListed, 900, []any{"team=red", now, "", []string{"shard=8"}, 70, "", "\x7f", false, 1}, false, "", false},
		{walkListed, 700, []any{"", now, "", none, 70, "", "\x7f", true, 0}, false, "", false},
		{walkListed, 700, []any{"team=red", now, "", none, 70, "small-", "small-\x7f", false, 0}, false, "", false},
		{walkBorn, 400, []any{endOfTime, "", "", "\x7f", 70}, false, "", false},
		{walkBorn, 400, []any{endOfTime, "", "small-", "small-\x7f", 70}, false, "", false},
		{fewNamed, 300, []any{"small-7", "small-7\x7f", fewSessions + 1}, false, "", false},
		{fewLabelled, 100, []any{"team=red", fewSessions + 1}, false, "", false},
		{lookUp, 20, []any{[]string{"big", "small-7"}}, false, "", false},
		{byRarity, 50, []any{labels}, false, "", false},
		{lookTurn, 20, []any{"big", "ticket", 3.0}, false, "", false},
		{keepTicket, 10, []any{"big", "ticket"}, false, "", false},
		{verifyIDs, 1500, []any{"small-5"}, false, "", false}, // 1,000 sessions
		{verifyIDs, 1500, []any{"big"}, false, "", false},     // all of them deleted
		{verifyHead, 20, []any{"big"}, false, "", false},
		{verifyList, 20, []any{"big"}, true, "", false},
		{verifyPage, 50, []any{"big", int64(grownKeys / 2), int64(grownKeys), pageEvents, int64(pageBytes)}, false, "", false},
		{orphanPages[0], 8000, []any{"small-5"}, false, "", false}, // 1,000 sessions, three times
		{orphanPages[1], 10000, []any{"small-5"}, false, "", false},
		{orphanPages[2], 10000, []any{"small-5"}, false, "", false},
		{orphanPages[3], 10000, []any{"small-5"}, false, "", false},
		{orphanPages[4], 10000, []any{"small-5"}, false, "", false},
		{sql: orphanPages[5], pages: 8000, args: []any{"small-5"}},
		{sql: unsearched, pages: 5000, args: []any{""}, set: searchSettings, whole: true},
		{sql: unsearchedIn, pages: 20, args: []any{"big"}, set: searchSettings},
		{sql: beginWords, pages: 20, args: []any{"big"}},
		{sql: lockWords, pages: 10, args: []any{"big"}},
		{sql: isThere, pages: 10, args: []any{"big"}},
		{sql: addWords, pages: 100, args: []any{"small-7", []int64{10, 11}, []time.Time{now, now}, []string{"k", "k"}, []string{"r", "r"}, []string{"some new words", "word77"}}},
		{sql: endWords, pages: 10, args: []any{"big", int64(7)}},
		{sql: removeWords, pages: 400, args: []any{"small-77"}},
		{sql: purgeWords, pages: 400, args: []any{"small-77"}},
		{sql: findWords, pages: 1500, args: []any{"'word77' & 'all'", "", "", "", "", nil, nil, none, endOfTime, "", int64(0), rankDepth}, set: searchSettings}, // 100 of them; until a vacuum also the new rows, 4 MiB at most
		{sql: findWords, pages: 700, args: []any{"'selfsmall-7'", "", "", "message", "", now.Add(-time.Hour), nil, none, endOfTime, "", int64(0), rankDepth}, set: searchSettings},
		{sql: findWordsIn, pages: 700, args: []any{"'all'", "small-7", "", "", "", nil, nil, none, endOfTime, "", int64(0), rankDepth}, set: searchSettings},
		{sql: fetchFound, pages: 50, args: []any{[]string{"big", "small-7"}, []int64{77, 1}}},
		{sql: findSeqs, pages: 20, args: []any{"big", seqs}},
		{sql: recordRedaction, pages: 50, args: []any{"big", int64(77), "[7]"}},
		{sql: markRedacted, pages: 100, args: []any{"big", seqs}, rare: true},
		{sql: redactBytes, pages: 30, args: []any{"big", seqs}},
		{sql: redactAttached, pages: 60, args: []any{"big", seqs}, rare: true},
		{sql: redactHashes, pages: 100, args: []any{"big", seqs}, rare: true},
		{sql: redactEvents, pages: 100, args: []any{"big", seqs}, rare: true},
		{sql: holdWords, pages: 20, args: []any{"big"}},
		{sql: redactWords, pages: 60, args: []any{"small-77", seqs}, rare: true},
		{sql: redactionsAfter, pages: 20, args: []any{"big", int64(grownKeys - 10)}},
		{startUpload, 20, []any{"big", "upload-new"}, false, "", false},
		{addPart, 30, []any{"big", "unfinished-7", 3, []byte("x")}, false, "", false},
		{findUpload, 10, []any{"big", "unfinished-7"}, false, "", false},
		{finishUpload, 20, []any{"big", "unfinished-7", "digest-new", now}, false, "", false},
		{attachAgain, 20, []any{"big", "digest-77", now}, false, "", false},
		{findAttached, 20, []any{"big", attached}, false, "", false},
		{lookAttached, 20, []any{"big", attached}, false, "", false},
		{markNamed, 30, []any{"big", "digest-77"}, false, "", false},
		{abandon, 10, []any{"big", "unfinished-7"}, false, "", false},
		{condemn, 40, []any{"small-77"}, false, "", false},
		{dropParts, 150, []any{"big", "upload-3", -1, lastUpload}, false, "", false}, // 16 rows, each removed
		{dropParts, 50, []any{"big", "upload-3", -1, "upload-3"}, false, "", false},
		{dropRows, 10, []any{"big", "unfinished-7", "unfinished-7"}, false, "", false},
		{toDrop, 20, nil, false, "", false},
		{findPart, 20, []any{"big", "digest-77", 1}, false, "", false},
		{attachmentsAfter, 2000, []any{"big", "digest-5"}, false, "", false}, // 1,000 of them
		{sumParts, 20, []any{"big", "digest-77"}, false, "", false},
		{fewWith, 300, []any{"'lself=small-77' & 'ttit'", 5001}, true, "", false},
		{fewWith, 100, []any{"'lteam=red' & 'tnow'", 5001}, true, "", false},
		{unsaid, 20, []any{500}, true, "", false},
		{say, 60, []any{[]string{"big"}, []string{"title of big"}, []string{"{}"}, []string{"'tbig'"}}, true, "", false},
		{infosOf, 20, []any{[]string{"big", "small-7"}}, false, "", false},
		{putProbe, 10, []any{true}, false, "", false},
	}
}

// bareRows are events without keys and ids.
func bareRows(t *testing.T) (r rows) {
	t.Helper()
	if err := r.add(slices.Repeat([]hansard.Event{{Kind: "message", Data: []byte("1")}}, 10), batch{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// togetherArgs are the parameters of an append to several sessions.
func togetherArgs(r rows) []any {
	var all together
	for _, id := range []hansard.SessionID{"big", "small-7"} {
		p := &plain{id: id, rows: r, mark: "mark"}
		for i := range r.list {
			if e := &r.list[i]; e.key != nil {
				p.keys, p.ids = append(p.keys, *e.key), append(p.ids, *e.id)
			}
		}
		all.add(p, id == "big")
	}
	b := &pgx.Batch{}
	all.queue(b, true)
	return b.QueuedQueries[0].Arguments
}

// plan is a node of the output of EXPLAIN.
type plan struct {
	NodeType     string  `json:"Node Type"`
	RelationName string  `json:"Relation Name"`
	IndexName    string  `json:"Index Name"`
	IndexCond    string  `json:"Index Cond"`
	Filter       string  `json:"Filter"`
	Filtered     float64 `json:"Rows Removed by Filter"`
	Rows         float64 `json:"Actual Rows"`
	Loops        float64 `json:"Actual Loops"`
	Hit          int     `json:"Shared Hit Blocks"`
	Read         int     `json:"Shared Read Blocks"`
	Plans        []*plan
}

// maxFiltered is how many rows a node may read and discard.
const maxFiltered = 50

// wrong finds nodes that read more of a table of ours than they need: all of it, or rows that are
// then discarded.
func (p *plan) wrong() (found []string) {
	if strings.HasPrefix(p.RelationName, "hansard_") && (p.NodeType == "Seq Scan" && p.Rows*p.Loops > 0 || p.Filtered*p.Loops > maxFiltered) {
		found = append(found, fmt.Sprintf("%s of %s", p.NodeType, p.RelationName))
	}
	for _, child := range p.Plans {
		found = append(found, child.wrong()...)
	}
	return found
}

// text is the plan in readable form.
func (p *plan) text(indent string) string {
	text := fmt.Sprintf("%s%s %s %s: %v rows, %v left out, %v times, %d pages; index %s, filter %s\n", indent, p.NodeType, p.RelationName, p.IndexName,
		p.Rows, p.Filtered, p.Loops, p.Hit+p.Read, p.IndexCond, p.Filter)
	for _, child := range p.Plans {
		text += child.text(indent + "  ")
	}
	return text
}

// planner makes plans as PostgreSQL does for statements that are prepared and used often: once,
// without knowing the parameters, and kept until something invalidates them.
type planner struct {
	t    *testing.T
	conn *pgx.Conn
	hot  []hotStatement
}

func (p *planner) exec(sql string, args ...any) {
	p.t.Helper()
	if _, err := p.conn.Exec(p.t.Context(), sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
}

// prepare makes all plans.
func (p *planner) prepare() {
	p.t.Helper()
	p.exec("DEALLOCATE ALL")
	p.exec("SET plan_cache_mode = force_generic_plan")
	for i, hot := range p.hot {
		p.exec(fmt.Sprintf("PREPARE hot%d AS %s", i, hot.sql))
		p.explain(i, "EXPLAIN (FORMAT JSON)")
	}
}

// explain returns the plan of a statement, and executes it if the command says so.
func (p *planner) explain(i int, command string) *plan {
	p.t.Helper()
	p.exec("BEGIN")
	defer p.exec("ROLLBACK")
	if p.hot[i].set != "" {
		p.exec(p.hot[i].set)
	}
	call, args := fmt.Sprintf("%s EXECUTE hot%d", command, i), p.hot[i].args
	for i := range args {
		call += fmt.Sprintf("%s$%d", map[bool]string{true: "(", false: ", "}[i == 0], i+1)
	}
	if len(args) > 0 {
		call += ")"
	}
	var text []byte
	if err := p.conn.QueryRow(p.t.Context(), call, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...).Scan(&text); err != nil {
		p.t.Fatalf("%s: %v", p.hot[i].sql, err)
	}
	var said []struct{ Plan *plan }
	if err := json.Unmarshal(text, &said); err != nil || len(said) != 1 {
		p.t.Fatalf("EXPLAIN says %s (%v)", text, err)
	}
	return said[0].Plan
}

// check executes the statements with the plans that were made.
func (p *planner) check(when string, rare bool) {
	p.t.Helper()
	for i, hot := range p.hot {
		if hot.rare && !rare {
			continue
		}
		got := p.explain(i, "EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT JSON)")
		if pages := got.Hit + got.Read; pages > hot.pages {
			p.t.Errorf("planned %s: it touches %d pages, want at most %d: %s\n%s", when, pages, hot.pages, hot.sql, got.text(""))
		}
		if wrong := got.wrong(); len(wrong) > 0 && !hot.whole {
			p.t.Errorf("planned %s: %v in %s\n%s", when, wrong, hot.sql, got.text(""))
		}
	}
}

// TestPlans: no statement of the store reads more than it needs, however many keyed batches its
// session has and however many sessions there are, whenever PostgreSQL made its plan.
// (Failure 60.)
func TestPlans(t *testing.T) {
	address := pgtest.Shared(t).Schema(t)
	s, err := Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	p := &planner{t, conn.Conn(), hotStatements(t)}
	p.exec("VACUUM ANALYZE")
	p.prepare()
	grow(t, conn.Conn(), grownKeys, grownSessions)
	p.check("when the tables were empty", false)
	p.prepare()
	p.check("without statistics", true)
	p.exec("VACUUM ANALYZE")
	p.check("with statistics", true)
}

// TestPlansOfAll: TestPlans covers every statement that a store sends.
func TestPlansOfAll(t *testing.T) {
	server := pgtest.Shared(t)
	address := server.Schema(t)
	if _, err := Migrate(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{
		insertTimed: true, // as insertAt
		"SELECT max(version) FROM hansard_schema": true, // which has one row
	}
	for _, hot := range hotStatements(t) {
		known[hot.sql] = true
	}
	tap, address := server.Tap(t, address)
	s, err := Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	UseEverything(t, s)
	s.Close()
	seen := 0
	for _, trip := range tap.Trips() {
		for _, sql := range trip {
			switch {
			case !strings.Contains(sql, " hansard_"), strings.HasPrefix(sql, testsOwn), strings.HasPrefix(sql, "LISTEN "):
			case known[sql]:
				seen++
			default:
				t.Errorf("not looked at by TestPlans: %s", sql)
			}
		}
	}
	if seen == 0 {
		t.Error("nothing was seen")
	}
}
