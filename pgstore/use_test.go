package pgstore

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"hansard"
	"hansard/engine"
)

// testsOwn marks statements that the test itself sends.
const testsOwn = "/* test */ "

// UseEverything calls everything a store can do, at least once. Session "s" is gone afterwards.
func UseEverything(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	one := []hansard.Event{{Data: []byte("1")}}
	_, err := s.Create(ctx, "s", hansard.Meta{Labels: map[string]string{"team": "blue", "other": "1"}})
	must(err)
	b := hansard.Batch{Events: one, Key: "k", Patch: &hansard.Patch{Labels: map[string]*string{"team": ptr("red")}}}
	for range 2 {
		_, err = s.Append(ctx, "s", b)
		must(err)
	}
	_, err = s.Append(ctx, "s", hansard.Batch{Events: one, Key: "k2"})
	must(err)
	if _, err = s.Append(ctx, "s", hansard.Batch{Events: one, Expect: hansard.At(77)}); !errors.Is(err, hansard.ErrConflict) {
		t.Fatal(err)
	}
	useTurns(ctx, t, s)
	useAttachments(ctx, t, s)
	for _, f := range []hansard.Fork{{As: "s.fork"}, {As: "s.early", At: 1, Meta: hansard.Meta{Title: "early", State: []byte("{}")}}} {
		_, err = s.Fork(ctx, "s", f)
		must(err)
	}
	_, err = s.Redact(ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{1}})
	must(err)
	must(s.Probe(ctx))
	must(s.Wait(ctx, "s", 0))
	for _, r := range []hansard.Range{{}, {FromSummary: true}, {Last: 2}, {Kinds: []string{"message"}}, {Reverse: true, Before: 3}, {FromKind: "note"}} {
		for _, err := range s.Read(ctx, "s", r) {
			must(err)
		}
	}
	_, err = s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{hansard.Message("user", "a word")}})
	must(err)
	found := 0
	for _, err := range s.Search(ctx, hansard.SearchQuery{Text: "word", Labels: map[string]string{"team": "red"}}) {
		must(err)
		found++
	}
	if found != 1 {
		t.Fatalf("a word is found %d times", found)
	}
	for _, q := range []hansard.Query{
		{}, {Labels: map[string]string{"team": "red", "other": "1"}, Text: "S"}, {Prefix: "s"}, {IDs: []hansard.SessionID{"s"}}, {Parent: "s"},
		{Order: hansard.OrderCreated}, {Order: hansard.OrderCreated, Text: "S"}, {Order: hansard.OrderCreated, Labels: map[string]string{"team": "red"}},
	} {
		n := 0
		for _, err := range s.List(ctx, q) {
			must(err)
			n++
		}
		if n == 0 {
			t.Errorf("%+v lists nothing", q)
		}
	}
	for f, err := range s.Verify(ctx, "") {
		must(err)
		if f.Level != hansard.LevelOK {
			t.Errorf("verify: %+v", f)
		}
	}
	_, err = s.Warnings(ctx)
	must(err)
	must(s.Import(ctx, hansard.Part{Origin: hansard.Origin{ID: "i", Created: engine.Now()}, Events: []hansard.Event{{Seq: 1, Time: engine.Now(), Kind: "message", Data: []byte("1")}}}))
	for _, err := range s.Origins(ctx, "") {
		must(err)
	}
	for _, err := range s.Keys(ctx, "s", 0) {
		must(err)
	}
	must(s.Delete(ctx, "s", ""))
}

// useTurns takes the turn, has another caller wait for it, and releases it.
func useTurns(ctx context.Context, t testing.TB, s *Store) {
	t.Helper()
	turn, err := s.Acquire(ctx, "s", hansard.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	waiting := later(func() (struct{}, error) {
		next, err := s.Acquire(ctx, "s", hansard.Claim{Wait: time.Minute})
		if err == nil {
			err = s.Release(ctx, "s", next.Grant)
		}
		return struct{}{}, err
	})
	until(t, "it waits", func() bool {
		var n int
		if err := s.pool.QueryRow(ctx, testsOwn+"SELECT count(*) FROM hansard_waiting WHERE id = 's'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	until(t, "it has shown that it still waits", func() bool {
		var later bool
		if err := s.pool.QueryRow(ctx, testsOwn+"SELECT bool_or(seen > since) FROM hansard_waiting WHERE id = 's'").Scan(&later); err != nil {
			t.Fatal(err)
		}
		return later
	})
	if err := s.Renew(ctx, "s", turn.Grant); err != nil {
		t.Fatal(err)
	}
	if held, err := s.Turn(ctx, "s"); err != nil || held == nil {
		t.Fatalf("%+v, %v", held, err)
	}
	if err := s.Release(ctx, "s", turn.Grant); err != nil {
		t.Fatal(err)
	}
	if got := <-waiting; got.err != nil {
		t.Fatal(got.err)
	}
}

// useAttachments attaches content, also content that is there already and content that breaks
// off, and names and reads it.
func useAttachments(ctx context.Context, t testing.TB, s *Store) {
	t.Helper()
	content := strings.Repeat("x", partBytes+1)
	var a hansard.Attachment
	for range 2 {
		var err error
		if a, err = s.Attach(ctx, "s", strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	broken := errors.New("broken")
	if _, err := s.Attach(ctx, "s", iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), ID: "names", Attachments: []hansard.Attachment{a}}}}); err != nil {
		t.Fatal(err)
	}
	for a, err := range s.Attachments(ctx, "s") {
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.OpenAttachment(ctx, "s", a.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != content {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}
