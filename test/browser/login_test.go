package browser

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/httpd"
	"hansard/httpd/web"
	"hansard/memstore"
)

// TestLogin: a link with an invalid token logs nobody out; one with a code logs in, once, with a
// cookie that no script can see and that EventSource sends; a shared session is limited to its
// tab.
func TestLogin(t *testing.T) {
	tokens, err := httpd.OpenTokens(filepath.Join(t.TempDir(), "tokens"), "")
	if err != nil {
		t.Fatal(err)
	}
	mine, err := tokens.Add(httpd.Token{Name: "mine", Rights: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	share, err := tokens.Add(httpd.Token{Name: "share", Rights: "read", Scope: httpd.Scope{Session: "shared"}, Share: true})
	if err != nil {
		t.Fatal(err)
	}
	s := memstore.New()
	server := httpd.New(s, httpd.Options{Access: tokens, Page: web.Handler()})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // the tab may still be open
		s.Close()
	})
	url := listen(t, server)
	append1(t, s, "secret", says("user", "", "hello"))
	append1(t, s, "shared", says("user", "", "for everybody"))

	p := newTab(t, url)
	p.expect("401")
	p.open("/#token=" + mine)
	p.sees("secret")
	for _, junk := range []string{"#token=junk", "#token=%20%0a", "#code=junk", "#share=junk"} {
		p.open("/?" + junk[1:4] + junk)
		p.sees("You are still logged in as before")
		p.sees("secret")
		// Also while the page is open.
		eval[bool](p, "(location.hash = %q, true)", junk)
		p.until("location.hash == '#/'")
		p.sees("secret")
		if kept := eval[string](p, "localStorage.getItem('hansard.token')"); kept != mine {
			t.Fatalf("%s: the token is %q", junk, kept)
		}
	}
	p.open("/?share#share=" + share + "&session=shared")
	p.sees("for everybody")
	if eval[bool](p, "document.body.innerText.includes('secret')") || eval[string](p, "localStorage.getItem('hansard.token')") != mine {
		t.Error("the shared session took the place of everything else")
	}

	code, err := httpd.NewLoginCode(mine, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	q := newTab(t, url)
	q.expect("401")
	q.open("/#code=" + code + "&session=secret")
	q.sees("hello")
	if at := eval[string](q, "location.href"); strings.Contains(at, "code") {
		t.Errorf("the address still has the code: %s", at)
	}
	if seen := eval[string](q, "document.cookie + JSON.stringify(localStorage)"); strings.Contains(seen, "login.") || strings.Contains(seen, mine) {
		t.Errorf("a script sees %s", seen)
	}
	eval[bool](q, "(window.got = [], new EventSource('/v1/sessions/secret/events/stream').addEventListener('event', (e) => got.push(e.data)), new EventSource('/v1/sessions/secret/events/stream').onmessage = (e) => got.push(e.data), true)")
	q.until("got.some((d) => d.includes('hello'))")
	if _, err := s.Append(t.Context(), "secret", hansard.Batch{Events: []hansard.Event{says("user", "", "later")}}); err != nil {
		t.Fatal(err)
	}
	q.until("got.some((d) => d.includes('later'))")
	q.open("/?again")
	q.sees("secret")
	r := newTab(t, url)
	r.expect("401")
	r.open("/#code=" + code)
	r.sees("The link was not accepted")
	if eval[bool](r, "document.body.innerText.includes('secret')") {
		t.Error("a code was good twice")
	}
}
