package httpd_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hansard"
	"hansard/httpd"
	"hansard/memstore"
)

// crowded is a server with little room and two tokens, "greedy" and "admin": what the first does
// must not affect the second.
func crowded(t testing.TB, store hansard.Store, hurry httpd.Hurry, tight httpd.Tight, listen ...net.Listener) *served {
	t.Helper()
	tokens, err := httpd.OpenTokens(filepath.Join(t.TempDir(), "tokens"), "")
	if err != nil {
		t.Fatal(err)
	}
	v := &served{t: t, store: store, tokens: map[string]string{}, log: new(buffer)}
	for _, name := range []string{"admin", "greedy"} {
		if v.tokens[name], err = tokens.Add(tokenOf(name, httpd.Admin)); err != nil {
			t.Fatal(err)
		}
	}
	v.server = httpd.NewTight(store, httpd.Options{Access: tokens, Log: textLog(v.log)}, hurry, tight)
	if len(listen) == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		v.url = "http://" + l.Addr().String()
		listen = append(listen, narrow{l})
	}
	done := make(chan error, 1)
	go func() { done <- v.server.Serve(listen[0]) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitMax)
		defer cancel()
		if err := v.server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-done
		store.Close()
	})
	return v
}

// begin sends the beginning of a request as greedy and stops there.
func (v *served) begin(line, headers, body string) net.Conn {
	v.t.Helper()
	conn, err := dialNarrow(v.t.Context(), "tcp", strings.TrimPrefix(v.url, "http://"))
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * waitMax))
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s\r\n%s", line, v.tokens["greedy"], headers, body)
	return conn
}

