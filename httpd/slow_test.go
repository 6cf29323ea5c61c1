package httpd_test

import (
	"context"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/httpd"
	"hansard/memstore"
)

// hasty serves a store with little patience. Its connections buffer little.
func hasty(t *testing.T, store hansard.Store, hurry httpd.Hurry, change ...func(*httpd.Options)) (address string, server *httpd.Server, log *buffer) {
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
	server = httpd.NewHasty(store, opt, hurry)
	done := make(chan error, 1)
	go func() { done <- server.Serve(narrow{l}) }()
	t.Cleanup(func() {
		if err := server.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		<-done
		store.Close()
	})
	return l.Addr().String(), server, v
}

// arrive is a server that waits briefly for requests, yet long enough for those that a busy
// machine sends whole.
var arrive = httpd.Hurry{Arrive: 500 * time.Millisecond, Stall: waitMax, Grace: waitMax, Beat: waitMax}

// pipeBytes is the buffer of each end of a narrow connection; the kernel makes it larger.
const pipeBytes = 16 << 10

// narrow is a listener whose connections buffer little.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(pipeBytes)
	}
	return conn, err
}

// dialNarrow is the client's end.
func dialNarrow(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		err = conn.(*net.TCPConn).SetReadBuffer(pipeBytes)
	}
	return conn, err
}

// talk sends the beginning of a request and reads the answer.
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

// TestSlowRequests: a client that sends slowly is answered or cut off, and delays nobody.
func TestSlowRequests(t *testing.T) {
	address, _, _ := hasty(t, memstore.New(), arrive)
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

// TestClosing: a server that is shutting down says so to new requests, and logs no error.
func TestClosing(t *testing.T) {
	v := serveMemory(t)
	v.stop()
	answer := httptest.NewRecorder()
	req := httptest.NewRequest("GET", "http://localhost/readyz", nil)
	req.Header.Set("Authorization", "Bearer "+v.tokens["reader"])
	v.server.ServeHTTP(answer, req)
	if answer.Code != 503 || !strings.Contains(answer.Body.String(), "/problems/closing") || answer.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %v %s", answer.Code, answer.Header(), answer.Body)
	}
	if strings.Contains(v.log.String(), "level=ERROR") {
		t.Errorf("the log: %s", v.log)
	}
}
