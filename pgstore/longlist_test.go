package pgstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
	"hansard/internal/pgtest"
)

// TestLongLists: with more sessions of a prefix and of a label than are looked up one by one,
// lists of every order have the right sessions, whole and in pages.
func TestLongLists(t *testing.T) {
	address := pgtest.Shared(t).Schema(t)
	s, err := Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	grow(t, conn, 10, 3*fewSessions)
	// Created in another order than updated, some at the same moment; plus a deleted one.
	for _, sql := range []string{
		"UPDATE hansard_listing l SET listed = h.updated FROM hansard_heads h WHERE h.id = l.id", // for one of them it is wrong
		"UPDATE hansard_heads SET created = now() - make_interval(mins => length(id)) - make_interval(secs => ascii(right(id, 1)))",
		"UPDATE hansard_heads SET deleted = true WHERE id = 'small-1234'",
		"DELETE FROM hansard_sessions WHERE id = 'small-1234'",
		"DELETE FROM hansard_listing WHERE id = 'small-1234'",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	list := func(q hansard.Query) (infos []hansard.Info) {
		t.Helper()
		for info, err := range s.List(t.Context(), q) {
			if err != nil {
				t.Fatalf("%+v: %v", q, err)
			}
			infos = append(infos, info)
		}
		return infos
	}
	all := list(hansard.Query{})
	if len(all) != 3*fewSessions {
		t.Fatalf("%d sessions", len(all))
	}
	ids := func(infos []hansard.Info) (out []string) {
		for _, i := range infos {
			out = append(out, string(i.ID))
		}
		return out
	}
	for _, order := range []hansard.Order{hansard.OrderUpdated, hansard.OrderCreated} {
		for _, prefix := range []string{"", "small-", "small-1", "small-12", "small-2999", "none", "big"} {
			for label, value := range map[string]string{"": "", "team": "red", "shard": "9", "self": "small-77", "odd": "no"} {
				for _, text := range []string{"", "7"} {
					q := hansard.Query{Order: order, Prefix: prefix, Text: text}
					if label != "" {
						q.Labels = map[string]string{label: value}
					}
					var want []hansard.Info
					for i := range all {
						has := label == "" || all[i].Labels[label] == value
						if has && strings.HasPrefix(string(all[i].ID), prefix) && strings.Contains(string(all[i].ID), text) {
							want = append(want, all[i])
						}
					}
					slices.SortFunc(want, func(a, b hansard.Info) int {
						if engine.NewerBy(order, &a, &b) {
							return -1
						}
						return 1
					})
					if got := ids(list(q)); !slices.Equal(got, ids(want)) {
						t.Fatalf("%+v gives %d sessions, want %d: %.200q, want %.200q", q, len(got), len(want), fmt.Sprint(got), fmt.Sprint(ids(want)))
					}
					var paged []hansard.Info
					for q.Limit = 799; ; q.Cursor = paged[len(paged)-1].Cursor {
						page := list(q)
						paged = append(paged, page...)
						if len(page) < q.Limit {
							break
						}
					}
					seen := map[hansard.SessionID]bool{} // some come again
					paged = slices.DeleteFunc(paged, func(i hansard.Info) bool { again := seen[i.ID]; seen[i.ID] = true; return again })
					if !slices.Equal(ids(paged), ids(want)) {
						t.Fatalf("%+v gives %d sessions in pages, want %d", q, len(paged), len(want))
					}
				}
			}
		}
	}
}
