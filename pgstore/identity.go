package pgstore

import (
	"context"

	"hansard"
)

var _ hansard.Identified = (*Store)(nil)

// Identity implements [hansard.Identified]: the one row that the migration made.
func (s *Store) Identity(ctx context.Context) (id string, err error) {
	if err := s.begin(ctx, "identity"); err != nil {
		return "", err
	}
	defer s.work.Done()
	err = s.look(ctx, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, "SELECT id FROM hansard_identity").Scan(&id)
	})
	return "pg-" + id, err
}
