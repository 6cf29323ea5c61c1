package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
)

// gather makes appends go together: what f submits is sent once all of it has queued up, in this
// many sessions.
func gather(t *testing.T, s *Store, sessions int, f func()) {
	t.Helper()
	// A sender that has just answered goes on looking for more: it would take the first of
	// these appends before the others are there.
	until(t, "the last sender ends", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.senders > 0 {
			return false
		}
		s.senders += maxSenders
		return true
	})
	f()
	until(t, "the appends queue up", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.ready) == sessions
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.senders -= maxSenders
	s.startSenderLocked()
}

// soon returns an outcome that must not take long.
func soon[T any](t *testing.T, what string, out <-chan outcome[T]) outcome[T] {
	t.Helper()
	select {
	case o := <-out:
		return o
	case <-time.After(20 * time.Second):
		t.Fatalf("no answer: %s", what)
		panic("unreachable")
	}
}

func (b *blocking) makeSessions(ids ...hansard.SessionID) {
	b.t.Helper()
	for _, id := range ids {
		if _, err := b.Create(b.t.Context(), id, hansard.Meta{}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// appendLater appends one event in the background.
func (b *blocking) appendLater(id hansard.SessionID) <-chan outcome[hansard.Receipt] {
	return later(func() (hansard.Receipt, error) {
		return b.Append(b.t.Context(), id, hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}})
	})
}

// soundLogs checks that each session has this many events, and that all are sound.
func soundLogs(t *testing.T, s *Store, want map[hansard.SessionID]int) {
	t.Helper()
	for id, n := range want {
		seen := 0
		for _, err := range s.Read(t.Context(), id, hansard.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			seen++
		}
		if seen != n {
			t.Errorf("session %s has %d events, want %d", id, seen, n)
		}
	}
	for f, err := range s.Verify(t.Context(), "") {
		if err != nil || f.Level != hansard.LevelOK {
			t.Errorf("%+v, %v", f, err)
		}
	}
}

// TestLockedSessionDelaysNobody: a session that another client keeps locked is left out of a
// commit. It is stored when the row is free; the others do not wait for it.
func TestLockedSessionDelaysNobody(t *testing.T) {
	s := newBlocking(t, "")
	s.makeSessions("a", "b")
	s.lock() // session s
	var locked, a, b <-chan outcome[hansard.Receipt]
	gather(t, s.Store, 3, func() { a, locked, b = s.appendLater("a"), s.appendLater("s"), s.appendLater("b") })
	for name, out := range map[string]<-chan outcome[hansard.Receipt]{"a": a, "b": b} {
		if o := soon(t, name+", beside a locked session", out); o.err != nil || o.value.Last != 1 {
			t.Errorf("%s: %+v, %v", name, o.value, o.err)
		}
	}
	s.waiting(1) // alone
	// Neither do appends that arrive while it waits.
	if o := soon(t, "a, behind a locked session", s.appendLater("a")); o.err != nil || o.value.Last != 2 {
		t.Errorf("%+v, %v", o.value, o.err)
	}
	select {
	case o := <-locked:
		t.Errorf("stored in a session that is locked: %+v, %v", o.value, o.err)
	default:
	}
	s.exec("COMMIT")
	if o := soon(t, "the session that was locked", locked); o.err != nil || o.value.Last != 1 {
		t.Errorf("%+v, %v", o.value, o.err)
	}
	soundLogs(t, s.Store, map[hansard.SessionID]int{"s": 1, "a": 2, "b": 1})
}

// TestLoneLockedSession: a single append waits for its row, and does not delay the next one.
func TestLoneLockedSession(t *testing.T) {
	s := newBlocking(t, "")
	s.makeSessions("a")
	s.lock()
	locked := s.appendLater("s")
	s.waiting(1)
	if o := soon(t, "another session", s.appendLater("a")); o.err != nil {
		t.Error(o.err)
	}
	s.exec("COMMIT")
	if o := soon(t, "the session that was locked", locked); o.err != nil {
		t.Error(o.err)
	}
}

// TestManyLockedSessions: more sessions are locked than there are connections, one after another
// or in one commit, and a connection is still free for the others.
func TestManyLockedSessions(t *testing.T) {
	const conns = 4
	for _, atOnce := range []bool{false, true} {
		t.Run(fmt.Sprintf("at once %v", atOnce), func(t *testing.T) {
			s := newBlocking(t, fmt.Sprint("&pool_max_conns=", conns))
			var ids []hansard.SessionID
			for i := range 2 * conns {
				ids = append(ids, hansard.SessionID(fmt.Sprint("locked-", i)))
			}
			s.makeSessions(append(ids, "a")...)
			s.exec("BEGIN")
			s.exec("SELECT 1 FROM hansard_heads WHERE id LIKE 'locked-%' FOR UPDATE")
			var locked []<-chan outcome[hansard.Receipt]
			if atOnce {
				gather(t, s.Store, len(ids), func() {
					for _, id := range ids {
						locked = append(locked, s.appendLater(id))
					}
				})
			} else {
				for i, id := range ids {
					locked = append(locked, s.appendLater(id))
					if i < conns/2 {
						s.waiting(i + 1)
					}
				}
			}
			s.waiting(conns / 2)
			for range 3 {
				if o := soon(t, "a session that is not locked", s.appendLater("a")); o.err != nil {
					t.Error(o.err)
				}
			}
			s.exec("COMMIT")
			for i, out := range locked {
				if o := soon(t, string(ids[i]), out); o.err != nil || o.value.Last != 1 {
					t.Errorf("%s: %+v, %v", ids[i], o.value, o.err)
				}
			}
			soundLogs(t, s.Store, map[hansard.SessionID]int{"a": 3, ids[0]: 1, ids[len(ids)-1]: 1})
		})
	}
}

// member is one append of a group, and its expected answer.
type member struct {
	id    hansard.SessionID
	batch hansard.Batch
	last  hansard.Seq // of its receipt
	err   error
	log   int // events in the session afterwards
}

// members are appends of every kind, each to its own session.
func members(t *testing.T, s *blocking) []*member {
	t.Helper()
	ctx := t.Context()
	one := func() []hansard.Event { return []hansard.Event{{Data: []byte("1")}} }
	s.makeSessions("plain", "keyed", "known", "reused", "expects", "conflict", "held", "fenced", "excluded", "named", "two", "patched", "deleted")
	for _, id := range []hansard.SessionID{"known", "reused"} {
		if _, err := s.Append(ctx, id, hansard.Batch{Events: one(), Key: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	var held hansard.Turn
	for _, id := range []hansard.SessionID{"held", "fenced", "excluded"} {
		turn, err := s.Acquire(ctx, id, hansard.Claim{Exclusive: true, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if id == "held" {
			held = turn
		}
	}
	if err := s.Delete(ctx, "deleted", ""); err != nil {
		t.Fatal(err)
	}
	title := "new"
	return []*member{
		{id: "plain", batch: hansard.Batch{Events: one()}, last: 1, log: 1},
		{id: "keyed", batch: hansard.Batch{Events: one(), Key: "k"}, last: 1, log: 1},
		{id: "known", batch: hansard.Batch{Events: one(), Key: "k"}, last: 1, log: 1},
		{id: "reused", batch: hansard.Batch{Events: []hansard.Event{{Data: []byte("2")}}, Key: "k"}, err: hansard.ErrKeyReused, log: 1},
		{id: "expects", batch: hansard.Batch{Events: one(), Expect: hansard.At(0)}, last: 1, log: 1},
		{id: "conflict", batch: hansard.Batch{Events: one(), Expect: hansard.At(7)}, err: hansard.ErrConflict},
		{id: "held", batch: hansard.Batch{Events: one(), Turn: held.Grant}, last: 2, log: 2},
		{id: "fenced", batch: hansard.Batch{Events: one(), Turn: "9-00000000000000aa"}, err: hansard.ErrFenced, log: 1},
		{id: "excluded", batch: hansard.Batch{Events: one()}, err: hansard.ErrHeld, log: 1},
		{id: "named", batch: hansard.Batch{Events: []hansard.Event{{ID: "e", Data: []byte("1")}}}, last: 1, log: 1},
		{id: "two", batch: hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}, {Data: []byte("2")}}}, last: 2, log: 2},
		{id: "patched", batch: hansard.Batch{Events: one(), Patch: &hansard.Patch{Title: &title}}, last: 1, log: 1},
		{id: "deleted", batch: hansard.Batch{Events: one()}, err: hansard.ErrDeleted, log: -1},
		{id: "made", batch: hansard.Batch{Events: one(), Create: true}, last: 1, log: 1},
		{id: "missing", batch: hansard.Batch{Events: one()}, err: hansard.ErrNotFound, log: -1},
	}
}

// appendAll appends in one commit, as far as possible, and checks every answer and every log.
func appendAll(t *testing.T, s *blocking, all []*member) {
	t.Helper()
	outs := map[*member]<-chan outcome[hansard.Receipt]{}
	gather(t, s.Store, len(all), func() {
		for _, m := range all {
			outs[m] = later(func() (hansard.Receipt, error) { return s.Append(t.Context(), m.id, m.batch) })
		}
	})
	logs := map[hansard.SessionID]int{}
	for m, out := range outs {
		if o := soon(t, string(m.id), out); !errors.Is(o.err, m.err) || o.value.Last != m.last {
			t.Errorf("%s: %+v, %v; want seq %d, %v", m.id, o.value, o.err, m.last, m.err)
		}
		if m.log >= 0 {
			logs[m.id] = m.log
		}
	}
	soundLogs(t, s.Store, logs)
}

// TestRefusalsLeaveTheOthers: each member of a group gets its own answer, and a refusal of one
// does not affect another: that one is stored by the first statement.
func TestRefusalsLeaveTheOthers(t *testing.T) {
	tap, s := tapStore(t)
	all := members(t, s)
	for i, m := range all[1:] {
		t.Run(string(m.id), func(t *testing.T) {
			plain := *all[0]
			plain.last, plain.log = hansard.Seq(i+1), i+1
			before := len(tap.Trips())
			appendAll(t, s, []*member{m, &plain})
			for _, trip := range tap.Trips()[before:] {
				alone := slices.ContainsFunc(trip, func(sql string) bool {
					return slices.Contains([]string{appendOne, appendShelved, namedOne, namedShelved, appendPlain}, sql)
				})
				if thereIs := m.id != "made" && m.id != "missing"; alone && thereIs {
					t.Errorf("it was sent again: %.100q", trip)
				}
			}
		})
	}
}

// TestErrorsLeaveTheOthers: a database error in one session undoes the commit, but the other
// sessions do not see the error.
func TestErrorsLeaveTheOthers(t *testing.T) {
	for _, code := range []string{diskFull, uniqueViolation, "40001", "22P02"} {
		t.Run(code, func(t *testing.T) {
			s := newBlocking(t, "")
			s.makeSessions("a", "b")
			s.exec(`CREATE SEQUENCE tries`)
			s.exec(fmt.Sprintf(`CREATE FUNCTION refuse_some() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF NEW.id = 's' AND ('%[1]s' NOT IN ('23505', '40001') OR nextval('tries') <= 3) THEN RAISE EXCEPTION 'refused' USING ERRCODE = '%[1]s'; END IF;
				RETURN NEW; END $$`, code))
			s.exec("CREATE TRIGGER refuse_some BEFORE INSERT ON hansard_events FOR EACH ROW EXECUTE FUNCTION refuse_some()")
			outs := map[hansard.SessionID]<-chan outcome[hansard.Receipt]{}
			gather(t, s.Store, 3, func() {
				for _, id := range []hansard.SessionID{"a", "s", "b"} {
					outs[id] = s.appendLater(id)
				}
			})
			passes := code == uniqueViolation || code == "40001"
			for id, out := range outs {
				o := soon(t, string(id), out)
				if refused := id == "s" && !passes; (o.err != nil) != refused || errors.Is(o.err, hansard.ErrUnknown) {
					t.Errorf("%s: %+v, %v", id, o.value, o.err)
				}
			}
			soundLogs(t, s.Store, map[hansard.SessionID]int{"a": 1, "b": 1, "s": map[bool]int{true: 1}[passes]})
		})
	}
}

// TestLostTogether: the connection is lost in the middle of a commit of many sessions, before the
// server got it or after it was carried out: each member gets its own answer, as if nothing had
// happened, and is stored once.
func TestLostTogether(t *testing.T) {
	for _, heard := range []bool{false, true} {
		t.Run(fmt.Sprintf("heard %v", heard), func(t *testing.T) {
			tap, s := tapStore(t)
			all := members(t, s)
			for _, m := range all {
				// A refusal that may not last is not final: the statement may yet arrive.
				if m.id == "conflict" || m.id == "excluded" || m.id == "missing" {
					m.err = hansard.ErrUnknown
				}
			}
			tap.Lose(pgtest.Loss{SQL: namedTogether, Heard: heard})
			appendAll(t, s, all)
			if tap.Left() > 0 {
				t.Fatal("no connection was lost")
			}
		})
	}
}

// TestLostTogetherAndLate: the network delays the commit of many sessions, and delivers it after
// each of them was settled. It stores nothing twice.
func TestLostTogetherAndLate(t *testing.T) {
	tap, s := tapStore(t)
	s.makeSessions("a", "b")
	release, delivered := make(chan struct{}), make(chan struct{})
	tap.Lose(pgtest.Loss{SQL: appendTogether, Late: release, Then: func() { close(delivered) }})
	var all []*member
	for _, id := range []hansard.SessionID{"a", "s", "b"} {
		all = append(all, &member{id: id, batch: hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}, last: 1, log: 1})
	}
	appendAll(t, s, all)
	close(release)
	<-delivered
	soundLogs(t, s.Store, map[hansard.SessionID]int{"a": 1, "s": 1, "b": 1})
}

// TestWithdrawnTogether: a caller that gives up while its append is queued gets the answer that
// it is not stored, and it is not.
func TestWithdrawnTogether(t *testing.T) {
	s := newBlocking(t, "")
	s.makeSessions("a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	var a <-chan outcome[hansard.Receipt]
	gather(t, s.Store, 3, func() {
		one := []hansard.Event{{Data: []byte("1")}}
		given := later(func() (hansard.Receipt, error) { return s.Append(ctx, "s", hansard.Batch{Events: one}) })
		a = s.appendLater("a")
		b := later(func() (hansard.Receipt, error) { return s.Append(ctx, "b", hansard.Batch{Events: one}) })
		until(t, "the appends queue up", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.ready) == 3
		})
		cancel()
		for _, out := range []<-chan outcome[hansard.Receipt]{given, b} {
			if o := soon(t, "who gave up", out); !errors.Is(o.err, context.Canceled) || errors.Is(o.err, hansard.ErrUnknown) {
				t.Error(o.err)
			}
		}
	})
	if o := soon(t, "a", a); o.err != nil {
		t.Error(o.err)
	}
	until(t, "nobody waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.lanes) == 0
	})
	soundLogs(t, s.Store, map[hansard.SessionID]int{"a": 1, "s": 0, "b": 0})
}

