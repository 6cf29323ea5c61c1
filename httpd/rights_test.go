package httpd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/httpd/conversations"
	"hansard/memstore"
)

// as is the header for a token.
func (v *served) as(token string) []string {
	return []string{"Authorization", "Bearer " + v.tokens[token]}
}

// by returns who wrote the last event of a session.
func (v *served) by(session string) string {
	v.t.Helper()
	var page struct{ Events []hansard.Event }
	v.must(200, "GET", "/v1/sessions/"+session+"/events?last=1", "").into(v.t, &page)
	return page.Events[0].By
}

// TestBy: every event has the name of the token that wrote it, over every route, and no client
// can claim another name.
func TestBy(t *testing.T) {
	v := serve(t, memstore.New(), withConversations)
	for _, token := range []string{"admin", "appender"} {
		check := func(what string) {
			t.Helper()
			if by := v.by("s"); by != token {
				t.Errorf("%s of %s is by %q", what, token, by)
			}
		}
		v.must(201, "POST", "/v1/sessions/s/events", `{"events":[{"data":1,"author":"root"}],"create":true}`, v.as(token)...)
		check("an append")
		v.must(200, "PATCH", "/v1/sessions/s", `{"title":"t"}`, v.as(token)...)
		check("a patch")
		v.must(200, "POST", conversations.Prefix+"/s/items", `{"items":[{"role":"user","content":"hello"}]}`, v.as(token)...)
		check("an item")
		c := v.socket(token)
		c.send(`{"op":"append","session":"s","batch":{"events":[{"data":1}]}}`)
		c.next("stored")
		check("an append by socket")
		var turn hansard.Turn
		v.must(201, "POST", "/v1/sessions/s/turn", `{}`, v.as(token)...).into(t, &turn)
		check("a turn")
		if turn.By != token {
			t.Errorf("the turn of %s was granted to %q", token, turn.By)
		}
		v.must(204, "DELETE", "/v1/sessions/s/turn?grant="+string(turn.Grant), "", v.as(token)...)
		check("a release")
		c.send(`{"op":"acquire","session":"s"}`)
		c.next("turn")
		check("a turn by socket")
		c.Close(1000, "")
		eventually(t, "it is released", func() bool { turn, err := v.store.Turn(t.Context(), "s"); return turn == nil && err == nil })
		check("a release by socket")
	}
	for path, body := range map[string]string{"/events": `{"events":[{"data":1,"by":"x"}]}`, "/events ": `{"events":[{"data":1}],"by":"x"}`, "/turn": `{"by":"x"}`} {
		if got := v.ask("POST", "/v1/sessions/s"+strings.TrimSpace(path), body); got.status != 422 || got.problem() != "invalid" {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	// An import keeps the original names.
	v.must(204, "POST", "/v1/sessions/copied/import", `{"created":"2026-01-02T03:04:05Z","events":[{"seq":1,"time":"2026-01-02T03:04:05Z","kind":"k","by":"ann","data":1}]}`)
	if by := v.by("copied"); by != "ann" {
		t.Errorf("an imported event is by %q", by)
	}
}

// secretSession makes a session with a secret in every part, and returns its turn and the id of
// an item.
func secretSession(t *testing.T, v *served) (turn hansard.Turn, itemID string) {
	t.Helper()
	const secret = "SECRET"
	if _, err := v.store.Create(t.Context(), "s", hansard.Meta{Title: secret, Labels: map[string]string{secret: secret}, State: []byte(`"` + secret + `"`)}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := v.store.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Kind: secret, Role: secret, Author: secret, Data: []byte(`{"role":"user","content":"SECRET"}`)}}, By: secret}); err != nil {
			t.Fatal(err)
		}
	}
	var added struct{ Data []struct{ ID string } }
	v.must(200, "POST", conversations.Prefix+"/s/items", `{"items":[{"role":"user","content":"SECRET"}]}`).into(t, &added)
	turn, err := v.store.Acquire(t.Context(), "s", hansard.Claim{Label: secret, Exclusive: true, TTL: time.Hour, By: secret})
	if err != nil {
		t.Fatal(err)
	}
	return turn, added.Data[0].ID
}

