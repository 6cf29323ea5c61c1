package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// An answer may rest on lines that another process has written to the ring but not synced yet. If
// those are lost, the answer is void.

// inRing has a process write a request to the ring, and nothing more.
func inRing(t *testing.T, s *Store, r *request) *group {
	t.Helper()
	if err := s.committer.prepare(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r.done = make(chan struct{}, 1)
	s.committer.queue.waiting = append(s.committer.queue.waiting, r)
	g := s.committer.writeGroup()
	if g == nil {
		t.Fatalf("answered before it is durable: %+v, %v", r.receipt, r.err)
	}
	return g
}

// lostUnder is a pair of requests: the first process writes one, and the answer to the second
// rests on it.
type lostUnder struct {
	name   string
	first  func(s *Store) *request
	second func(s *Store) *request
	want   error // what the second gets if the first is not lost; nil: a replay
}

func keyed(key, data string) *hansard.Batch {
	return &hansard.Batch{Key: key, Events: []hansard.Event{{Data: json.RawMessage(`"` + data + `"`)}}}
}

func named(id, data string) *hansard.Batch {
	return &hansard.Batch{Events: []hansard.Event{{ID: id, Data: json.RawMessage(`"` + data + `"`)}}}
}

func lostPairs(g hansard.Grant) []lostUnder {
	one := hansard.Seq(2) // the last seq in the log: an event and a grant
	app := func(b *hansard.Batch) func(*Store) *request {
		return func(*Store) *request { return newAppend("a", b) }
	}
	claim := func(c hansard.Claim) func(*Store) *request {
		return func(s *Store) *request {
			return &request{op: opAcquire, id: "a", name: "a", claim: &c, size: 4096}
		}
	}
	stolen, exclusive := claim(hansard.Claim{Steal: "why"}), claim(hansard.Claim{Steal: "why", Exclusive: true})
	create := func(*Store) *request { return &request{op: opCreate, id: "n", name: "n", size: 4096} }
	return []lostUnder{
		{"replay", app(keyed("k", "x")), app(keyed("k", "x")), nil},
		{"key reused", app(keyed("k", "x")), app(keyed("k", "other")), hansard.ErrKeyReused},
		{"known id", app(named("i", "x")), app(named("i", "x")), nil},
		{"id reused", app(named("i", "x")), app(named("i", "other")), hansard.ErrIDReused},
		{"conflict", app(keyed("", "x")), app(&hansard.Batch{Expect: &one, Events: keyed("", "y").Events}), hansard.ErrConflict},
		{"held", exclusive, app(keyed("", "y")), hansard.ErrHeld},
		{"claim held", stolen, claim(hansard.Claim{}), hansard.ErrHeld},
		{"fenced", stolen, app(&hansard.Batch{Turn: g, Events: keyed("", "y").Events}), hansard.ErrFenced},
		{"deleted", turnRequest(opDelete, g), app(keyed("", "y")), hansard.ErrDeleted},
		{"exists", create, create, hansard.ErrExists},
		{"fork exists", create, forkAsN, hansard.ErrExists},
		{"state test", app(&hansard.Batch{Patch: &hansard.Patch{State: json.RawMessage(`1`)}}), app(&hansard.Batch{Patch: &hansard.Patch{StateOps: testsNull}}), hansard.ErrConflict},
		{"import conflict", app(keyed("", "x")), importOfThird, hansard.ErrConflict},
		{"renew fenced", stolen, turnRequest(opRenew, g), hansard.ErrFenced},
		{"release fenced", stolen, turnRequest(opRelease, g), hansard.ErrFenced},
		{"delete fenced", stolen, turnRequest(opDelete, g), hansard.ErrFenced},
		{"delete held", exclusive, turnRequest(opDelete, ""), hansard.ErrHeld},
		{"delete deleted", turnRequest(opDelete, g), turnRequest(opDelete, g), hansard.ErrDeleted},
		{"redact replay", redact(1, g), redact(1, g), nil},
		{"redact fenced", stolen, redact(1, g), hansard.ErrFenced},
		{"redact held", exclusive, redact(1, ""), hansard.ErrHeld},
		{"redact the store's own", stolen, redact(3, g), hansard.ErrInvalid},
	}
}

// testsNull is a test that a session without a state passes.
var testsNull = []hansard.StateOp{{Op: hansard.OpTest, Path: "", Value: json.RawMessage(`null`)}}

// turnRequest is a request about "a" that names a grant.
func turnRequest(op op, g hansard.Grant) func(*Store) *request {
	return func(*Store) *request { return &request{op: op, id: "a", name: "a", turn: g, size: 4096} }
}

func redact(seq hansard.Seq, g hansard.Grant) func(*Store) *request {
	return func(*Store) *request {
		return newRedaction("a", &hansard.Redaction{Seqs: []hansard.Seq{seq}, Turn: g})
	}
}

// importOfThird imports an event that follows what is in the log of "a": an event and a grant.
func importOfThird(s *Store) *request {
	info, err := s.Stat(context.Background(), "a")
	if err != nil {
		panic(err)
	}
	e := text("imported")
	e.Seq, e.Kind, e.Time = info.LastSeq+1, hansard.KindMessage, info.Created
	return newImport(&hansard.Part{Origin: hansard.Origin{ID: "a", Created: info.Created}, Events: []hansard.Event{e}})
}

// forkAsN does what a fork of "a" as "n" does before its request, up to finding the name taken by
// a session that is in no log yet.
func forkAsN(s *Store) *request {
	l, err := s.reader.openLogForRead(context.Background(), "a")
	if err != nil {
		panic(err)
	}
	defer l.f.Close()
	r := &forking{forker: s.forker, ctx: context.Background(), id: "a", fork: hansard.Fork{As: "n"}, name: "n", uid: s.cfg.random(), parent: l}
	err = errors.Join(r.begin(), r.makeNote(), r.copy(), r.link())
	free, placeErr := r.place()
	if err = errors.Join(err, placeErr); err != nil || free {
		panic(fmt.Sprint("the name is free: ", free, ", ", err))
	}
	return r.request()
}

// crossed plays a pair. If loses is set, the first process's sync fails, its pages are evicted,
// and the ring is replaced without its entry.
func crossed(t *testing.T, p lostUnder, loses bool) (told error) {
	t.Helper()
	d := vfs.NewDisk(7)
	cfg := simConfig(1, simRing)
	s1, err := open(d.Process("P1"), Options{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg = simConfig(2, simRing)
	s2, err := open(d.Process("P2"), Options{}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	say(t, s1, "a", nil, "first")
	turn, err := s2.Acquire(context.Background(), "a", hansard.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range lostPairs(turn.Grant) {
		if q.name == p.name {
			p = q // with the grant of this disk
		}
	}
	g1 := inRing(t, s1, p.first(s1))
	r2 := p.second(s2)
	g2 := inRing(t, s2, r2)
	if !errors.Is(r2.err, p.want) || p.want == nil && !r2.receipt.Replayed {
		t.Fatalf("the second is told %+v, %v; want %v", r2.receipt, r2.err, p.want)
	}
	if loses {
		d.Inject(vfs.Match{Proc: "P1", Kind: vfs.OpSync, Name: journal.Name}, vfs.Fault{Err: syscall.EIO})
		d.OnOp(func(op vfs.Op) {
			if op.Kind == vfs.OpSync && op.Err != nil {
				d.Evict(journal.Name) // reads now see the medium, without the failed write
			}
		})
	}
	s1.committer.finishGroup(g1)
	s2.committer.finishGroup(g2)
	<-r2.done
	return r2.err
}

// TestFailure57_AnswerRestsOnLostEntry: a replay or a refusal that rests on a line of another
// process becomes ErrUnknown if that line is lost together with its ring.
func TestFailure57_AnswerRestsOnLostEntry(t *testing.T) {
	for _, p := range lostPairs("") {
		t.Run(p.name, func(t *testing.T) {
			if err := crossed(t, p, false); !errors.Is(err, p.want) || errors.Is(err, hansard.ErrUnknown) {
				t.Errorf("nothing is lost, and the second is told %v, want %v", err, p.want)
			}
			if err := crossed(t, p, true); !errors.Is(err, hansard.ErrUnknown) || p.want != nil && errors.Is(err, p.want) {
				t.Errorf("the line is lost, and the second is told %v, want that it is unknown", err)
			}
		})
	}
}

// TestRefusalRestsOnAside: lines set aside because the log was modified from outside are visible
// to nobody, so a refusal that rests on them becomes ErrUnknown.
func TestRefusalRestsOnAside(t *testing.T) {
	for _, p := range lostPairs("") {
		if strings.HasSuffix(p.name, "exists") {
			continue // its log does not exist yet, so it can't be modified
		}
		t.Run(p.name, func(t *testing.T) {
			d := vfs.NewDisk(7)
			s1, s2 := openSim(t, d.Process("P1"), 1), openSim(t, d.Process("P2"), 2)
			say(t, s1, "a", nil, "first")
			turn, err := s2.Acquire(context.Background(), "a", hansard.Claim{})
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range lostPairs(turn.Grant) {
				if q.name == p.name {
					p = q
				}
			}
			g1 := inRing(t, s1, p.first(s1))
			r2 := p.second(s2)
			g2 := inRing(t, s2, r2)
			log, _ := d.CacheBytes(sessionlog.Path("a"))
			d.Poke(sessionlog.Path("a"), int64(len(log))-4, []byte{'!'})
			s1.committer.finishGroup(g1)
			s2.committer.finishGroup(g2)
			if !errors.Is(r2.err, hansard.ErrUnknown) {
				t.Errorf("it rests on lines that were set aside, and is told %v", r2.err)
			}
		})
	}
}

// crossStep does things whose answers rest on other processes' newest lines, and records the
// answers.
func (k *worker) crossStep(ctx context.Context, n int) {
	l, id := k.w.ledger, hansard.SessionID("a")
	switch k.rng.IntN(5) {
	case 0:
		k.appendShared(ctx, n)
	case 4:
		k.mirror(ctx, n, 1+k.rng.IntN(2))
	case 1: // the same key with other content
		tag := fmt.Sprintf("%s.%d", k.p.Name(), 1000+n)
		l.open[tag] = id
		_, err := k.s.Append(ctx, id, hansard.Batch{Create: true, Key: fmt.Sprintf("shared%d", n), Events: []hansard.Event{text("%s", tag)}})
		k.unless("append under a shared key", err, hansard.ErrKeyReused, hansard.ErrHeld)
		k.told(err)
	case 2:
		expect := hansard.Seq(k.rng.IntN(5))
		tag := fmt.Sprintf("%s.%d", k.p.Name(), 2000+n)
		l.open[tag] = id
		r, err := k.s.Append(ctx, id, hansard.Batch{Create: true, Expect: &expect, Events: []hansard.Event{text("%s", tag)}})
		if err == nil {
			delete(l.open, tag)
			l.ack(id, r.First, tag)
		}
		k.unless("append after a seq", err, hansard.ErrConflict, hansard.ErrHeld)
		k.told(err)
	default:
		k.turn(ctx, id)
	}
}

// huntLostRest makes a sync of the ring fail and evicts its pages while processes answer from
// each other's lines.
func huntLostRest(seed uint64) error {
	for k := 3; k <= 24; k++ {
		w := newWorld(seed)
		w.crossing = true
		w.disk.Inject(vfs.Match{Kind: vfs.OpSync, Name: journal.Name, N: k}, vfs.Fault{Err: syscall.EIO})
		w.disk.OnOp(func(op vfs.Op) {
			if op.Kind == vfs.OpSync && op.Err != nil {
				w.disk.Evict(journal.Name)
			}
		})
		err := w.play(3, 8)
		if err == nil {
			err = w.finish()
		}
		if err != nil {
			return fmt.Errorf("seed %d: sync %d fails: %w\n%s", seed, k, err, trace(w.disk, 60))
		}
	}
	return nil
}

// TestSimLostRest: the hunt finds nothing if no bug was planted.
func TestSimLostRest(t *testing.T) {
	for seed := range uint64(scale(40)) {
		if err := huntLostRest(5000 + seed); err != nil {
			t.Fatal(err)
		}
	}
}
