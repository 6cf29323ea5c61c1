package hansard

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// KindTurn is the kind of the events that record who had a session's turn: one
// when it is granted, one when it is released. The store alone writes them; their
// data is a [TurnRecord].
const KindTurn = "turn"

// The limits of a claim. Over one of them is [ErrInvalid].
const (
	DefaultTTL = 30 * time.Second
	MinTTL     = 10 * time.Millisecond
	MaxTTL     = 24 * time.Hour
)

// Claim says how a turn is wanted.
type Claim struct {
	// Wait is how long to wait for the turn while somebody else holds it. Zero
	// does not wait; [Forever] waits as long as the context lets it.
	Wait time.Duration
	// TTL is how long the holder may give no sign of life before another may
	// take the turn; 0 is [DefaultTTL]. A dead holder is not waited for.
	TTL time.Duration
	// MaxHold is how long the turn may be held at all, however alive the
	// holder is; 0 is no bound.
	MaxHold time.Duration
	// Exclusive refuses the writes of everybody else while the turn is held,
	// except events marked Inbox. It ends with the first write that finds its
	// holder dead, silent for its TTL, or past its MaxHold: nobody is kept out
	// by one who is gone.
	Exclusive bool
	// Label tells people who holds the turn.
	Label string
	// Steal, when not empty, takes the turn from a holder that lives. It is
	// the reason, and goes on record.
	Steal string
	// Remote says that the holder is not this process but somebody it acts
	// for, as a server does. The end of the process is not the end of such a
	// turn: its holder may renew it through another one (from when on MaxHold
	// may be counted anew), and is gone when nobody has for the TTL.
	Remote bool
}

// Forever is the Claim.Wait that only the context bounds.
const Forever = time.Duration(1<<63 - 1)

// Holder says, for people, who holds a turn. Nothing is ever decided by it.
type Holder struct {
	Label string `json:"label,omitempty"`
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
}

// Me is this process as a Holder.
func Me(label string) Holder {
	host, _ := os.Hostname() // for people: an unknown host is no reason to fail
	return Holder{Label: label, Host: host, PID: os.Getpid()}
}

func (h Holder) String() string {
	var who []string
	if h.Label != "" {
		who = append(who, h.Label)
	}
	if h.PID != 0 {
		who = append(who, "pid "+strconv.Itoa(h.PID))
	}
	if len(who) == 0 && h.Host != "" {
		who = append(who, "somebody")
	}
	if h.Host != "" {
		who = append(who, "on "+h.Host)
	}
	if len(who) == 0 {
		return "somebody unnamed"
	}
	return strings.Join(who, " ")
}

// Turn describes the grant of a session's turn that is held now.
type Turn struct {
	Grant  Grant  `json:"grant"`
	Holder Holder `json:"holder"`
	// Seq is the event that recorded the grant.
	Seq   Seq       `json:"seq"`
	Since time.Time `json:"since"`
	// Renewed is the last sign of life, as far as the store can tell, for
	// people. It may be zero.
	Renewed   time.Time     `json:"renewed,omitzero"`
	TTL       time.Duration `json:"-"` // ttl_ms
	MaxHold   time.Duration `json:"-"` // max_hold_ms
	Exclusive bool          `json:"exclusive,omitempty"`
	Remote    bool          `json:"remote,omitempty"`
	// Reason is why it was taken from the holder before, if it was stolen.
	Reason string `json:"reason,omitempty"`
}

// turnJSON is a Turn with its durations in milliseconds, as in a [TurnRecord].
type turnJSON struct {
	*turnFields
	TTL     int64 `json:"ttl_ms"`
	MaxHold int64 `json:"max_hold_ms,omitempty"`
}

type turnFields Turn

