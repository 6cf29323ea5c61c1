package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// In the other worlds a group is one request, because their ring is too small for more. Here it
// is larger, and processes write groups of requests for several sessions. Now and then an entry
// in the middle of a group is made to end exactly at the end of the ring.

const groupRing = 32 << 10

// newGroupWorld is a world of groups whose ring is almost at its end.
func newGroupWorld(seed uint64) (*world, error) {
	w := newWorld(seed)
	w.ring, w.groups = groupRing, true
	filler := w.disk.Process("filler")
	s, err := w.open(filler)
	if err != nil {
		return nil, err
	}
	for n := 0; s.lock.state.w.Written%groupRing < groupRing-3000 && err == nil; n++ {
		_, err = s.Append(context.Background(), "filling", hansard.Batch{Create: true, Events: []hansard.Event{text("%d %0500d", n, 0)}})
	}
	return w, errors.Join(err, s.Close())
}

// cutGroups plays a world of groups with a power cut after every change to the disk.
func cutGroups(seed uint64, states *atomic.Int64) error {
	w, err := newGroupWorld(seed)
	if err != nil {
		return err
	}
	found := w.cutEverywhere(states)
	err = w.play(groupProcs(seed), 8)
	return errors.Join(*found, err)
}

// groupProcs is the number of processes: a single one always knows where the ring ends.
func groupProcs(seed uint64) int { return 1 + int(seed%2) }

func (k *worker) groupStep(ctx context.Context) {
	switch r := k.rng.IntN(100); {
	case r < 80:
		k.appendGroup(ctx)
	case r < 92:
		k.unless("checkpoint", k.checkpoint())
	default:
		k.read(ctx, simSessions[k.rng.IntN(len(simSessions))])
	}
}

// appendGroup appends to several sessions at once, and records the results in the ledger.
func (k *worker) appendGroup(ctx context.Context) {
	type part struct {
		id  hansard.SessionID
		tag string
	}
	var parts []part
	var all []*request
	for _, i := range k.rng.Perm(len(simSessions))[:2+k.rng.IntN(2)] {
		k.tag++
		p := part{simSessions[i], fmt.Sprintf("%s.%d", k.p.Name(), k.tag)}
		pad := 100 + k.rng.IntN(700)
		if len(all) == 0 {
			pad = k.aim(p.id, p.tag, pad)
		}
		all = append(all, k.request(p.id, p.tag, pad))
		parts = append(parts, p)
		k.w.ledger.open[p.tag] = p.id // until we are told otherwise
		k.w.ledger.size[p.tag] = 1
	}
	k.s.committer.submitAll(ctx, all)
	for _, r := range all {
		// As submit does for a single request: after an error, lines that were set aside are put
		// in place and the request is tried once more.
		if !k.p.Dead() && r.err != nil && k.s.checkpoints.mended(ctx, r.err, r.name) {
			r.fate.Requeue()
			r.receipt, r.err = k.s.committer.submitOnce(ctx, r)
		}
	}
	if k.p.Dead() {
		return
	}
	for i, r := range all {
		p := parts[i]
		switch {
		case r.err == nil:
			delete(k.w.ledger.open, p.tag)
			k.w.ledger.ack(p.id, r.receipt.First, p.tag)
		case !errors.Is(r.err, hansard.ErrUnknown):
			delete(k.w.ledger.open, p.tag)
			k.w.ledger.refused[p.tag] = p.id
		}
		k.unless("append to "+string(p.id), r.err)
	}
}

func (k *worker) request(id hansard.SessionID, tag string, pad int) *request {
	data := json.RawMessage(fmt.Sprintf(`"%s %s"`, tag, strings.Repeat("x", pad)))
	return newAppend(id, &hansard.Batch{Create: true, Events: []hansard.Event{{Data: data}}})
}

// aim returns a data length with which an entry would end at the end of the ring, as far as this
// process knows; otherwise the length it was given.
func (k *worker) aim(id hansard.SessionID, tag string, pad int) int {
	sess := k.s.lock.state.logs.sessions[sessionlog.EncodeName(id)]
	if sess == nil || !sess.known {
		return pad
	}
	r := k.request(id, tag, 0)
	st := sessionlog.Stamp{Seq: sess.seq + 1, Time: sessionlog.TimeLayout, MetaAt: sess.metaAt, TurnAt: sess.turnAt, Prev: sess.crc}
	least := int64(journal.EntryHeader + len(r.name) + len(sessionlog.AppendEvent(nil, &st, r.bodies[0])))
	left := int64(groupRing - k.s.lock.state.w.Written%groupRing)
	if left < least || left-least > 1500 {
		return pad
	}
	return int(left - least)
}

// TestSimGroups defends: acknowledged requests of a group are there after a power cut at any
// moment, also where a group wraps around the end of the ring.
func TestSimGroups(t *testing.T) {
	inWorlds(t, 16, 6_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		if err := cutGroups(7000+seed, states); err != nil {
			t.Error(err)
		}
	})
}

// TestSimGroupMishaps: the same when a process is killed before or in the middle of any
// operation, and when any operation fails.
func TestSimGroupMishaps(t *testing.T) {
	inWorlds(t, 11, 6_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		kind := int(seed) % (len(simFaults) + 1)
		seed = 8000 + seed/uint64(len(simFaults)+1)
		run := func(what func(*vfs.Disk)) (ops int, err error) {
			w, err := newGroupWorld(seed)
			if err != nil {
				return 0, err
			}
			before := w.disk.Ops()
			err = w.strike(groupProcs(seed), 5, what)
			return w.disk.Ops() - before, err
		}
		ops, err := run(func(*vfs.Disk) {})
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= ops; n++ {
			m := mishap{at: vfs.Match{N: n}}
			if kind < len(simFaults) {
				m.fault = &simFaults[kind]
			}
			if _, err := run(m.arrange); err != nil {
				t.Fatalf("%v: %v", m, err)
			}
			states.Add(1)
		}
	})
}
