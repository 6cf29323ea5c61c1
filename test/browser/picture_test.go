package browser

import (
	"os"
	"testing"

	"github.com/chromedp/chromedp"
)

// picturePath is the README's picture.
const picturePath = "../../docs/page.png"

// TestPicture: the picture in the README shows the page, with the demo. HANSARD_PICTURE=1 makes
// it again.
func TestPicture(t *testing.T) {
	s := startServer(t)
	s.hansard("", "demo", "--sessions", "5", "--pause", "0s", "--seed", "5")
	p := newTab(t, s.url())
	p.size(1200, 860)
	p.prefers("light")
	p.open("/#token=" + token)
	p.until("document.querySelectorAll('.sessions a').length == 5")
	p.click(`.sessions a[href*="demo-bug"]`)
	p.until(`document.querySelectorAll('.event').length > 10`)
	p.live()
	p.press("g")
	p.until(`document.querySelector(".scroller").scrollTop == 0`)
	p.sees("parse_test.go:31: got 2 lines, want 3")
	p.until(`document.querySelector('[data-seq="5"] .code-word')`) // text read from a file is highlighted in its language
	eval[bool](p, `(document.activeElement.blur(), document.querySelector('[data-seq="2"]').scrollIntoView({ block: "start" }), true)`)
	p.painted()
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("HANSARD_PICTURE") != "" {
		if err := os.WriteFile(picturePath, picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.Stat(picturePath)
	if err != nil {
		t.Fatalf("the README has no picture; HANSARD_PICTURE=1 test/browser/run -run TestPicture makes it: %v", err)
	}
	if kept.Size() > 200<<10 {
		t.Errorf("the picture has %d bytes", kept.Size())
	}
}
