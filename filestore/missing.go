package filestore

import (
	"errors"
	"io/fs"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
)

// Parts of a store that were removed while it exists. Corrupt never means empty (failures
// F4 and 42): a missing sessions/ is not a store without sessions, and a missing journal
// is not recreated while others use the store.

// removedError is a part of the store that was removed or moved away, with what to do
// about it. errors.Is matches the contract error in its field is.
type removedError struct {
	what, hint string
	is         error // of the contract
}

func (e *removedError) Error() string        { return e.what }
func (e *removedError) Hint() string         { return e.hint }
func (e *removedError) Is(target error) bool { return target == e.is }

// errSessionsGone: a store has a journal only once the directory of its logs is durable
// (newJournal), so a journal alone means that all logs are missing. Creating the
// directory would turn that into an empty store, and lines would be set aside session by
// session.
var errSessionsGone = &removedError{"the directory sessions of the store is missing, and with it all logs",
	"put it back from where it was moved to, or restore it from a backup; running processes then continue. " +
		"If the sessions may be lost, make an empty directory sessions in the store", hansard.ErrDamaged}

// errJournalGone: the others still write to a file that nobody can open any more. A new
// one would be empty, and what only the removed one holds would be lost silently.
var errJournalGone = &removedError{"the journal of the store was removed while processes have the store open",
	"put it back from where it was moved to; or end all processes that have the store open, which is safe, and start them again: " +
		"the first makes a new journal, and what was acknowledged is in the logs", hansard.ErrFailed}

// sessionsGone tells whether the store exists and its directory of logs is missing.
func (p *process) sessionsGone() bool {
	// In this order: a store that is being created has the directory first, and the
	// journal only when that is durable.
	if _, _, err := p.fs.Inode(journal.Name); err != nil {
		return false
	}
	_, _, err := p.fs.Inode(sessionlog.Dir)
	return errors.Is(err, fs.ErrNotExist)
}

// makeDirs creates the directories that a store needs, and refuses if sessions/ was
// removed.
func (p *process) makeDirs() error {
	if p.sessionsGone() {
		return errSessionsGone
	}
	for _, dir := range []string{sessionlog.Dir, peers.InstancesDir} {
		if err := p.fs.Mkdir(dir); err != nil {
			return err
		}
	}
	_ = p.fs.Mkdir(peers.BellsDir) // waiting for a turn is slower without it
	return nil
}
