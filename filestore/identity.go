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

// Identity implements [hansard.Identified]: the number that the journal was made with,
// and that every journal has which took its place. So a store is the same one under
// another path, through a link or behind a server, and a copy made by `hansard copy` is
// another. A directory that was copied file by file has the number of its original: what
// is bound to the identity (tokens, a turn's address) says so in its own place.
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
		return "", err // what is wrong with the journal is for others to say
	}
	return fmt.Sprintf("file-%016x", slots[best].StoreID), nil
}
