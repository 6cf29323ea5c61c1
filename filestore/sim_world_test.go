package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

// The simulation runs the real engine, as several processes, on a simulated disk. It kills and
// stops processes, cuts the power and injects errors at chosen operations. What was acknowledged
// is kept outside of the store, in a ledger; after each disaster the engine opens what is left
// and the two are compared.

const simRing = 8 << 10

// world is one simulated run.
type world struct {
	disk   *vfs.Disk
	seed   uint64
	ledger *ledger
	ring   uint64 // its size
	names  int    // in memory before a run is written; 0: the default, so never in the simulation
	groups bool   // processes write groups of requests
	// crossing: processes do things that are answered from each other's newest lines.
	crossing bool
	first    uint64 // size of the ring of a new store; 0: ring
	grown    int    // how often a small ring grew
	resize   bool   // processes write batches too large for the ring, and shrink it again
	ill      bool   // the disk fails: writes may be refused for damage that is mended later
	wasIll   bool   // and reads may report it, until it is mended
	calm     bool   // nothing goes wrong: no outcome may be unknown
	away     bool   // logs are away for moments
	// pruneAge is the age at which attachments are pruned, on the disk's clock; 0: never.
	pruneAge time.Duration
	// attached are those of session "a" that somebody attached.
	attached []hansard.Attachment
	pruned   int // how many files were
	opened   int
	stores   []*Store // of the workers
	wrong    error    // the first error a worker found
}

func newWorld(seed uint64) *world {
	d := vfs.NewDisk(seed)
	d.PageSize, d.SectorSize = 512, 128 // small pages can be torn in more ways
	return &world{disk: d, seed: seed, ledger: newLedger(), ring: simRing}
}

// open opens the store as a process.
func (w *world) open(p *vfs.Proc) (*Store, error) {
	return w.openWith(p, Options{LockWait: time.Hour})
}

func (w *world) openWith(p *vfs.Proc, opt Options) (*Store, error) {
	w.opened++
	rng := rand.New(rand.NewPCG(w.seed, uint64(w.opened)))
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cfg := config{ringSize: w.ring, firstRing: w.first, names: w.names, pieceLogs: 1 + int(w.seed%3), inline: true, random: rng.Uint64, now: func() time.Time {
		clock = clock.Add(time.Millisecond)
		return clock
	}}
	if w.pruneAge > 0 {
		cfg.pruneAge, cfg.now = w.pruneAge, w.disk.Now
	}
	return open(p, opt, cfg)
}

// checkpoint is a full checkpoint, urgent or not, or one of a piece.
func (k *worker) checkpoint() error {
	switch k.rng.IntN(3) {
	case 0:
		return k.s.checkpoints.freePiece()
	case 1:
		return k.s.checkpoints.checkpoint(true)
	default:
		return k.s.checkpoints.checkpoint(false)
	}
}

// worker is the work of one process.
type worker struct {
	w         *world
	p         *vfs.Proc
	s         *Store
	rng       *rand.Rand
	tag       int
	turns     map[hansard.SessionID]hansard.Grant // that it holds
	done      bool
	shared    bool // only append under shared keys
	attaching bool // only attach, and prune
	mirroring bool // only append events with shared ids
	taking    bool // only take turns
	redacting bool // only append and redact
	harming   bool // the same, while somebody cuts a log
	large     bool // the next batch is too large for the ring
	well      bool // the disk had failed, and worked again when the step began
}

// fail records an error that a worker found.
func (k *worker) fail(format string, args ...any) {
	if k.w.wrong == nil {
		k.w.wrong = fmt.Errorf(format, args...)
	}
}

var simSessions = []hansard.SessionID{"a", "b", "Big:1"}

