package httpd_test

import (
	"strings"
	"testing"
)

// count is the value of a metric, or "" where there is none yet.
func (v *served) count(name string) string {
	v.t.Helper()
	return metricIn(v.must(200, "GET", "/metrics", "").body, name)
}

// metricIn finds a metric in what Prometheus is told.
func metricIn(body, name string) string {
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestCountImports: what copies bring is counted, by what became of it.
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

// TestCountConversations: what comes by way of OpenAI's API is counted too.
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
