package httpd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/httpd"
	"hansard/internal/wire"
	"hansard/memstore"
)

// TestSessions: create, list, describe, change and delete sessions.
func TestSessions(t *testing.T) {
	v := serveMemory(t)
	made := v.must(201, "POST", "/v1/sessions", `{"id":"a","title":"A <b>","labels":{"team":"red"},"state":{"n": 1.50}}`)
	if made.header.Get("Location") != "/v1/sessions/a" || tagSeq(made) != "0" {
		t.Errorf("headers %v", made.header)
	}
	var s map[string]any
	made.into(t, &s)
	if s["id"] != "a" || s["title"] != "A <b>" || s["damaged"] != false || s["turn"] != nil || s["last_seq"] != 0.0 {
		t.Errorf("made %s", made.body)
	}
	if !strings.Contains(made.body, `"state":{"n":1.50}`) {
		t.Errorf("the state lost its digits: %s", made.body)
	}
	fresh := v.must(201, "POST", "/v1/sessions", `{}`)
	fresh.into(t, &s)
	if id, _ := s["id"].(string); len(id) != 36 {
		t.Errorf("an id of ours: %s", fresh.body)
	}
	if got := v.ask("POST", "/v1/sessions", `{"id":"a"}`); got.status != 409 || got.problem() != "exists" {
		t.Errorf("again: %d %s", got.status, got.body)
	}
	changed := v.must(200, "PATCH", "/v1/sessions/a", `{"title":"B","labels":{"team":null,"x":"y"},"state":{"m":2}}`, "If-Match", `"0"`)
	if tagSeq(changed) != "1" || !strings.Contains(changed.body, `"labels":{"x":"y"},"state":{"m":2,"n":1.50}`) {
		t.Errorf("changed: %v %s", changed.header, changed.body)
	}
	if got := v.ask("PATCH", "/v1/sessions/a", `{"title":"C"}`, "If-Match", `"0"`); got.status != 412 || got.header.Get("ETag") != `"1"` {
		t.Errorf("changed on a wrong condition: %d %v", got.status, got.header)
	}
	operations := func(list string) reply { return v.ask("PATCH", "/v1/sessions/a", `{"state_ops":`+list+`}`) }
	if got := operations(`[{"op":"test","path":"/n","value":1.5},{"op":"replace","path":"/m","value":null}]`); got.status != 200 || !strings.Contains(got.body, `"state":{"m":null,"n":1.50}`) {
		t.Errorf("changed by operations: %d %s", got.status, got.body)
	}
	for list, want := range map[string]string{
		`[{"op":"add","path":"/x","value":1},{"op":"test","path":"/m","value":2}]`: `"detail":"conflict in session a: the state is not what state_ops[1] tests for at \"/m\""`,
		`[{"op":"test","path":"/m","value":2}]`:                                    `"state_op":0,"path":"/m"`,
		`[{"op":"remove","path":"/nobody"}]`:                                       `"field":"state_ops[0].path"`,
		`[{"op":"remove"}]`:                                                        `has no path"`,
		`[{"op":"remove","path":"/m","value":null}]`:                               `"field":"state_ops[0].value"`,
		`[{"op":"move","path":"/m","from":"/n"}]`:                                  `has a member \"from\"`,
		`7`: `"field":"state_ops"`,
	} {
		if got := operations(list); got.status != 412 && got.status != 422 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s, want %s", list, got.status, got.body, want)
		}
	}
	v.must(204, "DELETE", "/v1/sessions/a", "")
	if got := v.ask("GET", "/v1/sessions/a", ""); got.status != 410 || got.problem() != "deleted" {
		t.Errorf("deleted: %d %s", got.status, got.problem())
	}
	if got := v.ask("POST", "/v1/sessions", `{"id":"a"}`); got.status != 410 {
		t.Errorf("made again: %d", got.status)
	}
	if got := v.ask("POST", "/v1/sessions/a/events", `{"events":[{"data":1}],"create":true}`); got.status != 410 {
		t.Errorf("appended to: %d", got.status)
	}
}

