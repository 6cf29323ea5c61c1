package httpd_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/httpd/conversations"
	"hansard/internal/wire"
	"hansard/memstore"
)

// document is the part of an OpenAPI document that is compared.
type document struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Responses map[string]answerDoc
		Schemas   map[string]schema
	}
}

type operation struct {
	Responses map[string]answerDoc
	Right     string `json:"x-right"`
}

type answerDoc struct {
	Ref     string `json:"$ref"`
	Content map[string]struct{ Schema schema }
}

// schema is the part of JSON Schema that the document uses.
type schema struct {
	Ref                  string          `json:"$ref"`
	Type                 json.RawMessage // a word or a list of words
	Properties           map[string]schema
	Required             []string
	AdditionalProperties json.RawMessage // false, true or a schema
	Items                *schema
	AnyOf                []schema
	Enum                 []string
}

func loadDocument(t *testing.T, v *served) *document {
	t.Helper()
	var d document
	v.must(200, "GET", "/openapi.json", "", "Authorization", "").into(t, &d)
	return &d
}

// check reports where a value violates a schema.
func (d *document) check(s schema, at string, value any) error {
	if s.Ref != "" {
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		target, ok := d.Components.Schemas[name]
		if !ok {
			return fmt.Errorf("%s: there is no schema %s", at, name)
		}
		return d.check(target, at, value)
	}
	if len(s.AnyOf) > 0 {
		var err error
		for _, one := range s.AnyOf {
			if err = d.check(one, at, value); err == nil {
				return nil
			}
		}
		return err
	}
	var types []string
	if len(s.Type) > 0 && s.Type[0] == '[' {
		_ = json.Unmarshal(s.Type, &types)
	} else if len(s.Type) > 0 {
		types = []string{strings.Trim(string(s.Type), `"`)}
	}
	if len(types) > 0 && !slices.Contains(types, typeOf(value)) && !(typeOf(value) == "integer" && slices.Contains(types, "number")) {
		return fmt.Errorf("%s is a %s, want %v", at, typeOf(value), types)
	}
	if text, ok := value.(string); ok && len(s.Enum) > 0 && !slices.Contains(s.Enum, text) {
		return fmt.Errorf("%s is %q, which is not listed", at, text)
	}
	switch value := value.(type) {
	case map[string]any:
		return d.checkObject(s, at, value)
	case []any:
		for i, item := range value {
			if s.Items == nil {
				continue
			}
			if err := d.check(*s.Items, fmt.Sprintf("%s[%d]", at, i), item); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *document) checkObject(s schema, at string, value map[string]any) error {
	for _, name := range s.Required {
		if _, ok := value[name]; !ok {
			return fmt.Errorf("%s has no %s", at, name)
		}
	}
	for name, member := range value {
		inner, known := s.Properties[name]
		if !known {
			if string(s.AdditionalProperties) == "false" {
				return fmt.Errorf("%s.%s is not described", at, name)
			}
			if len(s.AdditionalProperties) == 0 || s.AdditionalProperties[0] != '{' {
				continue
			}
			_ = json.Unmarshal(s.AdditionalProperties, &inner)
		}
		if err := d.check(inner, at+"."+name, member); err != nil {
			return err
		}
	}
	return nil
}

func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// TestOpenAPI: the document has exactly the routes, methods and problems that exist, and the
// server's answers match it.
func TestOpenAPI(t *testing.T) {
	v := serve(t, &checked{Store: memstore.New()}, withConversations)
	d := loadDocument(t, v)
	var described, there []string
	for path, methods := range d.Paths {
		for method := range methods {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	for path, methods := range v.server.Routes() {
		for _, method := range methods {
			there = append(there, method+" "+path)
		}
	}
	for path, methods := range conversations.Routes() {
		for _, method := range methods {
			there = append(there, method+" "+path)
		}
	}
	slices.Sort(described)
	slices.Sort(there)
	if !slices.Equal(described, there) {
		t.Errorf("described are\n%q\nand there are\n%q", described, there)
	}
	var kinds []string
	for name := range wire.ProblemKinds() {
		kinds = append(kinds, wire.ProblemType(name))
	}
	listed := slices.Clone(d.Components.Schemas["Problem"].Properties["type"].Enum)
	slices.Sort(kinds)
	slices.Sort(listed)
	if !slices.Equal(kinds, listed) {
		t.Errorf("listed are the problems\n%q\nand there are\n%q", listed, kinds)
	}

	covered := map[string]bool{}
	answer := func(method, route, path, body string, headers ...string) reply {
		t.Helper()
		got := v.ask(method, path, body, headers...)
		if err := d.checkAnswer(method, route, got); err != nil {
			t.Errorf("%s %s: %d: %v\n%s", method, path, got.status, err, got.body)
		}
		covered[method+" "+route] = true
		return got
	}
	const one = "/v1/sessions/{id}"
	answer("POST", "/v1/sessions", "/v1/sessions", `{"id":"s","title":"t","labels":{"a":"b"},"state":{"x":[1]}}`)
	answer("POST", "/v1/sessions", "/v1/sessions", `{"id":"s"}`)
	answer("POST", "/v1/sessions", "/v1/sessions", `{"id":"s","reuse":true}`)
	answer("POST", "/v1/sessions", "/v1/sessions", `{"id":`)
	answer("POST", one+"/events", "/v1/sessions/s/events", `{"events":[{"data":1,"inbox":true},{"data":{"a":2}}],"patch":{"title":"u","labels":{"a":null}}}`, "Idempotency-Key", "k")
	for _, body := range []string{oneEvent, `{"events":[{"data":1}],"expect":9}`, `{"events":[{"data":1}],"turn":"1-0"}`, `{}`} {
		answer("POST", one+"/events", "/v1/sessions/s/events", body, "Idempotency-Key", "k"+fmt.Sprint(len(body)%3))
	}
	const named = `{"events":[{"id":"e","at":"2026-01-02T03:04:05Z","data":1},{"data":2}],"create":true,"meta":{"title":"t","labels":{"a":"b"},"state":1}}`
	for _, body := range []string{named, named, `{"events":[{"id":"e","data":2}]}`, `{"events":[{"id":"","data":2}]}`, `{"events":[{"id":"\n","data":2}]}`} {
		answer("POST", one+"/events", "/v1/sessions/named/events", body)
	}
	answer("GET", one+"/events/{event}", "/v1/sessions/named/events/e", "")
	var made hansard.Attachment
	answer("POST", one+"/attachments", "/v1/sessions/named/attachments", "bytes", "Content-Type", "image/png").into(t, &made)
	answer("POST", one+"/attachments", "/v1/sessions/named/attachments", "bytes", "Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(make([]byte, 32))+":")
	answer("POST", one+"/attachments", "/v1/sessions/named/attachments", "bytes", "Repr-Digest", "md5=:x:")
	answer("POST", one+"/attachments", "/v1/sessions/nowhere/attachments", "bytes")
	answer("GET", one+"/attachments", "/v1/sessions/named/attachments", "")
	answer("GET", one+"/attachments/{digest}", "/v1/sessions/named/attachments/"+made.Digest, "")
	answer("GET", one+"/attachments/{digest}", "/v1/sessions/named/attachments/x", "")
	answer("GET", one+"/attachments/{digest}", "/v1/sessions/named/attachments/sha256:"+strings.Repeat("0", 64), "")
	answer("POST", one+"/events", "/v1/sessions/named/events", fmt.Sprintf(`{"events":[{"data":1,"attachments":[{"digest":%q,"size":5,"media_type":"image/png","name":"n"}]}]}`, made.Digest))
	answer("POST", one+"/events", "/v1/sessions/named/events", fmt.Sprintf(`{"events":[{"data":1,"attachments":[{"digest":"sha256:%s","size":5}]}]}`, strings.Repeat("0", 64)))
	answer("GET", one+"/events", "/v1/sessions/named/events?last=1&view=parts", "")
	answer("GET", one+"/events/{event}", "/v1/sessions/named/events/e?view=parts", "")
	answer("GET", one+"/events/{event}", "/v1/sessions/named/events/none", "")
	answer("GET", one+"/events", "/v1/sessions/named/events?id=e", "")
	answer("GET", one+"/events", "/v1/sessions/named/events?after_id=e&view=parts", "")
	for _, body := range []string{`{"as":"forked","title":"f","labels":{"l":"1"},"state":{"a":1}}`, `{"as":"forked"}`, `{"at":1}`, `{"at":99}`, `{"at_id":"none"}`, `{"at_id":"e","at":1}`, `{"at":`} {
		answer("POST", one+"/fork", "/v1/sessions/named/fork", body)
	}
	answer("POST", one+"/fork", "/v1/sessions/nowhere/fork", `{}`)
	answer("GET", "/v1/sessions", "/v1/sessions?parent=named", "")
	answer("GET", one+"/events", "/v1/sessions/forked/events?last=1", "")
	answer("GET", one+"/events", "/v1/sessions/forked/events?last=1&view=parts", "")
	answer("GET", "/v1/origins", "/v1/origins", "")
	answer("GET", "/v1/origins", "/v1/origins?before=s", "")
	answer("GET", one+"/keys", "/v1/sessions/s/keys?after=1", "")
	answer("GET", one+"/keys", "/v1/sessions/nowhere/keys", "")
	for _, format := range []string{"", "?format=jsonl", "?format=md", "?format=html", "?format=openai", "?format=codex", "?format=none"} {
		answer("GET", one+"/export", "/v1/sessions/s/export"+format, "")
	}
	answer("GET", one+"/export", "/v1/sessions/nowhere/export", "")
	for range 2 { // the second is a conflict
		answer("POST", one+"/import", "/v1/sessions/t/import", `{"created":"2026-01-02T03:04:05Z","events":[{"seq":1,"time":"2026-01-02T03:04:05Z","kind":"k","data":1}],"keys":[]}`)
	}
	answer("POST", one+"/import", "/v1/sessions/t/import", `{"created":"2027-01-02T03:04:05Z"}`)
	answer("POST", one+"/import", "/v1/sessions/t/import", `{"events":[]}`)
	answer("GET", "/v1/store", "/v1/store", "")
	once := `{"code":"` + code(t, v.tokens["admin"], time.Minute) + `"}`
	for _, body := range []string{once, once, `{}`, `{`, `{"x":1}`} { // the second is used up
		answer("POST", "/v1/login", "/v1/login", body, "Authorization", "")
	}
	answer("DELETE", "/v1/login", "/v1/login", "")
	answer("DELETE", "/v1/login", "/v1/login", "", "Authorization", "")
	answer("GET", "/v1/tokens", "/v1/tokens", "")
	for range 2 { // the second exists
		answer("POST", "/v1/tokens", "/v1/tokens", `{"name":"n","rights":"read","prefix":"a","labels":{"k":"v"},"rate":2.5,"expires":"2999-01-02T03:04:05Z"}`)
	}
	answer("POST", "/v1/tokens", "/v1/tokens", `{"name":"n m","rights":"read"}`)
	answer("GET", "/v1/store", "/v1/store", "")
	answer("GET", "/v1/tokens", "/v1/tokens", "")
	for range 2 { // the second is gone
		answer("DELETE", "/v1/tokens/{name}", "/v1/tokens/n", "")
	}
	answer("GET", "/v1/verify", "/v1/verify", "")
	answer("GET", "/v1/verify", "/v1/verify?fast=1", "")
	answer("GET", one+"/verify", "/v1/sessions/s/verify", "")
	answer("GET", one+"/verify", "/v1/sessions/nowhere/verify", "")
	answer("POST", one+"/redact", "/v1/sessions/s/redact", `{"seqs":[1],"reason":"tried"}`)
	answer("POST", one+"/redact", "/v1/sessions/s/redact", `{"seqs":[1]}`)
	answer("POST", one+"/redact", "/v1/sessions/s/redact", `{"seqs":[0]}`)
	answer("POST", one+"/redact", "/v1/sessions/s/redact", `{"seqs":[99999]}`)
	answer("POST", one+"/redact", "/v1/sessions/nowhere/redact", `{"seqs":[1]}`)
	answer("POST", one+"/redact", "/v1/sessions/s/redact", `{"events":[1]}`)
	answer("POST", one+"/repair", "/v1/sessions/s/repair", "")
	answer("POST", one+"/repair", "/v1/sessions/nowhere/repair", "{}")
	answer("POST", one+"/repair", "/v1/sessions/s/repair", `{"fast":true}`)
	answer("POST", "/v1/journal/repair", "/v1/journal/repair", "")
	answer("POST", "/v1/prune", "/v1/prune", "")
	answer("POST", "/v1/prune", "/v1/prune", `{"scrub":true}`)
	answer("POST", "/v1/prune", "/v1/prune", `{"force":true}`)
	answer("PATCH", one, "/v1/sessions/s", `{"title":"v"}`)
	var turn hansard.Turn
	answer("POST", one+"/turn", "/v1/sessions/s/turn", `{"label":"l","exclusive":true,"max_hold_ms":100000,"steal":"r"}`).into(t, &turn)
	answer("POST", one+"/turn", "/v1/sessions/s/turn", `{}`)
	answer("GET", one+"/turn", "/v1/sessions/s/turn", "")
	answer("GET", one, "/v1/sessions/s", "")
	answer("GET", one, "/v1/sessions/nowhere", "")
	answer("PUT", one+"/turn", "/v1/sessions/s/turn", fmt.Sprintf(`{"grant":%q}`, turn.Grant))
	answer("DELETE", one+"/turn", "/v1/sessions/s/turn", fmt.Sprintf(`{"grant":%q}`, turn.Grant))
	answer("DELETE", one+"/turn", "/v1/sessions/s/turn", fmt.Sprintf(`{"grant":%q}`, turn.Grant))
	answer("GET", one+"/events", "/v1/sessions/s/events", "")
	answer("POST", one+"/events", "/v1/sessions/s/events", `{"events":[{"data":[{"type":"tool_use","id":"t","name":"f","input":{"a":1}},{"type":"tool_result","content":"x","is_error":true}]},
		{"data":{"role":"assistant","content":[{"type":"image","data":"AAAA","mimeType":"image/png"}],"usage":{"input_tokens":1}}},{"kind":"summary","data":{"from":1,"to":2,"text":"x"}},{"kind":"item_deleted","data":{"seq":1}}]}`)
	answer("GET", one+"/events", "/v1/sessions/s/events?view=parts", "")
	answer("GET", one+"/events", "/v1/sessions/s/events?view=parts&whole", "", "Accept", "application/x-ndjson")
	answer("GET", one+"/events", "/v1/sessions/s/events?view=x", "")
	answer("GET", one+"/find", "/v1/sessions/s/find?q=x", "")
	answer("GET", one+"/find", "/v1/sessions/s/find", "")
	answer("GET", one+"/find", "/v1/sessions/nowhere/find?q=x", "")
	answer("GET", "/v1/search", "/v1/search?q=hello", "")
	answer("GET", "/v1/search", "/v1/search", "")
	answer("GET", "/v1/search", "/v1/search?q=x&in=nowhere", "")
	answer("GET", "/v1/whoami", "/v1/whoami", "")
	answer("GET", "/v1/whoami", "/v1/whoami", "", "Authorization", "")
	answer("POST", one+"/events", "/v1/sessions/untitled/events", `{"create":true,"events":[{"role":"user","data":"x"}]}`)
	answer("GET", "/v1/sessions", "/v1/sessions?preview", "")
	answer("GET", one, "/v1/sessions/untitled?preview", "")
	answer("GET", one+"/events", "/v1/sessions/s/events?limit=x", "")
	answer("GET", one+"/events/stream", "/v1/sessions/nowhere/events/stream", "")
	answer("GET", "/v1/sessions", "/v1/sessions?limit=1", "")
	answer("GET", "/v1/sessions", "/v1/sessions", "", "Authorization", "")
	const stream = "/ds/{id}"
	for range 2 {
		answer("PUT", stream, "/ds/stream", `[1]`, "Content-Type", "application/json", "Stream-TTL", "60")
	}
	answer("PUT", stream, "/ds/stream", ``, "Content-Type", "text/plain")
	answer("PUT", stream, "/ds/stream", ``, "Stream-TTL", "x")
	answer("PUT", stream, "/ds/fork", ``, "Stream-Forked-From", "/ds/stream")
	for range 2 {
		answer("POST", stream, "/ds/stream", `2`, "Content-Type", "application/json", "Producer-Id", "p", "Producer-Epoch", "1", "Producer-Seq", "0")
	}
	answer("POST", stream, "/ds/stream", `2`, "Content-Type", "application/json", "Producer-Id", "p", "Producer-Epoch", "0", "Producer-Seq", "0")
	answer("POST", stream, "/ds/stream", `2`, "Content-Type", "application/json", "Stream-Closed", "true")
	answer("POST", stream, "/ds/stream", `2`, "Content-Type", "application/json")
	answer("POST", stream, "/ds/nowhere", `2`, "Content-Type", "application/json")
	answer("GET", stream, "/ds/stream", "")
	answer("GET", stream, "/ds/stream?offset=now&live=long-poll", "")
	answer("GET", stream, "/ds/stream?offset=-1&live=sse", "")
	answer("GET", stream, "/ds/stream?offset=x", "")
	for range 2 {
		answer("DELETE", stream, "/ds/stream", "")
	}
	answer("DELETE", one, "/v1/sessions/s", "")
	answer("DELETE", one, "/v1/sessions/s", "")
	conversationAnswers(t, answer)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/version", "/openapi.json", "/v1/ws"} {
		answer("GET", path, path, "")
	}
	for _, route := range there {
		if !covered[route] {
			t.Errorf("%s was not tried", route)
		}
	}
}

// conversationAnswers calls everything of the conversations: requests that succeed, and requests
// that are refused by them or before them.
func conversationAnswers(t *testing.T, answer func(method, route, path, body string, headers ...string) reply) {
	t.Helper()
	const all, one, items, item = conversations.Prefix, conversations.Prefix + "/{conversation_id}", conversations.Prefix + "/{conversation_id}/items", conversations.Prefix + "/{conversation_id}/items/{item_id}"
	const message = `{"items":[{"role":"user","content":"x"}]}`
	var made struct{ ID string }
	answer("POST", all, all, `{"metadata":{"a":"b"}}`).into(t, &made)
	id := all + "/" + made.ID
	var list struct {
		Last string `json:"last_id"`
	}
	answer("GET", items, id+"/items", "")
	answer("POST", items, id+"/items", message).into(t, &list)
	answer("GET", items, id+"/items?limit=1", "")
	answer("GET", item, id+"/items/"+list.Last, "")
	answer("DELETE", item, id+"/items/"+list.Last, "")
	answer("GET", one, id, "")
	answer("POST", one, id, `{"metadata":{}}`)
	for _, r := range []struct{ method, route, path, body string }{{"POST", all, all, `{}`}, {"GET", one, id, ""}, {"POST", one, id, `{"metadata":{}}`}, {"DELETE", one, id, ""},
		{"GET", items, id + "/items", ""}, {"POST", items, id + "/items", message}, {"GET", item, id + "/items/i", ""}, {"DELETE", item, id + "/items/i", ""}} {
		answer(r.method, r.route, r.path, r.body, "Authorization", "")
		answer(r.method, r.route, r.path, r.body, "Host", "evil.example")
		answer(r.method, r.route, r.path+"?unknown=1", r.body)
		if r.method == "POST" {
			answer(r.method, r.route, r.path, "{", "Content-Type", "text/plain")
		}
		if r.path != all {
			answer(r.method, r.route, strings.Replace(r.path, made.ID, "nowhere", 1), r.body)
		}
	}
	answer("DELETE", one, id, "")
}

// checkAnswer reports where an answer differs from the document.
func (d *document) checkAnswer(method, route string, got reply) error {
	var op operation
	if err := json.Unmarshal(d.Paths[route][strings.ToLower(method)], &op); err != nil {
		return err
	}
	doc, ok := op.Responses[fmt.Sprint(got.status)]
	if !ok {
		return fmt.Errorf("the status is not described, but %q", slices.Sorted(maps.Keys(op.Responses)))
	}
	if doc.Ref != "" {
		doc = d.Components.Responses[strings.TrimPrefix(doc.Ref, "#/components/responses/")]
	}
	media, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	content, ok := doc.Content[media]
	switch {
	case got.status == 204, got.body == "" && len(doc.Content) == 0:
		return nil
	case !ok:
		return fmt.Errorf("the media type %q is not described", media)
	case strings.HasPrefix(media, "text/"), media == "application/octet-stream":
		return nil
	}
	bodies := []string{got.body}
	if media == "application/x-ndjson" {
		bodies = strings.Split(strings.TrimSpace(got.body), "\n")
	}
	for _, body := range bodies {
		var value any
		if err := json.Unmarshal([]byte(body), &value); err != nil {
			return err
		}
		if err := d.check(content.Schema, "the answer", value); err != nil {
			return err
		}
	}
	return nil
}
