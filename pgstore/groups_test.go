package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/internal/pgtest"
)

// heldUp makes inserts of events for which the condition on NEW holds wait for an advisory lock,
// which the returned function releases. Everything they have locked stays locked meanwhile.
func heldUp(b *blocking, condition string) (release func()) {
	b.t.Helper()
	b.exec(`CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF ` + condition + ` THEN PERFORM pg_advisory_xact_lock(hashtext(current_schema())); END IF; RETURN NEW; END $$`)
	b.exec("CREATE TRIGGER hold_up BEFORE INSERT ON hansard_events FOR EACH ROW EXECUTE FUNCTION hold_up()")
	b.exec("SELECT pg_advisory_lock(hashtext(current_schema()))")
	return func() {
		b.t.Helper()
		b.exec("SELECT pg_advisory_unlock(hashtext(current_schema()))")
	}
}

// besides opens another store on the same tables, like another process.
func (b *blocking) besides() *blocking {
	b.t.Helper()
	other, err := Open(b.t.Context(), b.server.URL(schemaIn(b.t, b))+"&application_name=other-"+b.name, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { other.Close() })
	return &blocking{t: b.t, server: b.server, name: "other-" + b.name, conn: b.conn, Store: other}
}

// TestGroupsOfTwoProcesses: the commits of two processes lock the same sessions in opposite
// orders. No deadlock victim results, and a session that only one of them has is stored at once.
// It makes no difference if the first commit is terminated.
func TestGroupsOfTwoProcesses(t *testing.T) {
	for _, ended := range []bool{false, true} {
		t.Run(fmt.Sprintf("ended %v", ended), func(t *testing.T) {
			one := newBlocking(t, "")
			one.makeSessions("a", "b", "c")
			other := one.besides()
			release := heldUp(one, "NEW.id = 'b' AND NEW.data = '1'") // the second, so that the first is locked
			outs := map[string]<-chan outcome[hansard.Receipt]{}
			gather(t, one.Store, 2, func() {
				outs["a of one"] = one.appendLater("a")
				until(t, "a comes first", func() bool {
					one.mu.Lock()
					defer one.mu.Unlock()
					return len(one.ready) == 1
				})
				outs["b of one"] = one.appendLater("b")
			})
			one.waiting(1)
			add := func(id hansard.SessionID) <-chan outcome[hansard.Receipt] {
				return later(func() (hansard.Receipt, error) {
					return other.Append(t.Context(), id, hansard.Batch{Events: []hansard.Event{{Data: []byte("2")}}})
				})
			}
			var free <-chan outcome[hansard.Receipt]
			gather(t, other.Store, 3, func() { outs["b"], outs["a"], free = add("b"), add("a"), add("c") })
			if o := soon(t, "a session that only one has", free); o.err != nil {
				t.Error(o.err)
			}
			other.waiting(2) // for each of the rows, alone
			if ended {
				one.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = $1", one.name)
			}
			release()
			for name, out := range outs {
				if o := soon(t, name, out); o.err != nil || o.value.First == 0 {
					t.Errorf("%s: %+v, %v", name, o.value, o.err)
				}
			}
			soundLogs(t, one.Store, map[hansard.SessionID]int{"a": 2, "b": 2, "c": 1})
		})
	}
}

