package backup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"hansard"
)

// RestoreOptions are the options of [Chain.Restore].
type RestoreOptions struct {
	// Sessions are the sessions to restore; empty means all.
	Sessions []hansard.SessionID
	// Report is called for every session in every backup of the chain that has a part of
	// it, one call at a time.
	Report func(Restored)
	// Progress is called from time to time.
	Progress func(Progress)
}

// Restored says what Restore did with a session.
type Restored struct {
	Session hansard.SessionID `json:"session"`
	Deleted bool              `json:"deleted,omitempty"` // a tombstone
	// GoesOn is true if an earlier backup of the chain has the beginning of the session.
	GoesOn bool `json:"-"`
	// Events is how many the store has now, Added how many of them are new.
	Events      hansard.Seq `json:"events"`
	Added       hansard.Seq `json:"added"`
	Attachments int         `json:"attachments,omitempty"` // that are new
	// Err is why the store does not have all that the backup has of the session. The store
	// was left as it is, except that events may have been added before the error.
	Err error `json:"-"`
	// Damage is why the backup itself does not have all of the session.
	Damage string `json:"damage,omitempty"`
}

// Progress is the progress of a restore or a check.
type Progress struct {
	Bytes, Size int64 // bytes read from the files, and the size of the files
	Sessions    int
	Events      hansard.Seq
}

// How sessions are restored concurrently: small ones by several workers, so that they
// share the store's syncs.
const (
	restoreWorkers = 32
	smallSession   = 64 << 10 // bytes of data
)

