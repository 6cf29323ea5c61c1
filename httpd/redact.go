package httpd

import (
	"net/http"

	"hansard"
	"hansard/internal/wire"
)

// redactEvents removes the content of events. It needs the same right as a deletion:
// nothing brings the content back.
func (s *Server) redactEvents(w http.ResponseWriter, r *http.Request) error {
	var given wire.Redaction
	if err := s.decode(w, r, &given); err != nil {
		return err
	}
	if r.Header.Get("If-Match") != "" {
		return &hansard.InvalidError{Field: "If-Match", Reason: "a redaction has no such condition: what is at a seq does not change"}
	}
	receipt, err := s.store.Redact(writing(r), sessionID(r), hansard.Redaction{Seqs: given.Seqs, Reason: given.Reason, Turn: given.Turn})
	if err != nil {
		return err
	}
	if receipt.Replayed {
		return writeJSON(w, http.StatusOK, receipt)
	}
	w.Header().Set("ETag", etag(receipt.Last))
	return writeJSON(w, http.StatusCreated, receipt)
}
