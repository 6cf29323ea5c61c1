package conversations

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/memstore"
)

func TestConversationShapes(t *testing.T) {
	onEngines(t, func(t *testing.T, s *server) {
		before := time.Now().Unix()
		body := s.ok("POST", "", `{"metadata":{"topic":"peru"},"items":[`+message("hi")+`]}`)
		id, at := field[string](t, body, "id"), field[int64](t, body, "created_at")
		if !regexp.MustCompile(`^conv_[0-9a-f]{48}$`).MatchString(id) {
			t.Errorf("id %q", id)
		}
		if at < before || at > time.Now().Unix() {
			t.Errorf("created_at %d is not now", at)
		}
		want := fmt.Sprintf(`{"id":"%s","object":"conversation","created_at":%d,"metadata":{"topic":"peru"}}`, id, at)
		same(t, "create", body, want)
		same(t, "retrieve", s.ok("GET", "/"+id, ""), want)
		want = strings.Replace(want, `{"topic":"peru"}`, `{"a":"1","b":"2"}`, 1)
		same(t, "update", s.ok("POST", "/"+id, `{"metadata":{"b":"2","a":"1"}}`), want)
		same(t, "retrieve after update", s.ok("GET", "/"+id, ""), want)
		same(t, "delete", s.ok("DELETE", "/"+id, ""), fmt.Sprintf(`{"id":"%s","object":"conversation.deleted","deleted":true}`, id))
		s.fails(404, "conversation_deleted", "conversation_id", "GET", "/"+id, "")
		s.fails(404, "conversation_deleted", "conversation_id", "GET", "/"+id+"/items", "")
		s.fails(404, "conversation_deleted", "conversation_id", "DELETE", "/"+id, "")
		s.fails(404, "conversation_deleted", "conversation_id", "POST", "/"+id+"/items", `{"items":[`+message("late")+`]}`)
	})
}

func TestCreateWithNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, s *server) {
		for _, body := range []string{``, `{}`, `{"items":[]}`, `{"items":null,"metadata":null}`, ` {"metadata":{}} `} {
			got := s.ok("POST", "", body)
			if m := field[map[string]string](t, got, "metadata"); m == nil || len(m) != 0 {
				t.Errorf("create %q: metadata %v", body, m)
			}
			same(t, "items of an empty conversation", s.ok("GET", "/"+field[string](t, got, "id")+"/items", ""),
				`{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}`)
		}
	})
}

func TestItemShapes(t *testing.T) {
	onEngines(t, func(t *testing.T, s *server) {
		id := s.create(`{}`)
		mark := conversationMark(hansard.SessionID(id))
		one := `{"id":"msg_` + mark + `0000000000000001","status":"completed","type":"message","role":"user","content":[{"type":"input_text","text":"one"}]}`
		two := `{"status":"completed","type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"}`
		body := s.ok("POST", "/"+id+"/items", `{"items":[`+message("one")+`,{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"}]}`)
		same(t, "create", body, `{"object":"list","data":[`+one+`,`+two+`],"first_id":"msg_`+mark+`0000000000000001","last_id":"fc_1","has_more":false}`)
		same(t, "list", s.ok("GET", "/"+id+"/items", ""),
			`{"object":"list","data":[`+two+`,`+one+`],"first_id":"fc_1","last_id":"msg_`+mark+`0000000000000001","has_more":false}`)
		same(t, "list asc", s.ok("GET", "/"+id+"/items?order=asc", ""), body)
		same(t, "retrieve", s.ok("GET", "/"+id+"/items/msg_"+mark+"0000000000000001", ""), one)
		same(t, "retrieve by a given id", s.ok("GET", "/"+id+"/items/fc_1?include[]=reasoning.encrypted_content", ""), two)
		same(t, "delete", s.ok("DELETE", "/"+id+"/items/fc_1", ""), s.ok("GET", "/"+id, ""))
		s.fails(404, "item_not_found", "item_id", "GET", "/"+id+"/items/fc_1", "")
		s.fails(404, "item_not_found", "item_id", "DELETE", "/"+id+"/items/fc_1", "")
		same(t, "list after delete", s.ok("GET", "/"+id+"/items", ""),
			`{"object":"list","data":[`+one+`],"first_id":"msg_`+mark+`0000000000000001","last_id":"msg_`+mark+`0000000000000001","has_more":false}`)
		same(t, "no items", s.ok("POST", "/"+id+"/items", `{"items":[]}`), `{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}`)
	})
}

