package engine

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"hansard"
)

func TestCursor(t *testing.T) {
	at := func(id hansard.SessionID, micros int64) hansard.Info {
		return hansard.Info{ID: id, Updated: time.UnixMicro(micros).UTC()}
	}
	list := []hansard.Info{at("z", 9), at("b", 5), at("a", 5), at("Z", 5), at("m", -1), at("a", -1), {ID: "unreadable"}}
	Cursor{}.Mark(list, len(list), time.UnixMicro(20))
	for i := range list {
		c, err := ParseCursor(&hansard.Query{Cursor: list[i].Cursor})
		if err != nil || !c.Since.Equal(list[0].Updated.Add(-time.Minute)) || c.ID != list[i].ID {
			t.Fatal(c, err)
		}
		for j := range list {
			if got := c.InRest(&list[j]); got != (j > i) {
				t.Errorf("%s behind %s: %v", list[j].ID, list[i].ID, got)
			}
			if got := Newer(&list[i], &list[j]); got != (i < j) {
				t.Errorf("%s newer than %s: %v", list[i].ID, list[j].ID, got)
			}
		}
	}
	encode := base64.RawURLEncoding.EncodeToString
	for _, cursor := range []string{"x", "%", encode([]byte("12")), encode([]byte("updated 2024-06-01T15:04:05Z a")), encode([]byte("updated 2024-06-01T15:04:05Z 2024-06-01T15:04:05Z ../b")),
		encode([]byte("updated 2024-06-01T15:04:05Z now a")), encode([]byte("other 2024-06-01T15:04:05Z 2024-06-01T15:04:05Z a")), encode([]byte("created 2024-06-01T15:04:05Z a"))} {
		if _, err := ParseCursor(&hansard.Query{Cursor: cursor}); !errors.Is(err, hansard.ErrInvalid) {
			t.Errorf("cursor %q: %v, want ErrInvalid", cursor, err)
		}
	}
}

// TestPages: whatever is written between pages, and by writers whose clocks are late or
// whose commits take long, nothing is skipped, nothing comes more than twice, what was not
// touched within the minute comes once, and the pages end.
func TestPages(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var all []hansard.Info
		for i := range 30 {
			created := now.Add(-time.Duration(rng.IntN(7200)) * time.Second)
			all = append(all, hansard.Info{ID: hansard.SessionID(fmt.Sprint("s", i)), Created: created, Updated: created.Add(time.Duration(rng.Int64N(int64(now.Sub(created)) + 1)))})
		}
		first, began := slices.Clone(all), now
		newest := slices.MaxFunc(all, func(a, b hansard.Info) int { return a.Updated.Compare(b.Updated) }).Updated
		touched := map[hansard.SessionID]bool{}
		q := hansard.Query{Limit: 1 + rng.IntN(6), Order: hansard.Order(rng.IntN(2))}
		times := map[hansard.SessionID]int{}
		for pages := 0; ; pages++ {
			page, err := Page(&q, now, all)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range page {
				times[i.ID]++
			}
			if len(page) < q.Limit {
				break
			}
			if pages > 200 {
				t.Fatalf("seed %d: the pages do not end", seed)
			}
			q.Cursor = page[len(page)-1].Cursor
			for range rng.IntN(4) {
				i := &all[rng.IntN(len(all))]
				late := time.Duration(rng.IntN(55)) * time.Second
				if stamp := now.Add(-late); stamp.After(i.Updated) {
					i.Updated = stamp
				}
				touched[i.ID] = true
			}
			if rng.IntN(3) == 0 {
				all = append(all, hansard.Info{ID: hansard.SessionID(fmt.Sprint("n", pages)), Created: now, Updated: now})
			}
			now = now.Add(time.Duration(rng.IntN(120)) * time.Second)
		}
		for _, i := range first {
			most := 2
			if q.Order == hansard.OrderCreated || !touched[i.ID] && (i.Updated.Before(newest.Add(-slack)) || newest.Before(began.Add(-slack))) {
				most = 1
			}
			if n := times[i.ID]; n < 1 || n > most {
				t.Errorf("seed %d, limit %d, order %d: session %s came %d times, want 1 to %d", seed, q.Limit, q.Order, i.ID, n, most)
			}
		}
	}
}
