package model

// Config is one small world: how many processes, what they are asked for, and
// what may go wrong. All budgets together span the state space.
type Config struct {
	Name   string
	Procs  int
	Cells  int // ring size
	Script []Op

	Running     int // processes that have the store open at the start
	Spawns      int // processes that may start later
	Kills       int
	Checkpoints int
	RingErrors  int // failed syncs of the ring
	LogErrors   int // failed syncs of a log
	Evictions   int // pages lost by them that are evicted from the cache
	Cuts        int // power cuts as steps; every state is checked against cuts anyway
	Control     int // control records that go bad
	Fills       int // times the file system fills up
	NoCopy      int // times a suspect log can't be copied

	Tear       bool // kills in the middle of ring and slot writes
	PartialEIO bool // a failed sync may have written some pages
	Threads    bool // processes 0 and 1 are threads that share descriptors
	Caches     bool // processes remember sessions instead of reading them again
	Flips      bool // check that a flipped bit is noticed
	Solo       bool // check progress with the others stopped; no process thinks it is alone
	Restored   bool // session 0 was restored from a backup older than a grant somebody still holds
}

// start is the state a search begins with: a store that was made and, if
// processes are running, opened.
func (cfg *Config) start() State {
	var s State
	f := &s.ring[0]
	f.slot[0] = slot{ok: 1, hseq: 1, epoch: 1}
	if cfg.Restored {
		s.lastID = 1
		s.ent[1] = entry{kind: kindGrant, epoch: 1, cells: 1, seq: 1, n: 1, token: 1}
		s.log[0] = sessionLog{dir: 1, dirDisk: 1}
		s.log[0].file[0] = logFile{line: [maxLines]uint8{1}, lineDisk: [maxLines]uint8{1}, size: 1, sizeDisk: 1}
		f.slot[0].start, f.slot[0].chain = 1, 1
		s.token[1] = foreign
	}
	f.slotDisk = f.slot
	if cfg.Running > 0 {
		at, chain := f.slot[0].start, f.slot[0].chain
		s.w = wRec{1, 1, at, chain, at, at, at}
		s.y = yRec{1, 1, at}
	}
	for i := range cfg.Running {
		s.proc[i] = proc{pc: atIdle, open: 1, epoch: 1}
	}
	s.kills, s.spawns, s.checkpoints = uint8(cfg.Kills), uint8(cfg.Spawns), uint8(cfg.Checkpoints)
	s.ringErrs, s.logErrs, s.evictions = uint8(cfg.RingErrors), uint8(cfg.LogErrors), uint8(cfg.Evictions)
	s.cuts, s.controlFaults = uint8(cfg.Cuts), uint8(cfg.Control)
	s.fills, s.noCopy = uint8(cfg.Fills), uint8(cfg.NoCopy)
	return s
}
