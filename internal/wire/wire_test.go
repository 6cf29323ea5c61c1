package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
)

// TestEvents: an event comes back from each spelling as it was, its data to the
// byte where the spelling promises that.
func TestEvents(t *testing.T) {
	title := "t\u2028<b>"
	for _, data := range []string{
		`null`, `"x"`, `{"a" : [ 1 ,2]}`, "{\n \"a\": 1\r\n}", " 1 ", "\n1", `"\u2028 \ud800 <>&"`, `"é\\\" "`, `{"data":{"raw":"}]"}}`,
		strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), strings.Repeat(`{"a":`, 9_999) + "\n1\n" + strings.Repeat("}", 9_999),
	} {
		e := hansard.Event{Seq: 7, Time: time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC), Kind: "k\"\n", Role: "", Author: "ü", Turn: "7-9f86d081884c7d65", Inbox: true,
			Patch: &hansard.Patch{Title: &title, State: []byte(`{"data":"raw","x":[1.50]}`)}, Data: []byte(data)}
		line := AppendExactLine(nil, &e)
		if bytes.ContainsAny(line, "\r\n") {
			t.Errorf("%.40q: a line with a line break: %.80q", data, line)
		}
		got, err := ParseEvent(line)
		if err != nil || string(got.Data) != data {
			t.Errorf("%.40q came back as %.40q, %v", data, got.Data, err)
		}
		got.Data, e.Data = nil, nil
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(e)
		if !bytes.Equal(a, b) {
			t.Errorf("%s came back as %s", b, a)
		}
		e.Data = []byte(data)
		if got, err := ParseEvent(AppendEvent(nil, &e)); err != nil || string(got.Data) != strings.TrimSpace(data) {
			t.Errorf("as an object, %.40q came back as %.40q, %v", data, got.Data, err)
		}
		if strings.Count(data, "[") < 100 && strings.Count(data, "{") < 100 && !json.Valid(AppendLine(nil, &e)) {
			t.Errorf("%.40q: the line is no JSON", data)
		}
		batch := hansard.Batch{Events: []hansard.Event{{Kind: "k", Data: []byte(data)}, {Data: []byte(data), Inbox: true, Role: "r", Author: "a"}}, Key: "k\x01", Turn: "t", Expect: hansard.At(0), Create: true, Patch: e.Patch}
		back, err := ParseBatch(AppendBatch(nil, &batch))
		if err != nil || len(back.Events) != 2 || string(back.Events[0].Data) != data || string(back.Events[1].Data) != data {
			t.Fatalf("a batch of %.40q: %v", data, err)
		}
		if back.Key != batch.Key || back.Turn != batch.Turn || *back.Expect != 0 || !back.Create || *back.Patch.Title != title || !back.Events[1].Inbox || back.Events[0].Inbox {
			t.Errorf("a batch came back as %+v", back)
		}
	}
}

