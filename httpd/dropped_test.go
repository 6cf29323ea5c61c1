package httpd_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hansard"
	"hansard/client"
	"hansard/httpd"
	"hansard/memstore"
)

// dropping is a server that drops a client that reads nothing for a moment, and then gives it all
// the time it needs to read on.
var dropping = httpd.Hurry{Arrive: waitMax, Stall: 200 * time.Millisecond, Grace: waitMax, Beat: waitMax}

// slowEvents is far more than a narrow connection buffers.
const slowEvents = 80

// sessions makes s with many large events and t with one.
func sessions(t *testing.T, store hansard.Store, eventBytes int) {
	t.Helper()
	large := []byte(`"` + strings.Repeat("x", eventBytes) + `"`)
	for range slowEvents {
		appendTo(t, store, "s", large)
	}
	appendTo(t, store, "t", []byte("1"))
}

func appendTo(t *testing.T, store hansard.Store, id hansard.SessionID, data []byte) {
	t.Helper()
	if _, err := store.Append(t.Context(), id, hansard.Batch{Create: true, Events: []hansard.Event{{Data: data}}}); err != nil {
		t.Fatal(err)
	}
}

// streamSlowly follows s on a narrow connection and reads nothing yet.
func streamSlowly(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := dialNarrow(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, "GET /v1/sessions/s/events/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-for-tests\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(waitMax))
	return conn
}

// socketSlowly follows t and s on a narrow connection, and reads the one event of t.
func socketSlowly(t *testing.T, address string) *wsConn {
	t.Helper()
	narrow := &http.Transport{DialContext: dialNarrow}
	t.Cleanup(narrow.CloseIdleConnections)
	conn, _, err := websocket.Dial(t.Context(), "ws://"+address+"/v1/ws", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: narrow}, HTTPHeader: http.Header{"Authorization": {"Bearer a-token-for-tests"}}})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(64 << 20)
	t.Cleanup(func() { conn.CloseNow() })
	c := &wsConn{t: t, Conn: conn, ctx: t.Context()}
	c.send(`{"op":"follow","session":"t"}`)
	c.next("following")
	c.events("t", 0, 1)
	c.send(`{"op":"follow","session":"s"}`)
	return c
}

// TestFailure49_SlowStream: a stream that nobody reads blocks no writer. It is dropped; a client
// that reads on finds the last seq after what was sent, nothing after it, and gets the rest when
// it comes back with that seq.
func TestFailure49_SlowStream(t *testing.T) {
	store := memstore.New()
	address, _, log := hasty(t, store, dropping)
	sessions(t, store, 64<<10)
	conn := streamSlowly(t, address)
	eventually(t, "it is dropped", func() bool { return strings.Contains(log.String(), "follower dropped") })
	appendTo(t, store, "s", []byte(`"too late"`)) // as quick as ever, and not for this stream
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &sseConn{t: t, in: bufio.NewReader(res.Body)}
	last, told := 0, ""
	for {
		e, err := c.next()
		if err == io.EOF {
			break // in good order
		}
		if err != nil || told != "" {
			t.Fatalf("after %d, told %q: %+v, %v", last, told, e, err)
		}
		switch {
		case e.event == "dropped":
			if told = e.data; e.id != fmt.Sprint(last) {
				t.Errorf("the browser would remember %q, want %d", e.id, last)
			}
		case e.id != "":
			if last++; e.id != fmt.Sprint(last) {
				t.Fatalf("got %s, want %d", e.id, last)
			}
		}
	}
	if want := fmt.Sprintf(`{"last_seq":%d}`, last); told != want || last == 0 || last >= slowEvents {
		t.Errorf("it was told %q behind event %d", told, last)
	}
	if want := fmt.Sprintf("how=sse last=%d\n", last); !strings.Contains(log.String(), want) {
		t.Errorf("the log does not say %q: %s", want, log)
	}
	serve(t, store).stream("s", "", fmt.Sprint(last)).events(hansard.Seq(last), slowEvents+1)
}

// TestFailure49_SlowSocket: the same for a WebSocket, for every session it follows. Requests it
// makes after it was dropped are not carried out.
func TestFailure49_SlowSocket(t *testing.T) {
	store := memstore.New()
	address, _, log := hasty(t, store, dropping)
	sessions(t, store, 64<<10)
	c := socketSlowly(t, address)
	eventually(t, "it is dropped", func() bool { return strings.Contains(log.String(), "follower dropped") })
	c.send(`{"op":"append","session":"t","batch":{"events":[{"data":"unheard"}]}}`)
	appendTo(t, store, "s", []byte(`"too late"`))
	c.next("following")
	var last hansard.Seq
	told := map[string]hansard.Seq{}
	for {
		m, err := c.read()
		if err != nil {
			if websocket.CloseStatus(err) != 4008 {
				t.Errorf("the end: %v", err)
			}
			break
		}
		switch {
		case m.Op == "dropped":
			told[m.Session] = m.LastSeq
		case m.Op != "events" || m.Session != "s" || len(told) > 0:
			t.Fatalf("told %v, and then %+v", told, m)
		}
		for _, e := range m.Events {
			if last++; e.Seq != last {
				t.Fatalf("got %d, want %d", e.Seq, last)
			}
		}
	}
	if len(told) != 2 || told["s"] != last || told["t"] != 1 || last == 0 || last >= slowEvents {
		t.Errorf("it was told %v behind event %d", told, last)
	}
	again := serve(t, store).socket("reader")
	again.send(`{"op":"follow","session":"s","after":%d}`, last)
	again.next("following")
	again.events("s", last, slowEvents+1)
	if info, err := store.Stat(t.Context(), "t"); err != nil || info.LastSeq != 1 {
		t.Errorf("t: %+v, %v", info, err)
	}
}

