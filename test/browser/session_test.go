package browser

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
)

// shownSeqs are the seqs of the rows, in the order of the page.
const shownSeqs = `[...document.querySelectorAll(".event")].map((e) => Number(e.dataset.seq))`

// live waits until the session of the address is open and followed.
func (p *tab) live() {
	p.Helper()
	p.until(`document.querySelector(".session")?.getAttribute("aria-label") == "Session " + decodeURIComponent(location.hash.split(/[/?]/)[2])
		&& document.querySelector(".state-chip").dataset.state == "live"`)
}

// TestLive: events that another process appends appear, in order, without a reload; and after the
// server was killed and restarted there are no gaps and no duplicates.
func TestLive(t *testing.T) {
	s := startServer(t)
	s.hansard("", "append", "talk", "--create", "--role", "user", "--author", "ada", "Is anybody *there*?")
	p := newTab(t, s.url())
	p.expect("ERR_CONNECTION")     // the server is away for a while
	p.expect("ERR_INCOMPLETE")     // and was cut off in the middle of an answer
	p.expect("ERR_EMPTY_RESPONSE") //
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="talk"]`)
	p.sees("Is anybody there?")
	p.live()
	s.hansard("", "append", "talk", "--role", "assistant", "--author", "planner", "Yes, **me**.")
	p.sees("Yes, me.")
	// An event that arrives in many pieces.
	s.hansard(fmt.Sprintf("%q\n", strings.Repeat("many pieces ", 400_000)+"the last one"), "append", "talk", "--jsonl", "-")
	p.until(`document.querySelector('.event[data-seq="3"] .more')`)
	s.hansard("", "set", "talk", "--title", "A talk with a planner")
	p.until(`document.querySelector("h2.title").textContent == "A talk with a planner"`)
	s.hansard("", "set", "talk", "--state", `{"step":"third"}`)
	p.click(`.about button[aria-expanded="false"]`)
	p.until(`document.querySelector(".document").innerText.includes('"step": "third"')`)
	s.hansard("", "set", "talk", "--state-op", `{"op":"replace","path":"/step","value":{"n":1.50}}`)
	p.until(`document.querySelector(".document").innerText.includes('"n": 1.50')`)
	p.until(`document.querySelector('.event[data-seq="6"] .patch').textContent.includes("state changed")`)
	eval[bool](p, `(document.querySelector('.event[data-seq="6"] .patch details').open = true)`)
	p.until(`['"path": "/step"', '"n": 1.50'].every((text) => document.querySelector('.event[data-seq="6"] .patch').innerText.includes(text))`)
	p.click(`.about button[aria-expanded="true"]`)

	for round := range 2 {
		s.kill()
		p.until(`document.querySelector(".state-chip").dataset.state == "waiting"`)
		if round == 0 {
			p.shot("reconnecting")
		}
		for i := range 5 {
			s.hansard("", "append", "talk", fmt.Sprintf("written while it was away: %d.%d", round, i))
		}
		s.start()
		p.sees(fmt.Sprintf("written while it was away: %d.4", round))
		p.live()
		s.hansard("", "append", "talk", fmt.Sprintf("and after: %d", round))
		p.sees(fmt.Sprintf("and after: %d", round))
	}
	if got, want := eval[string](p, shownSeqs+".join()"), "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18"; got != want {
		t.Errorf("the page shows events %s, want %s", got, want)
	}
	p.until("document.querySelectorAll('.notice').length == 0") // the notice about it is gone
}

// TestRest: a page that is not visible gives up its connection, and continues where it was when
// it becomes visible again.
func TestRest(t *testing.T) {
	s, server := newServer(t)
	var streams atomic.Int32
	front := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/stream") {
			streams.Add(1)
			defer streams.Add(-1)
		}
		server.ServeHTTP(w, r)
	}))
	append1(t, s, "talk", says("assistant", "planner", "one"))
	p := newTab(t, front)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="talk"]`)
	p.live()
	append1(t, s, "talk", says("assistant", "planner", "two"))
	p.sees("two")
	look := func(hidden bool) {
		eval[bool](p, `(Object.defineProperty(document, "hidden", { value: %v, configurable: true }), document.dispatchEvent(new Event("visibilitychange")), true)`, hidden)
	}
	// Make half a minute pass at once.
	eval[bool](p, `((later) => { window.setTimeout = (f, ms, ...more) => later(f, ms === 30000 ? 1 : ms, ...more); return true; })(window.setTimeout)`)
	look(true)
	p.until(`document.querySelector(".state-chip").dataset.state == "resting"`)
	deadline := time.Now().Add(patience)
	for streams.Load() > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the page still holds its connection")
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
	append1(t, s, "talk", says("assistant", "planner", "three"))
	look(false)
	p.live()
	p.sees("three")
	if got := eval[string](p, shownSeqs+".join()"); got != "1,2,3" {
		t.Errorf("the page shows %s", got)
	}

	// What has the id of the session when it comes back may be another one.
	look(true)
	p.until(`document.querySelector(".state-chip").dataset.state == "resting"`)
	if err := s.Delete(t.Context(), "talk", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "talk", hansard.Meta{Reuse: true}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		append1(t, s, "talk", says("assistant", "planner", "of another session"))
	}
	p.expect("410")
	look(false)
	p.until(`["live", "ended"].includes(document.querySelector(".state-chip").dataset.state)`)
	p.sees("session was deleted")
	if got := eval[string](p, shownSeqs+".join()"); got != "1,2,3" {
		t.Errorf("the page shows %s, partly of another session", got)
	}
}

