package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"

	"golang.org/x/term"

	"hansard"
	"hansard/internal/wire"
)

// output is the standard output: buffered, its first error sticks, and it knows
// what it is connected to.
type output struct {
	*bufio.Writer
	tty    bool
	colour bool
	width  int // columns of the terminal; 0 is no limit
}

func newOutput(w io.Writer) *output {
	o := &output{Writer: bufio.NewWriterSize(w, 64<<10), tty: isTerminal(w)}
	if o.tty {
		o.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if columns, _, err := term.GetSize(int(w.(*os.File).Fd())); err == nil {
			o.width = columns
		}
	}
	return o
}

// isTerminal tells whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// The colours of the transcript and the tables.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	yellow = "33"
)

// paint colours a text where colours are wanted.
func (o *output) paint(style, text string) string {
	if !o.colour || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// jsonLine writes one value as one line.
func (o *output) jsonLine(v any) error {
	enc := json.NewEncoder(o)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// eventJSON writes an event as one line. The data keeps its bytes, except that
// data with line breaks in it is compacted: a line stays a line.
func (o *output) eventJSON(e hansard.Event) error {
	_, err := o.Write(append(wire.AppendLine(nil, &e), '\n'))
	return err
}
