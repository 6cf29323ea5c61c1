package storetest

import (
	"fmt"
	"slices"
	"testing"

	"hansard"
)

var processCases = []Case{
	{Name: "processes/one session", run: processesOneSession, needs: needsProcesses,
		Defends: "eight processes write one session while four read it and one follows: no gaps, no duplicates, whole, in order, nothing lost",
		Answers: "F1 F5 21 26 27"},
	{Name: "processes/many sessions", run: processesManySessions, needs: needsProcesses,
		Defends: "eight processes write fifty sessions, each created by its first writer, while others read", Answers: "F1 F4 F5 29"},
	{Name: "processes/registrations", run: processesRegistrations, needs: needsProcesses,
		Defends: "N processes that open the store and register at once give N entries, and a session they all create is created once",
		Answers: "F4 18 29 42"},
	{Name: "processes/one key", run: processesOneKey, needs: needsProcesses,
		Defends: "processes that retry the same keys store each batch once and all get the same receipt", Answers: "36"},
	{Name: "processes/mirrors", run: processesMirrors, needs: needsProcesses,
		Defends: "eight processes deliver the same 1,000 records in different batches, some of them killed: each is stored once, in an order that keeps everybody's", Answers: "36 64"},
	{Name: "processes/counter", run: processesCounter, needs: needsProcesses,
		Defends: "processes that change the state by compare-and-swap lose no change", Answers: "F4 41"},
	{Name: "processes/deleted", run: processesDeleted, needs: needsProcesses,
		Defends: "a session deleted by one process is deleted for all others, even in the middle of their appends", Answers: "32"},
	{Name: "processes/killed", run: processesKilled, needs: needsProcesses,
		Defends: "processes killed in mid-append lose nothing acknowledged, leave nothing half-written, block nobody, and their retries settle the rest",
		Answers: "F3 21 22 35 36"},
}

// processWork runs each writer in its own process, alongside readers and the given
// children, and returns what was acknowledged.
func (x *env) processWork(writers []*writer, readers int, sessions []hansard.SessionID, beside ...*child) []Ack {
	x.Helper()
	var writing, reading []*child
	for _, w := range writers {
		writing = append(writing, x.spawn("process of writer "+w.Name, order{Writer: w}))
	}
	for range readers {
		reading = append(reading, x.spawn("process of a reader", order{Reader: &reader{Sessions: sessions, Born: writers[0].Create}}))
	}
	x.begin(slices.Concat(reading, beside, writing)...)
	var acks []Ack
	for _, c := range writing {
		c.finish()
		acks = append(acks, c.acks()...)
	}
	for _, c := range beside {
		c.finish()
	}
	reads := 0
	for _, c := range reading {
		c.stop()
		for _, r := range c.finish() {
			reads += r.Reads
		}
	}
	if readers > 0 && reads == 0 {
		x.Error("the readers did not get to read")
	}
	return acks
}

func processesOneSession(x *env) {
	x.create("s")
	sessions := []hansard.SessionID{"s"}
	var writers []*writer
	total := hansard.Seq(0)
	for i := range 8 {
		w := &writer{Name: fmt.Sprint("w", i), Sessions: sessions, Batches: 200, Largest: 3, PadBytes: i * 50}
		for n := range w.Batches {
			_, b := w.batch(n)
			total += hansard.Seq(len(b.Events))
		}
		writers = append(writers, w)
	}
	following := x.spawn("process of a follower", order{Follower: &follower{Session: "s", Upto: total}})
	acks := x.processWork(writers, 4, sessions, following)
	x.wantAll(sessions, acks)
	if n := x.stat("s").LastSeq; n != total {
		x.Errorf("last seq %d, want %d", n, total)
	}
}

func processesManySessions(x *env) {
	var sessions []hansard.SessionID
	for i := range 50 {
		sessions = append(sessions, hansard.SessionID(fmt.Sprint("s", i)))
	}
	var writers []*writer
	for i := range 8 {
		writers = append(writers, &writer{Name: fmt.Sprint("w", i), Sessions: sessions, From: i % 3, Batches: 200, Largest: 3, Create: true})
	}
	x.wantAll(sessions, x.processWork(writers, 2, sessions))
	if n := len(x.list(hansard.Query{})); n != len(sessions) {
		x.Errorf("%d sessions, want %d", n, len(sessions))
	}
}

func processesRegistrations(x *env) {
	n := 64
	if testing.Short() {
		n = 16
	}
	want := []hansard.SessionID{"shared"}
	var children []*child
	for i := range n {
		own := hansard.SessionID(fmt.Sprint("own-", i))
		want = append(want, own)
		children = append(children, x.spawn("registering process", order{Creator: &creator{Sessions: []hansard.SessionID{own, "shared"}}}))
	}
	x.begin(children...)
	made := make(map[hansard.SessionID]int)
	for _, c := range children {
		for _, r := range c.finish() {
			if r.Created != "" {
				made[r.Created]++
			}
		}
	}
	for _, id := range want {
		if made[id] != 1 {
			x.Errorf("session %s was made %d times", id, made[id])
		}
	}
	got := ids(x.list(hansard.Query{}))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		x.Errorf("%d processes registered, the list is %q", n, got)
	}
}

