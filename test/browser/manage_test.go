package browser

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/httpd"
	"hansard/httpd/web"
	"hansard/memstore"
)

// serveRights serves a store with a token for each of these rights, by name.
func serveRights(t testing.TB, rights map[string]httpd.Right) (hansard.Store, string, map[string]string) {
	t.Helper()
	tokens, err := httpd.OpenTokens(filepath.Join(t.TempDir(), "tokens"), "")
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]string{}
	for name, right := range rights {
		if given[name], err = tokens.Add(httpd.Token{Name: name, Rights: right.String()}); err != nil {
			t.Fatal(err)
		}
	}
	s := memstore.New()
	server := httpd.New(s, httpd.Options{Access: tokens, Page: web.Handler()})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // the tab may still be open
		s.Close()
	})
	return s, listen(t, server), given
}

// TestListMarks: the list tells sessions apart: by their first prompt if they have no title, by
// what is new in them, and by who holds the turn.
func TestListMarks(t *testing.T) {
	s, url := serve(t)
	append1(t, s, "untitled", says("system", "", "You fix bugs."))
	append1(t, s, "untitled", says("user", "ada", "Fix the **parser**, please"))
	append1(t, s, "silent", says("assistant", "planner", "nobody asked"))
	if _, err := s.Create(t.Context(), "titled", hansard.Meta{Title: "A title"}); err != nil {
		t.Fatal(err)
	}
	append1(t, s, "titled", says("user", "ada", "hello"))
	if _, err := s.Acquire(t.Context(), "titled", hansard.Claim{Label: "planner", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	p := newTab(t, url)
	p.open("/#token=" + token)
	title := func(id string) string {
		return fmt.Sprintf(`document.querySelector('.sessions a[href$="%s"] .title')?.textContent`, id)
	}
	p.until(title("untitled") + ` == "Fix the parser, please"`)
	p.until(title("silent") + ` == "silent"`)
	p.until(title("titled") + ` == "A title"`)
	p.until(`document.querySelector('.sessions a[href$="titled"] .badge.held')?.textContent == "planner"`)
	p.click(`.sessions a[href$="untitled"]`)
	p.until(`document.querySelector("h2.title").textContent == "Fix the parser, please"`)

	// Events from before this browser's first look are not new; later ones are.
	fresh := func(id string) string {
		return fmt.Sprintf(`(document.querySelector('.sessions a[href$="%s"] .fresh')?.title ?? "")`, id)
	}
	p.until(fresh("titled") + ` == "" && ` + fresh("silent") + ` == ""`)
	append1(t, s, "new", says("user", "ada", "Something else"))
	p.until(fresh("new") + ` == "Not opened yet"`)
	p.live()
	append1(t, s, "untitled", says("assistant", "planner", "I am at it"))
	p.sees("I am at it") // open and visible: read
	p.click(`.sessions a[href$="new"]`)
	p.sees("Something else")
	p.until(fresh("new") + ` == ""`)
	for range 3 {
		append1(t, s, "untitled", says("assistant", "planner", "more"))
	}
	p.until(fresh("untitled") + ` == "3 new"`)
	p.until(`document.querySelector('.sessions li.unread a[href$="untitled"] .fresh').textContent.endsWith("3")`)
	if !eval[bool](p, `((mark) => { // the number is within its mark
		const range = new Range();
		range.selectNode(mark.lastChild);
		const number = range.getBoundingClientRect(), box = mark.getBoundingClientRect();
		return number.height > 8 && number.left >= box.left && number.right <= box.right && Math.abs(number.top + number.bottom - box.top - box.bottom) < 4;
	})(document.querySelector('.sessions li.unread a[href$="untitled"] .fresh'))`) {
		t.Error("the number of what is new is not in its mark")
	}
	p.shot("unread")
	p.open("/?again#/") // it is remembered
	p.until(fresh("untitled") + ` == "3 new"`)
	p.click(`.sessions a[href$="untitled"]`)
	p.until(fresh("untitled") + ` == ""`)
}

// TestAddress: the search is in the address: it is kept when a session is opened, after a reload,
// and in a link.
func TestAddress(t *testing.T) {
	s, url := serve(t)
	for i := range 6 {
		id := hansard.SessionID(fmt.Sprintf("s%d", i))
		if _, err := s.Create(t.Context(), id, hansard.Meta{Title: fmt.Sprintf("Session %d & more", i), Labels: map[string]string{"team": []string{"red", "blue=green"}[i%2]}}); err != nil {
			t.Fatal(err)
		}
		append1(t, s, string(id), says("user", "ada", fmt.Sprintf("hello %d", i)))
	}
	p := newTab(t, url)
	p.open("/#token=" + token)
	listed := `[...document.querySelectorAll(".sessions a")].map((a) => decodeURIComponent(a.hash.split(/[/?]/)[2])).sort().join()`
	p.until(listed + ` == "s0,s1,s2,s3,s4,s5"`)
	p.click(`.labels .label[title$="team=blue=green"]`)
	p.until(listed + ` == "s1,s3,s5"`)
	p.press("/")
	p.write("3 & more")
	p.until(listed + ` == "s3"`)
	p.until(`new URLSearchParams(location.hash.split("?")[1]).get("q") == "3 & more"`)
	p.until(`new URLSearchParams(location.hash.split("?")[1]).getAll("label").join() == "team=blue=green"`)
	p.press("Enter")
	p.sees("hello 3")
	p.live()
	p.until(`location.hash.startsWith("#/s/s3?")`)
	// A link within the session keeps it, and so does a reload.
	eval[bool](p, `(document.querySelector(".event .seq").click(), true)`)
	p.until(`location.hash.startsWith("#/s/s3/1?") && document.querySelector(".event.marked")`)
	at := eval[string](p, `location.hash`)
	p.open("/?again" + at)
	p.until(listed + ` == "s3"`)
	p.until(`document.querySelector(".search").value == "3 & more" && document.querySelector(".filters .label").innerText.trim() == "team=blue=green" && document.querySelector(".event.marked")`)
	p.click(".wordmark a")
	p.until(listed + ` == "s0,s1,s2,s3,s4,s5" && document.querySelector(".filters").hidden`)
}

// TestSearching: while the server searches there is a sign of activity.
func TestSearching(t *testing.T) {
	s, server := newServer(t)
	append1(t, s, "needle", says("user", "", "hello"))
	append1(t, s, "hay", says("user", "", "hello"))
	slow := make(chan struct{})
	url := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("q") == "need" {
			select {
			case <-slow:
			case <-r.Context().Done():
			}
		}
		server.ServeHTTP(w, r)
	}))
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.until("document.querySelectorAll('.sessions a').length == 2")
	if eval[bool](p, `document.querySelector(".work").checkVisibility()`) {
		t.Error("it works although nobody searches")
	}
	p.press("/")
	p.write("need")
	p.until(`document.querySelector(".work").checkVisibility()`)
	p.shot("searching")
	close(slow)
	p.until(`document.querySelectorAll('.sessions a').length == 1 && !document.querySelector(".work").checkVisibility()`)
}

