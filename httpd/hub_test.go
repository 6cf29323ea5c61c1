package httpd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"hansard"
	"hansard/memstore"
)

// deaf is a store whose waits never return early.
type deaf struct{ hansard.Store }

func (deaf) Wait(ctx context.Context, _ hansard.SessionID, _ hansard.Seq) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestReplacedInSilence: a follower of a session whose id was reused, by a session that is still
// shorter, learns that its session is over.
func TestReplacedInSilence(t *testing.T) {
	ctx := t.Context()
	store := memstore.New()
	made, err := store.Create(ctx, "s", hansard.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{hansard.Message("user", "hello")}}); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(ctx, "s", ""); err != nil {
		t.Fatal(err)
	}
	again, err := store.Create(ctx, "s", hansard.Meta{Reuse: true})
	if err != nil || again.Created.Equal(made.Created) {
		t.Fatalf("created %v, again %v: %v", made.Created, again.Created, err)
	}
	h := &hub{store: deaf{store}, look: time.Millisecond}
	for _, c := range []struct {
		info hansard.Info
		want error
	}{{made, hansard.ErrDeleted}, {again, context.DeadlineExceeded}} {
		wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		p := &pump{followed: followed{"s", stored, generation(&c.info)}}
		if err := h.await(wait, p, 1); !errors.Is(err, c.want) {
			t.Errorf("%v, want %v", err, c.want)
		}
		cancel()
	}
}

// TestPumpKeeps: whatever a pump keeps and drops, events that a follower has taken do not change,
// the next ones it takes continue from there or have to be read, and the bytes kept are counted
// right.
func TestPumpKeeps(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &pump{changed: make(chan struct{})}
	name := func(seq hansard.Seq) string { return fmt.Sprintf("%d %0*d", seq, int(seq%97), 0) }
	type taken struct {
		after  hansard.Seq
		frames []frame
	}
	var held []taken
	last, behind, passed := hansard.Seq(0), 0, 0
	for range 3000 {
		var frames []frame
		for range 1 + rng.IntN(8) {
			last++
			frames = append(frames, frame{seq: last, line: []byte(name(last))})
		}
		most := 1000 + rng.IntN(3000)
		p.update(func() { p.keep(frames, most) })
		size := 0
		for _, f := range p.frames {
			size += f.size()
		}
		if size != p.bytes || size > most && len(p.frames) > 1 {
			t.Fatalf("%d bytes are kept, counted as %d, of at most %d", size, p.bytes, most)
		}
		after := last - min(last, hansard.Seq(rng.IntN(40)))
		got, late, _, err := p.take(after)
		switch {
		case err != nil:
			t.Fatal(err)
		case late:
			behind++
		case len(got) > 0:
			passed++
			held = append(held, taken{after, got})
		}
	}
	if behind == 0 || passed == 0 {
		t.Errorf("%d were behind and %d were not", behind, passed)
	}
	for _, h := range held {
		for i, f := range h.frames {
			if want := h.after + 1 + hansard.Seq(i); f.seq != want || string(f.line) != name(want) {
				t.Fatalf("what was taken after %d has %q at %d", h.after, f.line, i)
			}
		}
	}
}

// TestPumpForgetsRedacted: redacted content is not given to later followers.
func TestPumpForgetsRedacted(t *testing.T) {
	p := &pump{changed: make(chan struct{})}
	f := func(seq, redacts hansard.Seq) frame {
		return frame{seq: seq, line: []byte(fmt.Sprint("event ", seq)), redacts: redacts}
	}
	p.keep([]frame{f(1, 0), f(2, 0), f(3, 0)}, 10_000)
	p.keep([]frame{f(4, 2), f(5, 0)}, 10_000)
	size := 0
	for _, f := range p.frames {
		size += f.size()
	}
	if len(p.frames) != 3 || p.frames[0].seq != 3 || size != p.bytes {
		t.Errorf("kept are %+v in %d bytes", p.frames, p.bytes)
	}
	if _, behind, _, err := p.take(1); !behind || err != nil {
		t.Errorf("who is at 1 is behind: %v, %v", behind, err)
	}
	if got, behind, _, err := p.take(2); behind || err != nil || len(got) != 3 {
		t.Errorf("who is at 2 gets %+v, %v, %v", got, behind, err)
	}
}
