package browser

import (
	"fmt"
	"testing"
)

// overflow lists elements that are wider than the window.
const overflow = `[document.documentElement, ...document.querySelectorAll(".scroller, .list-scroller, .welcome, .alone")]
	.filter((e) => e.closest("main")?.clientWidth !== 1 && e.scrollWidth > e.clientWidth + 1).map((e) => e.className || e.tagName)`

// faint lists texts whose contrast with their background is less than 4.5 to 1.
const faint = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const known = new Map();
	const rgb = (colour) => {
		if (!known.has(colour)) { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); known.set(colour, [...canvas.getImageData(0, 0, 1, 1).data]); }
		return known.get(colour);
	};
	const light = ([r, g, b]) => { const f = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
	const behind = (e) => {
		const layers = [];
		for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); layers.push(c); if (c[3] === 255) break; }
		let out = [255, 255, 255];
		for (const c of layers.reverse()) out = out.map((v, i) => v * (1 - c[3] / 255) + c[i] * c[3] / 255);
		return out;
	};
	const walker = document.createTreeWalker(document.getElementById("app"), NodeFilter.SHOW_TEXT);
	const found = new Set();
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.data.trim() || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || e.closest(".unseen, .skip, [disabled], .icon")) continue;
		let [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
		if (a < b) [a, b] = [b, a];
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) found.add(e.className + " " + e.tagName + " " + ratio.toFixed(2) + " " + walker.currentNode.data.trim().slice(0, 20));
	}
	return [...found];
})()`

// nameless lists controls without a name for assistive technology.
const nameless = `[...document.querySelectorAll("button, a, input, textarea, [role=button]")]
	.filter((e) => e.checkVisibility() && !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length || e.title)).map((e) => e.outerHTML.slice(0, 120))`

func (p *tab) none(what, expression string) {
	p.Helper()
	if found := eval[[]string](p, expression); len(found) > 0 {
		p.Errorf("%s: %q", what, found[:min(len(found), 5)])
	}
}

// TestLook: on a desktop, a tablet and a phone, in dark and light mode, everything fits, is
// readable and has a name, in transcripts of every shape. The screenshots are for people to look
// at.
func TestLook(t *testing.T) {
	s, url := serve(t)
	addTranscripts(t, s)
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.until("document.querySelectorAll('.sessions a').length == 9")
	background := func() string {
		return eval[string](p, "getComputedStyle(document.body).backgroundColor")
	}
	seen := map[string]string{}
	for _, size := range [][2]int64{{1280, 900}, {768, 1000}, {375, 720}} {
		p.size(size[0], size[1])
		for _, colours := range []string{"light", "dark"} {
			p.prefers(colours)
			seen[colours] = background()
			name := func(what string) string { return fmt.Sprintf("look-%s-%s-%d", what, colours, size[0]) }
			look := func(what string) {
				t.Helper()
				p.painted()
				p.none(name(what)+": wider than the window", overflow)
				p.none(name(what)+": too faint to read", faint)
				p.none(name(what)+": without a name", nameless)
				p.shot(name(what))
			}
			eval[bool](p, `(location.hash = "#/", true)`)
			p.until(`document.querySelector(".sessions a").checkVisibility()`)
			look("list")
			for _, id := range []string{"claude-code", "codex", "gemini-cli", "adk", "vercel-ai", "openai-responses", "openai-chat", "anthropic", "store"} {
				p.show(id)
				look(id + "-end")
				p.press("g")
				p.until(`document.querySelector(".scroller").scrollTop == 0`)
				look(id + "-top")
				eval[bool](p, `(document.querySelectorAll("details").forEach((d) => { d.open = true; }), true)`)
				p.until(`[...document.querySelectorAll("details[open].tool")].every((d) => d.childElementCount > 1)`)
				look(id + "-open")
			}
		}
	}
	if seen["light"] == seen["dark"] {
		t.Errorf("light and dark are both %s", seen["light"])
	}

	// A choice made by hand stays, whatever the system prefers.
	p.prefers("light")
	p.press("t")
	if got := background(); got != seen["dark"] {
		t.Errorf("the background is %s, want %s", got, seen["dark"])
	}
	p.open("/?again")
	p.until("document.querySelectorAll('.sessions a').length == 9")
	if got := background(); got != seen["dark"] {
		t.Errorf("after a reload the background is %s, want %s", got, seen["dark"])
	}
	for _, landmark := range []string{"nav[aria-label]", "main", "h1", "[aria-live=polite]", "[role=alert]"} {
		p.until("document.querySelector(%q)", landmark)
	}
}

// TestKeyboard: everything can be done without a mouse.
func TestKeyboard(t *testing.T) {
	s, url := serve(t)
	for _, id := range []string{"one", "two", "three"} {
		for i := range 30 {
			append1(t, s, id, says("user", "ada", fmt.Sprintf("%s %d", id, i+1)))
		}
	}
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.until("document.querySelectorAll('.sessions a').length == 3")
	p.press("?")
	p.sees("next and previous session")
	p.shot("help")
	p.press("Escape")
	p.until("!document.querySelector('dialog')")
	p.press("j") // the first session of the list, which is the newest
	p.until(`location.hash == "#/s/three"`)
	p.live()
	p.press("J")
	p.until(`location.hash == "#/s/two"`)
	p.live()
	p.press("K")
	p.until(`location.hash == "#/s/three"`)
	p.live()
	marked := `document.querySelector(".event.marked")?.dataset.seq`
	p.press("k")
	p.until(marked + ` == "30" && document.activeElement.matches(".event.marked")`)
	p.press("k")
	p.until(marked + ` == "29"`)
	p.press("g")
	p.until(`document.querySelector(".scroller").scrollTop == 0`)
	p.press("j")
	p.until(marked + ` == "1"`)
	p.press("j")
	p.until(marked + ` == "2"`)
	p.press("G")
	p.until(`document.querySelector(".pill").hidden`)
	p.press("n")
	p.until(`document.activeElement.tagName == "TEXTAREA"`)
	p.write("j")
	p.press("Escape")
	p.until(`document.activeElement.tagName != "TEXTAREA"`)
	p.press("/")
	p.until(`document.activeElement.type == "search"`)
	p.write("two")
	p.until("document.querySelectorAll('.sessions a').length == 1")
	p.press("Enter")
	p.until(`location.hash == "#/s/two?q=two"`)
	p.live()
	p.press("Escape")
	p.until(`location.hash == "#/?q=two"`)
}
