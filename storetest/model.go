package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"hansard"
	"hansard/memstore"
)

var modelCases = []Case{
	{Name: "model/random operations", run: modelRandom,
		Defends: "any sequence of calls gets the same answers as on the model, across handles and opening again", Answers: "9 34"},
}

// sentinels are the errors by which two answers are compared, the narrower first.
var sentinels = []error{
	hansard.ErrTooLarge, hansard.ErrInvalid, hansard.ErrNotFound, hansard.ErrDeleted, hansard.ErrExists, hansard.ErrConflict,
	hansard.ErrKeyReused, hansard.ErrIDReused, hansard.ErrNoEvent, hansard.ErrNoAttachment, hansard.ErrFenced, hansard.ErrHeld, hansard.ErrClosed, hansard.ErrUnknown, hansard.ErrDamaged, context.Canceled,
}

// answer is the result of a call, as text that can be compared between engines.
func answer(v any, err error) string {
	var conflict *hansard.ConflictError
	var failed *hansard.StateTestError
	var reused *hansard.KeyReusedError
	var reusedIDs *hansard.IDReusedError
	switch {
	case err == nil:
		return fmt.Sprintf("%+v", v)
	case errors.As(err, &conflict):
		return fmt.Sprintf("conflict %+v", *conflict)
	case errors.As(err, &failed):
		return fmt.Sprintf("test failed %+v", *failed)
	case errors.As(err, &reused):
		return fmt.Sprintf("key reused %+v", *reused)
	case errors.As(err, &reusedIDs):
		return fmt.Sprintf("ids reused %+v", *reusedIDs)
	}
	if text, ok := answerTurn(err); ok {
		return text
	}
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return "error: " + s.Error()
		}
	}
	return "an error outside the contract: " + err.Error()
}

func modelRandom(x *env) {
	inMemory := memstore.New()
	defer inMemory.Close()
	model, grants := &side{inMemory, newGrantsGiven()}, newGrantsGiven()
	handles := x.handles(2)
	var done []string // the calls so far, for the report
	stored := 0
	for step := range 2000 {
		if step%400 == 399 && x.engine.Reopen != nil {
			// What happens to a turn whose handle is closed is up to the engine.
			if got, want := releaseAllOn(x.ctx, &side{x.store, grants}), releaseAllOn(x.ctx, model); !slices.Equal(got, want) {
				x.Fatalf("step %d: releasing all turns:\n got: %q\nwant: %q", step, got, want)
			}
			x.reopen()
			handles[0] = x.store
			done = append(done, "reopen")
		}
		s := &side{handles[x.rng.IntN(len(handles))], grants}
		// Deletion is permanent, so new sessions are added now and then.
		what, call := randomCall(x.rng, step/400)
		done = append(done, what)
		got, want := call(x.ctx, s), call(x.ctx, model)
		if got != want {
			x.Fatalf("step %d: %s\n got: %s\nwant: %s\nbefore it:\n  %s", step, what, got, want,
				strings.Join(done[max(0, len(done)-20):len(done)-1], "\n  "))
		}
		if strings.HasPrefix(what, "Append") && strings.HasPrefix(got, "{Session") {
			stored++
		}
	}
	if stored < 100 {
		x.Errorf("the sequence stored only %d batches: too little to judge by", stored)
	}
}

// modelCall makes one call and returns its answer as text.
type modelCall func(ctx context.Context, s *side) string