// TestGroupsAreBounded: however many sessions wait, a commit takes only some of them.
func TestGroupsAreBounded(t *testing.T) {
	const sessions = 3*groupSessions + 1
	tap, s := tapStore(t)
	var outs []<-chan outcome[hansard.Receipt]
	var ids []hansard.SessionID
	for i := range sessions {
		ids = append(ids, hansard.SessionID(fmt.Sprint("many-", i)))
	}
	s.makeSessions(ids...)
	trips := tap.During(tellOthers, func() {
		gather(t, s.Store, sessions, func() {
			for _, id := range ids {
				outs = append(outs, s.appendLater(id))
			}
		})
		for i, out := range outs {
			if o := soon(t, string(ids[i]), out); o.err != nil {
				t.Error(o.err)
			}
		}
	})
	// Three commits, one single append, and two round trips that prepare the statements.
	if n := len(trips); n != 6 {
		t.Errorf("%d sessions took %d round trips: %.200q", sessions, n, trips)
	}
}

// TestShelved: sessions are listed in the right order, whether they are appended to together or
// one by one, and also if a remembered place is wrong.
func TestShelved(t *testing.T) {
	for _, one := range []bool{false, true} {
		for _, remembered := range []bool{false, true} {
			t.Run(fmt.Sprintf("one by one %v/remembered %v", one, remembered), func(t *testing.T) { testShelved(t, one, remembered) })
		}
	}
}

