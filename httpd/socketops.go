package httpd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"hansard"
	"hansard/internal/wire"
)

// id is the session of a message.
func (q *request) id() (hansard.SessionID, error) {
	id := hansard.SessionID(q.session)
	return id, hansard.CheckID(id)
}

// follow begins to send the events of a session. If it is already followed, it restarts
// at the new seq.
func (k *socket) follow(q *request) error {
	id, err := q.id()
	if err != nil {
		return err
	}
	as, ok := parseView(q.view)
	if !ok {
		return &hansard.InvalidError{Field: "view", Reason: "there is no such view; parts is one"}
	}
	info, err := k.server.store.Stat(k.ctx, id)
	if err != nil {
		return err
	}
	if !q.created.IsZero() && !q.created.Equal(info.Created) {
		return replaced(id)
	}
	if info.Damage != nil && q.after >= info.Damage.SafeSeq {
		return info.Damage
	}
	k.stop(id)
	ctx, cancel := k.server.door.follow(k.ctx, id, info.LastSeq)
	f := &following{cancel: cancel, last: q.after, done: make(chan struct{})}
	k.mu.Lock()
	if len(k.follows) >= maxFollows {
		k.mu.Unlock()
		cancel()
		return wire.NewProblem("overloaded", fmt.Sprintf("one connection follows at most %d sessions", maxFollows), "open another one")
	}
	if err := k.caller.account.take(aFollowing); err != nil {
		k.mu.Unlock()
		cancel()
		return err
	}
	k.follows[id] = f
	k.mu.Unlock()
	// The answer is sent before the first event.
	err = k.reply("following", q.ref, "session", slices.Concat(wire.Marshal(id), []byte(`,"last_seq":`), number(info.LastSeq), []byte(`,"created":`), wire.Marshal(info.Created)))
	k.work.Go(func() {
		defer k.caller.account.give(aFollowing)
		defer close(f.done)
		k.pass(ctx, followed{id, as, generation(&info)}, f)
	})
	return err
}

func number(seq hansard.Seq) []byte { return strconv.AppendUint(nil, uint64(seq), 10) }

// stop ends the following of a session, if there is one.
func (k *socket) stop(id hansard.SessionID) bool {
	k.mu.Lock()
	f := k.follows[id]
	delete(k.follows, id)
	k.mu.Unlock()
	if f == nil {
		return false
	}
	f.cancel()
	<-f.done
	return true
}

func (k *socket) unfollow(q *request) error {
	id, err := q.id()
	if err != nil {
		return err
	}
	if !k.stop(id) {
		return &hansard.InvalidError{Field: "session", Reason: "it is not followed"}
	}
	return k.reply("unfollowed", q.ref, "", nil)
}

// pass sends the events of a session until it is stopped.
func (k *socket) pass(ctx context.Context, what followed, f *following) {
	p, leave := k.server.hub.join(what)
	defer leave()
	id := what.id
	head := append([]byte(`{"op":"events","session":`), wire.Marshal(id)...)
	head = append(head, `,"events":[`...)
	for {
		frames, free, err := k.server.hub.next(ctx, p, f.last)
		if err != nil {
			if p := ended(ctx); p != nil && k.ctx.Err() == nil {
				k.ended(id, f, p)
			} else if ctx.Err() == nil && !errors.Is(err, hansard.ErrClosed) {
				k.ended(id, f, err)
			}
			return
		}
		err = k.events(ctx, f, head, frames)
		free()
		if err != nil {
			if p := ended(ctx); p != nil && k.ctx.Err() == nil {
				k.ended(id, f, p) // it ended while the events waited to be sent
			}
			return
		}
	}
}

func (k *socket) events(ctx context.Context, f *following, head []byte, frames []frame) error {
	// Wait for the slot without holding the pen, so that the client's requests are answered.
	done, err := k.server.hub.service.begin(ctx)
	if err != nil {
		return err
	}
	if err := k.takePen(); err != nil {
		done(0)
		return err
	}
	defer k.givePen()
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	size := len(head) + len(frames) + 1 // with the commas and the end
	for _, e := range frames {
		size += len(e.line)
	}
	defer done(size)
	k.mu.Lock()
	f.last = frames[len(frames)-1].seq
	k.mu.Unlock()
	return k.sendBy(size, func(send func([]byte) error) error {
		message := &gathered{buf: append((*buf)[:0], head...), send: send}
		defer func() { *buf = message.buf }()
		for i, e := range frames {
			if i > 0 {
				message.buf = append(message.buf, ',')
			}
			if err := message.add(e.line); err != nil {
				return err
			}
		}
		message.buf = append(message.buf, ']', '}')
		return message.flush()
	})
}

// ended tells the client that there will be no more events of a session, and why.
func (k *socket) ended(id hansard.SessionID, f *following, err error) {
	k.mu.Lock()
	if k.follows[id] == f {
		delete(k.follows, id)
	}
	k.mu.Unlock()
	out := append([]byte(`{"op":"ended","session":`), wire.Marshal(id)...)
	out = append(append(out, `,"last":`...), number(f.last)...)
	out = append(append(out, `,"problem":`...), wire.Marshal(k.server.told(k.r, err))...)
	_ = k.write(append(out, '}')) // the connection is gone if it failed
}

