package stats

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/memstore"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestGather: the counts of a small store, checked by hand.
func TestGather(t *testing.T) {
	s := memstore.New()
	add := func(id hansard.SessionID, month int, events int, labels map[string]string) {
		t.Helper()
		p := hansard.Part{Origin: hansard.Origin{ID: id, Created: time.Date(2026, time.Month(month), 5, 0, 0, 0, 0, time.UTC), Meta: hansard.Meta{Labels: labels}}}
		for i := range events {
			p.Events = append(p.Events, hansard.Event{Seq: hansard.Seq(i + 1), Time: p.Created.Add(time.Hour), Kind: "message", Data: []byte(`"12345678"`)})
		}
		must(t, s.Import(t.Context(), p))
	}
	add("a", 1, 3, map[string]string{"tool": "codex", "team": "x"})
	add("b", 1, 1, map[string]string{"tool": "claude", "pinned": ""})
	add("c", 4, 2, map[string]string{"tool": "codex", "archived": "true"})
	add("d", 5, 0, nil)
	add("gone", 5, 9, nil)
	must(t, s.Delete(t.Context(), "gone", ""))
	_, err := s.Attach(t.Context(), "b", strings.NewReader("twelve bytes"))
	must(t, err)
	_, err = s.Acquire(t.Context(), "d", hansard.Claim{})
	must(t, err)

	r, err := Gather(t.Context(), s, Options{})
	must(t, err)
	if r.Total.Sessions != 4 || r.Total.Events != 3+1+2+1 || r.Total.Attachments != 1 || r.Total.AttachmentBytes != 12 {
		t.Errorf("in total %+v", r.Total)
	}
	if got := fmt.Sprint(r.Held, r.Pinned, r.Archived, r.Damaged, r.Unreadable); got != "1 1 1 0 0" {
		t.Errorf("held, pinned, archived, damaged, unreadable: %s", got)
	}
	text := func(groups []Group) (out []string) {
		for _, g := range groups {
			out = append(out, fmt.Sprint(g.Name, " ", g.Sessions, " ", g.Events))
		}
		return out
	}
	groups := text(r.Groups)
	if len(groups) != 3 || !strings.Contains(fmt.Sprint(groups), "codex 2 5") || !strings.Contains(fmt.Sprint(groups), "claude 1 1") {
		t.Errorf("by tool: %q", groups)
	}
	if got := fmt.Sprintf("%q", text(r.Labels)); got != `["tool=codex 2 5" "archived=true 1 2" "pinned= 1 1" "team=x 1 3" "tool=claude 1 1"]` {
		t.Errorf("by label: %s", got)
	}
	var months []string
	for _, m := range r.Months {
		months = append(months, fmt.Sprint(m.Month, " ", m.Sessions, " ", m.Events, " ", m.Total.Sessions, " ", m.Total.Events))
	}
	if got := fmt.Sprintf("%q", months); got != `["2026-01 2 4 2 4" "2026-02 0 0 2 4" "2026-03 0 0 2 4" "2026-04 1 2 3 6" "2026-05 1 1 4 7"]` {
		t.Errorf("by month: %s", got)
	}
	if !r.Oldest.Equal(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the oldest is of %v", r.Oldest)
	}
	r, err = Gather(t.Context(), s, Options{By: "team", NoAttachments: true, Query: hansard.Query{Labels: map[string]string{"tool": "codex"}}})
	if err != nil || r.Total.Sessions != 2 || r.Total.Attachments != 0 || fmt.Sprint(len(r.Groups)) != "2" {
		t.Errorf("of codex, by team: %+v, %v", r, err)
	}
	if r, err = Gather(t.Context(), memstore.New(), Options{}); err != nil || r.Total.Sessions != 0 || len(r.Months) != 0 {
		t.Errorf("of an empty store: %+v, %v", r, err)
	}
}

// many is a store with any number of sessions, no two of them alike.
type many struct {
	*memstore.Store
	sessions int
	lists    int
}

func (m *many) List(context.Context, hansard.Query) iter.Seq2[hansard.Info, error] {
	m.lists++
	return func(yield func(hansard.Info, error) bool) {
		for i := range m.sessions {
			at := time.Unix(int64(i)*1_000_000, 0)
			name := fmt.Sprint(i)
			if !yield(hansard.Info{ID: "s", Created: at, Updated: at, LastSeq: 1, Labels: map[string]string{"tool": name, "x": name, "even": fmt.Sprint(i%2 == 0), "k" + name: "v"}}, nil) {
				return
			}
		}
	}
}

// TestBounded: 100,000 sessions, no two of them alike, are counted in one pass, and the memory
// for them is bounded.
func TestBounded(t *testing.T) {
	s := &many{Store: memstore.New(), sessions: 100_000}
	r, err := Gather(t.Context(), s, Options{NoAttachments: true})
	must(t, err)
	if s.lists != 1 || r.Total.Sessions != s.sessions {
		t.Errorf("%d lists, %d sessions", s.lists, r.Total.Sessions)
	}
	if len(r.Groups) != maxGroups+1 || len(r.Labels) != MaxLabels || len(r.Months) > maxMonths*(maxGap+1) {
		t.Errorf("%d groups, %d labels, %d months", len(r.Groups), len(r.Labels), len(r.Months))
	}
	sum := Count{}
	for _, g := range r.Groups {
		sum.add(g.Count)
	}
	if sum.Sessions != s.sessions {
		t.Errorf("the groups have %d sessions", sum.Sessions)
	}
	if r.Labels[0].Name != "tool=*" || r.Labels[1].Name != "x=*" || r.Labels[2].Name != "even=false" || r.Labels[2].Sessions != s.sessions/2 {
		t.Errorf("the labels begin with %+v", r.Labels[:3])
	}
}
