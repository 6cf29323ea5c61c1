package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hansard"
)

// TestToken: without a token the page asks for one and says where to find it; one in the address
// is used and removed from the address; a wrong one leads back.
func TestToken(t *testing.T) {
	s, url := serve(t)
	append1(t, s, "secret", says("user", "", "hello"))
	p := newTab(t, url)
	p.expect("401")
	p.open("/")
	p.sees("hansard serve printed it at its first start")
	if eval[bool](p, "document.body.innerText.includes('secret')") {
		t.Error("the page shows a session without a token")
	}
	p.shot("token")
	p.until("document.activeElement.type == 'password'")
	p.write("no token at all")
	p.press("Enter")
	p.sees("A token has only plain letters")
	p.until("document.activeElement.type == 'password'")
	p.write("not-the-token")
	p.press("Enter")
	p.sees("The server did not accept the token")
	p.until("document.activeElement.type == 'password'")
	p.write(url + "/#token=" + token) // the whole address, as printed
	p.press("Enter")
	p.sees("secret")

	// It is kept, only in this browser, and not in the address.
	p.open("/?again")
	p.sees("secret")
	q := newTab(t, url)
	q.open("/#token=" + token)
	q.sees("secret")
	if at := eval[string](q, "location.href"); strings.Contains(at, token) {
		t.Errorf("the address still has the token: %s", at)
	}
	if n := eval[int](q, "history.length"); n > 2 {
		t.Errorf("the history has %d entries", n)
	}
	for _, r := range q.requests {
		if strings.Contains(r, token) {
			t.Errorf("the token is in the address of a request: %s", r)
		}
	}
}

// TestList: newest first, with titles, labels and marks; it refreshes by itself, can be searched
// and filtered, and grows as it is scrolled.
func TestList(t *testing.T) {
	s, url := serve(t)
	for i := range 130 {
		_, err := s.Create(t.Context(), hansard.SessionID(fmt.Sprintf("s%03d", i)), hansard.Meta{
			Title: fmt.Sprintf("Session %03d", i), Labels: map[string]string{"team": []string{"red", "blue"}[i%2], "n": fmt.Sprint(i)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Acquire(t.Context(), "s129", hansard.Claim{Label: "the planner", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	p := newTab(t, url)
	p.open("/#token=" + token)
	titles := `[...document.querySelectorAll(".sessions .title")].map((e) => e.textContent)`
	p.until(titles + `.length == 50`)
	if got := eval[[]string](p, titles); got[0] != "Session 129" || got[49] != "Session 080" {
		t.Errorf("the list begins %q and ends %q", got[0], got[49])
	}
	p.until(`document.querySelector(".sessions li .badge.held").textContent == "the planner"`)

	// Endless scrolling.
	p.until(`(document.querySelector(".list-scroller").scrollTop = 1e9, ` + titles + `.length == 130)`)
	p.sees("130 sessions")

	// Changes made elsewhere appear: a new session, and one that moves up.
	append1(t, s, "fresh", says("user", "", "hello"))
	append1(t, s, "s003", says("user", "", "hello"))
	p.until(titles + `.slice(0, 2).join() == "Session 003,hello"`)
	if n := eval[int](p, titles+".length"); n != 131 {
		t.Errorf("%d sessions are listed, want 131", n)
	}
	if twice := eval[int](p, titles+".length - new Set("+titles+").size"); twice != 0 {
		t.Errorf("%d sessions are listed twice", twice)
	}
	if err := s.Delete(t.Context(), "fresh", ""); err != nil {
		t.Fatal(err)
	}
	p.until("!" + titles + `.includes("hello")`)

	// Search and labels.
	p.press("/")
	p.write("session 11")
	p.until(titles + `.length == 10`)
	p.click(`.labels .label[title$="team=blue"]`)
	p.until(titles + `.length == 5`)
	p.press("/")
	p.write("nothing like it")
	p.sees("No session matches.")
	p.press("Escape")
	p.click(`.filters .label`)
	p.until(titles + `.length == 50`)
}

// TestEmpty: an empty store says what to do next.
func TestEmpty(t *testing.T) {
	s, url := serve(t)
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.sees("An empty store")
	p.sees("hansard demo")
	p.sees("curl " + url + "/v1/sessions/first/events")
	if eval[bool](p, "document.body.innerText.includes(%q)", token) {
		t.Error("the token is on the screen")
	}
	p.shot("empty")
	append1(t, s, "first", says("user", "", "hello"))
	p.sees("Choose a session.")
}

// TestDamaged: a damaged session is marked in the list, says what is safe and what to do, and
// shows what can be read.
func TestDamaged(t *testing.T) {
	s := startServer(t)
	var lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&lines, "%q\n", fmt.Sprintf("message %d", i+1))
	}
	s.hansard(lines.String(), "append", "broken", "--create", "--jsonl", "-", "--each")
	s.hansard("", "append", "sound", "--create", "all is well here")
	s.kill()
	log := filepath.Join(s.store, "sessions", "broken.jsonl")
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	content = []byte(strings.Replace(string(content), "message 30", "massage 30", 1))
	if err := os.WriteFile(log, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s.start()
	var stat struct {
		Damage struct {
			SafeSeq int `json:"safe_seq"`
		} `json:"damage"`
	}
	if err := json.Unmarshal([]byte(s.hansard("", "stat", "broken", "--json")), &stat); err != nil || stat.Damage.SafeSeq != 29 {
		t.Fatalf("the session is safe up to %d, want 29 (%v)", stat.Damage.SafeSeq, err)
	}
	p := newTab(t, s.url())
	p.open("/#token=" + token)
	p.until(`document.querySelector('.sessions a[href$="broken"] .badge.bad')`)
	p.click(`.sessions a[href$="broken"]`)
	p.sees("This session is damaged")
	p.sees("Events up to 29 are safe")
	p.sees("hansard repair broken")
	p.sees("message 29")
	p.until(`document.querySelector(".composer textarea").disabled`)
	if eval[bool](p, `document.body.innerText.includes("massage 30") || document.body.innerText.includes("message 31")`) {
		t.Error("the page shows what is behind the damage")
	}
	p.shot("damaged")
	s.hansard("", "repair", "broken")
	p.live()
	p.until(`document.querySelector(".banner").hidden && !document.querySelector(".composer textarea").disabled`)
	s.hansard("", "append", "broken", "sound again")
	p.sees("sound again")
	p.click(`.sessions a[href$="sound"]`)
	p.sees("all is well here")
}