// append stores a batch. The next message is handled after it is stored, so that the log
// has the connection's order.
func (k *socket) append(q *request) error {
	if q.batch == nil {
		return &hansard.InvalidError{Field: "batch", Reason: "it is missing"}
	}
	b, err := wire.ParseBatch(q.batch)
	if err != nil {
		return err
	}
	receipt, err := k.server.append(context.WithoutCancel(k.ctx), hansard.SessionID(q.session), b)
	if err != nil {
		return err
	}
	return k.reply("stored", q.ref, "receipt", wire.Marshal(receipt))
}

// acquire takes a turn, which may take long, and keeps it.
func (k *socket) acquire(q *request) error {
	id, err := q.id()
	if err != nil {
		return err
	}
	var given wire.Claim
	if q.claim != nil {
		if err := decodeJSON(q.claim, &given); err != nil {
			return err
		}
	}
	if given.Name != "" {
		return &hansard.InvalidError{Field: "claim.claim", Reason: "on a WebSocket a claim has no name: it ends with the connection"}
	}
	c, err := given.Parse()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting >= maxWaiting || len(k.leases) >= maxHeld {
		return wire.NewProblem("overloaded", fmt.Sprintf("one connection holds at most %d turns", maxHeld), "open another one")
	}
	if err := k.caller.account.take(aTurn); err != nil {
		return err
	}
	k.waiting++
	k.work.Go(func() {
		defer k.caller.account.give(aTurn)
		t, err := k.server.acquire(k.ctx, id, c)
		k.mu.Lock()
		k.waiting--
		k.mu.Unlock()
		switch {
		case err == nil && k.ctx.Err() != nil:
			k.server.giveBack(k.ctx, id, t.Grant)
		case err == nil:
			k.keep(id, t, q.ref)
		case k.ctx.Err() == nil:
			_ = k.refuse(q.ref, err) // the connection is gone if it failed
		}
	})
	return nil
}

// keep answers with a turn and renews it while the connection lasts.
func (k *socket) keep(id hansard.SessionID, t hansard.Turn, ref []byte) {
	ctx, leave := context.WithCancel(k.ctx)
	defer leave()
	lease := &holding{hansard.Keep(ctx, k.server.store, id, t), leave}
	// While it is kept here only the withdrawal of the token ends it; after that its
	// TTL applies.
	if !k.caller.user.keep(id, t.Grant, 0) {
		k.server.giveBack(k.ctx, id, t.Grant)
		return
	}
	k.mu.Lock()
	old := k.leases[t.Grant]
	k.leases[t.Grant] = lease
	k.mu.Unlock()
	if old != nil {
		old.leave() // this one continues with it
	}
	if k.reply("turn", ref, "turn", wire.Marshal(t)) == nil {
		<-lease.Context().Done()
	}
	k.mu.Lock()
	mine := k.leases[t.Grant] == lease
	if mine {
		delete(k.leases, t.Grant)
	}
	k.mu.Unlock()
	if mine {
		k.caller.user.keep(id, t.Grant, t.TTL)
	}
	if !mine || k.ctx.Err() != nil {
		return // released, held again by a later message, or the connection is gone
	}
	out := append([]byte(`{"op":"lost","session":`), wire.Marshal(id)...)
	out = append(append(out, `,"grant":`...), wire.Marshal(t.Grant)...)
	out = append(append(out, `,"problem":`...), wire.Marshal(k.server.told(k.r, context.Cause(lease.Context())))...)
	_ = k.write(append(out, '}'))
}

// hold takes over a turn that another connection acquired.
func (k *socket) hold(q *request) error {
	id, err := q.id()
	if err != nil {
		return err
	}
	if err := k.server.store.Renew(k.ctx, id, q.grant); err != nil {
		k.server.metrics.turnError(err)
		return err
	}
	t, err := k.server.store.Turn(k.ctx, id)
	if err != nil {
		return err
	}
	if t == nil || t.Grant != q.grant {
		return &hansard.FencedError{Session: id, Grant: q.grant, Current: t}
	}
	if err := k.caller.account.take(aTurn); err != nil {
		return err
	}
	ref := q.ref
	k.work.Go(func() {
		defer k.caller.account.give(aTurn)
		k.keep(id, *t, ref)
	})
	return nil
}

func (k *socket) release(q *request) error {
	id, err := q.id()
	if err != nil {
		return err
	}
	k.mu.Lock()
	lease := k.leases[q.grant]
	delete(k.leases, q.grant)
	k.mu.Unlock()
	if lease != nil {
		err = lease.Release()
		k.caller.user.drop(q.grant)
	} else {
		err = k.server.release(context.WithoutCancel(k.ctx), id, q.grant)
	}
	if err != nil {
		k.server.metrics.turnError(err)
		return err
	}
	return k.reply("released", q.ref, "", nil)
}
