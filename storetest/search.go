package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hansard"
	"hansard/memstore"
)

var searchCases = []Case{
	{Name: "search/words", run: searchWords,
		Defends: "words, phrases, beginnings of words and characters of scripts without spaces are found where they stand, ignoring case and diacritics, and nowhere else"},
	{Name: "search/texts", run: searchTexts,
		Defends: "what people read in an event is searched, whatever its shape, at its beginning and its end however long it is; JSON syntax is not"},
	{Name: "search/filters", run: searchFilters,
		Defends: "a search is confined to a role, a kind, times, labels, a session or a prefix of ids, as they are now"},
	{Name: "search/best first", run: searchBestFirst,
		Defends: "hits come by their score, and equally good ones newest first; a limit and an offset give parts of the same order"},
	{Name: "search/hits", run: searchHits,
		Defends: "a hit names its event and session, and its snippet shows what was found and marks it"},
	{Name: "search/invalid", run: searchInvalid,
		Defends: "a query without a word, with an open quote, too long or with bad conditions is refused, also by an empty store; a session that is not there is said to be so"},
	{Name: "search/model", run: searchModel,
		Defends: "random queries on random texts, some of them deleted meanwhile, find what the model finds, with the same snippets"},
	{Name: "search/complete", run: searchComplete,
		Defends: "an event that was acknowledged before a search began is found, through any handle, while others write", Answers: "F4 41"},
	{Name: "search/deleted", run: searchDeleted,
		Defends: "nothing of a deleted session is found, whoever is searching or indexing meanwhile"},
	{Name: "search/redacted", run: searchRedacted,
		Defends: "nothing that was redacted is found, whoever is searching or indexing meanwhile, and what stays is"},
	{Name: "search/reused", run: searchReused,
		Defends: "of a session whose id was used before all events are found, and none of the one before"},
	{Name: "search/contexts", run: searchContexts,
		Defends: "a search whose context has ended ends with its error, a closed store's with ErrClosed, and a search may be abandoned"},
	{Name: "search/reopened", run: searchReopened,
		Defends: "a search gives the same after opening again, and what was stored since as well", needs: needsReopen},
}

// searcher is the store as a [hansard.Searcher], if it is one.
func (x *env) searcher(s hansard.Store) hansard.Searcher {
	x.Helper()
	searcher, ok := s.(hansard.Searcher)
	if !ok {
		x.Skip("this engine has no search")
	}
	return searcher
}

func searchAll(ctx context.Context, s hansard.Searcher, q hansard.SearchQuery) ([]hansard.Hit, error) {
	var hits []hansard.Hit
	for h, err := range s.Search(ctx, q) {
		if err != nil {
			return hits, err
		}
		hits = append(hits, h)
	}
	return hits, nil
}

func (x *env) search(q hansard.SearchQuery) []hansard.Hit {
	x.Helper()
	hits, err := searchAll(x.ctx, x.searcher(x.store), q)
	if err != nil {
		x.Fatalf("Search(%+v): %v", q, err)
	}
	x.checkOrder(q, hits)
	return hits
}

// checkOrder checks that hits come by score, then by time.
func (x *env) checkOrder(q hansard.SearchQuery, hits []hansard.Hit) {
	x.Helper()
	for i := 1; i < len(hits); i++ {
		a, b := hits[i-1], hits[i]
		if a.Score < b.Score || a.Score == b.Score && a.Time.Before(b.Time) {
			x.Errorf("%+v: %s with score %v of %v comes before %s with score %v of %v", q, cite(a), a.Score, a.Time, cite(b), b.Score, b.Time)
		}
	}
}

func cite(h hansard.Hit) string { return fmt.Sprintf("%s#%d", h.Session, h.Seq) }

// cited are hits as strings, sorted.
func cited(hits []hansard.Hit) []string {
	out := make([]string, len(hits))
	for i, h := range hits {
		out[i] = cite(h)
	}
	slices.Sort(out)
	return out
}

