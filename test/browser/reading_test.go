package browser

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"hansard"
	"hansard/httpd"
	"hansard/httpd/conversations"
	"hansard/httpd/web"
	"hansard/memstore"
)

// TestFind: a text is found in a session of any length, even where it is folded, and is marked;
// the keyboard steps through the matches.
func TestFind(t *testing.T) {
	s, url := serve(t)
	fillSession(t, s, "long", 3000)
	append1(t, s, "long", raw("tool_result", obj{"id": "c", "output": strings.Repeat("line\n", 300) + "the Needle\n" + strings.Repeat("line\n", 300)}))
	append1(t, s, "long", raw("tool_call", obj{"name": "grep", "args": obj{"pattern": "needle", "path": "."}}))
	fillSession(t, s, "long", 500)
	append1(t, s, "long", says("user", "ada", "One more **needle**, and another NEEDLE."))
	fillSession(t, s, "long", 300)
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="long"]`)
	p.live()
	p.press("g")
	p.until(shownSeqs + "[0] == 1")
	p.press("f")
	p.until(`document.activeElement.closest(".find")`)
	p.write("needle")
	count := `document.querySelector(".find .count").textContent`
	p.until(count + ` == "1 of 3"`)
	p.until(`document.querySelector(".event.marked")?.dataset.seq == "3001"`)
	// It is in the middle of folded text.
	p.until(`document.querySelector('[data-seq="3001"] pre').textContent.includes("the Needle")`)
	inSight := `((r) => r && r.top > 50 && r.bottom < innerHeight)([...CSS.highlights.get("found")].map((r) => r.getBoundingClientRect())[0])`
	p.until(inSight)
	p.shot("find")
	p.press("Enter")
	p.until(count + ` == "2 of 3" && document.querySelector('.event.marked')?.dataset.seq == "3002"`)
	p.press("Enter")
	p.until(count + ` == "3 of 3" && document.querySelector('.event.marked')?.dataset.seq == "3503"`)
	p.until(`CSS.highlights.get("found").size == 2`)
	p.press("Enter") // wraps around
	p.until(count + ` == "1 of 3"`)
	p.click(".find button[title^=Previous]")
	p.until(count + ` == "3 of 3"`)
	p.click(".find input")
	eval[bool](p, `(document.activeElement.select(), true)`)
	p.write("no such thing")
	p.until(count + ` == "Nothing found"`)
	p.press("Escape")
	p.until(`document.querySelector(".find").hidden && !CSS.highlights.has("found") && document.activeElement.matches(".scroller")`)
}

// TestActions: copying a link to an event, opening a tool call and jumping to a seq, by keyboard
// and by mouse.
func TestActions(t *testing.T) {
	s, url := serve(t)
	fillSession(t, s, "talk", 400)
	append1(t, s, "talk", says("assistant", "coder", []obj{{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "id": "t", "name": "Bash", "input": obj{"command": "ls -l"}}}))
	append1(t, s, "talk", raw("tool_result", obj{"id": "t", "output": strings.Repeat("line\n", 100)}))
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="talk"]`)
	p.live()
	eval[bool](p, `(navigator.clipboard.writeText = async (text) => { window.copied = text; }, true)`)
	p.press("k")
	p.press("k")
	p.until(`document.querySelector(".event.marked")?.dataset.seq == "401"`)
	folds := `[...document.querySelectorAll('.event.marked details')].map((d) => d.open).join()`
	p.press("o")
	p.until(folds + ` == "true,true"`)
	p.until(`document.querySelector(".event.marked .args pre").textContent == "ls -l"`)
	p.press("o")
	p.until(folds + ` == "false,false"`)
	p.press("Enter")
	p.until(folds + ` == "true,true"`)
	p.press("j")
	p.press("o")
	p.until(`document.querySelector(".event.marked pre").textContent.split("\n").length == 100`)
	p.press("y")
	p.until(`window.copied == %q`, url+"/#/s/talk/402")
	p.sees("The link to event 402 is copied.")
	eval[bool](p, `(document.querySelector('[data-seq="401"] .act').click(), true)`)
	p.until(`window.copied == %q`, url+"/#/s/talk/401")
	p.press(":")
	p.until(`document.activeElement.matches(".seq-input")`)
	p.write("7")
	p.press("Enter")
	p.until(`document.querySelector(".event.marked")?.dataset.seq == "7" && location.hash == "#/s/talk/7"`)
	// The link leads there.
	q := newTab(t, url)
	q.open("/#token=" + token)
	q.sees("talk")
	q.open("/?there#/s/talk/402")
	q.until(`document.querySelector(".event.marked")?.dataset.seq == "402"`)
}

