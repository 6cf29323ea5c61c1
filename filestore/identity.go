package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/internal/vfs"
)

var _ hansard.Identified = (*Store)(nil)

// Identity implements [hansard.Identified]: the number that the journal was created with,
// and that every journal inherits which replaces it. So a store is the same one under
// another path, through a link or behind a server, and a copy made by `hansard copy` is a
// different one. A directory that was copied file by file has the number of its original:
// whatever is bound to the identity (tokens, a turn's address) documents that itself.
//
// Empty: there is no journal yet.
func (s *Store) Identity(context.Context) (string, error) {
	if s.closed.Load() {
		return "", hansard.ErrClosed
	}
	f, err := s.fs.Open(journal.Name, vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	slots, _, best, err := journal.ReadSlots(f)
	if err != nil || best < 0 {
		return "", err // other code reports what is wrong with the journal
	}
	return fmt.Sprintf("file-%016x", slots[best].StoreID), nil
}
