package pgstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/engine"
)

// TestPagesJoin: a read in pages yields the whole range and nothing else, in order, whether a
// page is full by number of events or by size.
func TestPagesJoin(t *testing.T) {
	const events = pageEvents + laterEvents + 700
	s := newBlocking(t, "")
	p := hansard.Part{Origin: hansard.Origin{ID: "l", Created: engine.Now()}}
	for i := range events {
		e := hansard.Event{Seq: hansard.Seq(i + 1), Time: engine.Now(), Kind: "message", Data: fmt.Appendf(nil, "%d", i+1)}
		if i%3 == 0 {
			e.Kind = "note"
		}
		if i < 100 && i%25 == 0 || i == 1490 { // some fill a page together, and one does alone
			e.Data = fmt.Appendf(nil, `"%s"`, strings.Repeat("x", pageBytes/2+i%100*pageBytes/100))
		}
		p.Events = append(p.Events, e)
	}
	if err := s.Import(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, reverse := range []bool{false, true} {
		for _, kinds := range [][]string{nil, {"note"}, {"other"}} {
			for _, limit := range []int{0, pageEvents + 1, pageEvents + laterEvents} {
				r := hansard.Range{After: 20, Before: events - 10, Kinds: kinds, Limit: limit, Reverse: reverse}
				if limit == 0 {
					r.After, r.Before = 0, 0
				}
				var want, got []hansard.Seq
				for _, e := range p.Events {
					if e.Seq > r.After && (r.Before == 0 || e.Seq < r.Before) && (kinds == nil || slices.Contains(kinds, e.Kind)) {
						want = append(want, e.Seq)
					}
				}
				if reverse {
					slices.Reverse(want)
				}
				if limit > 0 {
					want = want[:min(limit, len(want))]
				}
				for e, err := range s.Read(t.Context(), "l", r) {
					if err != nil {
						t.Fatalf("%+v: %v", r, err)
					}
					got = append(got, e.Seq)
					if string(e.Data) != string(p.Events[e.Seq-1].Data) {
						t.Errorf("%+v: seq %d has %d bytes of another", r, e.Seq, len(e.Data))
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%+v: %d events, want %d", r, len(got), len(want))
				}
			}
		}
	}
}