func processesOneKey(x *env) {
	x.create("s")
	var writers []*writer
	for range 6 {
		writers = append(writers, &writer{Name: "the same", Sessions: []hansard.SessionID{"s"}, Batches: 50, Largest: 3, Keys: true})
	}
	acks := x.processWork(writers, 1, []hansard.SessionID{"s"})
	if err := checkOnce(x.all("s"), acks, 50); err != nil {
		x.Error(err)
	}
}

func processesCounter(x *env) {
	x.createWith("s", hansard.Meta{State: []byte(`{"count":0}`)})
	const workers, times = 6, 20
	var children []*child
	for i := range workers {
		children = append(children, x.spawn("counting process", order{Counter: &counter{Session: "s", Times: times, Test: i%2 == 1}}))
	}
	x.begin(children...)
	for _, c := range children {
		c.finish()
	}
	info := x.stat("s")
	if n, err := countIn(info); n != workers*times || info.LastSeq != workers*times {
		x.Errorf("counted to %d in %d events, want %d (%v)", n, info.LastSeq, workers*times, err)
	}
}

func processesDeleted(x *env) {
	x.create("s")
	var children []*child
	var written []<-chan struct{}
	for i := range 4 {
		c := x.spawn("writing process", order{Writer: &writer{Name: fmt.Sprint("w", i), Sessions: []hansard.SessionID{"s"}, Largest: 2, Create: true}})
		children, written = append(children, c), append(written, c.said(10))
	}
	x.begin(children...)
	for _, done := range written {
		x.within("every process has written", done)
	}
	x.delete("s")
	seen := make(map[hansard.Seq]bool)
	last := hansard.Seq(0)
	for _, c := range children {
		reports := c.finish()
		if !reports[len(reports)-1].Deleted {
			x.Errorf("%s did not learn that the session was deleted", c.what)
		}
		for _, a := range c.acks() {
			for seq := a.First; seq <= a.Last; seq++ {
				if seen[seq] {
					x.Errorf("seq %d was acknowledged twice", seq)
				}
				seen[seq] = true
				last = max(last, seq)
			}
		}
	}
	if len(seen) != int(last) {
		x.Errorf("%d seqs up to %d were acknowledged", len(seen), last)
	}
	x.wantGone("s")
}

func processesKilled(x *env) {
	sessions := []hansard.SessionID{"a", "b"}
	for _, id := range sessions {
		x.create(id)
	}
	const rounds, killed = 3, 4
	var acks []Ack
	var open []*writer // the batch each was killed in
	for round := range rounds {
		var writers []*writer
		var children []*child
		var written []<-chan struct{}
		for i := range killed {
			w := &writer{Name: fmt.Sprintf("w%d-%d", round, i), Sessions: sessions, Largest: 4, PadBytes: 1 << (6 + 3*i), Keys: true}
			c := x.spawn("process of writer "+w.Name, order{Writer: w})
			writers, children = append(writers, w), append(children, c)
			written = append(written, c.said(10+x.rng.IntN(30)))
		}
		x.begin(children...)
		for i, c := range children {
			x.within(c.what+" has written", written[i])
			c.kill() // while the others write
			told := c.acks()
			acks = append(acks, told...)
			// It reports each acknowledgement before it continues, so only one batch
			// has an unknown outcome. The one before it was acknowledged.
			last := *writers[i]
			last.From, last.Batches = len(told)-1, 2
			open = append(open, &last)
		}
	}
	x.wantKept(sessions, acks)
	// The batch that each was killed in may be stored or not: a retry with its key
	// settles it, and then every batch is there once.
	for _, w := range open {
		if err := w.run(x.ctx, x.store, func(r report) { acks = append(acks, *r.Ack) }); err != nil {
			x.Fatal(err)
		}
	}
	x.wantKept(sessions, acks)
	for _, id := range sessions {
		told := make(map[batchName]bool)
		for _, a := range acks {
			if a.Session == id {
				told[batchName{a.Writer, a.Batch}] = true
			}
		}
		for _, e := range x.all(id) {
			if m, _ := markOf(e); !told[name(m)] {
				x.Errorf("session %s has %s, which nobody was told of", id, name(m))
			}
		}
	}
}

// wantKept checks that what was acknowledged is in the logs of sessions, which may
// hold more.
func (x *env) wantKept(sessions []hansard.SessionID, acks []Ack) {
	x.Helper()
	for _, id := range sessions {
		var mine []Ack
		for _, a := range acks {
			if a.Session == id {
				mine = append(mine, a)
			}
		}
		if err := CheckLog(x.all(id), mine); err != nil {
			x.Errorf("session %s: %v", id, err)
		}
	}
}
