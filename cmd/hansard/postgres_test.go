package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"hansard/internal/pgtest"
)

// TestPostgres: the commands do on a PostgreSQL store what they do on files, and copy transfers
// sessions from one to the other and back.
func TestPostgres(t *testing.T) {
	server := pgtest.New(t)
	store := server.Schema(t)
	files := filepath.Join(t.TempDir(), "files")
	hansard := func(want int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != want {
			t.Fatalf("hansard %q: exit %d, want %d\n%s%s", args, code, want, &stdout, &stderr)
		}
		return stdout.String() + stderr.String()
	}
	on := func(want int, args ...string) string {
		t.Helper()
		return hansard(want, append(args, "--store", store)...)
	}

	if out := on(exitNotFound, "ls"); !strings.Contains(out, "there is no store") {
		t.Errorf("ls of an empty database: %s", out)
	}
	if out := on(exitOK, "migrate"); !strings.Contains(out, "made the tables") {
		t.Errorf("migrate: %s", out)
	}
	if out := on(exitOK, "migrate", "--json"); !regexp.MustCompile(`"from":(\d+),"to":\d+`).MatchString(out) || strings.Contains(out, `"from":0`) {
		t.Errorf("migrate again: %s", out)
	}
	on(exitOK, "new", "demo", "--title", "On PostgreSQL", "--label", "team=red")
	on(exitOK, "append", "demo", "hello", "--role", "user", "--key", "k")
	on(exitOK, "append", "demo", "hello", "--role", "user", "--key", "k")
	on(exitConflict, "append", "demo", "x", "--expect", "7")
	on(exitOK, "set", "demo", "--state", `{"step":3}`)
	on(exitNotFound, "show", "nobody")
	on(exitOK, "new", "gone")
	on(exitOK, "rm", "gone", "--yes")
	if out := on(exitOK, "ls", "--label", "team=red", "--json"); !strings.Contains(out, `"id":"demo"`) || !strings.Contains(out, `"step":3`) {
		t.Errorf("ls: %s", out)
	}
	if out := on(exitOK, "verify"); strings.Contains(out, "damage") {
		t.Errorf("verify: %s", out)
	}

	hansard(exitOK, "copy", store, files)
	back := server.Schema(t)
	out := hansard(exitOK, "copy", files, back, "--json")
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var c copiedJSON
		if err := json.Unmarshal([]byte(line), &c); err != nil || !c.Same {
			t.Errorf("copy says %s (%v)", line, err)
		}
	}
	was, is := on(exitOK, "show", "demo", "--json"), hansard(exitOK, "show", "demo", "--json", "--store", back)
	if was != is || strings.Count(is, "\n") != 2 {
		t.Errorf("there and back: %s, was %s", is, was)
	}
	if out := hansard(exitOK, "append", "demo", "hello", "--role", "user", "--key", "k", "--json", "--store", back); !strings.Contains(out, `"replayed":true`) {
		t.Errorf("a key after the copies: %s", out)
	}
	hansard(exitNotFound, "stat", "gone", "--store", files)
	// Changes made to the tables from outside are found, and the safe part is reported and
	// copied.
	address, err := url.Parse(back)
	if err != nil {
		t.Fatal(err)
	}
	server.Exec(t, "DELETE FROM "+address.Query().Get("search_path")+".hansard_events WHERE seq = 2")
	if out := hansard(exitDamaged, "verify", "--store", back); !strings.Contains(out, "damage  demo  the last seq is said to be 2, the log has 1  (1 event safe)") || !strings.Contains(out, "restore the database from a backup") {
		t.Errorf("verify of damaged tables: %s", out)
	}
	if out := hansard(exitDamaged, "show", "demo", "--store", back); !strings.Contains(out, "hello") || !strings.Contains(out, "events up to seq 1 are safe") {
		t.Errorf("show of damaged tables: %s", out)
	}
	// A copy that has events of its own is left alone.
	hansard(exitOK, "append", "demo", "more", "--store", files)
	if out := hansard(exitOther, "copy", store, files); !strings.Contains(out, "NOT THE SAME") {
		t.Errorf("copy over a session that went on: %s", out)
	}
}

// TestServeWarnsOfSettings: serve warns at start if the database is configured so that it may
// lose acknowledged events.
func TestServeWarnsOfSettings(t *testing.T) {
	server := pgtest.New(t)
	for _, c := range []struct {
		setting string
		warned  bool
	}{{"synchronous_commit=on", false}, {"synchronous_commit=off", true}} {
		ctx, cancel := context.WithCancel(t.Context())
		out, stdout := io.Pipe()
		var stderr bytes.Buffer
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--token-file", filepath.Join(t.TempDir(), "tokens"),
				"--store", server.Schema(t) + "&" + c.setting}, strings.NewReader(""), stdout, &stderr)
			stdout.Close()
		}()
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "serving") {
			t.Errorf("%s: serve says %q, %v", c.setting, line, err)
		}
		go io.Copy(io.Discard, out)
		cancel()
		<-ended
		if warned := strings.Contains(stderr.String(), "warning: synchronous_commit is off: "); warned != c.warned {
			t.Errorf("%s: warned %v\n%s", c.setting, warned, &stderr)
		}
	}
}
