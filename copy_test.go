package hansard_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"hansard"
	"hansard/memstore"
)

// TestCopyOfARepaired: a session in which a repair had to leave out the record of a grant can be
// copied, wherever in it the loss is.
func TestCopyOfARepaired(t *testing.T) {
	ctx := context.Background()
	for _, before := range []int{0, 997, 998, 999, 1000} {
		src, dst := memstore.New(), memstore.New()
		origin := hansard.Origin{ID: "s", Created: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		p := hansard.Part{Origin: origin}
		add := func(e hansard.Event) {
			e.Seq, e.Time = hansard.Seq(len(p.Events)+1), origin.Created
			p.Events = append(p.Events, e)
		}
		for i := range before {
			add(hansard.Event{Kind: "message", Data: []byte(fmt.Sprint(i))})
		}
		for range 2 {
			add(hansard.Event{Kind: hansard.KindLost, Data: []byte("null")})
		}
		const under = 1500
		for range under {
			add(hansard.Event{Kind: "message", Turn: "5-0000000000000005", Data: []byte(`"under a lost grant"`)})
		}
		ended := (&hansard.TurnRecord{Change: hansard.TurnEnded, Why: "repaired"}).Event()
		ended.Turn = "5-0000000000000005"
		add(ended)
		if err := src.Import(ctx, p); err != nil {
			t.Fatal(err)
		}
		for r, err := range hansard.Copy(ctx, src, dst) {
			if err != nil || r.Err != nil {
				t.Errorf("%d events before the loss: %+v, %v", before, r, err)
			}
		}
		if info, err := dst.Stat(ctx, "s"); err != nil || int(info.LastSeq) != before+2+under+1 {
			t.Errorf("%d events before the loss: %+v, %v", before, info, err)
		}
	}
}
