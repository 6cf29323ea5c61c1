package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"testing"

	"hansard"
	"hansard/internal/vfs"
)

// endingFS cancels a context once a number of bytes have been read through it.
type endingFS struct {
	*countFS
	after int64
	end   context.CancelFunc
}

func (e *endingFS) Open(name string, flags vfs.Flag) (vfs.File, error) {
	f, err := e.countFS.Open(name, flags)
	if err != nil {
		return nil, err
	}
	return &endingFile{f, e}, nil
}

type endingFile struct {
	vfs.File
	e *endingFS
}

func (f *endingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if f.e.bytes >= f.e.after {
		f.e.end()
	}
	return n, err
}

// TestContextBoundsReading: every call that goes over a long log, or over many, ends soon after
// its context does, with the context's error.
func TestContextBoundsReading(t *testing.T) {
	const events = 12_000
	log := buildLog("long", 5, events, func(i int) (hansard.Event, string) { return pad(i, 500), fmt.Sprintf("key %d", i) })
	logs := map[hansard.SessionID][]byte{"long": log}
	for i := range 40 {
		id := hansard.SessionID(fmt.Sprint("s", i))
		logs[id] = buildLog(id, uint64(100+i), 200, func(i int) (hansard.Event, string) { return pad(i, 500), "" })
	}
	base := withLogs(t, 1, logs)
	attachOne(t, base, "pictures", 4<<20)
	keyed := hansard.Batch{Key: "new", Events: []hansard.Event{text("more")}}
	for _, c := range []struct {
		what string
		call func(ctx context.Context, s *Store) error
	}{
		{"verify of one", func(ctx context.Context, s *Store) error { return foundBy(s.Verify(ctx, "long")) }},
		{"verify of all", func(ctx context.Context, s *Store) error { return foundBy(s.Verify(ctx, "")) }},
		{"verify of attachments", func(ctx context.Context, s *Store) error { return foundBy(s.Verify(ctx, "pictures")) }},
		{"read", func(ctx context.Context, s *Store) error {
			for _, err := range s.Read(ctx, "long", hansard.Range{Kinds: []string{"none"}}) {
				return err
			}
			return nil
		}},
		{"keys", func(ctx context.Context, s *Store) error {
			for _, err := range s.Keys(ctx, "long", events) {
				return err
			}
			return nil
		}},
		{"append with a key", func(ctx context.Context, s *Store) error {
			_, err := s.Append(ctx, "long", keyed)
			return err
		}},
		{"list", func(ctx context.Context, s *Store) error {
			for info, err := range s.List(ctx, hansard.Query{}) {
				if err != nil || info.Damage != nil {
					return errors.Join(err, orNil(info.Damage))
				}
			}
			return nil
		}},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		e := &endingFS{countFS: &countFS{FS: base.Clone().Process("p")}, after: 1 << 62, end: cancel}
		s, err := openOn(e, 3, growthRing)
		if err != nil {
			t.Fatal(err)
		}
		e.reset()
		e.after = 1 << 20
		err = c.call(ctx, s)
		if !errors.Is(err, context.Canceled) || errors.Is(err, hansard.ErrDamaged) {
			t.Errorf("%s: %v, want the context's error", c.what, err)
		}
		t.Logf("%s: %d bytes read", c.what, e.bytes)
		if limit := e.after + 256<<10; e.bytes > limit {
			t.Errorf("%s: %d bytes read, the context had ended after %d", c.what, e.bytes, e.after)
		}
		// Nothing of it sticks: with enough time the call succeeds.
		e.after = 1 << 62
		if err := c.call(context.Background(), s); err != nil {
			t.Errorf("%s, once more: %v", c.what, err)
		}
	}
}

// attachOne makes a session with one attachment of so many bytes.
func attachOne(t *testing.T, d *vfs.Disk, id hansard.SessionID, size int64) {
	t.Helper()
	s, err := openOn(d.Process("attaches"), 2, growthRing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), id, hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	a, err := s.Attach(t.Context(), id, io.LimitReader(rand.NewChaCha8([32]byte{}), size))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Append(t.Context(), id, hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), Attachments: []hansard.Attachment{a}}}})
	if err = errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// foundBy is the error of an examination, or the damage it reports.
func foundBy(found iter.Seq2[hansard.Finding, error]) error {
	for f, err := range found {
		if err != nil {
			return err
		}
		if f.Level == hansard.LevelDamage {
			return fmt.Errorf("%w: %+v", hansard.ErrDamaged, f)
		}
	}
	return nil
}

func orNil(d *hansard.DamagedError) error {
	if d == nil {
		return nil
	}
	return d
}

// TestContextBoundsWaiting: a caller that waits for a long read of another caller gives up when
// its context ends.
func TestContextBoundsWaiting(t *testing.T) {
	log := buildLog("keyed", 5, 10, keyedEvent)
	s, _ := opened(t, withLogs(t, 1, map[hansard.SessionID][]byte{"keyed": log}), 1)
	ctx, cancel := context.WithCancel(context.Background())
	s.lister.catalog.mu.Lock() // held as during a list of very many sessions
	listing := make(chan error, 1)
	go func() {
		for _, err := range s.List(ctx, hansard.Query{}) {
			listing <- err
		}
	}()
	cancel()
	if err := <-listing; !errors.Is(err, context.Canceled) {
		t.Errorf("list: %v", err)
	}
	s.lister.catalog.mu.Unlock()
}

// TestListGoesOn: a list that never has enough time still completes after a few tries, because
// each try keeps what it found for the next.
func TestListGoesOn(t *testing.T) {
	logs := map[hansard.SessionID][]byte{}
	for i := range 60 {
		id := hansard.SessionID(fmt.Sprint("s", i))
		logs[id] = buildLog(id, uint64(100+i), 100, func(i int) (hansard.Event, string) { return pad(i, 500), "" })
	}
	e := &endingFS{countFS: &countFS{FS: withLogs(t, 1, logs).Process("p")}, after: 1 << 62, end: func() {}}
	s, err := openOn(e, 3, growthRing)
	if err != nil {
		t.Fatal(err)
	}
	for try := 1; ; try++ {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		e.reset()
		e.after, e.end = 1<<20, cancel
		n := 0
		for info, err2 := range s.List(ctx, hansard.Query{}) {
			if err = err2; err == nil && info.Damage != nil {
				t.Fatalf("%+v", info)
			}
			n++
		}
		if err == nil && n == len(logs) {
			t.Logf("complete at try %d", try)
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%d sessions, %v", n, err)
		}
		if try == 20 {
			t.Fatal("still not complete")
		}
	}
}
