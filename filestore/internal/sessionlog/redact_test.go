package sessionlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"hansard"
)

// redactable are events of all shapes: short and long, with everything and with little.
func redactable() (events []hansard.Event) {
	for _, data := range []string{"1", "{}", `""`, "null", ` 1`, "[1,\n2]", `{"a":{"hash":"x"},"data":1}`, `"` + strings.Repeat(`\"`, 50) + `"`, "\"\u2028\"", `",\"gone\":1"`} {
		plain := hansard.Event{Kind: "m", Data: []byte(data)}
		rich := hansard.Event{Kind: `k","data":"`, Role: "r", Author: `a,"hash":"`, By: "b", ID: `i,"x":`, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Inbox: true, Data: []byte(data),
			Attachments: []hansard.Attachment{{Digest: "sha256:" + strings.Repeat("0", 64), Size: 3, Name: `n]},"data":1`}}}
		patched := rich
		patched.Patch = &hansard.Patch{State: []byte(`{"hash":"h","data":[1],"redacts":[7]}`)}
		events = append(events, plain, rich, patched)
	}
	return events
}

// TestRedactedLines: whatever a line says, it keeps its length when its content is removed,
// says everything else as before, and is recognised as the same line.
func TestRedactedLines(t *testing.T) {
	for i, e := range redactable() {
		for _, key := range []string{"", `k","hash":"`} {
			st := Stamp{Seq: 7, Time: "2026-01-02T03:04:06.000000Z", Left: 2, Turn: "1-0123456789abcdef", MetaAt: 12, TurnAt: 34, Prev: 5}
			line := AppendEvent(nil, &st, EncodeBody(nil, &e, key, "the hash"))
			was, err := Decode(line[:len(line)-1])
			if err != nil {
				t.Fatal(err)
			}
			for _, content := range []bool{false, true} {
				body, err := redactBody(line[:len(line)-1-SuffixWidth], content)
				if err != nil {
					t.Fatalf("event %d: %v", i, err)
				}
				left := AppendSuffix(bytes.Clone(body), 0, 99)
				is, err := Decode(left[:len(left)-1])
				if err != nil || len(left) != len(line) {
					t.Fatalf("event %d: %d bytes, it had %d: %v\n%s", i, len(left), len(line), err, left)
				}
				if _, err := DecodeHead(left[:len(left)-1]); err != nil {
					t.Errorf("event %d: %v", i, err)
				}
				want := *was
				want.Hash, want.Prev, want.CRC = "", is.Prev, is.CRC
				if content {
					want.Data, want.Raw, want.Attachments, want.Gone = nil, nil, nil, 1
				}
				if got, wanted := fmt.Sprintf("%+v", asJSON(t, is)), asJSON(t, &want); got != wanted {
					t.Errorf("event %d: what is left is\n%s\nwant\n%s", i, got, wanted)
				}
				if !SameButRedacted(left, line) || SameButRedacted(append(bytes.Clone(left), '\n'), line) {
					t.Errorf("event %d: it is not told to be the same line", i)
				}
				again, err := redactBody(body, content)
				if err != nil || !bytes.Equal(again, body) {
					t.Errorf("event %d: done twice it is another: %v\n%s\n%s", i, err, body, again)
				}
			}
			st.Seq = 8
			if other := AppendEvent(nil, &st, EncodeBody(nil, &e, key, "the hash")); SameButRedacted(other, line) {
				t.Errorf("event %d: another line is taken for it", i)
			}
		}
	}
}

func asJSON(t *testing.T, l *Line) string {
	t.Helper()
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
