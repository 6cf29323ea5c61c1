package backup

import (
	"fmt"

	"hansard"
)

// only restores the requested sessions. The manifest of the backup says where they are: the
// blocks of others are not read.
func (r *restore) only(f *File, want *wanted, before int64) error {
	for e, err := range f.Entries() {
		if err != nil {
			return err
		}
		if e.Offset == 0 || !r.asked(e.ID) {
			continue
		}
		if err := r.session(f, &e, want); err != nil {
			return err
		}
	}
	r.tell(before + f.size)
	return nil
}

// session restores one session of a backup.
func (r *restore) session(f *File, e *Entry, want *wanted) error {
	b := f.blocks(e.Offset)
	defer b.close()
	p := &passing{r: r, s: &scanner{r: b}, want: want}
	if err := p.find(e.ID); err != nil {
		return err
	}
	for p.cur != nil {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if _, err := p.next(); err != nil {
			return err
		}
	}
	return nil
}

// find goes to where a session begins. Others may begin in the same block.
func (p *passing) find(id hansard.SessionID) error {
	at := p.s.r.at
	for {
		p.s.lost = true // skip everything before the next session
		it, err := p.s.nextSession()
		if err != nil {
			return err
		}
		if it.over || it.line.Session.ID > id {
			return p.s.r.damaged(at, fmt.Sprintf("session %s does not begin where the manifest says", id))
		}
		if it.line.Session.ID == id {
			return p.begin(it.line.Session)
		}
	}
}