// TestTogetherOnTheNewestRow: between a statement's snapshot and its lock on a row, another
// client changes the session. The conditions are checked on the new row, and the seqs are taken
// from there.
func TestTogetherOnTheNewestRow(t *testing.T) {
	ctx := context.Background()
	add := func(b hansard.Batch) func(s *blocking) error {
		return func(s *blocking) error {
			b.Events = []hansard.Event{{ID: "e", Data: []byte("2")}}
			_, err := s.Append(ctx, "s", b)
			return err
		}
	}
	sql := func(text string) func(s *blocking) error {
		return func(s *blocking) error {
			s.exec(text)
			return nil
		}
	}
	acquire := func(s *blocking) error {
		_, err := s.Acquire(ctx, "s", hansard.Claim{Exclusive: true, TTL: time.Hour})
		return err
	}
	one := []hansard.Event{{Data: []byte("1")}}
	for name, c := range map[string]struct {
		batch     hansard.Batch
		meanwhile func(s *blocking) error
		last      hansard.Seq // 0: refused
		code      string      // of an error of the database
	}{
		"nothing":       {batch: hansard.Batch{Events: one}, meanwhile: func(*blocking) error { return nil }, last: 1},
		"an append":     {batch: hansard.Batch{Events: one}, meanwhile: add(hansard.Batch{}), last: 2},
		"expectation":   {batch: hansard.Batch{Events: one, Expect: hansard.At(0)}, meanwhile: add(hansard.Batch{})},
		"as expected":   {batch: hansard.Batch{Events: one, Expect: hansard.At(1)}, meanwhile: add(hansard.Batch{}), last: 2},
		"the same key":  {batch: hansard.Batch{Events: one, Key: "k"}, meanwhile: add(hansard.Batch{Key: "k"}), code: uniqueViolation},
		"the same id":   {batch: hansard.Batch{Events: []hansard.Event{{ID: "e", Data: []byte("2")}}}, meanwhile: add(hansard.Batch{}), code: uniqueViolation},
		"another turn":  {batch: hansard.Batch{Events: one, Turn: "1-00000000000000aa"}, meanwhile: sql("UPDATE hansard_heads SET current = '2-00000000000000bb'")},
		"excluded":      {batch: hansard.Batch{Events: one}, meanwhile: acquire},
		"deleted":       {batch: hansard.Batch{Events: one}, meanwhile: func(s *blocking) error { return s.Delete(ctx, "s", "") }},
		"another place": {batch: hansard.Batch{Events: one}, meanwhile: sql("UPDATE hansard_heads SET listed = '-infinity' WHERE id = 's'")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newBlocking(t, "")
			s.makeSessions("a")
			if c.batch.Turn != "" {
				s.exec("UPDATE hansard_heads SET current = $1 WHERE id = 's'", string(c.batch.Turn))
			}
			s.exec(`CREATE FUNCTION hold_up() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
				PERFORM pg_advisory_xact_lock_shared(hashtext(current_schema())); RETURN true; END $$`)
			s.exec("SELECT pg_advisory_lock(hashtext(current_schema()))")
			var all together
			for _, id := range []hansard.SessionID{"s", "a"} {
				b := c.batch
				if id == "a" {
					b = hansard.Batch{Events: one}
				}
				r, err := newRequest(&b)
				if err != nil {
					t.Fatal(err)
				}
				p, ok := newPlain(id, []*request{r})
				if !ok {
					t.Fatalf("%+v is not one that goes with others", b)
				}
				all.add(p, true)
			}
			fates := later(func() ([]fateOf, error) { return sendHeldUp(s, &all) })
			s.waiting(1)
			if err := c.meanwhile(s); err != nil {
				t.Fatal(err)
			}
			s.exec("SELECT pg_advisory_unlock(hashtext(current_schema()))")
			o := soon(t, "the statement", fates)
			if code(o.err) != c.code || c.code == "" && o.err != nil {
				t.Fatalf("%v, want code %q", o.err, c.code)
			}
			if c.code != "" {
				return
			}
			if want := []fateOf{{true, c.last}, {true, 1}}; !slices.Equal(o.value, want) {
				t.Errorf("%+v, want %+v", o.value, want)
			}
		})
	}
}

// sendHeldUp sends parts together with a statement that calls hold_up() when it has found a row,
// before it locks it.
func sendHeldUp(s *blocking, t *together) ([]fateOf, error) {
	b := &pgx.Batch{}
	t.queue(b, true)
	const found = "FROM hansard_heads WHERE id = a.id"
	sql := b.QueuedQueries[0].SQL
	if strings.Count(sql, found) != 1 {
		return nil, errors.New("the statement has another form")
	}
	b.QueuedQueries[0].SQL = strings.Replace(sql, found, found+" AND hold_up()", 1)
	conn, err := s.pool.Acquire(context.Background())
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	res := conn.SendBatch(context.Background(), b)
	defer res.Close()
	return t.read(res, &s.shelves)
}