// run opens the store and does n random things.
func (k *worker) run(n int) {
	s, err := k.w.open(k.p)
	if err != nil {
		if !k.p.Dead() && !k.expected(err) {
			k.fail("%s: open: %v", k.p.Name(), err)
		}
		return
	}
	k.s = s
	k.w.stores = append(k.w.stores, s)
	for i := range n {
		if k.p.Dead() {
			return
		}
		s.leases.MendNow() // as a timer would
		k.well = k.w.wasIll && !k.w.ill
		switch {
		case k.w.groups:
			k.groupStep(context.Background())
		case k.w.crossing:
			k.crossStep(context.Background(), i)
		case k.w.resize:
			k.resizeStep(context.Background())
		case k.shared:
			k.appendShared(context.Background(), i)
		case k.attaching && i == 0:
			k.append(context.Background(), "a", "")
		case k.attaching:
			k.attachStep(context.Background(), "a")
		case k.mirroring:
			k.mirror(context.Background(), i, 2)
		case k.harming:
			k.harmStep(context.Background(), i)
		case k.redacting:
			k.redactStep(context.Background(), i)
		case k.taking && i == 0:
			k.append(context.Background(), "a", "")
		case k.taking:
			k.turn(context.Background(), "a")
		default:
			k.step()
		}
	}
	if err := s.Close(); err != nil && !k.p.Dead() && !k.expected(err) {
		k.fail("%s: close: %v", k.p.Name(), err)
	}
}

// expected reports whether injected faults may cause an error.
func (k *worker) expected(err error) bool {
	var busy *hansard.BusyError
	if k.w.calm && errors.Is(err, hansard.ErrUnknown) {
		return false
	}
	return faulty(err) || k.w.away && errors.Is(err, fs.ErrNotExist) || errors.As(err, &busy) || errors.Is(err, peers.ErrTornRecord) && k.w.torn() || (k.sawIll() || k.w.away && k.w.wasIll) && errors.Is(err, hansard.ErrDamaged)
}

// sawIll reports whether the disk was failing during the step.
func (k *worker) sawIll() bool { return k.w.wasIll && !k.well }

// torn reports whether the record of a process could not be written and is unreadable to others
// for now.
func (w *world) torn() bool {
	return slices.ContainsFunc(w.stores, func(s *Store) bool { return s.leases.Counts().Torn > 0 })
}

func (k *worker) step() {
	ctx := context.Background()
	id := simSessions[k.rng.IntN(len(simSessions))]
	switch r := k.rng.IntN(100); {
	case r < 12:
		k.turn(ctx, id)
	case r < 60:
		k.append(ctx, id, "")
	case r < 63:
		k.appendShared(ctx, k.rng.IntN(4))
	case r < 65:
		k.attach(ctx, id)
	case r < 70:
		k.mirror(ctx, k.rng.IntN(6), 1+k.rng.IntN(3))
	case r < 76:
		_, err := k.s.Create(ctx, id, hansard.Meta{Title: "made"})
		if err == nil {
			k.w.ledger.created[id] = true
		}
	case r < 79 && id == "b":
		was := k.w.ledger.maybe[id]
		k.w.ledger.maybe[id] = true // until we are told otherwise
		err := k.s.Delete(ctx, id, "")
		switch {
		case err == nil:
			k.w.ledger.deleted[id] = true
		case !k.p.Dead() && !errors.Is(err, hansard.ErrUnknown):
			k.w.ledger.maybe[id] = was // an exclusive turn may have prevented it, for example
		}
	case r < 88:
		if err := k.checkpoint(); err != nil && !k.p.Dead() && !k.expected(err) {
			k.fail("%s: checkpoint: %v", k.p.Name(), err)
		}
	case r < 94:
		k.unless("probe", k.s.Probe(ctx))
	default:
		k.read(ctx, id)
	}
}

// turn acquires the turn of a session; if it holds it already, it writes under it or gives it
// back.
func (k *worker) turn(ctx context.Context, id hansard.SessionID) {
	g := k.turns[id]
	switch {
	case g == "":
		t, err := k.s.Acquire(ctx, id, hansard.Claim{Exclusive: k.rng.IntN(4) == 0})
		if err != nil {
			k.unless("acquire", err, hansard.ErrHeld, hansard.ErrNotFound, hansard.ErrDeleted)
			k.told(err)
			return
		}
		k.turns[id] = t.Grant
		k.w.ledger.ack(id, t.Seq, turnTag(t.Grant, t.Seq))
	case k.rng.IntN(2) == 0:
		k.append(ctx, id, g)
	default:
		delete(k.turns, id)
		k.unless("release", k.s.Release(ctx, id, g), hansard.ErrDeleted)
	}
}

