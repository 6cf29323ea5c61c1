package httpd

import (
	"fmt"
	"iter"
	"net/http"

	"hansard"
	"hansard/engine/terms"
	"hansard/internal/wire"
)

// The methods of a store that hansard.Copy needs, over HTTP.

// listOrigins answers how each session began, one per line.
func (s *Server) listOrigins(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "after")
	after := hansard.SessionID(p.text("after"))
	if p.err != nil {
		return p.err
	}
	store, err := s.exporter()
	if err != nil {
		return err
	}
	return writeEach(s, w, r, func(yield func(hansard.Origin, error) bool) {
		for o, err := range store.Origins(r.Context(), after) {
			if o.ID == ReadySession && err == nil {
				continue // the server's own
			}
			if who := callerOf(r.Context()); err == nil && !who.Scope.All() {
				err = s.door.inScope(r.Context(), who.quiet(), o.ID)
				if terms.OneSession(err) {
					continue // with any other error it is not known: a list without it would look complete
				}
			}
			if !yield(o, err) {
				return
			}
		}
	})
}

// listKeys answers with the keys of a session, one per line.
func (s *Server) listKeys(w http.ResponseWriter, r *http.Request) error {
	p := paramsOf(r, "after")
	after := hansard.Seq(p.number("after", 0))
	if p.err != nil {
		return p.err
	}
	store, err := s.exporter()
	if err != nil {
		return err
	}
	if _, err := s.door.pass(r.Context(), sessionID(r), ""); err != nil {
		return err
	}
	return writeEach(s, w, r, store.Keys(r.Context(), sessionID(r), after))
}

// importPart stores a part of another store's session.
func (s *Server) importPart(w http.ResponseWriter, r *http.Request) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	store, ok := s.base.(hansard.Importer)
	if !ok {
		return notTransferred()
	}
	body, free, err := s.body(w, r, maxPartBytes)
	if err != nil {
		return err
	}
	defer free()
	part, err := wire.ParsePart(body)
	if err != nil {
		return err
	}
	part.ID = sessionID(r)
	if who := callerOf(r.Context()); len(who.Scope.Labels) > 0 {
		return wholeStore(r.Context()) // its labels are known only from all its parts
	} else if hansard.CheckID(part.ID) == nil && !who.Scope.named(part.ID) {
		return who.notThere(part.ID)
	}
	err = store.Import(writing(r), part)
	s.metrics.imported(&part, err)
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) exporter() (hansard.Exporter, error) {
	if store, ok := s.base.(hansard.Exporter); ok {
		return store, nil
	}
	return nil, notTransferred()
}

func notTransferred() error {
	return fmt.Errorf("%w: sessions can't be copied from or to this kind of store", hansard.ErrUnsupported)
}

// writeEach answers with all values of a sequence, one per line, in bounded memory.
func writeEach[T any](s *Server, w http.ResponseWriter, r *http.Request, values iter.Seq2[T, error]) error {
	out := newLines(w)
	for v, err := range values {
		if err != nil {
			if err := s.endLines(out, r, err); err != nil {
				return err
			}
			break
		}
		if err := out.line(wire.Marshal(v)); err != nil {
			return err
		}
	}
	return out.flush()
}
