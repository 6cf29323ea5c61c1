package httpd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hansard"
)

// TestRedact: the route records who asked, and nothing the server remembers shows the content
// again: not the list, the search, late followers, nor the OpenAI routes.
func TestRedact(t *testing.T) {
	v := serveMemory(t, withConversations)
	v.must(201, "POST", "/v1/sessions/s/events", `{"create":true,"events":[{"role":"user","data":"hunter2 is my password"}]}`)
	for i := range 70 { // more than a preview looks at: it is final
		v.say("s", fmt.Sprintf("event %d", i))
	}
	list := func() string { return v.must(200, "GET", "/v1/sessions?preview=true", "").body }
	if !strings.Contains(list(), "hunter2") {
		t.Fatalf("the preview is not there: %s", list())
	}
	// With a follower, the newest events are kept for later ones.
	first := v.stream("s", "?after=60", "")
	for {
		e, err := first.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.id == "71" {
			break
		}
	}
	v.must(201, "POST", "/v1/sessions/s/events", `{"events":[{"role":"user","data":"hunter3 too"},{"role":"user","data":"and on"}]}`)
	for {
		e, err := first.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.id == "73" {
			break
		}
	}
	v.must(403, "POST", "/v1/sessions/s/redact", `{"seqs":[1]}`, v.as("appender")...)
	r := v.must(201, "POST", "/v1/sessions/s/redact", `{"seqs":[72,1],"reason":"passwords"}`)
	if !strings.Contains(r.body, `"first":74`) || r.header.Get("ETag") != `"74"` {
		t.Errorf("answered %s with %s", r.body, r.header.Get("ETag"))
	}
	for {
		e, err := first.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.id == "74" {
			if !strings.Contains(e.data, `"redacts":[1,72]`) || !strings.Contains(e.data, `"by":"admin"`) {
				t.Errorf("followed: %s", e.data)
			}
			break
		}
	}
	late := v.stream("s", "?after=70", "")
	for {
		e, err := late.next()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(e.data, "hunter") {
			t.Errorf("who comes late is sent %s", e.data)
		}
		if e.id == "74" {
			break
		}
	}
	for _, path := range []string{"/v1/sessions?preview=true", "/v1/sessions/s?preview", "/v1/sessions/s/find?q=hunter", "/v1/sessions/s/events", "/v1/sessions/s/events?view=parts"} {
		if body := v.must(200, "GET", path, "").body; strings.Contains(body, "hunter") {
			t.Errorf("GET %s still tells: %.300s", path, body)
		}
	}
	if body := v.must(200, "GET", "/v1/sessions/s/events?view=parts&limit=1", "").body; !strings.Contains(body, `"redacted":true`) || !strings.Contains(body, `"type":"note"`) {
		t.Errorf("the page is told %s", body)
	}
	v.must(200, "POST", "/v1/sessions/s/redact", `{"seqs":[1]}`)
	v.must(422, "POST", "/v1/sessions/s/redact", `{"seqs":[74]}`)
	v.must(404, "POST", "/v1/sessions/s/redact", `{"seqs":[99]}`)
	v.must(422, "POST", "/v1/sessions/s/redact", `{"seqs":[]}`)
	// Under a turn.
	turn, err := v.store.Acquire(t.Context(), "s", hansard.Claim{Exclusive: true, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	v.must(423, "POST", "/v1/sessions/s/redact", `{"seqs":[2]}`)
	v.must(201, "POST", "/v1/sessions/s/redact", fmt.Sprintf(`{"seqs":[2],"turn":%q}`, turn.Grant))
}

// TestRedactConversation: a redacted item is no longer an item, even for those who have asked for
// it before.
func TestRedactConversation(t *testing.T) {
	v := serveMemory(t, withConversations)
	var made struct{ ID string }
	v.must(200, "POST", "/v1/conversations", `{"items":[{"role":"user","content":"hunter2","id":"mine_1"},{"role":"user","content":"stays","id":"mine_2"}]}`).into(t, &made)
	items := "/v1/conversations/" + made.ID + "/items"
	if body := v.must(200, "GET", items, "").body; !strings.Contains(body, "hunter2") {
		t.Fatalf("the items are %s", body)
	}
	v.must(200, "GET", items+"/mine_1", "")
	var seq hansard.Seq
	for e, err := range v.store.Read(t.Context(), hansard.SessionID(made.ID), hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(e.Data), "hunter2") {
			seq = e.Seq
		}
	}
	v.must(201, "POST", "/v1/sessions/"+made.ID+"/redact", fmt.Sprintf(`{"seqs":[%d]}`, seq))
	if body := v.must(200, "GET", items, "").body; strings.Contains(body, "hunter2") || !strings.Contains(body, "stays") {
		t.Errorf("the items are %s", body)
	}
	v.must(404, "GET", items+"/mine_1", "")
	v.must(200, "GET", items+"/mine_2", "")
}
