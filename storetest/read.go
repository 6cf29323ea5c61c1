package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"hansard"
)

var readCases = []Case{
	{Name: "read/range", run: readRanges,
		Defends: "Read yields what its range says: where it starts, which kinds, how many, oldest first", Answers: "55"},
	{Name: "read/before", run: readBefore,
		Defends: "Before ends a range below a seq, and what is counted from the end is counted from there"},
	{Name: "read/reverse", run: readReverse,
		Defends: "a reverse range yields the same events newest first, and its limit counts from the newest"},
	{Name: "read/reverse pages", run: readReversePages,
		Defends: "the pages of a session from its end have each event once, while others append"},
	{Name: "read/from kind", run: readFromKind,
		Defends: "a range may start at the last event of any kind; from the summary is one of them"},
	{Name: "read/random ranges", run: readRandomRanges,
		Defends: "every combination of a range's parts means the same on every engine"},
	{Name: "read/invalid range", run: readInvalidRange,
		Defends: "a negative limit, and two kinds to start from, are refused and not taken for something else"},
	{Name: "read/break", run: readBreak,
		Defends: "a read may be abandoned at any event, and leaves nothing behind"},
	{Name: "read/again", run: readAgain,
		Defends: "what Read returned may be ranged over again, and reads again"},
	{Name: "read/kept", run: readKept,
		Defends: "what was read may be kept and changed: no other event of the reading changes with it"},
	{Name: "read/lent", run: readLent,
		Defends: "what a store lends is what it gives to read: the same events, the same end, and the reader may stop at any of them"},
	{Name: "read/cancelled", run: readCancelled,
		Defends: "a read that its context cuts short ends with the error, and never looks complete", Answers: "25"},
	{Name: "read/no lock", run: readNoLock,
		Defends: "a reader that pauses blocks nobody: no writer, no other reader, not itself", Answers: "49"},
	{Name: "read/changes nothing", run: readChangesNothing,
		Defends: "reading a session changes nothing about it", Answers: "50"},
}

// kindsOf are the kinds of the events of a log to read from; the seq is the index plus
// one.
var kindsOf = []string{"message", "tool_call", "tool_result", "message", "summary", "message", "message", "note", "summary", "message", "tool_call", "note"}

func (x *env) createKinds(id hansard.SessionID, kinds []string) {
	x.Helper()
	x.create(id)
	for i := 0; i < len(kinds); {
		n := min(1+x.rng.IntN(3), len(kinds)-i)
		var b hansard.Batch
		for _, k := range kinds[i : i+n] {
			b.Events = append(b.Events, hansard.Event{Kind: k, Data: fmt.Appendf(nil, `"%s %d"`, k, i)})
		}
		x.append(id, b)
		i += n
	}
}

// rangeCase is a range of a session of kindsOf, and the seqs it selects.
type rangeCase struct {
	r    hansard.Range
	want []hansard.Seq
}

func (x *env) checkRanges(id hansard.SessionID, cases []rangeCase) {
	x.Helper()
	for _, c := range cases {
		if got := seqs(x.read(id, c.r)); !slices.Equal(got, c.want) {
			x.Errorf("%+v gives %d, want %d", c.r, got, c.want)
		}
	}
}

