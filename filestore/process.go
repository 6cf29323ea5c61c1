package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"hansard"
	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

// process is what all parts of an open store share: where it is, how it was opened, and
// this process among those that have it open. Every part embeds a pointer to the same
// one. The fields up to cfg do not change after open; those that do are atomic or have
// their own lock, so no lock guards the struct.
type process struct {
	fs   vfs.FS
	dir  *vfs.OS // the same as fs; nil in the simulation
	path string  // of dir
	opt  Options
	// onlyRead is why a store that was opened for writing can only be read.
	onlyRead error
	cfg      config

	closed  atomic.Bool    // set first by Close: new calls are refused
	closing chan struct{}  // closed by Close
	workers sync.WaitGroup // Close waits for them: the leader, the background checkpoint, a mender

	joining   atomic.Bool // attach is under way, perhaps a recovery: busy says so
	logsKnown atomic.Bool // the logs have all that was acknowledged; never reset, see unapplied
	growFails atomic.Bool // a larger ring could not be made: this process does not try again
	unnoted   atomic.Bool // a deleted session could not be noted: the next erasing examines every log
	holder    []byte      // this process's record in control, shown to people who wait for write.lock
	waiters   *waiters
	leases    *peers.Leases // the turns this process keeps alive, and its instance file
	measures  measures
}

// stillOpen is the error that ends long work in the background once the store is being closed.
func stillOpen(p *process) error {
	if p.closed.Load() {
		return hansard.ErrClosed
	}
	return nil
}

// ifClosed is ErrClosed for an error of a call that was under way when the store was
// closed, and found its files closed. That says nothing about a session.
func ifClosed(p *process, err error) error {
	if p.closed.Load() && errors.Is(err, fs.ErrClosed) && !errors.Is(err, hansard.ErrClosed) {
		return fmt.Errorf("%w: %w", hansard.ErrClosed, err)
	}
	return err
}