// TestManage: sessions are created, renamed, labelled and, after a confirmation, deleted.
func TestManage(t *testing.T) {
	s, url := serve(t)
	append1(t, s, "other", says("user", "", "hello"))
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.until("document.querySelectorAll('.sessions a').length == 1")
	fill := func(selector, text string) {
		t.Helper()
		p.click(selector)
		eval[bool](p, `(document.activeElement.select(), true)`)
		p.write(text)
	}
	p.press("c")
	p.until(`document.activeElement.matches("dialog input")`)
	p.write("A new session")
	fill(`dialog .field-row:nth-of-type(2) input`, "not an id!")
	p.click("dialog .add")
	p.write("team")
	fill(`dialog .label-row input:last-of-type`, "red")
	p.shot("new-session")
	p.expect("422")
	p.click("dialog .primary")
	p.until(`document.querySelector("dialog .say").innerText.includes("not an id!")`) // it says what is wrong, and stays open
	fill(`dialog .field-row:nth-of-type(2) input`, "brand-new")
	p.click("dialog .primary")
	p.until(`location.hash == "#/s/brand-new" && !document.querySelector("dialog")`)
	p.live()
	info, err := s.Stat(t.Context(), "brand-new")
	if err != nil || info.Title != "A new session" || len(info.Labels) != 1 || info.Labels["team"] != "red" {
		t.Fatalf("it was made as %+v, %v", info, err)
	}
	p.until(`document.querySelector('.sessions a[href$="brand-new"] .title').textContent == "A new session"`)

	// Its title and labels.
	p.press("e")
	p.until(`document.activeElement.matches("dialog input")`)
	p.write("A better title")
	fill(`dialog .label-row input:last-of-type`, "blue")
	p.click("dialog .add")
	p.write("stage")
	fill(`dialog .label-row:nth-child(2) input:last-of-type`, "one=two")
	p.click("dialog .primary")
	p.until(`!document.querySelector("dialog") && document.querySelector("h2.title").textContent == "A better title"`)
	p.until(`[...document.querySelectorAll(".about .label")].map((l) => l.textContent).join() == "team=blue,stage=one=two" || [...document.querySelectorAll(".about .label")].map((l) => l.textContent).join() == "stage=one=two,team=blue"`)
	p.press("e")
	p.click("dialog .label-row .quiet")
	p.click("dialog .label-row .quiet")
	p.click("dialog .primary")
	p.until(`!document.querySelector("dialog") && !document.querySelector(".about button.label")`)
	if info, _ = s.Stat(t.Context(), "brand-new"); info.Title != "A better title" || len(info.Labels) != 0 {
		t.Errorf("it was changed to %+v", info)
	}

	// Deletion: confirmed first, and not by a slip on the keyboard.
	p.press("m")
	p.until(`document.activeElement.matches(".menu-list button")`)
	p.shot("menu")
	p.press("End")
	p.press("Enter")
	p.until(`document.querySelector("dialog h2")?.textContent == "Delete this session?"`)
	p.sees("A better title")
	p.shot("delete")
	p.press("Enter") // the focus is not on the delete button
	p.until(`!document.querySelector("dialog")`)
	if _, err := s.Stat(t.Context(), "brand-new"); err != nil {
		t.Fatalf("it is gone without being asked: %v", err)
	}
	p.press("m")
	p.press("End")
	p.press("Enter")
	p.expect("410")
	p.click("dialog .danger")
	p.until(`location.hash == "#/" && !document.querySelector('.sessions a[href$="brand-new"]')`)
	if _, err := s.Stat(t.Context(), "brand-new"); err == nil {
		t.Error("it is still there")
	}
}