func readBefore(x *env) {
	x.createKinds("s", kindsOf)
	none := []hansard.Seq{}
	x.checkRanges("s", []rangeCase{
		{hansard.Range{Before: 4}, []hansard.Seq{1, 2, 3}},
		{hansard.Range{Before: 1}, none},
		{hansard.Range{Before: 12}, []hansard.Seq{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		{hansard.Range{Before: 13, After: 10}, []hansard.Seq{11, 12}},
		{hansard.Range{Before: math.MaxUint64, After: 10}, []hansard.Seq{11, 12}},
		{hansard.Range{Before: 5, After: 2}, []hansard.Seq{3, 4}},
		{hansard.Range{Before: 5, After: 4}, none},
		{hansard.Range{Before: 5, After: 9}, none},
		{hansard.Range{Before: 5, After: math.MaxUint64}, none},
		{hansard.Range{Before: 8, Limit: 2}, []hansard.Seq{1, 2}},
		{hansard.Range{Before: 8, Last: 2}, []hansard.Seq{6, 7}},
		{hansard.Range{Before: 8, Last: 4, Limit: 3, After: 4}, []hansard.Seq{5, 6, 7}},
		{hansard.Range{Before: 9, Kinds: []string{"message"}, Last: 2}, []hansard.Seq{6, 7}},
		{hansard.Range{Before: 7, Kinds: []string{"message"}}, []hansard.Seq{1, 4, 6}},
		{hansard.Range{Before: 9, FromSummary: true}, []hansard.Seq{5, 6, 7, 8}},
		{hansard.Range{Before: 9, FromSummary: true, After: 5}, []hansard.Seq{6, 7, 8}},
		{hansard.Range{Before: 5, FromSummary: true, After: 1}, []hansard.Seq{2, 3, 4}},
	})
	x.create("empty")
	x.checkRanges("empty", []rangeCase{{hansard.Range{Before: 1}, none}, {hansard.Range{Before: 9}, none}, {hansard.Range{Reverse: true}, none}})
}

func readReverse(x *env) {
	x.createKinds("s", kindsOf)
	none := []hansard.Seq{}
	x.checkRanges("s", []rangeCase{
		{hansard.Range{Reverse: true}, []hansard.Seq{12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}},
		{hansard.Range{Reverse: true, Limit: 3}, []hansard.Seq{12, 11, 10}},
		{hansard.Range{Reverse: true, Limit: math.MaxInt, After: 10}, []hansard.Seq{12, 11}},
		{hansard.Range{Reverse: true, After: 12}, none},
		{hansard.Range{Reverse: true, After: math.MaxUint64}, none},
		{hansard.Range{Reverse: true, Before: 12}, []hansard.Seq{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}},
		{hansard.Range{Reverse: true, Before: 13, Limit: 1}, []hansard.Seq{12}},
		{hansard.Range{Reverse: true, Before: math.MaxUint64, Limit: 1}, []hansard.Seq{12}},
		{hansard.Range{Reverse: true, Before: 1}, none},
		{hansard.Range{Reverse: true, Before: 8, After: 4}, []hansard.Seq{7, 6, 5}},
		{hansard.Range{Reverse: true, Before: 8, After: 4, Limit: 2}, []hansard.Seq{7, 6}},
		{hansard.Range{Reverse: true, Before: 5, After: 4}, none},
		{hansard.Range{Reverse: true, Last: 2}, []hansard.Seq{12, 11}},
		{hansard.Range{Reverse: true, Last: 4, Limit: 2}, []hansard.Seq{12, 11}},
		{hansard.Range{Reverse: true, Last: 2, Limit: 4}, []hansard.Seq{12, 11}},
		{hansard.Range{Reverse: true, Last: 100}, []hansard.Seq{12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}},
		{hansard.Range{Reverse: true, Kinds: []string{"message"}, Limit: 3}, []hansard.Seq{10, 7, 6}},
		{hansard.Range{Reverse: true, Kinds: []string{"message"}, Last: 2, Before: 7}, []hansard.Seq{6, 4}},
		{hansard.Range{Reverse: true, Kinds: []string{"nobody's"}}, none},
		{hansard.Range{Reverse: true, FromSummary: true}, []hansard.Seq{12, 11, 10, 9}},
		{hansard.Range{Reverse: true, FromSummary: true, Limit: 2}, []hansard.Seq{12, 11}},
		{hansard.Range{Reverse: true, FromSummary: true, Before: 9}, []hansard.Seq{8, 7, 6, 5}},
		{hansard.Range{Reverse: true, FromSummary: true, Kinds: []string{"note"}}, []hansard.Seq{12}},
	})
	// The events are the same, not only their seqs.
	forward, reverse := x.all("s"), x.read("s", hansard.Range{Reverse: true})
	slices.Reverse(reverse)
	for i := range min(len(forward), len(reverse)) {
		if !hansard.SameEvent(&forward[i], &reverse[i]) {
			x.Errorf("forward %+v, in reverse %+v", forward[i], reverse[i])
		}
	}
}

// readReversePages reads a session from its end, page by page, while it grows. It is
// longer than any engine reads at once, with lines of very different length.
func readReversePages(x *env) {
	x.create("s")
	for i := range 13 {
		x.append("s", hansard.Batch{Events: Marked("w", i, 1+x.rng.IntN(100), []int{0, 300, 5000}[x.rng.IntN(3)])})
	}
	before := len(x.all("s"))
	var got []hansard.Event
	r := hansard.Range{Reverse: true, Limit: 1 + x.rng.IntN(200)}
	for {
		page := x.read("s", r)
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
		if len(got) > before {
			x.Fatalf("the pages have more than the %d events there were", before)
		}
		r.Before = page[len(page)-1].Seq
		x.append("s", texts("more"))
	}
	slices.Reverse(got)
	if len(got) != before {
		x.Fatalf("the pages have %d events, want %d", len(got), before)
	}
	for i, e := range x.all("s")[:before] {
		if !hansard.SameEvent(&e, &got[i]) {
			x.Fatalf("event %d: %+v in pages, %+v as a whole", e.Seq, got[i], e)
		}
	}
}

func readFromKind(x *env) {
	x.createKinds("s", kindsOf)
	x.checkRanges("s", []rangeCase{
		{hansard.Range{FromKind: "tool_call"}, []hansard.Seq{11, 12}},
		{hansard.Range{FromKind: "summary"}, []hansard.Seq{9, 10, 11, 12}},
		{hansard.Range{FromKind: "summary", FromSummary: true}, []hansard.Seq{9, 10, 11, 12}},
		{hansard.Range{FromKind: "tool_result", Limit: 2}, []hansard.Seq{3, 4}},
		{hansard.Range{FromKind: "tool_result", After: 3, Limit: 2}, []hansard.Seq{4, 5}},
		{hansard.Range{FromKind: "tool_call", Before: 11, Limit: 2}, []hansard.Seq{2, 3}},
		{hansard.Range{FromKind: "note", Before: 12}, []hansard.Seq{8, 9, 10, 11}},
		{hansard.Range{FromKind: "note", Before: 12, Reverse: true}, []hansard.Seq{11, 10, 9, 8}},
		{hansard.Range{FromKind: "note", Before: 12, Reverse: true, Kinds: []string{"message"}}, []hansard.Seq{10}},
		{hansard.Range{FromKind: "nobody's", After: 10}, []hansard.Seq{11, 12}},
		{hansard.Range{FromKind: "nobody's", After: 10, Reverse: true}, []hansard.Seq{12, 11}},
		{hansard.Range{FromKind: "Note", After: 10}, []hansard.Seq{11, 12}},
		{hansard.Range{FromKind: "n\xffte\x00", After: 10}, []hansard.Seq{11, 12}},
		{hansard.Range{FromKind: "message", Last: 2}, []hansard.Seq{11, 12}},
		{hansard.Range{FromKind: "message", Kinds: []string{"message"}}, []hansard.Seq{10}},
	})
}

func readRanges(x *env) {
	x.createKinds("s", kindsOf)
	none := []hansard.Seq{}
	x.checkRanges("s", []rangeCase{
		{hansard.Range{}, []hansard.Seq{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{hansard.Range{After: 9}, []hansard.Seq{10, 11, 12}},
		{hansard.Range{After: 12}, none},
		{hansard.Range{After: 13}, none},
		{hansard.Range{After: math.MaxUint64}, none},
		{hansard.Range{Limit: 3}, []hansard.Seq{1, 2, 3}},
		{hansard.Range{Limit: 12}, []hansard.Seq{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{hansard.Range{After: 2, Limit: 2}, []hansard.Seq{3, 4}},
		{hansard.Range{After: 11, Limit: math.MaxInt}, []hansard.Seq{12}},
		{hansard.Range{Last: 1}, []hansard.Seq{12}},
		{hansard.Range{Last: 3}, []hansard.Seq{10, 11, 12}},
		{hansard.Range{Last: 100}, []hansard.Seq{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{hansard.Range{Last: math.MaxInt, After: 10}, []hansard.Seq{11, 12}},
		{hansard.Range{Last: 5, After: 10}, []hansard.Seq{11, 12}},
		{hansard.Range{Last: 2, After: 3}, []hansard.Seq{11, 12}},
		{hansard.Range{Last: 5, Limit: 2}, []hansard.Seq{8, 9}},
		{hansard.Range{Last: 2, Limit: 5}, []hansard.Seq{11, 12}},
		{hansard.Range{Kinds: []string{"note"}}, []hansard.Seq{8, 12}},
		{hansard.Range{Kinds: []string{"note", "tool_call", "note"}}, []hansard.Seq{2, 8, 11, 12}},
		{hansard.Range{Kinds: []string{"nobody's"}}, none},
		{hansard.Range{Kinds: []string{""}}, none},
		{hansard.Range{Kinds: []string{}}, []hansard.Seq{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{hansard.Range{Kinds: []string{"Message"}}, none},
		{hansard.Range{Kinds: []string{"message"}, After: 4, Limit: 2}, []hansard.Seq{6, 7}},
		{hansard.Range{Kinds: []string{"message"}, Last: 3}, []hansard.Seq{6, 7, 10}},
		{hansard.Range{Kinds: []string{"message"}, Last: 3, Limit: 1}, []hansard.Seq{6}},
		{hansard.Range{Kinds: []string{"message"}, Last: 3, After: 6}, []hansard.Seq{7, 10}},
		{hansard.Range{FromSummary: true}, []hansard.Seq{9, 10, 11, 12}},
		{hansard.Range{FromSummary: true, After: 8}, []hansard.Seq{9, 10, 11, 12}},
		{hansard.Range{FromSummary: true, After: 9}, []hansard.Seq{10, 11, 12}},
		{hansard.Range{FromSummary: true, After: 11}, []hansard.Seq{12}},
		{hansard.Range{FromSummary: true, Limit: 2}, []hansard.Seq{9, 10}},
		{hansard.Range{FromSummary: true, Last: 2}, []hansard.Seq{11, 12}},
		{hansard.Range{FromSummary: true, Last: 8}, []hansard.Seq{9, 10, 11, 12}},
		{hansard.Range{FromSummary: true, Kinds: []string{"note"}}, []hansard.Seq{12}},
		{hansard.Range{FromSummary: true, Kinds: []string{"message"}, Last: 5}, []hansard.Seq{10}},
		{hansard.Range{FromSummary: true, Kinds: []string{"summary"}}, []hansard.Seq{9}},
	})
	x.createKinds("without", []string{"message", "note", "message"})
	if got := seqs(x.read("without", hansard.Range{FromSummary: true, After: 1})); !slices.Equal(got, []hansard.Seq{2, 3}) {
		x.Errorf("from the summary that is not there: %d", got)
	}
}

func seqs(events []hansard.Event) []hansard.Seq {
	out := make([]hansard.Seq, 0, len(events))
	for _, e := range events {
		out = append(out, e.Seq)
	}
	return out
}

// chosen is the meaning of a range, computed differently from any engine: which seqs of
// a log with these kinds it selects.
func chosen(kinds []string, r hansard.Range) []hansard.Seq {
	from := r.FromKind
	if r.FromSummary {
		from = hansard.KindSummary
	}
	in := func(seq hansard.Seq) bool { return seq > r.After && (r.Before == 0 || seq < r.Before) }
	start := hansard.Seq(0)
	for i, k := range kinds {
		if from != "" && k == from && in(hansard.Seq(i+1)) {
			start = hansard.Seq(i + 1)
		}
	}
	out := []hansard.Seq{}
	for i, k := range kinds {
		seq := hansard.Seq(i + 1)
		if in(seq) && seq >= start && (len(r.Kinds) == 0 || slices.Contains(r.Kinds, k)) {
			out = append(out, seq)
		}
	}
	for r.Last > 0 && len(out) > r.Last {
		out = out[1:]
	}
	if r.Reverse {
		slices.Reverse(out)
	}
	for r.Limit > 0 && len(out) > r.Limit {
		out = out[:len(out)-1]
	}
	return out
}

func randomRange(rng *rand.Rand, n int) hansard.Range {
	var r hansard.Range
	if rng.IntN(2) == 0 {
		r.After = hansard.Seq(rng.IntN(n + 3))
	}
	if rng.IntN(3) == 0 {
		r.Before = hansard.Seq(rng.IntN(n + 3))
	}
	if rng.IntN(3) == 0 {
		r.Limit = rng.IntN(n + 3)
	}
	if rng.IntN(2) == 0 {
		r.Last = rng.IntN(n + 3)
	}
	for range rng.IntN(3) {
		r.Kinds = append(r.Kinds, kindsOf[rng.IntN(len(kindsOf))])
	}
	switch rng.IntN(5) {
	case 0:
		r.FromSummary = true
	case 1:
		r.FromKind = kindsOf[rng.IntN(len(kindsOf))]
	}
	r.Reverse = rng.IntN(3) == 0
	return r
}

func readRandomRanges(x *env) {
	for round := range 12 {
		kinds := make([]string, x.rng.IntN(40))
		for i := range kinds {
			kinds[i] = kindsOf[x.rng.IntN(len(kindsOf))]
		}
		id := hansard.SessionID(fmt.Sprint("s", round))
		x.createKinds(id, kinds)
		if round%4 == 3 {
			x.reopen()
		}
		for range 60 {
			r := randomRange(x.rng, len(kinds))
			if got, want := seqs(x.read(id, r)), chosen(kinds, r); !slices.Equal(got, want) {
				x.Fatalf("%+v of %q gives %d, want %d", r, kinds, got, want)
			}
		}
	}
}

func readInvalidRange(x *env) {
	x.create("s")
	for _, r := range []hansard.Range{{Limit: -1}, {Last: -1}, {Limit: math.MinInt, After: 1}, {Last: -5, Limit: 5},
		{Reverse: true, Limit: -1}, {Reverse: true, Last: -1}, {FromSummary: true, FromKind: "note"}} {
		_, err := readRange(x.ctx, x.store, "s", r)
		x.wantErr(fmt.Sprintf("Read(%+v)", r), err, hansard.ErrInvalid)
	}
}

func readBreak(x *env) {
	x.createKinds("s", kindsOf)
	for stop := range kindsOf {
		n := 0
		for e, err := range x.store.Read(x.ctx, "s", hansard.Range{}) {
			if err != nil || e.Seq != hansard.Seq(n+1) {
				x.Fatalf("seq %d: %v", e.Seq, err)
			}
			if n == stop {
				break
			}
			n++
		}
	}
	for range x.store.Read(x.ctx, "nowhere", hansard.Range{}) {
		break
	}
	x.append("s", texts("still works"))
	if n := len(x.all("s")); n != len(kindsOf)+1 {
		x.Errorf("%d events, want %d", n, len(kindsOf)+1)
	}
}

func readAgain(x *env) {
	x.createKinds("s", kindsOf)
	seq := x.store.Read(x.ctx, "s", hansard.Range{After: 10})
	count := func() (n int) {
		for _, err := range seq {
			if err != nil {
				x.Fatal(err)
			}
			n++
		}
		return n
	}
	if n := count(); n != 2 {
		x.Errorf("first %d events, want 2", n)
	}
	x.append("s", texts("one more"))
	if n := count(); n != 3 {
		x.Errorf("then %d events, want 3", n)
	}
}

// readKept keeps every event of a read, modifies each as its owner may, and checks that
// the others are unchanged: in batches of one and of many, in both directions.
func readKept(x *env) {
	x.create("s")
	for i := range 30 {
		x.append("s", texts(fmt.Sprintf("alone %d %s", i, strings.Repeat("x", i*i))))
		x.append("s", texts(fmt.Sprintf("first %d", i), "", fmt.Sprintf("last %d", i)))
	}
	want := x.all("s")
	for i := range want { // in separate memory, whatever the engine did
		want[i].Data = slices.Clone(want[i].Data)
	}
	for _, r := range []hansard.Range{{}, {Reverse: true}} {
		kept := x.read("s", r)
		if r.Reverse {
			slices.Reverse(kept)
		}
		for i := range kept {
			if i > 0 {
				clear(kept[i-1].Data)
				_ = append(kept[i-1].Data, "spoilt spoilt spoilt"...)
			}
			if string(kept[i].Data) != string(want[i].Data) {
				x.Fatalf("%+v: event %d is %q when another one is changed, want %q", r, want[i].Seq, kept[i].Data, want[i].Data)
			}
		}
	}
}

// lent copies the events lent for a range, up to most events; 0: all.
func (x *env) lent(id hansard.SessionID, r hansard.Range, most int) (events []hansard.Event, err error) {
	err = hansard.Lend(x.ctx, x.store, id, r, func(e *hansard.Event) bool {
		own := *e
		own.Data = slices.Clone(e.Data)
		events = append(events, own)
		return len(events) != most
	})
	return events, err
}

func readLent(x *env) {
	title := "new"
	x.createKinds("s", kindsOf)
	for n := 1; n <= 2; n++ {
		var e hansard.Event
		Full(&e, n)
		e = Given(e)
		e.Attachments = nil
		x.append("s", hansard.Batch{Events: []hansard.Event{e, text("first\u2028"), text(strings.Repeat("long ", 5000*n))}})
	}
	x.append("s", hansard.Batch{Events: []hansard.Event{{Data: []byte(" {\n\t\"a\": 1 }\n")}, {Data: []byte("[ ]")}}, Patch: &hansard.Patch{Title: &title}})
	x.redact("s", hansard.Redaction{Seqs: []hansard.Seq{2, 14}})
	for _, r := range []hansard.Range{{}, {Reverse: true}, {Last: 4}, {Kinds: []string{"message"}, Last: 3}, {After: 3, Before: 9}, {FromSummary: true}, {After: 100}, {Limit: 5}, {ID: "no such event"}, {Limit: -1}} {
		want, wantErr := readRange(x.ctx, x.store, "s", r)
		got, err := x.lent("s", r, 0)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			x.Errorf("%+v: lending ends with %v, reading with %v", r, err, wantErr)
		}
		if d := diffEvents(got, want); d != "" {
			x.Errorf("%+v: lent is not what is read: %s", r, d)
		}
		for most := 1; most <= len(want); most += 3 {
			if got, err := x.lent("s", r, most); err != nil || len(got) != most {
				x.Errorf("%+v: %d events are lent to who wants %d, %v", r, len(got), most, err)
			}
		}
	}
	if _, err := x.lent("nobody", hansard.Range{}, 0); !errors.Is(err, hansard.ErrNotFound) {
		x.Errorf("a session that is not there is lent: %v", err)
	}
	// A caller that is shown an event may call the store.
	n := 0
	err := hansard.Lend(x.ctx, x.store, "s", hansard.Range{Limit: 3}, func(e *hansard.Event) bool {
		n += len(x.read("s", hansard.Range{After: e.Seq, Limit: 2}))
		return true
	})
	if err != nil || n != 6 {
		x.Errorf("%d events are read while others are lent, %v; want 6", n, err)
	}
}

func readCancelled(x *env) {
	x.create("s")
	for i := range 20 {
		x.append("s", hansard.Batch{Events: Marked("w", i, 100, 100)})
	}
	const total = 2000
	for _, after := range []int{1, 2, 100, 1999} {
		ctx, cancel := context.WithCancel(x.ctx)
		n, failed := 0, error(nil)
		for _, err := range x.store.Read(ctx, "s", hansard.Range{}) {
			if err != nil {
				failed = err
				continue
			}
			if n++; n == after {
				cancel()
			}
		}
		cancel()
		if failed == nil && n != total || failed != nil && !errors.Is(failed, context.Canceled) {
			x.Errorf("cancelled after %d events: %d of %d came, and then %v", after, n, total, failed)
		}
	}
}

func readNoLock(x *env) {
	x.create("s")
	for i := range 10 {
		x.append("s", hansard.Batch{Events: Marked("w", i, 100, 100)})
	}
	// Every call is made in the middle of a read.
	inside := x.start("calls from inside a reading", func() error {
		for e, err := range x.store.Read(x.ctx, "s", hansard.Range{}) {
			if err != nil {
				return err
			}
			if e.Seq != 500 {
				continue
			}
			b := hansard.Batch{Events: Marked("inside", 1, 100, 100)}
			if _, err := x.store.Append(x.ctx, "s", b); err != nil {
				return err
			}
			if _, err := x.store.Create(x.ctx, "t", hansard.Meta{}); err != nil {
				return err
			}
			if events, err := readRange(x.ctx, x.store, "s", hansard.Range{}); err != nil || len(events) != 1100 {
				return fmt.Errorf("a reading inside a reading gave %d events: %w", len(events), err)
			}
			for _, err := range x.store.List(x.ctx, hansard.Query{}) {
				if err != nil {
					return err
				}
				if _, err := x.store.Stat(x.ctx, "s"); err != nil {
					return err
				}
			}
			if err := x.store.Wait(x.ctx, "s", 1050); err != nil {
				return err
			}
			return x.store.Delete(x.ctx, "t", "")
		}
		return errors.New("the reading ended before the middle")
	})
	inside.finish()

	// A reader pauses while writers continue.
	standing, resume := make(chan struct{}), make(chan struct{})
	slow := x.start("a slow reader", func() error {
		var got []hansard.Event
		for e, err := range x.store.Read(x.ctx, "s", hansard.Range{}) {
			if err != nil {
				return err
			}
			if got = append(got, e); len(got) == 1 {
				close(standing)
				<-resume
			}
		}
		return CheckWhole(got)
	})
	slow.reaches("the first event", standing)
	x.each(4, "writer past a slow reader", func(i int) error {
		w := writer{Name: fmt.Sprint("w", i), Sessions: []hansard.SessionID{"s"}, From: 1000, Batches: 25, Largest: 4}
		return w.run(x.ctx, x.store, func(report) {})
	})
	close(resume)
	slow.finish()
}

func readChangesNothing(x *env) {
	x.createWith("s", richMeta)
	x.createKinds("t", kindsOf)
	before, err := snapshot(x.ctx, x.store)
	if err != nil {
		x.Fatal(err)
	}
	order := ids(x.list(hansard.Query{}))
	for range 3 {
		for _, id := range []hansard.SessionID{"s", "t"} {
			x.all(id)
			x.read(id, hansard.Range{Last: 2})
			x.stat(id)
		}
		x.list(hansard.Query{Text: "s"})
		if err := x.store.Wait(x.ctx, "t", 0); err != nil {
			x.Error(err)
		}
	}
	after, err := snapshot(x.ctx, x.store)
	if err != nil {
		x.Fatal(err)
	}
	for id := range before {
		if diff := diffInfo(after[id].info, before[id].info); diff != "" {
			x.Errorf("session %s after being looked at: %s", id, diff)
		}
		if after[id].info.Bytes != before[id].info.Bytes {
			x.Errorf("session %s had %d bytes and has %d", id, before[id].info.Bytes, after[id].info.Bytes)
		}
	}
	if got := ids(x.list(hansard.Query{})); !slices.Equal(got, order) {
		x.Errorf("the list was %q and is %q", order, got)
	}
}
