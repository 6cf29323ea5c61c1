package filestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Redactions in the simulation: processes append to one session and redact it, are killed, and
// the power is cut. An acknowledged redaction stays, no other event is lost, and once the last
// process has left, no content whose redaction is recorded is still there.

// redactStep appends, attaches, redacts or reads.
func (k *worker) redactStep(ctx context.Context, i int) {
	const id = hansard.SessionID("a")
	switch {
	case i == 0:
		k.append(ctx, id, "")
	case i%3 == 2:
		k.redact(ctx, id)
	default:
		switch k.rng.IntN(5) {
		case 0:
			k.attach(ctx, id)
		case 1:
			k.read(ctx, id)
		default:
			k.append(ctx, id, "")
		}
	}
}

// redact redacts one or two acknowledged events, whoever appended them.
func (k *worker) redact(ctx context.Context, id hansard.SessionID) { k.redactBy(ctx, id, k.s.Redact) }

// redactAtOnce redacts in the way that does not wait for a quiet moment: the journal is emptied
// for it.
func (k *worker) redactAtOnce(ctx context.Context, id hansard.SessionID) {
	k.redactBy(ctx, id, func(ctx context.Context, id hansard.SessionID, rd hansard.Redaction) (hansard.Receipt, error) {
		slices.Sort(rd.Seqs)
		rd.Seqs = slices.Compact(rd.Seqs)
		r, err := k.s.committer.carryOut(ctx, newRedaction(id, &rd))
		if err == nil {
			err = k.s.checkpoints.tryTakeAway(sessionlog.EncodeName(id), true)
		}
		return r, err
	})
}

func (k *worker) redactBy(ctx context.Context, id hansard.SessionID, redact func(context.Context, hansard.SessionID, hansard.Redaction) (hansard.Receipt, error)) {
	l := k.w.ledger
	all := slices.Sorted(maps.Keys(l.acked[id]))
	all = slices.DeleteFunc(all, func(seq hansard.Seq) bool { return strings.HasPrefix(l.acked[id][seq], "redaction at") })
	if len(all) == 0 {
		return
	}
	if l.redacting[id] == nil {
		l.redacting[id], l.redacted[id] = map[hansard.Seq]bool{}, map[hansard.Seq]bool{}
	}
	seqs := []hansard.Seq{all[k.rng.IntN(len(all))], all[k.rng.IntN(len(all))]}
	for _, seq := range seqs {
		l.redacting[id][seq] = true // may be redacted, until we are told otherwise
	}
	rd := hansard.Redaction{Seqs: seqs, Reason: "simulated"}
	r, err := redact(ctx, id, rd)
	if err != nil {
		k.unless("redact", err, hansard.ErrUnknown, errChanged)
		return
	}
	for _, seq := range seqs {
		l.redacted[id][seq] = true
	}
	if !r.Replayed {
		l.ack(id, r.First, fmt.Sprintf("redaction at %d", r.First))
	}
	k.read(ctx, id)
}

// wantRedacted: once the last process has left, no redaction is pending, and none of the redacted
// content is in any file but the journal.
func (w *world) wantRedacted(d *vfs.Disk) error {
	for id := range w.ledger.redacting {
		log, ok := d.CacheBytes(sessionlog.Path(sessionlog.EncodeName(id)))
		if !ok {
			continue
		}
		var proof engine.Redactions
		for i, b := range strings.Split(strings.TrimSuffix(string(log), "\n"), "\n") {
			l, err := sessionlog.Decode([]byte(b))
			if err != nil {
				return fmt.Errorf("line %d of session %s: %w", i, id, err)
			}
			if e := l.Event(); i > 0 {
				if err := proof.Next(&e); err != nil {
					return err
				}
			}
		}
		if left := proof.Unfinished(); len(left) > 0 {
			return fmt.Errorf("session %s: the redaction of %v is recorded and not finished", id, left)
		}
		for seq := range w.ledger.redacted[id] {
			for _, found := range []string{`"` + w.ledger.acked[id][seq] + ` `, `"` + w.ledger.acked[id][seq] + `"`} {
				if err := w.wantGone(d, id, found); err != nil {
					return fmt.Errorf("seq %d of session %s was redacted: %w", seq, id, err)
				}
			}
		}
	}
	return nil
}

