package httpd_test

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"hansard"
)

// TestAbandonedWaiter: a client that waits for a turn and goes away, in whatever way, is not
// granted it: nobody would know of the grant, and the others would wait for its TTL.
func TestAbandonedWaiter(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, c *net.TCPConn){
		"closed": func(t *testing.T, c *net.TCPConn) { c.Close() },
		"reset": func(t *testing.T, c *net.TCPConn) {
			if err := c.SetLinger(0); err != nil {
				t.Fatal(err)
			}
			c.Close()
		},
		"closed behind another request": func(t *testing.T, c *net.TCPConn) {
			needsLinux(t)
			if _, err := c.Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			c.Close()
		},
		"closed behind junk": func(t *testing.T, c *net.TCPConn) {
			needsLinux(t)
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			c.Close()
		},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked %v", name, chunked), func(t *testing.T) {
				v := serveMemory(t)
				v.say("s", "hello")
				held, err := v.store.Acquire(t.Context(), "s", hansard.Claim{})
				if err != nil {
					t.Fatal(err)
				}
				conn, err := net.Dial("tcp", strings.TrimPrefix(v.url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				c := conn.(*net.TCPConn)
				defer c.Close()
				body := `{"wait_ms":-1,"ttl_ms":3600000}`
				head := "POST /v1/sessions/s/turn HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer " + v.tokens["admin"] + "\r\n"
				if chunked {
					head += fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
				} else {
					head += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
				}
				if _, err := c.Write([]byte(head)); err != nil {
					t.Fatal(err)
				}
				eventually(t, "it waits", func() bool { return v.server.Busy() == 1 })
				leave(t, c)
				deadline := time.Now().Add(waitMax)
				for v.server.Busy() > 0 && time.Now().Before(deadline) {
					time.Sleep(time.Millisecond) // between two looks
				}
				if v.server.Busy() > 0 {
					t.Error("it still waits")
				}
				if err := v.store.Release(t.Context(), "s", held.Grant); err != nil {
					t.Fatal(err)
				}
				v.stopWaiting()
				if turn, err := v.store.Turn(t.Context(), "s"); err != nil || turn != nil {
					t.Errorf("the turn is %+v, %v", turn, err)
				}
			})
		}
	}
}

// stopWaiting waits until no request is in flight.
func (v *served) stopWaiting() {
	v.t.Helper()
	eventually(v.t, "nothing is under way", func() bool { return v.server.Busy() == 0 })
}

func needsLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only Linux tells that a connection was closed behind unread bytes")
	}
}
