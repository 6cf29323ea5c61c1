package browser

import (
	"fmt"
	"strings"
	"testing"

	"hansard"
)

// toolOutput is text that Markdown would spoil: underscores, hashes, stars, columns, quotes,
// lists, rules.
const toolOutput = "# hansard/parse\n__init__.py    *pkg*\nname      size\n----      ----\na            1\n- not a list\n> nor a quote\n1. nor this\n    indented\n`code` [link](https://a.example/) <b>bold</b>\n***\n"

// TestFailure66_ToolOutputIsLiteral: tool output is shown as it is, in every shape that a result
// comes in; what people and models write is Markdown.
func TestFailure66_ToolOutputIsLiteral(t *testing.T) {
	s, url := serve(t)
	results := []hansard.Event{
		raw("tool_result", obj{"type": "function_call_output", "call_id": "c", "output": toolOutput}),
		raw("tool_result", toolOutput),
		says("tool", "", toolOutput),
		says("", "", obj{"role": "tool", "tool_call_id": "c", "content": toolOutput}),
		says("user", "", []obj{{"type": "tool_result", "tool_use_id": "c", "content": toolOutput}}),
		says("user", "", []obj{{"type": "tool_result", "tool_use_id": "c", "content": []obj{{"type": "text", "text": toolOutput}}}}),
		says("", "", obj{"role": "user", "parts": []obj{{"functionResponse": obj{"name": "f", "response": obj{"output": toolOutput}}}}}),
		says("", "", obj{"role": "assistant", "parts": []obj{{"type": "tool-f", "toolCallId": "c", "state": "output-available", "input": obj{}, "output": toolOutput}}}),
		says("", "", obj{"type": "response_item", "payload": obj{"type": "function_call_output", "call_id": "c", "output": toolOutput}}),
		says("", "", obj{"type": "user", "uuid": "u", "message": obj{"role": "user", "content": []obj{{"type": "tool_result", "tool_use_id": "c", "content": toolOutput}}}}),
	}
	for _, e := range results {
		append1(t, s, "tools", e)
	}
	append1(t, s, "tools", says("assistant", "coder", "# A heading\n__bold__ and *em*"))
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="tools"]`)
	p.live()
	p.until(`document.querySelectorAll(".event").length == %d`, len(results)+1)
	for i := range results {
		seq := i + 1
		if got, want := eval[string](p, `document.querySelector('[data-seq="%d"] .tool.result pre')?.textContent ?? ""`, seq), strings.TrimSuffix(toolOutput, "\n"); got != want {
			t.Errorf("result %d is shown as %q, want %q", seq, got, want)
		}
		if found := eval[int](p, `document.querySelectorAll('[data-seq="%d"] .tool.result').length && document.querySelectorAll('[data-seq="%d"] .tool.result :is(strong, em, h3, h4, ul, ol, blockquote, hr, table, .tool-body a, .tool-body b)').length`, seq, seq); found != 0 {
			t.Errorf("result %d went through Markdown: %d elements", seq, found)
		}
	}
	style := eval[[]string](p, `((s) => [s.fontFamily, s.whiteSpace])(getComputedStyle(document.querySelector('[data-seq="1"] pre')))`)
	if !strings.Contains(style[0], "mono") || style[1] != "pre" {
		t.Errorf("the result is in %q, white-space %s", style[0], style[1])
	}
	p.until(`document.querySelector('[data-seq="%d"] h3')?.textContent == "A heading" && document.querySelector('[data-seq="%d"] strong').textContent == "bold"`, len(results)+1, len(results)+1)
	p.shot("literal")
}

// TestFolds: a result is folded from 20 lines on, and can be opened again; what the server cut
// off is requested when it is opened.
func TestFolds(t *testing.T) {
	s, url := serve(t)
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "line %d\n", i+1)
		}
		return b.String()
	}
	long := strings.Repeat("0123456789abcdef\n", 40_000)
	for _, text := range []string{lines(19), lines(20), lines(500), long} {
		append1(t, s, "folds", raw("tool_result", obj{"id": "c", "output": text}))
	}
	append1(t, s, "folds", says("assistant", "coder", "A **long** story.\n\n"+strings.Repeat("All of it is true. ", 5000)+"The end."))
	append1(t, s, "folds", raw("tool_call", obj{"name": "write", "args": obj{"path": "a.go", "content": "package a\n\n// Long.\n" + long}}))
	append1(t, s, "folds", raw("tool_result", obj{"id": "c", "output": strings.Repeat("0123456789", 500)})) // one line, many rows
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="folds"]`)
	p.live()
	p.until(`document.querySelectorAll(".event").length == 7`)
	shown := func(seq int) int {
		return eval[int](p, `document.querySelector('[data-seq="%d"] pre').textContent.split("\n").length`, seq)
	}
	for seq, want := range map[int]int{1: 19, 2: 10, 3: 10} {
		if got := shown(seq); got != want {
			t.Errorf("of result %d %d lines are shown, want %d", seq, got, want)
		}
	}
	if eval[bool](p, `document.querySelector('[data-seq="1"] .unfold') !== null`) {
		t.Error("19 lines are folded")
	}
	for seq, name := range map[int]string{2: "Show all 20 lines", 3: "Show all 500 lines", 4: "Show all 680 kB", 7: "Show all 5 kB"} {
		if got := eval[string](p, `document.querySelector('[data-seq="%d"] .unfold').textContent`, seq); got != name {
			t.Errorf("the button of %d says %q, want %q", seq, got, name)
		}
	}
	p.click(`[data-seq="3"] .unfold`)
	p.until(`document.querySelector('[data-seq="3"] pre').textContent.split("\n").length == 500`)
	p.click(`[data-seq="3"] .unfold`)
	p.until(`document.querySelector('[data-seq="3"] pre').textContent.split("\n").length == 10`)
	if got := eval[int](p, `document.querySelector('[data-seq="7"] pre').textContent.length`); got != 1000 {
		t.Errorf("of a long line %d characters are shown, want 1000", got)
	}
	p.click(`[data-seq="7"] .unfold`)
	p.until(`document.querySelector('[data-seq="7"] pre').textContent.length == 5000`)
	// Copying copies all of it, whatever is shown.
	eval[bool](p, `(navigator.clipboard.writeText = async (text) => { window.copied = String(text); }, true)`)
	eval[bool](p, `(document.querySelector('[data-seq="4"] .literal-tools .copy').click(), true)`)
	p.until(`window.copied?.length == %d`, len(long))
	p.click(`[data-seq="4"] .unfold`)
	p.until(`document.querySelector('[data-seq="4"] pre').textContent.length == %d`, len(long)-1)
	p.click(`[data-seq="4"] .unfold`)
	p.click(`[data-seq="5"] .more`)
	p.until(`document.querySelector('[data-seq="5"]').textContent.includes("The end.")`)
	p.click(`[data-seq="6"] summary`)
	p.click(`[data-seq="6"] .unfold`)
	p.until(`document.querySelector('[data-seq="6"] .args pre').textContent.length > %d`, len(long))
}

