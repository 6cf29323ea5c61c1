package turn

// The sizes of the world. A grant is identified by its index, as it is by its nonce
// in the engine: no two are the same.
const (
	maxProcs  = 3
	maxLines  = 6
	maxGrants = 3
)

// Rules are the rules of the protocol that can be switched off.
type Rules uint16

// The rules.
const (
	// Fence: the token of a write is compared with the current grant.
	Fence Rules = 1 << iota
	// FenceAtCommit: it is compared in the critical section that adds the write.
	FenceAtCommit
	// Equality: grants are compared as a whole, not by their number.
	Equality
	// LeaseFirst: a grant is in the table of its keeper before it is in the log.
	LeaseFirst
	// ErrorIsNoDeath: a failed look does not mean that the holder is dead.
	ErrorIsNoDeath
	// GrantWaits: a grant is acknowledged only when it is durable.
	GrantWaits
	// RefusalWaits: a refusal is sent only when what it rests on is durable.
	RefusalWaits
	// ReleaseOwn: a release ends only the grant it names.
	ReleaseOwn

	AllRules = ReleaseOwn<<1 - 1
)

// kind is what a line of the log says.
type kind uint8

const (
	none kind = iota
	granted
	ended
	wrote
)

// entry is one line: about a grant, or a write under one.
type entry struct {
	kind  kind
	grant uint8
}

// grant is what is known about a grant: its number in the log, and who keeps it
// alive.
type grant struct {
	number uint8
	keeper uint8 // process
	life   uint8 // of the keeper: a restart is another instance
	count  uint8 // of renewals
}

// step is how far a process is in its current operation.
type step uint8

const (
	idle     step = iota
	granting      // its grant is in the log, but not acknowledged yet
	leasing       // the same, and not yet in its table: without LeaseFirst
	writing       // its token was compared, but nothing is written yet: without FenceAtCommit
	refused       // a refusal that is not sent yet
	closing       // its release is in the log, but not acknowledged yet
)

// proc is a process and the token its caller has.
type proc struct {
	alive bool
	life  uint8
	table uint8 // bits of the grants it keeps alive
	token uint8 // 0: none
	old   bool  // the token was already over when it began to use it
	step  step
	mine  uint8 // the grant it is about
	rests uint8 // how much of the log must be durable before the answer
	watch uint8 // the grant whose renewals it watches; 0: none
	count uint8 // as it saw it
}

// State is one state of the world. It is compared as a whole.
type State struct {
	log     [maxLines]entry
	lines   uint8
	durable uint8
	grants  [maxGrants + 1]grant // by index, from 1
	made    uint8
	procs   [maxProcs]proc
	over    uint8 // bits of grants that somebody was told are over
	told    uint8 // bits of grants that were acknowledged
	kills   uint8 // left, as are the next three
	cuts    uint8
	errors  uint8
	backups uint8
}

// held is the grant that is held at the end of the log; 0: none.
func (s *State) held() uint8 {
	held := uint8(0)
	for _, e := range s.log[:s.lines] {
		switch e.kind {
		case granted:
			held = e.grant
		case ended:
			held = 0
		}
	}
	return held
}

// newest is the newest grant of the log, held or not.
func (s *State) newest() uint8 {
	newest := uint8(0)
	for _, e := range s.log[:s.lines] {
		if e.kind == granted {
			newest = e.grant
		}
	}
	return newest
}

func bit(g uint8) uint8 { return 1 << (g - 1) }

// keeps tells whether a grant's keeper lives and has it in its table.
func (s *State) keeps(g uint8) bool {
	k := s.grants[g]
	p := s.procs[k.keeper]
	return p.alive && p.life == k.life && p.table&bit(g) != 0
}

func (s *State) add(k kind, g uint8) {
	s.log[s.lines] = entry{k, g}
	s.lines++
}

// forget drops what nothing depends on any more, so that states which differ only
// in that become one: leases and watches of grants that are not held. A grant that
// is held again after a power cut has no live keeper.
func (s *State) forget() {
	held := s.held()
	for g := range s.grants {
		if k := &s.grants[g]; g != int(held) {
			*k = grant{number: k.number}
		}
	}
	for p := range s.procs {
		me := &s.procs[p]
		if me.watch != held {
			me.watch, me.count = 0, 0
		}
		if me.step != writing {
			me.old = false
		}
		keep := uint8(0)
		if held != 0 {
			keep = bit(held)
		}
		me.table &= keep
	}
}
