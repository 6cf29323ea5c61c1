package httpd_test

import (
	"strconv"
	"strings"
	"testing"

	"hansard/filestore"
)

// count is the value of a metric, or "" if it does not exist yet.
func (v *served) count(name string) string {
	v.t.Helper()
	return metricIn(v.must(200, "GET", "/metrics", "").body, name)
}

// metricIn finds a metric in the Prometheus output.
func metricIn(body, name string) string {
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestCountImports: imported events are counted, by outcome.
func TestCountImports(t *testing.T) {
	v := serveMemory(t)
	const part = `{"created":"2026-01-02T03:04:05Z","events":[{"seq":1,"time":"2026-01-02T03:04:05Z","kind":"k","data":123},{"seq":2,"time":"2026-01-02T03:04:05Z","kind":"k","data":45}]}`
	const path = "/v1/sessions/i/import"
	v.must(204, "POST", path, part)
	v.must(412, "POST", path, part)
	v.must(422, "POST", path, `{}`)
	v.must(409, "POST", path, `{"created":"2027-01-02T03:04:05Z"}`)
	v.must(204, "POST", path, `{"created":"2026-01-02T03:04:05Z","deleted":true}`)
	for name, want := range map[string]string{
		`hansard_imports_total{outcome="stored"}`: "2", `hansard_imports_total{outcome="conflict"}`: "1", `hansard_imports_total{outcome="refused"}`: "2",
		"hansard_imported_events_total": "2", "hansard_imported_bytes_total": "5", "hansard_appended_events_total": "0",
	} {
		if got := v.count(name); got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
}

// TestCountConversations: requests through OpenAI's API are counted too.
func TestCountConversations(t *testing.T) {
	v := serveMemory(t, withConversations)
	v.must(201, "POST", "/v1/sessions", `{"id":"s"}`)
	for _, status := range []int{200, 200, 422} {
		body := `{"items":[{"role":"user","content":"x"},{"role":"user","content":"y"}]}`
		if status == 422 {
			body = `{"items":[{"role":"user","content":"z"}]}`
		}
		v.must(status, "POST", "/v1/conversations/s/items", body, "Idempotency-Key", "k")
	}
	for name, want := range map[string]string{`hansard_appends_total{outcome="stored"}`: "1", `hansard_appends_total{outcome="replayed"}`: "1",
		`hansard_appends_total{outcome="key_reused"}`: "1", "hansard_appended_events_total": "2"} {
		if got := v.count(name); got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
}

// TestMetrics: the metrics that people watch exist, are counted, and name no session, key or
// holder.
func TestMetrics(t *testing.T) {
	store, err := filestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	v := serve(t, store)
	const path = "/v1/sessions/secret-id"
	v.say("secret-id", "secret text")
	v.must(201, "POST", path+"/events", oneEvent, "Idempotency-Key", "secret-key")
	v.must(201, "POST", path+"/events", oneEvent, "Idempotency-Key", "secret-key")
	v.must(412, "POST", path+"/events", oneEvent, "If-Match", `"7"`)
	v.must(409, "POST", path+"/events", `{"events":[{"data":1}],"turn":"1-0000000000000000"}`)
	v.must(201, "POST", path+"/turn", `{"exclusive":true,"label":"secret-holder"}`)
	v.must(423, "POST", path+"/events", oneEvent)
	v.must(423, "POST", path+"/turn", `{}`)
	v.must(409, "PUT", path+"/turn", `{"grant":"1-0000000000000000"}`)
	v.must(404, "GET", "/v1/secret-route", "")
	v.stream("secret-id", "", "").events(0, 3)
	c := v.socket("reader")
	c.send(`{"op":"follow","session":"secret-id"}`)
	c.next("following")
	eventually(t, "both followers are counted", func() bool { return v.count("hansard_followers") == "2" })
	body := v.must(200, "GET", "/metrics", "").body
	for name, want := range map[string]string{
		`hansard_appends_total{outcome="stored"}`: "2", `hansard_appends_total{outcome="replayed"}`: "1", `hansard_appends_total{outcome="conflict"}`: "1",
		`hansard_appends_total{outcome="fenced"}`: "1", `hansard_appends_total{outcome="held"}`: "1", "hansard_appended_events_total": "2",
		`hansard_turns_total{outcome="granted"}`: "1", `hansard_turns_total{outcome="held"}`: "1", `hansard_turns_total{outcome="fenced"}`: "1",
		"hansard_turn_wait_seconds_count": "1", "hansard_websockets": "1", "hansard_followers_dropped_total": "0",
		`hansard_problems_total{type="fenced"}`: "2", "hansard_store_recoveries_total": "0", "hansard_store_journal_rotations_total": "0", "hansard_store_checkpoint_failures_total": "0",
	} {
		if got := metricIn(body, name); got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	for _, name := range []string{"hansard_store_journal_syncs_total", "hansard_store_journal_sync_seconds_total", "hansard_store_write_locks_total"} {
		if got, err := strconv.ParseFloat(metricIn(body, name), 64); err != nil || got <= 0 {
			t.Errorf("%s is %v, %v", name, got, err)
		}
	}
	if metricIn(body, "hansard_store_write_lock_wait_seconds_total") == "" {
		t.Error("the time waited for the lock is not there")
	}
	if at := strings.Index(body, "secret"); at >= 0 {
		t.Errorf("it tells %.60s", body[at:])
	}
}
