package model

import "strings"

// Rules is a set of rules of the protocol.
type Rules uint64

// Ring entries.
const (
	Position          Rules = 1 << iota // an entry names its position
	Chain                               // and the entry it follows
	EpochOrder                          // and epochs never fall along the chain
	PadNeverStraddles                   // writers pad the ring's end, readers rely on it
	DurableHint                         // dhint tells damage from the end
	Adoption                            // complete entries of a dead writer are adopted

	// Lock and reload.

	JournalInode      // the journal's inode is compared after a lock
	InodeAtFinish     // even if the lock is taken only to finish a synced group
	ControlCRC        // a control record with a bad checksum is rebuilt
	ReloadSyncs       // from a ring that is synced before it is trusted
	RebuildRewrites   // and rewritten before that
	DirectorySync     // reload fsyncs the store directory
	OwnDurableDropped // a process's own durable position ends with the epoch
	CacheEpoch        // and so do caches
	CacheStart        // caches older than start are dropped
	WholeAtOpen       // an opener rotates a ring whose chain does not reach written
	WholeAtLock       // and so does a process that reads pending entries

	// Append, sync, apply.

	SyncBeforeApply   // logs get only what is durable in the ring
	UnknownAfterWrite // after the first byte in the ring the answer is never "not stored"
	EpochInWaits      // a waiter compares epochs and looks for its entry
	TargetSameRead    // written and its epoch come from one read of W
	SyncErrorFinal    // after EIO no second fdatasync is trusted
	SyncErrorShared   // by any thread that shares the descriptor
	OneSyncPerFD      // never two fdatasyncs at once on one descriptor
	OpenerRewrites    // rule A: a process that opens the ring rewrites what is not durable
	OpenerSlots       // and both slots
	StartInW          // the start is not in the record that syncers write
	SyncLockBypassed  // nobody needs sync.lock to make progress
	FullRingSyncs     // a full ring is synced and applied before the checkpoint
	ReplayWaits       // a replay waits until the first append is durable
	RefusalWaits      // so does a refusal, for what it rests on
	VoidReevaluated   // and if that vanished, the request is decided again
	ApplyStops        // apply stops at ENOSPC, it does not skip the entry
	LogInode          // apply writes to the inode at the path
	LiveHoles         // apply restores a log whose lost pages were evicted

	// Checkpoint.

	HeaderBeforeStart   // space is free only after the slot is durable
	SlotChoice          // never overwrite the slot whose start is published
	SlotUnderLock       // choose and write it in one critical section
	SlotStillMine       // publish a start only if its slot was not overwritten
	CheckpointNeverBack // upTo <= start: nothing to do
	SessionsDirSync     // fsync(sessions/) before the start moves
	LogCopyAfterEIO     // a log whose sync failed is replaced by a copy
	CopyFromRing        // which takes from the ring what the ring has
	CheckpointMark      // so is a log that another process marked and did not unmark
	OpenBeforeMarks     // the log is opened before the marks are read
	OwnMarkCounts       // a process's own mark, left by a failed copy, counts too

	// First open.

	AloneChecked      // only a process that is alone recovers
	ControlNotTrusted // control is ignored
	FirstOpenRewrites // entries are rewritten before the sync
	FirstOpenSlot     // and so is the slot
	FirstOpenDirSync  // the store directory is synced before anything is applied
	HolesFilled       // NUL runs which the ring covers are filled
	MarkAtOpen        // marks of the dead make the first open copy those logs
	SuspectsFirst     // before anything is applied to them
	RecoveryMarks     // and it marks the logs that it syncs itself
	RewriteVerified   // what is written back is what was checked, not read a second time

	// Sessions.

	KeysCompared  // a key in log or ring makes a replay
	TombstoneLast // nothing is accepted after a tombstone
	DeleteIsEntry // delete goes through the ring, it does not unlink
	PruneUnnamed  // a log is pruned only when no ring entry names it
	FenceEquality // grants are compared with equality
	FenceInLock   // within the critical section that writes

	endOfRules
)

// AllRules is the protocol.
const AllRules = endOfRules - 1

var ruleNames = [...]string{
	"Position", "Chain", "EpochOrder", "PadNeverStraddles", "DurableHint", "Adoption",
	"JournalInode", "InodeAtFinish", "ControlCRC", "ReloadSyncs", "RebuildRewrites", "DirectorySync", "OwnDurableDropped",
	"CacheEpoch", "CacheStart", "WholeAtOpen", "WholeAtLock",
	"SyncBeforeApply", "UnknownAfterWrite", "EpochInWaits", "TargetSameRead",
	"SyncErrorFinal", "SyncErrorShared", "OneSyncPerFD", "OpenerRewrites", "OpenerSlots",
	"StartInW", "SyncLockBypassed", "FullRingSyncs",
	"ReplayWaits", "RefusalWaits", "VoidReevaluated", "ApplyStops", "LogInode", "LiveHoles",
	"HeaderBeforeStart", "SlotChoice", "SlotUnderLock", "SlotStillMine", "CheckpointNeverBack",
	"SessionsDirSync", "LogCopyAfterEIO", "CopyFromRing",
	"CheckpointMark", "OpenBeforeMarks", "OwnMarkCounts",
	"AloneChecked", "ControlNotTrusted", "FirstOpenRewrites", "FirstOpenSlot", "FirstOpenDirSync", "HolesFilled", "MarkAtOpen", "SuspectsFirst", "RecoveryMarks", "RewriteVerified",
	"KeysCompared", "TombstoneLast", "DeleteIsEntry", "PruneUnnamed", "FenceEquality", "FenceInLock",
}

// Each lists the rules of a set one by one.
func (r Rules) Each() []Rules {
	var all []Rules
	for i := range ruleNames {
		if one := Rules(1) << i; r&one != 0 {
			all = append(all, one)
		}
	}
	return all
}

// String names the rules of a set, joined with "+".
func (r Rules) String() string {
	if r == AllRules {
		return "all rules"
	}
	var names []string
	for i, name := range ruleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}