// TestList: pages, newest first, by label, text and time; the readiness probe is not in the list.
func TestList(t *testing.T) {
	v := serveMemory(t)
	v.must(200, "GET", "/readyz", "")
	for i := range 7 {
		v.must(201, "POST", "/v1/sessions", fmt.Sprintf(`{"id":"s%d","title":"Title %d","labels":{"odd":"%v"}}`, i, i, i%2 == 1))
	}
	type page struct {
		Sessions []struct{ ID, Cursor string }
		Next     string
	}
	get := func(query string) (ids string, p page) {
		v.must(200, "GET", "/v1/sessions?"+query, "").into(t, &p)
		for _, s := range p.Sessions {
			ids += s.ID + " "
		}
		return strings.TrimSpace(ids), p
	}
	if ids, p := get(""); ids != "s6 s5 s4 s3 s2 s1 s0" || p.Next != "" {
		t.Errorf("all: %s, next %q", ids, p.Next)
	}
	ids, p := get("limit=3")
	if ids != "s6 s5 s4" || p.Next == "" {
		t.Errorf("the first page: %s", ids)
	}
	ids, p = get("limit=4&cursor=" + p.Next)
	if ids != "s3 s2 s1 s0" || p.Next == "" {
		t.Errorf("the second page: %s, next %q", ids, p.Next)
	}
	// Sessions that changed since a minute before the first page come again, so that none updated
	// between two pages is missed.
	if ids, p := get("limit=10&cursor=" + p.Next); ids != "s6 s5 s4 s3 s2 s1 s0" || p.Next != "" {
		t.Errorf("the last page: %s, next %q", ids, p.Next)
	}
	if ids, _ := get("label=odd=true&q=TITLE"); ids != "s5 s3 s1" {
		t.Errorf("by label: %s", ids)
	}
	if ids, _ := get("q=nothing"); ids != "" {
		t.Errorf("by text: %s", ids)
	}
	if ids, _ := get("since=2999-01-01T00:00:00Z"); ids != "" {
		t.Errorf("since: %s", ids)
	}
	if ids, p := get("limit=0"); ids != "s6 s5 s4 s3 s2 s1 s0" || p.Next != "" {
		t.Errorf("without a limit: %s, next %q", ids, p.Next)
	}
	if got := v.must(200, "GET", "/v1/sessions?limit=0", "", "Accept", "application/x-ndjson"); strings.Count(got.body, "\n") != 7 {
		t.Errorf("without a limit, as lines: %s", got.body)
	}
	v.say("s2", "newest now")
	if ids, _ := get("prefix=s&id=s1&id=s2&id=none"); ids != "s2 s1" {
		t.Errorf("by ids: %s", ids)
	}
	if ids, _ := get("prefix=s3"); ids != "s3" {
		t.Errorf("by prefix: %s", ids)
	}
	if ids, _ := get("order=updated&limit=1"); ids != "s2" {
		t.Errorf("by update: %s", ids)
	}
	ids, p = get("order=created&limit=5")
	if ids != "s6 s5 s4 s3 s2" || p.Next == "" {
		t.Errorf("by creation: %s", ids)
	}
	if rest, _ := get("order=created&cursor=" + p.Next); rest != "s1 s0" {
		t.Errorf("by creation, the last page: %s", rest)
	}
	if got := v.ask("GET", "/v1/sessions?cursor="+p.Next, ""); got.status != 422 {
		t.Errorf("a cursor of another order: %d %s", got.status, got.body)
	}
	lines := v.must(200, "GET", "/v1/sessions?limit=2", "", "Accept", "application/x-ndjson")
	if n := strings.Count(lines.body, "\n"); n != 2 || lines.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d lines: %s", n, lines.body)
	}
}

