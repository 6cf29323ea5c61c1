// Package hansard is the contract of a session store for AI agents.
//
// A session is a conversation kept as an append-only log of events. Many
// goroutines, processes and servers append to one session while others read,
// list and follow it, and a [Store] promises all of them the same things:
//
//   - A nil error from Append means the batch is durable: a power cut can no
//     longer take it away.
//   - A batch is stored whole or not at all, at consecutive sequence numbers
//     that are assigned inside the commit: 1, 2, 3, … without gaps or duplicates.
//   - Readers take no lock, block nobody and only ever see a prefix of the
//     session made of whole batches.
//   - "Not found", "deleted", "damaged: here is what is safe" and "fine" are
//     different answers, which the caller can tell apart by the error.
//
// # Stores
//
// A program opens a store once and uses it through the interface. The engines
// live in packages of their own:
//
//   - filestore: plain JSONL files, shared by any number of processes of a machine
//   - pgstore: PostgreSQL, shared by any number of machines
//   - client: a store behind a Hansard server, over HTTP
//   - memstore: in memory, for tests; the model of the others
//
// A first program stores a [Message] with [Store.Append], reads with [Store.Read]
// and follows with [Follow]. A [Batch] with a Key may be sent again after an error
// without being stored twice; with Expect it is stored only if nothing was appended
// since. [Copy] takes the sessions of one store to another.
//
// # Turns
//
// An agent that wants to be the only one to run in a session takes its turn, with
// [Take]. At most one grant of it is valid at a time, and what is written under a grant
// that was lost is refused with [ErrFenced]. The turn is not a lock: others may still
// append, unless it was taken exclusively, and a dead holder never blocks anyone.
//
// # Attachments
//
// Pictures and long outputs belong beside the log: [Store.Attach] streams them in, and
// events name them by their digest. They are read with [Store.OpenAttachment], and are
// removed with their session.
//
// # Removing content
//
// [Store.Delete] ends a session and removes its content. [Store.Redact] removes the content
// of single events: their data and attachments. Seq, order, time and ids stay, and an
// event records who did it and why.
//
// # Writing an engine
//
// Package storetest holds the contract as code: an engine is a Store when it passes
// that suite. Package engine has the rules that all engines share (what is accepted,
// what a batch stores, how a patch merges, which grant admits a write); programs that
// only use a store need neither.
//
// # Caveats
//
// Time stamps are for people; order is the sequence number. An append whose context
// ends while the outcome is open returns [ErrUnknown]; give the batch a Key and retry
// to settle it.
package hansard

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"time"
)

// SessionID names a session. [CheckID] has the grammar: 1 to 128 characters,
// letters, digits and ". _ - : @ + ~", beginning with a letter or a digit.
// It is case-sensitive: "a" and "A" are two sessions, on every file system.
type SessionID string

// Seq numbers the events of one session: 1, 2, 3, … Zero means "before the first".
type Seq uint64

// Grant identifies one grant of a session's turn, written "7-9f86d081884c7d65":
// a number that grows by one per grant, and a random nonce. Grants are compared
// for equality only; a grant is void once it is released or superseded. The empty
// Grant means no turn.
type Grant string

// The kinds that the store and its tools know. Any other kind is up to the user.
const (
	KindMessage    = "message"
	KindToolCall   = "tool_call"
	KindToolResult = "tool_result"
	KindSummary    = "summary"
	// KindMeta is the kind of the event that a batch becomes if it has a Patch
	// and no events.
	KindMeta = "meta"
	// KindFork is the kind of a fork's first own event. Users may use this kind for
	// their own events; only the store's have Event.Fork set.
	KindFork = "fork"
)

