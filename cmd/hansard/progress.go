package main

import (
	"fmt"
	"io"
	"time"
)

// progress is a line on a terminal's stderr that shows how far a long run is. It
// appears after a second and then changes five times a second.
type progress struct {
	w     io.Writer // nil when stderr is not a terminal
	next  time.Time
	shown bool
}

func newProgress(stderr io.Writer) *progress {
	if !isTerminal(stderr) {
		return &progress{}
	}
	return &progress{w: stderr, next: time.Now().Add(time.Second)}
}

func (p *progress) show(text func() string) {
	if p.w == nil {
		return
	}
	if now := time.Now(); now.After(p.next) {
		fmt.Fprintf(p.w, "\r\x1b[K%s", text())
		p.next, p.shown = now.Add(200*time.Millisecond), true
	}
}

// done clears the line.
func (p *progress) done() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// now shows a text at once.
func (p *progress) now(text string) {
	if p.w != nil {
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
		p.shown = true
	}
}
