package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/internal/syncbuf"
	"hansard/memstore"
)

// badlyClosed is a store whose Close fails.
type badlyClosed struct{ hansard.Store }

func (badlyClosed) Close() error { return &hansard.BusyError{Holder: "process 42"} }

// TestStoredCounts: an append that was stored counts as stored even if closing the store fails
// afterwards: a user who sees a failure would repeat it.
func TestStoredCounts(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	ask := func(args ...string) (exit int, stdout, stderr string) {
		t.Helper()
		var out, errs syncbuf.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &out, out: newOutput(&out), stderr: &errs, now: time.Now,
			opener: func(string, *filestore.Options) (hansard.Store, error) { return badlyClosed{store}, nil }}
		exit = a.run(context.Background(), append(args, "--store", "/anywhere"))
		return exit, out.String(), errs.String()
	}
	exit, stdout, stderr := ask("append", "demo", "one", "--create")
	if exit != 0 || !strings.Contains(stdout, "seq 1") {
		t.Errorf("append: exit code %d, %q", exit, stdout)
	}
	for _, want := range []string{"warning", "process 42", "kill -CONT"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("it does not say %q: %s", want, stderr)
		}
	}
	// An earlier error takes precedence.
	if exit, _, stderr := ask("append", "nobody", "one"); exit != exitNotFound || strings.Contains(stderr, "warning") {
		t.Errorf("append to no session: exit code %d, %s", exit, stderr)
	}
}

// TestVerifyOfMissingSessions: if all logs are gone nothing is reported as sound.
func TestVerifyOfMissingSessions(t *testing.T) {
	dir := t.TempDir()
	ask := func(args ...string) (exit int, said string) {
		t.Helper()
		var out, errs syncbuf.Buffer
		exit = run(context.Background(), append(args, "--store", dir), strings.NewReader(""), &out, &errs)
		return exit, out.String() + errs.String()
	}
	if exit, said := ask("append", "demo", "one", "--create"); exit != 0 {
		t.Fatal(said)
	}
	if err := os.RemoveAll(filepath.Join(dir, "sessions")); err != nil {
		t.Fatal(err)
	}
	exit, said := ask("verify")
	if exit != exitDamaged || strings.Contains(said, "sound") || !strings.Contains(said, "put it back") || strings.Contains(said, "hansard repair") {
		t.Errorf("verify: exit code %d\n%s", exit, said)
	}
	for _, args := range [][]string{{"ls"}, {"show", "demo"}, {"append", "demo", "two", "--create"}, {"new", "other"}} {
		exit, said := ask(args...)
		if exit != exitDamaged || !strings.Contains(said, "put it back") || strings.Contains(said, "no such session") {
			t.Errorf("%s: exit code %d\n%s", args[0], exit, said)
		}
	}
}
