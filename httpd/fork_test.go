package httpd_test

import (
	"errors"
	"strings"
	"testing"

	"hansard"
	"hansard/httpd"
	"hansard/memstore"
)

// TestForkRoute: a fork is made at a seq or at an event's id, and refused with the errors of the
// contract.
func TestForkRoute(t *testing.T) {
	v := serve(t, memstore.New())
	v.ask("POST", "/v1/sessions/s/events", `{"create":true,"events":[{"id":"a","data":1},{"id":"b","data":2}]}`)
	v.ask("POST", "/v1/sessions/s/events", `{"events":[{"id":"c","data":3}]}`)
	for _, c := range []struct {
		body   string
		status int
		says   string
	}{
		{`{"as":"f","title":"mine","labels":{"l":"1"},"state":[1]}`, 201, `"parent":{"id":"s","at":3}`},
		{`{"as":"g","at_id":"b"}`, 201, `"parent":{"id":"s","at":2}`},
		{`{"as":"h","at":2}`, 201, `"last_seq":3`},
		{`{}`, 201, `"parent":{"id":"s","at":3}`},
		{`{"as":"f"}`, 409, "exists"},
		{`{"as":"i","at":1}`, 422, "fork at 2"},
		{`{"as":"i","at_id":"a"}`, 422, "fork at 2"},
		{`{"as":"i","at_id":"none"}`, 404, "no such event"},
		{`{"as":"i","at":4}`, 422, "its last is 3"},
		{`{"as":"i","at":0}`, 422, "leave it out"},
		{`{"as":"i","at":2,"at_id":"b"}`, 422, "not both"},
		{`{"as":"i","at_id":""}`, 422, "empty"},
		{`{"as":""}`, 422, "empty"},
		{`{"as":"-"}`, 422, "as"},
		{`{"by":"somebody"}`, 422, "by"},
	} {
		a := v.ask("POST", "/v1/sessions/s/fork", c.body)
		if a.status != c.status || !strings.Contains(a.body, c.says) {
			t.Errorf("%s: %d %s; want %d, %q", c.body, a.status, a.body, c.status, c.says)
		}
		if c.status == 201 && !strings.HasPrefix(a.header.Get("Location"), "/v1/sessions/") {
			t.Errorf("%s: Location %q", c.body, a.header.Get("Location"))
		}
	}
	if a := v.ask("POST", "/v1/sessions/s/fork", `{}`, "Idempotency-Key", "k"); a.status != 422 {
		t.Errorf("a fork without a name and with a key: %d %s", a.status, a.body)
	}
	if a := v.ask("POST", "/v1/sessions/s/fork", `{"as":"i"}`, "If-Match", `"99"`); a.status != 422 {
		t.Errorf("a fork with a condition: %d %s", a.status, a.body)
	}
	if a := v.ask("GET", "/v1/sessions?parent=s", ""); strings.Count(a.body, `"last_seq"`) != 4 {
		t.Errorf("the forks: %s", a.body)
	}
	events, err := v.store.Stat(t.Context(), "i")
	if !errors.Is(err, hansard.ErrNotFound) {
		t.Errorf("what was refused is there: %+v, %v", events, err)
	}
}

// TestForkScope: a token can't fork a session it may not read, nor create a fork outside of its
// scope; a fork gets the labels of the token's sessions, and the name of its maker.
func TestForkScope(t *testing.T) {
	v, tokens := scoped(t)
	token := func(name, rights string, scope httpd.Scope) []string {
		t.Helper()
		secret, err := tokens.Add(httpd.Token{Name: name, Rights: rights, Scope: scope})
		if err != nil {
			t.Fatal(err)
		}
		return []string{"Authorization", "Bearer " + secret}
	}
	team := token("team", "read,append", httpd.Scope{Prefix: "team:"})
	labelled := token("labelled", "read,append", httpd.Scope{Prefix: "team:", Labels: map[string]string{"k": "v"}})
	one := token("one", "read,append", httpd.Scope{Session: "team:in"})
	writer := token("writer", "append", httpd.Scope{})
	reader := token("reader", "read", httpd.Scope{})
	for _, c := range []struct {
		who      string
		headers  []string
		id, body string
		status   int
	}{
		{"team", team, "team:in", `{"as":"team:f1"}`, 201},
		{"team", team, "team:in", `{}`, 201},
		{"team", team, "team:in", `{"as":"mine"}`, 404},
		{"team", team, "other", `{"as":"team:f2"}`, 404},
		{"labelled", labelled, "team:in", `{"as":"team:f3"}`, 201},
		{"labelled", labelled, "team:in", `{"as":"team:f4","labels":{"k":"w"}}`, 422},
		{"labelled", labelled, "team:out", `{"as":"team:f5"}`, 404},
		{"one", one, "team:in", `{"as":"team:f6"}`, 404},
		{"one", one, "team:in", `{}`, 404},
		{"writer", writer, "team:in", `{"as":"team:f7"}`, 403},
		{"reader", reader, "team:in", `{"as":"team:f8"}`, 403},
	} {
		a := v.ask("POST", "/v1/sessions/"+c.id+"/fork", c.body, c.headers...)
		if a.status != c.status {
			t.Errorf("%s forks %s with %s: %d %s; want %d", c.who, c.id, c.body, a.status, a.body, c.status)
		}
		if c.status != 201 && strings.Contains(a.body, "SECRET") {
			t.Errorf("%s forks %s with %s and learns %s", c.who, c.id, c.body, a.body)
		}
	}
	forks := 0
	for info, err := range v.store.List(t.Context(), hansard.Query{Parent: "team:in"}) {
		if err != nil {
			t.Fatal(err)
		}
		forks++
		if !strings.HasPrefix(string(info.ID), "team:") || info.Labels["k"] != "v" {
			t.Errorf("there is the fork %+v", info)
		}
		for e, err := range v.store.Read(t.Context(), info.ID, hansard.Range{Kinds: []string{hansard.KindFork}}) {
			if err != nil || e.By != "team" && e.By != "labelled" {
				t.Errorf("fork %s was made by %q, %v", info.ID, e.By, err)
			}
		}
	}
	if forks != 3 {
		t.Errorf("%d forks were made, want 3", forks)
	}
}