// TestPrint: printing prints the whole transcript, not only what is on the screen, in colours for
// paper.
func TestPrint(t *testing.T) {
	s, url := serve(t)
	fillReal(t, s, "talk", 700)
	// The screen shows only a part of this, and the rest on request.
	append1(t, s, "talk", raw("tool_result", obj{"id": "c", "output": strings.Repeat("0123456789abcdef\n", 3000) + "the last line"}))
	append1(t, s, "talk", says("assistant", "coder", strings.Repeat("All of it is true. ", 3000)+"The end."))
	append1(t, s, "talk", says("user", "ada", []obj{{"type": "image", "source": obj{"type": "base64", "media_type": "image/png", "data": chartPNG(2400, 2000)}}}))
	append1(t, s, "talk", says("user", "ada", "<environment_context>where it runs</environment_context>"))
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="talk"]`)
	p.live()
	pages := func() int {
		t.Helper()
		background := true
		pdf, err := chromedp.Call(p.ctx, page.PrintToPDF, page.PrintToPDFParams{PrintBackground: &background})
		if err != nil {
			t.Fatal(err)
		}
		return len(regexp.MustCompile(`/Type\s*/Page\b[^s]`).FindAll(pdf.Data, -1))
	}
	// With the browser's menu: what is loaded, which is more than a screen.
	if n := pages(); n < 3 {
		t.Errorf("the browser prints %d pages", n)
	}
	p.prefers("dark")
	// With the page's own command: all of it.
	eval[bool](p, `(window.print = () => {
		window.printed = { rows: document.querySelectorAll(".sheet .event").length, first: document.querySelector(".sheet .event").innerText, calls: document.querySelectorAll(".sheet details[open] .args").length,
			pictures: [...document.querySelectorAll(".sheet img.picture")].filter((i) => i.naturalWidth == 2400).length, text: document.querySelector(".sheet").textContent, closed: document.querySelectorAll(".sheet details:not([open])").length };
		window.wait = document.querySelector(".sheet").cloneNode(true);
	}, true)`)
	p.press("Ctrl+p")
	p.until(`window.printed`)
	if rows := eval[int](p, `window.printed.rows`); rows != 704 {
		t.Errorf("%d events are printed, want 704", rows)
	}
	for _, text := range []string{"the last line", "The end.", "where it runs"} {
		if !eval[bool](p, `window.printed.text.includes(%q)`, text) {
			t.Errorf("%q is not printed", text)
		}
	}
	if n := eval[int](p, `window.printed.pictures`); n != 1 {
		t.Errorf("%d pictures are printed, want 1", n)
	}
	if n := eval[int](p, `window.printed.closed`); n != 0 {
		t.Errorf("%d folds are closed on paper", n)
	}
	if got := eval[string](p, `window.printed.first`); !strings.Contains(got, "case 0") {
		t.Errorf("the first one is %q", got)
	}
	if calls := eval[int](p, `window.printed.calls`); calls != 140 {
		t.Errorf("%d calls are printed open, want 140", calls)
	}
	p.until(`!document.querySelector(".sheet")`) // the screen is as before
	eval[bool](p, `(document.body.append(window.wait), document.documentElement.classList.add("printing"), true)`)
	if n := pages(); n < 30 {
		t.Errorf("all of it is %d pages", n)
	}
}

// TestToast: a notice about a button never covers that button, and disappears when it is closed.
func TestToast(t *testing.T) {
	store, handler := newServer(t)
	append1(t, store, "talk", says("user", "ada", "hello"))
	url := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && (strings.HasSuffix(r.URL.Path, "/find") || r.URL.Query().Get("limit") == "1" && !r.URL.Query().Has("view")) {
			http.Error(w, `{"title":"It failed, and this is a long explanation of why it did, so that the notice needs some room on the screen"}`, http.StatusInternalServerError)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	p := newTab(t, url)
	p.expect("500")
	p.open("/#token=" + token)
	p.until("document.querySelectorAll('.sessions a').length == 1")
	eval[bool](p, `(navigator.clipboard.writeText = async () => {}, true)`)
	covered := func(selector string) bool {
		p.until(`document.querySelector(".notice")`)
		return !eval[bool](p, `((e) => { const r = e.getBoundingClientRect(); return e.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2)); })(document.querySelector(%q))`, selector)
	}
	for _, size := range [][2]int64{{1280, 800}, {768, 700}, {375, 640}} {
		p.size(size[0], size[1])
		eval[bool](p, `(location.hash = "#/s/talk", true)`)
		p.live()
		clear := func() {
			eval[bool](p, `(document.querySelectorAll(".notice button").forEach((b) => b.click()), true)`)
			p.until(`!document.querySelector(".notice")`)
		}
		for _, c := range []struct{ press, button string }{{"", `.event .raw`}, {"", `.session-head .menu-button`}} {
			if c.button == ".event .raw" && size[0] < 760 {
				continue // does not exist on a phone
			}
			p.click(c.button)
			if c.button == ".session-head .menu-button" {
				p.click(`.menu-list button:nth-child(3)`) // copies a link
			}
			if covered(c.button) {
				t.Errorf("%d wide: the notice covers %s", size[0], c.button)
			}
			if covered(".composer .send") {
				t.Errorf("%d wide: the notice of %s covers the button to send", size[0], c.button)
			}
			p.shot(fmt.Sprintf("toast-%d", size[0]))
			clear()
		}
		// At the bottom: many notices at once.
		p.click(".composer textarea")
		eval[bool](p, `import("/dom.js").then(({ notice }) => { for (let i = 0; i < 5; i++) notice({ message: "Notice " + i + " " + "with a long explanation ".repeat(6), hint: "and what to do about it" }); return true; })`)
		if covered(".composer .send") || covered(".composer textarea") {
			t.Errorf("%d wide: notices cover the composer", size[0])
		}
		clear()
	}
}

// TestDeletedItems: an item deleted through the OpenAI routes is shown as deleted, wherever the
// event that says so is; also live.
func TestDeletedItems(t *testing.T) {
	s := memstore.New()
	server := httpd.New(s, httpd.Options{Access: httpd.Single(token), Page: web.Handler(), Conversations: func(s hansard.Store) http.Handler { return conversations.New(s, nil) }})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx) // the tab may still be open
		s.Close()
	})
	url := listen(t, server)
	ask := func(method, path, body string) {
		t.Helper()
		req, err := http.NewRequest(method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Fatalf("%s %s: %s", method, path, res.Status)
		}
	}
	message := func(id, text string) hansard.Event {
		return hansard.Event{Kind: "message", Role: "user", Author: "ada", Data: fmt.Appendf(nil, `{"type":"message","id":%q,"role":"user","content":%q}`, id, text)}
	}
	append1(t, s, "conv", message("item_a", "a secret"))
	append1(t, s, "conv", message("item_b", "not a secret"))
	fillSession(t, s, "conv", 500)
	ask("DELETE", "/v1/conversations/conv/items/item_a", "")
	fillSession(t, s, "conv", 200)
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="conv"]`)
	p.live()
	p.press("g")
	p.until(`document.querySelector('[data-seq="1"].deleted')?.innerText.includes("Deleted")`)
	if eval[bool](p, `document.querySelector('[data-seq="1"]').innerText.includes("a secret")`) {
		t.Error("what was deleted is shown")
	}
	p.click(`[data-seq="1"] .gone summary`)
	p.until(`document.querySelector('[data-seq="1"]').innerText.includes("a secret")`) // the log still has it
	p.until(`document.querySelector('[data-seq="2"]').innerText.includes("not a secret") && !document.querySelector('[data-seq="2"].deleted')`)
	ask("DELETE", "/v1/conversations/conv/items/item_b", "")
	p.until(`document.querySelector('[data-seq="2"].deleted')`)
	p.press("G")
	p.until(`document.querySelector('[data-seq="704"]')?.innerText.includes("Item 2 was deleted")`)
	p.click(`[data-seq="704"] .note a`)
	p.until(`document.querySelector(".event.marked")?.dataset.seq == "2"`)
	p.shot("deleted")
}

