package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore"
)

// collect reads all records of an input.
func collect(t *testing.T, in io.Reader) ([]record, error) {
	t.Helper()
	var records []record
	for rec := range readRecords(t.Context(), in, hansard.Event{Role: "dflt"}) {
		if rec.err != nil {
			return records, rec.err
		}
		records = append(records, rec)
	}
	return records, nil
}

// TestDeepRecords: a line of show --json is read however deeply a store lets its data be nested,
// and deeper data is refused.
func TestDeepRecords(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	records, err := collect(t, strings.NewReader(`{"seq":1,"data":`+nested(10_000)+`,"role":"user"}`))
	if err != nil || len(records) != 1 || records[0].event.Role != "user" || string(records[0].event.Data) != nested(10_000) {
		t.Errorf("%d records, %v", len(records), err)
	}
	for _, line := range []string{`{"seq":1,"data":` + nested(10_001) + `}`, `{"a":` + nested(10_000) + `}`} {
		if records, err := collect(t, strings.NewReader(line)); !errors.Is(err, hansard.ErrInvalid) {
			t.Errorf("%.20s…: %d records, %v", line, len(records), err)
		}
	}
}

// TestRecords: an object with a data member is an event, anything else is data, and data keeps
// its bytes.
func TestRecords(t *testing.T) {
	in := strings.Join([]string{
		`{"data": { "b":1.0, "a":"\u003c" } , "role":"user", "kind":"k", "author":"x", "inbox":true}`,
		``,
		"  \t ",
		`{"Data":1}`,
		`{"data":null}`,
		`  [1,  2]  ` + "\r",
		`{"seq":9,"time":"2024-01-01T00:00:00Z","turn":"7-x","data":"again","role":""}`,
		`{"a":1,"a":2}`,
		`"last"`,
	}, "\n")
	want := []struct {
		line       int
		role, data string
	}{
		{1, "user", `{ "b":1.0, "a":"\u003c" }`},
		{4, "dflt", `{"Data":1}`},
		{5, "dflt", `null`},
		{6, "dflt", `[1,  2]`},
		{7, "", `"again"`},
		{8, "dflt", `{"a":1,"a":2}`},
		{9, "dflt", `"last"`},
	}
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(in), "one byte at a time": iotest.OneByteReader(strings.NewReader(in)),
	} {
		got, err := collect(t, r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(got) != len(want) {
			t.Fatalf("%s: %d records, want %d", name, len(got), len(want))
		}
		for i, w := range want {
			if g := got[i]; g.line != w.line || g.event.Role != w.role || string(g.event.Data) != w.data || g.event.Seq != 0 || g.event.Turn != "" {
				t.Errorf("%s: record %d is %d %+v %s, want %+v", name, i, g.line, g.event, g.event.Data, w)
			}
		}
		if e := got[0].event; e.Kind != "k" || e.Author != "x" || !e.Inbox {
			t.Errorf("%s: first event is %+v", name, e)
		}
	}
}

// TestRecordsRefused: errors are reported with their line, and nothing after it is returned.
func TestRecordsRefused(t *testing.T) {
	long := `"` + strings.Repeat("x", maxLineBytes) + `"`
	for in, want := range map[string]string{
		"{oops":                      "line 2: invalid data: it is not JSON",
		"1 2":                        "line 2: invalid data",
		"\xef\xbb\xbf1":              "line 2: invalid event: it begins with a byte order mark",
		"\"\xff\"":                   "line 2: invalid event: it is not valid UTF-8",
		`{"data":1,"x":2}`:           `line 2: invalid event: an event has no member "x"`,
		`{"data":1,"data":1}`:        `line 2: invalid event: member "data" comes twice`,
		`{"data":1,"kind":2}`:        "line 2: invalid kind",
		`{"data":1,"inbox":"yes"}`:   "line 2: invalid inbox",
		`{"data":1,"patch":{"x":1}}`: "line 2: invalid patch",
		`{"data":1,"role":"\u0000"}`: "line 2: invalid role: it has a NUL byte",
		`{"data":1,"kind":"` + strings.Repeat("k", 300) + `"}`: "line 2: invalid kind: 300 bytes",
		long: "line 2: invalid line: it is longer than",
	} {
		records, err := collect(t, strings.NewReader("1\n"+in+"\n3\n"))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: error %v, want %q", in, err, want)
		}
		if len(records) != 1 {
			t.Errorf("%.40q: %d records before the error, want 1", in, len(records))
		}
		if exit, _ := outcome(t.Context(), err); exit != exitUsage {
			t.Errorf("%.40q: exit %d, want %d", in, exit, exitUsage)
		}
	}
}

