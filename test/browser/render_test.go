package browser

import (
	"testing"

	"hansard"
)

// TestMarkdown: what people and models write is rendered as intended, and anything not understood
// stays text.
func TestMarkdown(t *testing.T) {
	_, url := serve(t)
	p := newTab(t, url)
	p.open("/")
	for _, c := range []struct{ text, html string }{
		{"plain", "<p>plain</p>"},
		{"two\nlines", "<p>two<br>lines</p>"},
		{"one\n\ntwo", "<p>one</p><p>two</p>"},
		{"**bold** and *em* and __b__ and _e_ and ~~gone~~", "<p><strong>bold</strong> and <em>em</em> and <strong>b</strong> and <em>e</em> and <del>gone</del></p>"},
		{"***both***", "<p><strong><em>both</em></strong></p>"},
		{"**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"},
		{"snake_case_name and 2 * 3 * 4 and ** and *", "<p>snake_case_name and 2 * 3 * 4 and ** and *</p>"},
		{"`code` and ``a ` b``", "<p><code>code</code> and <code>a ` b</code></p>"},
		{"`*not em*` \\*nor this\\*", "<p><code>*not em*</code> *nor this*</p>"},
		{"an `unfinished code", "<p>an `unfinished code</p>"},
		{"# One\n## Two ##\n####### seven", "<h3>One</h3><h4>Two</h4><p>####### seven</p>"},
		{"### Three\n# One\n###### Six", "<h3>Three</h3><h3>One</h3><h4>Six</h4>"},
		{"- a\n- b\n  - c\n  - d\n- e", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p></li><li><p>d</p></li></ul></li><li><p>e</p></li></ul>"},
		{"3. three\n4. four", `<ol start="3"><li><p>three</p></li><li><p>four</p></li></ol>`},
		{"1. one\n   - in it\n2. two", "<ol><li><p>one</p><ul><li><p>in it</p></li></ul></li><li><p>two</p></li></ol>"},
		{"text\n- a list", "<p>text</p><ul><li><p>a list</p></li></ul>"},
		{"> quoted\n> **more**\n\nafter", "<blockquote><p>quoted<br><strong>more</strong></p></blockquote><p>after</p>"},
		{"---", "<hr>"},
		{"| a | b |\n|---|--:|\n| 1 | `2|3` |\n\nx", `<div class="table" tabindex="0"><table><thead><tr><th>a</th><th class="right">b</th></tr></thead><tbody><tr><td>1</td><td class="right">` + "`2" + `</td></tr></tbody></table></div><p>x</p>`},
		{"a | b", "<p>a | b</p>"},
		{"<b>no markup</b> &amp; &lt;", "<p>&lt;b&gt;no markup&lt;/b&gt; &amp;amp; &amp;lt;</p>"},
		{"[text](https://a.example/x?y=1&z)", `<p><a href="https://a.example/x?y=1&amp;z" rel="noopener noreferrer nofollow" target="_blank" title="https://a.example/x?y=1&amp;z">text</a></p>`},
		{"[no](javascript:x)", `<p><span title="javascript:x">no</span></p>`},
		{"[no](/relative) [nor](#/s/x)", `<p><span title="/relative">no</span> <span title="#/s/x">nor</span></p>`},
		{"[unfinished](https://a.example", `<p>[unfinished](<a href="https://a.example/" rel="noopener noreferrer nofollow" target="_blank" title="https://a.example/">https://a.example</a></p>`},
		{"see https://a.example/b_c_d.", `<p>see <a href="https://a.example/b_c_d" rel="noopener noreferrer nofollow" target="_blank" title="https://a.example/b_c_d">https://a.example/b_c_d</a>.</p>`},
		{"<mailto:a@b.example>", `<p><a href="mailto:a@b.example" rel="noopener noreferrer nofollow" target="_blank" title="mailto:a@b.example">mailto:a@b.example</a></p>`},
		{"![alt](https://a.example/x.png)", `<p><a href="https://a.example/x.png" rel="noopener noreferrer nofollow" target="_blank" title="https://a.example/x.png">🖼 alt</a></p>`},
		{"![alt](data:image/png;base64,AAAA)", `<p><img class="picture" src="data:image/png;base64,AAAA" alt="alt" loading="lazy" decoding="async"></p>`},
		{"- [x] done\n- [ ] open", `<ul><li class="task"><span class="box" role="img" aria-label="done">☑</span><p>done</p></li><li class="task"><span class="box" role="img" aria-label="open">☐</span><p>open</p></li></ul>`},
		{"a\r\nb\rc", "<p>a<br>b<br>c</p>"},
		{"", ""},
	} {
		got := eval[string](p, `import("/markdown.js").then(({ markdown }) => { const e = document.createElement("div"); e.append(markdown(%q)); return e.innerHTML; })`, c.text)
		if got != c.html {
			t.Errorf("%q\n became %s\n    want %s", c.text, got, c.html)
		}
	}
	code := eval[string](p, `import("/markdown.js").then(({ markdown }) => [...markdown(%q).querySelectorAll(".code")].map((e) => e.querySelector("span").textContent + ":" + e.querySelector("code").textContent).join("|"))`,
		"```go\nfunc a() {\n\t**x**\n}\n```\n~~~\n```\n~~~\n- in a list\n  ```js\n  y\n  ```\n```unfinished\nz")
	if want := "go:func a() {\n\t**x**\n}|:```|js:y|unfinished:z"; code != want {
		t.Errorf("the code is %q, want %q", code, want)
	}
}

// TestChangesAreAligned: what changed with an event stands below the event's own content: in the
// middle only if that is a line in the middle.
func TestChangesAreAligned(t *testing.T) {
	s, url := serve(t)
	title := "Given by the tool"
	record := hansard.Event{Kind: hansard.KindMeta, Data: []byte(`{"type":"ai-title","title":"Given by the tool"}`)}
	for _, b := range []hansard.Batch{{Events: []hansard.Event{record}, Patch: &hansard.Patch{Title: &title}, Create: true}, {Patch: &hansard.Patch{Title: &title}}} {
		if _, err := s.Append(t.Context(), "s", b); err != nil {
			t.Fatal(err)
		}
	}
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="s"]`)
	p.live()
	p.until(`document.querySelectorAll(".patch li").length == 2`)
	from := func(seq int, selector string) float64 {
		return eval[float64](p, `document.querySelector('[data-seq="%d"] %s').getBoundingClientRect().left`, seq, selector)
	}
	if content, change := from(1, "summary"), from(1, ".patch li"); change < content-1 || change > content+8 {
		t.Errorf("the change begins at %v, the content above it at %v", change, content)
	}
	if row, change := from(2, ".aside"), from(2, ".patch li"); change < row+100 {
		t.Errorf("the change begins at %v, the line above it is in the middle of a row from %v on", change, row)
	}
}

// TestPairs: calls and results are matched even if one of them comes into the page later, and a
// result updates the state of its call.
func TestPairs(t *testing.T) {
	s, url := serve(t)
	tool := func(kind string, data map[string]any) hansard.Event {
		e := says("assistant", "planner", data)
		e.Kind = kind
		return e
	}
	append1(t, s, "tools", tool("tool_call", map[string]any{"id": "a", "name": "first", "args": map[string]any{"x": 1}}))
	append1(t, s, "tools", tool("tool_call", map[string]any{"id": "b", "name": "second", "args": map[string]any{"y": 2}}))
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="tools"]`)
	p.live()
	p.until(`document.querySelectorAll(".tool.call").length == 2 && !document.querySelector(".state.done, .state.failed")`)
	append1(t, s, "tools", tool("tool_result", map[string]any{"id": "b", "error": "it broke"}))
	append1(t, s, "tools", tool("tool_result", map[string]any{"id": "a", "output": "fine"}))
	p.until(`document.querySelector('[data-seq="2"] .state.failed') && document.querySelector('[data-seq="1"] .state.done')`)
	p.until(`document.querySelector('[data-seq="3"] .tool-name').textContent == "second" && document.querySelector('[data-seq="4"] .tool-name').textContent == "first"`)
	if eval[bool](p, `document.querySelector("details.tool").open`) {
		t.Error("a call is not folded")
	}
	p.until(`document.querySelector('[data-seq="4"] .tool-body .literal')?.textContent == "fine"`)
	p.click(`[data-seq="1"] summary`)
	p.until(`document.querySelector('[data-seq="1"] .args').innerText.replace(/\s+/g, " ") == "x 1"`)
	// The event as it is stored.
	eval[bool](p, `(document.querySelector('[data-seq="4"] .raw').click(), true)`)
	p.until(`JSON.parse(document.querySelector('[data-seq="4"] .raw-box code').textContent).seq == 4`)
}
