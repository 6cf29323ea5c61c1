package httpd_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"hansard"
	"hansard/httpd"
	"hansard/memstore"
)

// FuzzBodies: whatever the body of a request, the answer is never a server error, and nothing
// that is not stored is reported as stored.
func FuzzBodies(f *testing.F) {
	routes := []struct{ method, path string }{
		{"POST", "/v1/sessions"}, {"PATCH", "/v1/sessions/s"}, {"POST", "/v1/sessions/s/events"}, {"POST", "/v1/sessions/s/turn"},
		{"PUT", "/v1/sessions/s/turn"}, {"DELETE", "/v1/sessions/s/turn"}, {"POST", "/v1/sessions/t/import"},
	}
	for i, seed := range []string{`{"id":"a","labels":{"x":"y"}}`, `{"title":null,"state":{"a":[]}}`, `{"events":[{"data":1}]}`, `{"ttl_ms":1000}`, `{"grant":"1-0"}`, `{"claim":"x"}`,
		`{"created":"2026-01-02T03:04:05Z","meta":{"state":{}},"events":[{"seq":1,"time":"2026-01-02T03:04:05Z","kind":"k","raw":" 1 "}],"keys":[{"key":"k","hash":"h","first":1,"last":1}]}`} {
		f.Add(uint8(i), seed)
	}
	f.Fuzz(func(t *testing.T, route uint8, body string) {
		store := memstore.New()
		defer store.Close()
		if _, err := store.Create(t.Context(), "s", hansard.Meta{}); err != nil {
			t.Fatal(err)
		}
		server := httpd.New(store, httpd.Options{Access: httpd.Single("a-token-for-tests")})
		defer server.Shutdown(t.Context())
		r := routes[int(route)%len(routes)]
		if r.path == "/v1/sessions/s/turn" && strings.Contains(body, "wait") {
			return // that would take too long
		}
		req := httptest.NewRequest(r.method, "http://localhost"+r.path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer a-token-for-tests")
		w := httptest.NewRecorder()
		server.ServeHTTP(w, req)
		if w.Code >= 500 {
			t.Errorf("%s %s %q: %d %s", r.method, r.path, body, w.Code, w.Body)
		}
		info, err := store.Stat(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if stored := info.LastSeq > 0; r.path == "/v1/sessions/s/events" && stored != (w.Code == 201) {
			t.Errorf("%q: %d, and stored is %v", body, w.Code, stored)
		}
	})
}

// FuzzMessages: any WebSocket message is either parsed or refused.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{`{"op":"follow","ref":1,"session":"s","after":7}`, `{"op":"append","batch":{"events":[]}}`, `{"ref":{"a":[1]}}`, `{"grant":"x","claim":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) { httpd.TakeApart(message) })
}