// finds checks which events of a session a text finds.
func (x *env) finds(id hansard.SessionID, query string, want ...hansard.Seq) {
	x.Helper()
	var got []hansard.Seq
	for _, h := range x.search(hansard.SearchQuery{Text: query, In: id}) {
		got = append(got, h.Seq)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		x.Errorf("%s finds the events %v, want %v", query, got, want)
	}
}

func searchWords(x *env) {
	x.searcher(x.store)
	x.append("w", hansard.Batch{Create: true, Events: texts(
		"The quick brown fox jumps over the lazy dog",   // 1
		"Zürich liegt am ZÜRICHSEE",                     // 2
		"call read_file with path a/b.go",               // 3
		"東京都に行く",                                        // 4
		"京都の都市 and Tokyo",                               // 5
		"ภาษาไทยไม่มีช่องว่าง",                          // 6
		"foxes are not a fox, quick ones are; brown?",   // 7
		"e\u0301cole: NFD", "서울에서 만나요", "naïve café £5", // 8, 9, 10
	).Events})
	for _, c := range []struct {
		query string
		want  []hansard.Seq
	}{
		{"fox", []hansard.Seq{1, 7}}, {"FOX quick", []hansard.Seq{1, 7}}, {"quick cat", nil}, {"fo", nil}, {"fo*", []hansard.Seq{1, 7}}, {"foxe*", []hansard.Seq{7}},
		{`"quick brown"`, []hansard.Seq{1}}, {`"brown quick"`, nil}, {`"the lazy do"*`, []hansard.Seq{1}}, {`"fox jumps" dog`, []hansard.Seq{1}},
		{"zurich", []hansard.Seq{2}}, {"ZURICHSEE", []hansard.Seq{2}}, {"zür*", []hansard.Seq{2}},
		{"read_file", []hansard.Seq{3}}, {"file_read", nil}, {"a/b.go", []hansard.Seq{3}}, {"read", []hansard.Seq{3}},
		{"京都", []hansard.Seq{4, 5}}, {"東京", []hansard.Seq{4}}, {"京", []hansard.Seq{4, 5}}, {"都市", []hansard.Seq{5}}, {"市", []hansard.Seq{5}}, {"東都", nil}, {"都に行", []hansard.Seq{4}},
		{"京都 tokyo", []hansard.Seq{5}}, {"ไทย", []hansard.Seq{6}}, {"ษาไ", []hansard.Seq{6}}, {"ไทไ", nil}, {"école", []hansard.Seq{8}}, {"ecole nfd", []hansard.Seq{8}},
		{"서울", []hansard.Seq{9}}, {"울에", []hansard.Seq{9}}, {"NAIVE cafe 5", []hansard.Seq{10}}, {"the", []hansard.Seq{1}},
	} {
		x.finds("w", c.query, c.want...)
	}
}

func searchTexts(x *env) {
	x.searcher(x.store)
	long := "startword " + strings.Repeat("filler lines of a log\\n", 40_000) + " endword"
	var b hansard.Batch
	for i, data := range []string{
		`{"role":"assistant","content":[{"type":"text","text":"spoken"},{"type":"tool_use","id":"t","name":"grep_tool","input":{"pattern":"needle","opts":{"depth":73}}}]}`,
		`{"unheard":{"of":["shaped",true]}}`,
		`"` + long + `"`,
		`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + strings.Repeat("aGVsbG8gd29ybGQ0NTY3", 40) + `"}}`,
		`null`,
		`"` + strings.Repeat("東京都", 60_000) + `終"`,
	} {
		b.Events = append(b.Events, hansard.Event{Data: []byte(data), Author: fmt.Sprint(i)})
	}
	b.Create = true
	x.append("t", b)
	x.finds("t", "spoken needle 73", 1)
	x.finds("t", "grep_tool", 1)
	x.finds("t", "shaped", 2)
	x.finds("t", "unheard")
	x.finds("t", "content")
	x.finds("t", "startword endword", 3)
	x.finds("t", "aGVsbG8gd29ybGQ0NTY3*")
	x.finds("t", "null")
	x.finds("t", "都終", 6)
	if hits := x.search(hansard.SearchQuery{Text: "spoken", Role: "assistant"}); len(hits) != 1 || hits[0].Role != "assistant" {
		x.Errorf("a role that the data names finds %+v", hits)
	}
}

