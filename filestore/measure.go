package filestore

import (
	"sync/atomic"
	"time"
)

// measures counts what this process does with a store, for monitoring: a server shows the
// counters on /metrics. Atomic, so that counting takes no lock. They do not include other
// processes, so nothing about the store is derived from them (failure 34).
type measures struct {
	syncs, syncNanos atomic.Int64 // fdatasyncs of the journal; those of other processes that covered ours do not count
	locks, lockNanos atomic.Int64 // of write.lock: how often, and the time spent waiting for it
	recoveries       atomic.Int64 // first opens after a crash
	rotations        atomic.Int64 // journals replaced

	checkpoints, failedCheckpoints atomic.Int64
}

// since counts an operation that began at a time and is done now.
func since(count, nanos *atomic.Int64, began time.Time) {
	count.Add(1)
	nanos.Add(int64(time.Since(began)))
}

// Measures returns counters of this process's use of the store since it was opened, with
// Prometheus style names: totals that only grow, so that the reader computes rates and a
// restart shows as a drop to zero. Worth an alarm are journal_rotations_total (syncs
// fail, or batches are larger than a ring of the usual size; a new store's small ring that
// grows is not counted) and checkpoint_failures_total (the ring fills up, and writes will
// be refused).
func (s *Store) Measures() map[string]float64 {
	seconds := func(n *atomic.Int64) float64 { return time.Duration(n.Load()).Seconds() }
	return map[string]float64{
		"journal_syncs_total":           float64(s.measures.syncs.Load()),
		"journal_sync_seconds_total":    seconds(&s.measures.syncNanos),
		"write_locks_total":             float64(s.measures.locks.Load()),
		"write_lock_wait_seconds_total": seconds(&s.measures.lockNanos),
		"recoveries_total":              float64(s.measures.recoveries.Load()),
		"journal_rotations_total":       float64(s.measures.rotations.Load()),
		"checkpoints_total":             float64(s.measures.checkpoints.Load()),
		"checkpoint_failures_total":     float64(s.measures.failedCheckpoints.Load()),
	}
}