// randomCall draws one call. Ids, keys and contents come from small pools, so
// that sessions exist, keys are reused and expected seqs sometimes hold.
func randomCall(rng *rand.Rand, epoch int) (string, modelCall) {
	id := hansard.SessionID(fmt.Sprint([]string{"a", "A", "b", "c-", "d", "e", "f", "g", "h", "../x"}[rng.IntN(10)], max(0, epoch-rng.IntN(2))))
	switch n := rng.IntN(29); {
	case n == 28:
		f := hansard.Fork{At: hansard.Seq(rng.IntN(10)), As: hansard.SessionID(fmt.Sprint([]string{"a", "A", "b", "c-", "g", "h", "i"}[rng.IntN(7)], epoch))}
		if rng.IntN(2) == 0 {
			f.Meta = hansard.Meta{Title: "forked", Labels: map[string]string{"l": fmt.Sprint(rng.IntN(2))}, State: []byte(`{"f":1}`)}
		}
		return fmt.Sprintf("Fork(%q, %+v)", id, f), func(ctx context.Context, s *side) string {
			info, err := s.Fork(ctx, id, f)
			return answer(plain(info), err)
		}
	case n == 0:
		m := hansard.Meta{Title: fmt.Sprint("title ", rng.IntN(3)), Labels: map[string]string{"l": fmt.Sprint(rng.IntN(2))}, State: []byte(`{"a":1}`)}
		return fmt.Sprintf("Create(%q)", id), func(ctx context.Context, s *side) string {
			info, err := s.Create(ctx, id, m)
			return answer(plain(info), err)
		}
	case n <= 9:
		b := randomBatch(rng)
		before := rng.IntN(6) - 4 // under the last grant, the one before it, or none
		return fmt.Sprintf("Append(%q, %s, %d before the last)", id, showBatch(b), before), func(ctx context.Context, s *side) string {
			b := b
			if before >= 0 {
				b.Turn = s.given(id, before)
			}
			r, err := s.Append(ctx, id, b)
			return answer(r, err)
		}
	case n <= 14:
		r := randomRange(rng, 10) // about as long as the logs get
		if rng.IntN(10) == 0 {
			r.Last = -1
		}
		return fmt.Sprintf("Read(%q, %+v)", id, r), func(ctx context.Context, s *side) string {
			events, err := readRange(ctx, s, id, r)
			return answer(plainEvents(events), err)
		}
	case n <= 16:
		return fmt.Sprintf("Stat(%q)", id), func(ctx context.Context, s *side) string {
			info, err := s.Stat(ctx, id)
			return answer(plain(info), err)
		}
	case n <= 18:
		q := randomQuery(rng)
		return fmt.Sprintf("List(%+v)", q), func(ctx context.Context, s *side) string { return answerList(ctx, s, q) }
	case n > 25:
		return randomRedaction(rng, id)
	case n > 19:
		return randomTurnCall(rng, id)
	case rng.IntN(6) > 0:
		after := hansard.Seq(rng.IntN(4))
		// With a context that has ended: an answer without waiting.
		return fmt.Sprintf("Wait(%q, %d)", id, after), func(ctx context.Context, s *side) string {
			info, err := s.Stat(ctx, id)
			if err != nil || info.LastSeq <= after {
				ended, cancel := context.WithCancel(ctx)
				cancel()
				ctx = ended
			}
			return answer("", s.Wait(ctx, id, after))
		}
	default:
		turn, before := hansard.Grant([]string{"", "", "1-00"}[rng.IntN(3)]), rng.IntN(4)-2
		return fmt.Sprintf("Delete(%q, %q, %d before the last)", id, turn, before), func(ctx context.Context, s *side) string {
			turn := turn
			if before >= 0 {
				turn = s.given(id, before)
			}
			return answer("", s.Delete(ctx, id, turn))
		}
	}
}

func randomRedaction(rng *rand.Rand, id hansard.SessionID) (string, modelCall) {
	r := hansard.Redaction{Reason: "a reason"}
	for range rng.IntN(20) / 6 { // sometimes none
		r.Seqs = append(r.Seqs, hansard.Seq(rng.IntN(24)/3))
	}
	before := rng.IntN(6) - 4 // as for an append
	return fmt.Sprintf("Redact(%q, %v, %d before the last)", id, r.Seqs, before), func(ctx context.Context, s *side) string {
		r := r
		if before >= 0 {
			r.Turn = s.given(id, before)
		}
		done, err := s.Redact(ctx, id, r)
		return answer(done, err)
	}
}

func randomBatch(rng *rand.Rand) hansard.Batch {
	var b hansard.Batch
	for range rng.IntN(4) {
		e := hansard.Event{Kind: kindsOf[rng.IntN(len(kindsOf))], Role: []string{"", "user"}[rng.IntN(2)], Data: fmt.Appendf(nil, `{"n": %d }`, rng.IntN(3))}
		if rng.IntN(40) == 0 {
			e.Data = []byte("{")
		}
		if rng.IntN(3) == 0 {
			e = named(fmt.Sprint("id ", rng.IntN(5)), fmt.Sprint(rng.IntN(8)/7)) // mostly the same content
		}
		b.Events = append(b.Events, e)
	}
	if rng.IntN(3) == 0 {
		b.Patch = &hansard.Patch{}
		if rng.IntN(2) == 0 {
			b.Patch.Title = ptr(fmt.Sprint("title ", rng.IntN(3)))
		}
		if rng.IntN(2) == 0 {
			b.Patch.Labels = map[string]*string{"l": []*string{nil, ptr("0"), ptr("1")}[rng.IntN(3)]}
		}
		if rng.IntN(2) == 0 {
			b.Patch.State = []byte([]string{`{"a":null,"b":{"c":1.50}}`, `{"b":{"c":null,"d":[1]}}`, `7`, `null`, `{"a":"\u2028"}`}[rng.IntN(5)])
		} else {
			// Some of them apply to the states that the patches above lead to.
			some := ops{add("/b/d/-", `1.50`), add("/b", `{"d":[]}`), replace("/a", `null`), remove("/b/c"), test("/b/d/0", `1.0`), test("/a", `null`), add("", `{"a":1}`)}
			for range rng.IntN(3) {
				b.Patch.StateOps = append(b.Patch.StateOps, some[rng.IntN(len(some))])
			}
		}
	}
	if rng.IntN(3) == 0 {
		b.Key = fmt.Sprint("key ", rng.IntN(6))
		// Few different contents, so that a key is sometimes reused with the same
		// one.
		b.Events, b.Patch = texts(fmt.Sprint(rng.IntN(2))).Events, nil
	}
	if rng.IntN(4) == 0 {
		b.Expect = hansard.At(hansard.Seq(rng.IntN(20)))
	}
	if rng.IntN(25) == 0 {
		b.Turn = "1-0123456789abcdef"
	}
	if rng.IntN(5) == 0 {
		b = inboxed(b)
	}
	b.Create = rng.IntN(3) == 0
	if rng.IntN(3) == 0 {
		b.Meta = hansard.Meta{Title: "as created", Labels: map[string]string{"l": "0"}, State: []byte(`{"a":2}`)}
	}
	return b
}