// wantGone is wantErased, except that titles and ids stay.
func (w *world) wantGone(d *vfs.Disk, id hansard.SessionID, word string) error {
	for _, name := range d.Names() {
		b, _ := d.CacheBytes(name)
		if strings.HasPrefix(name, sessionlog.Dir) || strings.HasPrefix(name, asideDir) || strings.HasPrefix(name, evidenceDir) {
			if strings.Contains(string(b), `"data":`+word) {
				return fmt.Errorf("%s still has %q", name, word)
			}
		}
	}
	return nil
}

// huntRedact cuts the power after every change while two processes redact one session.
func huntRedact(seed uint64) error {
	w := newWorld(seed)
	var states atomic.Int64
	found := w.cutEverywhere(&states)
	for i := range 2 {
		w.spawn(fmt.Sprintf("P%d", i), 7, uint64(100+i)).redacting = true
	}
	return errors.Join(w.disk.Run(), *found, w.wrong)
}

// TestSimRedact: power cuts at every moment while two processes append to one session and
// redact it.
func TestSimRedact(t *testing.T) {
	inWorlds(t, 12, 1_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		w := newWorld(7000 + seed)
		found := w.cutEverywhere(states)
		for i := range 2 {
			w.spawn(fmt.Sprintf("P%d", i), 7, uint64(100+i)).redacting = true
		}
		if err := errors.Join(w.disk.Run(), *found, w.wrong); err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, trace(w.disk, 80))
		}
		if len(w.ledger.redacted["a"]) == 0 {
			t.Log("nothing was redacted")
		}
	})
}

// redactInterrupted kills the redacting process, or cuts the power, at each of its operations,
// while another one appends (if beside is set). The next process completes any recorded
// redaction, and no event is lost.
func redactInterrupted(beside bool) (states int, err error) {
	ctx := context.Background()
	for _, cut := range []*vfs.Cut{nil, {Keep: 0, Seed: 1}, {Keep: 50, Seed: 2}, {Keep: 50, Seed: 3}, {Keep: 100, Seed: 4}} {
		for k, done := 1, false; !done; k++ {
			d := vfs.NewDisk(1)
			d.PageSize, d.SectorSize = 512, 128
			a, err := openOn(d.Process("a"), 1, simRing)
			if err == nil {
				err = errors.Join(tell(a), a.checkpoints.checkpoint(true))
			}
			if err != nil {
				return states, err
			}
			if !beside {
				if err := a.Close(); err != nil {
					return states, err
				}
			}
			b, err := openOn(d.Process("b"), 2, simRing)
			if err != nil {
				return states, err
			}
			at := vfs.Match{Proc: "b", Kind: vfs.OpChange, N: k}
			if cut == nil {
				d.KillAt(at, -1)
			} else {
				d.CutAt(at, *cut)
			}
			r := redactionOf{d: d}
			if beside {
				r.appendBeside(a)
			}
			_, err = b.Redact(ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{2, 6}, Reason: "told"})
			r.acked = err == nil
			if err == nil {
				err = b.Close()
			}
			if done = err == nil && notKilled(d); err != nil && !errors.Is(err, vfs.ErrCrashed) && !errors.Is(err, hansard.ErrUnknown) {
				return states, fmt.Errorf("operation %d: %w", k, err)
			}
			d.ClearRules()
			r.over = true
			if err := r.check(); err != nil {
				return states, fmt.Errorf("%+v before operation %d: %w\n%s", cut, k, err, trace(d, 80))
			}
			states++
		}
	}
	return states, nil
}

// redactionOf is what callers were told about a session while it was redacted.
type redactionOf struct {
	d     *vfs.Disk
	acked bool     // the redaction
	said  []string // appended beside it and acknowledged
	over  bool
}

// appendBeside has another process append between the operations of the redacting one.
func (r *redactionOf) appendBeside(a *Store) {
	busy := false
	n := 0
	r.d.OnOp(func(op vfs.Op) {
		if op.Proc != "b" || r.over || busy || op.Kind&vfs.OpSync == 0 || n == 6 {
			return
		}
		busy, n = true, n+1
		defer func() { busy = false }()
		what := fmt.Sprintf("beside %d", n)
		if a.lock.lockIsFree() {
			if _, err := a.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{text("%s", what)}}); err == nil {
				r.said = append(r.said, what)
			}
		}
	})
}