func testShelved(t *testing.T, one, remembered bool) {
	s := newBlocking(t, "")
	s.makeSessions("a", "b")
	ids := []hansard.SessionID{"a", "s", "b"}
	n := 0
	add := func() {
		t.Helper()
		n++
		var all []*member
		for _, id := range ids {
			all = append(all, &member{id: id, batch: hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}, last: hansard.Seq(n), log: n})
		}
		if !one {
			appendAll(t, s, all)
			return
		}
		for _, m := range all {
			if o := soon(t, string(m.id), s.appendLater(m.id)); o.err != nil {
				t.Error(o.err)
			}
		}
		soundLogs(t, s.Store, map[hansard.SessionID]int{"a": n, "s": n, "b": n})
	}
	for _, then := range []string{"'-infinity'", "updated - interval '1 hour'", "updated + interval '1 hour'"} {
		add()
		for _, id := range ids {
			if !s.shelves.fresh(id) {
				t.Errorf("the place of %s is not remembered", id)
			}
		}
		s.exec("UPDATE hansard_heads SET listed = " + then)
		s.exec("UPDATE hansard_listing l SET listed = h.listed FROM hansard_heads h WHERE h.id = l.id")
		if !remembered {
			s.shelves.mu.Lock()
			clear(s.shelves.until)
			s.shelves.mu.Unlock()
		}
		add()
	}
}

