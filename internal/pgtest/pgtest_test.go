package pgtest

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestKillAndStart(t *testing.T) {
	s := New(t)
	s.Exec(t, "CREATE TABLE kept (n int)")
	conn, err := pgx.Connect(t.Context(), s.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a backend outlived the kill")
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	s.Exec(t, "INSERT INTO kept VALUES (1)")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
}
