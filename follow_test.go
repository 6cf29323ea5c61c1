package hansard_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"hansard"
	"hansard/memstore"
)

// script is a store whose readings and waits are played from a list. Follow must
// work by Read and Wait alone.
type script struct {
	hansard.Store
	reads  [][]hansard.Seq
	errors []error // of each reading, after its events
	wait   error   // after the last reading
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