// TestAppend: receipts, conditions, keys, patches, the inbox mark.
func TestAppend(t *testing.T) {
	v := serveMemory(t)
	path := "/v1/sessions/s/events"
	if got := v.ask("POST", path, oneEvent); got.status != 404 {
		t.Errorf("a session that is not there: %d", got.status)
	}
	data := `{"z" :1, "a":"\u00e9é<>&", "n":1.0e+2}`
	got := v.must(201, "POST", path, `{"events":[{"kind":"k","role":"r","author":"a","inbox":true,"data":`+data+`},{"data":null}],"create":true,"patch":{"title":"T"}}`,
		"Idempotency-Key", "abc")
	if got.body != `{"session":"s","first":1,"last":2,"replayed":false,"created":true}`+"\n" || got.header.Get("ETag") != `"2"` {
		t.Errorf("receipt %s", got.body)
	}
	got = v.must(201, "POST", path, `{"events":[{"kind":"k","role":"r","author":"a","inbox":true,"data":`+data+`},{"data":null}],"patch":{"title":"T"}}`,
		"Idempotency-Key", `"abc"`, "If-Match", `"77"`)
	if !strings.Contains(got.body, `"replayed":true`) {
		t.Errorf("a retry: %s", got.body)
	}
	got = v.ask("POST", path, oneEvent, "Idempotency-Key", "abc")
	var p wire.Problem
	got.into(t, &p)
	if got.status != 422 || got.problem() != "key-reused" || p.First != 1 || p.Last != 2 || p.Key != "abc" || p.Hint() == "" {
		t.Errorf("a key for something else: %d %s", got.status, got.body)
	}
	got = v.ask("POST", path, `{"events":[{"data":1}],"expect":1}`)
	got.into(t, &p)
	if got.status != 412 || p.LastSeq == nil || *p.LastSeq != 2 || *p.Expected != 1 {
		t.Errorf("a wrong expectation: %d %s", got.status, got.body)
	}
	v.must(201, "POST", path, `{"events":[{"data":1}],"expect":2,"inbox":true}`)
	events := v.must(200, "GET", path, "")
	if !strings.Contains(events.body, `"inbox":true,"data":`+data) || !strings.Contains(events.body, `"patch":{"title":"T"}`) {
		t.Errorf("the data is not as it was: %s", events.body)
	}
	var page struct {
		Events  []hansard.Event
		LastSeq int `json:"last_seq"`
		More    bool
	}
	events.into(t, &page)
	if len(page.Events) != 3 || page.LastSeq != 3 || page.More || !page.Events[2].Inbox || tagSeq(events) != "3" {
		t.Errorf("page %s", events.body)
	}
	v.must(200, "GET", path+"?after=1&limit=1", "").into(t, &page)
	if len(page.Events) != 1 || page.Events[0].Seq != 2 || !page.More || page.LastSeq != 3 {
		t.Errorf("a page in the middle: %+v", page)
	}
	v.must(200, "GET", path+"?last=2&kind=k&kind=message", "").into(t, &page)
	if len(page.Events) != 2 || page.Events[0].Seq != 2 {
		t.Errorf("the last: %+v", page)
	}
	v.must(200, "GET", path+"?limit=0", "").into(t, &page)
	if len(page.Events) != 3 || page.More {
		t.Errorf("without a limit: %+v", page)
	}
	if got := v.must(200, "GET", path+"?limit=0", "", "Accept", "application/x-ndjson"); strings.Count(got.body, "\n") != 3 {
		t.Errorf("without a limit, as lines: %s", got.body)
	}
	if got := v.ask("GET", "/v1/sessions/nowhere/events?limit=0", "", "Accept", "application/x-ndjson"); got.status != 404 {
		t.Errorf("of nothing: %d", got.status)
	}
}

// TestReadBackwards: pages from the end, as JSON and as lines.
func TestReadBackwards(t *testing.T) {
	v := serveMemory(t)
	for i := range 7 {
		v.must(201, "POST", "/v1/sessions/s/events", fmt.Sprintf(`{"events":[{"kind":"k%d","data":1}],"create":true}`, i%3))
	}
	get := func(query string) (seqs string, more bool) {
		t.Helper()
		var page struct {
			Events  []hansard.Event
			LastSeq int `json:"last_seq"`
			More    bool
		}
		v.must(200, "GET", "/v1/sessions/s/events?"+query, "").into(t, &page)
		if page.LastSeq != 7 {
			t.Errorf("%s: last seq %d", query, page.LastSeq)
		}
		for _, e := range page.Events {
			seqs += fmt.Sprint(e.Seq)
		}
		lines := v.must(200, "GET", "/v1/sessions/s/events?"+query, "", "Accept", "application/x-ndjson").body
		if n := strings.Count(lines, "\n"); n != len(seqs) || n > 0 && !strings.HasPrefix(lines, `{"seq":`+seqs[:1]) {
			t.Errorf("%s: as lines %s", query, lines)
		}
		return seqs, page.More
	}
	for _, c := range []struct {
		query, seqs string
		more        bool
	}{
		{"reverse=true", "7654321", false},
		{"reverse=true&limit=3", "765", true},
		{"reverse=true&limit=3&before=5", "432", true},
		{"reverse=true&limit=3&before=2", "1", false},
		{"reverse&before=0&limit=1", "7", true},
		{"before=3", "12", false},
		{"before=6&after=3", "45", false},
		{"from_kind=k1", "567", false},
		{"from_kind=k1&before=5&reverse=1", "432", false},
		{"reverse=true&last=2&limit=5", "76", false},
		{"reverse=false&limit=1", "1", true},
	} {
		if seqs, more := get(c.query); seqs != c.seqs || more != c.more {
			t.Errorf("%s: %s, more %v; want %s, %v", c.query, seqs, more, c.seqs, c.more)
		}
	}
}