// unfinished sends the beginning of a message.
func (c *wsConn) unfinished(begin string) {
	c.t.Helper()
	w, err := c.Writer(c.ctx, websocket.MessageText)
	if err == nil {
		_, err = io.WriteString(w, begin)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestFailure62_UnfinishedMessages: a message that one client announces or begins, and does not
// finish, takes no more from the others than what arrived of it.
func TestFailure62_UnfinishedMessages(t *testing.T) {
	v := crowded(t, memstore.New(), unhurried, httpd.Tight{})
	begun := strings.Repeat("x", 128<<10)
	const post = "POST /v1/sessions/s/events"
	for range 10 {
		v.socket("greedy").unfinished(`{"op":"append","session":"` + begun)
		v.begin(post, "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n", len(begun), begun))
		v.begin(post, "Content-Length: 40000000\r\n", begun)
	}
	// At most twice the size of what arrived is held.
	const most = 30 * 2 * (128<<10 + 64)
	eventually(t, "it arrives", func() bool { return v.server.MemoryOf("greedy") >= 30*128<<10 })
	if held := v.server.MemoryOf("greedy"); held > most {
		t.Errorf("%d bytes are held of %d that arrived", held, 30*len(begun))
	}
	v.say("s", strings.Repeat("y", 8<<20))
	if held := v.server.MemoryOf("admin"); held != 0 {
		t.Errorf("%d bytes are held of what is answered", held)
	}
}

// TestGreedyShare: however much one token sends, half of the memory stays for others, and those
// of its own requests that can be completed are.
func TestGreedyShare(t *testing.T) {
	const total = 8 << 20
	v := crowded(t, memstore.New(), httpd.Hurry{Arrive: waitMax, Stall: waitMax, Grace: waitMax, Beat: waitMax}, httpd.Tight{Memory: total})
	data := strings.Repeat("x", 2<<20-100)
	body := fmt.Sprintf(`{"events":[{"data":"%s"}],"create":true}`, data)
	const each = 6
	var conns []net.Conn
	for range each { // each takes its half
		conns = append(conns, v.begin("POST /v1/sessions/s/events", fmt.Sprintf("Connection: close\r\nContent-Length: %d\r\n", len(body)), body[:1<<20]))
	}
	eventually(t, "its share is used up", func() bool { return v.server.MemoryOf("greedy") > total/2-1<<20 })
	for range 3 {
		v.say("t", data)
	}
	if held := v.server.MemoryOf("greedy"); held > total/2 {
		t.Errorf("greedy has %d bytes of %d", held, total)
	}
	stored, refused := 0, 0
	for _, conn := range conns {
		go io.WriteString(conn, body[1<<20:])
	}
	for _, conn := range conns {
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		switch {
		case err != nil:
			t.Error(err)
		case res.StatusCode == 201:
			stored++
		case res.StatusCode == 503 && res.Header.Get("Retry-After") == "1":
			refused++
		default:
			t.Errorf("answered %s", res.Status)
		}
	}
	if info, err := v.store.Stat(t.Context(), "s"); err != nil || int(info.LastSeq) != stored || stored == 0 || stored+refused != each {
		t.Errorf("%d were stored, %d refused; the session is %+v, %v", stored, refused, info, err)
	}
	eventually(t, "all is given back", func() bool { return v.server.MemoryOf("greedy") == 0 })
}

// TestGreedyReads: of many requests at once for a large event, by clients that do not read what
// they get, the server answers or keeps waiting only as many as it has memory for, and a few
// more. The others are refused, instead of each holding an event.
func TestGreedyReads(t *testing.T) {
	const size, requests, few = 2 << 20, 20, 3
	for name, c := range map[string]struct{ path, headers string }{
		"an event":  {"/v1/sessions/s/events/large", ""},
		"a page":    {"/v1/sessions/s/events?limit=1", ""},
		"lines":     {"/v1/sessions/s/events", "Accept: application/x-ndjson\r\n"},
		"a stream":  {"/ds/s?offset=-1", ""},
		"an export": {"/v1/sessions/s/export", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := crowded(t, memstore.New(), unhurried, httpd.Tight{Memory: 8 * size, Reading: few, Waiting: few, Exports: few})
			large := hansard.Event{ID: "large", Data: []byte(`"` + strings.Repeat("x", size-100) + `"`)}
			if _, err := v.store.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{large}}); err != nil {
				t.Fatal(err)
			}
			answers := make(chan int, requests)
			read := make(chan struct{}) // closed when the clients begin to read
			for range requests {
				conn := v.begin("GET "+c.path, c.headers+"Connection: close\r\n", "")
				go func() {
					in := bufio.NewReader(conn)
					if head, _ := in.Peek(12); strings.HasSuffix(string(head), " 200") {
						<-read
					}
					res, err := http.ReadResponse(in, nil)
					if err != nil {
						t.Error(err)
						answers <- 0
						return
					}
					n, err := io.Copy(io.Discard, res.Body)
					if err != nil || res.StatusCode == 200 && n < size-100 {
						t.Errorf("%d bytes, %v", n, err)
					}
					answers <- res.StatusCode
				}()
			}
			answered := map[int]int{}
			const most = 4 + few // a token has half of the memory
			for range requests - most {
				answered[<-answers]++
			}
			if answered[503] != requests-most {
				t.Errorf("the first %d answers: %v", requests-most, answered)
			}
			if held := v.server.MemoryOf("greedy"); held > 4*size {
				t.Errorf("%d bytes are held", held)
			}
			v.must(200, "GET", "/v1/sessions/s/events?limit=1", "") // as admin
			close(read)
			for range most {
				answered[<-answers]++
			}
			if answered[200] < 2 || answered[200]+answered[503] != requests {
				t.Errorf("the answers: %v", answered)
			}
			eventually(t, "all is given back", func() bool { return v.server.MemoryOf("greedy") == 0 })
		})
	}
}

// TestGreedyLinesInView: an answer of lines takes only the memory for what is not written yet: not
// for all the large events of which a view shows little.
func TestGreedyLinesInView(t *testing.T) {
	const size, events = 256 << 10, 20
	v := crowded(t, memstore.New(), unhurried, httpd.Tight{Memory: 8 * size})
	picture := hansard.Event{Data: []byte(`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + strings.Repeat("A", size) + `"}}]}`)}
	for range events {
		if _, err := v.store.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{picture}}); err != nil {
			t.Fatal(err)
		}
	}
	res, err := http.ReadResponse(bufio.NewReader(v.begin("GET /v1/sessions/s/events?view=parts", "Accept: application/x-ndjson\r\nConnection: close\r\n", "")), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if lines := bytes.Count(body, []byte("\n")); err != nil || lines != events || bytes.Contains(body, []byte(`"problem"`)) {
		t.Errorf("%s, %d lines of %d, %v: %.300s", res.Status, lines, events, err, body[max(0, len(body)-300):])
	}
}

// slowReads lets reads begin, and holds them until it is let go.
type slowReads struct {
	hansard.Store
	under atomic.Int64
	last  atomic.Value // the session of the newest
	letGo chan struct{}
}

func (s *slowReads) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		s.under.Add(1)
		defer s.under.Add(-1)
		s.last.Store(id)
		<-s.letGo
		s.Store.Read(ctx, id, r)(yield)
	}
}

