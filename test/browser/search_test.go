package browser

import (
	"testing"
)

// TestSearchEvents: words are found in the events of all sessions, marked, and link to the event;
// content of sessions stays text.
func TestSearchEvents(t *testing.T) {
	s, url := serve(t)
	append1(t, s, "one", says("user", "ada", "The Zürich deployment failed"))
	append1(t, s, "one", says("assistant", "planner", "I will look"))
	append1(t, s, "two", says("user", "ada", "deployment of <b>markup</b> & 東京都"))
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.until("document.querySelectorAll('.sessions a').length == 2")
	p.press("s")
	p.until(`document.activeElement.matches(".search-events input.search")`)
	p.write("deployment")
	p.until(`document.querySelectorAll(".hits li").length == 2 && [...document.querySelectorAll(".hits mark")].every((m) => m.textContent == "deployment")`)
	p.shot("search-events")
	p.until(`[...document.querySelectorAll(".hits .snippet")].some((e) => e.textContent == "deployment of <b>markup</b> & 東京都") && !document.querySelector(".hits b")`)
	p.until(`document.querySelector(".search-events .foot").textContent == "2 events found"`)
	eval[bool](p, `(document.querySelector(".search-events input.search").select(), true)`)
	p.write("zurich")
	p.until(`document.querySelector(".hits mark")?.textContent == "Zürich"`)
	p.click(".hits a")
	p.until(`!document.querySelector("dialog") && location.hash.startsWith("#/s/one/1") && document.querySelector(".event.marked")`)

	// Only in the open session.
	p.press("s")
	p.until(`document.activeElement.matches(".search-events input.search")`)
	p.write("deployment")
	p.until(`document.querySelectorAll(".hits li").length == 2`)
	p.click(".search-events .only input")
	p.until(`document.querySelectorAll(".hits li").length == 1 && document.querySelector(".hits .id").textContent == "one#1"`)
	eval[bool](p, `(document.querySelector(".search-events input.search").select(), true)`)
	p.write("nowhere")
	p.until(`document.querySelector(".search-events .foot").textContent == "Nothing found"`)
}
