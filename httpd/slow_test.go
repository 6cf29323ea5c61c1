package httpd_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/httpd"
	"hansard/memstore"
)

// hasty serves a store with little patience.
func hasty(t *testing.T, store hansard.Store, patience time.Duration, change ...func(*httpd.Options)) (address string, server *httpd.Server, log *buffer) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &buffer{}
	opt := httpd.Options{Access: httpd.Single("a-token-for-tests"), Log: textLog(v)}
	for _, f := range change {
		f(&opt)
	}
	server = httpd.NewHasty(store, opt, patience)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		<-done
		store.Close()
	})
	return l.Addr().String(), server, v
}

// talk sends the beginning of a request and reads what comes.
func talk(t *testing.T, address, begin string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, begin); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(waitMax))
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("%q: the connection was not closed: %v", begin, err)
	}
	return string(answer)
}

// TestSlowRequests: who sends slowly is answered or cut, and holds up nobody.
func TestSlowRequests(t *testing.T) {
	address, _, _ := hasty(t, memstore.New(), 100*time.Millisecond)
	auth := "Host: localhost\r\nAuthorization: Bearer a-token-for-tests\r\n"
	if got := talk(t, address, ""); got != "" {
		t.Errorf("nothing was sent, and answered %q", got)
	}
	if got := talk(t, address, "GET /v1/sessions HTTP/1.1\r\nHost: local"); got != "" && !strings.HasPrefix(got, "HTTP/1.1 408") {
		t.Errorf("half a header was answered %q", got)
	}
	got := talk(t, address, "POST /v1/sessions HTTP/1.1\r\n"+auth+"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"id\":")
	if !strings.HasPrefix(got, "HTTP/1.1 408") || !strings.Contains(got, "/problems/timeout") {
		t.Errorf("half a body was answered %q", got)
	}
	got = talk(t, address, "POST /v1/sessions HTTP/1.1\r\n"+auth+"Connection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 400") {
		t.Errorf("a broken chunk was answered %q", got)
	}
	if got := talk(t, address, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("an idle connection: %q", got) // it was closed, or talk would have failed
	}
}

// TestFailure49_SlowFollower: followers that read nothing hold up no writer; they
// are dropped, and what they missed is there when they come back.
func TestFailure49_SlowFollower(t *testing.T) {
	store := memstore.New()
	address, _, log := hasty(t, store, 300*time.Millisecond)
	if _, err := store.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	// They follow, and read not a byte.
	var slow []net.Conn
	for _, begin := range []string{
		"GET /v1/sessions/s/events/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-for-tests\r\n\r\n",
		"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-token-for-tests\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" + maskedText(`{"op":"follow","session":"s"}`),
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, begin); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	// Far more than any buffer between them holds.
	const total = 80
	data := []byte(`"` + strings.Repeat("x", 256<<10) + `"`)
	for range total {
		if _, err := store.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: data}}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both are dropped", func() bool {
		return strings.Count(log.String(), "follower dropped") == len(slow)
	})
	// The stream has part of the events, in order, and then ends; it goes on
	// behind the last one it has.
	conn := slow[0]
	conn.SetReadDeadline(time.Now().Add(waitMax))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &sseConn{t: t, in: bufio.NewReader(res.Body)}
	last := 0
	for {
		e, err := c.next()
		if err != nil {
			break
		}
		if e.id == "" {
			continue
		}
		if last++; e.id != fmt.Sprint(last) {
			t.Fatalf("got %s, want %d", e.id, last)
		}
	}
	if last == total {
		t.Error("it got all of it: that was no slow client")
	}
	serve(t, store).stream("s", "", fmt.Sprint(last)).events(hansard.Seq(last), total)
}

// maskedText is a WebSocket frame of a client.
func maskedText(text string) string {
	return "\x81" + string([]byte{0x80 | byte(len(text))}) + "\x00\x00\x00\x00" + text
}
