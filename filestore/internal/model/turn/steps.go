package turn

import "fmt"

// next is a state one step away, and what the step was.
type next struct {
	state  State
	what   string
	broken string
}

// explorer lists the steps that can be taken.
type explorer struct {
	rules Rules
	out   []next
}

func (x *explorer) has(r Rules) bool { return x.rules&r != 0 }

// take records a step. A state that breaks a promise ends the search.
func (x *explorer) take(s State, broken, format string, args ...any) {
	if broken == "" {
		broken = s.staleLine()
	}
	s.forget()
	x.out = append(x.out, next{s, fmt.Sprintf(format, args...), broken})
}

// successors are all states one step away.
func (x *explorer) successors(s *State, procs int) []next {
	x.out = x.out[:0]
	for p := range uint8(procs) {
		if me := &s.procs[p]; me.alive {
			x.work(s, p)
			if s.kills > 0 {
				u := *s
				u.kills--
				u.procs[p] = proc{life: me.life, token: me.token}
				x.take(u, "", "P%d is killed", p)
			}
		} else {
			u := *s
			u.procs[p].alive = true
			u.procs[p].life++
			x.take(u, "", "P%d starts", p)
		}
	}
	if s.durable < s.lines {
		u := *s
		u.durable = u.lines
		x.take(u, "", "sync")
	}
	x.disasters(s)
	return x.out
}

// disasters are the faults of the disk.
func (x *explorer) disasters(s *State) {
	if s.cuts > 0 {
		u := *s
		u.cuts--
		u.lines = u.durable
		clear(u.log[u.lines:])
		for p := range u.procs {
			u.procs[p] = proc{life: s.procs[p].life, token: s.procs[p].token}
		}
		x.take(u, u.forgotten(), "power cut")
	}
	if s.backups > 0 && s.durable == s.lines {
		for n := range s.lines {
			u := *s
			u.backups--
			u.lines, u.durable = n, n
			clear(u.log[n:])
			u.told, u.over = 0, 0 // they were about the log that was replaced
			for p := range u.procs {
				u.procs[p] = proc{life: s.procs[p].life, token: s.procs[p].token}
			}
			x.take(u, "", "a log of %d lines is put back in place", n)
		}
	}
}

// work lists what one process can do.
func (x *explorer) work(s *State, p uint8) {
	me := &s.procs[p]
	switch me.step {
	case idle:
		x.claim(s, p)
		if me.token != 0 {
			x.useToken(s, p)
		}
	case leasing:
		u := *s
		u.procs[p].table |= bit(me.mine)
		u.procs[p].step = granting
		x.take(u, "", "P%d writes the lease of grant %d", p, me.mine)
	case writing:
		if s.lines < maxLines {
			u := *s
			u.add(wrote, me.token)
			u.procs[p].step = idle
			x.take(u, u.accepted(p), "P%d writes under grant %d", p, me.token)
		}
	case granting, refused, closing:
		x.answer(s, p)
	}
}

// claim is an attempt to take the turn: a look at the holder, or the grant.
func (x *explorer) claim(s *State, p uint8) {
	held := s.held()
	me := &s.procs[p]
	if held == 0 {
		x.grant(s, p, "the turn is free", "")
		return
	}
	if !s.keeps(held) {
		x.grant(s, p, fmt.Sprintf("the holder of %d is dead", held), "")
		x.end(s, p, "dead", x.wronglyDead(s, held))
	} else if g := s.grants[held]; me.watch == held && me.count == g.count {
		x.grant(s, p, fmt.Sprintf("the holder of %d is silent", held), "")
		x.end(s, p, "silent", "")
	} else {
		u := *s
		u.procs[p].watch, u.procs[p].count = held, g.count
		x.take(u, "", "P%d watches grant %d", p, held)
	}
	if s.errors > 0 {
		u := *s
		u.errors--
		if x.has(ErrorIsNoDeath) {
			x.take(u, "", "P%d can't look at the holder of %d", p, held)
			return
		}
		broken := ""
		if u.keeps(held) {
			broken = fmt.Sprintf("grant %d was taken from a holder that lives and was called dead", held)
		}
		x.grant(&u, p, "a look failed", broken)
	}
}

// grant adds a grant to the log, which ends the one before.
func (x *explorer) grant(s *State, p uint8, why, broken string) {
	if s.lines == maxLines || s.made == maxGrants {
		return
	}
	if held := s.held(); held != 0 && broken == "" && why == fmt.Sprintf("the holder of %d is dead", held) {
		broken = x.wronglyDead(s, held)
	}
	u := *s
	u.made++
	g, before := u.made, u.newest()
	u.grants[g] = grant{number: u.grants[before].number + 1, keeper: p, life: u.procs[p].life}
	u.add(granted, g)
	me := &u.procs[p]
	me.mine, me.rests, me.watch, me.count = g, u.lines, 0, 0
	if x.has(LeaseFirst) {
		me.table |= bit(g)
		me.step = granting
	} else {
		me.step = leasing
	}
	x.take(u, broken, "P%d: %s: grant %d", p, why, g)
}

