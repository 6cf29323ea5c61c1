package browser

import (
	"testing"
)

// TestLook takes pictures of everything, for people to look at.
func TestLook(t *testing.T) {
	s := startServer(t)
	s.hansard("", "demo", "--sessions", "10", "--pause", "0s")
	p := newTab(t, s.url())
	p.open("/#token=" + token)
	p.sees("A week in")
	p.shot("list")
	p.until("document.querySelectorAll('.sessions a').length == 10")
	for _, topic := range []string{"trip", "bug", "incident", "sales", "letters"} {
		eval[bool](p, `(document.querySelector('.sessions a[href*="demo-%s"]').click(), true)`, topic)
		p.until(`document.querySelectorAll('.event').length > 3 && document.querySelector('.state-chip').dataset.state == 'live'`)
		p.shot("open-" + topic)
		p.press("g")
		p.shot("top-" + topic)
	}
}
