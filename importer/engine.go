package importer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"hansard"
	"hansard/transcript"
)

// Engine delivers sources to a store.
type Engine struct {
	// Store is where the sessions go; nil reads the sources and stores nothing.
	Store hansard.Store
	// Workers is how many sources are read at once; 0 is a few.
	Workers int
	// Memory, which knows the store, leaves out files that have not changed; nil reads
	// everything.
	Memory *Memory
	// Progress receives how many records were read and events stored since its last call;
	// several goroutines call it.
	Progress func(records, added int)
}

// Report is the result of importing one source.
type Report struct {
	Source  *Source
	Session hansard.SessionID
	// Records is how many records the source has, Added how many events were stored
	// now, Copied how many records the parent's session has already.
	Records, Added, Copied int
	// Calls and Results are the numbers of tool calls and of results. Open are the ids of
	// calls without a result, Orphans the number of results without a call.
	Calls, Results, Orphans int
	Open                    []string
	Usage                   transcript.Tokens
	Damage                  []Damage
	// Remark is any further remark about how it was stored; usually empty.
	Remark string
	// Err is why the source was not imported completely.
	Err error
}

// Run imports sources and reports on each, one at a time. It returns an error if it could not
// continue with the others.
func (e *Engine) Run(ctx context.Context, sources []*Source, done func(Report)) error {
	r := &run{Engine: e, done: done}
	for generation := 0; len(sources) > 0; generation++ {
		var now, later []*Source
		for _, s := range sources {
			if s.generation() <= generation {
				now = append(now, s)
			} else {
				later = append(later, s)
			}
		}
		if err := r.all(ctx, now); err != nil {
			return err
		}
		sources = later
	}
	return r.deliverLinks(ctx)
}

// run is one Run.
type run struct {
	*Engine
	mu    sync.Mutex // guards done and links
	done  func(Report)
	links []link
}

// link is a record that links a session to another one, with the full id in Session, and the
// note to remember about the file it is from.
type link struct {
	Record
	note *note
}

