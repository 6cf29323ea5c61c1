package browser

import (
	"fmt"
	"strings"
	"testing"

	"hansard"
)

// scrolling scrolls an element for a number of steps, as fast as frames come, and returns how
// many frames were painted in the time that the empty list would need for them, and the longest
// time between two. The speed is in pixels per step, so a slow page has to cover the same
// distance.
const scrolling = `(async (selector, pixels, ms) => {
	const el = document.querySelector(selector);
	const frame = () => new Promise((done) => requestAnimationFrame(done));
	await frame();
	const began = performance.now();
	let frames = 0, longest = 0, last = began;
	for (let now = began; now - began < ms;) {
		el.scrollTop += pixels * (now - last) / 16.7 || pixels;
		last = now;
		now = await frame();
		frames++;
		longest = Math.max(longest, now - last);
	}
	return { frames, longest, from: 0 };
})(%q, %d, %d)`

// scrolled is the result.
type scrolled struct {
	Frames  int
	Longest float64
}

// emptyList is a list that costs nothing to scroll: the upper bound of the browser and the
// machine.
const emptyList = `(() => {
	const el = document.createElement("div");
	el.id = "nothing";
	el.style.cssText = "position:fixed;inset:0;z-index:99;overflow:auto;background:white";
	const inner = document.createElement("div");
	inner.style.height = "2000000px";
	el.append(inner);
	document.body.append(el);
	return true;
})()`

// fillReal appends n events as agents write them: prose, code, calls and results.
func fillReal(t testing.TB, s hansard.Store, id hansard.SessionID, n int) {
	t.Helper()
	type o = map[string]any
	output := strings.Repeat("ok  \thansard/httpd\t0.123s\n", 12)
	for done := 0; done < n; {
		b := hansard.Batch{Create: true}
		for ; len(b.Events) < 5000 && done < n; done++ {
			call := fmt.Sprint("call_", done/5)
			switch done % 5 {
			case 0:
				b.Events = append(b.Events, says("user", "ada", fmt.Sprintf("Please look at **case %d**, and tell me why `Parse` fails there.", done)))
			case 1:
				b.Events = append(b.Events, says("assistant", "coder", []o{{"type": "thinking", "thinking": "The reader splits at newlines."},
					{"type": "text", "text": "I look at the loop:\n\n- the rest\n- the end\n\n```go\nfunc Parse(r io.Reader) ([]Line, error) {\n\treturn nil, nil // not yet\n}\n```"}}))
			case 2:
				b.Events = append(b.Events, says("assistant", "coder", []o{{"type": "tool_use", "id": call, "name": "Bash", "input": o{"command": "go test ./...", "timeout": 60}}}))
			case 3:
				b.Events = append(b.Events, says("user", "", []o{{"type": "tool_result", "tool_use_id": call, "content": output}}))
			case 4:
				b.Events = append(b.Events, says("assistant", "coder", fmt.Sprintf("All of it passes now (%d). | a | b |\n\n| n | time |\n|---|---|\n| %d | 3 ms |", done, done)))
			}
		}
		if _, err := s.Append(t.Context(), id, b); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkScroll scrolls through 100,000 events, and through an empty list on the same machine
// in the same browser: frames/empty is the number of frames per frame of the empty list.
func BenchmarkScroll(b *testing.B) {
	s, url := serve(b)
	fillReal(b, s, "huge", 100_000)
	p := newTab(b, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="huge"]`)
	p.until(shownSeqs + `.at(-1) == 100000`)
	p.live()
	var frames, empty int
	var longest float64
	for b.Loop() {
		eval[bool](p, emptyList)
		nothing := eval[scrolled](p, scrolling, "#nothing", 40, 3000)
		eval[bool](p, `(document.querySelector("#nothing").remove(), true)`)
		for _, pixels := range []int{-40, 40, -120, -600, 600} {
			got := eval[scrolled](p, scrolling, ".scroller", pixels, 3000)
			b.Logf("%d pixels per frame: %d frames of %d, the longest %.0f ms, at %s", pixels, got.Frames, nothing.Frames, got.Longest, eval[string](p, `document.querySelector(".position").textContent`))
			frames, empty, longest = frames+got.Frames, empty+nothing.Frames, max(longest, got.Longest)
		}
	}
	b.ReportMetric(float64(frames)/float64(empty), "frames/empty")
	b.ReportMetric(longest, "ms-longest-frame")
}
