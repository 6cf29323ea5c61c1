package filestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"hansard"
)

// The turn is decided where appends are: under write.lock, on the state that the
// lines before leave behind, and it is lines itself. So a grant and the writes it
// allows or keeps out have one order, the same for everybody and after any crash.

// turnState is a session's turn as its newest line about it tells.
type turnState struct {
	last     hansard.Grant // the newest grant, held or not; empty: there was none
	held     *hansard.Turn // nil when nobody holds it
	instance string        // of the process that keeps it alive
}

// endedWidth is more than a line takes that ends a dead holder's turn.
const endedWidth = 512

// turnAt is where the newest line about the turn begins, seen from a line that
// begins at the offset at.
func (l *line) turnAt(at int64) int64 {
	if l.Kind == hansard.KindTurn && l.Seq > 0 {
		return at
	}
	return l.TurnAt
}

// turnState is what a line about the turn leaves behind.
func (l *line) turnState() (*turnState, error) {
	e := l.event()
	var r hansard.TurnRecord
	if l.Kind != hansard.KindTurn {
		return nil, lineError("the line is not about the turn, though a later one says so")
	}
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return nil, lineError("the line is no record of a turn: " + err.Error())
	}
	return stateAfter(&r, e.Turn, e.Seq, e.Time), nil
}

func stateAfter(r *hansard.TurnRecord, g hansard.Grant, seq hansard.Seq, at time.Time) *turnState {
	t := &turnState{last: g}
	if !r.Ends() {
		turn := r.Turn(g, seq, at)
		t.held, t.instance = &turn, r.Instance
	}
	return t
}

// turn is the session's turn, the lines drafted before included.
func (p *plan) turn(sess *session) (*turnState, error) {
	if sess.turn == nil && (!sess.exists || sess.turnAt == 0) {
		sess.turn = &turnState{}
	}
	if sess.turn == nil {
		l, err := p.store.lineAt(sess, sess.turnAt)
		if err != nil {
			return nil, err
		}
		if sess.turn, err = l.turnState(); err != nil {
			return nil, damagedAt(sess.id, sess.turnAt, "%v", err)
		}
	}
	return sess.turn, nil
}

// turnLine drafts a line about the turn.
func (p *plan) turnLine(sess *session, r *hansard.TurnRecord, g hansard.Grant) {
	e := r.Event()
	at := sess.end
	p.line(sess, &stamp{turn: g}, encodeBody(nil, &e, "", ""))
	sess.turnAt, sess.turn = at, stateAfter(r, g, sess.seq, p.now)
}

// turnEnds drafts the end of a turn whose holder was found gone by somebody who
// wants to write: nobody is locked out by a corpse, nor by one who is silent.
func (p *plan) turnEnds(sess *session, why string) {
	p.turnLine(sess, &hansard.TurnRecord{Change: hansard.TurnEnded, Why: why}, sess.turn.held.Grant)
}

// fence decides whether a write gets past the turn. gone is why an exclusive turn
// that would keep it out has to end first.
func (p *plan) fence(sess *session, r *request) (gone string, err error) {
	t, err := p.turn(sess)
	if err != nil {
		return "", err
	}
	switch {
	case p.store.planted(plantNoFence):
		return "", nil
	case p.store.planted(plantFenceByNumber) && t.held != nil && r.turn.Number() >= t.held.Grant.Number():
		return "", nil
	}
	err = hansard.Fence(r.id, t.held, r.turn, r.inbox)
	var held *hansard.HeldError
	if !errors.As(err, &held) {
		return "", err
	}
	seen, err := p.store.look(sess.name, t)
	switch {
	case err != nil:
		return "", err
	case seen.state != holderLives:
		return seen.state, nil
	}
	held.Turn.Renewed = seen.renewed
	return "", held
}

// acquire grants the turn, if it is free, its holder is gone, or it is stolen.
func (p *plan) acquire(sess *session, r *request) error {
	if err := sess.writable(); err != nil {
		return err
	}
	t, err := p.turn(sess)
	if err != nil {
		return err
	}
	var from hansard.Grant
	why := ""
	switch {
	case t.held == nil:
	case r.claim.Steal != "":
		from, why = t.held.Grant, hansard.TurnStolen
	default:
		seen, err := p.store.look(sess.name, t)
		if err != nil {
			return err
		}
		if seen.state == holderLives {
			held := *t.held
			held.Renewed = seen.renewed
			return &hansard.HeldError{Session: r.id, Turn: held}
		}
		from, why = t.held.Grant, seen.state
	}
	if err := p.store.inst.renew(p.store.fs); err != nil {
		return fmt.Errorf("acquire the turn: %w", err)
	}
	record := hansard.NewTurnRecord(r.claim, from, why)
	record.Instance = p.store.inst.base()
	g := hansard.NextGrant(t.last, p.store.cfg.random())
	granted := record.Turn(g, sess.seq+1, p.now)
	if !p.store.planted(plantLeaseLate) {
		if err := p.store.keepAlive(sess.name, &granted, 0); err != nil {
			return fmt.Errorf("acquire the turn: %w", err)
		}
	}
	p.turnLine(sess, &record, g)
	granted.Renewed = p.now
	r.granted, r.dep = granted, restsOnGroup
	if p.store.planted(plantGrantEarly) {
		r.dep = 0
	}
	return nil
}

// holding is the session's turn, if the request's grant is the one that is held.
func (p *plan) holding(sess *session, r *request) (*turnState, error) {
	if err := sess.writable(); err != nil {
		return nil, err
	}
	t, err := p.turn(sess)
	if err != nil {
		return nil, err
	}
	return t, hansard.Fence(r.id, t.held, r.turn, false)
}

// renew has this process keep a grant alive that another one kept alive so far.
func (p *plan) renew(sess *session, r *request) error {
	t, err := p.holding(sess, r)
	if err != nil {
		return err
	}
	if err := p.store.inst.renew(p.store.fs); err != nil {
		return err
	}
	if ours := t.instance == p.store.inst.base(); ours {
		if ok, err := p.store.renewOwn(sess.name, r.id, r.turn); ok {
			return err
		}
		if maxHold := t.held.MaxHold; maxHold > 0 {
			return overdueError(r.id, r.turn, maxHold) // else it would not have been forgotten
		}
		return p.store.keepAlive(sess.name, t.held, 0) // it was given up, and nobody took it
	}
	seen, err := p.store.look(sess.name, t)
	if err != nil {
		return err
	}
	if maxHold := t.held.MaxHold; seen.state == holderOverdue || maxHold > 0 && seen.held >= maxHold {
		return overdueError(r.id, r.turn, maxHold)
	}
	if err := p.store.keepAlive(sess.name, t.held, seen.held); err != nil {
		return err
	}
	h := t.held
	p.turnLine(sess, &hansard.TurnRecord{Change: hansard.TurnMoved, Holder: h.Holder, TTL: h.TTL.Milliseconds(),
		MaxHold: h.MaxHold.Milliseconds(), Exclusive: h.Exclusive, Remote: h.Remote, Reason: h.Reason, Instance: p.store.inst.base(),
		Granted: h.Seq, Since: h.Since}, h.Grant)
	r.dep = restsOnGroup
	return nil
}

// release gives up exactly one grant.
func (p *plan) release(sess *session, r *request) error {
	t, err := p.holding(sess, r)
	if err != nil || r.ifKept && t.instance != p.store.inst.base() {
		return err
	}
	p.turnLine(sess, &hansard.TurnRecord{Change: hansard.TurnReleased}, r.turn)
	r.dep = restsOnGroup
	return nil
}