// TestRecordsReadError: an input that breaks off is an error, never the end.
func TestRecordsReadError(t *testing.T) {
	_, err := collect(t, io.MultiReader(strings.NewReader("1\n2"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if err == nil || !strings.Contains(err.Error(), "line 2: unexpected EOF") {
		t.Errorf("error %v, want one about line 2", err)
	}
}

// TestRecordsStop: the reading goroutine ends when nobody takes its records any more.
func TestRecordsStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	records := readRecords(ctx, strings.NewReader("1\n2\n3\n"), hansard.Event{})
	<-records
	cancel()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case _, ok := <-records:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("the reader did not end")
		}
	}
}

// TestEventJSON: an event is one line, with its data byte for byte unless that would break the
// line.
func TestEventJSON(t *testing.T) {
	at := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	for data, want := range map[string]string{
		`{ "a" : 1.00, "b":"\u003c<&" }`: `{ "a" : 1.00, "b":"\u003c<&" }`,
		"[1,\n 2]":                       `[1,2]`,
		"[1,\r2]":                        `[1,2]`,
		`null`:                           `null`,
		`"null}"`:                        `"null}"`,
	} {
		var buf bytes.Buffer
		out := newOutput(&buf)
		title := "<T>"
		if err := out.eventJSON(hansard.Event{Seq: 3, Time: at, Kind: "k", Inbox: true, Patch: &hansard.Patch{Title: &title}, Data: json.RawMessage(data)}); err != nil {
			t.Fatal(err)
		}
		out.Flush()
		line := `{"seq":3,"time":"2024-01-02T03:04:05Z","kind":"k","role":"","author":"","turn":"","inbox":true,"patch":{"title":"<T>"},"data":` + want + "}\n"
		if got := buf.String(); got != line {
			t.Errorf("%q:\n%swant\n%s", data, got, line)
		}
	}
}

func FuzzRecord(f *testing.F) {
	for _, seed := range []string{`{"data":1}`, `{"role":"user","content":"x"}`, `{"seq":1,"kind":"turn","data":{}}`, `[1]`, `{"data":{"a":[null]},"patch":{"labels":{"a":null}}}`, "\xef\xbb\xbf", `{"`, `{"data":`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(bytes.TrimSpace(line)) == 0 {
			return
		}
		rec, err := parseRecord(line, hansard.Event{})
		if err != nil {
			if exit, _ := outcome(t.Context(), err); exit != exitUsage {
				t.Fatalf("%q: %v has exit code %d", line, err, exit)
			}
			return
		}
		if rec.left != "" {
			return // can't be appended
		}
		if err := engine.CheckBatch(&hansard.Batch{Events: []hansard.Event{rec.event}, Patch: rec.patch}); err != nil {
			t.Fatalf("%q was taken, the store refuses it: %v", line, err)
		}
		if !bytes.Contains(line, rec.event.Data) {
			t.Fatalf("%q gave data %q", line, rec.event.Data)
		}
	})
}