func searchFilters(x *env) {
	x.searcher(x.store)
	for i, id := range []hansard.SessionID{"team:a", "team:b", "other"} {
		x.createWith(id, hansard.Meta{Title: "title of " + string(id), Labels: map[string]string{"n": fmt.Sprint(i), "all": "yes"}})
		for _, role := range []string{"user", "assistant"} {
			for _, kind := range []string{"message", "note"} {
				x.append(id, hansard.Batch{Events: []hansard.Event{{Kind: kind, Role: role, Data: []byte(`"the word"`)}}})
			}
		}
	}
	all := x.search(hansard.SearchQuery{Text: "word"})
	if len(all) != 12 {
		x.Fatalf("%d events are found, want 12", len(all))
	}
	times := make([]time.Time, 0, len(all))
	for _, h := range all {
		times = append(times, h.Time)
	}
	slices.SortFunc(times, time.Time.Compare)
	middle := times[6]
	check := func(q hansard.SearchQuery, want func(h hansard.Hit) bool) {
		x.Helper()
		q.Text = "word"
		wanted := slices.DeleteFunc(slices.Clone(all), func(h hansard.Hit) bool { return !want(h) })
		if got := x.search(q); !slices.Equal(cited(got), cited(wanted)) {
			x.Errorf("%+v finds %q, want %q", q, cited(got), cited(wanted))
		}
	}
	check(hansard.SearchQuery{Role: "user"}, func(h hansard.Hit) bool { return h.Role == "user" })
	check(hansard.SearchQuery{Role: "nobody"}, func(h hansard.Hit) bool { return false })
	check(hansard.SearchQuery{Kind: "note"}, func(h hansard.Hit) bool { return h.Kind == "note" })
	check(hansard.SearchQuery{Kind: "note", Role: "user", In: "other"}, func(h hansard.Hit) bool { return h.Kind == "note" && h.Role == "user" && h.Session == "other" })
	check(hansard.SearchQuery{Since: middle}, func(h hansard.Hit) bool { return !h.Time.Before(middle) })
	check(hansard.SearchQuery{Before: middle}, func(h hansard.Hit) bool { return h.Time.Before(middle) })
	check(hansard.SearchQuery{Since: middle, Before: times[8]}, func(h hansard.Hit) bool { return !h.Time.Before(middle) && h.Time.Before(times[8]) })
	check(hansard.SearchQuery{Prefix: "team:"}, func(h hansard.Hit) bool { return h.Session != "other" })
	check(hansard.SearchQuery{Prefix: "team:b", Role: "user"}, func(h hansard.Hit) bool { return h.Session == "team:b" && h.Role == "user" })
	check(hansard.SearchQuery{Prefix: "team:", In: "other"}, func(h hansard.Hit) bool { return false })
	check(hansard.SearchQuery{Labels: map[string]string{"n": "1", "all": "yes"}}, func(h hansard.Hit) bool { return h.Session == "team:b" })
	check(hansard.SearchQuery{Labels: map[string]string{"n": "1"}, In: "team:a"}, func(h hansard.Hit) bool { return false })
	one, title := "1", "renamed"
	x.append("other", hansard.Batch{Patch: &hansard.Patch{Title: &title, Labels: map[string]*string{"n": &one}}})
	check(hansard.SearchQuery{Labels: map[string]string{"n": "1"}}, func(h hansard.Hit) bool { return h.Session != "team:a" })
	if h := x.search(hansard.SearchQuery{Text: "word", In: "other", Limit: 1}); len(h) != 1 || h[0].Title != title {
		x.Errorf("the title of a renamed session is %+v", h)
	}
}

