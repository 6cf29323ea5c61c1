package client

import (
	"testing"

	"hansard"
	"hansard/engine"
	"hansard/memstore"
)

// TestRestOf: a read that is cut after any of its events continues with the remaining ones, and
// with none after the last.
func TestRestOf(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	for _, kind := range []string{"a", "note", "a", "b", "note", "b", "a"} {
		if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{{Kind: kind, Data: []byte("1")}}}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(r hansard.Range) (events []hansard.Event) {
		if r.Limit < 0 {
			return nil
		}
		for e, err := range s.Read(t.Context(), "s", r) {
			if err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			events = append(events, e)
		}
		return events
	}
	for _, from := range []string{"", "note", "none"} {
		for _, kinds := range [][]string{nil, {"a"}} {
			for limit := range 4 {
				for last := range 4 {
					for before := range 7 {
						for _, reverse := range []bool{false, true} {
							r := engine.Plain(hansard.Range{FromKind: from, Kinds: kinds, Limit: limit, Last: last, Before: hansard.Seq(before), After: 1, Reverse: reverse})
							rest := r
							for all := read(r); len(all) > 0; all = all[1:] {
								if rest = restOf(rest, &all[0]); len(read(rest)) != len(all)-1 {
									t.Fatalf("behind %d of %+v there are %d events left, want %d", all[0].Seq, r, len(read(rest)), len(all)-1)
								}
							}
						}
					}
				}
			}
		}
	}
}
