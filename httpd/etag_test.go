package httpd_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"hansard"
)

// TestNotModified: content that a client already has is not sent again, on every route that
// answers with JSON; changed content is, even if the last seq is the same.
func TestNotModified(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "one")
	for _, path := range []string{"/v1/sessions", "/v1/sessions?limit=1", "/v1/sessions/s", "/v1/sessions/s/events", "/v1/sessions/s/events?after=0&limit=1", "/v1/sessions/s/events?after=1&wait_ms=1", "/v1/sessions/s/turn", "/v1/store", "/v1/tokens"} {
		got := v.must(200, "GET", path, "")
		tag := got.header.Get("ETag")
		if tag == "" {
			t.Errorf("%s has no ETag", path)
			continue
		}
		for _, have := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			if same := v.ask("GET", path, "", "If-None-Match", have); same.status != 304 || same.body != "" || same.header.Get("ETag") != tag {
				t.Errorf("%s with %s: %d %s %q", path, have, same.status, same.header.Get("ETag"), same.body)
			}
		}
		for _, have := range []string{`"other"`, `"99"`, "junk", `"`, `W/""`} {
			if other := v.ask("GET", path, "", "If-None-Match", have); other.status != 200 || other.body != got.body {
				t.Errorf("%s with %s: %d %s", path, have, other.status, other.body)
			}
		}
		if strings.HasPrefix(path, "/v1/s") && path != "/v1/store" {
			v.must(401, "GET", path, "", "If-None-Match", "*", "Authorization", "")
		}
	}
	// It changes, with an event and without one.
	before := v.must(200, "GET", "/v1/sessions/s", "").header.Get("ETag")
	v.say("s", "two")
	v.must(200, "GET", "/v1/sessions/s", "", "If-None-Match", before)
	v.must(200, "GET", "/v1/sessions/s/events", "", "If-None-Match", before)
	turn, err := v.store.Acquire(t.Context(), "s", hansard.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	held := v.must(200, "GET", "/v1/sessions/s", "").header.Get("ETag")
	info, err := v.store.Stat(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if free := fmt.Sprintf(`"%d.%s"`, info.LastSeq, strconv.FormatInt(info.Created.UnixMicro(), 36)); held == free {
		t.Errorf("%s tells nothing of the turn, which can end without an event", held)
	}
	v.must(304, "GET", "/v1/sessions/s", "", "If-None-Match", held)
	// As a condition of a write it means the seq it was made for.
	v.must(201, "POST", "/v1/sessions/s/events", fmt.Sprintf(`{"events":[{"data":1}],"turn":%q}`, turn.Grant), "If-Match", held)
	v.must(412, "POST", "/v1/sessions/s/events", fmt.Sprintf(`{"events":[{"data":1}],"turn":%q}`, turn.Grant), "If-Match", held)
	v.must(404, "GET", "/v1/sessions/none", "", "If-None-Match", "*")
}

// TestNotModifiedReused: what a client has of a deleted session is not confirmed as the content
// of a new one under its id, even if that has as many events.
func TestNotModifiedReused(t *testing.T) {
	v := serveMemory(t)
	v.say("s", "old")
	paths := []string{"/v1/sessions/s", "/v1/sessions/s/events", "/v1/sessions/s/events?after=0&limit=1"}
	tags := make([]string, len(paths))
	for i, path := range paths {
		tags[i] = v.must(200, "GET", path, "").header.Get("ETag")
	}
	v.must(204, "DELETE", "/v1/sessions/s", "")
	v.must(201, "POST", "/v1/sessions", `{"id":"s","reuse":true}`)
	v.say("s", "new")
	for i, path := range paths {
		if got := v.ask("GET", path, "", "If-None-Match", tags[i]); got.status != 200 {
			t.Errorf("%s with %s: %d", path, tags[i], got.status)
		}
	}
	// A condition of a write is about the seq alone.
	v.must(201, "POST", "/v1/sessions/s/events", `{"events":[{"data":1}]}`, "If-Match", tags[0])
}

// tagSeq is the seq in the entity tag of an answer.
func tagSeq(got reply) string {
	seq, _, _ := strings.Cut(strings.Trim(got.header.Get("ETag"), `"`), ".")
	return seq
}
