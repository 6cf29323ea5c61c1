package browser

import (
	"bytes"
	"image"
	"image/png"
	"strings"
	"testing"

	"hansard"
)

// TestAttachments: an attached picture is shown, and a file is offered for download; content that
// a browser might run is never shown.
func TestAttachments(t *testing.T) {
	s, url := serve(t)
	append1(t, s, "pictures", says("user", "ann", "Look."))
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewRGBA(image.Rect(0, 0, 40, 30))); err != nil {
		t.Fatal(err)
	}
	attach := func(content, media, name string) hansard.Attachment {
		a, err := s.Attach(t.Context(), "pictures", strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		a.MediaType, a.Name = media, name
		return a
	}
	e := says("assistant", "coder", "Here they are.")
	e.Attachments = []hansard.Attachment{attach(picture.String(), "image/png", "a.png"), attach("<svg onload='window.ran=[1]'/>", "image/svg+xml", "b.svg"),
		attach("<script>window.ran=[1]</script>", "text/html", "c.html"), attach("no picture", "image/png", "broken.png")}
	append1(t, s, "pictures", e)
	p := newTab(t, url)
	p.open("/#token=" + token)
	p.click(`.sessions a[href$="pictures"]`)
	p.live()
	p.until(`[...document.querySelectorAll('[data-seq="2"] img.picture')].some((i) => i.naturalWidth === 40)`)
	p.until(`document.querySelectorAll('[data-seq="2"] .file .save').length === 3`) // the SVG, the HTML, and the file that is not a picture
	p.click(`[data-seq="2"] .file .save`)
	p.shot("attachments")
	p.until(`!document.querySelector('[data-seq="2"] .file .save').disabled`)
}
