package client

import (
	"context"
	"net/http"

	"hansard"
)

var _ hansard.Identified = (*Store)(nil)

// Identity implements [hansard.Identified]: it is that of the store behind the server.
func (s *Store) Identity(ctx context.Context) (string, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	asking, cancel := s.until(ctx)
	defer cancel()
	var found struct {
		Identity string `json:"identity"`
	}
	_, err = s.answer(asking, &request{method: http.MethodGet, path: "/v1/store"}, &found)
	return found.Identity, s.ended(ctx, err)
}
