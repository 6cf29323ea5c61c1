package conversations

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"hansard"
	"hansard/internal/wire"
	"hansard/memstore"
)

func TestRefusals(t *testing.T) {
	s := newServer(t, memstore.New())
	id := s.create(`{"items":[` + message("hi") + `,{"type":"reasoning","id":"rs_1","summary":[]}]}`)
	items := "/" + id + "/items"
	many := strings.TrimSuffix(strings.Repeat(message("x")+",", 101), ",")
	pairs := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"k%d":"v"`, i))
		}
		return `{"metadata":{` + strings.Join(all, ",") + `}}`
	}
	one := func(item string) string { return `{"items":[` + item + `]}` }
	s.ok("POST", "", pairs(16))
	s.ok("POST", "", `{"items":[`+strings.TrimSuffix(strings.Repeat(message("x")+",", 100), ",")+`]}`)
	lastSeq := func() hansard.Seq {
		info, err := s.store.Stat(context.Background(), hansard.SessionID(id))
		if err != nil {
			t.Fatal(err)
		}
		return info.LastSeq
	}
	before := lastSeq()

	for _, c := range []struct {
		status                          int
		code, param, method, path, body string
	}{
		// Paths and methods.
		{404, "conversation_not_found", "conversation_id", "GET", "/conv_none", ""},
		{404, "conversation_not_found", "conversation_id", "POST", "/conv_none", `{"metadata":{}}`},
		{404, "conversation_not_found", "conversation_id", "DELETE", "/conv_none", ""},
		{404, "conversation_not_found", "conversation_id", "GET", "/conv_none/items", ""},
		{404, "conversation_not_found", "conversation_id", "POST", "/conv_none/items", one(message("x"))},
		{404, "conversation_not_found", "conversation_id", "POST", "/conv_none/items", one(`{"type":"reasoning","id":"rs_9","summary":[]}`)},
		{404, "conversation_not_found", "conversation_id", "POST", "/conv_none/items", one("")},
		{404, "conversation_not_found", "conversation_id", "GET", "/conv_none/items/msg_1", ""},
		{404, "conversation_not_found", "conversation_id", "DELETE", "/conv_none/items/msg_1", ""},
		{404, "item_not_found", "item_id", "GET", items + "/msg_none", ""},
		{404, "item_not_found", "item_id", "GET", items + "/" + makeItemID(hansard.SessionID(id), "message", 99), ""},
		{404, "item_not_found", "item_id", "GET", items + "/" + makeItemID(hansard.SessionID(id), "reasoning", 1), ""},
		{404, "item_not_found", "item_id", "GET", items + "/" + makeItemID("other", "message", 1), ""},
		{404, "item_not_found", "item_id", "GET", items + "/" + strings.ToUpper(makeItemID(hansard.SessionID(id), "message", 1)), ""},
		{404, "item_not_found", "item_id", "DELETE", items + "/msg_none", ""},
		{400, "invalid_value", "conversation_id", "GET", "/..%2F..%2Fetc", ""},
		{400, "invalid_value", "conversation_id", "GET", "/../x", ""},
		{400, "invalid_value", "conversation_id", "GET", "/%00", ""},
		{400, "invalid_value", "conversation_id", "GET", "/-x/items", ""},
		{400, "invalid_value", "conversation_id", "GET", "/" + strings.Repeat("a", 129), ""},
		{400, "invalid_value", "item_id", "GET", items + "/", ""},
		{400, "invalid_value", "item_id", "GET", items + "/%0a", ""},
		{400, "invalid_value", "item_id", "GET", items + "/" + strings.Repeat("a", 1025), ""},
		{404, "unknown_url", "null", "GET", "/" + id + "/messages", ""},
		{404, "unknown_url", "null", "GET", items + "/a/b", ""},
		{404, "unknown_url", "null", "GET", "x/y", ""},
		{405, "method_not_supported", "null", "GET", "", ""},
		{405, "method_not_supported", "null", "PUT", "/" + id, "{}"},
		{405, "method_not_supported", "null", "PATCH", "/" + id, "{}"},
		{405, "method_not_supported", "null", "DELETE", items, ""},
		{405, "method_not_supported", "null", "POST", items + "/rs_1", "{}"},
		// The query.
		{400, "integer_above_max_value", "limit", "GET", items + "?limit=101", ""},
		{400, "integer_below_min_value", "limit", "GET", items + "?limit=0", ""},
		{400, "integer_below_min_value", "limit", "GET", items + "?limit=-1", ""},
		{400, "invalid_type", "limit", "GET", items + "?limit=ten", ""},
		{400, "invalid_type", "limit", "GET", items + "?limit=99999999999999999999", ""},
		{400, "invalid_value", "order", "GET", items + "?order=up", ""},
		{404, "item_not_found", "after", "GET", items + "?after=msg_none", ""},
		{404, "item_not_found", "after", "GET", items + "?after=" + makeItemID(hansard.SessionID(id), "message", 99), ""},
		{400, "unknown_parameter", "before", "GET", items + "?before=rs_1", ""},
		{400, "unknown_parameter", "limit", "GET", "/" + id + "?limit=1", ""},
		{400, "invalid_query", "null", "GET", items + "?a=%zz", ""},
		// Bodies.
		{400, "invalid_json", "null", "POST", "", `{"items":[}`},
		{400, "invalid_json", "null", "POST", "", `{"items":[]} x`},
		{400, "invalid_json", "null", "POST", "", `{"items":[]`},
		{400, "invalid_json", "null", "POST", "", `[]`},
		{400, "invalid_json", "null", "POST", "", `nonsense`},
		{400, "invalid_json", "null", "POST", "", strings.Repeat(`{"items":`, 20000)},
		{400, "unknown_parameter", "model", "POST", "", `{"model":"gpt"}`},
		{400, "unknown_parameter", "metadata", "POST", items, `{"items":[],"metadata":{}}`},
		{400, "unknown_parameter", "Items", "POST", items, `{"Items":[]}`},
		{400, "missing_required_parameter", "items", "POST", items, `{}`},
		{400, "missing_required_parameter", "items", "POST", items, `{"items":null}`},
		{400, "missing_required_parameter", "metadata", "POST", "/" + id, `{}`},
		{400, "invalid_type", "items", "POST", items, `{"items":{}}`},
		{400, "invalid_type", "items[0]", "POST", items, one(`"hi"`)},
		{400, "invalid_type", "items[1]", "POST", items, one(message("x") + `,[]`)},
		{400, "array_above_max_length", "items", "POST", items, one(many)},
		{400, "array_above_max_length", "items", "POST", "", one(many)},
		// Items.
		{400, "missing_required_parameter", "items[0].role", "POST", items, one(`{}`)},
		{400, "missing_required_parameter", "items[0].content", "POST", items, one(`{"role":"user"}`)},
		{400, "missing_required_parameter", "items[0].content", "POST", "", one(`{"role":"user","content":null}`)},
		{400, "invalid_value", "items[0].role", "POST", items, one(`{"role":"robot","content":""}`)},
		{400, "invalid_type", "items[0].role", "POST", items, one(`{"role":1,"content":""}`)},
		{400, "invalid_type", "items[0].content", "POST", items, one(`{"role":"user","content":{}}`)},
		{400, "invalid_type", "items[0].content[0]", "POST", items, one(`{"role":"user","content":["x"]}`)},
		{400, "missing_required_parameter", "items[0].content[1].type", "POST", items, one(`{"role":"user","content":[{"type":"input_text","text":""},{}]}`)},
		{400, "invalid_type", "items[0].type", "POST", items, one(`{"type":1}`)},
		{400, "invalid_value", "items[0].type", "POST", items, one(`{"type":""}`)},
		{400, "invalid_value", "items[0].type", "POST", items, one(`{"type":"a b"}`)},
		{400, "invalid_value", "items[0].type", "POST", items, one(`{"type":"turn"}`)},
		{400, "invalid_value", "items[0].type", "POST", items, one(`{"type":"summary"}`)},
		{400, "invalid_value", "items[0].type", "POST", items, one(`{"type":"meta"}`)},
		{400, "invalid_value", "items[0].type", "POST", items, one(`{"type":"item_deleted","seq":1}`)},
		{400, "invalid_value", "items[0].type", "POST", items, one(`{"type":"item_reference","id":"rs_1"}`)},
		{400, "missing_required_parameter", "items[0].call_id", "POST", items, one(`{"type":"function_call","name":"f","arguments":""}`)},
		{400, "missing_required_parameter", "items[0].output", "POST", items, one(`{"type":"function_call_output","call_id":"c"}`)},
		{400, "invalid_type", "items[0].id", "POST", items, one(`{"type":"reasoning","id":1}`)},
		{400, "invalid_value", "items[0].id", "POST", items, one(`{"type":"reasoning","id":""}`)},
		{400, "invalid_value", "items[0].id", "POST", items, one(`{"type":"reasoning","id":"a\nb"}`)},
		{400, "duplicate_item_id", "items[0].id", "POST", items, one(`{"type":"reasoning","id":"rs_1"}`)},
		{400, "duplicate_item_id", "items[1].id", "POST", items, one(`{"type":"reasoning","id":"rs_2"},{"type":"reasoning","id":"rs_2"}`)},
		{400, "duplicate_item_id", "items[1].id", "POST", "", one(`{"type":"reasoning","id":"rs_2"},{"type":"reasoning","id":"rs_2"}`)},
		{400, "duplicate_item_id", "items[0].id", "POST", items, one(`{"type":"reasoning","id":"` + makeItemID(hansard.SessionID(id), "message", 1) + `"}`)},
		{400, "invalid_value", "items[0].id", "POST", items, one(`{"type":"reasoning","id":"` + makeItemID(hansard.SessionID(id), "reasoning", 77) + `"}`)},
		{400, "invalid_value", "items[0]", "POST", items, one("{\"role\":\"user\",\"content\":\"\xff\"}")},
		// Metadata.
		{400, "invalid_type", "metadata", "POST", "", `{"metadata":[]}`},
		{400, "invalid_type", "metadata.a", "POST", "", `{"metadata":{"a":1}}`},
		{400, "invalid_type", "metadata.a", "POST", "/" + id, `{"metadata":{"a":null}}`},
		{400, "invalid_value", "metadata", "POST", "", `{"metadata":{"":"x"}}`},
		{400, "object_above_max_properties", "metadata", "POST", "", pairs(17)},
		{400, "string_above_max_length", "metadata." + strings.Repeat("k", 64), "POST", "", `{"metadata":{"` + strings.Repeat("k", 65) + `":"x"}}`},
		{400, "string_above_max_length", "metadata.k", "POST", "", `{"metadata":{"k":"` + strings.Repeat("v", 513) + `"}}`},
	} {
		if c.body == one("") { // an empty list, not an empty item
			c.body = `{"items":[]}`
		}
		s.fails(c.status, c.code, c.param, c.method, c.path, c.body)
	}
	if after := lastSeq(); after != before {
		t.Errorf("a request that was refused wrote: last seq %d, was %d", after, before)
	}

	s.fails(415, "unsupported_media_type", "null", "POST", "", `{}`, "Content-Type", "text/plain")
	s.fails(400, "invalid_value", keyHeader, "POST", "", `{}`, keyHeader, "openai:delete:1")
	s.fails(413, "request_too_large", keyHeader, "POST", items, one(message("x")), keyHeader, strings.Repeat("k", 257))
	for _, key := range []string{"", " ", `"`, `"a`, `"a"b"`, `""`, `"a\x"`, `"a\`, `"openai:delete:1"`} {
		s.fails(400, "invalid_value", keyHeader, "POST", items, one(message("x")), keyHeader, key)
	}
	s.fails(400, "invalid_value", inboxHeader, "POST", items, one(message("x")), inboxHeader, "maybe")
	s.fails(413, "request_too_large", "null", "POST", "", strings.Repeat(" ", MaxBodyBytes+1))
	half := `{"role":"user","content":"` + strings.Repeat("x", hansard.MaxBatchBytes/2) + `"}`
	s.fails(413, "request_too_large", "items", "POST", items, one(half+","+half))
	if allow := s.do("PUT", "/"+id, "").header.Get("Allow"); allow != "GET, POST, DELETE" {
		t.Errorf("Allow: %s", allow)
	}
}

// TestRefuse: refusals by the server around the handler have the same shape.
func TestRefuse(t *testing.T) {
	s := newServer(t, memstore.New())
	s.h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Refuse(w, 401, "invalid_api_key", "No token was given.", 0)
	})
	a := s.fails(401, "invalid_api_key", "null", "GET", "/x", "")
	same(t, "body", a.body, `{"error":{"code":"invalid_api_key","message":"No token was given.","param":null,"type":"invalid_request_error"}}`)
}

// brokenStore answers everything with one error.
type brokenStore struct {
	hansard.Store
	err error
}

func (b brokenStore) Stat(context.Context, hansard.SessionID) (hansard.Info, error) {
	return hansard.Info{}, b.err
}
func (b brokenStore) Append(context.Context, hansard.SessionID, hansard.Batch) (hansard.Receipt, error) {
	return hansard.Receipt{}, b.err
}
func (b brokenStore) Create(context.Context, hansard.SessionID, hansard.Meta) (hansard.Info, error) {
	return hansard.Info{}, b.err
}
func (b brokenStore) Delete(context.Context, hansard.SessionID, hansard.Grant) error { return b.err }
func (b brokenStore) Read(context.Context, hansard.SessionID, hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) { yield(hansard.Event{}, b.err) }
}

// TestStoreErrors: every error of the store has its status, and tells an SDK whether to retry;
// neither the answer nor the log reveals the internals of the machine.
func TestStoreErrors(t *testing.T) {
	secret := errors.New("open /var/lib/secret: permission denied")
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  string
	}{
		{hansard.ErrNotFound, 404, "conversation_not_found", ""},
		{hansard.ErrDeleted, 404, "conversation_deleted", ""},
		{hansard.ErrExists, 409, "conversation_exists", "false"},
		{&hansard.ConflictError{}, 409, "conversation_busy", "true"},
		{&hansard.KeyReusedError{}, 422, "idempotency_key_reused", ""},
		{&hansard.HeldError{Turn: hansard.Turn{Exclusive: true, Holder: hansard.Holder{Label: "agent-1"}}}, 409, "turn_held", "true"},
		{hansard.ErrHeld, 409, "turn_held", "true"},
		{hansard.ErrInvalid, 400, "invalid_value", ""},
		{hansard.ErrTooLarge, 413, "request_too_large", ""},
		{&hansard.IDReusedError{}, 400, "duplicate_item_id", ""},
		{hansard.ErrNoEvent, 404, "item_not_found", ""},
		{hansard.ErrNoAttachment, 422, "attachment_not_found", ""},
		{fmt.Errorf("%w: %w", hansard.ErrFailed, secret), 500, "store_failed", "false"},
		{fmt.Errorf("%w: %w", hansard.ErrVersion, secret), 500, "newer_version", "false"},
		{hansard.ErrUnsupported, 501, "unsupported", "false"},
		{&hansard.FencedError{}, 409, "turn_lost", "false"},
		{&hansard.DamagedError{SafeSeq: 7, Reason: "in /var/lib/secret"}, 503, "conversation_damaged", "false"},
		{&hansard.UnreadableError{Reason: "/var/lib/secret belongs to somebody else"}, 503, "conversation_unreadable", "false"},
		{hansard.ErrDamaged, 503, "conversation_damaged", "false"},
		{&hansard.BusyError{Holder: "pid 7"}, 503, "store_busy", "true"},
		{fmt.Errorf("%w: /var/lib/secret", hansard.ErrNoSpace), 507, "no_space", "false"},
		{hansard.ErrReadOnly, 403, "read_only", ""},
		{hansard.ErrClosed, 503, "shutting_down", "true"},
		{hansard.ErrUnknown, 500, "outcome_unknown", "false"},
		{fmt.Errorf("%w: %w", hansard.ErrUnknown, &hansard.BusyError{}), 500, "outcome_unknown", "false"},
		{fmt.Errorf("%w: %w", hansard.ErrUnknown, &hansard.DamagedError{}), 500, "outcome_unknown", "false"},
		{context.DeadlineExceeded, 503, "timeout", "false"},
		{secret, 500, "internal_error", "false"},
	} {
		var log bytes.Buffer
		s := newServer(t, brokenStore{memstore.New(), c.err})
		s.h = New(s.store, &Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		for _, r := range []struct{ method, path, body string }{
			{"POST", "", ""},
			{"POST", "/x/items", `{"items":[` + message("x") + `]}`},
			{"DELETE", "/x", ""},
			{"GET", "/x", ""},
			{"GET", "/x/items", ""},
		} {
			a := s.do(r.method, r.path, r.body)
			if a.status != c.status || !strings.Contains(a.body, `"code":"`+c.code+`"`) || a.header.Get("X-Should-Retry") != c.retry {
				t.Errorf("%v, %s %s: %d retry %q %s", c.err, r.method, r.path, a.status, a.header.Get("X-Should-Retry"), a.body)
			}
			if strings.Contains(a.body, "secret") {
				t.Errorf("%v: the answer shows a path: %s", c.err, a.body)
			}
		}
		if logged := strings.Contains(log.String(), "permission denied"); logged != errors.Is(c.err, secret) || strings.Contains(log.String(), "secret") {
			t.Errorf("%v: logged %q", c.err, log.String())
		}
	}
	// With a key a retry settles an unknown outcome, so the SDK should retry.
	s := newServer(t, brokenStore{memstore.New(), hansard.ErrUnknown})
	if a := s.do("POST", "/x/items", `{"items":[`+message("x")+`]}`, keyHeader, "k"); a.header.Get("X-Should-Retry") != "true" {
		t.Errorf("retry with a key: %q", a.header.Get("X-Should-Retry"))
	}
}

// busyAfter is a store that can't be asked about a session after something was appended to it.
type busyAfter struct {
	hansard.Store
	wrote *bool
}

func (b busyAfter) Append(ctx context.Context, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
	*b.wrote = true
	return b.Store.Append(ctx, id, batch)
}

func (b busyAfter) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	if *b.wrote {
		return hansard.Info{}, &hansard.BusyError{}
	}
	return b.Store.Stat(ctx, id)
}

// TestStoredButUnread: what is stored is not reported as if it were not, which an SDK would send
// again, because the answer can't be read.
func TestStoredButUnread(t *testing.T) {
	store := memstore.New()
	id := field[string](t, newServer(t, store).ok("POST", "", `{"items":[{"type":"x","id":"i"}]}`), "id")
	for _, r := range []struct{ method, path, body string }{
		{"POST", "", `{"items":[` + message("x") + `]}`},
		{"POST", "/" + id, `{"metadata":{"a":"b"}}`},
		{"DELETE", "/" + id + "/items/i", ""},
	} {
		s := newServer(t, busyAfter{store, new(bool)})
		if a := s.do(r.method, r.path, r.body); a.status != 500 || !strings.Contains(a.body, `"code":"outcome_unknown"`) || a.header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s %s: %d retry %q %s", r.method, r.path, a.status, a.header.Get("X-Should-Retry"), a.body)
		}
	}
	s := newServer(t, busyAfter{store, new(bool)})
	if a := s.do("POST", "", `{"items":[`+message("x")+`]}`, keyHeader, "k"); a.header.Get("X-Should-Retry") != "true" {
		t.Errorf("with a key: %d retry %q %s", a.status, a.header.Get("X-Should-Retry"), a.body)
	}
}

// TestEveryErrorHasItsAnswer: no kind of the contract's errors is answered as an error that the
// server does not know.
func TestEveryErrorHasItsAnswer(t *testing.T) {
	for _, kind := range wire.ContractErrors() {
		answer, _ := errorFor(fmt.Errorf("wrapped: %w", kind), "x")
		if answer.code == "" || answer.code == "internal_error" || answer.message == "" || answer.status < 400 {
			t.Errorf("%v is answered with %d %q %q", kind, answer.status, answer.code, answer.message)
		}
		if (answer.kind == kindServer) != (answer.status >= 500) {
			t.Errorf("%v is answered with %d and the type %s", kind, answer.status, answer.kind)
		}
	}
}

// damagedStore has one damaged session.
type damagedStore struct{ hansard.Store }

func (d damagedStore) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	info, err := d.Store.Stat(ctx, id)
	info.Damage = &hansard.DamagedError{Session: id, SafeSeq: 1, Reason: "torn"}
	return info, err
}

func TestDamagedIsNotMissing(t *testing.T) {
	s := newServer(t, memstore.New())
	id := s.create(`{"items":[` + message("x") + `]}`)
	d := newServer(t, damagedStore{s.store})
	d.fails(http.StatusServiceUnavailable, "conversation_damaged", "null", "GET", "/"+id, "")
	d.fails(http.StatusServiceUnavailable, "conversation_damaged", "null", "GET", "/"+id+"/items", "")
	d.fails(http.StatusServiceUnavailable, "conversation_damaged", "null", "GET", "/"+id+"/items/msg_x", "")
}
