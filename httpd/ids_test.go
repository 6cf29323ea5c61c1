package httpd_test

import (
	"net/url"
	"strings"
	"testing"

	"hansard/memstore"
)

// TestEventIDs: events with ids over HTTP are stored once however often they are sent, and can be
// read by id.
func TestEventIDs(t *testing.T) {
	v := serve(t, memstore.New())
	const path = "/v1/sessions/s/events"
	post := func(body string) reply {
		t.Helper()
		return v.ask("POST", path, body)
	}
	want := func(what string, got reply, status int, body string) {
		t.Helper()
		if got.status != status || !strings.Contains(got.body, body) {
			t.Errorf("%s: %d %s, want %d with %s", what, got.status, got.body, status, body)
		}
	}
	const two = `{"create":true,"meta":{"title":"made"},"events":[{"id":"a","at":"1999-12-31T23:59:59.1234567+01:00","data":1},{"id":"b/c d","data":2}]}`
	got := post(two)
	want("the first", got, 201, `"first":1,"last":2,"replayed":false,"created":true,"seqs":[1,2]}`)
	if got.header.Get("ETag") != `"2"` {
		t.Errorf("ETag %s", got.header.Get("ETag"))
	}
	want("the session", v.ask("GET", "/v1/sessions/s", ""), 200, `"title":"made"`)
	got = post(two)
	want("again", got, 201, `"first":0,"last":0,"replayed":true,"seqs":[1,2]}`)
	if tag := got.header.Get("ETag"); tag != "" {
		t.Errorf("an ETag of nothing: %s", tag)
	}
	want("partly", post(`{"events":[{"id":"b/c d","data":2},{"id":"stream","data":3}]}`), 201, `"first":3,"last":3,"replayed":false,"seqs":[2,3]}`)
	want("with other content", post(`{"events":[{"id":"a","data":"other"},{"id":"new","data":1},{"id":"stream","data":"other"}]}`), 409, `"ids":["a","stream"]`)

	want("by its id", v.ask("GET", path+"/a", ""), 200, `"id":"a","at":"1999-12-31T22:59:59.123456Z","data":1}`)
	want("as people read it", v.ask("GET", path+"/a?view=parts", ""), 200, `"id":"a","at":"1999-12-31T22:59:59.123456Z","parts":[`)
	want("an id with a slash", v.ask("GET", path+"/"+url.PathEscape("b/c d"), ""), 200, `"data":2}`)
	want("an id that is a route", v.ask("GET", path+"?id=stream", ""), 200, `"events":[{"seq":3,`)
	want("an id that is not there", v.ask("GET", path+"/none", ""), 404, "/problems/no-event")
	want("and in a list", v.ask("GET", path+"?id=none", ""), 404, "/problems/no-event")
	want("an empty id", v.ask("GET", path+"?id=", ""), 422, `"field":"id"`)
	want("an id and a seq", v.ask("GET", path+"?id=a&after=1", ""), 422, `"field":"id"`)
	want("an unknown parameter", v.ask("GET", path+"/a?after=1", ""), 422, `"field":"after"`)
	want("behind an id", v.ask("GET", path+"?after_id="+url.QueryEscape("b/c d"), ""), 200, `"events":[{"seq":3,`)
	want("behind none", v.ask("GET", path+"?after_id=none", ""), 404, "/problems/no-event")
	want("behind both", v.ask("GET", path+"?after_id=a&after=1", ""), 422, `"field":"after_id"`)
	want("a stream behind none", v.ask("GET", path+"/stream?after_id=none", ""), 404, "/problems/no-event")
	want("a year that is none", post(`{"events":[{"at":"0000-01-01T00:00:00Z","data":1}]}`), 422, "events[0].at")
}
