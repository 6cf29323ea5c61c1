package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// lastAnswers is how long calls under way may still be answered after the client has
// closed its end.
const lastAnswers = 2 * time.Second

// Serve speaks MCP on two streams, one message per line, until the client closes its end,
// which is not an error, or the context ends.
//
// The SDK has a transport for that, but it ends the server at any line that is not a
// message. This one answers such a line with an error, and still answers calls under way
// after the client has closed its end.
func Serve(ctx context.Context, s *sdk.Server, in io.Reader, out io.Writer) error {
	c := &lines{out: out, closed: make(chan struct{}), messages: make(chan jsonrpc.Message), idle: make(chan struct{}, 1)}
	go c.read(in)
	err := s.Run(ctx, c)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// lines is a connection, and its own transport.
type lines struct {
	messages chan jsonrpc.Message // closed at the end of the input
	failed   error                // why it ended; set before messages is closed
	closed   chan struct{}
	once     sync.Once
	idle     chan struct{} // has an element when all calls were answered

	mu    sync.Mutex // guards all below
	out   io.Writer
	calls int // not answered yet
}

// Connect makes it a transport.
func (c *lines) Connect(context.Context) (sdk.Connection, error) { return c, nil }

// SessionID makes it a connection. It needs no id: there is only one.
func (c *lines) SessionID() string { return "" }

// Close ends a waiting Read. The streams belong to the caller and stay open.
func (c *lines) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// Read returns the next message.
func (c *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m, ok := <-c.messages:
		if !ok {
			c.settle(ctx)
			return nil, c.failed
		}
		return m, nil
	case <-c.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// settle waits until all calls are answered, but not for ever: a cancelled call never is.
func (c *lines) settle(ctx context.Context) {
	timer := time.NewTimer(lastAnswers)
	defer timer.Stop()
	for c.waiting() {
		select {
		case <-c.idle:
		case <-timer.C:
			return
		case <-c.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (c *lines) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls > 0
}

// Write sends a message.
func (c *lines) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	line, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	_, answers := m.(*jsonrpc.Response)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err = c.out.Write(append(line, '\n')); err != nil {
		return err
	}
	if answers {
		if c.calls--; c.calls == 0 {
			select {
			case c.idle <- struct{}{}:
			default:
			}
		}
	}
	return nil
}

// read reads messages until the end of the input.
func (c *lines) read(from io.Reader) {
	defer close(c.messages)
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		line, long, err := nextLine(in)
		switch {
		case long:
			c.refuse(jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message has at most %d bytes", maxRequest))
		case len(line) > 0:
			if !c.pass(line) {
				return
			}
		}
		if err != nil {
			c.failed = err
			return
		}
	}
}

// nextLine reads a line of bounded length; a longer one is dropped.
func nextLine(in *bufio.Reader) (line []byte, long bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxRequest; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return trimLine(line), long, err
		}
	}
}

func trimLine(line []byte) []byte {
	for n := len(line); n > 0; n-- {
		switch line[n-1] {
		case '\n', '\r', ' ', '\t':
		default:
			return line[:n]
		}
	}
	return nil
}

// pass hands a line to the reader of messages; it returns false if nobody reads any more.
func (c *lines) pass(line []byte) bool {
	m, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		c.refuse(jsonrpc.CodeParseError, "the line is not a message of JSON-RPC 2.0")
		return true
	}
	if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
		c.mu.Lock()
		c.calls++
		c.mu.Unlock()
	}
	select {
	case c.messages <- m:
		return true
	case <-c.closed:
		return false
	}
}

// refuse answers a line that is not a message. Its id is not known, so the id of the
// answer is null.
func (c *lines) refuse(code int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = fmt.Fprintf(c.out, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`+"\n", code, reason)
}
