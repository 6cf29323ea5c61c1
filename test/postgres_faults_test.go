//go:build unix

package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/client"
	"hansard/internal/pgtest"
	"hansard/pgstore"
	"hansard/storetest"
)

// mostSilence is the promise of docs/postgres.md: nobody waits longer for a session whose last
// writer has fallen silent.
const mostSilence = 15 * time.Second

// TestPostgresFaults: three servers on one database, each behind a network that cuts, delays,
// forgets and half closes its connections, and falls silent; clients that append with keys and
// retry. Nothing acknowledged is lost or stored twice, and a client with a healthy network
// reaches every session all the time. HANSARD_TORTURE=17 makes it last five minutes.
// (Failures 36 and 59.)
func TestPostgresFaults(t *testing.T) {
	const servers, clients, sessions = 3, 6, 10
	random := seeded(t)
	database := pgtest.New(t)
	address := database.Schema(t)
	db := openPostgres(t, address)
	for i := range sessions {
		_, err := db.Create(t.Context(), crowdSession(i), hansard.Meta{})
		must(t, err)
	}
	f := &faulty{t: t, database: database, stop: make(chan struct{}), acks: map[hansard.SessionID][]storetest.Ack{}}
	var serving []*server
	for n := range servers {
		proxy, through := database.Proxy(t, address)
		f.networks = append(f.networks, &network{name: fmt.Sprint("server ", n), proxy: proxy})
		if n == 0 { // it has a second route
			second, other := database.Proxy(t, address)
			f.networks = append(f.networks, &network{name: "server 0, the other way", proxy: second})
			through = pgtest.Proxied(through, other)
		}
		s := startPostgresServer(t, through)
		serving = append(serving, s)
		for i := range clients {
			name := fmt.Sprintf("server%d.client%d", n, i)
			remote := connect(t, s)
			f.running.Go(func() { f.write(remote, name, n*clients+i, sessions) })
		}
	}
	f.running.Go(func() { f.witness(db, sessions) })
	f.ruin(random, time.Duration(scale(18))*time.Second)
	for _, n := range f.networks {
		n.proxy.Heal()
	}
	close(f.stop)
	f.running.Wait()
	f.check(db, sessions)
	for _, s := range serving {
		s.drain()
	}
	t.Logf("%d appends acknowledged through %d servers, %d by the one whose network is well; %d retries; faults: %s",
		f.stored.Load(), servers, f.witnessed.Load(), f.retries.Load(), strings.Join(f.faults, ", "))
	if f.stored.Load() < 100 || f.witnessed.Load() < 100 {
		t.Error("too little was done to show anything")
	}
}

// network is the network between a server and the database.
type network struct {
	name  string
	proxy *pgtest.Proxy
}

// faulty is the state of the test, and the answers given, kept outside of the store.
type faulty struct {
	t         *testing.T
	database  *pgtest.Server
	networks  []*network
	stop      chan struct{}
	running   sync.WaitGroup
	stored    atomic.Int64
	witnessed atomic.Int64
	retries   atomic.Int64
	faults    []string

	mu   sync.Mutex // guards below
	acks map[hansard.SessionID][]storetest.Ack
}

// stopped reports whether it is time to end.
func (f *faulty) stopped() bool {
	select {
	case <-f.stop:
		return true
	default:
		return false
	}
}

func (f *faulty) ack(id hansard.SessionID, writer string, batch int, r hansard.Receipt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acks[id] = append(f.acks[id], storetest.Ack{Writer: writer, Batch: batch, Receipt: r})
}

// faultyBatch is a writer's n-th batch. Some have patches, which are decided in Go with the row
// locked.
func faultyBatch(writer string, n int) hansard.Batch {
	b := hansard.Batch{Events: storetest.Marked(writer, n, 1+n%3, 100), Key: batchName(writer, n)}
	if n%3 == 0 {
		title, label := batchName(writer, n), fmt.Sprint(n%2)
		b.Patch = &hansard.Patch{Title: &title, Labels: map[string]*string{"odd": &label}}
	}
	return b
}

// write appends through a server until it is stopped, each batch until it is stored.
func (f *faulty) write(s *client.Store, writer string, first, sessions int) {
	for n := 0; !f.stopped(); n++ {
		id, b := crowdSession((first+n)%sessions), faultyBatch(writer, n)
		for began := time.Now(); ; f.retries.Add(1) {
			r, err := s.Append(f.t.Context(), id, b)
			if err == nil {
				f.ack(id, writer, n, r)
				f.stored.Add(1)
				break
			}
			if !errors.Is(err, hansard.ErrBusy) && !errors.Is(err, hansard.ErrUnknown) {
				f.t.Errorf("%s: %v", writer, err)
				return
			}
			if f.stopped() && time.Since(began) > waitMax {
				f.t.Errorf("%s: nothing is wrong any more, and still: %v", writer, err)
				return
			}
		}
	}
}

// witness appends to one session after another, over a healthy network. However silent others
// have fallen, it must be answered in time.
func (f *faulty) witness(db *pgstore.Store, sessions int) {
	const writer = "witness"
	for n := 0; !f.stopped(); n++ {
		id := crowdSession(n % sessions)
		ctx, cancel := context.WithTimeout(f.t.Context(), mostSilence)
		r, err := db.Append(ctx, id, faultyBatch(writer, n))
		cancel()
		if err != nil {
			f.t.Errorf("an append to %s of somebody whose network is well: %v\n%s", id, err, f.database.Activity())
			return
		}
		f.ack(id, writer, n, r)
		f.witnessed.Add(1)
	}
}

// ruin injects faults into the networks for some time.
func (f *faulty) ruin(random *rand.Rand, enough time.Duration) {
	kinds := []string{"cut", "freeze", "half open", "delay", "silence", "silence"}
	done := map[string]int{}
	for end := time.Now().Add(enough); time.Now().Before(end) && !f.t.Failed(); {
		n, kind := f.networks[random.IntN(len(f.networks))], kinds[random.IntN(len(kinds))]
		lasts := time.Duration(random.IntN(1000)) * time.Millisecond
		switch kind {
		case "cut":
			n.proxy.Cut()
		case "freeze":
			n.proxy.Freeze()
		case "half open":
			n.proxy.HalfOpen()
		case "delay":
			n.proxy.Delay(time.Duration(random.IntN(300)) * time.Millisecond)
		case "silence":
			n.proxy.Silence()
			lasts *= 5
		}
		done[kind]++
		pause := time.NewTimer(lasts)
		<-pause.C // the duration of the fault: nothing waits for it
		if random.IntN(3) > 0 {
			n.proxy.Heal()
		}
	}
	for kind, times := range done {
		f.faults = append(f.faults, fmt.Sprint(times, " × ", kind))
	}
}

// check compares the logs with the answers given.
func (f *faulty) check(db *pgstore.Store, sessions int) {
	for i := range sessions {
		id := crowdSession(i)
		if err := storetest.CheckLog(storetest.ReadAll(f.t, db, id), f.acks[id]); err != nil {
			f.t.Errorf("session %s: %v", id, err)
		}
	}
	for found, err := range db.Verify(f.t.Context(), "") {
		if err != nil || found.Level != hansard.LevelOK {
			f.t.Errorf("verify: %+v, %v", found, err)
		}
	}
}
