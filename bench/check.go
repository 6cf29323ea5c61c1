package main

import (
	"fmt"
	"slices"
	"strings"

	"hansard/internal/bench"
)

// mark is a value that a run has to reach.
type mark struct {
	what  string
	limit float64
	most  bool // limit is the most it may be, not the least
	value func(*results) (float64, bool)
	// aim says that it is a goal, not a promise.
	aim bool
}

// verdict of a mark, in words.
func (m mark) verdict(r *results) (got, said string, failed bool) {
	v, ok := m.value(r)
	switch {
	case !ok:
		return unknown, "not measured", false
	case m.most == (v <= m.limit) || v == m.limit:
		return short(v), "ok", false
	case m.aim:
		return short(v), "not yet", false
	}
	return short(v), "FAILED", true
}

func times(task, a, b string) func(*results) (float64, bool) {
	return func(r *results) (float64, bool) { return r.ratio(task, a, b, rate) }
}

func median(task, peer, value string) func(*results) (float64, bool) {
	return func(r *results) (float64, bool) { return r.median(task, peer, value) }
}

// overSQLite is how much faster a session is read than with the faster of the SQLite peers.
func overSQLite(r *results) (least float64, ok bool) {
	for _, p := range sqlitePeers() {
		if ratio, found := r.ratio("read", ours, p.Name, rate); found && (!ok || ratio < least) {
			least, ok = ratio, true
		}
	}
	return least, ok
}

// beyondDisk is by how many seconds the worst append of all rounds exceeded the disk's
// own worst sync in the same minutes.
func beyondDisk(prefix string) func(*results) (float64, bool) {
	return func(r *results) (longest float64, ok bool) {
		for _, row := range r.Rows {
			if row.Peer != ours || !strings.HasPrefix(row.Task, prefix) || len(row.Values[worst]) == 0 {
				continue
			}
			disk := append(slices.Clone(r.all(row.Task, diskPeer, worst)), 0)
			longest, ok = max(longest, (slices.Max(row.Values[worst])-slices.Max(disk))/1e6), true
		}
		return longest, ok
	}
}

// freshGrowth is how much longer the worst first keyed append takes in the largest
// session than the median one in the smallest.
func (l sizes) freshGrowth(r *results) (float64, bool) {
	small, ok := r.median(freshName(l.fresh[0], true), ours, p50)
	large := r.all(freshName(l.fresh[len(l.fresh)-1], true), ours, p50)
	if !ok || len(large) == 0 {
		return 0, false
	}
	return slices.Max(large) / small, true
}

var ours = bench.Hansard.Name

func marks(s sizes) []mark {
	return []mark{
		{what: "w1: × plain", limit: 1.05, value: times("w1", ours, "plain")},
		{what: "w1: × the disk's own write and sync", limit: 0.9, value: times("w1", ours, diskPeer)},
		{what: "w1: system calls an append", limit: 16, most: true, value: median("w1", ours, calls)},
		{what: "w2: × Pebble", limit: 1.7, value: times("w2", ours, "pebble")},
		{what: "w2: CPU µs an append", limit: 9, most: true, value: median("w2", ours, cpu)},
		{what: "w3: × Pebble", limit: 1.2, value: times("w3", ours, "pebble")},
		{what: "w3: CPU µs an append", limit: 17, most: true, value: median("w3", ours, cpu)},
		{what: "w4: × Redis", limit: 1.5, value: times("w4", ours, "redis")},
		{what: "w4: CPU µs an append", limit: 35, most: true, value: median("w4", ours, cpu)},
		{what: "w4: slowest process against the fastest", limit: 0.9, value: median("w4", ours, share)},
		{what: "w4, beyond: × Redis", limit: 2, aim: true, value: times("w4", ours, "redis")},
		{what: "w4, beyond: CPU µs an append", limit: 25, most: true, aim: true, value: median("w4", ours, cpu)},
		{what: "w4, beyond: flushes an append", limit: 0.03, most: true, aim: true, value: median("w4", ours, flushes)},
		{what: "10,000 events decoded: × the faster SQLite", limit: 4, value: overSQLite},
		{what: "last 50 events, µs", limit: 150, most: true, value: median("last", ours, p50)},
		{what: "follow, p50 µs after the acknowledgement", limit: 100, most: true, value: median("follow", ours, p50)},
		{what: "contended turns a second", limit: 1500, value: median("turns contended", ours, rate)},
		{what: "worst append while sessions are created, s beyond the disk's worst", limit: 0.3, most: true, value: beyondDisk("create ")},
		{what: "worst append while sessions are touched, s beyond the disk's worst", limit: 0.3, most: true, value: beyondDisk("touch ")},
		{what: "first keyed append of a process, largest session, worst: × smallest", limit: 5, most: true, value: s.freshGrowth},
		{what: "PostgreSQL, w1: × naive", limit: 1.5, value: times("w1", pgHansard.Name, pgNaive.Name)},
		{what: "PostgreSQL, w3: × pgbench", limit: 0.6, value: times("w3", pgHansard.Name, pgBench.Name)},
		{what: "PostgreSQL, w4: × pgbench", limit: 0.6, value: times("w4", pgHansard.Name, pgBench.Name)},
		// It was 360 to 430.
		{what: "PostgreSQL, w3: CPU µs of the database an event", limit: 200, most: true, value: median("w3", pgHansard.Name, serverCPU)},
		{what: "PostgreSQL, w4: CPU µs of the database an event", limit: 200, most: true, value: median("w4", pgHansard.Name, serverCPU)},
	}
}

// marked returns the table of all marks, and how many were missed.
func (r *results) marked(s sizes) (text string, missed int) {
	t := &table{}
	t.add("mark", "wanted", "measured", "")
	for _, m := range marks(s) {
		sign := "≥"
		if m.most {
			sign = "≤"
		}
		got, said, failed := m.verdict(r)
		if failed {
			missed++
		}
		t.add(m.what, fmt.Sprintf("%s %s", sign, thousandsOr(m.limit)), got, said)
	}
	return t.String(), missed
}

// thousandsOr is thousands for whole numbers; others keep their decimals.
func thousandsOr(x float64) string {
	if x == float64(int(x)) {
		return thousands(x)
	}
	return fmt.Sprint(x)
}