// TestGreedyReading: however many requests of one token read from a store that is slow, only a
// few do so at a time, others have their own, and in the end all are answered.
func TestGreedyReading(t *testing.T) {
	const reading, requests = 3, 12
	store := &slowReads{Store: memstore.New(), letGo: make(chan struct{})}
	v := crowded(t, store, unhurried, httpd.Tight{Reading: reading})
	v.say("s", "one")
	var conns []net.Conn
	for i := range requests {
		headers := "Connection: close\r\n"
		if i%2 == 0 {
			headers += "Accept: application/x-ndjson\r\n"
		}
		conns = append(conns, v.begin("GET /v1/sessions/s/events", headers, ""))
	}
	eventually(t, "all have begun", func() bool { return v.server.Busy() == requests && store.under.Load() >= reading })
	if under := store.under.Load(); under != reading {
		t.Errorf("%d read at a time", under)
	}
	admin := make(chan int, 1)
	go func() { admin <- v.ask("GET", "/v1/sessions/s/events", "").status }()
	eventually(t, "another token reads, too", func() bool { return store.under.Load() == reading+1 })
	close(store.letGo)
	if status := <-admin; status != 200 {
		t.Errorf("the other token: %d", status)
	}
	for _, conn := range conns {
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 || !bytes.Contains(body, []byte("one")) {
			t.Errorf("%s: %s, %v", res.Status, body, err)
		}
	}
}

// TestGreedyReadingBeside: events that are read only for their seq, or for a preview, are read by a
// few requests at a time, too.
func TestGreedyReadingBeside(t *testing.T) {
	const reading, requests = 3, 12
	for name, c := range map[string]struct{ line, body string }{
		"after an id":           {"GET /v1/sessions/s/events?after_id=first", ""},
		"followed after an id":  {"GET /v1/sessions/s/events/stream?after_id=first", ""},
		"forked at an id":       {"POST /v1/sessions/s/fork", `{"at_id":"first"}`},
		"a session's preview":   {"GET /v1/sessions/s?preview", ""},
		"a list, with previews": {"GET /v1/sessions?preview", ""},
	} {
		t.Run(name, func(t *testing.T) {
			store := &slowReads{Store: memstore.New(), letGo: make(chan struct{})}
			v := crowded(t, store, unhurried, httpd.Tight{Reading: reading})
			first := hansard.Event{ID: "first", Role: "user", Data: []byte(`"one"`)}
			if _, err := v.store.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{first}}); err != nil {
				t.Fatal(err)
			}
			var conns []net.Conn
			for range requests {
				conns = append(conns, v.begin(c.line, fmt.Sprintf("Connection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", len(c.body)), c.body))
			}
			eventually(t, "all have begun", func() bool { return v.server.Busy() == requests && store.under.Load() >= reading })
			if under := store.under.Load(); under != reading {
				t.Errorf("%d read at a time", under)
			}
			close(store.letGo)
			for _, conn := range conns {
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				if res.StatusCode >= 300 {
					t.Error(res.Status)
				}
			}
		})
	}
}