// MarshalJSON writes durations in milliseconds.
func (t Turn) MarshalJSON() ([]byte, error) {
	return json.Marshal(turnJSON{(*turnFields)(&t), t.TTL.Milliseconds(), t.MaxHold.Milliseconds()})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (t *Turn) UnmarshalJSON(data []byte) error {
	j := turnJSON{turnFields: (*turnFields)(t)}
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	t.TTL, t.MaxHold = time.Duration(j.TTL)*time.Millisecond, time.Duration(j.MaxHold)*time.Millisecond
	return nil
}

// How a grant came about, and how it ended, in a [TurnRecord].
const (
	TurnGranted  = "granted"  // the turn was free
	TurnTaken    = "taken"    // the holder was dead, silent for its TTL, or past its MaxHold
	TurnStolen   = "stolen"   // from a holder that lived, with a reason
	TurnReleased = "released" // given up by its holder
	TurnEnded    = "ended"    // its holder was found gone by somebody who wanted to write, not the turn
	TurnMoved    = "moved"    // the same grant, kept alive by another process from here on
)

// TurnRecord is the data of an event of kind [KindTurn]. The event's Turn is the
// grant it is about.
type TurnRecord struct {
	Change    string `json:"change"`
	Holder    Holder `json:"holder,omitzero"`
	TTL       int64  `json:"ttl_ms,omitempty"`
	MaxHold   int64  `json:"max_hold_ms,omitempty"`
	Exclusive bool   `json:"exclusive,omitempty"`
	Remote    bool   `json:"remote,omitempty"`
	// From is the grant that was superseded, when it had not been released;
	// Why tells what was found of its holder: dead, silent, overdue, stolen.
	From   Grant  `json:"from,omitempty"`
	Why    string `json:"why,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Instance is the engine's own name for the process that keeps the grant
	// alive, where it needs one.
	Instance string `json:"instance,omitempty"`
	// Granted and Since, in a record of a turn that moved, are the event that
	// recorded the grant and its time: such a record stands for that one.
	Granted Seq       `json:"granted,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Grants tells whether the record is the beginning of a grant.
func (r *TurnRecord) Grants() bool {
	return r.Change == TurnGranted || r.Change == TurnTaken || r.Change == TurnStolen
}

// Ends tells whether the record leaves the turn free.
func (r *TurnRecord) Ends() bool { return r.Change == TurnReleased || r.Change == TurnEnded }

// Turn is the turn that a granting record, or one that moved it, describes.
func (r *TurnRecord) Turn(g Grant, seq Seq, at time.Time) Turn {
	if r.Change == TurnMoved {
		seq, at = r.Granted, r.Since
	}
	return Turn{Grant: g, Holder: r.Holder, Seq: seq, Since: at, Exclusive: r.Exclusive, Remote: r.Remote, Reason: r.Reason,
		TTL: time.Duration(r.TTL) * time.Millisecond, MaxHold: time.Duration(r.MaxHold) * time.Millisecond}
}

// Event is the event that keeps a record. Engines set its seq, time and turn.
func (r *TurnRecord) Event() Event {
	data, _ := json.Marshal(r) // strings and numbers: can't fail
	return Event{Kind: KindTurn, Data: data}
}

// NewTurnRecord is the record of a grant for a claim, superseding from, which is
// empty when the turn was free.
func NewTurnRecord(c *Claim, from Grant, why string) TurnRecord {
	me := Me(c.Label)
	if c.Remote {
		me.PID = 0 // ours would be taken for the holder's
	}
	r := TurnRecord{Change: TurnGranted, Holder: me, TTL: c.TTL.Milliseconds(), MaxHold: c.MaxHold.Milliseconds(),
		Exclusive: c.Exclusive, Remote: c.Remote, From: from}
	switch {
	case from == "": // a claim that would have stolen found the turn free
	case why == TurnStolen:
		r.Change, r.Why, r.Reason = TurnStolen, why, c.Steal
	default:
		r.Change, r.Why = TurnTaken, why
	}
	return r
}

// NextGrant is the grant that follows prev, the last one of the session or empty.
// The nonce is random, so that the pair never repeats, whatever was restored or
// cloned.
func NextGrant(prev Grant, nonce uint64) Grant {
	return Grant(fmt.Sprintf("%d-%016x", prev.Number()+1, nonce))
}

// Number is how many grants the session had when this one was made, itself
// included; 0 for a string that is no grant.
func (g Grant) Number() uint64 {
	number, nonce, ok := strings.Cut(string(g), "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || len(nonce) != 16 || number[0] == '0' || number[0] == '+' {
		return 0
	}
	if _, err := strconv.ParseUint(nonce, 16, 64); err != nil || nonce != strings.ToLower(nonce) {
		return 0
	}
	return n
}

// CheckClaim tells whether a claim is one that a store accepts, and fills in what
// it leaves open.
func CheckClaim(c *Claim) error {
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	switch {
	case c.Wait < 0:
		return invalid("wait", "%v is negative", c.Wait)
	case c.TTL < MinTTL || c.TTL > MaxTTL:
		return invalid("ttl", "%v is not between %v and %v", c.TTL, MinTTL, MaxTTL)
	case c.MaxHold < 0:
		return invalid("max_hold", "%v is negative; 0 is no bound", c.MaxHold)
	case c.MaxHold > 0 && c.MaxHold < MinTTL:
		return invalid("max_hold", "%v is shorter than %v", c.MaxHold, MinTTL)
	}
	c.TTL, c.MaxHold = c.TTL.Truncate(time.Millisecond), c.MaxHold.Truncate(time.Millisecond)
	if err := checkText("label", c.Label, MaxNameBytes); err != nil {
		return err
	}
	return checkText("steal", c.Steal, MaxTitleBytes)
}

// CheckGrant tells whether a grant can be renewed or released at all.
func CheckGrant(g Grant) error {
	if g == "" {
		return invalid("turn", "it is empty; a grant looks like 7-9f86d081884c7d65")
	}
	return checkText("turn", string(g), MaxNameBytes)
}

// Fence is the rule about turns that every engine applies to a write, in the
// critical section that orders it: cur is the turn that is held then, nil when
// none is. A write under a grant needs that grant to be the current one; a write
// without may be kept out by an exclusive turn. That is a [HeldError]: the engine
// then looks for the holder, and if it is gone ends the turn, on record, and writes.
func Fence(id SessionID, cur *Turn, under Grant, inboxOnly bool) error {
	if under != "" {
		if cur == nil {
			return &FencedError{Session: id, Grant: under}
		}
		if cur.Grant != under {
			now := *cur // the engine's own stays its own
			return &FencedError{Session: id, Grant: under, Current: &now}
		}
		return nil
	}
	if cur != nil && cur.Exclusive && !inboxOnly {
		return &HeldError{Session: id, Turn: *cur}
	}
	return nil
}

// InboxOnly tells whether a batch is one that an exclusive turn lets in: events
// marked Inbox, and no change of metadata.
func (b *Batch) InboxOnly() bool {
	for i := range b.Events {
		if !b.Events[i].Inbox {
			return false
		}
	}
	return b.Patch == nil
}

// Grants follows a session's turn along its events and tells when one of them
// could not have been written by whom it says: the proof, from the log alone, that
// no stale holder ever wrote. The zero value is the beginning of a session.
type Grants struct {
	// Current is the turn that is held, nil when none is.
	Current *Turn
	// Last is the newest grant, held or not.
	Last Grant
}

// Next takes the next event.
func (g *Grants) Next(e *Event) error {
	if e.Kind != KindTurn {
		if e.Turn != "" && (g.Current == nil || g.Current.Grant != e.Turn) {
			return fmt.Errorf("seq %d was written under grant %s, which was not the current one (%s)", e.Seq, e.Turn, g.name())
		}
		if e.Turn == "" && g.Current != nil && g.Current.Exclusive && (!e.Inbox || e.Patch != nil) {
			return fmt.Errorf("seq %d was written without a grant while %s was exclusive", e.Seq, g.name())
		}
		return nil
	}
	var r TurnRecord
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return fmt.Errorf("seq %d is no record of a turn: %v", e.Seq, err)
	}
	switch {
	case r.Grants():
		if e.Turn.Number() != g.Last.Number()+1 {
			return fmt.Errorf("seq %d grants %s behind %s", e.Seq, e.Turn, g.name())
		}
		if held := g.Current; held != nil && r.From != held.Grant {
			return fmt.Errorf("seq %d grants %s while %s was held", e.Seq, e.Turn, held.Grant)
		}
		t := r.Turn(e.Turn, e.Seq, e.Time)
		g.Current, g.Last = &t, e.Turn
	case r.Ends() || r.Change == TurnMoved:
		if g.Current == nil || g.Current.Grant != e.Turn {
			return fmt.Errorf("seq %d: %s %s, which was not held (%s)", e.Seq, e.Turn, r.Change, g.name())
		}
		if r.Ends() {
			g.Current = nil
		}
	default:
		return fmt.Errorf("seq %d: unknown change %q of the turn", e.Seq, r.Change)
	}
	return nil
}

func (g *Grants) name() string {
	switch {
	case g.Last == "":
		return "there was none"
	case g.Current == nil:
		return string(g.Last) + " had ended"
	}
	return string(g.Last)
}