// check looks at what is left, as the next process and as one after a power cut.
func (r *redactionOf) check() error {
	for i, who := range []string{"c", "d"} {
		s, err := openOn(r.d.Process(who), uint64(3+i), simRing)
		if err != nil {
			return err
		}
		_, err = r.read(s)
		if err == nil {
			err = s.checkpoints.checkpoint(true)
		}
		recorded := false
		if err == nil {
			// Only now: a complete entry of a dead process is adopted under write.lock.
			recorded, err = r.read(s)
		}
		if err == nil && r.acked && !recorded {
			err = errors.New("the redaction lost its record")
		}
		if err == nil {
			err = errors.Join(wantSound(s, "s"), s.Close())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", who, err)
		}
		if left := notes(r.d); len(left) > 0 {
			return fmt.Errorf("noted are still %q", left)
		}
		if recorded {
			if err := wantErased(r.d, "secret 1", "secret event", "secret attachment"); err != nil {
				return fmt.Errorf("recorded, and %w", err)
			}
		} else if wantErased(r.d, "secret 1") == nil {
			return errors.New("not recorded, and gone")
		}
		r.d.PowerCut(vfs.Cut{})
	}
	return nil
}

// read reads the session and reports whether the redaction is recorded.
func (r *redactionOf) read(s *Store) (recorded bool, err error) {
	var proof engine.Redactions
	var heard []string
	n := 0
	for e, err := range s.Read(context.Background(), "s", hansard.Range{}) {
		if err != nil {
			return false, err
		}
		n++
		if err := proof.Next(&e); err != nil {
			return false, err
		}
		recorded = recorded || len(e.Redacts) > 0
		if (e.Redacted || r.acked) && (e.Seq == 2 || e.Seq == 6) != e.Redacted {
			return false, fmt.Errorf("seq %d has redacted %v", e.Seq, e.Redacted)
		}
		if e.Seq == 3 && string(e.Data) != `"secret 2"` {
			return false, fmt.Errorf("seq 3 is %s", e.Data)
		}
		if strings.HasPrefix(string(e.Data), `"beside`) {
			heard = append(heard, strings.Trim(string(e.Data), `"`))
		}
	}
	for _, what := range r.said {
		if !slices.Contains(heard, what) {
			return false, fmt.Errorf("%q was acknowledged and is not there: %q", what, heard)
		}
	}
	if n < 6 {
		return false, fmt.Errorf("%d events", n)
	}
	return recorded, proof.End()
}

// TestSimRedactInterrupted: after a kill or a power cut at any step of a redaction, no event and
// no record is lost, and the next process completes a recorded redaction.
func TestSimRedactInterrupted(t *testing.T) {
	for what, beside := range map[string]bool{"alone": false, "beside a writer": true} {
		t.Run(what, func(t *testing.T) {
			states, err := redactInterrupted(beside)
			if err != nil {
				t.Fatal(err)
			}
			if t.Logf("%d states", states); states < 100 {
				t.Errorf("only %d states", states)
			}
		})
	}
}

// redactedMeanwhile has another process append, and free the ring of its entries, when the new
// log is written but not in place: the lines are only in the old one.
func redactedMeanwhile() error {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, err := openOn(d.Process("a"), 1, simRing)
	if err != nil {
		return err
	}
	b, err := openOn(d.Process("b"), 2, simRing)
	if err == nil {
		err = tell(a)
	}
	if err != nil {
		return err
	}
	var said error
	n := 0
	d.OnOp(func(op vfs.Op) {
		if op.Proc == "b" && op.Kind == vfs.OpSync && strings.HasPrefix(op.Name, "log.") && n == 0 {
			n++
			_, err := a.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("meanwhile")}})
			said = errors.Join(err, a.checkpoints.freeRing(true))
		}
	})
	if err := errors.Join(redactTold(b), said); err != nil {
		return err
	}
	last := ""
	for e, err := range b.Read(ctx, "s", hansard.Range{}) {
		if err != nil {
			return err
		}
		last = string(e.Data)
	}
	if n == 0 || last != `"meanwhile"` {
		return fmt.Errorf("what was appended meanwhile is not there: the last event is %s", last)
	}
	return errors.Join(wantSound(a, "s"), wantSound(b, "s"), wantErased(d, "secret 1"))
}

// TestRedactedMeanwhile: events appended while the log is rewritten are in the new one.
func TestRedactedMeanwhile(t *testing.T) {
	if err := redactedMeanwhile(); err != nil {
		t.Error(err)
	}
}
