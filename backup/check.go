package backup

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"hansard"
	"hansard/engine"
)

// Check reads a file from its first byte to its last and compares everything with its
// checksums: each block, each session of the manifest with its events, every seq once
// and in order, each attachment with its digest, and every attachment that an event
// names. It needs no store. base is the backup that this one is an increment of, nil if it
// is not available; then only the file itself is checked.
func (b *File) Check(ctx context.Context, base *File, progress func(Progress)) error {
	r := b.blocks(0)
	defer r.close()
	c := &checking{file: b, r: r, s: &scanner{r: r}, progress: Progress{Size: b.size}}
	var stop func()
	c.entries, stop = newLookup(b)
	defer stop()
	// Sessions without content here must be in the base, unchanged.
	c.entries.passed = c.unchanged
	if base != nil {
		c.base, stop = newLookup(base)
		defer stop()
	}
	for !c.over {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.next(); err != nil {
			return err
		}
		if progress != nil {
			c.progress.Bytes = r.at
			progress(c.progress)
		}
	}
	if err := c.entries.rest(); err != nil {
		return err
	}
	if c.wrong != nil {
		return c.wrong
	}
	return c.tail()
}

// Check checks all files of the chain, one after the other.
func (c *Chain) Check(ctx context.Context, progress func(Progress)) error {
	var base *File
	var before, size int64
	for _, f := range c.files {
		size += f.size
	}
	for _, f := range c.files {
		tell := progress
		if progress != nil {
			tell = func(p Progress) {
				p.Bytes, p.Size = p.Bytes+before, size
				progress(p)
			}
		}
		if err := f.Check(ctx, base, tell); err != nil {
			return err
		}
		base, before = f, before+f.size
	}
	return nil
}

// checking is a check under way.
type checking struct {
	file     *File
	r        *blocks
	s        *scanner
	entries  *lookup
	base     *lookup // nil if there is none, or it is not available
	wrong    error
	over     bool
	progress Progress
	totals   Totals

	cur      *sessionLine
	began    int64
	last     hansard.Seq
	tailHash string
	events   hansard.Seq
	grants   engine.Grants
	attached map[string]int64
	prior    hansard.SessionID
}

func (c *checking) damaged(at int64, format string, args ...any) error {
	return c.r.damaged(at, fmt.Sprintf(format, args...))
}

// unchanged checks an entry of the manifest whose session has no content in this backup.
func (c *checking) unchanged(e Entry) {
	switch {
	case c.wrong != nil:
		return
	case e.Deleted:
		c.totals.Deleted++
	default:
		c.totals.Sessions++
	}
	switch {
	case e.Offset != 0 && !e.Deleted:
		c.wrong = c.damaged(e.Offset, "session %s is missing: the manifest has it", e.ID)
	case e.From > c.file.head.Number || e.From == c.file.head.Number && e.Last > 0 && !e.Deleted:
		c.wrong = c.damaged(c.file.totals.Manifest, "session %s has no content anywhere", e.ID)
	case c.base != nil && !e.Deleted && e.Damage == "":
		was, err := c.base.find(e.ID)
		if err != nil {
			c.wrong = err
		} else if was == nil || was.Last != e.Last || was.From != e.From || !was.Created.Equal(e.Created) {
			c.wrong = c.damaged(c.file.totals.Manifest, "session %s is not what the base has", e.ID)
		}
	}
}

func (c *checking) next() error {
	it, err := c.s.next()
	if err != nil {
		return err
	}
	switch l := &it.line; {
	case it.over:
		c.over = true
		if c.cur != nil {
			return c.damaged(it.at, "session %s has no end", c.cur.ID)
		}
		if it.at != c.file.totals.Manifest {
			return c.damaged(it.at, "the manifest is not where the end block says")
		}
		return nil
	case l.Backup != nil:
		return nil
	case l.Session != nil:
		return c.begin(it.at, l.Session)
	case c.cur == nil:
		return c.damaged(it.at, "something of no session")
	case l.Attachment != nil:
		return c.attachment(it.at, l.Attachment)
	case l.Part != nil:
		return c.part(it.at, &hansard.Part{Origin: c.cur.Origin, Events: it.events, Keys: l.Part.Keys})
	}
	return c.done(it.at, it.line.Done)
}

