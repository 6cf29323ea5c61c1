package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"hansard"
	"hansard/catalog"
	"hansard/filestore"
	"hansard/internal/bench"
)

// openStore opens one of our stores, whatever its engine.
func openStore(o order) (hansard.Store, error) {
	switch o.Job.Candidate {
	case bench.Hansard.Name:
		options := bench.FileOptions(o.Job)
		if o.Catalog {
			options.Catalog = catalog.Open
		}
		return filestore.Open(o.Job.Dir, options)
	case pgHansard.Name:
		return openPgstore(o.Job)
	}
	return nil, fmt.Errorf("%s is not a store of Hansard", o.Job.Candidate)
}

func since(start time.Time) float64 { return micros(time.Since(start)) }

// readTimes are in µs.
type readTimes struct {
	All, Last []float64
	// Cost is the CPU time per event when all are read, without that of a server, and
	// Mallocs the allocations per event.
	Cost, Mallocs float64
}

// doRead reads a session of N events, and its last 50, again and again.
func doRead(ctx context.Context, o order, _ func() error) (any, error) {
	var p peer
	for _, candidate := range peers() {
		if candidate.Name == o.Job.Candidate {
			p = candidate
		}
	}
	r, err := p.read(o.Job)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	once := func(last, want int) (float64, error) {
		n, start := 0, time.Now()
		first := uint64(o.N - want + 1)
		wrong := false
		err := r.events(ctx, last, func(seq uint64) {
			wrong = wrong || seq != first+uint64(n)
			n++
		})
		took := since(start)
		if err == nil && (wrong || n != want) {
			err = fmt.Errorf("read %d events, or in another order, where %d were expected", n, want)
		}
		return took, err
	}
	var times readTimes
	const warming, counted = 2, 10
	var before bench.Cost
	for i := range warming + counted {
		if i == warming {
			before = bench.SpentSoFar()
		}
		all, err := once(0, o.N)
		if err != nil {
			return nil, err
		}
		if i >= warming {
			times.All = append(times.All, all)
		}
	}
	spent := bench.SpentSoFar().Since(before)
	times.Cost, times.Mallocs = micros(spent.CPU)/float64(counted*o.N), float64(spent.Mallocs)/float64(counted*o.N)
	for i := range 110 {
		last, err := once(lastEvents, min(lastEvents, o.N))
		if err != nil {
			return nil, err
		}
		if i >= 10 {
			times.Last = append(times.Last, last)
		}
	}
	return times, nil
}

const lastEvents = 50

// listTimes are in µs.
type listTimes struct {
	Fresh float64 // opening included
	Warm  []float64
}

const listed = 50

// doList lists the newest 50 sessions of N.
func doList(ctx context.Context, o order, _ func() error) (any, error) {
	start := time.Now()
	once, done, err := lister(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = done() }() // it was only read
	var t listTimes
	for i := range 21 {
		if i > 0 {
			start = time.Now()
		}
		n, err := once()
		if err != nil {
			return nil, err
		}
		if n != min(listed, o.N) {
			return nil, fmt.Errorf("listed %d sessions of %d", n, o.N)
		}
		if i == 0 {
			t.Fresh = since(start)
		} else {
			t.Warm = append(t.Warm, since(start))
		}
	}
	return t, nil
}

func lister(ctx context.Context, o order) (once func() (int, error), done func() error, err error) {
	if isSQLite(o.Job.Candidate) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(o.Job.Dir, "list.db"))
		if err != nil {
			return nil, nil, err
		}
		return func() (int, error) { return listSQLite(ctx, db) }, db.Close, nil
	}
	s, err := openStore(o)
	if err != nil {
		return nil, nil, err
	}
	return func() (n int, err error) {
		for _, err := range s.List(ctx, hansard.Query{Limit: listed}) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}, s.Close, nil
}

// makeListSQLite makes a table of sessions, as one would write it without Hansard.
func makeListSQLite(ctx context.Context, j bench.Job, n int) error {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(j.Dir, "list.db"))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE sessions (id TEXT PRIMARY KEY, title TEXT, last INTEGER, created TEXT, updated TEXT);
		CREATE INDEX updated ON sessions (updated);`)
	if err == nil {
		_, err = db.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1)
			INSERT INTO sessions SELECT printf('bench-%06d', i), '', 1, datetime('now'), datetime('now', i || ' seconds') FROM n`, n)
	}
	return errors.Join(err, db.Close())
}

func listSQLite(ctx context.Context, db *sql.DB) (n int, err error) {
	rows, err := db.QueryContext(ctx, `SELECT id, title, last, created, updated FROM sessions ORDER BY updated DESC LIMIT ?`, listed)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, title, created, updated string
		var last int64
		if err := rows.Scan(&id, &title, &last, &created, &updated); err != nil {
			return 0, err
		}
		n++
	}
	return n, rows.Err()
}

// moments are when something was seen, in nanoseconds of the machine's clock, which
// all its processes share.
type moments []int64