// TestGreedyReadingFollowers: however many followers of one token are behind, only a few of them
// read the store at a time, others have their own, and in the end all get the events.
func TestGreedyReadingFollowers(t *testing.T) {
	const reading, followers = 3, 12
	store := &slowReads{Store: memstore.New(), letGo: make(chan struct{})}
	v := crowded(t, store, unhurried, httpd.Tight{Reading: reading})
	v.say("s", "one")
	v.say("other", "one")
	var streams []*bufio.Reader
	for range followers {
		streams = append(streams, bufio.NewReader(v.begin("GET /v1/sessions/s/events/stream", "", "")))
	}
	eventually(t, "all follow", func() bool { return v.server.Following() == followers && store.under.Load() >= reading })
	v.tokens["reader"] = v.tokens["admin"]
	admin := v.stream("other", "", "0") // is served after those
	eventually(t, "another token reads, too", func() bool { return store.last.Load() == hansard.SessionID("other") })
	if under := store.under.Load(); under != reading+1 {
		t.Errorf("%d of the one token read at a time", under-1)
	}
	close(store.letGo)
	for e, err := admin.next(); e.id != "1"; e, err = admin.next() {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, in := range streams {
		for line := ""; line != "id: 1\n"; {
			var err error
			if line, err = in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestGreedyMessageLate: a message that does not arrive in time ends its connection, and the
// memory for it is released.
func TestGreedyMessageLate(t *testing.T) {
	v := crowded(t, memstore.New(), arrive, httpd.Tight{})
	c := v.socket("greedy")
	c.unfinished(strings.Repeat(" ", 100<<10))
	if _, err := c.read(); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("the end of the connection: %v", err)
	}
	eventually(t, "it is given back", func() bool { return v.server.MemoryOf("greedy") == 0 })
}

// TestGreedyCounts: a token has a limit for everything it may have at a time, and others are
// counted separately.
func TestGreedyCounts(t *testing.T) {
	store, _, _ := held(t)
	v := crowded(t, store, unhurried, httpd.Tight{Requests: 8, Sockets: 2, Followings: 5, Turns: 3, Reports: 1})
	for i := range 10 {
		v.say(fmt.Sprint("s", i), "one")
	}
	// Sockets, and what is on them.
	a, b := v.socket("greedy"), v.socket("greedy")
	over := func(want int, message string) {
		t.Helper()
		for i := range want + 1 {
			c := a
			if i%2 == 1 {
				c = b
			}
			c.send(message, i)
			m, err := c.read()
			if err != nil {
				t.Fatal(err)
			}
			for m.Op == "events" {
				if m, err = c.read(); err != nil {
					t.Fatal(err)
				}
			}
			if refused := m.Op == "problem"; refused != (i == want) || refused && m.Problem.Type != "/problems/overloaded" {
				t.Errorf("%d of %d: %+v", i+1, want, m)
			}
		}
	}
	over(5, `{"op":"follow","session":"s%d","after":1}`)
	over(3, `{"op":"acquire","session":"s%d"}`)
	if _, res, err := websocket.Dial(t.Context(), strings.Replace(v.url, "http", "ws", 1)+"/v1/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + v.tokens["greedy"]}}}); err == nil || res == nil || res.StatusCode != 503 {
		t.Errorf("a third socket: %v, %v", res, err)
	}
	_, report := reading(t, t.Context(), v.url, v.tokens["greedy"])
	defer report.Close()
	if got := v.ask("GET", "/v1/verify", "", "Authorization", "Bearer "+v.tokens["greedy"]); got.status != 503 || got.problem() != "overloaded" {
		t.Errorf("a second report: %d %s", got.status, got.body)
	}
	// Requests, three of which are in flight.
	for range 5 {
		v.begin("GET /v1/sessions/s9/events?after=1&wait_ms=60000", "", "")
	}
	eventually(t, "they wait", func() bool { return v.server.Busy() == 8 })
	if got := v.ask("GET", "/v1/sessions/s1", "", "Authorization", "Bearer "+v.tokens["greedy"]); got.status != 503 || got.problem() != "overloaded" {
		t.Errorf("a ninth request: %d %s", got.status, got.body)
	}
	v.must(200, "GET", "/v1/sessions/s1", "")
	c := v.socket("admin")
	c.send(`{"op":"follow","session":"s1","after":1}`)
	c.next("following")
	// What ends makes room.
	a.Close(websocket.StatusNormalClosure, "")
	eventually(t, "there is room again", func() bool {
		return v.ask("GET", "/v1/sessions/s1", "", "Authorization", "Bearer "+v.tokens["greedy"]).status == 200
	})
	d := v.socket("greedy")
	d.send(`{"op":"follow","session":"s8","after":1}`)
	d.next("following")
	// It was no failure of the server: otherwise a token could fill the log.
	if log := v.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the log:\n%s", log)
	}
}

// TestGreedyConnections: a client that opens many connections, with a token or without, leaves
// others theirs.
func TestGreedyConnections(t *testing.T) {
	v := crowded(t, memstore.New(), unhurried, httpd.Tight{Conns: 40, Strangers: 10})
	v.say("s", "one")
	// Without a token: the oldest are closed.
	var strangers []net.Conn
	for range 30 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(v.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET /v1/sessions HTTP/1.1\r\n")
		strangers = append(strangers, conn)
	}
	for _, conn := range strangers[:20] {
		conn.SetReadDeadline(time.Now().Add(waitMax))
		if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Fatalf("an old connection without a token is still there: %v", err)
		}
	}
	// The connection that said "one" may still be closing.
	eventually(t, "at most ten connections, all without a token", func() bool {
		all, unknown := v.server.Connections()
		return all <= 10 && unknown <= 10
	})
	v.must(200, "GET", "/v1/sessions/s", "")
	// With one: idle ones are closed in favour of new ones, busy ones are not.
	ask := func(path string) (*bufio.Reader, *http.Response) {
		t.Helper()
		in := bufio.NewReader(v.begin("GET "+path, "", ""))
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		return in, res
	}
	for i := range 60 {
		if _, res := ask("/v1/sessions/s"); res.StatusCode != 200 {
			t.Fatalf("connection %d: %s", i, res.Status)
		}
	}
	if all, _ := v.server.Connections(); all > 31 {
		t.Errorf("%d connections", all)
	}
	// A connection is idle a moment after its answer has arrived.
	eventually(t, "all are idle", func() bool { return v.server.IdleOf("greedy") == 20 })
	refused := 0
	for range 30 {
		if _, res := ask("/v1/sessions/s/events/stream"); res.StatusCode == 503 {
			refused++
		}
	}
	if refused != 10 {
		t.Errorf("%d of 30 streams were refused, where half of 40 connections are for one token", refused)
	}
	v.must(200, "GET", "/v1/sessions/s", "")
}

// counting counts what is taken from lists.
type counting struct {
	hansard.Store
	listed atomic.Int64
}

func (c *counting) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) {
		for info, err := range c.Store.List(ctx, q) {
			c.listed.Add(1)
			if !yield(info, err) {
				return
			}
		}
	}
}