func searchBestFirst(x *env) {
	x.searcher(x.store)
	x.create("s")
	filler := strings.Repeat(" and much else that is of no interest here", 20)
	x.append("s", texts("apple"+filler))
	x.append("s", texts("apple apple apple pie"))
	x.append("s", texts("something else"))
	if hits := x.search(hansard.SearchQuery{Text: "apple"}); len(hits) != 2 || hits[0].Seq != 2 || hits[0].Score <= hits[1].Score {
		x.Errorf("a short text with many is not the best: %+v", hits)
	}
	var last time.Time
	for range 30 { // identical except for their times
		for {
			r := x.append("s", texts("same text for all"))
			if at := x.read("s", hansard.Range{After: r.First - 1})[0].Time; at.After(last) {
				last = at
				break
			}
		}
	}
	whole := x.search(hansard.SearchQuery{Text: "same"})
	if !slices.IsSortedFunc(whole, func(a, b hansard.Hit) int { return b.Time.Compare(a.Time) }) {
		x.Errorf("equally good hits are not newest first")
	}
	for _, size := range []int{1, 7, 100} {
		var paged []hansard.Hit
		for {
			page := x.search(hansard.SearchQuery{Text: "same", Limit: size, Offset: len(paged)})
			if len(page) > size {
				x.Fatalf("a page of %d has %d hits", size, len(page))
			}
			if paged = append(paged, page...); len(page) < size {
				break
			}
		}
		if len(paged) != len(whole) {
			x.Fatalf("pages of %d have %d hits, want %d", size, len(paged), len(whole))
		}
		for i := range paged {
			if paged[i].Seq != whole[i].Seq {
				x.Fatalf("pages of %d: hit %d is %s, want %s", size, i, cite(paged[i]), cite(whole[i]))
			}
		}
	}
}

func searchHits(x *env) {
	x.searcher(x.store)
	x.createWith("s", hansard.Meta{Title: "a title"})
	text := strings.Repeat("words before it. ", 50) + "Then the Zürich\\n  needle comes." + strings.Repeat(" words behind it.", 50)
	x.append("s", hansard.Batch{Events: []hansard.Event{{ID: "my-id", Kind: "note", Role: "user", Author: "ann", Data: []byte(`"` + text + `"`)}}})
	e := x.all("s")[0]
	hits := x.search(hansard.SearchQuery{Text: "zurich NEEDLE"})
	if len(hits) != 1 {
		x.Fatalf("%d hits, want 1", len(hits))
	}
	h := hits[0]
	if h.Session != "s" || h.Seq != 1 || h.ID != "my-id" || !h.Time.Equal(e.Time) || h.Kind != "note" || h.Role != "user" || h.Author != "ann" || h.Title != "a title" || h.Score <= 0 {
		x.Errorf("the hit is %+v", h)
	}
	var marked []string
	for _, m := range h.Marks {
		if m.Start < 0 || m.End > len(h.Snippet) || m.Start >= m.End {
			x.Fatalf("the mark %+v is not in %q", m, h.Snippet)
		}
		marked = append(marked, h.Snippet[m.Start:m.End])
	}
	if !slices.Equal(marked, []string{"Zürich", "needle"}) || !strings.Contains(h.Snippet, "Then the Zürich needle comes.") || len(h.Snippet) > 300 {
		x.Errorf("%q is marked in %q", marked, h.Snippet)
	}
}