// all imports sources that do not depend on each other. Those of one session follow one
// another.
func (r *run) all(ctx context.Context, sources []*Source) error {
	var order []string
	queues := map[string][]*Source{}
	for _, s := range sources {
		key := s.Format.Name() + ":" + s.Session
		if queues[key] == nil {
			order = append(order, key)
		}
		queues[key] = append(queues[key], s)
	}
	workers := r.Workers
	if workers <= 0 {
		workers = 4
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan []*Source)
	var wg sync.WaitGroup
	for range min(workers, len(order)) {
		wg.Go(func() {
			for queue := range work {
				for _, s := range queue {
					if err := r.one(ctx, s); err != nil {
						stop(err)
						return
					}
				}
			}
		})
	}
feeding:
	for _, key := range order {
		select {
		case work <- queues[key]:
		case <-ctx.Done():
			break feeding
		}
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}

// one imports one source. It returns only errors that the next source would also get.
func (r *run) one(ctx context.Context, s *Source) error {
	j := &job{run: r, report: Report{Source: s, Session: s.id()}, sessions: map[string]*delivery{}}
	if s.known != nil && r.Memory != nil {
		s.known.report(&j.report)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done(j.report)
		return nil
	}
	if r.Store != nil {
		j.reading = r.Memory.begin(s)
	}
	err := j.read(ctx, s)
	if err != nil && !aboutSource(err) {
		return err
	}
	j.report.Err = err
	j.tally()
	n := j.reading.end(j)
	if n != nil && len(j.links) == 0 {
		r.Memory.remember(n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range j.links {
		r.links = append(r.links, link{rec, n})
	}
	r.done(j.report)
	return nil
}

// aboutSource reports whether an error is about one source or session only.
func aboutSource(err error) bool {
	var path *fs.PathError
	for _, e := range []error{hansard.ErrDeleted, hansard.ErrHeld, hansard.ErrDamaged, hansard.ErrUnreadable, hansard.ErrInvalid, hansard.ErrTooLarge,
		hansard.ErrIDReused, hansard.ErrKeyReused, errSource, fs.ErrNotExist} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.As(err, &path) && !errors.Is(err, hansard.ErrFailed) && !errors.Is(err, hansard.ErrNoSpace) && !errors.Is(err, hansard.ErrReadOnly)
}

// errSource is wrapped by errors about the content of a source.
var errSource = errors.New("the source can't be imported")

// deliverLinks stores the records that link existing sessions to those that started them.
func (r *run) deliverLinks(ctx context.Context) error {
	if r.Store == nil {
		return nil
	}
	all := map[*note]bool{} // whether all links of a file were stored
	for _, l := range r.links {
		d := &delivery{store: r.Store, id: hansard.SessionID(l.Session), noCreate: true}
		err := errors.Join(d.add(ctx, &l.Record), d.finish(ctx))
		if err != nil && !errors.Is(err, hansard.ErrNotFound) && !aboutSource(err) {
			return err
		}
		before, told := all[l.note]
		all[l.note] = err == nil && (before || !told)
	}
	for n, stored := range all {
		if n != nil && stored { // otherwise the linked session may still be imported
			r.Memory.remember(n)
		}
	}
	return nil
}

// job is the import of one source.
type job struct {
	*run
	report   Report
	sessions map[string]*delivery
	links    []Record
	pairs    pairing
	usage    tally
	// forks are where the sessions leave their parents, "" for the source's own session; nil
	// if all records are their own.
	forks map[string]*forkPoint
	// pasts are the sources that the last one may be a fork of.
	pasts   map[*Source]*past
	remarks int
	reading *reading
	// last is the seq of the last record of the sessions that are no longer held.
	last map[string]hansard.Seq
	// failed are the sessions of the source that could not be stored, errs why.
	failed map[string]bool
	errs   []error
}

func (j *job) read(ctx context.Context, s *Source) error {
	if s.unreadable != nil {
		return fmt.Errorf("%w: %w", errSource, s.unreadable)
	}
	in := j.input(s)
	fork, err := j.findFork(ctx, in)
	if err != nil {
		return err
	}
	j.forks = map[string]*forkPoint{"": fork}
	j.pasts = nil
	err = s.Format.Read(ctx, in, func(rec Record) error { return j.take(ctx, rec) })
	for _, d := range j.sessions { // what was read before an error is valid
		err = errors.Join(err, j.stored(d, d.finish(ctx)))
	}
	return errors.Join(append(j.errs, err)...)
}

func (j *job) input(s *Source) *Input {
	return &Input{Source: s, reading: j.reading, damage: func(d Damage) { j.report.Damage = append(j.report.Damage, d) }}
}

// take delivers one record.
func (j *job) take(ctx context.Context, rec Record) error {
	if rec.Link {
		rec.Session = string(SessionID(j.report.Source.Format, rec.Session))
		j.links = append(j.links, rec)
		return nil
	}
	if rec.Begins != nil {
		return j.begin(ctx, rec.Begins)
	}
	j.report.Records++
	if j.failed[rec.Session] {
		return nil
	}
	if f := j.forks[rec.Session]; f.copied(&rec) {
		j.report.Copied++
		if !rec.Mutable || !f.stored {
			return nil
		}
		// The copy may have been changed since. If not, its id is already known.
		rec.Title, rec.Labels, rec.Covers = "", nil, false
	} else {
		j.pairs.note(&rec)
		j.usage.add(rec.Usage)
	}
	d := j.delivery(rec.Session, rec.Parent)
	if d.used = j.report.Records; len(j.sessions) > heldSessions {
		if err := j.letGo(ctx); err != nil {
			return err
		}
	}
	if j.Progress != nil {
		j.Progress(1, 0)
	}
	return j.fail(rec.Session, d, j.stored(d, d.add(ctx, &rec)))
}

// fail gives up one session of several: the others of the source do not need it.
func (j *job) fail(session string, d *delivery, err error) error {
	if err == nil || session == "" || !aboutSource(err) {
		return err
	}
	if j.failed == nil {
		j.failed = map[string]bool{}
	}
	j.failed[session] = true
	j.errs = append(j.errs, fmt.Errorf("session %s: %w", d.id, err))
	d.events = nil
	return nil
}

// heldSessions is how many sessions of one source are open at once. A database has very many,
// mostly one after the other.
const heldSessions = 64

// letGo stores the pending records of the least recently used session, and forgets it.
func (j *job) letGo(ctx context.Context) error {
	oldest := ""
	for session, d := range j.sessions {
		if session != "" && (oldest == "" || d.used < j.sessions[oldest].used) {
			oldest = session
		}
	}
	d := j.sessions[oldest]
	delete(j.sessions, oldest)
	err := j.stored(d, d.finish(ctx))
	if j.last == nil {
		j.last = map[string]hansard.Seq{}
	}
	j.last[oldest] = d.last
	return j.fail(oldest, d, err)
}

// stored counts what a delivery has stored since the last call.
func (j *job) stored(d *delivery, err error) error {
	j.report.Added += d.added
	if j.Progress != nil && d.added > 0 {
		j.Progress(0, d.added)
	}
	d.added = 0
	return err
}

// delivery is the delivery of a session; the empty id is the source's own.
func (j *job) delivery(session, parent string) *delivery {
	if d := j.sessions[session]; d != nil {
		return d
	}
	d := &delivery{store: j.Store, id: j.report.Session, meta: hansard.Meta{Labels: j.labels(session, parent)}}
	if session != "" {
		d.id, d.last = SessionID(j.report.Source.Format, session), j.last[session]
	}
	j.sessions[session] = d
	return d
}

// labels are what a session is created with.
func (j *job) labels(session, parent string) map[string]string {
	s, f := j.report.Source, j.report.Source.Format
	if session != "" {
		labels := map[string]string{LabelTool: f.Name(), LabelSource: name(session)}
		if parent != "" {
			labels[LabelParent] = string(SessionID(f, parent))
		}
		return labels
	}
	return s.labels()
}

// labels are what the session of a source is created with.
func (s *Source) labels() map[string]string {
	labels := map[string]string{LabelTool: s.Format.Name(), LabelSource: name(s.Session)}
	for k, v := range s.Labels {
		labels[k] = name(v)
	}
	if s.Parent != "" {
		labels[LabelParent] = string(SessionID(s.Format, s.Parent))
	}
	return labels
}

func (j *job) tally() {
	r := &j.report
	r.Calls, r.Results, r.Orphans, r.Open = j.pairs.calls, j.pairs.results, j.pairs.orphans, j.pairs.unanswered()
	r.Usage = j.usage.total()
	if more := j.remarks - maxRemarks; more > 0 {
		r.Remark += fmt.Sprintf("; and %d more", more)
	}
}

// pairing pairs tool calls with their results.
type pairing struct {
	calls, results, orphans int
	open                    map[string]int // to their order
}

func (p *pairing) note(rec *Record) {
	for _, id := range rec.Calls {
		if p.open == nil {
			p.open = map[string]int{}
		}
		if _, again := p.open[id]; !again {
			p.calls++
			p.open[id] = p.calls
		}
	}
	for _, id := range rec.Results {
		p.results++
		if _, ok := p.open[id]; ok {
			delete(p.open, id)
		} else {
			p.orphans++
		}
	}
}

// unanswered are the calls without a result, in order.
func (p *pairing) unanswered() []string {
	var ids []string
	for id := range p.open {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return p.open[a] - p.open[b] })
	return ids
}

// maxAnswers is how many answers a tally distinguishes. The records of one answer are close
// to each other.
const maxAnswers = 4096

// tally adds up usage.
type tally struct {
	sum   transcript.Tokens
	open  map[string]*Usage
	order []string
}

func (t *tally) add(u *Usage) {
	if u == nil {
		return
	}
	if u.Key == "" {
		addTokens(&t.sum, &u.Tokens)
		return
	}
	if t.open == nil {
		t.open = map[string]*Usage{}
	}
	if before, ok := t.open[u.Key]; ok {
		if u.Last {
			before.Tokens = u.Tokens
			return
		}
		before.Input, before.Output, before.Reasoning = max(before.Input, u.Input), max(before.Output, u.Output), max(before.Reasoning, u.Reasoning)
		before.CacheRead, before.CacheWrite = max(before.CacheRead, u.CacheRead), max(before.CacheWrite, u.CacheWrite)
		return
	}
	kept := *u
	t.open[u.Key] = &kept
	t.order = append(t.order, u.Key)
	if len(t.order) > maxAnswers {
		oldest := t.open[t.order[0]]
		if oldest.Last {
			t.order = append(t.order[1:], t.order[0])
			return
		}
		addTokens(&t.sum, &oldest.Tokens)
		delete(t.open, t.order[0])
		t.order = t.order[1:]
	}
}

func (t *tally) total() transcript.Tokens {
	sum := t.sum
	for _, u := range t.open {
		addTokens(&sum, &u.Tokens)
	}
	sum.Model, sum.Total = "", 0
	return sum
}

func addTokens(sum, t *transcript.Tokens) {
	sum.Input += t.Input
	sum.Output += t.Output
	sum.CacheRead += t.CacheRead
	sum.CacheWrite += t.CacheWrite
	sum.Reasoning += t.Reasoning
}
