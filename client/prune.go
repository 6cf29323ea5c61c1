package client

import (
	"context"
	"net/http"

	"hansard"
	"hansard/internal/wire"
)

var _ hansard.Pruner = (*Store)(nil)

// Prune implements [hansard.Pruner]. If a response was lost and the request sent again, the
// work is done, but the report lacks what the lost response said.
func (s *Store) Prune(ctx context.Context, scrub bool) (done hansard.Pruned, err error) {
	leave, err := s.enter(ctx, nil)
	if err != nil {
		return done, err
	}
	defer leave()
	body := wire.Marshal(struct {
		Scrub bool `json:"scrub"`
	}{scrub})
	uncertain, err := s.answer(ctx, &request{method: http.MethodPost, path: "/v1/prune", body: body}, &done)
	if err != nil {
		return done, s.older(open(uncertain, err))
	}
	return done, nil
}