func searchInvalid(x *env) {
	s := x.searcher(x.store)
	check := func(q hansard.SearchQuery, want error) {
		x.Helper()
		hits, err := searchAll(x.ctx, s, q)
		x.wantErr(fmt.Sprintf("Search(%.60q …)", fmt.Sprintf("%+v", q)), err, want)
		if len(hits) > 0 {
			x.Errorf("%d hits came before the refusal", len(hits))
		}
	}
	for range 2 { // in an empty store, and in one with content
		for _, text := range []string{"", "  ", "…!", "*", `""`, `"open`, "a \xff", strings.Repeat("x", 129)} {
			check(hansard.SearchQuery{Text: text}, hansard.ErrInvalid)
		}
		check(hansard.SearchQuery{Text: strings.Repeat("x ", 600)}, hansard.ErrTooLarge)
		check(hansard.SearchQuery{Text: strings.Repeat("x ", 33)}, hansard.ErrTooLarge)
		check(hansard.SearchQuery{Text: "x", Limit: -1}, hansard.ErrInvalid)
		check(hansard.SearchQuery{Text: "x", Offset: -1}, hansard.ErrInvalid)
		check(hansard.SearchQuery{Text: "x", In: "../x"}, hansard.ErrInvalid)
		check(hansard.SearchQuery{Text: "x", Prefix: "/"}, hansard.ErrInvalid)
		check(hansard.SearchQuery{Text: "x", In: "nowhere"}, hansard.ErrNotFound)
		x.append("some", hansard.Batch{Create: true, Events: texts("x open a").Events})
	}
	x.append("gone", hansard.Batch{Create: true, Events: texts("x").Events})
	x.delete("gone")
	check(hansard.SearchQuery{Text: "x", In: "gone"}, hansard.ErrDeleted)
}

// searchWordsOf are what random texts are made of.
var searchWordsOf = []string{"alpha", "Alphabet", "béta", "beta", "gamma", "read_file", "東京", "京都", "都", "東京都市", "x", "1.2", "—", "foo", "foobar", "the"}

func randomText(rng *rand.Rand, most int) string {
	var out []string
	for range 1 + rng.IntN(most) {
		out = append(out, searchWordsOf[rng.IntN(len(searchWordsOf))])
	}
	return strings.Join(out, []string{" ", ", ", "\\n"}[rng.IntN(3)])
}

func searchModel(x *env) {
	x.searcher(x.store)
	model := memstore.New()
	defer model.Close()
	ids := []hansard.SessionID{"a", "a:b", "a:c", "z"}
	deleted := 0
	for step := range 150 {
		id := ids[x.rng.IntN(len(ids))]
		switch n := x.rng.IntN(20); {
		case n == 0 && step > 20 && deleted < 2:
			if x.store.Delete(x.ctx, id, "") == nil {
				deleted++
				_ = model.Delete(x.ctx, id, "")
			}
		case n < 12:
			b := hansard.Batch{Create: true}
			for range 1 + x.rng.IntN(3) {
				b.Events = append(b.Events, hansard.Event{Kind: []string{"", "note"}[x.rng.IntN(2)], Role: []string{"user", "tool"}[x.rng.IntN(2)], Data: []byte(`"` + randomText(x.rng, 12) + `"`)})
			}
			_, got := x.store.Append(x.ctx, id, b)
			_, want := model.Append(x.ctx, id, b)
			if (got == nil) != (want == nil) {
				x.Fatalf("Append: %v, want %v", got, want)
			}
		default:
			x.sameHits(model, randomSearch(x.rng, ids))
		}
	}
	x.reopen()
	for range 50 {
		x.sameHits(model, randomSearch(x.rng, ids))
	}
}

func randomSearch(rng *rand.Rand, ids []hansard.SessionID) hansard.SearchQuery {
	var q hansard.SearchQuery
	for range 1 + rng.IntN(3) {
		word := searchWordsOf[rng.IntN(len(searchWordsOf)-4)]
		switch rng.IntN(6) {
		case 0:
			word = `"` + word + " " + searchWordsOf[rng.IntN(len(searchWordsOf))] + `"`
		case 1:
			r := []rune(word)
			word = string(r[:1+rng.IntN(len(r))]) + "*"
		case 2:
			word = strings.ToUpper(word)
		}
		q.Text += word + " "
	}
	switch rng.IntN(5) {
	case 0:
		q.Role = "user"
	case 1:
		q.Kind = "note"
	case 2:
		q.In = ids[rng.IntN(len(ids))]
	case 3:
		q.Prefix = "a:"
	}
	return q
}