// TestShelvesAreBounded: what is remembered of sessions does not grow without limit.
func TestShelvesAreBounded(t *testing.T) {
	var h shelves
	for i := range 2 * shelfRoom {
		h.learn(hansard.SessionID(fmt.Sprint(i)), span.Seconds())
	}
	if len(h.until) != shelfRoom {
		t.Errorf("%d sessions are remembered, want %d", len(h.until), shelfRoom)
	}
	if !h.fresh("0") || h.fresh(hansard.SessionID(fmt.Sprint(shelfRoom))) {
		t.Error("the first are not remembered, or the last are")
	}
	h.learn("0", shelfMargin.Seconds())
	if h.fresh("0") {
		t.Error("a place is remembered that has to be put right at once")
	}
}

// TestLockedAreTriedAgain: appends to locked sessions go with lockedTries more commits, and
// then wait for the row.
func TestLockedAreTriedAgain(t *testing.T) {
	tap, s := tapStore(t)
	s.makeSessions("a", "b")
	outs := map[hansard.SessionID]<-chan outcome[hansard.Receipt]{}
	together := func() {
		gather(t, s.Store, 3, func() {
			for _, id := range []hansard.SessionID{"a", "s", "b"} {
				outs[id] = s.appendLater(id)
			}
		})
	}
	together() // prepares the statements
	for id, out := range outs {
		if o := soon(t, string(id), out); o.err != nil {
			t.Error(o.err)
		}
	}
	trips := tap.During(tellOthers, func() {
		s.exec("BEGIN")
		s.exec("SELECT 1 FROM hansard_heads WHERE id IN ('a', 's') FOR UPDATE")
		together()
		if o := soon(t, "b, which nobody has locked", outs["b"]); o.err != nil {
			t.Error(o.err)
		}
		s.waiting(1)
	})
	s.exec("COMMIT")
	for id, out := range outs {
		if id == "b" {
			continue
		}
		if o := soon(t, string(id), out); o.err != nil || o.value.Last != 2 {
			t.Errorf("%s: %+v, %v", id, o.value, o.err)
		}
	}
	n := 0
	for _, trip := range trips {
		if trip[0] == appendTogether {
			n++
		}
	}
	if n != lockedTries+1 {
		t.Errorf("they went with %d commits, want %d", n, lockedTries+1)
	}
	soundLogs(t, s.Store, map[hansard.SessionID]int{"a": 2, "s": 2, "b": 2})
}

