package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
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
	height int // its lines; 0 is no limit
}

func newOutput(w io.Writer) *output {
	o := &output{Writer: bufio.NewWriterSize(w, 64<<10), tty: isTerminal(w)}
	if o.tty {
		o.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if columns, lines, err := term.GetSize(int(w.(*os.File).Fd())); err == nil {
			o.width, o.height = columns, lines
		}
	}
	return o
}

// isTerminal tells whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// When colours are used.
const (
	colourAuto   = "auto" // on a terminal
	colourAlways = "always"
	colourNever  = "never"
)

var colourNames = []string{colourAuto, colourAlways, colourNever}

// useColour applies --colour, the environment or the configuration. Commands that
// must work with a broken configuration, so that it can be fixed, ignore its
// errors.
func (a *app) useColour(cmd *cobra.Command) error {
	when, err := a.applySetting("colour")
	if err != nil {
		group := cmd
		for group.HasParent() && group.Parent() != cmd.Root() {
			group = group.Parent()
		}
		if group.Hidden || group.GroupID == groupProgram || strings.HasPrefix(group.Name(), "__") {
			return nil
		}
		return err
	}
	if err := checkColour(when.Value); err != nil {
		return &usageError{fmt.Sprintf("%s: %v", when.Source, err), "auto uses colours on a terminal"}
	}
	switch when.Value {
	case colourAlways:
		a.out.colour = true
	case colourNever:
		a.out.colour = false
	}
	return nil
}

// content runs a function that writes what others wrote, byte for byte. On a terminal control
// characters become visible: they could drive it.
func (o *output) content(write func(io.Writer) error) error {
	if !o.tty {
		return write(o)
	}
	shown := &escaper{to: o}
	if err := write(shown); err != nil {
		return err
	}
	return shown.end()
}

// The colours of the transcript and the tables.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// paint colours a text if colours are on.
func (o *output) paint(style, text string) string {
	if !o.colour || text == "" || style == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// jsonLine writes one value as one line.
func (o *output) jsonLine(v any) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	return o.writeJSON(line.Bytes())
}

// writeJSON writes JSON unchanged; on a terminal, control characters are escaped.
func (o *output) writeJSON(line []byte) error {
	if o.tty {
		line = escapeJSON(line)
	}
	_, err := o.Write(line)
	return err
}

// sessionEventJSON is eventJSON with the session first.
func (o *output) sessionEventJSON(id hansard.SessionID, e hansard.Event) error {
	fmt.Fprintf(o, `{"session":%q,`, id) // no character of an id needs an escape
	return o.writeJSON(append(wire.AppendLine(nil, &e)[1:], '\n'))
}

// eventJSON writes an event as one line. The data keeps its bytes, except that
// data with line breaks in it is compacted: a line stays a line.
func (o *output) eventJSON(e hansard.Event) error {
	return o.writeJSON(append(wire.AppendLine(nil, &e), '\n'))
}
