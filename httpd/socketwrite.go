package httpd

import (
	"context"
	"errors"

	"github.com/coder/websocket"

	"hansard"
	"hansard/internal/wire"
)

// reply sends a message: an op, the ref it answers, and one more member.
func (k *socket) reply(op string, ref []byte, name string, value []byte) error {
	out := append([]byte(`{"op":"`), op...)
	out = append(out, '"')
	if ref != nil {
		out = append(append(out, `,"ref":`...), ref...)
	}
	if name != "" {
		out = append(append(append(out, `,"`...), name...), `":`...)
		out = append(out, value...)
	}
	return k.write(append(out, '}'))
}

// refuse answers a message with a problem.
func (k *socket) refuse(ref []byte, err error) error {
	// If it is the connection that failed nobody is there to be told, and it is not the
	// server's failure. Errors of the store are still counted and logged.
	var told *wire.Problem
	if errors.Is(err, errSlow) {
		return err
	}
	if k.ctx.Err() != nil && hansard.Kind(err) == nil && !errors.As(err, &told) {
		return context.Cause(k.ctx)
	}
	return k.reply("problem", ref, "problem", wire.Marshal(k.server.told(k.r, err)))
}

// write sends a message. A client that does not read it in time is dropped: it knows the
// last seq it has, and reconnects with it.
func (k *socket) write(message []byte) error {
	if err := k.takePen(); err != nil {
		return err
	}
	defer k.givePen()
	return k.send(message)
}

// takePen waits for exclusive use of the connection for writing.
func (k *socket) takePen() error {
	select {
	case k.pen <- struct{}{}:
	case <-k.ctx.Done():
		return context.Cause(k.ctx)
	}
	if k.patience.isSlow() {
		k.givePen()
		return errSlow
	}
	return nil
}

func (k *socket) givePen() { <-k.pen }

// send sends a message, in parts if it is large: a client that reads some of it is not
// gone. The caller holds the pen.
func (k *socket) send(message []byte) error {
	return k.sendBy(len(message), func(send func([]byte) error) error { return send(message) })
}

// sendBy is send for a message of a given size. If it is not large all of it has to be sent at
// once.
func (k *socket) sendBy(size int, write func(send func([]byte) error) error) error {
	k.patience.begin()
	defer k.patience.done()
	err := k.sendParts(size, write)
	if err != nil {
		k.cancel(err)
		_ = k.conn.CloseNow()
	}
	return err
}

func (k *socket) sendParts(size int, write func(send func([]byte) error) error) error {
	if size <= linesChunk {
		return write(func(message []byte) error { return k.conn.Write(k.ctx, websocket.MessageText, message) })
	}
	w, err := k.conn.Writer(k.ctx, websocket.MessageText)
	if err != nil {
		return err
	}
	err = write(func(message []byte) error {
		for len(message) > 0 {
			part := message[:min(len(message), linesChunk)]
			if _, err := w.Write(part); err != nil {
				return err
			}
			k.patience.begin()
			message = message[len(part):]
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.Close()
}

// errSlow is the error of a client that is dropped.
var errSlow = errors.New("the client is too slow")

// dropped begins to end the connection of a client that reads nothing.
func (k *socket) dropped() {
	var last hansard.Seq
	k.mu.Lock()
	for _, f := range k.follows {
		last = max(last, f.last)
	}
	k.mu.Unlock()
	k.server.dropped("websocket", last)
	k.work.Go(k.goodbye)
}

// goodbye tells a dropped client how far each session was sent, after the message
// that was being written to it, if it ever reads that.
func (k *socket) goodbye() {
	select {
	case k.pen <- struct{}{}: // never given back
	case <-k.ctx.Done():
		return
	}
	k.mu.Lock()
	last := make(map[hansard.SessionID]hansard.Seq, len(k.follows))
	for id, f := range k.follows {
		last[id] = f.last
	}
	k.mu.Unlock()
	for id, seq := range last {
		out := append([]byte(`{"op":"dropped","session":`), wire.Marshal(id)...)
		out = append(append(out, `,"last_seq":`...), number(seq)...)
		if k.conn.Write(k.ctx, websocket.MessageText, append(out, '}')) != nil {
			return
		}
	}
	_ = k.conn.Close(statusSlow, "too slow: nothing was taken for long; come back with the last seq") // or it is cut
}
