//go:build unix

package test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hansard"
	"hansard/client"
)

const serverToken = "a-token-for-the-servers-of-tests"

// server is the command serving a store, at an address that it keeps when it is killed and
// restarted.
type server struct {
	t              *testing.T
	store, address string
	flags          []string
	*process
}

func startServer(t *testing.T, store string, flags ...string) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, store: store, address: l.Addr().String(), flags: flags}
	l.Close()
	s.begin()
	return s
}

// begin starts the server and waits until it listens.
func (s *server) begin() {
	s.t.Helper()
	s.process = start(s.t, command(s.store, append([]string{"serve", "--listen", s.address, "--token-from", serverTokenFile(s.t), "--json"}, s.flags...)...), nil)
	if line := s.process.line(); !strings.Contains(line, s.address) {
		s.t.Fatalf("serve says %s", line)
	}
}

// drain stops the server gracefully.
func (s *server) drain() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	if code := s.exit(); code != 0 {
		s.t.Errorf("the server: exit code %d, stderr %s", code, s.stderr)
	}
}

// remoteClient is a client that appends and follows, whatever happens.
type remoteClient struct {
	name    string
	servers []*server
	l       *ledger
	stop    <-chan struct{} // ends the appending
	writing *sync.WaitGroup // signalled when it is over: everything it ever sent is acknowledged
	pace    time.Duration
	got     []stored // what it saw
}

const remoteSession = "demo"

// batch is the n-th batch of a client: the same every time it is asked for.
func (c *remoteClient) batch(n int) (name string, b hansard.Batch) {
	name = fmt.Sprintf("%s-%d", c.name, n)
	size := 1 + n%3
	for i := range size {
		b.Events = append(b.Events, hansard.Event{Data: newMark(name, i, size, 10+n%200).encode()})
	}
	return name, b
}

func (c *remoteClient) ack(name string, r hansard.Receipt) {
	c.l.ack(name, place{remoteSession, uint64(r.First), uint64(r.Last)})
}

// see takes an event, which must be the next one.
func (c *remoteClient) see(e hansard.Event) error {
	if want := hansard.Seq(len(c.got) + 1); e.Seq != want {
		return fmt.Errorf("%s: saw seq %d, want %d", c.name, e.Seq, want)
	}
	var m mark
	if err := json.Unmarshal(e.Data, &m); err != nil {
		return err
	}
	c.got = append(c.got, stored{uint64(e.Seq), m})
	return nil
}

// lastBatch ends the test.
const lastBatch = "last"

// saw reports whether it has seen everything.
func (c *remoteClient) saw() bool {
	return len(c.got) > 0 && c.got[len(c.got)-1].Data.Batch == lastBatch
}

// stopped reports whether appending should end.
func (c *remoteClient) stopped() bool {
	select {
	case <-c.stop:
		return true
	case <-time.After(c.pace):
		return false
	}
}

// overHTTP appends with package client and follows: through the client, or through a stream of
// server-sent events.
func (c *remoteClient) overHTTP(ctx context.Context, stream bool) error {
	s, err := client.New("http://"+c.servers[0].address, &client.Options{Token: serverToken, Patience: waitMax})
	if err != nil {
		return err
	}
	defer s.Close()
	// The client has no patience with a server that it never reached, so it reaches it before it
	// is killed.
	for _, err := s.Stat(ctx, remoteSession); err != nil; _, err = s.Stat(ctx, remoteSession) {
		if ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	following := make(chan error, 1)
	go func() {
		if stream {
			following <- c.followStream(ctx)
		} else {
			following <- c.followClient(ctx, s)
		}
	}()
	if err := c.appendAll(ctx, s); err != nil {
		return err
	}
	return <-following
}

func (c *remoteClient) appendAll(ctx context.Context, s hansard.Store) error {
	defer c.writing.Done()
	for n := 0; !c.stopped(); n++ {
		name, b := c.batch(n)
		r, err := s.Append(ctx, remoteSession, b)
		if err != nil {
			return fmt.Errorf("%s: append: %w", c.name, err)
		}
		c.ack(name, r)
	}
	return nil
}

func (c *remoteClient) followClient(ctx context.Context, s hansard.Store) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for e, err := range hansard.Follow(ctx, s, remoteSession, 0) {
		if err != nil {
			return fmt.Errorf("%s: follow: %w", c.name, err)
		}
		if err := c.see(e); err != nil || c.saw() {
			return err
		}
	}
	return nil
}

