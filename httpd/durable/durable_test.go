package durable

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hansard"
	"hansard/internal/wire"
	"hansard/memstore"
)

// world is the streams of a store, without a network.
type world struct {
	t     *testing.T
	store hansard.Store
	*Streams
}

func newWorld(t *testing.T, store hansard.Store, o Options) *world {
	return &world{t, store, New(store, o)}
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	id := hansard.SessionID(strings.TrimPrefix(r.URL.Path, Prefix))
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		err = w.Read(rw, r, id)
	case http.MethodPut:
		err = w.Create(rw, r, id, body)
	case http.MethodPost:
		err = w.Append(rw, r, id, body)
	case http.MethodDelete:
		err = w.Delete(rw, r, id)
	}
	if err != nil {
		p := wire.ProblemOf(err)
		rw.Header().Set("Problem", strings.TrimPrefix(p.Type, wire.ProblemType("")))
		rw.WriteHeader(p.Status)
	}
}

// ask makes a request; headers alternate names and values.
func (w *world) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, Prefix+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	out := httptest.NewRecorder()
	w.ServeHTTP(out, r)
	return out
}

func (w *world) must(status int, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	got := w.ask(method, path, body, headers...)
	if got.Code != status {
		w.t.Fatalf("%s %s: %d %s, not %d", method, path, got.Code, got.Header(), status)
	}
	return got
}

func (w *world) refused(status int, problem, method, path, body string, headers ...string) http.Header {
	w.t.Helper()
	got := w.ask(method, path, body, headers...)
	if got.Code != status || got.Header().Get("Problem") != problem {
		w.t.Errorf("%s %s %q: %d %q, not %d %s", method, path, headers, got.Code, got.Header().Get("Problem"), status, problem)
	}
	return got.Header()
}

