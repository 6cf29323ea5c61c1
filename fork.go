package hansard

// Fork says which part of a session's history a new session begins with, and what it is
// called. A fork has the events of its parent up to At as they are: seqs, times, ids, keys,
// grants, and the attachments they name. It is a copy: whatever becomes of one of the two
// afterwards, the other does not notice.
//
// Its first own event, at At+1, is the store's: of kind [KindFork], with Event.Fork, and with
// a patch if Meta changes anything. It ends the turn, if the parent's was held at At, so that
// a fork begins with a free one.
//
// A Fork whose outcome is [ErrUnknown] is settled by calling it again with the same As:
// [ErrExists] then means that there is a session of this name, and its Info.Parent tells
// whether it is the fork. So whoever may have to retry gives As a name of its own choosing.
type Fork struct {
	// At is the last event of the parent that the fork has; 0 means the last there is.
	// A seq that the parent does not have is [ErrInvalid], and so is one inside a
	// batch: nobody ever sees half of one.
	At Seq
	// As is the id of the fork. A session that has it is [ErrExists], or [ErrDeleted].
	// Empty: the store makes one.
	As SessionID
	// Meta is put over the title, labels and state that the parent had at At: a title
	// that is not empty, each label it names, and a state that is given, as a whole.
	Meta Meta
	// By is the Event.By of the fork's first event. Like Batch.By it is for servers.
	By string
}

// Parent is where a fork comes from.
type Parent struct {
	ID SessionID `json:"id"`
	// At is the last event that both have.
	At Seq `json:"at"`
}