// TestAppendReadsNothing: a token that may only append sees nothing that others wrote, on any
// route and in any message, refused or not.
func TestAppendReadsNothing(t *testing.T) {
	for _, held := range []bool{true, false} {
		v := serve(t, &checked{Store: memstore.New()}, withConversations)
		turn, itemID := secretSession(t, v)
		grant := turn.Grant
		if !held {
			if err := v.store.Release(t.Context(), "s", grant); err != nil {
				t.Fatal(err)
			}
		}
		type asked struct{ method, path, body string }
		all := []asked{
			{"POST", conversations.Prefix, `{"items":[{"role":"user","content":"x"}],"metadata":{"a":"b"}}`},
			{"POST", conversations.Prefix + "/s", `{"metadata":{"a":"b"}}`},
			{"POST", conversations.Prefix + "/s/items", `{"items":[{"role":"user","content":"x"}]}`},
			{"POST", conversations.Prefix + "/s/items", `{"items":[]}`},
			{"DELETE", conversations.Prefix + "/s/items/" + itemID, ""},
			{"GET", conversations.Prefix + "/s/items", ""},
			{"POST", "/v1/sessions", `{"id":"s"}`},
			{"POST", "/v1/sessions/s/turn", `{"claim":"c"}`},
			{"DELETE", "/v1/sessions/s/turn", `{"claim":"c"}`},
			{"DELETE", "/v1/sessions/s/turn", `{"claim":"d"}`},
			{"PUT", "/v1/sessions/s/turn", fmt.Sprintf(`{"grant":%q}`, grant)},
			{"POST", "/v1/sessions/s/events", `{"events":[{"data":1}],"expect":1}`},
			{"PATCH", "/v1/sessions/s", `{"labels":{"x":"y"}}`},
		}
		for _, r := range apiRoutes {
			if r.path != "/v1/ws" {
				all = append(all, asked{r.method, r.path, r.body})
			}
		}
		for _, q := range all {
			got := v.ask(q.method, q.path, q.body, v.as("appender")...)
			if strings.Contains(got.body, "SECRET") {
				t.Errorf("held %v: %s %s %s: %d %s", held, q.method, q.path, q.body, got.status, got.body)
			}
		}
		c := v.socket("appender")
		for _, op := range []string{`{"op":"follow","session":"s"}`, `{"op":"append","session":"s","batch":{"events":[{"data":1}]}}`, `{"op":"acquire","session":"s"}`,
			fmt.Sprintf(`{"op":"hold","session":"s","grant":%q}`, grant), fmt.Sprintf(`{"op":"release","session":"s","grant":%q}`, grant), `{"op":"unfollow","session":"s"}`} {
			c.send("%s", op)
			_, text, err := c.Conn.Read(c.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "SECRET") {
				t.Errorf("held %v: %s: %s", held, op, text)
			}
		}
	}
}

