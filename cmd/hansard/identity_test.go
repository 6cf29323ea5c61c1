//go:build unix

package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore"
	"hansard/httpd"
	"hansard/internal/wire"
)

const identityToken = "a-token-for-the-tests"

// servedStore is a file store with the session a, and a server that serves it.
func servedStore(t *testing.T) (dir, url string, store *filestore.Store) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	store, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if _, err := store.Create(t.Context(), "a", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	server := httpd.New(store, httpd.Options{Access: httpd.Single(identityToken)})
	front := httptest.NewServer(server)
	t.Cleanup(func() { front.Close(); server.Shutdown(t.Context()) })
	t.Setenv(envToken, identityToken)
	return dir, front.URL, store
}

func texts(t *testing.T, s hansard.Store) (all []hansard.Event) {
	t.Helper()
	for e, err := range s.Read(t.Context(), "a", hansard.Range{Kinds: []string{hansard.KindMessage}}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// TestFailure67_AnotherAddress: inside a turn the same store is recognised under any address:
// writes to the session are under the turn, a lost turn is refused, and a turn inside itself does
// not wait for itself.
func TestFailure67_AnotherAddress(t *testing.T) {
	dir, url, store := servedStore(t)
	for _, way := range []struct{ turn, write string }{{dir, url}, {url, dir}} {
		p := start(t, way.turn, "turn", "a", "--ttl", "10m", "--", "sh", "-c", `hansard append a inside --store `+way.write+`; echo appended $?
			hansard turn a --wait 1h --store `+way.write+` -- true 2>/dev/null; echo nested $?
			read x
			hansard append a late --store `+way.write+` 2>/dev/null; echo late $?`)
		for _, want := range []string{"appended 0", "nested 5"} {
			line := p.line()
			for !strings.HasPrefix(line, "appended ") && !strings.HasPrefix(line, "nested ") {
				line = p.line()
			}
			if line != want {
				t.Fatalf("from %s through %s: %q, want %q; %s", way.turn, way.write, line, want, p.stderr)
			}
		}
		all := texts(t, store)
		turn, err := store.Turn(t.Context(), "a")
		if err != nil || turn == nil || all[len(all)-1].Turn != turn.Grant {
			t.Errorf("written under %q, the turn is %+v, %v", all[len(all)-1].Turn, turn, err)
		}
		// Stolen: what it still writes is refused, not written outside the turn.
		stolen, err := store.Acquire(t.Context(), "a", hansard.Claim{Steal: "test"})
		if err != nil {
			t.Fatal(err)
		}
		p.send("\n")
		p.exit()
		if now := texts(t, store); len(now) != len(all) {
			t.Errorf("after its turn was stolen it wrote %s", now[len(now)-1].Data)
		}
		if err := store.Release(t.Context(), "a", stolen.Grant); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTurnNarrows: the program that a turn runs gets a token for its session and nothing else,
// and no password.
func TestTurnNarrows(t *testing.T) {
	_, url, store := servedStore(t)
	if _, err := store.Create(t.Context(), "b", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGPASSWORD", "SECRET")
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte(identityToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envToken, "")
	t.Setenv(envTokenFile, secret)
	p := start(t, url, "turn", "a", "--max-hold", "1h", "--", "sh", "-c", `env | sed 's/^/env /'; hansard append a mine >/dev/null; echo a $?; hansard append b other >/dev/null 2>&1; echo b $?; hansard ls | sed 's/^/ls /'; echo end`)
	seen := map[string]string{}
	for line := p.line(); line != "end"; line = p.line() {
		name, rest, _ := strings.Cut(line, " ")
		switch name {
		case "env":
			if k, v, _ := strings.Cut(rest, "="); strings.HasPrefix(k, "HANSARD_") || k == "PGPASSWORD" {
				seen[k] = v
			}
			if strings.Contains(rest, identityToken) || strings.Contains(rest, "SECRET") {
				t.Errorf("the program sees %s", rest)
			}
		case "ls":
			if strings.HasPrefix(rest, "b ") {
				t.Errorf("it lists %s", rest)
			}
		default:
			seen[name] = rest
		}
	}
	if seen["a"] != "0" || seen["b"] != "3" || !wire.IsNarrowed(seen[envToken]) || seen[envTokenFile] != "" {
		t.Errorf("%v; %s", seen, p.stderr)
	}
	p.exit()
	if all := texts(t, store); len(all) != 1 || all[0].Turn == "" || all[0].By != "given" {
		t.Errorf("it wrote %+v", all)
	}
	if got := withoutPassword("postgres://u:p@h/db?password=q&x=y"); got != "postgres://u@h/db?x=y" {
		t.Errorf("without its password: %s", got)
	}
}
