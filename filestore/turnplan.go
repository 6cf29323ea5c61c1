package filestore

import (
	"errors"
	"fmt"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
)

// The turn is decided where appends are: under write.lock, on the state after the lines
// so far, including drafted ones of the same group. And it consists of lines of the log
// itself. So a grant and the writes that it allows or refuses have one order, the same
// for every process and after any crash. A check before the commit would leave a gap in
// which the turn is taken over (FenceInLock; failure 20).
//
//	change      line carries        written by
//	granted     the new grant       acquire, the turn was free
//	taken       the new grant       acquire, the holder was dead, silent or overdue
//	stolen      the new grant       acquire with Steal
//	moved       the same grant      renew, through another process
//	released    the grant that ends release
//	ended       the grant that ends turnEnds, before the lines of a writer it kept out
//
// An example of a grant is 7-9f86d081884c7d65: a number that grows by one with each grant
// of the session, and 64 random bits. Grants are compared for equality, never by number:
// a log restored from a backup assigns the same number twice (FenceEquality; planted bug
// "grants compared by number").

// endedWidth is an upper bound of a line that ends a dead holder's turn, without the name
// of the writer. Requests add it to their size before it is known whether such a line is
// needed.
const endedWidth = 512

// byWidth is an upper bound of what a name takes in a line about the turn: it occurs
// twice, in the record and in the line, each byte escaped as \u00xx at worst.
func byWidth(size int) int { return 2 * (len(`,"by":""`) + 6*size) }

// turn is the session's turn, including the lines drafted so far. It reads at most one
// line, the newest about the turn, and keeps the result in sess until an entry changes
// it.
func (p *plan) turn(sess *session) (*sessionlog.TurnState, error) {
	if sess.turn == nil && (!sess.exists || sess.turnAt == 0) {
		sess.turn = &sessionlog.TurnState{}
	}
	if sess.turn == nil {
		l, err := p.store.logs.lineAt(sess, sess.turnAt)
		if err != nil {
			return nil, err
		}
		if sess.turn, err = l.TurnState(); err != nil {
			return nil, sessionlog.DamagedAt(sess.id, sess.turnAt, "%v", err)
		}
	}
	return sess.turn, nil
}

// turnLine drafts a line about the turn, with the grant it is about, and updates the
// state: later requests of the group are decided on that.
func (p *plan) turnLine(sess *session, r *hansard.TurnRecord, g hansard.Grant) {
	e := r.Event()
	at := sess.end
	p.line(sess, &sessionlog.Stamp{Turn: g}, sessionlog.EncodeBody(nil, &e, "", ""))
	sess.turnAt, sess.turn = at, sessionlog.StateAfter(r, g, sess.seq, p.now)
}

// turnEnds drafts the end of a turn whose holder is gone, before the lines of a writer
// that the turn would refuse: a dead or silent holder never blocks writers (T8). The line
// is needed: without it the writer's lines would be inside an exclusive turn (T4), and a
// silent holder that wakes up could still write (TestTurnExclusiveEnds).
func (p *plan) turnEnds(sess *session, why, by string) {
	p.turnLine(sess, &hansard.TurnRecord{Change: hansard.TurnEnded, Why: why, By: by}, sess.turn.Held.Grant)
}

// fence decides whether the turn allows a write. Nil and an empty gone: it does.
// FencedError: the write names a grant that is not the current one, so its holder lost
// the turn (failures 8 and 20). HeldError: an exclusive turn refuses it. gone is why an
// exclusive turn that would refuse it has to end first (turnEnds). If the holder can't be
// checked that is an error: it never counts as gone.
func (p *plan) fence(sess *session, r *request) (gone string, err error) {
	t, err := p.turn(sess)
	if err != nil {
		return "", err
	}
	err = engine.Fence(r.id, t.Held, r.turn, r.inbox)
	if err == nil {
		return "", nil
	}
	var held *hansard.HeldError
	if !errors.As(err, &held) {
		return "", err
	}
	// Only a write that would be refused pays for reading the holder's instance file.
	seen, err := p.store.leases.Look(sess.name, t.Held, t.Instance)
	switch {
	case err != nil:
		return "", err
	case seen.State != peers.HolderLives:
		return seen.State, nil
	}
	held.Turn.Renewed = seen.Renewed
	return "", held
}

