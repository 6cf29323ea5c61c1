package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// patience is how long anything in the page may take before a test gives up.
const patience = 30 * time.Second

// tab is a tab of the browser with its own storage. It records whatever the page should not do,
// and fails the test for it at the end.
type tab struct {
	testing.TB
	ctx    context.Context
	server string // the only host that the page may contact

	mu       sync.Mutex
	wrong    []string // guarded by mu
	requests []string // guarded by mu
	expected []string // console messages that are allowed in this test
}

// watch is run before the page's own script: content that manages to run something calls pwned(),
// and the browser reports what its policy blocked.
const watch = `
	window.ran = [];
	window.violations = [];
	window.pwned = (how) => window.ran.push(String(how));
	window.alert = window.confirm = window.prompt = (how) => window.ran.push("dialog " + how);
	document.addEventListener("securitypolicyviolation", (e) => window.violations.push(e.violatedDirective + " " + e.blockedURI + " " + e.sample));
`

func newTab(t testing.TB, server string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	p := &tab{TB: t, ctx: ctx, server: server}
	t.Cleanup(func() {
		p.verdict()
		cancel()
	})
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as this context
		t.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(1280, 800))
	p.call(chromedp.Call(ctx, network.Enable, network.EnableParams{}))
	p.call(chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watch}))
	go p.listen(chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent))
	return p
}

func (p *tab) listen(console func(func(chromedp.ConsoleMessage, error) bool), requests func(func(network.EventRequestWillBeSent, error) bool)) {
	go func() {
		for m, err := range console {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException() {
				p.blame("the console says: " + m.String())
			}
		}
	}()
	for r, err := range requests {
		if err != nil {
			return
		}
		url := r.Request.URL
		p.mu.Lock()
		p.requests = append(p.requests, url)
		p.mu.Unlock()
		if !strings.HasPrefix(url, p.server+"/") && !strings.HasPrefix(url, "blob:"+p.server+"/") && !strings.HasPrefix(url, "data:") && url != "about:blank" {
			p.blame("it asked for " + url)
		}
	}
}

func (p *tab) blame(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ok := range p.expected {
		if strings.Contains(what, ok) {
			return
		}
	}
	p.wrong = append(p.wrong, what)
}

// expect allows console messages that contain this text.
func (p *tab) expect(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = append(p.expected, text)
}

// verdict fails the test for anything the page should not have done.
func (p *tab) verdict() {
	for _, list := range []string{"ran", "violations"} {
		if found, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]string]("window."+list+" ?? []")); err == nil && len(found) > 0 {
			p.Errorf("%s: %q", list, found)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, what := range p.wrong {
		p.Error(what)
	}
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 2*patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.shot("failed-" + strings.ReplaceAll(p.Name(), "/", "-"))
		p.Fatal(err)
	}
}

func (p *tab) call(_ any, err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// open opens the page at an address on its server.
func (p *tab) open(at string) {
	p.Helper()
	p.do(chromedp.Navigate(p.server + at))
}

// eval returns the value of an expression in the page.
func eval[T any](p *tab, expression string, args ...any) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](fill(expression, args), chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("%s: %v", fill(expression, args), err)
	}
	return v
}

// fill inserts arguments, strings as JavaScript strings.
func fill(expression string, args []any) string {
	if len(args) == 0 {
		return expression
	}
	return fmt.Sprintf(expression, args...)
}

// until waits for an expression to be true.
func (p *tab) until(expression string, args ...any) {
	p.Helper()
	expression = fill(expression, args)
	deadline := time.Now().Add(patience)
	for {
		v, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if err == nil && v {
			return
		}
		if time.Now().After(deadline) {
			p.shot("failed-" + strings.ReplaceAll(p.Name(), "/", "-"))
			text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body.innerText.slice(0, 1500)"))
			p.Fatalf("waited %v for %s (%v); the page says:\n%s", patience, expression, err, text)
		}
		time.Sleep(30 * time.Millisecond) // between two looks
	}
}

// painted waits until the page was painted twice: the first time may change heights.
func (p *tab) painted() {
	p.Helper()
	eval[bool](p, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => done(true)))))`)
}

// sees waits until the text of the page contains something.
func (p *tab) sees(text string) {
	p.Helper()
	p.until("document.body.innerText.includes(%q)", text)
}

// write types text into the focused element.
func (p *tab) write(text string) {
	p.Helper()
	p.call(chromedp.Call(p.ctx, input.InsertText, input.InsertTextParams{Text: text}))
}

// press presses a key as a person does: "j", "Escape", "Ctrl+Enter".
func (p *tab) press(key string) {
	p.Helper()
	params := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown}
	if rest, ok := strings.CutPrefix(key, "Ctrl+"); ok {
		params.Modifiers, key = int64(chromedp.ModifierCtrl), rest
	}
	params.Key = key
	switch {
	case key == "Enter":
		params.Text, params.WindowsVirtualKeyCode, params.Code = "\r", 13, "Enter"
	case key == "Escape":
		params.WindowsVirtualKeyCode, params.Code = 27, "Escape"
	case len(key) == 1 && params.Modifiers == 0:
		params.Text = key
	}
	p.call(chromedp.Call(p.ctx, input.DispatchKeyEvent, params))
	params.Type, params.Text = input.DispatchKeyEventTypeKeyUp, ""
	p.call(chromedp.Call(p.ctx, input.DispatchKeyEvent, params))
}

// click clicks an element as soon as a click reaches it. Content above it may still grow between
// the look and the click, which then hits something else: as a person would, it clicks again.
func (p *tab) click(selector string) {
	p.Helper()
	for range 5 {
		// It may exist but not be painted yet, or something may still cover it.
		p.until(`((e) => {
			if (!e) return false;
			e.scrollIntoView({ block: "nearest" });
			const r = e.getBoundingClientRect();
			if (!e.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2))) return false;
			// What counts is the click, not the button going down: in between the page may have moved. It comes right
			// after the button went up, if at all. After a click that opens another page neither is defined.
			window.missed = true;
			window.settled = false;
			window.addEventListener("mouseup", () => setTimeout(() => { window.settled = true; }), { capture: true, once: true });
			window.addEventListener("click", (ev) => { if (ev.isTrusted && e.contains(ev.target)) window.missed = false; }, { capture: true }); // not one the page makes itself
			return true;
		})(document.querySelector(%q))`, selector)
		p.do(chromedp.Click(chromedp.CSS(selector)))
		p.until(`window.settled !== false`)
		if !eval[bool](p, `Boolean(window.missed)`) {
			return
		}
		p.Logf("a click on %s hit something else; once more", selector)
	}
	p.Fatalf("five clicks on %s hit something else", selector)
}

// size sets the size of the window; a narrow one is a phone.
func (p *tab) size(width, height int64) {
	p.Helper()
	if width < 600 {
		p.do(chromedp.EmulateViewport(width, height, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2)))
		return
	}
	p.do(chromedp.EmulateViewport(width, height))
}

// prefers sets the colour scheme of the system: dark or light.
func (p *tab) prefers(colours string) {
	p.Helper()
	p.call(chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}},
	}))
}

// shot saves a screenshot where HANSARD_SCREENSHOTS says.
func (p *tab) shot(name string) {
	dir := os.Getenv("HANSARD_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600)
	}
	if err != nil {
		p.Logf("no picture of %s: %v", name, err)
	}
}