// followStream follows by server-sent events, and resumes with the last seq.
func (c *remoteClient) followStream(ctx context.Context) error {
	for try := 0; !c.saw(); try++ {
		err := c.streamOnce(ctx, c.servers[try%len(c.servers)].address)
		if err != nil && !errors.Is(err, errCut) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: it saw %d events: %w", c.name, len(c.got), ctx.Err())
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // the server may be down
		}
	}
	return nil
}

// errCut is a lost connection, as happens when servers are killed.
var errCut = errors.New("the connection was lost")

func (c *remoteClient) streamOnce(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+address+"/v1/sessions/"+remoteSession+"/events/stream", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+serverToken)
	req.Header.Set("Last-Event-ID", fmt.Sprint(len(c.got)))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return errCut
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return fmt.Errorf("%s: stream: %s %s", c.name, res.Status, text)
	}
	lines := bufio.NewReader(res.Body)
	for !c.saw() {
		line, err := lines.ReadString('\n')
		if err != nil {
			return errCut
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e hansard.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("%s: %w: %s", c.name, err, line)
		}
		if err := c.see(e); err != nil {
			return err
		}
	}
	return nil
}

// sending is how far a client is with its appends.
type sending struct {
	n     int    // the batch that is not acknowledged yet
	asked bool   // it was sent
	over  func() // there are no more, and none is in flight
}

// overWebSocket appends and follows on one connection after another. A batch whose receipt did
// not come is sent again on the next, with its key, until it does: the first may still be in
// flight somewhere.
func (c *remoteClient) overWebSocket(ctx context.Context) error {
	sent := &sending{over: sync.OnceFunc(c.writing.Done)}
	defer sent.over()
	for try := 0; ; try++ {
		err := c.socketOnce(ctx, c.servers[try%len(c.servers)].address, sent)
		if err == nil || !errors.Is(err, errCut) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: it saw %d events: %w", c.name, len(c.got), ctx.Err())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// socketMessage is a message from the server.
type socketMessage struct {
	Op      string
	Events  []hansard.Event
	Receipt hansard.Receipt
	Turn    hansard.Turn
	Grant   hansard.Grant
	Problem *struct {
		Type, Detail string
		Status       int
	}
}

// order is a message from a client.
type order map[string]any

// socket is a WebSocket to a server.
type socket struct {
	ctx  context.Context
	conn *websocket.Conn
}

func dialSocket(ctx context.Context, address string) (*socket, error) {
	conn, _, err := websocket.Dial(ctx, "ws://"+address+"/v1/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + serverToken}}})
	if err != nil {
		return nil, errCut
	}
	conn.SetReadLimit(64 << 20)
	return &socket{ctx, conn}, nil
}

func (s *socket) send(o order) error {
	text, err := json.Marshal(o)
	if err == nil && s.conn.Write(s.ctx, websocket.MessageText, text) != nil {
		err = errCut
	}
	return err
}

func (s *socket) read() (m socketMessage, err error) {
	_, text, err := s.conn.Read(s.ctx)
	if err != nil {
		return m, errCut
	}
	return m, json.Unmarshal(text, &m)
}

func (c *remoteClient) socketOnce(ctx context.Context, address string, sent *sending) error {
	s, err := dialSocket(ctx, address)
	if err != nil {
		return err
	}
	defer s.conn.CloseNow()
	if err := s.send(order{"op": "follow", "session": remoteSession, "after": len(c.got)}); err != nil {
		return err
	}
	// next sends the next batch to be acknowledged, if there is one.
	next := func() error {
		if !sent.asked && c.stopped() {
			sent.over()
			return nil
		}
		sent.asked = true
		name, b := c.batch(sent.n)
		return s.send(order{"op": "append", "session": remoteSession, "batch": order{"events": given(b.Events), "key": name}})
	}
	if err := next(); err != nil {
		return err
	}
	for sent.asked || !c.saw() {
		m, err := s.read()
		if err != nil {
			return err
		}
		for _, e := range m.Events {
			if err := c.see(e); err != nil {
				return err
			}
		}
		switch m.Op {
		case "stored":
			name, _ := c.batch(sent.n)
			c.ack(name, m.Receipt)
			sent.n, sent.asked = sent.n+1, false
			if err := next(); err != nil {
				return err
			}
		case "problem", "ended":
			return fmt.Errorf("%s: %s %+v", c.name, m.Op, m.Problem)
		}
	}
	return nil
}

// given is events as they are sent.
func given(events []hansard.Event) (out []map[string]json.RawMessage) {
	for _, e := range events {
		out = append(out, map[string]json.RawMessage{"data": e.Data})
	}
	return out
}