// TestOddItemIDs: an id may contain anything printable; in a path it is escaped.
func TestOddItemIDs(t *testing.T) {
	s := newServer(t, memstore.New())
	id := s.create(`{}`)
	for _, itemID := range []string{"a/b", "../x", "a b", "100%", "é?#&", "rs_" + strings.Repeat("x", 400), "items"} {
		it := fmt.Sprintf(`{"type":"reasoning","id":%q}`, itemID)
		s.ok("POST", "/"+id+"/items", `{"items":[`+it+`,`+message("x")+`]}`)
		same(t, "retrieve", s.ok("GET", "/"+id+"/items/"+url.PathEscape(itemID), ""), it)
		if got := len(s.list(id, "?order=asc&after="+url.QueryEscape(itemID)).Data); got != 1 {
			t.Errorf("%d items behind %q", got, itemID)
		}
		s.ok("DELETE", "/"+id+"/items/"+url.PathEscape(itemID), "")
	}
}

// TestItemsAreEvents: items are ordinary events of the session: kind and role follow from their
// type, and the data are the bytes that were sent.
func TestItemsAreEvents(t *testing.T) {
	onEngines(t, func(t *testing.T, s *server) {
		cases := []struct{ item, kind, role string }{
			{message("hi"), "message", "user"},
			{`{"role":"assistant","content":"yes"}`, "message", "assistant"},
			{`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`, "tool_call", "assistant"},
			{`{"type":"function_call_output","call_id":"c","output":"1"}`, "tool_result", "tool"},
			{`{"type":"web_search_call","id":"ws_1","status":"completed"}`, "tool_call", "assistant"},
			{`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA=="}`, "reasoning", "assistant"},
			{`{"type":"not_invented_yet","x":[1]}`, "not_invented_yet", "assistant"},
		}
		var items []string
		for _, c := range cases {
			items = append(items, c.item)
		}
		id := hansard.SessionID(s.create(`{"items":[` + strings.Join(items, " ,\n") + `],"metadata":{"k":"v"}}`))
		i := 0
		for e, err := range s.store.Read(context.Background(), id, hansard.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			c := cases[i]
			if string(e.Data) != c.item || e.Kind != c.kind || e.Role != c.role {
				t.Errorf("event %d: %s %s %s\nwant %s %s %s", e.Seq, e.Kind, e.Role, e.Data, c.kind, c.role, c.item)
			}
			i++
		}
		if i != len(cases) {
			t.Errorf("%d events for %d items", i, len(cases))
		}
		found := false
		for info, err := range s.store.List(context.Background(), hansard.Query{Labels: map[string]string{"k": "v"}}) {
			found = found || err == nil && info.ID == id
		}
		if !found {
			t.Error("the conversation is not in the list of sessions by its metadata")
		}
	})
}

