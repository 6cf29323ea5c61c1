package hansard

import "context"

// Lender is implemented by stores that can show events in memory of their own: reading a
// long session this way takes no memory for its events. A server that passes events on
// reads this way.
type Lender interface {
	// Lend calls show with the events of a range, in the order and number in which
	// [Store.Read] yields them, until show returns false. It returns the error with
	// which Read ends, after the same events, and nil if show returned false.
	//
	// An event is lent: neither it nor anything it points to may be kept or changed
	// after show has returned. show may call the store.
	Lend(ctx context.Context, id SessionID, r Range, show func(*Event) bool) error
}

// Lend shows the events of a range with [Lender] if the store is one, else by reading them.
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
