package pgtest

import (
	"encoding/binary"
	"io"
)

// Loss is the end of a connection through a tap, when the client carries out a
// statement. The server does not hear of the statement, unless the loss says so.
type Loss struct {
	SQL   string
	Heard bool            // the server carries it out: the answer is lost
	Late  <-chan struct{} // the server hears of it when this is closed, the client's end is gone before
	Then  func()          // called when the server is done with it
}

// Lose has connections end, one after the other.
func (t *Tap) Lose(losses ...Loss) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.losses = append(t.losses, losses...)
}

// Left is how many of the losses have not come about.
func (t *Tap) Left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.losses)
}

// lose ends a connection with the message that the loss was waiting for.
func (c *tapped) lose(client io.ReadCloser, server io.WriteCloser, message []byte) error {
	if c.loss.Heard || c.loss.Late != nil {
		rest, err := untilSync(client)
		if err != nil {
			return err
		}
		if c.loss.Late != nil {
			client.Close()
			<-c.loss.Late
		}
		if _, err := server.Write(append(message, rest...)); err != nil {
			return nil // it was killed
		}
		<-c.answered
	} else {
		server.Close()
	}
	if c.loss.Then != nil {
		c.loss.Then()
	}
	return nil
}

// untilSync reads what the client says up to where it waits for an answer.
func untilSync(client io.Reader) (all []byte, err error) {
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(client, head); err != nil {
			return nil, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(client, body); err != nil {
			return nil, err
		}
		if all = append(append(all, head...), body...); head[0] == 'S' {
			return all, nil
		}
	}
}
