package httpd_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"hansard/httpd"
)

// TestTokens: create, look up, list and withdraw tokens; the file contains no token.
func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	tokens, err := httpd.OpenTokens(path, "")
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.Add(tokenOf("a", httpd.Read|httpd.Append))
	if err != nil {
		t.Fatal(err)
	}
	if err := httpd.CheckToken(token); err != nil {
		t.Errorf("a token of our own: %v", err)
	}
	if pass, ok := tokens.Who(token); pass.Name != "a" || pass.Rights != httpd.Read|httpd.Append || !ok {
		t.Errorf("who: %+v %v", pass, ok)
	}
	if _, err := tokens.Add(tokenOf("a", httpd.Read)); !errors.Is(err, httpd.ErrTokenExists) {
		t.Errorf("a name twice: %v", err)
	}
	for _, wrong := range []string{"", "x", token[1:], token + "x", strings.ToUpper(token), "a"} {
		if _, ok := tokens.Who(wrong); ok {
			t.Errorf("%q is let in", wrong)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v", info.Mode(), err)
	}
	if strings.Contains(mustRead(t, path), token) {
		t.Error("the file has the token in it")
	}
	// Another process sees the same, and its changes are seen here in time.
	other, err := httpd.OpenTokens(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := other.Who(token); !ok {
		t.Error("another process does not know it")
	}
	if err := other.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if err := other.Remove("a"); !errors.Is(err, httpd.ErrNoToken) {
		t.Errorf("removed twice: %v", err)
	}
	eventually(t, "it is withdrawn", func() bool { _, ok := tokens.Who(token); return !ok })
	if _, err := other.Add(tokenOf("a", httpd.Admin)); err != nil {
		t.Errorf("the name again: %v", err)
	}
	for _, bad := range []string{"", "a b", "a/b", "ä", strings.Repeat("x", 65)} {
		if _, err := tokens.Add(tokenOf(bad, httpd.Read)); err == nil {
			t.Errorf("the name %q was taken", bad)
		}
	}
	if _, err := tokens.Add(tokenOf("nothing", 0)); err == nil {
		t.Error("a token without rights was made")
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := httpd.OpenTokens(path, ""); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others may read: %v", err)
	}
}

// TestTokensAtOnce: many that add tokens at once lose none, and of those that add the same name
// one succeeds. A line cut in half by a crash spoils no other.
func TestTokensAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(`{"name":"torn","rights":"adm`), 0o600); err != nil {
		t.Fatal(err)
	}
	const n = 20
	var wg sync.WaitGroup
	var mu sync.Mutex
	owners := map[string]string{}
	for i := range n {
		wg.Go(func() {
			tokens, err := httpd.OpenTokens(path, "")
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := tokens.Add(tokenOf(fmt.Sprint("t", i), httpd.Read)); err != nil {
				t.Error(err)
			}
			token, err := tokens.Add(tokenOf("owner", httpd.Admin))
			if err == nil {
				mu.Lock()
				owners[token] = fmt.Sprint(i)
				mu.Unlock()
			} else if !errors.Is(err, httpd.ErrTokenExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	tokens, err := httpd.OpenTokens(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(tokens.List()); got != n+1 {
		t.Errorf("%d tokens, want %d", got, n+1)
	}
	if len(owners) != 1 {
		t.Errorf("%d were told that they own it", len(owners))
	}
	for token := range owners {
		if pass, ok := tokens.Who(token); !ok || pass.Name != "owner" {
			t.Errorf("the owner's token is %q, %v", pass.Name, ok)
		}
	}
}

// TestTokenFileStrict: a token file that somebody else could have put there, or could write, is
// refused, and reading it never blocks.
func TestTokenFileStrict(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: no links, FIFOs and modes here")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "real")
	tokens, err := httpd.OpenTokens(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Add(tokenOf("a", httpd.Admin)); err != nil {
		t.Fatal(err)
	}
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfifo", "-m", "600", fifo).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	for what, p := range map[string]string{"symbolic link": link, "not a regular file": fifo, "directory": dir} {
		refused := make(chan error, 1)
		go func() {
			_, err := httpd.OpenTokens(p, "")
			refused <- err
		}()
		select {
		case err := <-refused:
			if err == nil || what != "directory" && !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(waitMax):
			t.Fatalf("%s: it waits", what)
		}
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := httpd.OpenTokens(path, ""); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	// A file put in its place while a server runs is not read: the known tokens stay.
	if err := os.Rename(path, path+".kept"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".kept", path); err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Add(tokenOf("b", httpd.Admin)); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("written through a link: %v", err)
	}
	if err := os.Rename(path+".kept", path); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Log("SKIPPED: only root can give a file away")
		return
	}
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := httpd.OpenTokens(path, ""); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("a file of another user: %v", err)
	}
	// Root may serve another user's store: the file belongs to that user, even if root makes it.
	theirs := t.TempDir()
	if err := os.Chown(theirs, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	tokens, err = httpd.OpenTokens(filepath.Join(theirs, "tokens"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := tokens.Add(tokenOf(name, httpd.Admin)); err != nil {
			t.Errorf("root in another user's store: %v", err)
		}
	}
}

// TestTokensForeign: tokens that came with a store from elsewhere, or that belong to another
// store, are not accepted until they are adopted; tokens added meanwhile are valid.
func TestTokensForeign(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens")
	open := func(path, store string) *httpd.Tokens {
		t.Helper()
		tokens, err := httpd.OpenTokens(path, store)
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	tokens := open(path, "store-1")
	theirs, err := tokens.Add(tokenOf("owner", httpd.Admin))
	if err != nil {
		t.Fatal(err)
	}
	known := func(tokens *httpd.Tokens, token string) bool { _, ok := tokens.Who(token); return ok }
	if !known(open(path, "store-1"), theirs) || len(tokens.Foreign()) != 0 {
		t.Error("it is not known where it was made")
	}
	moved := filepath.Join(dir, "moved")
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	if !known(open(moved, "store-1"), theirs) {
		t.Error("moving the store withdraws its tokens")
	}
	copied := filepath.Join(dir, "copied")
	if err := os.WriteFile(copied, []byte(mustRead(t, moved)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]*httpd.Tokens{"copied": open(copied, "store-1"), "another store": open(moved, "store-2")} {
		if name == "copied" && runtime.GOOS == "windows" {
			continue
		}
		if known(at, theirs) || len(at.List()) != 0 || len(at.Foreign()) != 1 || at.Foreign()[0].Name != "owner" {
			t.Errorf("%s: it is let in; %v, %v", name, at.List(), at.Foreign())
		}
	}
	at := open(copied, "store-1")
	ours, err := at.Add(tokenOf("owner", httpd.Admin)) // the name is free
	if err != nil {
		t.Fatal(err)
	}
	if !known(open(copied, "store-1"), ours) || known(open(copied, "store-1"), theirs) {
		t.Error("a new token, or an old one, is not what it should be")
	}
	if err := os.WriteFile(copied+"2", []byte(mustRead(t, moved)), 0o600); err != nil {
		t.Fatal(err)
	}
	at = open(copied+"2", "store-1")
	if err := at.Adopt(); err != nil {
		t.Fatal(err)
	}
	if again := open(copied+"2", "store-1"); !known(again, theirs) || len(again.Foreign()) != 0 {
		t.Error("adopted it is not known")
	}
}

// TestTokenExpiryTooFar: an expiry that is in the year 10000 of UTC can't be written, and is
// refused.
func TestTokenExpiryTooFar(t *testing.T) {
	v := serveMemory(t)
	got := v.ask("POST", "/v1/tokens", `{"name":"far","rights":"read","expires":"9999-12-31T23:59:59-01:00"}`, v.as("admin")...)
	if got.status != 422 || got.problem() != "invalid" {
		t.Errorf("%d %s", got.status, got.body)
	}
	v.must(201, "POST", "/v1/tokens", `{"name":"far","rights":"read","expires":"9999-12-31T23:59:59Z"}`, v.as("admin")...)
}