// TestGroupInEveryMode: the same, however the statements are sent. Behind a connection pooler
// they are not prepared.
func TestGroupInEveryMode(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			s := newBlocking(t, "&default_query_exec_mode="+mode)
			appendAll(t, s, members(t, s))
		})
	}
}

// TestTryingAgainKeepsNobodyWaiting: appends that wait for a database that is down do not use up
// the number that may wait for a row: each of them keeps trying, and goes on when it is back.
func TestTryingAgainKeepsNobodyWaiting(t *testing.T) {
	t.Parallel() // with a server of its own
	server := pgtest.New(t)
	s := newBlockingWith(t, server, server.Schema(t), &Options{RetryFor: time.Hour})
	var all []*member
	var ids []hansard.SessionID
	for i := range 2 * cap(s.mayWait) {
		id := hansard.SessionID(fmt.Sprint("many-", i))
		ids = append(ids, id)
		all = append(all, &member{id: id, batch: hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}, last: 1, log: 1})
	}
	s.makeSessions(ids...)
	server.Kill()
	outs := map[*member]<-chan outcome[hansard.Receipt]{}
	gather(t, s.Store, len(all), func() {
		for _, m := range all {
			outs[m] = later(func() (hansard.Receipt, error) { return s.Append(t.Context(), m.id, m.batch) })
		}
	})
	until(t, "all are tried", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.ready)+len(s.again)+s.senders == 0
	})
	until(t, "nobody is at it", func() bool { return len(s.mayWait) == 0 })
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	logs := map[hansard.SessionID]int{}
	for m, out := range outs {
		if o := soon(t, string(m.id), out); o.err != nil || o.value.Last != 1 {
			t.Errorf("%s: %+v, %v", m.id, o.value, o.err)
		}
		logs[m.id] = 1
	}
	soundLogs(t, s.Store, logs)
}

// TestLockedPartsAreBounded: parts that are sent again because their row was locked are bounded
// just like new ones.
func TestLockedPartsAreBounded(t *testing.T) {
	s := &Store{senders: 1, lanes: map[hansard.SessionID]*lane{}}
	sizes := []int64{groupBytes, groupBytes, togetherBytes / 2, togetherBytes / 2, 1, togetherBytes}
	for _, size := range sizes {
		s.again = append(s.again, part{lane: &lane{}, group: []*request{{rows: rows{bytes: size}}}})
	}
	var got []int
	for {
		parts := s.take(false)
		if parts == nil {
			break
		}
		got = append(got, len(parts))
	}
	if want := []int{1, 1, 2, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("sizes %v went in groups of %v, want %v", sizes, got, want)
	}
}

// TestLockedLeaveRoom: however many sessions are locked, others have half of each commit.
func TestLockedLeaveRoom(t *testing.T) {
	s := &Store{senders: 1, lanes: map[hansard.SessionID]*lane{}}
	for range 3 * groupSessions {
		s.again = append(s.again, part{lane: &lane{}, group: []*request{{}}, tries: 1})
	}
	free := &lane{id: "free", waiting: []*request{{}}}
	s.lanes["free"], s.ready = free, []*lane{free}
	if parts := s.take(false); !slices.ContainsFunc(parts, func(p part) bool { return p.lane == free }) {
		t.Errorf("none of the %d places was left to a session that is not locked", len(parts))
	}
	if parts := s.take(false); len(parts) != groupSessions {
		t.Errorf("%d locked sessions have a commit for themselves, want %d", len(parts), groupSessions)
	}
}

