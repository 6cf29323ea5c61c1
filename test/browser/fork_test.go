package browser

import (
	"testing"

	"hansard"
	"hansard/httpd"
)

// TestFork: a session is forked at an event, whole batches only; the fork shows where it is from,
// and the session shows its forks.
func TestFork(t *testing.T) {
	s, url := serve(t)
	append1(t, s, "s", says("user", "ada", "the first"))
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{says("assistant", "", "in a batch"), says("assistant", "", "its end")}}); err != nil {
		t.Fatal(err)
	}
	append1(t, s, "s", says("user", "ada", "not in the fork"))
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.until("document.querySelectorAll('.sessions a').length == 1")
	p.open("/#/s/s")
	p.live()
	p.expect("422") // inside the batch: the server says where it ends
	eval[bool](p, `(document.querySelector('article[data-seq="2"] .act.fork').click(), true)`)
	p.until(`location.hash != "#/s/s" && document.querySelectorAll("article.event").length == 4`)
	p.sees("Forked from s at event 3")
	p.until(`document.querySelector(".about .lineage a")?.getAttribute("href") == "#/s/s/3"`)
	p.shot("fork")
	if eval[bool](p, `document.body.innerText.includes("not in the fork") && Boolean([...document.querySelectorAll("article.event")].find((e) => e.innerText.includes("not in the fork")))`) {
		t.Error("the fork has what came after it")
	}
	eval[bool](p, `(document.querySelector(".about .lineage a").click(), true)`)
	p.until(`location.hash.startsWith("#/s/s") && document.querySelectorAll("article.event").length == 4 && [...document.querySelectorAll(".about .lineage")].some((e) => e.innerText.startsWith("forks"))`)
}

// TestForkRights: a read-only user is not offered a fork.
func TestForkRights(t *testing.T) {
	s, url, tokens := serveRights(t, map[string]httpd.Right{"reader": httpd.Read})
	append1(t, s, "s", says("user", "ada", "hello"))
	p := newTab(t, url)
	p.open("/#token=" + tokens["reader"])
	p.until("document.querySelectorAll('.sessions a').length == 1")
	p.open("/#/s/s")
	p.live()
	if eval[bool](p, `Boolean(document.querySelector(".act.fork"))`) {
		t.Error("a reader is offered to fork")
	}
}