// told records what a refusal says: that somebody was granted the turn, or how many events there
// are. That must stay true for ever.
func (k *worker) told(err error) {
	l := k.w.ledger
	if k.p.Dead() {
		return
	}
	if held := (*hansard.HeldError)(nil); errors.As(err, &held) {
		l.ack(held.Session, held.Turn.Seq, turnTag(held.Turn.Grant, held.Turn.Seq))
	}
	if c := (*hansard.ConflictError)(nil); errors.As(err, &c) {
		l.told[c.Session] = max(l.told[c.Session], c.Actual)
	}
	if r := (*hansard.KeyReusedError)(nil); errors.As(err, &r) {
		l.told[r.Session] = max(l.told[r.Session], r.Last)
	}
	if f := (*hansard.FencedError)(nil); errors.As(err, &f) && f.Current != nil {
		l.ack(f.Session, f.Current.Seq, turnTag(f.Current.Grant, f.Current.Seq))
	}
}

// unless reports an error that is neither one of those allowed nor caused by a fault.
func (k *worker) unless(what string, err error, may ...error) {
	for _, e := range may {
		if errors.Is(err, e) {
			return
		}
	}
	if err != nil && !k.p.Dead() && !k.expected(err) {
		k.fail("%s: %s: %v", k.p.Name(), what, err)
	}
}

// append appends a batch of tagged events, settles an unknown outcome if the batch has a key, and
// records the result in the ledger.
func (k *worker) append(ctx context.Context, id hansard.SessionID, g hansard.Grant) {
	l := k.w.ledger
	b := hansard.Batch{Turn: g}
	n := 1 + k.rng.IntN(3)
	var tags []string
	for range n {
		k.tag++
		tag := fmt.Sprintf("%s.%d", k.p.Name(), k.tag)
		tags = append(tags, tag)
		pad := []int{0, 40, 40, 40, k.rng.IntN(120), 500}[k.rng.IntN(6)]
		if k.large {
			pad = 2000 + k.rng.IntN(4000)
		}
		b.Events = append(b.Events, hansard.Event{Data: json.RawMessage(fmt.Sprintf(`"%s %s"`, tag, strings.Repeat("x", pad)))})
	}
	switch k.rng.IntN(6) {
	case 0, 1:
		b.Key = "key " + tags[0]
	case 2:
		for i, tag := range tags {
			b.Events[i].ID = "id " + tag
		}
	}
	if k.rng.IntN(6) == 0 {
		title := tags[0]
		b.Patch = &hansard.Patch{Title: &title}
	}
	b.Create = true
	for try := 0; ; try++ {
		for _, tag := range tags { // until we are told otherwise
			l.open[tag] = id
		}
		l.size[tags[0]] = n
		r, err := k.s.Append(ctx, id, b)
		if err == nil {
			if r.Seqs == nil {
				r.Seqs = seqsFrom(r.First, n)
			}
			if r.First > 0 && int(r.Last-r.First) != n-1 || len(r.Seqs) != n {
				k.fail("receipt %+v for %d events", r, n)
			}
			for i, tag := range tags {
				delete(l.open, tag)
				l.ack(id, r.Seqs[i], tag)
			}
			return
		}
		if k.p.Dead() {
			return // unknown
		}
		if errors.Is(err, hansard.ErrUnknown) && k.expected(err) {
			if (b.Key != "" || b.Events[0].ID != "" && b.Patch == nil) && try < 3 {
				continue
			}
			return
		}
		if try == 0 {
			for _, tag := range tags {
				delete(l.open, tag)
				l.refused[tag] = id
			}
		}
		k.unless("append to "+string(id), err, hansard.ErrDeleted, hansard.ErrHeld)
		k.told(err)
		return
	}
}

