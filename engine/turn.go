package engine

import (
	"fmt"
	"time"

	"hansard"
)

// NewTurnRecord is the record of a grant for a claim. It supersedes the grant from,
// which is empty if the turn was free.
func NewTurnRecord(c *hansard.Claim, from hansard.Grant, why string) hansard.TurnRecord {
	me := hansard.Me(c.Label)
	if c.Remote {
		me.PID = 0 // this process's pid would be taken for the holder's
	}
	r := hansard.TurnRecord{Change: hansard.TurnGranted, Holder: me, TTL: c.TTL.Milliseconds(), MaxHold: c.MaxHold.Milliseconds(),
		Exclusive: c.Exclusive, Remote: c.Remote, From: from, By: c.By}
	switch {
	case from == "": // a claim that would have stolen the turn found it free
	case why == hansard.TurnStolen:
		r.Change, r.Why, r.Reason = hansard.TurnStolen, why, c.Steal
	default:
		r.Change, r.Why = hansard.TurnTaken, why
	}
	return r
}

// NextGrant is the grant that follows prev, the last one of the session or empty.
// The nonce is random, so the pair never repeats, whatever was restored or cloned.
func NextGrant(prev hansard.Grant, nonce uint64) hansard.Grant {
	return hansard.Grant(fmt.Sprintf("%d-%016x", prev.Number()+1, nonce))
}

// CheckClaim checks that a store may accept a claim, and fills in its defaults.
func CheckClaim(c *hansard.Claim) error {
	if c.TTL == 0 {
		c.TTL = hansard.DefaultTTL
	}
	switch {
	case c.Wait < 0:
		return invalid("wait", "%v is negative", c.Wait)
	case c.TTL < hansard.MinTTL || c.TTL > hansard.MaxTTL:
		return invalid("ttl", "%v is not between %v and %v", c.TTL, hansard.MinTTL, hansard.MaxTTL)
	case c.MaxHold < 0:
		return invalid("max_hold", "%v is negative; 0 is no bound", c.MaxHold)
	case c.MaxHold > 0 && c.MaxHold < hansard.MinTTL:
		return invalid("max_hold", "%v is shorter than %v", c.MaxHold, hansard.MinTTL)
	}
	c.TTL, c.MaxHold = c.TTL.Truncate(time.Millisecond), c.MaxHold.Truncate(time.Millisecond)
	if err := checkText("label", c.Label, hansard.MaxNameBytes); err != nil {
		return err
	}
	if err := checkText("by", c.By, hansard.MaxNameBytes); err != nil {
		return err
	}
	return checkText("steal", c.Steal, hansard.MaxTitleBytes)
}

// CheckGrant checks that a grant can be renewed or released at all.
func CheckGrant(g hansard.Grant) error {
	if g == "" {
		return invalid("turn", "it is empty; a grant looks like 7-9f86d081884c7d65")
	}
	return checkText("turn", string(g), hansard.MaxNameBytes)
}

// Fence is the rule about turns that every engine applies to a write, in the
// critical section that orders it: cur is the turn that is held then, or nil. A
// write under a grant needs that grant to be the current one; a write without one
// may be refused by an exclusive turn. That is a [hansard.HeldError]: the engine
// then checks the holder, and if it is gone, records the end of the turn and writes.
func Fence(id hansard.SessionID, cur *hansard.Turn, under hansard.Grant, inboxOnly bool) error {
	if under != "" {
		if cur == nil {
			return &hansard.FencedError{Session: id, Grant: under}
		}
		if cur.Grant != under {
			now := *cur // the engine's own stays its own
			return &hansard.FencedError{Session: id, Grant: under, Current: &now}
		}
		return nil
	}
	if cur != nil && cur.Exclusive && !inboxOnly {
		return &hansard.HeldError{Session: id, Turn: *cur}
	}
	return nil
}