func (w *world) events(id hansard.SessionID) []hansard.Event {
	w.t.Helper()
	var out []hansard.Event
	for e, err := range w.store.Read(context.Background(), id, hansard.Range{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

var (
	asJSON = []string{headerType, mediaJSON}
	asText = []string{headerType, "text/plain; charset=utf-8"}
)

func with(headers []string, more ...string) []string { return append(slices.Clone(headers), more...) }

func producerOf(id string, epoch, seq int) []string {
	return []string{headerProducer, id, headerEpoch, fmt.Sprint(epoch), headerProducerSeq, fmt.Sprint(seq)}
}

// TestMessagesAreEvents: the messages of a stream are events with the client's bytes, and events
// that others append to the session are messages.
func TestMessagesAreEvents(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	ctx := context.Background()
	w.must(201, "PUT", "s", `[]`, asJSON...)
	w.must(204, "POST", "s", ` {"a": 1.50,"a\u0000":"é"} `, asJSON...)
	w.must(204, "POST", "s", `[ [1, 2],null , "x"]`, asJSON...)
	turn, err := w.store.Acquire(ctx, "s", hansard.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	title := "t"
	if _, err := w.store.Append(ctx, "s", hansard.Batch{Patch: &hansard.Patch{Title: &title}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Append(ctx, "s", hansard.Batch{Turn: turn.Grant, Events: []hansard.Event{{Kind: "tool_call", Role: "agent", Data: json.RawMessage(`{"t":1}`)}}}); err != nil {
		t.Fatal(err)
	}
	got := w.must(200, "GET", "s", "")
	const want = `[{"a": 1.50,"a\u0000":"é"},[1, 2],null,"x",{"t":1}]`
	if got.Body.String() != want || got.Header().Get(headerUpToDate) != "true" || got.Header().Get(headerNext) != formatOffset(7) {
		t.Errorf("read %s %v", got.Body, got.Header())
	}
	for i, e := range w.events("s")[:4] {
		if e.Kind != hansard.KindMessage || e.Seq != hansard.Seq(i+1) {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	if got := w.must(200, "GET", "s?offset="+formatOffset(4), "").Body.String(); got != `[{"t":1}]` {
		t.Errorf("behind the fourth there is %s", got)
	}
	var whole []hansard.Event
	if err := json.Unmarshal(w.must(200, "GET", "s?events=true", "").Body.Bytes(), &whole); err != nil || len(whole) != 7 || whole[6].Role != "agent" || whole[6].Seq != 7 {
		t.Errorf("whole events are %+v, %v", whole, err)
	}
}

// TestAnySessionIsAStream: also one that was never created as a stream, whatever its state.
func TestAnySessionIsAStream(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	for i, state := range []string{``, `{}`, `{"mine":1}`, `[1]`, `"x"`} {
		id := fmt.Sprintf("s%d", i)
		if _, err := w.store.Create(context.Background(), hansard.SessionID(id), hansard.Meta{State: json.RawMessage(state)}); err != nil {
			t.Fatal(err)
		}
		if got := w.must(200, "HEAD", id, "").Header(); got.Get(headerType) != mediaJSON || got.Get(headerNext) != formatOffset(0) {
			t.Errorf("it is %v", got)
		}
		w.must(200, "PUT", id, "", asJSON...)
		w.refused(409, "stream-conflict", "PUT", id, "", asText...)
		w.must(204, "POST", id, `1`, asJSON...)
		if i >= 3 { // there is no room for the state of a producer
			w.refused(409, "stream-conflict", "POST", id, `2`, with(asJSON, producerOf("p", 0, 0)...)...)
			w.refused(409, "stream-conflict", "POST", id, ``, headerClosed, "true")
			continue
		}
		w.must(200, "POST", id, `2`, with(asJSON, producerOf("p/~", 0, 0)...)...)
		w.must(204, "POST", id, `2`, with(asJSON, producerOf("p/~", 0, 0)...)...)
		w.must(204, "POST", id, ``, headerClosed, "true")
		if got := w.must(200, "GET", id, ""); got.Body.String() != `[1,2]` || got.Header().Get(headerClosed) != "true" {
			t.Errorf("with the state %s there is %s %v", state, got.Body, got.Header())
		}
		var st map[string]json.RawMessage
		info, err := w.store.Stat(context.Background(), hansard.SessionID(id))
		if err != nil || json.Unmarshal(info.State, &st) != nil || i == 2 && string(st["mine"]) != "1" {
			t.Errorf("the state is %s, %v", info.State, err)
		}
	}
	if _, err := w.store.Create(context.Background(), "odd", hansard.Meta{State: json.RawMessage(`{"durable":7}`)}); err != nil {
		t.Fatal(err)
	}
	w.refused(409, "stream-conflict", "GET", "odd", "")
}

// TestBytes: a stream of bytes returns the bytes it was given, and stores text as text in the
// log.
func TestBytes(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	parts := []string{"hello\x00", "\xff\xfe", "é"[:1], "é"[1:], strings.Repeat("\x01", 9), "<&>\u2028", `"`}
	w.must(201, "PUT", "b", parts[0])
	for _, part := range parts[1:] {
		w.must(204, "POST", "b", part, headerType, mediaBytes)
	}
	if got := w.must(200, "GET", "b", "").Body.String(); got != strings.Join(parts, "") {
		t.Errorf("read %q", got)
	}
	events := w.events("b")
	if string(events[0].Data) != `"hello\u0000"` || string(events[1].Data) != `{"base64":"//4="}` || events[0].Kind != kindChunk {
		t.Errorf("kept as %s and %s", events[0].Data, events[1].Data)
	}
	// Events written there by others are not part of it.
	if _, err := w.store.Append(context.Background(), "b", hansard.Batch{Events: []hansard.Event{{Data: json.RawMessage(`"x"`)}, {Kind: kindChunk, Data: json.RawMessage(`7`)}}}); err != nil {
		t.Fatal(err)
	}
	if got := w.must(200, "GET", "b", "").Body.String(); got != strings.Join(parts, "") {
		t.Errorf("read %q", got)
	}
}

func FuzzChunk(f *testing.F) {
	f.Add([]byte("text"))
	f.Add([]byte{0, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := decodeChunk(encodeChunk(b))
		if !ok || string(got) != string(b) {
			t.Errorf("%q became %q", b, got)
		}
	})
}

// TestProducers: every request is stored once, in order, and none of an old epoch.
func TestProducers(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	w.must(201, "PUT", "s", "", asText...)
	post := func(status int, body string, epoch, seq int) http.Header {
		t.Helper()
		return w.must(status, "POST", "s", body, with(asText, producerOf("p", epoch, seq)...)...).Header()
	}
	post(200, "a", 0, 0)
	post(200, "b", 0, 1)
	if h := post(204, "b", 0, 1); h.Get(headerProducerSeq) != "1" || h.Get(headerEpoch) != "0" {
		t.Errorf("a duplicate is answered %v", h)
	}
	if h := w.refused(409, "stream-conflict", "POST", "s", "d", with(asText, producerOf("p", 0, 3)...)...); h.Get(headerExpectedSeq) != "2" || h.Get(headerReceivedSeq) != "3" {
		t.Errorf("a gap is answered %v", h)
	}
	w.refused(400, "malformed", "POST", "s", "d", with(asText, producerOf("p", 1, 1)...)...)
	post(200, "c", 1, 0)
	if h := w.refused(403, "stale-epoch", "POST", "s", "d", with(asText, producerOf("p", 0, 2)...)...); h.Get(headerEpoch) != "1" {
		t.Errorf("an old epoch is answered %v", h)
	}
	w.refused(409, "stream-conflict", "POST", "s", "d", with(asText, producerOf("new", 0, 1)...)...)
	if got := w.must(200, "GET", "s", "").Body.String(); got != "abc" {
		t.Errorf("the stream is %q", got)
	}
	for _, bad := range [][]string{{headerProducer, "p"}, producerOf("", 0, 0), {headerProducer, "p", headerEpoch, "-1", headerProducerSeq, "0"},
		{headerProducer, "p", headerEpoch, "0", headerProducerSeq, "9007199254740992"}, producerOf(strings.Repeat("x", 257), 0, 0),
		with(producerOf("p", 1, 1), wire.KeyHeader, `"k"`)} {
		w.refused(400, "malformed", "POST", "s", "d", with(asText, bad...)...)
	}
}

// TestForgottenProducers: a stream remembers a limited number of producers, and even the first
// request of a forgotten one is not stored twice.
func TestForgottenProducers(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	w.must(201, "PUT", "s", "", asText...)
	for i := range maxProducers + 2 {
		w.must(200, "POST", "s", "x", with(asText, producerOf(fmt.Sprint("p", i), 0, 0)...)...)
	}
	c, _, err := w.find(context.Background(), "s")
	if err != nil || len(c.Producers) != maxProducers {
		t.Fatalf("%d producers are remembered, %v", len(c.Producers), err)
	}
	if _, known := c.Producers["p0"]; known {
		t.Error("the first one is")
	}
	w.must(204, "POST", "s", "x", with(asText, producerOf("p0", 0, 0)...)...)
	if got := w.must(200, "GET", "s", "").Body.Len(); got != maxProducers+2 {
		t.Errorf("the stream has %d bytes", got)
	}
}

// forgetful is a store whose answers get lost.
type forgetful struct {
	hansard.Store
	mu   sync.Mutex
	rand *rand.Rand
}

func (f *forgetful) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	f.mu.Lock()
	before, after := f.rand.IntN(4) == 0, f.rand.IntN(4) == 0
	f.mu.Unlock()
	if before {
		return hansard.Receipt{}, hansard.ErrBusy
	}
	receipt, err := f.Store.Append(ctx, id, b)
	if err == nil && after {
		return hansard.Receipt{}, hansard.ErrUnknown
	}
	return receipt, err
}

// TestProducersRetry: producers repeat every request until it is answered, while answers get lost
// and every request is sent twice at once: everything is stored once, in order.
func TestProducersRetry(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(t, &forgetful{Store: memstore.New(), rand: rand.New(rand.NewPCG(seed, 1))}, Options{})
	w.must(201, "PUT", "s", "", asJSON...)
	const producers, each = 6, 30
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			for n := range each {
				var twice sync.WaitGroup
				for range 2 {
					twice.Go(func() {
						for range 1000 {
							got := w.ask("POST", "s", fmt.Sprintf(`{"p":%d,"n":%d}`, p, n), with(asJSON, producerOf(fmt.Sprint("p", p), 0, n)...)...)
							if got.Code == 200 || got.Code == 204 {
								return
							}
							if got.Code != 503 && got.Code != 504 {
								t.Errorf("%d of %d: %d %v", n, p, got.Code, got.Header())
								return
							}
						}
						t.Errorf("%d of %d is never answered", n, p)
					})
				}
				twice.Wait()
			}
		})
	}
	all.Wait()
	var got []struct{ P, N int }
	if err := json.Unmarshal(w.must(200, "GET", "s", "").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	next := map[int]int{}
	for _, m := range got {
		if m.N != next[m.P] {
			t.Fatalf("producer %d has %d where %d is due", m.P, m.N, next[m.P])
		}
		next[m.P]++
	}
	if len(got) != producers*each {
		t.Errorf("there are %d messages of %d", len(got), producers*each)
	}
}

// TestCloseWhileOthersAppend: accepted messages are in the closed stream, refused ones are not,
// and nothing comes after its end.
func TestCloseWhileOthersAppend(t *testing.T) {
	for range 20 {
		w := newWorld(t, memstore.New(), Options{})
		w.must(201, "PUT", "s", "", asJSON...)
		const writers = 8
		var accepted [writers]int
		var all sync.WaitGroup
		var begun sync.WaitGroup
		begun.Add(writers)
		for i := range writers {
			all.Go(func() {
				for {
					got := w.ask("POST", "s", fmt.Sprint(i), asJSON...)
					if got.Code == 409 && got.Header().Get(headerClosed) == "true" {
						return
					}
					if got.Code != 204 {
						t.Errorf("%d %v", got.Code, got.Header())
						return
					}
					if accepted[i]++; accepted[i] == 3 {
						begun.Done()
					}
				}
			})
		}
		begun.Wait()
		for w.ask("POST", "s", `"end"`, with(asJSON, headerClosed, "true")...).Code == 503 {
		}
		all.Wait()
		var got []any
		answer := w.must(200, "GET", "s", "")
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		var there [writers]int
		for _, m := range got[:len(got)-1] {
			there[int(m.(float64))]++
		}
		if there != accepted || got[len(got)-1] != "end" || answer.Header().Get(headerClosed) != "true" {
			t.Fatalf("accepted %v, there are %v, at its end %v", accepted, there, got[len(got)-1])
		}
		tail := answer.Header().Get(headerNext)
		if _, err := w.store.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{{Data: json.RawMessage(`"late"`)}}}); err != nil {
			t.Fatal(err)
		}
		if h := w.must(200, "HEAD", "s", "").Header(); h.Get(headerNext) != tail {
			t.Errorf("its end is %s, and was %s", h.Get(headerNext), tail)
		}
		if late := w.must(200, "GET", "s?offset="+tail, "").Body.String(); late != "[]" {
			t.Errorf("behind its end there is %s", late)
		}
	}
}

// TestExpiry: an expired stream is gone, its session is not; a new stream in its place has
// nothing of the old one.
func TestExpiry(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	later := time.Duration(0)
	w.now = func() time.Time { return time.Now().Add(later) }
	w.must(201, "PUT", "s", "old", with(asText, headerTTL, "100")...)
	old := w.must(200, "GET", "s", "").Header().Get(headerNext)
	later = 90 * time.Second
	w.must(200, "HEAD", "s", "")
	w.must(200, "GET", "s?offset=now", "") // counts as use
	later = 180 * time.Second
	w.must(200, "HEAD", "s", "") // does not count
	later = 191 * time.Second
	for _, method := range []string{"GET", "HEAD", "DELETE"} {
		w.refused(404, "not-found", method, "s", "")
	}
	w.refused(404, "not-found", "POST", "s", "x", asText...)
	if got := w.events("s"); len(got) != 1 {
		t.Errorf("the session has %d events", len(got))
	}
	w.must(201, "PUT", "s", `["new"]`, asJSON...)
	if got := w.must(200, "GET", "s", "").Body.String(); got != `["new"]` {
		t.Errorf("the new stream is %s", got)
	}
	if old != formatOffset(1) {
		t.Errorf("the old one ended at %s", old)
	}
	w.refused(410, "deleted", "GET", "s?offset="+formatOffset(0), "")
	w.must(201, "PUT", "x", "", with(asText, headerExpires, w.now().Add(time.Hour).Format(time.RFC3339))...)
	later += 2 * time.Hour
	w.refused(404, "not-found", "GET", "x", "")
	w.must(201, "PUT", "x", "", with(asText, headerClosed, "true")...)
	if got := w.must(200, "GET", "x", ""); got.Body.Len() != 0 || got.Header().Get(headerClosed) != "true" {
		t.Errorf("a stream that was made closed is %q %v", got.Body, got.Header())
	}
	for _, bad := range [][]string{{headerTTL, "-1"}, {headerTTL, "1.5"}, {headerTTL, "01"}, {headerTTL, ""}, {headerExpires, "soon"},
		{headerExpires, "9999-12-31T23:59:59-01:00"}, {headerExpires, "0000-01-01T00:00:00+01:00"}, {headerTTL, "1", headerExpires, "2030-01-01T00:00:00Z"}, {headerType, "text"}, {headerType, strings.Repeat("x", 300) + "/y"}} {
		w.refused(400, "malformed", "PUT", "y", "", bad...)
	}
}

// TestOffsets: which offsets are valid, and which are not.
func TestOffsets(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	w.must(201, "PUT", "s", "[1,2]", asJSON...)
	for _, bad := range []string{"1", "0", "-2", "+000000000000001_0000000000000000", "000000000000000x_0000000000000000", "0000000000000001", "0000000000000001_0000000000000001", "", "now2", formatOffset(3), "99999999999999999999"} {
		w.refused(400, "malformed", "GET", "s?offset="+strings.ReplaceAll(bad, "+", "%2B"), "")
	}
	for _, bad := range []string{"live=sse", "offset=-1&live=x", "offset=-1&live=", "offset=-1&offset=-1", "events=x", "offset=%zz"} {
		w.refused(400, "malformed", "GET", "s?"+bad, "")
	}
	w.must(201, "PUT", "t", "x", asText...)
	w.refused(400, "malformed", "GET", "t?events=true", "")
	w.refused(400, "malformed", "GET", "__ds", "")
	w.refused(404, "not-found", "GET", "none", "")
	w.must(204, "DELETE", "t", "")
	w.refused(404, "deleted", "GET", "t", "")
	if got := w.must(200, "GET", "s?offset=-1&else=1", "").Body.String(); got != "[1,2]" {
		t.Errorf("with a parameter that there is not: %s", got)
	}
}

// TestPages: a long stream is read in pages, each message once.
func TestPages(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	w.must(201, "PUT", "s", "", asJSON...)
	large := `"` + strings.Repeat("x", maxPageBytes*2/3) + `"`
	for range 3 {
		w.must(204, "POST", "s", large, asJSON...)
	}
	small := "[" + strings.Repeat("1,", hansard.MaxBatchEvents-1) + "1]"
	w.must(204, "POST", "s", small, asJSON...)
	w.must(204, "POST", "s", small, asJSON...)
	w.refused(413, "too-large", "POST", "s", "[1,"+small[1:], asJSON...)
	offset, n, pages := "-1", 0, 0
	for {
		got := w.must(200, "GET", "s?offset="+offset, "")
		var messages []json.RawMessage
		if err := json.Unmarshal(got.Body.Bytes(), &messages); err != nil {
			t.Fatal(err)
		}
		n, pages, offset = n+len(messages), pages+1, got.Header().Get(headerNext)
		if got.Header().Get(headerUpToDate) == "true" {
			break
		}
	}
	if n != 3+2*hansard.MaxBatchEvents || pages < 5 {
		t.Errorf("%d messages on %d pages", n, pages)
	}
}

// TestSeq: the Stream-Seq of requests must grow, compared as text.
func TestSeq(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	w.must(201, "PUT", "s", "", asText...)
	w.must(204, "POST", "s", "a", with(asText, headerSeq, "a")...)
	w.must(204, "POST", "s", "b", with(asText, headerSeq, "b")...)
	for _, old := range []string{"a", "b", ""} {
		w.refused(409, "stream-conflict", "POST", "s", "x", with(asText, headerSeq, old)...)
	}
	w.refused(400, "malformed", "POST", "s", "x", with(asText, headerSeq, strings.Repeat("x", 257))...)
	if got := w.must(200, "GET", "s", "").Body.String(); got != "ab" {
		t.Errorf("the stream is %q", got)
	}
}

// TestTurn: streams can be written under the turn, and to its inbox.
func TestTurn(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	w.must(201, "PUT", "s", "", asJSON...)
	turn, err := w.store.Acquire(context.Background(), "s", hansard.Claim{Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	w.refused(423, "held", "POST", "s", "1", asJSON...)
	w.refused(423, "held", "DELETE", "s", "")
	w.refused(409, "fenced", "POST", "s", "1", with(asJSON, headerTurn, "1-0000000000000000")...)
	w.must(204, "POST", "s", "1", with(asJSON, headerTurn, string(turn.Grant))...)
	w.must(204, "POST", "s", "2", with(asJSON, headerInbox, "true")...)
	w.refused(400, "malformed", "POST", "s", "2", with(asJSON, headerInbox, "x")...)
	if got := w.must(200, "GET", "s", "").Body.String(); got != "[1,2]" {
		t.Errorf("the stream is %s", got)
	}
	if events := w.events("s"); !events[2].Inbox || events[1].Turn != turn.Grant {
		t.Errorf("the events are %+v", events)
	}
}

// TestLongPoll: it ends with a new message, a close, a timeout, the end of the server and the end
// of the stream.
func TestLongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing, shutDown := context.WithCancel(context.Background())
		w := newWorld(t, memstore.New(), Options{Closing: closing})
		w.must(201, "PUT", "s", "[1]", asJSON...)
		poll := func() chan *httptest.ResponseRecorder {
			out := make(chan *httptest.ResponseRecorder, 1)
			go func() { out <- w.ask("GET", "s?offset=now&live=long-poll", "") }()
			synctest.Wait() // until it waits
			return out
		}
		waits := poll()
		turn, err := w.store.Acquire(context.Background(), "s", hansard.Claim{}) // which does not wake it
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.must(204, "POST", "s", "2", asJSON...)
		if got := <-waits; got.Code != 200 || got.Body.String() != "[2]" || got.Header().Get(headerCursor) == "" || got.Header().Get(headerNext) != formatOffset(3) {
			t.Errorf("%d %s %v", got.Code, got.Body, got.Header())
		}
		_ = w.store.Release(context.Background(), "s", turn.Grant)
		began := time.Now()
		if got := <-poll(); got.Code != 204 || time.Since(began) != defaultLongPoll || got.Header().Get(headerUpToDate) != "true" {
			t.Errorf("after %v: %d %v", time.Since(began), got.Code, got.Header())
		}
		waits = poll()
		shutDown()
		if got := <-waits; got.Code != 204 {
			t.Errorf("the server closes: %d", got.Code)
		}
		w = newWorld(t, w.store, Options{})
		waits = poll()
		w.must(204, "POST", "s", "", headerClosed, "true")
		if got := <-waits; got.Code != 204 || got.Header().Get(headerClosed) != "true" {
			t.Errorf("the stream is closed: %d %v", got.Code, got.Header())
		}
		w.must(201, "PUT", "gone", "", asText...)
		out := make(chan *httptest.ResponseRecorder, 1)
		go func() { out <- w.ask("GET", "gone?offset=-1&live=long-poll", "") }()
		synctest.Wait()
		w.must(204, "DELETE", "gone", "")
		if got := <-out; got.Code != 404 {
			t.Errorf("the stream is deleted: %d", got.Code)
		}
	})
}

// TestEventStream: everything once, in order, from any offset, with an end.
func TestEventStream(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	w.must(201, "PUT", "s", " two\r\nlines", asText...)
	server := httptest.NewServer(w)
	defer server.Close()
	resp, err := http.Get(server.URL + Prefix + "s?offset=-1&live=sse")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	until := func(want string) (got []string) {
		t.Helper()
		for lines.Scan() {
			got = append(got, lines.Text())
			if strings.Contains(lines.Text(), want) {
				return got
			}
		}
		t.Fatalf("there is no %q in %q", want, got)
		return nil
	}
	if got := strings.Join(until("upToDate"), "\n"); !strings.HasPrefix(got, "event: data\ndata:  two\ndata:lines\n\nevent: control\ndata:{") {
		t.Errorf("the first are %q", got)
	}
	w.must(204, "POST", "s", "more", asText...)
	if got := strings.Join(until("streamNextOffset"), "\n"); !strings.Contains(got, "data:more\n") {
		t.Errorf("then came %q", got)
	}
	w.must(204, "POST", "s", "end", with(asText, headerClosed, "true")...)
	until("data:end")
	until(`"streamClosed":true`)
	if rest, err := io.ReadAll(resp.Body); err != nil || strings.TrimSpace(string(rest)) != "" {
		t.Errorf("behind the end there is %q, %v", rest, err)
	}
	w.must(201, "PUT", "b", "\xff", headerType, mediaBytes, headerClosed, "true")
	got := w.must(200, "GET", "b?offset=-1&live=sse", "")
	if got.Header().Get(headerEncoding) != "base64" || !strings.Contains(got.Body.String(), "data:"+base64.StdEncoding.EncodeToString([]byte{0xff})+"\n") {
		t.Errorf("bytes are sent as %q %v", got.Body, got.Header())
	}
}

// broken is a store that fails.
type broken struct {
	hansard.Store
	err error
}

func (b broken) Append(context.Context, hansard.SessionID, hansard.Batch) (hansard.Receipt, error) {
	return hansard.Receipt{}, b.err
}

// TestStoreFails: errors of the store are reported, never as success.
func TestStoreFails(t *testing.T) {
	store := memstore.New()
	newWorld(t, store, Options{}).must(201, "PUT", "s", "", asJSON...)
	for err, want := range map[error]int{hansard.ErrNoSpace: 507, hansard.ErrUnknown: 504, hansard.ErrReadOnly: 403, hansard.ErrConflict: 503, errors.New("x"): 500, hansard.ErrBusy: 503} {
		w := newWorld(t, broken{store, err}, Options{})
		for _, headers := range [][]string{asJSON, with(asJSON, producerOf("p", 0, 0)...), with(asJSON, headerClosed, "true")} {
			if got := w.ask("POST", "s", "1", headers...); got.Code != want {
				t.Errorf("%v: %d, not %d", err, got.Code, want)
			}
		}
		if got := w.ask("PUT", "new", "1", asJSON...); got.Code != want {
			t.Errorf("%v: a new one is %d, not %d", err, got.Code, want)
		}
	}
}

// TestEveryErrorIsReported: every kind of the contract's errors is answered as the problem it is,
// malformed input and deleted streams as this protocol has it.
func TestEveryErrorIsReported(t *testing.T) {
	for _, kind := range wire.ContractErrors() {
		want := wire.ProblemOf(kind)
		name, status := want.Type, want.Status
		switch kind {
		case hansard.ErrInvalid:
			name, status = wire.ProblemType("malformed"), http.StatusBadRequest
		case hansard.ErrDeleted:
			status = http.StatusNotFound
		}
		if p := wire.ProblemOf(told(fmt.Errorf("wrapped: %w", kind))); p.Type != name || p.Status != status {
			t.Errorf("%v is answered with %d %s, not %d %s", kind, p.Status, p.Type, status, name)
		}
	}
}

// TestCreateAtOnce: of many who create a stream at the same moment one succeeds, with its
// content, and no other content is in it.
func TestCreateAtOnce(t *testing.T) {
	for round := range 50 {
		w := newWorld(t, memstore.New(), Options{})
		var made, other atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			headers := asJSON
			if i%2 == 1 && round%2 == 1 {
				headers = with(asJSON, headerTTL, "60")
			}
			all.Go(func() {
				switch got := w.ask("PUT", "s", fmt.Sprintf("[%d,%d]", i, i), headers...); got.Code {
				case 201:
					made.Add(1)
				case 200, 409:
					other.Add(1)
				default:
					t.Errorf("%d %v", got.Code, got.Header())
				}
			})
		}
		all.Wait()
		var got []int
		if err := json.Unmarshal(w.must(200, "GET", "s", "").Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if made.Load() != 1 || other.Load() != 7 || len(got) != 2 || got[0] != got[1] {
			t.Fatalf("%d made it, %d did not, and in it is %v", made.Load(), other.Load(), got)
		}
	}
}

// late is a store in which others are faster to make a session, once.
type late struct {
	hansard.Store
	others func()
}

func (l *late) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	if others := l.others; b.Create && others != nil {
		l.others = nil
		others()
	}
	return l.Store.Append(ctx, id, b)
}

// TestCreateTooLate: the content of a new stream is added neither to an empty session of another
// kind that was made meanwhile, nor after the content of the same stream.
func TestCreateTooLate(t *testing.T) {
	store := &late{Store: memstore.New()}
	w := newWorld(t, store, Options{})
	store.others = func() { _, _ = store.Create(context.Background(), "s", hansard.Meta{Title: "mine"}) }
	w.refused(409, "stream-conflict", "PUT", "s", "text", asText...)
	if got := w.events("s"); len(got) != 0 {
		t.Errorf("it has %+v", got)
	}
	store.others = func() { w.must(201, "PUT", "same", "theirs", asText...) }
	w.must(200, "PUT", "same", "mine", asText...)
	if got := w.must(200, "GET", "same", "").Body.String(); got != "theirs" {
		t.Errorf("it has %q", got)
	}
}

// TestMadeClosed: a stream that was created closed stays closed, whatever comes.
func TestMadeClosed(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	w.must(201, "PUT", "s", "[1,2]", with(asJSON, headerClosed, "true")...)
	if _, err := w.store.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{{Data: json.RawMessage("3")}}}); err != nil {
		t.Fatal(err)
	}
	got := w.must(200, "GET", "s", "")
	if got.Body.String() != "[1,2]" || got.Header().Get(headerClosed) != "true" || got.Header().Get(headerNext) != formatOffset(2) {
		t.Errorf("it is %s %v", got.Body, got.Header())
	}
	w.must(200, "PUT", "s", "[7]", with(asJSON, headerClosed, "true")...)
	w.refused(409, "stream-conflict", "PUT", "s", "[7]", asJSON...)
}