// TestRefusalsTellNoGrant: a refusal because of another client's turn does not reveal the grant
// that would allow writing under it.
func TestRefusalsTellNoGrant(t *testing.T) {
	v := serve(t, memstore.New(), withConversations)
	secretSession(t, v)
	turn, err := v.store.Acquire(t.Context(), "s", hansard.Claim{Steal: "test", Exclusive: true, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	const old = "1-0123456789abcdef"
	for _, q := range []struct{ method, path, body string }{
		{"POST", "/v1/sessions/s/turn", `{}`},
		{"POST", "/v1/sessions/s/turn", `{"wait_ms":1}`},
		{"POST", "/v1/sessions/s/turn", `{"claim":"c"}`},
		{"DELETE", "/v1/sessions/s/turn", `{"claim":"c"}`},
		{"PUT", "/v1/sessions/s/turn", `{"grant":"` + old + `"}`},
		{"DELETE", "/v1/sessions/s/turn", `{"grant":"` + old + `"}`},
		{"POST", "/v1/sessions/s/events", `{"events":[{"data":1}]}`},
		{"POST", "/v1/sessions/s/events", `{"events":[{"data":1}],"turn":"` + old + `"}`},
		{"PATCH", "/v1/sessions/s", `{"title":"t"}`},
		{"PATCH", "/v1/sessions/s", `{"title":"t","turn":"` + old + `"}`},
		{"DELETE", "/v1/sessions/s", ""},
		{"DELETE", "/v1/sessions/s?turn=" + old, ""},
		{"POST", conversations.Prefix + "/s/items", `{"items":[{"role":"user","content":"x"}]}`},
	} {
		got := v.ask(q.method, q.path, q.body)
		if got.status < 300 && q.method != "DELETE" || strings.Contains(got.body, string(turn.Grant)) {
			t.Errorf("%s %s %s: %d %s", q.method, q.path, q.body, got.status, got.body)
		}
	}
	c := v.socket("admin")
	for _, op := range []string{`{"op":"append","session":"s","batch":{"events":[{"data":1}]}}`, `{"op":"acquire","session":"s"}`,
		`{"op":"hold","session":"s","grant":"` + old + `"}`, `{"op":"release","session":"s","grant":"` + old + `"}`} {
		c.send("%s", op)
		_, text, err := c.Conn.Read(c.ctx)
		if err != nil || strings.Contains(string(text), string(turn.Grant)) || !strings.Contains(string(text), `"problem"`) {
			t.Errorf("%s: %s, %v", op, text, err)
		}
	}
	// A turn stolen from a socket: it learns that it lost the turn, and no more.
	c.send(`{"op":"acquire","session":"s","claim":{"steal":"x"}}`)
	c.next("turn")
	stolen, err := v.store.Acquire(t.Context(), "s", hansard.Claim{Steal: "back"})
	if err != nil {
		t.Fatal(err)
	}
	_, text, err := c.Conn.Read(c.ctx)
	if err != nil || !strings.Contains(string(text), `"lost"`) || strings.Contains(string(text), string(stolen.Grant)) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestGrantOfAnother: a grant is usable only by the token it was given to, even if others know
// it, as readers do.
func TestGrantOfAnother(t *testing.T) {
	store := memstore.New()
	v := serve(t, store, withConversations)
	v.say("s", "one")
	var turn hansard.Turn
	v.must(201, "POST", "/v1/sessions/s/turn", `{"exclusive":true,"ttl_ms":3600000}`, v.as("appender")...).into(t, &turn)
	again := serve(t, keptOpen{store}, withConversations) // a server that does not remember
	for _, v := range []*served{v, again} {
		for _, q := range []struct{ method, path, body string }{
			{"POST", "/v1/sessions/s/events", fmt.Sprintf(`{"events":[{"data":1}],"turn":%q}`, turn.Grant)},
			{"PATCH", "/v1/sessions/s", fmt.Sprintf(`{"title":"t","turn":%q}`, turn.Grant)},
			{"PUT", "/v1/sessions/s/turn", fmt.Sprintf(`{"grant":%q}`, turn.Grant)},
			{"DELETE", "/v1/sessions/s/turn", fmt.Sprintf(`{"grant":%q}`, turn.Grant)},
			{"DELETE", "/v1/sessions/s/turn?grant=" + string(turn.Grant), ""},
			{"DELETE", "/v1/sessions/s?turn=" + string(turn.Grant), ""},
		} {
			if got := v.ask(q.method, q.path, q.body); got.status != 409 || got.problem() != "fenced" {
				t.Errorf("%s %s %s: %d %s", q.method, q.path, q.body, got.status, got.body)
			}
		}
		if got := v.ask("POST", conversations.Prefix+"/s/items", `{"items":[{"role":"user","content":"x"}]}`, "Hansard-Turn", string(turn.Grant)); got.status != 409 || got.openAICode(t) != "turn_lost" {
			t.Errorf("an item: %d %s", got.status, got.body)
		}
		c := v.socket("admin")
		c.refused("fenced", `{"op":"append","session":"s","batch":{"events":[{"data":1}],"turn":%q}}`, turn.Grant)
		c.refused("fenced", `{"op":"hold","session":"s","grant":%q}`, turn.Grant)
		c.refused("fenced", `{"op":"release","session":"s","grant":%q}`, turn.Grant)
	}
	if now, err := v.store.Turn(t.Context(), "s"); err != nil || now == nil || now.Grant != turn.Grant {
		t.Fatalf("the turn is %+v, %v", now, err)
	}
	if info, err := v.store.Stat(t.Context(), "s"); err != nil || info.LastSeq != turn.Seq {
		t.Errorf("something was written: %+v, %v", info, err)
	}
	// Its own grant, and one that was given to no token.
	v.must(201, "POST", "/v1/sessions/s/events", fmt.Sprintf(`{"events":[{"data":1}],"turn":%q}`, turn.Grant), v.as("appender")...)
	v.must(204, "DELETE", "/v1/sessions/s/turn?grant="+string(turn.Grant), "", v.as("appender")...)
	own, err := v.store.Acquire(t.Context(), "s", hansard.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	v.must(201, "POST", "/v1/sessions/s/events", fmt.Sprintf(`{"events":[{"data":1}],"turn":%q}`, own.Grant))
}

// keptOpen is a store that another server closes.
type keptOpen struct{ hansard.Store }

func (keptOpen) Close() error { return nil }
