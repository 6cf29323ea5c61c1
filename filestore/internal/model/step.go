package model

// The program counters. A name says what the process does next.
const (
	atDead uint8 = iota
	atOpen
	atRecoverRewrite // only without RewriteVerified
	atRecoverSync
	atRecoverDir
	atRecoverApply
	atRecoverLog
	atRecoverLogSync
	atRecoverSlot
	atRecoverSlotSync
	atRecoverControl
	atReloadDir
	atReloadScan
	atReloadRewrite // only without RewriteVerified
	atReloadSync
	atReloadControl
	atIdle
	atAppendLock
	atAppendCatchup
	atAppendMore
	atAppendPublish
	atSyncLook
	atSyncTarget // only without TargetSameRead
	atSync
	atSyncReport // only with Threads
	atSyncPublish
	atFinishLock
	atFinishCatchup
	atRotateLock
	atRotateCopy
	atRotateDir
	atRotateControl
	atCheckpointLook
	atCheckpointOpen
	atCheckpointMarks
	atCheckpointMark
	atCheckpointSync
	atCheckpointCopyLock
	atCheckpointCopy
	atCheckpointUnmark
	atCheckpointSessions
	atCheckpointSlot
	atCheckpointSlotWrite // only without SlotUnderLock
	atCheckpointSlotSync
	atCheckpointPublish
)

var pcNames = [...]string{
	"dead", "open", "recover: rewrite", "recover: sync ring", "recover: sync directory", "recover: apply",
	"recover: log", "recover: sync log", "recover: slot", "recover: sync slot", "recover: control",
	"reload: sync directory", "reload: scan, rewrite", "reload: rewrite", "reload: sync", "reload: control",
	"idle", "append: lock", "append: catch up, write", "append: write on", "append: publish",
	"sync: look", "sync: target", "sync", "sync: report", "sync: publish",
	"finish: lock", "finish: catch up",
	"rotate: lock", "rotate: copy, rename", "rotate: sync directory", "rotate: control",
	"checkpoint: look", "checkpoint: open log", "checkpoint: read marks", "checkpoint: mark", "checkpoint: sync log",
	"checkpoint: lock for copy", "checkpoint: copy log", "checkpoint: unmark", "checkpoint: sync sessions",
	"checkpoint: slot", "checkpoint: write slot", "checkpoint: sync slot", "checkpoint: publish",
}

// explorer computes successors under one configuration and one set of rules.
type explorer struct {
	cfg     *Config
	rules   Rules
	out     []successor
	fault   string // the violation found by the step under way
	bounded int    // successors left out because the model has no room for them
}

// successor is a State one system call later.
type successor struct {
	state  State
	by     int // the process, -1 for the environment
	what   string
	broken string
}

func (x *explorer) on(r Rules) bool { return x.rules&r != 0 }

// fail notes a violation in the step under way.
func (x *explorer) fail(why string) {
	if x.fault == "" {
		x.fault = why
	}
}

// step adds the successor that f makes of s for process pi.
func (x *explorer) step(s *State, pi int, what string, f func(n *State, p *proc)) {
	x.out = append(x.out, successor{state: *s, by: pi, what: what})
	c := &x.out[len(x.out)-1]
	f(&c.state, &c.state.proc[pi])
	c.broken, x.fault = x.fault, ""
}

// env adds a successor that no process causes.
func (x *explorer) env(s *State, what string, f func(n *State)) {
	x.out = append(x.out, successor{state: *s, by: -1, what: what})
	f(&x.out[len(x.out)-1].state)
}

// successors lists everything that can happen next. The slice is reused.
func (x *explorer) successors(s *State) []successor {
	x.out = x.out[:0]
	for pi := range x.cfg.Procs {
		x.process(s, pi)
	}
	x.evict(s)
	x.environment(s)
	return x.out
}

// process adds the steps of one process: its next system call, or its death.
// A stopped process needs no step of its own: it just takes none.
func (x *explorer) process(s *State, pi int) {
	p := &s.proc[pi]
	switch {
	case p.pc == atDead:
		x.spawn(s, pi)
		return
	case p.pc < atReloadDir:
		x.openSteps(s, pi)
	case p.pc < atIdle:
		x.reloadSteps(s, pi)
	case p.pc < atRotateLock:
		x.appendSteps(s, pi)
	case p.pc < atCheckpointLook:
		x.rotateSteps(s, pi)
	default:
		x.checkpointSteps(s, pi)
	}
	if s.kills > 0 && p.pc != atOpen {
		x.step(s, pi, "KILLED", func(n *State, p *proc) { x.kill(n, pi) })
	}
}

