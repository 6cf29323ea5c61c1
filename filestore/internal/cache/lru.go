package cache

import (
	"container/list"
	"iter"
)

// LRU is a map that forgets the least recently used values when it gets too heavy. The
// caches of key indexes (keys.go) and of checked logs (check.go) use it. Both used to be
// emptied completely when full, so that with slightly more sessions than fit, every append
// read its index again (failure 60, TestFailure60_KeyedAppendsToManySessions).
//
// The zero value is empty. It is not safe for concurrent use: its owner has a mutex.
type LRU[V any] struct {
	m      map[string]*list.Element // of *lruItem[V]
	order  list.List                // the most recently used first
	weight int64                    // of all values together
}

// lruItem is a value with its name, to find it in the map from the end of the list, and
// the weight it was put with.
type lruItem[V any] struct {
	name   string
	value  V
	weight int64
}

// Get returns a value and counts as use of it.
func (l *LRU[V]) Get(name string) (v V, ok bool) {
	e := l.m[name]
	if e == nil {
		return v, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*lruItem[V]).value, true
}

// Peek is Get without counting as use: a list that looks at every session must not upset
// the order.
func (l *LRU[V]) Peek(name string) (v V, ok bool) {
	if e := l.m[name]; e != nil {
		return e.Value.(*lruItem[V]).value, true
	}
	return v, false
}

// All are the values with their names, in no order. It does not count as use.
func (l *LRU[V]) All() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for name, e := range l.m {
			if !yield(name, e.Value.(*lruItem[V]).value) {
				return
			}
		}
	}
}

// Len is the number of values.
func (l *LRU[V]) Len() int { return len(l.m) }

// Put adds or replaces a value and counts as use of it; then the least recently used values
// go until the total weight does not exceed most. The value itself stays, however heavy:
// dropping it at once would make the caller read it again and again. To update the weight
// of a value that has grown, put it again.
func (l *LRU[V]) Put(name string, v V, weight, most int64) {
	if e := l.m[name]; e != nil {
		l.order.MoveToFront(e)
		item := e.Value.(*lruItem[V])
		l.weight += weight - item.weight
		item.value, item.weight = v, weight
	} else {
		if l.m == nil {
			l.m = map[string]*list.Element{}
		}
		l.m[name] = l.order.PushFront(&lruItem[V]{name, v, weight})
		l.weight += weight
	}
	for l.weight > most && l.order.Len() > 1 {
		l.Drop(l.order.Back().Value.(*lruItem[V]).name)
	}
}

// Drop forgets a value, if it is there.
func (l *LRU[V]) Drop(name string) {
	if e := l.m[name]; e != nil {
		l.weight -= l.order.Remove(e).(*lruItem[V]).weight
		delete(l.m, name)
	}
}