// TestListBytes: a page of sessions with large states ends before it gets too large, and the next
// one continues after it.
func TestListBytes(t *testing.T) {
	store := &counting{Store: memstore.New()}
	v := serve(t, store)
	const sessions = 40
	state := append(append([]byte{'"'}, bytes.Repeat([]byte("s"), 1<<20-2)...), '"')
	for i := range sessions {
		if _, err := store.Create(t.Context(), hansard.SessionID(fmt.Sprint("s", i)), hansard.Meta{State: state}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[hansard.SessionID]int{}
	pages := 0
	for cursor := ""; ; {
		store.listed.Store(0)
		got := v.must(200, "GET", "/v1/sessions?limit=1000&cursor="+cursor, "")
		var page struct {
			Sessions []hansard.Info
			Next     string
		}
		got.into(t, &page)
		if len(got.body) > httpd.MaxPageBytes+1<<20 || len(page.Sessions) == 0 {
			t.Errorf("a page of %d sessions has %d bytes", len(page.Sessions), len(got.body))
		}
		if taken := int(store.listed.Load()); taken > len(page.Sessions)+1 {
			t.Errorf("%d sessions were taken for a page of %d", taken, len(page.Sessions))
		}
		for _, s := range page.Sessions {
			seen[s.ID]++
		}
		pages++
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(seen) != sessions || pages < 5 {
		t.Errorf("%d sessions on %d pages", len(seen), pages)
	}
	for id, n := range seen {
		if n > 2 { // what changed in the last minute may come again
			t.Errorf("%s was listed %d times", id, n)
		}
	}
}

// TestGreedyClaims: claim names have a limited length, and only a limited number is kept.
func TestGreedyClaims(t *testing.T) {
	v := crowded(t, memstore.New(), unhurried, httpd.Tight{})
	v.say("s", "one")
	long := fmt.Sprintf(`{"claim":"%s"}`, strings.Repeat("n", 1<<20))
	for _, path := range []string{"/v1/sessions/s/turn", "/v1/sessions/" + strings.Repeat("x", 10_000) + "/turn"} {
		for _, method := range []string{"DELETE", "POST"} {
			if got := v.ask(method, path, long); got.status != 413 {
				t.Errorf("%s %.30s with a long name: %d %.200s", method, path, got.status, got.body)
			}
			if got := v.ask(method, path, `{"claim":"n"}`); got.status != 413 && path != "/v1/sessions/s/turn" {
				t.Errorf("%s of a long id: %d %.200s", method, got.status, got.body)
			}
		}
	}
	known := v.server.Claims()
	if known > 1 {
		t.Errorf("%d claims are kept", known)
	}
	in := bufio.NewReader(nil)
	conn := v.begin("GET /v1/sessions/s", "", "")
	in.Reset(conn)
	for i := range httpd.MaxClaims + 100 {
		if i > 0 {
			body := fmt.Sprintf(`{"claim":"n%d"}`, i)
			fmt.Fprintf(conn, "DELETE /v1/sessions/s/turn HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", v.tokens["greedy"], len(body), body)
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%v, %v", res, err)
		}
		io.Copy(io.Discard, res.Body)
	}
	if kept := v.server.Claims() - known; kept != httpd.MaxClaims {
		t.Errorf("%d claims are kept, want %d", kept, httpd.MaxClaims)
	}
}

// TestGreedyFollowers: followers that read nothing hold no more than their token's share, however
// many there are, and what is kept for all sessions is bounded.
func TestGreedyFollowers(t *testing.T) {
	const total, kept = 16 << 20, 4 << 20
	v := crowded(t, memstore.New(), unhurried, httpd.Tight{Memory: total, Followed: kept})
	const sessions = 20
	for i := range sessions {
		for range 3 {
			v.say(fmt.Sprint("s", i), strings.Repeat("x", 1<<20))
		}
	}
	for i := range 4 * sessions {
		conn := v.begin(fmt.Sprintf("GET /v1/sessions/s%d/events/stream", i%sessions), "", "")
		if _, err := bufio.NewReaderSize(conn, 16).Peek(1); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the share is used", func() bool { return v.server.MemoryOf("greedy") > total/2-2<<20 })
	for i := range sessions {
		v.say(fmt.Sprint("s", i), strings.Repeat("y", 1<<20))
		if held := v.server.MemoryOf("greedy"); held > total/2 {
			t.Fatalf("greedy has %d of %d", held, total)
		}
		if held := v.server.Kept(); held > kept+3<<20 { // plus one that is being added
			t.Fatalf("%d bytes are kept, of at most %d", held, kept)
		}
	}
	// Another client follows, and gets everything.
	c := v.socket("admin")
	c.send(`{"op":"follow","session":"s0"}`)
	c.next("following")
	c.events("s0", 0, 4)
}

// TestGreedyLargeEvent: followers that read the beginning of a large event, and no more, do not
// each hold a copy of it in the server.
func TestGreedyLargeEvent(t *testing.T) {
	const size, followers = 8 << 20, 24
	for name, begin := range map[string]func(v *served) io.Reader{
		"streams": func(v *served) io.Reader {
			in := bufio.NewReaderSize(v.begin("GET /v1/sessions/s/events/stream?after=1", "", ""), 16)
			for line := ""; line != ": following\n"; {
				var err error
				if line, err = in.ReadString('\n'); err != nil {
					v.t.Fatal(err)
				}
			}
			return readerFunc(func([]byte) (int, error) {
				for line := ""; line != "id: 2\n"; {
					var err error
					if line, err = in.ReadString('\n'); err != nil {
						return 0, err
					}
				}
				return 0, nil
			})
		},
		"sockets": func(v *served) io.Reader {
			c := v.socket("greedy")
			c.send(`{"op":"follow","session":"s","after":1}`)
			c.next("following")
			return readerFunc(func(p []byte) (int, error) {
				_, in, err := c.Reader(c.ctx)
				if err != nil {
					return 0, err
				}
				return in.Read(p)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := crowded(t, memstore.New(), unhurried, httpd.Tight{})
			v.say("s", "one")
			var all []io.Reader
			for range followers {
				all = append(all, begin(v))
			}
			eventually(t, "all follow", func() bool { return v.server.Following() == followers })
			v.say("s", strings.Repeat("x", size))
			for _, in := range all {
				if _, err := in.Read(make([]byte, 16)); err != nil {
					t.Fatal(err)
				}
			}
			var mem runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&mem)
			if mem.HeapAlloc > followers*size/2 {
				t.Errorf("%d MiB are in memory", mem.HeapAlloc>>20)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
