package httpd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"hansard"
	"hansard/internal/wire"
)

// One WebSocket follows any number of sessions, appends, and holds turns. Every
// message is a JSON object with an "op". The client's:
//
//	{"op":"follow","ref":1,"session":"s","after":7,"view":"parts","created":"2026-01-02T15:04:05Z"}
//	{"op":"unfollow","ref":2,"session":"s"}
//	{"op":"append","ref":3,"session":"s","batch":{…as in POST …/events…}}
//	{"op":"acquire","ref":4,"session":"s","claim":{…as in POST …/turn…}}
//	{"op":"hold","ref":5,"session":"s","grant":"7-9f86d081884c7d65"}
//	{"op":"release","ref":6,"session":"s","grant":"7-9f86d081884c7d65"}
//	{"op":"ping","ref":7}
//
// The server's, with the ref of the message they answer, which may be any JSON:
//
//	{"op":"following","ref":1,"session":"s","last_seq":9,"created":"2026-01-02T15:04:05Z"}
//	{"op":"events","session":"s","events":[…]}
//	{"op":"ended","session":"s","last":9,"problem":{…}}
//	{"op":"unfollowed","ref":2}  {"op":"stored","ref":3,"receipt":{…}}
//	{"op":"turn","ref":4,"turn":{…}}  {"op":"released","ref":6}  {"op":"pong","ref":7}
//	{"op":"lost","session":"s","grant":"…","problem":{…}}
//	{"op":"problem","ref":3,"problem":{…}}
//	{"op":"dropped","session":"s","last_seq":9}
//
// Appends of one connection are stored in the order they are sent. A turn is
// renewed by the server for as long as the connection lasts, given up when it is
// closed properly, and otherwise left to its TTL: within that time the client may
// reconnect, to this server or another, and hold it again. A client that is too slow
// is told how far each session was sent, if it reads on before the end.

const (
	socketProtocol = "hansard.v1"
	// maxFollows, maxHeld and maxWaiting are how much one connection may
	// have at a time.
	maxFollows = 10_000
	maxHeld    = 1000
	maxWaiting = 1000
	// goodbyeMax is how long a stopping server waits for a client to acknowledge it.
	goodbyeMax = time.Second
	// frameBytes is what a message has around a batch.
	frameBytes = 64 << 10
	// statusSlow closes the connection of a client that was dropped.
	statusSlow = websocket.StatusCode(4008)
)

// socket serves one WebSocket.
func (s *Server) socket(w http.ResponseWriter, r *http.Request) error {
	if !isUpgrade(r) {
		return wire.NewProblem("malformed", "this is no WebSocket handshake", "connect with a WebSocket client")
	}
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	caller := callerOf(r.Context())
	if err := caller.account.take(aSocket); err != nil {
		return err
	}
	defer caller.account.give(aSocket)
	s.followers.Add(1)
	defer s.followers.Done()
	// Host and Origin were checked before, by rules that are stricter. The token
	// that a browser sent as a subprotocol is not echoed.
	w.(*recorder).handOver()
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{socketProtocol}, InsecureSkipVerify: true})
	if err != nil {
		return nil // Accept has answered
	}
	defer s.conns.end(r.Context())
	conn.SetReadLimit(maxBodyBytes + frameBytes)
	s.metrics.sockets.Inc()
	defer s.metrics.sockets.Dec()
	k := &socket{server: s, conn: conn, r: r, caller: caller, pen: make(chan struct{}, 1),
		follows: map[hansard.SessionID]*following{}, leases: map[hansard.Grant]*holding{}}
	// Not the request's context: net/http no longer manages the connection.
	k.ctx, k.cancel = context.WithCancelCause(context.WithoutCancel(r.Context()))
	k.patience = patience{stall: s.timing.stall, grace: s.timing.grace, dropped: k.dropped, cut: func() { k.cancel(errSlow) }}
	k.serve()
	return nil
}

// socket is one WebSocket.
type socket struct {
	server   *Server
	conn     *websocket.Conn
	r        *http.Request // the handshake: problems and log lines have its request id
	caller   caller
	ctx      context.Context // ends with the connection
	cancel   context.CancelCauseFunc
	work     sync.WaitGroup // goroutines besides the reader
	pen      chan struct{}  // full while somebody writes
	patience patience

	mu      sync.Mutex // guards all below
	follows map[hansard.SessionID]*following
	leases  map[hansard.Grant]*holding
	waiting int // acquires under way
}

// holding is one turn that is held.
type holding struct {
	*hansard.Lease
	leave context.CancelFunc // stops renewing it, without releasing it
}

// following is one session that is followed.
type following struct {
	cancel context.CancelFunc
	last   hansard.Seq // the last event that is written, or being written
	done   chan struct{}
}

func (k *socket) serve() {
	k.work.Go(k.beat)
	stop := context.AfterFunc(k.server.closing, func() { k.end(goodbyeMax, websocket.StatusGoingAway, "the server is shutting down") })
	goodbye := context.AfterFunc(k.r.Context(), func() { k.end(lastWords, websocket.StatusPolicyViolation, "the token was withdrawn") })
	err := k.read()
	stop()
	goodbye()
	if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
		k.giveUp()
	}
	k.patience.end()
	k.cancel(err)
	k.work.Wait()
	_ = k.conn.CloseNow() // it is already gone, or should be
}

// end closes the connection: it says why, and waits a moment for the client to acknowledge.
func (k *socket) end(wait time.Duration, code websocket.StatusCode, reason string) {
	late := time.AfterFunc(wait, func() { k.cancel(hansard.ErrClosed) })
	defer late.Stop()
	_ = k.conn.Close(code, reason)
	k.cancel(hansard.ErrClosed)
}