func showBatch(b hansard.Batch) string {
	if b.Expect != nil {
		return fmt.Sprintf("expect %d %s", *b.Expect, show(b))
	}
	return show(b)
}

func randomQuery(rng *rand.Rand) hansard.Query {
	var q hansard.Query
	if rng.IntN(2) == 0 {
		q.Labels = map[string]string{"l": fmt.Sprint(rng.IntN(2))}
	}
	if rng.IntN(3) == 0 {
		q.Text = []string{"a", "A", "-1", "title 1", "no such"}[rng.IntN(5)]
	}
	switch rng.IntN(4) {
	case 0:
		q.Prefix = []string{"a", "A", "c-", "d1"}[rng.IntN(4)]
	case 1:
		q.IDs = []hansard.SessionID{"a0", "A1", "f0"}[rng.IntN(3):]
	}
	q.Archived = hansard.Archived(max(0, rng.IntN(6)-3))
	q.Held = rng.IntN(8) == 0
	q.Order = hansard.Order(rng.IntN(2))
	q.Limit = rng.IntN(4)
	if rng.IntN(15) == 0 {
		q.Cursor = "nonsense"
	}
	return q
}

// answerList compares lists as sets: two stores have two clocks. It checks that the
// order is right by the store's own clock, and that the pages make the whole list.
func answerList(ctx context.Context, s hansard.Store, q hansard.Query) string {
	whole := q
	whole.Limit = 0
	all, err := listAll(ctx, s, whole)
	if err != nil {
		return answer(nil, err)
	}
	if !slices.IsSortedFunc(all, inOrder(q.Order)) {
		return fmt.Sprintf("not newest first: %q", ids(all))
	}
	var paged []hansard.Info
	for q.Limit > 0 {
		page, err := listAll(ctx, s, q)
		if err != nil {
			return answer(nil, err)
		}
		paged = append(paged, page...)
		if len(page) < q.Limit {
			break
		}
		q.Cursor = page[len(page)-1].Cursor
	}
	if q.Limit > 0 && !slices.Equal(ids(once(paged)), ids(all)) {
		return fmt.Sprintf("in pages %q, whole %q", ids(paged), ids(all))
	}
	if n, err := hansard.Count(ctx, s, q); err != nil || n != len(all) {
		return fmt.Sprintf("%d are counted (%v), and there are %d", n, err, len(all))
	}
	slices.SortFunc(all, func(a, b hansard.Info) int { return cmp.Compare(a.ID, b.ID) })
	var out []string
	for _, info := range all {
		out = append(out, plain(info))
	}
	return strings.Join(out, "; ")
}

// plain is the text of a description without what differs between stores.
func plain(i hansard.Info) string {
	return fmt.Sprintf("%s %q %q %s last %d parent %s turn %v damage %v", i.ID, i.Title, i.Labels, canonical(i.State), i.LastSeq, show(i.Parent), turnOf(i), i.Damage)
}

func plainEvents(events []hansard.Event) string {
	var out strings.Builder
	for _, e := range events {
		fmt.Fprintf(&out, "[%d %q %q %q %q %d %v %v %v %s", e.Seq, e.ID, e.Kind, e.Role, e.Author, e.Turn.Number(), e.Inbox, e.Redacted, e.Redacts, plainData(&e))
		if e.Fork != nil {
			fmt.Fprintf(&out, " fork %+v", *e.Fork)
		}
		if e.Patch != nil {
			fmt.Fprintf(&out, " patch %s", canonical([]byte(show(e.Patch))))
		}
		out.WriteString("]")
	}
	return out.String()
}

// turnOf is the part of a session's turn that engines agree on.
func turnOf(i hansard.Info) string { return plainTurn(i.Turn) }
