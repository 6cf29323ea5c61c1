package pgtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// Tap sits between a client and a server and counts how often the client sends something
// after it has received something: round trips as the network sees them, whatever the
// driver believes.
type Tap struct {
	server string        // the directory of the server's socket
	ended  chan struct{} // closed when the test is over

	mu     sync.Mutex // guards below, and heard and loss of each connection
	trips  []*Trip
	losses []Loss // to come
	err    error  // of messages that could not be parsed
}

// Trip is one round trip: the statements in it, in their order.
type Trip []string

// socketName is what a server calls its socket.
const socketName = ".s.PGSQL.5432"

// Tap makes a tap on this server, and returns a URL of the server through the tap.
func (s *Server) Tap(t testing.TB, address string) (*Tap, string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "hansard-tap-") // short: it is the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	tap := &Tap{server: s.dir, ended: make(chan struct{})}
	t.Cleanup(func() {
		close(tap.ended)
		l.Close()
		os.RemoveAll(dir)
		tap.mu.Lock()
		defer tap.mu.Unlock()
		if tap.err != nil {
			t.Errorf("the tap did not understand what it heard: %v", tap.err)
		}
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go tap.pass(client)
		}
	}()
	q := u.Query()
	q.Set("host", dir)
	return tap, "postgres://?" + q.Encode()
}

// Trips are the round trips so far.
func (t *Tap) Trips() (trips []Trip) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, trip := range t.trips {
		trips = append(trips, slices.Clone(*trip))
	}
	return trips
}

// During returns the round trips while f ran, without those of one statement that other
// goroutines execute at the same time.
func (t *Tap) During(beside string, f func()) (trips []Trip) {
	before := len(t.Trips())
	f()
	for _, trip := range t.Trips()[before:] {
		if len(trip) != 1 || trip[0] != beside {
			trips = append(trips, trip)
		}
	}
	return trips
}

// tapped is one connection.
type tapped struct {
	*Tap
	heard    bool              // the server has sent something since the client did
	loss     *Loss             // the one that ends it
	answered chan struct{}     // closed when the server has answered what was lost
	trip     *Trip             // the last one; nil before the first
	prepared map[string]string // statements by their names
}

func (t *Tap) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", filepath.Join(t.server, socketName))
	if err != nil {
		return // the client notices
	}
	defer server.Close()
	c := &tapped{Tap: t, prepared: make(map[string]string), answered: make(chan struct{})}
	go c.answer(client, server)
	if err := c.forward(client, server); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.ECONNRESET) { // the client left
		t.mu.Lock()
		defer t.mu.Unlock()
		t.err = err
	}
}

// answer passes on what the server sends, until it is to be lost.
func (c *tapped) answer(client io.WriteCloser, server io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		c.mu.Lock()
		c.heard = c.heard || n > 0 // before the client can answer it
		lost := c.loss != nil
		c.mu.Unlock()
		if lost {
			close(c.answered) // the client notices eventually
			return
		}
		if _, wrong := client.Write(buf[:n]); err != nil || wrong != nil {
			client.Close()
			return
		}
	}
}

// forward passes on what the client sends, message by message: a letter, except for the
// first message, then the length of the rest, itself included.
func (c *tapped) forward(client io.ReadWriteCloser, server io.WriteCloser) error {
	for first := true; ; first = false {
		head := make([]byte, 5)
		if first {
			head = head[1:]
		}
		if _, err := io.ReadFull(client, head); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[len(head)-4:])-4)
		if _, err := io.ReadFull(client, body); err != nil {
			return err
		}
		if !first {
			c.said(head[0], body)
		}
		if c.loss != nil {
			return c.lose(client, server, append(head, body...))
		}
		if _, err := server.Write(append(head, body...)); err != nil {
			return nil // it was killed
		}
	}
}

// said records a message of the client: Parse, Bind and Query name statements.
func (c *tapped) said(letter byte, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if letter == 'X' {
		return // it hangs up
	}
	if c.heard {
		c.heard, c.trip = false, new(Trip)
		c.trips = append(c.trips, c.trip)
	}
	one, rest, _ := bytes.Cut(body, []byte{0})
	two, _, _ := bytes.Cut(rest, []byte{0})
	sql := ""
	switch letter {
	case 'P':
		c.prepared[string(one)] = string(two)
		sql = string(two)
	case 'B':
		sql = c.prepared[string(two)]
	case 'Q':
		sql = string(one)
	default:
		return
	}
	if c.trip != nil {
		*c.trip = append(*c.trip, sql)
	}
	if letter != 'P' && len(c.losses) > 0 && c.losses[0].SQL == sql {
		c.loss, c.losses = &c.losses[0], c.losses[1:]
	}
}