// acquire grants the turn if it is free, its holder is gone, or it is stolen; else
// HeldError. The holder is checked here, under write.lock, not only before the commit: it
// may have renewed since, and of several claimants exactly one may find it gone.
//
// If the write to the ring fails afterwards, there is a lease without a grant in the log,
// which nobody asks for; claim gives it up.
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
	case t.Held == nil:
	case r.claim.Steal != "":
		from, why = t.Held.Grant, hansard.TurnStolen
	default:
		seen, err := p.store.leases.Look(sess.name, t.Held, t.Instance)
		if err != nil {
			return err
		}
		if seen.State == peers.HolderLives {
			held := *t.Held
			held.Renewed = seen.Renewed
			return &hansard.HeldError{Session: r.id, Turn: held}
		}
		from, why = t.Held.Grant, seen.State
	}
	// If our instance file was removed, others would take the new holder for dead the
	// moment they see the grant (TestTurnInstanceRemoved).
	if err := p.store.inst.Renew(p.store.fs); err != nil {
		return fmt.Errorf("acquire the turn: %w", err)
	}
	record := engine.NewTurnRecord(r.claim, from, why)
	record.Instance = p.store.inst.Base()
	g := engine.NextGrant(t.Last, p.store.cfg.random())
	granted := record.Turn(g, sess.seq+1, p.now)
	// The lease before the line. The other way round there is a moment in which the grant
	// is in the ring and its nonce in no table, so that it looks given up (failure 3;
	// planted bug "lease after its grant").
	if err := p.store.leases.KeepAlive(sess.name, &granted, 0); err != nil {
		return fmt.Errorf("acquire the turn: %w", err)
	}
	p.turnLine(sess, &record, g)
	granted.Renewed = p.now
	// The claimant is answered only when the grant is durable: a power cut could undo it
	// and give the same turn to another (planted bug "grant before durable").
	r.granted, r.dep = granted, restsOnGroup
	return nil
}

// holding is the session's turn, if the request's grant is the one that is held; else
// FencedError, or why the session takes no writes.
func (p *plan) holding(sess *session, r *request) (*sessionlog.TurnState, error) {
	if err := sess.writable(); err != nil {
		return nil, err
	}
	t, err := p.turn(sess)
	if err != nil {
		return nil, err
	}
	return t, engine.Fence(r.id, t.Held, r.turn, false)
}

// renew moves a grant to this process, which keeps it alive from now on: a line `moved`
// names our instance file. It does not matter whether the holder was silent in between,
// as long as nobody took the turn: it is the current grant, and its holder is alive.
//
// MaxHold keeps counting across the move, from the time that the other process noted
// last. A turn that was held for its whole MaxHold is not renewed anywhere (failure 8).
func (p *plan) renew(sess *session, r *request) error {
	t, err := p.holding(sess, r)
	if err != nil {
		return err
	}
	if err := p.store.inst.Renew(p.store.fs); err != nil {
		return err
	}
	// According to the log we keep it: it has moved here by now, or our lease was
	// dropped.
	if ours := t.Instance == p.store.inst.Base(); ours {
		if ok, err := p.store.leases.RenewOwn(sess.name, r.id, r.turn); ok {
			return err
		}
		if maxHold := t.Held.MaxHold; maxHold > 0 {
			// A lease with MaxHold is dropped only when that has expired; restarting it
			// would grant the time a second time (TestTurnMaxHoldRemembered).
			return peers.OverdueError(r.id, r.turn, maxHold)
		}
		return p.store.leases.KeepAlive(sess.name, t.Held, 0) // it was given up, and nobody took it
	}
	seen, err := p.store.leases.Look(sess.name, t.Held, t.Instance)
	if err != nil {
		return err
	}
	if maxHold := t.Held.MaxHold; seen.State == peers.HolderOverdue || maxHold > 0 && seen.Held >= maxHold {
		return peers.OverdueError(r.id, r.turn, maxHold)
	}
	// As in acquire: the lease before the line that makes others look for it here.
	if err := p.store.leases.KeepAlive(sess.name, t.Held, seen.Held); err != nil {
		return err
	}
	h := t.Held
	p.turnLine(sess, &hansard.TurnRecord{Change: hansard.TurnMoved, Holder: h.Holder, TTL: h.TTL.Milliseconds(),
		MaxHold: h.MaxHold.Milliseconds(), Exclusive: h.Exclusive, Remote: h.Remote, Reason: h.Reason, By: h.By, Instance: p.store.inst.Base(),
		Granted: h.Seq, Since: h.Since}, h.Grant)
	r.dep = restsOnGroup
	return nil
}

// release drafts the release of exactly one grant, if it is the current one; else
// FencedError and nothing happens. With ifKept a grant that another process keeps by now
// is left alone.
func (p *plan) release(sess *session, r *request) error {
	t, err := p.holding(sess, r)
	if err != nil || r.ifKept && t.Instance != p.store.inst.Base() {
		return err
	}
	p.turnLine(sess, &hansard.TurnRecord{Change: hansard.TurnReleased, By: t.Held.By}, r.turn)
	r.dep = restsOnGroup
	return nil
}
