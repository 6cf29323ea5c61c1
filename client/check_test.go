package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/client"
	"hansard/filestore"
	"hansard/httpd"
	"hansard/memstore"
)

// collect reads a report.
func collect(s hansard.Checker, ctx context.Context, id hansard.SessionID) (all []hansard.Finding, err error) {
	for f, err := range s.Verify(ctx, id) {
		if err != nil {
			return all, err
		}
		all = append(all, f)
	}
	return all, nil
}

// harmed is a file store with a damaged session, a sound one, and a file that is not a session.
func harmed(t *testing.T) (dir string, s *filestore.Store) {
	t.Helper()
	dir = t.TempDir()
	s, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []hansard.SessionID{"bad", "good"} {
		for _, data := range []string{`"first"`, `"second"`} {
			if _, err := s.Append(t.Context(), id, hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte(data)}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := filepath.Join(dir, "sessions", "bad.jsonl")
	log, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(log), "second", "SECOND", 1)), 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "sessions", "Notes.txt"), []byte("mine"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, s
}

// TestVerify: through the server the findings are those of the store itself.
func TestVerify(t *testing.T) {
	_, store := harmed(t)
	s := connect(t, serve(t, store))
	for _, id := range []hansard.SessionID{"", "bad", "good"} {
		want, err := collect(store, t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		got, err := collect(s, t.Context(), id)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("verify %q: %+v, %v, want %+v", id, got, err, want)
		}
	}
	for id, want := range map[hansard.SessionID]error{"nowhere": hansard.ErrNotFound, "a/b": hansard.ErrInvalid} {
		if _, err := collect(s, t.Context(), id); !errors.Is(err, want) {
			t.Errorf("verify %q: %v, want %v", id, err, want)
		}
		if _, err := s.Repair(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("repair %q: %v, want %v", id, err, want)
		}
	}
	for range s.Verify(t.Context(), "") {
		break // a caller that has seen enough does not get the rest
	}
	done, err := s.Repair(t.Context(), "bad")
	if err != nil || !done.Changed || done.Events != 2 || !strings.HasPrefix(done.Kept, "evidence/") {
		t.Errorf("repair: %+v, %v", done, err)
	}
	if again, err := s.Repair(t.Context(), "bad"); err != nil || again.Changed || again.Events != 2 {
		t.Errorf("repair of what is sound: %+v, %v", again, err)
	}
	if j, err := s.RepairJournal(t.Context()); err != nil || j.Changed {
		t.Errorf("repair of a sound journal: %+v, %v", j, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := collect(s, t.Context(), ""); !errors.Is(err, hansard.ErrClosed) {
		t.Errorf("of a closed client: %v", err)
	}
}

// behind puts a handler between a client and a server.
func behind(t *testing.T, store hansard.Store, patience time.Duration, between func(w http.ResponseWriter, r *http.Request, next http.Handler)) *client.Store {
	t.Helper()
	server := httpd.New(store, httpd.Options{Access: httpd.Single(token)})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { between(w, r, server) }))
	t.Cleanup(func() {
		front.Close()
		if err := errors.Join(server.Shutdown(context.Background()), store.Close()); err != nil {
			t.Error(err)
		}
	})
	s, err := client.New(front.URL, &client.Options{Token: token, Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// recorded is the whole answer of a server.
func recorded(r *http.Request, next http.Handler) string {
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	return rec.Body.String()
}

// TestVerifyBrokenOff: a report that is cut anywhere is an error, whether the connection breaks
// or something in between ends it cleanly. Only the end of the report says that all is well.
func TestVerifyBrokenOff(t *testing.T) {
	_, store := harmed(t)
	var report string    // made once: its journal has the normal size
	var cut atomic.Int64 // how many bytes of it get through
	var polite atomic.Bool
	s := behind(t, store, 50*time.Millisecond, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if report == "" {
			report = recorded(r, next)
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, report[:min(int64(len(report)), cut.Load())])
		if !polite.Load() {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	})
	cut.Store(1 << 20)
	polite.Store(true)
	all, err := collect(s, t.Context(), "")
	if err != nil || len(all) != 4 {
		t.Fatalf("whole: %+v, %v", all, err)
	}
	for n := range report {
		if n%13 > 0 && report[n-1] != '\n' {
			continue // at some offsets, and between any two lines
		}
		cut.Store(int64(n))
		for _, p := range []bool{true, false} {
			polite.Store(p)
			if got, err := collect(s, t.Context(), ""); err == nil || len(got) > len(all) {
				t.Fatalf("cut after %d of %d bytes, politely %v: %d findings, and no error", n, len(report), p, len(got))
			}
		}
	}
}

// TestRepairAnswerLost: a repair whose answer is lost is requested again; if nothing is left to
// repair then, that does not mean that nothing was.
func TestRepairAnswerLost(t *testing.T) {
	_, store := harmed(t)
	var lose atomic.Int32
	s := behind(t, store, time.Minute, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost && lose.Add(-1) >= 0 {
			recorded(r, next)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
	lose.Store(1)
	if done, err := s.Repair(t.Context(), "bad"); !errors.Is(err, hansard.ErrUnknown) || !strings.Contains(err.Error(), "sound now") {
		t.Errorf("repair: %+v, %v", done, err)
	}
	if done, err := s.Repair(t.Context(), "bad"); err != nil || done.Changed {
		t.Errorf("and again: %+v, %v", done, err)
	}
}

// TestVerifyElsewhere: a store that can't be verified, and a server that does not know how, say
// so.
func TestVerifyElsewhere(t *testing.T) {
	old := behind(t, memstore.New(), time.Minute, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		r.URL.Path = "/v1/unheard-of" // as an older server answers
		next.ServeHTTP(w, r)
	})
	for want, s := range map[string]*client.Store{"nothing to verify": connect(t, serve(t, memstore.New())), "older than this program": old} {
		_, err := collect(s, t.Context(), "")
		_, one := collect(s, t.Context(), "s")
		_, repair := s.Repair(t.Context(), "s")
		for _, err := range []error{err, one, repair} {
			if !errors.Is(err, hansard.ErrUnsupported) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if _, err := s.RepairJournal(t.Context()); !errors.Is(err, hansard.ErrUnsupported) {
			t.Errorf("the journal: %v", err)
		}
	}
}
