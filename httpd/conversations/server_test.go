package conversations

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore"
	"hansard/memstore"
)

// server is a handler on a store, used as an SDK would.
type server struct {
	t     testing.TB
	store hansard.Store
	h     http.Handler
}

func newServer(t testing.TB, store hansard.Store) *server {
	return &server{t: t, store: store, h: New(store, nil)}
}

// onEngines runs a test on memstore and on files.
func onEngines(t *testing.T, test func(t *testing.T, s *server)) {
	t.Run("mem", func(t *testing.T) { test(t, newServer(t, memstore.New())) })
	t.Run("file", func(t *testing.T) {
		store, err := filestore.Open(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		test(t, newServer(t, store))
	})
}

type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request; headers are name, value, name, value.
func (s *server) do(method, path, body string, headers ...string) answer {
	s.t.Helper()
	req := httptest.NewRequest(method, Prefix+path, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, req)
	data, err := io.ReadAll(w.Result().Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if !json.Valid(data) {
		s.t.Fatalf("%s %s answered what is not JSON: %s", method, path, data)
	}
	return answer{w.Code, w.Header(), string(data)}
}

// ok sends a request that must succeed.
func (s *server) ok(method, path, body string, headers ...string) string {
	s.t.Helper()
	a := s.do(method, path, body, headers...)
	if a.status != http.StatusOK {
		s.t.Fatalf("%s %s %s: status %d: %s", method, path, body, a.status, a.body)
	}
	return a.body
}

// fails sends a request that must be refused, and checks the shape of the error.
func (s *server) fails(status int, code, param, method, path, body string, headers ...string) answer {
	s.t.Helper()
	a := s.do(method, path, body, headers...)
	var e struct {
		Error struct {
			Message string
			Type    string
			Param   *string
			Code    *string
		}
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil {
		s.t.Fatal(err)
	}
	gotCode, gotParam := "null", "null"
	if e.Error.Code != nil {
		gotCode = *e.Error.Code
	}
	if e.Error.Param != nil {
		gotParam = *e.Error.Param
	}
	if a.status != status || gotCode != code || gotParam != param || e.Error.Message == "" || e.Error.Type == "" {
		s.t.Errorf("%s %s %.200s:\n got %d %s param %s: %s\nwant %d %s param %s", method, path, body, a.status, gotCode, gotParam, a.body, status, code, param)
	}
	return a
}

// create makes a conversation and returns its id.
func (s *server) create(body string, headers ...string) string {
	s.t.Helper()
	return field[string](s.t, s.ok("POST", "", body, headers...), "id")
}

// listing is a decoded list.
type listing struct {
	Object  string
	Data    []json.RawMessage
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

func (s *server) list(id, query string) listing {
	s.t.Helper()
	var l listing
	if err := json.Unmarshal([]byte(s.ok("GET", "/"+id+"/items"+query, "")), &l); err != nil {
		s.t.Fatal(err)
	}
	return l
}

// ids are the ids of the items in a list.
func (l listing) ids(t testing.TB) []string {
	t.Helper()
	ids := []string{}
	for _, it := range l.Data {
		ids = append(ids, field[string](t, string(it), "id"))
	}
	return ids
}

func field[T any](t testing.TB, body, name string) T {
	t.Helper()
	var o map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	var v T
	if err := json.Unmarshal(o[name], &v); err != nil {
		t.Fatalf("%s in %s: %v", name, body, err)
	}
	return v
}

func same(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func message(text string) string {
	return fmt.Sprintf(`{"type":"message","role":"user","content":[{"type":"input_text","text":%q}]}`, text)
}