// TestRights: a read-only token is offered nothing else, and one that may append is not offered
// deletion.
func TestRights(t *testing.T) {
	s, url, tokens := serveRights(t, map[string]httpd.Right{"reader": httpd.Read, "writer": httpd.Read | httpd.Append, "owner": httpd.Admin})
	append1(t, s, "talk", says("user", "ada", "hello"))
	for who, want := range map[string]struct {
		composer bool
		menu     string
	}{
		"reader": {false, "Find,Go to an event,Copy a link,Print,Export"},
		"writer": {true, "Find,Go to an event,Copy a link,Print,Export,Fork,Title and labels,Archive"},
		"owner":  {true, "Find,Go to an event,Copy a link,Print,Export,Fork,Title and labels,Archive,Delete"},
	} {
		p := newTab(t, url)
		p.open("/#token=" + tokens[who])
		p.click(`.sessions a[href$="talk"]`)
		p.live()
		if got := eval[bool](p, `document.querySelector(".composer") !== null`); got != want.composer {
			t.Errorf("%s: the composer is there: %v", who, got)
		}
		if got := eval[bool](p, `document.querySelector("button.new") !== null`); got != want.composer {
			t.Errorf("%s: a new session is offered: %v", who, got)
		}
		p.press("m")
		p.until(`document.querySelector(".menu-list")`)
		if got := eval[string](p, `[...document.querySelectorAll(".menu-list span")].map((e) => e.textContent).join()`); got != want.menu {
			t.Errorf("%s: the menu has %s", who, got)
		}
		p.press("Escape")
		for _, key := range []string{"n", "c", "e"} {
			p.press(key)
		}
		if who == "reader" && eval[bool](p, `document.querySelector("dialog") !== null || document.activeElement.tagName == "TEXTAREA"`) {
			t.Error("the reader can write by the keyboard")
		}
		p.shot("rights-" + who)
	}
}

