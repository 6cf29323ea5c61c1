package httpd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"hansard/httpd"
)

// TestTokens: made, known, listed, withdrawn; the file tells no token.
func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	tokens, err := httpd.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.Add("a", httpd.Read|httpd.Append)
	if err != nil {
		t.Fatal(err)
	}
	if err := httpd.CheckToken(token); err != nil {
		t.Errorf("a token of our own: %v", err)
	}
	if name, rights, ok := tokens.Who(token); name != "a" || rights != httpd.Read|httpd.Append || !ok {
		t.Errorf("who: %q %v %v", name, rights, ok)
	}
	if _, err := tokens.Add("a", httpd.Read); !errors.Is(err, httpd.ErrTokenExists) {
		t.Errorf("a name twice: %v", err)
	}
	for _, wrong := range []string{"", "x", token[1:], token + "x", strings.ToUpper(token), "a"} {
		if _, _, ok := tokens.Who(wrong); ok {
			t.Errorf("%q is let in", wrong)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v", info.Mode(), err)
	}
	if strings.Contains(mustRead(t, path), token) {
		t.Error("the file has the token in it")
	}
	// Another process sees the same, and what it does is seen here in time.
	other, err := httpd.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok := other.Who(token); !ok {
		t.Error("another process does not know it")
	}
	if err := other.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if err := other.Remove("a"); !errors.Is(err, httpd.ErrNoToken) {
		t.Errorf("removed twice: %v", err)
	}
	eventually(t, "it is withdrawn", func() bool { _, _, ok := tokens.Who(token); return !ok })
	if _, err := other.Add("a", httpd.Admin); err != nil {
		t.Errorf("the name again: %v", err)
	}
	for _, bad := range []string{"", "a b", "a/b", "ä", strings.Repeat("x", 65)} {
		if _, err := tokens.Add(bad, httpd.Read); err == nil {
			t.Errorf("the name %q was taken", bad)
		}
	}
	if _, err := tokens.Add("nothing", 0); err == nil {
		t.Error("a token without rights was made")
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := httpd.OpenTokens(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others may read: %v", err)
	}
}

// TestTokensAtOnce: many that add tokens at once lose none, and of those that add
// the same name one has it. A line that a crash cut in half spoils no other.
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
			tokens, err := httpd.OpenTokens(path)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := tokens.Add(fmt.Sprint("t", i), httpd.Read); err != nil {
				t.Error(err)
			}
			token, err := tokens.Add("owner", httpd.Admin)
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
	tokens, err := httpd.OpenTokens(path)
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
		if name, _, ok := tokens.Who(token); !ok || name != "owner" {
			t.Errorf("the owner's token is %q, %v", name, ok)
		}
	}
}