// TestLongPoll: a request for events waits for one, but not for ever.
func TestLongPoll(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "one")
	if got := v.must(200, "GET", "/v1/sessions/s/events?after=1&wait_ms=20", ""); !strings.Contains(got.body, `"events":[]`) {
		t.Errorf("nothing came: %s", got.body)
	}
	answered := make(chan reply)
	go func() {
		got, _ := v.try("GET", "/v1/sessions/s/events?after=1&wait_ms=50000", "")
		answered <- got
	}()
	eventually(t, "somebody waits", func() bool {
		return strings.Contains(v.must(200, "GET", "/metrics", "").body, "hansard_followers 1")
	})
	v.say("s", "two")
	if got := <-answered; got.status != 200 || !strings.Contains(got.body, `"seq":2`) {
		t.Errorf("what came: %d %s", got.status, got.body)
	}
	if got := v.ask("GET", "/v1/sessions/nowhere/events?wait_ms=50000", ""); got.status != 404 {
		t.Errorf("nowhere: %d", got.status)
	}
}

// TestTurnRoutes: acquire, inspect, renew, release; held and fenced errors say by whom.
func TestTurnRoutes(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "one")
	path := "/v1/sessions/s/turn"
	if got := v.must(200, "GET", path, ""); got.body != `{"turn":null}`+"\n" {
		t.Errorf("free: %s", got.body)
	}
	var turn hansard.Turn
	v.must(201, "POST", path, `{"ttl_ms":60000,"label":"planner","exclusive":true}`).into(t, &turn)
	if turn.TTL != time.Minute || !turn.Exclusive || turn.Holder.Label != "planner" {
		t.Errorf("granted %+v", turn)
	}
	var p wire.Problem
	held := v.ask("POST", path, `{"wait_ms":30}`)
	held.into(t, &p)
	if held.status != 423 || p.Holder == nil || p.Holder.Grant != "" || p.Holder.Seq != turn.Seq || p.RetryAfter == 0 || held.header.Get("Retry-After") == "" {
		t.Errorf("held: %d %s", held.status, held.body)
	}
	if got := v.ask("POST", "/v1/sessions/s/events", oneEvent); got.status != 423 {
		t.Errorf("an append of another: %d", got.status)
	}
	v.must(201, "POST", "/v1/sessions/s/events", `{"events":[{"data":1}],"inbox":true}`)
	v.must(201, "POST", "/v1/sessions/s/events", fmt.Sprintf(`{"events":[{"data":1}],"turn":%q}`, turn.Grant))
	if got := v.ask("DELETE", "/v1/sessions/s", ""); got.status != 423 {
		t.Errorf("a deletion by another: %d", got.status)
	}
	v.must(200, "PUT", path, fmt.Sprintf(`{"grant":%q}`, turn.Grant))
	if got := v.must(200, "GET", "/v1/sessions/s", ""); !strings.Contains(got.body, string(turn.Grant)) {
		t.Errorf("the session does not tell of its turn: %s", got.body)
	}
	v.must(204, "DELETE", path+"?grant="+string(turn.Grant), "")
	got := v.ask("DELETE", path, fmt.Sprintf(`{"grant":%q}`, turn.Grant))
	p = wire.Problem{}
	got.into(t, &p)
	if got.status != 409 || got.problem() != "fenced" || p.Grant != turn.Grant || p.Holder != nil {
		t.Errorf("released twice: %d %s", got.status, got.body)
	}
	// A claimant that goes away leaves nothing behind.
	v.must(201, "POST", path, `{}`).into(t, &turn)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	gone := make(chan error)
	go func() {
		_, err := v.tryContext(ctx, "POST", path, `{"wait_ms":-1}`)
		gone <- err
	}()
	if err := <-gone; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the claimant: %v", err)
	}
	v.must(204, "DELETE", path+"?grant="+string(turn.Grant), "")
	eventually(t, "the turn is free", func() bool {
		return v.must(200, "GET", path, "").body == `{"turn":null}`+"\n"
	})
}