// end is a write by a process that an exclusive turn would keep out, and that
// finds its holder gone.
func (x *explorer) end(s *State, p uint8, why, broken string) {
	if s.lines == maxLines {
		return
	}
	u := *s
	held := u.held()
	u.add(ended, held)
	u.procs[p].watch, u.procs[p].count = 0, 0
	x.take(u, broken, "P%d ends grant %d, whose holder is %s, and writes", p, held, why)
}

// wronglyDead reports a holder that was declared dead although it is alive and
// has not given up its grant: its lease was not written yet.
func (x *explorer) wronglyDead(s *State, held uint8) string {
	k := s.grants[held]
	p := s.procs[k.keeper]
	if p.alive && p.life == k.life && p.step == leasing && p.mine == held {
		return fmt.Sprintf("grant %d was taken from a holder that lives and was called dead", held)
	}
	return ""
}

// answer tells the caller of a grant, a refusal or a release.
func (x *explorer) answer(s *State, p uint8) {
	me := s.procs[p]
	waits := me.step == refused && x.has(RefusalWaits) || me.step != refused && x.has(GrantWaits)
	if waits && s.durable < me.rests {
		return
	}
	u := *s
	u.procs[p].step, u.procs[p].rests, u.procs[p].mine = idle, 0, 0
	switch me.step {
	case granting:
		u.procs[p].token = me.mine
		u.told |= bit(me.mine)
		for g := uint8(1); g < me.mine; g++ {
			u.over |= bit(g) // the holder knows that nobody else holds it
		}
		x.take(u, "", "P%d is told that it has grant %d", p, me.mine)
	case refused:
		u.over |= bit(me.token)
		x.take(u, "", "P%d is told that grant %d is over", p, me.token)
	case closing:
		u.over |= bit(me.token)
		x.take(u, "", "P%d is told that grant %d is released", p, me.token)
	}
}

// useToken writes under a token, renews it or gives it up.
func (x *explorer) useToken(s *State, p uint8) {
	g := s.procs[p].token
	began := *s
	began.procs[p].old = s.over&bit(g) != 0
	u := began
	switch {
	case !x.current(s, g):
		u.procs[p].step, u.procs[p].rests = refused, u.lines
		x.take(u, "", "P%d is refused under grant %d", p, g)
	case !x.has(FenceAtCommit):
		u.procs[p].step = writing
		x.take(u, "", "P%d may write under grant %d", p, g)
	case s.lines < maxLines:
		u.add(wrote, g)
		x.take(u, u.accepted(p), "P%d writes under grant %d", p, g)
	}
	if s.held() == g && s.keeps(g) && s.grants[g].keeper == p && s.grants[g].count == 0 {
		u := began
		u.grants[g].count++
		x.take(u, "", "P%d renews grant %d", p, g)
	}
	if held := s.held(); s.lines < maxLines && held != 0 && (held == g || !x.has(ReleaseOwn)) {
		u := began
		u.add(ended, held)
		u.procs[p].step, u.procs[p].rests = closing, u.lines
		u.procs[p].table &^= bit(g)
		broken := ""
		if held != g {
			broken = fmt.Sprintf("grant %d was ended by the release of %d", held, g)
		}
		x.take(u, broken, "P%d releases grant %d", p, g)
	}
}

// current tells whether a token is accepted.
func (x *explorer) current(s *State, g uint8) bool {
	held := s.held()
	switch {
	case !x.has(Fence):
		return true
	case held != 0 && !x.has(Equality):
		return s.grants[g].number >= s.grants[held].number
	}
	return held == g
}

// accepted reports a write that was accepted although its token was over when it
// began.
func (s *State) accepted(p uint8) string {
	if me := s.procs[p]; me.old {
		return fmt.Sprintf("a write under grant %d was accepted after somebody was told that it is over", me.token)
	}
	return ""
}

// staleLine reports a line under a grant that was not held at that point.
func (s *State) staleLine() string {
	held := uint8(0)
	for _, e := range s.log[:s.lines] {
		switch {
		case e.kind == granted:
			held = e.grant
		case e.kind == ended:
			held = 0
		case e.kind == wrote && e.grant != held:
			return fmt.Sprintf("a line under grant %d stands where %d is held", e.grant, held)
		}
	}
	return ""
}

// forgotten reports a grant that was acknowledged and lost in a power cut.
func (s *State) forgotten() string {
	for g := uint8(1); g <= s.made; g++ {
		there := false
		for _, e := range s.log[:s.lines] {
			there = there || e.kind == granted && e.grant == g
		}
		if s.told&bit(g) != 0 && !there {
			return fmt.Sprintf("grant %d was answered and is gone", g)
		}
	}
	return ""
}
