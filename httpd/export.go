package httpd

import (
	"context"
	"iter"
	"mime"
	"net/http"
	"strings"

	"hansard"
	"hansard/exporter"
	"hansard/internal/wire"
)

// exportSession writes a session in one of the formats of package exporter, to be saved.
// If it fails midway the connection is cut, so that a part is not taken for the whole.
func (s *Server) exportSession(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "format")
	name := p.text("format")
	if p.err != nil {
		return p.err
	}
	if name == "" {
		name = exporter.Formats()[0].Name
	}
	format, ok := exporter.Find(name)
	if !ok {
		var names []string
		for _, f := range exporter.Formats() {
			names = append(names, f.Name)
		}
		return wire.NewProblem("invalid", "there is no such format", "the formats are "+strings.Join(names, ", "))
	}
	info, err := s.store.Stat(r.Context(), sessionID(r))
	if err != nil {
		return err
	}
	account := callerOf(r.Context()).account
	if err := account.take(anExport); err != nil {
		return err
	}
	defer account.give(anExport)
	out := &download{w: w, format: format, name: format.FileName(info)}
	if err := format.Write(r.Context(), &exported{s.store, s}, info.ID, out); err != nil {
		return err
	}
	out.begin()
	return nil
}

// download sets the headers of a file with its first byte: a failure before that is
// answered as a problem.
type download struct {
	w      http.ResponseWriter
	format exporter.Format
	name   string
	begun  bool
}

func (d *download) begin() {
	if d.begun {
		return
	}
	d.begun = true
	h := d.w.Header()
	h.Set("Content-Type", d.format.MediaType)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.name}))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:")
	h.Set("Cache-Control", "private, no-store")
	d.w.WriteHeader(http.StatusOK)
}

func (d *download) Write(p []byte) (int, error) {
	d.begin()
	return d.w.Write(p)
}

// exported is the store as the caller may see it, plus the methods of an exporter.
type exported struct {
	hansard.Store
	server *Server
}

// Origins is called for one session, which the caller may see.
func (e *exported) Origins(ctx context.Context, after hansard.SessionID) iter.Seq2[hansard.Origin, error] {
	store, err := e.server.exporter()
	if err != nil {
		return func(yield func(hansard.Origin, error) bool) { yield(hansard.Origin{}, err) }
	}
	return store.Origins(ctx, after)
}

// Keys gives the keys of a session that the caller may see.
func (e *exported) Keys(ctx context.Context, id hansard.SessionID, after hansard.Seq) iter.Seq2[hansard.KeyUse, error] {
	store, err := e.server.exporter()
	if err == nil {
		_, err = e.server.door.pass(ctx, id, "")
	}
	if err != nil {
		return func(yield func(hansard.KeyUse, error) bool) { yield(hansard.KeyUse{}, err) }
	}
	return store.Keys(ctx, id, after)
}