// broken is a store whose writes and reads fail.
type broken struct {
	hansard.Store
	err error
}

func (b *broken) Append(context.Context, hansard.SessionID, hansard.Batch) (hansard.Receipt, error) {
	return hansard.Receipt{}, b.err
}

func (b *broken) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	return hansard.Info{}, b.err
}

func (b *broken) List(context.Context, hansard.Query) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) { yield(hansard.Info{}, b.err) }
}

// TestProblems: every error has its own status and type, comes back as the same error, and
// reveals nothing about the machine.
func TestProblems(t *testing.T) {
	turn := hansard.Turn{Grant: "7-9f86d081884c7d65", Holder: hansard.Holder{Label: "x"}, Since: time.Now().UTC().Truncate(time.Second), TTL: time.Second}
	for _, c := range []struct {
		err    error
		status int
		kind   string
	}{
		{&hansard.InvalidError{Field: "f", Reason: "r"}, 422, "invalid"},
		{&hansard.InvalidError{Field: "f", Reason: "r", TooLarge: true}, 413, "too-large"},
		{hansard.ErrNotFound, 404, "not-found"},
		{hansard.ErrDeleted, 410, "deleted"},
		{hansard.ErrExists, 409, "exists"},
		{&hansard.ConflictError{Session: "s", Expected: 1, Actual: 2}, 412, "conflict"},
		{&hansard.StateTestError{Session: "s", Index: 0, Path: "/etc/a~1b c"}, 412, "conflict"},
		{&hansard.StateTestError{Session: "s", Index: 2}, 412, "conflict"},
		{&hansard.KeyReusedError{Session: "s", Key: "k", First: 1, Last: 2}, 422, "key-reused"},
		{&hansard.HeldError{Session: "s", Turn: turn}, 423, "held"},
		{&hansard.FencedError{Session: "s", Grant: "1-0", Current: &turn}, 409, "fenced"},
		{fmt.Errorf("%w: it was held for its whole time", hansard.ErrFenced), 409, "fenced"},
		{&hansard.DamagedError{Session: "s", SafeSeq: 3, Offset: 77, Line: 2, Reason: "a checksum does not fit"}, 503, "damaged"},
		{&hansard.BusyError{Holder: "pid 7"}, 503, "busy"},
		{fmt.Errorf("write: %w", hansard.ErrNoSpace), 507, "no-space"},
		{hansard.ErrReadOnly, 403, "read-only"},
		{hansard.ErrFailed, 500, "store-failed"},
		{hansard.ErrUnknown, 504, "outcome-unknown"},
		{fmt.Errorf("%w: %w", hansard.ErrUnknown, hansard.ErrBusy), 504, "outcome-unknown"},
		{hansard.ErrVersion, 500, "newer-version"},
		{hansard.ErrUnsupported, 501, "unsupported"},
		{hansard.ErrClosed, 503, "closing"},
		{&fs.PathError{Op: "open", Path: "/home/lovelace/secret/s.jsonl", Err: errors.New("no")}, 500, "internal"},
		{fmt.Errorf("disk: %w", fmt.Errorf("%w: write /home/lovelace/secret/s.jsonl: no room", hansard.ErrNoSpace)), 507, "no-space"},
		{&hansard.DamagedError{Session: "s", Reason: "open /home/lovelace/secret/s.jsonl: permission denied"}, 503, "damaged"},
	} {
		v := serve(t, &broken{memstore.New(), c.err})
		for _, got := range []reply{
			v.ask("POST", "/v1/sessions/s/events", oneEvent), v.ask("GET", "/v1/sessions/s", ""), v.ask("GET", "/v1/sessions", ""),
			v.ask("GET", "/v1/sessions/s/events", ""), v.ask("GET", "/v1/sessions/s/events/stream", ""), v.ask("GET", "/v1/sessions", "", "Accept", "application/x-ndjson"),
		} {
			if got.status != c.status || got.problem() != c.kind {
				t.Errorf("%v: %d %s, want %d %s", c.err, got.status, got.problem(), c.status, c.kind)
			}
			if strings.Contains(got.body, "secret") || strings.Contains(got.body, "lovelace") || strings.Contains(v.log.String(), "secret") {
				t.Errorf("%v: a path of the machine is told: %s\n%s", c.err, got.body, v.log)
			}
			var p wire.Problem
			got.into(t, &p)
			if p.Title == "" || p.Status != got.status || !strings.HasPrefix(p.Instance, "urn:uuid:") {
				t.Errorf("%v: %s", c.err, got.body)
			}
			if c.kind == "internal" || c.kind == "closing" {
				continue
			}
			back := p.Err()
			for _, sentinel := range []error{hansard.ErrInvalid, hansard.ErrTooLarge, hansard.ErrNotFound, hansard.ErrDeleted, hansard.ErrExists, hansard.ErrConflict,
				hansard.ErrKeyReused, hansard.ErrHeld, hansard.ErrFenced, hansard.ErrDamaged, hansard.ErrNoSpace, hansard.ErrReadOnly, hansard.ErrFailed, hansard.ErrUnknown,
				hansard.ErrVersion, hansard.ErrUnsupported} {
				if errors.Is(c.err, sentinel) != errors.Is(back, sentinel) {
					t.Errorf("%v came back as %v", c.err, back)
				}
			}
			turn.Grant = "" // a refusal does not reveal it
			if held, ok := c.err.(*hansard.HeldError); ok {
				c.err = &hansard.HeldError{Session: held.Session, Turn: turn}
			}
			typed, _ := json.Marshal(c.err)
			again, _ := json.Marshal(back)
			if c.kind != "internal" && strings.HasPrefix(fmt.Sprintf("%T", c.err), "*hansard.") && !errors.Is(c.err, hansard.ErrBusy) &&
				!strings.Contains(c.err.Error(), "secret") && string(typed) != string(again) {
				t.Errorf("%s came back as %s", typed, again)
			}
		}
		v.stop()
	}
}