// TestDoubtedTogether: a commit of many sessions that did not wait for its standby is not
// trusted: each of them looks up what it has stored, in a commit that waits.
func TestDoubtedTogether(t *testing.T) {
	tap, s := tapStore(t)
	s.makeSessions("a", "b")
	s.exec("CREATE SEQUENCE warnings")
	s.exec(`CREATE FUNCTION warn_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('warnings') = 1 THEN RAISE WARNING 'as a cancelled wait for a standby' USING ERRCODE = '01000'; END IF; RETURN NEW; END $$`)
	s.exec("CREATE TRIGGER warn_once BEFORE INSERT ON hansard_events FOR EACH ROW EXECUTE FUNCTION warn_once()")
	var all []*member
	for _, id := range []hansard.SessionID{"a", "s", "b"} {
		all = append(all, &member{id: id, batch: hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}, last: 1, log: 1})
	}
	trips := tap.During(tellOthers, func() { appendAll(t, s, all) })
	looked := 0
	for _, trip := range trips {
		if slices.Contains(trip, lockSession) && slices.Contains(trip, findMark) {
			looked++
		}
	}
	if looked != len(all) {
		t.Errorf("%d of %d sessions were looked at: %.100q", looked, len(all), trips)
	}
}

// TestCommitsAreDurable: the value of synchronous_commit at the commit of an append, however it
// is sent. The notifications that go over the same connection commit without waiting, and nothing
// else does.
func TestCommitsAreDurable(t *testing.T) {
	t.Parallel() // with a server of its own
	server := pgtest.New(t, "synchronous_commit = off")
	for _, settings := range []string{"", "&synchronous_commit=on", "&synchronous_commit=local"} {
		t.Run("URL with "+settings, func(t *testing.T) {
			s := newBlockingAt(t, server, server.Schema(t)+"&pool_max_conns=2"+settings)
			s.exec("CREATE TABLE commits (id text, setting text)")
			s.exec(`CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				INSERT INTO commits VALUES (NEW.id, current_setting('synchronous_commit')); RETURN NULL; END $$`)
			s.exec("CREATE CONSTRAINT TRIGGER note_commit AFTER INSERT ON hansard_events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_commit()")
			events := 0
			for range 3 {
				if err := s.hub.tellOne(t.Context(), "s"); err != nil {
					t.Fatal(err)
				}
				for _, n := range []int{1, 1, 2} { // the second without checking its place in the list
					if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: slices.Repeat([]hansard.Event{{Data: []byte("1")}}, n)}); err != nil {
						t.Fatal(err)
					}
					events += n
				}
			}
			all := members(t, s)
			before := 0
			if err := s.conn.QueryRow(t.Context(), "SELECT count(*) FROM commits").Scan(&before); err != nil {
				t.Fatal(err)
			}
			appendAll(t, s, all)
			want := map[string]string{"": "on", "&synchronous_commit=on": "on", "&synchronous_commit=local": "local"}[settings]
			found, err := s.conn.Query(t.Context(), "SELECT id, setting FROM commits")
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			var id, setting string
			if _, err := pgx.ForEachRow(found, []any{&id, &setting}, func() error {
				n++
				if setting != want {
					t.Errorf("a commit to %s with synchronous_commit %s, want %s", id, setting, want)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if n <= before || before <= events {
				t.Errorf("%d commits of %d were seen", n, events)
			}
		})
	}
}

// TestOneEventHasAllColumns: the statement for one event has the columns of the one for many,
// except for those of events it is not used for: newPlain. So has the one for several sessions. Where
// no event has a key or an id they have no columns for these either.
func TestOneEventHasAllColumns(t *testing.T) {
	columns := func(sql string) []string {
		_, list, _ := strings.Cut(sql, "INSERT INTO hansard_events (")
		list, _, _ = strings.Cut(list, ")")
		return strings.Split(list, ", ")
	}
	want := slices.DeleteFunc(columns(insertColumns), func(c string) bool { return c == "patch" || c == "attachments" || c == "fork" })
	bare := slices.DeleteFunc(slices.Clone(want), func(c string) bool { return c == "key" || c == "hash" || c == "event_id" || c == "content" })
	for sql, want := range map[string][]string{namedOne: want, namedShelved: want, namedTogether: want, appendOne: bare, appendShelved: bare, appendTogether: bare} {
		if got := columns(sql); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%s has %q, want %q", sql, got, want)
		}
	}
}
