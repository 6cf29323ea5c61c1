package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/bbolt"

	"hansard/internal/bench"
)

// key orders events by session and seq.
func key(session int, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(session)), seq)
}

func unkey(k []byte) (session int, seq uint64) {
	return int(binary.BigEndian.Uint32(k)), binary.BigEndian.Uint64(k[4:])
}

// counters give seqs where one process has the store to itself.
type counters []atomic.Uint64

func (c counters) next(session int) uint64 { return c[session].Add(1) }

// Pebble, as one process uses it: a key per event, committed with Sync. Pebble combines
// the commits of goroutines itself.
var pebblePeer = peer{
	Candidate: bench.Candidate{Name: "pebble", Setup: func(context.Context, bench.Job) error { return nil }, Open: openPebble, Check: checkPebble},
	read:      func(j bench.Job) (reader, error) { return newPebble(j) },
}

type pebbleTarget struct {
	db   *pebble.DB
	seqs counters
}

// silent keeps Pebble's messages about files and compactions out of the output.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func newPebble(j bench.Job) (*pebbleTarget, error) {
	db, err := pebble.Open(filepath.Join(j.Dir, "pebble"), &pebble.Options{MemTableSize: 64 << 20, Logger: silent{}})
	if err != nil {
		return nil, err
	}
	return &pebbleTarget{db: db, seqs: make(counters, j.Sessions)}, nil
}

func openPebble(j bench.Job) (bench.Target, error) { return newPebble(j) }

func (t *pebbleTarget) Append(_ context.Context, _, session int, tag uint64) (uint64, error) {
	seq := t.seqs.next(session)
	return seq, t.db.Set(key(session, seq), encode(tag), pebble.Sync)
}

func (t *pebbleTarget) Close() error { return t.db.Close() }

func (t *pebbleTarget) each(session int, last int, do func(seq uint64, value []byte) error) (err error) {
	it, err := t.db.NewIter(&pebble.IterOptions{LowerBound: key(session, 0), UpperBound: key(session+1, 0)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	ok := it.First()
	if last > 0 && it.Last() {
		_, end := unkey(it.Key())
		ok = it.SeekGE(key(session, end+1-min(end, uint64(last))))
	}
	for ; ok; ok = it.Next() {
		_, seq := unkey(it.Key())
		if err := do(seq, it.Value()); err != nil {
			return err
		}
	}
	return it.Error()
}

func (t *pebbleTarget) events(_ context.Context, last int, each func(uint64)) error {
	return t.each(0, last, decoded(each))
}

// decoded passes on the seqs of events that can be decoded.
func decoded(each func(uint64)) func(uint64, []byte) error {
	return func(seq uint64, value []byte) error {
		var d document
		if err := json.Unmarshal(value, &d); err != nil {
			return err
		}
		each(seq)
		return nil
	}
}

func checkPebble(_ context.Context, j bench.Job, acks [][]bench.Ack) error {
	t, err := newPebble(j)
	if err != nil {
		return err
	}
	defer t.Close()
	return checkEach(acks, func(i int, do func(uint64, []byte) error) error { return t.each(i, 0, do) })
}

// checkEach checks sessions of documents.
func checkEach(acks [][]bench.Ack, each func(i int, do func(seq uint64, value []byte) error) error) error {
	for i := range acks {
		err := checkSeqs(acks[i], func(yield func(seq, tag uint64) error) error {
			return each(i, func(seq uint64, value []byte) error {
				tag, err := tagOf(value)
				if err != nil {
					return err
				}
				return yield(seq, tag)
			})
		})
		if err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
	}
	return nil
}

// bbolt, with one goroutine that commits for all: its own Batch waits 10 ms for company.
var bboltPeer = peer{
	Candidate: bench.Candidate{Name: "bbolt", Setup: func(context.Context, bench.Job) error { return nil }, Open: openBbolt, Check: checkBbolt},
	read:      func(j bench.Job) (reader, error) { return newBbolt(j) },
}

type bboltTarget struct {
	db *bbolt.DB
	*combiner
	seqs counters
}

var bucket = []byte("events")

func newBbolt(j bench.Job) (*bboltTarget, error) {
	db, err := bbolt.Open(filepath.Join(j.Dir, "bbolt"), 0o600, nil)
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	t := &bboltTarget{db: db, seqs: make(counters, j.Sessions)}
	t.combiner = newCombiner(t.commit)
	return t, nil
}

func openBbolt(j bench.Job) (bench.Target, error) { return newBbolt(j) }

func (t *bboltTarget) commit(group []*request) error {
	return t.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for _, r := range group {
			r.seq = t.seqs.next(r.session)
			if err := b.Put(key(r.session, r.seq), encode(r.tag)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *bboltTarget) Append(_ context.Context, _, session int, tag uint64) (uint64, error) {
	return t.append(session, tag)
}

func (t *bboltTarget) Close() error {
	t.close()
	return t.db.Close()
}

func (t *bboltTarget) each(session int, last int, do func(seq uint64, value []byte) error) error {
	return t.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		end := key(session+1, 0)
		from := key(session, 0)
		if last > 0 {
			k, _ := c.Seek(end)
			if k == nil {
				k, _ = c.Last()
			} else {
				k, _ = c.Prev()
			}
			_, seq := unkey(k)
			from = key(session, seq+1-min(seq, uint64(last)))
		}
		for k, v := c.Seek(from); k != nil && bytes.Compare(k, end) < 0; k, v = c.Next() {
			_, seq := unkey(k)
			if err := do(seq, v); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *bboltTarget) events(_ context.Context, last int, each func(uint64)) error {
	return t.each(0, last, decoded(each))
}

func checkBbolt(_ context.Context, j bench.Job, acks [][]bench.Ack) error {
	t, err := newBbolt(j)
	if err != nil {
		return err
	}
	defer t.Close()
	return checkEach(acks, func(i int, do func(uint64, []byte) error) error { return t.each(i, 0, do) })
}