// TestJunkToken: a link with an invalid token logs nobody out; a valid one is used.
func TestJunkToken(t *testing.T) {
	s, url, tokens := serveRights(t, map[string]httpd.Right{"one": httpd.Admin, "two": httpd.Read})
	append1(t, s, "talk", says("user", "ada", "hello"))
	p := newTab(t, url)
	p.expect("401")
	p.open("/#token=" + tokens["one"])
	p.sees("hello")
	for i, junk := range []string{"junk", "", "not%20one", "%ff%fe", strings.Repeat("x", 300)} {
		p.open(fmt.Sprintf("/?%d#token=%s", i, junk))
		p.sees("The token in the link was not accepted")
		p.sees("hello")
		if got := eval[string](p, `localStorage.getItem("hansard.token")`); got != tokens["one"] {
			t.Errorf("after %q the token is %q", junk, got)
		}
		eval[bool](p, `(location.hash = "#token=%s", true)`, junk) // without a reload
		p.until(`location.hash == "#/" && document.querySelectorAll(".sessions a").length == 1`)
	}
	p.open("/?good#token=" + tokens["two"])
	p.until(`localStorage.getItem("hansard.token") == %q && document.querySelectorAll(".sessions a").length == 1`, tokens["two"])
}

// TestEmptyCurl: the commands of the empty page do what they say.
func TestEmptyCurl(t *testing.T) {
	s, url := serve(t)
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.sees("An empty store")
	eval[bool](p, `(navigator.clipboard.writeText = async (text) => { window.copied = text; }, true)`)
	copied := func(n int) string {
		p.click(fmt.Sprintf(`.welcome li:nth-child(%d) .command:last-of-type .copy`, n))
		p.until(`window.copied`)
		return eval[string](p, `((text) => { window.copied = ""; return text; })(window.copied)`)
	}
	export, curl := copied(1), copied(3)
	if !strings.HasPrefix(curl, "curl ") || !strings.HasPrefix(export, "export ") {
		t.Fatalf("copied were %q and %q", export, curl)
	}
	cmd := exec.Command("sh", "-c", export+"\n"+strings.Replace(curl, "curl ", "curl -sS --fail-with-body ", 1))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", curl, err, out)
	}
	if e := last(t, s, "first"); e.Seq != 1 || e.Role != "user" || string(e.Data) != `"What is the capital of Peru?"` {
		t.Errorf("it stored %+v", e)
	}
	p.sees("What is the capital of Peru?")
}

// TestArchive: an archived session leaves the list and is in the archive, from where it can be
// brought back; a saved search is still there after a reload, and can be removed.
func TestArchive(t *testing.T) {
	s, url := serve(t)
	for _, id := range []string{"kept", "put-away"} {
		append1(t, s, id, says("user", "", "hello"))
	}
	p := newTab(t, url)
	p.open("/#token=" + token)
	listed := func(want string) {
		t.Helper()
		p.until(`[...document.querySelectorAll('.sessions a')].map((a) => a.hash).join() == "` + want + `"`)
	}
	choose := func(menu, text string) {
		t.Helper()
		p.click(menu + " .menu-button")
		p.until(`[...document.querySelectorAll("` + menu + ` .menu-list button span")].some((e) => e.textContent == "` + text + `")`)
		eval[bool](p, `([...document.querySelectorAll("`+menu+` .menu-list button")].find((e) => e.querySelector("span").textContent == "`+text+`").click(), true)`)
	}
	listed("#/s/put-away,#/s/kept")
	p.click(`.sessions a[href$="put-away"]`)
	p.live()
	choose(".session-head", "Archive")
	listed("#/s/kept")
	info, err := s.Stat(t.Context(), "put-away")
	if err != nil || !info.Archived() {
		t.Fatalf("it is %+v, %v", info, err)
	}
	choose(".searching", "Archived sessions")
	listed("#/s/put-away")
	p.until(`location.hash.includes("archived=only")`)
	p.shot("archive")
	choose(".searching", "Save this search")
	p.click(`.filters button`) // leave the archive
	listed("#/s/kept")
	p.open("/?again")
	listed("#/s/kept")
	choose(".searching", "archived")
	listed("#/s/put-away")
	choose(".searching", "Forget this search")
	p.click(`.sessions a[href$="put-away"]`)
	p.live()
	choose(".session-head", "Take out of the archive")
	listed("")
	choose(".searching", "Sessions that are not archived")
	listed("#/s/put-away,#/s/kept")
	if eval[string](p, `localStorage.getItem("hansard.searches")`) != "[]" {
		t.Error("the search was not forgotten")
	}
}
