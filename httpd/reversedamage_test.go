package httpd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore"
)

// TestReverseDamaged: a reverse read of a damaged session answers with the damage, not with the
// events before it; those can be requested explicitly.
func TestReverseDamaged(t *testing.T) {
	dir := t.TempDir()
	s, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two", "three"} {
		if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", text)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "sessions", "*.jsonl"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%q, %v", logs, err)
	}
	log, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(logs[0], bytes.Replace(log, []byte("two"), []byte("TWO"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = filestore.Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	v := serve(t, s)
	for _, accept := range []string{"application/json", "application/x-ndjson"} {
		for _, query := range []string{"reverse=true", "reverse=true&limit=1", "reverse=true&before=3"} {
			if got := v.ask("GET", "/v1/sessions/s/events?"+query, "", "Accept", accept); got.status != 503 || got.problem() != "damaged" || strings.Contains(got.body, "one") {
				t.Errorf("%s as %s: %d %s", query, accept, got.status, got.body)
			}
		}
		if got := v.must(200, "GET", "/v1/sessions/s/events?reverse=true&before=2", "", "Accept", accept); !strings.Contains(got.body, "one") {
			t.Errorf("before the damage, as %s: %s", accept, got.body)
		}
	}
}