// kill ends a process; the kernel releases its locks.
func (x *explorer) kill(n *State, pi int) {
	n.kills--
	x.exit(n, pi)
	if x.cfg.Threads {
		x.exit(n, 1-pi)
	}
}

// exit is the end of a process. Its marks stay in its instance file.
func (x *explorer) exit(n *State, pi int) {
	me := uint8(pi + 1)
	for _, l := range []*uint8{&n.lock, &n.syncLock, &n.fdBusy} {
		if *l == me {
			*l = 0
		}
	}
	n.marks |= n.proc[pi].mark
	n.proc[pi] = proc{}
	n.forgetRings()
}

// forgetRings empties the journal files that are no longer reachable.
func (s *State) forgetRings() {
	for i := range s.ring {
		if !s.reachable(uint8(i)) {
			s.ring[i] = ring{}
		}
	}
}

func (s *State) reachable(f uint8) bool {
	if s.dir == f || s.dirDisk == f {
		return true
	}
	for i := range s.proc {
		if s.proc[i].pc > atOpen && s.proc[i].fd == f {
			return true
		}
	}
	return false
}

func (x *explorer) spawn(s *State, pi int) {
	if s.spawns == 0 {
		return
	}
	if x.cfg.Threads && pi == 1 { // a second thread needs the process
		if s.proc[0].pc == atIdle {
			x.step(s, pi, "thread starts", func(n *State, p *proc) {
				n.spawns--
				*p = n.proc[0]
			})
		}
		return
	}
	x.step(s, pi, "starts", func(n *State, p *proc) {
		n.spawns--
		p.pc = atOpen
	})
}

// environment adds power cuts, a control file gone bad, and the disk filling
// up and being freed.
func (x *explorer) environment(s *State) {
	if s.cuts > 0 {
		x.powerCuts(s)
	}
	if s.controlFaults > 0 {
		// The epoch stays readable: without the checksum the record would look
		// right.
		if s.w.ok == 1 {
			x.env(s, "W goes bad", func(n *State) {
				n.controlFaults--
				n.w = wRec{epoch: n.w.epoch}
			})
		}
		if s.y.ok == 1 {
			x.env(s, "Y goes bad", func(n *State) {
				n.controlFaults--
				n.y = yRec{epoch: n.y.epoch}
			})
		}
	}
	if s.fills > 0 && s.full == 0 {
		x.env(s, "the disk is full", func(n *State) { n.fills--; n.full = 1 })
	}
	if s.full == 1 {
		x.env(s, "space is freed", func(n *State) { n.full = 0 })
	}
}

// durable is how far the ring is known to be on the disk: Y counts only in its
// epoch, and is no more than a hint.
func (s *State) durable() uint8 {
	d := max(s.w.base, s.w.applied)
	if s.y.ok == 1 && s.y.epoch == s.w.epoch {
		d = max(d, s.y.durable)
	}
	return min(d, s.w.written)
}

// otherControl says that W is not about the ring the process has open; that
// can be seen without the lock.
func (x *explorer) otherControl(s *State, p *proc) bool {
	return x.on(ControlCRC) && s.w.ok == 0 || s.w.epoch != p.epoch
}

// stale says that a lock holder must reload before it trusts anything.
// [lock: fstat(fd) == stat(path) for the journal, and the epoch is mine, else
// reopen; bad crc or other epoch → reload()]
func (x *explorer) stale(s *State, p *proc) bool {
	compare := JournalInode
	if p.pc == atFinishLock {
		compare |= InodeAtFinish
	}
	return x.rules&compare == compare && s.dir != p.fd || x.otherControl(s, p)
}

// enter adds the step that takes write.lock: it goes into the reload if that
// is due, and returns to ret afterwards; otherwise it does what the caller
// wants. A critical section with a single change is one step: a kill inside is
// a kill before or after that change.
func (x *explorer) enter(s *State, pi int, what string, ret uint8, then func(n *State, p *proc)) {
	if s.lock != 0 {
		return
	}
	if x.stale(s, &s.proc[pi]) {
		x.step(s, pi, "locks W, finds the journal changed", func(n *State, p *proc) {
			n.lock = uint8(pi + 1)
			x.reopen(n, p, ret)
		})
		return
	}
	x.step(s, pi, what, func(n *State, p *proc) {
		n.lock = uint8(pi + 1)
		then(n, p)
	})
}
