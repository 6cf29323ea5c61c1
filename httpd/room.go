package httpd

import (
	"context"

	"hansard"
)

// How large an event is, the server knows only once it has read it. So a token may have only so
// many reads under way whose events are not charged to the memory yet, and only so many that
// wait for room with an event they have read: without that, many requests at once for one large
// event would take many times its size.

// room is memory for an answer that is read from the store.
type room struct {
	*load
	account *account // nil: nobody's, and nothing limits it
	reading bool
	closing context.Context
}

func (s *Server) room(ctx context.Context) *room {
	who := callerOf(ctx)
	return &room{load: s.memory.load(who.Name), account: who.account, closing: s.closing}
}

// read begins to read, or goes on. It waits until fewer of the token's requests do.
func (r *room) read(ctx context.Context) error {
	if r.account == nil || r.reading {
		return nil
	}
	select {
	case r.account.reading <- struct{}{}:
		r.reading = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.closing.Done():
		return hansard.ErrClosed
	}
}

// rest ends the reading, or interrupts it: what is in memory is charged by now, or small.
func (r *room) rest() {
	if r.reading {
		<-r.account.reading
		r.reading = false
	}
}

// fit is [load.fit] for what has been read.
func (r *room) fit(ctx context.Context, first bool, size int) (bool, error) {
	fits := r.tryGrow(int64(size))
	if fits || !first {
		return fits, nil
	}
	return true, r.wait(ctx, int64(size))
}

// wait charges for what has been read, and waits for room.
func (r *room) wait(ctx context.Context, size int64) error {
	was := r.reading
	r.rest() // others need not wait, too
	if r.account != nil {
		select {
		case r.account.waiting <- struct{}{}:
			defer func() { <-r.account.waiting }()
		default:
			return noRoom()
		}
	}
	err := r.grow(ctx, size)
	if err == nil && was {
		err = r.read(ctx)
	}
	return err
}

func (r *room) free() {
	r.rest()
	r.load.free()
}
