package hansard

import "context"

// Lender is implemented by stores that can show events without giving them away: reading a
// long session so takes no memory for its events. A server that passes events on reads
// this way.
type Lender interface {
	// Lend calls show with the events of a range, in the order and number in which
	// [Store.Read] yields them, until show returns false. It returns the error with
	// which Read ends, after the same events, and nil if show had enough.
	//
	// An event is lent: neither it nor anything it points to may be kept or changed
	// when show has returned. show may call the store.
	Lend(ctx context.Context, id SessionID, r Range, show func(*Event) bool) error
}

// Lend shows the events of a range by [Lender], or by reading them.
func Lend(ctx context.Context, s Store, id SessionID, r Range, show func(*Event) bool) error {
	if l, ok := s.(Lender); ok {
		return l.Lend(ctx, id, r, show)
	}
	for e, err := range s.Read(ctx, id, r) {
		if err != nil {
			return err
		}
		if !show(&e) {
			return nil
		}
	}
	return nil
}
