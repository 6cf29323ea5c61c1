package httpd_test

import (
	"testing"
	"time"

	"hansard/internal/pgtest"
	"hansard/pgstore"
)

// TestDatabaseLost: a server that loses its database says so, to programs and to readiness
// checks, and recovers by itself when the database is back.
func TestDatabaseLost(t *testing.T) {
	db := pgtest.New(t)
	store, err := pgstore.Open(t.Context(), db.Schema(t), &pgstore.Options{RetryFor: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	v := serve(t, store)
	if got := v.ask("POST", "/v1/sessions", `{"id":"s"}`); got.status != 201 {
		t.Fatalf("create: %d %s", got.status, got.body)
	}
	send := func() reply { return v.ask("POST", "/v1/sessions/s/events", oneEvent, "Idempotency-Key", "k") }
	db.Kill()
	for what, got := range map[string]reply{
		"read": v.ask("GET", "/v1/sessions/s/events", ""), "stat": v.ask("GET", "/v1/sessions/s", ""),
		"list": v.ask("GET", "/v1/sessions", ""), "turn": v.ask("POST", "/v1/sessions/s/turn", `{}`), "append": send(),
	} {
		// A write that may have been stored is 504: a retry with the key settles it.
		if got.status != 503 && (what != "append" || got.status != 504) {
			t.Errorf("%s without the database: %d %s", what, got.status, got.body)
		}
	}
	if got := v.ask("GET", "/readyz", ""); got.status != 503 {
		t.Errorf("ready without the database: %d %s", got.status, got.body)
	}
	if got := v.ask("GET", "/healthz", ""); got.status != 200 {
		t.Errorf("the server itself is not alive: %d %s", got.status, got.body)
	}
	if err := db.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		got := send()
		if got.status == 201 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the database is back, and append still says %d %s", got.status, got.body)
		}
	}
	if got := send(); got.status != 201 && got.status != 200 {
		t.Errorf("the same again: %d %s", got.status, got.body)
	}
	if got := v.ask("GET", "/v1/sessions/s", ""); got.status != 200 || tagSeq(got) != "1" {
		t.Errorf("stored: %d %s %s", got.status, got.header.Get("ETag"), got.body)
	}
}
