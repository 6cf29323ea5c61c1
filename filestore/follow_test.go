package filestore

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// countOpens counts how often a file is opened.
type countOpens struct {
	vfs.FS
	name string
	n    int
}

func (c *countOpens) Open(name string, flags vfs.Flag) (vfs.File, error) {
	if name == c.name {
		c.n++
	}
	return c.FS.Open(name, flags)
}

// aMinute is a context for something that should take far less than a minute.
func aMinute(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestFollowLooksOnce: a follower opens the log once per new event.
func TestFollowLooksOnce(t *testing.T) {
	c := &countOpens{FS: vfs.NewDisk(1).Process("a"), name: "sessions/s.jsonl"}
	s, err := openOn(c, 1, growthRing)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	say(t, s, "s", nil, "hello")
	before := 0
	for e, err := range hansard.Follow(aMinute(t), s, "s", 0) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Seq == 2: // after joining, the first event is looked up a second time
			before = c.n
		case e.Seq == 12:
			if n := c.n - before; n != 10 {
				t.Errorf("the log was opened %d times for 10 events", n)
			}
			return
		}
		say(t, s, "s", nil, "more")
	}
}

// TestFollowAnotherSession: deleting a session ends its followers, even if the id has been reused
// by the time they look, once or twice.
func TestFollowAnotherSession(t *testing.T) {
	for reused := range 3 {
		s := openReal(t, 1)[0]
		say(t, s, "s", nil, "one")
		say(t, s, "s", nil, "two")
		var got []hansard.Seq
		var end error
		for e, err := range hansard.Follow(aMinute(t), s, "s", 0) {
			if end = err; err != nil {
				continue
			}
			if got = append(got, e.Seq); e.Seq != 2 {
				continue
			}
			want(t, "delete", s.Delete(t.Context(), "s", ""), nil)
			for i := range reused {
				if i > 0 {
					want(t, "delete", s.Delete(t.Context(), "s", ""), nil)
				}
				_, err := s.Create(t.Context(), "s", hansard.Meta{Reuse: true})
				want(t, "create", err, nil)
				for range 3 {
					say(t, s, "s", nil, "another")
				}
			}
		}
		if !slices.Equal(got, []hansard.Seq{1, 2}) || !errors.Is(end, hansard.ErrDeleted) {
			t.Errorf("used %d times again: it yields %v and ends with %v", reused, got, end)
		}
	}
}

// TestFollowDamagedLog: a follower gets the events before the damage, and then the damage.
func TestFollowDamagedLog(t *testing.T) {
	s := openReal(t, 1)[0]
	say(t, s, "s", nil, "one")
	say(t, s, "s", nil, "two")
	path := s.hostPath("s")
	var got []hansard.Seq
	var end error
	for e, err := range hansard.Follow(aMinute(t), s, "s", 0) {
		if end = err; err != nil {
			continue
		}
		if got = append(got, e.Seq); e.Seq == 2 {
			b, err := os.ReadFile(path)
			want(t, "read", err, nil)
			want(t, "write", os.WriteFile(path, append(b, "no line\n"...), 0o600), nil)
		}
	}
	if !slices.Equal(got, []hansard.Seq{1, 2}) || !errors.Is(end, hansard.ErrDamaged) {
		t.Errorf("it yields %v and ends with %v", got, end)
	}
}
