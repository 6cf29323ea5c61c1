package filestore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// measures count what a store does, for people who watch it.
type measures struct {
	syncs, syncNanos atomic.Int64 // of the journal, by this process
	locks, lockNanos atomic.Int64 // of write.lock: how often, and the waiting for it
	recoveries       atomic.Int64 // first opens after a crash
	rotations        atomic.Int64 // journals replaced
}

// since adds a piece of work that took until now.
func since(count, nanos *atomic.Int64, began time.Time) {
	count.Add(1)
	nanos.Add(int64(time.Since(began)))
}

// Measures gives counters of this process's use of the store since it was opened,
// by names in the style of Prometheus.
func (s *Store) Measures() map[string]float64 {
	seconds := func(n *atomic.Int64) float64 { return time.Duration(n.Load()).Seconds() }
	return map[string]float64{
		"journal_syncs_total":           float64(s.measures.syncs.Load()),
		"journal_sync_seconds_total":    seconds(&s.measures.syncNanos),
		"write_locks_total":             float64(s.measures.locks.Load()),
		"write_lock_wait_seconds_total": seconds(&s.measures.lockNanos),
		"recoveries_total":              float64(s.measures.recoveries.Load()),
		"journal_rotations_total":       float64(s.measures.rotations.Load()),
	}
}

const (
	probeName = "probe"
	// probeSession is one that nobody has; if somebody does, it is not changed.
	probeSession = hansard.SessionID("hansard.probe")
)

// Probe tells whether the store takes writes: it writes to a file beside the
// journal and syncs it, and sends a batch through the commit that no session can
// accept, which needs the write lock, a journal that did not fail, and space.
func (s *Store) Probe(ctx context.Context) error {
	if err := s.usable(ctx, probeSession); err != nil {
		return err
	}
	f, err := s.fs.Open(probeName, vfs.Create)
	if err != nil {
		return s.writeError("probe", err)
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%s\n", hansard.Now().Format(timeLayout)), 0)
	err = errors.Join(err, f.Datasync(), f.Close())
	if err != nil {
		return s.writeError("probe", err)
	}
	_, err = s.Append(ctx, probeSession, hansard.Batch{Events: []hansard.Event{{Data: []byte("null")}}, Expect: hansard.At(math.MaxUint64)})
	switch {
	case errors.Is(err, hansard.ErrNotFound), errors.Is(err, hansard.ErrConflict), errors.Is(err, hansard.ErrDeleted), errors.Is(err, hansard.ErrHeld):
		return nil
	case err == nil:
		return errors.New("probe: a batch was stored that no session can accept")
	}
	return err
}
