package httpd

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"hansard/internal/wire"
)

// room returns how much a budget has left, and checks that the sums are right.
func (b *budget) room(t *testing.T, total int64) int64 {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := b.left
	for who, used := range b.used {
		if sum += used; used > b.each || used < 0 {
			t.Errorf("%s has %d of at most %d", who, used, b.each)
		}
	}
	if sum != total {
		t.Errorf("what is left and what is used is %d, want %d", sum, total)
	}
	return b.left
}

// TestBudgetAtOnce: whatever many callers do at once, none has more than its share, nothing
// leaks, and nobody waits for ever.
func TestBudgetAtOnce(t *testing.T) {
	const total = 1000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := newBudget(total, time.Hour)
	patient, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 16 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for range 500 {
				l := b.load(string(rune('a' + rng.IntN(4))))
				for range 1 + rng.IntN(4) {
					var refused *wire.Problem
					if err := l.grow(patient, int64(1+rng.IntN(200))); errors.As(err, &refused) {
						break // deadlocked with others
					} else if err != nil {
						t.Error(err)
					}
				}
				b.room(t, total)
				l.free()
			}
		})
	}
	wg.Wait()
	if left := b.room(t, total); left != total || b.loads.Len() != 0 || b.waits != 0 {
		t.Errorf("%d left of %d, %d loads, %d wait", left, total, b.loads.Len(), b.waits)
	}
}

// TestBudgetStuck: two loads that would wait for each other do not wait: the younger is refused,
// and the older goes on when it is gone.
func TestBudgetStuck(t *testing.T) {
	b := newBudget(100, time.Hour)
	patient, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	first, second := b.load("a"), b.load("a")
	if !first.tryGrow(25) || !second.tryGrow(25) || second.tryGrow(1) {
		t.Fatal("its share is not half of it")
	}
	older := make(chan error, 1)
	go func() { older <- first.grow(patient, 10) }()
	eventuallyLocked(t, &b.mu, func() bool { return first.want > 0 })
	var refused *wire.Problem
	if err := second.grow(patient, 10); !errors.As(err, &refused) || refused.Status != 503 {
		t.Errorf("the younger: %v", err)
	}
	select {
	case err := <-older:
		t.Errorf("the older has what it wants before there is room: %v", err)
	default:
	}
	second.free()
	if err := <-older; err != nil {
		t.Errorf("the older: %v", err)
	}
	// A load that gives up leaves nothing behind.
	third := b.load("a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := third.grow(ctx, 40); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	third.free()
	first.free()
	if b.room(t, 100) != 100 {
		t.Error("not all was given back")
	}
}

func eventuallyLocked(t *testing.T, mu *sync.Mutex, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		mu.Lock()
		ok := holds()
		mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it never came true")
		}
	}
}

// TestBudgetReads: a body is read whole and charged for at most twice what arrived, or for its
// declared length and its end mark.
func TestBudgetReads(t *testing.T) {
	for _, size := range []int{0, 1, smallBody - 1, smallBody, smallBody + 1, 100_000, 1 << 20} {
		for _, said := range []int64{-1, int64(size)} {
			b := newBudget(1<<30, time.Hour)
			l := b.load("a")
			text := strings.Repeat("x", size)
			got, err := l.read(t.Context(), strings.NewReader(text), said)
			if err != nil || string(got) != text || cap(got) > int(l.size) {
				t.Errorf("%d bytes, said to be %d: %d of %d, %d charged, %v", size, said, len(got), cap(got), l.size, err)
			}
			if most := int64(max(2*size, smallBody)); l.size > most {
				t.Errorf("%d bytes, said to be %d: %d charged", size, said, l.size)
			}
		}
	}
}
