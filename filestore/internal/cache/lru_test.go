package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestLRU compares the LRU with a list that is searched from end to end.
func TestLRU(t *testing.T) {
	type item struct {
		name          string
		value, weight int64
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 9))
		const most = 50
		var l LRU[int64]
		var model []item // the newest first
		find := func(name string) int {
			return slices.IndexFunc(model, func(i item) bool { return i.name == name })
		}
		for n := range 2000 {
			name := fmt.Sprint(rng.IntN(30))
			at := find(name)
			switch rng.IntN(5) {
			case 0, 1:
				i := item{name, int64(n), rng.Int64N(8)}
				if rng.IntN(50) == 0 {
					i.weight = most + 10
				}
				l.Put(i.name, i.value, i.weight, most)
				if at >= 0 {
					model = slices.Delete(model, at, at+1)
				}
				model = slices.Insert(model, 0, i)
				sum := func() (s int64) {
					for _, i := range model {
						s += i.weight
					}
					return s
				}
				for sum() > most && len(model) > 1 {
					model = model[:len(model)-1]
				}
			case 2:
				l.Drop(name)
				if at >= 0 {
					model = slices.Delete(model, at, at+1)
				}
			case 3:
				v, ok := l.Peek(name)
				if ok != (at >= 0) || ok && v != model[at].value {
					t.Fatalf("seed %d, step %d: peek %q: %d, %v; the model has it at %d", seed, n, name, v, ok, at)
				}
			default:
				v, ok := l.Get(name)
				if ok != (at >= 0) || ok && v != model[at].value {
					t.Fatalf("seed %d, step %d: get %q: %d, %v; the model has it at %d", seed, n, name, v, ok, at)
				}
				if ok {
					i := model[at]
					model = slices.Insert(slices.Delete(model, at, at+1), 0, i)
				}
			}
			if len(l.m) != len(model) || l.order.Len() != len(model) {
				t.Fatalf("seed %d, step %d: %d values, the model has %d", seed, n, len(l.m), len(model))
			}
		}
	}
}
