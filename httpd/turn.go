package httpd

import (
	"context"
	"errors"
	"net/http"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// acquireTurn takes the turn. It waits for it as long as the client asks and stays
// connected: its place in the queue lasts as long as its connection.
func (s *Server) acquireTurn(w http.ResponseWriter, r *http.Request) error {
	var given wire.Claim
	if err := s.decode(w, r, &given); err != nil {
		return err
	}
	if keys := r.Header.Values(wire.KeyHeader); len(keys) > 0 {
		key, err := wire.ParseKey(keys)
		if err == nil && given.Name != "" && given.Name != key {
			err = &hansard.InvalidError{Field: wire.KeyHeader, Reason: "it is another name than that of the claim"}
		}
		if err != nil {
			return err
		}
		given.Name = key
	}
	c, err := given.Parse()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if c.Wait > 0 {
		s.followers.Go(func() { whileThere(ctx, r, cancel) })
	}
	id := sessionID(r)
	var t hansard.Turn
	var named *claimed
	if given.Name == "" {
		t, err = s.acquire(ctx, id, c)
	} else {
		named, t, err = s.acquireNamed(ctx, claimName{string(id), given.Name}, c)
	}
	if err != nil {
		switch {
		case r.Context().Err() != nil || ctx.Err() == nil:
			return err
		case s.closing.Err() != nil:
			return hansard.ErrClosed
		}
		return errors.Join(context.Canceled, err) // the client is gone
	}
	told := r.Context().Err() == nil && !peerGone(r) && writeJSON(w, http.StatusCreated, t) == nil
	switch {
	case told && named != nil:
		callerOf(ctx).account.claims.answered(named)
	case named != nil:
		s.unanswered(ctx, named)
	case !told:
		// Nobody knows of the grant: let the next claimant have the turn.
		s.giveBack(ctx, id, t.Grant)
	}
	if !told {
		return context.Canceled
	}
	return nil
}

func (s *Server) acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	began := time.Now()
	t, err := s.store.Acquire(ctx, id, c)
	s.metrics.acquire(time.Since(began), err)
	if err == nil && !callerOf(ctx).user.keep(id, t.Grant, t.TTL) {
		s.giveBack(ctx, id, t.Grant)
		return hansard.Turn{}, errTokenGone
	}
	return t, err
}

// giveBack releases a grant that its holder will never use.
func (s *Server) giveBack(ctx context.Context, id hansard.SessionID, g hansard.Grant) {
	s.door.giveBack(ctx, id, g)
	if u := callerOf(ctx).user; u != nil {
		u.drop(g)
	}
}

// release gives up a grant of the caller.
func (s *Server) release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	err := s.store.Release(ctx, id, g)
	if err == nil || errors.Is(err, hansard.ErrFenced) {
		callerOf(ctx).user.drop(g)
	}
	return err
}

// named is what a request names: a grant, or a claim.
type named struct {
	Grant hansard.Grant `json:"grant"`
	Claim string        `json:"claim"`
}

// grantOf reads the grant or claim that a request is about, from its body or its query.
func (s *Server) grantOf(w http.ResponseWriter, r *http.Request) (n named, err error) {
	p := paramsOf(r, "grant")
	n.Grant = hansard.Grant(p.text("grant"))
	if p.err != nil || p.has("grant") {
		return n, p.err
	}
	err = s.decode(w, r, &n)
	return n, err
}

func (s *Server) renewTurn(w http.ResponseWriter, r *http.Request) error {
	n, err := s.grantOf(w, r)
	if err != nil {
		return err
	}
	if err := s.store.Renew(writing(r), sessionID(r), n.Grant); err != nil {
		s.metrics.turnError(err)
		return err
	}
	// It is renewed, even if describing it then fails. If another grant is current by
	// then, that one is not shown.
	t, _ := s.store.Turn(r.Context(), sessionID(r))
	if t != nil && t.Grant != n.Grant {
		t = nil
	}
	if t != nil {
		callerOf(r.Context()).user.keep(sessionID(r), t.Grant, t.TTL)
	}
	return answerTurn(w, t)
}

func (s *Server) releaseTurn(w http.ResponseWriter, r *http.Request) error {
	n, err := s.grantOf(w, r)
	if err != nil {
		return err
	}
	if n.Claim != "" && n.Grant == "" {
		if err := s.withdraw(writing(r), claimName{string(sessionID(r)), n.Claim}); err != nil {
			return err
		}
		return s.answerHolder(w, r)
	}
	if err := s.release(writing(r), sessionID(r), n.Grant); err != nil {
		s.metrics.turnError(err)
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) getTurn(w http.ResponseWriter, r *http.Request) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	t, err := s.store.Turn(r.Context(), sessionID(r))
	if err != nil {
		return err
	}
	return answerTurn(w, t)
}

// answerHolder tells a client that gave up a claim who has the turn, without the grant; a
// client that may not read learns nothing.
func (s *Server) answerHolder(w http.ResponseWriter, r *http.Request) error {
	if !callerOf(r.Context()).Rights.allows(Read) {
		return answerTurn(w, nil)
	}
	t, err := s.store.Turn(r.Context(), sessionID(r))
	if err != nil {
		return err
	}
	if t != nil {
		t.Grant = ""
	}
	return answerTurn(w, t)
}

func answerTurn(w http.ResponseWriter, t *hansard.Turn) error {
	return writeJSON(w, http.StatusOK, struct {
		Turn *hansard.Turn `json:"turn"` // null when it is free
	}{t})
}
