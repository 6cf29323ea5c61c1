package browser

import (
	"fmt"
	"os"
	"testing"
)

// axeSource is axe-core, which test/browser/run installs.
func axeSource(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Skipf("SKIPPED: axe-core is not installed; test/browser/run does that: %v", err)
	}
	return string(source)
}

// axe looks for accessibility problems in the page as it is now.
func (p *tab) axe(source, where string) {
	p.Helper()
	eval[bool](p, "(() => { if (!window.axe) { "+source+" } return true; })()")
	found := eval[[]string](p, `axe.run(document, { resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }).then((r) => r.violations.map((v) =>
		v.id + " (" + v.impact + "): " + v.help + " at " + v.nodes.slice(0, 3).map((n) => n.target.join(" ") + " " + n.html.slice(0, 120)).join(" | ")))`)
	for _, what := range found {
		p.Errorf("%s: %s", where, what)
	}
}

// TestAxe: axe finds no problem on any screen of the page, in light and dark mode, on a desktop,
// a tablet and a phone.
func TestAxe(t *testing.T) {
	source := axeSource(t)
	s, url := serve(t)
	addTranscripts(t, s)
	p := newTab(t, url)
	p.open("/")
	p.sees("Where is it?")
	p.axe(source, "the token")
	p.open("/?in#token=" + token)
	p.until("document.querySelectorAll('.sessions a').length == 9")
	for _, size := range [][2]int64{{1280, 900}, {768, 1000}, {375, 720}} {
		p.size(size[0], size[1])
		for _, colours := range []string{"light", "dark"} {
			p.prefers(colours)
			where := func(what string) string { return fmt.Sprintf("%s, %s, %d wide", what, colours, size[0]) }
			eval[bool](p, `(location.hash = "#/", true)`)
			p.until(`document.querySelector(".sessions a").checkVisibility()`)
			p.painted()
			p.axe(source, where("the list"))
			for id := range transcripts() {
				p.show(id)
				eval[bool](p, `(document.querySelectorAll("details").forEach((d) => { d.open = true; }), true)`)
				p.painted()
				p.axe(source, where(id))
			}
			p.show("store")
			p.press("f")
			p.write("turn")
			p.until(`document.querySelector(".find .count").textContent.includes(" of ")`)
			p.axe(source, where("finding"))
			p.press("Escape")
			p.press("m")
			p.until(`document.querySelector(".menu-list")`)
			p.axe(source, where("the menu"))
			p.press("Escape")
			p.press("e")
			p.until(`document.querySelector("dialog[open]")`)
			p.axe(source, where("a dialog"))
			p.press("Escape")
			p.until(`!document.querySelector("dialog")`)
			p.press("?")
			p.until(`document.querySelector("dialog[open]")`)
			p.axe(source, where("the help"))
			p.press("Escape")
			p.until(`!document.querySelector("dialog")`)
		}
	}
	// axe works with strings of markup, which the page forbids itself.
	eval[bool](p, "(window.violations.length = 0, true)")
}

// show opens a session and waits until it is drawn.
func (p *tab) show(id string) {
	p.Helper()
	eval[bool](p, `(location.hash = "#/s/%s", true)`, id)
	p.until(`document.querySelector('.session')?.getAttribute("aria-label") == "Session %s" && document.querySelectorAll('.event').length > 1`, id)
	p.live()
}
