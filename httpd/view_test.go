package httpd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hansard"
	"hansard/httpd"
	"hansard/memstore"
)

// readEvent is the part of an event in parts that these tests look at.
type readEvent struct {
	Seq               hansard.Seq
	Kind, Role, Voice string
	Data              json.RawMessage
	Patch             *hansard.Patch
	Parts             []readPart
}

type readPart struct {
	Type, Text, Name, Line, URL string
	Args                        []struct{ Name, Text string }
	Parts                       []readPart
	Cut                         int
}

// addTranscript fills a session with a conversation in several shapes.
func addTranscript(v *served) {
	v.must(201, "POST", "/v1/sessions/s/events", `{"create":true,"events":[
		{"role":"user","data":"Fix the <parser>, please"},
		{"role":"assistant","data":[{"type":"text","text":"I *look*"},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}]},
		{"data":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"__init__.py"}]}},
		{"kind":"odd","data":{"a":[1,2.50]}}],"patch":{"title":"T"}}`)
}

// TestPartsView: the parts are the same in a page, in lines, in a stream and over
// the WebSocket, and the events have no data.
func TestPartsView(t *testing.T) {
	v := serveMemory(t)
	addTranscript(v)
	var page struct{ Events []readEvent }
	v.must(200, "GET", "/v1/sessions/s/events?view=parts", "").into(t, &page)
	if len(page.Events) != 4 {
		t.Fatalf("%d events", len(page.Events))
	}
	for i, want := range []readEvent{
		{Seq: 1, Kind: "message", Role: "user", Voice: "user", Parts: []readPart{{Type: "text", Text: "Fix the <parser>, please"}}},
		{Seq: 2, Kind: "message", Role: "assistant", Voice: "agent", Parts: []readPart{{Type: "text", Text: "I *look*"},
			{Type: "call", Name: "Bash", Line: "ls", Args: []struct{ Name, Text string }{{"command", "ls"}}}}},
		{Seq: 3, Kind: "message", Role: "user", Voice: "tool", Parts: []readPart{{Type: "result", Line: "__init__.py", Parts: []readPart{{Type: "text", Text: "__init__.py"}}}}},
		{Seq: 4, Kind: "odd", Voice: "agent", Parts: []readPart{{Type: "json", Text: `{"a": [1, 2.50]}`, Line: `{"a":[1,2.50]}`}}, Patch: page.Events[3].Patch},
	} {
		if !reflect.DeepEqual(page.Events[i], want) {
			t.Errorf("event %d is\n%+v, want\n%+v", i+1, page.Events[i], want)
		}
	}
	if page.Events[3].Patch == nil {
		t.Error("the patch is missing")
	}
	same := func(how string, got []readEvent) {
		t.Helper()
		if !reflect.DeepEqual(got, page.Events) {
			t.Errorf("%s gives\n%+v", how, got)
		}
	}
	var lines []readEvent
	for line := range strings.Lines(v.must(200, "GET", "/v1/sessions/s/events?view=parts", "", "Accept", "application/x-ndjson").body) {
		var e readEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, e)
	}
	same("lines", lines)

	stream := v.stream("s", "?view=parts", "")
	var streamed []readEvent
	for len(streamed) < 4 {
		got, err := stream.next()
		if err != nil {
			t.Fatal(err)
		}
		if got.id == "" {
			continue
		}
		var e readEvent
		if err := json.Unmarshal([]byte(got.data), &e); err != nil {
			t.Fatal(err)
		}
		streamed = append(streamed, e)
	}
	same("a stream", streamed)

	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, v.url+"/v1/ws", &websocket.DialOptions{Subprotocols: []string{"hansard.v1", "hansard.token." + v.tokens["reader"]}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	ask := func(message string) (answer struct {
		Op      string
		Events  []readEvent
		Problem *struct{ Detail string }
	}) {
		t.Helper()
		if message != "" {
			if err := conn.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
				t.Fatal(err)
			}
		}
		_, data, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if got := ask(`{"op":"follow","session":"s","view":"no"}`); got.Op != "problem" {
		t.Errorf("an unknown view: %+v", got)
	}
	if got := ask(`{"op":"follow","session":"s","view":"parts"}`); got.Op != "following" {
		t.Fatalf("%+v", got)
	}
	var told []readEvent
	for len(told) < 4 {
		told = append(told, ask("").Events...)
	}
	same("the WebSocket", told)

	// A follower of events as stored gets those, at the same time.
	plain := v.stream("s", "?after=3", "")
	for {
		got, err := plain.next()
		if err != nil {
			t.Fatal(err)
		}
		if got.id == "4" {
			if !strings.Contains(got.data, `"data":{"a":[1,2.50]}`) || strings.Contains(got.data, `"parts"`) {
				t.Errorf("the event as it is stored: %s", got.data)
			}
			break
		}
	}
	for query, problem := range map[string]string{"?view=pretty": "invalid", "?whole=true": "invalid", "?view=parts&view=parts": "invalid"} {
		if got := v.ask("GET", "/v1/sessions/s/events"+query, ""); got.problem() != problem {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
}

// TestPartsCut: in the parts view long texts and pictures are cut, and marked as cut; on request
// they are whole. A page of parts holds many events whose data is large.
func TestPartsCut(t *testing.T) {
	v := serveMemory(t)
	long := strings.Repeat("0123456789\n", 100_000)
	picture := strings.Repeat("AAAA", 100_000)
	data, err := json.Marshal([]map[string]any{
		{"type": "text", "text": long},
		{"type": "image", "source": map[string]string{"type": "base64", "media_type": "image/png", "data": picture}},
		{"type": "tool_result", "content": long},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		v.must(201, "POST", "/v1/sessions/s/events", fmt.Sprintf(`{"create":true,"events":[{"data":%s}]}`, data))
	}
	var page struct {
		Events []readEvent
		More   bool
	}
	got := v.must(200, "GET", "/v1/sessions/s/events?view=parts", "")
	got.into(t, &page)
	if len(page.Events) != 12 || page.More || len(got.body) > 12*70<<10 {
		t.Fatalf("%d events in %d bytes, more %v", len(page.Events), len(got.body), page.More)
	}
	parts := page.Events[0].Parts
	if p := parts[0]; p.Cut == 0 || len(p.Text)+p.Cut != len(long) || !strings.HasPrefix(long, p.Text) {
		t.Errorf("the text has %d bytes, and %d are cut", len(p.Text), p.Cut)
	}
	if p := parts[1]; p.URL != "" || p.Cut < len(picture) {
		t.Errorf("the picture has %d bytes, and %d are cut", len(p.URL), p.Cut)
	}
	page.Events = nil
	v.must(200, "GET", "/v1/sessions/s/events?view=parts&whole=true&after=3&limit=1", "").into(t, &page)
	parts = page.Events[0].Parts
	if page.Events[0].Seq != 4 || parts[0].Text != long || parts[0].Cut != 0 || parts[1].URL != "data:image/png;base64,"+picture || parts[2].Parts[0].Text != long {
		t.Errorf("the whole event %d is not whole", page.Events[0].Seq)
	}
}

// TestWhoami: a caller can ask what it may do on this server.
func TestWhoami(t *testing.T) {
	v := serveMemory(t)
	only := serveMemory(t, func(o *httpd.Options) { o.ReadOnly = true })
	for _, c := range []struct {
		on         *served
		token, ask string
	}{
		{v, "reader", `{"name":"reader","rights":["read"]}`},
		{v, "appender", `{"name":"appender","rights":["append"]}`},
		{v, "admin", `{"name":"admin","rights":["read","append","admin"]}`},
		{only, "admin", `{"name":"admin","rights":["read"]}`},
		{only, "appender", `{"name":"appender","rights":[]}`},
	} {
		if got := c.on.must(200, "GET", "/v1/whoami", "", "Authorization", "Bearer "+c.on.tokens[c.token]).body; strings.TrimSpace(got) != c.ask {
			t.Errorf("%s: %s, want %s", c.token, got, c.ask)
		}
	}
}

// TestListPreview: sessions without a title are shown by their first prompt, even if it comes
// later, and not by that of a deleted session.
func TestListPreview(t *testing.T) {
	v := serveMemory(t, withConversations)
	preview := func(id string) string {
		t.Helper()
		var list struct {
			Sessions []struct{ ID, Preview string }
		}
		v.must(200, "GET", "/v1/sessions?preview=true", "").into(t, &list)
		for _, s := range list.Sessions {
			if s.ID == id {
				return s.Preview
			}
		}
		t.Fatalf("%s is not listed", id)
		return ""
	}
	is := func(id, want string) {
		t.Helper()
		for range 2 { // first computed, then cached
			if got := preview(id); got != want {
				t.Errorf("%s: the preview is %q, want %q", id, got, want)
			}
		}
	}
	say := func(id, role, data string) {
		t.Helper()
		v.must(201, "POST", "/v1/sessions/"+id+"/events", fmt.Sprintf(`{"create":true,"events":[{"role":%q,"data":%s}]}`, role, data))
	}
	v.must(201, "POST", "/v1/sessions", `{"id":"empty"}`)
	is("empty", "")
	say("a", "system", `"You fix bugs."`)
	is("a", "")
	say("a", "user", `{"role":"user","content":[{"type":"text","text":"Fix the\nparser"}]}`)
	is("a", "Fix the parser")
	var one struct{ Preview string }
	if v.must(200, "GET", "/v1/sessions/a?preview", "").into(t, &one); one.Preview != "Fix the parser" {
		t.Errorf("one session: the preview is %q", one.Preview)
	}
	for range 80 {
		say("a", "user", `"And another thing"`)
	}
	is("a", "Fix the parser")
	v.must(201, "POST", "/v1/sessions", `{"id":"titled","title":"T"}`)
	say("titled", "user", `"hello"`)
	is("titled", "")

	v.must(201, "POST", "/v1/sessions", `{"id":"conv"}`)
	var items struct {
		Data []struct{ ID string }
	}
	v.must(200, "POST", "/v1/conversations/conv/items", `{"items":[{"role":"user","content":"a secret"},{"role":"user","content":"the second"}]}`).into(t, &items)
	is("conv", "a secret")
	v.must(200, "DELETE", "/v1/conversations/conv/items/"+items.Data[0].ID, "")
	is("conv", "the second")

	// The preview is removed with the session: another session that gets the id later has its
	// own.
	if got := v.ask("GET", "/v1/sessions?preview=true", "", "Accept", "application/x-ndjson"); got.problem() != "invalid" {
		t.Errorf("a whole list with previews: %d", got.status)
	}
	if strings.Contains(v.must(200, "GET", "/v1/sessions", "").body, "preview") {
		t.Error("a list that did not ask has previews")
	}
}

// TestFind: a text is found in what people read, not in the syntax around it, whatever its case,
// in pieces.
func TestFind(t *testing.T) {
	v := serveMemory(t)
	addTranscript(v)
	type found struct {
		Matches []struct {
			Seq  hansard.Seq
			Line string
		}
		Through, Last hansard.Seq
		LastSeq       hansard.Seq `json:"last_seq"`
		More          bool
	}
	find := func(query string) (f found) {
		t.Helper()
		v.must(200, "GET", "/v1/sessions/s/find?"+query, "").into(t, &f)
		return f
	}
	if f := find("q=PARSER"); len(f.Matches) != 1 || f.Matches[0].Seq != 1 || f.Matches[0].Line != "Fix the <parser>, please" || f.Through != 4 || f.LastSeq != 4 || f.More {
		t.Errorf("%+v", f)
	}
	if f := find("q=__init__"); len(f.Matches) != 1 || f.Matches[0].Seq != 3 {
		t.Errorf("%+v", f)
	}
	for _, syntax := range []string{"tool_use_id", "tool_result", "role"} {
		if f := find("q=" + syntax); len(f.Matches) != 0 {
			t.Errorf("%s: %+v", syntax, f)
		}
	}
	f := find("q=e&limit=1")
	if len(f.Matches) != 1 || !f.More || f.Through != 1 {
		t.Errorf("%+v", f)
	}
	if f := find("q=e&limit=1&after=1"); len(f.Matches) != 0 || f.More || f.Through != 4 {
		t.Errorf("%+v", f)
	}
	v.must(201, "POST", "/v1/sessions/s/events", fmt.Sprintf(`{"events":[{"data":%q}]}`, strings.Repeat("ä", 500)+" needle "+strings.Repeat("ö", 500)))
	if f := find("q=needle"); len(f.Matches) != 1 || !strings.HasPrefix(f.Matches[0].Line, "…ää") || !strings.HasSuffix(f.Matches[0].Line, "öö…") || len(f.Matches[0].Line) > 200 {
		t.Errorf("%+v", f)
	}
	for query, status := range map[string]int{"": 422, "?q=": 422, "?q=%20": 422, "?q=x&limit=0": 200, "?q=" + strings.Repeat("x", 1001): 422, "?q=x&fast=1": 422} {
		if got := v.ask("GET", "/v1/sessions/s/find"+query, ""); got.status != status {
			t.Errorf("%.30s: %d, want %d", query, got.status, status)
		}
	}
	if got := v.ask("GET", "/v1/sessions/nowhere/find?q=x", ""); got.status != 404 {
		t.Errorf("nowhere: %d", got.status)
	}
}

// TestFindInPieces: one request reads a bounded part of a session, and says how far it got.
func TestFindInPieces(t *testing.T) {
	v := serveMemory(t)
	const n = 45_000
	for done := 0; done < n; done += 9000 {
		b := hansard.Batch{Create: true}
		for i := range 9000 {
			b.Events = append(b.Events, hansard.Event{Data: fmt.Appendf(nil, `"message %d"`, done+i+1)})
		}
		if _, err := v.store.Append(t.Context(), "s", b); err != nil {
			t.Fatal(err)
		}
	}
	var seqs []hansard.Seq
	asked, after, more := 0, hansard.Seq(0), true
	for more {
		var f struct {
			Matches []struct{ Seq hansard.Seq }
			Through hansard.Seq
			More    bool
		}
		v.must(200, "GET", fmt.Sprintf("/v1/sessions/s/find?q=message+4444&after=%d", after), "").into(t, &f)
		for _, m := range f.Matches {
			seqs = append(seqs, m.Seq)
		}
		asked++
		after, more = f.Through, f.More
	}
	if asked != 3 || after != n || fmt.Sprint(seqs) != "[4444 44440 44441 44442 44443 44444 44445 44446 44447 44448 44449]" {
		t.Errorf("asked %d times to %d: %v", asked, after, seqs)
	}
}

// stuckReads is a store whose reads of a session block until they are released.
type stuckReads struct {
	hansard.Store
	id    hansard.SessionID
	begun chan struct{} // one for each
	free  chan struct{}
}

func (s *stuckReads) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		if id == s.id {
			s.begun <- struct{}{}
			<-s.free
		}
		for e, err := range s.Store.Read(ctx, id, r) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestGreedySearches: one token can't have so many searches in flight that others wait long for
// theirs.
func TestGreedySearches(t *testing.T) {
	store := &stuckReads{Store: memstore.New(), id: "slow", begun: make(chan struct{}, 100), free: make(chan struct{})}
	v := crowded(t, store, unhurried, httpd.Tight{Searches: 3})
	v.say("slow", "hay")
	v.say("fast", "a needle")
	answers := make(chan int, 4)
	for range 4 {
		conn := v.begin("GET /v1/sessions/slow/find?q=x", "", "")
		go func() {
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				answers <- 0
				return
			}
			answers <- res.StatusCode
		}()
	}
	for range 2 { // as many as can read at once
		<-store.begun
	}
	select {
	case status := <-answers:
		if status != 503 {
			t.Fatalf("the first answer is %d, want 503", status)
		}
	case <-time.After(waitMax):
		t.Fatal("nothing is refused")
	}
	v.must(200, "GET", "/v1/sessions/fast/find?q=needle", "") // while these still run
	v.must(200, "GET", "/v1/search?q=needle&in=fast", "")
	close(store.free)
	for range 3 {
		if status := <-answers; status != 200 {
			t.Errorf("a search was answered with %d", status)
		}
	}
	var f struct {
		Matches []struct{ Seq hansard.Seq }
	}
	v.must(200, "GET", "/v1/sessions/fast/find?q=needle", "").into(t, &f)
	if len(f.Matches) != 1 {
		t.Errorf("found %+v", f)
	}
	v.must(200, "GET", "/v1/sessions/fast/find?q=needle", "", "Authorization", "Bearer "+v.tokens["greedy"])
}

// countedReads is a store that counts its reads.
type countedReads struct {
	hansard.Store
	n atomic.Int64
}

func (s *countedReads) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	s.n.Add(1)
	return s.Store.Read(ctx, id, r)
}

// TestPreviewsBounded: the previews of one page read a bounded part of the sessions; when asked
// again the page has the rest.
func TestPreviewsBounded(t *testing.T) {
	store := &countedReads{Store: memstore.New()}
	v := serve(t, store)
	const n = 40
	large := `"` + strings.Repeat("x", 1<<20) + `"`
	for i := range n {
		b := hansard.Batch{Create: true, Events: []hansard.Event{{Role: "assistant", Data: []byte(large)}, {Role: "user", Data: []byte(`"beyond what is read"`)}}}
		if _, err := v.store.Append(t.Context(), hansard.SessionID(fmt.Sprint("large-", i)), b); err != nil {
			t.Fatal(err)
		}
	}
	before := store.n.Load()
	v.must(200, "GET", "/v1/sessions?preview=true", "")
	if got := store.n.Load() - before; got < 8 || got > 20 {
		t.Errorf("%d sessions were read for one page", got)
	}
	for range 3 {
		v.must(200, "GET", "/v1/sessions?preview=true", "")
	}
	if got := store.n.Load() - before; got != n {
		t.Errorf("%d sessions were read for the same page four times, want %d", got, n)
	}
}
