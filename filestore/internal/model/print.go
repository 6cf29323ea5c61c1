package model

import (
	"fmt"
	"strings"
)

// line prints one step of a counterexample: who, where in the protocol, what;
// then the parts of the state that the step changed (all of them if before is
// nil).
func (c *search) line(before *State, u *successor) string {
	var b strings.Builder
	who := "--"
	if u.by >= 0 {
		who = fmt.Sprintf("P%d", u.by)
	}
	fmt.Fprintf(&b, "%s %s\n", who, u.what)
	now := u.state.parts(c.x.cfg)
	var was []string
	if before != nil {
		was = before.parts(c.x.cfg)
	}
	for i, p := range now {
		if was == nil || p != was[i] {
			fmt.Fprintf(&b, "      %s\n", p)
		}
	}
	return b.String()
}

// parts describes a state in lines that can be compared one by one.
func (s *State) parts(cfg *Config) []string {
	var parts []string
	for i := range s.ring {
		parts = append(parts, s.ringPart(cfg, i))
	}
	for i := range s.log {
		parts = append(parts, s.logPart(i))
	}
	parts = append(parts,
		fmt.Sprintf("W    %s epoch %d written %d applied %d start %d", badIf(s.w.ok == 0), s.w.epoch, s.w.written, s.w.applied, s.w.start),
		fmt.Sprintf("Y    %s epoch %d durable %d", badIf(s.y.ok == 0), s.y.epoch, s.y.durable),
		fmt.Sprintf("owed acknowledged %s relied on %s", mask(s.acked), mask(s.relied)))
	for id := uint8(1); id < maxIDs; id++ {
		e := ""
		if id <= s.lastID {
			d := &s.ent[id]
			e = fmt.Sprintf("entry %d: pos %d+%d epoch %d after %d, session %d seq %d", id, d.pos, d.cells, d.epoch, d.prev, d.sess, d.seq)
			if d.kind == kindPad {
				e = fmt.Sprintf("entry %d: pos %d+%d pad", id, d.pos, d.cells)
			}
		}
		parts = append(parts, e)
	}
	for i := range cfg.Procs {
		p := &s.proc[i]
		locked := ""
		if int(s.lock) == i+1 {
			locked = ", has W"
		}
		if int(s.syncLock) == i+1 {
			locked += ", has Y"
		}
		if p.mark != 0 {
			locked += fmt.Sprintf(", marks logs %b", p.mark)
		}
		parts = append(parts, fmt.Sprintf("P%d   next: %s%s", i, pcNames[p.pc], locked))
	}
	return parts
}

func (s *State) ringPart(cfg *Config, i int) string {
	r := &s.ring[i]
	if *r == (ring{}) {
		return fmt.Sprintf("ring %d: none", i)
	}
	name := ""
	if int(s.dir) == i {
		name += " journal"
	}
	if int(s.dirDisk) == i {
		name += " (durable name)"
	}
	cells := func(c []uint8) string {
		var b strings.Builder
		for _, v := range c {
			switch {
			case v == garbage:
				b.WriteString(" ~")
			case v&1 != 0:
				b.WriteString(" '")
			default:
				fmt.Fprintf(&b, " %d", v>>1)
			}
		}
		return b.String()
	}
	slots := func(t [2]slot) string {
		var b strings.Builder
		for _, v := range t {
			if v.ok == 0 {
				b.WriteString(" [bad]")
				continue
			}
			fmt.Fprintf(&b, " [#%d epoch %d start %d]", v.hseq, v.epoch, v.start)
		}
		return b.String()
	}
	return fmt.Sprintf("ring %d:%s cache%s%s disk%s%s", i, name,
		cells(r.cell[:cfg.Cells]), slots(r.slot), cells(r.cellDisk[:cfg.Cells]), slots(r.slotDisk))
}

func (s *State) logPart(i int) string {
	f := s.logOf(uint8(i))
	if f == nil {
		return fmt.Sprintf("log  %d: none", i)
	}
	durable := ""
	if s.log[i].dir != s.log[i].dirDisk {
		durable = " (name not durable)"
	}
	lines := func(c []uint8) string {
		var b strings.Builder
		for _, v := range c {
			if v&part != 0 {
				fmt.Fprintf(&b, " %d~", v&^part)
			} else {
				fmt.Fprintf(&b, " %d", v)
			}
		}
		return b.String()
	}
	return fmt.Sprintf("log  %d:%s cache%s disk%s", i, durable, lines(f.line[:f.size]), lines(f.lineDisk[:f.sizeDisk]))
}

func badIf(bad bool) string {
	if bad {
		return "BAD"
	}
	return "ok"
}

func mask(m uint8) string {
	if m == 0 {
		return "none"
	}
	var ids []string
	for id := uint8(0); id < 8; id++ {
		if m&bit(id) != 0 {
			ids = append(ids, fmt.Sprint(id))
		}
	}
	return strings.Join(ids, ",")
}