// Event is one thing that happened in a session. The store sets Seq, Time, Turn, By, Fork,
// Redacted and Redacts; in a Batch they must be zero.
type Event struct {
	Seq    Seq       `json:"seq"`
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"` // "message" when a batch leaves it empty
	Role   string    `json:"role"`
	Author string    `json:"author"`
	// Turn is the grant the event was written under, empty if its writer did
	// not hold the turn.
	Turn Grant `json:"turn"`
	// By is the writer as the server knows it: the name of a token, never what a
	// client claims. It is empty if the event was not written through a server. See
	// Batch.By.
	By string `json:"by,omitempty"`
	// ID is the writer's own name for the event, unique in its session; empty if it
	// has none. A writer that delivers the same records again, in whatever batches,
	// stores none of them twice: an event whose id the session has is skipped. See Batch.
	ID string `json:"id,omitempty"`
	// At is when the event happened, according to its writer. It is for display only:
	// order, lists and Since go by Seq and Time. Zero means not given. Stores keep it
	// in UTC, in whole microseconds.
	At time.Time `json:"at,omitzero"`
	// Inbox marks an event that is left for the holder of the turn to take up.
	// It is accepted even while an exclusive turn is held.
	Inbox bool `json:"inbox,omitempty"`
	// Patch is the change of metadata and state that was committed with this
	// event. In a Batch it must be nil: the patch of a batch is Batch.Patch.
	Patch *Patch `json:"patch,omitempty"`
	// Attachments names what is kept beside the log for this event: pictures, long
	// outputs. Each was given to [Store.Attach] before; see [Attachment].
	Attachments []Attachment `json:"attachments,omitempty"`
	// Fork is set by the store on a fork's first own event: it says which session the
	// fork was made of, and where. See [Store.Fork].
	Fork *Parent `json:"fork,omitempty"`
	// Redacted says that the event's data and attachments were removed: Data is null.
	// All other fields, Patch included, are as they were. See [Store.Redact].
	Redacted bool `json:"redacted,omitempty"`
	// Redacts are the seqs of the events that were redacted, in the event that records
	// it. It distinguishes the store's own events of kind [KindRedaction] from others:
	// in a Batch it must be empty.
	Redacts []Seq `json:"redacts,omitempty"`
	// Data is any JSON value, returned byte for byte as it was given.
	Data json.RawMessage `json:"data"`
}

