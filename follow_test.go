package hansard_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"hansard"
	"hansard/memstore"
)

// script is a store whose reads and waits are played from a list.
type script struct {
	hansard.Store
	reads  [][]hansard.Seq
	errors []error // of each read, after its events
	wait   error   // after the last read
	asked  []hansard.Seq
	waited []hansard.Seq
}

func (s *script) Read(_ context.Context, _ hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		n := len(s.asked)
		s.asked = append(s.asked, r.After)
		for _, seq := range s.reads[n] {
			if !yield(hansard.Event{Seq: seq}, nil) {
				return
			}
		}
		if n < len(s.errors) && s.errors[n] != nil {
			yield(hansard.Event{}, s.errors[n])
		}
	}
}

func (s *script) Stat(_ context.Context, id hansard.SessionID) (hansard.Info, error) {
	return hansard.Info{ID: id}, nil
}

func (s *script) Wait(_ context.Context, _ hansard.SessionID, after hansard.Seq) error {
	s.waited = append(s.waited, after)
	if len(s.asked) == len(s.reads) {
		return s.wait
	}
	return nil
}

func TestFollow(t *testing.T) {
	gone := errors.New("gone")
	for _, c := range []struct {
		what   string
		s      *script
		want   []hansard.Seq
		asked  []hansard.Seq
		waited []hansard.Seq
	}{
		{"goes on where it was", &script{reads: [][]hansard.Seq{{6, 7}, {8}, {9, 10}}, wait: gone},
			[]hansard.Seq{6, 7, 8, 9, 10}, []hansard.Seq{5, 7, 8}, []hansard.Seq{7, 8, 10}},
		{"a wake-up for nothing", &script{reads: [][]hansard.Seq{{}, {}, {6}}, wait: gone},
			[]hansard.Seq{6}, []hansard.Seq{5, 5, 5}, []hansard.Seq{5, 5, 6}},
		{"ends with the error of a reading", &script{reads: [][]hansard.Seq{{6}, {7}, {8}}, errors: []error{nil, gone}, wait: gone},
			[]hansard.Seq{6, 7}, []hansard.Seq{5, 6}, []hansard.Seq{6}},
		{"ends with the error of a wait", &script{reads: [][]hansard.Seq{{}}, wait: gone},
			nil, []hansard.Seq{5}, []hansard.Seq{5}},
	} {
		var got []hansard.Seq
		var failed error
		for e, err := range hansard.Follow(t.Context(), c.s, "s", 5) {
			if err != nil {
				failed = err
				continue
			}
			got = append(got, e.Seq)
		}
		if !slices.Equal(got, c.want) || failed != gone {
			t.Errorf("%s: got %d and %v, want %d and %v", c.what, got, failed, c.want, gone)
		}
		if !slices.Equal(c.s.asked, c.asked) || !slices.Equal(c.s.waited, c.waited) {
			t.Errorf("%s: read after %d, waited after %d; want %d and %d", c.what, c.s.asked, c.s.waited, c.asked, c.waited)
		}
	}
}

func TestFollowLeft(t *testing.T) {
	s := &script{reads: [][]hansard.Seq{{1, 2, 3}}}
	for e := range hansard.Follow(t.Context(), s, "s", 0) {
		if e.Seq == 2 {
			break
		}
	}
	if len(s.waited) != 0 {
		t.Error("it went on to wait after it was left")
	}
}

func TestFollowEndsWithContext(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}, Create: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for e, err := range hansard.Follow(ctx, s, "s", 0) {
		if last = err; err == nil && e.Seq == 1 {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("it ended with %v", last)
	}
	for _, err := range hansard.Follow(t.Context(), s, "nowhere", 0) {
		if !errors.Is(err, hansard.ErrNotFound) {
			t.Error(fmt.Errorf("following nothing: %w", err))
		}
	}
}

// late is a store whose waits end only when they are let.
type late struct {
	hansard.Store
	waits, wake chan struct{}
}

func (l *late) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	l.waits <- struct{}{}
	<-l.wake
	return l.Store.Wait(ctx, id, after)
}

// TestFollowReplaced: a deleted session is over, even if another has its id by the time the
// follower looks.
func TestFollowReplaced(t *testing.T) {
	s := &late{memstore.New(), make(chan struct{}, 10), make(chan struct{})}
	defer s.Close()
	say := func(create bool, texts ...string) {
		for _, text := range texts {
			if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{hansard.Message("user", text)}, Create: create}); err != nil {
				t.Error(err)
			}
		}
	}
	say(true, "one", "two")
	go func() {
		<-s.waits
		if err := s.Delete(t.Context(), "s", ""); err != nil {
			t.Error(err)
		}
		if _, err := s.Create(t.Context(), "s", hansard.Meta{Reuse: true}); err != nil {
			t.Error(err)
		}
		say(false, "other", "other", "other")
		close(s.wake)
	}()
	var got []hansard.Seq
	var end error
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for e, err := range hansard.Follow(ctx, s, "s", 0) {
		if end = err; err == nil {
			got = append(got, e.Seq)
		}
		if e.Seq > 2 {
			cancel()
		}
	}
	if !slices.Equal(got, []hansard.Seq{1, 2}) || !errors.Is(end, hansard.ErrDeleted) {
		t.Errorf("it yields %v and ends with %v", got, end)
	}
}

// losesHeader is a store whose session has a damaged header from the second look on.
type losesHeader struct {
	*script
	looks int
}

func (s *losesHeader) Stat(_ context.Context, id hansard.SessionID) (hansard.Info, error) {
	if s.looks++; s.looks > 1 {
		return hansard.Info{ID: id, Damage: &hansard.DamagedError{}}, nil
	}
	return hansard.Info{ID: id, Created: time.Unix(1, 0)}, nil
}

// TestFollowDamaged: a session whose header can no longer be read is damaged, not deleted.
func TestFollowDamaged(t *testing.T) {
	s := &losesHeader{script: &script{reads: [][]hansard.Seq{{6}}, errors: []error{hansard.ErrDamaged}}}
	var last error
	for e, err := range hansard.Follow(t.Context(), s, "s", 5) {
		if err == nil && e.Seq != 6 {
			t.Errorf("event %d", e.Seq)
		}
		last = err
	}
	if !errors.Is(last, hansard.ErrDamaged) || errors.Is(last, hansard.ErrDeleted) {
		t.Errorf("it ended with %v", last)
	}
}