// TestTurning: characters that change the text direction are made visible in tool output and in
// code, and have no effect: a line reads as it is stored.
func TestTurning(t *testing.T) {
	s, url := serve(t)
	const text = "if admin\u202e { // \u2066check\u2069"
	append1(t, s, "talk", raw("tool_result", obj{"id": "c", "output": text}))
	append1(t, s, "talk", raw("tool_call", obj{"name": "write", "args": obj{"path": "a.go", "content": text + "\n"}}))
	append1(t, s, "talk", says("assistant", "coder", "```go\n"+text+"\n```"))
	append1(t, s, "talk", raw("tool_result", obj{"id": "c", "output": "\x1b[31m" + text + "\x1b[0m" + strings.Repeat(strings.Repeat("\u202e", 400)+"\n", 13)}))
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="talk"]`)
	p.live()
	p.until(`document.querySelectorAll(".event").length == 4`)
	eval[bool](p, `(document.querySelectorAll("details").forEach((d) => { d.open = true; }), true)`)
	p.until(`document.querySelector('[data-seq="2"] pre')`)
	for seq := 1; seq <= 3; seq++ {
		if got := eval[string](p, `document.querySelector('[data-seq="%d"] pre').textContent.trim()`, seq); got != text {
			t.Errorf("event %d is %q", seq, got)
		}
		if got := eval[string](p, `[...document.querySelectorAll('[data-seq="%d"] .turning')].map((e) => e.dataset.code).join()`, seq); got != "U+202E,U+2066,U+2069" {
			t.Errorf("event %d shows %s", seq, got)
		}
		// In the order of the text, from left to right.
		if !eval[bool](p, `((pre) => {
			const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
			const at = [];
			while (walker.nextNode()) {
				const node = walker.currentNode;
				if (node.parentElement.closest(".turning")) continue;
				for (let i = 0; i < node.data.length; i++) {
					if (!/\S/.test(node.data[i])) continue;
					const range = new Range();
					range.setStart(node, i);
					range.setEnd(node, i + 1);
					at.push(range.getBoundingClientRect().left);
				}
			}
			return at.length === 15 && at.every((x, i) => i === 0 || x > at[i - 1]);
		})(document.querySelector('[data-seq="%d"] pre'))`, seq) {
			t.Errorf("event %d is not in order", seq)
		}
	}
	if n := eval[int](p, `document.querySelectorAll('[data-seq="4"] .turning').length`); n != 2000 {
		t.Errorf("%d elements were made for 5203 characters", n)
	}
	p.shot("turning")
}

// TestLargePicture: a picture that is too large for the list of events is loaded when it comes
// into view, and not before.
func TestLargePicture(t *testing.T) {
	s, url := serve(t)
	picture := chartPNG(2400, 2000)
	if len(picture) < 20<<10 {
		t.Fatalf("the picture has only %d bytes", len(picture))
	}
	append1(t, s, "pictures", says("user", "ada", []obj{{"type": "text", "text": "look"}, {"type": "image", "source": obj{"type": "base64", "media_type": "image/png", "data": picture}}}))
	fillSession(t, s, "pictures", 50)
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="pictures"]`)
	p.live()
	p.until(`document.querySelector('[data-seq="1"]')`)
	p.painted()
	if eval[bool](p, `document.querySelector('[data-seq="1"] img') !== null`) {
		t.Error("the picture was loaded although nobody sees it")
	}
	p.press("g")
	p.until(`document.querySelector('[data-seq="1"] img')?.naturalWidth == 2400`)
}