// TestForeignEvents: a session written by other means is a conversation: events that read like a
// message or an item become one, all others are left out.
func TestForeignEvents(t *testing.T) {
	onEngines(t, func(t *testing.T, s *server) {
		ctx := context.Background()
		const id = "any.valid:session@id"
		if _, err := s.store.Create(ctx, id, hansard.Meta{Labels: map[string]string{"team": "red"}}); err != nil {
			t.Fatal(err)
		}
		msg := func(seq int, rest string) string {
			return `{"id":"` + makeItemID(id, "message", hansard.Seq(seq)) + `","type":"message","status":"completed",` + rest
		}
		out := ""
		cases := []struct {
			kind, role, data, want string
		}{
			{"", "user", `"plain \u00e9<b>"`, msg(1, `"role":"user","content":[{"type":"input_text","text":"plain \u00e9<b>"}]}`)},
			{"message", "agent", `"Lima."`, msg(2, `"role":"assistant","content":[{"type":"output_text","text":"Lima.","annotations":[],"logprobs":[]}]}`)},
			{"message", "system", ` "be kind" `, msg(3, `"role":"system","content":[{"type":"input_text","text":"be kind"}]}`)},
			{"message", "reviewer", `{"text":"looks good","n":1}`, msg(4, `"role":"user","content":[{"type":"input_text","text":"looks good"}]}`)},
			{"message", "user", `{"role":"assistant","content":[{"type":"text","text":"x"}]}`, msg(5, `"role":"assistant","content":[{"type":"text","text":"x"}]}`)},
			{"message", "user", `{"foo":1}`, out},
			{"message", "user", `{"text":5}`, out},
			{"message", "user", `[1,2]`, out},
			{"message", "user", `{"type":"tool_use","name":"x"}`, out},
			{"message", "user", `{"id":5,"role":"user","content":"x"}`, out},
			{"log", "", `"just text of another kind"`, out},
			{"summary", "", `"what happened so far"`, out},
			{"summary", "", `{"type":"summary","text":"x"}`, out},
			{"item_deleted", "", `{"seq":16}`, out}, // which comes later and is not deleted by this
			{"item_deleted", "", `"nonsense"`, out},
			{"tool_call", "", `{"type":"function_call","call_id":"c","name":"f","arguments":""}`,
				`{"id":"` + makeItemID(id, "function_call", 16) + `","status":"completed","type":"function_call","call_id":"c","name":"f","arguments":""}`},
			{"tool_call", "", `{"name":"f"}`, out},
			{"message", "", `null`, out},
		}
		var want []string
		for _, c := range cases {
			e := hansard.Event{Kind: c.kind, Role: c.role, Data: json.RawMessage(c.data)}
			if _, err := s.store.Append(ctx, id, hansard.Batch{Events: []hansard.Event{e}}); err != nil {
				t.Fatal(err)
			}
			if c.want != out {
				want = append(want, c.want)
			}
		}
		var got []string
		for _, it := range s.list(id, "?order=asc").Data {
			got = append(got, string(it))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, it := range got {
			same(t, "retrieve", s.ok("GET", "/"+id+"/items/"+field[string](t, it, "id"), ""), it)
		}
		same(t, "labels are metadata", string(field[json.RawMessage](t, s.ok("GET", "/"+id, ""), "metadata")), `{"team":"red"}`)
	})
}

func TestMetadata(t *testing.T) {
	onEngines(t, func(t *testing.T, s *server) {
		ctx := context.Background()
		long := strings.Repeat("é", 512) // 1,024 bytes, within the API's limit, too long for a label
		id := s.create(`{"metadata":{"a":"1","long":"` + long + `","x=y":"z","nul":"\u0000"}}`)
		meta := func() map[string]string {
			return field[map[string]string](t, s.ok("GET", "/"+id, ""), "metadata")
		}
		if m := meta(); len(m) != 4 || m["a"] != "1" || m["long"] != long || m["x=y"] != "z" || m["nul"] != "\x00" {
			t.Errorf("got %v", m)
		}
		// Other state of the session is left alone, and so is its title.
		title := "kept"
		p := hansard.Patch{Title: &title, State: json.RawMessage(`{"step":3,"openai":{"other":true}}`)}
		if _, err := s.store.Append(ctx, hansard.SessionID(id), hansard.Batch{Patch: &p}); err != nil {
			t.Fatal(err)
		}
		s.ok("POST", "/"+id, `{"metadata":{"b":"2","x=y":"new"}}`)
		if m := meta(); len(m) != 2 || m["b"] != "2" || m["x=y"] != "new" {
			t.Errorf("update did not replace: %v", m)
		}
		info, err := s.store.Stat(ctx, hansard.SessionID(id))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "state", string(info.State), `{"openai":{"metadata":{"x=y":"new"},"other":true},"step":3}`)
		same(t, "title", info.Title, "kept")
		s.ok("POST", "/"+id, `{"metadata":null}`)
		if m := meta(); len(m) != 0 {
			t.Errorf("null did not clear: %v", m)
		}
		// The same update again writes nothing.
		last := func() hansard.Seq {
			info, err := s.store.Stat(ctx, hansard.SessionID(id))
			if err != nil {
				t.Fatal(err)
			}
			return info.LastSeq
		}
		seq := last()
		s.ok("POST", "/"+id, `{"metadata":{}}`)
		if last() != seq {
			t.Error("an update that changes nothing was written")
		}
		// A state that is not an object belongs to the user, and stays.
		if _, err := s.store.Append(ctx, hansard.SessionID(id), hansard.Batch{Patch: &hansard.Patch{State: json.RawMessage(`5`)}}); err != nil {
			t.Fatal(err)
		}
		s.ok("POST", "/"+id, `{"metadata":{"short":"1"}}`)
		s.fails(400, "state_in_use", "metadata", "POST", "/"+id, `{"metadata":{"long":"`+long+`"}}`)
	})
}

// TestManyMembers: very many members or elements are not all remembered; those that mean something
// are, wherever they are.
func TestManyMembers(t *testing.T) {
	var many strings.Builder
	for i := range 10 * maxMembers {
		fmt.Fprintf(&many, `"m%d":1,`, i)
	}
	o, err := parseObject([]byte(`{` + many.String() + `"type":"x","id":"last"}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(o.members) > maxMembers+len(meant) || len(o.names) > maxMembers+len(meant) {
		t.Errorf("%d members and %d names are remembered", len(o.members), len(o.names))
	}
	if s, problem := shapeOfObject(o); problem != nil || s.typ != "x" || s.given != "last" {
		t.Errorf("it is %+v, %v", s, problem)
	}
	list, n, ok := arrayOf([]byte(`[`+strings.Repeat("1,", 10*maxItems)+`1]`), maxItems)
	if !ok || n != 10*maxItems+1 || len(list) > maxItems {
		t.Errorf("%d elements of %d, %v", len(list), n, ok)
	}
	s := newServer(t, memstore.New())
	conv := field[string](t, s.ok("POST", "", `{"items":[{`+many.String()+`"type":"x","id":"last"}]}`), "id")
	if got := s.ok("GET", "/"+conv+"/items/last", ""); got != `{`+many.String()+`"type":"x","id":"last"}` {
		t.Errorf("it comes back as %.100s", got)
	}
}
