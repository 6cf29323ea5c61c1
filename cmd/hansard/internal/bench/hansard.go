package bench

import (
	"bytes"
	"context"
	"fmt"
	"runtime"

	"hansard"
	"hansard/filestore"
)

// hansardFiles is the file engine.
var hansardFiles = candidate{name: "hansard", setup: setupHansard, open: openHansard, check: checkHansard}

// hansardText is the length of an event's text with which its line in the log
// is about 1 KiB.
const hansardText = 890

type hansardTarget struct {
	store *filestore.Store
	data  [][]byte // one per goroutine: a JSON string
}

func sessionID(i int) hansard.SessionID { return hansard.SessionID(fmt.Sprintf("bench-%04d", i)) }

func openFilestore(j job) (*filestore.Store, error) {
	return filestore.Open(j.Dir, &filestore.Options{AllowNetwork: j.AllowNetwork})
}

func setupHansard(ctx context.Context, j job) error {
	s, err := openFilestore(j)
	if err != nil {
		return err
	}
	err = parallel(ctx, 64, j.Sessions, func(i int) error {
		_, err := s.Create(ctx, sessionID(i), hansard.Meta{})
		return err
	})
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return err
}

func openHansard(j job) (target, error) {
	s, err := openFilestore(j)
	if err != nil {
		return nil, err
	}
	t := &hansardTarget{store: s}
	for range j.Goroutines {
		t.data = append(t.data, fmt.Appendf(nil, `"%s"`, bytes.Repeat([]byte("x"), hansardText)))
	}
	return t, nil
}

func (t *hansardTarget) append(ctx context.Context, goroutine, session int, tag uint64) (uint64, error) {
	data := t.data[goroutine]
	putTag(data[1:], tag)
	r, err := t.store.Append(ctx, sessionID(session), hansard.Batch{Events: []hansard.Event{{Role: "user", Data: data}}})
	return uint64(r.First), err
}

func (t *hansardTarget) close() error { return t.store.Close() }

// checkHansard reads every session back through a store opened anew: seqs 1 … n,
// each with the event it was acknowledged for.
func checkHansard(ctx context.Context, j job, acks [][]ack) error {
	s, err := filestore.Open(j.Dir, &filestore.Options{ReadOnly: true, MustExist: true, AllowNetwork: j.AllowNetwork})
	if err != nil {
		return err
	}
	defer s.Close()
	return parallel(ctx, runtime.NumCPU(), j.Sessions, func(i int) error {
		if err := checkSession(ctx, s, sessionID(i), acks[i]); err != nil {
			return fmt.Errorf("session %s: %w", sessionID(i), err)
		}
		return nil
	})
}

func checkSession(ctx context.Context, s hansard.Store, id hansard.SessionID, acks []ack) error {
	tags := make([]uint64, len(acks))
	for _, a := range acks {
		if a.Seq < 1 || a.Seq > uint64(len(acks)) {
			return fmt.Errorf("gap: seq %d was acknowledged, but only %d events were", a.Seq, len(acks))
		}
		if tags[a.Seq-1] != 0 {
			return fmt.Errorf("double: seq %d was acknowledged twice", a.Seq)
		}
		tags[a.Seq-1] = a.Tag
	}
	n := 0
	for e, err := range s.Read(ctx, id, hansard.Range{}) {
		if err != nil {
			return err
		}
		if n++; uint64(e.Seq) != uint64(n) || n > len(tags) {
			return fmt.Errorf("seq %d is where %d of %d was expected", e.Seq, n, len(tags))
		}
		tag, err := getTag(bytes.TrimPrefix(e.Data, []byte(`"`)))
		if err != nil || tag != tags[n-1] {
			return fmt.Errorf("the event at seq %d is not the one that was acknowledged", n)
		}
	}
	if n != len(tags) {
		return fmt.Errorf("lost: %d events were acknowledged, %d are there", len(tags), n)
	}
	return nil
}