// TestAppendAgain: the output of show --json of any session can be appended: with turns, metadata
// changes on any event, deleted items, lost events, and more of them than one append takes. Only
// what the store itself writes is left out.
func TestAppendAgain(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	store := t.TempDir() + "/store"
	s, err := filestore.Open(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	pick := func(from ...string) string { return from[rnd.IntN(len(from))] }
	ctx := t.Context()
	for i := range 12 {
		id := hansard.SessionID(fmt.Sprint("s", i))
		if _, err := s.Create(ctx, id, hansard.Meta{Title: "before"}); err != nil {
			t.Fatal(err)
		}
		steps := 1 + rnd.IntN(30)
		if i == 0 {
			steps = 3
			large := hansard.Batch{}
			for n := range 15_000 {
				if large.Events = append(large.Events, hansard.Message("user", fmt.Sprint("message ", n))); len(large.Events) == 7500 {
					if _, err := s.Append(ctx, id, large); err != nil {
						t.Fatal(err)
					}
					large.Events = nil
				}
			}
		}
		for range steps {
			b := hansard.Batch{}
			for range rnd.IntN(4) {
				b.Events = append(b.Events, hansard.Event{Kind: pick("message", "tool_call", "tool_result", "summary", "own", "item_deleted", "lost"), Role: pick("", "user", "tool"), Author: pick("", "ada"),
					Inbox: rnd.IntN(5) == 0, Data: []byte(pick("null", `"text"`, "{ \"a\" : 1.50,\n\"b\":[] }", `{"seq":3,"id":"item_3"}`, `{"role":"user","content":"x"}`, `{"data":1}`, `"\u2028\u0000"`))})
			}
			if rnd.IntN(3) == 0 || len(b.Events) == 0 {
				title, label := pick("", "a title"), "v"
				b.Patch = &hansard.Patch{Title: &title, Labels: map[string]*string{pick("k", "l"): &label, "gone": nil}, State: []byte(pick("", `{"n":1,"o":null}`))}
			}
			if rnd.IntN(4) == 0 {
				turn, err := s.Acquire(ctx, id, hansard.Claim{Label: "planner", Steal: "mine"})
				if err != nil {
					t.Fatal(err)
				}
				b.Turn = turn.Grant
			}
			if _, err := s.Append(ctx, id, b); err != nil {
				t.Fatalf("%+v: %v", b, err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	do := func(stdin string, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, told bytes.Buffer
		if code := run(ctx, append(args, "--store", store), strings.NewReader(stdin), &out, &told); code != 0 {
			t.Fatalf("%v: exit code %d\n%s", args, code, told.String())
		}
		return out.String(), told.String()
	}
	for i := range 12 {
		from, to := fmt.Sprint("s", i), fmt.Sprint("copy", i)
		before, _ := do("", "show", from, "--json")
		do("", "new", to, "--title", "before")
		args := []string{"append", to, "--jsonl", "-"}
		if i%3 == 2 {
			args = append(args, "--each")
		}
		_, told := do(before, args...)
		after, _ := do("", "show", to, "--json")
		want, left := appended(t, before)
		got, _ := appended(t, after)
		if !slices.Equal(got, want) {
			t.Errorf("%s has %d events, its copy %d of %d that can be appended", from, strings.Count(before, "\n"), len(got), len(want))
		}
		if (left > 0) != strings.Contains(told, "left out: ") {
			t.Errorf("%s: %d events were left out, and told was %q", from, left, told)
		}
		state := func(id string) string {
			text, _ := do("", "stat", id, "--json")
			var info struct{ Title, Labels, State json.RawMessage }
			if err := json.Unmarshal([]byte(text), &info); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%s %s %s", info.Title, info.Labels, info.State)
		}
		if a, b := state(from), state(to); a != b {
			t.Errorf("%s is %s, its copy %s", from, a, b)
		}
	}
}

// appended returns those of a session's events, as show --json prints them, that can be appended
// again, without what the store sets; and how many can't.
func appended(t *testing.T, text string) (events []string, left int) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e struct {
			Kind, Role, Author string
			Inbox              bool
			Patch, Data        json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Kind == "turn", e.Kind == "item_deleted" && e.Patch == nil, e.Kind == "lost" && e.Role+e.Author == "" && !e.Inbox && e.Patch == nil && string(e.Data) == "null":
			left++
			continue
		case e.Kind == "item_deleted":
			events = append(events, fmt.Sprintf("meta   false %s null", e.Patch))
			continue
		}
		events = append(events, fmt.Sprintf("%s %s %s %v %s %s", e.Kind, e.Role, e.Author, e.Inbox, e.Patch, e.Data))
	}
	return events, left
}

// late is a context that ends after it was looked at for the first time.
type late struct {
	context.Context
	looks int
}

func (l *late) Err() error {
	if l.looks++; l.looks > 1 {
		return context.Canceled
	}
	return nil
}

// TestNextStopped: lines that end because a signal came are not taken for all of the input.
func TestNextStopped(t *testing.T) {
	records := make(chan record)
	close(records)
	if _, ok, err := next(&late{Context: context.Background()}, records); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", ok, err)
	}
}
