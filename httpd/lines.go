package httpd

import (
	"context"
	"errors"
	"net/http"

	"hansard/internal/wire"
)

// linesChunk is how much of an answer of lines is written at once.
const linesChunk = 64 << 10

// lines is an answer of lines that is being written.
type lines struct {
	w     http.ResponseWriter
	chunk []byte // what is not written yet
	begun bool
}

func newLines(w http.ResponseWriter) *lines {
	return &lines{w: w, chunk: make([]byte, 0, 4<<10)}
}

func (l *lines) line(b []byte) error {
	l.chunk = append(append(l.chunk, b...), '\n')
	return l.grown()
}

// grown writes what has been gathered once it is a full chunk.
func (l *lines) grown() error {
	if len(l.chunk) < linesChunk {
		return nil
	}
	return l.flush()
}

func (l *lines) flush() error {
	if !l.begun {
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.WriteHeader(http.StatusOK)
		l.begun = true
	}
	_, err := l.w.Write(l.chunk)
	l.chunk = l.chunk[:0]
	return err
}

// endLines ends an answer with an error. If the answer has not begun it returns the
// error, which becomes the answer; else it writes it as the last line,
// {"problem":{…}}.
func (s *Server) endLines(l *lines, r *http.Request, err error) error {
	err = because(r.Context(), err)
	if !l.begun && len(l.chunk) == 0 || errors.Is(err, context.Canceled) {
		return err
	}
	return l.line(append(append([]byte(`{"problem":`), wire.Marshal(s.told(r, err))...), '}'))
}
