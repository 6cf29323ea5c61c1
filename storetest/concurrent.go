package storetest

import (
	"context"
	"fmt"
	"sync"

	"hansard"
)

var concurrentCases = []Case{
	{Name: "concurrent/one session", run: concurrentOneSession,
		Defends: "many writers of one session get unique seqs without gaps, in the order readers see, and readers see whole batches only", Answers: "F1 F5 26 27"},
	{Name: "concurrent/many sessions", run: concurrentManySessions,
		Defends: "many writers of many sessions do not mix up the sessions", Answers: "F1 F5 26 27"},
	{Name: "concurrent/large and small", run: concurrentLargeSmall,
		Defends: "concurrent batches of one event to thousands, of bytes to megabytes, stay whole", Answers: "F1 26 27 35"},
	{Name: "concurrent/appearing", run: concurrentAppearing,
		Defends: "a session that is being created either does not exist yet or has its whole first batch", Answers: "F1"},
}

// crowd is a number of writers and readers of the same sessions.
type crowd struct {
	writers []*writer
	readers int
}

// work runs a crowd, spread over the handles, and returns what was acknowledged. It
// ends when the writers are done. Half-way through, each writer waits until every reader has
// looked once: a fast store would be done before they begin.
func (x *env) work(handles []hansard.Store, c crowd, sessions []hansard.SessionID) []Ack {
	x.Helper()
	ctx, stop := context.WithCancel(x.ctx)
	defer stop()
	var mu sync.Mutex // guards acks and reads
	var acks []Ack
	reads := 0
	note := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		reads += r.Reads
		if r.Ack != nil {
			acks = append(acks, *r.Ack)
		}
	}
	var looking sync.WaitGroup
	looking.Add(c.readers)
	looked := make(chan struct{})
	go func() { looking.Wait(); close(looked) }()
	var readers []*task
	for i := range c.readers {
		r := reader{Sessions: sessions, Born: c.writers[0].Create, first: sync.OnceFunc(looking.Done)}
		readers = append(readers, x.start("reader", func() error {
			defer r.first() // one that fails keeps nobody waiting
			return r.run(ctx, handles[i%len(handles)], note)
		}))
	}
	x.each(len(c.writers), "writer", func(i int) error {
		w, acked := c.writers[i], 0
		return w.run(ctx, handles[i%len(handles)], func(r report) {
			note(r)
			if acked++; acked == max(1, w.Batches/2) {
				select {
				case <-looked:
				case <-x.ctx.Done():
				}
			}
		})
	})
	stop()
	for _, r := range readers {
		r.finish()
	}
	if c.readers > 0 && reads == 0 {
		x.Error("the readers did not get to read")
	}
	return acks
}

// wantAll checks that the logs of sessions hold exactly what was acknowledged.
func (x *env) wantAll(sessions []hansard.SessionID, acks []Ack) {
	x.Helper()
	byID := make(map[hansard.SessionID][]Ack)
	events := make(map[hansard.SessionID]int)
	for _, a := range acks {
		byID[a.Session] = append(byID[a.Session], a)
		events[a.Session] += int(a.Last-a.First) + 1
	}
	for _, id := range sessions {
		log := x.all(id)
		if err := CheckLog(log, byID[id]); err != nil {
			x.Errorf("session %s: %v", id, err)
		}
		if len(log) != events[id] {
			x.Errorf("session %s has %d events, %d were acknowledged", id, len(log), events[id])
		}
	}
}

func concurrentOneSession(x *env) {
	x.create("s")
	sessions := []hansard.SessionID{"s"}
	c := crowd{readers: 2}
	for i := range 16 {
		c.writers = append(c.writers, &writer{Name: fmt.Sprint("w", i), Sessions: sessions, Batches: 30, Largest: 1 + i%5, PadBytes: i * 20})
	}
	x.wantAll(sessions, x.work(x.handles(4), c, sessions))
}

func concurrentManySessions(x *env) {
	var sessions []hansard.SessionID
	for i := range 40 {
		sessions = append(sessions, hansard.SessionID(fmt.Sprint("s", i)))
	}
	c := crowd{readers: 2}
	for i := range 16 {
		c.writers = append(c.writers, &writer{Name: fmt.Sprint("w", i), Sessions: sessions, From: i, Batches: 50, Largest: 3, Create: true})
	}
	x.wantAll(sessions, x.work(x.handles(4), c, sessions))
	if n := len(x.list(hansard.Query{})); n != len(sessions) {
		x.Errorf("%d sessions, want %d", n, len(sessions))
	}
}

func concurrentLargeSmall(x *env) {
	x.create("s")
	sessions := []hansard.SessionID{"s"}
	c := crowd{readers: 2, writers: []*writer{
		{Name: "tiny", Sessions: sessions, Batches: 100, Largest: 1},
		{Name: "small", Sessions: sessions, Batches: 60, Largest: 4, PadBytes: 200},
		{Name: "long", Sessions: sessions, Batches: 2, Largest: 2000},
		{Name: "large", Sessions: sessions, Batches: 2, Largest: 1, PadBytes: 2 << 20},
		{Name: "both", Sessions: sessions, Batches: 3, Largest: 100, PadBytes: 10_000},
	}}
	x.wantAll(sessions, x.work(x.handles(3), c, sessions))
}

func concurrentAppearing(x *env) {
	handles := x.handles(3)
	var sessions []hansard.SessionID
	for i := range 60 {
		sessions = append(sessions, hansard.SessionID(fmt.Sprint("s", i)))
	}
	c := crowd{readers: 2}
	for i := range 3 {
		c.writers = append(c.writers, &writer{Name: fmt.Sprint("w", i), Sessions: sessions, Batches: len(sessions), Largest: 50, Create: true})
	}
	x.wantAll(sessions, x.work(handles, c, sessions))
}