// TestMembers: what is no object, or not only one, is told as that.
func TestMembers(t *testing.T) {
	for _, bad := range []string{"", " ", "x", "[]", "{", "{}x", "{} {}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{a:1}`, `{"a":tru}`, `{"a":01}`, `{"a":"x}`, `{"a":[}`, `{"a":1]`, "{\"a\":\"\\\"}", `{"\x":1}`} {
		err := EachMember([]byte(bad), func(string, []byte) error { return nil })
		if bad == `{"a":[}` {
			continue // the brackets fit by number; who takes the value sees it
		}
		if !errors.As(err, new(*SyntaxError)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := EachMember([]byte(`{"a":1,"a":2}`), func(string, []byte) error { return nil }); !errors.Is(err, hansard.ErrInvalid) {
		t.Errorf("twice: %v", err)
	}
	var got []string
	err := EachMember([]byte(" { \"a\\u0062\" : {\"x\": \"}\"} , \"c\":[ 1 , \"]\" ] ,\"d\": -1e5 } \n"), func(name string, value []byte) error {
		got = append(got, name+"="+string(value))
		return nil
	})
	if want := `ab={"x": "}"}|c=[ 1 , "]" ]|d=-1e5`; err != nil || strings.Join(got, "|") != want {
		t.Errorf("%q, %v", got, err)
	}
}

// TestScrub: no path is left in a text, and the rest is.
func TestScrub(t *testing.T) {
	for text, want := range map[string]string{
		"open /home/ada/x: permission denied":    "open (a file): permission denied",
		"no room":                                "no room",
		`read "/a b": no`:                        `read (a file) b": no`,
		`C:\store\x is gone`:                     "(a file) is gone",
		"sessions/s.jsonl is torn":               "(a file) is torn",
		"1 / 2":                                  "1 / 2",
		"open /home/Ada Lovelace/journal: no":    "open (a file) (a file): no",
		"on /home/ada: read/write failed":        "on (a file): read/write failed",
		"to `host=/run/pg user=ada`: no":         "to (a file) user=ada`: no",
		"f()\n\t/home/ada/f.go:7 +0x1\nmain.g()": "f()\n\t(a file) +0x1\nmain.g()",
	} {
		if got := Scrub(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// FuzzParseBatch: whatever a client sends, a batch that is taken from it is sent
// on as the same batch, and a body that is JSON is never called broken.
func FuzzParseBatch(f *testing.F) {
	for _, seed := range []string{`{"events":[{"data":1}]}`, `{"events":[{"kind":"k","raw":" 1 "}],"expect":7,"create":true,"patch":{"state":{"a":null}}}`, `{"events":[{"data":{"a":"}"}}],"inbox":true}`, `{"events":[[]]}`, `{}`, `{"a"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := ParseBatch(body)
		if err != nil {
			if errors.As(err, new(*SyntaxError)) && json.Valid(body) && bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) && !strangeShape(body) {
				t.Errorf("%q is JSON, and was called broken: %v", body, err)
			}
			return
		}
		if engine.CheckBatch(&b) != nil {
			return
		}
		again, err := ParseBatch(AppendBatch(nil, &b))
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if engine.ContentHash(engine.Normalize(&b)) != engine.ContentHash(engine.Normalize(&again)) {
			t.Errorf("%q: another batch came back", body)
		}
	})
}

// strangeShape reports whether "events" is something else than a list of objects,
// which is called broken too.
func strangeShape(body []byte) bool {
	var shape struct{ Events []map[string]json.RawMessage }
	return json.Unmarshal(body, &shape) != nil || bytes.Contains(body, []byte("null"))
}

// TestParseKey: in quotes, with backslashes, or without.
func TestParseKey(t *testing.T) {
	for header, want := range map[string]string{`k`: "k", ` k `: "k", `"k"`: "k", `"a\"b\\c"`: `a"b\c`, `a"b`: `a"b`, `a\b`: `a\b`, `"a b"`: "a b", `é`: "é",
		``: "", ` `: "", `""`: "", `"`: "", `"a`: "", `"a"b"`: "", `"a\x"`: "", `"a\`: "", `"a"b`: ""} {
		got, err := ParseKey([]string{header})
		if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, hansard.ErrInvalid) {
			t.Errorf("%s: %q, %v, want %q", header, got, err, want)
		}
	}
	if _, err := ParseKey([]string{"a", "a"}); !errors.Is(err, hansard.ErrInvalid) {
		t.Errorf("twice: %v", err)
	}
}

// TestParseBounds: reading a body of very many small things ends with the first that
// is too many: decoded they would take a hundred times the memory.
func TestParseBounds(t *testing.T) {
	many := func(what string) string { return "[" + strings.Repeat(what+",", 1_000_000) + what + "]" }
	tooLarge := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, hansard.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b, err := ParseBatch([]byte(`{"events":` + many("{}") + `}`))
	tooLarge("events of an append", err)
	if len(b.Events) > hansard.MaxBatchEvents {
		t.Errorf("%d events were decoded", len(b.Events))
	}
	p, err := ParsePart([]byte(`{"events":` + many("{}") + `}`))
	tooLarge("events of an import", err)
	if len(p.Events) > 2*hansard.MaxBatchEvents {
		t.Errorf("%d events were decoded", len(p.Events))
	}
	p, err = ParsePart([]byte(`{"keys":` + many("{}") + `}`))
	tooLarge("keys of an import", err)
	if len(p.Keys) > 2*hansard.MaxBatchEvents {
		t.Errorf("%d keys were decoded", len(p.Keys))
	}
	e, err := ParseEvent([]byte(`{"attachments":` + many("{}") + `}`))
	tooLarge("attachments", err)
	if len(e.Attachments) > hansard.MaxAttachments {
		t.Errorf("%d attachments were decoded", len(e.Attachments))
	}
	e, err = ParseEvent([]byte(`{"redacts":` + many("1") + `}`))
	tooLarge("seqs", err)
	if len(e.Redacts) > hansard.MaxRedactions {
		t.Errorf("%d seqs were decoded", len(e.Redacts))
	}
	b, err = ParseBatch([]byte(`{"patch":{"labels":{"a":"` + strings.Repeat("x", 3<<20) + `"}}}`))
	tooLarge("a patch", err)
	if b.Patch != nil {
		t.Error("a patch of 3 MiB was decoded")
	}
}
