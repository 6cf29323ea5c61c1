package httpd

import (
	"container/list"
	"context"
	"io"
	"sync"
	"time"

	"hansard/internal/wire"
)

// budget bounds how much memory the bodies of all requests, and the pages of all
// answers, take at once. What is charged is what arrived, not what was announced: a
// client that announces much and sends nothing holds nothing. Each token has a
// limited share, so that it can't use up the memory of the others.
type budget struct {
	patience time.Duration // how long a load waits for room

	mu    sync.Mutex // guards all below
	left  int64
	each  int64            // the share of one token
	used  map[string]int64 // by token
	loads list.List        // of *load: under way, oldest first
	waits int              // how many of them wait
}

// load is one body, or one page.
type load struct {
	budget *budget
	who    string
	size   int64         // charged
	want   int64         // how much more it waits for; 0 if it does not wait
	got    chan struct{} // closed when it got that much, or is refused
	denied bool
	place  *list.Element
}

func newBudget(size int64, patience time.Duration) *budget {
	return &budget{left: size, each: size / 2, patience: patience, used: map[string]int64{}}
}

// load begins to charge something to a token. It must be freed.
func (b *budget) load(who string) *load {
	l := &load{budget: b, who: who}
	b.mu.Lock()
	defer b.mu.Unlock()
	l.place = b.loads.PushBack(l)
	return l
}

// tryGrow charges more, if there is room now.
func (l *load) tryGrow(size int64) bool {
	b := l.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeLocked(l, size)
}

func (b *budget) takeLocked(l *load, size int64) bool {
	if b.left < size || b.used[l.who]+size > b.each {
		return false
	}
	b.left -= size
	b.used[l.who] += size
	l.size += size
	return true
}

// grow charges more, and waits for room.
func (l *load) grow(ctx context.Context, size int64) error {
	b := l.budget
	b.mu.Lock()
	if b.takeLocked(l, size) {
		b.mu.Unlock()
		return nil
	}
	if l.size+size > b.each { // it would not fit even if it were alone
		b.mu.Unlock()
		return noRoom()
	}
	l.want, l.got = size, make(chan struct{})
	b.waits++
	b.unlockStuckLocked()
	b.mu.Unlock()
	timer := time.NewTimer(b.patience)
	defer timer.Stop()
	var err error
	select {
	case <-l.got:
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.want == 0 && !l.denied {
		return nil // granted, perhaps just as the context ended
	}
	if err == nil {
		err = noRoom()
	}
	if l.want > 0 {
		b.answerLocked(l)
	}
	return err
}

func noRoom() error {
	p := wire.NewProblem("overloaded", "there is no room for so many large bodies at once", "try again, or send fewer at a time")
	p.RetryAfter = 1
	return p
}

// answerLocked ends the waiting of a load.
func (b *budget) answerLocked(l *load) {
	l.want = 0
	b.waits--
	close(l.got)
}

// fit charges for one more part of a page, and reports whether there is room for it. It
// waits for room for the first part; after that the page ends when there is none.
func (l *load) fit(ctx context.Context, first bool, size int) (bool, error) {
	if first {
		return true, l.grow(ctx, int64(size))
	}
	return l.tryGrow(int64(size)), nil
}

// free returns everything that was charged, and ends the load.
func (l *load) free() {
	b := l.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loads.Remove(l.place)
	b.returnLocked(l)
}

// empty returns everything that was charged.
func (l *load) empty() {
	b := l.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.returnLocked(l)
}

// returnLocked returns what was charged for a load; those that wait get it in FIFO order.
func (b *budget) returnLocked(l *load) {
	b.left += l.size
	if b.used[l.who] -= l.size; b.used[l.who] == 0 {
		delete(b.used, l.who)
	}
	l.size = 0
	if b.waits == 0 {
		return
	}
	for e := b.loads.Front(); e != nil; e = e.Next() {
		if other := e.Value.(*load); other.want > 0 && b.takeLocked(other, other.want) {
			b.answerLocked(other)
		}
	}
	b.unlockStuckLocked()
}

// unlockStuckLocked breaks a deadlock, where all loads, or all of one token that has
// several, wait for each other: it refuses the youngest.
func (b *budget) unlockStuckLocked() {
	type count struct{ all, wait int }
	var total count
	by := map[string]count{}
	for e := b.loads.Front(); e != nil; e = e.Next() {
		l := e.Value.(*load)
		if l.size == 0 && l.want == 0 {
			continue // it holds nothing yet
		}
		c := by[l.who]
		c.all++
		total.all++
		if l.want > 0 {
			c.wait++
			total.wait++
		}
		by[l.who] = c
	}
	for e := b.loads.Back(); e != nil; e = e.Prev() {
		l := e.Value.(*load)
		own := by[l.who]
		if l.want > 0 && (total.wait == total.all && total.all > 1 || own.wait == own.all && own.all > 1) {
			l.denied = true
			b.answerLocked(l)
			return
		}
	}
}

// smallBody is the least that is charged.
const smallBody = 4 << 10

// read reads all of a reader of size bytes, negative if that is not known, and charges the
// memory for it as the bytes arrive.
func (l *load) read(ctx context.Context, r io.Reader, size int64) ([]byte, error) {
	var buf []byte
	for {
		if len(buf) == cap(buf) {
			next := max(smallBody, 2*int64(cap(buf)))
			if size >= 0 && (next > size || size <= smallBody) {
				next = size + 1 // one more byte, to see the end
			}
			next = max(next, int64(cap(buf))+1)
			if err := l.grow(ctx, next-int64(cap(buf))); err != nil {
				return nil, err
			}
			buf = append(make([]byte, 0, next), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
