package filestore

import (
	"sync/atomic"
	"time"
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
