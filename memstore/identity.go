package memstore

import (
	"context"

	"hansard"
)

var _ hansard.Identified = (*Store)(nil)

// Identity implements [hansard.Identified].
func (s *Store) Identity(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", hansard.ErrClosed
	}
	return s.identity, nil
}
