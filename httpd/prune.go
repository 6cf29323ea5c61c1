package httpd

import (
	"net/http"

	"hansard"
)

// prune removes what is left of deleted sessions now. It ends with its request: what
// remains is removed the next time.
func (s *Server) prune(w http.ResponseWriter, r *http.Request) error {
	if err := wholeStore(r.Context()); err != nil {
		return err
	}
	var order struct {
		Scrub bool `json:"scrub"`
	}
	if r.ContentLength != 0 {
		if err := s.decode(w, r, &order); err != nil {
			return err
		}
	} else if p := paramsOf(r); p.err != nil {
		return p.err
	}
	store, ok := s.base.(hansard.Pruner)
	if !ok {
		return &notChecked{"has nothing to prune", "what is deleted in it is gone"}
	}
	account := callerOf(r.Context()).account
	if err := account.take(aReport); err != nil {
		return err
	}
	defer account.give(aReport)
	done, err := store.Prune(r.Context(), order.Scrub)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, done)
}