// appendShared appends, under a key, the same content as other processes do: it is stored once,
// and all get its seq.
func (k *worker) appendShared(ctx context.Context, n int) {
	l, id := k.w.ledger, hansard.SessionID("a")
	key := fmt.Sprintf("shared%d", n)
	b := hansard.Batch{Create: true, Key: key, Events: []hansard.Event{{Data: json.RawMessage(`"` + key + `"`)}}}
	r, err := k.s.Append(ctx, id, b)
	if err != nil {
		if k.told(err); !k.w.crossing || !errors.Is(err, hansard.ErrKeyReused) {
			k.unless("append "+key, err, hansard.ErrHeld)
		}
		return
	}
	if at, told := l.keys[key]; told && at != r.First {
		k.fail("%s was stored at seq %d and at %d", key, at, r.First)
	}
	l.keys[key] = r.First
	l.ack(id, r.First, key)
}

func seqsFrom(first hansard.Seq, n int) (seqs []hansard.Seq) {
	for i := range n {
		seqs = append(seqs, first+hansard.Seq(i))
	}
	return seqs
}

// mirror appends some of the records that other processes append too, in other batches: each is
// stored once, and all get its seq.
func (k *worker) mirror(ctx context.Context, from, n int) {
	l, id := k.w.ledger, hansard.SessionID("a")
	b := hansard.Batch{Create: true}
	for i := range n {
		record := fmt.Sprintf("record%d", from+i)
		b.Events = append(b.Events, hansard.Event{ID: record, Data: json.RawMessage(`"` + record + `"`)})
	}
	r, err := k.s.Append(ctx, id, b)
	if err != nil {
		k.unless("append records", err, hansard.ErrHeld)
		k.told(err)
		return
	}
	for i, seq := range r.Seqs {
		record := b.Events[i].ID
		if at, told := l.keys[record]; told && at != seq {
			k.fail("%s was stored at seq %d and at %d", record, at, seq)
		}
		l.keys[record] = seq
		l.ack(id, seq, record)
	}
}

// attach attaches content to a session, and appends an event that names it.
func (k *worker) attach(ctx context.Context, id hansard.SessionID) {
	k.tag++
	if a, ok := k.attachContent(ctx, id); ok {
		k.name(ctx, id, a)
	}
}

// attachContent attaches content to a session.
func (k *worker) attachContent(ctx context.Context, id hansard.SessionID) (a hansard.Attachment, ok bool) {
	content := fmt.Sprintf("content %d %s", k.rng.IntN(4), strings.Repeat("y", 300*k.rng.IntN(3))) // few different ones, so that they are attached again
	a, err := k.s.Attach(ctx, id, strings.NewReader(content))
	if damaged := (*hansard.DamagedError)(nil); errors.As(err, &damaged) && mending(damaged) {
		return a, false // the next write to the session mends it
	}
	if errors.Is(err, fs.ErrNotExist) && k.w.pruneAge > 0 {
		return a, false // its upload was old before it was renamed
	}
	k.unless("attach", err, hansard.ErrNotFound, hansard.ErrDeleted)
	return a, err == nil
}

// name appends an event that names an attachment.
func (k *worker) name(ctx context.Context, id hansard.SessionID, a hansard.Attachment) {
	l := k.w.ledger
	tag := fmt.Sprintf("%s.%d", k.p.Name(), k.tag)
	l.open[tag] = id
	r, err := k.s.Append(ctx, id, hansard.Batch{Events: []hansard.Event{{Data: json.RawMessage(`"` + tag + `"`), Attachments: []hansard.Attachment{a}}}})
	if err == nil {
		delete(l.open, tag)
		l.ack(id, r.First, tag)
		return
	}
	if errors.Is(err, hansard.ErrNoAttachment) && k.w.pruneAge > 0 {
		delete(l.open, tag)
		l.refused[tag] = id
		return
	}
	k.unless("append with an attachment", err, hansard.ErrHeld, hansard.ErrDeleted, hansard.ErrUnknown)
	k.told(err)
}