// panicking is a store whose reads panic after the second event.
type panicking struct{ hansard.Store }

func (p panicking) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		for e, err := range p.Store.Read(ctx, id, r) {
			if !yield(e, err) {
				return
			}
			if e.Seq == 2 {
				panic("after the second event")
			}
		}
	}
}

// TestPanicMidway: an answer in the middle of which the server panics is not taken for a whole one.
func TestPanicMidway(t *testing.T) {
	v := serve(t, panicking{memstore.New()})
	for range 3 {
		v.say("s", strings.Repeat("x", 100<<10)) // more than is gathered before the answer begins
	}
	if got, err := v.try("GET", "/v1/sessions/s/events", "", "Accept", "application/x-ndjson"); err == nil {
		t.Errorf("it is complete: %d, %d bytes", got.status, len(got.body))
	}
	if got := v.ask("GET", "/v1/sessions/s/events", ""); got.status != 500 || got.problem() != "internal" {
		t.Errorf("before the answer has begun: %d %s", got.status, got.body)
	}
}

// TestReady: ready only if a write succeeds, and an earlier result is not reused for long.
func TestReady(t *testing.T) {
	v := serve(t, &broken{memstore.New(), hansard.ErrNoSpace})
	if got := v.ask("GET", "/readyz", ""); got.status != 507 {
		t.Errorf("a full disk: %d", got.status)
	}
	if got := v.ask("GET", "/healthz", ""); got.status != 200 {
		t.Errorf("healthz: %d", got.status)
	}
	slow := serve(t, &prober{memstore.New(), fmt.Errorf("%w: %w", hansard.ErrUnknown, context.DeadlineExceeded)})
	if got := slow.ask("GET", "/readyz", ""); got.status != 503 {
		t.Errorf("no answer in time: %d %s", got.status, got.body)
	}
	store := memstore.New()
	w := serve(t, store)
	for range 3 {
		w.must(200, "GET", "/readyz", "")
	}
	info, err := store.Stat(t.Context(), httpd.ReadySession)
	if err != nil || info.LastSeq != 1 {
		t.Errorf("three probes in a moment wrote %d times: %v", info.LastSeq, err)
	}
}

// prober is a store whose probes end as told.
type prober struct {
	hansard.Store
	err error
}

func (p *prober) Probe(context.Context) error { return p.err }

// TestReadyFiles: on files the write of /readyz goes through the journal, and is in no list.
func TestReadyFiles(t *testing.T) {
	store, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	v := serve(t, store)
	before := store.Measures()["journal_syncs_total"]
	v.must(200, "GET", "/readyz", "")
	if n := store.Measures()["journal_syncs_total"] - before; n < 1 {
		t.Errorf("ready, and the journal was synced %v times", n)
	}
	for info := range store.List(t.Context(), hansard.Query{}) {
		t.Errorf("it left session %s", info.ID)
	}
}