// TestLeadingOneself: a caller whose context can't end sends its append itself. While its row is
// locked, others are not kept waiting.
func TestLeadingOneself(t *testing.T) {
	s := newBlocking(t, "")
	s.makeSessions("a")
	s.lock()
	locked := later(func() (hansard.Receipt, error) {
		return s.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}})
	})
	s.waiting(1)
	for range 2 {
		if o := soon(t, "another session", s.appendLater("a")); o.err != nil {
			t.Error(o.err)
		}
	}
	s.exec("COMMIT")
	if o := soon(t, "the session that was locked", locked); o.err != nil || o.value.Last != 1 {
		t.Errorf("%+v, %v", o.value, o.err)
	}
	soundLogs(t, s.Store, map[hansard.SessionID]int{"a": 2, "s": 1})
}

// TestLeadingOneselfOnly: a caller that sends its append itself does not wait for the row of a
// session that another sender found locked in the meantime.
func TestLeadingOneselfOnly(t *testing.T) {
	s := newBlocking(t, "")
	s.makeSessions("a")
	made := func(data string) *request {
		r, err := newRequest(&hansard.Batch{Events: []hansard.Event{{Data: []byte(data)}}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	s.lock()
	own := made(`1`)
	if err := s.begin(t.Context(), "a"); err != nil { // as Append does
		t.Fatal(err)
	}
	if !s.submit("a", own, true) {
		t.Fatal("somebody else sends it")
	}
	// So large that it does not fit into one commit with the other.
	others := made(`"` + strings.Repeat("x", togetherBytes) + `"`)
	others.fate.Take()
	l := &lane{id: "s"}
	s.mu.Lock()
	s.lanes["s"] = l
	s.mu.Unlock()
	s.tryAgain(part{lane: l, group: []*request{others}})
	led := later(func() (struct{}, error) { s.leadSelf(); s.work.Done(); return struct{}{}, nil })
	soon(t, "the caller", led)
	if o := soon(t, "its append", later(func() (struct{}, error) { <-own.done; return struct{}{}, own.err })); o.err != nil {
		t.Error(o.err)
	}
	s.exec("COMMIT")
	if o := soon(t, "the session that was locked", later(func() (struct{}, error) { <-others.done; return struct{}{}, others.err })); o.err != nil {
		t.Error(o.err)
	}
	soundLogs(t, s.Store, map[hansard.SessionID]int{"a": 1, "s": 1})
}

// TestLeadingOneselfForOthers: another sender takes what has no room in the commit that a
// caller sends itself.
func TestLeadingOneselfForOthers(t *testing.T) {
	s := newBlocking(t, "")
	var ids []hansard.SessionID
	var all []*request
	for i := range 2*groupSessions + 1 {
		ids = append(ids, hansard.SessionID(fmt.Sprint("many-", i)))
	}
	s.makeSessions(ids...)
	leads := 0
	for _, id := range ids {
		r, err := newRequest(&hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
		if s.submit(id, r, true) {
			leads++
		}
	}
	if leads != 1 {
		t.Fatalf("%d callers are to lead, want 1", leads)
	}
	s.work.Add(1) // as of a call
	soon(t, "the one that leads", later(func() (struct{}, error) {
		defer s.work.Done()
		s.leadSelf()
		return struct{}{}, nil
	}))
	logs := map[hansard.SessionID]int{}
	for i, r := range all {
		soon(t, string(ids[i]), later(func() (struct{}, error) { <-r.done; return struct{}{}, r.err }))
		if r.err != nil || r.receipt.Last != 1 {
			t.Errorf("%s: %+v, %v", ids[i], r.receipt, r.err)
		}
		logs[ids[i]] = 1
	}
	until(t, "nobody leads", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.senders == 0
	})
	soundLogs(t, s.Store, logs)
}
