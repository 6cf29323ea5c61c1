package filestore

import (
	"context"
	"testing"

	"hansard"
)

// TestGrowthPage: a page of events costs what it holds, wherever in the session it is: nothing
// before or after it is read.
func TestGrowthPage(t *testing.T) {
	const limit = 60
	ctx := context.Background()
	for _, l := range append(lengths, struct{ events, size int }{100_000, 300}) {
		log := buildLog("long", 5, l.events, func(i int) (hansard.Event, string) { return pad(i, l.size), "" })
		s, c := readOnly(t, withLogs(t, 1, map[hansard.SessionID][]byte{"long": log}))
		if _, err := s.Stat(ctx, "long"); err != nil { // a short log is checked whole once
			t.Fatal(err)
		}
		for _, after := range []int{0, 1, l.events / 2, l.events - 1, l.events} {
			c.reset()
			info, err := s.Stat(ctx, "long")
			if err != nil || int(info.LastSeq) != l.events {
				t.Fatalf("stat: %+v, %v", info, err)
			}
			n := after
			for e, err := range s.Read(ctx, "long", hansard.Range{After: hansard.Seq(after), Limit: limit}) {
				if n++; err != nil || int(e.Seq) != n {
					t.Fatalf("after %d: %+v, %v", after, e, err)
				}
			}
			if n != min(after+limit, l.events) {
				t.Errorf("after %d: it ends at %d", after, n)
			}
			t.Logf("%d events, %d bytes, after %d: %d bytes in %d reads", l.events, len(log), after, c.bytes, c.reads)
			if most := int64(512<<10 + 4*limit*l.size); c.bytes > most {
				t.Errorf("%d events: the page after %d cost %d bytes, want at most %d", l.events, after, c.bytes, most)
			}
		}
	}
}
