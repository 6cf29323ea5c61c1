package hansard

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"time"
)

// KindTurn is the kind of the events that record who held a session's turn: one
// when it is granted, one when it is released. Only the store writes them; their
// data is a [TurnRecord].
const KindTurn = "turn"

// The limits of a claim. Exceeding one is [ErrInvalid].
const (
	DefaultTTL = 30 * time.Second
	MinTTL     = 10 * time.Millisecond
	MaxTTL     = 24 * time.Hour
)

// Claim says how a turn is to be acquired.
type Claim struct {
	// Wait is how long to wait for the turn while another holder has it. Zero does
	// not wait; [Forever] waits until the context ends.
	Wait time.Duration
	// TTL is how long the holder may give no sign of life before another may
	// take the turn; 0 means [DefaultTTL]. Nobody waits for a dead holder.
	TTL time.Duration
	// MaxHold is how long the turn may be held at all, even if the holder is
	// alive; 0 means no limit.
	MaxHold time.Duration
	// Exclusive refuses the writes of everybody else while the turn is held,
	// except events marked Inbox. It ends with the first write that finds the
	// holder dead, silent for its TTL, or past its MaxHold: a dead holder never
	// blocks writers.
	Exclusive bool
	// Label says, for people, who holds the turn.
	Label string
	// Steal, if not empty, takes the turn from a living holder. It is the
	// reason, and is recorded.
	Steal string
	// Remote says that the holder is not this process but a client it acts
	// for, as a server does. Such a turn does not end with the process: its
	// holder may renew it through another one (MaxHold may then start over),
	// and is gone when nobody has renewed it for the TTL.
	Remote bool
	// By is who claims the turn as the server knows it, like Batch.By.
	By string
}

// Forever is a Claim.Wait that is bounded by the context only.
const Forever = time.Duration(1<<63 - 1)

// Holder says, for people, who holds a turn. No decision ever depends on it.
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
	Grant  Grant  `json:"grant,omitempty"` // empty where a server refuses a request
	Holder Holder `json:"holder"`
	// Seq is the event that recorded the grant.
	Seq   Seq       `json:"seq"`
	Since time.Time `json:"since"`
	// Renewed is the last sign of life, as far as the store knows, for people.
	// It may be zero.
	Renewed   time.Time     `json:"renewed,omitzero"`
	TTL       time.Duration `json:"-"` // ttl_ms
	MaxHold   time.Duration `json:"-"` // max_hold_ms
	Exclusive bool          `json:"exclusive,omitempty"`
	Remote    bool          `json:"remote,omitempty"`
	// Reason is why it was taken from the previous holder, if it was stolen.
	Reason string `json:"reason,omitempty"`
	// By is who it was granted to as the server knows it: see Event.By.
	By string `json:"by,omitempty"`
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
	TurnEnded    = "ended"    // a writer that an exclusive turn would have refused found its holder gone
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
	// From is the grant that was superseded, if it had not been released;
	// Why says what had become of its holder: dead, silent, overdue, stolen.
	From   Grant  `json:"from,omitempty"`
	Why    string `json:"why,omitempty"`
	Reason string `json:"reason,omitempty"`
	// By is the Event.By of the record: for a grant, its move and its release, who the
	// turn was granted to; for its end, who wanted to write.
	By string `json:"by,omitempty"`
	// Instance is the engine's own name for the process that keeps the grant
	// alive, where it needs one.
	Instance string `json:"instance,omitempty"`
	// Granted and Since, in a record of a turn that moved, are the seq and time
	// of the event that recorded the grant, which this record replaces.
	Granted Seq       `json:"granted,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Grants reports whether the record begins a grant.
func (r *TurnRecord) Grants() bool {
	return r.Change == TurnGranted || r.Change == TurnTaken || r.Change == TurnStolen
}

// Ends reports whether the record leaves the turn free.
func (r *TurnRecord) Ends() bool { return r.Change == TurnReleased || r.Change == TurnEnded }

// Turn is the turn that a granting record, or one that moved it, describes.
func (r *TurnRecord) Turn(g Grant, seq Seq, at time.Time) Turn {
	if r.Change == TurnMoved {
		seq, at = r.Granted, r.Since
	}
	return Turn{Grant: g, Holder: r.Holder, Seq: seq, Since: at, Exclusive: r.Exclusive, Remote: r.Remote, Reason: r.Reason, By: r.By,
		TTL: time.Duration(r.TTL) * time.Millisecond, MaxHold: time.Duration(r.MaxHold) * time.Millisecond}
}

// Event is the event that keeps a record. Engines set its seq, time and turn.
func (r *TurnRecord) Event() Event {
	data, _ := json.Marshal(r) // strings and numbers: can't fail
	return Event{Kind: KindTurn, By: r.By, Data: data}
}

// Number is the number of grants the session had when this one was made, including
// this one; 0 for a string that is not a grant.
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

// InboxOnly reports whether an exclusive turn admits a batch: all its events are
// marked Inbox, and it does not change metadata.
func (b *Batch) InboxOnly() bool {
	for i := range b.Events {
		if !b.Events[i].Inbox {
			return false
		}
	}
	return b.Patch == nil
}