func (c *checking) begin(at int64, s *sessionLine) error {
	if c.cur != nil || s.ID <= c.prior || s.Deleted {
		return c.damaged(at, "session %s begins at the wrong place", s.ID)
	}
	c.cur, c.began, c.prior, c.last, c.tailHash, c.events, c.attached = s, at, s.ID, s.After, "", 0, map[string]int64{}
	c.grants = engine.Grants{}
	if s.After > 0 {
		if c.file.head.Number == 0 {
			return c.damaged(at, "session %s does not begin at its beginning", s.ID)
		}
		// Who held the turn before is unknown here, as after lost events.
		return c.grants.Next(&hansard.Event{Kind: hansard.KindLost, Data: []byte("null")})
	}
	return nil
}

func (c *checking) attachment(at int64, a *attachLine) error {
	sum := sha256.New()
	from := &attachment{s: c.s}
	n, err := io.Copy(sum, from)
	switch {
	case from.err != nil:
		return from.err
	case err != nil: // cut off: an error only if an event names it
		return nil
	}
	if got := fmt.Sprintf("%s%x", hansard.DigestPrefix, sum.Sum(nil)); got != a.Digest {
		return c.damaged(at, "attachment %s of session %s is %s", a.Digest, c.cur.ID, got)
	}
	c.attached[a.Digest] = n
	c.totals.Attachments++
	return nil
}

// part checks a part as a store would on import.
func (c *checking) part(at int64, p *hansard.Part) error {
	err := engine.CheckPartInput(p)
	if err == nil {
		err = engine.CheckPart(p, c.last, &c.grants, func(string) (engine.Known, bool) { return engine.Known{}, false })
	}
	if err != nil {
		return c.damaged(at, "session %s: %v", p.ID, err)
	}
	for i := range p.Events {
		e := &p.Events[i]
		if e.Seq != c.last+1 {
			return c.damaged(at, "session %s: seq %d follows seq %d", p.ID, e.Seq, c.last)
		}
		c.last = e.Seq
		for _, a := range e.Attachments {
			if size, ok := c.attached[a.Digest]; !ok || size != a.Size {
				return c.damaged(at, "session %s: seq %d names attachment %s, which is not there", p.ID, e.Seq, a.Digest)
			}
		}
	}
	c.tailHash = tailOf(&p.Events[len(p.Events)-1])
	c.events += hansard.Seq(len(p.Events))
	c.progress.Events += hansard.Seq(len(p.Events))
	c.totals.Events += hansard.Seq(len(p.Events))
	return nil
}

// done compares a session with its entry in the manifest and with what the base has.
func (c *checking) done(at int64, d *Entry) error {
	s := c.cur
	c.cur = nil
	if d.ID != s.ID || d.Last != c.last {
		return c.damaged(at, "session %s ends with seq %d, not %d", s.ID, c.last, d.Last)
	}
	e, err := c.entries.find(s.ID)
	if err == nil {
		err = c.wrong
	}
	if err != nil {
		return err
	}
	if e == nil || e.Deleted != d.Deleted || !e.Deleted && (e.Last != d.Last || e.Events != c.events || c.events > 0 && e.Tail != c.tailHash || e.Offset != c.began || e.From > c.file.head.Number || !e.Created.Equal(s.Created)) {
		return c.damaged(at, "session %s is not as the manifest says", s.ID)
	}
	if e.Deleted {
		c.totals.Deleted++
		return nil // it was deleted while the backup read it
	}
	c.totals.Sessions++
	c.totals.Changed++
	c.progress.Sessions++
	if s.After == 0 || c.base == nil {
		return nil
	}
	was, err := c.base.find(s.ID)
	if err != nil {
		return err
	}
	if was == nil || was.Last != s.After || was.From != e.From || !was.Created.Equal(s.Created) {
		return c.damaged(at, "session %s continues after seq %d, where the base does not end", s.ID, s.After)
	}
	return nil
}

// tail compares the totals, and checks the blocks up to the end of the file.
func (c *checking) tail() error {
	t := &c.file.totals
	if t.Sessions != c.totals.Sessions || t.Deleted != c.totals.Deleted || t.Changed != c.totals.Changed || t.Events != c.totals.Events || t.Attachments != c.totals.Attachments {
		return c.damaged(c.file.end, "it has %d sessions, %d events and %d attachments, and says %d, %d and %d",
			c.totals.Sessions, c.totals.Events, c.totals.Attachments, t.Sessions, t.Events, t.Attachments)
	}
	return c.chained()
}

// chained checks that the blocks of the manifest follow those of the sessions, up to the
// end block.
func (c *checking) chained() error {
	for c.r.header.kind != kindEnd {
		if _, err := c.r.next(); err != nil {
			return err
		}
	}
	if c.r.began != c.file.end {
		return c.damaged(c.r.began, "it has two ends")
	}
	return nil
}