// giveUp releases the turns of a client that closed its connection properly.
func (k *socket) giveUp() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, lease := range k.leases {
		k.work.Go(func() {
			_ = lease.Release() // if it was lost already, that is as good
			k.caller.user.drop(lease.Grant())
		})
	}
	clear(k.leases)
}

// beat finds connections whose other end is gone.
func (k *socket) beat() {
	tick := time.NewTicker(k.server.timing.beat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-k.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(k.ctx, k.server.timing.stall)
		err := k.conn.Ping(ctx)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded) && len(k.pen) == 0: // a write under way has its own deadline
			k.patience.drop()
			return
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return // it is gone
		}
	}
}

// read takes messages until there are no more.
func (k *socket) read() error {
	for {
		kind, r, err := k.conn.Reader(k.ctx)
		if err != nil {
			return err
		}
		if kind != websocket.MessageText {
			_ = k.conn.Close(websocket.StatusUnsupportedData, "messages are JSON text")
			return errors.New("a message that is not text")
		}
		// It has begun to arrive: until it is complete it blocks the connection.
		late := time.AfterFunc(k.server.timing.body, func() { k.end(lastWords, websocket.StatusPolicyViolation, "the message did not arrive in time") })
		if k.patience.isSlow() {
			// A dropped client would not get the answer. It sends the message again.
			_, err := io.Copy(io.Discard, r)
			late.Stop()
			if err != nil {
				return err
			}
			continue
		}
		room := k.server.memory.load(k.caller.Name)
		message, err := room.read(k.ctx, r, -1)
		late.Stop()
		if err != nil {
			room.free()
			return k.unread(err)
		}
		ref, err := k.handle(message)
		room.free()
		if err != nil {
			err = k.refuse(ref, err)
		}
		if err != nil && !errors.Is(err, errSlow) {
			return err
		}
	}
}

// unread ends a connection after a message that could not be read. If there was no memory
// for it the close frame says so: it can't be answered, since the ref is not known yet.
func (k *socket) unread(err error) error {
	var full *wire.Problem
	if errors.As(err, &full) {
		k.server.metrics.problem(full.Type)
		k.end(lastWords, websocket.StatusTryAgainLater, full.Error())
	}
	return err
}

// request is a message of the client.
type request struct {
	op, session  string
	ref          []byte
	view         string
	after        hansard.Seq
	created      time.Time // when the session has to have been created; zero: any
	grant        hansard.Grant
	batch, claim []byte
}

func parseRequest(message []byte) (q request, err error) {
	err = wire.EachMember(message, func(name string, value []byte) error {
		switch name {
		case "op":
			return wire.Member(name, value, &q.op)
		case "ref":
			q.ref = bytes.Clone(value) // outlives the message, which may be large
			if len(value) > maxRef {
				q.ref = nil
				return &hansard.InvalidError{Field: name, TooLarge: true, Reason: fmt.Sprintf("the limit is %d bytes", maxRef)}
			}
			return wire.Member(name, value, new(any))
		case "session":
			return wire.Member(name, value, &q.session)
		case "view":
			return wire.Member(name, value, &q.view)
		case "after":
			return wire.Member(name, value, &q.after)
		case "created":
			return wire.Member(name, value, &q.created)
		case "grant":
			return wire.Member(name, value, &q.grant)
		case "batch":
			q.batch = value
		case "claim":
			q.claim = value
		default:
			return &hansard.InvalidError{Field: name, Reason: "a message has no such member"}
		}
		return nil
	})
	return q, err
}

// maxRef is the longest ref a client may give its message.
const maxRef = 256

// handle does what a message asks for. An error is the answer to its ref.
func (k *socket) handle(message []byte) (ref []byte, err error) {
	q, err := parseRequest(message)
	if err != nil {
		return q.ref, err
	}
	if err := k.caller.account.pace(k.caller.Rate); err != nil {
		return q.ref, err
	}
	do, ok := socketOps[q.op]
	defer func() {
		if err != nil {
			k.denied(&q, err)
		}
	}()
	switch {
	case !ok:
		return q.ref, &hansard.InvalidError{Field: "op", Reason: "there is no such op"}
	case ended(k.r.Context()) != nil:
		return q.ref, ended(k.r.Context())
	case !k.caller.Rights.allows(do.right):
		return q.ref, missingRight(do.right)
	case do.writes && k.server.opt.ReadOnly:
		return q.ref, readOnly()
	}
	return q.ref, do.do(k, &q)
}

// denied audits a message that was denied.
func (k *socket) denied(q *request, err error) {
	p := wire.ProblemOf(err)
	outside := k.caller.outside.Swap(false) // audited here, and not again for the connection
	if k.server.opt.Audit == nil || p.Status != http.StatusForbidden && !outside {
		return
	}
	op := q.op
	if _, known := socketOps[op]; !known {
		op = "other"
	}
	id, _ := k.r.Context().Value(requestKey{}).(string)
	k.server.audit(Audited{Request: id, Remote: k.r.RemoteAddr, Token: k.caller.Name, Method: op, Route: "/v1/ws",
		Session: hansard.SessionID(q.session), Status: p.Status, Problem: p.Type}, true)
}

// socketOps are the operations that a client may ask for.
var socketOps = map[string]struct {
	right  Right
	writes bool
	do     func(k *socket, q *request) error
}{
	"follow":   {Read, false, (*socket).follow},
	"unfollow": {Read, false, (*socket).unfollow},
	"append":   {Append, true, (*socket).append},
	"acquire":  {Append, true, (*socket).acquire},
	"hold":     {Append, true, (*socket).hold},
	"release":  {Append, true, (*socket).release},
	"ping":     {Read | Append, false, func(k *socket, q *request) error { return k.reply("pong", q.ref, "", nil) }},
}
