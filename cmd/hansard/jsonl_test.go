package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"hansard"
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

// TestRecords: an object with a data member is an event, anything else is data,
// and data keeps its bytes.
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

// TestRecordsRefused: what is wrong is named with its line, and nothing behind
// it is given.
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

// TestRecordsStop: a reader whose taker is gone ends.
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

// TestEventJSON: an event is one line, its data byte for byte unless that would
// break the line.
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
	for _, seed := range []string{`{"data":1}`, `[1]`, `{"data":{"a":[null]},"patch":{"labels":{"a":null}}}`, "\xef\xbb\xbf", `{"`, `{"data":`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(bytes.TrimSpace(line)) == 0 {
			return
		}
		event, patch, err := parseRecord(line, hansard.Event{})
		if err != nil {
			if exit, _ := outcome(t.Context(), err); exit != exitUsage {
				t.Fatalf("%q: %v has exit code %d", line, err, exit)
			}
			return
		}
		if err := hansard.CheckBatch(&hansard.Batch{Events: []hansard.Event{event}, Patch: patch}); err != nil {
			t.Fatalf("%q was taken, the store refuses it: %v", line, err)
		}
		if !bytes.Contains(line, event.Data) {
			t.Fatalf("%q gave data %q", line, event.Data)
		}
	})
}