// sameHits checks that the store finds what the model finds.
func (x *env) sameHits(model hansard.Searcher, q hansard.SearchQuery) {
	x.Helper()
	describe := func(s hansard.Searcher) string {
		hits, err := searchAll(x.ctx, s, q)
		if err != nil {
			return answer(nil, err)
		}
		x.checkOrder(q, hits)
		var out []string
		for _, h := range hits {
			out = append(out, fmt.Sprintf("%s %s %s %q %v", cite(h), h.Kind, h.Role, h.Snippet, h.Marks))
		}
		slices.Sort(out)
		return strings.Join(out, "\n")
	}
	if got, want := describe(x.searcher(x.store)), describe(model); got != want {
		x.Fatalf("%+v gives\n%s\nwant\n%s", q, got, want)
	}
}

func searchComplete(x *env) {
	x.searcher(x.store)
	handles := x.handles(3)
	searching := make(chan struct{}, 4) // a server refuses more than this many at a time per token
	x.each(len(handles)*2, "writer", func(i int) error {
		writes, reads := handles[i%len(handles)], handles[(i+1)%len(handles)].(hansard.Searcher)
		id := hansard.SessionID(fmt.Sprint("s", i%4))
		for n := range 12 {
			word := fmt.Sprintf("w%dn%d", i, n)
			r, err := writes.Append(x.ctx, id, hansard.Batch{Create: true, Events: texts("here is " + word).Events})
			if err != nil {
				return err
			}
			searching <- struct{}{}
			hits, err := searchAll(x.ctx, reads, hansard.SearchQuery{Text: word})
			<-searching
			if err != nil {
				return err
			}
			if len(hits) != 1 || hits[0].Session != id || hits[0].Seq != r.First {
				return fmt.Errorf("%s of %s#%d is found as %q", word, id, r.First, cited(hits))
			}
		}
		return nil
	})
	if n := len(x.search(hansard.SearchQuery{Text: "here"})); n != len(handles)*2*12 {
		x.Errorf("%d events are found, want %d", n, len(handles)*2*12)
	}
}

func searchDeleted(x *env) {
	x.searcher(x.store)
	handles := x.handles(2)
	var mu sync.Mutex // guards gone
	gone := map[hansard.SessionID]bool{}
	stop := make(chan struct{})
	watcher := x.start("searcher", func() error {
		for {
			mu.Lock()
			before := make(map[hansard.SessionID]bool, len(gone))
			for id := range gone {
				before[id] = true
			}
			mu.Unlock()
			hits, err := searchAll(x.ctx, handles[1].(hansard.Searcher), hansard.SearchQuery{Text: "secret"})
			if err != nil {
				return err
			}
			for _, h := range hits {
				if before[h.Session] {
					return fmt.Errorf("%s is found after it was deleted", cite(h))
				}
			}
			select {
			case <-stop:
				return nil
			default:
			}
		}
	})
	for i := range 15 {
		id := hansard.SessionID(fmt.Sprint("d", i))
		x.append(id, hansard.Batch{Create: true, Events: texts("a secret word", "another secret").Events})
		if i%2 == 0 {
			if n := len(x.search(hansard.SearchQuery{Text: "secret", In: id})); n != 2 {
				x.Errorf("%d events of %s are found, want 2", n, id)
			}
		}
		x.delete(id)
		mu.Lock()
		gone[id] = true
		mu.Unlock()
		if hits := x.search(hansard.SearchQuery{Text: "secret"}); len(hits) != 0 {
			x.Errorf("%q is found after it was deleted", cited(hits))
		}
	}
	close(stop)
	watcher.finish()
}