// TestAppend: a message is stored once, with the role user.
func TestAppend(t *testing.T) {
	s, url := serve(t)
	append1(t, s, "talk", says("assistant", "planner", "What shall I do?"))
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="talk"]`)
	p.live()
	p.click(".composer .author")
	p.write("ada")
	p.press("Escape")
	p.press("n")
	p.until(`document.activeElement.tagName == "TEXTAREA"`)
	p.write("Plan a trip\nto Lima, please.")
	p.press("Ctrl+Enter")
	p.until(`document.querySelector('.event[data-seq="2"]')?.innerText.includes("to Lima, please.")`)
	p.until(`document.querySelector(".composer textarea").value == ""`)
	e := last(t, s, "talk")
	if e.Seq != 2 || e.Kind != "message" || e.Role != "user" || e.Author != "ada" || string(e.Data) != `"Plan a trip\nto Lima, please."` || e.Inbox {
		t.Errorf("it was stored as %+v with %s", e, e.Data)
	}
	// An empty message is not sent.
	p.write("   ")
	p.press("Ctrl+Enter")
	p.press("Escape")
	append1(t, s, "talk", says("assistant", "planner", "Of course."))
	p.sees("Of course.")
	if e := last(t, s, "talk"); e.Seq != 3 {
		t.Errorf("the last seq is %d, want 3", e.Seq)
	}
}

func last(t *testing.T, s hansard.Store, id hansard.SessionID) hansard.Event {
	t.Helper()
	var out hansard.Event
	for e, err := range s.Read(t.Context(), id, hansard.Range{Last: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		out = e
	}
	return out
}

// TestLostAnswer: an append whose answer is lost is retried with its key, and is stored once; a
// message that can't be sent is kept, and the page says so.
func TestLostAnswer(t *testing.T) {
	s, server := newServer(t)
	var lose, posts atomic.Int32
	front := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			posts.Add(1)
			if n := lose.Add(-1); n >= 0 {
				if n%2 == 0 {
					server.ServeHTTP(httptest.NewRecorder(), r) // stored, but the answer is lost
				}
				panic(http.ErrAbortHandler)
			}
		}
		server.ServeHTTP(w, r)
	}))
	append1(t, s, "talk", says("assistant", "planner", "What shall I do?"))
	p := newTab(t, front)
	p.expect("ERR_EMPTY_RESPONSE")
	p.expect("ERR_INCOMPLETE")
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="talk"]`)
	p.live()

	lose.Store(2)
	p.click(".composer textarea")
	p.write("only once")
	p.press("Ctrl+Enter")
	p.until(`document.querySelector(".composer textarea").value == ""`)
	p.until(`document.querySelector('.event[data-seq="2"]')`)
	if e := last(t, s, "talk"); e.Seq != 2 || posts.Load() != 3 {
		t.Errorf("the last seq is %d after %d attempts, want 2 after 3", e.Seq, posts.Load())
	}

	lose.Store(1000)
	p.write("and this")
	p.press("Ctrl+Enter")
	p.sees("Your message is still here.")
	p.until(`document.querySelector(".composer textarea").value == "and this"`)
	p.shot("not-sent")
	lose.Store(0)
	p.click(".composer .say .action")
	p.until(`document.querySelector(".composer textarea").value == ""`)
	if e := last(t, s, "talk"); e.Seq != 3 {
		t.Errorf("the last seq is %d, want 3", e.Seq)
	}
	if got := eval[string](p, shownSeqs+".join()"); got != "1,2,3" {
		t.Errorf("the page shows %s", got)
	}
}