// read reads a session as a reader would, and records what it saw.
func (k *worker) read(ctx context.Context, id hansard.SessionID) {
	var tags []string
	var grants engine.Grants
	for e, err := range k.s.Read(ctx, id, hansard.Range{}) {
		if err != nil {
			var damaged *hansard.DamagedError
			if errors.As(err, &damaged) && !k.w.wasIll && !mending(damaged) {
				k.fail("%s: read %s: %v", k.p.Name(), id, err)
			}
			return // not found, deleted, or a fault
		}
		if int(e.Seq) != len(tags)+1 {
			k.fail("%s: read %s: seq %d after %d events", k.p.Name(), id, e.Seq, len(tags))
		}
		if err := grants.Next(&e); err != nil {
			k.fail("%s: read %s: %v", k.p.Name(), id, err)
		}
		tags = append(tags, k.w.ledger.tag(id, &e))
		if err := k.w.ledger.compareRedacted(id, &e); err != nil {
			k.fail("%s: read %s: %v", k.p.Name(), id, err)
		}
	}
	if err := k.w.ledger.whole(tags); err != nil {
		k.fail("%s: read %s: %v", k.p.Name(), id, err)
	}
	if len(tags) > len(k.w.ledger.seen[id]) {
		k.w.ledger.seen[id] = tags
	}
}

// mending reports whether a log lacks lines that could not be written because of a fault and will
// be put in place automatically; that this happens is checked at the end of the world.
func mending(d *hansard.DamagedError) bool {
	return strings.Contains(d.Reason, "added to the log automatically")
}

// check opens what is on a disk and compares it with the ledger.
func (w *world) check(d *vfs.Disk, who string) error {
	s, err := w.open(d.Process(who))
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	err = w.ledger.compare(s, w.opened%4 == 1)
	if err == nil && w.opened%4 == 0 {
		err = w.alive(s)
	}
	if err = errors.Join(err, s.Close()); err == nil && w.opened%2 == 0 {
		err = w.wantErased(d)
	}
	return err
}

// wantErased: nothing is left of a session that was certainly deleted, except in the journal,
// once the last process has left and so has made a checkpoint.
func (w *world) wantErased(d *vfs.Disk) error {
	// If the disk was too full to note it, prune erases it.
	unnoted := slices.ContainsFunc(w.stores, func(s *Store) bool { return s.unnoted.Load() })
	if !w.wasIll && !unnoted {
		if err := w.wantRedacted(d); err != nil {
			return err
		}
	}
	if !w.ledger.deleted["b"] || w.wasIll || unnoted {
		return nil
	}
	for _, tag := range w.ledger.acked["b"] {
		// The data and the titles begin with the tag, in quotes; no tag followed by either of
		// these is a prefix of another.
		for _, found := range []string{`"` + tag + ` `, `"` + tag + `"`} {
			if err := wantErased(d, found); err != nil {
				return fmt.Errorf("session b was deleted: %w", err)
			}
		}
	}
	return nil
}

// alive makes sure that the store takes writes.
func (w *world) alive(s *Store) error {
	ctx := context.Background()
	for range 3 { // through the ring and around
		b := hansard.Batch{Create: true, Events: []hansard.Event{{Data: json.RawMessage(`"` + strings.Repeat("z", 400) + `"`)}}}
		if _, err := s.Append(ctx, "alive", b); err != nil {
			return fmt.Errorf("append after it all: %w", err)
		}
	}
	return nil
}

// trace returns the last operations on a disk.
func trace(d *vfs.Disk, n int) string {
	ops := d.Trace()
	if len(ops) > n {
		ops = ops[len(ops)-n:]
	}
	return strings.Join(ops, "\n")
}

// play runs processes that do random work until all have ended.
func (w *world) play(procs, steps int) error {
	for i := range procs {
		w.spawn(fmt.Sprintf("P%d", i), steps, uint64(100+i))
	}
	if err := w.disk.Run(); err != nil {
		return err
	}
	return w.wrong
}

func (w *world) spawn(name string, steps int, seed uint64) *worker {
	p := w.disk.Process(name)
	k := &worker{w: w, p: p, rng: rand.New(rand.NewPCG(w.seed, seed)), turns: map[hansard.SessionID]hansard.Grant{}}
	w.disk.Go(p, func() {
		k.run(steps)
		k.done = true
	})
	return k
}

// finish checks a world as it is, and again after a power cut that loses everything unsynced.
func (w *world) finish() error {
	d := w.disk.Clone()
	d.ClearRules()
	d.PowerCut(vfs.Cut{})
	if err := w.check(d, "after"); err != nil {
		return fmt.Errorf("then a power cut: %w", err)
	}
	w.disk.ClearRules()
	return w.check(w.disk, "check")
}
