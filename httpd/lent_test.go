package httpd_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore"
	"hansard/internal/wire"
	"hansard/storetest"
)

// everything fills a session with everything an event can have, and forks it.
func everything(t *testing.T, s hansard.Store) {
	t.Helper()
	ctx := t.Context()
	if _, err := s.Create(ctx, "s", hansard.Meta{Title: "all of it"}); err != nil {
		t.Fatal(err)
	}
	picture, err := s.Attach(ctx, "s", strings.NewReader("a picture"))
	if err != nil {
		t.Fatal(err)
	}
	picture.MediaType, picture.Name = "image/png", "bild ü.png"
	title := "with <escapes> & \"quotes\""
	var full hansard.Event
	storetest.Full(&full, 1)
	full = storetest.Given(full)
	full.Attachments = []hansard.Attachment{picture}
	batches := []hansard.Batch{
		{Events: []hansard.Event{full}, Key: "key one", By: "somebody"},
		{Events: []hansard.Event{hansard.Message("user", "first\nsecond \u2028 \u0085 <b> é 日本"), {Kind: "näme", Role: "röle", Author: "a \"b\" \\ <c>", Data: []byte(`{"x":1}`)}, hansard.Message("agent", "third")}, Patch: &hansard.Patch{Title: &title}},
		{Events: []hansard.Event{{Data: []byte(" {\n\t\"a\" : [1,\r\n2] }\n")}, {Data: []byte(" 1")}, {Data: []byte("\"tab\\t\"")}, {Data: []byte("\"\xf0\x9f\x98\x80\"")}, {Data: []byte(`"` + strings.Repeat("long ", 40_000) + `"`)}}},
		{Events: []hansard.Event{{Inbox: true, Data: []byte(`{}`)}}},
	}
	for i := range 400 {
		batches = append(batches, hansard.Batch{Events: []hansard.Event{hansard.Message("user", fmt.Sprint("number ", i, strings.Repeat(" and so on", i)))}})
	}
	for i, b := range batches {
		if _, err := s.Append(ctx, "s", b); err != nil {
			t.Fatalf("batch %d: %v", i, err)
		}
	}
	turn, err := s.Acquire(ctx, "s", hansard.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "s", hansard.Batch{Turn: turn.Grant, Events: []hansard.Event{hansard.Message("agent", "in my turn")}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(ctx, "s", turn.Grant); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Redact(ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{3, 300}, Reason: "private"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fork(ctx, "s", hansard.Fork{As: "fork"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "fork", hansard.Batch{Events: []hansard.Event{hansard.Message("user", "on another way")}}); err != nil {
		t.Fatal(err)
	}
}

// sameLines compares the lines sent from a store that lends its events with those sent from the
// same store without lending, and with the events themselves.
func sameLines(t *testing.T, s hansard.Store) (damaged int) {
	t.Helper()
	lending, giving := serve(t, s), serve(t, struct{ hansard.Store }{s})
	for _, id := range []hansard.SessionID{"s", "fork"} {
		for query, r := range map[string]hansard.Range{"": {}, "after=2&before=200": {After: 2, Before: 200}, "last=7": {Last: 7}, "reverse=true&limit=9": {Reverse: true, Limit: 9}, "kind=turn": {Kinds: []string{"turn"}}, "last=2&kind=message": {Last: 2, Kinds: []string{"message"}}} {
			path := fmt.Sprintf("/v1/sessions/%s/events?%s", id, query)
			got, want := lending.ask("GET", path, "", "Accept", "application/x-ndjson"), giving.ask("GET", path, "", "Accept", "application/x-ndjson")
			lent, given := strings.SplitAfter(got.body, "\n"), strings.SplitAfter(want.body, "\n")
			if got.status != want.status || len(lent) != len(given) {
				t.Fatalf("%s: status %d and %d lines are lent, %d and %d are given", path, got.status, len(lent), want.status, len(given))
			}
			for i := range lent {
				if strings.Contains(lent[i], `urn:uuid:`) { // a problem has a unique name
					lent[i], _, _ = strings.Cut(lent[i], `urn:uuid:`)
					given[i], _, _ = strings.Cut(given[i], `urn:uuid:`)
					damaged++
				}
				if lent[i] != given[i] {
					t.Errorf("%s: line %d is lent as\n%.300s\nand given as\n%.300s", path, i, lent[i], given[i])
				}
			}
			i := 0
			for e, err := range s.Read(t.Context(), id, r) {
				if err != nil {
					break
				}
				sent, err := wire.ParseEvent([]byte(strings.TrimSuffix(lent[i], "\n")))
				if err != nil || string(wire.Marshal(sent)) != string(wire.Marshal(e)) || string(sent.Data) != string(e.Data) || !sent.Time.Equal(e.Time) {
					t.Errorf("%s: event %d is sent as %.300s, %v", path, e.Seq, lent[i], err)
				}
				i++
			}
			if i < len(lent)-2 {
				t.Errorf("%s: %d events are read, %d lines sent", path, i, len(lent))
			}
		}
	}
	return damaged
}

// TestLentLines: session lines that go directly from the log into the answer are byte for byte
// those of events that are decoded and encoded again, also where the log is damaged.
func TestLentLines(t *testing.T) {
	dir := t.TempDir()
	s, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	everything(t, s)
	if n := sameLines(t, s); n > 0 {
		t.Errorf("%d problems are told of a session without any", n)
	}
	log := filepath.Join(dir, "sessions", "s.jsonl")
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, bytes.Replace(whole, []byte("number 150"), []byte("number 15O"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := sameLines(t, s); n == 0 {
		t.Error("nothing is told of the damage")
	}
}

// TestScopesOfLines: lines outside of a token's scope are not lent to it.
func TestScopesOfLines(t *testing.T) {
	for _, kind := range kindsOfToken() {
		v, tokens := scoped(t)
		token := kind.make(t, tokens)
		for _, id := range []string{"team:in", "team:out", "other"} {
			got := v.ask("GET", "/v1/sessions/"+id+"/events", "", "Authorization", "Bearer "+token, "Accept", "application/x-ndjson")
			want := 404
			switch {
			case !may(kind.rights, "read"):
				want = 403
			case kind.in == nil || kind.in[id]:
				want = 200
			}
			if got.status != want || strings.Contains(got.body, "SECRET") != (want == 200) {
				t.Errorf("%s: the lines of %s: %d %s, want %d", kind.name, id, got.status, got.body, want)
			}
		}
		v.stop()
	}
}
