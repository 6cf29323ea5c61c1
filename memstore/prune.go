package memstore

import (
	"cmp"
	"context"
	"slices"

	"hansard"
)

var _ hansard.Pruner = (*Store)(nil)

// Prune implements [hansard.Pruner]: it frees the events of deleted sessions. There is
// nothing to scrub.
func (s *Store) Prune(ctx context.Context, _ bool) (done hansard.Pruned, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, "any"); err != nil {
		return done, err
	}
	for id, ses := range s.sessions {
		if ses.deleted && ses.events != nil {
			ses.events = nil
			done.Erased = append(done.Erased, hansard.ErasedSession{Session: id})
		}
	}
	slices.SortFunc(done.Erased, func(a, b hansard.ErasedSession) int { return cmp.Compare(a.Session, b.Session) })
	return done, nil
}
