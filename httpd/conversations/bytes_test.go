package conversations

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"hansard"
	"hansard/memstore"
)

// TestByteForByte: vendors sign parts of items, so they come back byte for byte. ID stands for
// the id that the server makes.
func TestByteForByte(t *testing.T) {
	signed := `{"type" : "reasoning",` + "\n\t" + `"encrypted_content":"gAAAA\u003d\u003D\/+é\ud83d\ude00\ud800","id":"rs_\u0031", "summary": [ ] ,"n":1234567890123456789012345678901234567890,"e":1.0E+2,"z":-0.0}`
	cases := []struct{ name, given, want string }{
		{"complete", `{"status":"incomplete","id":"msg_own","type":"message","role":"user","content":[]}`, ""},
		{"signed, escapes, numbers, spaces", signed, ""},
		{"order of members", `{"z":1,"content":[{"text":"<&>\u2028","type":"input_text"}],"role":"user","a":{"b":[1,{"id":"x"}]},"type":"message"}`,
			`{"id":ID,"status":"completed","z":1,"content":[{"text":"<&>\u2028","type":"input_text"}],"role":"user","a":{"b":[1,{"id":"x"}]},"type":"message"}`},
		{"null is not given", `{"id":null,"type":"message","status": null,"role":"user","content":[]}`,
			`{"id":ID,"type":"message","status": "completed","role":"user","content":[]}`},
		{"null in any order", `{"content":"x","status":null, "role":"user","type":null,"id":null}`,
			`{"content":[{"type":"input_text","text":"x"}],"status":"completed", "role":"user","type":"message","id":ID}`},
		{"null type", `{"type":null,"role":"user","content":[]}`, `{"id":ID,"status":"completed","type":"message","role":"user","content":[]}`},
		{"text of a user", `{"role":"user","content":"a\u0041\"<"}`,
			`{"id":ID,"type":"message","status":"completed","role":"user","content":[{"type":"input_text","text":"a\u0041\"<"}]}`},
		{"text of an assistant", `{ "content" : "yes" , "role":"assistant", "x":1 }`,
			`{"id":ID,"type":"message","status":"completed", "content" : [{"type":"output_text","text":"yes","annotations":[],"logprobs":[]}] , "role":"assistant", "x":1 }`},
		{"no status for what has none", `{"type":"reasoning","summary":[]}`, `{"id":ID,"type":"reasoning","summary":[]}`},
		{"twice the same member, the last counts", `{"type":"reasoning","id":null,"id":"rs_2","summary":[]}`, ""},
		{"twice, the last is null", `{"type":"reasoning","id":"rs_3","id":null,"summary":[]}`, `{"type":"reasoning","id":"rs_3","id":ID,"summary":[]}`},
		{"escaped name", `{"type":"reasoning","\u0069d":"rs_4"}`, ""},
		{"members that differ in case", `{"type":"reasoning","ID":"rs_5","Type":"message"}`, `{"id":ID,"type":"reasoning","ID":"rs_5","Type":"message"}`},
		{"lines", "{\n  \"type\": \"reasoning\",\r\n  \"id\": \"rs_6\"\n}", ""},
		{"deep", `{"type":"reasoning","id":"rs_7","d":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, ""},
		{"large", `{"type":"reasoning","id":"rs_8","encrypted_content":"` + strings.Repeat("A", 3<<20) + `"}`, ""},
	}
	onEngines(t, func(t *testing.T, s *server) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				want := c.want
				if want == "" {
					want = c.given
				}
				id := s.create(`{"items":[` + c.given + `]}`)
				created := s.ok("POST", "/"+id+"/items", `{"items": [ {"role":"user","content":[]} ]}`)
				other := field[string](t, created, "first_id")
				got := string(s.list(id, "?order=asc&limit=1").Data[0])
				itemID := field[string](t, got, "id")
				want = strings.Replace(want, `ID`, `"`+itemID+`"`, 1)
				if strings.Contains(c.want, `"ID"`) { // that one is the client's
					want = strings.Replace(c.want, `:ID`, `:"`+itemID+`"`, 1)
				}
				same(t, "listed", got, want)
				same(t, "retrieved", s.ok("GET", "/"+id+"/items/"+itemID, ""), want)
				same(t, "listed from the end", string(s.list(id, "?after="+other).Data[0]), want)
				for e, err := range s.store.Read(context.Background(), hansard.SessionID(id), hansard.Range{Limit: 1}) {
					if err != nil {
						t.Fatal(err)
					}
					same(t, "stored", string(e.Data), c.given)
				}
			})
		}
	})
}

// FuzzItem: whatever the bytes, nothing breaks; an accepted item is stored unchanged and comes
// back with all of its members.
func FuzzItem(f *testing.F) {
	for _, seed := range []string{
		message("hi"), `{"role":"user","content":"x"}`, `{"type":"reasoning","id":"rs_1"}`, `{}`, `null`, `[]`, `"x"`, `{"id":null,"role":"user","content":""}`,
		`{"type":"function_call","call_id":"c","name":"n","arguments":"{}","status":null}`, ` {"type" : "x" , "type":"y"} `, "{\"type\":\"x\",\"\\u0069d\":\"i\"}", `{"type":"a"}}`, `{"a":1,}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newServer(t, memstore.New())
		const id = "fuzz"
		if _, err := s.store.Create(context.Background(), id, hansard.Meta{}); err != nil {
			t.Fatal(err)
		}
		// As an event of another writer, whatever kind it claims to be.
		for _, kind := range []string{"message", "reasoning", "tool_call", "x", "item_deleted"} {
			_, _ = s.store.Append(context.Background(), id, hansard.Batch{Events: []hansard.Event{{Kind: kind, Data: data}}})
		}
		s.ok("GET", "/"+id+"/items?order=asc", "")
		a := s.do("POST", "", `{"items":[`+string(data)+`]}`)
		if a.status >= 500 {
			t.Fatalf("%d: %s", a.status, a.body)
		}
		if a.status != 200 {
			return
		}
		conv := field[string](t, a.body, "id")
		l := s.list(conv, "?order=asc")
		given := trim(data)
		if len(given) == 0 {
			return
		}
		i := 0
		for e, err := range s.store.Read(context.Background(), hansard.SessionID(conv), hansard.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && !bytes.HasPrefix(given, e.Data) {
				t.Fatalf("stored %s", e.Data)
			}
			var in, out map[string]any
			if err := json.Unmarshal(e.Data, &in); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(l.Data[i], &out); err != nil {
				t.Fatal(err)
			}
			if out["id"] == nil || out["id"] == "" || out["type"] == nil {
				t.Fatalf("no id or type: %s", l.Data[i])
			}
			for name, value := range in {
				switch name {
				case "id", "type", "status", "content":
					if value == nil || name == "content" {
						continue
					}
				}
				a, _ := json.Marshal(value)
				b, _ := json.Marshal(out[name])
				if !bytes.Equal(a, b) {
					t.Fatalf("member %q: %s became %s", name, a, b)
				}
			}
			i++
		}
		if i != len(l.Data) {
			t.Fatalf("%d events, %d items", i, len(l.Data))
		}
	})
}