// TestColours: code, diffs and terminal colours are shown as elements.
func TestColours(t *testing.T) {
	_, url := serve(t)
	p := newTab(t, url)
	p.open("/")
	draw := func(module, call string) string {
		return eval[string](p, `import("/%s").then((m) => { const e = document.createElement("div"); e.append(...m.%s); return e.innerHTML; })`, module, call)
	}
	for _, c := range []struct{ language, text, html string }{
		{"go", "func f() { // x\n\treturn \"a\", 12\n}", `<span class="code-word">func</span> <span class="code-name">f</span>() { <span class="code-comment">// x</span>` + "\n\t" + `<span class="code-word">return</span> <span class="code-string">"a"</span>, <span class="code-number">12</span>` + "\n}"},
		{"py", "def f():  # x\n    return None", `<span class="code-word">def</span> <span class="code-name">f</span>():  <span class="code-comment"># x</span>` + "\n    " + `<span class="code-word">return</span> <span class="code-word">None</span>`},
		{"sql", "SELECT 'a' -- x", `<span class="code-word">SELECT</span> <span class="code-string">'a'</span> <span class="code-comment">-- x</span>`},
		{"sh", "ls -l \"$HOME\" # x", `<span class="code-word">ls</span> <span class="code-number">-l</span> <span class="code-string">"$HOME"</span> <span class="code-comment"># x</span>`},
		{"json", `{"a": [1, "b", true]}`, `{<span class="code-name">"a"</span>: [<span class="code-number">1</span>, <span class="code-string">"b"</span>, <span class="code-number">true</span>]}`},
		{"yaml", "a: 1\n# x", `<span class="code-word">a</span>: <span class="code-number">1</span>` + "\n" + `<span class="code-comment"># x</span>`},
		{"diff", "@@ -1 +1 @@\n-a\n+b\n c", `<span class="diff-hunk">@@ -1 +1 @@` + "\n" + `</span><span class="diff-del">-a` + "\n" + `</span><span class="diff-add">+b` + "\n" + `</span> c`},
		{"klingon", "func f()", "func f()"},
		{"", "+ not a diff\n- nor this", "+ not a diff\n- nor this"},
		{"html", `<b class="x">&amp;</b>`, `<span class="code-word">&lt;b</span> class=<span class="code-string">"x"</span><span class="code-word">&gt;</span><span class="code-number">&amp;amp;</span><span class="code-word">&lt;/b</span><span class="code-word">&gt;</span>`},
	} {
		if got := draw("colour.js", fmt.Sprintf("coloured(%q, %q)", c.text, c.language)); got != c.html {
			t.Errorf("%s %q\n became %s\n    want %s", c.language, c.text, got, c.html)
		}
	}
	for _, c := range []struct{ text, html string }{
		{"plain", "plain"},
		{"\x1b[31mred\x1b[0m and \x1b[1;4;32mmore\x1b[m", `<span class="ansi-fg1">red</span> and <span class="ansi-bold ansi-under ansi-fg2">more</span>`},
		{"\x1b[91mbright\x1b[39m off", `<span class="ansi-fg1">bright</span> off`},
		{"\x1b[38;5;196mx\x1b[48;2;0;0;255my\x1b[0m", `<span class="ansi-fg1">x</span><span class="ansi-fg1 ansi-bg4">y</span>`},
		{"\x1b[7minverse\x1b[27m", `<span class="ansi-invert">inverse</span>`},
		{"\x1b]0;title\x07a\x1b]8;;https://evil.example\x1b\\b\x1b[2K\x1b[1;1Hc", "abc"},
		{"10%\r50%\r100%\ndone\r\n", "100%\ndone\n"},
		{"N\bNA\bA", "NA"},
		{"\x1b", ""}, {"a\x1b[", "a"},
		{"\x1b[31m<script>\x1b[0m", `<span class="ansi-fg1">&lt;script&gt;</span>`},
	} {
		js := strings.NewReplacer("\x1b", `\x1b`, "\a", `\x07`, "\b", `\b`, "\r", `\r`, "\n", `\n`, `\`, `\\`).Replace(c.text)
		if got := draw("ansi.js", `ansi("`+js+`")`); got != c.html {
			t.Errorf("%q\n became %s\n    want %s", c.text, got, c.html)
		}
	}
}

// TestShapesDrawn: the transcripts of all tools read as conversations: who said what, calls with
// their names and arguments, results below them, pictures, summaries.
func TestShapesDrawn(t *testing.T) {
	s, url := serve(t)
	addTranscripts(t, s)
	p := newTab(t, url)
	p.open("/#token=" + token)
	for id, want := range map[string]struct {
		sees                    []string
		calls, results, images  int
		thoughts, failed, folds int // folds: records shown as folded JSON
	}{
		"claude-code":      {[]string{"I'll look at the loop first.", "The conversation was compacted (auto)", "This session is being continued", "TestParse (0.02s)"}, 5, 5, 0, 1, 1, 2},
		"codex":            {[]string{"Where does the time go?", "1843 modules transformed.", "Two thirds of it is svgr"}, 2, 2, 0, 1, 0, 3},
		"gemini-cli":       {[]string{"Which of these logs", "__connect__ refused", "Request cancelled."}, 1, 1, 0, 1, 0, 0},
		"adk":              {[]string{"somewhere quiet", "the table was taken a minute ago", "Ribeira has a table"}, 2, 2, 1, 1, 1, 0},
		"vercel-ai":        {[]string{"what should I pack?", "429: too many requests", "Mild and grey"}, 2, 2, 1, 1, 1, 2},
		"openai-responses": {[]string{"You are an analyst.", "sales.csv", "12.000000", "Twelve weeks"}, 3, 2, 1, 1, 0, 1},
		"openai-chat":      {[]string{"older than a week?", "(2 rows)", "17 are open"}, 1, 1, 0, 0, 0, 0},
		"anthropic":        {[]string{"Review this change", "1280 × 800", "spec.pdf"}, 1, 1, 1, 1, 0, 0},
	} {
		eval[bool](p, `(location.hash = "#/s/%s", true)`, id)
		p.until(`document.querySelector('.session')?.getAttribute("aria-label") == "Session %s" && document.querySelectorAll('.event').length == %d`, id, len(transcripts()[id]))
		p.live()
		for _, text := range want.sees {
			p.until("document.querySelector('.rows').textContent.includes(%q)", text)
		}
		for selector, n := range map[string]int{".tool.call": want.calls, ".tool.result": want.results, "img.picture": want.images, ".thinking, .hidden-thinking": want.thoughts,
			".tool.result.failed": want.failed, ".fold.json": want.folds} {
			if got := eval[int](p, `document.querySelectorAll(%q).length`, ".rows :is("+selector+")"); got != n {
				t.Errorf("%s: %d of %s, want %d", id, got, selector, n)
			}
		}
		if done := eval[int](p, `document.querySelectorAll(".tool.call .state.done, .tool.call .state.failed").length`); id != "openai-responses" && done != want.calls {
			t.Errorf("%s: %d of %d calls have met their results", id, done, want.calls)
		}
	}
	// The lines of a diff are aligned, changed or not.
	p.show("anthropic")
	p.until(`((pre) => {
		const left = (text) => {
			const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
			while (walker.nextNode()) {
				const at = walker.currentNode.data.indexOf(text);
				if (at < 0) continue;
				const range = new Range();
				range.setStart(walker.currentNode, at);
				range.setEnd(walker.currentNode, at + 1);
				return range.getBoundingClientRect().left;
			}
		};
		return left("text, err :=") > 0 && Math.abs(left("text, err :=") - left("if err == io.EOF")) < 1;
	})(document.querySelector('[data-seq="1"] .code pre'))`)
	// An edit is a diff, a command is a command.
	eval[bool](p, `(location.hash = "#/s/claude-code/5", true)`)
	p.until(`document.querySelector('.event.marked')?.dataset.seq == "5"`)
	p.press("o")
	p.until(`document.querySelectorAll('[data-seq="5"] .diff-del').length == 3 && document.querySelectorAll('[data-seq="5"] .diff-add').length == 6`)
	p.until(`document.querySelectorAll('[data-seq="8"] .ansi-fg1').length == 1`)
	p.until(`document.querySelectorAll('[data-seq="14"] .diff-add').length > 3`)
}