// TestTurn: the page shows who holds the turn and when that changes; while it is held exclusively
// a message is offered the inbox.
func TestTurn(t *testing.T) {
	s, url := serve(t)
	append1(t, s, "talk", says("user", "ada", "Hello?"))
	lease, err := hansard.Take(t.Context(), s, "talk", hansard.Claim{Label: "planner", Exclusive: true, TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	p := newTab(t, url)
	p.expect("423")
	p.open("/#token=" + token)
	p.until(`document.querySelector(".badge.held")?.textContent == "planner"`)
	p.click(`.sessions a[href$="talk"]`)
	p.live()
	p.until(`document.querySelector(".turn summary").textContent.startsWith("planner holds the turn alone")`)
	p.sees("planner took the turn exclusively")
	p.click(".turn summary")
	p.sees("Last sign of life")
	p.sees("may write to the inbox only")
	p.sees(string(lease.Grant()))
	p.shot("turn")
	p.click(".turn summary")

	p.click(".composer textarea")
	p.write("One more thing")
	p.press("Ctrl+Enter")
	p.sees("turn of session talk is held exclusively by planner")
	p.shot("held")
	p.click(".composer .say .action")
	p.until(`document.querySelector(".event .badge.inbox")`)
	if e := last(t, s, "talk"); !e.Inbox || string(e.Data) != `"One more thing"` || e.Seq != 3 {
		t.Errorf("it was stored as %+v with %s", e, e.Data)
	}

	other, err := hansard.Take(t.Context(), s, "talk", hansard.Claim{Label: "operator", Steal: "the planner <b>loops</b>"})
	if err != nil {
		t.Fatal(err)
	}
	p.sees("operator took the turn away from a live holder")
	p.sees("the planner <b>loops</b>")
	p.until(`document.querySelector(".turn summary").textContent.startsWith("operator holds the turn")`)
	if err := other.Release(); err != nil {
		t.Fatal(err)
	}
	p.sees("The turn is free")
	_ = lease.Release() // it was taken away
}

// TestJump: a link leads to an event, marks it, and says if there is none.
func TestJump(t *testing.T) {
	s, url := serve(t)
	fillSession(t, s, "long", 2000)
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.sees("long")
	p.open("/?link#/s/long/421")
	p.until(`document.querySelector('.event.marked')?.dataset.seq == "421"`)
	inSight := `((r) => r.top >= 60 && r.bottom <= innerHeight)(document.querySelector(".event.marked").getBoundingClientRect())`
	p.until(inSight)
	eval[bool](p, `(location.hash = "#/s/long/1999", true)`)
	p.until(`document.querySelector('.event.marked')?.dataset.seq == "1999"`)
	p.until(inSight)
	// The link of a visible event leads to itself.
	p.until(`document.querySelector('.event[data-seq="1990"] .seq').getAttribute("href") == "#/s/long/1990"`)
	eval[bool](p, `(location.hash = "#/s/long/99999", true)`)
	p.sees("There is no event 99,999 in this session.")

	// New events are counted while the reader is elsewhere, and do not move the page.
	eval[bool](p, `(location.hash = "#/s/long/1000", true)`)
	p.until(`document.querySelector('.event.marked')?.dataset.seq == "1000"`)
	p.live()
	at := eval[float64](p, `document.querySelector(".event.marked").getBoundingClientRect().top`)
	for range 7 {
		append1(t, s, "long", says("assistant", "planner", "something new"))
	}
	p.until(`document.querySelector(".pill").innerText == "7 new"`)
	if now := eval[float64](p, `document.querySelector(".event.marked").getBoundingClientRect().top`); math.Abs(now-at) > 1 { // a browser scrolls by whole pixels, but rows have fractional heights
		t.Errorf("the page moved by %v", now-at)
	}
	p.shot("pill")
	p.click(".pill")
	p.until(`document.querySelector('.event[data-seq="2007"]') && document.querySelector(".pill").hidden`)

	// A session that does not exist, and one that is deleted.
	p.expect("404")
	p.expect("410")
	p.open("/?none#/s/nobody")
	p.sees("no such session")
	p.sees("Check the id")
	p.open("/?gone#/s/long")
	p.live()
	if err := s.Delete(t.Context(), "long", ""); err != nil {
		t.Fatal(err)
	}
	p.sees("session was deleted")
	p.sees("a deleted session stays deleted")
}

// fillSession appends n events, quickly.
func fillSession(t *testing.T, s hansard.Store, id hansard.SessionID, n int) {
	t.Helper()
	for done := 0; done < n; {
		b := hansard.Batch{Create: true}
		for ; len(b.Events) < 5000 && done < n; done++ {
			role, author := "user", "ada"
			if done%3 > 0 {
				role, author = "assistant", "planner"
			}
			text := fmt.Sprintf("This is message **%d** of many.%s", done+1, strings.Repeat(" It goes on.", done%17))
			b.Events = append(b.Events, says(role, author, text))
		}
		if _, err := s.Append(t.Context(), id, b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLarge: 100,000 events load smoothly: the page holds a bounded part of them, reaches every
// place, and what it shows has no gaps.
func TestLarge(t *testing.T) {
	const events, nodesMax = 100_000, 12_000
	s, url := serve(t)
	fillSession(t, s, "huge", events)
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="huge"]`)
	p.until(shownSeqs+`.at(-1) == %d`, events)
	p.live()
	gapless := `((s) => s.every((n, i) => i == 0 || n == s[i-1] + 1))(` + shownSeqs + `)`
	check := func(where string) {
		t.Helper()
		if n := eval[int](p, `document.getElementsByTagName("*").length`); n > nodesMax {
			t.Errorf("%s: the page has %d elements, the limit is %d", where, n, nodesMax)
		}
		if !eval[bool](p, gapless) {
			t.Errorf("%s: the page shows %s", where, eval[string](p, shownSeqs+".join()"))
		}
	}
	check("at the end")

	// Upwards, by scrolling: what the reader sees must not move when rows are inserted above.
	for round := range 12 {
		first := eval[int](p, shownSeqs+"[0]")
		eval[bool](p, `((s) => { s.scrollTop = 300; return true; })(document.querySelector(".scroller"))`)
		p.painted() // rows get their height when they come into view
		row := eval[int](p, `Number(document.elementFromPoint(800, 300).closest(".event").dataset.seq)`)
		top := `document.querySelector('.event[data-seq="%d"] .body').getBoundingClientRect().top`
		before := eval[float64](p, top, row)
		p.until(shownSeqs+"[0] < %d", first)
		// Heights are fractions of pixels and scroll positions are not, so a pixel or two is
		// rounding; a row that was not compensated for is 20 or more.
		if now := eval[float64](p, top, row); math.Abs(now-before) > 4 {
			t.Errorf("round %d: event %d, which was in sight, moved by %v pixels", round, row, now-before)
		}
		check(fmt.Sprintf("scrolled up %d times", round+1))
	}
	p.press("g")
	p.until(shownSeqs + `[0] == 1`)
	check("at the beginning")
	p.until(`document.querySelector(".position").innerText.endsWith("of 100,000")`)
	// Downwards.
	for round := range 8 {
		until := eval[int](p, shownSeqs+".at(-1)")
		eval[bool](p, `((s) => { s.scrollTop = s.scrollHeight - s.clientHeight - 300; return true; })(document.querySelector(".scroller"))`)
		p.until(shownSeqs+".at(-1) > %d", until)
		check(fmt.Sprintf("scrolled down %d times", round+1))
	}
	// To the middle, by number.
	p.click(".position")
	p.write("50000")
	p.press("Enter")
	p.until(`document.querySelector(".event.marked")?.dataset.seq == "50000"`)
	check("in the middle")
	p.shot("large")
	p.press("G")
	p.until(shownSeqs+`.at(-1) == %d`, events)
	// A burst while it is followed.
	fillSession(t, s, "huge", 3000)
	p.until(shownSeqs+`.at(-1) == %d`, events+3000)
	p.until(`((s) => s.scrollHeight - s.clientHeight - s.scrollTop < 40)(document.querySelector(".scroller"))`)
	check("after a burst")
}