// TestTouch: on a phone every touch target is large enough for a finger.
func TestTouch(t *testing.T) {
	s, url := serve(t)
	addTranscripts(t, s)
	p := newTab(t, url)
	p.size(375, 720)
	p.open("/#token=" + token)
	p.until("document.querySelectorAll('.sessions a').length == 9")
	// The area around the middle of an element that takes touches is at least 40 pixels each way;
	// links in running text are as large as the text.
	small := `[...document.querySelectorAll("button, summary, a, input, textarea")].filter((e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true }) && !e.closest(".md, .note, .patch, .turn dl, .file, .remote, .notices") && !e.matches(".skip, .gone a")).flatMap((e) => {
		e.scrollIntoView({ block: "center", inline: "center" });
		const r = e.getBoundingClientRect();
		const x = r.x + r.width / 2, y = r.y + r.height / 2;
		const hits = (dx, dy) => { const hit = document.elementFromPoint(x + dx, y + dy); return hit && (e.contains(hit) || hit.contains(e) && hit.closest("label")); };
		if (!hits(0, 0)) return [];
		const reach = (dx, dy) => { let n = 0; while (n < 60 && hits(dx * n, dy * n)) n++; return n; };
		const width = Math.max(r.width, reach(1, 0) + reach(-1, 0)), height = Math.max(r.height, reach(0, 1) + reach(0, -1));
		return width < 39 || height < 39 ? [e.className + " " + e.tagName + " " + Math.round(width) + "x" + Math.round(height) + " " + e.textContent.slice(0, 20)] : [];
	})`
	p.none("too small in the list", small)
	p.press("?")
	p.until(`document.querySelector("dialog")`)
	p.press("Escape")
	for _, id := range []string{"claude-code", "store", "openai-responses"} {
		eval[bool](p, `(location.hash = "#/s/%s", true)`, id)
		p.until(`document.querySelector('.session')?.getAttribute("aria-label") == "Session %s" && document.querySelectorAll('.event').length > 3`, id)
		p.live()
		eval[bool](p, `(document.querySelectorAll("details").forEach((d) => { d.open = true; }), true)`)
		p.painted()
		p.none("too small in "+id, small)
	}
	p.click(".session-head .menu-button")
	p.until(`document.querySelector(".menu-list")`)
	p.none("too small in the menu", small)
	p.click(`.menu-list button:nth-child(5)`)
	p.until(`document.querySelector("dialog")`)
	p.none("too small in a dialog", strings.Replace(small, `document.querySelectorAll("button`, `document.querySelector("dialog").querySelectorAll("button`, 1))
}