// TestFailure49_NeverRead: a client that does not read on is cut off, and nothing of it is left.
func TestFailure49_NeverRead(t *testing.T) {
	store := memstore.New()
	cutting := dropping
	cutting.Grace = time.Millisecond
	address, server, log := hasty(t, store, cutting)
	sessions(t, store, 64<<10)
	conn, c := streamSlowly(t, address), socketSlowly(t, address)
	eventually(t, "both are dropped", func() bool { return strings.Count(log.String(), "follower dropped") == 2 })
	eventually(t, "both are gone", func() bool { return server.Following() == 0 })
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body) // what was buffered
	if err == nil || strings.Contains(string(text), "event: dropped") {
		t.Errorf("the stream ended in good order: %v, %.100s", err, text[max(0, len(text)-100):])
	}
	for {
		m, err := c.read()
		if err != nil {
			if status := websocket.CloseStatus(err); status != -1 {
				t.Errorf("the socket was closed in good order: %v", status)
			}
			break
		}
		if m.Op == "dropped" {
			t.Errorf("got %+v", m)
		}
	}
}

// TestSilentSocket: a client that reads everything but answers no ping is dropped as well. It may
// have been stopped with everything in its buffer, where it finds the last seq.
func TestSilentSocket(t *testing.T) {
	store := memstore.New()
	pinging := dropping
	pinging.Stall, pinging.Beat = time.Second, time.Second
	address, _, log := hasty(t, store, pinging)
	appendTo(t, store, "s", []byte("1"))
	appendTo(t, store, "t", []byte("1"))
	c := socketSlowly(t, address)
	eventually(t, "it is dropped", func() bool { return strings.Contains(log.String(), "follower dropped") })
	c.next("following")
	c.events("s", 0, 1)
	for range 2 {
		if m := c.next("dropped"); m.LastSeq != 1 {
			t.Errorf("%+v", m)
		}
	}
}

// TestSlowReader: a program that reads slowly through the client is cut off by the server, and
// resumes after the last event it has.
func TestSlowReader(t *testing.T) {
	store := memstore.New()
	address, server, _ := hasty(t, store, dropping)
	sessions(t, store, 256<<10) // the client's end is not narrow
	remote, err := client.New("http://"+address, &client.Options{Token: "a-token-for-tests"})
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	var last hansard.Seq
	answered := func() string {
		return metric(t, server, `hansard_http_requests_total{method="GET",route="/v1/sessions/{id}/events",status="200"}`)
	}
	for e, err := range remote.Read(t.Context(), "s", hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if last++; e.Seq != last {
			t.Fatalf("got %d, want %d", e.Seq, last)
		}
		if last == 1 {
			eventually(t, "the server gives up", func() bool { return answered() == "1" })
		}
	}
	if last != slowEvents {
		t.Errorf("it read %d events in %s answers", last, answered())
	}
}

// metric is the value of a metric.
func metric(t testing.TB, server http.Handler, name string) string {
	t.Helper()
	answer := httptest.NewRecorder()
	req := httptest.NewRequest("GET", "http://localhost/metrics", nil)
	req.Header.Set("Authorization", "Bearer a-token-for-tests")
	server.ServeHTTP(answer, req)
	return metricIn(answer.Body.String(), name)
}

// TestFlood: a client that asks and asks, and reads nothing, is dropped. That is not an error of
// the server, and no error is logged.
func TestFlood(t *testing.T) {
	store := memstore.New()
	cutting := dropping
	cutting.Grace = time.Millisecond
	address, server, log := hasty(t, store, cutting)
	sessions(t, store, 64<<10)
	c := socketSlowly(t, address)
	for c.Write(t.Context(), websocket.MessageText, []byte(`{"op":"ping","ref":"`+strings.Repeat("x", 200)+`"}`)) == nil {
	}
	eventually(t, "it is gone", func() bool { return server.Following() == 0 })
	if text := log.String(); !strings.Contains(text, "follower dropped") || strings.Contains(text, "level=ERROR") || strings.Contains(text, "internal") {
		t.Errorf("the log says %s", text)
	}
}
