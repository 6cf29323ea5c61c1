package filestore

// plant is a bug put in on purpose, by tests only: the simulation must find
// every one of them, or it is worth nothing.
type plant int

const (
	plantNone          plant = iota
	plantNoSync              // acknowledge without syncing the ring
	plantNoDirSync           // checkpoint without syncing the directory of the logs
	plantLogBeforeSync       // write the logs before the ring is durable
	plantNoChain             // take entries of another time for valid
	plantReplayEarly         // answer a known key before its entry is durable
	plantHeldEarly           // tell of a holder before his grant is durable
	plantTrustControl        // believe the control file on first open
	plantRetrySync           // call a failed sync again and believe it
	plantNoCatchup           // write to a ring that was replaced late without looking at what it holds
	plantNoRewrite           // believe a sync on a ring opened after somebody's failed
	plantNoLock              // assign seqs outside the lock
	plantHalfBatch           // read to the last line, not to the last batch
	plantCutMore             // cut a good line with an unfinished one
	plantAppendMode          // write entries at the end of a log, wherever they go
	plantNoCopy              // go on with a log whose sync failed
	plantLostLockFile        // remove the lock file after use
	plantNoFence             // let a write in whatever its grant is
	plantFenceByNumber       // compare grants by their number, with >=
	plantErrorIsDead         // take an error of looking at a holder for his death
	plantGrantEarly          // answer a grant before it is durable
	plantLeaseLate           // write a lease after its grant
	plantRemoteDead          // take the death of a server for that of its client
	plantSilentEarly         // call a holder silent before its TTL is over
	plantPastEnd             // write what follows an entry that just fills the ring behind the ring
	plantCount
)

func (s *Store) planted(p plant) bool { return s.cfg.plant == p }
