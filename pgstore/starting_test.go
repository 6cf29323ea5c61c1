package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"hansard"
	"hansard/internal/pgtest"
)

// TestErrorWithoutCode: something between us and the database answers with an error that has no
// SQLSTATE. The outcome of the statement is then unknown, and is looked up.
func TestErrorWithoutCode(t *testing.T) {
	if err := (&pgconn.PgError{Severity: "ERROR", Message: "lost"}); !isDown(err) || isRace(err) || neverSent(err) {
		t.Errorf("%v: down %v, race %v, never sent %v", err, isDown(err), isRace(err), neverSent(err))
	}
	for _, code := range []string{"", "0", "08", "57", "57P", "4000"} {
		err := &pgconn.PgError{Severity: "ERROR", Code: code}
		t.Logf("code %q: down %v, race %v, translated %v", code, isDown(err), isRace(err), translate(err)) // and no panic
	}
	for name, loss := range map[string]pgtest.Loss{
		"heard":   {SQL: appendOne, Heard: true, Error: "the backend is lost"},
		"unheard": {SQL: appendOne, Error: "there is no backend"},
	} {
		t.Run(name, func(t *testing.T) {
			tap, s := tapStore(t)
			tap.Lose(loss)
			r, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}})
			if err != nil || r.First != 1 || tap.Left() != 0 {
				t.Errorf("%+v, %v; %d losses left", r, err, tap.Left())
			}
			soundLog(t, s.Store, 1)
		})
	}
}

// TestFatalInOtherLanguages: a server may say in its own language that it ends a connection.
func TestFatalInOtherLanguages(t *testing.T) {
	if err := (&pgconn.PgError{Severity: "ВАЖНО", SeverityUnlocalized: "FATAL", Code: "25P03"}); !isDown(err) {
		t.Error("the end of a connection is taken for the refusal of a statement")
	}
}

// TestOpenStarting: Open waits for a database that is starting or temporarily out of connections,
// but not for ever.
func TestOpenStarting(t *testing.T) {
	server := pgtest.Shared(t)
	address := server.Schema(t)
	for _, code := range []string{startingUp, tooManyConns} {
		proxy, through := server.Proxy(t, address)
		proxy.Refuse(code, code, code, code)
		s, err := Open(t.Context(), through, nil)
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		s.Close()
		if left := proxy.Refusing(); left != 0 {
			t.Errorf("%s: %d refusals left: the test shows nothing", code, left)
		}
		proxy.Refuse(code, code, code)
		if _, err := Migrate(t.Context(), through); err != nil {
			t.Errorf("%s: migrate: %v", code, err)
		}
	}
	for code, hint := range map[string]string{startingUp: "it is starting", tooManyConns: "max_connections"} {
		proxy, through := server.Proxy(t, address)
		for range 1000 {
			proxy.Refuse(code)
		}
		_, err := Open(t.Context(), through, &Options{RetryFor: 100 * time.Millisecond})
		if !errors.Is(err, hansard.ErrBusy) || !strings.Contains(hansard.Hint(err), hint) {
			t.Errorf("%s for ever: %v, hint %q", code, err, hansard.Hint(err))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := Open(ctx, through, &Options{RetryFor: time.Hour}); err == nil {
			t.Errorf("%s for ever, and a context that ends: no error", code)
		}
		cancel()
	}
}

// TestOpenWhileRecovering: a store opened while the database recovers from a crash, or is not
// started yet, is open once the database is up.
func TestOpenWhileRecovering(t *testing.T) {
	t.Parallel() // with a server of its own
	server := pgtest.New(t)
	address := server.Schema(t)
	before, err := Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	busy(t, before, 20)
	server.Kill()
	opened := later(func() (*Store, error) { return Open(t.Context(), address, nil) })
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	got := <-opened
	if got.err != nil {
		t.Fatal(got.err)
	}
	got.value.Close()
}

// TestNoUsage: a role that may not use the schema gets an error that says so, not that there is
// no store or that the schema should be made.
func TestNoUsage(t *testing.T) {
	server := pgtest.Shared(t)
	address := server.Schema(t)
	s, err := Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	schema := "s" + strings.Split(strings.Split(address, "search_path=s")[1], "&")[0]
	role := "shut_out_" + schema
	server.Exec(t, "CREATE ROLE "+role+" LOGIN")
	server.Exec(t, "GRANT SELECT ON ALL TABLES IN SCHEMA "+schema+" TO "+role)
	as := strings.Replace(address, "user=postgres", "user="+role, 1)
	check := func(what string, err error) {
		t.Helper()
		if err == nil || errors.Is(err, ErrNoSchema) || !strings.Contains(hansard.Hint(err), `GRANT USAGE ON SCHEMA "`+schema+`" TO "`+role+`"`) {
			t.Errorf("%s: %v, hint %q", what, err, hansard.Hint(err))
		}
	}
	for name, o := range map[string]*Options{"open": nil, "must exist": {MustExist: true}, "read only": {ReadOnly: true}} {
		_, err := Open(t.Context(), as, o)
		check(name, err)
	}
	_, err = Migrate(t.Context(), as)
	check("migrate", err)
}
