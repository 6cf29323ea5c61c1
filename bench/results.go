package main

import (
	"encoding/json"
	"maps"
	"os"
	"slices"

	"hansard/internal/bench"
)

// What is measured, by its names in results.json.
const (
	rate      = "ops"       // a second
	p50       = "p50"       // µs, as the next
	p99       = "p99"       //
	worst     = "worst"     //
	cpu       = "cpu"       // µs an operation, of all processes and servers
	serverCPU = "servercpu" // µs an operation, of the server alone
	mallocs   = "mallocs"   // an operation, of Go programs
	allocated = "bytes"     // an operation
	calls     = "calls"     // system calls an operation, of all processes and servers
	flushes   = "flushes"   // fsync, fdatasync and the like an operation
	share     = "share"     // the slowest process against the fastest
	// appendOnly is the append of a fresh process without opening the store.
	appendOnly = "append"
)

// row is one peer doing one task: each value has one number per round.
type row struct {
	Task   string               `json:"task"`
	Peer   string               `json:"peer"`
	Values map[string][]float64 `json:"values"`
}

// results are those of one run of the program.
type results struct {
	Machine string   `json:"machine"`
	When    string   `json:"when"`
	Rounds  int      `json:"rounds"`
	Rows    []*row   `json:"rows"`
	Notes   []string `json:"notes"`
}

func (r *results) find(task, peer string) *row {
	for _, row := range r.Rows {
		if row.Task == task && row.Peer == peer {
			return row
		}
	}
	return nil
}

// add takes the values of one round.
func (r *results) add(task, peer string, values map[string]float64) {
	at := r.find(task, peer)
	if at == nil {
		at = &row{Task: task, Peer: peer, Values: map[string][]float64{}}
		r.Rows = append(r.Rows, at)
	}
	for name, v := range values {
		at.Values[name] = append(at.Values[name], v)
	}
}

// note adds a note below the table, once.
func (r *results) note(text string) {
	if !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

func (r *results) all(task, peer, value string) []float64 {
	if at := r.find(task, peer); at != nil {
		return at.Values[value]
	}
	return nil
}

// median returns the median of the rounds, and whether there is one.
func (r *results) median(task, peer, value string) (float64, bool) {
	all := r.all(task, peer, value)
	if len(all) == 0 {
		return 0, false
	}
	return bench.Median(all), true
}

// ratio is the median of the ratios of two peers round by round, because what
// disturbed one of them in a round probably disturbed the other too.
func (r *results) ratio(task, a, b, value string) (float64, bool) {
	over, under := r.all(task, a, value), r.all(task, b, value)
	var ratios []float64
	for i := range min(len(over), len(under)) {
		if under[i] != 0 {
			ratios = append(ratios, over[i]/under[i])
		}
	}
	if len(ratios) == 0 {
		return 0, false
	}
	return bench.Median(ratios), true
}

// peersOf are the peers that have results for these tasks, in the order of peers.
func (r *results) peersOf(tasks ...string) (names []string) {
	seen := map[string]bool{}
	for _, row := range r.Rows {
		if slices.Contains(tasks, row.Task) {
			seen[row.Peer] = true
		}
	}
	order := []string{diskPeer}
	for _, p := range peers() {
		order = append(order, p.Name)
	}
	for _, name := range order {
		if seen[name] {
			names = append(names, name)
			delete(seen, name)
		}
	}
	return append(names, slices.Sorted(maps.Keys(seen))...)
}

func (r *results) write(path string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func readResults(path string) (*results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &results{}
	return r, json.Unmarshal(text, r)
}