func searchRedacted(x *env) {
	x.searcher(x.store)
	handles := x.handles(2)
	var gone atomic.Uint64 // up to this seq no secret is left
	stop := make(chan struct{})
	watcher := x.start("searcher", func() error {
		for {
			before := hansard.Seq(gone.Load())
			hits, err := searchAll(x.ctx, handles[1].(hansard.Searcher), hansard.SearchQuery{Text: "secret"})
			if err != nil {
				return err
			}
			for _, h := range hits {
				if h.Seq <= before {
					return fmt.Errorf("%s is found after it was redacted", cite(h))
				}
			}
			select {
			case <-stop:
				return nil
			default:
			}
		}
	})
	for i := range 12 {
		got := x.append("s", hansard.Batch{Create: true, Events: texts("a secret word", "what stays").Events})
		if i%2 == 0 {
			if n := len(x.search(hansard.SearchQuery{Text: "secret", In: "s"})); n != 1 {
				x.Errorf("%d events are found before they are redacted, want 1", n)
			}
		}
		x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{got.First}, Reason: "reason" + fmt.Sprint(i)})
		gone.Store(uint64(got.First))
		if hits := x.search(hansard.SearchQuery{Text: "secret"}); len(hits) != 0 {
			x.Errorf("%q is found after it was redacted", cited(hits))
		}
		if n := len(x.search(hansard.SearchQuery{Text: "stays"})); n != i+1 {
			x.Errorf("%d events that were not redacted are found, want %d", n, i+1)
		}
	}
	close(stop)
	watcher.finish()
}

func searchReused(x *env) {
	for i := range 3 {
		x.append("s", hansard.Batch{Create: i == 0, Events: texts(fmt.Sprint("common word", i), "common", "common").Events})
		for _, want := range []struct {
			text string
			n    int
		}{{fmt.Sprint("word", i), 1}, {"common", 3}, {fmt.Sprint("word", i-1), 0}} {
			if n := len(x.search(hansard.SearchQuery{Text: want.text})); n != want.n {
				x.Errorf("%s is found %d times in session %d of the id, want %d", want.text, n, i, want.n)
			}
		}
		x.delete("s")
		if _, err := x.store.Create(x.ctx, "s", hansard.Meta{Reuse: true}); err != nil {
			x.Fatalf("Create again: %v", err)
		}
	}
}

func searchContexts(x *env) {
	s := x.searcher(x.store)
	x.append("s", hansard.Batch{Create: true, Events: texts("word one", "word two", "word three").Events})
	for range s.Search(x.ctx, hansard.SearchQuery{Text: "word"}) {
		x.append("s", texts("word in between")) // other calls may be made while it runs
		break
	}
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	n := 0
	var last error
	for _, err := range s.Search(ctx, hansard.SearchQuery{Text: "word"}) {
		if n++; err != nil {
			last = err
		}
		cancel()
	}
	if last == nil && n < 4 { // all of it may already have been on the way
		x.Errorf("a search whose context ended gave %d hits and no error", n)
	}
	if hits, err := searchAll(ctx, s, hansard.SearchQuery{Text: "word"}); !errors.Is(err, context.Canceled) || len(hits) > 0 {
		x.Errorf("with a context that has ended: %d hits, %v", len(hits), err)
	}
	if x.engine.Another != nil {
		other := x.engine.Another(x, x.store)
		if err := other.Close(); err != nil {
			x.Fatalf("Close: %v", err)
		}
		_, err := searchAll(x.ctx, other.(hansard.Searcher), hansard.SearchQuery{Text: "word"})
		x.wantErr("a search of a closed store", err, hansard.ErrClosed)
	}
}

func searchReopened(x *env) {
	x.searcher(x.store)
	total := 0
	for i := range 4 {
		id := hansard.SessionID(fmt.Sprint("r", i%3))
		x.append(id, hansard.Batch{Create: true, Events: texts("word first", "word second").Events})
		total += 2
		if n := len(x.search(hansard.SearchQuery{Text: "word"})); n != total {
			x.Errorf("%d events are found, want %d", n, total)
		}
		x.reopen()
		if n := len(x.search(hansard.SearchQuery{Text: "word"})); n != total {
			x.Errorf("%d events are found after opening again, want %d", n, total)
		}
	}
}
