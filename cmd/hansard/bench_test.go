package main

import (
	"strings"
	"testing"

	"hansard/internal/bench"
)

// TestDiskInWords: the numbers in the sentences are those of the results, and nothing is said
// about what was not measured.
func TestDiskInWords(t *testing.T) {
	raw := bench.Result{Workload: "raw", Candidate: "raw", OpsS: 5000}
	plain := bench.Result{Workload: "w1", Candidate: "plain", OpsS: 90_000}
	alone := bench.Result{Workload: "w1", Candidate: "hansard", OpsS: 4000}
	many := bench.Result{Workload: "w2", Candidate: "hansard", OpsS: 60_000}
	fast := bench.Result{Workload: "raw", Candidate: "raw", OpsS: 100_000}
	tests := []struct {
		name    string
		results []bench.Result
		want    []string // in each sentence
	}{
		{"nothing", nil, nil},
		{"no raw", []bench.Result{alone}, nil},
		{"one writer", []bench.Result{raw, plain, alone}, []string{"200 µs, so one writer who waits can append 5,000 times a second at most; hansard does 80 %"}},
		{"many", []bench.Result{raw, plain, alone, many}, []string{"80 %", "up to 12 times as much"}},
		{"too good to be true", []bench.Result{fast, alone}, []string{"10 µs", "power cut"}},
	}
	for _, tt := range tests {
		got := diskInWords(tt.results)
		if len(got) != len(tt.want) {
			t.Errorf("%s: %q", tt.name, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], tt.want[i]) {
				t.Errorf("%s: %q has no %q", tt.name, got[i], tt.want[i])
			}
		}
	}
}
