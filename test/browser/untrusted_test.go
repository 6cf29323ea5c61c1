package browser

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"hansard"
)

// attacks are texts that would run script in a careless page.
var attacks = []string{
	`<script>pwned("script")</script>`,
	`</script><script>pwned("closed")</script>`,
	`<img src=x onerror=pwned("onerror")>`,
	`"><img src=x onerror=pwned("attribute")>`,
	`' onmouseover=pwned("single") x='`,
	`<svg onload=pwned("svg")>`,
	`<svg><animate onbegin=pwned("animate") attributeName=x dur=1s>`,
	`<iframe srcdoc="<script>parent.pwned('srcdoc')</script>"></iframe>`,
	`<iframe src="javascript:parent.pwned('frame')"></iframe>`,
	`<math><mtext></p><style><img src=x onerror=pwned("mxss")></style>`,
	`<style>@import "https://evil.example/x.css"; * { background: url(https://evil.example/y) }</style>`,
	`<link rel=stylesheet href=https://evil.example/z.css>`,
	`<meta http-equiv=refresh content="0;url=https://evil.example/">`,
	`<base href=https://evil.example/>`,
	`<form action=https://evil.example/><button autofocus onfocus=pwned("focus")>`,
	`<object data="data:text/html,<script>parent.pwned('object')</script>"></object>`,
	`[click](javascript:pwned("link"))`,
	`[click](JaVaScRiPt:pwned("case"))`,
	"[click](java\tscript:pwned(\"tab\"))",
	`[click](&#106;avascript:pwned("entity"))`,
	`[click](data:text/html,<script>pwned("data")</script>)`,
	`[click](vbscript:pwned("vb"))`,
	`[click](//evil.example/relative)`,
	`[click](/v1/sessions "title" onclick="pwned(1)")`,
	`[click](https://evil.example/" onclick="pwned('quote'))`,
	`<javascript:pwned("angle")>`,
	`![x](javascript:pwned("image"))`,
	`![x](https://evil.example/pixel.png)`,
	`![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9InB3bmVkKDEpIi8+)`,
	`![x](data:text/html;base64,PHNjcmlwdD5wYXJlbnQucHduZWQoMSk8L3NjcmlwdD4=)`,
	`![x" onerror="pwned('alt')](data:image/png;base64,AAAA)`,
	"```html\" onload=\"pwned('info')\n<script>pwned('fence')</script>\n```",
	"`<img src=x onerror=pwned('code')>`",
	"| <img src=x onerror=pwned('cell')> | b |\n|---|---|\n| <script>pwned('td')</script> | [x](javascript:pwned('td')) |",
	"# <img src=x onerror=pwned('heading')>",
	"- [x] <img src=x onerror=pwned('task')>",
	"> <script>pwned('quote')</script>",
	`{{constructor.constructor('pwned("template")')()}} ${pwned("literal")}`,
	"\u202e<script>pwned('rtl')</script>\u2028\u2029\ufeff",
}

