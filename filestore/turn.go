package filestore

import (
	"context"

	"hansard"
)

// Acquire implements [hansard.Store].
func (s *Store) Acquire(context.Context, hansard.SessionID, hansard.Claim) (hansard.Turn, error) {
	return hansard.Turn{}, hansard.ErrUnsupported
}

// Renew implements [hansard.Store].
func (s *Store) Renew(context.Context, hansard.SessionID, hansard.Grant) error {
	return hansard.ErrUnsupported
}

// Release implements [hansard.Store].
func (s *Store) Release(context.Context, hansard.SessionID, hansard.Grant) error {
	return hansard.ErrUnsupported
}

// Turn implements [hansard.Store].
func (s *Store) Turn(context.Context, hansard.SessionID) (*hansard.Turn, error) {
	return nil, hansard.ErrUnsupported
}