// TestSlices: during scrolling, only a few rows are made between two frames, never a whole page
// of them: that keeps the scrolling smooth.
func TestSlices(t *testing.T) {
	const most = 16
	s, url := serve(t)
	fillReal(t, s, "huge", 3000)
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="huge"]`)
	p.until(shownSeqs + `.at(-1) == 3000`)
	p.live()
	got := eval[struct{ Rows, Largest int }](p, `(async () => {
		let rows = 0, now = 0, largest = 0;
		const seen = new MutationObserver((list) => { for (const m of list) now += [...m.addedNodes].filter((n) => n.matches?.(".event")).length; });
		seen.observe(document.querySelector(".rows"), { childList: true });
		const el = document.querySelector(".scroller");
		for (let i = 0; i < 400 && rows < 600; i++) {
			el.scrollTop -= 500;
			await new Promise((done) => requestAnimationFrame(done));
			largest = Math.max(largest, now);
			rows += now;
			now = 0;
		}
		seen.disconnect();
		return { rows, largest };
	})()`)
	if got.Rows < 300 || got.Largest > most {
		t.Errorf("%d rows were made, %d of them between two frames; want at most %d", got.Rows, got.Largest, most)
	}
}

// TestLinkByID: a link may name an event by its id, and the page shows when it happened.
func TestLinkByID(t *testing.T) {
	s, url := serve(t)
	for i := range 300 {
		e := says("assistant", "coder", fmt.Sprintf("Message %d.", i+1))
		e.ID = fmt.Sprintf("msg/%d ä", i+1)
		e.At = time.Date(2001, 2, 3, 4, 5, i%60, 0, time.UTC)
		append1(t, s, "named", e)
	}
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.until(`document.querySelector(".sessions a")`)
	// The event is found before the session has loaded: the page must not end there.
	eval[bool](p, `((real) => { window.fetch = async (what, how) => {
		if (new URL(what.url ?? what, location).pathname === "/v1/sessions/named") while (location.hash !== "#/s/named/40") await new Promise(requestAnimationFrame);
		return real(what, how);
	}; return true; })(window.fetch)`)
	p.open("/#/s/named/id:msg%2F40%20%C3%A4")
	p.until(`location.hash === "#/s/named/40" && document.querySelector('[data-seq="40"].marked, [data-seq="40"]:focus')`)
	p.sees("Message 40.")
	if title := eval[string](p, `document.querySelector('[data-seq="40"] a.seq').title`); !strings.Contains(title, "2001") || !strings.Contains(title, "id msg/40 ä") || !strings.Contains(title, "stored ") {
		t.Errorf("the number says %q", title)
	}
	p.expect("404")
	p.open("/#/s/named/id:none")
	p.sees("no such event")
}

// TestAppendAfterReset: events that arrive just after the window has moved, while earlier ones were
// still being added, are shown.
func TestAppendAfterReset(t *testing.T) {
	_, url := serve(t)
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.sees("Hansard")
	got := eval[int](p, `import("/window.js").then(async ({ EventWindow }) => {
		const scroller = document.createElement("div");
		document.body.append(scroller);
		const shown = new EventWindow(scroller, "s", { error() {}, changed() {} });
		const events = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => ({ seq: from + i, kind: "message", role: "user", voice: "user", time: "2026-01-02T15:04:05Z", parts: [{ type: "text", text: "text" }] }));
		shown.reset(events(1, 10));
		const earlier = shown.append(events(11, 60)); // takes several frames
		shown.reset(events(101, 110));
		await Promise.all([earlier, shown.append(events(111, 111))]);
		shown.close();
		return shown.last;
	})`)
	if got != 111 {
		t.Errorf("the last event shown is %d", got)
	}
}