// Meta is what a session is created with.
type Meta struct {
	Title  string            `json:"title,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	State  json.RawMessage   `json:"state,omitempty"`
	// Reuse lets Create make a new session under a deleted id: empty, starting at seq 1,
	// without anything of the deleted one. It is not stored, and only Create accepts it:
	// elsewhere it is [ErrInvalid].
	Reuse bool `json:"reuse,omitempty"`
}

// IsZero reports whether title, labels and state are all empty.
func (m Meta) IsZero() bool { return m.Title == "" && len(m.Labels) == 0 && len(m.State) == 0 }

// Patch changes a session's metadata and state. It rides in a Batch, so that an
// event and the state it caused are one commit.
type Patch struct {
	// Title replaces the title when it is not nil.
	Title *string `json:"title,omitempty"`
	// Labels sets the labels it names; a nil value removes one.
	Labels map[string]*string `json:"labels,omitempty"`
	// State is a JSON merge patch (RFC 7396) for the state document: members
	// are merged, null removes, anything but an object replaces the whole.
	State json.RawMessage `json:"state,omitempty"`
	// StateOps change the state document one after the other, all of them or none:
	// for what a merge patch can't do, such as setting a member to null, replacing an
	// object, or changing an array. A patch has State or StateOps, not both.
	StateOps []StateOp `json:"state_ops,omitempty"`
}

// Batch is what one append carries, all or nothing, and the conditions under
// which it may happen. A batch needs at least one event or a patch.
//
// Events whose ID the session has already, with the same content (kind, role, author,
// inbox, at, attachments, data), are skipped and the others stored, in order. If one of
// them has other content the batch is refused, see [IDReusedError]. The patch is skipped
// only if the last event is known with this very patch; otherwise it is stored with the
// last event that is new, or as an event of its own. A batch that contains nothing new is
// a replay, whatever its conditions say: it does not prove that the turn is still held.
type Batch struct {
	Events []Event
	Patch  *Patch
	// Expect makes the append a compare-and-swap on the session's last seq:
	// any other value is a [ConflictError]. Nil expects nothing. See [At].
	Expect *Seq
	// Turn is the grant of the turn under which the batch is written; if it
	// is not the session's current one the answer is [ErrFenced]. Without it
	// the batch is [ErrHeld] while an exclusive turn is held, unless all its
	// events are marked Inbox and it changes no metadata.
	Turn Grant
	// Key makes a retry harmless for the life of the session. The same key
	// with the same content (events and patch) returns the first receipt
	// again and writes nothing; with other content it is [ErrKeyReused].
	Key string
	// Apart stores each event as a batch of its own, all with one commit: readers may
	// see the first of them before the others, and the session can be forked after
	// each. It is for records that only happen to be delivered together. Each event
	// needs an ID, which makes a retry harmless. A Key belongs to one batch and can't
	// be combined with Apart.
	Apart bool
	// Create creates the session when it does not exist. Without it an
	// append to an unknown session is [ErrNotFound]. It never revives a
	// deleted one.
	Create bool
	// Meta is what the session is created with, if this append creates it.
	Meta Meta
	// By is the Event.By of what is stored. It is for servers, which know who
	// asks; it does not travel over the wire. It is not part of the content: a
	// retry under another name is still a retry.
	By string
}

// At is the expectation that a session's last seq is n.
func At(n Seq) *Seq { return &n }

// Receipt is what an append returns.
type Receipt struct {
	Session SessionID `json:"session"`
	// First and Last are the seqs of what this append stored. They are 0 if it stored
	// nothing because all ids were known. For a known key they are where the batch
	// was stored the first time.
	First Seq `json:"first"`
	Last  Seq `json:"last"`
	// Replayed says that nothing was written now: the batch's key was known, or
	// the ids of all its events.
	Replayed bool `json:"replayed"`
	// Created says that this append created the session. The replay of one that did does
	// not say so: that is no longer known.
	Created bool `json:"created,omitempty"`
	// Seqs has the seq of each event of the batch, stored now or before, if one of
	// them has an ID. A patch without events has none.
	Seqs []Seq `json:"seqs,omitempty"`
}

// Info describes a session.
type Info struct {
	ID      SessionID         `json:"id"`
	Title   string            `json:"title"`
	Labels  map[string]string `json:"labels"`
	State   json.RawMessage   `json:"state"` // JSON null when there is none
	Created time.Time         `json:"created"`
	// Updated is the time of the last event, or Created.
	Updated time.Time `json:"updated"`
	LastSeq Seq       `json:"last_seq"`
	Bytes   int64     `json:"bytes"`
	// Parent is the session that this one is a fork of, nil if it is not a fork. The
	// parent may have been deleted since.
	Parent *Parent `json:"parent,omitempty"`
	// Turn is the session's turn, if its log says that it is held; whether the
	// holder is still alive is a question for [Store.Turn].
	Turn *Turn `json:"turn,omitempty"`
	// Damage says what is wrong with the session's log and what is safe. A
	// damaged session can be read up to the damage and refuses appends.
	Damage *DamagedError `json:"damage,omitempty"`
	// Unreadable says, for people, why a session in a list could not be described:
	// its log can't be read, and nothing but the id is known. Stat returns
	// [ErrUnreadable] for it.
	Unreadable string `json:"unreadable,omitempty"`
	// Cursor is set by List only: the Query.Cursor that continues the list after
	// this session.
	Cursor string `json:"cursor,omitempty"`
}

// Damaged reports whether the session's log is known to be damaged.
func (i Info) Damaged() bool { return i.Damage != nil }

// Range selects the events that Read yields. After, Before, FromKind and Kinds say
// which, and Last and Limit how many of these.
type Range struct {
	// After skips the events up to and including this seq.
	After Seq
	// Before keeps only events with a seq below this one; 0 means no bound.
	Before Seq
	// Limit is the maximum number of events; 0 means no limit.
	Limit int
	// Last starts at the N-th matching event from the end; 0 starts at After. With
	// Reverse it acts as a second Limit: the smaller of the two applies.
	Last int
	// Kinds keeps only events of these kinds; empty keeps all.
	Kinds []string
	// FromKind starts at the last event of this kind between After and Before. If
	// there is none, or it is empty, the range starts at After.
	FromKind string
	// FromSummary is FromKind "summary". With another FromKind it is [ErrInvalid].
	FromSummary bool
	// Reverse yields the newest event first, and Limit counts from there. A session
	// is paged from its end by setting Before to the seq of the last event of a page.
	Reverse bool
	// ID selects the event with this ID; if there is none it is [ErrNoEvent]. It
	// can't be combined with other fields.
	ID string
}

// Order says which of a session's times determines its place in a list.
type Order int

const (
	// OrderUpdated is by Info.Updated, then by id, both descending.
	OrderUpdated Order = iota
	// OrderCreated is by Info.Created, then by id, both descending.
	OrderCreated
)

// LabelArchived is the label of archived sessions. It changes nothing else about them;
// lists for people leave them out.
const LabelArchived = "archived"

// Archived is what a list does with archived sessions.
type Archived int

// The values of Archived.
const (
	ArchivedAny  Archived = iota // list them with the others
	ArchivedNo                   // leave them out
	ArchivedOnly                 // list no others
)

// Query selects the sessions that List yields, newest first.
type Query struct {
	// Order defines what newest means.
	Order Order
	// Limit is the maximum number of sessions; 0 means no limit.
	Limit int
	// Cursor is the Info.Cursor of the last session of a page, and continues the list
	// after it, in the same order and with the same filters; a cursor of another
	// order is [ErrInvalid].
	//
	// Pages are read one after the other, and sessions change in between. None is
	// skipped: a session that matches from the first page to the last is listed at least
	// once. With OrderUpdated, a session that is updated moves to the front, past the
	// cursor. So after the others, the last pages list again all sessions that were
	// updated since a minute before the first page, the newest by creation first. A
	// session may therefore appear twice across pages, never more often, and the pages
	// come to an end whatever is written in between. With OrderCreated each appears once.
	Cursor string
	// Prefix keeps sessions whose id begins with it. One that no id can begin with
	// is [ErrInvalid].
	Prefix string
	// IDs keeps only these sessions, at most [MaxQueryIDs]; empty keeps all. Those
	// that do not exist are left out.
	IDs []SessionID
	// Parent keeps the forks of this session.
	Parent SessionID
	// Labels keeps sessions that have all of these labels.
	Labels map[string]string
	// Text keeps sessions whose id or title contains it, ignoring case.
	Text string
	// Since and Before keep sessions updated at or after one time and before the other.
	Since, Before time.Time
	// CreatedSince and CreatedBefore are the same for when they were created.
	CreatedSince, CreatedBefore time.Time
	// Held keeps sessions whose turn is held, as Info.Turn says.
	Held bool
	// Damaged keeps sessions that are damaged, or can't be described.
	Damaged bool
	// Archived says what to do with archived sessions: see [LabelArchived].
	Archived Archived
}

// Store is where sessions live. All methods may be called from any number of
// goroutines at once. A context bounds waiting; it never cuts a write in half.
//
// Every method that takes an id returns [ErrInvalid] for an id that is not valid,
// [ErrNotFound] for a session that never existed and [ErrDeleted] for one that
// was deleted; after Close all methods return [ErrClosed].
type Store interface {
	// Create makes a new, empty session. Nil means it is durable; [ErrExists]
	// means there is one with this id already. An id that was deleted is
	// [ErrDeleted], unless Meta.Reuse is set.
	Create(ctx context.Context, id SessionID, m Meta) (Info, error)

	// Append stores a batch. Nil means it is durable, whole, at the seqs of
	// the receipt. [ErrUnknown] means it may or may not be stored; any other
	// error means it is not and never will be.
	Append(ctx context.Context, id SessionID, b Batch) (Receipt, error)

	// Fork makes a new session that begins with the history of another. Nil means
	// that it is durable, whole. [ErrUnknown] means that it is there whole or not at
	// all: see [Fork] for how to settle it. Any other error means that it was not made.
	// The parent itself is not changed, and others may write to it at the same time.
	//
	// A damaged session can be forked up to its SafeSeq; past it the answer is the
	// [DamagedError].
	Fork(ctx context.Context, id SessionID, f Fork) (Info, error)

	// Read yields the events of a range, oldest first, or newest first if it says
	// so. It ends after the last event that was durable when it got there.
	//
	// A damaged session yields the events before the damage and then a
	// [DamagedError]. In reverse the damage comes first: a session that is known to be
	// damaged yields a DamagedError and nothing else, so that the events before the
	// damage are never taken for the newest ones; damage that is only found while
	// reading ends it there. A range that ends before the damage, with Before at most
	// SafeSeq+1, is read in either direction as if there were no damage.
	Read(ctx context.Context, id SessionID, r Range) iter.Seq2[Event, error]

	// Wait returns nil when the session has an event past after that Read
	// will yield. It returns the context's error if the context ends first.
	Wait(ctx context.Context, id SessionID, after Seq) error

	// Stat describes one session. A damaged one is described as far as it is
	// safe, with Damage set and no error.
	Stat(ctx context.Context, id SessionID) (Info, error)

	// List describes the sessions that a query selects. A damaged session is
	// listed, with Damage set; one that can't be described, with Unreadable set:
	// it never hides another.
	List(ctx context.Context, q Query) iter.Seq2[Info, error]

	// Delete ends a session for ever: its id is [ErrDeleted] from then on, and
	// nothing brings it back. (Create with Meta.Reuse makes another one.) The turn
	// is the grant under which it is deleted, empty without one; while an exclusive
	// turn is held nobody else can delete the session. A damaged session can be
	// deleted, too. Its content is removed soon after; a store that can be asked to
	// do that now is a [Pruner].
	Delete(ctx context.Context, id SessionID, turn Grant) error

	// Redact removes the content of single events, and stores an event that records
	// it: see [Redaction].
	Redact(ctx context.Context, id SessionID, r Redaction) (Receipt, error)

	// Acquire takes the session's turn: the right to run the agent loop in it.
	// At most one grant is valid at a time, and it is durable before it is
	// returned. While someone else holds the turn, Acquire waits as long as the
	// claim says, in FIFO order, and then returns [ErrHeld] with the holder; if the
	// context ended, the error is the context's as well. A caller that gives up
	// waiting leaves no unknown grant behind. A holder that is dead, silent for its
	// TTL or past its MaxHold loses the turn to the next claimant. No write ever
	// waits for a turn. [Take] keeps a turn alive automatically.
	Acquire(ctx context.Context, id SessionID, c Claim) (Turn, error)

	// Renew is the holder's sign of life, due within every TTL. [ErrFenced]
	// means that the turn is lost, or was held for its whole MaxHold.
	Renew(ctx context.Context, id SessionID, g Grant) error

	// Release gives up exactly this grant. [ErrFenced] means that it was not the
	// current one: released before, or lost; nobody else's turn is touched.
	Release(ctx context.Context, id SessionID, g Grant) error

	// Attach stores the bytes of a reader beside a session's log, so that its events
	// can name them, in bounded memory. Nil means they are durable. The same bytes are
	// stored once. An attachment belongs to its session and is removed with it; one
	// that no event names may be removed by a prune after a day. More than
	// [MaxAttachmentBytes] is [ErrTooLarge]. An error of the reader is returned
	// unchanged, and nothing is stored.
	Attach(ctx context.Context, id SessionID, r io.Reader) (Attachment, error)

	// OpenAttachment opens an attachment of a session; it returns [ErrNoAttachment] if
	// there is none with this digest. If it is read from start to end without a gap, the
	// bytes are compared with the digest: [ErrDamaged] instead of io.EOF if they differ.
	OpenAttachment(ctx context.Context, id SessionID, digest string) (AttachmentReader, error)

	// Attachments yields the attachments of a session, in the order of their digests,
	// whether an event names them or not.
	Attachments(ctx context.Context, id SessionID) iter.Seq2[Attachment, error]

	// Turn describes the turn that is held. It is nil if the turn is free: never
	// granted, released, or held by a process that is known to be dead.
	Turn(ctx context.Context, id SessionID) (*Turn, error)

	// Close refuses new work, waits for work in progress and releases the
	// store's resources; turns that were acquired through it may be released
	// too, or are left to their TTL. Closing twice is harmless.
	Close() error
}