// shapes put an attack into every place of an event's data that the page uses.
func shapes(attack string) []any {
	type o = map[string]any
	svg := "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIG9ubG9hZD0icHduZWQoMSkiLz4="
	return []any{
		attack, o{"text": attack}, o{"content": attack}, o{"role": attack, "content": attack},
		[]o{{"type": "text", "text": attack}, {"type": "thinking", "thinking": attack}, {"type": attack, "text": attack}},
		o{"type": "image", "source": o{"type": "base64", "media_type": attack, "data": attack}},
		o{"type": "image", "source": o{"type": "base64", "media_type": "image/svg+xml", "data": "PHN2ZyBvbmxvYWQ9InB3bmVkKDEpIi8+"}},
		o{"type": "image", "source": o{"type": "url", "url": attack}, "alt": attack},
		[]o{{"type": "image_url", "image_url": o{"url": svg}}, {"type": "input_image", "image_url": "javascript:pwned('url')"}, {"type": "input_image", "image_url": "https://evil.example/a.png"}},
		o{"type": "function_call", "name": attack, "call_id": attack, "arguments": attack},
		o{"type": "function_call_output", "call_id": attack, "output": attack},
		o{"tool_calls": []o{{"id": attack, "function": o{"name": attack, "arguments": `{"a":` + quoted(attack) + `}`}}}},
		o{attack: attack, "nested": o{attack: []any{attack, 1, nil}}, "filler": strings.Repeat(attack, 30)},
		o{"__proto__": o{"polluted": attack}, "constructor": o{"prototype": o{"polluted": attack}}},
	}
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// TestInjection: whatever is in a message, a title, a label, an author, a role, a kind, a tool's
// name, an image or the holder of a turn, none of it runs, nothing is loaded from elsewhere, and
// it is shown as plain text.
func TestInjection(t *testing.T) {
	s, url := serve(t)
	clip := func(a string) string {
		a = strings.ReplaceAll(a, "=", "＝") // a label's name may not contain one
		return a[:min(len(a), hansard.MaxLabelBytes)]
	}
	var ids []hansard.SessionID
	for i, attack := range attacks {
		id := hansard.SessionID(fmt.Sprintf("attack-%02d", i))
		ids = append(ids, id)
		title := attack
		if _, err := s.Create(t.Context(), id, hansard.Meta{Title: title, Labels: map[string]string{clip(attack): clip(attack)}, State: json.RawMessage(quoted(attack))}); err != nil {
			t.Fatal(err)
		}
		b := hansard.Batch{Patch: &hansard.Patch{Title: &title, State: json.RawMessage(`{"x":` + quoted(attack) + `}`)}}
		for _, kind := range []string{"message", "tool_call", "tool_result", "summary", clip(attack), "constructor", "__proto__"} {
			for n, data := range shapes(attack) {
				if kind != "message" && n != 0 && n != 9 {
					continue // each kind and each shape, but not all combinations
				}
				e := says(clip(attack), clip(attack), data)
				e.Kind = kind
				b.Events = append(b.Events, e)
			}
		}
		if _, err := s.Append(t.Context(), id, b); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Acquire(t.Context(), id, hansard.Claim{Label: clip(attack)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Acquire(t.Context(), id, hansard.Claim{Label: clip(attack), Steal: attack, Exclusive: true}); err != nil {
			t.Fatal(err)
		}
	}
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.until(`document.querySelectorAll(".sessions li").length == %d`, len(attacks))
	for i, id := range ids {
		eval[bool](p, `(location.hash = "#/s/%s", true)`, id)
		p.until(`document.querySelector(".session")?.getAttribute("aria-label") == "Session %s" && document.querySelectorAll(".event").length > 20`, id)
		p.press("g")
		p.until(shownSeqs + "[0] == 1")
		// Open every fold, every raw view; touch every link and image.
		eval[bool](p, `(document.querySelectorAll("details").forEach((d) => { d.open = true; }), document.querySelectorAll(".event:nth-child(3n) .raw, button.more").forEach((b) => b.click()), true)`)
		p.until(`document.querySelectorAll(".raw-box").length > 5`)
		p.until(`document.querySelectorAll(".tool[open] .args").length > 0`)
		eval[bool](p, `(document.querySelectorAll("main a, main img, main span").forEach((e) => e.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }))), true)`)
		if bad := eval[[]string](p, badNodes); len(bad) > 0 {
			t.Errorf("attack %d, %q, became %q", i, attacks[i], bad)
		}
		if got := eval[string](p, `document.querySelector('.event[data-seq="1"] .body').textContent`); i < 16 && !strings.Contains(squash(got), squash(attacks[i])) {
			t.Errorf("attack %d is not shown as the text it is: %q", i, got)
		}
		if i == 2 {
			p.shot("attack")
		}
	}
	if n := eval[int](p, `Object.keys(Object.prototype).length + ("polluted" in {} ? 1 : 0)`); n != 0 {
		t.Error("the prototype of all objects was changed")
	}
}

func squash(s string) string { return strings.Join(strings.Fields(s), " ") }

// badNodes lists what content must never become: elements or attributes that run or load
// something, and links and images to forbidden places.
const badNodes = `[...document.querySelectorAll("#app *")].flatMap((e) => {
	const bad = [];
	if (/^(script|style|link|iframe|object|embed|base|meta|form|svg:script|math|animate)$/i.test(e.tagName) && !e.matches("form.composer")) bad.push(e.tagName);
	for (const a of e.attributes) {
		if (/^on/i.test(a.name) || a.name == "srcdoc" || a.name == "srcset" || a.name == "action" || a.name == "formaction") bad.push(e.tagName + " " + a.name);
		if (a.name == "style" && e.tagName != "TEXTAREA") bad.push(e.tagName + " style " + a.value);
		if (a.name == "href" && !/^(#\/|https?:|mailto:)/i.test(a.value)) bad.push(e.tagName + " href " + a.value);
		if (a.name == "href" && !a.value.startsWith("#/") && !(e.rel.includes("noopener") && e.rel.includes("noreferrer"))) bad.push("rel " + e.rel);
		if (a.name == "src" && !/^(icon\.svg$|data:image\/(png|jpeg|gif|webp);base64,)/.test(a.value)) bad.push(e.tagName + " src " + a.value);
	}
	return bad;
})`

// TestHeavy: content that would make a renderer slow, or overflow its stack, is still shown, and
// so is what comes after it.
func TestHeavy(t *testing.T) {
	s, url := serve(t)
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	var nested any = "the innermost"
	for range 900 {
		nested = map[string]any{"type": "tool_result", "tool_use_id": "x", "content": []any{nested}}
	}
	heavy := []hansard.Event{
		says("user", "", strings.Repeat("*a **b _c ~~d `e [f](", 20_000)),
		says("user", "", strings.Repeat("[", 200_000)),
		says("user", "", strings.Repeat("> ", 50_000)+"deep"),
		says("user", "", strings.Repeat("  - ", 50_000)+"deep"),
		says("user", "", strings.Repeat("`", 99_999)+" "+strings.Repeat("`", 99_998)),
		says("user", "", strings.Repeat("|", 50_000)+"\n"+strings.Repeat("-|", 50_000)),
		says("user", "", strings.Repeat("![](", 50_000)),
		says("user", "", strings.Repeat("http://", 50_000)),
		says("user", "", strings.Repeat(" \t", 100_000)+"x"),
		says("user", "", "start "+strings.Repeat("A very long message. ", 100_000)+" end"),
		{Role: "user", Data: json.RawMessage(deep)},
		says("tool", "", nested),
		{Role: "user", Data: json.RawMessage(`{"big": 12345678901234567890123, "tiny": 1e-400, "huge": 1e999}`)},
	}
	for i := range heavy {
		heavy[i].Kind = "message"
	}
	for _, e := range heavy {
		append1(t, s, "heavy", e)
	}
	append1(t, s, "heavy", says("user", "", "the end of it"))
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="heavy"]`)
	p.sees("the end of it")
	p.live()
	p.sees("12345678901234567890123") // as it is stored, not as JavaScript would round it
	if n := eval[int](p, `document.getElementsByTagName("*").length`); n > 60_000 {
		t.Errorf("the page has %d elements", n)
	}
	if got := eval[string](p, shownSeqs+".join()"); got != "1,2,3,4,5,6,7,8,9,10,11,12,13,14" {
		t.Errorf("the page shows %s", got)
	}
	p.click(`.event[data-seq="10"] .more`)
	p.until(`document.querySelector('.event[data-seq="10"]').textContent.includes("end")`)
}