// doFollow follows a session that has one event until it has seen N more.
func doFollow(ctx context.Context, o order, ready func() error) (any, error) {
	s, err := openStore(o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return followOne(ctx, s, o.N, ready)
}

func followOne(ctx context.Context, s hansard.Store, n int, ready func() error) (moments, error) {
	var seen moments
	want := hansard.Seq(1)
	for e, err := range hansard.Follow(ctx, s, bench.SessionID(0), 0) {
		now := time.Now().UnixNano()
		if err != nil {
			return nil, err
		}
		if e.Seq != want {
			return nil, fmt.Errorf("followed to %d where %d was expected", e.Seq, want)
		}
		if want++; e.Seq == 1 {
			if err := ready(); err != nil {
				return nil, err
			}
			continue
		}
		if seen = append(seen, now); len(seen) == n {
			break
		}
	}
	return seen, nil
}

// doWrite appends N events with pauses, and returns when each was acknowledged.
func doWrite(ctx context.Context, o order, ready func() error) (any, error) {
	s, err := openStore(o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	t := bench.StoreTarget(s, bench.Job{Sessions: 1, Goroutines: 1})
	if err := ready(); err != nil {
		return nil, err
	}
	var acked moments
	for i := range o.N {
		if _, err := t.Append(ctx, 0, 0, uint64(i+1)); err != nil {
			return nil, err
		}
		acked = append(acked, time.Now().UnixNano())
		time.Sleep(2 * time.Millisecond) // so that each finds its follower asleep
	}
	return acked, nil
}

// doFollowers follows a session N times in one process.
func doFollowers(ctx context.Context, o order, ready func() error) (any, error) {
	s, err := openStore(o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var there, all sync.WaitGroup
	there.Add(o.Session)
	last := make([]moments, o.Session)
	errs := make([]error, o.Session)
	begin := make(chan struct{})
	for i := range o.Session {
		all.Go(func() {
			var once sync.Once
			defer once.Do(there.Done)
			last[i], errs[i] = followOne(ctx, s, o.N, func() error {
				once.Do(there.Done)
				<-begin
				return nil
			})
		})
	}
	there.Wait()
	if err := ready(); err != nil {
		return nil, err
	}
	before := bench.SpentSoFar()
	close(begin)
	all.Wait()
	return followersSeen{Last: last, CPU: micros(bench.SpentSoFar().Since(before).CPU)}, errors.Join(errs...)
}

type followersSeen struct {
	Last []moments
	CPU  float64 // µs
}

// turnTimes are the turns that one process got.
type turnTimes struct {
	Grants int
	Waits  []int64 // nanoseconds
	Took   float64 // µs
}

// doTurns acquires and releases a session's turn: N times, or for a while.
func doTurns(ctx context.Context, o order, ready func() error) (any, error) {
	s, err := openStore(o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := ready(); err != nil {
		return nil, err
	}
	var t turnTimes
	start := time.Now()
	for o.N == 0 && time.Since(start) < o.Job.Run || t.Grants < o.N {
		asked := time.Now()
		turn, err := s.Acquire(ctx, bench.SessionID(0), hansard.Claim{Wait: hansard.Forever})
		if err != nil {
			return nil, err
		}
		t.Waits = append(t.Waits, time.Since(asked).Nanoseconds())
		if err := s.Release(ctx, bench.SessionID(0), turn.Grant); err != nil {
			return nil, err
		}
		t.Grants++
	}
	t.Took = since(start)
	return t, nil
}

// firstTimes are in µs.
type firstTimes struct {
	Whole  float64 // from before the store is opened to the acknowledgement
	Append float64
	Last   float64 // reading the last 50 events, right after that
	Seq    hansard.Seq
}

// doFirst appends once, in a process that has never seen the store.
func doFirst(ctx context.Context, o order, _ func() error) (any, error) {
	var t firstTimes
	start := time.Now()
	s, err := openStore(o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	asked := time.Now()
	r, err := s.Append(ctx, bench.SessionID(o.Session), hansard.Batch{Key: o.Key, Events: []hansard.Event{hansard.Message("user", "hello")}})
	if err != nil {
		return nil, err
	}
	if t.Seq = r.First; r.Replayed {
		return nil, errors.New("an append with a new key was taken for a retry")
	}
	t.Append, t.Whole = since(asked), since(start)
	asked = time.Now()
	for _, err := range s.Read(ctx, bench.SessionID(o.Session), hansard.Range{Last: lastEvents}) {
		if err != nil {
			return nil, err
		}
	}
	t.Last = since(asked)
	return t, nil
}

// keyedTimes are what appends with keys cost.
type keyedTimes struct {
	Appends   int
	Took, CPU float64 // µs
}

// doKeyed appends with new keys from 64 goroutines for a while.
func doKeyed(ctx context.Context, o order, _ func() error) (any, error) {
	s, err := openStore(o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	count := func(from int, run time.Duration) (int, error) {
		start := time.Now()
		counts := make([]int, manyGoroutines)
		err := bench.Parallel(ctx, manyGoroutines, manyGoroutines, func(g int) error {
			for time.Since(start) < run {
				key := fmt.Sprintf("%s-%d-%d-%d", o.Key, from, g, counts[g])
				if _, err := s.Append(ctx, bench.SessionID(o.Session), hansard.Batch{Key: key, Events: []hansard.Event{hansard.Message("user", "hello")}}); err != nil {
					return err
				}
				counts[g]++
			}
			return nil
		})
		n := 0
		for _, c := range counts {
			n += c
		}
		return n, err
	}
	if _, err := count(0, o.Job.Run/10); err != nil { // warms up
		return nil, err
	}
	before, start := bench.SpentSoFar(), time.Now()
	n, err := count(1, o.Job.Run)
	return keyedTimes{Appends: n, Took: since(start), CPU: micros(bench.SpentSoFar().Since(before).CPU)}, err
}

const manyGoroutines = 64

// growSession appends events with a key each until a session has n of them.
func growSession(ctx context.Context, s hansard.Store, session, n int) error {
	info, err := s.Stat(ctx, bench.SessionID(session))
	if err != nil {
		return err
	}
	has := int(info.LastSeq)
	return bench.Parallel(ctx, manyGoroutines, max(0, n-has), func(i int) error {
		_, err := s.Append(ctx, bench.SessionID(session), hansard.Batch{Key: fmt.Sprintf("grow-%d-%d", has, i), Events: []hansard.Event{hansard.Message("user", "hello")}})
		return err
	})
}
