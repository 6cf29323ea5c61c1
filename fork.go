package hansard

// Fork says which part of a session's history a new session begins with, and what it is
// called. A fork has the events of its parent up to At as they are: seqs, times, ids, keys,
// grants, and the attachments they name. It is a copy: what happens to one of the two
// afterwards does not affect the other.
//
// Its first own event, at At+1, is written by the store: of kind [KindFork], with Event.Fork
// set, and with a patch if Meta changes anything. If the parent's turn was held at At, this
// event ends it in the fork, so that a fork begins with a free turn.
//
// A Fork whose outcome is [ErrUnknown] is settled by calling it again with the same As:
// [ErrExists] then means that there is a session with this id, and its Info.Parent tells
// whether it is the fork. So a caller that may have to retry chooses As itself.
type Fork struct {
	// At is the last event of the parent that the fork has; 0 means the parent's last.
	// A seq that the parent does not have is [ErrInvalid], and so is one inside a
	// batch: nobody ever sees half of one.
	At Seq
	// As is the id of the fork. If it is taken, the answer is [ErrExists], or
	// [ErrDeleted]. If it is empty the store makes one.
	As SessionID
	// Meta overrides the title, labels and state that the parent had at At: the title
	// if it is not empty, each label it names, and the state, if given, as a whole.
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