// Restore adds to a store what it lacks of the chain. It overwrites and deletes nothing:
// a session that differs in the store, or was deleted there, is reported and left as it
// is. One that has more events in the store is fine. Restore may be interrupted and
// started again: what the store has is compared and not added again.
//
// An error is returned if the store failed or a backup is damaged.
func (c *Chain) Restore(ctx context.Context, dst hansard.Importer, o RestoreOptions) error {
	if d, ok := dst.(hansard.ImportChecker); ok {
		if err := d.CheckImport(ctx); err != nil {
			return fmt.Errorf("the store: %w", err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &restore{ctx: ctx, cancel: cancel, dst: dst, o: &o, chain: c, failed: map[hansard.SessionID]bool{}, jobs: make(chan *job)}
	for _, f := range c.files {
		r.progress.Size += f.size
	}
	var workers sync.WaitGroup
	for range restoreWorkers {
		workers.Go(func() {
			for j := range r.jobs {
				r.small(j)
				r.under.Done()
			}
		})
	}
	err := r.all()
	if err == nil && r.damages > 0 {
		err = fmt.Errorf("not all of it could be read, at %d places, first: %w", r.damages, r.firstDamage)
	}
	r.under.Wait()
	close(r.jobs)
	workers.Wait()
	if fatal := context.Cause(ctx); fatal != nil {
		return fatal
	}
	return err
}

// restore is a restore under way.
type restore struct {
	ctx    context.Context
	cancel context.CancelCauseFunc // called with an error that ends the restore
	dst    hansard.Importer
	o      *RestoreOptions
	chain  *Chain
	jobs   chan *job
	under  sync.WaitGroup // jobs that are not done
	// damages is how often a salvage skipped something.
	damages     int
	firstDamage error

	mu       sync.Mutex // guards what is below, and calls of Report
	failed   map[hansard.SessionID]bool
	progress Progress
}

func (r *restore) all() error {
	for _, f := range r.chain.files {
		if err := r.file(f); err != nil {
			return err
		}
		r.under.Wait() // the next file may continue these sessions
	}
	if r.chain.salvage && !r.manifest() {
		r.damaged(&NotWholeError{Path: r.chain.last().path, Begun: true, Reason: "its manifest can't be read; which sessions were deleted is not known"})
		return nil
	}
	return r.tombstones()
}

func (r *restore) damaged(err error) {
	if r.damages++; r.firstDamage == nil {
		r.firstDamage = err
	}
}

func (r *restore) asked(id hansard.SessionID) bool {
	return len(r.o.Sessions) == 0 || slices.Contains(r.o.Sessions, id)
}

// file restores the sessions of one backup.
func (r *restore) file(f *File) error {
	want := &wanted{number: f.head.Number}
	if !r.chain.salvage || r.manifest() {
		var stop func()
		want.lookup, stop = newLookup(r.chain.last())
		defer stop()
	}
	r.mu.Lock()
	before := r.progress.Bytes
	r.mu.Unlock()
	if len(r.o.Sessions) > 0 && !r.chain.salvage {
		return r.only(f, want, before)
	}
	b := f.blocks(0)
	defer b.close()
	p := &passing{r: r, s: &scanner{r: b, read: func() { r.tell(before + b.at) }}, want: want}
	for {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		over, err := p.next()
		if err != nil && r.chain.salvage && errors.Is(err, hansard.ErrDamaged) {
			over, err = p.passOver(err)
		}
		if over || err != nil {
			return err
		}
		r.tell(before + b.at)
	}
}

// manifest reports whether the newest manifest can be read.
func (r *restore) manifest() bool {
	for _, err := range r.chain.last().Entries() {
		if err != nil {
			return false
		}
	}
	return true
}

// passing reads the sessions of one backup in order.
type passing struct {
	r    *restore
	s    *scanner
	want *wanted
	cur  *session // nil between sessions
	last hansard.SessionID
}

// next handles one item.
func (p *passing) next() (over bool, err error) {
	it, err := p.s.next()
	if err != nil {
		return false, err
	}
	damaged := func(format string, args ...any) (bool, error) {
		return false, p.s.r.damaged(it.at, fmt.Sprintf(format, args...))
	}
	cur := p.cur
	switch l := &it.line; {
	case it.over && cur != nil:
		return damaged("session %s has no end", cur.ID)
	case it.over:
		return true, nil
	case l.Session != nil:
		if cur != nil || l.Session.ID <= p.last {
			return damaged("session %s begins at the wrong place", l.Session.ID)
		}
		return false, p.begin(l.Session)
	case l.Backup != nil:
	case cur == nil:
		return damaged("something of no session")
	case l.Done != nil:
		if l.Done.ID != cur.ID || !cur.skip && l.Done.Last != cur.at {
			return damaged("session %s ends with seq %d, not %d", cur.ID, cur.at, l.Done.Last)
		}
		p.cur = nil
		p.r.finish(cur, l.Done)
	case cur.skip:
	case l.Attachment != nil:
		p.r.attachment(cur, l.Attachment, p.s)
	case l.Part != nil:
		if it.events[0].Seq != cur.at+1 {
			return damaged("session %s: seq %d follows seq %d", cur.ID, it.events[0].Seq, cur.at)
		}
		cur.at = it.events[len(it.events)-1].Seq
		p.r.part(cur, hansard.Part{Origin: cur.Origin, Events: it.events, Keys: l.Part.Keys})
	}
	return false, nil
}

// begin begins a session.
func (p *passing) begin(l *sessionLine) error {
	p.last = l.ID
	counts, err := p.want.has(p.last)
	if err == nil {
		p.cur = &session{sessionLine: *l, skip: !counts || !p.r.asked(p.last), at: l.After}
	}
	return err
}

// passOver continues after a damaged place. The session that it is in keeps what came
// before the damage.
func (p *passing) passOver(damage error) (over bool, err error) {
	p.r.damaged(damage)
	if cur := p.cur; cur != nil && !cur.skip {
		p.r.flush(cur)
		cur.live.fail(damage)
		p.r.done(cur.live, "")
	}
	p.cur = nil
	found, err := p.s.resync()
	return !found, err
}

func (r *restore) tell(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.Bytes = bytes
	if r.o.Progress != nil {
		r.o.Progress(r.progress)
	}
}

// session is a session being read from the backup.
type session struct {
	sessionLine
	skip  bool
	at    hansard.Seq // the last seq that was read
	parts []hansard.Part
	size  int
	live  *target // set once it is too large for a worker
}

// job is a small session that a worker restores.
type job struct {
	*session
	damage string
}

// part handles a part. As long as the session is small its parts are kept for a worker.
func (r *restore) part(s *session, p hansard.Part) {
	if s.live == nil {
		s.parts = append(s.parts, p)
		for i := range p.Events {
			s.size += sizeOf(&p.Events[i])
		}
		if s.size < smallSession {
			return
		}
	} else {
		s.parts = []hansard.Part{p}
	}
	r.flush(s)
}

// sizeOf is how much memory an event takes, roughly.
func sizeOf(e *hansard.Event) int {
	size := 256 + len(e.Data)
	if e.Patch != nil {
		size += len(e.Patch.State)
		for i := range e.Patch.StateOps {
			size += len(e.Patch.StateOps[i].Value)
		}
	}
	return size
}

// flush restores the parts that were kept, in this goroutine.
func (r *restore) flush(s *session) {
	if s.live == nil {
		s.live = r.begin(s)
	}
	for _, p := range s.parts {
		s.live.add(p)
	}
	s.parts = nil
}

// attachment restores an attachment, or skips it.
func (r *restore) attachment(s *session, a *attachLine, sc *scanner) {
	r.flush(s)
	s.live.attach(a, sc)
}

// finish ends a session.
func (r *restore) finish(s *session, e *Entry) {
	switch {
	case s.skip:
	case s.live != nil:
		r.done(s.live, e.Damage)
	default:
		r.under.Add(1)
		select {
		case r.jobs <- &job{s, e.Damage}:
		case <-r.ctx.Done():
			r.under.Done()
		}
	}
}

func (r *restore) small(j *job) {
	t := r.begin(j.session)
	for _, p := range j.parts {
		t.add(p)
	}
	r.done(t, j.damage)
}

// begin looks up what the store has of a session.
func (r *restore) begin(s *session) *target {
	t := &target{r: r, origin: s.Origin, report: Restored{Session: s.ID, GoesOn: s.After > 0}}
	r.mu.Lock()
	failed := r.failed[s.ID]
	r.mu.Unlock()
	if failed {
		t.silent = true
		t.fail(errors.New("it failed before"))
		return t
	}
	here, err := r.dst.Stat(r.ctx, s.ID)
	switch {
	case errors.Is(err, hansard.ErrNotFound) && s.After > 0:
		t.fail(fmt.Errorf("the store lacks what is before seq %d: %w", s.After+1, err))
	case errors.Is(err, hansard.ErrNotFound):
	case err != nil:
		t.fail(err)
	case !here.Created.Equal(s.Created):
		t.fail(fmt.Errorf("%w: another session, created at %v, here, and at %v in the backup", hansard.ErrExists, here.Created.UTC(), s.Created.UTC()))
	case here.LastSeq < s.After:
		t.fail(&hansard.ConflictError{Session: s.ID, Expected: s.After, Actual: here.LastSeq})
	default:
		t.exists, t.have, t.had = true, here.LastSeq, here.LastSeq
		t.compared = s.After
	}
	return t
}

// done reports a session.
func (r *restore) done(t *target, damage string) {
	t.close()
	if !t.exists && t.report.Err == nil { // a session without events
		t.make()
	}
	t.report.Events, t.report.Damage = t.have, damage
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.silent || r.ctx.Err() != nil {
		return
	}
	if t.report.Err != nil {
		r.failed[t.origin.ID] = true
	}
	r.progress.Sessions++
	r.progress.Events += t.report.Added
	if r.o.Report != nil {
		r.o.Report(t.report)
	}
}

// tombstones restores the deletion of sessions, so that their ids are not used again.
func (r *restore) tombstones() error {
	for e, err := range r.chain.last().Entries() {
		if err == nil {
			err = r.ctx.Err()
		}
		if err != nil {
			return err
		}
		if !e.Deleted || !r.asked(e.ID) {
			continue
		}
		t := &target{r: r, origin: hansard.Origin{ID: e.ID, Created: e.Created, Deleted: true}, exists: true, report: Restored{Session: e.ID, Deleted: true}}
		switch here, err := r.dst.Stat(r.ctx, e.ID); {
		case errors.Is(err, hansard.ErrDeleted):
		case errors.Is(err, hansard.ErrNotFound):
			t.fail(r.dst.Import(r.ctx, hansard.Part{Origin: t.origin}))
		case err != nil:
			t.fail(err)
		default:
			t.have = here.LastSeq
			t.fail(fmt.Errorf("%w: it is deleted in the backup, and not in the store", hansard.ErrExists))
		}
		r.done(t, "")
	}
	return nil
}

// target is a session being restored into the store.
type target struct {
	r      *restore
	origin hansard.Origin
	report Restored
	silent bool // already reported
	exists bool
	// had is the last seq that the store had before, have the last it has now. Comparing
	// starts after compared: earlier events are not in this backup.
	had, have, compared hansard.Seq
	events              func() (hansard.Event, error, bool)
	keys                func() (hansard.KeyUse, error, bool)
	stops               []func()
	ahead               map[hansard.Seq]bool // redacted only in the backup
}

// fail records why the session is left as it is. An error that is not about the session
// ends the restore.
func (t *target) fail(err error) {
	if err == nil || t.report.Err != nil {
		return
	}
	t.report.Err = err
	if !t.silent && !aboutSession(err) {
		t.r.cancel(fmt.Errorf("session %s: %w", t.origin.ID, err))
	}
}

func (t *target) close() {
	for _, stop := range t.stops {
		stop()
	}
}

// make creates the session without events, so that something can be attached to it.
func (t *target) make() {
	if err := t.r.dst.Import(t.r.ctx, hansard.Part{Origin: t.origin}); err != nil {
		t.fail(err)
		return
	}
	t.exists = true
}

// attach restores an attachment unless the store has it.
func (t *target) attach(a *attachLine, s *scanner) {
	if t.report.Err == nil && !t.exists {
		t.make()
	}
	if t.report.Err != nil {
		return
	}
	there, err := t.r.dst.OpenAttachment(t.r.ctx, t.origin.ID, a.Digest)
	if err == nil {
		t.fail(there.Close())
		return
	}
	if !errors.Is(err, hansard.ErrNoAttachment) {
		t.fail(err)
		return
	}
	from := &attachment{s: s}
	got, err := t.r.dst.Attach(t.r.ctx, t.origin.ID, from)
	switch {
	case from.err != nil && t.r.chain.salvage:
		t.fail(from.err)
	case from.err != nil:
		t.r.cancel(from.err)
	case errors.Is(err, errCut): // if an event names it, the store refuses that event
	case err != nil:
		t.fail(err)
	case got.Digest != a.Digest:
		t.fail(fmt.Errorf("%w: attachment %s of the backup is %s", hansard.ErrDamaged, a.Digest, got.Digest))
	default:
		t.report.Attachments++
	}
}

// add adds the events of a part that the store lacks, and compares the others.
func (t *target) add(p hansard.Part) {
	if t.report.Err != nil {
		return
	}
	known := 0
	for known < len(p.Events) && p.Events[known].Seq <= t.had {
		known++
	}
	p.Keys = t.compare(p, known)
	if p.Events = p.Events[known:]; len(p.Events) == 0 || t.report.Err != nil {
		return
	}
	if err := t.r.dst.Import(t.r.ctx, p); err != nil {
		t.fail(err)
		return
	}
	t.exists = true
	t.have = p.Events[len(p.Events)-1].Seq
	t.report.Added += hansard.Seq(len(p.Events))
}

// compare compares the first known events of a part, and their keys, with those of the
// store. It returns the keys of the remaining events.
func (t *target) compare(p hansard.Part, known int) []hansard.KeyUse {
	if known == 0 {
		return p.Keys
	}
	if t.events == nil {
		t.open()
	}
	differs := func(seq hansard.Seq) {
		t.fail(fmt.Errorf("%w: seq %d in the store is not that of the backup", hansard.ErrConflict, seq))
	}
	for i := range known {
		e := &p.Events[i]
		got, err, ok := t.events()
		if err != nil {
			t.fail(err)
			return nil
		}
		if !ok || !t.same(*e, &got) {
			differs(e.Seq)
			return nil
		}
	}
	last := p.Events[known-1].Seq
	for i, k := range p.Keys {
		if k.First > last {
			return p.Keys[i:]
		}
		got, err, _ := t.keys()
		if err != nil {
			t.fail(err)
			return nil
		}
		if got.Hash == "" || k.Hash == "" { // an event of the batch is redacted: same has checked that
			got.Hash, k.Hash = "", ""
		}
		if got != k || k.Last > last {
			differs(k.First)
			return nil
		}
	}
	return nil
}

// same compares an event of the backup with that of the store. Either may have been redacted
// since. What the store has redacted stays so. What only the backup has redacted will be
// redacted by a record that is still to come; if the store already has that record but not
// the redaction, the two differ.
func (t *target) same(e hansard.Event, got *hansard.Event) bool {
	switch {
	case got.Redacted && !e.Redacted:
		e.TakeAway()
	case e.Redacted && !got.Redacted:
		if t.ahead == nil {
			t.ahead = map[hansard.Seq]bool{}
		}
		t.ahead[e.Seq] = true
		got.TakeAway()
	}
	for _, seq := range e.Redacts {
		if t.ahead[seq] {
			return false
		}
	}
	return hansard.SameEvent(&e, got)
}

// open starts reading what the store has, after the events that are not in this backup.
func (t *target) open() {
	var stopEvents, stopKeys func()
	t.events, stopEvents = iter.Pull2(t.r.dst.Read(t.r.ctx, t.origin.ID, hansard.Range{After: t.compared, Before: t.had + 1}))
	t.keys, stopKeys = iter.Pull2(t.r.dst.Keys(t.r.ctx, t.origin.ID, t.compared))
	t.stops = append(t.stops, stopEvents, stopKeys)
}
