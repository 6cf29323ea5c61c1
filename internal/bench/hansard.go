package bench

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"time"

	"hansard"
	"hansard/filestore"
)

// Hansard is the file engine.
var Hansard = Candidate{Name: "hansard", Setup: setupHansard, Open: openHansard, Check: checkHansard}

// hansardText is the length of an event's text for which its line in the log is about
// 1 KiB.
const hansardText = 890

type hansardTarget struct {
	store  hansard.Store
	create bool
	ids    []hansard.SessionID
	data   [][]byte // one per goroutine: a JSON string
}

// SessionID is the id of the session with this number.
func SessionID(i int) hansard.SessionID { return hansard.SessionID(fmt.Sprintf("bench-%06d", i)) }

// FileOptions are the options that stores are opened with here: a stall is measured,
// however long it is, instead of ending the run with ErrBusy.
func FileOptions(j Job) *filestore.Options {
	return &filestore.Options{AllowNetwork: j.AllowNetwork, LockWait: 2 * time.Minute}
}

func openFilestore(j Job) (*filestore.Store, error) { return filestore.Open(j.Dir, FileOptions(j)) }

func setupHansard(ctx context.Context, j Job) error {
	s, err := openFilestore(j)
	if err != nil {
		return err
	}
	err = makeBusy(ctx, s)
	if err == nil && !j.Create {
		err = CreateSessions(ctx, s, j)
	}
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return err
}

// makeBusy writes enough to a new store for its journal to grow to the size it has in a
// busy one: a store in use is measured, not its first second.
func makeBusy(ctx context.Context, s hansard.Store) error {
	const id = "warm-up"
	data := fmt.Appendf(nil, `"%s"`, bytes.Repeat([]byte("x"), 1<<20))
	for range 16 {
		if _, err := s.Append(ctx, id, hansard.Batch{Create: true, Events: []hansard.Event{{Data: data}}}); err != nil {
			return err
		}
	}
	return s.Delete(ctx, id, "")
}

// CreateSessions makes the sessions of a job.
func CreateSessions(ctx context.Context, s hansard.Store, j Job) error {
	return Parallel(ctx, 64, j.Sessions, func(i int) error {
		_, err := s.Create(ctx, SessionID(i), hansard.Meta{})
		return err
	})
}

func openHansard(j Job) (Target, error) {
	s, err := openFilestore(j)
	if err != nil {
		return nil, err
	}
	return StoreTarget(s, j), nil
}

// StoreTarget is a store, whatever its engine, as a target.
func StoreTarget(s hansard.Store, j Job) Target {
	t := &hansardTarget{store: s, create: j.Create}
	for i := range j.Sessions {
		t.ids = append(t.ids, SessionID(i))
	}
	for range j.Goroutines {
		t.data = append(t.data, fmt.Appendf(nil, `"%s"`, bytes.Repeat([]byte("x"), hansardText)))
	}
	return t
}

func (t *hansardTarget) Append(ctx context.Context, goroutine, session int, tag uint64) (uint64, error) {
	data := t.data[goroutine]
	PutTag(data[1:], tag)
	r, err := t.store.Append(ctx, t.ids[session], hansard.Batch{Events: []hansard.Event{{Role: "user", Data: data}}, Create: t.create})
	return uint64(r.First), err
}

func (t *hansardTarget) Close() error { return t.store.Close() }

// checkHansard reads every session back through a newly opened store: seqs 1 … n, each
// with the event it was acknowledged for.
func checkHansard(ctx context.Context, j Job, acks [][]Ack) error {
	s, err := filestore.Open(j.Dir, &filestore.Options{ReadOnly: true, MustExist: true, AllowNetwork: j.AllowNetwork})
	if err != nil {
		return err
	}
	defer s.Close()
	return CheckStore(ctx, s, j, acks)
}

// CheckStore does the same with an open store.
func CheckStore(ctx context.Context, s hansard.Store, j Job, acks [][]Ack) error {
	return Parallel(ctx, runtime.NumCPU(), j.Sessions, func(i int) error {
		if err := checkSession(ctx, s, SessionID(i), acks[i]); err != nil {
			return fmt.Errorf("session %s: %w", SessionID(i), err)
		}
		return nil
	})
}

func checkSession(ctx context.Context, s hansard.Store, id hansard.SessionID, acks []Ack) error {
	tags, err := TagsBySeq(acks)
	if err != nil {
		return err
	}
	n := 0
	for e, err := range s.Read(ctx, id, hansard.Range{}) {
		if err != nil {
			return err
		}
		if n++; uint64(e.Seq) != uint64(n) || n > len(tags) {
			return fmt.Errorf("seq %d is where %d of %d was expected", e.Seq, n, len(tags))
		}
		tag, err := GetTag(bytes.TrimPrefix(e.Data, []byte(`"`)))
		if err != nil || tag != tags[n-1] {
			return fmt.Errorf("the event at seq %d is not the one that was acknowledged", n)
		}
	}
	if n != len(tags) {
		return fmt.Errorf("lost: %d events were acknowledged, %d are there", len(tags), n)
	}
	return nil
}
